"""The printed mistakes of the tutorial, proven: each printed formula and its correction against an independent value.

    python docs/errata.py

Derivatives are compared with complex steps, expectations with Gauss–Hermite quadrature, densities with SciPy's. The
differences are relative to the largest entry; `right` is below 1e-9. Formulas of appendix B that are right as printed
are checked too. The exit code is 1 if a mistake is none, if a correction is wrong, or if a formula that is called right
is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import multivariate_normal

WRONG, RIGHT = 1e-2, 1e-9  # a mistake differs by more than the first, a correct formula by less than the second
N, M, Q, D = 6, 4, 2, 3
RNG = np.random.default_rng(0)
MU, S, Y = RNG.normal(size=(N, Q)), RNG.uniform(0.2, 1.0, size=(N, Q)), RNG.normal(size=(N, D))
Z, U = RNG.normal(size=(M, Q)), RNG.normal(size=(M, D))
ALPHA, VARIANCE, BETA = np.array([0.7, 1.4]), 1.7, 2.3
J, K = 1, 0  # the inducing point and the dimension by which derivatives are taken
STEP = 1e-30


class Finding(NamedTuple):
    """A formula: where it stands, its difference as printed, and as corrected (None where it is right as printed)."""

    where: str
    printed: float
    corrected: float | None


def kernel(Z: Any = Z, alpha: Any = ALPHA, variance: Any = VARIANCE) -> Any:
    """Return K_mm, eq. 76."""
    return variance * np.exp(-0.5 * (alpha * (Z[:, None] - Z) ** 2).sum(axis=2))


def psi1(mu: Any = MU, S: Any = S, Z: Any = Z, alpha: Any = ALPHA, variance: Any = VARIANCE) -> Any:
    """Return ⟨K_mi⟩ (n, m), eq. 89."""
    width = alpha * S[:, None] + 1
    return variance * np.prod(width**-0.5 * np.exp(-0.5 * alpha * (mu[:, None] - Z) ** 2 / width), axis=2)


def psi2(mu: Any = MU, S: Any = S, Z: Any = Z, alpha: Any = ALPHA, variance: Any = VARIANCE) -> Any:
    """Return ⟨K_mi K_im⟩ (n, m, m), eq. 90."""
    width = 2 * alpha * S[:, None, None] + 1
    near = -0.25 * alpha * (Z[:, None] - Z) ** 2
    far = -alpha * (mu[:, None, None] - 0.5 * (Z[:, None] + Z)) ** 2 / width
    return variance**2 * np.prod(width**-0.5 * np.exp(near + far), axis=3)


def bound(K: Any, psi0: Any, B: Any, Psi2: Any, beta: Any = BETA) -> Any:
    """Return F without its KL, eqs. 91 to 96."""
    P = K + beta * Psi2
    return (
        0.5 * N * D * np.log(beta / (2 * np.pi))
        + 0.5 * D * (np.log(np.linalg.det(K)) - np.log(np.linalg.det(P)))
        - 0.5 * beta * (Y**2).sum()
        - 0.5 * beta * D * (psi0 - np.trace(np.linalg.solve(K, Psi2)))
        + 0.5 * beta**2 * np.trace(B.T @ np.linalg.solve(P, B))
    )


def step(function: Callable[[Any], Any], at: Any, *index: int) -> Any:
    """Return the derivative of a function by one entry of its argument, by a complex step."""
    moved = np.array(at, complex)
    moved[index] += 1j * STEP
    return np.imag(function(moved)) / STEP


def steps(function: Callable[[Any], Any], at: Any) -> Any:
    """Return the derivative of a number by every entry of its argument."""
    return np.array([step(function, at, *index) for index in np.ndindex(at.shape)]).reshape(at.shape)


def off(found: Any, true: Any) -> float:
    """Return the largest difference, beside the largest entry."""
    return float(np.abs(found - true).max() / np.abs(true).max())


def average(function: Callable[[Any], Any], row: int) -> Any:
    """Return the expectation of a function of X_i over q(X_i), by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    points = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, Q)
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    return sum(w * function(MU[row] + np.sqrt(S[row]) * x) for w, x in zip(weight, points, strict=True))


