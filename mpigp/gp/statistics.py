"""The two models: the sums over rows that each needs, and the statistics and gradients that it makes of them.

Both hand the same two matrices to the bound, C = L⁻¹ Ψ2 L⁻ᵀ and b = L⁻¹ Σψ1Y. The GPLVM sums Ψ2 and Σψ1Y and whitens
the totals. Regression, where ψ1 = K_mi and ψ2 = K_mi K_im, does so where K_mm is well conditioned; elsewhere it sums
them whitened, as AAᵀ and AY with A = L⁻¹ K_mn, which keeps the digits that forming Ψ2 first would lose.

In the bound `rows` each row has a trace term, of c_i = ‖A_i‖² or tr(L⁻¹ ψ2_i L⁻ᵀ). The first round sums it, and leaves
with the rows their weights w_i = s d_i (1 − v_i); in the second, ∂F/∂c_i is by w_i/2 less than in Titsias' bound.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from mpigp import native
from mpigp.gp.bound import Bound, Group, TraceSums, bound, shrinkage, with_trace_sums
from mpigp.gp.parameters import Globals
from mpigp.kernels.backend import Adjoints, KernelBackend
from mpigp.kernels.registry import DEFAULT, backend_of
from mpigp.numerics.cholesky import Whitening, whiten
from mpigp.numerics.reproducible_sum import FINE, scale_for
from mpigp.numerics.threads import Part
from mpigp.types import Floats

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
    whitened : regression's statistics and gradients are whitened, however well K_mm is conditioned
    totals : of the rows; needed by kernels that are not of unit variance
    largest : what no entry of K, nor k(x, x), exceeds.   largest_gram : the largest k(z, z), at least 1
    factor : (m, m), multiplies ∂F/∂K_mm, entry by entry: K_mm itself, or one (`KernelBackend.factored`)
    """

    def __init__(self, backend: KernelBackend, Z: Floats, alpha: Floats, jitter: float, signal_to_noise: float,
                 whitened: bool = False, totals: Totals | None = None) -> None:  # fmt: skip
        center = backend.center(Z)
        Z = Z - center
        K = backend.gram(Z, center, alpha)
        self.whitening: Whitening = whiten(K, jitter)
        order = self.whitening.order
        self.Z = Z.take(order, axis=0)
        self.factor = K.take(order, 0).take(order, 1) if backend.factored else np.ones_like(K)
        self.alpha, self.signal_to_noise = alpha, signal_to_noise
        smallest = self.whitening.L.item(-1)  # of the diagonal: the last, by the pivoting
        self.points = backend.points(self.Z, center, alpha)
        self.largest = self.largest_gram = 1.0
        if not backend.unit:
            self.largest_gram = max(1.0, float(K.diagonal().max()))
            self.largest = math.inf if totals is None else backend.largest(self.points, totals.lowest, totals.highest)
        kept, care = (smallest / self.largest) ** 2, max(signal_to_noise, 1.0)  # digits, and how many are needed
        self.unwhitened_gradient = not whitened and signal_to_noise <= MAX_COND_UNWHITENED_GRADIENT * kept
        self.unwhitened_statistics = not whitened and care <= MAX_COND_UNWHITENED_STATISTICS * kept

    @cached_property
    def inverse(self) -> Floats:
        """L⁻¹ (m, m)."""
        return native.triangle_inverse(self.whitening.L)

    @cached_property
    def root_factor(self) -> Floats:
        """The factor's root (m, m), entry by entry: ψ2's factor of Z alone."""
        return np.sqrt(self.factor)

    @cached_property
    def explained(self) -> Floats:
        """The weights (m(m+1)/2,) of the pairs of ψ2_i, without its factor of Z alone, in c_i = tr(L⁻¹ ψ2_i L⁻ᵀ)."""
        return 2 * native.pair_weights(np.eye(len(self.Z))[None], self.root_factor, self.inverse)[:, 0]


NO_TRACE_SUMS = TraceSums(0.0, 0.0)  # of the other bounds


