"""The bounds `sphere` and `rows`: between Titsias' and the evidence, with the gradients of their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp import native
from mpigp.chunks import chunk_count, chunk_rows
from mpigp.gp.bound import BOUNDS, largest_bound
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import Model, model_of
from mpigp.kernels.registry import backend_of
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows, find_patterns
from mpigp.numerics.threads import Part
from tests.gp.test_accuracy import PROMISED, line
from tests.gp.test_bound import bits, evidence
from tests.gp.test_gradients import SHAPES, check
from tests.support import precise, reference
from tests.support.problems import (
    GLOBALS,
    Problem,
    change,
    evaluate,
    evaluate_on_ranks,
    make,
    reference_of,
    time_limit,
)

TIGHTER = [model_of(name, bound=bound) for name in ("regression", "gplvm") for bound in BOUNDS[1:]]
tighter = pytest.mark.parametrize("model", TIGHTER, ids=lambda model: f"{model.name}-{model.bound}")
names = pytest.mark.parametrize("name", ["regression", "gplvm"])


def all_bounds(name: str, problem: Problem, jitter: float) -> list[float]:
    """Return F_titsias, F_sphere and F_rows."""
    return [evaluate(model_of(name, bound=bound), *problem, jitter).bound for bound in BOUNDS]


def one_dimensional(n: int = 120, m: int = 8, seed: int = 0) -> Problem:
    """Return noisy outputs of one input with a gap, in which `rows` differs much from `sphere`."""
    rng = np.random.default_rng(seed)
    X = np.sort(np.concatenate([rng.uniform(0, 2.5, n // 2), rng.uniform(4, 6, n - n // 2)]))[:, None]
    Y = np.sin(2 * X) + 0.3 * np.sin(7 * X) + 0.2 * rng.normal(size=(n, 1))
    Z = np.linspace(0, 2.5, m)[:, None]
    return Problem(X, np.full_like(X, 0.01), Y, Globals(Z, 0.8, np.array([4.0]), 25.0))


# the value


@tighter
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (5, 1, 2, 1), (65, 7, 3, 2), (130, 9, 2, 1), (200, 13, 4, 5)], ids=str)
@pytest.mark.parametrize("beta", [1e-2, 4.0, 1e4])
def test_it_agrees_with_its_definition(model, shape, beta):
    problem = change(make(*shape), beta=beta)
    function, values = reference_of(model, problem, 1e-4)
    # Condition numbers up to 1e5 times 1e-16, in the reference too.
    assert evaluate(model, *problem, 1e-4).bound == pytest.approx(function(**values), rel=1e-10)


@pytest.mark.parametrize(
    "problem",
    [*(change(make(60, m, 2, d, seed=m), beta=beta) for m, d in ((2, 1), (5, 3), (30, 1)) for beta in (0.1, 4.0, 1e3)),
     one_dimensional(), one_dimensional(m=20)],
    ids=lambda problem: f"{problem.parameters.Z.shape}-{problem.parameters.beta}",
)  # fmt: skip
def test_each_lies_between_the_one_before_and_the_evidence(problem):
    _, variance, alpha, beta = problem.parameters
    titsias, sphere, rows = all_bounds("regression", problem, 1e-8)
    exact = evidence(problem.mu, problem.Y, variance, alpha, beta)
    slack = 1e-11 * abs(titsias)  # rounding
    assert titsias <= sphere + slack and sphere <= rows + slack and rows <= exact + slack
    assert sphere - titsias > 1e-3 * (exact - titsias) or exact - titsias < 1e-2  # they are tighter, not the same


def test_rows_is_much_tighter_where_inducing_points_miss_some_rows():
    problem = one_dimensional()
    titsias, sphere, rows = all_bounds("regression", problem, 1e-8)
    assert sphere - titsias > 10 and rows - sphere > 10


@pytest.mark.parametrize("seed", range(3))
def test_those_of_the_gplvm_stay_below_the_expected_evidence(seed):
    """F + KL ≤ ⟨log p(Y | X)⟩ under q(X), of which draws give the mean to within its standard error."""
    problem = make(7, 3, 2, 2, seed)
    mu, S, Y, (_, variance, alpha, beta) = problem
    titsias, sphere, rows = all_bounds("gplvm", problem, 1e-8)
    assert titsias < sphere < rows
    rng = np.random.default_rng(seed)
    draws = [evidence(mu + np.sqrt(S) * rng.normal(size=mu.shape), Y, variance, alpha, beta) for _ in range(2000)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert rows + reference.divergence(mu, S) <= np.mean(draws) + 4 * error


def test_at_the_inducing_points_of_all_rows_all_are_the_evidence():
    problem = make(40, 40, 2, 2)
    problem = change(problem, Z=problem.mu.copy())
    _, variance, alpha, beta = problem.parameters
    exact = evidence(problem.mu, problem.Y, variance, alpha, beta)
    for found in all_bounds("regression", problem, 1e-9):
        assert found == pytest.approx(exact, abs=1e-4)  # what the jitter takes: test_bound.py has its limit


@names
def test_without_signal_all_are_the_same(name):
    """v = 1 − s y + …, so the bounds differ by n d (s y)²/4 at most."""
    problem = change(make(65, 5, 2, 2), beta=1e-9)
    titsias, sphere, rows = all_bounds(name, problem, 1e-6)
    assert sphere == pytest.approx(titsias, rel=1e-14) and rows == pytest.approx(titsias, rel=1e-14)


@tighter
@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e6, 1e12])
def test_it_stays_below_that_of_noise_alone(model, beta):
    problem = change(make(60, 12, 2, 3), beta=beta)
    rows = Rows(MPI.COMM_SELF, 60, problem.mu.copy(), None, np.zeros((60, 3)))
    assert evaluate(model, *problem, 1e-6).bound <= largest_bound(rows.groups, beta)


# the gradients


@tighter
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_agree_with_complex_steps(model, shape):
    check(model, make(*shape), 1e-6)


@tighter
@pytest.mark.parametrize("beta", [1e-4, 1e2, 1e4])
def test_gradients_hold_at_any_noise(model, beta):
    check(model, change(make(65, 7, 2, 2), beta=beta), 1e-4, tolerance=1e-7)


@pytest.mark.parametrize("bound", BOUNDS[1:])
@pytest.mark.parametrize("shape", [(9, 1, 1, 1), (20, 4, 2, 3)], ids=str)
def test_the_precise_arithmetic_is_that_of_the_definition(shape, bound):
    function, values = reference_of(model_of("regression", bound=bound), make(*shape), 1e-3)
    found, gradient = precise.regression(**values, bound=bound)
    assert found == pytest.approx(function(**values), rel=1e-12)
    for name, value in gradient.items():
        expected = reference.complex_step(function, values, name)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-11 * np.abs(expected).max(), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS[1:])
@pytest.mark.parametrize("case", PROMISED, ids=str)
def test_they_keep_the_digits_that_titsias_bound_does(case, bound):
    problem, model = line(case), model_of("regression", bound=bound)
    found = evaluate(model, *problem, case.jitter)
    _, values = reference_of(model, problem, case.jitter)
    exact, gradient = precise.regression(**values, bound=bound)
    assert found.jitter == case.jitter
    assert found.bound == pytest.approx(exact, rel=1e-9)
    for name, expected in gradient.items():
        error = np.abs(found.gradients()[name] - expected).max() / np.abs(expected).max()
        assert error <= 1e-5, name


# missing entries


def with_holes(model: Model, mu, S, Y, parameters: Globals) -> tuple[float, dict[str, np.ndarray]]:
    rows = Rows(MPI.COMM_SELF, len(Y), np.array(mu), np.array(S), np.nan_to_num(Y), find_patterns(MPI.COMM_SELF, Y))
    found = Evaluator(MPI.COMM_SELF, model, rows, *parameters.Z.shape)(parameters, 1e-6)
    return found.bound, {name: np.asarray(getattr(found.gradient, name)) for name in GLOBALS} | rows.gradients


@pytest.mark.parametrize("bound", BOUNDS[1:])
def test_each_group_of_outputs_has_its_own_rows(bound):
    """Entries that are missing take no part: the sum over outputs of the bounds of the rows that have them."""
    model = model_of("gplvm", bound=bound)
    mu, S, Y, parameters = make(40, 5, 2, 4)
    Y[np.random.default_rng(0).random(Y.shape) < 0.3] = np.nan
    Y[:, 2] = np.where(np.isnan(Y[:, 1]), np.nan, Y[:, 2])
    Y[np.isnan(Y[:, 2]), 1] = np.nan  # one group of two outputs
    Y[7] = np.nan  # and a row without any
    found, gradients = with_holes(model, mu, S, Y, parameters)

    def expected(mu, S, **values):
        total = -reference.divergence(mu, S)
        for j in range(4):
            there = ~np.isnan(Y[:, j])
            total += reference.divergence(mu[there], S[there])
            total += reference.gplvm_bound(mu[there], S[there], Y[there, j, None], jitter=1e-6, bound=bound, **values)
        return total

    values = {"mu": mu, "S": S, **parameters._asdict()}
    assert found == pytest.approx(expected(**values), rel=1e-11)
    for name, value in gradients.items():
        by = reference.complex_step(expected, values, name)
        np.testing.assert_allclose(value, by, rtol=0, atol=1e-8 * np.abs(by).max(), err_msg=name)


# the same bits


@tighter
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (65, 4, 2, 1), (700, 9, 3, 2), (9001, 6, 2, 1)], ids=str)
def test_any_split_at_chunk_borders_gives_the_same_integers_and_bits(model, shape):
    problem, n = make(*shape), shape[0]
    whole = bits(evaluate(model, *problem, 1e-6))
    _, words = evaluate_on_ranks(model, problem, 1e-6, [0, n, n])
    rng = np.random.default_rng(n)
    for ranks in (2, 3, 5):
        cuts = np.sort(rng.integers(0, chunk_count(n) + 1, size=ranks - 1)) * chunk_rows(n)
        result, split_words = evaluate_on_ranks(model, problem, 1e-6, [0, *np.minimum(cuts, n), n], threads=2)
        for mine, theirs in zip(split_words, words, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert bits(result) == whole


@tighter
def test_an_evaluation_repeats_its_bits(model):
    mu, S, Y, parameters = make(300, 9, 2, 2)
    rows = Rows(MPI.COMM_SELF, 300, mu, None if model.name == "regression" else S, Y)
    evaluator = Evaluator(MPI.COMM_SELF, model, rows, 9, 2)
    first, _, second = (evaluator(parameters._replace(beta=beta), 1e-6) for beta in (4.0, 7.0, 4.0))
    assert first.bound == second.bound
    assert first.gradient.pack().tobytes() == second.gradient.pack().tobytes()


# where there is no value


@tighter
@pytest.mark.parametrize("jitter", [0.0, 1e-18])
def test_inducing_points_twice_in_one_place_grow_the_jitter(model, jitter):
    problem = make(65, 6, 2, 2)
    Z = problem.parameters.Z.copy()
    Z[1] = Z[0]
    with time_limit(5):
        result = evaluate(model, *change(problem, Z=Z), jitter)
    assert jitter < result.jitter <= 1e-6
    without = evaluate(model, *change(problem, Z=Z[1:].copy()), 1e-12)
    # The GPLVM whitens what is rounded already: each c_i has an error of 1e-16 / jitter at most.
    error = 0.5 * 1e-16 / result.jitter * 65 * 2 * problem.parameters.beta * problem.parameters.variance
    assert result.bound == pytest.approx(without.bound, rel=1e-6, abs=error if model.name == "gplvm" else 0.0)


@pytest.mark.parametrize("backend", ["rbf", "matern52"])
@pytest.mark.parametrize("c", [0.0, 0.3, 1 - 1e-9, 1.0, 1 + 1e-9, 1.3])
def test_a_row_that_rounding_takes_above_its_variance_has_titsias_term(backend, c):
    """There it continues the other with the same slope. One inducing point, at the row: K = 1, and c is the square of
    what is given as L⁻¹."""
    s, d, y = 7.0, 2, 1 - c
    weights, scale = np.full(1, np.nan), np.full(1 + d + 2, 2.0**40)
    accumulators = np.zeros(len(scale), np.int64)
    points = native.Kernel(np.zeros((1, 1)), np.zeros(1), np.ones(1))
    rows = native.Rows(np.zeros((1, 1)), None, np.ones((1, d)), 64, 1, None, np.full(1, float(d)), weights)
    part = Part(0, 1, accumulators, scale, np.empty(native.workspace(1, 1, d)))
    backend_of(backend).regression_statistics(points, rows, np.full((1, 1), np.sqrt(c)), s, part)
    value, slope = accumulators[-2:] / 2.0**40
    v = 1 / (1 + s * y) if y > 0 else 1.0
    assert value == pytest.approx(d * np.log1p(s * y) / s if y > 0 else d * y, abs=1e-11)  # 2⁻⁴⁰
    assert slope == pytest.approx(d * v * y, abs=1e-11)
    assert weights[0] == pytest.approx(s * d * (1 - v), abs=1e-12)
