"""Composed kernels in regression: the dense n × n formula, exact GPs, linear regression, limits, and refusals."""

from __future__ import annotations

import pickle
from functools import cache, partial

import numpy as np
import pytest
from mpi4py import MPI

from mpigp import native
from mpigp.errors import InputError
from mpigp.fit.start.inducing import greedy
from mpigp.gp import statistics as models
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import Inducing, model_of
from mpigp.kernels.expression import KINDS, parse
from mpigp.kernels.registry import backend_of, canonical
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.rows import Rows
from tests.support.compositions import (
    BOUNDS,
    COMPOSED,
    EVERYTHING,
    REGRESSIONS,
    SINGLE,
    Composition,
    Data,
    Q,
    Terms,
    assert_close,
    assert_gradients,
    complex_steps,
    evaluate,
    gram,
    log_density,
    make,
    pivots,
    regression_bounds,
)
from tests.support.problems import GLOBALS, Result

KERNELS = {text: Composition(terms, Q) for text, terms in REGRESSIONS.items()}
FULL_RANK = [text for text, kernel in KERNELS.items() if kernel.full_rank]
LOW_RANK = [text for text in KERNELS if text not in FULL_RANK]
every = pytest.mark.parametrize("text", KERNELS)
full_rank = pytest.mark.parametrize("text", FULL_RANK)
bounds = pytest.mark.parametrize("bound", BOUNDS)


def evaluated(text: str, bound: str, data: Data, jitter: float) -> Result:
    """Return what the engine finds, at the jitter given."""
    result = evaluate(model_of("regression", text, bound), data.X, None, *data[1:], jitter).result
    assert result.jitter == jitter
    return result


def changed(data: Data, **parameters: object) -> Data:
    """Return the same rows at other parameters."""
    return data._replace(parameters=data.parameters._replace(**parameters))


def by_definition(kernel: Composition, data: Data, jitter: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the three bounds (3,) of the dense formula, and their gradients (3, ...) by name, by complex steps."""
    function = partial(regression_bounds, kernel)
    values = {"X": data.X, "Y": data.Y, **data.parameters._asdict(), "jitter": jitter}
    return function(**values), {name: complex_steps(function, values, name) for name in GLOBALS}


def check(text: str, bound: str, data: Data, jitter: float, expected: tuple, tolerances: tuple[float, float]) -> None:
    """Compare a bound, and its gradients each in its largest norm, with those by definition."""
    result, number = evaluated(text, bound, data, jitter), BOUNDS.index(bound)
    assert result.bound == pytest.approx(expected[0][number], rel=tolerances[0])
    assert_gradients(result, {name: each[number] for name, each in expected[1].items()}, tolerances[1])


def test_every_kind_stands_alone_and_with_others() -> None:
    assert set(SINGLE) == set(KINDS)
    assert {kind for terms in COMPOSED.values() for term in terms for kind, _ in term} == set(KINDS)


@every
def test_the_parameters_have_the_order_that_is_documented(text: str) -> None:
    kernel, backend = KERNELS[text], backend_of(text)
    found = [(each.kind, each.name, each.column) for each in backend.named_parameters(Q)]
    assert found == ([] if kernel.single else kernel.named)
    assert backend.parameters(Q) == kernel.p and backend.composed != kernel.single
    theta = kernel.parameters(np.random.default_rng(0))
    assert backend.scale(theta, Q) == pytest.approx(kernel.scale(theta), rel=1e-15)


@every
def test_the_covariance_times_its_scale_is_the_kernel(text: str) -> None:
    kernel, backend, (X, _, parameters) = KERNELS[text], backend_of(text), make(KERNELS[text], 70, 9, 1)
    theta = parameters.alpha
    scale = kernel.scale(theta)
    # An exponential is good to 4e-16, and what it is of, some tens at most, to its last digit.
    assert_close(scale * backend.covariance(parameters.Z, X, theta), kernel.matrix(parameters.Z, X, theta), 1e-14)
    assert_close(scale * backend.diagonal(X, None, theta), np.diagonal(kernel.matrix(X, X, theta)), 1e-14)


# The dense formula


@cache
def dense(text: str) -> tuple[Data, tuple]:
    """Return a problem of two chunks, at a jitter of 1e-3, and what it gives by definition."""
    data = make(KERNELS[text], 70, 9, 2)
    return data, by_definition(KERNELS[text], data, 1e-3)


@pytest.mark.parametrize("limits", [(0.0, 0.0), (np.inf, 0.0), (np.inf, np.inf)], ids=["whitened", "mixed", "straight"])
@bounds
@every
def test_bound_and_gradients_are_those_of_the_dense_formula(
    text: str, bound: str, limits: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the sums are taken: whitened, or straight from K_mn, whether or not the engine would choose so here."""
    monkeypatch.setattr(models, "MAX_COND_UNWHITENED_GRADIENT", limits[0])
    monkeypatch.setattr(models, "MAX_COND_UNWHITENED_STATISTICS", limits[1])
    data, expected = dense(text)
    # No covariance exceeds some hundreds, and the jitter is 1e-3: the condition number is 1e5 times 1e-16, of products
    # of linear squared where sums are straight. Measured: 1e-11 and 1e-10 at worst, 1e-15 and 1e-14 as a rule.
    check(text, bound, data, 1e-3, expected, (1e-10, 1e-9))


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 2), (63, 5, 1), (64, 8, 2), (65, 4, 3), (130, 17, 1)], ids=str)
def test_all_parts_together_agree_in_any_shape(shape: tuple[int, int, int]) -> None:
    """One of everything; a row more or less than a chunk or a block of rows; points around multiples of 4 and 8."""
    n, m, d = shape
    data = make(KERNELS[EVERYTHING], n, m, d)
    expected = by_definition(KERNELS[EVERYTHING], data, 1e-3)
    for bound in BOUNDS:
        check(EVERYTHING, bound, data, 1e-3, expected, (1e-11, 1e-10))  # as above, without low rank


