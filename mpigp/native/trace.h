/* The trace term of each row, in the bound `rows`.
 *
 * With y = k_ii - c_i, the variance of a row's function value given the inducing points, and x = s y, a row of d outputs has the term
 * -d/2 log(1 + x), where Titsias' bound has -d/2 x. Its sums over rows, with v = 1 / (1 + x):
 *
 *   the term itself   -s/2 value     value = d log(1 + x) / s
 *   of s              -slope/2       slope = d v y
 *   of c              s d v / 2, which is less than Titsias' by half of the row's weight, s d (1 - v)
 *
 * Rounding may take y below zero: there the term is Titsias', which continues it smoothly. */
#ifndef MPIGP_TRACE_H
#define MPIGP_TRACE_H

#include "sums.h"

#define TRACE_SUMS 2 /* value and slope */

/* Set the weights s d (1 - v) of `count` rows from `start` on, from their k_ii (1 where `prior` is NULL) and c, and add to the trace
 * sums. */
static inline void trace_terms(const rows_t *rows, int64_t start, int64_t count, double s, const double *prior, const double *c,
                               double trace_sums[TRACE_SUMS])
{
    for (int64_t i = 0; i < count; i++) {
        double y = (prior ? prior[i] : 1) - c[i], x = s * y, d = rows->outputs[start + i];
        trace_sums[0] += d * (x > 0 ? log1p(x) / s : y);
        trace_sums[1] += d * (x > 0 ? y / (1 + x) : y);
        rows->trace_weights[start + i] = x > 0 ? s * d * (x / (1 + x)) : 0;
    }
}

#endif
