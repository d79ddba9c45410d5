/* Vectors of doubles by the vector extensions of GCC and Clang, and 2^x on them. */
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

#define LOG2E 1.4426950408889634

typedef double vec __attribute__((vector_size(8 * LANES)));
typedef int64_t ivec __attribute__((vector_size(8 * LANES)));
typedef uint64_t uvec __attribute__((vector_size(8 * LANES))); /* for sums that may wrap around */
typedef double four __attribute__((vector_size(32), aligned(8))); /* four numbers, at any place, in every build */

typedef vec vec_anywhere __attribute__((aligned(8))); /* in arrays of the caller's */
typedef uvec uvec_anywhere __attribute__((aligned(8)));

#ifdef __clang__
#define SHUFFLE __builtin_shufflevector
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (four_indices){__VA_ARGS__})
typedef int64_t four_indices __attribute__((vector_size(32)));
#endif

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

INLINE vec square_root(vec x)
{
#if defined(__AVX512F__)
    return (vec)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
    return (vec)_mm256_sqrt_pd((__m256d)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrt(x[i]);
    return x;
#endif
}

/* The nearest integers, of numbers below 2^63; compilers do not see that there is an instruction for them. */
INLINE ivec nearest(vec x)
{
#if defined(__AVX512DQ__)
    return (ivec)_mm512_cvtpd_epi64((__m512d)x);
#else
    ivec k = {0};
    for (int i = 0; i < LANES; i++) k[i] = __builtin_llrint(x[i]);
    return k;
#endif
}

/* The sum of the lanes, always in the same order. */
INLINE double lane_sum(vec v)
{
    double s = 0;
    for (int k = 0; k < LANES; k++) s += v[k];
    return s;
}

/* The sums of the lanes of each of four vectors: four at once, by shuffles. */
INLINE four lane_sums(vec a, vec b, vec c, vec d)
{
    typedef double quad __attribute__((vector_size(32)));
#if LANES == 8
#define HALVES(v) (quad)(_mm512_castpd512_pd256((__m512d)v) + _mm512_extractf64x4_pd((__m512d)v, 1))
#else
#define HALVES(v) (quad) v
#endif
    quad a4 = HALVES(a), b4 = HALVES(b), c4 = HALVES(c), d4 = HALVES(d);
#undef HALVES
    quad ab = SHUFFLE(a4, b4, 0, 4, 2, 6) + SHUFFLE(a4, b4, 1, 5, 3, 7);
    quad cd = SHUFFLE(c4, d4, 0, 4, 2, 6) + SHUFFLE(c4, d4, 1, 5, 3, 7);
    return SHUFFLE(ab, cd, 0, 1, 4, 5) + SHUFFLE(ab, cd, 2, 3, 6, 7);
}

/* log2 of x in [1, 2), to 2 units in the last place of 1: with s = (x - c) / (x + c) and c = sqrt(2), log2 x - 1/2 is the odd
 * series 2/ln 2 (s + s^3/3 + s^5/5 + ...), |s| <= 0.172. */
INLINE vec log2_mantissa(vec x)
{
    const double root = 1.4142135623730951, scale = 2.8853900817779268;
    vec s = (x - root) / (x + root), z = s * s, p = splat(1.0 / 21);
    for (int k = 19; k > 0; k -= 2) p = p * z + splat(1.0 / k);
    return scale * s * p + 0.5;
}

/* Four vectors become their powers of two, for exponents <= 1023, to 3 units in the last place; 2^-1020 for exponents
 * below that.
 *
 * t = k + r with k an integer and |r| <= 1/2 (exact: adding 1.5 * 2^52 rounds to an integer and leaves it in the low
 * bits), 2^r by the minimax polynomial of degree 10 (relative error 2.1e-16), and k added to the exponent bits. Value-
 * changing options such as -ffast-math would remove the rounding. The four advance side by side, because one by one each
 * would wait for its own chain of multiply-adds; they are named, because compilers leave arrays in memory. */
INLINE void exp2_vectors(vec *t0, vec *t1, vec *t2, vec *t3)
{
    const vec shift = splat(0x1.8p52), least = splat(-1020.0);
    vec r0 = vmax(least, *t0), r1 = vmax(least, *t1), r2 = vmax(least, *t2), r3 = vmax(least, *t3);
    vec k0 = r0 + shift, k1 = r1 + shift, k2 = r2 + shift, k3 = r3 + shift;
    r0 -= k0 - shift, r1 -= k1 - shift, r2 -= k2 - shift, r3 -= k3 - shift;
    vec p0 = splat(0x1.e3991e644e6abp-28), p1 = p0, p2 = p0, p3 = p0, c;
#define HORNER(coefficient) \
    c = splat(coefficient), p0 = p0 * r0 + c, p1 = p1 * r1 + c, p2 = p2 * r2 + c, p3 = p3 * r3 + c
    HORNER(0x1.b6740fc28f781p-24);
    HORNER(0x1.62c157ee59177p-20);
    HORNER(0x1.ffcb55e82f22cp-17);
    HORNER(0x1.4309126056718p-13);
    HORNER(0x1.5d87fe9cc5d6fp-10);
    HORNER(0x1.3b2ab6fbde0f7p-7);
    HORNER(0x1.c6b08d703d48ap-5);
    HORNER(0x1.ebfbdff82c3b9p-3);
    HORNER(0x1.62e42fefa3a17p-1);
    HORNER(1.0);
#undef HORNER
    *t0 = (vec)((uvec)p0 + ((uvec)k0 << 52));
    *t1 = (vec)((uvec)p1 + ((uvec)k1 << 52));
    *t2 = (vec)((uvec)p2 + ((uvec)k2 << 52));
    *t3 = (vec)((uvec)p3 + ((uvec)k3 << 52));
}

#endif
