# cython: boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""The compiled loops of the RBF kernel, for NumPy arrays. Shapes are the caller's business: mpigp.kernels.rbf is the caller."""

import numpy as np

from libc.math cimport frexp, isfinite, ldexp
from libc.stdint cimport int64_t, uint64_t


cdef extern from "rbf.h":
    ctypedef struct rows_t:
        int64_t n, d, chunk, all_chunks
        const double *mu
        const double *S
        const double *Y
    ctypedef struct rbf_t:
        int64_t m, q
        const double *Z
        const double *centre
        const double *alpha
    ctypedef struct sums_t:
        int64_t *words
        const double *scale
        double fine
    ctypedef struct kept_t:
        double *exponentials
        int64_t blocks
    ctypedef struct rbf_functions:
        int64_t (*regression_statistics)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, sums_t,
                                         double *) noexcept nogil
        int64_t (*regression_gradient)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *,
                                       const double *, const double *, sums_t, double *) noexcept nogil
        int64_t (*gplvm_statistics)(const rbf_t *, const rows_t *, int64_t, int64_t, kept_t, sums_t,
                                    double *) noexcept nogil
        int64_t (*gplvm_gradient)(const rbf_t *, const rows_t *, int64_t, int64_t, kept_t, const double *,
                                  const double *, double *, double *, sums_t, double *) noexcept nogil
        void (*exponential)(const double *, double *, int64_t, int64_t) noexcept nogil
        void (*chunk_dots)(const double *, int64_t, int64_t, const double *, int64_t, int64_t, int64_t, int64_t,
                           double *) noexcept nogil
        const char *name
    const rbf_functions *rbf_dispatch()
    int64_t rbf_workspace(int64_t, int64_t, int64_t)

cdef const rbf_functions *functions = rbf_dispatch()

instruction_set = functions.name.decode()


def workspace(int64_t m, int64_t q, int64_t d):
    """Doubles of workspace that one thread needs."""
    return rbf_workspace(m, q, d)


