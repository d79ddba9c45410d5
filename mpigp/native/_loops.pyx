# cython: boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True, cdivision=True
"""The compiled loops of loops.h, for NumPy arrays; mpigp.kernels.rbf has the formulas of those over rows."""

from typing import NamedTuple

import numpy as np

from libc.math cimport ldexp, sqrt
from libc.stdint cimport int64_t

from mpigp.native._shapes cimport check_indices, check_matrix, check_vector, expect

cdef extern from "loops.h":  # C checks the parameters of the loops
    ctypedef int64_t (*counting_loop)(...) noexcept nogil
    ctypedef void (*plain_loop)(...) noexcept nogil
    const double FINE_SCALE "FINE"
    ctypedef struct rows_t:
        int64_t n, d, chunk, all_chunks, groups
        const double *mu, *S, *Y, *observed, *outputs
        double *trace_weights
    ctypedef struct factor_t:
        int64_t profile, term, first, last
        double shape
    ctypedef struct kernel_t:
        int64_t m, q, features, factors, terms
        const double *Z, *center, *alpha, *shifts, *frequencies, *weights, *term_weights
        const int64_t *columns
        const factor_t *factor
        bint composite, unit, plain
    int MOST_FACTORS "MAX_FACTORS"
    int RBF_PROFILE "RBF", BIAS_PROFILE "BIAS"
    ctypedef struct part_t:
        int64_t first, last
        double *space
        int64_t *accumulators
        const double *scale
        int per_sum
    ctypedef struct searches_t:
        int64_t n, k
        double *records
    ctypedef struct loops_t:
        const char *name
        counting_loop regression_statistics, regression_gradient, gplvm_statistics, gplvm_gradient, search_advance
        plain_loop regression_moments, gplvm_bounds, gplvm_moments, covariance, gram_gradient
        plain_loop exponential, chunk_dots, largest_dots, search_begin, search_points
    const loops_t *fastest_loops()
    int64_t search_places(int64_t)
    int64_t search_record(int64_t)
    int64_t needed_workspace "workspace"(int64_t m, int64_t q, int64_t d, int64_t groups, int64_t matrices, int64_t factors)

cdef const loops_t *loops = fastest_loops()

instruction_set, FINE = loops.name.decode(), FINE_SCALE


def workspace(int64_t m, int64_t q, int64_t d, int64_t groups=1, int64_t matrices=1, int64_t factors=1):
    """Doubles of workspace that one thread needs, for rows of so many groups and sums of so many m × m matrices; q is the
    number of features where there are more of them than inputs."""
    return needed_workspace(m, q, d, groups, matrices, factors)


MAX_FACTORS = MOST_FACTORS


class Terms(NamedTuple):
    """A kernel as a sum of terms, each a product of factors, as covariance.h has them.

    columns, shifts, frequencies, weights : (features,).   factors : (factors, 4), profile, term, and the first and last of
    its features.   shapes : (factors,).   term_weights : (terms,)
    composite : whether it has other parameters than the weights of one factor.   unit : whether k(x, x) = 1
    """

    columns: np.ndarray
    shifts: np.ndarray
    frequencies: np.ndarray
    weights: np.ndarray
    factors: np.ndarray
    shapes: np.ndarray
    term_weights: np.ndarray
    composite: bool
    unit: bool


cdef class Plain:
    """What the RBF kernel of all inputs has besides its weights, for a number of inputs."""

    cdef object arrays
    cdef const int64_t *columns
    cdef const double *zeros
    cdef const double *one

    def __init__(self, int64_t q):
        cdef const int64_t[::1] columns = np.arange(q)
        cdef const double[::1] zeros = np.zeros(q), one = np.ones(1)
        self.arrays = columns, zeros, one
        self.columns, self.zeros, self.one = &columns[0], &zeros[0], &one[0]


cdef dict plains = {}  # by the number of inputs


