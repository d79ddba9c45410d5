/* The loops of sparse GP regression. Compiled once for each instruction set.
 *
 * Lanes are inducing points: a block of rows is stored as [row][m], m running fastest and padded to whole vectors. */
#include "products.h"
#include "trace.h"

/* Places of a row of m numbers in memory: whole vectors, and no multiple of the page size apart, which caches dislike. */
INLINE int64_t row_places(int64_t m)
{
    int64_t places = (m + LANES - 1) / LANES * LANES;
    return places % 256 ? places : places + LANES;
}

/* ---- the kernel and its derivatives ------------------------------------------------------------------------------------ */

/* K[row][m] = exp(-1/2 sum_q alpha_q (x_q - Z_mq)^2) for NR rows and NV vectors from j on; x [row][q] and ZT [q][m] are both in
 * units of (log2(e)/2 alpha_q)^(-1/2). */
INLINE void kernel_tile(const int NR, const int NV, const rbf_t *k, const double *x, const double *ZT, int64_t j, double *K,
                        int64_t places)
{
    vec t[2][TALL];
    for (int v = 0; v < 2; v++)
        for (int r = 0; r < TALL; r++) t[v][r] = (vec){0};
    for (int64_t q = 0; q < k->q; q++)
        for (int v = 0; v < NV; v++) {
            vec z = load(ZT + q * places + j + v * LANES);
            for (int r = 0; r < NR; r++) {
                vec u = splat(x[r * k->q + q]) - z;
                t[v][r] -= u * u;
            }
        }
    exp2_vectors(&t[0][0], &t[0][1], &t[0][2], &t[0][3]);
    if (NV > 1) exp2_vectors(&t[1][0], &t[1][1], &t[1][2], &t[1][3]);
    for (int v = 0; v < NV; v++)
        for (int r = 0; r < NR; r++) store(K + r * places + j + v * LANES, t[v][r]);
}

INLINE void kernel_rows(const int NR, const rbf_t *k, const double *x, const double *ZT, double *K, int64_t places)
{
    int64_t j = 0;
    for (; j + LANES < k->m; j += 2 * LANES) kernel_tile(NR, 2, k, x, ZT, j, K, places);
    if (j < k->m) kernel_tile(NR, 1, k, x, ZT, j, K, places);
}

static void kernel_block(const rbf_t *k, const double *x, int64_t rows, const double *ZT, double *K, int64_t places)
{
    int64_t r = 0;
    for (; r + TALL <= rows; r += TALL) kernel_rows(TALL, k, x + r * k->q, ZT, K + r * places, places);
    for (; r < rows; r++) kernel_rows(1, k, x + r * k->q, ZT, K + r * places, places);
}

/* With g = G K and u = Z - x: by_Z[q][m] -= sum over NR rows of g u, and by_alpha[q] += sum of g u^2, lane by lane. Even and
 * odd rows have sums of their own, which need not wait for each other. */
INLINE void gradient_rows(const int NR, const rbf_t *k, const double *x, const double *ZT, const double *G, const double *K,
                          int64_t places, double *by_Z, double *by_alpha)
{
    for (int64_t j = 0; j < k->m; j += LANES) {
        vec g[LANES];
        for (int r = 0; r < NR; r++) g[r] = load(G + r * places + j) * load(K + r * places + j);
        for (int64_t q = 0; q < k->q; q++) {
            vec z = load(ZT + q * places + j), first = load(by_Z + q * places + j), second = load(by_alpha + q * LANES);
            vec sum1[2] = {{0}}, sum2[2] = {{0}};
            for (int r = 0; r < NR; r++) {
                vec u = z - splat(x[r * k->q + q]), gu = g[r] * u;
                sum1[r % 2] += gu;
                sum2[r % 2] += gu * u;
            }
            store(by_Z + q * places + j, first - (sum1[0] + sum1[1]));
            store(by_alpha + q * LANES, second + (sum2[0] + sum2[1]));
        }
    }
}

static void gradient_block(const rbf_t *k, const double *x, int64_t rows, const double *ZT, const double *G, const double *K,
                           int64_t places, double *by_Z, double *by_alpha)
{
    int64_t r = 0;
    for (; r + LANES <= rows; r += LANES)
        gradient_rows(LANES, k, x + r * k->q, ZT, G + r * places, K + r * places, places, by_Z, by_alpha);
    for (; r < rows; r++)
        gradient_rows(1, k, x + r * k->q, ZT, G + r * places, K + r * places, places, by_Z, by_alpha);
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t places;
    double *ZT, *scaled_ZT, *unit, *x, *scaled_x, *K, *A, *inverse;
} block_t;

