/* The loops that are compiled once for each instruction set: what they take, their list, and the table that Python calls.
 *
 * All kernels here are of scale one: sigma_f^2 enters on rank 0. Symbols are those of the tutorial; mpigp/kernels/rbf.py has the
 * formulas of psi statistics, and covariance.h those of kernels. */
#ifndef MPIGP_LOOPS_H
#define MPIGP_LOOPS_H

#include <stdint.h>

/* The rows of one rank, row-major, in chunks of `chunk` rows. */
typedef struct {
    int64_t n, d, chunk, all_chunks; /* all_chunks: of all ranks together */
    const double *mu;                /* (n, q): the inputs X in regression */
    const double *S;                 /* (n, q): NULL in regression */
    const double *Y;                 /* (n, d) */
    int64_t groups;                  /* of psi2's sums over rows, 1 where `observed` is NULL */
    const double *observed;          /* (n, groups): the weight of a row in each group */
    const double *outputs;           /* (n): how many outputs a row has; NULL unless each row has a trace term (trace.h) */
    double *trace_weights;           /* (n): of those terms; the statistics set them, and the gradient reads them */
} rows_t;

enum { RBF, MATERN12, MATERN32, MATERN52, RATIONAL, LINEAR, BIAS }; /* profiles of factors: covariance.h */

#define MAX_FACTORS 16

typedef struct {
    int64_t profile, term, first, last; /* its features are [first, last); factors are in the order of their terms */
    double shape;                       /* of RATIONAL */
} factor_t;

/* Inducing points and a kernel. The psi statistics are those of the RBF kernel with weights alpha; regression takes any sum of terms,
 * each a product of factors. */
typedef struct {
    int64_t m, q;
    const double *Z;      /* (m, q), minus `center` */
    const double *center; /* (q): subtracted from mu before squares are expanded */
    const double *alpha;  /* (q) */
    int64_t features, factors, terms;
    const int64_t *columns;     /* (features): the input of a feature */
    const double *shifts;       /* (features): subtracted from it */
    const double *frequencies;  /* (features): 0 for the input itself, omega for its cosine, then -omega for its sine */
    const double *weights;      /* (features) */
    const double *term_weights; /* (terms) */
    const factor_t *factor;     /* (factors) */
    int composite;              /* 0: one factor of weight 1, which has no more parameters than its weights */
    int unit;                   /* whether k(x, x) = 1 */
    int plain;                  /* whether the features are all inputs, in their order */
} kernel_t;

/* The work of one thread: the chunks [first, last), and fixed-point accumulators to which their sums are added.
 * An accumulator holds value * scale, rounded to an integer. With two per sum the second holds the remainder, times scale * FINE. */
typedef struct {
    int64_t first, last;
    double *space; /* workspace, of `workspace` doubles */
    int64_t *accumulators;
    const double *scale; /* powers of two, one per sum */
    int per_sum;         /* accumulators per sum, 1 or 2 */
} part_t;

#define FINE 0x1p40 /* 2^22 chunks of remainders of at most one half still fit */

/* n minimizations over k variables: `records` has a record for each, at a multiple of 64 bytes. */
typedef struct {
    int64_t n, k;
    double *records;
} searches_t;

#define SEARCH_MEMORY 8 /* steps that a search remembers */

static inline int64_t search_places(int64_t k) { return (k + 7) / 8 * 8; }
static inline int64_t search_record(int64_t k) { return 8 + SEARCH_MEMORY + (4 + 2 * SEARCH_MEMORY) * search_places(k); }

/* Every loop: LOOP(result, name, parameters). A loop over rows that adds sums returns how many overflowed their accumulators.
 * `inverse` is L^-1 (m, m), lower triangular, or NULL: A = L^-1 K, or A = K. */
#define ROWS const kernel_t *, const rows_t *, const part_t *
#define LOOPS(LOOP)                                                                                                           \
    LOOP(int64_t, regression_statistics, ROWS, const double *inverse, double s)                                               \
    LOOP(int64_t, regression_gradient, ROWS, const double *inverse, const double *weight, const double *weight_psi1Y,         \
         const double *fit, double by_diagonal)                                                                               \
    LOOP(void, regression_moments, ROWS, const double *factor, const double *weights, int64_t d, double *mean,                \
         double *explained)                                                                                                   \
    LOOP(void, covariance, const kernel_t *, const double *X, int64_t n, double *space, double *K)                            \
    LOOP(void, gram_gradient, const kernel_t *, const double *weights, double *space, double *grad)                           \
    LOOP(int64_t, gplvm_statistics, ROWS, const double *explained, double s)                                                  \
    LOOP(int64_t, gplvm_gradient, ROWS, const double *weight_psi2, const double *weight_psi1Y, double *grad_mu,               \
         double *grad_S)                                                                                                      \
    LOOP(void, gplvm_bounds, ROWS, const double *weight_psi2, const double *weight_psi1Y, double *grad_mu, double *grad_S,    \
         double *values)                                                                                                      \
    LOOP(void, gplvm_moments, ROWS, const double *weights, int64_t d, const double *weights_psi2, int64_t count_psi2,         \
         double *mean, double *second)                                                                                        \
    LOOP(void, exponential, const double *x, double *out, int64_t n, int64_t repeat)                                          \
    LOOP(void, chunk_dots, const double *left, int64_t n_left, int64_t left_stride, const double *right, int64_t n_right,     \
         int64_t right_stride, int64_t length, int64_t chunk, double *out)                                                    \
    LOOP(void, largest_dots, const double *left, int64_t n_left, const double *right, int64_t n_right, int64_t length,        \
         int64_t count, int64_t *which, double *space)                                                                        \
    LOOP(void, search_begin, const searches_t *, const double *start, const double *units)                                    \
    LOOP(int64_t, search_advance, const searches_t *, int64_t *active, int64_t count, const double *values,                   \
         const double *gradients, double tolerance, double *scaled)                                                           \
    LOOP(void, search_points, const searches_t *, const int64_t *numbers, int64_t count, int trial, double *points)

typedef struct {
    const char *name;
#define POINTER(result, name, ...) result (*name)(__VA_ARGS__);
    LOOPS(POINTER)
#undef POINTER
} loops_t;

#ifdef ISA_NAME /* this is one of the builds */
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define ISA(function) JOIN(function, ISA_NAME)
#define DECLARATION(result, name, ...) result ISA(name)(__VA_ARGS__);
LOOPS(DECLARATION)
#undef DECLARATION
#endif

/* The fastest build that this CPU runs. */
const loops_t *fastest_loops(void);

/* Doubles of workspace that one thread needs. */
int64_t workspace(int64_t m, int64_t q, int64_t d, int64_t groups, int64_t matrices, int64_t factors);

#endif