cdef class Kernel:
    """Z (m, q) minus center (q,), and the kernel: RBF with weights alpha (q,), or the one of `terms`; held for the calls of
    one evaluation."""

    cdef kernel_t k
    cdef factor_t[16] factor
    cdef readonly object Z, center, alpha, terms

    def __init__(self, const double[:, ::1] Z not None, const double[::1] center, const double[::1] alpha, terms=None):
        cdef int64_t m = Z.shape[0], q = Z.shape[1]
        check_vector("center", center, q)
        if terms is None:
            check_vector("alpha", alpha, q)
        self.Z, self.center, self.alpha, self.terms = np.asarray(Z), np.asarray(center), np.asarray(alpha), terms
        self.k.m, self.k.q, self.k.Z, self.k.center, self.k.alpha = m, q, &Z[0, 0], &center[0], &alpha[0]
        if terms is None:
            self.set_plain()
        else:
            self.set_terms(terms)

    cdef set_plain(self):
        """Make the kernel RBF of all inputs, with weights alpha."""
        cdef Plain plain = plains.get(self.k.q)
        if plain is None:
            plain = plains[self.k.q] = Plain(self.k.q)
        self.k.features, self.k.factors, self.k.terms = self.k.q, 1, 1
        self.k.columns, self.k.frequencies, self.k.term_weights = plain.columns, plain.zeros, plain.one
        self.k.shifts, self.k.weights, self.k.factor = self.k.center, self.k.alpha, self.factor
        self.k.composite, self.k.unit, self.k.plain = False, True, True
        self.factor[0].profile, self.factor[0].term, self.factor[0].shape = RBF_PROFILE, 0, 1.0
        self.factor[0].first, self.factor[0].last = 0, self.k.q

    cdef set_terms(self, terms):
        cdef const int64_t[::1] columns = terms.columns
        cdef const double[::1] shifts = terms.shifts, frequencies = terms.frequencies, weights = terms.weights
        cdef const double[::1] shapes = terms.shapes, term_weights = terms.term_weights
        cdef const int64_t[:, ::1] factors = terms.factors
        cdef int64_t features = columns.shape[0], j, end = 0
        check_indices("columns", columns, self.k.q)
        check_vector("shifts", shifts, features)
        check_vector("frequencies", frequencies, features)
        check_vector("weights", weights, features)
        check_vector("shapes", shapes, factors.shape[0])
        if not 1 <= factors.shape[0] <= MOST_FACTORS:
            raise ValueError(f"factors has shape {terms.factors.shape}, expected 1 to {MOST_FACTORS} rows")
        for j in range(factors.shape[0]):
            if not (RBF_PROFILE <= factors[j, 0] <= BIAS_PROFILE and 0 <= factors[j, 1] < term_weights.shape[0]
                    and factors[j, 2] == end and end <= factors[j, 3] <= features):
                raise ValueError(f"factors holds {terms.factors[j]} in row {j}, expected a profile, a term, and its features")
            end = factors[j, 3]
            self.factor[j].profile, self.factor[j].term = factors[j, 0], factors[j, 1]
            self.factor[j].first, self.factor[j].last, self.factor[j].shape = factors[j, 2], end, shapes[j]
        if end != features or features and (terms.frequencies[-1] > 0 or terms.frequencies[0] < 0):
            raise ValueError(f"columns has shape ({features},), and the factors have {end} features")
        self.k.features, self.k.factors, self.k.terms = features, factors.shape[0], term_weights.shape[0]
        self.k.columns = &columns[0] if features else NULL
        self.k.shifts = &shifts[0] if features else NULL
        self.k.frequencies = &frequencies[0] if features else NULL
        self.k.weights = &weights[0] if features else NULL
        self.k.term_weights, self.k.factor = &term_weights[0], self.factor
        self.k.composite, self.k.unit = terms.composite, terms.unit
        self.k.plain = features == self.k.q and not terms.frequencies.any()
        for j in range(features):
            self.k.plain = self.k.plain and columns[j] == j