class Statistics(NamedTuple):
    """The summed statistics, arguments of the bound: C (groups, m, m), b (m, d), KL; and the GPLVM's Ψ2 without its
    factor of Z alone, packed (m(m+1)/2, groups), empty in regression; the trace sums of the bound `rows`; and
    ψ0 = Σ⟨k(x_i, x_i)⟩ of each group (groups,), None where that is its number of rows."""

    C: Floats
    b: Floats
    KL: float
    pairs: Floats
    trace_sums: TraceSums = NO_TRACE_SUMS
    psi0: Floats | None = None

    def groups(self, groups: Sequence[Group]) -> Sequence[Group]:
        """Return the groups with their ψ0."""
        if self.psi0 is None:
            return groups
        return [group._replace(psi0=psi0) for group, psi0 in zip(groups, self.psi0.tolist(), strict=True)]


class Model(ABC):
    """One model: its sums over rows, and how they meet the bound, which is one of BOUNDS."""

    name: str
    divergence_sums: int  # the sums of KL among the statistics

    def __init__(self, backend: KernelBackend | None = None, bound: str = "titsias") -> None:
        self.backend = backend_of(DEFAULT) if backend is None else backend
        self.bound, self.by_rows = bound, bound == "rows"

    def inducing(self, parameters: Globals, jitter: float, totals: Totals | None = None) -> Inducing:
        """Return the inducing points at these parameters, for rows of these totals."""
        snr = parameters.beta * self.prior_variance(parameters)
        return Inducing(self.backend, parameters.Z, parameters.alpha, jitter, snr, self.by_rows, totals)

    def prior_variance(self, parameters: Globals) -> float:
        """Return σ_f², by which the kernel of scale one is multiplied."""
        if not self.backend.composed:
            return parameters.variance
        return parameters.variance * self.backend.scale(parameters.alpha, parameters.Z.shape[1])

    def evaluate_bound(self, summary: Statistics, groups: Sequence[Group], parameters: Globals) -> Bound:
        """Return F and its derivatives; in the bound `rows` not those by each row's c_i."""
        (C, b, KL), variance = summary[:3], self.prior_variance(parameters)
        F = bound(C, b, summary.groups(groups), KL, variance, parameters.beta, self.bound)
        return with_trace_sums(F, summary.trace_sums, variance, parameters.beta) if self.by_rows else F

    def prior_weights(self, summary: Statistics, bound: Bound, totals: Totals) -> Floats:
        """Return ∂F/∂ψ0 (groups,), nothing where no parameter moves ψ0; in the bound `rows` not what differs from row
        to row."""
        if not self.backend.composed:
            return np.empty(0)
        weights = np.array([-0.5 * bound.s * len(group.outputs) for group in totals.groups])
        if self.bound == "sphere":
            groups = summary.groups(totals.groups)
            weights *= [1 - shrinkage(C, group, bound.s) for C, group in zip(summary.C, groups, strict=True)]
        return weights

    def statistics_scale(self, totals: Totals, m: int, inducing: Inducing | None = None) -> Floats:
        """Return the scales of the statistics' integers: Ψ2 (packed), Σψ1Y, KL, the trace sums of the bound `rows`, and
        ψ0. No ψ1 exceeds the largest covariance, nor does a row's part of the trace sums for each of its outputs; and
        whitened no ‖A_i‖² does. At unit variance that is 1, and the inducing points do not matter."""
        largest = 1.0 if inducing is None else inducing.largest
        of_row = math.sqrt(largest) if inducing is not None and self.whitens(inducing) else largest
        psi2 = np.broadcast_to(scale_for(totals.n * of_row**2), m * (m + 1) // 2 * len(totals.groups))
        psi1Y = np.tile(scale_for(totals.absolute_Y * of_row), m)
        scale = np.concatenate([psi2, psi1Y, [1.0, FINE][: self.divergence_sums]])
        trace_sums = len(TraceSums._fields) if self.by_rows else 0
        others = [scale_for(totals.n * len(totals.absolute_Y) * largest)] * trace_sums
        others += [] if self.backend.unit else [scale_for(totals.n * largest)] * len(totals.groups)
        return np.append(scale, others)

    def gradient_scale(self, inducing: Inducing, weights: Adjoints, totals: Totals) -> Floats:
        """Return the scales of the second round's integers: the gradients of Z and alpha, regression's AE, and in the
        bound `rows` Σ w_i ψ2_i (packed), where no w_i exceeds s d.

        As α → 0 nothing bounds their totals, so each chunk may have an equal share of the accumulators.
        """
        weight = weights.limit * totals.all_chunks
        of_one = scale_for(self.backend.gradient_limits(inducing.points, totals.lowest, totals.highest, weight))
        m, q = inducing.Z.shape
        scale = np.empty(m * q + len(of_one) - q)
        scale[: m * q].reshape(m, q)[:], scale[m * q :] = of_one[:q], of_one[q:]
        others = self.residual_scales(inducing, weights, totals)
        if self.by_rows:
            tilted = scale_for(inducing.signal_to_noise * totals.n * len(totals.absolute_Y) * inducing.largest)
            others.append(np.tile(tilted, m * (m + 1) // 2))
        return np.concatenate([scale, *others]) if others else scale

    def residual_scales(self, inducing: Inducing, weights: Adjoints, totals: Totals) -> list[Floats]:
        """Return the scales of AE (m, d), where regression sums it, else none."""
        return []

    def rounding(self, inducing: Inducing, numbers: int) -> float:
        """Return the error of F that comes of rounding, beyond its last digits, for so many `numbers` of Y."""
        return 0.0

    @abstractmethod
    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        """Add the statistics of the part's chunks; return how many sums overflowed."""

    def whitens(self, inducing: Inducing) -> bool:
        """Return whether the rows' statistics are whitened, so that a larger jitter makes them smaller."""
        return self.by_rows

    @abstractmethod
    def summary(self, inducing: Inducing, sums: Floats, d: int) -> Statistics:
        """Return the arguments of the bound, from the sums of the first round over all rows."""

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


def _by_gram(inducing: Inducing, by_L: Floats) -> Floats:
    """Return ∂F/∂K_mm ∘ factor (m, m) through L, of by_L (m, m) = ∂F/∂C C + ½ ∂F/∂b bᵀ.

    K_mm enters C and b through L alone, and F does not change when L is turned by a rotation:
    ∂F/∂K_mm = −L⁻ᵀ (∂F/∂C C + ½ ∂F/∂b bᵀ) L⁻¹.
    """
    return native.sandwiched(inducing.inverse, by_L, -1.0) * inducing.factor


def _absolute_residuals(fit: Floats, totals: Totals, largest: float) -> Floats:
    """Return a bound (d,) of Σ|E_i| with E = Y − Aᵀ fit; no entry of A exceeds the largest covariance."""
    return totals.absolute_Y + totals.n * largest * np.abs(fit).sum(axis=0)


class Regression(Model):
    """Sparse GP regression (tutorial §3)."""

    name = "regression"
    divergence_sums = 0

    def whitens(self, inducing: Inducing) -> bool:
        return not inducing.unwhitened_statistics

    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        inverse, s = inducing.inverse if self.whitens(inducing) else None, inducing.signal_to_noise
        return self.backend.regression_statistics(inducing.points, rows.native, inverse, s, part)

    def summary(self, inducing: Inducing, sums: Floats, d: int) -> Statistics:
        m = len(inducing.Z)
        pairs = m * (m + 1) // 2
        C, b = native.symmetric(sums[:pairs], m), sums[pairs : pairs + m * d].reshape(m, d)
        rest, psi0 = sums[pairs + m * d :], None if self.backend.unit else sums[-1:]
        trace_sums = TraceSums(*rest[:2].tolist()) if self.by_rows else NO_TRACE_SUMS
        if inducing.unwhitened_statistics:
            C = native.sandwiched(inducing.inverse, C, 1.0, transposed=True)
            b = native.solve(inducing.whitening.L, b)
        return Statistics(C[None], b, 0.0, np.empty((0, 1)), trace_sums, psi0)

    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        return (m, m)

    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, totals: Totals) -> Adjoints:
        """Return N and p with ∂F/∂K_mn = N A + p Eᵀ, E = Y − s Aᵀg; or unwhitened, with ∂F/∂K_mn = N K + p Yᵀ.

        ∂F/∂K_mn = L⁻ᵀ (2 ∂F/∂C A + ∂F/∂b Yᵀ), in which I − P⁻¹ = s C P⁻¹, and −βs² g gᵀ A joins Y. From K itself it
        takes a triangular product less, but L⁻¹ twice over.
        """
        L, d, largest = inducing.whitening.L, summary.b.shape[1], inducing.largest
        psi1Y = native.solve(L, bound.by_b, transposed=True)
        psi0 = self.prior_weights(summary, bound, totals)
        if inducing.unwhitened_gradient:
            matrix = native.sandwiched(inducing.inverse, bound.by_C[0], 2.0)
            fit, residuals = np.zeros(psi1Y.shape), totals.absolute_Y
        else:
            L_B = bound.L_B[0]
            CP_inverse = native.solve(L_B, native.solve(L_B, summary.C[0]), transposed=True).T
            if self.bound == "sphere":  # v I − P⁻¹ in the place of I − P⁻¹
                (group,) = summary.groups(totals.groups)
                CP_inverse = CP_inverse - shrinkage(summary.C[0], group, bound.s) / bound.s * np.eye(len(L))
            matrix = d * bound.s**2 * native.solve(L, CP_inverse, transposed=True)
            fit = bound.s * bound.g
            residuals = _absolute_residuals(fit, totals, largest)
        limit = native.absolute_total(matrix, totals.n * largest, psi1Y, residuals)
        if self.by_rows:  # no w_i exceeds s d
            limit += bound.s * d * totals.n * largest * float(np.abs(inducing.inverse).sum())
        if self.backend.composed:  # its parameters move k(x_i, x_i), too
            limit += bound.s * d * totals.n
        return Adjoints(matrix, psi1Y, fit, psi0, limit)

    def residual_scales(self, inducing: Inducing, weights: Adjoints, totals: Totals) -> list[Floats]:
        if inducing.unwhitened_gradient:
            return []
        largest = inducing.largest
        residuals = scale_for(_absolute_residuals(weights.fit, totals, largest) * largest * totals.all_chunks)
        return [np.tile(residuals, len(inducing.Z))]

    def gram_weights(self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints,
                     rest: Floats) -> Floats:  # fmt: skip
        # ∂F/∂K_mm = −½ (N C + p (AE)ᵀ) L⁻¹. This nearly cancels the rows' part, so it must round as that did: the same
        # N and p, AE summed over the rows, and not made symmetric. In the bound `rows` ∂F/∂K_mi loses w_i L⁻ᵀA_i.
        if inducing.unwhitened_gradient:
            return _by_gram(inducing, bound.by_L)
        m, d = weights.psi1Y.shape
        AE = rest[: m * d].reshape(m, d)
        inner = weights.matrix @ summary.C[0] + weights.psi1Y @ AE.T
        if self.by_rows:
            inner -= inducing.inverse.T @ native.symmetric(rest[m * d :], m)
        by_K = -0.5 * native.solve(inducing.whitening.L, inner.T, transposed=True).T
        return np.ascontiguousarray(by_K * inducing.factor)

    def add_gradient(self, inducing: Inducing, weights: Adjoints, rows: Block, part: Part) -> int:
        inverse = None if inducing.unwhitened_gradient else inducing.inverse
        return self.backend.regression_gradient(inducing.points, rows.native, inverse, weights, part)


class GPLVM(Model):
    """The Bayesian Gaussian process latent variable model (tutorial §4)."""

    name = "gplvm"
    divergence_sums = 2

    def rounding(self, inducing: Inducing, numbers: int) -> float:
        # Ψ2, whose entries are at most n, is rounded before it is whitened, and C's error moves F by s d/2 of it.
        size = inducing.largest_gram**2
        return ROUNDING * inducing.signal_to_noise * numbers * size / inducing.whitening.L.item(-1) ** 2

    def add_statistics(self, inducing: Inducing, rows: Block, part: Part) -> int:
        explained, s = inducing.explained if self.by_rows else None, inducing.signal_to_noise
        return self.backend.gplvm_statistics(inducing.points, rows.native, explained, s, part)

    def summary(self, inducing: Inducing, sums: Floats, d: int) -> Statistics:
        m, trace_sums, psi0 = len(inducing.Z), NO_TRACE_SUMS, None
        if not self.backend.unit:
            groups = (len(sums) - m * d - 2 - 2 * self.by_rows) // (m * (m + 1) // 2 + 1)
            sums, psi0 = sums[:-groups], sums[-groups:]
        if self.by_rows:
            sums, trace_sums = sums[:-2], TraceSums(*sums[-2:].tolist())
        psi2_sums = len(sums) - m * d - 2
        L, pairs = inducing.whitening.L, sums[:psi2_sums].reshape(m * (m + 1) // 2, -1)
        C = native.whitened(pairs, inducing.root_factor, L)
        b, KL = native.solve(L, sums[psi2_sums:-2].reshape(m, d)), float(sums[-2] + sums[-1])
        return Statistics(C, b, KL, pairs, trace_sums, psi0)

    def weight_shape(self, m: int, groups: int) -> tuple[int, int]:
        return (m * (m + 1) // 2, groups + self.by_rows)

    def weights(self, inducing: Inducing, summary: Statistics, bound: Bound, totals: Totals) -> Adjoints:
        psi1Y = native.solve(inducing.whitening.L, bound.by_b, transposed=True)
        matrix = native.pair_weights(bound.by_C, inducing.root_factor, inducing.inverse)
        limit = native.absolute_total(matrix, 2 * totals.n, psi1Y, totals.absolute_Y)
        if self.by_rows:  # ∂F/∂c_i = −w_i/2, and each pair counts twice; no w_i exceeds s d
            by_rows = -0.25 * inducing.explained
            matrix = np.column_stack([matrix, by_rows])
            limit += 2 * totals.n * bound.s * len(totals.absolute_Y) * float(np.abs(by_rows).sum())
        psi0 = self.prior_weights(summary, bound, totals)
        return Adjoints(matrix, psi1Y, np.zeros(psi1Y.shape), psi0, limit)

    def gram_weights(self, inducing: Inducing, summary: Statistics, bound: Bound, weights: Adjoints,
                     rest: Floats) -> Floats:  # fmt: skip
        by_L, pairs = bound.by_L, summary.pairs
        if self.by_rows:  # Σ w_i ψ2_i, as ∂F/∂c_i = −w_i/2
            tilted = rest[:, None]
            by_L = by_L - 0.5 * native.whitened(tilted, inducing.root_factor, inducing.whitening.L)[0]
            pairs = np.column_stack([pairs, tilted])
        by_gram = _by_gram(inducing, by_L)
        if self.backend.factored:
            native.add_through_pairs(by_gram, weights.matrix, pairs)
        return by_gram

    def add_gradient(self, inducing: Inducing, weights: Adjoints, rows: Block, part: Part) -> int:
        by_mu, by_S = rows.gradients["mu"], rows.gradients["S"]
        return self.backend.gplvm_gradient(inducing.points, rows.native, weights, by_mu, by_S, part)


MODELS: dict[str, Model] = {model.name: model for model in (Regression(), GPLVM())}


def model_of(name: str, kernel: str = DEFAULT, bound: str = "titsias") -> Model:
    """Return the model of this name with this kernel and bound; a kernel that cannot serve it is refused."""
    return type(MODELS[name])(backend_of(kernel, name == GPLVM.name), bound)
