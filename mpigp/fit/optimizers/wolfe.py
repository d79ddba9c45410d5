"""A line search for the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, algorithms 3.5, 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

DECREASE, CURVATURE = 1e-4, 0.9
MOST_TRIALS = 25
LEVEL = 1e-13  # relative differences of values that are rounding


class Trial(NamedTuple):
    """A step t, the value there, and the slope along the direction."""

    t: float
    value: float
    slope: float


def search(
    trial: Callable[[float], tuple[float, float]], value: float, slope: float, first: float
) -> tuple[float, float] | None:
    """Return a step and the value there, from `value` and `slope` < 0 at 0; None where there is none.

    `trial(t)` returns value and slope at t; a point without a value is inf. The step that is returned was tried last.
    """
    start = low = Trial(0.0, value, slope)
    high: Trial | None = None
    t = first
    for _ in range(MOST_TRIALS):
        now = Trial(t, *trial(t))
        if not _lower(start, now) or (low.t > 0 and now.value >= low.value and not _level(start, now)):
            high = now
        elif abs(now.slope) <= -CURVATURE * slope:
            return now.t, now.value
        else:
            if now.slope * ((high.t if high else math.inf) - now.t) >= 0:
                high = low
            low = now
        t = 4 * t if high is None else _between(low, high)
        if high is not None and abs(high.t - low.t) <= 1e-12 * max(high.t, low.t):
            break
    if low.t == 0:
        return None
    if now.t != low.t:
        low = Trial(low.t, *trial(low.t))
    return low.t, low.value


def _level(start: Trial, now: Trial) -> bool:
    return abs(now.value - start.value) <= LEVEL * abs(start.value)


def _lower(start: Trial, now: Trial) -> bool:
    """Whether the value has fallen enough; where rounding hides it, whether the slope says so (Hager, Zhang 2005)."""
    if _level(start, now):
        return now.slope <= (2 * DECREASE - 1) * start.slope
    return now.value <= start.value + DECREASE * now.t * start.slope


def _between(low: Trial, high: Trial) -> float:
    """Return the minimum of the cubic through both ends, kept off them; the middle where there is none."""
    width = high.t - low.t
    middle = low.t + 0.5 * width
    if not (math.isfinite(high.value) and math.isfinite(high.slope)):
        return low.t + 0.1 * width
    d1 = low.slope + high.slope - 3 * (low.value - high.value) / (low.t - high.t)
    square = d1 * d1 - low.slope * high.slope
    if square < 0:
        return middle
    d2 = math.copysign(math.sqrt(square), width)
    denominator = high.slope - low.slope + 2 * d2
    if denominator == 0:
        return middle
    t = high.t - width * (high.slope + d2 - d1) / denominator
    inner, outer = sorted((low.t + 0.1 * width, low.t + 0.9 * width))
    return min(max(t, inner), outer) if math.isfinite(t) else middle