cdef int64_t widest(Kernel kernel) noexcept:
    """The number of inputs, or of features where there are more."""
    return max(kernel.k.q, kernel.k.features)


cdef int64_t gradient_numbers(Kernel kernel) noexcept:
    """Of Z and the parameters of the kernel, as covariance.h has them."""
    cdef int64_t F = kernel.k.features
    return kernel.k.m * kernel.k.q + F + (F + kernel.k.factors + kernel.k.terms if kernel.k.composite else 0)


cdef class Rows:
    """The rows of a rank: mu (n, q), S (n, q) or None, Y (n, d), in chunks of `chunk` rows; all ranks have `all_chunks`.

    observed : (n, groups) or None, the weight of each row in each group of ψ2's sums
    outputs, trace_weights : (n,) or None, where each row has a trace term (trace.h): how many outputs a row has, and the
        weight of its term, which the statistics set and the gradient reads
    """

    cdef rows_t r
    cdef readonly object mu, S, Y, observed, outputs, trace_weights
    cdef readonly int64_t chunk, all_chunks
    cdef int64_t q

    def __init__(self, const double[:, ::1] mu not None, const double[:, ::1] S, const double[:, ::1] Y not None,
                 int64_t chunk, int64_t all_chunks, const double[:, ::1] observed=None,
                 const double[::1] outputs=None, double[::1] trace_weights=None):
        cdef int64_t n = mu.shape[0], groups = 1 if observed is None else observed.shape[1]
        check_matrix("Y", Y, n, Y.shape[1])
        if chunk < 1 or all_chunks < 1:
            raise ValueError(f"chunk = {chunk} and all_chunks = {all_chunks}, expected at least 1")
        self.mu, self.Y, self.chunk, self.all_chunks = np.asarray(mu), np.asarray(Y), chunk, all_chunks
        self.q = mu.shape[1]
        self.r.n, self.r.d, self.r.chunk, self.r.all_chunks, self.r.groups = n, Y.shape[1], chunk, all_chunks, groups
        self.r.mu, self.r.Y, self.r.S, self.r.observed = &mu[0, 0], &Y[0, 0], NULL, NULL
        self.r.outputs, self.r.trace_weights = NULL, NULL
        if S is not None:
            check_matrix("S", S, n, mu.shape[1])
            self.S, self.r.S = np.asarray(S), &S[0, 0]
        if observed is not None:
            check_matrix("observed", observed, n, groups)
            self.observed, self.r.observed = np.asarray(observed), &observed[0, 0]
        if trace_weights is not None:
            check_vector("outputs", outputs, n)
            check_vector("trace_weights", trace_weights, n)
            self.outputs, self.trace_weights = np.asarray(outputs), np.asarray(trace_weights)
            self.r.outputs, self.r.trace_weights = &outputs[0], &trace_weights[0]


# The work of one thread. `span` is (first, last, space): the chunks [first, last), and the workspace. `part` is
# (first, last, accumulators, scale, space), with the fixed-point accumulators and scales of the sums. A loop that adds
# sums returns how many overflowed.


cdef part_t chunks_of(Kernel kernel, Rows rows, span, int64_t d, int64_t groups, int64_t matrices=1) except *:
    """Return the chunks of a span with its workspace, for d outputs, so many groups, and sums of so many matrices."""
    cdef part_t p
    cdef int64_t first, last
    cdef double[::1] space
    first, last, space = span
    cdef int64_t chunks = (rows.r.n + rows.r.chunk - 1) // rows.r.chunk
    cdef int64_t needed = needed_workspace(kernel.k.m, widest(kernel), d, groups, matrices, kernel.k.factors)
    if rows.q != kernel.k.q:
        expect("mu", (rows.r.n, rows.q), (rows.r.n, kernel.k.q))
    if not 0 <= first <= last <= chunks:
        raise ValueError(f"first = {first} and last = {last}, expected a range of the {chunks} chunks")
    if space.shape[0] < needed:
        raise ValueError(f"space has shape ({space.shape[0]},), expected at least ({needed},)")
    p.first, p.last, p.space, p.accumulators, p.scale, p.per_sum = first, last, &space[0], NULL, NULL, 0
    return p


