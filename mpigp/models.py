"""The two models: which sums over rows each needs, and what each makes of them.

Both hand the same two matrices to the bound, C = L⁻¹ Ψ2 L⁻ᵀ and b = L⁻¹ Σψ1Y. Regression, where ψ1 = K_mi and ψ2 = K_mi K_im,
sums them whitened, as AAᵀ and AY with A = L⁻¹ K_mn, which keeps the digits that forming Ψ2 first would lose. The GPLVM sums Ψ2
and Σψ1Y and whitens the totals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.bound import Bound
from mpigp.exactsum import FINE, from_one_word, scale_for
from mpigp.kernels import rbf
from mpigp.rows import Rows
from mpigp.whitening import Whitening, solve, whiten

Floats = NDArray[np.float64]
Words = NDArray[np.int64]


class Inducing:
    """The inducing points of one evaluation, in the order of their whitening and centred, with their gram matrix."""

    def __init__(self, Z: Floats, alpha: Floats, jitter: float) -> None:
        centre = Z.mean(axis=0)
        Z = Z - centre
        K = rbf.gram(Z, alpha)
        self.whitening: Whitening = whiten(K, jitter)
        order = self.whitening.order
        self.Z = np.ascontiguousarray(Z[order])
        self.K = K[order][:, order]
        self.alpha = alpha
        self.native = native.Kernel(self.Z, centre, alpha)


class Summary(NamedTuple):
    """The summed statistics as the bound takes them: C (m, m), b (m, d), KL, and Ψ2 (m, m; GPLVM only)."""

    C: Floats
    b: Floats
    KL: float
    psi2: Floats | None


class Weights(NamedTuple):
    """What the second round needs of the first: `matrix` and `psi1Y` (m, d) weigh the rows' statistics, `limit` bounds the sums."""

    matrix: Floats
    psi1Y: Floats
    limit: float


def packed(matrix: Floats) -> Floats:
    """Return the lower triangle (m(m+1)/2,) of a symmetric matrix (m, m), by rows."""
    return matrix[np.tril_indices(len(matrix))]


def unpacked(triangle: Floats, m: int) -> Floats:
    """Return the symmetric matrix (m, m) whose lower triangle is `triangle`."""
    matrix = np.empty((m, m))
    matrix[np.tril_indices(m)] = triangle
    upper = np.triu_indices(m)
    matrix[upper] = matrix.T[upper]
    return matrix