cdef inline const double *at(const double[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef inline const double *at2(const double[:, ::1] array) noexcept:
    return &array[0, 0] if array.shape[0] and array.shape[1] else NULL


cdef class Kernel:
    """Z (m, q) less centre (q,), and alpha (q,), held for the calls of one evaluation."""

    cdef rbf_t k
    cdef object arrays

    def __init__(self, const double[:, ::1] Z, const double[::1] centre, const double[::1] alpha):
        self.arrays = (Z, centre, alpha)
        self.k.m, self.k.q = Z.shape[0], Z.shape[1]
        self.k.Z, self.k.centre, self.k.alpha = at2(Z), at(centre), at(alpha)


cdef class Rows:
    """The rows of a rank: mu (n, q), S (n, q) or None, Y (n, d), in chunks of `chunk` rows; all ranks have `all_chunks`."""

    cdef rows_t r
    cdef object arrays

    def __init__(self, const double[:, ::1] mu, S, const double[:, ::1] Y, int64_t chunk, int64_t all_chunks):
        cdef const double[:, ::1] variances
        self.arrays = (mu, S, Y)
        self.r.n, self.r.d, self.r.chunk, self.r.all_chunks = Y.shape[0], Y.shape[1], chunk, all_chunks
        self.r.mu, self.r.Y, self.r.S = at2(mu), at2(Y), NULL
        if S is not None:
            variances = S
            self.r.S = at2(variances)


cdef kept_t kept_in(Kernel kernel, double[::1] exponentials) noexcept:
    cdef kept_t kept
    kept.blocks = max(0, exponentials.shape[0] - 8) // (kernel.k.m * (kernel.k.m + 1) // 2 * 64)  # 8: to align them
    kept.exponentials = &exponentials[0] if kept.blocks else NULL
    return kept


cdef sums_t sums(int64_t[::1] words, const double[::1] scale, double fine) noexcept:
    cdef sums_t s
    s.words, s.scale, s.fine = &words[0], &scale[0], fine
    return s


# The last arguments of each function are its part of the work: chunks [first, last), the words and scales of the sums, and
# the workspace; each returns the number of sums that did not fit their words.


def regression_statistics(Kernel kernel, Rows rows, const double[:, ::1] inverse, int64_t first, int64_t last,
                          int64_t[::1] words, const double[::1] scale, double[::1] space):
    """Add AAᵀ (packed lower triangle) and AY, A = L⁻¹K."""
    cdef sums_t out = sums(words, scale, 0)
    cdef int64_t misfits
    with nogil:
        misfits = functions.regression_statistics(&kernel.k, &rows.r, first, last, &inverse[0, 0], out, &space[0])
    return misfits


def regression_gradient(Kernel kernel, Rows rows, inverse, const double[:, ::1] weight,
                        const double[:, ::1] weight_psi1Y, const double[:, ::1] fit, int64_t first, int64_t last,
                        int64_t[::1] words, const double[::1] scale, double[::1] space, double fine):
    """Add the gradients of Z (m, q) and alpha (q,) through dF/dK, and with `inverse` AE (m, d).

    dF/dK = weight A + weight_psi1Y Eᵀ, E = Y − Aᵀ fit, with `inverse`; weight K + weight_psi1Y Yᵀ without.
    """
    cdef sums_t out = sums(words, scale, fine)
    cdef const double[:, ::1] factor
    cdef const double *L_inverse = NULL
    cdef int64_t misfits
    if inverse is not None:
        factor = inverse
        L_inverse = &factor[0, 0]
    with nogil:
        misfits = functions.regression_gradient(&kernel.k, &rows.r, first, last, L_inverse, &weight[0, 0],
                                                &weight_psi1Y[0, 0], &fit[0, 0], out, &space[0])
    return misfits


def gplvm_statistics(Kernel kernel, Rows rows, double[::1] exponentials, int64_t first, int64_t last,
                     int64_t[::1] words, const double[::1] scale, double[::1] space):
    """Add Σψ2 (packed lower triangle, without its factor of Z alone), Σψ1Y and KL (whole nats, the rest).

    As many of the exponentials as fit are kept for `gplvm_gradient`.
    """
    cdef sums_t out = sums(words, scale, 0)
    cdef kept_t kept = kept_in(kernel, exponentials)
    cdef int64_t misfits
    with nogil:
        misfits = functions.gplvm_statistics(&kernel.k, &rows.r, first, last, kept, out, &space[0])
    return misfits


def gplvm_gradient(Kernel kernel, Rows rows, double[::1] exponentials, const double[::1] weight_psi2,
                   const double[:, ::1] weight_psi1Y, double[:, ::1] grad_mu, double[:, ::1] grad_S, int64_t first, int64_t last, int64_t[::1] words,
                   const double[::1] scale, double[::1] space, double fine):
    """Add the gradients of Z (m, q) and alpha (q,), and set those of mu and S of these rows."""
    cdef sums_t out = sums(words, scale, fine)
    cdef kept_t kept = kept_in(kernel, exponentials)
    cdef int64_t misfits
    with nogil:
        misfits = functions.gplvm_gradient(&kernel.k, &rows.r, first, last, kept, &weight_psi2[0],
                                           &weight_psi1Y[0, 0], &grad_mu[0, 0], &grad_S[0, 0], out, &space[0])
    return misfits


def chunk_dots(const double[:, :] left, const double[:, :] right, int64_t chunk):
    """Return the dot products (chunks, a, b) of vectors left (a, n) and right (b, n), whose numbers lie side by side."""
    cdef int64_t n = left.shape[1], chunks
    if right.shape[1] != n or (n > 1 and (left.strides[1] != 8 or right.strides[1] != 8)):
        raise ValueError("left and right do not fit")
    chunks = (n + chunk - 1) // chunk
    result = np.zeros((chunks, left.shape[0], right.shape[0]))
    cdef double[:, :, ::1] out = result
    if result.size:
        with nogil:
            functions.chunk_dots(&left[0, 0], left.shape[0], left.strides[0] // 8, &right[0, 0], right.shape[0],
                                 right.strides[0] // 8, n, chunk, &out[0, 0, 0])
    return result


def add_digits(const double[:, ::1] values, int64_t[:, ::1] digits, int bits, int least):
    """Add the columns of values (k, count) exactly to digits (count, places): digit p counts 2^(bits p + least).

    A value that is not finite adds 2^40 to the last digit.
    """
    cdef int64_t i, j, place, count = values.shape[1], places = digits.shape[1]
    cdef int exponent, shift
    cdef int64_t whole, sign
    cdef uint64_t size, low, high, mask = ((<uint64_t>1) << bits) - 1
    cdef double mantissa
    for i in range(values.shape[0]):
        for j in range(count):
            if not isfinite(values[i, j]):
                digits[j, places - 1] += (<int64_t>1) << 40
                continue
            mantissa = frexp(values[i, j], &exponent)
            whole = <int64_t>ldexp(mantissa, 53)
            sign = -1 if whole < 0 else 1
            size = <uint64_t>(sign * whole)
            place = (exponent - 53 - least) // bits
            shift = (exponent - 53 - least) % bits
            low = (size & mask) << shift
            high = (size >> bits) << shift
            digits[j, place] += sign * <int64_t>(low & mask)
            digits[j, place + 1] += sign * <int64_t>((low >> bits) + (high & mask))
            digits[j, place + 2] += sign * <int64_t>(high >> bits)


cdef bint carry_digits(int64_t *digits, int64_t places, int bits) noexcept:
    """Make every digit but the last 0 … 2^bits − 1; the last has the sign, which is returned."""
    cdef int64_t place, carry = 0
    for place in range(places - 1):
        carry += digits[place]
        digits[place] = carry & (((<int64_t>1) << bits) - 1)
        carry >>= bits
    digits[places - 1] += carry
    return digits[places - 1] < 0


def sum_digits(int64_t[:, ::1] digits, double[::1] out, int bits, int least):
    """Put the value of each row of digits into out; the digits are spent."""
    cdef int64_t j, place, places = digits.shape[1]
    cdef bint negative
    cdef double total
    for j in range(digits.shape[0]):
        negative = carry_digits(&digits[j, 0], places, bits)
        if negative:
            for place in range(places):
                digits[j, place] = -digits[j, place]
            carry_digits(&digits[j, 0], places, bits)
        total = 0
        for place in range(places - 1, -1, -1):
            total += ldexp(<double>digits[j, place], <int>(bits * place) + least)
        out[j] = -total if negative else total


def gram_gradient(const double[:, ::1] G, const double[:, ::1] Z, const double[::1] alpha):
    """Return the gradients of Z (m, q) and alpha (q,) through K_mm, given G = ∂F/∂K ∘ K (m, m), symmetric.

    ∂F/∂Z_mq = −2 α_q Σ_m' G_mm' (Z_mq − Z_m'q)          ∂F/∂α_q = −½ Σ_mm' G_mm' (Z_mq − Z_m'q)²
    """
    cdef int64_t m = Z.shape[0], q = Z.shape[1], i, j, k
    by_Z, by_alpha = np.zeros((m, q)), np.zeros(q)
    cdef double[:, ::1] dZ = by_Z
    cdef double[::1] da = by_alpha
    cdef double u, g
    for i in range(m):
        for j in range(m):
            for k in range(q):
                u = Z[i, k] - Z[j, k]
                g = G[i, j] * u
                dZ[i, k] -= 2 * alpha[k] * g
                da[k] -= 0.5 * g * u
    return by_Z, by_alpha


def exponential(const double[::1] x, double[::1] out, int64_t repeat=1):
    """Put the exponential of x into out by the exponential of the loops, `repeat` times over (to measure it)."""
    if out.shape[0] != x.shape[0]:
        raise ValueError("x and out differ in length")
    with nogil:
        functions.exponential(&x[0], &out[0], x.shape[0], repeat)
