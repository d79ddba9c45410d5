"""Every gradient of both models against complex steps through the bound's definition."""

from __future__ import annotations

import numpy as np
import pytest

from mpigp.gp import statistics as models
from mpigp.mpi.evaluator import EvaluationFailed
from tests.support import reference
from tests.support.problems import LATENT, REGRESSION, Problem, change, evaluate, make, reference_of

both = pytest.mark.parametrize("model", [REGRESSION, LATENT], ids=lambda model: model.name)

# One of everything; a row more or less than a chunk (64) or a vector; inducing points around multiples of 4 and 8.
SHAPES = [
    (1, 1, 1, 1),
    (1, 3, 2, 2),
    (5, 1, 2, 1),
    (9, 2, 1, 1),
    (63, 5, 1, 3),
    (64, 4, 2, 1),
    (65, 7, 3, 2),
    (67, 8, 2, 4),
    (130, 9, 2, 1),
    (70, 17, 10, 2),
    (200, 13, 4, 5),
]


def complex_steps(function, values: dict, name: str, entries: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the gradient by some entries of values[name]."""

    def moved(part):
        array = values[name].astype(complex)
        array[entries] = part
        return function(**{**values, name: array})

    return reference.complex_step(moved, {"part": values[name][entries]}, "part")


def check(model, problem: Problem, jitter: float, tolerance: float = 1e-8) -> None:
    """Compare every gradient, in the largest norm of each; of mu and S, the first row, the last, and some entries."""
    result = evaluate(model, *problem, jitter)
    assert result.jitter == jitter
    function, values = reference_of(model, problem, jitter)
    for name, found in result.gradients().items():
        assert found.shape == np.shape(values[name])
        if name in ("mu", "S"):
            n, q = found.shape
            some = np.random.default_rng(n).permutation(n * q)[: 40 - 2 * q]
            entries = np.unravel_index(np.unique([*some, *range(q), *range((n - 1) * q, n * q)]), (n, q))
            found, expected = found[entries], complex_steps(function, values, name, entries)
        else:
            expected = reference.complex_step(function, values, name)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max(), err_msg=name)


# Both sides round at 1e-16 times the condition number of K_mm, which random points and jitter 1e-6 take to 1e7 at most:
# 1e-8 holds with a margin, and 1e-7 is what is promised.


@both
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_agree_with_complex_steps(model, shape):
    check(model, make(*shape), 1e-6)


@pytest.mark.parametrize(("straight", "straight_sums"), [(0.0, 0.0), (np.inf, 0.0), (np.inf, np.inf)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_way_to_regressions_gradients_agrees_with_complex_steps(shape, straight, straight_sums, monkeypatch):
    monkeypatch.setattr(models, "MAX_COND_UNWHITENED_GRADIENT", straight)
    monkeypatch.setattr(models, "MAX_COND_UNWHITENED_STATISTICS", straight_sums)
    check(REGRESSION, make(*shape), 1e-2)


@both
@pytest.mark.parametrize("jitter", [1e-1, 1e-2, 1e-3])
def test_gradients_pass_through_the_jitter(model, jitter):
    """A jitter that matters: leaving it out of the gradient, or its variance out of the jitter, would show."""
    check(model, change(make(65, 6, 2, 2), variance=2.7), jitter, 1e-11)


@both
@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e4])
def test_gradients_hold_at_any_noise(model, beta):
    check(model, change(make(65, 6, 2, 2), beta=beta), 1e-6)


@both
@pytest.mark.filterwarnings("error")
def test_a_dimension_without_weight_has_its_gradients(model):
    problem = make(70, 6, 3, 2)
    alpha = problem.parameters.alpha.copy()
    alpha[1] = 0.0
    check(model, change(problem, alpha=alpha), 1e-6)


@both
def test_a_weight_next_to_nothing_has_its_gradients(model):
    problem = make(70, 6, 3, 2)
    alpha = problem.parameters.alpha.copy()
    alpha[1] = 1e-14
    check(model, change(problem, alpha=alpha), 1e-6)


@both
@pytest.mark.filterwarnings("error")
def test_all_weights_zero_have_their_gradients(model):
    # K_mm is then all ones: only a large jitter makes it well-conditioned.
    check(model, change(make(70, 3, 2, 2), alpha=np.zeros(2)), 1e-2, 1e-9)


@both
def test_inducing_points_that_share_a_coordinate_have_their_gradients(model):
    problem = make(70, 6, 3, 2)
    Z = problem.parameters.Z.copy()
    Z[:, 1] = 0.3
    check(model, change(problem, Z=Z), 1e-6)


@both
@pytest.mark.filterwarnings("error")
def test_outputs_that_are_all_zero_have_their_gradients(model):
    problem = make(70, 6, 2, 2)
    check(model, problem._replace(Y=problem.Y * [0.0, 1.0]), 1e-6)
    check(model, problem._replace(Y=np.zeros_like(problem.Y)), 1e-6)


@both
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_outputs_of_any_size_have_their_gradients(model, scale):
    problem = make(70, 6, 2, 2)
    check(model, change(problem._replace(Y=problem.Y * scale), beta=4.0 / scale**2, variance=1.3 * scale**2), 1e-6)


@pytest.mark.parametrize(
    ("model", "scale"),
    [(REGRESSION, 1e-9), (REGRESSION, 1e9), (LATENT, 1e-9), (LATENT, 1e4)],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_inputs_of_any_size_have_their_gradients(model, scale):
    """As when a column of the data is in nanometres, or in bytes; latent ones have a prior of unit variance."""
    problem = make(70, 6, 2, 2)
    problem = problem._replace(mu=problem.mu * scale, S=problem.S * scale**2)
    parameters = problem.parameters
    check(model, change(problem, Z=parameters.Z * scale, alpha=parameters.alpha / scale**2), 1e-6)


def test_variances_from_tiny_to_huge_have_their_gradients():
    problem = make(70, 6, 2, 2)
    S = 10.0 ** np.random.default_rng(0).uniform(-12, 6, size=problem.S.shape)
    problem = problem._replace(S=S)
    result = evaluate(LATENT, *problem, 1e-6)
    function, values = reference_of(LATENT, problem, 1e-6)
    expected = reference.complex_step(function, values, "S")
    # ½/S runs over 18 orders of magnitude: entry by entry, beside the divergence's own ½.
    np.testing.assert_allclose(result.by_S, expected, rtol=1e-8, atol=1e-8)


@both
@pytest.mark.parametrize("far", 2.0 ** np.arange(10, 45, 1.5))
def test_a_sum_is_right_or_refused_however_far_rows_lie_where_no_weight_is(model, far):
    """As α → 0 nothing bounds ∂F/∂α: integers that do not hold it must be noticed, not wrap around."""
    problem = make(520, 3, 2, 1)
    mu = problem.mu * [1.0, 0.0] + [0.0, far]
    problem = change(problem._replace(mu=mu), alpha=np.array([0.7, 0.0]))
    try:
        found = evaluate(model, *problem, 1e-4).gradient.alpha
    except EvaluationFailed:
        return
    function, values = reference_of(model, problem, 1e-4)
    expected = reference.complex_step(function, values, "alpha")
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-7)
