/* Workspace, and reproducible sums in fixed-point accumulators: shared by the loops of both models. */
#ifndef MPIGP_SUMS_H
#define MPIGP_SUMS_H

#include "loops.h"
#include "simd.h"

#include <math.h>

#define BLOCK 64 /* rows of a block: its arrays stay in the cache */
#define SKEW 72  /* doubles between arrays, so that their rows do not fall on the same places of the cache */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static inline double *aligned(double *p) { return (double *)(((uintptr_t)p + 63) / 64 * 64); }

static inline double *take(double **free_space, int64_t count)
{
    double *p = *free_space;
    *free_space += (count + 7) / 8 * 8 + SKEW;
    return p;
}

static inline void zero(double *p, int64_t count) { memset(p, 0, (size_t)count * sizeof(double)); }

/* The matrix from[m][d] as [d][places], zero beyond m. */
static inline double *take_transposed(const double *from, int64_t m, int64_t d, int64_t places, double **space)
{
    double *to = take(space, d * places);
    zero(to, d * places);
    for (int64_t j = 0; j < m; j++)
        for (int64_t i = 0; i < d; i++) to[i * places + j] = from[j * d + i];
    return to;
}

/* out[row][column] = in[column][row] */
static inline void scatter(const double *in, int64_t rows, int64_t columns, int64_t ld, double *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) out[i * columns + c] = in[c * ld + i];
}

#define LARGEST 0x1p62 /* of a sum whose total is bounded: no chunk's part is larger */

/* Add to an accumulator, modulo 2^64: after an overflow, which is reported, its value has no meaning. */
INLINE void add_integer(int64_t *accumulator, int64_t value)
{
    *accumulator = (int64_t)((uint64_t)*accumulator + (uint64_t)value);
}

/* Add a chunk's values to the sums from `offset` on; return how many are not below `largest`. Where nothing bounds the total,
 * `largest` is LARGEST over the number of chunks, and the accumulators cannot wrap around. */
static inline int64_t accumulate(const part_t *part, int64_t offset, const double *values, int64_t count, double largest)
{
    const double *scale = part->scale + offset;
    int64_t *to = part->accumulators + part->per_sum * offset, overflows = 0, k = 0;
    if (part->per_sum == 1) {
        ivec fits = {0};
        for (; k + LANES <= count; k += LANES) {
            vec x = *(const vec_anywhere *)(values + k) * *(const vec_anywhere *)(scale + k);
            fits -= (x < largest) & (x > -largest);
            *(uvec_anywhere *)(to + k) += (uvec)nearest(x);
        }
        overflows = k;
        for (int i = 0; i < LANES; i++) overflows -= fits[i];
    }
    for (; k < count; k++) {
        double x = values[k] * scale[k], whole = nearbyint(x);
        overflows += !(fabs(x) < largest);
        add_integer(to + part->per_sum * k, llrint(whole));
        if (part->per_sum == 2) add_integer(to + 2 * k + 1, llrint((x - whole) * FINE));
    }
    return overflows;
}

#endif
