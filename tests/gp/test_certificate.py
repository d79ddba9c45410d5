"""The upper bound of the evidence, beside the lower bounds and the exact evidence."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from scipy.stats import multivariate_normal

from mpigp.gp.bound import BOUNDS
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import model_of
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows

JITTER = 1e-8


def problem(seed: int, n: int = 60, q: int = 2, d: int = 2) -> tuple[np.ndarray, np.ndarray, Globals]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, q))
    Y = np.sin(2 * X @ rng.normal(size=(q, d))) + 0.3 * rng.normal(size=(n, d))
    alpha = rng.uniform(0.3, 1.5, size=q)
    return X, Y, Globals(X[:10].copy(), rng.uniform(0.5, 2), alpha, rng.uniform(2, 20))


def evidence(X: np.ndarray, Y: np.ndarray, parameters: Globals) -> float:
    square = (((X[:, None] - X) ** 2) * parameters.alpha).sum(axis=-1)
    K = parameters.variance * np.exp(-0.5 * square) + np.eye(len(X)) / parameters.beta
    return float(sum(multivariate_normal.logpdf(Y[:, k], cov=K) for k in range(Y.shape[1])))


def evaluated(X: np.ndarray, Y: np.ndarray, parameters: Globals, bound: str = "titsias") -> Evaluator:
    rows = Rows(MPI.COMM_SELF, len(X), X, None, Y)
    evaluator = Evaluator(MPI.COMM_SELF, model_of("regression", bound=bound), rows, len(parameters.Z), X.shape[1])
    evaluator(parameters, JITTER)
    return evaluator


@pytest.mark.parametrize("seed", range(8))
def test_the_evidence_lies_between_every_lower_bound_and_the_upper_one(seed: int) -> None:
    X, Y, parameters = problem(seed)
    exact = evidence(X, Y, parameters)
    bounds = []
    for name in BOUNDS:
        certificate = evaluated(X, Y, parameters, name).certificate(parameters)
        assert certificate is not None
        assert certificate.lower <= exact <= certificate.upper
        assert certificate.numbers == Y.size
        bounds.append(certificate.lower)
    assert bounds == sorted(bounds)


def test_both_meet_where_every_row_is_an_inducing_point() -> None:
    X, Y, parameters = problem(0)
    parameters = parameters._replace(Z=X.copy())
    certificate = evaluated(X, Y, parameters).certificate(parameters)
    assert certificate is not None
    np.testing.assert_allclose([certificate.lower, certificate.upper], evidence(X, Y, parameters), rtol=1e-5)
    assert 0 <= certificate.gap < 1e-4


def test_more_inducing_points_never_widen_the_gap() -> None:
    X, Y, parameters = problem(3)
    gaps = []
    for m in (5, 10, 20, 40, 60):
        more = parameters._replace(Z=X[:m].copy())
        certificate = evaluated(X, Y, more).certificate(more)
        assert certificate is not None
        gaps.append(certificate.gap)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01 * gaps[0]


def test_a_gplvm_has_none() -> None:
    rng = np.random.default_rng(0)
    mu, Y = rng.normal(size=(20, 1)), rng.normal(size=(20, 3))
    rows = Rows(MPI.COMM_SELF, 20, mu, np.full((20, 1), 0.2), Y)
    parameters = Globals(mu[:4].copy(), 1.0, np.ones(1), 2.0)
    evaluator = Evaluator(MPI.COMM_SELF, model_of("gplvm"), rows, 4, 1)
    evaluator(parameters, JITTER)
    assert evaluator.certificate(parameters) is None