def inducing_of(text: str, data: Data) -> Inducing:
    """Return the inducing points of a problem."""
    rows = Rows(MPI.COMM_SELF, len(data.X), data.X, None, data.Y)
    return model_of("regression", text).inducing(data.parameters, 1e-6, rows)


@every
def test_points_apart_are_summed_straight_and_agree(text: str) -> None:
    """Or whitened, where K_mm has a lower rank than there are points, or covariances are large."""
    data = changed(make(KERNELS[text], 70, 4, 2), variance=1.0, beta=2.0)
    inducing = inducing_of(text, data)
    assert inducing.unwhitened_gradient or text in LOW_RANK
    assert inducing.unwhitened_statistics or text in LOW_RANK or text.count("linear") > 1
    expected = by_definition(KERNELS[text], data, 1e-6)
    for bound in BOUNDS:  # 1e-16 times a condition number of 1e7, of low rank
        check(text, bound, data, 1e-6, expected, (1e-10, 1e-8))


@full_rank
def test_points_close_together_and_little_noise_are_whitened_and_agree(text: str) -> None:
    data = make(KERNELS[text], 70, 9, 2)
    Z = data.parameters.Z.copy()
    Z[1::2] = Z[:-1:2] + 0.01 * Z[1::2]
    data = changed(data, Z=Z, beta=1e4)
    inducing = inducing_of(text, data)
    assert not inducing.unwhitened_statistics
    expected = by_definition(KERNELS[text], data, 1e-6)
    for bound in BOUNDS:
        # s y of the tighter bounds has 1e4 times the rounding of k(x, x) − Q, itself 1e-16 times the square of weights
        # K_mm⁻¹ K_mn of some hundreds, in the dense formula too. Measured: 6e-11 and 2e-8; 1e-7 is what is promised.
        check(text, bound, data, 1e-6, expected, (1e-9, 1e-7))


def test_gradients_pass_through_a_jitter_that_matters() -> None:
    """Of all parameters that the scale is the sum of; leaving it out of the gradient would show."""
    for text in (EVERYTHING, "linear", "linear[0] * linear[2,1] + rbf"):
        data = make(KERNELS[text], 65, 6, 2)
        expected = by_definition(KERNELS[text], data, 1e-1)
        other = by_definition(KERNELS[text], data, 2e-1)
        assert np.abs(expected[1]["alpha"] - other[1]["alpha"]).max() > 0.1
        for bound in BOUNDS:
            check(text, bound, data, 1e-1, expected, (1e-12, 1e-11))


