/* Vectors of doubles by GCC's vector extensions (Clang has them too), and 2^x on them. */
#ifndef MPIGP_SIMD_H
#define MPIGP_SIMD_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif

typedef double vec __attribute__((vector_size(8 * LANES)));
typedef int64_t ivec __attribute__((vector_size(8 * LANES)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const double *p) { return *(const vec *)p; }
INLINE void store(double *p, vec v) { *(vec *)p = v; }
INLINE vec splat(double x) { return x - (vec){0}; }

/* The larger of the two; b where either is not a number. */
INLINE vec vmax(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    ivec greater = a > b;
    return (vec)((greater & (ivec)a) | (~greater & (ivec)b));
#endif
}

/* The sum of the lanes, always in the same order. */
INLINE double lane_sum(vec v)
{
    double s = 0;
    for (int k = 0; k < LANES; k++) s += v[k];
    return s;
}

/* 2^t for t <= 1023, to 1.5 units in the last place; 2^-1020 for anything below.
 *
 * t = k + r with k an integer and |r| <= 1/2 (exact: adding 1.5 * 2^52 rounds to an integer and leaves it in the low
 * bits), 2^r by the minimax polynomial of degree 10 (relative error 2.1e-16), and k added to the exponent bits. Value-
 * changing options such as -ffast-math would remove the rounding. */
INLINE vec exp2_vec(vec t)
{
    const vec shift = splat(0x1.8p52);
    t = vmax(splat(-1020.0), t);
    vec k = t + shift;
    ivec bits = (ivec)k << 52;
    vec r = t - (k - shift);
    vec p = splat(0x1.e3991e644e6abp-28);
    p = p * r + splat(0x1.b6740fc28f781p-24);
    p = p * r + splat(0x1.62c157ee59177p-20);
    p = p * r + splat(0x1.ffcb55e82f22cp-17);
    p = p * r + splat(0x1.4309126056718p-13);
    p = p * r + splat(0x1.5d87fe9cc5d6fp-10);
    p = p * r + splat(0x1.3b2ab6fbde0f7p-7);
    p = p * r + splat(0x1.c6b08d703d48ap-5);
    p = p * r + splat(0x1.ebfbdff82c3b9p-3);
    p = p * r + splat(0x1.62e42fefa3a17p-1);
    p = p * r + splat(1.0);
    return (vec)((ivec)p + bits);
}

#endif
