"""The RBF kernel with ARD weights, k(x, x') = exp(−½ Σ_q α_q (x_q − x'_q)²), of unit variance (the bound puts σ_f² in).

Between inducing points it is computed here; its sums over rows and their gradients are the loops of mpigp.native:

    ψ1_i(m)    = Π_q (α_q S_iq + 1)^(−½)  exp(−½ a_iq (μ_iq − Z_mq)²)                   a_iq = α_q / (α_q S_iq + 1)
    ψ2_i(m,m') = Π_q (2α_q S_iq + 1)^(−½) exp(−¼ α_q (Z_mq − Z_m'q)² − c_iq (μ_iq − ½(Z_mq + Z_m'q))²)
                                                                                        c_iq = α_q / (2α_q S_iq + 1)

The first exponent of ψ2 is of Z alone: its factor, k(Z_m, Z_m')^½, is put in after the sum over rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]


def gram(Z: Floats, alpha: Floats) -> Floats:
    """Return K_mm (m, m)."""
    scaled = Z * np.sqrt(alpha)
    return np.exp(-0.5 * cdist(scaled, scaled, "sqeuclidean"))


def gradient_limits(weight: float, m: int, alpha: Floats, extent: Floats) -> Floats:
    """Return limits (m·q + q) of the gradients of Z and alpha through the rows, for a total `weight` of |∂F/∂ψ| ψ.

    u exp(−αu²/2) ≤ (eα)^(−½) and u² exp(−αu²/2) ≤ 2/(eα), whatever the rows: no ψ moves faster than 4√α ψ_max with Z,
    nor than 4/α ψ_max with α. As α → 0 the second is no limit; rows up to 2²⁰ times as far apart as their `extent` (q,)
    are allowed for, and sums that do not fit are noticed.
    """
    floor = np.maximum(alpha, 2.0**-40 / np.maximum(extent, 1.0) ** 2)
    return 4 * weight * np.append(np.tile(np.sqrt(alpha), m), 1 / floor)
