"""The Matérn 5/2 kernel in NumPy: a kernel as users write them, and what the compiled one is compared with."""

import numpy as np

from mpigp.kernels.base import Kernel
from mpigp.types import Floats

NAME = "tests.support.matern:Matern52"


class Matern52(Kernel):
    """k = (1 + a + a²/3) exp(−a), a² = 5 Σ_q α_q (x_q − x'_q)². Regression alone: its ψ statistics have no closed form.

    dk/d(a²) = −(1 + a) exp(−a) / 6
    """

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        a = _scaled(Z, X, alpha)
        return (1 + a + a * a / 3) * np.exp(-a)

    def covariance_gradient(self, Z: Floats, X: Floats, alpha: Floats, weights: Floats) -> tuple[Floats, Floats]:
        a = _scaled(Z, X, alpha)
        by_square = weights * (1 + a) * np.exp(-a) * (-5 / 6)  # by Σ α u²
        by_Z, by_alpha = np.empty_like(Z), np.empty_like(alpha)
        for q in range(len(alpha)):
            u = Z[:, q, None] - X[:, q]
            by_Z[:, q] = 2 * alpha[q] * (by_square * u).sum(axis=1)
            by_alpha[q] = (by_square * u * u).sum()
        return by_Z, by_alpha


def _scaled(Z: Floats, X: Floats, alpha: Floats) -> Floats:
    """Return a (m, n)."""
    square = np.zeros((len(Z), len(X)))
    for q in range(len(alpha)):
        square += 5 * alpha[q] * np.square(Z[:, q, None] - X[:, q])
    return np.sqrt(square)