/* `inverse` is L^-1, lower triangular, or NULL where the blocks need no whitening. */
static block_t take_block(const rbf_t *k, const double *inverse, double **space)
{
    block_t b = {.places = row_places(k->m)};
    b.ZT = take(space, k->q * b.places);
    b.scaled_ZT = take(space, k->q * b.places);
    b.unit = take(space, k->q);
    b.x = take(space, BLOCK * k->q);
    b.scaled_x = take(space, BLOCK * k->q);
    b.K = take(space, BLOCK * b.places);
    b.A = take(space, BLOCK * b.places);
    b.inverse = take(space, k->m * b.places);
    zero(b.ZT, k->q * b.places);
    zero(b.scaled_ZT, k->q * b.places);
    zero(b.K, BLOCK * b.places);
    zero(b.A, BLOCK * b.places);
    for (int64_t q = 0; q < k->q; q++) {
        b.unit[q] = sqrt(0.5 * LOG2E * k->alpha[q]);
        for (int64_t j = 0; j < k->m; j++) {
            b.ZT[q * b.places + j] = k->Z[j * k->q + q];
            b.scaled_ZT[q * b.places + j] = b.unit[q] * k->Z[j * k->q + q];
        }
    }
    if (inverse) pack(inverse, 1, k->m, k->m, k->m, b.inverse);
    return b;
}

/* K of `rows` rows from `start`, and A^T = K^T L^-T where `whitened`. */
static void fill_block(block_t *b, const rbf_t *k, const rows_t *rows, int64_t start, int64_t count, int whitened)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t q = 0; q < k->q; q++) {
            b->x[i * k->q + q] = rows->mu[(start + i) * k->q + q] - k->center[q];
            b->scaled_x[i * k->q + q] = b->unit[q] * b->x[i * k->q + q];
        }
    kernel_block(k, b->scaled_x, count, b->scaled_ZT, b->K, b->places);
    if (whitened) packed_product(b->K, b->places, count, b->inverse, k->m, k->m, UPPER, 0, b->A, b->places);
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
 * `inverse` is needed, also the trace sums. */
int64_t ISA(regression_statistics)(const rbf_t *k, const rows_t *rows, const part_t *part, const double *inverse, double s)
{
    double *space = aligned(part->space);
    block_t b = take_block(k, inverse, &space);
    int64_t overflows = 0, m = k->m, d = rows->d, pairs = m * (m + 1) / 2;
    double *C = take(&space, m * b.places), *B = take(&space, d * b.places);
    const double *A = inverse ? b.A : b.K;
    double *BT = take(&space, m * d);
    double explained[BLOCK];
    for (int64_t c = part->first; c < part->last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        double trace_sums[TRACE_SUMS] = {0};
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start);
            int add = start > c * rows->chunk;
            fill_block(&b, k, rows, start, count, inverse != NULL);
            outer(A, b.places, m, A, count, m, 1, add, C, b.places);
            outer(rows->Y + start * d, d, d, A, count, m, 0, add, B, b.places);
            if (rows->trace_weights) {
                row_squares(A, count, b.places, explained);
                trace_terms(rows, start, count, s, explained, trace_sums);
            }
        }
        overflows += accumulate_triangle(part, 0, C, m, b.places);
        scatter(B, m, d, b.places, BT);
        overflows += accumulate(part, pairs, BT, m * d, LARGEST);
        if (rows->trace_weights) overflows += accumulate(part, pairs + m * d, trace_sums, TRACE_SUMS, LARGEST);
    }
    return overflows;
}

/* With `inverse`, dF/dK = weight A + weight_psi1Y E^T with the residuals E = Y - A^T fit, and A E is summed as well, after the
 * gradients of Z and alpha; without, dF/dK = weight K + weight_psi1Y Y^T. Where each row has a trace term, dF/dK_i loses
 * L^-T A_i times the row's weight, and the sum of A_i A_i^T with these weights comes last. */