cdef part_t adding(Kernel kernel, Rows rows, part, int64_t sums, int per_sum, int64_t matrices=1) except *:
    """Return a part whose chunks add to so many sums, of one or two accumulators each."""
    cdef int64_t[::1] accumulators
    cdef const double[::1] scale
    first, last, accumulators, scale, space = part
    cdef part_t p = chunks_of(kernel, rows, (first, last, space), rows.r.d, rows.r.groups, matrices)
    expect("accumulators", (accumulators.shape[0],), (per_sum * sums,))
    check_vector("scale", scale, sums)
    p.accumulators, p.scale, p.per_sum = &accumulators[0], &scale[0], per_sum
    return p


cdef int64_t pairs_of(Kernel kernel) noexcept:
    return kernel.k.m * (kernel.k.m + 1) // 2


cdef const double *whitening(Kernel kernel, const double[:, ::1] inverse) except? NULL:
    if inverse is None:
        return NULL
    check_matrix("inverse", inverse, kernel.k.m, kernel.k.m)
    return &inverse[0, 0]


def regression_statistics(Kernel kernel not None, Rows rows not None, const double[:, ::1] inverse, double s, part):
    """Add AAᵀ (packed lower triangle) and AY (m, d), A = L⁻¹K with `inverse` and A = K without.

    Where rows have trace weights, set them, and add the trace sums (2,): trace.h has the formulas. Where the kernel is not
    of unit variance, add Σ k(x_i, x_i).
    """
    cdef bint by_rows = rows.r.trace_weights != NULL, psi0 = not kernel.k.unit
    cdef part_t p = adding(kernel, rows, part, pairs_of(kernel) + kernel.k.m * rows.r.d + 2 * by_rows + psi0, 1)
    cdef const double *L_inverse = whitening(kernel, inverse)
    cdef int64_t overflows
    if by_rows:
        check_matrix("inverse", inverse, kernel.k.m, kernel.k.m)
    with nogil:
        overflows = loops.regression_statistics(&kernel.k, &rows.r, &p, L_inverse, s)
    return overflows


def regression_gradient(Kernel kernel not None, Rows rows not None, const double[:, ::1] inverse,
                        const double[:, ::1] weight, const double[:, ::1] weight_psi1Y, const double[:, ::1] fit,
                        double by_diagonal, part):
    """Add the gradients of Z (m, q) and the kernel's parameters through ∂F/∂K, and with `inverse` AE (m, d): regression.c
    has the formula, and covariance.h the parameters.

    Where rows have trace weights, ΣA_iA_iᵀ with these weights (packed) is added too.
    """
    cdef int64_t m = kernel.k.m, d = rows.r.d, overflows
    cdef int64_t tilted = pairs_of(kernel) if rows.r.trace_weights != NULL else 0
    cdef part_t p = adding(kernel, rows, part, gradient_numbers(kernel) + (0 if inverse is None else m * d) + tilted, 2)
    cdef const double *L_inverse = whitening(kernel, inverse)
    check_matrix("weight", weight, m, m)
    check_matrix("weight_psi1Y", weight_psi1Y, m, d)
    check_matrix("fit", fit, m, d)
    if rows.r.trace_weights != NULL:
        check_matrix("inverse", inverse, m, m)
    with nogil:
        overflows = loops.regression_gradient(&kernel.k, &rows.r, &p, L_inverse, &weight[0, 0], &weight_psi1Y[0, 0],
                                              &fit[0, 0], by_diagonal)
    return overflows


