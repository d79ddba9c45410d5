# cython: boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""The compiled loops of the RBF kernel, for NumPy arrays. Shapes are the caller's business: mpigp.kernels.rbf is the caller."""

import numpy as np

from libc.math cimport frexp, isfinite, ldexp, sqrt
from libc.stdint cimport int64_t, uint64_t


cdef extern from "rbf.h":
    ctypedef struct rows_t:
        int64_t n, d, chunk, all_chunks
        const double *mu
        const double *S
        const double *Y
        int64_t groups
        const double *observed
    ctypedef struct rbf_t:
        int64_t m, q
        const double *Z
        const double *centre
        const double *alpha
    ctypedef struct sums_t:
        int64_t *words
        const double *scale
        double fine
    ctypedef struct searches_t:
        int64_t n, k
        double *records
    int64_t search_places(int64_t)
    int64_t search_record(int64_t)
    ctypedef struct rbf_functions:
        int64_t (*regression_statistics)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, sums_t,
                                         double *) noexcept nogil
        int64_t (*regression_gradient)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *,
                                       const double *, const double *, sums_t, double *) noexcept nogil
        void (*regression_moments)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *, int64_t,
                                   double *, double *, double *) noexcept nogil
        int64_t (*gplvm_statistics)(const rbf_t *, const rows_t *, int64_t, int64_t, sums_t, double *) noexcept nogil
        int64_t (*gplvm_gradient)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *, double *,
                                  double *, sums_t, double *) noexcept nogil
        void (*gplvm_bounds)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *, double *,
                             double *, double *, double *) noexcept nogil
        void (*gplvm_moments)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, int64_t, const double *,
                              int64_t, double *, double *, double *) noexcept nogil
        void (*exponential)(const double *, double *, int64_t, int64_t) noexcept nogil
        void (*chunk_dots)(const double *, int64_t, int64_t, const double *, int64_t, int64_t, int64_t, int64_t,
                           double *) noexcept nogil
        void (*largest_dots)(const double *, int64_t, const double *, int64_t, int64_t, int64_t, int64_t *,
                             double *) noexcept nogil
        void (*search_begin)(const searches_t *, const double *, const double *) noexcept nogil
        int64_t (*search_advance)(const searches_t *, int64_t *, int64_t, const double *, const double *, double,
                                  double *) noexcept nogil
        void (*search_points)(const searches_t *, const int64_t *, int64_t, int, double *) noexcept nogil
        const char *name
    const rbf_functions *rbf_dispatch()
    int64_t rbf_workspace(int64_t, int64_t, int64_t, int64_t, int64_t)

cdef const rbf_functions *functions = rbf_dispatch()

instruction_set = functions.name.decode()


def workspace(int64_t m, int64_t q, int64_t d, int64_t groups=1, int64_t matrices=1):
    """Doubles of workspace that one thread needs, for rows of so many groups and sums of so many m × m matrices."""
    return rbf_workspace(m, q, d, groups, matrices)


