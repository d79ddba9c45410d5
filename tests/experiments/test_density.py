"""The density of rows under a GPLVM, against quadrature, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from experiments import density
from mpigp import BayesianGPLVM
from mpigp.gp.embedding import candidates, embed
from mpigp.gp.posterior import Posterior

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quadrature(posterior: Posterior, Y: np.ndarray) -> np.ndarray:
    """Return log p(y) of rows Y (n, d), whose columns are not scaled, by a sum over a fine grid of two dimensions."""
    side = np.linspace(-6, 6, 121)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mean, _, variance = posterior.predict(grid)
    square = ((Y[:, None] - mean) ** 2).sum(axis=2)
    inner = -0.5 * (Y.shape[1] * np.log(2 * np.pi * variance) + square / variance)
    prior = -0.5 * (grid**2).sum(axis=1) - np.log(2 * np.pi) + 2 * np.log(side[1] - side[0])
    return logsumexp(inner + prior, axis=1)


def learned(rows: int = 200) -> tuple[BayesianGPLVM, np.ndarray]:
    """Return a GPLVM of a curved sheet in five dimensions, and other rows beside it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows + 30, 2))
    Y = np.column_stack([x, np.sin(x), x[:, 0] * x[:, 1]]) + 0.2 * rng.normal(size=(rows + 30, 5))
    return BayesianGPLVM(15, latent=2, max_iter=100, standardize="center").fit(Y[:rows]), Y[rows:]


def test_the_density_is_that_of_quadrature_and_above_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    model, Y = learned()
    Y[0] += 3.0  # far from all that was learned
    posterior = model.posterior_
    found = embed(posterior, candidates(model.embedding_, model.embedding_variance_), Y)
    exact = quadrature(posterior, Y)
    assert (exact > found.bound).all() and exact[0] > found.bound[0] + 1
    monkeypatch.setattr(density, "SAMPLES", 4000)
    estimate = density.log_densities(posterior, found, posterior.outputs(Y), np.random.default_rng(0))
    np.testing.assert_allclose(estimate[1:], exact[1:], atol=0.03)
    assert estimate[0] == pytest.approx(exact[0], abs=0.2)


def test_the_gradient_towards_the_mode() -> None:
    model, Y = learned(50)
    posterior, x, step = model.posterior_, np.random.default_rng(1).normal(size=(30, 2)), 1e-6
    Y = posterior.outputs(Y)
    _, slope = density.joint(posterior, Y, x)
    for place in range(2):
        ahead, behind = (density.joint(posterior, Y, x + sign * step * np.eye(2)[place])[0] for sign in (1, -1))
        np.testing.assert_allclose(slope[:, place], (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-5)
