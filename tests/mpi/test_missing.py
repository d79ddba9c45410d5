"""Missing entries: groups of outputs that the same rows have, and a bound that leaves them out."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.errors import InputError
from mpigp.fit.start.standardize import standardization
from mpigp.gp.parameters import Globals
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Patterns, Rows, find_patterns
from tests.support import reference
from tests.support.problems import GLOBALS, LATENT, Problem, evaluate, make

JITTER = 1e-6


def masked(n: int = 150, seed: int = 0) -> tuple[Problem, np.ndarray]:
    """Return a problem of four outputs, of which the middle two miss the same rows, and where entries are missing."""
    problem = make(n, 7, 2, 4, seed)
    gone = np.random.default_rng([seed, 1]).random(problem.Y.shape) < 0.3
    gone[:, 2] = gone[:, 1]
    return problem, gone


def with_holes(Y: np.ndarray, gone: np.ndarray) -> np.ndarray:
    return np.where(gone, np.nan, Y)


def bound(mu, S, Y, gone, parameters: Globals) -> tuple[float, dict[str, np.ndarray]]:
    """Return the bound of Y with holes and all its gradients."""
    patterns = find_patterns(MPI.COMM_SELF, with_holes(Y, gone))
    rows = Rows(MPI.COMM_SELF, len(Y), np.array(mu), np.array(S), np.where(gone, 0.0, Y), patterns)
    found = Evaluator(MPI.COMM_SELF, LATENT, rows, *parameters.Z.shape)(parameters, JITTER)
    gradients = {name: np.asarray(getattr(found.gradient, name)) for name in GLOBALS}
    return found.bound, {**gradients, **rows.gradients}


def test_outputs_that_the_same_rows_have_share_a_group():
    problem, gone = masked()
    patterns = find_patterns(MPI.COMM_SELF, with_holes(problem.Y, gone))
    assert patterns.group.tolist() == [0, 1, 1, 2]
    for output, group in enumerate(patterns.group):
        np.testing.assert_array_equal(patterns.observed[:, group], ~gone[:, output])


def test_the_groups_count_the_rows_and_squares_that_are_there():
    problem, gone = masked()
    Y = np.where(gone, 0.0, problem.Y)
    groups = find_patterns(MPI.COMM_SELF, with_holes(problem.Y, gone)).groups(DistributedRows(MPI.COMM_SELF, len(Y), Y))
    assert [group.outputs.tolist() for group in groups] == [[0], [1, 2], [3]]
    assert [group.n for group in groups] == [int((~gone[:, k]).sum()) for k in (0, 1, 3)]
    for group in groups:  # sums of squares, rounded a few times
        assert pytest.approx((Y[:, group.outputs] ** 2).sum(), rel=1e-14) == group.YY


def test_nothing_missing_is_no_pattern():
    assert find_patterns(MPI.COMM_SELF, make(20, 3, 2, 4).Y) is None


def test_a_column_without_an_entry_is_refused():
    Y = make(20, 3, 2, 4).Y
    Y[:, 2] = np.nan
    with pytest.raises(InputError, match="column 2"):
        find_patterns(MPI.COMM_SELF, Y)


def test_the_bound_is_the_sum_over_groups_of_the_rows_that_have_them():
    problem, gone = masked()
    mu, S, Y, parameters = problem
    found, gradients = bound(mu, S, Y, gone, parameters)
    expected = -reference.divergence(mu, S)
    by_Z = np.zeros_like(parameters.Z)
    for outputs in ([0], [1, 2], [3]):
        rows = ~gone[:, outputs[0]]
        alone = evaluate(LATENT, mu[rows], S[rows], Y[rows][:, outputs], parameters, JITTER)
        expected += alone.bound + reference.divergence(mu[rows], S[rows])
        by_Z += alone.gradient.Z
    # The same sums in another order: rounding, of matrices whose condition number is below 1e4.
    assert found == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradients["Z"], by_Z, rtol=0, atol=1e-10 * np.abs(by_Z).max())


@pytest.mark.parametrize("name", [*GLOBALS, "mu", "S"])
def test_gradients_agree_with_central_differences(name):
    problem, gone = masked(40)
    mu, S, Y, parameters = problem
    values = {**parameters._asdict(), "mu": mu, "S": S}
    gradients = bound(mu, S, Y, gone, parameters)[1]
    rng = np.random.default_rng(5)
    direction = rng.normal(size=np.shape(values[name]))
    step = 1e-5

    def along(t: float) -> float:
        moved = {**values, name: values[name] + t * direction}
        moved_globals = Globals(*(moved[each] for each in Globals._fields))
        return bound(moved["mu"], moved["S"], Y, gone, moved_globals)[0]

    slope = (along(step) - along(-step)) / (2 * step)
    # Central differences of a bound of 1e3: 1e-16 · 1e3 / 1e-5 by rounding, and 1e-10 of its third derivative.
    np.testing.assert_allclose(np.vdot(gradients[name], direction), slope, rtol=1e-7, atol=1e-6)


def test_rows_that_all_have_everything_agree_with_the_plain_path():
    mu, S, Y, parameters = make(130, 9, 2, 2)
    plain = evaluate(LATENT, mu, S, Y, parameters, JITTER)
    rows = Rows(MPI.COMM_SELF, 130, mu.copy(), S.copy(), Y.copy(), Patterns(np.ones((130, 1)), np.zeros(2, np.intp)))
    grouped = Evaluator(MPI.COMM_SELF, LATENT, rows, 9, 2)(parameters, JITTER)
    # Not the same path through the loops, so not the same bits: but nothing more than rounding.
    assert grouped.bound == pytest.approx(plain.bound, rel=1e-13)
    np.testing.assert_allclose(grouped.gradient.Z, plain.gradient.Z, rtol=1e-9, atol=1e-11)


def test_standardisation_leaves_missing_entries_out():
    problem, gone = masked()
    Y = 1e3 + 5 * problem.Y
    found, constant = standardization(DistributedRows(MPI.COMM_SELF, len(Y), with_holes(Y, gone)), "scale")
    assert constant == []
    # Two rounded passes over the entries that are there.
    np.testing.assert_allclose(found.mean, np.nanmean(with_holes(Y, gone), axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.scale, np.nanstd(with_holes(Y, gone), axis=0), rtol=1e-11)
