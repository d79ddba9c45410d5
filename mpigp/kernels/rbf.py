"""The RBF kernel with ARD weights, k(x, x') = exp(−½ Σ_q α_q (x_q − x'_q)²), of unit variance (the bound puts σ_f² in).

Its sums over rows and their gradients are the loops of mpigp.native:

    ψ1_i(m)    = Π_q (α_q S_iq + 1)^(−½)  exp(−½ a_iq (μ_iq − Z_mq)²)                   a_iq = α_q / (α_q S_iq + 1)
    ψ2_i(m,m') = Π_q (2α_q S_iq + 1)^(−½) exp(−¼ α_q (Z_mq − Z_m'q)² − c_iq (μ_iq − ½(Z_mq + Z_m'q))²)
                                                                                        c_iq = α_q / (2α_q S_iq + 1)

The first exponent of ψ2 is of Z alone: its factor, k(Z_m, Z_m')^½, is put in after the sum over rows.
"""

from mpigp import native
from mpigp.numerics.reproducible_sum import FixedPoint, Summation
from mpigp.types import Floats


class RBF:
    """The backend of the compiled loops, which have the parameters of its methods."""

    name = "rbf"
    latent = True
    factored = True
    statistics_summation: Summation = FixedPoint(1)
    gradient_summation: Summation = FixedPoint(2)

    covariance = staticmethod(native.covariance)
    gram_gradient = staticmethod(native.gram_gradient)
    regression_statistics = staticmethod(native.regression_statistics)
    regression_gradient = staticmethod(native.regression_gradient)
    regression_moments = staticmethod(native.regression_moments)
    gplvm_statistics = staticmethod(native.gplvm_statistics)
    gplvm_gradient = staticmethod(native.gplvm_gradient)
    gplvm_bounds = staticmethod(native.gplvm_bounds)
    gplvm_moments = staticmethod(native.gplvm_moments)

    def center(self, Z: Floats) -> Floats:
        return Z.sum(axis=0) / len(Z)

    def gradient_limits(self, points: native.Kernel, lowest: Floats, highest: Floats, weight: float) -> Floats:
        """Return limits of the gradients.

        u exp(−αu²/2) ≤ (eα)^(−½) and u² exp(−αu²/2) ≤ 2/(eα), whatever the rows: no ψ moves faster than 4√α ψ_max with
        Z, nor than 4/α ψ_max with α. As α → 0 the second is no limit; rows up to 2²⁰ times as far apart as the extent
        of the rows, from `lowest` to `highest` (q,), and of Z are allowed for, and sums that overflow are noticed.
        """
        return native.gradient_limits(points, lowest, highest, weight)
