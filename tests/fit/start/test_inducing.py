"""Inducing inputs to start from: a textbook's pivoted Cholesky and Lloyd's algorithm, distinct rows, and limits."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.errors import InputError
from mpigp.fit.start import inducing
from mpigp.fit.start.inducing import greedy, kmeans, random_rows
from mpigp.kernels.rbf import RBF
from mpigp.mpi.distributed_rows import DistributedRows
from tests.support.compositions import pivots

SELF = MPI.COMM_SELF


def whole(values: np.ndarray) -> DistributedRows:
    """Return rows (n, columns) that are all on this rank."""
    return DistributedRows(SELF, len(values), values)


def inputs(n: int, q: int = 2) -> np.ndarray:
    return np.random.default_rng([n, q]).normal(size=(n, q)) * 2 + 1


def places(Z: np.ndarray, X: np.ndarray) -> list[int]:
    """Return which row of X each row of Z is."""
    return [int(np.flatnonzero((z == X).all(axis=1))[0]) for z in Z]


def kernel(X: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (alpha * (X[:, None] - X) ** 2).sum(axis=2))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (10, 10), (65, 20), (700, 40)])
def test_greedy_takes_the_pivots_of_the_cholesky_factorisation(n: int, m: int) -> None:
    X, alpha = inputs(n), np.array([1.0, 3.0])
    assert places(greedy(whole(X), m, RBF(), alpha), X) == pivots(kernel(X, alpha), m)


def test_greedy_explains_more_than_random_rows_where_the_points_can_cover_the_inputs() -> None:
    X, alpha = inputs(1000), np.full(2, 0.1)  # lengthscales that 30 points can cover

    def unexplained(Z: np.ndarray) -> float:
        both = kernel(np.concatenate([Z, X]), alpha)
        m = len(Z)
        return 1000 - np.trace(both[m:, :m] @ np.linalg.solve(both[:m, :m] + 1e-10 * np.eye(m), both[:m, m:]))

    best_of_random = min(unexplained(random_rows(whole(X), 30, seed)) for seed in range(5))
    assert unexplained(greedy(whole(X), 30, RBF(), alpha)) < best_of_random


def test_greedy_fills_up_with_other_rows_when_all_are_explained() -> None:
    X = np.repeat(inputs(3), 100, axis=0)
    X[:, 1] += 1e-9 * np.arange(300)  # to tell them apart
    chosen = places(greedy(whole(X), 10, RBF(), np.ones(2)), X)
    assert sorted(index // 100 for index in chosen[:3]) == [0, 1, 2]
    assert len(set(chosen)) == 10


def test_greedy_survives_rows_that_are_all_equal() -> None:
    assert (greedy(whole(np.ones((200, 2))), 5, RBF(), np.ones(2)) == 1).all()


def test_a_weight_of_zero_takes_a_dimension_away() -> None:
    X = np.column_stack([np.ones(100), np.arange(100.0)])
    assert sorted(places(greedy(whole(X), 2, RBF(), np.array([1.0, 1e-4])), X)) == [0, 99]


def test_greedy_looks_at_no_more_rows_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inducing, "GREEDY_ROWS", 500)
    X, alpha = inputs(3000), np.ones(2)
    subset = random_rows(whole(X), 500, seed=4)
    assert (greedy(whole(X), 20, RBF(), alpha, seed=4) == greedy(whole(subset), 20, RBF(), alpha)).all()
    assert len(np.unique(greedy(whole(X), 501, RBF(), alpha), axis=0)) == 501


@pytest.mark.parametrize(("n", "m"), [(1, 1), (100, 7), (100, 100), (20000, 50)])
def test_random_rows_are_distinct_rows_that_follow_the_seed(n: int, m: int) -> None:
    X = inputs(n)
    chosen = places(random_rows(whole(X), m, 3), X)
    assert chosen == sorted(set(chosen))
    assert chosen == places(random_rows(whole(X), m, 3), X)
    assert m == n or chosen != places(random_rows(whole(X), m, 4), X)


def test_rows_come_bit_for_bit() -> None:
    X = np.array([[-0.0, 5e-324], [1e308, -1e-308]])
    assert random_rows(whole(X), 2, 0).tobytes() == X.tobytes()


def lloyd(X: np.ndarray, Z: np.ndarray, iterations: int) -> np.ndarray:
    for _ in range(iterations):
        nearest = ((X[:, None] - Z) ** 2).sum(axis=2).argmin(axis=1)
        Z = np.array([X[nearest == k].mean(axis=0) if (nearest == k).any() else z for k, z in enumerate(Z)])
    return Z


@pytest.mark.parametrize("far", [0.0, 1e6])
@pytest.mark.parametrize(("n", "m", "iterations"), [(1, 1, 20), (40, 40, 5), (1009, 12, 7), (1009, 12, 200)])
def test_kmeans_is_lloyds_algorithm(n: int, m: int, iterations: int, far: float) -> None:
    X = inputs(n, 3) + far
    Z = kmeans(whole(X), m, 5, iterations)
    np.testing.assert_allclose(Z, lloyd(X, random_rows(whole(X), m, 5), iterations), rtol=1e-13, atol=1e-13)


def test_kmeans_without_iterations_is_its_start() -> None:
    X = inputs(100)
    assert (kmeans(whole(X), 4, 1, iterations=0) == random_rows(whole(X), 4, 1)).all()


def test_an_empty_cluster_keeps_its_centre() -> None:
    X = np.repeat([[0.25, 0.5], [5.0, 5.5]], 50, axis=0)  # numbers whose means are exact
    assert (kmeans(whole(X), 10, 0) == random_rows(whole(X), 10, 0)).all()


@pytest.mark.parametrize(
    "choose",
    [
        lambda X, m: greedy(whole(X), m, RBF(), np.ones(2)),
        lambda X, m: random_rows(whole(X), m, 0),
        lambda X, m: kmeans(whole(X), m, 0),
    ],
)
def test_more_inducing_points_than_rows_are_refused(choose) -> None:
    with pytest.raises(InputError, match="inducing: is 11, but there are 10 rows: give at most as many"):
        choose(inputs(10), 11)
