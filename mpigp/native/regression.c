/* The loops of sparse GP regression. Compiled once for each instruction set. */
#include "covariance.h"
#include "trace.h"

/* ---- chunks ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    points_t points;
    covariance_t c;
    double *A, *inverse;
} block_t;

/* `inverse` is L^-1, lower triangular, or NULL where the blocks need no whitening. */
static block_t take_block(const kernel_t *k, const double *inverse, int slopes, double **space)
{
    block_t b = {.points = take_points(k, k->m, BLOCK, space)};
    int64_t places = b.points.places;
    b.c = take_covariance(k, BLOCK, places, slopes, space);
    b.A = take(space, BLOCK * places);
    b.inverse = take(space, k->m * places);
    zero(b.A, BLOCK * places);
    lanes_of_inducing(k, &b.points);
    if (inverse) pack(inverse, 1, k->m, k->m, k->m, b.inverse);
    return b;
}

/* K of `count` rows from `start`, and A^T = K^T L^-T where `whitened`. */
static void fill_block(block_t *b, const kernel_t *k, const rows_t *rows, int64_t start, int64_t count, int slopes, int whitened)
{
    points_t *p = &b->points;
    rows_of_inputs(k, p, rows->mu + start * k->q, count);
    covariance_block(k, &b->c, slopes, p->scaled_x, count, p->scaled_ZT, k->m, p->places);
    if (whitened) packed_product(b->c.K, p->places, count, b->inverse, k->m, k->m, UPPER, 0, b->A, p->places);
}

/* squares[row] = |A[row]|^2 */
static void row_squares(const double *A, int64_t rows, int64_t places, double *squares)
{
    for (int64_t r = 0; r < rows; r += TALL) { /* perhaps three rows too many, of a block that has them */
        vec s[TALL] = {{0}};
        for (int64_t j = 0; j < places; j += LANES)
            for (int i = 0; i < TALL; i++) {
                vec a = load(A + (r + i) * places + j);
                s[i] += a * a;
            }
        *(four *)(squares + r) = lane_sums(s[0], s[1], s[2], s[3]);
    }
}

/* out[row] = factors[row] A[row] */
static void scale_rows(const double *A, const double *factors, int64_t rows, int64_t places, double *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < places; j += LANES) store(out + r * places + j, factors[r] * load(A + r * places + j));
}

static int64_t accumulate_triangle(const part_t *part, int64_t offset, const double *C, int64_t m, int64_t places)
{
    int64_t overflows = 0;
    for (int64_t i = 0; i < m; i++) overflows += accumulate(part, offset + i * (i + 1) / 2, C + i * places, i + 1, LARGEST);
    return overflows;
}

/* A A^T and A Y with A = L^-1 K; without `inverse`, K K^T and K Y. Where each row has a trace term, of c = |A_i|^2, for which
 * `inverse` is needed, also the trace sums; and where the kernel is not `unit`, the sum of k(x_i, x_i). */
int64_t ISA(regression_statistics)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *inverse, double s)
{
    double *space = aligned(part->space);
    block_t b = take_block(k, inverse, 0, &space);
    int64_t overflows = 0, m = k->m, d = rows->d, pairs = m * (m + 1) / 2, places = b.points.places;
    double *C = take(&space, m * places), *B = take(&space, d * places);
    const double *A = inverse ? b.A : b.c.K;
    double *BT = take(&space, m * d);
    double explained[BLOCK], prior[BLOCK];
    for (int64_t c = part->first; c < part->last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        double trace_sums[TRACE_SUMS] = {0}, psi0 = 0;
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start);
            int add = start > c * rows->chunk;
            fill_block(&b, k, rows, start, count, 0, inverse != NULL);
            outer(A, places, m, A, count, m, 1, add, C, places);
            outer(rows->Y + start * d, d, d, A, count, m, 0, add, B, places);
            for (int64_t i = 0; !k->unit && i < count; i++) {
                prior[i] = diagonal(k, b.points.x + i * k->features);
                psi0 += prior[i];
            }
            if (rows->trace_weights) {
                row_squares(A, count, places, explained);
                trace_terms(rows, start, count, s, k->unit ? NULL : prior, explained, trace_sums);
            }
        }
        overflows += accumulate_triangle(part, 0, C, m, places);
        scatter(B, m, d, places, BT);
        overflows += accumulate(part, pairs, BT, m * d, LARGEST);
        int64_t next = pairs + m * d;
        if (rows->trace_weights) overflows += accumulate(part, next, trace_sums, TRACE_SUMS, LARGEST), next += TRACE_SUMS;
        if (!k->unit) overflows += accumulate(part, next, &psi0, 1, LARGEST);
    }
    return overflows;
}

