"""Factors of K_mm in the order of complete pivoting."""

from __future__ import annotations

import numpy as np
import pytest

from mpigp import native
from mpigp.kernels.rbf import RBF
from mpigp.numerics.cholesky import NotPositiveDefinite, whiten


@pytest.fixture
def K() -> np.ndarray:
    Z = np.random.default_rng(5).uniform(-3, 3, size=(25, 2))
    return RBF().covariance(Z, Z, np.array([1.0, 0.4]))


def test_the_factor_is_of_the_gram_matrix_in_its_order(K):
    whitening = whiten(K, 1e-4)
    L, order = whitening.L, whitening.order
    assert sorted(order) == list(range(25))
    assert (np.triu(L, 1) == 0).all()
    assert L.flags.c_contiguous
    # Cholesky's backward error: m units in the last place of the diagonal, which is 1.
    np.testing.assert_allclose(L @ L.T, (K + 1e-4 * np.eye(25))[order][:, order], rtol=0, atol=25 * 2.3e-16)


def test_each_point_is_the_one_with_the_largest_variance_left(K):
    whitening = whiten(K, 1e-4)
    L = whitening.L
    for j in range(25):
        left = 1 + 1e-4 - (L[j:, :j] ** 2).sum(axis=1)
        assert left[0] >= left.max() - 1e-14  # ties and rounding


def test_the_inverse_of_the_factor_is_one(K):
    whitening = whiten(K, 1e-4)
    inverse_of_L = native.triangle_inverse(whitening.L)
    # m units in the last place of |L⁻¹| |L|, at most 1e2.
    np.testing.assert_allclose(inverse_of_L @ whitening.L, np.eye(25), rtol=0, atol=1e-12)
    assert (np.triu(inverse_of_L, 1) == 0).all()
    assert inverse_of_L.flags.c_contiguous


def test_the_order_follows_the_points_when_they_are_permuted(K):
    shuffle = np.random.default_rng(2).permutation(25)
    first, second = whiten(K, 1e-4), whiten(K[shuffle][:, shuffle], 1e-4)
    # All variances tie at the first step, and the first point of the list wins: the factors agree only as products.
    K_first, K_second = np.empty((25, 25)), np.empty((25, 25))
    K_first[np.ix_(first.order, first.order)] = first.L @ first.L.T
    K_second[np.ix_(shuffle[second.order], shuffle[second.order])] = second.L @ second.L.T
    np.testing.assert_allclose(K_first, K_second, rtol=0, atol=1e-14)


@pytest.mark.parametrize("spoil", ["twice the same point", "not a number", "indefinite"])
def test_what_has_no_factor_is_refused(K, spoil):
    if spoil == "twice the same point":
        K = np.ones((3, 3))
    elif spoil == "not a number":
        K[3, 4] = K[4, 3] = np.nan
    else:
        K[0, 1] = K[1, 0] = 2.0
    with pytest.raises(NotPositiveDefinite):
        whiten(K, 0.0)
