/* The RBF kernel's sums over rows and their gradients: what is compiled, and for whom. All kernels here have unit variance:
 * sigma_f^2 enters on the master. Symbols are those of the tutorial; see mpigp/kernels/rbf.py for the formulas. */
#ifndef MPIGP_RBF_H
#define MPIGP_RBF_H

#include "searches.h"

/* The rows of one rank, row-major, and the chunks of `chunk` rows into which they are cut. */
typedef struct {
    int64_t n, d, chunk, all_chunks; /* all_chunks: of all ranks together */
    const double *mu;    /* (n, q): the inputs X in regression */
    const double *S;     /* (n, q): NULL in regression */
    const double *Y;     /* (n, d) */
    int64_t groups;      /* of psi2's sums over rows, 1 where `observed` is NULL */
    const double *observed; /* (n, groups): what a row counts in each */
} rows_t;

typedef struct {
    int64_t m, q;
    const double *Z;      /* (m, q), less `centre` */
    const double *centre; /* (q): taken from mu before squares are expanded */
    const double *alpha;  /* (q) */
} rbf_t;

/* Sums become integers: value * scale, rounded. With two words the second holds the rest, times scale * fine. */
typedef struct {
    int64_t *words;
    const double *scale; /* powers of two, one per sum */
    double fine;         /* a power of two; 0 for sums of one word */
} sums_t;

/* Each function is compiled once per instruction set, under a name of its own, and works on chunks [first, last); it returns
 * the number of chunk sums that do not fit their integers. `inverse` is L^-1 (m, m), lower triangular: A = L^-1 K.
 * `fit` (m, d) makes the residuals E = Y - A^T fit, where A is at hand. */
#define DECLARE(isa)                                                                                                          \
    int64_t regression_statistics_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *inverse,    \
                                        sums_t, double *workspace);                                                           \
    int64_t regression_gradient_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *inverse,      \
                                      const double *weight, const double *weight_psi1Y, const double *fit, sums_t,            \
                                      double *workspace);                                                                     \
    void regression_moments_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *factor,           \
                                  const double *weights, int64_t d, double *mean, double *explained, double *workspace);      \
    int64_t gplvm_statistics_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, sums_t, double *workspace);    \
    int64_t gplvm_gradient_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *weight_psi2,       \
                                 const double *weight_psi1Y, double *grad_mu, double *grad_S, sums_t, double *workspace);     \
    void gplvm_bounds_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *weight_psi2,            \
                            const double *weight_psi1Y, double *grad_mu, double *grad_S, double *values,                      \
                            double *workspace);                                                                               \
    void gplvm_moments_##isa(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *weights, int64_t d,    \
                             const double *weights_psi2, int64_t count_psi2, double *mean, double *second,                    \
                             double *workspace);                                                                              \
    void exponential_##isa(const double *, double *out, int64_t n, int64_t repeat);                                           \
    void chunk_dots_##isa(const double *left, int64_t n_left, int64_t left_stride, const double *right, int64_t n_right,      \
                          int64_t right_stride, int64_t length, int64_t chunk, double *out);                                  \
    void largest_dots_##isa(const double *left, int64_t n_left, const double *right, int64_t n_right, int64_t length,         \
                            int64_t count, int64_t *which, double *workspace);                                                \
    void search_begin_##isa(const searches_t *, const double *start, const double *units);                                    \
    int64_t search_advance_##isa(const searches_t *, int64_t *alive, int64_t count, const double *values,                     \
                                 const double *gradients, double tolerance, double *by);                                      \
    void search_points_##isa(const searches_t *, const int64_t *numbers, int64_t count, int ahead, double *points);

DECLARE(baseline)
DECLARE(avx2)
DECLARE(avx512)

#ifdef ISA_NAME
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define ISA(function) JOIN(function, ISA_NAME)
#endif

typedef struct {
    const char *name;
    int64_t (*regression_statistics)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, sums_t, double *);
    int64_t (*regression_gradient)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *,
                                   const double *, const double *, sums_t, double *);
    void (*regression_moments)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *, int64_t,
                               double *, double *, double *);
    int64_t (*gplvm_statistics)(const rbf_t *, const rows_t *, int64_t, int64_t, sums_t, double *);
    int64_t (*gplvm_gradient)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *, double *,
                              double *, sums_t, double *);
    void (*gplvm_bounds)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, const double *, double *,
                         double *, double *, double *);
    void (*gplvm_moments)(const rbf_t *, const rows_t *, int64_t, int64_t, const double *, int64_t, const double *, int64_t,
                          double *, double *, double *);
    void (*exponential)(const double *, double *, int64_t, int64_t);
    void (*chunk_dots)(const double *, int64_t, int64_t, const double *, int64_t, int64_t, int64_t, int64_t, double *);
    void (*largest_dots)(const double *, int64_t, const double *, int64_t, int64_t, int64_t, int64_t *, double *);
    void (*search_begin)(const searches_t *, const double *, const double *);
    int64_t (*search_advance)(const searches_t *, int64_t *, int64_t, const double *, const double *, double, double *);
    void (*search_points)(const searches_t *, const int64_t *, int64_t, int, double *);
} rbf_functions;

/* The fastest build that this CPU runs. */
const rbf_functions *rbf_dispatch(void);

/* Doubles of workspace that one thread needs. */
int64_t rbf_workspace(int64_t m, int64_t q, int64_t d, int64_t groups, int64_t matrices);

#endif
