"""Scores of rows that a fit does not learn from: when they are taken, at which point, and when they end the fit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.fit.loop import Fit, Trace
from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.fit.options import Options
from mpigp.fit.setup import PreparedFit, prepare
from mpigp.fit.validation import Scores, Validation, ValidationRows, broadcast_posterior
from mpigp.mpi.distributed_rows import DistributedRows

NAN = math.nan


def rows(n: int, seed: int = 0) -> tuple[DistributedRows, DistributedRows]:
    """Return inputs and outputs, in units that are not the model's."""
    rng = np.random.default_rng([n, seed])
    X = 3 + 2 * rng.normal(size=(n, 2))
    Y = 50 + 10 * np.sin(X) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 2.0]]) + rng.normal(size=(n, 3))
    return DistributedRows(MPI.COMM_SELF, n, X), DistributedRows(MPI.COMM_SELF, n, Y)


def prepared(**options: Any) -> tuple[PreparedFit, Validation]:
    """Return a fit, and the handler that validates it."""
    chosen = Options(model="regression", inducing=6, tolerance=0, gradient_tolerance=0, validate="file", **options)
    fit = prepare(*rows(200), chosen)
    return fit, Validation(fit, ValidationRows(*rows(90, 1), ""), chosen)


def direct(prepared: PreparedFit, held: ValidationRows) -> Scores:
    """Return the scores by the formula of dense matrices: u's posterior from all training rows."""
    parameters = prepared.fit.objective.parameters(prepared.fit.optimizer.point)
    x, y = prepared.standardized["x"], prepared.standardized["y"]
    X, Y = (each.local for each in rows(200))
    X, Y, new = (X - x.mean) / x.scale, (Y - y.mean) / y.scale, (held.X.local - x.mean) / x.scale

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return parameters.variance * np.exp(-0.5 * (parameters.alpha * (a[:, None] - b) ** 2).sum(axis=2))

    Z, beta = parameters.Z, parameters.beta
    K = kernel(Z, Z) + prepared.fit.objective.jitter * parameters.variance * np.eye(len(Z))
    P = K + beta * kernel(Z, X) @ kernel(X, Z)
    k = kernel(Z, new)
    mean = beta * k.T @ np.linalg.solve(P, kernel(Z, X) @ Y) * y.scale + y.mean
    explained = np.einsum("mi,mi->i", k, np.linalg.solve(K, k) - np.linalg.solve(P, k))
    variance = (parameters.variance - explained + 1 / beta)[:, None] * y.scale**2
    square = (held.Y.local - mean) ** 2
    density = -0.5 * (np.log(2 * np.pi * variance) + square / variance).sum(axis=1)
    return Scores(float(np.sqrt(square.mean())), float(-density.mean()))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_scores_are_those_of_the_point_in_the_units_of_the_data(optimizer: str) -> None:
    fit, validation = prepared(optimizer=optimizer, max_iter=25, hold=4, validate_every=3)
    wanted: list[Scores] = []
    fit.fit.run([validation, lambda _: wanted.append(direct(fit, validation.rows))])
    trace = fit.fit.trace
    scored = [i for i in range(25) if (i + 1) % 3 == 0 or i == 24]
    found = np.array([trace.validation_rmse, trace.validation_nlpd]).T
    assert np.flatnonzero(np.isfinite(found).all(axis=1)).tolist() == scored
    assert np.isnan(found).all(axis=1).sum() == 25 - len(scored)
    np.testing.assert_allclose(found[scored], np.array(wanted)[scored], rtol=1e-7)
    assert wanted[-1] != wanted[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_end_is_scored_where_the_last_step_failed(optimizer: str) -> None:
    """The last evaluation is then of a point that was tried and given up."""
    fit, validation = prepared(optimizer=optimizer, max_iter=5, hold=0, validate_every=4)
    fit.fit.run([validation])
    fit.fit.trace.validation_rmse[-1] = fit.fit.trace.validation_nlpd[-1] = NAN
    tried = fit.fit.optimizer.point.shared + 0.3
    objective = fit.fit.objective
    objective(type(fit.fit.optimizer.point)(tried, fit.fit.optimizer.point.local), objective.space.block(1))
    fit.fit.optimizer.evaluations += 1
    validation.finish()
    np.testing.assert_allclose(validation.last, direct(fit, validation.rows), rtol=1e-7)
    assert (fit.fit.trace.validation_rmse[-1], fit.fit.trace.validation_nlpd[-1]) == validation.last


def test_a_fit_without_iterations_is_scored_too() -> None:
    fit, validation = prepared(max_iter=0)
    validation.begin()
    fit.fit.run([validation])
    validation.finish()
    np.testing.assert_allclose(validation.last, direct(fit, validation.rows), rtol=1e-7)
    assert fit.fit.trace.series().keys() == {"bound", "gradient_norm", "seconds", "evaluations"}


def test_predictions_that_are_not_finite_have_no_score() -> None:
    fit, validation = prepared(max_iter=1)
    posterior = broadcast_posterior(fit)
    posterior.g[...] = np.nan
    assert all(map(math.isnan, validation.rows.score(posterior, 1)))
    X, Y = rows(5)
    X.local[3, 0] = np.nan
    assert all(map(math.isnan, ValidationRows(X, Y, "").score(broadcast_posterior(fit), 1)))


# patience


def handler(nlpd: list[float], patience: int | None, every: int = 1, hold: int = 0) -> tuple[Fit, Validation]:
    """Return a fit that has this trace, and its handler; nothing is computed."""
    trace = Trace([0.0] * len(nlpd), validation_rmse=list(nlpd), validation_nlpd=list(nlpd))
    fit: Any = SimpleNamespace(trace=trace, iteration=len(nlpd), stopped="", hold=hold)
    options = Options(model="regression", inducing=1, validate=0.5, validate_every=every, patience=patience)
    validation: Any = Validation(SimpleNamespace(fit=fit), None, options)  # type: ignore[arg-type]
    return fit, validation


@pytest.mark.parametrize(
    ("nlpd", "patience", "stops"),
    [
        ([], 1, False),
        ([1.0], 1, False),
        ([1.0, 0.5], 1, False),
        ([1.0, 1.5], 1, True),
        ([1.0, 1.0], 1, True),  # no better is not better
        ([1.0, 1.5], 2, False),
        ([1.0, 1.5, 1.2], 2, True),
        ([1.0, 1.5, 0.9], 2, False),
        ([1.0, 1.5, 0.9, 0.95], 2, False),
        ([1.0, 1.5, 0.9, 0.95, 0.92], 2, True),
        ([1.0, NAN, NAN, NAN], 2, False),  # without a score
        ([1.0, 1.5, 1.2, 1.3, 1.4], None, False),
    ],
)
def test_patience(nlpd: list[float], patience: int | None, stops: bool) -> None:
    fit, validation = handler(nlpd, patience)
    validation.begin()
    assert bool(fit.stopped) is stops
    if stops:
        assert fit.stopped == f"the NLPD of the validation rows has not improved for {patience} scores"


def test_scores_while_parameters_are_held_do_not_count() -> None:
    nlpd = [NAN, 1.0, NAN, 2.0, NAN, 3.0, NAN, 2.5]
    for hold, stops in ((0, True), (2, True), (4, False)):
        fit, validation = handler(nlpd, 2, every=2, hold=hold)
        validation.begin()
        assert bool(fit.stopped) is stops, hold


def test_a_score_that_an_earlier_run_took_at_its_end_goes() -> None:
    """A run that was never stopped does not have it, and patience does not count it."""
    fit, validation = handler([NAN, 1.0, NAN, 2.0, 3.0], 2, every=2)
    validation.begin()
    assert math.isnan(fit.trace.validation_nlpd[-1]) and math.isnan(fit.trace.validation_rmse[-1])
    assert not fit.stopped
    for due, stopped in (([NAN, 1.0], ""), ([NAN, NAN, 1.0], "converged")):
        fit, validation = handler(due, 2, every=2)
        fit.stopped = stopped
        validation.begin()
        assert fit.trace.validation_nlpd[-1] == 1.0
