"""Scaled conjugate gradients (Møller 1993), the tutorial's choice (§4.1)."""

import math
from typing import Any

import numpy as np

from mpigp.mpi.vectors import MultiVector, Objective, VectorSpace

SIGMA = 1e-4
LEAST, MOST = 1e-15, 1e15  # of the damping
PATIENCE = 60  # failed steps in a row, after which there is no better point


class SCG:
    """Minimize along conjugate directions p; the curvature along p comes from a second gradient, damped by λ.

    An iteration is one accepted step: an evaluation for the curvature, and one for each try.
    """

    def __init__(self, objective: Objective, space: VectorSpace, start: MultiVector, patience: int = PATIENCE) -> None:
        self.objective, self.space, self.point, self.patience = objective, space, start, patience
        self.rounding = 0.0  # which no step here allows for
        self._trial, self._work = space.block(1), space.block(4)
        self.gradient, self.direction, self._new, self._change = (self._work[k] for k in range(4))
        self.value = objective(start, self.gradient)
        self.evaluations, self.damping = 1, 1.0
        (gg,) = space.dots([(self.gradient, self.gradient)])
        self._descend(float(gg[0, 0]))

    @property
    def gradient_norm(self) -> float:
        return math.sqrt(self.gg)

    def _descend(self, gg: float) -> None:
        """Let the direction be −g."""
        self.direction.set_sum(self.gradient, -2.0, self.gradient)
        self.gg, self.slope, self.length2 = gg, -gg, gg

    def step(self) -> bool:
        if not self.length2 > 0:
            return False
        curvature = self._curvature()
        for _ in range(self.patience):
            delta = curvature + self.damping * self.length2
            if delta <= 0:
                delta = self.damping * self.length2
                self.damping -= curvature / self.length2
            t = -self.slope / delta
            self._trial.set_sum(self.point, t, self.direction)
            self.evaluations += 1
            value = self.objective(self._trial, self._new)
            quality = 2 * (value - self.value) / (t * self.slope) if math.isfinite(value) else -math.inf
            if quality < 0.25:
                self.damping = min(4 * self.damping, MOST)
            elif quality > 0.75:
                self.damping = max(0.5 * self.damping, LEAST)
            if quality > 0:
                self._accept(value)
                return True
        return False

    def _curvature(self) -> float:
        """Return pᵀ H p by a difference of gradients; 0 where it cannot be had."""
        sigma = SIGMA / math.sqrt(self.length2)
        self._trial.set_sum(self.point, sigma, self.direction)
        self.evaluations += 1
        if not math.isfinite(self.objective(self._trial, self._new)):
            return 0.0
        (ahead,) = self.space.dots([(self._new, self.direction)])
        return (float(ahead[0, 0]) - self.slope) / sigma

    def _accept(self, value: float) -> None:
        """Take the trial point; the next direction is −g + γ p, or −g where that would not lead down."""
        self._change.set_sum(self.gradient, -1.0, self._new)
        ours = MultiVector(self._work.shared[1:4], self._work.local[1:4])  # p, g_new, g − g_new
        (products,) = self.space.dots([(ours, ours)])
        pp, p_new, gg = float(products[0, 0]), float(products[0, 1]), float(products[1, 1])
        gamma = float(products[2, 1]) / self.slope
        self.gradient.set(self._new)
        self.point, self._trial = self._trial, self.point
        self.value = value
        slope = gamma * p_new - gg
        if slope < 0:
            for p, g in zip(self.direction, self.gradient, strict=True):
                p *= gamma
                p -= g
            self.gg, self.slope, self.length2 = gg, slope, gamma * gamma * pp - 2 * gamma * p_new + gg
        else:
            self._descend(gg)

    def vectors(self) -> dict[str, MultiVector]:
        return {"point": self.point, "gradient": self.gradient, "direction": self.direction}

    def numbers(self) -> dict[str, Any]:
        scalars = [self.value, self.evaluations, self.damping, self.gg, self.slope, self.length2]
        return {"scalars": np.array(scalars, float)}

    def restore(self, numbers: dict[str, Any]) -> None:
        self.value, evaluations, self.damping, self.gg, self.slope, self.length2 = map(float, numbers["scalars"])
        self.evaluations = int(evaluations)
