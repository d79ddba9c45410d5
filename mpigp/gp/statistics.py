"""The two models: which sums over rows each needs, and what each makes of them.

Both hand the same two matrices to the bound, C = L⁻¹ Ψ2 L⁻ᵀ and b = L⁻¹ Σψ1Y. The GPLVM sums Ψ2 and Σψ1Y and whitens
the totals. Regression, where ψ1 = K_mi and ψ2 = K_mi K_im, does so where K_mm is well conditioned; elsewhere it sums
them whitened, as AAᵀ and AY with A = L⁻¹ K_mn, which keeps the digits that forming Ψ2 first would lose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpigp import native
from mpigp.errors import InputError
from mpigp.gp.bound import Bound
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.registry import DEFAULT, backend_of
from mpigp.mpi.rows import Block, Rows
from mpigp.numerics.cholesky import Whitening, whiten
from mpigp.numerics.reproducible_sum import FINE, from_one_word, scale_for
from mpigp.numerics.threads import Part
from mpigp.types import Floats, Words

MAX_COND_UNWHITENED_GRADIENT = 2e8
"""Up to this product of signal-to-noise ratio and condition number, regression's gradients may be taken straight from
K_mn: rounding moves them by some 1e-15 of the product (measured: tests/gp/test_accuracy.py)."""

MAX_COND_UNWHITENED_STATISTICS = 5e4
"""Up to this one, of the condition number alone too, its statistics: rounding moves the bound by some 1e-20 of its
square (measured there), and tr C, which n bounds, by as much of the condition number's."""


class Inducing:
    """The inducing points of one evaluation, in the order of their whitening and centred, with their gram matrix.

    signal_to_noise : β σ_f², which decides how much care the gradients need
    factor : (m, m), what ∂F/∂K_mm is multiplied with, entry by entry: K_mm itself, or one (`Loops.factored`)
    """

    def __init__(self, loops: KernelBackend, Z: Floats, alpha: Floats, jitter: float, signal_to_noise: float) -> None:
        centre = loops.centre(Z)
        Z = Z - centre
        K = loops.gram(Z, alpha)
        self.whitening: Whitening = whiten(K, jitter)
        order = self.whitening.order
        self.Z = Z.take(order, axis=0)
        self.factor = native.permuted(K, order) if loops.factored else np.ones_like(K)
        self.alpha = alpha
        smallest = self.whitening.L.item(-1)  # of the diagonal: the last, by the pivoting
        self.straight = signal_to_noise <= MAX_COND_UNWHITENED_GRADIENT * smallest**2
        self.straight_sums = max(signal_to_noise, 1.0) <= MAX_COND_UNWHITENED_STATISTICS * smallest**2
        self.points = native.Kernel(self.Z, centre, alpha)

    @cached_property
    def inverse(self) -> Floats:
        """L⁻¹ (m, m)."""
        return self.whitening.inverse()

    @cached_property
    def root_factor(self) -> Floats:
        """The factor's root (m, m), entry by entry: ψ2's factor of Z alone."""
        return np.sqrt(self.factor)


class Statistics(NamedTuple):
    """The summed statistics as the bound takes them: C (groups, m, m), b (m, d), KL; and the GPLVM's Ψ2 without its
    factor of Z alone, packed (m(m+1)/2, groups).
    """

    C: Floats
    b: Floats
    KL: float
    pairs: Floats | None


class Adjoints(NamedTuple):
    """What every rank needs of the bound's derivatives: the weights of its rows' statistics.

    matrix : (m, m) in regression, or of ψ2's pairs (m(m+1)/2, groups) in the GPLVM
    psi1Y : (m, d), ∂F/∂(Σψ1Y)
    fit : (m, d) with the residuals E = Y − Aᵀ fit of regression; used where not `Inducing.straight`
    limit : a bound of Σ |∂F/∂ψ| ψ over all rows
    """

    matrix: Floats
    psi1Y: Floats
    fit: Floats
    limit: float


