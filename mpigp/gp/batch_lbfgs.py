"""L-BFGS on many small problems side by side: each row is a problem of its own, and only their evaluations are shared.

In every round each problem that is not at its end tries one point: it takes it where it satisfies Armijo's condition,
else it halves its step and tries again in the next round. A problem ends after three steps that gain next to nothing,
or where the next promises nothing. What happens between evaluations is compiled (`mpigp/native/searches.c`). No number
of a row depends on the other rows.
"""

from collections.abc import Callable

import numpy as np

from mpigp import native
from mpigp.types import Floats, Integers


def minimize(objective: Callable[[Floats, Integers], tuple[Floats, Floats]], starts: Floats, units: Floats,
             trial: int, rounds: int, tolerance: float) -> tuple[Floats, Floats]:  # fmt: skip
    """Return the minima (n, k) and their values (n,).

    objective : from points (a, k) and the numbers (a,) of their rows to values (a,) and gradients (a, k)
    starts : (s, n, k), s points for each row: all are followed for `trial` rounds, and the best from there on
    units : (s, n, k), of the variables, in which the curvature is about one
    trial, rounds : evaluations, at most, of a start and of the best, after the first
    tolerance : a step that gains less, relative to 1 + |value|, is a small one; one that promises no more than a
        hundredth of that is not made
    """
    s, n, k = starts.shape
    searches = native.Searches(starts.reshape(s * n, k), units.reshape(s * n, k))

    def follow(alive: Integers, evaluations: int) -> Integers:
        for _ in range(evaluations):
            if not len(alive):
                break
            values, gradients = objective(searches.trials(alive), alive % n)
            alive = searches.advance(alive, values, gradients, tolerance)
        return alive

    alive = follow(np.arange(s * n), 1 + (trial if s > 1 else 0))
    best = searches.values().reshape(s, n).argmin(axis=0) * n + np.arange(n)
    follow(best[np.isin(best, alive, assume_unique=True)], rounds)
    return searches.points(best), searches.values()[best]