/* With `inverse`, dF/dK = weight A + weight_psi1Y E^T with the residuals E = Y - A^T fit, and A E is summed as well, after the
 * gradients of Z and the kernel's parameters; without, dF/dK = weight K + weight_psi1Y Y^T. Where each row has a trace term, dF/dK_i
 * loses L^-T A_i times the row's weight, and the sum of A_i A_i^T with these weights comes last. by_diagonal is dF/dk(x_i, x_i), to
 * which a trace term adds half of the row's weight; only composite kernels need it. */
int64_t ISA(regression_gradient)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *inverse,
                                 const double *weight, const double *weight_psi1Y, const double *fit, double by_diagonal)
{
    double *space = aligned(part->space);
    block_t b = take_block(k, inverse, 1, &space);
    points_t *p = &b.points;
    int64_t overflows = 0, m = k->m, d = rows->d, places = p->places, parameters = gradient_count(k);
    inputs_t inputs = take_inputs(k, BLOCK, places, &space);
    double *panels = take(&space, m * places), *panels_Y = take(&space, d * places);
    double *panels_trace = NULL, *tilted = NULL, *wA = NULL;
    if (rows->trace_weights) {
        panels_trace = take(&space, m * places);
        tilted = take(&space, m * places);
        wA = take(&space, BLOCK * places);
        pack(inverse, m, 1, m, m, panels_trace);
        for (int64_t i = 0; i < m * places; i++) panels_trace[i] = -panels_trace[i];
    }
    double *fitT = inverse ? take_transposed(fit, m, d, places, &space) : NULL;
    double *E = take(&space, BLOCK * d), *AE = take(&space, d * places), *G = take(&space, BLOCK * places);
    sums_t sums = take_sums(k, places, &space);
    double *grad = take(&space, parameters + m * d), *of_diagonal = take(&space, parameters);
    zero(G, BLOCK * places);
    pack(weight, 1, m, m, m, panels);
    pack(weight_psi1Y, 1, d, d, m, panels_Y);
    for (int64_t c = part->first; c < part->last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        clear_sums(k, sums, places);
        if (k->composite) zero(of_diagonal, parameters);
        zero(AE, d * places);
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start);
            const double *Y = rows->Y + start * d;
            fill_block(&b, k, rows, start, count, 1, inverse != NULL);
            packed_product(inverse ? b.A : b.c.K, places, count, panels, m, m, SQUARE, 0, G, places);
            if (inverse) {
                dot(b.A, count, fitT, d, places, 0, E);
                for (int64_t i = 0; i < count * d; i++) E[i] = Y[i] - E[i];
                packed_product(E, d, count, panels_Y, d, m, SQUARE, 1, G, places);
                outer(E, d, d, b.A, count, m, 0, 1, AE, places);
            } else
                packed_product(Y, d, count, panels_Y, d, m, SQUARE, 1, G, places);
            if (rows->trace_weights) {
                scale_rows(b.A, rows->trace_weights + start, count, places, wA);
                packed_product(wA, places, count, panels_trace, m, m, LOWER, 1, G, places);
                outer(wA, places, m, b.A, count, m, 1, start > c * rows->chunk, tilted, places);
            }
            for (int64_t i = 0; k->composite && i < count; i++) {
                const double *x = rows->mu + (start + i) * k->q;
                double trace = rows->trace_weights ? 0.5 * rows->trace_weights[start + i] : 0;
                for (int64_t f = 0; f < k->features; f++) inputs.rows[i * k->features + f] = x[k->columns[f]];
                add_diagonal_gradient(k, p->x + i * k->features, by_diagonal + trace, of_diagonal);
            }
            covariance_gradient(k, &b.c, p, &inputs, count, G, sums);
        }
        finish_gradient(k, p, sums, grad);
        for (int64_t i = m * k->q; k->composite && i < parameters; i++) grad[i] += of_diagonal[i];
        scatter(AE, m, d, places, grad + parameters);
        int64_t count = parameters + (inverse ? m * d : 0);
        overflows += accumulate(part, 0, grad, count, LARGEST / (double)rows->all_chunks);
        if (rows->trace_weights) overflows += accumulate_triangle(part, count, tilted, m, places);
    }
    return overflows;
}

/* ---- the kernel between points ------------------------------------------------------------------------------------------------ */

/* K (m, n) between the inducing points and inputs X (n, q), or the inducing points themselves where X is NULL: exactly symmetric. */
void ISA(covariance)(const kernel_t *k, const double *X, int64_t n, double *space, double *K)
{
    space = aligned(space);
    points_t p = take_points(k, k->m, BLOCK, &space);
    covariance_t c = take_covariance(k, BLOCK, p.places, 0, &space);
    lanes_of_inducing(k, &p);
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t count = smaller(BLOCK, n - start);
        if (X)
            rows_of_inputs(k, &p, X + start * k->q, count);
        else
            rows_of_inducing(k, &p, start, count);
        covariance_block(k, &c, 0, p.scaled_x, count, p.scaled_ZT, k->m, p.places);
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < k->m; j++) K[j * n + start + i] = c.K[i * p.places + j];
    }
}

