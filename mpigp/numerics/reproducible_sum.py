"""Reproducible sums: their bits do not depend on the order of addition.

Integer addition is associative. Each chunk's sum is scaled by a power of two and rounded to an int64, the fixed-point
accumulator; from there on everything (chunks, threads, ranks) adds integers. The scale comes from a bound that is known
before the sum. One accumulator resolves a sum to 2⁻⁶¹ of its bound; a second one holds the remainder of the first, to a
further 2⁻⁴⁰.

A superaccumulator needs no bound: its digits of 32 bits cover all exponents of a double, so its sum is exact. A window
keeps three of these digits, down from the largest place that any value added to it occupies. The unit of this place is
at most M, the largest absolute value. A value loses less than the unit of the third place, so a sum of k values loses
less than 2⁻⁶⁴ k M before it is rounded to a double.

A `Summation` is how the sums of a round are kept: in fixed point, or in windows. A rank's words of a round are the
accumulators of its sums, and last the number of chunk sums that overflowed them, or were not finite.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.native import from_superaccumulators as from_superaccumulators
from mpigp.native import to_superaccumulators as to_superaccumulators
from mpigp.types import Floats, Integers

FINE = native.FINE
"""How much finer the second accumulator is: 2²² chunks of remainders of at most one half still fit it."""

LEAST_EXPONENT, DIGITS = native.LEAST_EXPONENT, native.DIGITS
"""A superaccumulator has DIGITS digits, and its first counts 2^LEAST_EXPONENT."""

WORDS = 1 + native.WINDOW_DIGITS
"""Words of a sum in a window: its top, and its digits."""

MOST = 2.0**62
"""Of a chunk's sum in one accumulator."""


def scale_for(bound: Floats | float) -> Floats:
    """Return powers of two that bring sums of absolute value ≤ `bound` below 2⁶¹; a bound of zero is taken as tiny."""
    bound = np.asarray(bound, np.float64)
    return native.scale_for(bound.ravel()).reshape(bound.shape)


def from_accumulators(accumulators: Integers, scale: Floats) -> Floats:
    """Return the sums (k,) of one or two accumulators each (k or 2k,); the two of a sum are neighbors."""
    if len(accumulators) == len(scale):
        return accumulators / scale
    return (accumulators[0::2] + accumulators[1::2] / FINE) / scale


def to_accumulators(values: Floats, scale: Floats) -> Integers:
    """Return values (k,) as two accumulators each (2k,), as the compiled loops do."""
    x = values * scale
    whole = np.rint(x)
    accumulators = np.empty(2 * len(x), np.int64)
    accumulators[0::2] = whole
    accumulators[1::2] = np.rint((x - whole) * FINE)
    return accumulators


class Summation(Protocol):
    """How the sums of a round are kept, on a thread, on a rank, and over the ranks."""

    def zeros(self, count: int) -> Integers:
        """Return the words of so many sums of nothing."""

    def add(self, accumulators: Integers, scale: Floats, values: Floats) -> int:
        """Add values (count,) to accumulators; return how many are too large, or not finite."""

    def merge(self, words: Integers, others: Integers) -> None:
        """Add the words of other chunks to words."""

    def messages(self, words: Integers) -> Iterator[tuple[NDArray[np.integer], Literal["sum", "max"]]]:
        """Yield each array that the ranks reduce in place, one after the other, to make words those of all ranks."""

    def floats(self, accumulators: Integers, scale: Floats) -> Floats:
        """Return the sums (count,)."""


class FixedPoint(NamedTuple):
    """Sums with a bound that is known before, in one or two accumulators each (`add` is for one)."""

    per_sum: int

    def zeros(self, count: int) -> Integers:
        return np.zeros(self.per_sum * count + 1, np.int64)

    def add(self, accumulators: Integers, scale: Floats, values: Floats) -> int:
        x = values * scale
        fits = np.abs(x) < MOST
        accumulators += np.rint(np.where(fits, x, 0.0)).astype(np.int64)
        return int(np.count_nonzero(~fits))

    def merge(self, words: Integers, others: Integers) -> None:
        words += others

    def messages(self, words: Integers) -> Iterator[tuple[NDArray[np.integer], Literal["sum", "max"]]]:
        yield words, "sum"

    def floats(self, accumulators: Integers, scale: Floats) -> Floats:
        return from_accumulators(accumulators, scale)


class Windows:
    """Sums without a known bound, which need no scale: the tops of all windows come first, then their digits."""

    def zeros(self, count: int) -> Integers:
        return np.zeros(WORDS * count + 1, np.int64)

    def add(self, accumulators: Integers, scale: Floats, values: Floats) -> int:
        return native.add_to_windows(accumulators, values)

    def merge(self, words: Integers, others: Integers) -> None:
        native.merge_windows(words[:-1], others[:-1])
        words[-1] += others[-1]

    def messages(self, words: Integers) -> Iterator[tuple[NDArray[np.integer], Literal["sum", "max"]]]:
        count = len(words) // WORDS
        tops = words[:count].astype(np.int8)
        yield tops, "max"
        native.raise_windows(words[:-1], tops)
        yield words[count:], "sum"

    def floats(self, accumulators: Integers, scale: Floats) -> Floats:
        return native.from_windows(accumulators)
