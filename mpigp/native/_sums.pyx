# cython: boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""Reproducible sums: scales where a bound is known beforehand; else superaccumulators, over all exponents of a double,
or windows of them.

Digit p of a superaccumulator counts 2^(32 p + LEAST_EXPONENT). They add as integers do.

A window has the WINDOW_DIGITS digits down from its top, the largest place that any value added to it occupies: never
that of the sum, in which values cancel. A value that is above the top moves it up, and digits that are below the window
are dropped. Those are the digits below the window of all values together, however they are ordered, so the digits that
remain do not depend on the order. Windows are one array: the tops (count,), then the digits (count, WINDOW_DIGITS),
from the lowest up.
"""

import numpy as np

from libc.math cimport NAN, frexp, isfinite, ldexp
from libc.stdint cimport int8_t, int64_t, uint64_t

from mpigp.native._shapes cimport expect


cdef enum:
    BITS = 32  # of a digit
    LEAST = -1126  # −1073 − 53: the exponent of the last of the 53 bits of the smallest double
    PLACES = 70  # (1024 − LEAST) // BITS + 3
    INFINITE = 40  # a value that is not finite adds 2^40 to the last digit
    WINDOW = 3  # digits, which hold the 53 bits of a double at any shift

cdef extern from *:
    """
    typedef __int128 whole_t; /* a window's digits together */
    """
    ctypedef long long whole_t

LEAST_EXPONENT, DIGITS, WINDOW_DIGITS = LEAST, PLACES, WINDOW


cdef int64_t split(double value, int64_t *digits) noexcept:
    """Set the WINDOW digits of a finite value, from the lowest up, and return the place of the lowest."""
    cdef int exponent, shift
    cdef double mantissa = frexp(value, &exponent)
    cdef int64_t whole = <int64_t>ldexp(mantissa, 53)
    cdef int64_t sign = -1 if whole < 0 else 1
    cdef uint64_t size = <uint64_t>(sign * whole), low, high, mask = ((<uint64_t>1) << BITS) - 1
    shift = (exponent - 53 - LEAST) % BITS
    low = (size & mask) << shift
    high = (size >> BITS) << shift
    digits[0] = sign * <int64_t>(low & mask)
    digits[1] = sign * <int64_t>((low >> BITS) + (high & mask))
    digits[2] = sign * <int64_t>(high >> BITS)
    return (exponent - 53 - LEAST) // BITS


def to_superaccumulators(const double[:, :] values not None):
    """Return the exact sums of the columns of values (k, count), as digits (count, DIGITS).

    A value that is not finite makes its sum NaN.
    """
    cdef int64_t i, j, k, place, count = values.shape[1]
    cdef int64_t of_value[WINDOW]
    result = np.zeros((count, PLACES), np.int64)
    cdef int64_t[:, ::1] digits = result
    for i in range(values.shape[0]):
        for j in range(count):
            if not isfinite(values[i, j]):
                digits[j, PLACES - 1] += (<int64_t>1) << INFINITE
                continue
            place = split(values[i, j], of_value)
            for k in range(WINDOW):
                digits[j, place + k] += of_value[k]
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


cdef void raise_window(int64_t *top, int64_t *digits, int64_t to) noexcept:
    """Move a window up to this top, where it is below it."""
    cdef int64_t k, up = to - top[0]
    if up > 0:
        for k in range(WINDOW):
            digits[k] = digits[k + up] if k + up < WINDOW else 0
        top[0] = to


cdef void add_digits(int64_t top, int64_t *digits, const int64_t *more, int64_t place) noexcept:
    """Add WINDOW digits, the lowest of which has this place, to a window with this top; drop those below it."""
    cdef int64_t k, at = place - (top - WINDOW + 1)
    for k in range(WINDOW):
        if 0 <= at + k < WINDOW:
            digits[at + k] += more[k]


def add_to_windows(int64_t[::1] windows not None, const double[::1] values not None):
    """Add values (count,) to windows ((1 + WINDOW_DIGITS) count,); return how many are not finite, and are left out."""
    cdef int64_t j, place, infinite = 0, count = values.shape[0]
    cdef int64_t of_value[WINDOW]
    expect("windows", (windows.shape[0],), ((1 + WINDOW) * count,))
    if count == 0:
        return 0
    cdef int64_t *tops = &windows[0]
    cdef int64_t *digits = tops + count
    for j in range(count):
        if not isfinite(values[j]):
            infinite += 1
        elif values[j] != 0:  # which occupies no place
            place = split(values[j], of_value)
            raise_window(tops + j, digits + WINDOW * j, place + (2 if of_value[2] else 1))
            add_digits(tops[j], digits + WINDOW * j, of_value, place)
    return infinite


def merge_windows(int64_t[::1] windows not None, const int64_t[::1] others not None):
    """Add other windows to windows."""
    cdef int64_t j, count = windows.shape[0] // (1 + WINDOW)
    expect("windows", (windows.shape[0],), ((1 + WINDOW) * count,))
    expect("others", (others.shape[0],), (windows.shape[0],))
    if count == 0:
        return
    cdef int64_t *tops = &windows[0]
    cdef int64_t *digits = tops + count
    for j in range(count):
        raise_window(tops + j, digits + WINDOW * j, others[j])
        add_digits(tops[j], digits + WINDOW * j, &others[count + WINDOW * j], others[j] - WINDOW + 1)


def raise_windows(int64_t[::1] windows not None, const int8_t[::1] tops not None):
    """Move windows up to tops (count,), each at least that of its window."""
    cdef int64_t j, count = tops.shape[0]
    expect("windows", (windows.shape[0],), ((1 + WINDOW) * count,))
    for j in range(count):
        raise_window(&windows[j], &windows[count + WINDOW * j], tops[j])


def from_windows(const int64_t[::1] windows not None):
    """Return the sums (count,) of windows: the doubles that are nearest to their digits together."""
    cdef int64_t j, k, count = windows.shape[0] // (1 + WINDOW)
    cdef whole_t whole
    expect("windows", (windows.shape[0],), ((1 + WINDOW) * count,))
    result = np.empty(count)
    cdef double[::1] out = result
    for j in range(count):
        whole = 0
        for k in range(WINDOW - 1, -1, -1):
            whole = whole * ((<int64_t>1) << BITS) + windows[count + WINDOW * j + k]
        out[j] = ldexp(<double>whole, <int>(BITS * (windows[j] - WINDOW + 1)) + LEAST)
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
