"""The evidence lower bound from the summed statistics, and its derivatives with respect to them (tutorial §3, §4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.whitening import NotPositiveDefinite, cholesky, inverse, solve

Floats = NDArray[np.float64]


class Bound(NamedTuple):
    """F and its derivatives with respect to what it is made of.

    value : F, in nats
    by_C : ∂F/∂C (m, m), symmetric
    by_b : ∂F/∂b (m, d)
    by_variance, by_beta : at fixed C and b
    s, L_B, g : as below
    """

    value: float
    by_C: Floats
    by_b: Floats
    by_variance: float
    by_beta: float
    s: float
    L_B: Floats
    g: Floats


def bound(C: Floats, b: Floats, n: int, YY: float, KL: float, variance: float, beta: float) -> Bound:
    """Return F and its derivatives.

    Parameters
    ----------
    C : (m, m), L⁻¹ Ψ2 L⁻ᵀ, and b : (m, d), L⁻¹ Σψ1Y, with L Lᵀ = K_mm + jitter I, all of the kernel of unit variance:
        the variance enters here alone.
    YY : ΣY_iY_iᵀ.   KL : Σ KL(q(X_i) || p(X_i)), zero in regression.

    Notes
    -----
    With s = β σ_f², P = I + s C = L_B L_Bᵀ, c = L_B⁻¹ b and g = P⁻¹ b:

        F = −nd/2 log 2π + nd/2 log β − d Σ log diag L_B − β/2 YY − sd/2 (n − tr C) + βs/2 ‖c‖² − KL

        ∂F/∂C = sd/2 (I − P⁻¹) − βs²/2 g gᵀ          ∂F/∂b = βs g
        ∂F/∂s = −d/2 tr P⁻¹C − d/2 (n − tr C) + β/2 ‖c‖² − βs/2 tr gᵀCg
        ∂F/∂β at fixed s = nd/2β − YY/2 + s/2 ‖c‖²
    """
    m, d = b.shape
    s = beta * variance
    trace = float(np.trace(C))
    if not trace <= n:  # Σ of ⟨k_i⟩ᵀ K_mm⁻¹ ⟨k_i⟩ ≤ Σ k_ii: only rounding can break it
        raise NotPositiveDefinite
    L_B = cholesky(np.eye(m) + s * C)
    c = solve(L_B, b)
    g = solve(L_B, c, transposed=True)
    P_inverse = inverse(L_B)
    cc = float(np.vdot(c, c))

    value = (
        0.5 * n * d * math.log(beta / (2 * math.pi))
        - d * float(np.log(np.diag(L_B)).sum())
        - 0.5 * beta * YY
        - 0.5 * s * d * (n - trace)
        + 0.5 * beta * s * cc
        - KL
    )
    by_C = 0.5 * s * d * (np.eye(m) - P_inverse) - 0.5 * beta * s * s * (g @ g.T)
    by_s = (
        -0.5 * d * float(np.vdot(P_inverse, C))
        - 0.5 * d * (n - trace)
        + 0.5 * beta * cc
        - 0.5 * beta * s * float(np.vdot(g, C @ g))
    )
    by_beta = 0.5 * n * d / beta - 0.5 * YY + 0.5 * s * cc + variance * by_s
    if not math.isfinite(value):
        raise NotPositiveDefinite
    return Bound(value, by_C, beta * s * g, beta * by_s, by_beta, s, L_B, g)
