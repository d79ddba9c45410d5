"""The RBF kernel with ARD weights, k(x, x') = exp(−½ Σ_q α_q (x_q − x'_q)²), of unit variance (the bound puts σ_f² in).

Its sums over rows and their gradients are the loops of mpigp.native:

    ψ1_i(m)    = Π_q (α_q S_iq + 1)^(−½)  exp(−½ a_iq (μ_iq − Z_mq)²)                   a_iq = α_q / (α_q S_iq + 1)
    ψ2_i(m,m') = Π_q (2α_q S_iq + 1)^(−½) exp(−¼ α_q (Z_mq − Z_m'q)² − c_iq (μ_iq − ½(Z_mq + Z_m'q))²)
                                                                                        c_iq = α_q / (2α_q S_iq + 1)

The first exponent of ψ2 is of Z alone: its factor, k(Z_m, Z_m')^½, is put in after the sum over rows.

Limits of the gradients: u exp(−αu²/2) ≤ (eα)^(−½) and u² exp(−αu²/2) ≤ 2/(eα), whatever the rows, so no ψ moves faster
than 4√α ψ_max with Z, nor than 4/α ψ_max with α. As α → 0 the second is no limit; rows up to 2²⁰ times as far apart as
the extent of the rows, from `lowest` to `highest` (q,), and of Z are allowed for, and sums that overflow are noticed.
"""

from __future__ import annotations

from mpigp import native
from mpigp.kernels.backend import RowBounds
from mpigp.numerics.reproducible_sum import from_accumulators
from mpigp.numerics.threads import Span
from mpigp.types import Floats


class RBF:
    """The backend of the compiled loops; most of its methods are the loops themselves."""

    name = "rbf"
    latent = True
    factored = True
    gradient_accumulators = 2

    covariance = staticmethod(native.between)
    gram_gradient = staticmethod(native.gram_gradient)
    gradient_limits = staticmethod(native.gradient_limits)
    gradient_sums = staticmethod(from_accumulators)
    regression_statistics = staticmethod(native.regression_statistics)
    regression_gradient = staticmethod(native.regression_gradient)
    gplvm_statistics = staticmethod(native.gplvm_statistics)
    gplvm_gradient = staticmethod(native.gplvm_gradient)

    def center(self, Z: Floats) -> Floats:
        return Z.sum(axis=0) / len(Z)

    def regression_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        span: Span,
        factor: Floats,
        weights: Floats,
        mean: Floats,
        explained: Floats,
    ) -> None:
        native.regression_moments(points, rows, *span, factor, weights, mean, explained)

    def gplvm_bounds(
        self, points: native.Kernel, rows: native.Rows, span: Span, matrix: Floats, psi1Y: Floats, out: RowBounds
    ) -> None:
        native.gplvm_bounds(points, rows, *span, matrix, psi1Y, out.by_mu, out.by_S, out.values)

    def gplvm_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        span: Span,
        weights: Floats,
        quadratics: Floats,
        mean: Floats,
        second: Floats,
    ) -> None:
        native.gplvm_moments(points, rows, *span, weights, quadratics, mean, second)
