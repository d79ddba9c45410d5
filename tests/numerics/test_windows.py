"""Sums in windows: the same words in any order and any grouping, and digits enough, whatever the values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mpigp.numerics.reproducible_sum import LEAST_EXPONENT, WORDS, Windows

SMALLEST, LARGEST = 5e-324, np.finfo(float).max
WINDOWS, NO_SCALE = Windows(), np.ones(1)


def of_all_sizes(rng: np.random.Generator, count: int) -> list[float]:
    """Values of all exponents of a double, subnormal ones too."""
    return np.ldexp(
        rng.uniform(0.5, 1, size=count) * rng.choice([-1, 1], count), rng.integers(-1073, 1020, count)
    ).tolist()


def cancelling(rng: np.random.Generator, count: int) -> list[float]:
    """Values of all sizes, each with its opposite, so that only the last few remain."""
    large = of_all_sizes(rng, count)
    return large + [-value for value in large] + rng.normal(size=3).tolist()


RNG = np.random.default_rng(0)
COLUMNS: dict[str, list[float]] = {
    "alike": RNG.normal(size=40).tolist(),
    "of forty orders of magnitude": (RNG.normal(size=40) * 10.0 ** RNG.uniform(-20, 20, size=40)).tolist(),
    "of all sizes": of_all_sizes(RNG, 40),
    "cancelling": cancelling(RNG, 20),
    "cancelling to nothing": [1e300, 3.0, -1e300, -3.0],
    "cancelling what hides others": [1e300, 1e-300, -1e300, 1e-280, 1.0, 2.0**200, -(2.0**200)],
    "at the ends of digits": [s * 2.0**e for s in (1, -1, 1 - 2.0**-53) for e in range(-130, 131)],
    "subnormal": [SMALLEST, -3 * SMALLEST, 7e-320, -2.3e-308, 2.3e-308],
    "largest": [LARGEST, -LARGEST, LARGEST, SMALLEST, -LARGEST / 3],
    "zeros": [0.0, -0.0, 0.0, -0.0],
    "zeros and others": [-0.0, 1e-200, 0.0, -1e-200, 3e-210, -0.0],
    "repeated": [0.1] * 1000 + [-1e17] * 3,
}
cases = pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS.keys())


def words_of(values: list[float]) -> np.ndarray:
    """Return the words of the sum of values, added one after the other."""
    words = WINDOWS.zeros(1)
    for value in values:
        words[-1] += WINDOWS.add(words[:-1], NO_SCALE, np.array([value]))
    return words


def merged(parts: list[np.ndarray]) -> np.ndarray:
    words = parts[0].copy()
    for part in parts[1:]:
        WINDOWS.merge(words, part)
    return words


def exactly(words: np.ndarray) -> Fraction:
    """Return the sum of a window's digits."""
    top, digits = int(words[0]), words[1:-1].tolist()
    lowest = top - len(digits) + 1
    return sum(
        (digit * Fraction(2) ** (32 * (lowest + k) + LEAST_EXPONENT) for k, digit in enumerate(digits)), Fraction()
    )


def reduced(ranks: list[np.ndarray]) -> None:
    """Make the words of ranks those of all ranks, as the evaluator does."""
    for messages in zip(*(WINDOWS.messages(words) for words in ranks), strict=True):
        arrays = [array for array, _ in messages]
        total = {"sum": np.sum, "max": np.max}[messages[0][1]](arrays, axis=0)
        for array in arrays:
            array[...] = total


@cases
def test_neither_order_nor_grouping_changes_a_word(values: list[float]) -> None:
    rng, words = np.random.default_rng(1), words_of(values)
    for _ in range(30):
        shuffled = rng.permutation(values).tolist()
        np.testing.assert_array_equal(words_of(shuffled), words)
        first, second = sorted(rng.integers(0, len(values) + 1, size=2))  # a part may have no values
        parts = [words_of(part) for part in (shuffled[:first], shuffled[first:second], shuffled[second:])]
        np.testing.assert_array_equal(merged(parts), words)
        np.testing.assert_array_equal(merged([parts[0], merged(parts[1:])]), words)
        np.testing.assert_array_equal(merged(parts[::-1]), words)


