"""The compiled loops by themselves: the exponential, and the gradient through K_mm."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from mpigp import native
from tests.support import reference

LOG2E = 1.4426950408889634


def exponential(x: np.ndarray) -> np.ndarray:
    out = np.full_like(x, np.nan)
    native.exponential(x, out)
    return out


def test_the_build_is_one_of_those_compiled():
    assert native.instruction_set in ("avx512", "avx2", "baseline")


def test_powers_of_two_are_right_to_three_units_in_the_last_place():
    """The loops keep exponents in powers of two: 2^t is compared at the t that x log2(e) rounds to."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-700, 700, 2000), rng.uniform(-1, 1, 500), np.arange(-30, 31) * 0.5])
    found = exponential(x)
    with mpmath.workprec(120):
        exact = [mpmath.power(2, mpmath.mpf(float(t))) for t in LOG2E * x]
        ulps = [abs(mpmath.mpf(float(f)) - e) / np.spacing(float(e)) for f, e in zip(found, exact, strict=True)]
    # The minimax polynomial is good to 2.1e-16, which is 1.9 units just below a power of two; Horner's last steps round
    # by about one more (measured: 2.9 units, 3.8e-16 relative).
    assert max(ulps) <= 3.0


def test_it_agrees_with_numpy_over_the_whole_range():
    x = np.linspace(-700, 700, 100_001)
    # 2^t to 4.4e-16 (above), and x log2(e) is rounded, by 1.1e-16, as is log2(e): x times that.
    assert (np.abs(exponential(x) / np.exp(x) - 1) <= 4.4e-16 + 2 * 1.2e-16 * np.abs(x)).all()
    near = np.linspace(-0.5, 0.5, 10_001)
    assert (np.abs(exponential(near) / np.exp(near) - 1) <= 6e-16).all()


def test_it_is_exact_at_zero():
    assert (exponential(np.zeros(9)) == 1.0).all()


def test_far_below_it_is_nothing_beside_one():
    """Below 2^-1020 exponents are clamped: positive, normal, and too small to matter in any sum."""
    far = exponential(np.array([-708.0, -745.0, -1e4, -1e10, -1e300, -np.inf]))
    assert (far >= 2.0**-1022).all()
    assert (far <= 2.0**-1019).all()


def test_not_a_number_stays_so_in_its_lane():
    x = np.linspace(-3, 3, 41)
    x[[0, 7, 40]] = np.nan
    found = exponential(x)
    assert np.isnan(found[[0, 7, 40]]).all()
    assert np.isfinite(np.delete(found, [0, 7, 40])).all()


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100])
def test_a_length_that_is_no_multiple_of_the_vectors_gives_the_same_bits(length):
    x = np.linspace(-20, 20, 100)
    assert exponential(x[:length].copy()).tobytes() == exponential(x)[:length].tobytes()


def test_it_writes_nothing_past_the_end():
    out = np.full(40, -1.0)
    native.exponential(np.zeros(7), out[:7])
    assert (out[:7] == 1.0).all()
    assert (out[7:] == -1.0).all()


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="length"):
        native.exponential(np.zeros(3), np.zeros(4))


@pytest.mark.parametrize(("m", "q"), [(1, 1), (2, 3), (9, 2)])
def test_the_gradient_through_the_gram_matrix_agrees_with_complex_steps(m, q):
    rng = np.random.default_rng(m)
    W = rng.normal(size=(m, m))
    W = W + W.T
    values = {"Z": rng.normal(size=(m, q)), "alpha": rng.uniform(0.2, 2, size=q)}
    K = reference.kernel(values["Z"], values["Z"], 1.0, values["alpha"])
    by_Z, by_alpha = native.gram_gradient(W * K, values["Z"], values["alpha"])

    def weighted(Z, alpha):
        return (W * reference.kernel(Z, Z, 1.0, alpha)).sum()

    # Sums of at most 81 numbers near one.
    np.testing.assert_allclose(by_Z, reference.complex_step(weighted, values, "Z"), rtol=0, atol=2e-14)
    np.testing.assert_allclose(by_alpha, reference.complex_step(weighted, values, "alpha"), rtol=0, atol=2e-13)


@pytest.mark.parametrize(("n", "count"), [(3, 3), (8, 1), (301, 4)])
def test_the_largest_dot_products_come_first_and_of_equal_ones_the_first(n, count):
    rng = np.random.default_rng(n)
    left, right = rng.integers(-3, 4, (7, 13)).astype(float), rng.integers(-3, 4, (n, 13)).astype(float)  # exact, ties
    expected = np.argsort(-(left @ right.T), axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(native.largest_dots(left, right, count), expected)


def test_more_dot_products_than_there_are_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        native.largest_dots(np.ones((2, 3)), np.ones((4, 3)), 5)
