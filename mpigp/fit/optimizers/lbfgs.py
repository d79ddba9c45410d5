"""L-BFGS with a strong-Wolfe line search; all dot products of a trial point in one reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpigp.fit.optimizers.wolfe import search
from mpigp.mpi.vectors import MultiVector, Objective, VectorSpace
from mpigp.types import Floats


class LBFGS:
    """Minimize by limited-memory BFGS (Nocedal 1980).

    The two-loop recursion needs only dot products of the last k steps s_i, gradient changes y_i, and the gradient g.
    They are kept in a Gram matrix; a trial adds the products of its gradient, and of the direction, with all of them.

    Memory: the basis [s_1 … s_k, y_1 … y_k, g] as one block, in which new pairs take the place of the oldest.
    """

    def __init__(self, objective: Objective, space: VectorSpace, start: MultiVector, memory: int = 10) -> None:
        self.objective, self.space, self.memory = objective, space, memory
        self.basis = space.block(2 * memory + 1)
        self.gram = np.zeros((2 * memory + 1, 2 * memory + 1))
        self.pairs: list[int] = []  # places of the pairs in memory, oldest first
        self.point, self._trial = start, space.block(1)
        self._new = space.block(2)  # a trial's gradient, and the direction
        self.evaluations = 1
        self.value = objective(start, self.gradient)
        (gg,) = space.dots([(self.gradient, self.gradient)])
        self.gram[-1, -1] = gg[0, 0]

    @property
    def gradient(self) -> MultiVector:
        return self.basis[2 * self.memory]

    @property
    def gradient_norm(self) -> float:
        return float(np.sqrt(self.gram[-1, -1]))

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
        direction = self._new[1]
        self.space.combine(c, self.basis, direction)
        last: dict[str, Any] = {}  # products of the last trial, which is the one that is accepted

        def trial(t: float) -> tuple[float, float]:
            self._trial.set_sum(self.point, t, direction)
            self.evaluations += 1
            value = self.objective(self._trial, self._new[0])
            with_basis, gg = self.space.dots([(self._new, self.basis), (self._new[0], self._new[0])])
            last.update(with_basis=with_basis, gg=float(gg[0, 0]))
            return value, float(with_basis[0] @ c)

        first = 1.0 if self.pairs else min(1.0, 1.0 / self.gradient_norm)
        accepted = search(trial, self.value, slope, first)
        if accepted is not None:
            self._accept(*accepted, c, slope, **last)
        return accepted is not None

    def _accept(self, t: float, value: float, c: Floats, slope: float, with_basis: Floats, gg: float) -> None:
        """Take the trial point: with s = t p and y = g_new − g, products with the basis follow by linearity."""
        k, gram = self.memory, self.gram
        by_new, by_p = with_basis  # products of g_new and of p with the old basis
        new_slope = float(by_new @ c)
        yy = gg - 2 * by_new[-1] + gram[-1, -1]
        by_y = by_new - gram[-1]
        row = by_new.copy()  # products of g_new with the new basis
        if t * (new_slope - slope) > 0 and yy > 0:
            place = self.pairs.pop(0) if len(self.pairs) == k else len(self.pairs)
            self.pairs.append(place)
            s, y = place, k + place
            for to, new, old, p in zip(self.basis, self._new, self.gradient, self._new[1], strict=True):
                np.multiply(p[0], t, out=to[s])
                np.subtract(new[0], old[0], out=to[y])
            gram[s] = gram[:, s] = t * by_p
            gram[y] = gram[:, y] = by_y
            gram[s, y] = gram[y, s] = t * (new_slope - slope)
            gram[y, y] = yy
            row[s], row[y] = t * new_slope, gg - by_new[-1]
        row[-1] = gg
        gram[-1] = gram[:, -1] = row
        self.gradient.set(self._new[0])
        self.point, self._trial = self._trial, self.point
        self.value = value

    def vectors(self) -> dict[str, MultiVector]:
        return {"point": self.point, "basis": self.basis}

    def numbers(self) -> dict[str, Any]:
        scalars = np.array([self.value, self.evaluations])
        return {"scalars": scalars, "gram": self.gram, "pairs": np.array(self.pairs, int)}

    def restore(self, numbers: dict[str, Any]) -> None:
        self.value, self.evaluations = float(numbers["scalars"][0]), int(numbers["scalars"][1])
        self.gram, self.pairs = np.array(numbers["gram"]), [int(place) for place in numbers["pairs"]]
