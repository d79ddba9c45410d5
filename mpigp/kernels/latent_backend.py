"""The backend of sums of rbf, linear and bias where inputs are uncertain: in the GPLVM, and in predictions.

Its formulas are those of mpigp.kernels.latent_sum, in NumPy. Nothing bounds its sums, because latent points may lie
anywhere: windows (mpigp.numerics.reproducible_sum) take those of both rounds.
"""

from functools import lru_cache

import numpy as np

from mpigp.kernels.base import Gradients, LatentKernel
from mpigp.kernels.composition import Composition, Parameter, check_size, columns_of, compose
from mpigp.kernels.expression import Expression
from mpigp.kernels.latent_sum import LatentSum
from mpigp.kernels.numpy_backend import NumpyBackend
from mpigp.native import Kernel as Points
from mpigp.numerics.reproducible_sum import Summation, Windows
from mpigp.types import Floats


class LatentExpression(LatentKernel):
    """The kernel of scale one of an expression, for inputs of any number of columns; alpha are all its parameters."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.sum = lru_cache(maxsize=None)(self._sum)

    def _sum(self, q: int) -> LatentSum:
        terms = self.expression.terms  # a product is one of rbf, which is an rbf of all their columns
        columns = [tuple(column for part in term for column in columns_of(part, q)) for term in terms]
        return LatentSum([(term[0].kind, each) for term, each in zip(terms, columns, strict=True)], q)

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        return self.sum(Z.shape[1]).covariance(Z, X, alpha)

    def covariance_gradient(self, Z: Floats, X: Floats, alpha: Floats, weights: Floats) -> tuple[Floats, Floats]:
        return self.sum(Z.shape[1]).covariance_gradient(Z, X, alpha, weights)

    def psi1(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats) -> Floats:
        return self.sum(Z.shape[1]).psi1(Z, mu, S, alpha)

    def psi1_gradient(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats, weights: Floats) -> Gradients:
        return self.sum(Z.shape[1]).psi1_gradient(Z, mu, S, alpha, weights)

    def psi2(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats) -> Floats:
        return self.sum(Z.shape[1]).psi2(Z, mu, S, alpha)

    def psi2_gradient(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats, weights: Floats) -> Gradients:
        return self.sum(Z.shape[1]).psi2_gradient(Z, mu, S, alpha, weights)


class LatentBackend(NumpyBackend):
    """The backend of an expression that `Expression.check_latent` accepts."""

    kernel: LatentExpression
    unit = False
    composed = True
    rows_apart = True
    statistics_summation: Summation = Windows()

    def __init__(self, expression: Expression) -> None:
        check_size(expression)
        super().__init__(LatentExpression(expression), str(expression))
        self.composition = lru_cache(maxsize=None)(lambda q: compose(expression, q))

    def __reduce__(self) -> tuple[type["LatentBackend"], tuple[Expression]]:
        return LatentBackend, (self.kernel.expression,)

    def _at(self, q: int) -> Composition:
        return self.composition(q)

    def parameters(self, q: int) -> int:
        return len(self._at(q).parameters)

    def named_parameters(self, q: int) -> list[Parameter]:
        return self._at(q).parameters

    def loop_parameters(self, q: int) -> int:
        return self.parameters(q)

    def scale(self, alpha: Floats, q: int) -> float:
        return self._at(q).scale(alpha)

    def points(self, Z: Floats, center: Floats, alpha: Floats) -> Points:
        """Return the points, whose alpha is that of the kernel of scale one."""
        composition = self._at(Z.shape[1])
        return Points(Z, center, composition.relative(alpha), composition.native(alpha, center))

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        return super().covariance(Z, X, self._at(Z.shape[1]).relative(alpha))

    def diagonal(self, mu: Floats, S: Floats | None, alpha: Floats) -> Floats:
        q = mu.shape[1]
        return self.kernel.sum(q).diagonal(mu, S, self._at(q).relative(alpha))

    def gradient_limits(self, points: Points, lowest: Floats, highest: Floats, weight: float) -> Floats:
        return np.ones(len(lowest) + len(points.alpha))  # windows need none

    def parameter_gradient(self, alpha: Floats, raw: Floats, q: int, by_scale: float) -> Floats:
        return self._at(q).natural_gradient(alpha, raw, by_scale)

    def prior(self, points: Points, mu: Floats, S: Floats) -> Floats:
        return self.kernel.sum(mu.shape[1]).diagonal(mu, S, points.alpha)

    def prior_gradient(self, points: Points, mu: Floats, S: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        by_alpha, by_mu, by_S = self.kernel.sum(mu.shape[1]).diagonal_gradient(mu, S, points.alpha, weights)
        assert by_S is not None
        return by_alpha, by_mu, by_S
