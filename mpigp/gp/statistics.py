"""The two models: the sums over rows that each needs, and the statistics and gradients that it makes of them.

Both hand the same two matrices to the bound, C = L⁻¹ Ψ2 L⁻ᵀ and b = L⁻¹ Σψ1Y. The GPLVM sums Ψ2 and Σψ1Y and whitens
the totals. Regression, where ψ1 = K_mi and ψ2 = K_mi K_im, does so where K_mm is well conditioned; elsewhere it sums
them whitened, as AAᵀ and AY with A = L⁻¹ K_mn, which keeps the digits that forming Ψ2 first would lose.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from mpigp import native
from mpigp.errors import InputError
from mpigp.gp.bound import Bound, Group
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.registry import DEFAULT, backend_of
from mpigp.numerics.cholesky import Whitening, whiten
from mpigp.numerics.reproducible_sum import FINE, from_accumulators, scale_for
from mpigp.numerics.threads import Part
from mpigp.types import Floats, Integers

MAX_COND_UNWHITENED_GRADIENT = 2e8
"""Up to this product of signal-to-noise ratio and condition number, regression's gradients may be computed from K_mn,
unwhitened: rounding moves them by some 1e-15 of the product (measured: tests/gp/test_accuracy.py)."""

MAX_COND_UNWHITENED_STATISTICS = 5e4
"""Up to this one, of the condition number alone too, its statistics: rounding moves the bound by some 1e-20 of its
square (measured there), and tr C, which n bounds, by as much of the condition number's."""


ROUNDING = 2.0**-47
"""The error of a GPLVM's bound, over s n d and the condition number: the range of 30 evaluations at points that differ
in the last digits (measured on oil flow, where it is 0.1 nats)."""


class Block(NamedTuple):
    """Rows in memory, as the loops take them: their number of chunks, and arrays (rows, q) for gradients by name."""

    native: native.Rows
    chunks: int
    gradients: dict[str, Floats]


class Totals(Protocol):
    """Numbers about the rows of all ranks together, which every rank knows.

    n : rows.   all_chunks : their chunks.   groups : of outputs that the same rows have
    absolute_Y : (d,), Σ|Y_i|.   lowest, highest : (q,), the smallest and largest inputs
    """

    n: int
    all_chunks: int
    groups: list[Group]
    absolute_Y: Floats
    lowest: Floats
    highest: Floats


class Inducing:
    """The inducing points of one evaluation, in the order of their whitening and centered, with their gram matrix.

    signal_to_noise : β σ_f², which decides how much care the gradients need
    factor : (m, m), multiplies ∂F/∂K_mm, entry by entry: K_mm itself, or one (`KernelBackend.factored`)
    """

    def __init__(self, backend: KernelBackend, Z: Floats, alpha: Floats, jitter: float, signal_to_noise: float) -> None:
        center = backend.center(Z)
        Z = Z - center
        K = backend.covariance(Z, Z, alpha)
        self.whitening: Whitening = whiten(K, jitter)
        order = self.whitening.order
        self.Z = Z.take(order, axis=0)
        self.factor = K.take(order, 0).take(order, 1) if backend.factored else np.ones_like(K)
        self.alpha = alpha
        smallest = self.whitening.L.item(-1)  # of the diagonal: the last, by the pivoting
        self.unwhitened_gradient = signal_to_noise <= MAX_COND_UNWHITENED_GRADIENT * smallest**2
        self.unwhitened_statistics = max(signal_to_noise, 1.0) <= MAX_COND_UNWHITENED_STATISTICS * smallest**2
        self.points = native.Kernel(self.Z, center, alpha)

    @cached_property
    def inverse(self) -> Floats:
        """L⁻¹ (m, m)."""
        return native.triangle_inverse(self.whitening.L)

    @cached_property
    def root_factor(self) -> Floats:
        """The factor's root (m, m), entry by entry: ψ2's factor of Z alone."""
        return np.sqrt(self.factor)


class Statistics(NamedTuple):
    """The summed statistics, arguments of the bound: C (groups, m, m), b (m, d), KL; and the GPLVM's Ψ2 without its
    factor of Z alone, packed (m(m+1)/2, groups), empty in regression."""

    C: Floats
    b: Floats
    KL: float
    pairs: Floats


class Adjoints(NamedTuple):
    """The derivatives of the bound by the statistics, which are the weights of each rank's rows.

    matrix : (m, m) in regression, or of ψ2's pairs (m(m+1)/2, groups) in the GPLVM
    psi1Y : (m, d), ∂F/∂(Σψ1Y)
    fit : (m, d) with the residuals E = Y − Aᵀ fit of regression; used where not `Inducing.unwhitened_gradient`
    limit : a bound of Σ |∂F/∂ψ| ψ over all rows
    """

    matrix: Floats
    psi1Y: Floats
    fit: Floats
    limit: float