def mistakes() -> Iterator[Finding]:
    """Yield the printed mistakes."""
    # log p(u) and log q(u) of §3, for inputs without variance; the densities are SciPy's, column by column
    K_mm, none = kernel(), np.zeros_like(S)
    A, B = K_mm + BETA * psi2(S=none).sum(axis=0), psi1(S=none).T @ Y
    inverse, mean = np.linalg.inv(K_mm), BETA * K_mm @ np.linalg.solve(A, B)
    Sigma = K_mm @ np.linalg.solve(A, K_mm)
    log_p = sum(multivariate_normal.logpdf(U[:, each], np.zeros(M), K_mm) for each in range(D))
    log_q = sum(multivariate_normal.logpdf(U[:, each], mean[:, each], (Sigma + Sigma.T) / 2) for each in range(D))

    def log_prior(numbers: int) -> float:
        constant = -0.5 * numbers * D * np.log(2 * np.pi)
        return constant - 0.5 * D * np.linalg.slogdet(K_mm)[1] - 0.5 * np.trace(U.T @ inverse @ U)

    def log_posterior(extra: float) -> float:
        constant = -0.5 * M * D * np.log(2 * np.pi) - 0.5 * D * np.linalg.slogdet(Sigma)[1]
        quadratic = extra * BETA * np.trace(U.T @ inverse @ psi2(S=none).sum(axis=0) @ inverse @ U)
        rest = np.trace(U.T @ inverse @ U) - 2 * BETA * np.trace(U.T @ inverse @ B)
        return constant - 0.5 * (quadratic + rest + BETA**2 * np.trace(B.T @ np.linalg.solve(A, B)))

    yield Finding("eq. 42, 44, 48: log p(u), (2π)^(-nd/2)", off(log_prior(N), log_p), off(log_prior(M), log_p))
    yield Finding("eq. 49: log q(u), an extra β", off(log_posterior(BETA), log_q), off(log_posterior(1.0), log_q))

    # ⟨F_i F_iᵀ⟩ of §4, of the first row
    def second_moment(x: Any) -> Any:
        k = VARIANCE * np.exp(-0.5 * (ALPHA * (x - Z) ** 2).sum(axis=1))
        return D * (VARIANCE - k @ inverse @ k) + ((U.T @ inverse @ k) ** 2).sum()

    first, pairs, weights = psi1()[0], psi2()[0], inverse @ U @ U.T @ inverse
    printed = D * (VARIANCE - first @ inverse @ first) + first @ weights @ first
    right = D * (VARIANCE - np.trace(inverse @ pairs)) + np.trace(weights @ pairs)
    true = average(second_moment, 0)
    yield Finding("eq. 68, 69: ⟨F_i F_iᵀ⟩, a product of means", off(printed, true), off(right, true))

    # ∂K_mm/∂Z_jk
    gap, is_j = Z[:, None, K] - Z[:, K], np.arange(M) == J
    row, column = is_j[:, None] & ~is_j, is_j & ~is_j[:, None]
    true = step(lambda z: kernel(Z=z), Z, J, K)
    right = (row * -1.0 + column * 1.0) * ALPHA[K] * gap * K_mm
    yield Finding("eq. 139: ∂K_mm/∂Z, the sign of column j", off((row | column) * -ALPHA[K] * gap * K_mm, true),
                  off(right, true))  # fmt: skip

    # ∂⟨K_mi K_im⟩/∂Z_jk
    slope = psi2() * (
        -0.5 * ALPHA[K] * gap
        + 0.5
        * ALPHA[K]
        * (2 * MU[:, K, None, None] - Z[:, None, K] - Z[:, K])
        / (2 * ALPHA[K] * S[:, K, None, None] + 1)
    )
    printed = is_j[:, None] * slope
    true = step(lambda z: psi2(Z=z), Z, J, K)
    yield Finding("eq. 142, 143: ∂Ψ2/∂Z, only row j", off(printed, true),
                  off(printed + printed.transpose(0, 2, 1), true))  # fmt: skip

    # ∂K_mm/∂α_q
    true = step(lambda a: kernel(alpha=a), ALPHA, K)
    yield Finding("eq. 148: ∂K_mm/∂α, a factor -1/2", off(K_mm * gap**2, true), off(-0.5 * K_mm * gap**2, true))

    # the divergence: the integral as printed is its negative; the value after it is right
    def log_ratio(x: Any) -> Any:
        return -0.5 * (x**2).sum() + 0.5 * ((x - MU[0]) ** 2 / S[0] + np.log(S[0])).sum()

    value = 0.5 * ((S[0] - np.log(S[0])).sum() + MU[0] @ MU[0] - Q)
    integral = average(log_ratio, 0)
    yield Finding("eq. 161: KL, log(p/q) for log(q/p)", off(integral, value), off(-integral, value))

    # ∂F/∂β
    P, Psi2, B = K_mm + BETA * psi2().sum(axis=0), psi2().sum(axis=0), psi1().T @ Y
    G = np.linalg.solve(P, B)

    def by_beta(psi0: float) -> float:
        return (
            0.5 * N * D / BETA - 0.5 * D * np.trace(np.linalg.solve(P, Psi2)) - 0.5 * (Y**2).sum() - 0.5 * D * psi0
            + 0.5 * D * np.trace(inverse @ Psi2) + BETA * np.trace(B.T @ G) - 0.5 * BETA**2 * np.trace(G.T @ Psi2 @ G)
        )  # fmt: skip

    true = step(lambda beta: bound(K_mm, N * VARIANCE, B, Psi2, beta), BETA)
    yield Finding("eq. 165: ∂F/∂β, one ⟨K_ii⟩ for their sum", off(by_beta(VARIANCE), true),
                  off(by_beta(N * VARIANCE), true))  # fmt: skip


