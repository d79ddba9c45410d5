"""Sums by integers: any order, the same bits; and digits enough."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mpigp.numerics.reproducible_sum import FINE, from_accumulators, scale_for, to_accumulators

BOUNDS = np.array([1e-300, 3e-200, 1e-17, 0.3, 1.0, 1.5, 2.0, np.nextafter(2.0, 0), 1e8, 7e100, 1e200])


def total(parts: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.sum([to_accumulators(part, scale) for part in parts], axis=0)


@pytest.fixture
def parts() -> np.ndarray:
    """Terms (500, 4) of both signs whose sizes differ by twelve orders of magnitude."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(500, 4)) * 10.0 ** rng.uniform(-12, 0, size=(500, 4))


def test_the_scale_is_a_power_of_two():
    mantissa, _ = np.frexp(scale_for(BOUNDS))
    assert (mantissa == 0.5).all()


def test_a_sum_at_its_bound_stays_below_the_sixty_first_bit_and_wastes_one_at_most():
    usual = BOUNDS[BOUNDS > 1e-280]
    scaled = usual * scale_for(usual)
    assert (scaled < 2.0**61).all()
    assert (scaled >= 2.0**60).all()


@pytest.mark.parametrize("bound", [0.0, 5e-324, 1e-300])
def test_a_bound_of_nothing_has_a_finite_scale(bound):
    scale = scale_for(bound)
    assert np.isfinite(scale)
    assert bound * scale < 2.0**61


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bound", [0.0, 1e-300, 1e-270, 1e250])
def test_words_of_any_bound_are_read_without_a_warning(bound):
    scale = scale_for(np.array([bound]))
    assert from_accumulators(to_accumulators(np.zeros(1), scale), scale) == 0.0
    assert from_accumulators(np.zeros(1, np.int64), scale) == 0.0


def test_one_number_survives_its_two_words():
    rng = np.random.default_rng(0)
    for bound in BOUNDS[BOUNDS > 1e-200]:
        values = bound * rng.uniform(-1, 1, size=1000)
        scale = np.broadcast_to(scale_for(bound), values.shape)
        # A double within a factor 2^47 of its bound has no bit beyond the two words (60 + 40 bits, less 53).
        near = np.abs(values) > bound * 2.0**-46
        assert near.sum() > 990
        assert (from_accumulators(to_accumulators(values, scale), scale) == values)[near].all()


def test_two_words_carry_ninety_bits(parts):
    bound = np.abs(parts).sum(axis=0)
    scale = scale_for(bound)
    words = total(parts, scale)
    for column, (b, s) in enumerate(zip(bound, scale, strict=True)):
        exact = sum((Fraction(float(x)) for x in parts[:, column]), Fraction(0))
        unit = 1 / Fraction(float(s))
        found = int(words[2 * column]) * unit + int(words[2 * column + 1]) * unit / int(FINE)
        # Each of the 500 < 2^9 terms is rounded once, at 2^-100 of the bound: 2^-101 each, 2^-92 together.
        assert abs(found - exact) <= Fraction(float(b)) / 2**91


def test_a_sum_is_as_good_as_the_exact_one_rounded(parts):
    scale = scale_for(np.abs(parts).sum(axis=0))
    exact = [float(sum((Fraction(float(x)) for x in column), Fraction(0))) for column in parts.T]
    # Two words are put together by one rounded division each and one rounded sum.
    np.testing.assert_allclose(from_accumulators(total(parts, scale), scale), exact, rtol=4e-16, atol=0)


def test_the_order_of_addition_changes_no_bit(parts):
    scale = scale_for(np.abs(parts).sum(axis=0))
    words = total(parts, scale)
    rng = np.random.default_rng(1)
    for _ in range(20):
        shuffled = parts[rng.permutation(len(parts))]
        cut = rng.integers(1, len(parts))
        np.testing.assert_array_equal(total(shuffled[:cut], scale) + total(shuffled[cut:], scale), words)
    assert any((parts.sum(axis=0) != parts[rng.permutation(500)].sum(axis=0)).any() for _ in range(20))  # floats do


def test_the_second_word_holds_what_four_million_chunks_leave():
    largest_rest = np.array([0.5 - 2.0**-41])  # the first word rounds it away entirely
    words = to_accumulators(largest_rest, np.ones(1))
    assert words[0] == 0
    assert int(words[1]) * 2**22 < 2**63


def test_one_word_resolves_a_sum_to_its_bound_by_two_to_the_sixty():
    scale = scale_for(np.array([1000.0]))
    one_unit = from_accumulators(np.ones(1, np.int64), scale)
    assert one_unit[0] <= 1000.0 * 2.0**-60