class Model(ABC):
    """One model: its sums over rows, and how they meet the bound."""

    name: str
    divergence_sums: int  # the sums of KL among the statistics

    def __init__(self, backend: KernelBackend | None = None) -> None:
        self.backend = backend_of(DEFAULT) if backend is None else backend

    def statistics_scale(self, totals: Totals, m: int) -> Floats:
        """Return the scales of the statistics' integers: Ψ2 (packed), Σψ1Y, KL. No ψ exceeds 1."""
        psi2 = np.broadcast_to(scale_for(float(totals.n)), m * (m + 1) // 2 * len(totals.groups))
        return np.concatenate([psi2, np.tile(scale_for(totals.absolute_Y), m), [1.0, FINE][: self.divergence_sums]])

    def gradient_scale(self, inducing: Inducing, weights: Adjoints, totals: Totals) -> Floats:
        """Return the scales of the second round's integers: the gradients of Z and alpha.

        As α → 0 nothing bounds their totals, so each chunk may have an equal share of the accumulators.
        """
        weight = weights.limit * totals.all_chunks
        of_one = scale_for(self.backend.gradient_limits(inducing.points, totals.lowest, totals.highest, weight))
        m, q = inducing.Z.shape
        scale = np.empty((m + 1, q))
        scale[:m], scale[m] = of_one[:q], of_one[q:]
        return scale.ravel()

    def rounding(self, inducing: Inducing, signal_to_noise: float, numbers: int) -> float:
        """Return the error of F that comes of rounding, beyond its last digits, for so many `numbers` of Y."""
        return 0.0

    @abstractmethod
    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        """Add the statistics of the part's chunks; return how many sums overflowed."""

    def whitens(self, inducing: Inducing) -> bool:
        """Return whether the rows' statistics are whitened, so that a larger jitter makes them smaller."""
        return False

    @abstractmethod
    def summary(self, inducing: Inducing, accumulators: Integers, scale: Floats, d: int) -> Statistics:
        """Return the arguments of the bound, from the accumulators of all rows."""

    @abstractmethod
    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        """Return the shape of the weights' matrix."""

    @abstractmethod
    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, totals: Totals) -> Adjoints:
        """Return the weights of the second round."""

    @abstractmethod
    def gram_weights(self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints,
                     rest: Floats) -> Floats:  # fmt: skip
        """Return ∂F/∂K ∘ factor (m, m), whose row m gives the gradient of Z_m.

        rest : the sums after Z's and alpha's
        """

    @abstractmethod
    def add_gradient(self, inducing: Inducing, weights: Adjoints, rows: Block, part: Part) -> int:
        """Add the gradients of Z and alpha through the part's rows; set those of mu and S."""


def _by_gram(inducing: Inducing, bound: Bound) -> Floats:
    """Return ∂F/∂K_mm ∘ factor (m, m) through L.

    K_mm enters C and b through L alone, and F does not change when L is turned by a rotation:
    ∂F/∂K_mm = −L⁻ᵀ (∂F/∂C C + ½ ∂F/∂b bᵀ) L⁻¹.
    """
    return native.sandwiched(inducing.inverse, bound.by_L, -1.0) * inducing.factor


def _absolute_residuals(fit: Floats, totals: Totals) -> Floats:
    """Return a bound (d,) of Σ|E_i| with E = Y − Aᵀ fit; no entry of A exceeds 1."""
    return totals.absolute_Y + totals.n * np.abs(fit).sum(axis=0)