class Model(ABC):
    """One model: its sums over rows, and how they meet the bound."""

    name: str
    divergence_words: int  # the words of KL among the statistics

    def __init__(self, loops: KernelBackend | None = None) -> None:
        self.loops = backend_of(DEFAULT) if loops is None else loops

    def statistics_scale(self, rows: Rows, m: int) -> Floats:
        """Return the scales of the statistics' integers: Ψ2 (packed), Σψ1Y, KL. No ψ exceeds 1."""
        return np.concatenate(
            [
                np.broadcast_to(scale_for(float(rows.n)), m * (m + 1) // 2 * len(rows.groups)),
                np.tile(scale_for(rows.absolute_Y), m),
                [1.0, FINE][: self.divergence_words],
            ]
        )

    def gradient_scale(self, inducing: Inducing, weights: Adjoints, rows: Rows) -> Floats:
        """Return the scales of the second round's integers: the gradients of Z and alpha.

        As α → 0 nothing bounds their totals, so each chunk may have an equal share of the words.
        """
        weight = weights.limit * rows.all_chunks
        of_one = scale_for(self.loops.gradient_limits(inducing.points, rows.lowest, rows.highest, weight))
        m, q = inducing.Z.shape
        scale = np.empty((m + 1, q))
        scale[:m], scale[m] = of_one[:q], of_one[q:]
        return scale.ravel()

    @abstractmethod
    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        """Add the statistics of the part's chunks; return how many sums did not fit."""

    def whitens(self, inducing: Inducing) -> bool:
        """Return whether the rows' statistics are whitened, so that a larger jitter makes them smaller."""
        return False

    @abstractmethod
    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Statistics:
        """Return what the bound takes, from the statistics of all rows."""

    @abstractmethod
    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        """Return the shape of the weights' matrix."""

    @abstractmethod
    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, rows: Rows) -> Adjoints:
        """Return the weights of the second round."""

    @abstractmethod
    def gram_weights(
        self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints, rest: Floats
    ) -> Floats:
        """Return ∂F/∂K ∘ factor (m, m), whose row m gives the gradient of Z_m.

        rest : the sums after Z's and alpha's
        """

    @abstractmethod
    def add_gradient(self, inducing: Inducing, rows: Block, weights: Adjoints, part: Part) -> int:
        """Add the gradients of Z and alpha through the part's rows; set those of mu and S."""


def _by_gram(inducing: Inducing, bound: Bound) -> Floats:
    """Return ∂F/∂K_mm ∘ factor (m, m) through L.

    K_mm enters C and b through L alone, and F does not change when L is turned by a rotation:
    ∂F/∂K_mm = −L⁻ᵀ (∂F/∂C C + ½ ∂F/∂b bᵀ) L⁻¹.
    """
    return native.by_gram(bound.by_L, inducing.inverse, inducing.factor)


def _absolute_residuals(fit: Floats, rows: Rows) -> Floats:
    """Return a bound (d,) of Σ|E_i| with E = Y − Aᵀ fit; no entry of A exceeds 1."""
    return rows.absolute_Y + rows.n * np.abs(fit).sum(axis=0)


