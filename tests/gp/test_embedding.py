"""Each row's own bound given q(u): its value, its derivatives, and the maximum that is found."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.gp.embedding import Candidates, _Problem, candidates, embed
from mpigp.gp.posterior import Posterior
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from tests.support.problems import LATENT, make

N, M, Q, D = 90, 8, 2, 3


@pytest.fixture(scope="module")
def fitted() -> tuple[Posterior, Candidates, np.ndarray]:
    """A posterior at parameters that explain the outputs, its training rows, and their outputs."""
    mu, _, Y, parameters = make(N, M, Q, D)
    S = np.full((N, Q), 0.02)
    parameters = parameters._replace(beta=20.0)
    evaluator = Evaluator(MPI.COMM_SELF, LATENT, Rows(MPI.COMM_SELF, N, mu, S, Y), M, Q)
    evaluator(parameters, 1e-6)
    inducing, master = evaluator.last
    posterior = Posterior(
        "gplvm",
        np.ascontiguousarray(parameters.Z[inducing.whitening.order]),
        parameters.variance,
        parameters.alpha,
        parameters.beta,
        inducing.whitening.L,
        master.bound.L_B,
        master.bound.g,
        np.zeros(D, np.intp),
        None,
        None,
    )
    return posterior, candidates(mu, S), Y


def expected_bound(posterior: Posterior, mu: np.ndarray, S: np.ndarray, y: np.ndarray) -> float:
    """Return the bound of one row from its predicted moments alone: E log N(y; f, 1/β) − KL."""
    found = posterior.moments(mu[None], S[None])
    there = np.isfinite(y)
    variance = np.broadcast_to(found.variance.reshape(1, -1), (1, D))[0, there]
    square = (y[there] - found.mean[0, there]) ** 2 + variance
    likelihood = 0.5 * there.sum() * np.log(posterior.beta / (2 * np.pi)) - 0.5 * posterior.beta * square.sum()
    return float(likelihood - 0.5 * (S + mu**2 - 1 - np.log(S)).sum())


@pytest.mark.parametrize("holes", [False, True], ids=["whole", "with holes"])
def test_the_bound_is_the_expected_log_density_less_the_divergence(fitted, holes):
    posterior, training, Y = fitted
    Y = Y[:20].copy()
    if holes:
        Y[np.random.default_rng(1).random(Y.shape) < 0.4] = np.nan
    found = embed(posterior, training, Y)
    for row in range(20):
        expected = expected_bound(posterior, found.mu[row], found.S[row], Y[row]) if np.isfinite(Y[row]).any() else 0.0
        # β/2 times squares of order one, summed with weights w up to 1e3: some 1e-9 by rounding.
        assert found.bound[row] == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("holes", [False, True], ids=["whole", "with holes"])
def test_derivatives_agree_with_central_differences(fitted, holes):
    posterior, training, Y = fitted
    problem = _Problem(posterior, training, 1)
    rng = np.random.default_rng(2)
    there = rng.random((N, D)) < 0.6 if holes else np.ones((N, D), bool)
    observed = np.hstack([there, there @ problem.members]).astype(float) if holes else None
    Y = np.where(there, Y, 0.0)
    mu, S = training.mu + 0.1 * rng.normal(size=(N, Q)), training.S * rng.uniform(0.5, 2, size=(N, Q))
    _, by_mu, by_S = problem.bounds(mu, S, Y, observed)
    step = 1e-6
    for q in range(Q):
        move = np.zeros(Q)
        move[q] = step
        for slopes, ends in (
            (by_mu, [problem.bounds(mu + sign * move, S, Y, observed)[0] for sign in (1, -1)]),
            (by_S, [problem.bounds(mu, S + sign * move, Y, observed)[0] for sign in (1, -1)]),
        ):
            # Values of up to 1e3 by terms of up to 1e4: 1e-12 / 1e-6 by rounding.
            np.testing.assert_allclose(slopes[:, q], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-4)


def test_no_training_row_has_a_better_bound_at_the_latent_point_it_was_trained_at(fitted):
    posterior, training, Y = fitted
    found = embed(posterior, training, Y)
    there = [expected_bound(posterior, training.mu[row], training.S[row], Y[row]) for row in range(N)]
    assert (found.bound >= np.array(there) - 1e-6).all()


@pytest.mark.parametrize("holes", [False, True], ids=["whole", "with holes"])
def test_starts_are_the_training_rows_with_the_best_bounds(fitted, holes):
    posterior, training, Y = fitted
    problem, Y, observed = _Problem(posterior, training, 1), Y[:7].copy(), None
    if holes:
        there = np.random.default_rng(3).random(Y.shape) < 0.6
        observed, Y = np.hstack([there, there @ problem.members]).astype(float), np.where(there, Y, 0.0)
    mu, _ = problem._starts(Y, observed)
    for row in range(7):
        of_row = np.repeat(Y[[row]], N, axis=0), None if observed is None else np.repeat(observed[[row]], N, axis=0)
        order = np.argsort(-problem.bounds(training.mu, training.S, *of_row)[0])
        np.testing.assert_array_equal(mu[:, row], training.mu[order[: len(mu)]])


def test_maxima_are_stationary(fitted):
    posterior, training, Y = fitted
    found = embed(posterior, training, Y[:30])
    _, by_mu, by_S = _Problem(posterior, training, 1).bounds(found.mu, found.S, Y[:30].copy(), None)
    # Three steps that gained less than 1e-9 of the value: slopes of √1e-9 times curvatures of 20.
    assert np.abs(by_mu).max() < 1e-2
    assert np.abs(by_S * found.S).max() < 1e-2


def test_a_row_that_misses_all_keeps_the_prior(fitted):
    posterior, training, Y = fitted
    rows = Y[:3].copy()
    rows[1] = np.nan
    found = embed(posterior, training, rows)
    np.testing.assert_array_equal(found.mu[1], 0.0)
    np.testing.assert_array_equal(found.S[1], 1.0)
    assert found.bound[1] == 0.0


def test_no_bit_of_a_row_depends_on_the_others_or_on_threads(fitted):
    posterior, training, Y = fitted
    Y = Y.copy()
    Y[::3, 1] = np.nan
    whole = embed(posterior, training, Y)
    for part in (embed(posterior, training, Y[11:14]), embed(posterior, training, Y, threads=2)):
        rows = slice(11, 14) if len(part.bound) == 3 else slice(None)
        for name, values in part._asdict().items():
            np.testing.assert_array_equal(values, getattr(whole, name)[rows], err_msg=name)
