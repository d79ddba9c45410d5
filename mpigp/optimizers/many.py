"""L-BFGS on many small problems side by side: each row is a problem of its own, and only their evaluations are shared.

In every round each row that has not converged tries one point: it takes it where it satisfies Armijo's condition, else
it halves its step and tries again in the next round. No number of a row depends on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

MEMORY = 8
SUFFICIENT = 1e-4
FIRST_STEP = 0.5  # length of the first step of all
SMALL_STEPS = 3  # as many steps in a row that gain next to nothing end a row


def minimise(
    objective: Callable[[Floats, Rows], tuple[Floats, Floats]], start: Floats, rounds: int, tolerance: float
) -> tuple[Floats, Floats]:
    """Return the minima (n, k) and their values (n,).

    Parameters
    ----------
    objective : from points (a, k) and the numbers (a,) of their rows to values (a,) and gradients (a, k)
    start : (n, k)
    rounds : evaluations of a row, at most
    tolerance : a step that gains less, relative to 1 + |value|, is a small one; one that promises no more than a
        hundredth of that is not made
    """
    point, rows = start.copy(), np.arange(len(start))
    value, gradient = objective(point, rows)
    state = _State(gradient)
    alive = rows[np.isfinite(value)]
    state.direct(alive)
    for _ in range(rounds):
        if not len(alive):
            break
        trial = point[alive] + state.step[alive, None] * state.direction[alive]
        found, by = objective(trial, alive)
        wanted = value[alive] + SUFFICIENT * state.step[alive] * state.slope[alive]
        better = found <= wanted  # False where found is NaN
        taken, refused = alive[better], alive[~better]
        gain = value[taken] - found[better]
        state.remember(taken, trial[better] - point[taken], by[better] - gradient[taken])
        small = gain <= tolerance * (1 + np.abs(value[taken]))
        state.small[taken] = np.where(small, state.small[taken] + 1, 0)
        point[taken], value[taken], gradient[taken] = trial[better], found[better], by[better]
        state.direct(taken)
        state.step[refused] *= 0.5
        promise = -state.step[alive] * state.slope[alive]  # what the next step gains, to first order
        alive = alive[(state.small[alive] < SMALL_STEPS) & (promise > 0.01 * tolerance * (1 + np.abs(value[alive])))]
    return point, value


class _State:
    """What each row remembers: its last steps and changes of the gradient, its direction, and how far it goes."""

    def __init__(self, gradient: Floats) -> None:
        n, k = gradient.shape
        self.gradient = gradient
        self.steps, self.changes = np.zeros((MEMORY, n, k)), np.zeros((MEMORY, n, k))
        self.curvature = np.zeros((MEMORY, n))  # 1 / stepᵀchange; 0 where there is none
        self.known = np.zeros(n, np.intp)
        self.direction = np.zeros((n, k))
        self.slope, self.step = np.zeros(n), np.ones(n)
        self.small = np.zeros(n, np.intp)

    def remember(self, rows: Rows, step: Floats, change: Floats) -> None:
        """Keep a step of these rows where the curvature along it is positive."""
        product = np.einsum("ij,ij->i", step, change)
        curved = product > 1e-12 * np.einsum("ij,ij->i", change, change)
        rows, slot = rows[curved], self.known[rows[curved]] % MEMORY
        self.steps[slot, rows], self.changes[slot, rows] = step[curved], change[curved]
        self.curvature[slot, rows] = 1 / product[curved]
        self.known[rows] += 1

    def direct(self, rows: Rows) -> None:
        """Set the direction of these rows by the two-loop recursion, and a full step along it."""
        d = self.gradient[rows]
        known = self.known[rows]
        passed = []
        for back in range(1, min(MEMORY, int(known.max(initial=0))) + 1):
            slot = (known - back) % MEMORY
            rho = np.where(back <= known, self.curvature[slot, rows], 0.0)
            s, y = self.steps[slot, rows], self.changes[slot, rows]
            a = rho * np.einsum("ij,ij->i", s, d)
            d = d - a[:, None] * y
            passed.append((rho, a, s, y))
        if passed:
            rho, _, _, y = passed[0]
            square = np.einsum("ij,ij->i", y, y)
            d *= np.where(rho > 0, 1 / np.where(rho > 0, rho * square, 1.0), 1.0)[:, None]
        for rho, a, s, y in reversed(passed):
            d += (a - rho * np.einsum("ij,ij->i", y, d))[:, None] * s
        slope = -np.einsum("ij,ij->i", d, self.gradient[rows])
        length = np.sqrt(np.einsum("ij,ij->i", d, d))
        first = known == 0
        shorten = np.where(first, FIRST_STEP / np.maximum(length, FIRST_STEP), 1.0)
        self.direction[rows] = -shorten[:, None] * d
        self.slope[rows], self.step[rows] = shorten * slope, 1.0