@pytest.mark.parametrize("kind", ["matern12", "matern32", "matern52", "rq", "periodic"])
@bounds
def test_inducing_points_that_are_rows_have_finite_gradients(kind: str, bound: str) -> None:
    """Where matern12 has no derivative, it is taken to be zero; all others have one, and that of the definition."""
    data = make(KERNELS[kind], 40, 6, 1)
    data = changed(data, Z=data.X[:6].copy())
    result = evaluated(kind, bound, data, 1e-6)
    assert all(np.isfinite(each).all() for each in result.gradients().values())
    if kind in ("rq", "periodic"):  # analytic there; √t of the others is not, though they are smooth
        check(kind, bound, data, 1e-6, by_definition(KERNELS[kind], data, 1e-6), (1e-10, 1e-8))
    if kind in ("matern32", "matern52"):  # whose gradients are continuous
        near = evaluated(kind, bound, changed(data, Z=data.X[:6] + 1e-9), 1e-6)
        assert_gradients(result, near.gradients(), 1e-5)  # they move by 1e-9 times curvatures up to some 1e3


# Exact GPs


def exact_prediction(kernel: Composition, data: Data, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (n, d) and variance (n,) of the exact GP at X."""
    _, variance, theta, beta = data.parameters
    K = variance * kernel.matrix(data.X, data.X, theta) + np.eye(len(data.X)) / beta
    across = variance * kernel.matrix(X, data.X, theta)
    explained = (across * np.linalg.solve(K, across.T).T).sum(axis=1)
    return across @ np.linalg.solve(K, data.Y), variance * kernel(X, X, theta) - explained


@full_rank
def test_at_the_inducing_points_of_all_rows_it_is_the_exact_gp(text: str) -> None:
    kernel, jitter, n, d = KERNELS[text], 1e-11, 40, 2
    data = make(kernel, n, n, d)
    data = changed(data, Z=data.X.copy())
    _, variance, theta, beta = data.parameters
    evidence = log_density(data.Y, variance * kernel.matrix(data.X, data.X, theta) + np.eye(n) / beta)
    # K − Q ⪯ j I with j = jitter σ²: that takes at most β j/2 for each number off the trace term, and β² j/2 Yᵀ Y.
    most = jitter * variance * kernel.scale(theta)
    slack = 0.5 * most * beta * (n * d + beta * (data.Y**2).sum())
    assert slack < 1e-6
    new = 0.7 * np.random.default_rng(1).normal(size=(30, Q))
    mean, function_variance = exact_prediction(kernel, data, new)
    for bound in BOUNDS:
        result, posterior, _ = evaluate(model_of("regression", text, bound), data.X, None, *data[1:], jitter)
        assert result.jitter == jitter
        # Rounding: 1e-12 of the terms of the bound, which are some hundreds.
        assert evidence - slack - 1e-9 <= result.bound <= evidence + 1e-9
        found = posterior.predict(new)
        # The jitter acts as noise of variance j on the inducing values: it changes predictions by β j, times squares of
        # the weights K⁻¹ k, some hundred for smooth kernels. Measured: 160 β j.
        tolerance = {"rtol": 0, "atol": 1000 * beta * most}
        np.testing.assert_allclose(found.mean, mean, **tolerance)
        np.testing.assert_allclose(found.variance, function_variance, **tolerance)
        np.testing.assert_allclose(found.y_variance, function_variance + 1 / beta, **tolerance)


@every
def test_the_bounds_are_in_order_below_the_evidence(text: str) -> None:
    kernel, data = KERNELS[text], make(KERNELS[text], 60, 7, 2)
    _, variance, theta, beta = data.parameters
    evidence = log_density(data.Y, variance * kernel.matrix(data.X, data.X, theta) + np.eye(60) / beta)
    found = [evaluated(text, bound, data, 1e-8).bound for bound in BOUNDS]
    slack = 1e-9 * abs(evidence)  # rounding, of kernels of low rank: there all are equal but for the jitter
    assert found[0] <= found[1] + slack <= found[2] + 2 * slack <= evidence + 3 * slack
    assert found[0] < evidence - 1 or text in LOW_RANK


@every
def test_the_certificate_holds_the_evidence(text: str) -> None:
    kernel, data = KERNELS[text], make(KERNELS[text], 60, 7, 2)
    _, variance, theta, beta = data.parameters
    evidence = log_density(data.Y, variance * kernel.matrix(data.X, data.X, theta) + np.eye(60) / beta)
    model = model_of("regression", text)
    certificate = evaluate(model, data.X, None, *data[1:], 1e-8).certificate
    slack = 1e-9 * abs(evidence)  # rounding, where the rank is low and both ends meet
    assert certificate.lower - slack <= evidence <= certificate.upper + slack
    # The upper end has β²/2 times the squares of residuals for what the jitter leaves unexplained, 1e-4 in all rows.
    assert certificate.upper < evidence + 0.1 or text not in LOW_RANK


def test_joint_draws_have_the_covariance_of_the_posterior() -> None:
    kernel, data = KERNELS["rbf + linear"], make(KERNELS["rbf + linear"], 40, 40, 1)
    data = changed(data, Z=data.X.copy())
    _, variance, theta, beta = data.parameters
    posterior = evaluate(model_of("regression", "rbf + linear"), data.X, None, *data[1:], 1e-9).posterior
    X, count = np.random.default_rng(4).normal(size=(4, Q)) * [[1.0], [1.0], [3.0], [5.0]], 20_000
    draws = posterior.sample(X, count, seed=1)[:, :, 0]
    across, K = variance * kernel.matrix(X, data.X, theta), variance * kernel.matrix(data.X, data.X, theta)
    expected = variance * kernel.matrix(X, X, theta) - across @ np.linalg.solve(K + np.eye(40) / beta, across.T)
    deviations = np.sqrt(np.diagonal(expected))
    # Five standard errors of averages, and of correlations.
    assert np.abs((draws.mean(axis=0) - exact_prediction(kernel, data, X)[0][:, 0]) / deviations).max() < 5 / count**0.5
    found = np.cov(draws.T) / np.outer(deviations, deviations)
    assert np.abs(found - expected / np.outer(deviations, deviations)).max() < 5 * (2 / count) ** 0.5


# Linear regression: with features φ(x) and weights of prior variances v, k(x, x') = Σ v φ(x) φ(x')


def affine(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X, np.ones(len(X))])


def quadratic(X: np.ndarray) -> np.ndarray:
    return np.column_stack([*(X[:, i] * X[:, j] for i in range(2) for j in range(2)), X, np.ones(len(X))])


def quadratic_variances(theta: np.ndarray) -> np.ndarray:
    return np.concatenate([np.outer(theta[:2], theta[2:4]).ravel(), theta[4:]])


LINEAR = {
    "linear + bias": (3, affine, lambda theta: theta, 4),
    "bias + linear": (2, lambda X: affine(X)[:, [2, 0, 1]], lambda theta: theta, 3),
    "linear * linear + linear + bias": (2, quadratic, quadratic_variances, 6),
}


@pytest.mark.parametrize("more", [0, 5], ids=["as many points as functions", "more points"])
@pytest.mark.parametrize("text", LINEAR)
def test_linear_kernels_are_bayesian_linear_regression(text: str, more: int) -> None:
    q, features, variances, functions = LINEAR[text]
    rng, n, d, beta, jitter = np.random.default_rng(0), 80, 2, 5.0, 1e-10
    X = rng.normal(size=(n, q))
    theta = rng.uniform(0.5, 1.5, size=backend_of(text).parameters(q))
    Y = features(X) @ rng.normal(size=(features(X).shape[1], d)) + rng.normal(size=(n, d)) / np.sqrt(beta)
    phi, v = features(X), variances(theta)
    some = 2 * rng.normal(size=(200, q))
    chosen = pivots(
        (features(some) * v) @ features(some).T, functions
    )  # far apart, so that they determine the function
    Z = np.concatenate([some[chosen], rng.normal(size=(more, q))])
    precision = np.diag(1 / v) + beta * phi.T @ phi
    weights = beta * np.linalg.solve(precision, phi.T @ Y)
    logarithms = np.linalg.slogdet(precision)[1] + np.log(v).sum()
    square = beta * (Y**2).sum() - (weights * (precision @ weights)).sum()
    evidence = 0.5 * n * d * np.log(beta / (2 * np.pi)) - 0.5 * d * logarithms - 0.5 * square
    new = features(far := np.concatenate([rng.normal(size=(10, q)), 100 * rng.normal(size=(5, q))]))
    mean, variance = new @ weights, (new * np.linalg.solve(precision, new.T).T).sum(axis=1)
    for bound in BOUNDS:
        model = model_of("regression", text, bound)
        result, posterior, _ = evaluate(model, X, None, Y, Globals(Z, 1.0, theta, beta), jitter)
        # The points determine the functions, but for the jitter: K − Q is some hundred times 1e-10, times β n d.
        assert result.bound == pytest.approx(evidence, abs=1e-4)
        found = posterior.predict(far)
        # The variance is k(x, x), 10³ times it and more, less what is explained.
        np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-6 * np.abs(mean).max())
        np.testing.assert_allclose(found.variance, variance, rtol=1e-5)


# Greedy placement


RANKS = {"linear": 3, "bias": 1, "linear + bias": 4, "linear * linear": 6}


@every
def test_greedy_takes_the_pivots_of_the_kernel(text: str) -> None:
    kernel, rng = KERNELS[text], np.random.default_rng(3)
    X, theta = rng.normal(size=(130, Q)), kernel.parameters(rng)
    m = RANKS.get(text, 15)
    Z = greedy(DistributedRows(MPI.COMM_SELF, len(X), X), m, backend_of(text), theta)
    assert [int(np.flatnonzero((z == X).all(axis=1))[0]) for z in Z] == pivots(np.array(kernel.matrix(X, X, theta)), m)


# Far from the origin, and limits


@pytest.mark.parametrize("text", [text for text in FULL_RANK if "linear" not in text])
@bounds
def test_stationary_kernels_do_not_see_where_the_origin_is(text: str, bound: str) -> None:
    data = make(KERNELS[text], 70, 9, 2)
    # On a grid on which the shift is exact: nothing of the inputs is rounded.
    X, Z = (np.round(each * 2.0**20) / 2.0**20 for each in (data.X, data.parameters.Z))
    near, far = (evaluated(text, bound, changed(data._replace(X=X + o), Z=Z + o), 1e-4) for o in (0.0, 2.0**14))
    # The points' center is rounded, but the same for points and rows, and far from the origin its subtraction is exact:
    # what remains is the rounding of evaluations near by. Measured: 3e-16 and 2e-14.
    assert far.bound == pytest.approx(near.bound, rel=1e-12)
    assert_gradients(far, near.gradients(), 1e-11)


@bounds
def test_rq_of_a_large_shape_is_rbf(bound: str) -> None:
    data = make(KERNELS["rq"], 70, 9, 2)
    weights = data.parameters.alpha[1:4]
    rq = changed(data, alpha=np.append([1.0, *weights], 1e6))
    rbf = changed(data, alpha=weights)
    # (1 + t/2c)^−c is exp(−t/2) but for t²/8c of it, t some tens where it matters least.
    found, expected = evaluated("rq", bound, rq, 1e-4), evaluated("rbf", bound, rbf, 1e-4)
    assert found.bound == pytest.approx(expected.bound, rel=1e-5)
    assert_close(found.gradient.alpha[1:4], expected.gradient.alpha, 1e-4)
    assert_close(found.gradient.Z, expected.gradient.Z, 1e-4)
    assert abs(found.gradient.alpha[4]) < 1e-6 * np.abs(expected.gradient.alpha).max()  # falls as 1/c²


@bounds
def test_periodic_of_a_long_period_is_rbf(bound: str) -> None:
    data = make(KERNELS["periodic"], 70, 9, 2)
    weights, periods = data.parameters.alpha[1:4], np.array([1e5, 2e5, 4e5])
    factors = (np.pi / periods) ** 2
    periodic = changed(data, alpha=np.concatenate([[1.0], weights / factors, periods]))
    rbf = changed(data, alpha=weights)
    # sin²(πu/p) is (πu/p)² but for (πu/p)²/3 of it, 1e-9; the cosines of features, near 1, have 1e-16 times p/π.
    found, expected = evaluated("periodic", bound, periodic, 1e-4), evaluated("rbf", bound, rbf, 1e-4)
    assert found.bound == pytest.approx(expected.bound, rel=1e-9)
    assert_close(found.gradient.Z, expected.gradient.Z, 1e-6)
    by_weights, by_periods = np.split(found.gradient.alpha[1:], 2)
    assert_close(by_weights / factors, expected.gradient.alpha, 1e-6)
    assert_close(by_periods * periods / (-2 * weights), expected.gradient.alpha, 1e-6)


def test_a_period_repeats() -> None:
    """Inputs that are moved by whole periods, each by its own number of them, change nothing."""
    data = make(KERNELS["periodic"], 70, 9, 2)
    periods = np.array([0.5, 1.0, 2.0])
    data = changed(data, alpha=np.concatenate([data.parameters.alpha[:4], periods]))
    moved = data._replace(X=data.X + periods * np.random.default_rng(0).integers(-50, 50, size=data.X.shape))
    near, far = (evaluated("periodic", "titsias", each, 1e-4) for each in (data, moved))
    # Angles up to 2π × 50 round by 1e-13.
    assert far.bound == pytest.approx(near.bound, rel=1e-10)
    assert_close(far.gradient.Z, near.gradient.Z, 1e-9)


@bounds
def test_one_kernel_in_other_words_is_the_same(bound: str) -> None:
    """Products of rbf side by side are one rbf, linear parts of one column add their weights, bias in products is 1."""
    data = make(KERNELS["rbf"], 70, 9, 2)
    v, a, b, c, w = 0.7, 0.5, 1.1, 0.8, 0.6

    def found(text: str, *theta: float) -> float:
        return evaluated(text, bound, changed(data, alpha=np.array(theta)), 1e-3).bound

    def same(one: float, other: float) -> bool:
        return one == pytest.approx(other, rel=1e-12)  # rounding, of terms in another order

    assert same(found("rbf[0] * rbf[1] * rbf[2] + bias", v, a, b, c, w), found("rbf + bias", v, a, b, c, w))
    assert same(found("bias * rbf + bias", v, a, b, c, w), found("rbf * bias + bias", v, a, b, c, w))
    assert same(found("bias + rbf + bias", v, w, a, b, c, v), found("rbf + bias", w, a, b, c, 2 * v))
    assert same(found("rbf[2,0,1] + bias", v, a, b, c, w), found("rbf + bias", v, b, c, a, w))
    assert same(
        found("rbf + linear + linear[1]", v, a, b, c, a, b, c, w), found("rbf + linear", v, a, b, c, a, b + w, c)
    )
    assert same(
        found("rbf + rbf", v, a, b, c, w, a, b, c), found("rbf + bias * rbf", v / 2, a, b, c, w + v / 2, a, b, c)
    )


@pytest.mark.parametrize("text", ["rbf[2,0,1]", "matern32[0:3]", "rbf * bias"])
def test_a_variance_of_its_own_is_that_of_the_model(text: str) -> None:
    """One stationary part by other words is composed: its variance is a parameter, and the same kernel."""
    single = text.partition("[")[0].partition(" ")[0]
    order = [2, 0, 1] if "2,0,1" in text else [0, 1, 2]
    data = changed(make(KERNELS["rbf"], 70, 9, 2), variance=1.7)
    composed = changed(data, variance=1.0, alpha=np.append(1.7, data.parameters.alpha[order]))
    one, other = evaluated(single, "titsias", data, 1e-4), evaluated(text, "titsias", composed, 1e-4)
    assert other.bound == pytest.approx(one.bound, rel=1e-12)
    assert_close(other.gradient.alpha, np.append(one.gradient.variance, one.gradient.alpha[order]), 1e-10)


@pytest.mark.parametrize("terms", [1, 2], ids=["linear", "linear squared"])
def test_one_row_far_from_all_others_costs_no_digits(terms: int) -> None:
    """As an outlier of 30 standard deviations: in double precision the sums are good to 1e-6 nats."""
    kinds: Terms = [[("linear", (0, 1, 2))] * terms, [("rbf", (0, 1, 2))]]
    text, reach = ("linear + rbf", 300.0) if terms == 1 else ("linear * linear + rbf", 30.0)
    kernel, rng = Composition(kinds, 3), np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    X[0] = reach
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(1000, 1))
    Z = X[:20] + 0.1 * rng.normal(size=(20, 3))
    Z[0] = X[0]
    parameters = Globals(Z, 1.0, np.ones(kernel.p), 100.0)
    result = evaluate(model_of("regression", text), X, None, Y, parameters, 1e-6).result
    assert result.bound == pytest.approx(regression_bounds(kernel, X, Y, *parameters, result.jitter)[0], abs=1e-4)


# Backends, and refusals


@pytest.mark.parametrize("text", ["matern32", "rbf + linear", EVERYTHING])
def test_a_backend_can_be_pickled(text: str) -> None:
    backend = backend_of(text)
    again = pickle.loads(pickle.dumps(backend))
    X = np.random.default_rng(0).normal(size=(5, Q))
    theta = KERNELS[text].parameters(np.random.default_rng(1))
    assert again.name == backend.name == str(parse(text))
    assert again.covariance(X, X, theta).tobytes() == backend.covariance(X, X, theta).tobytes()


def test_a_kernel_has_at_most_sixteen_parts() -> None:
    assert native.MAX_FACTORS == 16
    for text in (" + ".join(["bias"] * 17), " * ".join(["rbf"] * 17), "rbf * linear + " * 8 + "bias"):
        with pytest.raises(InputError, match="has 17 parts: give at most 16"):
            backend_of(text)
    kinds: Terms = [[("rbf", (number % 3,))] for number in range(16)]
    text = " + ".join(f"rbf[{number % 3}]" for number in range(16))
    kernel = Composition(kinds, Q)
    data = make(kernel, 65, 5, 1)
    check(text, "titsias", data, 1e-3, by_definition(kernel, data, 1e-3), (1e-11, 1e-9))


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("rbf + linear[3]", None, "there is no column 3: columns are numbered 0 to 2"),
        ("rbf[0:4]", None, "there is no column 3"),
        ("rbf[height]", None, "no column is named 'height': the data have no column names"),
        ("rbf[heigth]", ["width", "height", "age"], "did you mean 'height'"),
        ("rbf[0,0]", None, "column 0 stands twice"),
        ("rbf[1,height]", ["width", "height", "age"], "column 1 stands twice"),
    ],
)
def test_columns_that_are_not_there_are_refused(text: str, names: list[str] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        canonical(text, Q, names)


@pytest.mark.parametrize("text", ["rbf + lineal", "rbf + ", "(rbf + bias) * linear", "matern42", ""])
def test_what_is_no_kernel_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        model_of("regression", text)


def test_gram_of_the_reference_has_its_jitter() -> None:
    """The jitter is relative to the sum of variances and of the weights of a term's first linear part."""
    kernel = Composition([[("rbf", (0,))], [("linear", (0,)), ("linear", (1,))]], 2)
    theta = np.array([2.0, 1.0, 3.0, 5.0])
    assert gram(kernel, np.zeros((1, 2)), 7.0, theta, 0.1) == pytest.approx(7.0 * (2.0 + 0.1 * (2.0 + 3.0)))


@pytest.mark.parametrize("m", [249, 256])
def test_no_number_of_points_reads_memory_that_was_never_written(m: int) -> None:
    """Rows of a multiple of 256 places have one vector more, which no loop sets."""
    rng = np.random.default_rng(0)
    Z, backend = rng.normal(size=(m, 2)), backend_of("rq + matern32")
    points = backend.points(Z, np.zeros(2), np.ones(backend.parameters(2)))
    sums = []
    for _ in range(2):
        sums.append(np.concatenate([each.ravel() for each in native.kernel_gram_gradient(points, np.ones((m, m)))]))
        for _ in range(4):  # memory that is freed here may be the workspace of the next call
            np.full(native.workspace(m, 4, 1, 1, 1, 2), np.nan)
    assert np.isfinite(sums[1]).all() and (sums[0] == sums[1]).all()