@cases
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_agree_on_the_words_of_all_values(values: list[float], size: int) -> None:
    ranks = [words_of(part.tolist()) for part in np.array_split(values, size)]
    reduced(ranks)
    for words in ranks:
        np.testing.assert_array_equal(words, words_of(values))


@cases
def test_k_values_lose_less_than_k_times_the_largest_by_two_to_the_sixty_four(values: list[float]) -> None:
    """The largest value M has a digit at the window's top, whose unit is thus at most M; what a value loses is less
    than the unit two places below."""
    exact, found = sum(map(Fraction, values), Fraction()), exactly(words_of(values))
    largest = max(map(abs, map(Fraction, values)))
    assert abs(found - exact) < len(values) * largest / 2**64 or found == exact == 0
    if len(values) <= 16:
        assert abs(found - exact) <= largest / 2**60


@cases
def test_a_sum_is_its_digits_rounded_once(values: list[float]) -> None:
    words = words_of(values)
    (found,) = WINDOWS.floats(words[:-1], NO_SCALE)
    assert found == float(exactly(words))


@pytest.mark.parametrize("name", ["alike", "subnormal", "repeated", "zeros", "cancelling to nothing"])
def test_a_sum_that_loses_no_digit_is_the_exact_one_rounded(name: str) -> None:
    assert WINDOWS.floats(words_of(COLUMNS[name])[:-1], NO_SCALE)[0] == math.fsum(COLUMNS[name])


def test_a_zero_moves_nothing() -> None:
    np.testing.assert_array_equal(words_of([0.0, -0.0]), WINDOWS.zeros(1))
    np.testing.assert_array_equal(words_of([0.0, SMALLEST, -0.0]), words_of([SMALLEST]))


def test_values_that_cancel_leave_their_top() -> None:
    """If it followed the sum, a small value would count when it is added after them, and not before."""
    assert words_of([1e300, -1e300])[0] == words_of([1e300])[0]
    assert WINDOWS.floats(words_of([1e300, -1e300, 1.0])[:-1], NO_SCALE)[0] == 0.0


@pytest.mark.parametrize("value", [2.0**-33 - 2.0**-86, -1 + 2.0**-53, -SMALLEST, 2.0**986 - 2.0**933])
def test_there_is_room_for_two_to_the_thirty_one_values(value: float) -> None:
    words = words_of([value])
    for _ in range(31):
        WINDOWS.merge(words, words.copy())
    assert exactly(words) == Fraction(value) * 2**31
    assert WINDOWS.floats(words[:-1], NO_SCALE)[0] == float(exactly(words))


def test_a_sum_beyond_all_doubles_is_infinite() -> None:
    assert WINDOWS.floats(words_of([LARGEST, LARGEST])[:-1], NO_SCALE)[0] == np.inf
    assert WINDOWS.floats(words_of([-LARGEST, -LARGEST])[:-1], NO_SCALE)[0] == -np.inf
    assert WINDOWS.floats(words_of([LARGEST, LARGEST, -LARGEST])[:-1], NO_SCALE)[0] == LARGEST


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_counted_and_left_out(bad: float) -> None:
    words = words_of([1.0, bad, 2.0, bad])
    assert words[-1] == 2
    np.testing.assert_array_equal(words[:-1], words_of([1.0, 2.0])[:-1])
    ranks = [words, words_of([bad]), words_of([3.0])]
    np.testing.assert_array_equal(merged(ranks)[-1], 3)
    reduced(ranks)
    assert [each[-1] for each in ranks] == [3, 3, 3]


def test_sums_side_by_side_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(2)
    values = np.stack([rng.permutation(of_all_sizes(rng, 30)) for _ in range(7)], axis=1)
    words = WINDOWS.zeros(7)
    for row in values:
        assert WINDOWS.add(words[:-1], np.ones(7), row) == 0
    assert len(words) == 7 * WORDS + 1
    alone = np.array([words_of(column.tolist()) for column in values.T])
    np.testing.assert_array_equal(words[:7], alone[:, 0])
    np.testing.assert_array_equal(words[7:-1].reshape(7, -1), alone[:, 1:-1])
    np.testing.assert_array_equal(
        WINDOWS.floats(words[:-1], np.ones(7)), [WINDOWS.floats(each[:-1], NO_SCALE)[0] for each in alone]
    )
