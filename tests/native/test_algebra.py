"""The compiled algebra of small matrices against the same formulas in NumPy."""

from __future__ import annotations

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


def test_rows_and_columns_are_put_in_order(matrices):
    order = np.random.default_rng(3).permutation(len(matrices.K))
    assert (native.permuted(matrices.K, order) == matrices.K[order][:, order]).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_solutions_solve(matrices, order):
    L, B = matrices.L, np.array(matrices.b, order=order)
    agree(L @ native.solve(L, B), B)
    agree(L.T @ native.solve(L, B, transposed=True), B)
    assert (matrices.b == B).all()


def test_the_inverse_is_one(matrices):
    agree(native.triangle_inverse(matrices.L) @ matrices.L, np.eye(len(matrices.L)))


def test_triangles_are_packed_by_rows_and_come_back(matrices):
    triangle = native.packed(matrices.K)
    assert (triangle == pairs_of(matrices.K[None])[:, 0]).all()
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


def test_the_derivative_by_the_gram_matrix(matrices):
    L, W, K, _ = matrices
    agree(native.by_gram(W[0], L, K), -L.T @ W[0] @ L * K)


def test_the_derivative_through_pairs(matrices):
    psi2 = matrices.W + 1.0
    halved = 1 - 0.5 * np.eye(len(psi2[0]))
    found = matrices.K.copy()
    native.add_through_pairs(found, pairs_of(matrices.W * halved), pairs_of(psi2))
    agree(found, matrices.K + 0.5 * (matrices.W * psi2).sum(axis=0))