int64_t ISA(regression_gradient)(const rbf_t *k, const rows_t *rows, const part_t *part, const double *inverse,
                                 const double *weight, const double *weight_psi1Y, const double *fit)
{
    double *space = aligned(part->space);
    block_t b = take_block(k, inverse, &space);
    int64_t overflows = 0, m = k->m, d = rows->d, Q = k->q;
    double *panels = take(&space, m * b.places), *panels_Y = take(&space, d * b.places);
    double *panels_trace = NULL, *tilted = NULL, *wA = NULL;
    if (rows->trace_weights) {
        panels_trace = take(&space, m * b.places);
        tilted = take(&space, m * b.places);
        wA = take(&space, BLOCK * b.places);
        pack(inverse, m, 1, m, m, panels_trace);
        for (int64_t i = 0; i < m * b.places; i++) panels_trace[i] = -panels_trace[i];
    }
    double *fitT = inverse ? take_transposed(fit, m, d, b.places, &space) : NULL;
    double *E = take(&space, BLOCK * d), *AE = take(&space, d * b.places);
    double *G = take(&space, BLOCK * b.places), *by_Z = take(&space, Q * b.places), *by_alpha = take(&space, Q * LANES);
    double *grad = take(&space, m * Q + Q + m * d);
    pack(weight, 1, m, m, m, panels);
    pack(weight_psi1Y, 1, d, d, m, panels_Y);
    for (int64_t c = part->first; c < part->last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        zero(by_Z, Q * b.places);
        zero(by_alpha, Q * LANES);
        zero(AE, d * b.places);
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start);
            const double *Y = rows->Y + start * d;
            fill_block(&b, k, rows, start, count, inverse != NULL);
            packed_product(inverse ? b.A : b.K, b.places, count, panels, m, m, SQUARE, 0, G, b.places);
            if (inverse) {
                dot(b.A, count, fitT, d, b.places, 0, E);
                for (int64_t i = 0; i < count * d; i++) E[i] = Y[i] - E[i];
                packed_product(E, d, count, panels_Y, d, m, SQUARE, 1, G, b.places);
                outer(E, d, d, b.A, count, m, 0, 1, AE, b.places);
            } else
                packed_product(Y, d, count, panels_Y, d, m, SQUARE, 1, G, b.places);
            if (rows->trace_weights) {
                scale_rows(b.A, rows->trace_weights + start, count, b.places, wA);
                packed_product(wA, b.places, count, panels_trace, m, m, LOWER, 1, G, b.places);
                outer(wA, b.places, m, b.A, count, m, 1, start > c * rows->chunk, tilted, b.places);
            }
            gradient_block(k, b.x, count, b.ZT, G, b.K, b.places, by_Z, by_alpha);
        }
        for (int64_t q = 0; q < Q; q++) {
            for (int64_t j = 0; j < m; j++) grad[j * Q + q] = k->alpha[q] * by_Z[q * b.places + j];
            grad[m * Q + q] = -0.5 * lane_sum(load(by_alpha + q * LANES));
        }
        scatter(AE, m, d, b.places, grad + m * Q + Q);
        int64_t count = m * Q + Q + (inverse ? m * d : 0);
        overflows += accumulate(part, 0, grad, count, LARGEST / (double)rows->all_chunks);
        if (rows->trace_weights) overflows += accumulate_triangle(part, count, tilted, m, b.places);
    }
    return overflows;
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

/* mean[row] = K weights, and explained[row] = |factor K|^2 with `factor` lower triangular, of `d` outputs. */
void ISA(regression_moments)(const rbf_t *k, const rows_t *rows, const part_t *part, const double *factor,
                             const double *weights, int64_t d, double *mean, double *explained)
{
    int64_t m = k->m, Q = k->q;
    double *space = aligned(part->space);
    double *unit = take(&space, Q), *Z = take(&space, m * Q), *xT = take(&space, Q * BLOCK), *K = take(&space, m * BLOCK);
    double *weightsT = take_transposed(weights, m, d, m, &space), *meanT = take(&space, d * BLOCK);
    double *of_rows = take(&space, BLOCK);
    for (int64_t q = 0; q < Q; q++) {
        unit[q] = sqrt(0.5 * LOG2E * k->alpha[q]);
        for (int64_t j = 0; j < m; j++) Z[j * Q + q] = unit[q] * k->Z[j * Q + q];
    }
    for (int64_t start = part->first * rows->chunk; start < smaller(part->last * rows->chunk, rows->n); start += BLOCK) {
        int64_t count = smaller(BLOCK, rows->n - start), places = (count + LANES - 1) / LANES * LANES;
        const rbf_t lanes = {.m = places, .q = Q}; /* of the kernel's tiles: rows take the place of inducing points */
        zero(xT, Q * places);
        for (int64_t i = 0; i < count; i++)
            for (int64_t q = 0; q < Q; q++)
                xT[q * places + i] = unit[q] * (rows->mu[(start + i) * Q + q] - k->center[q]);
        kernel_block(&lanes, Z, m, xT, K, places);
        product(weightsT, m, d, m, K, 0, meanT, places);
        scatter(meanT, count, d, places, mean + start * d);
        squares(factor, m, K, places, of_rows);
        memcpy(explained + start, of_rows, (size_t)count * sizeof(double));
    }
}
