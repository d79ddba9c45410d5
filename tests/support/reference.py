"""The bound written from its definition, slowly: what the engine is compared with. Works on complex arrays too."""

from __future__ import annotations

import numpy as np


def kernel(A, B, variance, alpha):
    difference = A[:, None, :] - B[None, :, :]
    return variance * np.exp(-0.5 * (alpha * difference**2).sum(axis=2))


def psi1(mu, S, Z, variance, alpha):
    D = alpha * S[:, None, :] + 1
    return variance * np.prod(D**-0.5 * np.exp(-0.5 * alpha * (mu[:, None, :] - Z) ** 2 / D), axis=2)


def psi2(mu, S, Z, variance, alpha):
    total = np.zeros((len(Z), len(Z)), np.result_type(mu, S, Z, variance, alpha))
    mean = 0.5 * (Z[:, None, :] + Z)
    constant = np.exp(-0.25 * (alpha * (Z[:, None, :] - Z) ** 2).sum(axis=2))
    for x, s in zip(mu, S, strict=True):
        D = 2 * alpha * s + 1
        total += variance**2 * np.prod(D**-0.5) * constant * np.exp(-(alpha / D * (x - mean) ** 2).sum(axis=2))
    return total


def divergence(mu, S):
    return 0.5 * (S + mu**2 - 1 - np.log(S)).sum()


def cholesky(A):
    """Cholesky's factor by its recurrence, so that complex steps pass through."""
    L = np.zeros_like(A)
    for j in range(len(A)):
        L[j, j] = np.sqrt(A[j, j] - L[j, :j] @ L[j, :j])
        L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    return L


def bound_from_statistics(K, psi0, psi1Y, psi2_total, YY, KL, n, d, beta):
    L = cholesky(K)
    C = np.linalg.solve(L, np.linalg.solve(L, psi2_total).T)
    L_B = cholesky(np.eye(len(K)) + beta * C)
    c = np.linalg.solve(L_B, np.linalg.solve(L, psi1Y))
    return (
        -0.5 * n * d * np.log(2 * np.pi)
        + 0.5 * n * d * np.log(beta)
        - d * np.log(np.diag(L_B)).sum()
        - 0.5 * beta * YY
        - 0.5 * beta * d * (psi0 - np.trace(C))
        + 0.5 * beta**2 * (c**2).sum()
        - KL
    )


def trace_term(bound, slacks, d, beta):
    """The term −d/2 Σ β y_i of Titsias' bound, or the tighter one of another, of the rows' variances y (n,) given u."""
    x = beta * slacks
    if bound == "titsias":
        return -0.5 * d * x.sum()
    if bound == "sphere":
        return -0.5 * len(x) * d * np.log(1 + x.sum() / len(x))
    return -0.5 * d * np.log(1 + x).sum()


def regression_slacks(X, Z, variance, alpha, jitter):
    A = np.linalg.solve(cholesky(gram(Z, variance, alpha, jitter)), kernel(Z, X, variance, alpha))
    return variance - (A**2).sum(axis=0)


def gplvm_slacks(mu, S, Z, variance, alpha, jitter):
    L = cholesky(gram(Z, variance, alpha, jitter))
    each = [psi2(mu[i : i + 1], S[i : i + 1], Z, variance, alpha) for i in range(len(mu))]
    return np.array([variance - np.trace(np.linalg.solve(L, np.linalg.solve(L, row).T)) for row in each])


def tighter(bound, slacks, d, beta):
    """What another bound has more than Titsias'."""
    return trace_term(bound, slacks, d, beta) - trace_term("titsias", slacks, d, beta)


def gram(Z, variance, alpha, jitter):
    return kernel(Z, Z, variance, alpha) + jitter * variance * np.eye(len(Z))


def regression_bound(X, Y, Z, variance, alpha, beta, jitter, bound="titsias"):
    K_mn = kernel(Z, X, variance, alpha)
    n, d = Y.shape
    more = 0.0 if bound == "titsias" else tighter(bound, regression_slacks(X, Z, variance, alpha, jitter), d, beta)
    return more + bound_from_statistics(
        gram(Z, variance, alpha, jitter), n * variance, K_mn @ Y, K_mn @ K_mn.T, (Y**2).sum(), 0.0, n, d, beta
    )


def gplvm_bound(mu, S, Y, Z, variance, alpha, beta, jitter, bound="titsias"):
    n, d = Y.shape
    more = 0.0 if bound == "titsias" else tighter(bound, gplvm_slacks(mu, S, Z, variance, alpha, jitter), d, beta)
    return more + bound_from_statistics(
        gram(Z, variance, alpha, jitter),
        n * variance,
        psi1(mu, S, Z, variance, alpha).T @ Y,
        psi2(mu, S, Z, variance, alpha),
        (Y**2).sum(),
        divergence(mu, S),
        n,
        d,
        beta,
    )


def dense_regression_bound(X, Y, Z, variance, alpha, beta, jitter):
    """Titsias (2009): log N(Y | 0, Q + I/β) − β/2 tr(K − Q), with the n × n matrix Q = K_nm K_mm⁻¹ K_mn."""
    n, d = Y.shape
    A = np.linalg.solve(cholesky(gram(Z, variance, alpha, jitter)), kernel(Z, X, variance, alpha))
    Q = A.T @ A
    L = cholesky(Q + np.eye(n) / beta)
    w = np.linalg.solve(L, Y)
    return (
        -0.5 * n * d * np.log(2 * np.pi)
        - d * np.log(np.diag(L)).sum()
        - 0.5 * (w**2).sum()
        - 0.5 * beta * d * (n * variance - np.trace(Q))
    )


def complex_step(function, values, name, h=1e-30):
    """Return the gradient of function(**values) by values[name], one complex step per entry."""
    x = np.asarray(values[name], float)
    result = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[index] += 1j * h
        result[index] = function(**{**values, name: moved if x.shape else moved[()]}).imag / h
    return result