cdef inline const double *at(const double[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef inline const double *at2(const double[:, ::1] array) noexcept:
    return &array[0, 0] if array.shape[0] and array.shape[1] else NULL


cdef class Kernel:
    """Z (m, q) less centre (q,), and alpha (q,), held for the calls of one evaluation."""

    cdef rbf_t k
    cdef readonly object Z, centre, alpha

    def __init__(self, const double[:, ::1] Z, const double[::1] centre, const double[::1] alpha):
        self.Z, self.centre, self.alpha = np.asarray(Z), np.asarray(centre), np.asarray(alpha)
        self.k.m, self.k.q = Z.shape[0], Z.shape[1]
        self.k.Z, self.k.centre, self.k.alpha = at2(Z), at(centre), at(alpha)


cdef class Rows:
    """The rows of a rank: mu (n, q), S (n, q) or None, Y (n, d), in chunks of `chunk` rows; all ranks have `all_chunks`.

    observed : (n, groups) or None, what each row counts in each group of psi2's sums
    """

    cdef rows_t r
    cdef readonly object mu, S, Y, observed
    cdef readonly int64_t chunk, all_chunks

    def __init__(self, const double[:, ::1] mu, S, const double[:, ::1] Y, int64_t chunk, int64_t all_chunks, observed=None):
        cdef const double[:, ::1] variances, counts
        self.mu, self.S, self.Y, self.observed = np.asarray(mu), S, np.asarray(Y), observed
        self.chunk, self.all_chunks = chunk, all_chunks
        self.r.groups, self.r.observed = 1, NULL
        if observed is not None:
            counts = observed
            self.r.groups, self.r.observed = counts.shape[1], at2(counts)
        self.r.n, self.r.d, self.r.chunk, self.r.all_chunks = Y.shape[0], Y.shape[1], chunk, all_chunks
        self.r.mu, self.r.Y, self.r.S = at2(mu), at2(Y), NULL
        if S is not None:
            variances = S
            self.r.S = at2(variances)


cdef sums_t sums(int64_t[::1] words, const double[::1] scale, double fine) noexcept:
    cdef sums_t s
    s.words, s.scale, s.fine = &words[0], &scale[0], fine
    return s


# The last arguments of each function are its part of the work: chunks [first, last), the words and scales of the sums, and
# the workspace; each returns the number of sums that did not fit their words.


cdef inline const double *matrix_or_null(const double[:, ::1] matrix) noexcept:
    return NULL if matrix is None else &matrix[0, 0]


def regression_statistics(Kernel kernel, Rows rows, const double[:, ::1] inverse, int64_t first, int64_t last,
                          int64_t[::1] words, const double[::1] scale, double[::1] space):
    """Add AAᵀ (packed lower triangle) and AY, A = L⁻¹K with `inverse` and A = K without."""
    cdef sums_t out = sums(words, scale, 0)
    cdef const double *L_inverse = matrix_or_null(inverse)
    cdef int64_t misfits
    with nogil:
        misfits = functions.regression_statistics(&kernel.k, &rows.r, first, last, L_inverse, out, &space[0])
    return misfits


def regression_gradient(Kernel kernel, Rows rows, const double[:, ::1] inverse, const double[:, ::1] weight,
                        const double[:, ::1] weight_psi1Y, const double[:, ::1] fit, int64_t first, int64_t last,
                        int64_t[::1] words, const double[::1] scale, double[::1] space, double fine):
    """Add the gradients of Z (m, q) and alpha (q,) through dF/dK, and with `inverse` AE (m, d).

    dF/dK = weight A + weight_psi1Y Eᵀ, E = Y − Aᵀ fit, with `inverse`; weight K + weight_psi1Y Yᵀ without.
    """
    cdef sums_t out = sums(words, scale, fine)
    cdef const double *L_inverse = matrix_or_null(inverse)
    cdef int64_t misfits
    with nogil:
        misfits = functions.regression_gradient(&kernel.k, &rows.r, first, last, L_inverse, &weight[0, 0],
                                                &weight_psi1Y[0, 0], &fit[0, 0], out, &space[0])
    return misfits


def gplvm_statistics(Kernel kernel, Rows rows, int64_t first, int64_t last,
                     int64_t[::1] words, const double[::1] scale, double[::1] space):
    """Add Σψ2 (packed lower triangle, without its factor of Z alone), Σψ1Y and KL (whole nats, the rest)."""
    cdef sums_t out = sums(words, scale, 0)
    cdef int64_t misfits
    with nogil:
        misfits = functions.gplvm_statistics(&kernel.k, &rows.r, first, last, out, &space[0])
    return misfits


def gplvm_gradient(Kernel kernel, Rows rows, const double[:, ::1] weight_psi2, const double[:, ::1] weight_psi1Y,
                   double[:, ::1] grad_mu, double[:, ::1] grad_S, int64_t first, int64_t last, int64_t[::1] words,
                   const double[::1] scale, double[::1] space, double fine):
    """Add the gradients of Z (m, q) and alpha (q,), and set those of mu and S of these rows.

    weight_psi2 : (pairs, groups)
    """
    cdef sums_t out = sums(words, scale, fine)
    cdef int64_t misfits
    with nogil:
        misfits = functions.gplvm_gradient(&kernel.k, &rows.r, first, last, &weight_psi2[0, 0], &weight_psi1Y[0, 0],
                                           &grad_mu[0, 0], &grad_S[0, 0], out, &space[0])
    return misfits


def gplvm_bounds(Kernel kernel, Rows rows, int64_t first, int64_t last, double[::1] space,
                 const double[:, ::1] weight_psi2, const double[:, ::1] weight_psi1Y, double[:, ::1] grad_mu,
                 double[:, ::1] grad_S, double[::1] values):
    """Set what each row adds to the bound (n,), and its gradients by mu and S (n, q); weight_psi2 is (pairs, groups)."""
    with nogil:
        functions.gplvm_bounds(&kernel.k, &rows.r, first, last, &weight_psi2[0, 0], &weight_psi1Y[0, 0], &grad_mu[0, 0],
                               &grad_S[0, 0], &values[0], &space[0])


def regression_moments(Kernel kernel, Rows rows, int64_t first, int64_t last, double[::1] space,
                       const double[:, ::1] factor, const double[:, ::1] weights, double[:, ::1] mean,
                       double[::1] explained):
    """Set mean (n, d) = K weights and explained (n,) = |factor K|², of a lower triangular factor (m, m)."""
    with nogil:
        functions.regression_moments(&kernel.k, &rows.r, first, last, &factor[0, 0], &weights[0, 0], weights.shape[1],
                                     &mean[0, 0], &explained[0], &space[0])


def gplvm_moments(Kernel kernel, Rows rows, int64_t first, int64_t last, double[::1] space,
                  const double[:, ::1] weights, const double[:, ::1] weights_psi2, double[:, ::1] mean,
                  double[:, ::1] second):
    """Set mean (n, d) = ψ1 weights (m, d), and second (n, k), the sums of weights_psi2 (k, pairs) ψ2 over the pairs."""
    with nogil:
        functions.gplvm_moments(&kernel.k, &rows.r, first, last, &weights[0, 0], weights.shape[1], &weights_psi2[0, 0],
                                weights_psi2.shape[0], &mean[0, 0], &second[0, 0], &space[0])


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


def largest_dots(const double[:, ::1] left, const double[:, ::1] right, int64_t count):
    """Return which `count` of right (b, k) have the largest dot products with each of left (a, k): (a, count), the largest
    first. `count` is at most b."""
    if right.shape[1] != left.shape[1] or not 0 < count <= right.shape[0]:
        raise ValueError("left, right and count do not fit")
    result = np.empty((left.shape[0], count), np.int64)
    cdef int64_t[:, ::1] which = result
    cdef double[::1] space = np.empty((right.shape[0] + 7) * (right.shape[1] + 4) + 8 + count)
    if left.shape[0]:
        with nogil:
            functions.largest_dots(&left[0, 0], left.shape[0], &right[0, 0], right.shape[0], left.shape[1], count,
                                   &which[0, 0], &space[0])
    return result


cdef class Searches:
    """n problems of k variables on their way to a minimum: mpigp.gp.batch_lbfgs has the algorithm.

    start : (n, k).   units : (n, k), of each variable
    """

    cdef searches_t s
    cdef object memory
    cdef double[::1] space

    def __init__(self, const double[:, ::1] start, const double[:, ::1] units):
        cdef double[::1] records
        self.s.n, self.s.k = start.shape[0], start.shape[1]
        if units.shape[0] != self.s.n or units.shape[1] != self.s.k or not start.size:
            raise ValueError("start and units do not fit")
        self.memory = np.empty(self.s.n * search_record(self.s.k) + 8)
        records = self.memory[-self.memory.ctypes.data // 8 % 8 :]
        self.s.records = &records[0]
        self.space = np.empty(search_places(self.s.k) + 8)
        with nogil:
            functions.search_begin(&self.s, &start[0, 0], &units[0, 0])

    def trials(self, const int64_t[::1] numbers):
        """Return the points (a, k) at which the problems of these numbers (a,) want to be evaluated."""
        return self.read(numbers, True)

    def points(self, const int64_t[::1] numbers):
        """Return the best points (a, k) so far of the problems of these numbers (a,)."""
        return self.read(numbers, False)

    cdef read(self, const int64_t[::1] numbers, bint ahead):
        result = np.empty((numbers.shape[0], self.s.k))
        cdef double[:, ::1] out = result
        if numbers.shape[0]:
            with nogil:
                functions.search_points(&self.s, &numbers[0], numbers.shape[0], ahead, &out[0, 0])
        return result

    def values(self):
        """Return the values (n,) at the best points so far."""
        result = np.empty(self.s.n)
        cdef double[::1] out = result
        cdef int64_t i
        for i in range(self.s.n):
            out[i] = self.s.records[i * search_record(self.s.k)]
        return result

    def advance(self, const int64_t[::1] numbers, const double[::1] values, const double[:, ::1] gradients,
                double tolerance):
        """Take in the values (a,) and gradients (a, k) at the trials of these problems, and return the numbers of those
        that are not at their end."""
        result = np.array(numbers)
        cdef int64_t[::1] alive = result
        cdef int64_t left = 0
        cdef double *by = <double *>((<size_t>&self.space[0] + 63) // 64 * 64)
        if values.shape[0] != alive.shape[0] or gradients.shape[0] != alive.shape[0] or gradients.shape[1] != self.s.k:
            raise ValueError("numbers, values and gradients do not fit")
        if alive.shape[0]:
            with nogil:
                left = functions.search_advance(&self.s, &alive[0], alive.shape[0], &values[0], &gradients[0, 0],
                                                tolerance, by)
        return result[:left]


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


def scale_for(const double[::1] bound):
    """Return 2^(61 − e) for each bound, e the least with bound < 2^e, but at most 2^900; a bound of zero is tiny."""
    result = np.empty(bound.shape[0])
    cdef double[::1] out = result
    cdef int64_t i
    cdef int exponent
    for i in range(bound.shape[0]):
        frexp(1e-280 if bound[i] < 1e-280 else bound[i], &exponent)
        out[i] = ldexp(1.0, min(61 - exponent, 900))
    return result


def from_words(const int64_t[:, ::1] words, const double[:] scale, double fine):
    """Return the sums (k,) of one word each (k, 1), or of two (k, 2), of which the second is `fine` times finer."""
    result = np.empty(words.shape[0])
    cdef double[::1] out = result
    cdef int64_t i
    for i in range(words.shape[0]):
        out[i] = <double>words[i, 0]
        if words.shape[1] > 1:
            out[i] += <double>words[i, 1] / fine
        out[i] /= scale[i]
    return result


def gradient_limits(Kernel kernel, const double[::1] lowest, const double[::1] highest, double weight):
    """Return the limits (2q,) of the gradients of Z and alpha: mpigp.kernels.rbf has the reasons."""
    cdef int64_t m = kernel.k.m, q = kernel.k.q, i, k
    cdef double low, high, z, extent
    result = np.empty(2 * q)
    cdef double[::1] out = result
    for k in range(q):
        low, high = lowest[k], highest[k]
        for i in range(m):
            z = kernel.k.Z[i * q + k] + kernel.k.centre[k]
            low, high = min(low, z), max(high, z)
        extent = max(high - low, 1.0)
        out[k] = 4 * weight * sqrt(kernel.k.alpha[k])
        out[q + k] = 4 * weight / max(kernel.k.alpha[k], ldexp(1.0, -40) / (extent * extent))
    return result


def between(const double[:, ::1] Z, const double[:, ::1] X, const double[::1] alpha):
    """Return K (m, n), k(z, x) = exp(−½ Σ_q α_q (z_q − x_q)²), between the rows of Z (m, q) and X (n, q)."""
    cdef int64_t m = Z.shape[0], n = X.shape[0], q = Z.shape[1], i, j, k
    K = np.zeros((m, n))
    cdef double[:, ::1] out = K
    cdef double[:, ::1] XT = np.empty((q, n))
    cdef double *row
    cdef const double *column
    cdef double weight, z, u
    for j in range(n):
        for k in range(q):
            XT[k, j] = X[j, k]
    for i in range(m):
        row = &out[i, 0]
        for k in range(q):
            column, weight, z = &XT[k, 0], -0.5 * alpha[k], Z[i, k]
            for j in range(n):
                u = z - column[j]
                row[j] += weight * (u * u)
    if m and n:
        functions.exponential(&out[0, 0], &out[0, 0], m * n, 1)
    return K


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
                dZ[i, k] += g
                da[k] += g * u
    for k in range(q):
        da[k] *= -0.5
        for i in range(m):
            dZ[i, k] *= -2 * alpha[k]
    return by_Z, by_alpha


def exponential(const double[::1] x, double[::1] out, int64_t repeat=1):
    """Put the exponential of x into out by the exponential of the loops, `repeat` times over (to measure it)."""
    if out.shape[0] != x.shape[0]:
        raise ValueError("x and out differ in length")
    with nogil:
        functions.exponential(&x[0], &out[0], x.shape[0], repeat)
