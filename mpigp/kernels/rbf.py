"""The RBF kernel with ARD weights, k(x, x') = exp(−½ Σ_q α_q (x_q − x'_q)²), of unit variance (the bound puts σ_f² in).

Its sums over rows and their gradients are the loops of mpigp.native:

    ψ1_i(m)    = Π_q (α_q S_iq + 1)^(−½)  exp(−½ a_iq (μ_iq − Z_mq)²)                   a_iq = α_q / (α_q S_iq + 1)
    ψ2_i(m,m') = Π_q (2α_q S_iq + 1)^(−½) exp(−¼ α_q (Z_mq − Z_m'q)² − c_iq (μ_iq − ½(Z_mq + Z_m'q))²)
                                                                                        c_iq = α_q / (2α_q S_iq + 1)

The first exponent of ψ2 is of Z alone: its factor, k(Z_m, Z_m')^½, is put in after the sum over rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpigp import native

Floats = NDArray[np.float64]


def gram(Z: Floats, alpha: Floats) -> Floats:
    """Return K_mm (m, m)."""
    return native.between(Z, Z, alpha)


def between(Z: Floats, X: Floats, alpha: Floats) -> Floats:
    """Return K_mn (m, n)."""
    return native.between(Z, X, alpha)


def gradient_limits(kernel: native.Kernel, lowest: Floats, highest: Floats, weight: float) -> Floats:
    """Return limits (q + q) of the gradients of any Z_m and alpha through the rows, for a total `weight` of |∂F/∂ψ| ψ.

    u exp(−αu²/2) ≤ (eα)^(−½) and u² exp(−αu²/2) ≤ 2/(eα), whatever the rows: no ψ moves faster than 4√α ψ_max with Z,
    nor than 4/α ψ_max with α. As α → 0 the second is no limit; rows up to 2²⁰ times as far apart as the extent of the
    rows, from `lowest` to `highest` (q,), and of Z are allowed for, and sums that do not fit are noticed.
    """
    return native.gradient_limits(kernel, lowest, highest, weight)