class Regression(Model):
    """Sparse GP regression (tutorial §3)."""

    name = "regression"
    divergence_words = 0

    def whitens(self, inducing: Inducing) -> bool:
        return not inducing.straight_sums

    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        inverse = inducing.inverse if self.whitens(inducing) else None
        return self.loops.regression_statistics(inducing.points, rows.native, inverse, part)

    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Statistics:
        m = len(inducing.Z)
        sums, pairs = from_one_word(words, scale), m * (m + 1) // 2
        C, b = native.symmetric(sums[:pairs], m), sums[pairs:].reshape(m, d)
        if inducing.straight_sums:
            C = native.sandwiched(inducing.inverse, C, 1.0, transposed=True)
            b = native.solve(inducing.whitening.L, b)
        return Statistics(C[None], b, 0.0, None)

    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        return (m, m)

    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, rows: Rows) -> Adjoints:
        """Return N and p with ∂F/∂K_mn = N A + p Eᵀ, E = Y − s Aᵀg; or where `straight`, with ∂F/∂K_mn = N K + p Yᵀ.

        ∂F/∂K_mn = L⁻ᵀ (2 ∂F/∂C A + ∂F/∂b Yᵀ), in which I − P⁻¹ = s C P⁻¹, and −βs² g gᵀ A joins Y. Straight from K it
        takes a triangular product less, but L⁻¹ twice over.
        """
        L, d = inducing.whitening.L, summary.b.shape[1]
        psi1Y = native.solve(L, bound.by_b, transposed=True)
        if inducing.straight:
            matrix = native.sandwiched(inducing.inverse, bound.by_C[0], 2.0)
            fit = np.zeros_like(psi1Y)
        else:
            L_B = bound.L_B[0]
            CP_inverse = native.solve(L_B, native.solve(L_B, summary.C[0]), transposed=True).T
            matrix = d * bound.s**2 * native.solve(L, CP_inverse, transposed=True)
            fit = bound.s * bound.g
        limit = native.absolute_total(matrix, rows.n, psi1Y, _absolute_residuals(fit, rows))
        return Adjoints(matrix, psi1Y, fit, limit)

    def gradient_scale(self, inducing: Inducing, weights: Adjoints, rows: Rows) -> Floats:
        scale = super().gradient_scale(inducing, weights, rows)
        if inducing.straight:
            return scale
        residuals = scale_for(_absolute_residuals(weights.fit, rows) * rows.all_chunks)
        return np.append(scale, np.tile(residuals, len(inducing.Z)))

    def gram_weights(
        self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints, rest: Floats
    ) -> Floats:
        # ∂F/∂K_mm = −½ (N C + p (AE)ᵀ) L⁻¹. This nearly cancels the rows' part, so it must round as that did: the same
        # N and p, AE summed over the rows, and not made symmetric.
        if inducing.straight:
            return _by_gram(inducing, bound)
        AE = rest.reshape(weights.psi1Y.shape)
        inner = weights.matrix @ summary.C[0] + weights.psi1Y @ AE.T
        by_K = -0.5 * native.solve(inducing.whitening.L, inner.T, transposed=True).T
        return np.ascontiguousarray(by_K * inducing.factor)

    def add_gradient(self, inducing: Inducing, rows: Block, weights: Adjoints, part: Part) -> int:
        inverse = None if inducing.straight else inducing.inverse
        return self.loops.regression_gradient(
            inducing.points, rows.native, inverse, weights.matrix, weights.psi1Y, weights.fit, part
        )


class GPLVM(Model):
    """The Bayesian Gaussian process latent variable model (tutorial §4)."""

    name = "gplvm"
    divergence_words = 2

    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        return self.loops.gplvm_statistics(inducing.points, rows.native, part)

    def summary(self, inducing: Inducing, words: Words, scale: Floats, d: int) -> Statistics:
        m = len(inducing.Z)
        sums, psi2_sums = from_one_word(words, scale), len(words) - m * d - 2
        L, pairs = inducing.whitening.L, sums[:psi2_sums].reshape(m * (m + 1) // 2, -1)
        C = native.whitened(pairs, inducing.root_factor, L)
        return Statistics(C, native.solve(L, sums[psi2_sums:-2].reshape(m, d)), float(sums[-2] + sums[-1]), pairs)

    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        return (m * (m + 1) // 2, groups)

    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, rows: Rows) -> Adjoints:
        psi1Y = native.solve(inducing.whitening.L, bound.by_b, transposed=True)
        matrix = native.pair_weights(bound.by_C, inducing.root_factor, inducing.inverse)
        limit = native.absolute_total(matrix, 2 * rows.n, psi1Y, rows.absolute_Y)
        return Adjoints(matrix, psi1Y, np.zeros_like(psi1Y), limit)

    def gram_weights(
        self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints, rest: Floats
    ) -> Floats:
        by_gram = _by_gram(inducing, bound)
        if self.loops.factored:
            assert summary.pairs is not None
            native.add_through_pairs(by_gram, weights.matrix, summary.pairs)
        return by_gram

    def add_gradient(self, inducing: Inducing, rows: Block, weights: Adjoints, part: Part) -> int:
        by_mu, by_S = rows.gradients["mu"], rows.gradients["S"]
        return self.loops.gplvm_gradient(inducing.points, rows.native, weights.matrix, weights.psi1Y, by_mu, by_S, part)


MODELS: dict[str, Model] = {model.name: model for model in (Regression(), GPLVM())}


def model_of(name: str, kernel: str = DEFAULT) -> Model:
    """Return the model of this name with the kernel of that; a kernel that cannot serve it is refused."""
    loops = backend_of(kernel)
    if name == GPLVM.name and not loops.latent:
        raise InputError(f"is {kernel!r}, which has no psi statistics: it serves regression alone")
    return type(MODELS[name])(loops)
