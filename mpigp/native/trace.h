/* The trace term of each row, in the bound `rows`.
 *
 * With y = 1 - c_i, the variance of a row's function value given the inducing points, and x = s y, a row of d outputs has the term
 * -d/2 log(1 + x), where Titsias' bound has -d/2 x. What it gains, and the derivatives of that:
 *
 *   s/2 gain     gain = d (y - log(1 + x) / s)          of s:  slope/2, slope = d (1 - v) y          v = 1 / (1 + x)
 *                                                       of c:  -s/2 d (1 - v)
 *
 * Rounding may take y below zero: there the term is Titsias', which continues it smoothly. */
#ifndef MPIGP_TRACE_H
#define MPIGP_TRACE_H

#include "sums.h"

#define GAINS 2 /* the sums of gain and slope */

/* Set the weights s d (1 - v) of `count` rows from `start` on, from their c, and add to the gains. */
static inline void trace_terms(const rows_t *rows, int64_t start, int64_t count, double s, const double *c, double gains[GAINS])
{
    for (int64_t i = 0; i < count; i++) {
        double y = 1 - c[i], x = s * y, d = rows->outputs[start + i];
        double less = x > 0 ? d * (x / (1 + x)) : 0;
        gains[0] += x > 0 ? d * ((x - log1p(x)) / s) : 0;
        gains[1] += less * y;
        rows->trace_weights[start + i] = s * less;
    }
}

#endif
