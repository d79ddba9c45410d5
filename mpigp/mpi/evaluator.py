"""The two map-reduce rounds: one evaluation of the bound and its whole gradient over the ranks of a communicator.

round 1   Bcast      Z, variance, alpha, beta, jitter                    from rank 0
          map        each rank: the statistics of its rows
          Allreduce  one packed buffer of integers
round 2   rank 0:    F and its derivatives by the statistics  →  Bcast   one packed buffer
          map        each rank contracts them with its rows: gradients of Z, alpha; its own of mu, S stay with it
          Allreduce  one packed buffer of integers

Where nothing bounds the sums of a round, its ranks first agree on their windows (mpigp.numerics.reproducible_sum), in
another Allreduce.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from mpigp.gp.bound import Bound, Group, largest_bound
from mpigp.gp.certificate import Certificate, upper_bound
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import Adjoints, Block, Inducing, Model, Statistics
from mpigp.mpi.communicator import check_alike
from mpigp.mpi.rows import Rows
from mpigp.mpi.timers import Timers
from mpigp.numerics.cholesky import NotPositiveDefinite
from mpigp.numerics.reproducible_sum import Summation
from mpigp.numerics.threads import Part, Workers
from mpigp.types import Comm, Floats, Integers

SMALLEST_JITTER, LARGEST_JITTER = 1e-12, 1e-2
NOT_FINITE = "the bound has no value here: a parameter is not finite"


class EvaluationFailed(Exception):
    """The bound has no value at these parameters; every rank raises it."""


class Evaluation(NamedTuple):
    """bound : F, on every rank.   gradient : by the globals, on rank 0.   jitter : the one that served.

    rounding : the error of F by rounding, on every rank; 0 where no more than the last digits are wrong
    """

    bound: float
    gradient: Globals | None
    jitter: float
    rounding: float


class Master(NamedTuple):
    """The statistics on rank 0, with the bound and its derivatives."""

    summary: Statistics
    bound: Bound
    weights: Adjoints


class Evaluator:
    """Evaluates the bound and its gradient over the rows of all ranks; the gradients of mu and S stay in `rows`."""

    def __init__(self, comm: Comm, model: Model, rows: Rows, m: int, q: int, threads: int = 1) -> None:
        from mpi4py import MPI

        check_alike(comm)
        self.comm, self.model, self.rows = comm, model, rows
        self._in_place, self._operations = MPI.IN_PLACE, {"sum": MPI.SUM, "max": MPI.MAX}
        self.statistics_summation = model.backend.statistics_summation
        self.gradient_summation = model.backend.gradient_summation
        self.m, self.q, self.d, self.p = m, q, rows.Y.shape[1], model.backend.parameters(q)
        self.threads = threads
        self.phases = Timers()
        self.statistics_scale = model.statistics_scale(rows, m)
        rows.have_trace_terms(model.by_rows)
        self.last: tuple[Inducing, Master] | None = None  # of the last evaluation, on rank 0
        self.workers = Workers(threads, model.backend.workspace(m, q, self.d, len(rows.groups), len(rows.groups)))

    def __call__(self, parameters: Globals | None, jitter: float) -> Evaluation:
        """Evaluate at rank 0's `parameters` (those of other ranks are ignored) and the mu and S in `rows`.

        When a factorization fails, all ranks try again together with ten times the jitter.
        """
        while True:
            try:
                return self._evaluate(parameters, jitter)
            except NotPositiveDefinite:
                jitter = max(10 * jitter, SMALLEST_JITTER)
                if jitter > LARGEST_JITTER:
                    raise EvaluationFailed("the bound has no value here: the matrices stay singular up to "
                                           f"a jitter of {LARGEST_JITTER:g}") from None  # fmt: skip

    def _evaluate(self, parameters: Globals | None, jitter: float) -> Evaluation:
        parameters, jitter = self._broadcast_parameters(parameters, jitter)
        if not math.isfinite(self.model.prior_variance(parameters)):
            raise EvaluationFailed(NOT_FINITE)
        with self.phases("statistics"):
            inducing = self.model.inducing(parameters, jitter, self.rows)  # it fails on all ranks, or on none
            if not self.model.backend.unit:
                self.statistics_scale = self.model.statistics_scale(self.rows, self.m, inducing)
            sums = self._sum_statistics(inducing)
        self._reduce(self.statistics_summation, sums)
        self.rows.check_unchanged(self.comm)
        if sums[-1] and not self.model.whitens(inducing):
            raise EvaluationFailed("the bound has no value here: a sum over the rows is not finite, or too large")

        with self.phases("bound"):
            master = self._bound(inducing, sums, parameters) if self.comm.rank == 0 else None
        value, weights = self._broadcast_weights(master)

        with self.phases("gradients"):
            scale = self.model.gradient_scale(inducing, weights, self.rows)
            sums = self._sum_gradient(inducing, weights, scale)
        self._reduce(self.gradient_summation, sums)
        self.rows.check_unchanged(self.comm)
        if sums[-1]:
            raise EvaluationFailed("the gradient has no value here: rows lie too far from the inducing points")
        with self.phases("bound"):
            totals = self.gradient_summation.floats(sums[:-1], scale)
            gradient = None if master is None else self._gradient(inducing, master, totals, parameters)
        self.last = None if master is None else (inducing, master)
        rounding = self.model.rounding(inducing, self.rows.n * self.d)
        return Evaluation(value, gradient, jitter, rounding)

    def certificate(self, parameters: Globals) -> Certificate | None:
        """Return what the evidence lies between at the parameters of the last evaluation, on rank 0; None for a GPLVM,
        of which nothing is known, and where rounding leaves no upper bound."""
        if self.last is None or self.rows.S is not None:
            return None
        _, (summary, *_) = self.last
        (group,) = summary.groups(self.rows.groups)
        variance = self.model.prior_variance(parameters)
        try:
            upper = upper_bound(summary.C[0], summary.b, group, variance, parameters.beta)
        except NotPositiveDefinite:
            return None
        return Certificate(self.last[1].bound.value, upper, group.n * self.d)

    def _broadcast_parameters(self, parameters: Globals | None, jitter: float) -> tuple[Globals, float]:
        """Return rank 0's parameters and jitter, on every rank."""
        message = np.empty(self.m * self.q + self.p + 3)
        if self.comm.size == 1 and parameters is not None:
            self.phases.sent(message.nbytes)
            numbers = parameters.variance, parameters.beta, jitter
            if not (
                np.isfinite(parameters.Z).all()
                and np.isfinite(parameters.alpha).all()
                and all(map(math.isfinite, numbers))
            ):
                raise EvaluationFailed(NOT_FINITE)
            return parameters, jitter
        if self.comm.rank == 0 and parameters is not None:
            message[:-1], message[-1] = parameters.pack(), jitter
        self._broadcast(message)
        if not np.isfinite(message).all():
            raise EvaluationFailed(NOT_FINITE)
        return Globals.unpack(message[:-1], self.m, self.q), float(message[-1])

    def _sum_statistics(self, inducing: Inducing) -> Integers:
        work = partial(self.model.add_statistics, inducing)
        return self._sum_blocks(work, self.statistics_summation, self.statistics_scale)

    def _sum_gradient(self, inducing: Inducing, weights: Adjoints, scale: Floats) -> Integers:
        work = partial(self.model.add_gradient, inducing, weights)
        return self._sum_blocks(work, self.gradient_summation, scale)

    def _sum_blocks(self, work: Callable[[Block, Part], int], summation: Summation, scale: Floats) -> Integers:
        """Return the words of the sums over this rank's rows, which end with the number of overflows."""
        blocks = self.rows.blocks()
        sums = (self.workers.sum(partial(work, rows), rows.chunks, summation, scale) for rows in blocks)
        total = next(sums)  # of the only block, unless rows are streamed
        for words in sums:
            summation.merge(total, words)
        return total

    def _bound(self, inducing: Inducing, sums: Integers, parameters: Globals) -> Master | None:
        """Return the master's part of an evaluation; None where the bound has no value at this jitter."""
        if sums[-1]:
            return None
        summary, groups = self._summary(inducing, sums[:-1])
        try:
            F = self.model.evaluate_bound(summary, groups, parameters)
            if F.value > largest_bound(groups, parameters.beta):
                return None
            return Master(summary, F, self.model.weights(inducing, summary, F, self.rows))
        except (NotPositiveDefinite, OverflowError):
            return None

    def _summary(self, inducing: Inducing, accumulators: Integers) -> tuple[Statistics, Sequence[Group]]:
        """Return the arguments of the bound: the statistics, and the groups of outputs with their numbers of rows."""
        sums = self.statistics_summation.floats(accumulators, self.statistics_scale)
        return self.model.summary(inducing, sums, self.d), self.rows.groups

    def _gradient(self, inducing: Inducing, master: Master, sums: Floats, parameters: Globals) -> Globals:
        """Return the gradient from the rows' sums and, through K_mm, from the master's."""
        backend, start = self.model.backend, self.m * self.q
        end = start + backend.loop_parameters(self.q)
        gram = self.model.gram_weights(inducing, *master, sums[end:])
        through_K, by_parameters = backend.gram_gradient(gram, inducing.points)
        by_Z = np.empty_like(through_K)
        through_K += sums[:start].reshape(by_Z.shape)
        by_Z[inducing.whitening.order] = through_K
        by_variance, alpha = master.bound.by_variance, parameters.alpha
        by_alpha = backend.parameter_gradient(alpha, by_parameters + sums[start:end], self.q,
                                              by_variance * parameters.variance)  # fmt: skip
        return Globals(by_Z, by_variance * backend.scale(alpha, self.q), by_alpha, master.bound.by_beta)

    def _broadcast_weights(self, master: Master | None) -> tuple[float, Adjoints]:
        """Return F and the weights, on every rank; all ranks fail where rank 0 has no bound."""
        shape = self.model.weight_shape(self.m, len(self.rows.groups))
        first, groups = math.prod(shape), len(self.rows.groups) if self.model.backend.composed else 0
        message = np.empty(first + 2 * self.m * self.d + groups + 2)
        if self.comm.size == 1 and master is not None:
            self.phases.sent(message.nbytes)
            return master.bound.value, master.weights
        matrix, psi0 = message[:first].reshape(shape), message[len(message) - groups - 2 : -2]
        psi1Y, fit = message[first : first + 2 * self.m * self.d].reshape(2, self.m, self.d)
        if master is not None:
            matrix[...], psi1Y[...], fit[...], psi0[...], message[-2] = master.weights
            message[-1] = master.bound.value
        elif self.comm.rank == 0:
            message[-1] = math.nan
        self._broadcast(message)
        limit, value = message[-2:].tolist()
        if math.isnan(value):
            raise NotPositiveDefinite
        return value, Adjoints(matrix, psi1Y, fit, psi0, limit)

    def _broadcast(self, message: Floats) -> None:
        if self.comm.size > 1:
            with self.phases("wait"):
                self.comm.Barrier()
            with self.phases("broadcast"):
                self.comm.Bcast(message, root=0)
        self.phases.sent(message.nbytes)

    def _reduce(self, summation: Summation, words: Integers) -> None:
        """Make a rank's words those of all ranks."""
        for message, operation in summation.messages(words):
            if self.comm.size > 1:
                with self.phases("wait"):
                    self.comm.Barrier()
                with self.phases("reduce"):
                    self.comm.Allreduce(self._in_place, message, op=self._operations[operation])
            self.phases.sent(message.nbytes)
