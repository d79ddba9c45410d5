"""The first parameters of a fit: lengthscales by the spread of the inputs, with every row in reach."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.fit.loop import Fit
from mpigp.fit.objective import Objective
from mpigp.fit.options import Options
from mpigp.fit.start import initialize
from mpigp.fit.start.initialize import REACH, SIGNAL_TO_NOISE, first_globals
from mpigp.gp.statistics import MODELS
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows

N, M = 900, 10
OPTIONS = Options(model="regression", inducing=M, max_iter=20)


def whole(values: np.ndarray) -> DistributedRows:
    """Return rows (n, columns) that are all on this rank."""
    return DistributedRows(MPI.COMM_SELF, len(values), values)


def outlier() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, 2) in units of their deviation, the second constant but for the last row, and outputs."""
    X = np.random.default_rng(3).normal(size=(N, 2))
    X[:, 1], X[-1, 1] = -1 / math.sqrt(N - 1), math.sqrt(N - 1)
    return X, np.sin(2 * X[:, :1])


def alphas(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha at the start of a fit, and where its iterations take it."""
    begin = first_globals(whole(X), whole(Y), OPTIONS, 0)
    assert (begin.Z[:, 1] < 0).all(), "the outlier is an inducing point"
    rows = Rows(MPI.COMM_SELF, N, X, None, Y)
    fit = Fit(Objective(Evaluator(MPI.COMM_SELF, MODELS["regression"], rows, M, 2, 1), 1e-6), OPTIONS, begin)
    fit.run()
    return begin.alpha, fit.objective.parameters(fit.optimizer.point).alpha


def test_an_input_that_is_constant_but_for_an_outlier_has_a_weight_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = outlier()
    start, end = alphas(X, Y)
    assert abs(math.log(end[1] / start[1])) > 0.1
    monkeypatch.setattr(initialize, "REACH", math.inf)
    start, end = alphas(X, Y)
    np.testing.assert_allclose(end[1], start[1], rtol=1e-12)  # exp and log of it round
    assert abs(math.log(end[0] / start[0])) > 0.1  # the other input's has all the rows


def test_no_row_is_farther_from_the_middle_than_the_reach() -> None:
    X, Y = outlier()
    alpha = first_globals(whole(X), whole(Y), OPTIONS, 0).alpha
    lengths = np.sqrt(alpha) * np.abs(X - X.mean(axis=0)).max(axis=0)
    np.testing.assert_allclose(alpha[0], 0.5 / X[:, 0].var(), rtol=1e-12)  # √q deviations
    assert lengths[0] < REACH
    np.testing.assert_allclose(lengths[1], REACH, rtol=1e-12)


def test_the_lengthscales_follow_the_units_of_the_inputs() -> None:
    (X, Y), units = outlier(), np.array([1e-3, 50.0])
    plain, scaled = (first_globals(whole(x), whole(Y), OPTIONS, 0) for x in (X, X * units))
    np.testing.assert_allclose(scaled.alpha, plain.alpha / units**2, rtol=1e-9)  # deviations round at the outlier
    np.testing.assert_allclose(scaled.Z, plain.Z * units, rtol=1e-15)


def test_a_constant_input_and_the_outputs_have_finite_parameters() -> None:
    X, Y = outlier()
    X[:, 1] = 7.0
    found = first_globals(whole(X), whole(3 * Y), OPTIONS, 0)
    assert np.isfinite(found.alpha).all()
    np.testing.assert_allclose(found.variance, 9 * Y.var(), rtol=1e-12)
    np.testing.assert_allclose(found.beta * found.variance, SIGNAL_TO_NOISE, rtol=1e-12)
