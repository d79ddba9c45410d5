# cython: boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""Reproducible sums: scales where a bound is known beforehand; else superaccumulators, over all exponents of a double.

Digit p of a superaccumulator counts 2^(32 p + LEAST_EXPONENT). They add as integers do.
"""

import numpy as np

from libc.math cimport NAN, frexp, isfinite, ldexp
from libc.stdint cimport int64_t, uint64_t

from mpigp.native._shapes cimport expect


cdef enum:
    BITS = 32  # of a digit
    LEAST = -1126  # −1073 − 53: the exponent of the last of the 53 bits of the smallest double
    PLACES = 70  # (1024 − LEAST) // BITS + 3
    INFINITE = 40  # a value that is not finite adds 2^40 to the last digit

LEAST_EXPONENT, DIGITS = LEAST, PLACES


def to_superaccumulators(const double[:, :] values not None):
    """Return the exact sums of the columns of values (k, count), as digits (count, DIGITS).

    A value that is not finite makes its sum NaN.
    """
    cdef int64_t i, j, place, count = values.shape[1]
    cdef int exponent, shift
    cdef int64_t whole, sign
    cdef uint64_t size, low, high, mask = ((<uint64_t>1) << BITS) - 1
    cdef double mantissa
    result = np.zeros((count, PLACES), np.int64)
    cdef int64_t[:, ::1] digits = result
    for i in range(values.shape[0]):
        for j in range(count):
            if not isfinite(values[i, j]):
                digits[j, PLACES - 1] += (<int64_t>1) << INFINITE
                continue
            mantissa = frexp(values[i, j], &exponent)
            whole = <int64_t>ldexp(mantissa, 53)
            sign = -1 if whole < 0 else 1
            size = <uint64_t>(sign * whole)
            place = (exponent - 53 - LEAST) // BITS
            shift = (exponent - 53 - LEAST) % BITS
            low = (size & mask) << shift
            high = (size >> BITS) << shift
            digits[j, place] += sign * <int64_t>(low & mask)
            digits[j, place + 1] += sign * <int64_t>((low >> BITS) + (high & mask))
            digits[j, place + 2] += sign * <int64_t>(high >> BITS)
    return result


cdef bint carry(int64_t *digits) noexcept:
    """Bring every digit but the last into 0 … 2^BITS − 1; the last has the sign, which is returned."""
    cdef int64_t place, carried = 0
    for place in range(PLACES - 1):
        carried += digits[place]
        digits[place] = carried & (((<int64_t>1) << BITS) - 1)
        carried >>= BITS
    digits[PLACES - 1] += carried
    return digits[PLACES - 1] < 0


def from_superaccumulators(superaccumulators):
    """Return the sums (count,) of superaccumulators (count, DIGITS)."""
    cdef int64_t[:, ::1] digits = superaccumulators.copy()
    cdef int64_t j, place
    cdef bint negative, finite
    cdef double total
    expect("superaccumulators", (digits.shape[0], digits.shape[1]), (digits.shape[0], PLACES))
    result = np.empty(digits.shape[0])
    cdef double[::1] out = result
    for j in range(digits.shape[0]):
        finite = digits[j, PLACES - 1] < (<int64_t>1) << INFINITE
        negative = carry(&digits[j, 0])
        if negative:
            for place in range(PLACES):
                digits[j, place] = -digits[j, place]
            carry(&digits[j, 0])
        total = 0
        for place in range(PLACES - 1, -1, -1):
            total += ldexp(<double>digits[j, place], <int>(BITS * place) + LEAST)
        out[j] = NAN if not finite else -total if negative else total
    return result


def scale_for(const double[::1] bound not None):
    """Return 2^(61 − e) for each bound, e the least with bound < 2^e, but at most 2^900; a bound of zero is tiny."""
    result = np.empty(bound.shape[0])
    cdef double[::1] out = result
    cdef int64_t i
    cdef int exponent
    for i in range(bound.shape[0]):
        frexp(1e-280 if bound[i] < 1e-280 else bound[i], &exponent)
        out[i] = ldexp(1.0, min(61 - exponent, 900))
    return result
