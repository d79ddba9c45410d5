"""Learning: iterations of an optimiser until the bound has converged, or the run is to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mpigp.fit.objective import Objective
from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.fit.trace import Trace
from mpigp.gp.parameters import Globals
from mpigp.mpi.vectors import MultiVector

HELD = frozenset({"variance", "beta"})
TRIAL = 50  # iterations after which starts are compared, once variance and beta are free
WINDOW = 10  # iterations over which the relative change of the bound is taken


@dataclass(frozen=True)
class Settings:
    """How to learn.

    hold : iterations for which variance and beta are held at the start
    tolerance : stop when the bound changes by less than this, relatively, per iteration (over the last WINDOW)
    gradient_tolerance : stop when the gradient's norm falls below this
    """

    optimizer: str = "lbfgs"
    max_iter: int = 1000
    hold: int = 30
    fixed: frozenset[str] = frozenset()
    tolerance: float = 1e-8
    gradient_tolerance: float = 1e-4


class Fit:
    """A fit in progress: the optimiser, the iterations so far, and why it stopped.

    `alarm()` is asked once per iteration, on every rank, and says why the run is to stop now, or nothing.

    resuming : what an earlier run made is to be restored, so the bound at the start is of no interest
    """

    def __init__(self, objective: Objective, settings: Settings, start: Globals, resuming: bool = False) -> None:
        self.objective, self.settings = objective, settings
        self.trace = Trace()
        self.stopped = ""
        self.held = settings.hold > 0 and not settings.fixed >= HELD
        self._before, self._evaluations = 0.0, 0  # seconds and evaluations of earlier runs and optimisers
        self._begin(objective.point(start), resuming)

    def _begin(self, point: MultiVector, resuming: bool = False) -> None:
        """Make the optimiser, at this point."""
        self.objective.fixed = self.settings.fixed | (HELD if self.held else frozenset())
        first = (lambda point, gradient: math.inf) if resuming else self.objective
        self.optimizer = OPTIMIZERS[self.settings.optimizer](first, self.objective.space, point)
        self.optimizer.objective = self.objective

    @property
    def bound(self) -> float:
        return -float(self.optimizer.value)

    @property
    def iteration(self) -> int:
        return len(self.trace)

    @property
    def evaluations(self) -> int:
        return self._evaluations + int(self.optimizer.evaluations)

    def run(self, alarm: Callable[[], str], told: Callable[[Fit], None]) -> None:
        """Iterate until there is a reason to stop; `told` is called after every iteration."""
        began = time.perf_counter()
        while not self.stopped:
            if self.held and self.iteration >= self.settings.hold:
                self._release()
            if self.iteration >= self.settings.max_iter:
                self.stopped = "the largest number of iterations was reached"
                break
            moved = self.optimizer.step()
            if not moved and self.held:
                self._release()
                continue
            if not moved:
                self.stopped = "no step raises the bound any more"
                break
            seconds = self._before + time.perf_counter() - began
            self.trace.add(self.bound, self.optimizer.gradient_norm, seconds, self.evaluations)
            self.stopped = self._converged()
            told(self)
            self.stopped = self.stopped or alarm()

    def _release(self) -> None:
        """Free what was held: a new problem, and a new optimiser for it."""
        self.held = False
        self._evaluations += self.optimizer.evaluations
        self._begin(self.optimizer.point)

    def _converged(self) -> str:
        bounds, settings = self.trace.bound, self.settings
        if self.held or not self.iteration:
            return ""
        if self.trace.gradient_norm[-1] < settings.gradient_tolerance:
            return "the gradient's norm fell below the tolerance"
        since = self.iteration - max(settings.hold, 0)
        if since > WINDOW and bounds[-1] - bounds[-1 - WINDOW] < WINDOW * settings.tolerance * abs(bounds[-1]):
            return "the bound's relative change fell below the tolerance"
        return ""

    def numbers(self) -> dict[str, Any]:
        """Return what, with the optimiser's, an exact continuation needs."""
        return {"held": self.held, "before": self._evaluations}

    def restore(self, trace: Trace, held: bool, evaluations: int) -> None:
        """Take up a fit that stopped: the optimiser is filled in by the caller."""
        self.trace, self.stopped = trace, ""
        self.held, self._evaluations = held, evaluations
        self._before = trace.seconds[-1] if len(trace) else 0.0
        self.objective.fixed = self.settings.fixed | (HELD if held else frozenset())
        self.stopped = self._converged()  # a fit that had converged stays so


def best_start(
    objective: Objective, settings: Settings, begin: Callable[[int], tuple[Globals, Any, Any]], seed: int, count: int
) -> Globals:
    """Return the globals of the best of `count` starts, after TRIAL iterations from each; its mu and S go to the rows.

    `begin(seed)` makes a start: globals, mu and S.
    """
    rows = objective.evaluator.rows
    best: tuple[float, Globals, Any, Any] | None = None
    for number in range(count):
        start, mu, S = begin(seed + number)
        if S is not None and rows.S is not None:
            rows.mu[...], rows.S[...] = mu, S
        trial = Fit(objective, replace(settings, max_iter=settings.hold + TRIAL), start)
        trial.run(lambda: "", lambda fit: None)
        if best is None or trial.bound > best[0]:
            best = trial.bound, start, mu, S
    assert best is not None
    _, start, mu, S = best
    if S is not None and rows.S is not None:
        rows.mu[...], rows.S[...] = mu, S
    return start
