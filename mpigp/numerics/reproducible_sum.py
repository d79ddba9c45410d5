"""Reproducible sums: their bits do not depend on the order of addition.

Integer addition is associative. Each chunk's sum is scaled by a power of two and rounded to an int64, the fixed-point
accumulator; from there on everything (chunks, threads, ranks) adds integers. The scale comes from a bound that is known
before the sum. One accumulator resolves a sum to 2⁻⁶¹ of its bound; a second one holds the remainder of the first, to a
further 2⁻⁴⁰.

A superaccumulator needs no bound: its digits of 32 bits cover all exponents of a double, so its sum is exact.
"""

import numpy as np

from mpigp import native
from mpigp.native import from_superaccumulators as from_superaccumulators
from mpigp.native import to_superaccumulators as to_superaccumulators
from mpigp.types import Floats, Integers

FINE = native.FINE
"""How much finer the second accumulator is: 2²² chunks of remainders of at most one half still fit it."""

LEAST_EXPONENT, DIGITS = native.LEAST_EXPONENT, native.DIGITS
"""A superaccumulator has DIGITS digits, and its first counts 2^LEAST_EXPONENT."""


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
