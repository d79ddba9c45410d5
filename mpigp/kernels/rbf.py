"""The RBF kernel with ARD weights, k(x, x') = exp(−½ Σ_q α_q (x_q − x'_q)²), of unit variance (the bound puts σ_f² in).

Its sums over rows and their gradients are the loops of mpigp.native:

    ψ1_i(m)    = Π_q (α_q S_iq + 1)^(−½)  exp(−½ a_iq (μ_iq − Z_mq)²)                   a_iq = α_q / (α_q S_iq + 1)
    ψ2_i(m,m') = Π_q (2α_q S_iq + 1)^(−½) exp(−¼ α_q (Z_mq − Z_m'q)² − c_iq (μ_iq − ½(Z_mq + Z_m'q))²)
                                                                                        c_iq = α_q / (2α_q S_iq + 1)

The first exponent of ψ2 is of Z alone: its factor, k(Z_m, Z_m')^½, is put in after the sum over rows.
"""

from __future__ import annotations

from mpigp import native
from mpigp.kernels.backend import KernelBackend
from mpigp.numerics.reproducible_sum import FINE, from_two_words
from mpigp.numerics.threads import Part
from mpigp.types import Floats, Words


class RBF(KernelBackend):
    """The compiled loops."""

    name = "rbf"
    latent = True
    factored = True
    gradient_words = 2

    def centre(self, Z: Floats) -> Floats:
        return Z.sum(axis=0) / len(Z)

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        return native.between(Z, X, alpha)

    def gram_gradient(self, weights: Floats, Z: Floats, alpha: Floats) -> tuple[Floats, Floats]:
        return native.gram_gradient(weights, Z, alpha)

    def gradient_limits(self, points: native.Kernel, lowest: Floats, highest: Floats, weight: float) -> Floats:
        """Return limits of the gradients.

        u exp(−αu²/2) ≤ (eα)^(−½) and u² exp(−αu²/2) ≤ 2/(eα), whatever the rows: no ψ moves faster than 4√α ψ_max with
        Z, nor than 4/α ψ_max with α. As α → 0 the second is no limit; rows up to 2²⁰ times as far apart as the extent
        of the rows, from `lowest` to `highest` (q,), and of Z are allowed for, and sums that do not fit are noticed.
        """
        return native.gradient_limits(points, lowest, highest, weight)

    def gradient_sums(self, words: Words, scale: Floats) -> Floats:
        return from_two_words(words, scale)

    def regression_statistics(
        self, points: native.Kernel, rows: native.Rows, inverse: Floats | None, part: Part
    ) -> int:
        return native.regression_statistics(points, rows, inverse, *part)

    def regression_gradient(
        self,
        points: native.Kernel,
        rows: native.Rows,
        inverse: Floats | None,
        matrix: Floats,
        psi1Y: Floats,
        fit: Floats,
        part: Part,
    ) -> int:
        return native.regression_gradient(points, rows, inverse, matrix, psi1Y, fit, *part, FINE)

    def regression_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        factor: Floats,
        weights: Floats,
        mean: Floats,
        explained: Floats,
    ) -> None:
        native.regression_moments(points, rows, first, last, space, factor, weights, mean, explained)

    def gplvm_statistics(self, points: native.Kernel, rows: native.Rows, part: Part) -> int:
        return native.gplvm_statistics(points, rows, *part)

    def gplvm_gradient(
        self,
        points: native.Kernel,
        rows: native.Rows,
        matrix: Floats,
        psi1Y: Floats,
        by_mu: Floats,
        by_S: Floats,
        part: Part,
    ) -> int:
        return native.gplvm_gradient(points, rows, matrix, psi1Y, by_mu, by_S, *part, FINE)

    def gplvm_bounds(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        matrix: Floats,
        psi1Y: Floats,
        by_mu: Floats,
        by_S: Floats,
        values: Floats,
    ) -> None:
        native.gplvm_bounds(points, rows, first, last, space, matrix, psi1Y, by_mu, by_S, values)

    def gplvm_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        weights: Floats,
        quadratics: Floats,
        mean: Floats,
        second: Floats,
    ) -> None:
        native.gplvm_moments(points, rows, first, last, space, weights, quadratics, mean, second)
