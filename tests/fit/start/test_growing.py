"""The number of inducing points that is left to the program."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.fit.options import Options
from mpigp.fit.start.growing import FEWEST, grow
from mpigp.fit.start.inducing import greedy
from mpigp.kernels.rbf import RBF
from mpigp.mpi.distributed_rows import DistributedRows


def rows(n: int, frequency: float) -> tuple[DistributedRows, DistributedRows]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 1))
    Y = np.sin(frequency * X) + 0.3 * rng.normal(size=(n, 1))
    return (DistributedRows(MPI.COMM_SELF, n, (each - each.mean()) / each.std()) for each in (X, Y))  # type: ignore[return-value]


def options(most: int, nats: float) -> Options:
    return Options(model="regression", inducing=most, grow=nats, max_iter=30)


def test_a_smooth_function_needs_no_more_than_the_fewest() -> None:
    grown = grow(*rows(400, 2.0), options(128, 0.01))
    assert len(grown.start.parameters.Z) == FEWEST
    assert grown.gaps[FEWEST] <= 0.01


def test_it_doubles_until_the_gap_is_small_enough() -> None:
    grown = grow(*rows(1500, 60.0), options(512, 0.05))
    assert next(iter(grown.gaps)) == FEWEST and len(grown.gaps) > 1
    assert list(grown.gaps.values())[-1] <= 0.05
    assert 1 - 1 / grown.start.parameters.beta > 0.5  # it has found the function
    assert len(grown.start.parameters.Z) == list(grown.gaps)[-1]


def test_it_takes_no_more_than_it_may() -> None:
    grown = grow(*rows(1500, 60.0), options(40, 1e-9))
    assert list(grown.gaps) == [FEWEST, 40]
    assert len(grown.start.parameters.Z) == 40


def test_a_fit_that_explains_nothing_proves_nothing() -> None:
    X, Y = rows(1500, 150.0)
    few = grow(X, Y, options(FEWEST, 0.01))
    assert few.gaps[FEWEST] < 0.01 and few.start.parameters.beta < 1.02  # so few points, and all is noise
    assert len(grow(X, Y, options(64, 0.01)).gaps) == 2


@pytest.mark.parametrize("m", [6, 12])
def test_points_that_are_kept_come_first_and_others_where_they_explain_least(m: int) -> None:
    X, _ = rows(300, 1.0)
    kept = np.linspace(-1.5, 0.0, 5)[:, None]
    Z = greedy(X, m, RBF(), np.array([4.0]), seed=0, kept=kept)
    np.testing.assert_array_equal(Z[:5], kept)
    assert Z[5, 0] > 1.2  # the far end, where no point was kept
    assert len(np.unique(Z)) == m
