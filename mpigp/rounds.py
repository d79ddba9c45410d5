"""The two map-reduce rounds: one evaluation of the bound and its whole gradient over the ranks of a communicator.

round 1   Bcast      Z, variance, alpha, beta, jitter                    from rank 0
          map        each rank: the statistics of its rows
          Allreduce  one packed buffer of integers
round 2   rank 0:    F and its derivatives by the statistics  →  Bcast   one packed buffer
          map        each rank contracts them with its rows: gradients of Z, alpha; its own of mu, S stay with it
          Allreduce  one packed buffer of integers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.bound import Bound, bound
from mpigp.exactsum import from_two_words
from mpigp.models import Inducing, Model, Weights
from mpigp.parameters import Globals
from mpigp.phases import Phases
from mpigp.rows import Rows
from mpigp.whitening import NotPositiveDefinite
from mpigp.workers import Part, Workers

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Floats = NDArray[np.float64]
Words = NDArray[np.int64]

SMALLEST_JITTER, LARGEST_JITTER = 1e-12, 1e-2


class EvaluationFailed(Exception):
    """The bound has no value at these parameters; every rank raises it."""


class Evaluation(NamedTuple):
    """bound : F, on every rank.   gradient : by the globals, on rank 0.   jitter : the one that served."""

    bound: float
    gradient: Globals | None
    jitter: float


class Master(NamedTuple):
    """What rank 0 makes of the statistics: the bound, the second round's weights, and the gradients through K_mm."""

    bound: Bound
    weights: Weights
    by_Z: Floats
    by_alpha: Floats


class Evaluator:
    """Evaluates the bound and its gradient over the rows of all ranks; the gradients of mu and S stay in `rows`."""

    def __init__(self, comm: Comm, model: Model, rows: Rows, m: int, q: int, threads: int = 1) -> None:
        self.comm, self.model, self.rows = comm, model, rows
        self.m, self.q, self.d = m, q, rows.Y.shape[1]
        self.threads = threads
        self.phases = Phases()
        self.statistics_scale = model.statistics_scale(rows, m)
        self.workers = Workers(threads, native.workspace(m, q, self.d))

    def __call__(self, parameters: Globals | None, jitter: float) -> Evaluation:
        """Evaluate at rank 0's `parameters` (the others' are not looked at) and the mu and S in `rows`.

        When a factorisation fails, all ranks try again together with ten times the jitter.
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
        told = self._broadcast(
            None if parameters is None else np.append(parameters.pack(), jitter), self.m * self.q + self.q + 3
        )
        parameters, jitter = Globals.unpack(told[:-1], self.m, self.q), float(told[-1])
        with self.phases("statistics"):
            snr = parameters.beta * parameters.variance
            inducing = Inducing(parameters.Z, parameters.alpha, jitter, snr)  # fails on all ranks, or on none
            words = self._sum_statistics(inducing)
        self._allreduce(words)

        master: Master | None = None
        if self.comm.rank == 0:
            with self.phases("bound"):
                master = self._bound(inducing, words, parameters)
        value, weights = self._broadcast_weights(master)

        with self.phases("gradients"):
            scale = self.model.gradient_scale(inducing, weights)
            words = self._sum_gradient(inducing, weights, scale)
        self._allreduce(words)
        if words[-1]:
            raise EvaluationFailed("the gradient has no value here: rows lie too far from the inducing points")
        gradient = None
        if master is not None:
            with self.phases("bound"):
                gradient = self._gradient(inducing, master, from_two_words(words[:-1], scale))
        return Evaluation(value, gradient, jitter)

    def _sum_statistics(self, inducing: Inducing) -> Words:
        def work(part: Part) -> int:
            return self.model.add_statistics(inducing, self.rows, part)

        return self.workers.sum(work, self.rows.chunks, self.statistics_scale, words_each=1)

    def _sum_gradient(self, inducing: Inducing, weights: Weights, scale: Floats) -> Words:
        def work(part: Part) -> int:
            return self.model.add_gradient(inducing, self.rows, weights, part)

        return self.workers.sum(work, self.rows.chunks, scale, words_each=2)

    def _bound(self, inducing: Inducing, words: Words, parameters: Globals) -> Master | None:
        """Return the master's part of an evaluation; None where the bound has no value at this jitter."""
        if words[-1]:
            return None
        summary = self.model.summary(inducing, words[:-1], self.statistics_scale, self.d)
        try:
            F = bound(
                summary.C,
                summary.b,
                self.rows.n,
                self.rows.YY,
                summary.KL,
                parameters.variance,
                parameters.beta,
            )
        except NotPositiveDefinite:
            return None
        return Master(F, *self.model.backward(inducing, summary, F, self.rows))

    def _gradient(self, inducing: Inducing, master: Master, sums: Floats) -> Globals:
        by_Z = np.empty_like(master.by_Z)
        by_Z[inducing.whitening.order] = master.by_Z + sums[: self.m * self.q].reshape(by_Z.shape)
        by_alpha = master.by_alpha + sums[self.m * self.q :]
        return Globals(by_Z, master.bound.by_variance, by_alpha, master.bound.by_beta)

    def _broadcast_weights(self, master: Master | None) -> tuple[float, Weights]:
        """Tell every rank F and the weights; a bound without a value is everybody's failure."""
        shape = self.model.weight_shape(self.m)
        size = int(np.prod(shape))
        buffer = None
        if self.comm.rank == 0:
            if master is None:
                buffer = np.full(size + self.m * self.d + 2, np.nan)
            else:
                w = master.weights
                buffer = np.concatenate([w.matrix.ravel(), w.psi1Y.ravel(), [w.limit, master.bound.value]])
        told = self._broadcast(buffer, size + self.m * self.d + 2)
        if np.isnan(told[-1]):
            raise NotPositiveDefinite
        matrix, psi1Y, (limit, value) = np.split(told, [size, size + self.m * self.d])
        return float(value), Weights(matrix.reshape(shape), psi1Y.reshape(self.m, self.d), float(limit))

    def _broadcast(self, buffer: Floats | None, size: int) -> Floats:
        with self.phases("wait"):
            self.comm.Barrier()
        with self.phases("broadcast"):
            told = buffer if self.comm.rank == 0 and buffer is not None else np.empty(size)
            self.comm.Bcast(told, root=0)
        self.phases.sent(told.nbytes)
        return told

    def _allreduce(self, words: Words) -> None:
        from mpi4py import MPI

        with self.phases("wait"):
            self.comm.Barrier()
        with self.phases("reduce"):
            self.comm.Allreduce(MPI.IN_PLACE, words, op=MPI.SUM)
        self.phases.sent(words.nbytes)
