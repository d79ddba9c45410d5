"""From the rows of every rank to a fit that is ready to run, or to be continued."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mpigp.data.datasets import Columns, Stream
from mpigp.errors import InputError
from mpigp.files.model_file import open_model
from mpigp.fit.loop import Fit
from mpigp.fit.objective import NAMES, Objective
from mpigp.fit.options import Mode, Options
from mpigp.fit.start import inducing
from mpigp.fit.start.pca import pca, random_latent
from mpigp.fit.start.standardize import standardization
from mpigp.gp.parameters import Globals, Standardization
from mpigp.gp.statistics import model_of
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows, fingerprint
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows, find_patterns
from mpigp.types import Floats

SIGNAL_TO_NOISE = 100.0  # at the start
LATENT_VARIANCE = 0.1
TRIAL = 50  # iterations after which starts are compared, once variance and beta are free


class PreparedFit(NamedTuple):
    """A fit, and how its data were prepared."""

    fit: Fit
    standardized: dict[str, Standardization]  # by "x" and "y", how the columns were; empty where they were not
    constant: dict[str, list[int]]  # by "x" and "y", the numbers of the constant columns
    identity: dict[str, Any]  # what two fits must have in common for one to continue the other
    columns: Mapping[str, list[str]] = MappingProxyType({})  # by "x" and "y", names of the columns that have some


@np.errstate(all="ignore")  # a start that is not finite is refused
def prepare(X: DistributedRows | None, Y: DistributedRows, options: Options, resuming: bool = False) -> PreparedFit:
    """Standardize, initialize, and return the fit at its start. Collective.

    Inputs X (n, q), None for a GPLVM, and outputs Y (n, d) are float64 and row-major, or streamed. They are
    standardized in place, and the fit keeps them; missing entries, of outputs in memory, become zero.

    resuming : a checkpoint is to be loaded into the fit, so there is no start to choose
    """
    data, filled, patterns = fingerprint(X, Y), Y, None
    if options.missing and not isinstance(Y.local, Stream):
        patterns = find_patterns(Y.comm, Y.local)
    standardized, constant = standardize(options.standardize, X, Y)
    if patterns is not None and not isinstance(Y.local, Stream):  # by the columns' means, for the start alone
        means = standardization(Y, "center")[0].mean
        filled = Y.with_local(np.where(np.isnan(Y.local), means, Y.local))
        Y.local[np.isnan(Y.local)] = 0.0
    first = replace(options, placement="random") if resuming else options  # the fastest: the points will be replaced
    start, mu, S = initialize(X, filled, first, options.seed)
    rows = Rows(Y.comm, Y.n, mu, S, Y.local, patterns)
    model = model_of(options.model, options.kernel, options.bound)
    evaluator = Evaluator(Y.comm, model, rows, options.inducing, mu.shape[1], options.threads)
    objective = Objective(evaluator, options.jitter)
    if options.restarts > 1 and not resuming:
        start = best_start(objective, X, filled, options)
    fit = Fit(objective, options, start, resuming)
    if not resuming and not np.isfinite(fit.bound):
        raise InputError("the bound has no value at the start: choose `standardize` scale, or a larger `jitter`")
    return PreparedFit(fit, standardized, constant, identity(options, rows, mu.shape[1], data))


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
    names = ("model", "optimizer", "hold", "fixed", "init", "placement", "seed", "restarts", "standardize", "jitter")
    given = {name: getattr(options, name) for name in (*names, "kernel", "bound", "validate")}
    given["fixed"] = ",".join(name for name in NAMES if name in options.fixed)
    given["validate"] = "a file" if isinstance(options.validate, str) else options.validate
    shape = {"rows": rows.n, "outputs": rows.Y.shape[1], "dimensions": q, "inducing": options.inducing}
    return given | shape | {"data": data}


def initialize(X: DistributedRows | None, Y: DistributedRows, options: Options,
               seed: int) -> tuple[Globals, Columns, Floats | None]:  # fmt: skip
    """Return the first globals, and this rank's mu and S (rows, q), from standardized rows. Collective.

    X : (n, q); mu is X, and S None. Or None for a GPLVM: mu and S come by PCA, at random, or from a model file
    """
    if X is not None:
        return first_globals(X, Y, options, seed), X.local, None
    q, init = options.latent, options.init
    assert q is not None
    if init in ("pca", "random"):
        mu = np.ascontiguousarray(pca(Y, q) if init == "pca" else random_latent(Y.n, Y.share, q, seed))
        S = np.full(mu.shape, LATENT_VARIANCE)
    else:
        with raise_on_all_ranks(Y.comm), open_model(init, n=Y.n, q=q) as model:
            mu, S = model.latent(*Y.share)
    return first_globals(Y.with_local(mu), Y, options, seed), mu, S


def first_globals(X: DistributedRows, Y: DistributedRows, options: Options, seed: int) -> Globals:
    """Return the first globals, of inputs or latent means X (n, q) and outputs Y (n, d).

    Lengthscales come from the spread of the inputs: one standard deviation for latent points, √q of them for the inputs
    of regression, whose distances grow with their number. The variance is that of the outputs, and the noise a
    hundredth of it.
    """
    spread = standardization(X, "scale")[0].scale
    with np.errstate(all="ignore"):
        alpha = 1 / (spread**2 * (X.columns if options.model == "regression" else 1))
        variance = np.mean(standardization(Y, "scale")[0].scale ** 2)
        beta = SIGNAL_TO_NOISE / variance
    if not np.isfinite([*alpha, variance, beta]).all():
        raise InputError("standardize: the columns are too large or too small to be squared: choose scale")
    if options.placement == "greedy":
        Z = inducing.greedy(X, options.inducing, alpha, seed)
    elif options.placement == "kmeans":
        Z = inducing.kmeans(X, options.inducing, seed)
    else:
        Z = inducing.random_rows(X, options.inducing, seed)
    return Globals(np.ascontiguousarray(Z), float(variance), alpha, float(beta))


def best_start(objective: Objective, X: DistributedRows | None, Y: DistributedRows, options: Options) -> Globals:
    """Return the globals of the best of `options.restarts` starts, after TRIAL iterations from each. Collective.

    Its mu and S go to the objective's rows.
    """
    rows = objective.evaluator.rows
    trials = replace(options, max_iter=(options.hold or 0) + TRIAL)
    best: Any = None  # a bound, and its start: globals, mu and S
    for number in range(options.restarts):
        start: Any = initialize(X, Y, options, options.seed + number)
        if rows.S is not None:
            rows.mu[...], rows.S[...] = start[1:]
        trial = Fit(objective, trials, start[0])
        trial.run()
        if best is None or trial.bound > best[0]:
            best = trial.bound, start
    if rows.S is not None:
        rows.mu[...], rows.S[...] = best[1][1:]
    return best[1][0]
