"""What the bound must be: equalities with exact GPs, between the models, and under changes that mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.chunks import chunk_count, chunk_rows
from mpigp.gp.bound import Group, group_bound, largest_bound
from mpigp.mpi.evaluator import LARGEST_JITTER, EvaluationFailed, Evaluator
from mpigp.mpi.rows import Rows
from mpigp.numerics.cholesky import NotPositiveDefinite
from tests.support import reference
from tests.support.problems import (
    LATENT,
    REGRESSION,
    change,
    evaluate,
    evaluate_on_ranks,
    make,
    reference_of,
    time_limit,
)

both = pytest.mark.parametrize("model", [REGRESSION, LATENT], ids=lambda model: model.name)


def evidence(X, Y, variance, alpha, beta) -> float:
    """Return log N(Y | 0, K + I/β) of the exact GP."""
    n, d = Y.shape
    L = np.linalg.cholesky(reference.kernel(X, X, variance, alpha) + np.eye(n) / beta)
    return -0.5 * n * d * np.log(2 * np.pi) - d * np.log(np.diag(L)).sum() - 0.5 * (np.linalg.solve(L, Y) ** 2).sum()


def bits(result) -> list[bytes]:
    return [np.float64(result.bound).tobytes(), *(gradient.tobytes() for gradient in result.gradients().values())]


# the value


@both
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 1), (1, 3, 2, 2), (5, 1, 2, 1), (65, 7, 3, 2), (130, 9, 2, 1), (200, 13, 4, 5), (1000, 30, 10, 3)],
    ids=str,
)
def test_it_agrees_with_its_definition(model, shape):
    problem = make(*shape)
    function, values = reference_of(model, problem, 1e-4)
    # Condition numbers up to 1e5 times 1e-16, in the reference too.
    assert evaluate(model, *problem, 1e-4).bound == pytest.approx(function(**values), rel=1e-11)


def test_at_the_inducing_points_of_all_rows_it_is_the_evidence_of_the_exact_gp():
    problem = make(40, 40, 2, 2)
    problem = change(problem, Z=problem.mu.copy())
    _, variance, alpha, beta = problem.parameters
    exact = evidence(problem.mu, problem.Y, variance, alpha, beta)
    result = evaluate(REGRESSION, *problem, 1e-9)
    # Jitter takes K − Q ≤ jitter σ_f² off every direction: β d/2 tr(K − Q), and β²/2 Yᵀ(K − Q)Y at most.
    n, d = problem.Y.shape
    slack = 0.5 * result.jitter * variance * beta * (n * d + beta * (problem.Y**2).sum())
    assert slack < 1e-4
    assert exact - slack - 1e-10 <= result.bound <= exact + 1e-10


@pytest.mark.parametrize("m", [2, 5, 12, 30])
def test_it_never_exceeds_the_evidence(m):
    for seed in range(5):
        problem = make(60, m, 2, 1, seed)
        _, variance, alpha, beta = problem.parameters
        # What rounding may add: 1e-12 of the terms, which are some hundreds.
        exact = evidence(problem.mu, problem.Y, variance, alpha, beta)
        assert evaluate(REGRESSION, *problem, 1e-8).bound <= exact + 1e-9


@both
def test_an_inducing_point_more_never_lowers_it(model):
    problem = make(90, 25, 2, 2)
    bounds = [evaluate(model, *change(problem, Z=problem.parameters.Z[:m].copy()), 1e-6).bound for m in range(2, 26)]
    steps = np.diff(bounds)
    assert (steps >= -1e-9).all()  # rounding
    assert steps.max() > 1.0


@both
@pytest.mark.parametrize("shape", [(65, 6, 2, 5), (130, 5, 1, 3)], ids=str)
def test_several_outputs_are_as_many_single_ones_with_one_divergence(model, shape):
    problem = make(*shape)
    d = shape[3]
    KL = reference.divergence(problem.mu, problem.S) if model is LATENT else 0.0
    single = [evaluate(model, *problem._replace(Y=problem.Y[:, [j]]), 1e-5).bound for j in range(d)]
    assert evaluate(model, *problem, 1e-5).bound == pytest.approx(sum(single) + (d - 1) * KL, rel=1e-12)  # rounding


@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (65, 7, 2, 2), (200, 9, 3, 1)], ids=str)
def test_latent_inputs_without_variance_are_regression_with_a_divergence(shape):
    problem = make(*shape)
    problem = problem._replace(S=np.full_like(problem.S, 1e-12))
    latent, regression = evaluate(LATENT, *problem, 1e-4), evaluate(REGRESSION, *problem, 1e-4)
    KL = reference.divergence(problem.mu, problem.S)
    # ψ2 moves by S α ≈ 1e-12; its whitening multiplies that, and rounding, by 1/jitter at most: in practice far less.
    assert latent.bound + KL == pytest.approx(regression.bound, rel=1e-9)
    for name in ("Z", "variance", "alpha", "beta"):
        expected = regression.gradients()[name]
        np.testing.assert_allclose(latent.gradients()[name], expected, rtol=0, atol=1e-8 * np.abs(expected).max())


# what changes nothing


@both
def test_the_order_of_the_inducing_points_means_nothing(model):
    problem = make(130, 11, 2, 2)
    shuffle = np.random.default_rng(7).permutation(11)
    first = evaluate(model, *problem, 1e-4)
    second = evaluate(model, *change(problem, Z=problem.parameters.Z[shuffle]), 1e-4)
    # Rounding times the condition number, 1e5 at most.
    assert second.bound == pytest.approx(first.bound, rel=1e-11)
    np.testing.assert_allclose(
        second.gradient.Z, first.gradient.Z[shuffle], rtol=0, atol=1e-9 * np.abs(first.gradient.Z).max()
    )


@both
def test_the_order_of_the_rows_means_nothing(model):
    problem = make(130, 7, 2, 2)
    shuffle = np.random.default_rng(7).permutation(130)
    first = evaluate(model, *problem, 1e-4)
    second = evaluate(model, problem.mu[shuffle], problem.S[shuffle], problem.Y[shuffle], problem.parameters, 1e-4)
    assert second.bound == pytest.approx(first.bound, rel=1e-11)  # as above
    if model is LATENT:
        np.testing.assert_allclose(second.by_mu, first.by_mu[shuffle], rtol=0, atol=1e-10 * np.abs(first.by_mu).max())


def shifted(problem, shift: float):
    return change(problem._replace(mu=problem.mu + shift), Z=problem.parameters.Z + shift)


def by_shift(problem, shift: float) -> float:
    """Return what KL gains by the shift, Σ (c mu + c²/2), from the data before it."""
    return float((shift * problem.mu + 0.5 * shift**2).sum())


@both
@pytest.mark.parametrize(
    ("shift", "tolerance"),
    [
        (1e3, 1e-8),
        # The data themselves are rounded when they are shifted, a thousand times as coarsely as at 1e3.
        (1e6, 1e-5),
    ],
)
def test_data_far_from_the_origin_are_the_same_data(model, shift, tolerance):
    problem = make(130, 9, 2, 2)
    first, second = evaluate(model, *problem, 1e-6), evaluate(model, *shifted(problem, shift), 1e-6)
    gain = by_shift(problem, shift) if model is LATENT else 0.0
    # KL is a double of up to 130 · 2 · shift²/2: its own last digits are lost to F in the GPLVM.
    assert second.bound + gain == pytest.approx(first.bound, rel=tolerance, abs=1e-15 * gain)
    for name, expected in first.gradients().items():
        found = second.gradients()[name]
        if name == "mu":
            found = found + shift  # −∂KL/∂mu = −mu
        error = tolerance * np.abs(expected).max() + (1e-15 * shift if name == "mu" else 0.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=error, err_msg=name)


@both
@pytest.mark.parametrize("shift", [2.0**10, 2.0**20])
def test_a_shift_that_rounds_no_datum_moves_only_the_last_digits(model, shift):
    """mu and Z on a grid of 2⁻³⁰ stay exact when shifted: only the engine rounds, and it takes differences first."""
    problem = make(130, 8, 2, 2)
    grid = 2.0**30
    problem = change(
        problem._replace(mu=np.rint(problem.mu * grid) / grid), Z=np.rint(problem.parameters.Z * grid) / grid
    )
    first, second = evaluate(model, *problem, 1e-4), evaluate(model, *shifted(problem, shift), 1e-4)
    gain = by_shift(problem, shift) if model is LATENT else 0.0
    # The centre is another one after the shift, by its last digits: rounding (1e-16) times the condition number (1e5).
    assert second.bound + gain == pytest.approx(first.bound, rel=1e-11, abs=1e-15 * gain)
    for name in ("Z", "variance", "alpha", "beta"):
        expected = first.gradients()[name]
        np.testing.assert_allclose(
            second.gradients()[name], expected, rtol=0, atol=1e-9 * np.abs(expected).max(), err_msg=name
        )


# the same bits


@both
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (63, 4, 2, 1), (1000, 9, 3, 2)], ids=str)
def test_any_number_of_threads_gives_the_same_bits(model, shape):
    problem = make(*shape)
    one, two, three = (bits(evaluate(model, *problem, 1e-6, threads=threads)) for threads in (1, 2, 3))
    assert one == two
    assert one == three


@both
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (65, 4, 2, 1), (700, 9, 3, 2), (9001, 6, 2, 1)], ids=str)
def test_any_split_at_chunk_borders_gives_the_same_integers_and_bits(model, shape):
    problem = make(*shape)
    n = shape[0]
    whole = bits(evaluate(model, *problem, 1e-6))
    all_on_one, words = evaluate_on_ranks(model, problem, 1e-6, [0, n, n])
    assert bits(all_on_one) == whole
    assert sum(word.dtype == np.int64 for word in words) >= 3
    rng = np.random.default_rng(n)
    for ranks in (2, 3, 5):
        cuts = np.sort(rng.integers(0, chunk_count(n) + 1, size=ranks - 1)) * chunk_rows(n)
        result, split_words = evaluate_on_ranks(model, problem, 1e-6, [0, *np.minimum(cuts, n), n], threads=2)
        assert len(split_words) == len(words)
        for mine, theirs in zip(split_words, words, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert bits(result) == whole


@both
def test_an_evaluation_repeats_its_bits(model):
    problem = make(300, 9, 2, 2)
    mu, S, Y, parameters = problem
    rows = Rows(MPI.COMM_SELF, 300, mu, None if model is REGRESSION else S, Y)
    evaluator = Evaluator(MPI.COMM_SELF, model, rows, 9, 2)
    first, second = evaluator(parameters, 1e-6), evaluator(parameters, 1e-6)
    assert first.bound == second.bound
    assert first.gradient.pack().tobytes() == second.gradient.pack().tobytes()


# where there is no value


@both
@pytest.mark.parametrize("jitter", [0.0, 1e-18])
def test_inducing_points_twice_in_one_place_grow_the_jitter(model, jitter):
    problem = make(65, 6, 2, 2)
    Z = problem.parameters.Z.copy()
    Z[1] = Z[0]
    problem = change(problem, Z=Z)
    with time_limit(5):
        result = evaluate(model, *problem, jitter)
    assert jitter < result.jitter <= 1e-6
    function, values = reference_of(model, problem, result.jitter)
    # One more point in the same place says nothing new, whatever the jitter: the other gradients are well-conditioned.
    assert result.bound == pytest.approx(function(**values), rel=1e-9)
    without = evaluate(model, *change(problem, Z=Z[1:].copy()), 1e-12)
    assert result.bound == pytest.approx(without.bound, rel=1e-6)
    for name in ("variance", "alpha", "beta"):
        expected = without.gradients()[name]
        np.testing.assert_allclose(result.gradients()[name], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@both
def test_the_jitter_stays_when_nothing_fails(model):
    assert evaluate(model, *make(65, 6, 2, 2), 1e-7).jitter == 1e-7


@both
@pytest.mark.parametrize("spoiled", ["Z", "alpha", "beta", "variance"])
def test_parameters_that_are_not_numbers_fail_and_say_so(model, spoiled):
    problem = make(65, 6, 2, 2)
    value = np.array(getattr(problem.parameters, spoiled))
    value.flat[0] = np.nan
    problem = change(problem, **{spoiled: value if value.shape else float(value)})
    with time_limit(5), pytest.raises(EvaluationFailed):
        evaluate(model, *problem, 1e-8)


@both
@pytest.mark.parametrize("name", ["mu", "Y"])
def test_a_row_that_is_not_a_number_fails_and_is_not_left_out(model, name):
    problem = make(130, 6, 2, 2)
    spoiled = getattr(problem, name).copy()
    spoiled[100, 1] = np.nan
    with time_limit(5), pytest.raises(EvaluationFailed), np.errstate(invalid="ignore"):
        evaluate(model, *problem._replace(**{name: spoiled}), 1e-6)


def test_sums_that_no_jitter_changes_are_not_tried_again(monkeypatch):
    tried, kind, add = [], type(LATENT), LATENT.add_statistics
    monkeypatch.setattr(kind, "add_statistics", lambda _, *args: tried.append(1) or add(*args))
    with pytest.raises(EvaluationFailed, match="a sum over the rows"):
        evaluate(LATENT, *shifted(make(65, 3, 2, 1), 1e12), 1e-4)
    assert len(tried) == 1


@pytest.mark.parametrize("far", 10.0 ** np.arange(3, 11, 0.25))
def test_a_divergence_is_right_or_refused_however_large(far):
    """Nothing bounds KL beforehand: integers that do not hold it must be noticed, not left out."""
    problem = shifted(make(520, 3, 2, 1), far)
    try:
        found = evaluate(LATENT, *problem, 1e-4).bound
    except EvaluationFailed:
        assert far > 1e6
        return
    assert found == pytest.approx(
        -reference.divergence(problem.mu, problem.S), rel=1e3 / far**2 + 1e-14
    )  # the rest of F: 1e5


FIVE = Group(np.arange(1), 5, 1.0)  # rows of one output


@pytest.mark.parametrize(("least", "refused"), [(-0.9, True), (-0.1, True), (-1e-3, False), (0.0, False)])
def test_a_matrix_that_rounding_made_indefinite_is_refused(least, refused):
    """It factorises, as I + s C does down to −1, but what it says the data explain is more than they can."""
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    C = rotation @ np.diag([least, 1.0, 2.0]) @ rotation.T
    arguments = C, np.ones((3, 1)), FIVE, 1.0, 1.0
    if refused:
        with pytest.raises(NotPositiveDefinite):
            group_bound(*arguments)
    else:
        assert np.isfinite(group_bound(*arguments).value)


def test_a_trace_above_the_rows_is_refused():
    with pytest.raises(NotPositiveDefinite):
        group_bound(np.eye(3) * 2.0, np.zeros((3, 1)), FIVE, 1.0, 1.0)
    assert np.isfinite(group_bound(np.eye(3), np.zeros((3, 1)), FIVE, 1.0, 1.0).value)


def test_statistics_that_no_rows_have_are_refused():
    with pytest.raises(NotPositiveDefinite):
        group_bound(np.diag([1.0, 2.0, -3.0]), np.zeros((3, 1)), FIVE, 1.0, 1.0)


def test_the_largest_jitter_is_small_beside_the_variance():
    assert LARGEST_JITTER <= 0.01


def test_derivatives_by_the_statistics_agree_with_complex_steps():
    rng = np.random.default_rng(4)
    A = rng.normal(size=(4, 30)) / 6
    values = {"C": A @ A.T, "b": rng.normal(size=(4, 2)), "variance": 1.3, "beta": 2.5}

    def F(C, b, variance, beta):
        s = beta * variance
        L = reference.cholesky(np.eye(4) + s * C)
        c = np.linalg.solve(L, b)
        return (
            0.5 * 40 * 2 * np.log(beta / (2 * np.pi))
            - 2 * np.log(np.diag(L)).sum()
            - 0.5 * beta * 50.0
            - s * (40 - np.trace(C))
            + 0.5 * beta * s * (c**2).sum()
        )

    found = group_bound(values["C"], values["b"], Group(np.arange(2), 40, 50.0), 1.3, 2.5)
    assert found.value == pytest.approx(F(**values), rel=1e-14)
    by_C = reference.complex_step(F, values, "C")
    # The reference's Cholesky reads the lower triangle alone: its derivative is symmetric after adding its transpose.
    by_C = np.tril(by_C, -1) * 0.5 + np.tril(by_C, -1).T * 0.5 + np.diag(np.diag(by_C))
    by_L = by_C @ values["C"] + 0.5 * reference.complex_step(F, values, "b") @ values["b"].T
    expected = {
        "by_C": by_C,
        "by_L": by_L,
        **{f"by_{k}": reference.complex_step(F, values, k) for k in ("b", "variance", "beta")},
    }
    for name, value in expected.items():
        # Rounding: all matrices are well-conditioned.
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-13, err_msg=name)


# what no bound can exceed


@both
@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e6, 1e12])
def test_it_stays_below_that_of_noise_alone(model, beta):
    """F ≤ nd/2 log(β/2π), and nearly equal where the model explains everything."""
    problem = change(make(60, 12, 2, 3), beta=beta)
    rows = Rows(MPI.COMM_SELF, 60, problem.mu.copy(), None, np.zeros((60, 3)))
    largest = 0.5 * 60 * 3 * np.log(beta / (2 * np.pi))
    assert largest_bound(rows.groups, beta) == pytest.approx(largest, rel=1e-5, abs=1e-3)
    assert evaluate(model, *problem, 1e-6).bound <= largest
    flat = problem._replace(Y=np.zeros((60, 3)), S=np.ones((60, 2)), mu=np.zeros((60, 2)))
    assert evaluate(model, *change(flat, variance=1e-14 / beta), 1e-6).bound == pytest.approx(largest, rel=1e-9)


def test_a_bound_that_cannot_be_is_none():
    """The statistics of other rows than those that YY is of: as it was seen when a file changed."""
    mu, _, Y, parameters = change(make(60, 12, 2, 3), beta=1e6)
    rows = Rows(MPI.COMM_SELF, 60, mu.copy(), None, Y.copy())
    (group,) = rows.groups
    evaluator = Evaluator(MPI.COMM_SELF, REGRESSION, rows, 12, 2)
    evaluator(parameters, 1e-6)
    rows.groups[0] = group._replace(YY=1e-3 * group.YY)
    with pytest.raises(EvaluationFailed, match="the bound has no value here"):
        evaluator(parameters, 1e-6)
