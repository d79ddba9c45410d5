"""Predictions against the textbook: Titsias (2009) for q(u), and the law of total variance for uncertain inputs.

With K = K_mm + jitter σ_f² I, and ψ1, ψ2 the training rows' statistics (K_nm and K_mn K_nm in regression):

    Σ = (K + β ψ2)⁻¹        q(u) = N(u | β K Σ ψ1ᵀ Y, K Σ K)
    p(f*) = ∫ p(f* | u) q(u) du = N(k*ᵀ w, σ_f² − k*ᵀ (K⁻¹ − Σ) k*)        w = β Σ ψ1ᵀ Y

by dense matrices and explicit inverses, as nobody should compute it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from mpigp.gp.parameters import Standardization
from mpigp.gp.statistics import Model
from tests.support import reference
from tests.support.modelfiles import write_model
from tests.support.problems import LATENT, REGRESSION, Problem, change, make

JITTER = 1e-4  # condition numbers up to 1e6: explicit inverses are then good to about 1e-9
TOLERANCE = {"rtol": 1e-8, "atol": 1e-9}
both = pytest.mark.parametrize("model", [REGRESSION, LATENT], ids=lambda model: model.name)


class Textbook(NamedTuple):
    """Z, variance and alpha; w (m, d), the weights of the mean; N (m, m) = K⁻¹ − Σ, those of the variance."""

    Z: np.ndarray
    variance: float
    alpha: np.ndarray
    w: np.ndarray
    N: np.ndarray

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (n, d) and the variance (n, 1) of the function at points."""
        k = reference.kernel(X, self.Z, self.variance, self.alpha)
        return k @ self.w, (self.variance - np.einsum("im,mk,ik->i", k, self.N, k))[:, None]

    def predict_uncertain(self, X: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (n, d) and the variance (n, d) at points that are N(X, S): E of each, and Var of the mean."""
        mean, variance = np.empty((2, len(X), self.w.shape[1]))
        for i, row in enumerate(zip(X[:, None], S[:, None], strict=True)):
            psi1 = reference.psi1(*row, self.Z, self.variance, self.alpha)[0]
            psi2 = reference.psi2(*row, self.Z, self.variance, self.alpha)
            mean[i] = psi1 @ self.w
            spread = np.diag(self.w.T @ (psi2 - np.outer(psi1, psi1)) @ self.w)
            variance[i] = self.variance - np.trace(self.N @ psi2) + spread
        return mean, variance


def textbook(model: Model, problem: Problem, jitter: float) -> Textbook:
    """Return the posterior of a problem."""
    mu, S, Y, (Z, variance, alpha, beta) = problem
    if model.name == REGRESSION.name:
        psi1 = reference.kernel(mu, Z, variance, alpha)
        psi2 = psi1.T @ psi1
    else:
        psi1, psi2 = (psi(mu, S, Z, variance, alpha) for psi in (reference.psi1, reference.psi2))
    K = reference.gram(Z, variance, alpha, jitter)
    Sigma = np.linalg.inv(K + beta * psi2)
    return Textbook(Z, variance, alpha, beta * Sigma @ psi1.T @ Y, np.linalg.inv(K) - Sigma)


def predict(
    folder: Path,
    model: Model,
    problem: Problem,
    X: np.ndarray,
    X_variance: np.ndarray | None = None,
    standardized: dict[str, Standardization] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `mpigp predict` writes: the mean (n, d), and the variances (n, 1 or d) of function and outputs."""
    new, output = folder / "new.h5", folder / "predictions.h5"
    path = write_model(folder / "model.h5", model, problem, JITTER, standardized)
    with h5py.File(new, "w") as file:
        file["X"] = X
        if X_variance is not None:
            file["X_variance"] = X_variance
    assert execute(["predict", str(path), str(new), "-o", str(output)]) == 0
    with h5py.File(output) as file:
        mean, *variances = (file[name][()].reshape(len(X), -1) for name in ("mean", "variance", "y_variance"))
    return mean, *variances


def new_points(q: int, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return points among the training rows and beyond them, and variances."""
    rng = np.random.default_rng(5)
    return 1.5 * rng.normal(size=(rows, q)), rng.uniform(0.01, 0.5, size=(rows, q))


def same(ours: tuple[np.ndarray, ...], mean: np.ndarray, variance: np.ndarray, noise: float) -> None:
    """Compare predictions with the textbook's, and the variance of the outputs with theirs."""
    np.testing.assert_allclose(ours[0], mean, **TOLERANCE)
    for found, expected in zip(ours[1:], (variance, variance + noise), strict=True):
        np.testing.assert_allclose(*np.broadcast_arrays(found, expected), **TOLERANCE)


@both
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (5, 3, 2, 2), (200, 15, 2, 2), (300, 20, 4, 1)], ids=str)
def test_at_points(model: Model, shape: tuple[int, int, int, int], tmp_path: Path) -> None:
    problem = make(*shape)
    X, _ = new_points(shape[2])
    mean, variance = textbook(model, problem, JITTER).predict(X)
    same(predict(tmp_path, model, problem, X), mean, variance, 1 / problem.parameters.beta)


