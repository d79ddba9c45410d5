"""The RBF kernel with ARD weights, k(x, x') = exp(−½ Σ_q α_q (x_q − x'_q)²), of unit variance (the bound puts σ_f² in).

Its sums over rows and their gradients are the loops of mpigp.native:

    ψ1_i(m)    = Π_q (α_q S_iq + 1)^(−½)  exp(−½ a_iq (μ_iq − Z_mq)²)                   a_iq = α_q / (α_q S_iq + 1)
    ψ2_i(m,m') = Π_q (2α_q S_iq + 1)^(−½) exp(−¼ α_q (Z_mq − Z_m'q)² − c_iq (μ_iq − ½(Z_mq + Z_m'q))²)
                                                                                        c_iq = α_q / (2α_q S_iq + 1)

The first exponent of ψ2 is of Z alone: its factor, k(Z_m, Z_m')^½, is put in after the sum over rows.
"""

from mpigp import native
from mpigp.kernels.backend import Adjoints
from mpigp.kernels.loops import RegressionLoops
from mpigp.kernels.single import SingleKernel
from mpigp.numerics.threads import Part
from mpigp.types import Floats


class RBF(SingleKernel, RegressionLoops):
    """The backend of the compiled loops, which have the parameters of its methods."""

    name = "rbf"
    latent = True
    factored = True

    covariance = staticmethod(native.covariance)
    gplvm_statistics = staticmethod(native.gplvm_statistics)
    gplvm_bounds = staticmethod(native.gplvm_bounds)
    gplvm_moments = staticmethod(native.gplvm_moments)

    def center(self, Z: Floats) -> Floats:
        return Z.sum(axis=0) / len(Z)

    def gram(self, Z: Floats, center: Floats, alpha: Floats) -> Floats:
        return native.covariance(Z, Z, alpha)

    def gram_gradient(self, weights: Floats, points: native.Kernel) -> tuple[Floats, Floats]:
        return native.gram_gradient(weights, points.Z, points.alpha)

    def gplvm_gradient(self, points: native.Kernel, rows: native.Rows, weights: Adjoints, by_mu: Floats, by_S: Floats,
                       part: Part) -> int:  # fmt: skip
        return int(native.gplvm_gradient(points, rows, weights.matrix, weights.psi1Y, by_mu, by_S, part))

    def gradient_limits(self, points: native.Kernel, lowest: Floats, highest: Floats, weight: float) -> Floats:
        """Return limits of the gradients.

        u exp(−αu²/2) ≤ (eα)^(−½) and u² exp(−αu²/2) ≤ 2/(eα), whatever the rows: no ψ moves faster than 4√α ψ_max with
        Z, nor than 4/α ψ_max with α. As α → 0 the second is no limit; rows up to 2²⁰ times as far apart as the extent
        of the rows, from `lowest` to `highest` (q,), and of Z are allowed for, and sums that overflow are noticed.
        """
        return native.gradient_limits(points, lowest, highest, weight)
