# cython: boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True, cdivision=True
"""The m × m algebra of the bound, by SciPy's LAPACK without the cost of its wrappers.

All matrices are row-major. LAPACK counts by columns: it sees the transpose of every matrix here, so a lower triangle as an
upper one, and products in the reverse order. Lower triangles are packed by rows. What takes m³ operations lets go of
Python's lock: other threads hear signals and send heartbeats meanwhile.
"""

import numpy as np

from libc.math cimport M_PI, fabs, isfinite, log
from libc.stdint cimport int64_t
from scipy.linalg.cython_blas cimport dsyrk, dtrmm, dtrsm
from scipy.linalg.cython_lapack cimport dpotrf, dpotri, dpstrf, dtrtri

from mpigp.native._shapes cimport check_matrix, check_square, check_vector, expect

cdef char UPPER = b"U", LEFT = b"L", RIGHT = b"R", PLAIN = b"N", TRANSPOSED = b"T"
cdef double ONE = 1.0
cdef double MOST_OF_INVERSE = 1.01  # no entry of P⁻¹ exceeds 1, but for a little rounding

# Factors


def pivoted_cholesky(K, double jitter):
    """Return L (m, m) and the order (m,) with L Lᵀ = (K + jitter I)[order][:, order]; None where there is no such L."""
    factor = K.copy()
    cdef double[:, ::1] L = factor
    cdef int m = check_square("K", L), i, rank, info
    cdef double tolerance = 0.0
    order = np.empty(m, np.int64)
    cdef int64_t[::1] places = order
    cdef int[::1] pivots = np.empty(m, np.intc)
    cdef double[::1] space = np.empty(2 * m)
    for i in range(m):
        L[i, i] += jitter
    with nogil:
        dpstrf(&UPPER, &m, &L[0, 0], &m, &pivots[0], &rank, &tolerance, &space[0], &info)
    if rank < m or not isfinite(L[m - 1, m - 1]):
        return None
    clear_above(L)
    for i in range(m):
        places[i] = pivots[i] - 1
    return factor, order


def triangle_inverse(L):
    """Return L⁻¹ (m, m)."""
    result = L.copy()
    cdef double[:, ::1] X = result
    cdef int m = check_square("L", X), info
    with nogil:
        dtrtri(&UPPER, &PLAIN, &m, &X[0, 0], &m, &info)
    return result


def solve(const double[:, ::1] L, B, bint transposed=False):
    """Return L⁻¹ B (m, k), or L⁻ᵀ B."""
    result = B.copy()
    cdef double[:, ::1] X = result
    check_square("L", L)
    check_matrix("B", X, L.shape[0], X.shape[1])
    with nogil:
        solve_in_place(L, X, transposed)
    return result


cdef void solve_in_place(const double[:, ::1] L, double[:, ::1] B, bint transposed) noexcept nogil:
    cdef int m = B.shape[0], k = B.shape[1]
    dtrsm(&RIGHT, &UPPER, &TRANSPOSED if transposed else &PLAIN, &PLAIN, &k, &m, &ONE, <double *>&L[0, 0], &m, &B[0, 0], &k)


cdef void both_sides(const double[:, ::1] M, double[:, ::1] W, double factor, bint transposed=False) noexcept nogil:
    """Make W (m, m) factor/2 Mᵀ (W + Wᵀ) M, or with M and Mᵀ exchanged, exactly symmetric; M is lower triangular."""
    cdef int m = M.shape[0]
    cdef char *left = &TRANSPOSED if transposed else &PLAIN
    cdef char *right = &PLAIN if transposed else &TRANSPOSED
    dtrmm(&LEFT, &UPPER, left, &PLAIN, &m, &m, &factor, <double *>&M[0, 0], &m, &W[0, 0], &m)
    dtrmm(&RIGHT, &UPPER, right, &PLAIN, &m, &m, &ONE, <double *>&M[0, 0], &m, &W[0, 0], &m)
    make_symmetric(W)


cdef void make_symmetric(double[:, ::1] X) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(X.shape[0]):
        for j in range(i):
            X[i, j] = X[j, i] = 0.5 * (X[i, j] + X[j, i])


cdef void clear_above(double[:, ::1] L) noexcept:
    cdef Py_ssize_t i, j
    for i in range(L.shape[0]):
        for j in range(i + 1, L.shape[0]):
            L[i, j] = 0.0