class Model(ABC):
    """One model: its sums over rows, and how they meet the bound."""

    name: str
    divergence_words: int  # the words of KL among the statistics

    def statistics_scale(self, rows: Rows, m: int) -> Floats:
        """Return the scales of the statistics' integers: Ψ2 (packed), Σψ1Y, KL. No ψ exceeds 1."""
        return np.concatenate([
            np.broadcast_to(scale_for(float(rows.n)), m * (m + 1) // 2),
            np.tile(scale_for(rows.absolute_Y), m),
            [1.0, FINE][: self.divergence_words],
        ])

    def gradient_scale(self, inducing: Inducing, weights: Weights) -> Floats:
        """Return the scales of the integers of the gradients of Z and alpha."""
        return scale_for(rbf.gradient_limits(weights.limit, inducing.Z, inducing.alpha))

    @abstractmethod
    def add_statistics(
        self, inducing: Inducing, rows: Rows, first: int, last: int, words: Words, scale: Floats, space: Floats
    ) -> int:
        """Add the statistics of chunks [first, last) to `words`; return how many sums did not fit."""

    @abstractmethod
    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Summary:
        """Return what the bound takes, from the statistics of all rows."""

    @abstractmethod
    def weights(self, inducing: Inducing, bound: Bound, rows: Rows) -> Weights:
        """Return the weights of the second round."""

    @abstractmethod
    def weight_shape(self, m: int) -> tuple[int, ...]:
        """Return the shape of the weights' matrix."""

    @abstractmethod
    def add_gradient(
        self, inducing: Inducing, rows: Rows, first: int, last: int, weights: Weights, words: Words, scale: Floats, space: Floats
    ) -> int:
        """Add the gradients of Z and alpha through the rows of chunks [first, last); set those of mu and S."""

    def gram_gradient(self, inducing: Inducing, summary: Summary, bound: Bound) -> tuple[Floats, Floats]:
        """Return the gradients of Z and alpha through matrices of the inducing points alone.

        C and b depend on K_mm through L; F does not change when L is turned by a rotation, hence
        ∂F/∂K_mm = −½ L⁻ᵀ (2 ∂F/∂C C + ∂F/∂b bᵀ) L⁻¹, made symmetric.
        """
        L = inducing.whitening.L
        inner = 2 * bound.by_C @ summary.C + bound.by_b @ summary.b.T
        half = solve(L, solve(L, inner, transposed=True).T, transposed=True)
        by_K = -0.25 * (half + half.T)
        return rbf.gram_gradient(by_K * inducing.K, inducing.Z, inducing.alpha)


class Regression(Model):
    """Sparse GP regression (tutorial §3)."""

    name = "regression"
    divergence_words = 0

    def add_statistics(
        self, inducing: Inducing, rows: Rows, first: int, last: int, words: Words, scale: Floats, space: Floats
    ) -> int:
        return native.regression_statistics(
            inducing.native, rows.native, first, last, inducing.whitening.L, words, scale, space
        )

    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Summary:
        m = len(inducing.Z)
        triangle, b = np.split(from_one_word(words, scale), [m * (m + 1) // 2])
        return Summary(unpacked(triangle, m), b.reshape(m, d), 0.0, None)

    def weight_shape(self, m: int) -> tuple[int, ...]:
        return (m, m)

    def weights(self, inducing: Inducing, bound: Bound, rows: Rows) -> Weights:
        # ∂F/∂K_mn = L⁻ᵀ (2 ∂F/∂C A + ∂F/∂b Yᵀ). Applying L⁻ᵀ ∂F/∂C L⁻¹ to K instead would cancel digits.
        L = inducing.whitening.L
        N = np.ascontiguousarray(2 * solve(L, bound.by_C, transposed=True))
        psi1Y = np.ascontiguousarray(solve(L, bound.by_b, transposed=True))
        limit = rows.n * float(np.abs(N).sum()) + float((np.abs(psi1Y) @ rows.absolute_Y).sum())
        return Weights(N, psi1Y, limit)

    def add_gradient(
        self, inducing: Inducing, rows: Rows, first: int, last: int, weights: Weights, words: Words, scale: Floats, space: Floats
    ) -> int:
        return native.regression_gradient(
            inducing.native, rows.native, first, last, inducing.whitening.L, weights.matrix, weights.psi1Y,
            words, scale, FINE, space,
        )  # fmt: skip


class GPLVM(Model):
    """The Bayesian Gaussian process latent variable model (tutorial §4)."""

    name = "gplvm"
    divergence_words = 2

    def add_statistics(
        self, inducing: Inducing, rows: Rows, first: int, last: int, words: Words, scale: Floats, space: Floats
    ) -> int:
        return native.gplvm_statistics(inducing.native, rows.native, first, last, words, scale, space)

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

    def _by_psi2(self, inducing: Inducing, bound: Bound) -> Floats:
        L = inducing.whitening.L
        by_psi2 = solve(L, solve(L, bound.by_C, transposed=True).T, transposed=True)
        return 0.5 * (by_psi2 + by_psi2.T)

    def weights(self, inducing: Inducing, bound: Bound, rows: Rows) -> Weights:
        matrix = self._by_psi2(inducing, bound) * np.sqrt(inducing.K)
        psi1Y = np.ascontiguousarray(solve(inducing.whitening.L, bound.by_b, transposed=True))
        limit = rows.n * float(np.abs(matrix).sum()) + float((np.abs(psi1Y) @ rows.absolute_Y).sum())
        np.fill_diagonal(matrix, 0.5 * np.diag(matrix))  # the loops count each pair twice
        return Weights(packed(matrix), psi1Y, limit)

    def add_gradient(
        self, inducing: Inducing, rows: Rows, first: int, last: int, weights: Weights, words: Words, scale: Floats, space: Floats
    ) -> int:
        return native.gplvm_gradient(
            inducing.native, rows.native, first, last, weights.matrix, weights.psi1Y,
            rows.gradient_mu, rows.gradient_S, words, scale, FINE, space,
        )  # fmt: skip

    def gram_gradient(self, inducing: Inducing, summary: Summary, bound: Bound) -> tuple[Floats, Floats]:
        by_Z, by_alpha = super().gram_gradient(inducing, summary, bound)
        assert summary.psi2 is not None
        # ψ2's factor of Z alone is k^½: half the exponent, half the derivative.
        pair_Z, pair_alpha = rbf.gram_gradient(
            0.5 * self._by_psi2(inducing, bound) * summary.psi2, inducing.Z, inducing.alpha
        )
        return by_Z + pair_Z, by_alpha + pair_alpha


MODELS: dict[str, Model] = {model.name: model for model in (Regression(), GPLVM())}