def regression_moments(Kernel kernel not None, Rows rows not None, span, const double[:, ::1] factor,
                       const double[:, ::1] weights not None, double[:, ::1] mean, double[::1] explained):
    """Set mean (n, d) = K weights and explained (n,) = |factor K|², of a lower triangular factor (m, m)."""
    cdef int64_t m = kernel.k.m, d = weights.shape[1]
    cdef part_t p = chunks_of(kernel, rows, span, d, 1)
    check_matrix("factor", factor, m, m)
    check_matrix("weights", weights, m, d)
    check_matrix("mean", mean, rows.r.n, d)
    check_vector("explained", explained, rows.r.n)
    with nogil:
        loops.regression_moments(&kernel.k, &rows.r, &p, &factor[0, 0], &weights[0, 0], d, &mean[0, 0], &explained[0])


def gplvm_statistics(Kernel kernel not None, Rows rows not None, const double[::1] explained, double s, part):
    """Add Σψ2 (packed lower triangle, without its factor of Z alone), Σψ1Y and KL (whole nats, the remainder).

    Where rows have trace weights, set them, and add the trace sums (2,): trace.h has the formulas, and a row's c is the sum
    of explained (pairs,) ψ2.
    """
    cdef bint by_rows = rows.r.trace_weights != NULL
    cdef int64_t groups = rows.r.groups, sums = pairs_of(kernel) * groups + kernel.k.m * rows.r.d + 2, overflows
    cdef part_t p = adding(kernel, rows, part, sums + 2 * by_rows, 1, groups)
    cdef const double *weights = NULL
    check_matrix("S", rows.S, rows.r.n, kernel.k.q)
    if by_rows:
        check_vector("explained", explained, pairs_of(kernel))
        weights = &explained[0]
    with nogil:
        overflows = loops.gplvm_statistics(&kernel.k, &rows.r, &p, weights, s)
    return overflows


cdef int check_gplvm(Kernel kernel, Rows rows, const double[:, ::1] weight_psi2, const double[:, ::1] weight_psi1Y,
                     const double[:, ::1] grad_mu, const double[:, ::1] grad_S) except -1:
    cdef int64_t n = rows.r.n, q = kernel.k.q
    check_matrix("S", rows.S, n, q)
    check_matrix("weight_psi2", weight_psi2, pairs_of(kernel), rows.r.groups + (rows.r.trace_weights != NULL))
    check_matrix("weight_psi1Y", weight_psi1Y, kernel.k.m, rows.r.d)
    check_matrix("grad_mu", grad_mu, n, q)
    return check_matrix("grad_S", grad_S, n, q)


def gplvm_gradient(Kernel kernel not None, Rows rows not None, const double[:, ::1] weight_psi2,
                   const double[:, ::1] weight_psi1Y, double[:, ::1] grad_mu, double[:, ::1] grad_S, part):
    """Add the gradients of Z (m, q) and alpha (q,), and set those of mu and S (n, q); weight_psi2 is (pairs, groups).

    Where rows have trace weights, weight_psi2 has a last column for them, and Σψ2 with these weights (pairs,) is added.
    """
    cdef int64_t sums = kernel.k.m * kernel.k.q + kernel.k.q + (pairs_of(kernel) if rows.r.trace_weights != NULL else 0)
    cdef part_t p = adding(kernel, rows, part, sums, 2)
    cdef int64_t overflows
    check_gplvm(kernel, rows, weight_psi2, weight_psi1Y, grad_mu, grad_S)
    with nogil:
        overflows = loops.gplvm_gradient(&kernel.k, &rows.r, &p, &weight_psi2[0, 0], &weight_psi1Y[0, 0],
                                         &grad_mu[0, 0], &grad_S[0, 0])
    return overflows


