"""The negative bound as a function of unconstrained vectors: what the optimizers minimize."""

import math
from typing import Any

import numpy as np

from mpigp.gp.parameters import Globals
from mpigp.mpi.evaluator import EvaluationFailed, Evaluator
from mpigp.mpi.vectors import MultiVector, VectorSpace
from mpigp.types import Floats

NAMES = ("Z", "alpha", "variance", "beta", "mu", "S")  # a composed kernel's parameters have names of their own, too

FLOOR = 1e-10  # of the positive parameters: they are FLOOR + exp of a free number

# A vector holds the free numbers divided by these: steps of S are worth taking longer, those of the positive globals
# shorter. The best of 13 tried on oil flow (docs/performance.md), and better on digits too.
S_SCALE, POSITIVE_SCALE = 4.0, 0.5


def free(positive: Floats) -> Floats:
    """Return the free numbers of positive parameters."""
    return np.log(np.maximum(positive - FLOOR, 1e-3 * FLOOR))


class Objective:
    """−F of a vector that holds Z, alpha, variance, beta (shared; rank 0's counts), and mu, S (local; GPLVM).

    Positive parameters enter by their free numbers. A point without a bound is inf: a failed step, not a failed run.
    Parameters whose names are in `fixed` are held, and the variance of a composed kernel, whose parts have their own.

    rounding : the error of the last value that came of rounding, or an upper estimate
    """

    def __init__(self, evaluator: Evaluator, jitter: float, fixed: frozenset[str] = frozenset()) -> None:
        rows = evaluator.rows
        self.evaluator, self.jitter, self.fixed = evaluator, jitter, fixed
        self.m, self.q = evaluator.m, evaluator.q
        self._parameters = evaluator.model.backend.named_parameters(self.q)
        shared, segments = self.m * self.q + evaluator.p + 2, 0 if rows.S is None else 2
        self.space = VectorSpace(evaluator.comm, shared, segments, len(rows.Y), self.q, rows.chunk)
        self.largest_jitter, self.rounding = jitter, 0.0

    def point(self, parameters: Globals) -> MultiVector:
        """Return the vector of these globals, and of the mu and S in the evaluator's rows."""
        point = self.space.block(1)
        positive = np.append(parameters.alpha, [parameters.variance, parameters.beta])
        point.shared[0] = np.concatenate([parameters.Z.ravel(), free(positive) / POSITIVE_SCALE])
        rows = self.evaluator.rows
        if rows.S is not None:
            point.local[0] = rows.mu.ravel(), free(rows.S).ravel() / S_SCALE
        return point

    def parameters(self, point: MultiVector) -> Globals:
        """Return the globals of a vector."""
        Z, numbers = np.split(point.shared[0], [self.m * self.q])
        with np.errstate(over="ignore"):
            *alpha, variance, beta = FLOOR + np.exp(POSITIVE_SCALE * numbers)
        return Globals(Z.reshape(self.m, self.q), float(variance), np.array(alpha), float(beta))

    def place(self, point: MultiVector) -> None:
        """Put the vector's mu and S into the evaluator's rows."""
        rows = self.evaluator.rows
        if rows.S is not None:
            rows.mu.ravel()[...] = point.local[0, 0]
            S = rows.S.ravel()
            np.multiply(point.local[0, 1], S_SCALE, out=S)
            with np.errstate(over="ignore"):
                np.exp(S, out=S)
            S += FLOOR

    def _signs(self) -> dict[str, Any]:
        """Return −1 by the name of each parameter, and 0 where it is held; for alpha one number each."""
        signs: dict[str, Any] = {name: 0.0 if name in self.fixed else -1.0 for name in NAMES}
        if self._parameters:
            signs["variance"] = 0.0
            signs["alpha"] = np.array([0.0 if each.is_among(self.fixed) else -1.0 for each in self._parameters])
        return signs

    def __call__(self, point: MultiVector, gradient: MultiVector) -> float:
        """Return −F and set its gradient; inf where the bound has no value."""
        self.place(point)
        parameters = self.parameters(point)
        try:
            evaluation = self.evaluator(parameters, self.jitter)
        except EvaluationFailed:
            return math.inf
        self.largest_jitter = max(self.largest_jitter, evaluation.jitter)
        self.rounding = evaluation.rounding
        by, rows = evaluation.gradient, self.evaluator.rows
        sign = self._signs()
        if by is not None:
            gradient.shared[0] = np.concatenate([
                sign["Z"] * by.Z.ravel(),
                POSITIVE_SCALE * sign["alpha"] * by.alpha * (parameters.alpha - FLOOR),
                [POSITIVE_SCALE * sign["variance"] * by.variance * (parameters.variance - FLOOR)],
                [POSITIVE_SCALE * sign["beta"] * by.beta * (parameters.beta - FLOOR)],
            ])  # fmt: skip
        if rows.S is not None:
            np.multiply(rows.gradients["mu"].ravel(), sign["mu"], out=gradient.local[0, 0])
            np.multiply(rows.gradients["S"].ravel(), rows.S.ravel() - FLOOR, out=gradient.local[0, 1])
            gradient.local[0, 1] *= S_SCALE * sign["S"]
        return -evaluation.bound
