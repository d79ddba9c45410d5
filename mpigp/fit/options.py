"""The options of a fit: what to learn, how, and what happens beside the iterations."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Any, Literal, TypeAlias, get_args

from mpigp.errors import InputError
from mpigp.fit.objective import NAMES
from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.gp.bound import BOUNDS
from mpigp.gp.statistics import MODELS, model_of
from mpigp.kernels.registry import DEFAULT, canonical, names_to_hold

Mode: TypeAlias = Literal["scale", "center", "none"]
Interval: TypeAlias = tuple[int, float]
"""Iterations (0 for none) and seconds (inf for none) between two events, whichever passes first."""

CHOICES: dict[str, tuple[str, ...]] = {"model": tuple(MODELS), "optimizer": tuple(OPTIMIZERS),
           "placement": ("auto", "random", "greedy", "kmeans"), "start": ("auto", "single"),
           "standardize": get_args(Mode), "bound": BOUNDS}  # fmt: skip
LEAST = {"inducing": 1, "latent": 1, "restarts": 1, "threads": 1, "seed": 0, "jitter": 0, "validate_every": 1,
         "patience": 1}  # fmt: skip

HOLD = {"regression": 0, "gplvm": 30}
"""Iterations for which variance and beta are held, by model. A GPLVM that could move them at once would call all of Y
noise, before its latent points have found a place."""


@dataclass(frozen=True)
class Settings:
    """The settings of the iterations."""

    optimizer: str = "lbfgs"
    max_iter: int = 10_000
    hold: int | None = None  # iterations for which variance and beta are held at the start; None for HOLD
    fixed: frozenset[str] = frozenset()  # names of the parameters that are held throughout
    tolerance: float = 1e-8  # stop when the bound changes by less, relatively, per iteration (over the last ten)
    gradient_tolerance: float = 1e-4  # stop when the gradient's norm falls below this


@dataclass(frozen=True, kw_only=True)
class Options(Settings):
    """What to learn, and how."""

    model: str  # "regression" or "gplvm"
    inducing: int  # number of inducing points, at most that of rows
    # Let m grow up to `inducing`, until more points can gain no more than so many nats per row and output (regression).
    grow: float | None = None
    latent: int | None = None  # dimensions of the latent points (GPLVM)
    start: str = "auto"  # try several, on few rows at first; or a "single" one, on all rows
    init: str = "pca"  # or "random", or the path of a model file with the latent points to start from (GPLVM)
    placement: str = "auto"  # of the inducing points at the start: "random", "kmeans", "greedy", or one that is tried
    seed: int = 0  # of everything random
    restarts: int = 1  # starts to try, of which the best goes on
    standardize: Mode = "scale"  # the columns, "center" them alone, or "none"
    jitter: float = 1e-6  # added to K_mm's diagonal, per unit of variance
    threads: int = 1  # of a rank; no bit depends on it
    missing: bool = False  # NaN in Y are missing entries, and take no part (GPLVM)
    bound: str = "titsias"  # the evidence lower bound: "titsias", or a tighter one, "sphere" or "rows"
    kernel: str = DEFAULT  # an expression ("rbf + linear"), or "package.module:Name" of another (docs/kernels.md)
    # Rows to predict during the fit, which does not learn from them: a fraction of the rows, or another data file.
    validate: float | str | None = None
    validate_every: int = 10  # iterations between two scores of these predictions
    patience: int | None = None  # scores without an improvement, after which the fit stops; None for no such end

    def __post_init__(self) -> None:
        if self.hold is None:
            object.__setattr__(self, "hold", HOLD.get(self.model, 0))

    def check(self) -> None:
        """Refuse values that have no meaning; the error begins with the option's name."""
        for option, choices in CHOICES.items():
            if (value := getattr(self, option)) not in choices:
                raise InputError(f"{option}: is {value!r}: choose among {', '.join(choices)}")
        try:
            model_of(self.model, self.kernel)
            names = [*NAMES, *names_to_hold(self.kernel)]
        except InputError as error:
            raise InputError(f"kernel: {error}") from error
        if unknown := self.fixed - set(names):
            raise InputError(f"fixed: {', '.join(sorted(unknown))}: unknown: choose among {', '.join(names)}")
        for option, least in LEAST.items():
            value = getattr(self, option)
            if value is not None and not value >= least:
                raise InputError(f"{option}: is {value:g}: give a number ≥ {least}")
        if self.model == "gplvm" and self.latent is None:
            raise InputError("latent: is missing: a GPLVM needs its number of latent dimensions")
        if self.grow is not None and (self.model != "regression" or not self.grow > 0):
            raise InputError("inducing: auto is for regression, with a positive number of nats per row: give a number")
        if self.model != "gplvm" and self.missing:
            raise InputError(f"missing: is not for {self.model}: leave rows with missing entries out")
        self._check_validation()

    def _check_validation(self) -> None:
        """Refuse rows to validate by that are none, and a patience without such rows."""
        if self.validate is None and self.patience is not None:
            raise InputError("patience: needs rows that the fit does not learn from: give `validate`")
        if self.validate is not None and self.model != "regression":
            raise InputError(f"validate: is for regression, not for {self.model}: leave it out")
        if isinstance(self.validate, float) and not 0 < self.validate < 1:
            between = "give a fraction of the rows between 0 and 1, or a data file"
            raise InputError(f"validate: is {self.validate:g}: {between}")


def with_numbers(options: Options, q: int, columns: list[str] | None) -> Options:
    """Return the options with the columns of the kernel as numbers, for inputs of q columns, which may have names."""
    try:
        return replace(options, kernel=canonical(options.kernel, q, columns))
    except InputError as error:
        raise InputError(f"kernel: {error}") from error


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What happens beside the iterations: files, limits, and what to do when ranks fail."""

    output: str | None = None  # the model file, which holds the checkpoint too; None to keep the result in memory
    checkpoint_every: Interval = (0, 600.0)  # one is written at the end in any case
    resume: bool = False  # continue from the checkpoint in `output`, where there is one
    overwrite: bool = False  # whether an older model in `output` may be replaced
    metrics: str | None = None  # a file for one JSON object per iteration
    time_limit: float = math.inf  # seconds, after which the fit saves and stops
    signals: bool = False  # whether SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 make the fit save and stop
    # When ranks fail: recover with the others (where the MPI can), keep the checkpoint, or abort.
    on_failure: Literal["recover", "checkpoint", "abort"] = "recover"
    # Seconds without an answer after which a rank is ended, as if it had failed; 0 for never. None for STALL where the
    # ranks are on several machines, else never.
    stall_timeout: float | None = None
    rows_in_memory: str = "auto"  # or "all", or "stream" to read rows from the file in every round
    progress: IO[str] | None = None  # where rank 0 shows the progress of the iterations
    # Called on every rank after each iteration with the `Fit`; the fit stops where one returns True.
    callback: Callable[[Any], Any] | None = None
    made_by: str = ""  # the command line or call, for the model file's provenance


def interval(value: str | int | None) -> Interval:
    """Return the interval that 50 (iterations) or "10m" (minutes) means; None means never."""
    text = "0" if value is None else str(value)
    try:
        iterations, seconds = (0, 60 * float(text[:-1])) if text.endswith("m") else (int(text), math.inf)
    except ValueError:
        iterations, seconds = -1, 0.0
    if iterations < 0 or not seconds > 0:
        raise InputError(f"is {text}: give iterations (50) or minutes (10m)")
    return iterations, seconds
