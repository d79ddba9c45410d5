"""The compiled algebra of small matrices against the same formulas in NumPy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from mpigp import native

# All matrices here are well-conditioned (L⁻¹ is below 1), small, and of numbers below 1e2: a few hundred units in the
# last place of those.
ROUNDING = 1e-12


class Matrices(NamedTuple):
    """L (m, m), lower triangular; W (groups, m, m), symmetric; K (m, m), symmetric and positive; b (m, d)."""

    L: np.ndarray
    W: np.ndarray
    K: np.ndarray
    b: np.ndarray


@pytest.fixture(params=[(1, 1, 1), (2, 1, 3), (7, 1, 2), (7, 3, 4), (40, 2, 1)], ids=str)
def matrices(request) -> Matrices:
    m, groups, d = request.param
    rng = np.random.default_rng(m)
    half, K = rng.normal(size=(groups, m, m)), rng.uniform(0.1, 1, size=(m, m))
    L = np.tril(rng.normal(size=(m, m)) / m) + 3 * np.eye(m)
    return Matrices(L, half + half.swapaxes(1, 2), K + K.T, rng.normal(size=(m, d)))


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)


def pairs_of(matrices: np.ndarray) -> np.ndarray:
    """Lower triangles (m(m+1)/2, groups) of matrices (groups, m, m)."""
    lower = np.tril_indices(matrices.shape[1])
    return np.stack([matrix[lower] for matrix in matrices], axis=1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_solutions_solve(matrices, order):
    L, B = matrices.L, np.array(matrices.b, order=order)
    agree(L @ native.solve(L, B), B)
    agree(L.T @ native.solve(L, B, transposed=True), B)
    assert (matrices.b == B).all()


def test_the_inverse_is_one(matrices):
    agree(native.triangle_inverse(matrices.L) @ matrices.L, np.eye(len(matrices.L)))


def test_triangles_are_packed_by_rows(matrices):
    triangle = np.ascontiguousarray(pairs_of(matrices.K[None])[:, 0])
    assert (native.symmetric(triangle, len(matrices.K)) == matrices.K).all()


def test_whitened_sums_are_whitened(matrices):
    L, W, K, _ = matrices
    found = native.whitened(pairs_of(W), K, L)
    for C, each in zip(found, W, strict=True):
        agree(L @ C @ L.T, each * K)
    assert (found == found.swapaxes(1, 2)).all()


def test_both_sides_of_a_matrix_that_is_not_symmetric(matrices):
    W = np.tril(matrices.W[0])
    given = W.copy()
    found = native.sandwiched(matrices.L, W, -3.0)
    agree(found, -1.5 * matrices.L.T @ (W + W.T) @ matrices.L)
    agree(native.sandwiched(matrices.L, W, -3.0, transposed=True), -1.5 * matrices.L @ (W + W.T) @ matrices.L.T)
    assert (found == found.T).all()
    assert (given == W).all()


def test_the_weights_of_pairs(matrices):
    L, W, K, _ = matrices
    halved = 1 - 0.5 * np.eye(len(L))
    agree(native.pair_weights(W, K, L), pairs_of((L.T @ W @ L) * K * halved))


def test_the_total_of_absolute_values(matrices):
    residuals = np.arange(1.0, 1.0 + matrices.b.shape[1])
    found = native.absolute_total(matrices.W[0], 3.0, matrices.b, residuals)
    assert found == pytest.approx(3 * np.abs(matrices.W[0]).sum() + (np.abs(matrices.b) @ residuals).sum(), rel=1e-13)


def test_the_derivative_through_pairs(matrices):
    psi2 = matrices.W + 1.0
    halved = 1 - 0.5 * np.eye(len(psi2[0]))
    found = matrices.K.copy()
    native.add_through_pairs(found, pairs_of(matrices.W * halved), pairs_of(psi2))
    agree(found, matrices.K + 0.5 * (matrices.W * psi2).sum(axis=0))


M, D, GROUPS = 4, 3, 2
PAIRS = M * (M + 1) // 2
FITTING = {  # arguments of each function
    "pivoted_cholesky": ((M, M), 1e-3),
    "triangle_inverse": ((M, M),),
    "solve": ((M, M), (M, D)),
    "group_bound": ((M, M), (M, D), 3.0, 1.0, 1.0, 1.0, True, 3.0),
    "symmetric": ((PAIRS,), M),
    "whitened": ((PAIRS, GROUPS), (M, M), (M, M)),
    "sandwiched": ((M, M), (M, M), 1.0),
    "pair_weights": ((GROUPS, M, M), (M, M), (M, M)),
    "absolute_total": ((M, M), 1.0, (M, D), (D,)),
    "add_through_pairs": ((M, M), (PAIRS, GROUPS), (PAIRS, GROUPS)),
}
ANY_LENGTH = {  # function, argument, axis: no other argument repeats this length
    ("solve", 1, 1),
    ("group_bound", 1, 1),
    ("whitened", 0, 1),
    ("pair_weights", 0, 0),
    ("absolute_total", 0, 0),
    ("absolute_total", 0, 1),
    ("absolute_total", 2, 0),
}
LONGER = [
    (name, position, axis)
    for name, shapes in FITTING.items()
    for position, shape in enumerate(shapes)
    if isinstance(shape, tuple)
    for axis in range(len(shape))
    if (name, position, axis) not in ANY_LENGTH
]


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize(("name", "position", "axis"), LONGER)
def test_shapes_that_do_not_fit_are_refused(name, position, axis, change):
    arguments = [np.ones(shape) if isinstance(shape, tuple) else shape for shape in FITTING[name]]
    shape = list(FITTING[name][position])
    shape[axis] += change
    arguments[position] = np.ones(shape)
    with pytest.raises(ValueError, match="expected"):
        getattr(native, name)(*arguments)


@pytest.mark.parametrize("name", FITTING)
def test_shapes_that_fit_are_accepted(name):
    getattr(native, name)(*(np.ones(shape) if isinstance(shape, tuple) else shape for shape in FITTING[name]))


@pytest.mark.parametrize(
    "call",
    [
        lambda L, K: native.pivoted_cholesky(K, 1.0),
        lambda L, K: native.triangle_inverse(L),
        lambda L, K: native.sandwiched(L, K, 1.0),
        lambda L, K: native.pair_weights(np.stack([K, K]), K, L),
    ],
    ids=["pivoted_cholesky", "triangle_inverse", "sandwiched", "pair_weights"],
)
def test_other_threads_go_on_meanwhile(call: Callable) -> None:
    """They hear signals, and send heartbeats."""
    m, done, ticks = 1000, threading.Event(), []
    L, K = np.eye(m), np.eye(m)

    def tick() -> None:
        while not done.wait(1e-4):
            ticks.append(time.perf_counter())

    def is_seen() -> bool:
        """Return whether the thread has run in the middle of a call."""
        began = time.perf_counter()
        call(L, K)
        seconds = time.perf_counter() - began
        return any(0.25 * seconds < each - began < 0.75 * seconds for each in ticks)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        assert sum(is_seen() for _ in range(10)) > 5
    finally:
        done.set()
        thread.join()
