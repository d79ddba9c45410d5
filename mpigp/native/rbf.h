/* The RBF kernel's sums over rows and their gradients: what is compiled, and for whom. All kernels here have unit variance:
 * sigma_f^2 enters on the master. Symbols are those of the tutorial; see mpigp/kernels/rbf.py for the formulas. */
#ifndef MPIGP_RBF_H
#define MPIGP_RBF_H

#include <stdint.h>

/* The Fortran BLAS that SciPy carries. */
typedef struct {
    void (*gemm)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
    void (*syrk)(char *, char *, int *, int *, double *, double *, int *, double *, double *, int *);
    void (*trsm)(char *, char *, char *, char *, int *, int *, double *, double *, int *, double *, int *);
} blas_t;

/* The rows of one rank, row-major, and the chunks of `chunk` rows into which they are cut. */
typedef struct {
    int64_t n, d, chunk;
    const double *mu;    /* (n, q): the inputs X in regression */
    const double *S;     /* (n, q): NULL in regression */
    const double *Y;     /* (n, d) */
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

/* Every function works on chunks [first, last) and returns the number of chunk sums that do not fit their integers. */
typedef struct {
    int64_t (*regression_statistics)(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *L,
                                     sums_t out, const blas_t *, double *workspace);
    int64_t (*regression_gradient)(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *L,
                                   const double *N, const double *weight_psi1Y, sums_t out, const blas_t *,
                                   double *workspace);
    int64_t (*gplvm_statistics)(const rbf_t *, const rows_t *, int64_t first, int64_t last, sums_t out, const blas_t *,
                                double *workspace);
    int64_t (*gplvm_gradient)(const rbf_t *, const rows_t *, int64_t first, int64_t last, const double *weight_psi2,
                              const double *weight_psi1Y, double *grad_mu, double *grad_S, sums_t out, const blas_t *,
                              double *workspace);
    void (*exponential)(const double *, double *out, int64_t n, int64_t repeat);
    const char *name;
} rbf_functions;

extern const rbf_functions rbf_baseline, rbf_avx2, rbf_avx512;

/* The fastest of them that this CPU runs. */
const rbf_functions *rbf_dispatch(void);

/* Doubles of workspace that one thread needs. */
int64_t rbf_workspace(int64_t m, int64_t q, int64_t d, int64_t chunk);

#endif