/* The gradient through K_mm, of weights = dF/dK_mm (m, m), whose row m is for Z_m: K_mm is symmetric, so its column gives Z_m as much
 * again. */
void ISA(gram_gradient)(const kernel_t *k, const double *weights, double *space, double *grad)
{
    space = aligned(space);
    int64_t m = k->m;
    points_t p = take_points(k, m, BLOCK, &space);
    covariance_t c = take_covariance(k, BLOCK, p.places, 1, &space);
    inputs_t inputs = take_inputs(k, BLOCK, p.places, &space);
    sums_t sums = take_sums(k, p.places, &space);
    double *G = take(&space, BLOCK * p.places);
    zero(G, BLOCK * p.places);
    clear_sums(k, sums, p.places);
    lanes_of_inducing(k, &p);
    for (int64_t start = 0; start < m; start += BLOCK) {
        int64_t count = smaller(BLOCK, m - start);
        rows_of_inducing(k, &p, start, count);
        for (int64_t i = 0; i < count; i++) {
            for (int64_t j = 0; j < m; j++) G[i * p.places + j] = weights[j * m + start + i];
            for (int64_t f = 0; k->composite && f < k->features; f++)
                inputs.rows[i * k->features + f] = inputs.lanes[f * p.places + start + i];
        }
        covariance_block(k, &c, 1, p.scaled_x, count, p.scaled_ZT, m, p.places);
        covariance_gradient(k, &c, &p, &inputs, count, G, sums);
    }
    finish_gradient(k, &p, sums, grad);
    for (int64_t i = 0; i < m * k->q; i++) grad[i] *= 2;
}

/* ---- predictions -------------------------------------------------------------------------------------------------------- */

/* out[row] += sum over NR numbers i of (sum over k < count of left[i][k] right[k][row])^2: here rows are lanes. */
INLINE void squares_tile(const int NR, const int NV, const double *left, int64_t stride, const double *right, int64_t places,
                         int64_t count, double *out)
{
    vec s[TALL][WIDE];
    for (int i = 0; i < NR; i++)
        for (int v = 0; v < NV; v++) s[i][v] = (vec){0};
    add_terms(NR, 0, NV, left, stride, 1, right, places, 0, count, s);
    for (int v = 0; v < NV; v++) {
        vec sum = load(out + v * LANES);
        for (int i = 0; i < NR; i++) sum += s[i][v] * s[i][v];
        store(out + v * LANES, sum);
    }
}

INLINE void squares_vectors(const int NV, const double *factor, int64_t m, const double *K, int64_t places, double *out)
{
    int64_t i = 0;
    for (; i + TALL <= m; i += TALL) squares_tile(TALL, NV, factor + i * m, m, K, places, i + TALL, out);
    for (; i < m; i++) squares_tile(1, NV, factor + i * m, m, K, places, i + 1, out);
}

/* out[row] = |factor K[.][row]|^2 with `factor` (m, m) lower triangular, zero above. Nothing but the squares is kept. */
static void squares(const double *factor, int64_t m, const double *K, int64_t places, double *out)
{
    zero(out, places);
    for (int64_t v = 0, NV; v < places / LANES; v += NV) {
        NV = tile_vectors(places / LANES - v);
#define TILE(NV) squares_vectors(NV, factor, m, K + v * LANES, places, out + v * LANES)
        UP_TO_THREE(NV, TILE)
#undef TILE
    }
}

/* mean[row] = K weights, and explained[row] = |factor K|^2 with `factor` lower triangular, of `d` outputs. Rows are the lanes here. */
void ISA(regression_moments)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *factor,
                             const double *weights, int64_t d, double *mean, double *explained)
{
    int64_t m = k->m, F = k->features;
    double *space = aligned(part->space);
    points_t p = take_points(k, BLOCK, m, &space);
    covariance_t c = take_covariance(k, m, BLOCK, 0, &space);
    double *weightsT = take_transposed(weights, m, d, m, &space), *meanT = take(&space, d * BLOCK);
    double *of_rows = take(&space, BLOCK);
    rows_of_inducing(k, &p, 0, m);
    for (int64_t start = part->first * rows->chunk; start < smaller(part->last * rows->chunk, rows->n); start += BLOCK) {
        int64_t count = smaller(BLOCK, rows->n - start);
        p.places = (count + LANES - 1) / LANES * LANES;
        zero(p.scaled_ZT, F * p.places);
        for (int64_t i = 0; i < count; i++)
            for (int64_t f = 0; f < F; f++)
                set_lane(&p, f, i, feature(k, f, rows->mu[(start + i) * k->q + k->columns[f]] - k->shifts[f]));
        covariance_block(k, &c, 0, p.scaled_x, m, p.scaled_ZT, p.places, p.places);
        product(weightsT, m, d, m, c.K, 0, meanT, p.places);
        scatter(meanT, count, d, p.places, mean + start * d);
        squares(factor, m, c.K, p.places, of_rows);
        memcpy(explained + start, of_rows, (size_t)count * sizeof(double));
    }
}
