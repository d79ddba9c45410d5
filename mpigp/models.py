"""The two models: which sums over rows each needs, and what each makes of them.

Both hand the same two matrices to the bound, C = L⁻¹ Ψ2 L⁻ᵀ and b = L⁻¹ Σψ1Y. Regression, where ψ1 = K_mi and
ψ2 = K_mi K_im, sums them whitened, as AAᵀ and AY with A = L⁻¹ K_mn, which keeps the digits that forming Ψ2 first would
lose. The GPLVM sums Ψ2 and Σψ1Y and whitens the totals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.bound import Bound
from mpigp.exactsum import FINE, from_one_word, scale_for
from mpigp.kernels import rbf
from mpigp.rows import Rows
from mpigp.whitening import Whitening, solve, symmetric, whiten
from mpigp.workers import Part

Floats = NDArray[np.float64]
Words = NDArray[np.int64]


STRAIGHT = 1e9
"""Up to this product of signal-to-noise ratio and condition number, ∂F/∂K_mn may be taken straight from K_mn: rounding
moves its entries by some 1e-16 of the product (measured: tests/test_accuracy.py)."""


class Inducing:
    """The inducing points of one evaluation, in the order of their whitening and centred, with their gram matrix.

    signal_to_noise : β σ_f², which decides how much care the gradients need
    """

    def __init__(self, Z: Floats, alpha: Floats, jitter: float, signal_to_noise: float) -> None:
        centre = Z.mean(axis=0)
        Z = Z - centre
        K = rbf.gram(Z, alpha)
        self.whitening: Whitening = whiten(K, jitter)
        order = self.whitening.order
        self.Z = np.ascontiguousarray(Z[order])
        self.K = K[order][:, order]
        self.alpha = alpha
        self.straight = signal_to_noise <= STRAIGHT * float(np.diag(self.whitening.L).min()) ** 2
        self.native = native.Kernel(self.Z, centre, alpha)

    @cached_property
    def inverse(self) -> Floats:
        """L⁻¹ (m, m)."""
        return self.whitening.inverse()


class Summary(NamedTuple):
    """The summed statistics as the bound takes them: C (m, m), b (m, d), KL, and Ψ2 (m, m; GPLVM only)."""

    C: Floats
    b: Floats
    KL: float
    psi2: Floats | None


class Weights(NamedTuple):
    """What every rank needs of the bound's derivatives: the weights of its rows' statistics.

    matrix : (m, m) with ∂F/∂K_mn = matrix A + psi1Y Yᵀ in regression, or matrix K + psi1Y Yᵀ where `Inducing.straight`;
        of ψ2's pairs (m(m+1)/2,) in the GPLVM
    psi1Y : (m, d), ∂F/∂(Σψ1Y)
    limit : a bound of Σ |∂F/∂ψ| ψ over all rows
    """

    matrix: Floats
    psi1Y: Floats
    limit: float


@lru_cache(maxsize=4)
def _triangle(m: int) -> NDArray[np.intp]:
    """Return the places of the lower triangle, by rows, in the flattened matrix (m, m)."""
    return np.flatnonzero(np.tri(m, dtype=bool))


def packed(matrix: Floats) -> Floats:
    """Return the lower triangle (m(m+1)/2,) of a symmetric matrix (m, m), by rows."""
    return matrix.ravel()[_triangle(len(matrix))]


def unpacked(triangle: Floats, m: int) -> Floats:
    """Return the symmetric matrix (m, m) whose lower triangle is `triangle`."""
    matrix = np.zeros(m * m)
    matrix[_triangle(m)] = triangle
    return symmetric(matrix.reshape(m, m))


class Model(ABC):
    """One model: its sums over rows, and how they meet the bound."""

    name: str
    divergence_words: int  # the words of KL among the statistics

    def statistics_scale(self, rows: Rows, m: int) -> Floats:
        """Return the scales of the statistics' integers: Ψ2 (packed), Σψ1Y, KL. No ψ exceeds 1."""
        return np.concatenate(
            [
                np.broadcast_to(scale_for(float(rows.n)), m * (m + 1) // 2),
                np.tile(scale_for(rows.absolute_Y), m),
                [1.0, FINE][: self.divergence_words],
            ]
        )

    def gradient_scale(self, inducing: Inducing, weights: Weights) -> Floats:
        """Return the scales of the integers of the gradients of Z and alpha."""
        return scale_for(rbf.gradient_limits(weights.limit, inducing.Z, inducing.alpha))

    @abstractmethod
    def add_statistics(self, inducing: Inducing, rows: Rows, part: Part) -> int:
        """Add the statistics of the part's chunks; return how many sums did not fit."""

    @abstractmethod
    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Summary:
        """Return what the bound takes, from the statistics of all rows."""

    @abstractmethod
    def weight_shape(self, m: int) -> tuple[int, ...]:
        """Return the shape of the weights' matrix."""

    def backward(
        self, inducing: Inducing, summary: Summary, bound: Bound, rows: Rows
    ) -> tuple[Weights, Floats, Floats]:
        """Return the weights of the second round, and the gradients of Z (m, q) and alpha (q,) through K_mm.

        ∂F/∂K_mn = N A + L⁻ᵀ ∂F/∂b Yᵀ with N = 2 L⁻ᵀ ∂F/∂C. K_mm enters through L alone, and F does not change when L is
        turned by a rotation: ∂F/∂K_mm = −½ (N C + L⁻ᵀ ∂F/∂b bᵀ) L⁻¹, made symmetric.
        """
        L = inducing.whitening.L
        N = 2 * solve(L, bound.by_C, transposed=True)
        psi1Y = solve(L, bound.by_b, transposed=True)
        half = solve(L, (N @ summary.C + psi1Y @ summary.b.T).T, transposed=True)
        gram = -0.25 * (half + half.T) * inducing.K
        matrix, pair = self._pair_weights(inducing, summary, N)
        if pair is not None:
            gram += pair
        limit = rows.n * float(np.abs(matrix).sum()) + float((np.abs(psi1Y) @ rows.absolute_Y).sum())
        by_Z, by_alpha = native.gram_gradient(np.ascontiguousarray(gram), inducing.Z, inducing.alpha)
        return Weights(np.ascontiguousarray(matrix), np.ascontiguousarray(psi1Y), limit), by_Z, by_alpha

    @abstractmethod
    def _pair_weights(self, inducing: Inducing, summary: Summary, N: Floats) -> tuple[Floats, Floats | None]:
        """Return the weights' matrix, and what Ψ2's dependence on Z alone adds to ∂F/∂K ∘ K."""

    @abstractmethod
    def add_gradient(self, inducing: Inducing, rows: Rows, weights: Weights, part: Part) -> int:
        """Add the gradients of Z and alpha through the part's rows; set those of mu and S."""


class Regression(Model):
    """Sparse GP regression (tutorial §3)."""

    name = "regression"
    divergence_words = 0

    def add_statistics(self, inducing: Inducing, rows: Rows, part: Part) -> int:
        return native.regression_statistics(inducing.native, rows.native, inducing.inverse, *part)

    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Summary:
        m = len(inducing.Z)
        triangle, b = np.split(from_one_word(words, scale), [m * (m + 1) // 2])
        return Summary(unpacked(triangle, m), b.reshape(m, d), 0.0, None)

    def weight_shape(self, m: int) -> tuple[int, ...]:
        return (m, m)

    def _pair_weights(self, inducing: Inducing, summary: Summary, N: Floats) -> tuple[Floats, Floats | None]:
        # ∂F/∂K_mn = N A, or N L⁻¹ K: a triangular product less, but L⁻¹ twice over, which may cost the digits again.
        if not inducing.straight:
            return N, None
        half = solve(inducing.whitening.L, N.T, transposed=True)
        return 0.5 * (half + half.T), None

    def add_gradient(self, inducing: Inducing, rows: Rows, weights: Weights, part: Part) -> int:
        inverse = None if inducing.straight else inducing.inverse
        return native.regression_gradient(
            inducing.native, rows.native, inverse, weights.matrix, weights.psi1Y, *part, FINE
        )


class GPLVM(Model):
    """The Bayesian Gaussian process latent variable model (tutorial §4)."""

    name = "gplvm"
    divergence_words = 2

    def add_statistics(self, inducing: Inducing, rows: Rows, part: Part) -> int:
        return native.gplvm_statistics(inducing.native, rows.native, rows.kept(len(inducing.Z)), *part)

    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Summary:
        m = len(inducing.Z)
        pairs = m * (m + 1) // 2
        triangle, psi1Y, divergence = np.split(from_one_word(words, scale), [pairs, pairs + m * d])
        psi2 = unpacked(triangle, m) * np.sqrt(inducing.K)
        L = inducing.whitening.L
        C = solve(L, solve(L, psi2).T)
        return Summary(0.5 * (C + C.T), solve(L, psi1Y.reshape(m, d)), float(divergence.sum()), psi2)

    def weight_shape(self, m: int) -> tuple[int, ...]:
        return (m * (m + 1) // 2,)

    def _pair_weights(self, inducing: Inducing, summary: Summary, N: Floats) -> tuple[Floats, Floats | None]:
        assert summary.psi2 is not None
        half = solve(inducing.whitening.L, N.T, transposed=True)
        by_psi2 = 0.25 * (half + half.T)
        matrix = by_psi2 * np.sqrt(inducing.K)
        np.fill_diagonal(matrix, 0.5 * np.diag(matrix))  # the loops count each pair twice
        return packed(matrix), 0.5 * by_psi2 * summary.psi2  # ψ2's factor of Z alone is k^½: half the derivative

    def add_gradient(self, inducing: Inducing, rows: Rows, weights: Weights, part: Part) -> int:
        return native.gplvm_gradient(
            inducing.native,
            rows.native,
            rows.kept(len(inducing.Z)),
            weights.matrix,
            weights.psi1Y,
            rows.gradients["mu"],
            rows.gradients["S"],
            *part,
            FINE,
        )


MODELS: dict[str, Model] = {model.name: model for model in (Regression(), GPLVM())}
