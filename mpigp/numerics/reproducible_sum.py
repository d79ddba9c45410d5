"""Sums whose bits do not depend on the order of addition.

Integer addition is associative: each chunk's sum is scaled by a power of two and rounded to an int64, and from there
on everything (chunks, threads, ranks) adds integers. A scale comes from a bound that is known before the sum. One word
resolves a sum to 2⁻⁶¹ of its bound; a second word holds what the first rounds away, a further 2⁻⁴⁰.
"""

from __future__ import annotations

import numpy as np

from mpigp import native
from mpigp.types import Floats, Words

FINE = native.FINE
"""How much finer the second word is: 2²² chunks of remainders of at most one half still fit it."""


def scale_for(bound: Floats | float) -> Floats:
    """Return powers of two that bring sums of absolute value ≤ `bound` below 2⁶¹; a bound of zero is taken as tiny."""
    bound = np.asarray(bound, np.float64)
    return native.scale_for(bound.ravel()).reshape(bound.shape)


def from_one_word(words: Words, scale: Floats) -> Floats:
    """Return the sums of one word each."""
    return native.from_accumulators(words.reshape(-1, 1), scale)


def from_two_words(words: Words, scale: Floats) -> Floats:
    """Return the sums of two words each (the words of a sum are neighbours)."""
    return native.from_accumulators(words.reshape(-1, 2), scale)


def to_two_words(values: Floats, scale: Floats) -> Words:
    """Return sums as two words each: what the compiled loops do for theirs."""
    x = values * scale
    whole = np.rint(x)
    words = np.empty(2 * len(x), np.int64)
    words[0::2] = whole
    words[1::2] = np.rint((x - whole) * FINE)
    return words


# Sums of which no bound is known beforehand: digits of 32 bits that reach over all exponents of a double.

LEAST_EXPONENT, DIGITS = native.LEAST_EXPONENT, native.DIGITS


def to_digits(values: Floats) -> Words:
    """Return the exact sums over the first axis of values (k, count), as digits (count, DIGITS) that simply add.

    A value that is not finite makes the last digit of its sum huge, and the sum NaN.
    """
    return native.to_superaccumulators(np.ascontiguousarray(values))


def from_digits(digits: Words) -> Floats:
    """Return the sums (count,) of digits (count, DIGITS)."""
    return native.from_superaccumulators(digits)
