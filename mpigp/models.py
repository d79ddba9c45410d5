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


STRAIGHT = 2e8
"""Up to this product of signal-to-noise ratio and condition number, regression's gradients may be taken straight from
K_mn: rounding moves them by some 1e-15 of the product (measured: tests/test_accuracy.py)."""


class Inducing:
    """The inducing points of one evaluation, in the order of their whitening and centred, with their gram matrix.

    signal_to_noise : β σ_f², which decides how much care the gradients need
    """

    def __init__(self, Z: Floats, alpha: Floats, jitter: float, signal_to_noise: float) -> None:
        self.centre = Z.mean(axis=0)
        Z = Z - self.centre
        K = rbf.gram(Z, alpha)
        self.whitening: Whitening = whiten(K, jitter)
        order = self.whitening.order
        self.Z = np.ascontiguousarray(Z[order])
        self.K = K[order][:, order]
        self.alpha = alpha
        self.straight = signal_to_noise <= STRAIGHT * float(np.diag(self.whitening.L).min()) ** 2
        self.native = native.Kernel(self.Z, self.centre, alpha)

    @cached_property
    def inverse(self) -> Floats:
        """L⁻¹ (m, m)."""
        return self.whitening.inverse()


class Summary(NamedTuple):
    """The summed statistics as the bound takes them: C (m, m), b (m, d), KL; and Ψ2 / K^½ (m, m) of the GPLVM."""

    C: Floats
    b: Floats
    KL: float
    pairs: Floats | None


class Weights(NamedTuple):
    """What every rank needs of the bound's derivatives: the weights of its rows' statistics.

    matrix : (m, m) in regression, or of ψ2's pairs (m(m+1)/2,) in the GPLVM
    psi1Y : (m, d), ∂F/∂(Σψ1Y)
    fit : (m, d) with the residuals E = Y − Aᵀ fit of regression; used where not `Inducing.straight`
    limit : a bound of Σ |∂F/∂ψ| ψ over all rows
    """

    matrix: Floats
    psi1Y: Floats
    fit: Floats
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

    def gradient_scale(self, inducing: Inducing, weights: Weights, rows: Rows) -> Floats:
        """Return the scales of the second round's integers: the gradients of Z and alpha.

        As α → 0 nothing bounds their totals, so each chunk may have an equal share of the words.
        """
        Z = inducing.Z + inducing.centre
        extent = np.maximum(rows.highest, Z.max(axis=0)) - np.minimum(rows.lowest, Z.min(axis=0))
        return scale_for(rbf.gradient_limits(weights.limit, len(Z), inducing.alpha, extent) * rows.all_chunks)

    @abstractmethod
    def add_statistics(self, inducing: Inducing, rows: Rows, part: Part) -> int:
        """Add the statistics of the part's chunks; return how many sums did not fit."""

    @abstractmethod
    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Summary:
        """Return what the bound takes, from the statistics of all rows."""

    @abstractmethod
    def weight_shape(self, m: int) -> tuple[int, ...]:
        """Return the shape of the weights' matrix."""

    @abstractmethod
    def weights(self, inducing: Inducing, summary: Summary, bound: Bound, rows: Rows) -> Weights:
        """Return the weights of the second round."""

    @abstractmethod
    def gram_weights(
        self, inducing: Inducing, summary: Summary, bound: Bound, weights: Weights, rest: Floats
    ) -> Floats:
        """Return ∂F/∂K ∘ K (m, m), whose row m gives the gradient of Z_m; `rest` are the sums after Z's and alpha's."""

    @abstractmethod
    def add_gradient(self, inducing: Inducing, rows: Rows, weights: Weights, part: Part) -> int:
        """Add the gradients of Z and alpha through the part's rows; set those of mu and S."""


def _both_sides(L: Floats, W: Floats) -> Floats:
    """Return L⁻ᵀ W L⁻¹ (m, m), exactly symmetric."""
    half = solve(L, solve(L, W, transposed=True).T, transposed=True)
    return 0.5 * (half + half.T)


def _by_gram(inducing: Inducing, summary: Summary, bound: Bound) -> Floats:
    """Return ∂F/∂K_mm ∘ K_mm (m, m) through L.

    K_mm enters C and b through L alone, and F does not change when L is turned by a rotation:
    ∂F/∂K_mm = −½ L⁻ᵀ (2 ∂F/∂C C + ∂F/∂b bᵀ) L⁻¹, made symmetric.
    """
    inner = 2 * bound.by_C @ summary.C + bound.by_b @ summary.b.T
    return -0.5 * _both_sides(inducing.whitening.L, inner) * inducing.K


