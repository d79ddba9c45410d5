"""Dot products of vectors that are spread over ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.mpi.vectors import MultiVector, VectorSpace
from mpigp.numerics.reproducible_sum import DIGITS, LEAST_EXPONENT, from_superaccumulators, to_superaccumulators


def filled(space: VectorSpace, count: int, seed: int) -> MultiVector:
    block, rng = space.block(count), np.random.default_rng(seed)
    block.shared[...] = rng.normal(size=block.shared.shape)
    block.local[...] = rng.normal(size=block.local.shape)
    return block


def flat(block: MultiVector) -> np.ndarray:
    return np.concatenate([block.shared, block.local.reshape(len(block.shared), -1)], axis=1)


@pytest.mark.parametrize("rows", [0, 1, 64, 200])
def test_dot_products_are_those_of_the_whole_vectors(rows: int) -> None:
    space = VectorSpace(MPI.COMM_SELF, shared=5, segments=2, rows_local=rows, width=3, chunk=64)
    left, right = filled(space, 2, 0), filled(space, 4, 1)
    one, other = space.dots([(left, right), (right, right)])
    np.testing.assert_allclose(one, flat(left) @ flat(right).T, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(other, flat(right) @ flat(right).T, rtol=1e-13, atol=1e-13)


def test_a_combination_is_the_sum_of_its_vectors() -> None:
    space = VectorSpace(MPI.COMM_SELF, shared=5, segments=2, rows_local=100, width=3, chunk=64)
    vectors, out = filled(space, 4, 0), space.block(1)
    c = np.array([1.0, -2.0, 0.5, 3.0])
    space.combine(c, vectors, out)
    np.testing.assert_allclose(flat(out)[0], c @ flat(vectors), rtol=1e-13, atol=1e-13)
    out.set_sum(vectors[0], 2.0, vectors[1])
    np.testing.assert_array_equal(flat(out), flat(vectors[0]) + 2.0 * flat(vectors[1]))


def test_digits_add_exactly_over_all_exponents_in_any_order() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 5)) * 10.0 ** rng.integers(-250, 250, size=(300, 5))
    digits = to_superaccumulators(values)
    shuffled = values[rng.permutation(300)]
    parts = sum(to_superaccumulators(shuffled[start : start + 37]) for start in range(0, 300, 37))
    np.testing.assert_array_equal(parts, digits)
    exact = [math.fsum(column) for column in values.T]
    np.testing.assert_allclose(
        from_superaccumulators(digits), exact, rtol=2.3e-16
    )  # one rounding, of the sum from its digits


def test_digits_of_the_extremes() -> None:
    smallest, largest = 5e-324, np.finfo(float).max
    sums = from_superaccumulators(
        to_superaccumulators(np.array([[smallest, largest, -1.0, 0.0], [smallest, -largest, 1e-300, 0.0]]))
    )
    np.testing.assert_array_equal(sums, [1e-323, 0.0, -1.0, 0.0])
    assert math.frexp(smallest)[1] - 53 >= LEAST_EXPONENT  # the last bit of its mantissa has a digit


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_sum_with_a_value_that_is_no_number_is_none(bad: float) -> None:
    digits = to_superaccumulators(np.array([[1.0, 2.0], [bad, 3.0]]))
    assert digits.shape == (2, DIGITS)
    assert np.isnan(from_superaccumulators(digits)[0]) and from_superaccumulators(digits)[1] == 5.0
