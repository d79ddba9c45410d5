"""The promise of digits: regression where K_mm is almost singular and noise almost absent, against 256-bit arithmetic.

What `precise` computes is the dense n × n formula (Titsias 2009) and its derivatives, by other formulas. In double
precision the dense formula is good to 1e-10 here, and complex steps through it give the gradients to 2e-7.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mpigp.gp import statistics as models
from mpigp.gp.parameters import Globals
from tests.support import precise, reference
from tests.support.problems import REGRESSION, Problem, Result, change, evaluate, make, reference_of

GRADIENTS = ("Z", "alpha", "variance", "beta")


class Case(NamedTuple):
    """Sixty inducing points and 200 rows evenly spaced on [0, width], lengthscale 0.6."""

    width: float
    beta: float
    jitter: float


PROMISED = [Case(width, beta, 1e-8) for width in (10.0, 6.0) for beta in (1e2, 1e4, 1e6)]
OTHERS = [  # either side of where the engine may take its sums, and ∂F/∂K_mn, from K_mn itself; and points closer still
    Case(6.0, 0.07, 1e-6),
    Case(6.0, 0.075, 1e-6),
    Case(6.0, 1.9, 1e-8),
    Case(6.0, 2.1, 1e-8),
    Case(6.0, 190.0, 1e-6),
    Case(6.0, 210.0, 1e-6),
    Case(6.0, 1e6, 1e-6),
    Case(3.0, 1e6, 1e-8),
]


def line(case: Case) -> Problem:
    rng = np.random.default_rng(0)
    X = np.linspace(0, case.width, 200)[:, None]
    Y = np.sin(2 * X) + 0.5 * np.cos(0.7 * X + 1) + 1e-3 * rng.normal(size=(200, 1))
    Z = np.linspace(0, case.width, 60)[:, None]
    return Problem(X, np.empty(0), Y, Globals(Z, 1.0, np.array([0.6**-2]), case.beta))


class Comparison(NamedTuple):
    result: Result
    bound: float
    gradient: dict[str, np.ndarray]
    dense: float


def compare(case: Case) -> Comparison:
    problem = line(case)
    _, values = reference_of(REGRESSION, problem, case.jitter)
    exact = precise.regression(**values)
    return Comparison(
        evaluate(REGRESSION, *problem, case.jitter), *exact, float(reference.dense_regression_bound(**values))
    )


@pytest.fixture(scope="module", params=PROMISED, ids=lambda case: f"[0,{case.width:g}]-beta{case.beta:g}")
def promised(request) -> Comparison:
    return compare(request.param)


def test_the_jitter_asked_for_serves(promised):
    assert promised.result.jitter == 1e-8


def test_the_bound_is_good_to_nine_digits(promised):
    assert promised.result.bound == pytest.approx(promised.bound, rel=1e-9)
    assert promised.result.bound == pytest.approx(promised.dense, rel=1e-9)


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_gradients_are_good_to_five_digits(promised, name):
    expected = promised.gradient[name]
    error = np.abs(promised.result.gradients()[name] - expected).max() / np.abs(expected).max()
    assert error <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_other_noise_and_jitter_keep_the_promise_too(case):
    found = compare(case)
    assert found.result.jitter == case.jitter
    assert found.result.bound == pytest.approx(found.bound, rel=1e-9)
    for name, expected in found.gradient.items():
        error = np.abs(found.result.gradients()[name] - expected).max() / np.abs(expected).max()
        assert error <= 1e-5, name


@pytest.mark.parametrize("width", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(("share", "tolerance"), [(0.99, 1e-10), (1.01, 1e-12)])
def test_sums_straight_from_the_kernel_keep_ten_digits_of_the_bound(width, share, tolerance):
    """On either side of the least noise for which the engine takes them so."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(300, 2)), rng.normal(size=(40, 2))
    problem = Problem(X, np.empty(0), np.sin(2 * X[:, :1]), Globals(Z, 1.0, np.full(2, width**-2), 1.0))
    smallest = models.Inducing(REGRESSION.backend, Z, problem.parameters.alpha, 1e-4, 1.0).whitening.L[-1, -1]
    problem = change(problem, beta=share * models.MAX_COND_UNWHITENED_STATISTICS * smallest**2)
    _, values = reference_of(REGRESSION, problem, 1e-4)
    expected, _ = precise.regression(**values)
    assert evaluate(REGRESSION, *problem, 1e-4).bound == pytest.approx(expected, rel=tolerance, abs=tolerance * 300)


@pytest.mark.parametrize("n", [20, 40, 100])
def test_a_weak_signal_needs_no_more_jitter(n):
    """Points so close that tr C ≤ n holds by little: the sums must not lose it, however little they count."""
    X = np.linspace(-3, 3, n)[:, None]
    problem = Problem(X, np.empty(0), np.sin(X), Globals(X.copy(), 1.0, np.full(1, 0.25), 1e-4))
    assert evaluate(REGRESSION, *problem, 1e-8).jitter == 1e-8


@pytest.mark.parametrize("shape", [(9, 1, 1, 1), (20, 4, 2, 3)], ids=str)
def test_the_precise_arithmetic_is_that_of_the_dense_formula(shape):
    """Where double precision is enough, the measure agrees with Titsias's formula and its complex steps."""
    _, values = reference_of(REGRESSION, make(*shape), 1e-3)
    bound, gradient = precise.regression(**values)
    assert bound == pytest.approx(reference.dense_regression_bound(**values), rel=1e-13)
    for name, value in gradient.items():
        expected = reference.complex_step(reference.dense_regression_bound, values, name)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12 * np.abs(expected).max(), err_msg=name)