def right_as_printed() -> Iterator[Finding]:
    """Yield formulas of appendix B that are right as printed."""
    K_mm, Psi2, B = kernel(), psi2().sum(axis=0), psi1().T @ Y
    inverse, P_inverse = np.linalg.inv(K_mm), np.linalg.inv(K_mm + BETA * Psi2)
    G = P_inverse @ B
    yield Finding("eq. 105: ∂F/∂Σ⟨K_ii⟩", off(-0.5 * BETA * D, step(lambda x: bound(K_mm, x, B, Psi2), 4.0)), None)
    yield Finding("eq. 117: ∂F/∂Σ⟨K_mi⟩Y_i", off(BETA**2 * G, steps(lambda x: bound(K_mm, 4.0, x, Psi2), B)), None)
    by_Psi2 = 0.5 * BETA * D * (inverse - P_inverse) - 0.5 * BETA**3 * G @ G.T
    yield Finding("eq. 125-128: ∂F/∂Ψ2", off(by_Psi2, steps(lambda x: bound(K_mm, 4.0, B, x), Psi2)), None)
    by_K = 0.5 * D * (inverse - P_inverse - BETA * inverse @ Psi2 @ inverse) - 0.5 * BETA**2 * G @ G.T
    yield Finding("eq. 136-138: ∂F/∂K_mm", off(by_K, steps(lambda x: bound(x, 4.0, B, Psi2), K_mm)), None)

    a, z, s, m = ALPHA[K], Z[:, K], S[:, K, None], MU[:, K, None]
    width, gap = a * s + 1, m - z
    slope = (np.arange(M) == J) * psi1() * a * gap / width
    yield Finding("eq. 141: ∂⟨K_mi⟩/∂Z", off(slope, step(lambda x: psi1(Z=x), Z, J, K)), None)
    slope = -0.5 * psi1() * ((gap / width) ** 2 + s / width)
    yield Finding("eq. 150: ∂⟨K_mi⟩/∂α", off(slope, step(lambda x: psi1(alpha=x), ALPHA, K)), None)
    one = (np.arange(N) == 0)[:, None]  # of the first row's mean and variance
    slope = one * psi1() * -a * gap / width
    yield Finding("eq. 155: ∂⟨K_mi⟩/∂μ", off(slope, step(lambda x: psi1(mu=x), MU, 0, K)), None)
    slope = one * psi1() * (0.5 * (a * gap / width) ** 2 - 0.5 * a / width)
    yield Finding("eq. 159: ∂⟨K_mi⟩/∂S", off(slope, step(lambda x: psi1(S=x), S, 0, K)), None)

    s, m, one = s[:, None], m[:, None], one[:, None]
    width, gap = 2 * a * s + 1, 2 * m - z[:, None] - z
    slope = psi2() * (-0.25 * (z[:, None] - z) ** 2 - (0.5 * gap / width) ** 2 - s / width)
    yield Finding("eq. 151, 152: ∂Ψ2/∂α", off(slope, step(lambda x: psi2(alpha=x), ALPHA, K)), None)
    slope = one * psi2() * -a * gap / width
    yield Finding("eq. 156: ∂Ψ2/∂μ", off(slope, step(lambda x: psi2(mu=x), MU, 0, K)), None)
    slope = one * psi2() * (2 * (0.5 * a * gap / width) ** 2 - a / width)
    yield Finding("eq. 160: ∂Ψ2/∂S", off(slope, step(lambda x: psi2(S=x), S, 0, K)), None)


def proven(finding: Finding) -> bool:
    """Return whether a finding is what it is called."""
    if finding.corrected is None:
        return finding.printed < RIGHT
    return finding.printed > WRONG and finding.corrected < RIGHT


def main() -> None:
    """Print all findings."""
    findings = [*mistakes(), *right_as_printed()]
    print(f"{'':44}  as printed  corrected")
    for where, printed, corrected in findings:
        digits = f"{printed:10.2g}" if corrected is not None else f"{'right':>10}"
        print(f"{where:44}  {digits}  {'' if corrected is None else 'right'}".rstrip())
    faults = [finding for finding in findings if not proven(finding)]
    for finding in faults:
        print(f"not proven: {finding}")
    print(f"{len(findings)} formulas, {sum(each.corrected is not None for each in findings)} of them mistaken")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
