"""Sums of kernels in the GPLVM: quadrature, complex steps, regression at certain inputs, and probabilistic PCA."""

from __future__ import annotations

import pickle
from functools import cache, partial

import numpy as np
import pytest

from mpigp.errors import InputError
from mpigp.gp.embedding import candidates, embed
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import model_of
from mpigp.kernels.registry import backend_of
from tests.support.compositions import (
    BOUNDS,
    LATENT,
    Composition,
    assert_close,
    assert_gradients,
    complex_steps,
    evaluate,
    latent_bounds,
    log_density,
    make,
    quadrature,
)
from tests.support.problems import GLOBALS, Problem

NODES = 30
"""Of the quadrature, in each dimension: with c = 2 α S ≤ 0.9 the error falls as (c / (2 + c))^nodes, to rounding."""

KERNELS = {text: Composition(terms, q) for text, (q, terms) in LATENT.items()}
every = pytest.mark.parametrize("text", KERNELS)
bounds = pytest.mark.parametrize("bound", BOUNDS)
missing = pytest.mark.parametrize("holes", [False, True], ids=["whole", "missing"])


def problem_of(text: str, holes: bool = False) -> Problem:
    """Return a problem; with one dimension it is of two chunks. Holes make three groups of outputs, two of one."""
    n = 70 if KERNELS[text].q == 1 else 20
    mu, Y, parameters = make(KERNELS[text], n, 5, 4)
    if holes:
        Y[: n // 3, 0] = Y[n // 4 : n // 2, 2] = np.nan
    return Problem(mu, np.random.default_rng(7).uniform(0.02, 0.3, size=mu.shape), Y, parameters)


def entries_of(mu: np.ndarray) -> list[tuple[int, int]]:
    """Return the first row, the last, and some others, which have holes or not."""
    n, q = mu.shape
    return [(row, column) for row in (0, n // 3, n // 2 - 1, n - 1) for column in range(q)]


@cache
def by_definition(text: str, holes: bool, jitter: float) -> tuple[Problem, np.ndarray, dict[str, np.ndarray]]:
    """Return a problem, its three bounds (3,), and their gradients (3, ...) by name, of mu and S by some entries."""
    problem = problem_of(text, holes)
    mu, S, Y, parameters = problem
    function = partial(latent_bounds, KERNELS[text], nodes=NODES)
    values = {"mu": mu, "S": S, "Y": Y, **parameters._asdict(), "jitter": jitter}
    gradients = {name: complex_steps(function, values, name) for name in GLOBALS}
    gradients |= {name: complex_steps(function, values, name, entries_of(mu)) for name in ("mu", "S")}
    return problem, function(**values), gradients


@missing
@bounds
@every
def test_bound_and_gradients_are_those_of_quadrature(text: str, bound: str, holes: bool) -> None:
    jitter = 1e-3
    problem, values, gradients = by_definition(text, holes, jitter)
    result, number = evaluate(model_of("gplvm", text, bound), *problem, jitter).result, BOUNDS.index(bound)
    # 1e-16 times the condition number of K_mm, 1e5 at most, once more for that of K_mm + βΨ2 beside it.
    assert result.bound == pytest.approx(values[number], rel=1e-10)
    assert_gradients(result, {name: gradients[name][number] for name in GLOBALS}, 1e-9)
    places = tuple(np.transpose(entries_of(problem.mu)))
    for name, found in (("mu", result.by_mu), ("S", result.by_S)):
        assert_close(found[places], gradients[name][number], 1e-9, name)


def test_more_nodes_change_nothing() -> None:
    """The quadrature is exact to rounding, of polynomials times Gaussians."""
    for text in ("rbf + linear + bias", "rbf[0] + rbf[1] + linear + bias"):
        mu, S, Y, parameters = problem_of(text)
        found = [latent_bounds(KERNELS[text], mu, S, Y, *parameters, 1e-3, nodes) for nodes in (NODES, NODES + 15)]
        np.testing.assert_allclose(*found, rtol=1e-12)


@bounds
@every
def test_certain_inputs_make_it_regression(text: str, bound: str) -> None:
    """As S → 0, the bound without its KL: by the formulas of ψ on one side, and compiled loops on the other."""
    mu, Y, parameters = make(KERNELS[text], 150, 6, 3)
    S = np.full_like(mu, 1e-9)
    latent = evaluate(model_of("gplvm", text, bound), mu, S, Y, parameters, 1e-3).result
    regression = evaluate(model_of("regression", text, bound), mu, None, Y, parameters, 1e-3).result
    divergence = 0.5 * (S + mu**2 - 1 - np.log(S)).sum()
    # The variances move ψ by 1e-9 of it, times curvatures of order one, and the divergence is some thousand nats.
    assert latent.bound + divergence == pytest.approx(regression.bound, rel=1e-7)
    assert_gradients(latent, regression.gradients(), 1e-6)


# Predictions: mean E m(x), variance E v(x) + Var m(x), over x ~ N(μ, S)


@pytest.mark.parametrize(("model", "holes"), [("regression", False), ("gplvm", False), ("gplvm", True)])
@every
def test_predictions_at_uncertain_inputs_are_averages(text: str, model: str, holes: bool) -> None:
    problem = problem_of(text, holes)
    posterior = evaluate(model_of(model, text), *problem, 1e-3).posterior
    rng, q, d = np.random.default_rng(5), KERNELS[text].q, problem.Y.shape[1]
    X, S = 1.5 * rng.normal(size=(6, q)), rng.uniform(0.01, 0.3, size=(6, q))
    found = posterior.predict_uncertain(X, S)
    grid, probability = quadrature(q, NODES)
    for row in range(len(X)):
        mean, variance, _ = posterior.predict(X[row] + np.sqrt(S[row]) * grid)
        average = probability @ mean
        spread = probability @ (mean - average) ** 2
        variance = np.broadcast_to(variance.reshape(len(grid), -1), (len(grid), d))
        # Differences of moments of size one to ten: 1e-14 times the weights of means, some tens.
        np.testing.assert_allclose(found.mean[row], average, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.variance[row], probability @ variance + spread, rtol=1e-8, atol=1e-10)


@missing
@pytest.mark.parametrize("text", ["rbf + linear", "linear", "rbf[0] + rbf[1] + linear + bias"])
def test_new_rows_are_embedded_where_their_bound_is_largest(text: str, holes: bool) -> None:
    """The bound of a row is E log N(y; f, 1/β) − KL by predicted moments, and no step along an axis improves it."""
    mu, S, Y, parameters = problem_of(text)
    S = np.full_like(S, 0.05)
    posterior = evaluate(model_of("gplvm", text), mu, S, Y, parameters, 1e-3).posterior
    new = Y[:12] + 0.1
    if holes:
        new[::2, 1] = new[1::3, :2] = np.nan
    found = embed(posterior, candidates(mu, S), new)

    def bound(mu: np.ndarray, S: np.ndarray) -> np.ndarray:
        predicted, there = posterior.moments(mu, S), np.isfinite(new)
        variance = np.broadcast_to(predicted.variance.reshape(len(new), -1), new.shape)
        square = np.where(there, (np.nan_to_num(new) - predicted.mean) ** 2 + variance, 0.0).sum(axis=1)
        likelihood = 0.5 * there.sum(axis=1) * np.log(parameters.beta / (2 * np.pi)) - 0.5 * parameters.beta * square
        return likelihood - 0.5 * (S + mu**2 - 1 - np.log(S)).sum(axis=1)

    best = bound(found.mu, found.S)
    np.testing.assert_allclose(found.bound, best, rtol=1e-9, atol=1e-9)  # squares, and weights, of some tens
    for column in range(mu.shape[1]):
        for sign in (-1, 1):
            step = np.zeros(mu.shape[1])
            step[column] = 0.01 * sign  # where the bound falls by 1e-4 times its curvature, at least that of the KL
            assert (bound(found.mu + step, found.S) < best - 1e-5).all()
            assert (bound(found.mu, found.S * np.exp(step)) < best - 1e-6).all()


# PCA. With the kernel `linear` the function is f(x) = Wᵀx with w_j ~ N(0, diag α) for each output j, and q points or
# more determine W: the trace term vanishes, and F is the variational bound of Bayesian PCA, maximized over q(W).


JITTER, UNEXPLAINED = 1e-7, 3e-4
"""The jitter leaves 1e-7 of the kernel's scale, four at most, unexplained, times β n d = 320 and weights of order one.
Less jitter would be worse: Ψ2, rounded by 1e-16, is whitened by its inverse (`GPLVM.rounding`)."""


def weights_of_pca(mu, S, y, alpha, beta) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the precision of the best q(w) = N(w | ., .) of one output, of rows that have it."""
    precision = np.diag(1 / alpha) + beta * (mu.T @ mu + np.diag(S.sum(axis=0)))
    return beta * np.linalg.solve(precision, mu.T @ y), precision


def bound_of_pca(mu, S, Y, alpha, beta) -> float:
    """Return max over q(W) of E log p(Y | X, W) − KL(q(W) ‖ p(W)) − KL(q(X) ‖ p(X)), missing entries left out."""
    total = -0.5 * (S + mu**2 - 1 - np.log(S)).sum()
    for y in Y.T:
        there = np.isfinite(y)
        mean, precision = weights_of_pca(mu[there], S[there], y[there], alpha, beta)
        determinants = -np.linalg.slogdet(precision)[1] - np.log(alpha).sum()
        square = -beta * (y[there] ** 2).sum() + mean @ precision @ mean
        total += 0.5 * (there.sum() * np.log(beta / (2 * np.pi)) + determinants + square)
    return total


@missing
@bounds
@pytest.mark.parametrize("m", [2, 5])
def test_linear_is_variational_bayesian_pca(m: int, bound: str, holes: bool) -> None:
    mu, S, Y, parameters = problem_of("linear", holes)
    Z = np.concatenate([2 * np.eye(2), parameters.Z])[:m]
    parameters = parameters._replace(Z=Z, variance=1.0)
    result = evaluate(model_of("gplvm", "linear", bound), mu, S, Y, parameters, JITTER).result
    expected = bound_of_pca(mu, S, Y, parameters.alpha, parameters.beta)
    assert result.bound == pytest.approx(expected, abs=UNEXPLAINED)


@bounds
def test_linear_with_bias_is_variational_bayesian_pca_with_a_mean(bound: str) -> None:
    mu, S, Y, _ = problem_of("linear")
    Y = Y + 1
    alpha, beta = np.array([0.7, 1.2, 2.0]), 4.0
    Z = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 1.0]])
    found = evaluate(model_of("gplvm", "linear + bias", bound), mu, S, Y, Globals(Z, 1.0, alpha, beta), JITTER).result
    certain = np.full((len(mu), 1), 1e-100)  # the input 1 of the weights that are the mean
    wider = np.column_stack([mu, np.ones(len(mu))]), np.column_stack([S, certain])
    expected = bound_of_pca(*wider, Y, alpha, beta) - 0.5 * np.log(certain).sum()  # that is no latent point: without KL
    assert found.bound == pytest.approx(expected, abs=UNEXPLAINED)


def pca_likelihood(Y: np.ndarray, W: np.ndarray, beta: float) -> float:
    """Return log Π N(y_i | 0, WᵀW + I/β), W (q, d)."""
    return log_density(Y.T, W.T @ W + np.eye(Y.shape[1]) / beta)


def test_linear_lies_between_limits_by_the_likelihood_of_ppca() -> None:
    """F ≤ log ∫ p(Y | W) p(W) dW ≤ max p(Y | W), which Tipping and Bishop (1999) have in closed form.

    From below: at that W, whose rows are orthogonal, the exact posterior of X has diagonal covariances, and is q(X).
    Then F is at least what q(W) = N(W, Σ) gives, log p(Y | W) − β d/2 tr ΣB − KL(q(W) ‖ p(W)) with B = Σ ⟨xxᵀ⟩.
    """
    rng, n, d, q, beta = np.random.default_rng(2), 400, 5, 2, 10.0
    Y = rng.normal(size=(n, q)) * [2.0, 1.0] @ rng.normal(size=(q, d)) + rng.normal(size=(n, d)) / np.sqrt(beta)
    values, vectors = np.linalg.eigh(Y.T @ Y / n)
    excess = values[::-1][:q] - 1 / beta
    assert (excess > 0).all()
    W = np.sqrt(excess)[:, None] * vectors[:, ::-1][:, :q].T
    likelihood = pca_likelihood(Y, W, beta)
    for other in (1.01 * W, W + 0.01 * rng.normal(size=W.shape), W[::-1] * 0.9):
        assert pca_likelihood(Y, other, beta) < likelihood
    S = np.tile(1 / (1 + beta * excess), (n, 1))
    mu, alpha = beta * S * (Y @ W.T), (W**2).mean(axis=1)
    B = mu.T @ mu + np.diag(S.sum(axis=0))
    Sigma = np.linalg.inv(np.diag(1 / alpha) + beta * B)
    spread = 0.5 * beta * d * np.trace(Sigma @ B)
    shared = np.trace(Sigma / alpha) - q + np.log(alpha).sum() - np.linalg.slogdet(Sigma)[1]
    divergence = 0.5 * (d * shared + (W**2 / alpha[:, None]).sum())
    parameters = Globals(2 * np.eye(q), 1.0, alpha, beta)
    for bound in BOUNDS:
        found = evaluate(model_of("gplvm", "linear", bound), mu, S, Y, parameters, JITTER).result.bound
        slack = 10 * JITTER * beta * B.trace() * d  # of what the jitter leaves unexplained
        assert likelihood - spread - divergence - slack <= found <= likelihood
    assert spread + divergence < 0.03 * abs(likelihood)


def test_linear_with_one_dimension_is_below_the_evidence_and_stops_at_its_maximum() -> None:
    """The evidence log ∫ p(Y | w) p(w) dw of two outputs by quadrature; q(X) by the updates of variational PCA."""
    rng, n, beta, alpha = np.random.default_rng(3), 12, 3.0, np.array([1.5])
    Y = rng.normal(size=(n, 1)) @ np.array([[1.2, -0.8]]) + rng.normal(size=(n, 2)) / np.sqrt(beta)
    axis = np.linspace(-8, 8, 401)  # beyond 6 standard deviations of the prior: nothing is left
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    # |wwᵀ + I/β| and its inverse by the lemmas for rank one
    square = (w**2).sum(axis=1)
    likelihood = -n * np.log(2 * np.pi) - 0.5 * n * (np.log1p(beta * square) - 2 * np.log(beta))
    likelihood -= 0.5 * beta * ((Y**2).sum() - beta * ((w @ Y.T) ** 2).sum(axis=1) / (1 + beta * square))
    prior = -np.log(2 * np.pi * alpha[0]) - 0.5 * square / alpha[0]
    evidence = np.logaddexp.reduce(likelihood + prior) + 2 * np.log(axis[1] - axis[0])
    assert likelihood[1000] == pytest.approx(pca_likelihood(Y, w[1000:1001], beta), rel=1e-12)
    mu, S = 0.5 * rng.normal(size=(n, 1)), np.full((n, 1), 0.5)
    parameters, model, found = Globals(np.array([[2.0]]), 1.0, alpha, beta), model_of("gplvm", "linear"), []
    for _ in range(100):
        found.append(result := evaluate(model, mu, S, Y, parameters, JITTER).result)
        means, precisions = zip(*(weights_of_pca(mu, S, y, alpha, beta) for y in Y.T), strict=True)
        second = sum(m @ m + 1 / p[0, 0] for m, p in zip(means, precisions, strict=True))
        S = np.full((n, 1), 1 / (1 + beta * second))
        mu = beta * S * (Y @ np.array(means))
    values = np.array([each.bound for each in found])
    assert (np.diff(values) > -1e-9).all()  # each update is a maximum over a part of q
    assert values[-1] > values[0] + 1
    assert values[-1] < evidence - np.log(2) + 1e-9 and values[-1] > evidence - 4  # w and −w are alike, and q has one
    assert np.abs(result.by_mu).max() < 1e-6 and np.abs(result.by_S).max() < 1e-6


# Backends, and refusals


@pytest.mark.parametrize("text", ["rbf + linear", "rbf[1] * rbf[0] + linear[1]"])
def test_a_backend_can_be_pickled(text: str) -> None:
    backend, Z, theta = backend_of(text, latent=True), np.eye(2), KERNELS[text].parameters(np.random.default_rng(1))
    again = pickle.loads(pickle.dumps(backend))
    assert again.name == backend.name
    assert again.covariance(Z, Z, theta).tobytes() == backend.covariance(Z, Z, theta).tobytes()
    assert_close(backend.scale(theta, 2) * again.covariance(Z, Z, theta), KERNELS[text].matrix(Z, Z, theta), 1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rbf * linear", "linear stands in a product"),
        ("rbf + linear * linear", "linear stands in a product"),
        ("rbf * bias", "bias stands in a product"),
        ("rbf * rbf", "this rbf shares dimensions with one before it"),
        ("linear + rbf[0:2] * rbf[1]", "this rbf shares dimensions with one before it"),
        ("matern32", "matern32 has no psi statistics"),
        ("rbf + matern12[0]", "matern12 has no psi statistics"),
        ("rq", "rq has no psi statistics"),
        ("periodic[0] + linear", "periodic has no psi statistics"),
    ],
)
def test_what_has_no_psi_statistics_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model_of("gplvm", text)
    assert not backend_of(text).latent
    model_of("regression", text)


def test_a_gplvm_has_at_most_sixteen_parts_too() -> None:
    with pytest.raises(InputError, match="has 17 parts: give at most 16"):
        model_of("gplvm", " + ".join(["bias"] * 17))
