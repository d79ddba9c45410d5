"""The benchmarks' probabilistic PCA: a comparison is fair only with one that is right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from benchmarks.support import ppca
from benchmarks.support.ppca import PPCA

N, D, Q = 400, 6, 2


def data(missing: float = 0.0) -> np.ndarray:
    """Return rows of a PPCA, with a share of the entries missing."""
    rng = np.random.default_rng(3)
    W = rng.normal(size=(D, Q)) * [2.0, 1.0]
    Y = rng.normal(size=(N, Q)) @ W.T + np.arange(D) + 0.3 * rng.normal(size=(N, D))
    Y[rng.random(Y.shape) < missing] = np.nan
    return Y


def somewhere() -> PPCA:
    rng = np.random.default_rng(4)
    return PPCA(rng.normal(size=(D, Q)), rng.normal(size=D), 2.0)


def covariance(model: PPCA) -> np.ndarray:
    return model.W @ model.W.T + model.noise * np.eye(D)


def test_em_finds_the_closed_form_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppca, "TOLERANCE", 0.0)
    Y = data()
    found = ppca.learn(Y, Q, somewhere(), steps=500)
    values, vectors = np.linalg.eigh(np.cov(Y.T, bias=True))
    noise = values[:-Q].mean()
    main = vectors[:, -Q:] @ np.diag(values[-Q:] - noise) @ vectors[:, -Q:].T
    np.testing.assert_allclose(found.mean, Y.mean(axis=0), rtol=1e-6)
    assert found.noise == pytest.approx(noise, rel=1e-6)
    np.testing.assert_allclose(covariance(found), main + noise * np.eye(D), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(covariance(ppca.closed_form(Y, Q)), main + noise * np.eye(D), rtol=1e-10, atol=1e-10)


def test_the_likelihood_is_that_of_the_observed_entries() -> None:
    Y, model = data(0.3), somewhere()
    found = ppca.infer(model, Y).log_likelihood
    for row, value in zip(Y[:50], found[:50], strict=True):
        seen = ~np.isnan(row)
        if seen.any():
            expected = multivariate_normal.logpdf(row[seen], model.mean[seen], covariance(model)[np.ix_(seen, seen)])
            assert value == pytest.approx(expected, rel=1e-10)
        else:
            assert value == pytest.approx(0.0, abs=1e-10)


def test_reconstruction_is_the_conditional_expectation() -> None:
    Y, model = data(0.3), somewhere()
    found, C = ppca.reconstruct(model, Y), covariance(model)
    for row, full in zip(Y[:50], found[:50], strict=True):
        seen = ~np.isnan(row)
        weights = np.linalg.solve(C[np.ix_(seen, seen)], row[seen] - model.mean[seen])
        expected = model.mean[~seen] + C[np.ix_(~seen, seen)] @ weights
        np.testing.assert_allclose(full[~seen], expected, rtol=1e-10, atol=1e-12)


def test_no_step_lowers_the_likelihood_and_the_last_is_a_maximum() -> None:
    Y, model = data(0.3), somewhere()
    totals = []
    for _ in range(100):
        totals.append(ppca.infer(model, Y).log_likelihood.sum())
        model = ppca.learn(Y, Q, model, steps=1)
    assert (np.diff(totals) >= -1e-9 * np.abs(totals[1:])).all()
    best = ppca.learn(Y, Q)
    top = ppca.infer(best, Y).log_likelihood.sum()
    rng = np.random.default_rng(0)
    for _ in range(20):
        near = PPCA(best.W + 0.05 * rng.normal(size=best.W.shape), best.mean, best.noise * rng.uniform(0.9, 1.1))
        assert ppca.infer(near, Y).log_likelihood.sum() < top


def test_choosing_finds_the_dimensions_the_data_have() -> None:
    full, given = data(), data(0.3)
    errors = ppca.choose(given, given, full, range(1, D))
    assert errors[Q] < 0.5 * errors[Q - 1]
    assert errors[Q] < 1.01 * min(errors.values())  # more dimensions have next to nothing to find
