"""The regression bound and its gradient in 256-bit arithmetic, from the formulas that lose digits in double precision.

Numbers are integers of 2⁻²⁵⁶ in object arrays: additions are exact, products are rounded to 2⁻²⁵⁶. The jitter is part
of K_mm; with P = K_mm + β Ψ2, not whitened, and g = P⁻¹B:

    F = −nd/2 log 2π + nd/2 log β + d/2 (log|K_mm| − log|P|) − β/2 YY − βd/2 (n σ_f² − tr K_mm⁻¹Ψ2) + β²/2 tr Bᵀg

    ∂F/∂Ψ2   = βd/2 (K_mm⁻¹ − P⁻¹) − β³/2 g gᵀ                   ∂F/∂B = β² g
    ∂F/∂K_mm = d/2 (K_mm⁻¹ − P⁻¹) − β²/2 g gᵀ − βd/2 K_mm⁻¹ Ψ2 K_mm⁻¹
    ∂F/∂β    = nd/2β − YY/2 − d/2 (n σ_f² − tr K_mm⁻¹Ψ2) − d/2 tr P⁻¹Ψ2 + β tr Bᵀg − β²/2 tr gᵀΨ2 g

In the tighter bounds the trace term is −d/2 Σ log(1 + β y_i), y_i = σ_f² − k_iᵀ h_i with h_i = K_mm⁻¹ k_i, or n times
that of the mean of y; v_i = 1/(1 + β y_i). In its derivatives v_i h_i stands for h_i in ∂F/∂k_i = βd h_i + …,
Σ v_i h_i h_iᵀ for K_mm⁻¹ Ψ2 K_mm⁻¹, Σ v_i y_i for n σ_f² − tr K_mm⁻¹Ψ2, and Σ v_i for n.
"""

from __future__ import annotations

import mpmath
import numpy as np

BITS = 256
ONE = 1 << BITS

_exact = np.frompyfunc(lambda x: int(mpmath.ldexp(mpmath.mpf(float(x)), BITS)), 1, 1)
_exponential = np.frompyfunc(lambda x: int(mpmath.ldexp(mpmath.exp(mpmath.ldexp(x, -BITS)), BITS)), 1, 1)


def _times(a, b):
    return (a * b) >> BITS


def _product(A, B):
    return (A @ B) >> BITS


def _double(a):
    return np.asarray(np.frompyfunc(lambda x: float(mpmath.ldexp(x, -BITS)), 1, 1)(a), float)


def _kernel(A, B, variance, alpha):
    exponent = sum(_times(a, _times(u, u)) for a, u in zip(alpha, np.moveaxis(A[:, None] - B[None], 2, 0), strict=True))
    return _times(variance, _exponential(-exponent >> 1))


def _inverse(A):
    """Return A⁻¹ and log|A| of a positive definite matrix, by Gauss and Jordan."""
    m = len(A)
    W = np.concatenate([A, _exact(np.eye(m))], axis=1)
    logarithm = mpmath.mpf(0)
    for j in range(m):
        pivot = W[j, j]
        logarithm += mpmath.log(mpmath.ldexp(pivot, -BITS))
        W[j] = (W[j] << BITS) // pivot
        others = np.arange(m) != j
        W[others] -= _times(W[others, j][:, None], W[j][None, :])
    return W[:, m:], int(mpmath.ldexp(logarithm, BITS))


def _logarithm(x):
    return int(mpmath.ldexp(mpmath.log(mpmath.ldexp(x, -BITS)), BITS))


def _trace_term(bound, slacks, beta):
    """Return −½ Σ log(1 + β y_i), or the term of another bound, and v (n,), of the rows' y."""
    n, x = len(slacks), _times(beta, slacks)
    if bound == "titsias":
        return -int(x.sum()) >> 1, np.array([ONE] * n, object)
    if bound == "sphere":
        x = np.array([int(x.sum()) // n] * n, object)
    return -sum(_logarithm(ONE + each) for each in x) >> 1, ONE * ONE // (ONE + x)


def regression(X, Y, Z, variance, alpha, beta, jitter, bound="titsias"):
    """Return F and the dictionary of its gradients, exact before they are rounded to doubles."""
    with mpmath.workprec(BITS + 100):
        (n, d), (m, q) = Y.shape, Z.shape
        X, Y, Z, alpha = _exact(X), _exact(Y), _exact(Z), _exact(alpha)
        variance, beta, jitter = _exact(variance), _exact(beta), _exact(jitter)
        eye, half = _exact(np.eye(m)), ONE >> 1
        K, K_mn = _kernel(Z, Z, variance, alpha), _kernel(Z, X, variance, alpha)
        ridge = _times(jitter, variance)
        psi2, B = _product(K_mn, K_mn.T), _product(K_mn, Y)
        K_inverse, log_K = _inverse(K + _times(ridge, eye))
        P_inverse, log_P = _inverse(K + _times(ridge, eye) + _times(beta, psi2))
        g = _product(P_inverse, B)

        def trace(A, C):
            return int((A * C).sum()) >> BITS  # tr Aᵀ C

        YY, Bg = trace(Y, Y), trace(B, g)
        h = _product(K_inverse, K_mn)
        slacks = variance - ((K_mn * h).sum(axis=0) >> BITS)
        trace_term, v = _trace_term(bound, slacks, beta)
        F = (
            -n * d * int(mpmath.ldexp(mpmath.log(2 * mpmath.pi), BITS))
            + n * d * _logarithm(beta)
            + d * (log_K - log_P)
            - _times(beta, YY)
            + _times(_times(beta, beta), Bg)
        ) >> 1
        F += d * trace_term

        gg = _times(_times(beta, beta), _product(g, g.T))
        by_psi2 = _times(beta, -d * P_inverse - gg) >> 1  # the trace term's apart
        by_B = _times(_times(beta, beta), g)
        by_K = (d * (K_inverse - P_inverse) - gg - d * _times(beta, _product(_times(v, h), h.T))) >> 1
        by_K_mn = 2 * _product(by_psi2, K_mn) + d * _times(beta, _times(v, h)) + _product(by_B, Y.T)
        by_beta = (
            n * d * (ONE * ONE // beta)
            - YY
            - d * int(_times(v, slacks).sum())
            - d * trace(P_inverse, psi2)
            + 2 * _times(beta, Bg)
            - _times(_times(beta, beta), trace(g, _product(psi2, g)))
        ) >> 1

        # ∂k/∂σ_f² = k/σ_f²,   ∂k/∂α_q = −½ u_q² k,   ∂k/∂z_q = −α_q u_q k,   u = z − x
        GK, GK_mn = _times(by_K, K), _times(by_K_mn, K_mn)
        through_K = int(GK.sum() + GK_mn.sum() + _times(ridge, np.trace(by_K)))
        by_variance = (through_K << BITS) // int(variance) - d * _times(_times(beta, half), int(v.sum()))
        by_Z, by_alpha = np.empty((m, q), object), np.empty(q, object)
        for k in range(q):
            u, v = Z[:, k, None] - Z[None, :, k], Z[:, k, None] - X[None, :, k]
            by_Z[:, k] = -_times(alpha[k], (2 * _times(GK, u)).sum(axis=1) + _times(GK_mn, v).sum(axis=1))
            by_alpha[k] = -(_times(GK, _times(u, u)).sum() + _times(GK_mn, _times(v, v)).sum()) >> 1
        gradient = {"Z": by_Z, "variance": by_variance, "alpha": by_alpha, "beta": by_beta}
        return float(_double(F)), {name: _double(value) for name, value in gradient.items()}
