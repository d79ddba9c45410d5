"""The backend of kernels that the compiled loops know, single or composed, for regression.

Sums of rbf, linear and bias have ψ statistics too, by another backend (mpigp.kernels.latent_backend).
"""

from functools import cached_property, lru_cache

import numpy as np

from mpigp import native
from mpigp.kernels.composition import Parameter, check_size, compose, is_single
from mpigp.kernels.expression import Expression, ExpressionError
from mpigp.kernels.loops import RegressionLoops
from mpigp.native import Kernel as Points
from mpigp.types import Floats


class Compiled(RegressionLoops):
    """The backend of an expression whose columns are numbers."""

    factored = False

    def __init__(self, expression: Expression) -> None:
        check_size(expression)
        self.expression, self.name = expression, str(expression)
        self.composition = lru_cache(maxsize=None)(lambda q: compose(expression, q))
        self.composed = not is_single(expression)

    def __reduce__(self) -> tuple[type["Compiled"], tuple[Expression]]:
        return Compiled, (self.expression,)

    @cached_property
    def unit(self) -> bool:
        return all(part.kind != "linear" for term in self.expression.terms for part in term)

    @cached_property
    def latent(self) -> bool:
        try:
            self.expression.check_latent()
        except ExpressionError:
            return False
        return True

    def parameters(self, q: int) -> int:
        return len(self.composition(q).parameters)

    def named_parameters(self, q: int) -> list[Parameter]:
        return self.composition(q).parameters if self.composed else []

    def loop_parameters(self, q: int) -> int:
        return self.composition(q).loop_parameters

    def workspace(self, m: int, q: int, d: int, groups: int = 1, matrices: int = 1) -> int:
        composition = self.composition(q)
        features = max(q, len(composition.features))
        return int(native.workspace(m, features, d, groups, matrices, len(composition.factors)))

    def center(self, Z: Floats) -> Floats:
        return Z.sum(axis=0) / len(Z)

    def points(self, Z: Floats, center: Floats, alpha: Floats, terms: Floats | None = None) -> Points:
        """Return the inducing points Z + center; `terms` multiply the terms of the kernel, if given."""
        return Points(Z, center, alpha, self.composition(Z.shape[1]).native(alpha, center, terms))

    def scale(self, alpha: Floats, q: int) -> float:
        return self.composition(q).scale(alpha)

    def gram(self, Z: Floats, center: Floats, alpha: Floats) -> Floats:
        return native.kernel_covariance(self.points(Z, center, alpha))

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        center = self.center(Z)
        return native.kernel_covariance(self.points(Z - center, center, alpha), np.ascontiguousarray(X))

    def diagonal(self, X: Floats, S: Floats | None, alpha: Floats) -> Floats:
        return np.ones(len(X)) if self.unit else self.composition(X.shape[1]).diagonal(X, alpha)

    def largest(self, points: Points, lowest: Floats, highest: Floats) -> float:
        low, high = _ends(points, lowest, highest)
        return self.composition(len(low)).largest(points.alpha, np.maximum(-low, high))

    def gram_gradient(self, weights: Floats, points: Points) -> tuple[Floats, Floats]:
        return native.kernel_gram_gradient(points, weights)

    def gradient_limits(self, points: Points, lowest: Floats, highest: Floats, weight: float) -> Floats:
        low, high = _ends(points, lowest, highest)
        return self.composition(len(low)).gradient_limits(points.alpha, low, high, weight)

    def parameter_gradient(self, alpha: Floats, raw: Floats, q: int, by_scale: float) -> Floats:
        return self.composition(q).gradient(alpha, raw, by_scale)


def _ends(points: Points, lowest: Floats, highest: Floats) -> tuple[Floats, Floats]:
    """Return the ends (q,) of inputs and inducing points."""
    Z = points.Z + points.center
    return np.minimum(lowest, Z.min(axis=0)), np.maximum(highest, Z.max(axis=0))