@both
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (60, 10, 3, 5)], ids=str)
def test_at_uncertain_points(model: Model, shape: tuple[int, int, int, int], tmp_path: Path) -> None:
    problem = make(*shape)
    X, S = new_points(shape[2])
    mean, variance = textbook(model, problem, JITTER).predict_uncertain(X, S)
    same(predict(tmp_path, model, problem, X, S), mean, variance, 1 / problem.parameters.beta)


def test_uncertain_points_are_averages_over_points(tmp_path: Path) -> None:
    problem = make(60, 10, 3, 2)
    X, S = new_points(3, rows=4)
    mean, variance, _ = predict(tmp_path, LATENT, problem, X, S)
    exact, samples = textbook(LATENT, problem, JITTER), 100_000
    rng = np.random.default_rng(0)
    for i in range(len(X)):
        means, variances = exact.predict(X[i] + np.sqrt(S[i]) * rng.normal(size=(samples, 3)))
        total = variances + (means - means.mean(axis=0)) ** 2
        # Five standard errors of the averages.
        error = 5 * np.array([means.std(axis=0), total.std(axis=0)]) / np.sqrt(samples)
        assert (np.abs(mean[i] - means.mean(axis=0)) < error[0]).all()
        assert (np.abs(variance[i] - total.mean(axis=0)) < error[1]).all()


@both
def test_in_the_units_of_the_data(model: Model, tmp_path: Path) -> None:
    problem = make(100, 12, 2, 2)
    X, _ = new_points(2)
    x, y = Standardization(np.array([3.0, -1.0]), np.array([0.5, 4.0])), Standardization(
        np.array([10.0, -2.0]), np.array([7.0, 0.1])
    )  # fmt: skip
    mean, variance = textbook(model, problem, JITTER).predict(X)
    inputs = {"x": x} if model.name == REGRESSION.name else {}  # latent points have no other units
    given = X * x.scale + x.mean if inputs else X
    found = predict(tmp_path, model, problem, given, standardized={**inputs, "y": y})
    noise = 1 / problem.parameters.beta
    np.testing.assert_allclose(found[0], mean * y.scale + y.mean, **TOLERANCE)
    np.testing.assert_allclose(found[1], variance * y.scale**2, **TOLERANCE)
    np.testing.assert_allclose(found[2], (variance + noise) * y.scale**2, **TOLERANCE)


def test_far_from_the_data_it_is_the_prior(tmp_path: Path) -> None:
    problem = change(make(100, 12, 2, 2), variance=2.5)
    mean, variance, y_variance = predict(tmp_path, REGRESSION, problem, np.full((1, 2), 100.0))
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, 2.5, rtol=1e-12)
    np.testing.assert_allclose(y_variance, 2.5 + 1 / problem.parameters.beta, rtol=1e-12)