# The bound


def group_bound(C, b, double n, double YY, double variance, double beta, bint trace_term, double psi0):
    """Return the term of F of a group of outputs, and its derivatives: mpigp.gp.bound.group_bound has the formulas.

    value, ∂F/∂C, ∂F/∂b, ∂F/∂C C + ½ ∂F/∂b bᵀ, ∂F/∂variance, ∂F/∂beta, L_B, g, s; None where they have no value
    """
    cdef const double[:, ::1] C_ = C
    cdef int m = check_square("C", C_), d = b.shape[1], i, j, info
    check_matrix("b", b, m, d)
    cdef double s = beta * variance, trace = 0, log_det = 0, cc = 0, factor, value, by_s, by_beta
    for i in range(m):
        trace += C_[i, i]
    if not trace <= psi0:  # Σ of ⟨k_i⟩ᵀ K_mm⁻¹ ⟨k_i⟩ ≤ Σ k_ii: only rounding can break it
        return None

    # P = I + s C = L_B L_Bᵀ
    factor_P = s * C
    cdef double[:, ::1] L_B = factor_P
    for i in range(m):
        L_B[i, i] += 1
    with nogil:
        dpotrf(&UPPER, &m, &L_B[0, 0], &m, &info)
    if info != 0:
        return None
    clear_above(L_B)
    for i in range(m):
        log_det += log(L_B[i, i])

    # c = L_B⁻¹ b,  g = P⁻¹ b
    solution = solve(L_B, b)
    cdef double[:, ::1] g = solution
    for i in range(m):
        for j in range(d):
            cc += g[i, j] * g[i, j]
    with nogil:
        solve_in_place(L_B, g, True)

    # ∂F/∂P = d/2 (I − P⁻¹) − βs/2 g gᵀ, of which d/2 I is the trace term's
    derivative = factor_P.copy()
    cdef double[:, ::1] by_P = derivative
    with nogil:
        dpotri(&UPPER, &m, &by_P[0, 0], &m, &info)
    for i in range(m):
        if not by_P[i, i] <= MOST_OF_INVERSE:  # C ⪰ 0, so P ⪰ I: only rounding can break it, and F then means nothing
            return None
        for j in range(i + 1):
            by_P[i, j] *= -0.5 * d
        if trace_term:
            by_P[i, i] += 0.5 * d
    factor = -0.5 * beta * s
    with nogil:
        dsyrk(&UPPER, &TRANSPOSED, &m, &d, &factor, &g[0, 0], &d, &ONE, &by_P[0, 0], &m)
    by_s = 0.5 * beta * cc - (0.5 * psi0 * d if trace_term else 0.0)
    for i in range(m):
        for j in range(i):
            by_P[j, i] = by_P[i, j]
            by_s += 2 * by_P[i, j] * C_[i, j]
        by_s += by_P[i, i] * C_[i, i]
        if not trace_term:
            by_P[i, i] += 0.5 * d

    value = (0.5 * n * d * log(beta / (2 * M_PI)) - d * log_det - 0.5 * beta * YY
             - (0.5 * s * d * (psi0 - trace) if trace_term else 0.0) + 0.5 * beta * s * cc)
    by_beta = 0.5 * n * d / beta - 0.5 * YY + 0.5 * s * cc + variance * by_s
    if not isfinite(value):
        return None
    by_L = 0.5 * s * d * C
    by_L -= derivative
    derivative *= s
    return value, derivative, beta * s * solution, by_L, beta * by_s, by_beta, factor_P, solution, s


# From the models' sums to the bound, and from its derivatives to weights


