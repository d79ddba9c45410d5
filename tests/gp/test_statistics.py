"""The sums over rows, of the kernel of unit variance: Ψ2 = Σ⟨K_mi K_im⟩, Σψ1Y = Σ⟨K_mi⟩Y_i, ψ0 and KL."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mpigp.gp import statistics as models
from tests.support import reference
from tests.support.problems import LATENT, REGRESSION, Problem, change, evaluate, make, summary_of

JITTER = 1e-3  # whitening is undone below: a well-conditioned one loses nothing
SHAPES = [(1, 1, 1, 1), (1, 4, 2, 1), (7, 3, 1, 2), (64, 5, 2, 3), (65, 8, 1, 1), (130, 9, 2, 2), (257, 13, 2, 1)]


def sums(model, problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    """Return Ψ2 (m, m), Σψ1Y (m, d), both in the order of Z, and KL."""
    summary, inducing = summary_of(model, problem, JITTER)
    L, order = inducing.whitening.L, inducing.whitening.order
    psi2, psi1Y = np.empty_like(summary.C[0]), np.empty_like(summary.b)
    psi2[np.ix_(order, order)] = L @ summary.C[0] @ L.T
    psi1Y[order] = L @ summary.b
    return psi2, psi1Y, summary.KL


def quadrature(problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the same by Gauss–Hermite quadrature over q(X_i) = N(mu_i, S_i)."""
    mu, S, Y, parameters = problem
    m, q = parameters.Z.shape
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    grid = np.array(list(itertools.product(nodes, repeat=q)))
    weight = np.array([np.prod(w) for w in itertools.product(weights / weights.sum(), repeat=q)])
    psi2, psi1Y, KL = np.zeros((m, m)), np.zeros((m, Y.shape[1])), 0.0
    for mean, variance, y in zip(mu, S, Y, strict=True):
        x = mean + np.sqrt(variance) * grid
        K = reference.kernel(parameters.Z, x, 1.0, parameters.alpha)
        psi2 += (K * weight) @ K.T
        psi1Y += np.outer(K @ weight, y)
        # log q − log p, a quadratic of x
        log_ratio = 0.5 * (x**2 - grid**2 - np.log(variance)).sum(axis=1)
        KL += float(weight @ log_ratio)
    return psi2, psi1Y, KL


def check(found, expected, n: int, Y: np.ndarray, tolerance: float) -> None:
    psi2, psi1Y, KL = found
    np.testing.assert_allclose(psi2, expected[0], rtol=0, atol=tolerance * n)
    np.testing.assert_allclose(psi1Y, expected[1], rtol=0, atol=tolerance * np.abs(Y).sum())
    # KL is kept to 2⁻⁴⁰ nats by each chunk, of 64 rows or more.
    np.testing.assert_allclose(KL, expected[2], rtol=tolerance, atol=2.0**-41 * (1 + n / 64))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_agree_with_quadrature(shape):
    n = shape[0]
    problem = make(*shape)
    # The integrand exp(−α (x − z)²), α S ≤ 1.5: 48 nodes converge to 1e-13 (72 change nothing there).
    check(sums(LATENT, problem), quadrature(problem), n, problem.Y, 1e-12)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (70, 3, 10, 2), (200, 17, 4, 3), (1000, 30, 7, 1)], ids=str)
def test_they_agree_with_the_formulas_at_any_shape(shape):
    n = shape[0]
    mu, S, Y, parameters = problem = make(*shape)
    Z, _, alpha, _ = parameters
    expected = (
        reference.psi2(mu, S, Z, 1.0, alpha),
        reference.psi1(mu, S, Z, 1.0, alpha).T @ Y,
        reference.divergence(mu, S),
    )
    # The exponent is summed from expanded squares: a few units in the last place of numbers up to 50.
    check(sums(LATENT, problem), expected, n, Y, 2e-14)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inputs_without_variance_give_the_kernel(shape):
    n = shape[0]
    problem = make(*shape)
    problem = problem._replace(S=np.full_like(problem.S, 1e-16))
    K = reference.kernel(problem.parameters.Z, problem.mu, 1.0, problem.parameters.alpha)
    psi2, psi1Y, _ = sums(LATENT, problem)
    # Every factor moves by α S ≈ 1e-16: rounding alone is left.
    check((psi2, psi1Y, 0.0), (K @ K.T, K @ problem.Y, 0.0), n, problem.Y, 1e-14)


@pytest.mark.parametrize("straight_sums", [0.0, np.inf])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_regression_sums_the_kernel_itself(shape, straight_sums, monkeypatch):
    monkeypatch.setattr(models, "MAX_COND_UNWHITENED_STATISTICS", straight_sums)
    n = shape[0]
    problem = make(*shape)
    K = reference.kernel(problem.parameters.Z, problem.mu, 1.0, problem.parameters.alpha)
    # Whitened row by row or at the end (jitter 1e-3: L⁻¹ up to 30), and unwhitened again.
    check(sums(REGRESSION, problem), (K @ K.T, K @ problem.Y, 0.0), n, problem.Y, 1e-13)


def test_a_weight_of_zero_takes_its_dimension_out():
    problem = make(70, 6, 3, 2)
    without = problem._replace(
        mu=np.ascontiguousarray(problem.mu[:, :2]),
        S=np.ascontiguousarray(problem.S[:, :2]),
        parameters=problem.parameters._replace(
            Z=np.ascontiguousarray(problem.parameters.Z[:, :2]), alpha=problem.parameters.alpha[:2].copy()
        ),
    )
    problem = change(problem, alpha=np.append(problem.parameters.alpha[:2], 0.0))
    (psi2, psi1Y, _), (expected2, expected1Y, _) = sums(LATENT, problem), sums(LATENT, without)
    check((psi2, psi1Y, 0.0), (expected2, expected1Y, 0.0), 70, problem.Y, 1e-14)


@pytest.mark.parametrize("model", [REGRESSION, LATENT], ids=lambda model: model.name)
def test_psi0_is_n_times_the_variance(model):
    """With inducing points where no row is, only ψ0, YY and KL are left of the bound."""
    problem = make(70, 3, 2, 2)
    problem = change(problem, Z=problem.parameters.Z + 1e3, variance=1.7, beta=3.0)
    n, d = problem.Y.shape
    KL = reference.divergence(problem.mu, problem.S) if model is LATENT else 0.0
    expected = 0.5 * n * d * np.log(3.0 / (2 * np.pi)) - 0.5 * 3.0 * ((problem.Y**2).sum() + d * n * 1.7) - KL
    # Sums of n numbers.
    assert evaluate(model, *problem, 1e-6).bound == pytest.approx(expected, rel=1e-14)
