"""Learning as one call: from the rows of every rank to a fit that is ready to run, or to go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np

from mpigp.chunks import Share
from mpigp.data.streams import Columns, Stream
from mpigp.errors import InputError
from mpigp.fit.loop import Fit, Settings, best_start
from mpigp.fit.objective import NAMES, Objective
from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.fit.start.initialize import PLACEMENTS, latent, start_globals
from mpigp.fit.start.standardize import Mode, standardization
from mpigp.gp.parameters import Globals
from mpigp.gp.standardization import Standardization
from mpigp.gp.statistics import MODELS, model_of
from mpigp.kernels.registry import DEFAULT
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.fingerprint import fingerprint
from mpigp.mpi.missing import find_patterns
from mpigp.mpi.rows import Rows
from mpigp.types import Comm, Floats

CHOICES: dict[str, tuple[str, ...]] = {
    "model": tuple(MODELS),
    "optimizer": tuple(OPTIMIZERS),
    "placement": PLACEMENTS,
    "standardize": get_args(Mode),
}


@dataclass(frozen=True, kw_only=True)
class Options(Settings):
    """What to learn, and how; the settings of the iterations are among them.

    model : "regression" or "gplvm"
    kernel : "rbf", "matern52" (regression), or "package.module:Name" of another (docs/kernels.md)
    inducing : number of inducing points, at most that of rows
    latent : dimensions of the latent points (GPLVM)
    init : "pca", "random", or the path of a model file with the latent points to start from (GPLVM)
    placement : of the inducing points at the start, one of PLACEMENTS
    seed : of everything random
    restarts : starts to try, of which the best goes on
    standardize : "scale" columns, "center" them alone, or "none"
    jitter : added to K_mm's diagonal, per unit of variance
    threads : of a rank; no bit depends on it
    missing : NaN in Y are missing entries, and take no part (GPLVM)
    """

    model: str
    inducing: int
    latent: int | None = None
    init: str = "pca"
    placement: str = "random"
    seed: int = 0
    restarts: int = 1
    standardize: Mode = "scale"
    jitter: float = 1e-6
    threads: int = 1
    missing: bool = False
    kernel: str = DEFAULT

    def check(self) -> None:
        """Refuse values that have no meaning; the error begins with the option's name."""
        for option, choices in CHOICES.items():
            if (value := getattr(self, option)) not in choices:
                raise InputError(f"{option}: is {value!r}: choose among {', '.join(choices)}")
        try:
            model_of(self.model, self.kernel)
        except InputError as error:
            raise InputError(f"kernel: {error}") from error
        if self.kernel != DEFAULT and self.placement == "greedy":
            raise InputError(f"placement: greedy is by the kernel {DEFAULT}, not {self.kernel}: use random or kmeans")
        if unknown := self.fixed - set(NAMES):
            raise InputError(f"fixed: {', '.join(sorted(unknown))}: unknown: choose among {', '.join(NAMES)}")
        for option in ("inducing", "latent", "restarts", "threads"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise InputError(f"{option}: is {value}: give a number ≥ 1")
        if self.model == "gplvm" and self.latent is None:
            raise InputError("latent: is missing: a GPLVM needs its number of latent dimensions")
        if self.model != "gplvm" and self.missing:
            raise InputError(f"missing: is not for {self.model}: leave rows with missing entries out")
        if self.seed < 0:
            raise InputError(f"seed: is {self.seed}: give a number ≥ 0")
        if not self.jitter >= 0:
            raise InputError(f"jitter: is {self.jitter:g}: give a number ≥ 0")


class PreparedFit(NamedTuple):
    """A fit, and what is to be known about its data.

    standardised : by "x" and "y", how the columns were; empty where they were not
    constant : by "x" and "y", the numbers of the constant columns
    identity : what two fits must have in common for one to continue the other
    """

    fit: Fit
    standardized: dict[str, Standardization]
    constant: dict[str, list[int]]
    identity: dict[str, Any]


def prepare(
    comm: Comm, n: int, share: Share, X: Columns | None, Y: Columns, options: Options, resuming: bool = False
) -> PreparedFit:
    """Standardise, initialise, and return the fit at its start; `fit.run` does the rest. Called by all ranks.

    Parameters
    ----------
    n : rows of all ranks together.   share : this rank's
    X : (rows, q), this rank's inputs, or None for a GPLVM.   Y : (rows, d), this rank's outputs
        float64 and row-major, or streamed. They are standardised in place, and the fit keeps them; missing entries, of
        outputs in memory, become zero.
    options : checked
    resuming : a checkpoint is to be loaded into the fit, so there is no start to choose
    """
    data = fingerprint(comm, share.start, X, Y)
    patterns = find_patterns(comm, Y) if options.missing and not isinstance(Y, Stream) else None
    standardized, constant = standardize(options.standardize, comm, n, X, Y)
    filled = Y
    if patterns is not None and not isinstance(Y, Stream):  # by the columns' means, for the start alone
        filled = np.where(np.isnan(Y), standardization(comm, n, Y, "center")[0].mean, Y)
        Y[np.isnan(Y)] = 0.0
    first = replace(options, placement="random") if resuming else options  # the fastest, of points that nobody needs
    start, mu, S = begin(comm, n, share, X, filled, first, options.seed)
    rows = Rows(comm, n, mu, S, Y, patterns)
    model = model_of(options.model, options.kernel)
    evaluator = Evaluator(comm, model, rows, options.inducing, mu.shape[1], options.threads)
    objective = Objective(evaluator, options.jitter)
    if options.restarts > 1 and not resuming:
        start = best_start(
            objective, options, partial(begin, comm, n, share, X, filled, options), options.seed, options.restarts
        )
    fit = Fit(objective, options, start, resuming)
    return PreparedFit(fit, standardized, constant, identity(options, rows, mu.shape[1], data))


def begin(
    comm: Comm, n: int, share: Share, X: Columns | None, Y: Columns, options: Options, seed: int
) -> tuple[Globals, Columns, Floats | None]:
    """Return the globals to start from, and this rank's mu and S (rows, q), of rows that are standardised."""
    mu, S = X, None
    if mu is None:
        assert options.latent is not None
        mu, S = latent(comm, n, share, Y, options.latent, options.init, seed)
    long = S is None
    return start_globals(comm, n, share.start, mu, Y, options.inducing, options.placement, long, seed), mu, S


def standardize(
    mode: Mode, comm: Comm, n: int, X: Columns | None, Y: Columns
) -> tuple[dict[str, Standardization], dict[str, list[int]]]:
    """Standardise the columns in place; return how, and the constant ones."""
    standardized, constant = {}, {}
    for column, values in (("x", X), ("y", Y)):
        if values is not None:
            standardized[column], constant[column] = standardization(comm, n, values, mode)
            standardized[column].apply(values)
    return ({} if mode == "none" else standardized), constant


def identity(options: Options, rows: Rows, q: int, data: str) -> dict[str, Any]:
    """Return what a checkpoint must have been made with, to be continued."""
    names = ("model", "optimizer", "hold", "fixed", "init", "placement", "seed", "restarts", "standardize", "jitter")
    found = {name: getattr(options, name) for name in (*names, "kernel")}
    found["fixed"] = ",".join(name for name in NAMES if name in options.fixed)
    shape = {"rows": rows.n, "outputs": rows.Y.shape[1], "dimensions": q, "inducing": options.inducing}
    return found | shape | {"data": data}
