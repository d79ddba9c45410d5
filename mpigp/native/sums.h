/* Workspace, and sums turned into integers: shared by the loops of both models. */
#ifndef MPIGP_SUMS_H
#define MPIGP_SUMS_H

#include "rbf.h"
#include "simd.h"

#include <math.h>

#define SKEW 72 /* doubles between arrays, so that their rows do not fall on the same places of the cache */

static inline double *aligned(double *p) { return (double *)(((uintptr_t)p + 63) / 64 * 64); }

static inline double *take(double **free_space, int64_t count)
{
    double *p = *free_space;
    *free_space += (count + 7) / 8 * 8 + SKEW;
    return p;
}

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

#define MOST 0x1p62 /* a sum whose total is bounded: no chunk's part is larger */

/* Add values to the sums from `offset` on; return how many are not below `most`. Where nothing bounds the total, `most` is
 * MOST over the number of chunks, and the words cannot wrap around. */
static inline int64_t add_to_words(sums_t out, int64_t offset, const double *values, int64_t count, double most)
{
    int64_t misfits = 0, k = 0;
    if (!out.fine) {
        ivec fits = {0};
        for (; k + LANES <= count; k += LANES) {
            vec x = *(const vec_anywhere *)(values + k) * *(const vec_anywhere *)(out.scale + offset + k);
            fits -= (x < most) & (x > -most);
            *(ivec_anywhere *)(out.words + offset + k) += nearest(x);
        }
        misfits = k;
        for (int i = 0; i < LANES; i++) misfits -= fits[i];
        for (; k < count; k++) {
            double x = values[k] * out.scale[offset + k];
            misfits += !(fabs(x) < most);
            out.words[offset + k] += llrint(x);
        }
    } else
        for (; k < count; k++) {
            double x = values[k] * out.scale[offset + k], whole = nearbyint(x);
            misfits += !(fabs(x) < most);
            out.words[2 * (offset + k)] += llrint(whole);
            out.words[2 * (offset + k) + 1] += llrint((x - whole) * out.fine);
        }
    return misfits;
}

#endif