def gplvm_bounds(Kernel kernel not None, Rows rows not None, span, const double[:, ::1] weight_psi2,
                 const double[:, ::1] weight_psi1Y, out):
    """Set out: each row's term of the bound (n,), and its gradients by mu and S (n, q); weight_psi2 is (pairs, groups)."""
    cdef double[::1] values
    cdef double[:, ::1] grad_mu, grad_S
    values, grad_mu, grad_S = out
    cdef part_t p = chunks_of(kernel, rows, span, rows.r.d, rows.r.groups)
    check_gplvm(kernel, rows, weight_psi2, weight_psi1Y, grad_mu, grad_S)
    check_vector("values", values, rows.r.n)
    with nogil:
        loops.gplvm_bounds(&kernel.k, &rows.r, &p, &weight_psi2[0, 0], &weight_psi1Y[0, 0], &grad_mu[0, 0],
                           &grad_S[0, 0], &values[0])


def gplvm_moments(Kernel kernel not None, Rows rows not None, span, const double[:, ::1] weights not None,
                  const double[:, ::1] weights_psi2 not None, double[:, ::1] mean, double[:, ::1] second):
    """Set mean (n, d) = ψ1 weights (m, d), and second (n, k), the sums of weights_psi2 (k, pairs) ψ2 over the pairs."""
    cdef int64_t d = weights.shape[1], k = weights_psi2.shape[0]
    cdef part_t p = chunks_of(kernel, rows, span, max(d, rows.r.d), max(k, rows.r.groups))
    check_matrix("S", rows.S, rows.r.n, kernel.k.q)
    check_matrix("weights", weights, kernel.k.m, d)
    check_matrix("weights_psi2", weights_psi2, k, pairs_of(kernel))
    check_matrix("mean", mean, rows.r.n, d)
    check_matrix("second", second, rows.r.n, k)
    with nogil:
        loops.gplvm_moments(&kernel.k, &rows.r, &p, &weights[0, 0], d, &weights_psi2[0, 0], k, &mean[0, 0],
                            &second[0, 0])


# The kernel between points


def kernel_covariance(Kernel kernel not None, const double[:, ::1] X=None):
    """Return K (m, n) between the inducing points and inputs X (n, q), or the points themselves: exactly symmetric."""
    cdef int64_t n = kernel.k.m if X is None else X.shape[0]
    if X is not None:
        check_matrix("X", X, n, kernel.k.q)
    K = np.empty((kernel.k.m, n))
    cdef double[:, ::1] out = K
    cdef double[::1] space = np.empty(needed_workspace(kernel.k.m, widest(kernel), 1, 1, 1, kernel.k.factors))
    if K.size:
        with nogil:
            loops.covariance(&kernel.k, NULL if X is None else &X[0, 0], n, &space[0], &out[0, 0])
    return K


def kernel_gram_gradient(Kernel kernel not None, const double[:, ::1] weights):
    """Return the gradients of Z (m, q) and the kernel's parameters through K_mm, given ∂F/∂K (m, m), whose row m is for Z_m."""
    cdef int64_t m = kernel.k.m, q = kernel.k.q
    check_matrix("weights", weights, m, m)
    result = np.empty(gradient_numbers(kernel))
    cdef double[::1] out = result
    cdef double[::1] space = np.empty(needed_workspace(m, widest(kernel), 1, 1, 1, kernel.k.factors))
    with nogil:
        loops.gram_gradient(&kernel.k, &weights[0, 0], &space[0], &out[0])
    return result[: m * q].reshape(m, q), result[m * q :]


def covariance(const double[:, ::1] Z not None, const double[:, ::1] X not None, const double[::1] alpha):
    """Return K (m, n), k(z, x) = exp(−½ Σ_q α_q (z_q − x_q)²), between the rows of Z (m, q) and X (n, q)."""
    cdef int64_t m = Z.shape[0], n = X.shape[0], q = Z.shape[1], i, j, k
    check_matrix("X", X, n, q)
    check_vector("alpha", alpha, q)
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
    loops.exponential(&out[0, 0], &out[0, 0], m * n, 1)
    return K


