"""Rows that a fit does not learn from: how well it predicts them while it runs, and an end when that gets no better."""

import math
from typing import Any, NamedTuple

import numpy as np

from mpigp.data.datasets import Stream, blocks
from mpigp.errors import InputError
from mpigp.fit.checkpoint import evaluate_at_solution
from mpigp.fit.loop import Fit
from mpigp.fit.options import Options
from mpigp.fit.setup import PreparedFit
from mpigp.gp.parameters import Globals
from mpigp.gp.posterior import Posterior
from mpigp.mpi.distributed_rows import DistributedRows, check_unchanged, fingerprint, scores
from mpigp.types import Floats


class Scores(NamedTuple):
    """How well rows are predicted, in the data's units: the root mean square error, and the mean negative log density
    of a row, in nats. Both are NaN where there is no score."""

    rmse: float = math.nan
    nlpd: float = math.nan


class ValidationRows(NamedTuple):
    """Inputs (n, q) and outputs (n, d) in the data's units.   where : what an error about them begins with"""

    X: DistributedRows
    Y: DistributedRows
    where: str

    def fingerprint(self) -> str:
        """Return a number that tells such rows apart. Collective."""
        return fingerprint(self.X, self.Y)

    def check_fingerprint(self, expected: str) -> None:
        """Refuse streamed rows that, read once more, have another fingerprint. Collective."""
        if isinstance(self.Y.local, Stream) and self.fingerprint() != expected:
            raise InputError(self.Y.local.file.changed)

    @np.errstate(all="ignore")  # predictions that are not finite have no score
    def score(self, posterior: Posterior, threads: int) -> Scores:
        """Return the scores of a posterior's predictions, the same bits on any number of ranks. Collective."""
        if not posterior.usable:
            return Scores()
        pairs = (each for _, each in blocks(self.X.local, self.Y.local))
        found = scores(self.Y.comm, self.Y.n, ((posterior.predict(X, threads), Y) for X, Y in pairs))
        check_unchanged(self.Y.comm, self.X.local, self.Y.local)
        nlpd = -found["log_density"]
        return Scores(found["rmse"], nlpd) if math.isfinite(found["rmse"] + nlpd) else Scores()


class Validation:
    """A handler that scores the predictions of rows at every so-many-th iteration and at the end, and stops the fit
    when the NLPD has not improved for `options.patience` scores.

    Scores go to the fit's trace, from which everything follows: there is no other state to continue from.

    last : the scores at the end of the fit
    """

    def __init__(self, prepared: PreparedFit, rows: ValidationRows, options: Options) -> None:
        self.prepared, self.rows = prepared, rows
        self.every, self.patience, self.threads = options.validate_every, options.patience, options.threads
        self.last = Scores()
        self._evaluations = 0  # of the fit until the last one that was at its point

    def begin(self) -> None:
        """Take up the trace of an earlier run, without a score that is there only because the run ended."""
        fit = self.prepared.fit
        for series in (fit.trace.validation_rmse, fit.trace.validation_nlpd):
            series.extend([math.nan] * (fit.iteration - len(series)))
            if series and not fit.stopped and not self._due(fit.iteration):
                series[-1] = math.nan
        fit.stopped = fit.stopped or self._exhausted(fit)

    def __call__(self, fit: Fit) -> None:
        """Score the iteration, if it is due or the last; the same on every rank. Collective."""
        self._evaluations = fit.evaluations
        due, ends = self._due(fit.iteration), fit.stopped or fit.iteration >= fit.settings.max_iter
        found = self._score() if due or ends else Scores()
        fit.trace.validation_rmse.append(found.rmse)
        fit.trace.validation_nlpd.append(found.nlpd)
        if due and not fit.stopped:
            fit.stopped = self._exhausted(fit)

    def finish(self) -> None:
        """Score the end of the fit, where its last iteration has no score yet. Collective."""
        fit, trace = self.prepared.fit, self.prepared.fit.trace
        if len(trace):
            self.last = Scores(trace.validation_rmse[-1], trace.validation_nlpd[-1])
            if all(map(math.isfinite, self.last)):
                return
        if fit.evaluations != self._evaluations:  # of a step that failed
            evaluate_at_solution(self.prepared, "the predictions cannot be scored")
        self.last = self._score()
        if len(trace):
            trace.validation_rmse[-1], trace.validation_nlpd[-1] = self.last

    def figures(self) -> dict[str, Any]:
        """Return the number of rows, and the scores at the end, None where predictions are not finite."""
        named = {f"validation_{name}": value for name, value in self.last._asdict().items()}
        return {"validation_rows": self.rows.Y.n} | {name: None if math.isnan(x) else x for name, x in named.items()}

    def _due(self, iteration: int) -> bool:
        return iteration % self.every == 0

    def _exhausted(self, fit: Fit) -> str:
        """Return the reason to stop, if there is one; scores while variance and beta are held do not count."""
        counted = [value for iteration, value in enumerate(fit.trace.validation_nlpd, 1)
                   if self._due(iteration) and iteration > fit.hold and not math.isnan(value)]  # fmt: skip
        if self.patience is None or len(counted) - np.argmin([*counted, math.inf]) <= self.patience:
            return ""
        return f"the NLPD of the validation rows has not improved for {self.patience} scores"

    def _score(self) -> Scores:
        """Score the posterior of the last evaluation, which is at the fit's point."""
        return self.rows.score(broadcast_posterior(self.prepared), self.threads)


def broadcast_posterior(prepared: PreparedFit) -> Posterior:
    """Return, on every rank, the posterior of a regression's last evaluation, which rank 0 has. Collective."""
    objective, evaluator = prepared.fit.objective, prepared.fit.objective.evaluator
    m, q, d = evaluator.m, evaluator.q, evaluator.d
    sizes = m * q + evaluator.p + 2, m, m * m, m * m, m * d
    message: Floats = np.empty(sum(sizes))
    if evaluator.last is not None:
        inducing, master = evaluator.last
        packed = objective.parameters(prepared.fit.optimizer.point).pack()
        parts = packed, inducing.whitening.order, inducing.whitening.L, master.bound.L_B[0], master.bound.g
        np.concatenate([np.ravel(each) for each in parts], out=message)
    evaluator.comm.Bcast(message)
    packed, order, L, L_B, g = np.split(message, np.cumsum(sizes)[:-1])
    parameters = Globals.unpack(packed, m, q)
    parameters = parameters._replace(Z=np.ascontiguousarray(parameters.Z[order.astype(np.intp)]))
    factors = L.reshape(m, m), L_B.reshape(1, m, m), g.reshape(m, d), np.zeros(d, np.intp)
    units = prepared.standardized.get("x"), prepared.standardized.get("y")
    return Posterior(evaluator.model.name, *parameters, *factors, *units, evaluator.model.backend.name)
