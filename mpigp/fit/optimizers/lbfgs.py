"""L-BFGS in units that follow the curvature, with a strong-Wolfe line search; all dot products of a trial point in one
reduction."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpigp.mpi.vectors import MultiVector, Objective, VectorSpace
from mpigp.types import Floats

DECREASE, CURVATURE = 1e-4, 0.9  # of the Wolfe conditions
MOST_TRIALS = 25
LEVEL = 1e-13  # relative differences of values that are rounding
FRESH = 0.05  # the weight of a new step in the estimate of the curvature
POWER = 0.75  # of the estimate that the units follow: all of it would trust too much in directions with little of it
LEAST = 1e-12  # of the estimate, which is 1 at the start
EVERY = 4  # steps between changes of the units


class Learned(NamedTuple):
    """What a search knows after some steps: the curvature (1, .) of the shared part, rank 0's, and the length of a step
    down the gradient, in units that follow it; 0 where it knows none."""

    curvature: Floats
    step: float


class LBFGS:
    """Minimize by limited-memory BFGS (Nocedal 1980), in units of the variables that follow the curvature.

    The two-loop recursion needs only dot products of the last k steps s_i, gradient changes y_i, and the gradient g.
    They are kept in a Gram matrix; a trial adds the products of its gradient, and of the direction, with all of them.

    A variable x_j = units_j u_j, and everything but the point is in u. A step adds y_j² to the rank-one update of the
    Hessian's diagonal; their mean over the last steps, each of the same weight however long it was, is `curvature`:

        curvature_j ← (1 − FRESH) curvature_j + FRESH y_j² N / Σ (units_i y_i)²      y in x, N variables
        units_j     ← curvature_j^(−POWER / 2), every few steps

    With curvatures of 1 this is L-BFGS as everybody knows it. Inducing points in a crowd and at its rim, or latent
    points and noise, have curvatures that differ by orders of magnitude, and memory of ten steps cannot learn that.

    Memory: the basis [s_1 … s_k, y_1 … y_k, g] as one block, in which new pairs take the place of the oldest.

    rounding : the error of the objective's values, within which the line search goes by slopes
    """

    def __init__(self, objective: Objective, space: VectorSpace, start: MultiVector, memory: int = 10) -> None:
        self.objective, self.space, self.memory, self.rounding = objective, space, memory, 0.0
        self.basis = space.block(2 * memory + 1)
        self.gram = np.zeros((2 * memory + 1, 2 * memory + 1))  # without the products of two steps, which nobody needs
        self.pairs: list[int] = []  # places of the pairs in memory, oldest first
        self.curvature, self.units = space.block(1), space.block(1)
        self.steps = 0  # that the curvature was learned from
        self.first = 0.0  # the length of the first step down the gradient, where it is known
        for part in (*self.curvature, *self.units):
            part.fill(1.0)
        self.point, self._trial = start, space.block(1)
        self._new = space.block(2)  # a trial's gradient, and the direction
        self._raw = space.block(1)  # the same gradient by x
        self.evaluations = 1
        self.value = objective(start, self.gradient)
        (gg,) = space.dots([(self.gradient, self.gradient)])
        self.gram[-1, -1] = self._square = gg[0, 0]

    @property
    def gradient(self) -> MultiVector:
        return self.basis[2 * self.memory]

    @property
    def gradient_norm(self) -> float:
        return math.sqrt(self._square)

    def coefficients(self) -> Floats:
        """Return the direction −H g as coefficients of the basis, by the two-loop recursion on the Gram matrix."""
        k, gram = self.memory, self.gram
        c = np.zeros(2 * k + 1)
        c[-1] = -1.0
        weights = {}
        for i in reversed(self.pairs):
            weights[i] = gram[i] @ c / gram[i, k + i]
            c[k + i] -= weights[i]
        if self.pairs:
            last = self.pairs[-1]
            c *= gram[last, k + last] / gram[k + last, k + last]
        for i in self.pairs:
            c[i] += weights[i] - gram[k + i] @ c / gram[i, k + i]
        return c

    def step(self) -> bool:
        while True:
            c = self.coefficients()
            slope = float(c @ self.gram[-1])
            if slope < 0 and self._search(c, slope):
                return True
            if not self.pairs:
                return False
            self.pairs = []  # the memory misleads: start again from the gradient

    def _search(self, c: Floats, slope: float) -> bool:
        gradient, direction = self._new[0], self._new[1]
        self.space.combine(c, self.basis, direction)
        last: dict[str, Any] = {}  # products of the last trial, which is the one that is accepted

        def trial(t: float) -> tuple[float, float]:
            for to, start, units, p in zip(self._trial, self.point, self.units, direction, strict=True):
                np.multiply(units, p, out=to)
                to *= t
                to += start
            self.evaluations += 1
            value = self.objective(self._trial, self._raw)
            for to, units, raw in zip(gradient, self.units, self._raw, strict=True):
                np.multiply(units, raw, out=to)
            products = [(self._new, self.basis), (gradient, gradient), (self._raw, self._raw)]
            with_basis, gg, square = self.space.dots(products)
            last.update(with_basis=with_basis, gg=float(gg[0, 0]), square=float(square[0, 0]))
            return value, float(with_basis[0] @ c)

        first = 1.0 if self.pairs else self.first or min(1.0, 1.0 / math.sqrt(self.gram[-1, -1]))
        accepted = search(trial, self.value, slope, first, self.rounding)
        if accepted is not None:
            self._accept(*accepted, c, slope, **last)
        return accepted is not None

    def _accept(self, t: float, value: float, c: Floats, slope: float, with_basis: Floats, gg: float,
                square: float) -> None:  # fmt: skip
        """Take the trial point: with s = t p and y = g_new − g, products with the basis follow by linearity."""
        k, gram = self.memory, self.gram
        by_new, by_p = with_basis  # products of g_new and of p with the old basis
        new_slope = float(by_new @ c)
        yy = gg - 2 * by_new[-1] + gram[-1, -1]
        by_y = by_new - gram[-1]
        row = by_new.copy()  # products of g_new with the new basis
        learned = t * (new_slope - slope) > 0 and yy > 0
        if learned:
            place = self.pairs.pop(0) if len(self.pairs) == k else len(self.pairs)
            self.pairs.append(place)
            s, y = place, k + place
            for to, new, old, p in zip(self.basis, self._new, self.gradient, self._new[1], strict=True):
                np.multiply(p[0], t, out=to[s])
                np.subtract(new[0], old[0], out=to[y])
            gram[s] = gram[:, s] = t * by_p
            gram[:k, :k] = 0.0
            gram[y] = gram[:, y] = by_y
            gram[s, y] = gram[y, s] = t * (new_slope - slope)
            gram[y, y] = yy
            row[s], row[y] = t * new_slope, gg - by_new[-1]
            self._learn_curvature(y, yy)
        row[-1] = gg
        gram[-1] = gram[:, -1] = row
        self.gradient.set(self._new[0])
        self.point, self._trial = self._trial, self.point
        self.value, self._square = value, square
        if learned and self.steps % EVERY == 0:
            self._change_units()

    def _learn_curvature(self, y: int, yy: float) -> None:
        """Take the pair whose gradient change is at place `y` of the basis, of square yy, into the curvature."""
        self.steps += 1
        factor = FRESH * self.space.size / yy
        for curvature, units, basis in zip(self.curvature, self.units, self.basis, strict=True):
            curvature *= 1 - FRESH
            curvature += factor * np.square(basis[y] / units[0])

    def adopt(self, learned: Learned) -> None:
        """Begin with what another search has learned about the shared part."""
        self.curvature.shared[...], self.first = learned
        self._change_units()

    @property
    def learned(self) -> Learned:
        """What this search has learned about the shared part."""
        k, last = self.memory, self.pairs[-1] if self.pairs else 0
        step = self.gram[last, k + last] / self.gram[k + last, k + last] if self.pairs else self.first
        return Learned(self.curvature.shared.copy(), float(step))

    def _change_units(self) -> None:
        """Let the units follow the curvature. Products of steps with gradients stay, and the others are made anew."""
        k = self.memory
        for curvature, units, basis in zip(self.curvature, self.units, self.basis, strict=True):
            new = np.maximum(curvature, LEAST) ** (-0.5 * POWER)
            ratio = new[0] / units[0]
            basis[:k] /= ratio
            basis[k:] *= ratio
            units[...] = new
        gradients = self.basis[k:]
        (self.gram[k:, k:],) = self.space.dots([(gradients, gradients)])

    def vectors(self) -> dict[str, MultiVector]:
        return {"point": self.point, "basis": self.basis, "curvature": self.curvature, "units": self.units}

    def numbers(self) -> dict[str, Any]:
        scalars = np.array([self.value, self.evaluations, self._square, self.steps, self.first])
        return {"scalars": scalars, "gram": self.gram, "pairs": np.array(self.pairs, int)}

    def restore(self, numbers: dict[str, Any]) -> None:
        value, evaluations, square, steps, first = np.array(numbers["scalars"], float).tolist()
        gram, pairs = np.array(numbers["gram"], float), [int(place) for place in numbers["pairs"]]
        if gram.shape != self.gram.shape or len({*pairs} & {*range(self.memory)}) < len(pairs):
            raise ValueError(f"the memory of L-BFGS is not that of {self.memory} steps")
        self.value, self.evaluations, self._square, self.steps = value, int(evaluations), square, int(steps)
        self.first, self.gram, self.pairs = first, gram, pairs


class Trial(NamedTuple):
    """A step t, the value there, and the slope along the direction."""

    t: float
    value: float
    slope: float


def search(trial: Callable[[float], tuple[float, float]], value: float, slope: float,
           first: float, rounding: float = 0.0) -> tuple[float, float] | None:  # fmt: skip
    """Return a step and the value there, from `value` and `slope` < 0 at 0; None where there is none.

    It meets the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, algorithms 3.5, 3.6).
    `trial(t)` returns value and slope at t; a point without a value is inf. The step that is returned was tried last.
    Values that differ by no more than `rounding` are taken as equal.
    """
    start = low = Trial(0.0, value, slope)
    level = max(LEVEL * abs(value), rounding)
    high: Trial | None = None
    t = first
    for _ in range(MOST_TRIALS):
        now = Trial(t, *trial(t))
        if not _lower(start, now, level) or (
            low.t > 0 and now.value >= low.value and not abs(now.value - start.value) <= level
        ):
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


def _lower(start: Trial, now: Trial, level: float) -> bool:
    """Whether the value has fallen enough; where rounding hides it, whether the slope says so (Hager, Zhang 2005)."""
    if abs(now.value - start.value) <= level:
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
