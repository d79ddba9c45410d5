"""Means and standard deviations of columns: those of NumPy, at any size and far from zero; constant columns found."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.fit.start.standardize import standardization
from mpigp.mpi.distributed_rows import DistributedRows

SELF = MPI.COMM_SELF


@pytest.fixture(params=[1, 2, 64, 65, 1009, 70001])
def values(request: pytest.FixtureRequest) -> np.ndarray:
    rng = np.random.default_rng(request.param)
    return rng.normal(size=(request.param, 3)) * [1e-3, 1.0, 1e5] + [2.0, 0.0, -7e3]


def whole(values: np.ndarray) -> DistributedRows:
    """Return rows (n, columns) that are all on this rank."""
    return DistributedRows(SELF, len(values), values)


def test_scale_agrees_with_numpy(values: np.ndarray) -> None:
    (mean, scale), constant = standardization(whole(values), "scale")
    # What NumPy itself loses in adding n numbers one after the other.
    np.testing.assert_allclose(mean, values.mean(axis=0), rtol=0, atol=1e-15 * len(values) ** 0.5 * 1e5)
    if len(values) == 1:
        assert constant == [0, 1, 2]
    else:
        np.testing.assert_allclose(scale, values.std(axis=0), rtol=1e-12)
        assert constant == []


def test_the_mean_is_the_exact_one_rounded_far_from_zero() -> None:
    values = 1e12 + np.random.default_rng(1).normal(size=(5000, 1))
    exact = sum(map(Fraction, values[:, 0])) / 5000
    (mean, scale), _ = standardization(whole(values), "scale")
    assert abs(Fraction(mean[0]) - exact) <= np.spacing(mean[0])
    np.testing.assert_allclose(scale, (values - float(exact)).std(axis=0), rtol=1e-12)


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e200, 8e307])
def test_any_size_of_number_serves(size: float) -> None:
    signs = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    (mean, scale), constant = standardization(whole(size * signs), "scale")
    assert (mean[0], scale[0], constant) == (0.0, size, [])


def test_center_leaves_the_scale_and_still_finds_constants(values: np.ndarray) -> None:
    values[:, 1] = 0.1
    (mean, scale), constant = standardization(whole(values), "center")
    assert mean.tobytes() == standardization(whole(values), "scale")[0].mean.tobytes()
    assert (scale == 1).all()
    assert 1 in constant


def test_none_changes_nothing(values: np.ndarray) -> None:
    before = values.copy()
    found, constant = standardization(whole(values), "none")
    assert constant == []
    assert found.apply(values).tobytes() == before.tobytes()


@pytest.mark.parametrize("value", [0.0, 0.1, -1e-300, 12345.678, 1e300])
@pytest.mark.parametrize("n", [1, 3, 1009, 70001])
def test_constant_columns_are_named_and_keep_scale_one(value: float, n: int) -> None:
    values = np.column_stack([np.arange(n), np.full(n, value)]).astype(float)
    values[: n // 2, 1] = np.nextafter(value, 0)  # constant but for rounding
    (mean, scale), constant = standardization(whole(values), "scale")
    assert constant == ([1] if n > 1 else [0, 1])
    assert scale[1] == 1
    np.testing.assert_allclose(mean[1], value, rtol=1e-15)


def test_a_column_that_varies_little_but_truly_is_not_constant() -> None:
    values = 1.0 + 1e-12 * np.random.default_rng(2).normal(size=(1000, 1))
    (_, scale), constant = standardization(whole(values), "scale")
    assert constant == []
    np.testing.assert_allclose(scale, values.std(axis=0), rtol=1e-3)  # 1e-12 holds four digits above the last bit of 1


def test_standardised_columns_have_mean_zero_and_variance_one(values: np.ndarray) -> None:
    if len(values) > 1:
        standardized = standardization(whole(values), "scale")[0].apply(values)
        # The entries were rounded at up to 2e3 deviations from zero.
        np.testing.assert_allclose(standardized.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(standardized.std(axis=0), 1.0, rtol=1e-12)
