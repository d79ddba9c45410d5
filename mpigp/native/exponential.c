/* The exponential of the loops by itself, for measurements and tests. */
#include "rbf.h"
#include "simd.h"

INLINE void exponential_of(const double *x, double *out)
{
    const vec_anywhere *from = (const vec_anywhere *)x;
    vec_anywhere *to = (vec_anywhere *)out;
    vec a = LOG2E * from[0], b = LOG2E * from[1], c = LOG2E * from[2], d = LOG2E * from[3];
    exp2_vectors(&a, &b, &c, &d);
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

void ISA(exponential)(const double *x, double *out, int64_t n, int64_t repeat)
{
    for (int64_t r = 0; r < repeat; r++) {
        int64_t i = 0;
        for (; i + 4 * LANES <= n; i += 4 * LANES) exponential_of(x + i, out + i);
        if (i < n) {
            double rest[4 * LANES] = {0};
            memcpy(rest, x + i, (size_t)(n - i) * sizeof(double));
            exponential_of(rest, rest);
            memcpy(out + i, rest, (size_t)(n - i) * sizeof(double));
        }
        __asm__ volatile("" ::: "memory"); /* every repetition counts */
    }
}
