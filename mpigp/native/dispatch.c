/* One library for all CPUs: the choice among the builds of the loops, and the memory they need. */
#include "rbf.h"

#include <stdlib.h>
#include <string.h>

#define TABLE(isa)                                                                                                   \
    {                                                                                                                \
        #isa, regression_statistics_##isa, regression_gradient_##isa, regression_moments_##isa,                      \
            gplvm_statistics_##isa, gplvm_gradient_##isa, gplvm_bounds_##isa, gplvm_moments_##isa,                   \
            exponential_##isa, chunk_dots_##isa, largest_dots_##isa, search_begin_##isa, search_advance_##isa,       \
            search_points_##isa,                                                                                     \
    }

#ifdef MPIGP_X86
/* MPIGP_INSTRUCTION_SET may name a slower build than the CPU could run, to test it. */
static int allowed(const char *name)
{
    const char *wanted = getenv("MPIGP_INSTRUCTION_SET");
    return !wanted || !strcmp(wanted, name);
}
#endif

const rbf_functions *rbf_dispatch(void)
{
    static const rbf_functions baseline = TABLE(baseline);
#ifdef MPIGP_X86
    static const rbf_functions avx2 = TABLE(avx2), avx512 = TABLE(avx512);
    __builtin_cpu_init();
    if (allowed("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return &avx512;
    if (allowed("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2;
#endif
    return &baseline;
}

int64_t rbf_workspace(int64_t m, int64_t q, int64_t d, int64_t groups, int64_t matrices)
{
    const int64_t rows = 64;          /* a block */
    const int64_t places = m + 2 * 8; /* a row of m numbers, padded in any build */
    const int64_t arrays = 40;        /* more than any function takes, each with 80 doubles to round up and to skew */
    return rows * (5 * places + 14 * q + 2 * d + 2 * groups + 32) + places * ((2 + matrices) * m + 5 * d + 17 * q + 32) +
           16 * q + 80 * arrays;
}
