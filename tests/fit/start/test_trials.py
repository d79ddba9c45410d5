"""Starts that are tried: on which rows, which are compared, which is taken, and when there is but one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.fit.options import Options
from mpigp.fit.setup import PreparedFit, prepare
from mpigp.fit.start import trials
from mpigp.fit.start.initialize import first_globals
from mpigp.fit.start.trials import GROWTH, MARGIN, MOST_COMPARED, NUMBERS, SMALLEST, Start, others, subset_sizes
from mpigp.gp.parameters import Globals
from mpigp.mpi.distributed_rows import DistributedRows

M = 10
OPTIONS = Options(model="regression", inducing=M, max_iter=20, standardize="none")


def whole(values: np.ndarray) -> DistributedRows:
    """Return rows (n, columns) that are all on this rank."""
    return DistributedRows(MPI.COMM_SELF, len(values), values)


def crowd(n: int) -> tuple[DistributedRows, DistributedRows]:
    """Return inputs of which most are in one place, where the outputs say nothing, and few where they say much."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 1)) * 0.05
    X[: n // 20] = rng.uniform(1.0, 8.0, size=(n // 20, 1))
    Y = 10 * np.sin(3 * X) * (X > 0.5) + 0.1 * rng.normal(size=(n, 1))
    order = rng.permutation(n)
    return whole(X[order]), whole(Y[order])


def prepared(n: int, **options: object) -> PreparedFit:
    return prepare(*crowd(n), replace(OPTIONS, **options))


def start_of(n: int, **options: object) -> Start:
    start = prepared(n, **options).start
    assert start is not None
    return start


def bits(parameters: Globals) -> bytes:
    return parameters.pack().tobytes()


# on which rows


@pytest.mark.parametrize(
    ("n", "m", "columns", "sizes"),
    [
        (SMALLEST, 10, 3, []),
        (16_383, 10, 3, []),  # less than twice the first
        (16_384, 10, 3, [8192]),
        (150_000, 10, 3, [8192, 32768]),
        (10**9, 10, 3, [8192, 32768]),  # and no larger
        (10**9, 5000, 3, [32768]),  # at least four times as many rows as inducing points
        (10**9, 10, 100, [8192]),  # wide rows
        (10**9, 10, 300, []),
    ],
)
def test_subsets_grow_with_the_rows_and_the_inducing_points(n: int, m: int, columns: int, sizes: list[int]) -> None:
    assert subset_sizes(n, m, columns) == sizes


def test_subsets_are_small_whatever_the_rows() -> None:
    for n in (SMALLEST, 8192, 9001, 40_000, 10**6, 10**10):
        for m in (1, 199, 200, 201, 5000):
            for columns in (2, 100, 5000, 10**6):
                sizes = subset_sizes(n, m, columns)
                assert sizes == sorted(sizes)
                assert all(GROWTH * m <= size <= n // 2 and size * columns <= NUMBERS for size in sizes)


# which are compared


def test_which_starts_are_compared() -> None:
    assert others(OPTIONS) == ["kmeans", "greedy"]
    assert others(replace(OPTIONS, kernel="matern52")) == ["kmeans", "greedy"]
    assert others(replace(OPTIONS, inducing=MOST_COMPARED)) == ["kmeans", "greedy"]
    assert others(replace(OPTIONS, inducing=MOST_COMPARED + 1)) == []
    for placement in ("random", "kmeans", "greedy"):
        assert others(replace(OPTIONS, placement=placement)) == []


def test_a_placement_that_is_chosen_is_compared_with_nothing_but_begins_on_few_rows() -> None:
    start = start_of(16400, placement="random")
    assert start.tried == {}
    assert start.best == "random"
    assert start.rows == 8192
    assert start.learned is not None
    X, Y = crowd(16400)
    assert bits(start.parameters) != bits(first_globals(X, Y, OPTIONS, 0))


# which is taken


@pytest.mark.parametrize(("n", "rows"), [(1009, 1009), (16400, 8192)])
def test_a_greedy_start_that_is_clearly_better_is_taken(n: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = start_of(n)
    assert taken.tried.keys() == {"random", "kmeans", "greedy"}
    assert (taken.best, taken.rows) == ("greedy", rows)
    others = [taken.tried[name] for name in ("random", "kmeans")]
    assert taken.tried["greedy"] > max(others) + MARGIN * rows
    monkeypatch.setattr(trials, "MARGIN", math.inf)
    plain = start_of(n)
    assert plain.best == "random"
    assert plain.tried["random"] == taken.tried["random"]
    assert bits(plain.parameters) != bits(taken.parameters)


def test_the_fit_goes_on_from_where_the_best_start_came_to() -> None:
    found = prepared(1009)
    assert found.start is not None
    # Nothing but the logarithms of the parameters, and back, is between the two.
    assert found.fit.bound == pytest.approx(found.start.tried[found.start.best], rel=1e-10)


def test_the_next_search_knows_what_the_last_has_learned() -> None:
    found = prepared(1009)
    assert found.start is not None
    assert found.start.learned is not None
    assert (found.start.learned.curvature != 1).any()
    assert (found.fit.optimizer.vectors()["curvature"].shared == found.start.learned.curvature).all()


# one start


@pytest.mark.parametrize("options", [{"start": "single"}, {"hold": 5}, {"optimizer": "gd", "start": "single"}])
def test_a_single_start_is_the_plain_one(options: dict[str, object]) -> None:
    start = start_of(16400, **options)
    X, Y = crowd(16400)
    assert bits(start.parameters) == bits(first_globals(X, Y, OPTIONS, 0))
    assert (start.learned, start.tried, start.rows) == (None, {}, 0)


def test_few_rows_have_a_single_start() -> None:
    assert start_of(SMALLEST).tried
    few = start_of(SMALLEST - 1)
    assert (few.learned, few.tried) == (None, {})


def test_restarts_are_compared_on_all_rows() -> None:
    start = start_of(1009, restarts=2)
    X, Y = crowd(1009)
    assert bits(start.parameters) in {bits(first_globals(X, Y, OPTIONS, seed)) for seed in (0, 1)}
    assert (start.learned, start.tried, start.rows) == (None, {}, 0)


@pytest.mark.parametrize("optimizer", ["scg", "gd"])
def test_other_optimizers_learn_no_curvature(optimizer: str) -> None:
    start = start_of(1009, optimizer=optimizer)
    assert start.learned is None
    assert len(start.tried) == 3
