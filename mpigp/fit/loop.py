"""The iterations of a fit: an optimizer's steps until the bound has converged, or a handler stops them."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mpigp.fit.objective import Objective
from mpigp.fit.optimizers import OPTIMIZERS, Optimizer
from mpigp.fit.optimizers.lbfgs import LBFGS, Learned
from mpigp.fit.options import Settings
from mpigp.gp.parameters import Globals
from mpigp.mpi.vectors import MultiVector

HELD = frozenset({"variance", "beta"})
WINDOW = 10  # iterations over which the relative change of the bound is taken


class Handler(Protocol):
    """Something that happens after iterations of a fit, by a schedule of its own: a checkpoint, a line of progress."""

    def __call__(self, fit: "Fit", /) -> None:
        """Act after an iteration, on every rank; to stop the fit, set `fit.stopped` to the reason on all ranks."""


@dataclass
class Trace:
    """One entry per iteration: the bound, the gradient's norm, seconds since the start, evaluations since the start.

    validation_rmse, validation_nlpd : how well rows that the fit does not learn from are predicted, NaN at iterations
        without a score; both empty where there are no such rows
    """

    bound: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    validation_rmse: list[float] = field(default_factory=list)
    validation_nlpd: list[float] = field(default_factory=list)

    def add(self, bound: float, gradient_norm: float, seconds: float, evaluations: int) -> None:
        """Add an iteration; a handler adds its scores."""
        self.bound.append(bound)
        self.gradient_norm.append(gradient_norm)
        self.seconds.append(seconds)
        self.evaluations.append(evaluations)

    def series(self) -> dict[str, Any]:
        """Return the series by name, those of the scores where every iteration has them."""
        scored = len(self) == len(self.validation_rmse) == len(self.validation_nlpd) > 0
        return {name: each for name, each in vars(self).items() if scored or not name.startswith("validation")}

    def __len__(self) -> int:
        return len(self.bound)


class Fit:
    """A fit in progress: the optimizer, the iterations so far, and why it stopped (empty while it goes on)."""

    def __init__(self, objective: Objective, settings: Settings, start: Globals, resuming: bool = False,
                 learned: Learned | None = None, seconds: float = 0.0) -> None:  # fmt: skip
        """Begin at `start`; `learned` is what a search knows from the way there, and `seconds` what that took."""
        self.objective, self.settings = objective, settings
        self.trace = Trace()
        self.stopped = ""
        self.hold = settings.hold or 0
        self.held = self.hold > 0 and not settings.fixed >= HELD
        self.began = self._before = seconds
        self._evaluations = 0  # of earlier optimizers; `_before` has the seconds of earlier runs
        self._begin(objective.point(start), resuming)
        if learned is not None and isinstance(self.optimizer, LBFGS):
            self.optimizer.adopt(learned)

    def _begin(self, point: MultiVector, resuming: bool = False) -> None:
        """Make the optimizer, at this point; where a state is to be restored, the bound here is of no interest."""
        self.objective.fixed = self.settings.fixed | (HELD if self.held else frozenset())
        first = (lambda point, gradient: math.inf) if resuming else self.objective
        self.optimizer: Optimizer = OPTIMIZERS[self.settings.optimizer](first, self.objective.space, point)
        self.optimizer.objective = self.objective

    @property
    def bound(self) -> float:
        return -float(self.optimizer.value)

    @property
    def learned(self) -> Learned | None:
        """What the optimizer has learned about the shared parameters, if it does."""
        return self.optimizer.learned if isinstance(self.optimizer, LBFGS) else None

    @property
    def iteration(self) -> int:
        return len(self.trace)

    @property
    def evaluations(self) -> int:
        return self._evaluations + int(self.optimizer.evaluations)

    @np.errstate(all="ignore")  # a step to what is not finite fails
    def run(self, handlers: Iterable[Handler] = ()) -> None:
        """Iterate until there is a reason to stop; the handlers are called after every iteration, in this order."""
        began = time.perf_counter()
        while not self.stopped:
            if self.held and self.iteration >= self.hold:
                self._release()
            if self.iteration >= self.settings.max_iter:
                self.stopped = "the largest number of iterations was reached"
            elif self._step():
                seconds = self._before + time.perf_counter() - began
                self.trace.add(self.bound, self.optimizer.gradient_norm, seconds, self.evaluations)
                self.stopped = self._converged()
                for handler in handlers:
                    handler(self)
            elif self.held:
                self._release()
            else:
                self.stopped = "no step raises the bound any more"

    def _step(self) -> bool:
        self.optimizer.rounding = self.objective.rounding
        return self.optimizer.step()

    def _release(self) -> None:
        """Free the held parameters: a new problem, and a new optimizer for it."""
        self.held = False
        self._evaluations += self.optimizer.evaluations
        self._begin(self.optimizer.point)

    def _converged(self) -> str:
        bounds, settings = self.trace.bound, self.settings
        if self.held or not self.iteration:
            return ""
        if self.trace.gradient_norm[-1] < settings.gradient_tolerance:
            return "the gradient's norm fell below the tolerance"
        since = self.iteration - self.hold
        if since > WINDOW and bounds[-1] - bounds[-1 - WINDOW] < WINDOW * settings.tolerance * abs(bounds[-1]):
            return "the bound's relative change fell below the tolerance"
        return ""

    def numbers(self) -> dict[str, Any]:
        """Return the numbers that an exact continuation needs beside the vectors and the trace, by name."""
        kept = {"held": self.held, "before": self._evaluations, "rounding": self.objective.rounding}
        return kept | self.optimizer.numbers()

    def restore(self, numbers: dict[str, Any], trace: Trace) -> None:
        """Take up a fit that stopped, by its `numbers` and trace; the optimizer has its vectors already."""
        self.optimizer.restore(numbers)
        self.trace, self.held, self._evaluations = trace, bool(numbers["held"]), int(numbers["before"])
        self.objective.rounding = float(numbers["rounding"])
        if not all(0 <= count < 2**53 for count in (self.evaluations, *trace.evaluations)):
            raise ValueError("there are counts of evaluations that are none")
        self._before = trace.seconds[-1] if len(trace) else 0.0
        self.objective.fixed = self.settings.fixed | (HELD if self.held else frozenset())
        self.stopped = self._converged()  # a fit that had converged stays so