def symmetric(const double[::1] triangle, Py_ssize_t m):
    """Return the symmetric matrix (m, m) of a lower triangle (m(m+1)/2,)."""
    check_vector("triangle", triangle, m * (m + 1) // 2)
    result = np.empty((m, m))
    cdef double[:, ::1] out = result
    cdef Py_ssize_t i, j, p = 0
    for i in range(m):
        for j in range(i + 1):
            out[i, j] = out[j, i] = triangle[p]
            p += 1
    return result


def whitened(const double[:, ::1] pairs not None, const double[:, ::1] root_K, const double[:, ::1] L):
    """Return C = L⁻¹ Ψ2 L⁻ᵀ of each group (groups, m, m), exactly symmetric, of Ψ2 / K^½ packed (m(m+1)/2, groups)."""
    cdef int m = check_square("L", L), groups = pairs.shape[1], k, i, j, p
    check_matrix("pairs", pairs, m * (m + 1) // 2, groups)
    check_matrix("root_K", root_K, m, m)
    result = np.empty((groups, m, m))
    cdef double[:, :, ::1] C = result
    for k in range(groups):
        p = 0
        for i in range(m):
            for j in range(i + 1):
                C[k, i, j] = C[k, j, i] = pairs[p, k] * root_K[i, j]
                p += 1
        with nogil:
            solve_in_place(L, C[k], False)
            dtrsm(&LEFT, &UPPER, &TRANSPOSED, &PLAIN, &m, &m, &ONE, <double *>&L[0, 0], &m, &C[k, 0, 0], &m)
            make_symmetric(C[k])
    return result


def sandwiched(const double[:, ::1] inverse, W, double factor, bint transposed=False):
    """Return factor/2 L⁻ᵀ (W + Wᵀ) L⁻¹ (m, m), or factor/2 L⁻¹ (W + Wᵀ) L⁻ᵀ, exactly symmetric."""
    result = W.copy()
    cdef double[:, ::1] X = result
    cdef int m = check_square("inverse", inverse)
    check_matrix("W", X, m, m)
    with nogil:
        both_sides(inverse, X, factor, transposed)
    return result


def pair_weights(by_C, const double[:, ::1] root_K, const double[:, ::1] inverse):
    """Return L⁻ᵀ ∂F/∂C L⁻¹ ∘ K^½ of each group, packed (m(m+1)/2, groups), its diagonal halved: each pair counts twice."""
    matrices = by_C.copy()
    cdef double[:, :, ::1] W = matrices
    cdef Py_ssize_t groups = W.shape[0], m = check_square("inverse", inverse), k, i, j, p
    expect("by_C", (groups, W.shape[1], W.shape[2]), (groups, m, m))
    check_matrix("root_K", root_K, m, m)
    result = np.empty((m * (m + 1) // 2, groups))
    cdef double[:, ::1] out = result
    for k in range(groups):
        with nogil:
            both_sides(inverse, W[k], 1.0)
        p = 0
        for i in range(m):
            for j in range(i + 1):
                out[p, k] = (0.5 if i == j else 1.0) * W[k, i, j] * root_K[i, j]
                p += 1
    return result


def absolute_total(const double[:, ::1] matrix not None, double n, const double[:, ::1] psi1Y not None,
                   const double[::1] residuals):
    """Return n Σ|matrix| + Σ|psi1Y| residuals, of psi1Y (m, d) and residuals (d,)."""
    cdef Py_ssize_t i, j
    cdef double of_matrix = 0, of_psi1Y = 0
    check_vector("residuals", residuals, psi1Y.shape[1])
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            of_matrix += fabs(matrix[i, j])
    for i in range(psi1Y.shape[0]):
        for j in range(psi1Y.shape[1]):
            of_psi1Y += fabs(psi1Y[i, j]) * residuals[j]
    return n * of_matrix + of_psi1Y


def add_through_pairs(double[:, ::1] by_gram, const double[:, ::1] weights, const double[:, ::1] pairs not None):
    """Add ∂F/∂K ∘ K (m, m) through Ψ2's factor K^½, half the derivative: ½ Σ ∂F/∂Ψ2 ∘ Ψ2 over the groups.

    weights : those of `pair_weights`.   pairs : Ψ2 / K^½, packed (m(m+1)/2, groups)
    """
    cdef Py_ssize_t m = check_square("by_gram", by_gram), i, j, k, p = 0
    cdef double both
    check_matrix("pairs", pairs, m * (m + 1) // 2, pairs.shape[1])
    check_matrix("weights", weights, pairs.shape[0], pairs.shape[1])
    for i in range(m):
        for j in range(i + 1):
            both = 0
            for k in range(pairs.shape[1]):
                both += weights[p, k] * pairs[p, k]
            if i == j:
                by_gram[i, i] += both
            else:
                by_gram[i, j] += 0.5 * both
                by_gram[j, i] += 0.5 * both
            p += 1