class Regression(Model):
    """Sparse GP regression (tutorial §3)."""

    name = "regression"
    divergence_sums = 0

    def whitens(self, inducing: Inducing) -> bool:
        return not inducing.unwhitened_statistics

    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        inverse = inducing.inverse if self.whitens(inducing) else None
        return self.backend.regression_statistics(inducing.points, rows.native, inverse, part)

    def summary(self, inducing: Inducing, accumulators: Integers, scale: Floats, d: int) -> Statistics:
        m = len(inducing.Z)
        sums, pairs = from_accumulators(accumulators, scale), m * (m + 1) // 2
        C, b = native.symmetric(sums[:pairs], m), sums[pairs:].reshape(m, d)
        if inducing.unwhitened_statistics:
            C = native.sandwiched(inducing.inverse, C, 1.0, transposed=True)
            b = native.solve(inducing.whitening.L, b)
        return Statistics(C[None], b, 0.0, np.empty((0, 1)))

    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        return (m, m)

    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, totals: Totals) -> Adjoints:
        """Return N and p with ∂F/∂K_mn = N A + p Eᵀ, E = Y − s Aᵀg; or unwhitened, with ∂F/∂K_mn = N K + p Yᵀ.

        ∂F/∂K_mn = L⁻ᵀ (2 ∂F/∂C A + ∂F/∂b Yᵀ), in which I − P⁻¹ = s C P⁻¹, and −βs² g gᵀ A joins Y. From K itself it
        takes a triangular product less, but L⁻¹ twice over.
        """
        L, d = inducing.whitening.L, summary.b.shape[1]
        psi1Y = native.solve(L, bound.by_b, transposed=True)
        if inducing.unwhitened_gradient:
            matrix = native.sandwiched(inducing.inverse, bound.by_C[0], 2.0)
            fit, residuals = np.zeros(psi1Y.shape), totals.absolute_Y
        else:
            L_B = bound.L_B[0]
            CP_inverse = native.solve(L_B, native.solve(L_B, summary.C[0]), transposed=True).T
            matrix = d * bound.s**2 * native.solve(L, CP_inverse, transposed=True)
            fit = bound.s * bound.g
            residuals = _absolute_residuals(fit, totals)
        limit = native.absolute_total(matrix, totals.n, psi1Y, residuals)
        return Adjoints(matrix, psi1Y, fit, limit)

    def gradient_scale(self, inducing: Inducing, weights: Adjoints, totals: Totals) -> Floats:
        scale = super().gradient_scale(inducing, weights, totals)
        if inducing.unwhitened_gradient:
            return scale
        residuals = scale_for(_absolute_residuals(weights.fit, totals) * totals.all_chunks)
        return np.append(scale, np.tile(residuals, len(inducing.Z)))

    def gram_weights(self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints,
                     rest: Floats) -> Floats:  # fmt: skip
        # ∂F/∂K_mm = −½ (N C + p (AE)ᵀ) L⁻¹. This nearly cancels the rows' part, so it must round as that did: the same
        # N and p, AE summed over the rows, and not made symmetric.
        if inducing.unwhitened_gradient:
            return _by_gram(inducing, bound)
        AE = rest.reshape(weights.psi1Y.shape)
        inner = weights.matrix @ summary.C[0] + weights.psi1Y @ AE.T
        by_K = -0.5 * native.solve(inducing.whitening.L, inner.T, transposed=True).T
        return np.ascontiguousarray(by_K * inducing.factor)

    def add_gradient(self, inducing: Inducing, weights: Adjoints, rows: Block, part: Part) -> int:
        inverse, (matrix, psi1Y, fit, _) = None if inducing.unwhitened_gradient else inducing.inverse, weights
        return self.backend.regression_gradient(inducing.points, rows.native, inverse, matrix, psi1Y, fit, part)


class GPLVM(Model):
    """The Bayesian Gaussian process latent variable model (tutorial §4)."""

    name = "gplvm"
    divergence_sums = 2

    def rounding(self, inducing: Inducing, signal_to_noise: float, numbers: int) -> float:
        # Ψ2, whose entries are at most n, is rounded before it is whitened, and C's error moves F by s d/2 of it.
        return ROUNDING * signal_to_noise * numbers / inducing.whitening.L.item(-1) ** 2

    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        return self.backend.gplvm_statistics(inducing.points, rows.native, part)

    def summary(self, inducing: Inducing, accumulators: Integers, scale: Floats, d: int) -> Statistics:
        m = len(inducing.Z)
        sums, psi2_sums = from_accumulators(accumulators, scale), len(accumulators) - m * d - 2
        L, pairs = inducing.whitening.L, sums[:psi2_sums].reshape(m * (m + 1) // 2, -1)
        C = native.whitened(pairs, inducing.root_factor, L)
        return Statistics(C, native.solve(L, sums[psi2_sums:-2].reshape(m, d)), float(sums[-2] + sums[-1]), pairs)

    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        return (m * (m + 1) // 2, groups)

    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, totals: Totals) -> Adjoints:
        psi1Y = native.solve(inducing.whitening.L, bound.by_b, transposed=True)
        matrix = native.pair_weights(bound.by_C, inducing.root_factor, inducing.inverse)
        limit = native.absolute_total(matrix, 2 * totals.n, psi1Y, totals.absolute_Y)
        return Adjoints(matrix, psi1Y, np.zeros(psi1Y.shape), limit)

    def gram_weights(self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints,
                     rest: Floats) -> Floats:  # fmt: skip
        by_gram = _by_gram(inducing, bound)
        if self.backend.factored:
            native.add_through_pairs(by_gram, weights.matrix, summary.pairs)
        return by_gram

    def add_gradient(self, inducing: Inducing, weights: Adjoints, rows: Block, part: Part) -> int:
        by_mu, by_S = rows.gradients["mu"], rows.gradients["S"]
        matrix, psi1Y, _, _ = weights
        return self.backend.gplvm_gradient(inducing.points, rows.native, matrix, psi1Y, by_mu, by_S, part)


MODELS: dict[str, Model] = {model.name: model for model in (Regression(), GPLVM())}


def model_of(name: str, kernel: str = DEFAULT) -> Model:
    """Return the model of this name with the kernel of that; a kernel that cannot serve it is refused."""
    backend = backend_of(kernel)
    if name == GPLVM.name and not backend.latent:
        raise InputError(f"is {kernel!r}, which has no psi statistics: it serves regression alone")
    return type(MODELS[name])(backend)
