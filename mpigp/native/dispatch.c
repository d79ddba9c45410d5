/* One library for all CPUs: the choice among the builds of rbf.c. */
#include "rbf.h"

const rbf_functions *rbf_dispatch(void)
{
#ifdef MPIGP_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return &rbf_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &rbf_avx2;
#endif
    return &rbf_baseline;
}

int64_t rbf_workspace(int64_t m, int64_t q, int64_t d, int64_t chunk)
{
    const int64_t rows = (chunk + 63) / 64 * 64 + 64; /* a chunk, padded in any build */
    const int64_t arrays = 40;                        /* more than any function takes, each rounded up to 64 bytes */
    return rows * (3 * m + 12 * q + d + 8) + m * (m + 2 * d + 8 * q + m) + 4 * q + 8 * arrays;
}
