"""Gradient descent, the tutorial's other choice (§4.1): the master moves the globals, every node moves its own rows."""

import math
from typing import Any

import numpy as np

from mpigp.mpi.vectors import MultiVector, Objective, VectorSpace
from mpigp.types import Floats

FIRST = 0.1  # the length of the first step of each part
SHRINK, CHANGE = 0.3, 10.0
PATIENCE = 60  # failed steps in a row, after which there is no better point


class GradientDescent:
    """Minimize by steps down the gradient, with one step length for the globals and one for the rows.

    A step length follows the curvature met on the last step (Barzilai and Borwein 1988) by at most a factor of ten;
    both shrink when a step does not lower the value.
    """

    def __init__(self, objective: Objective, space: VectorSpace, start: MultiVector, patience: int = PATIENCE) -> None:
        self.objective, self.space, self.point, self.patience = objective, space, start, patience
        self.rounding = 0.0  # which no step here allows for
        self._trial, self._gradients = space.block(1), space.block(2)
        self.gradient, self._new = self._gradients[0], self._gradients[1]
        self.value = objective(start, self.gradient)
        self.evaluations = 1
        self.squares = self._products()[:, 0]
        self.lengths = FIRST / np.sqrt(np.maximum(self.squares, 1e-300))

    def _products(self) -> Floats:
        """Return g·g, g·g_new and g_new·g_new of both parts (2, 3)."""
        shared = MultiVector(self._gradients.shared, self._gradients.local[:, :, :0])
        local = MultiVector(self._gradients.shared[:, :0], self._gradients.local)
        products = self.space.dots([(shared, shared), (local, local)])
        return np.array([[p[0, 0], p[0, 1], p[1, 1]] for p in products])

    @property
    def gradient_norm(self) -> float:
        return math.sqrt(float(self.squares.sum()))

    def step(self) -> bool:
        for _ in range(self.patience):
            for to, start, gradient, length in zip(self._trial, self.point, self.gradient, self.lengths, strict=True):
                np.multiply(gradient, -length, out=to)
                to += start
            self.evaluations += 1
            value = self.objective(self._trial, self._new)
            if value < self.value:
                self._accept(value)
                return True
            self.lengths *= SHRINK
        return False

    def _accept(self, value: float) -> None:
        """Take the trial point: with s = −t g and y = g_new − g, the next length is s·s / s·y if that is positive."""
        old, mixed, new = self._products().T
        bend = old - mixed  # s·y = t (g·g − g·g_new), s·s = t² g·g
        wanted = np.where(bend > 0, old / np.where(bend > 0, bend, 1.0), CHANGE)
        self.lengths = self.lengths * np.clip(wanted, 1 / CHANGE, CHANGE)
        self.squares = new
        self.gradient.set(self._new)
        self.point, self._trial = self._trial, self.point
        self.value = value

    def vectors(self) -> dict[str, MultiVector]:
        return {"point": self.point, "gradient": self.gradient}

    def numbers(self) -> dict[str, Any]:
        return {"scalars": np.array([self.value, self.evaluations]), "lengths": self.lengths, "squares": self.squares}

    def restore(self, numbers: dict[str, Any]) -> None:
        self.value, self.evaluations = float(numbers["scalars"][0]), int(numbers["scalars"][1])
        self.lengths, self.squares = np.array(numbers["lengths"]), np.array(numbers["squares"])