def _absolute_residuals(fit: Floats, rows: Rows) -> Floats:
    """Return a bound (d,) of Σ|E_i| with E = Y − Aᵀ fit; no entry of A exceeds 1."""
    return rows.absolute_Y + rows.n * np.abs(fit).sum(axis=0)


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

    def weights(self, inducing: Inducing, summary: Summary, bound: Bound, rows: Rows) -> Weights:
        """Return N and p with ∂F/∂K_mn = N A + p Eᵀ, E = Y − s Aᵀg; or where `straight`, with ∂F/∂K_mn = N K + p Yᵀ.

        ∂F/∂K_mn = L⁻ᵀ (2 ∂F/∂C A + ∂F/∂b Yᵀ), in which I − P⁻¹ = s C P⁻¹, and −βs² g gᵀ A joins Y. Straight from K it
        takes a triangular product less, but L⁻¹ twice over.
        """
        L, d = inducing.whitening.L, summary.b.shape[1]
        psi1Y = solve(L, bound.by_b, transposed=True)
        if inducing.straight:
            matrix = _both_sides(L, 2 * bound.by_C)
            fit = np.zeros_like(psi1Y)
        else:
            CP_inverse = solve(bound.L_B, solve(bound.L_B, summary.C), transposed=True).T
            matrix = d * bound.s**2 * solve(L, CP_inverse, transposed=True)
            fit = bound.s * bound.g
        limit = rows.n * float(np.abs(matrix).sum()) + float((np.abs(psi1Y) @ _absolute_residuals(fit, rows)).sum())
        return Weights(np.ascontiguousarray(matrix), np.ascontiguousarray(psi1Y), np.ascontiguousarray(fit), limit)

    def gradient_scale(self, inducing: Inducing, weights: Weights, rows: Rows) -> Floats:
        scale = super().gradient_scale(inducing, weights, rows)
        if inducing.straight:
            return scale
        residuals = scale_for(_absolute_residuals(weights.fit, rows) * rows.all_chunks)
        return np.append(scale, np.tile(residuals, len(inducing.Z)))

    def gram_weights(
        self, inducing: Inducing, summary: Summary, bound: Bound, weights: Weights, rest: Floats
    ) -> Floats:
        # ∂F/∂K_mm = −½ (N C + p (AE)ᵀ) L⁻¹. This nearly cancels the rows' part, so it must round as that did: the same
        # N and p, AE summed over the rows, and not made symmetric.
        if inducing.straight:
            return _by_gram(inducing, summary, bound)
        AE = rest.reshape(weights.psi1Y.shape)
        inner = weights.matrix @ summary.C + weights.psi1Y @ AE.T
        return -0.5 * solve(inducing.whitening.L, inner.T, transposed=True).T * inducing.K

    def add_gradient(self, inducing: Inducing, rows: Rows, weights: Weights, part: Part) -> int:
        inverse = None if inducing.straight else inducing.inverse
        return native.regression_gradient(
            inducing.native, rows.native, inverse, weights.matrix, weights.psi1Y, weights.fit, *part, FINE
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
        sums = unpacked(triangle, m)
        L = inducing.whitening.L
        C = solve(L, solve(L, sums * np.sqrt(inducing.K)).T)
        return Summary(0.5 * (C + C.T), solve(L, psi1Y.reshape(m, d)), float(divergence.sum()), sums)

    def weight_shape(self, m: int) -> tuple[int, ...]:
        return (m * (m + 1) // 2,)

    def weights(self, inducing: Inducing, summary: Summary, bound: Bound, rows: Rows) -> Weights:
        matrix = _both_sides(inducing.whitening.L, bound.by_C) * np.sqrt(inducing.K)
        psi1Y = np.ascontiguousarray(solve(inducing.whitening.L, bound.by_b, transposed=True))
        limit = rows.n * float(np.abs(matrix).sum()) + float((np.abs(psi1Y) @ rows.absolute_Y).sum())
        np.fill_diagonal(matrix, 0.5 * np.diag(matrix))  # the loops count each pair twice
        return Weights(packed(matrix), psi1Y, np.zeros_like(psi1Y), limit)

    def gram_weights(
        self, inducing: Inducing, summary: Summary, bound: Bound, weights: Weights, rest: Floats
    ) -> Floats:
        assert summary.pairs is not None
        by_pairs = unpacked(weights.matrix, len(inducing.Z))  # ∂F/∂Ψ2 ∘ K^½, its diagonal halved
        np.fill_diagonal(by_pairs, 2 * np.diag(by_pairs))
        # Ψ2's factor of Z alone is k^½: half the derivative.
        return _by_gram(inducing, summary, bound) + 0.5 * by_pairs * summary.pairs

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
