/* One library for all CPUs: the choice among the builds of the loops, and the memory that they need. */
#include "loops.h"

#include <stdlib.h>
#include <string.h>

extern const loops_t loops_baseline, loops_avx2, loops_avx512;

#ifdef MPIGP_X86
/* MPIGP_INSTRUCTION_SET may name a slower build than the CPU could run, to test it. */
static int allowed(const loops_t *build)
{
    const char *wanted = getenv("MPIGP_INSTRUCTION_SET");
    return !wanted || !strcmp(wanted, build->name);
}
#endif

const loops_t *fastest_loops(void)
{
#ifdef MPIGP_X86
    __builtin_cpu_init();
    if (allowed(&loops_avx512) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return &loops_avx512;
    if (allowed(&loops_avx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &loops_avx2;
#endif
    return &loops_baseline;
}

/* q: inputs, or features where there are more. */
int64_t workspace(int64_t m, int64_t q, int64_t d, int64_t groups, int64_t matrices, int64_t factors)
{
    const int64_t rows = 64;          /* a block */
    const int64_t places = m + 2 * 8; /* a row of m numbers, padded in any build */
    const int64_t arrays = 48 + 3 * factors; /* more than any function takes, each with 80 doubles to round up and to skew */
    return rows * ((6 + 3 * factors) * places + 14 * q + 2 * d + 2 * groups + 32) +
           places * ((3 + matrices) * m + 5 * d + 17 * q + 32) + 16 * (q + factors) + 80 * arrays;
}
