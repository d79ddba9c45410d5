"""From the rows of every rank to a fit that is ready to run, or to be continued."""

import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mpigp.data.datasets import Stream
from mpigp.errors import InputError
from mpigp.fit.loop import Fit
from mpigp.fit.objective import NAMES, Objective
from mpigp.fit.options import Mode, Options
from mpigp.fit.start.growing import grow
from mpigp.fit.start.initialize import initialize
from mpigp.fit.start.standardize import standardization
from mpigp.fit.start.trials import SMALLEST, Start, regression_start
from mpigp.gp.parameters import Globals, Standardization
from mpigp.gp.statistics import model_of
from mpigp.mpi.distributed_rows import DistributedRows, fingerprint
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows, find_patterns
from mpigp.types import Floats

UNMOVED = 1e-4  # relative change of an ARD weight, below which nothing has moved it
TRIAL = 50  # iterations after which starts are compared, once variance and beta are free


class PreparedFit(NamedTuple):
    """A fit, and how its data were prepared."""

    fit: Fit
    standardized: dict[str, Standardization]  # by "x" and "y", how the columns were; empty where they were not
    constant: dict[str, list[int]]  # by "x" and "y", the numbers of the constant columns
    identity: dict[str, Any]  # what two fits must have in common for one to continue the other
    columns: Mapping[str, list[str]] = MappingProxyType({})  # by "x" and "y", names of the columns that have some
    start: Start | None = None  # where it began
    gaps: Mapping[int, float] = MappingProxyType({})  # of the numbers of inducing points that were tried
    first_alpha: Floats | None = None  # the ARD weights before the first step

    def unmoved(self, parameters: Globals) -> list[int]:
        """Return the inputs whose ARD weights were free to move, and are where they began."""
        if self.first_alpha is None or "alpha" in self.fit.settings.fixed or not self.fit.iteration:
            return []
        if self.fit.objective.evaluator.model.backend.composed:
            return []  # several parts may have a weight of the same input
        return np.flatnonzero(np.abs(parameters.alpha / self.first_alpha - 1) < UNMOVED).tolist()


@np.errstate(all="ignore")  # a start that is not finite is refused
def prepare(X: DistributedRows | None, Y: DistributedRows, options: Options, resuming: bool = False,
            inducing: int | None = None) -> PreparedFit:  # fmt: skip
    """Standardize, initialize, and return the fit at its start. Collective.

    Inputs X (n, q), None for a GPLVM, and outputs Y (n, d) are float64 and row-major, or streamed. They are
    standardized in place, and the fit keeps them; missing entries, of outputs in memory, become zero.

    resuming : a checkpoint is to be loaded into the fit, so there is no start to choose
    inducing : the number of inducing points that it has, where that was left to the fit
    """
    began = time.perf_counter()
    data, filled, patterns = fingerprint(X, Y), Y, None
    if options.missing and not isinstance(Y.local, Stream):
        patterns = find_patterns(Y.comm, Y.local)
    standardized, constant = standardize(options.standardize, X, Y)
    if patterns is not None and not isinstance(Y.local, Stream):  # by the columns' means, for the start alone
        means = standardization(Y, "center")[0].mean
        filled = Y.with_local(np.where(np.isnan(Y.local), means, Y.local))
        Y.local[np.isnan(Y.local)] = 0.0
    x_scale = standardized["x"].scale if "x" in standardized else None
    grown = None
    if options.grow is not None and X is not None:
        if inducing is None:
            grown = grow(X, Y, options, x_scale)
            inducing = len(grown.start.parameters.Z)
        options = replace(options, inducing=inducing)
    plain = replace(options, placement="random") if resuming else options  # the fastest: the points will be replaced
    first, mu, S = initialize(X, filled, plain, options.seed, x_scale)
    rows = Rows(Y.comm, Y.n, mu, S, Y.local, patterns)
    model = model_of(options.model, options.kernel, options.bound)
    evaluator = Evaluator(Y.comm, model, rows, options.inducing, mu.shape[1], options.threads)
    objective = Objective(evaluator, options.jitter)
    start = Start(first)
    if grown is not None:
        start = grown.start
    elif not resuming and options.restarts > 1:
        start = Start(best_start(objective, X, filled, options, x_scale))
    elif not resuming and options.start == "auto" and X is not None and Y.n >= SMALLEST and not options.hold:
        start = regression_start(X, Y, options, first)
    fit = Fit(objective, options, start.parameters, resuming, start.learned, time.perf_counter() - began)
    if not resuming and not np.isfinite(fit.bound):
        raise InputError("the bound has no value at the start: choose `standardize` scale, or a larger `jitter`")
    return PreparedFit(fit, standardized, constant, identity(options, rows, mu.shape[1], data), start=start,
                       gaps={} if grown is None else grown.gaps, first_alpha=first.alpha)  # fmt: skip


def standardize(mode: Mode, X: DistributedRows | None,
                Y: DistributedRows) -> tuple[dict[str, Standardization], dict[str, list[int]]]:  # fmt: skip
    """Standardize the columns in place; return how, and the constant ones. Collective."""
    standardized, constant = {}, {}
    for column, values in (("x", X), ("y", Y)):
        if values is not None:
            standardized[column], constant[column] = standardization(values, mode)
            standardized[column].apply(values.local)
    return ({} if mode == "none" else standardized), constant


def identity(options: Options, rows: Rows, q: int, data: str) -> dict[str, Any]:
    """Return what a checkpoint must have been made with, to be continued."""
    names = ("model", "optimizer", "hold", "fixed", "init", "placement", "start", "seed", "restarts", "standardize",
             "jitter", "kernel", "bound", "validate", "grow")  # fmt: skip
    given = {name: getattr(options, name) for name in names}
    known = [*NAMES, *sorted(options.fixed - set(NAMES))]
    given["fixed"] = ",".join(name for name in known if name in options.fixed)
    given["validate"] = "a file" if isinstance(options.validate, str) else options.validate
    shape = {"rows": rows.n, "outputs": rows.Y.shape[1], "dimensions": q, "inducing": options.inducing}
    return given | shape | {"data": data}


def best_start(objective: Objective, X: DistributedRows | None, Y: DistributedRows, options: Options,
               x_scale: Floats | None = None) -> Globals:  # fmt: skip
    """Return the globals of the best of `options.restarts` starts, after TRIAL iterations from each. Collective.

    Its mu and S go to the objective's rows.
    """
    rows = objective.evaluator.rows
    trials = replace(options, max_iter=(options.hold or 0) + TRIAL)
    best: Any = None  # a bound, and its start: globals, mu and S
    for number in range(options.restarts):
        start: Any = initialize(X, Y, options, options.seed + number, x_scale)
        if rows.S is not None:
            rows.mu[...], rows.S[...] = start[1:]
        trial = Fit(objective, trials, start[0])
        trial.run()
        if best is None or trial.bound > best[0]:
            best = trial.bound, start
    if rows.S is not None:
        rows.mu[...], rows.S[...] = best[1][1:]
    return best[1][0]
