"""The declarations of loops.h. C checks the parameters of the loops; their list is in loops.h."""

from libc.stdint cimport int64_t


cdef extern from "loops.h":
    const double FINE_SCALE "FINE"
    ctypedef struct rows_t:
        int64_t n, d, chunk, all_chunks, groups
        const double *mu, *S, *Y, *observed
    ctypedef struct rbf_t:
        int64_t m, q
        const double *Z, *center, *alpha
    ctypedef struct part_t:
        int64_t first, last
        double *space
        int64_t *accumulators
        const double *scale
        int per_sum
    ctypedef struct searches_t:
        int64_t n, k
        double *records
    int64_t search_places(int64_t)
    int64_t search_record(int64_t)
    ctypedef struct loops_t:
        const char *name
        int64_t (*regression_statistics)(...) noexcept nogil
        int64_t (*regression_gradient)(...) noexcept nogil
        void (*regression_moments)(...) noexcept nogil
        int64_t (*gplvm_statistics)(...) noexcept nogil
        int64_t (*gplvm_gradient)(...) noexcept nogil
        void (*gplvm_bounds)(...) noexcept nogil
        void (*gplvm_moments)(...) noexcept nogil
        void (*exponential)(...) noexcept nogil
        void (*chunk_dots)(...) noexcept nogil
        void (*largest_dots)(...) noexcept nogil
        void (*search_begin)(...) noexcept nogil
        int64_t (*search_advance)(...) noexcept nogil
        void (*search_points)(...) noexcept nogil
    const loops_t *fastest_loops()
    int64_t needed_workspace "workspace"(int64_t m, int64_t q, int64_t d, int64_t groups, int64_t matrices)

cdef const loops_t *loops