def gradient_limits(Kernel kernel not None, const double[::1] lowest, const double[::1] highest, double weight):
    """Return the limits (2q,) of the gradients of Z and alpha: mpigp.kernels.rbf has the reasons."""
    cdef int64_t m = kernel.k.m, q = kernel.k.q, i, k
    cdef double low, high, z, extent
    check_vector("lowest", lowest, q)
    check_vector("highest", highest, q)
    result = np.empty(2 * q)
    cdef double[::1] out = result
    for k in range(q):
        low, high = lowest[k], highest[k]
        for i in range(m):
            z = kernel.k.Z[i * q + k] + kernel.k.center[k]
            low, high = min(low, z), max(high, z)
        extent = max(high - low, 1.0)
        out[k] = 4 * weight * sqrt(kernel.k.alpha[k])
        out[q + k] = 4 * weight / max(kernel.k.alpha[k], ldexp(1.0, -40) / (extent * extent))
    return result


def gram_gradient(const double[:, ::1] G, const double[:, ::1] Z not None, const double[::1] alpha):
    """Return the gradients of Z (m, q) and alpha (q,) through K_mm, given G = ∂F/∂K ∘ K (m, m), symmetric.

    ∂F/∂Z_mq = −2 α_q Σ_m' G_mm' (Z_mq − Z_m'q)          ∂F/∂α_q = −½ Σ_mm' G_mm' (Z_mq − Z_m'q)²
    """
    cdef int64_t m = Z.shape[0], q = Z.shape[1], i, j, k
    check_matrix("G", G, m, m)
    check_vector("alpha", alpha, q)
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


# Vectors


def exponential(const double[::1] x not None, double[::1] out, int64_t repeat=1):
    """Put the exponential of x (n,) into out (n,) by the exponential of the loops, `repeat` times over (to measure it)."""
    check_vector("out", out, x.shape[0])
    with nogil:
        loops.exponential(&x[0], &out[0], x.shape[0], repeat)


def chunk_dots(const double[:, :] left not None, const double[:, :] right not None, int64_t chunk):
    """Return the dot products (chunks, a, b) of vectors left (a, n) and right (b, n), each contiguous in memory."""
    cdef int64_t n = left.shape[1]
    check_matrix("right", right, right.shape[0], n)
    if n > 1 and (left.strides[1] != sizeof(double) or right.strides[1] != sizeof(double)):
        raise ValueError("left and right hold vectors that are not contiguous")
    if chunk < 1:
        raise ValueError(f"chunk = {chunk}, expected at least 1")
    result = np.zeros(((n + chunk - 1) // chunk, left.shape[0], right.shape[0]))
    cdef double[:, :, ::1] out = result
    if result.size:
        with nogil:
            loops.chunk_dots(&left[0, 0], left.shape[0], left.strides[0] // <int64_t>sizeof(double), &right[0, 0],
                             right.shape[0], right.strides[0] // <int64_t>sizeof(double), n, chunk, &out[0, 0, 0])
    return result


def largest_dots(const double[:, ::1] left not None, const double[:, ::1] right not None, int64_t count):
    """Return which `count` of right (b, k) have the largest dot products with each of left (a, k): (a, count), the largest
    first. `count` is at most b."""
    check_matrix("right", right, right.shape[0], left.shape[1])
    if not 0 < count <= right.shape[0]:
        raise ValueError(f"count = {count}, expected 1 to {right.shape[0]}")
    result = np.empty((left.shape[0], count), np.int64)
    cdef int64_t[:, ::1] which = result
    cdef double[::1] space = np.empty((right.shape[0] + 7) * (right.shape[1] + 4) + 8 + count)
    with nogil:
        loops.largest_dots(&left[0, 0], left.shape[0], &right[0, 0], right.shape[0], left.shape[1], count,
                           &which[0, 0], &space[0])
    return result


include "_searches.pxi"
