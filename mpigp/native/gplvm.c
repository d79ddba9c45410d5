/* The sums of the Bayesian GPLVM over the rows of chunks. Compiled once for each instruction set. */
#include "psi.h"
#include "trace.h"

/* `weights` are those of a row in pairs' sums: as many as groups, or with the trace weight one more. */
static block_t take_block(const kernel_t *k, const rows_t *rows, int64_t weights, double **space)
{
    block_t b;
    b.muT = take(space, k->q * BLOCK);
    b.ST = take(space, k->q * BLOCK);
    b.YT = take(space, rows->d * BLOCK);
    b.OT = rows->observed || weights > rows->groups ? take(space, weights * BLOCK) : NULL;
    b.aa = take(space, 2 * k->q * BLOCK);
    b.base1 = take(space, BLOCK);
    b.cc = take(space, 2 * k->q * BLOCK);
    b.base2 = take(space, BLOCK);
    b.psi1 = take(space, k->m * BLOCK);
    b.f = take(space, k->m * BLOCK);
    b.w = take(space, PANEL * (k->q + 1));
    b.ZZ1 = take(space, 2 * k->m * k->q);
    b.ZZ2 = take(space, 2 * k->m * k->q);
    b.panels = take(space, paneled(k->m) * k->q);
    zero(b.panels, paneled(k->m) * k->q);
    for (int64_t j = 0; j < k->m; j++)
        for (int64_t q = 0; q < k->q; q++) {
            double z = k->Z[j * k->q + q];
            b.ZZ1[2 * j * k->q + q] = b.ZZ2[2 * j * k->q + q] = LOG2E * z;
            b.ZZ1[(2 * j + 1) * k->q + q] = -0.5 * LOG2E * z * z;
            b.ZZ2[(2 * j + 1) * k->q + q] = -0.25 * LOG2E * z * z;
            b.panels[j / PANEL * PANEL * k->q + q * PANEL + j % PANEL] = z;
        }
    return b;
}

/* The rows [start, start + count), and their psi1 and f. Return the places that they take. */
static int64_t fill_block(block_t *b, const kernel_t *k, const rows_t *rows, int64_t start, int64_t count)
{
    int64_t ld = b->ld = padded(count);
    transpose(rows->mu + start * k->q, k->center, 0, count, k->q, ld, b->muT);
    transpose(rows->S + start * k->q, NULL, 1, count, k->q, ld, b->ST);
    transpose(rows->Y + start * rows->d, NULL, 0, count, rows->d, ld, b->YT);
    if (rows->observed) transpose(rows->observed + start * rows->groups, NULL, 0, count, rows->groups, ld, b->OT);
    b->a = b->aa + k->q * ld;
    b->c = b->cc + k->q * ld;
    precision(k, b, count, 1, -0.5, b->a, b->base1);
    precision(k, b, count, 2, -0.25, b->c, b->base2); /* each of a pair has half of its base */
    for (int64_t j = 0; j < k->q * ld; j += LANES) {
        store(b->aa + j, load(b->a + j) * load(b->muT + j));
        store(b->cc + j, load(b->c + j) * load(b->muT + j));
    }
    exponents(k, b, b->aa, b->base1, b->ZZ1, b->psi1);
    psi1_block(k, ld, b->psi1);
    exponents(k, b, b->cc, b->base2, b->ZZ2, b->f);
    return ld;
}

/* Put the trace weights of the rows after their weights in the groups. */
static void fill_trace_weights(block_t *b, const rows_t *rows, int64_t start, int64_t count)
{
    for (int64_t i = 0; !rows->observed && i < b->ld; i++) b->OT[i] = 1;
    transpose(rows->trace_weights + start, NULL, 0, count, 1, b->ld, b->OT + rows->groups * b->ld);
}

/* sum over dimensions of (S + mu^2 - 1 - log S) / 2, of the rows at i */
INLINE vec divergences(const block_t *b, const kernel_t *k, int64_t i)
{
    product_t S = ONES;
    vec sum = {0};
    for (int64_t q = 0; q < k->q; q++) {
        vec Sq = load(b->ST + q * b->ld + i), x = load(b->muT + q * b->ld + i) + k->center[q];
        multiply(&S, Sq);
        sum += Sq + x * x - 1.0;
    }
    return 0.5 * (sum - product_log2(S) / LOG2E);
}

static double divergence(const block_t *b, const kernel_t *k, int64_t count)
{
    double total = 0;
    for (int64_t i = 0; i < b->ld; i += LANES) {
        vec parts = divergences(b, k, i);
        for (int v = 0; v < LANES && i + v < count; v++) total += parts[v];
    }
    return total;
}

/* psi2 of each group, psi1 Y and KL. Where each row has a trace term, also the trace sums, of which c is the sum over pairs of
 * explained psi2. */
int64_t ISA(gplvm_statistics)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *explained, double s)
{
    int64_t overflows = 0, pairs = k->m * (k->m + 1) / 2, sums = pairs * rows->groups;
    double *space = aligned(part->space);
    block_t b = take_block(k, rows, rows->groups, &space);
    double *of_rows = take(&space, BLOCK);
    double *psi2 = take(&space, sums), *B = take(&space, k->m * rows->d), *e = take(&space, k->m * BLOCK);
    for (int64_t c = part->first; c < part->last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        double kl = 0, trace_sums[TRACE_SUMS] = {0};
        zero(psi2, sums);
        zero(B, k->m * rows->d);
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start), ld = fill_block(&b, k, rows, start, count);
            zero(of_rows, ld);
            if (!b.OT && explained) psi2_explained_block(k, b, psi2, explained, of_rows);
            if (!b.OT && !explained) psi2_block(k, b, psi2);
            for (int64_t m = 0; b.OT && m < k->m; m++) {
                psi2_row(k, b, m, e);
                dot(e, m + 1, b.OT, rows->groups, ld, 1, psi2 + m * (m + 1) / 2 * rows->groups);
                if (explained) product(explained + m * (m + 1) / 2, pairs, 1, m + 1, e, 1, of_rows, ld);
            }
            if (explained) trace_terms(rows, start, count, s, NULL, of_rows, trace_sums);
            kl += divergence(&b, k, count);
            dot(b.psi1, k->m, b.YT, rows->d, ld, 1, B);
        }
        overflows += accumulate(part, 0, psi2, sums, LARGEST);
        overflows += accumulate(part, sums, B, k->m * rows->d, LARGEST);
        double parts[2] = {nearbyint(kl), kl - nearbyint(kl)}; /* nothing bounds KL beforehand: whole nats, and the rest */
        overflows += accumulate(part, sums + k->m * rows->d, parts, 2, LARGEST / (double)rows->all_chunks);
        if (explained) overflows += accumulate(part, sums + k->m * rows->d + 2, trace_sums, TRACE_SUMS, LARGEST);
    }
    return overflows;
}

/* powers = [Z, Z^2], [q][m] */
static void take_powers(const kernel_t *k, double *powers)
{
    for (int64_t j = 0; j < k->m; j++)
        for (int64_t q = 0; q < k->q; q++) {
            double z = k->Z[j * k->q + q];
            powers[q * k->m + j] = z;
            powers[(k->q + q) * k->m + j] = z * z;
        }
}

/* The sums over inducing points of g1 and r, [m][row]. */
static void totals(const kernel_t *k, const double *g1, const double *r, int64_t ld, double *total1, double *total2)
{
    for (int64_t i = 0; i < ld; i += LANES) {
        vec sum1 = {0}, sum2 = {0};
        for (int64_t j = 0; j < k->m; j++) {
            sum1 += load(g1 + j * ld + i);
            sum2 += load(r + j * ld + i);
        }
        store(total1 + i, sum1);
        store(total2 + i, sum2);
    }
}

/* The sum over pairs of g (mu - (Z_m + Z_m') / 2)^2, from those of g, g Z, g Z^2 and g w. */
INLINE vec psi2_moment(vec x, vec all2, vec mean, vec square, vec quadratic)
{
    return x * (x * all2 - 2 * mean) + 0.5 * square - 2 / LOG2E * quadratic;
}

/* The gradients by mu and S of dimension q, of the rows at `at`, from the sums over inducing points of g1 (mu - Z), g1 (mu - Z)^2 and
 * g1, and those over pairs of g Z, the moment above and g. */
INLINE void row_gradients(const block_t *b, const kernel_t *k, int64_t q, int64_t at, vec one1, vec two1, vec all1, vec mean,
                          vec moment, vec all2, vec *by_mu, vec *by_S)
{
    vec x = load(b->muT + at), a = load(b->a + at), c = load(b->c + at);
    *by_mu = -a * one1 - 2 * c * (x * all2 - mean) - (x + k->center[q]);
    *by_S = 0.5 * a * (a * two1 - all1) + c * (2 * c * moment - all2) - 0.5 + 0.5 / load(b->ST + at);
}

/* Where each row has a trace term, weight_psi2 has one more column, of which the row's weight is its trace weight; and the sum of
 * psi2 with these weights follows the gradients of Z and alpha. */
int64_t ISA(gplvm_gradient)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *weight_psi2,
                            const double *weight_psi1Y, double *grad_mu, double *grad_S)
{
    int64_t overflows = 0, nZ = k->m * k->q, Q = k->q, pairs = k->m * (k->m + 1) / 2;
    int64_t columns = rows->groups + (rows->trace_weights != NULL);
    double *space = aligned(part->space);
    block_t b = take_block(k, rows, columns, &space);
    double *tilted = rows->trace_weights ? take(&space, pairs) : NULL;
    double *g1 = take(&space, k->m * BLOCK), *first1 = take(&space, Q * BLOCK), *second1 = take(&space, Q * BLOCK);
    double *total1 = take(&space, BLOCK), *total2 = take(&space, BLOCK), *g = take(&space, 2 * PANEL * BLOCK);
    double *r = take(&space, k->m * BLOCK), *quadratic = take(&space, Q * BLOCK);
    double *powers = take(&space, 2 * nZ); /* Z and Z^2, [q][m] */
    double *to_m = take(&space, PANEL * nZ), *to_panels = take(&space, paneled(k->m) * Q);
    double *rZ = take(&space, 2 * Q * BLOCK), *rc = take(&space, 2 * nZ), *grad = take(&space, nZ + Q);
    take_powers(k, powers);
    for (int64_t c = part->first; c < part->last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        zero(grad, nZ + Q);
        if (tilted) zero(tilted, pairs);
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start), ld = fill_block(&b, k, rows, start, count);

            /* psi1: g1 = (weight_psi1Y Y^T) psi1. */
            product(weight_psi1Y, rows->d, k->m, rows->d, b.YT, 0, g1, ld);
            for (int64_t j = 0; j < k->m * ld; j += LANES) store(g1 + j, load(g1 + j) * load(b.psi1 + j));
            zero(first1, Q * ld);
            zero(second1, Q * ld);
            psi1_gradient_block(k, b, g1, first1, second1, grad);

            /* psi2: the pairs; then r's products rZ = r^T [Z, Z^2] and rc = r [c mu, c]. */
            zero(r, k->m * ld);
            zero(quadratic, Q * ld);
            zero(to_m, PANEL * nZ);
            zero(to_panels, paneled(k->m) * Q);
            if (tilted) {
                fill_trace_weights(&b, rows, start, count);
                psi2_tilted_gradient_block(k, b, weight_psi2, columns, g, r, quadratic, to_m, to_panels, tilted);
            } else
                psi2_gradient_block(k, b, weight_psi2, columns, g, r, quadratic, to_m, to_panels);
            product(powers, k->m, 2 * Q, k->m, r, 0, rZ, ld);
            dot(r, k->m, b.cc, 2 * Q, ld, 0, rc);
            for (int64_t j = 0; j < k->m; j++)
                for (int64_t q = 0; q < Q; q++) {
                    const double *parts = to_m + PANEL * (j * Q + q);
                    grad[j * Q + q] += 2 * rc[j * 2 * Q + q] - k->Z[j * Q + q] * rc[j * 2 * Q + Q + q] +
                                       to_panels[j / PANEL * PANEL * Q + q * PANEL + j % PANEL] +
                                       ((parts[0] + parts[1]) + (parts[2] + parts[3]));
                }

            /* rows: the gradients of mu and S, and alpha's sums over them */
            totals(k, g1, r, ld, total1, total2);
            for (int64_t q = 0; q < Q; q++) {
                vec by_alpha = {0};
                for (int64_t i = 0; i < ld; i += LANES) {
                    int64_t at = q * ld + i;
                    vec x = load(b.muT + at), S = load(b.ST + at), all1 = load(total1 + i), all2 = load(total2 + i), by_mu, by_S;
                    vec inverse1 = 1 / (k->alpha[q] * S + 1.0), inverse2 = 1 / (2 * k->alpha[q] * S + 1.0);
                    vec two1 = load(second1 + at), mean = load(rZ + at);
                    vec moment = psi2_moment(x, all2, mean, load(rZ + Q * ld + at), load(quadratic + at));
                    by_alpha += 0.5 * (S * all1 + two1 * inverse1) * inverse1 + (S * all2 + moment * inverse2) * inverse2;
                    row_gradients(&b, k, q, at, load(first1 + at), two1, all1, mean, moment, all2, &by_mu, &by_S);
                    store(first1 + at, by_mu);
                    store(second1 + at, by_S);
                }
                grad[nZ + q] -= lane_sum(by_alpha);
            }
            scatter(first1, count, Q, ld, grad_mu + start * Q);
            scatter(second1, count, Q, ld, grad_S + start * Q);
        }
        overflows += accumulate(part, 0, grad, nZ + Q, LARGEST / (double)rows->all_chunks);
        if (tilted) overflows += accumulate(part, nZ + Q, tilted, pairs, LARGEST);
    }
    return overflows;
}

/* values[row] = what a row adds to the bound, and its gradients by mu and S. No sum goes over rows. */
void ISA(gplvm_bounds)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *weight_psi2,
                       const double *weight_psi1Y, double *grad_mu, double *grad_S, double *values)
{
    int64_t Q = k->q;
    double *space = aligned(part->space);
    block_t b = take_block(k, rows, rows->groups, &space);
    double *g1 = take(&space, k->m * BLOCK), *g1Z = take(&space, 2 * Q * BLOCK), *row_weights = take(&space, PANEL * BLOCK);
    double *r = take(&space, k->m * BLOCK), *rZ = take(&space, 2 * Q * BLOCK), *quadratic = take(&space, Q * BLOCK);
    double *total1 = take(&space, BLOCK), *total2 = take(&space, BLOCK), *powers = take(&space, 2 * k->m * Q);
    take_powers(k, powers);
    for (int64_t start = part->first * rows->chunk; start < smaller(part->last * rows->chunk, rows->n); start += BLOCK) {
        int64_t count = smaller(BLOCK, rows->n - start), ld = fill_block(&b, k, rows, start, count);
        product(weight_psi1Y, rows->d, k->m, rows->d, b.YT, 0, g1, ld);
        for (int64_t j = 0; j < k->m * ld; j += LANES) store(g1 + j, load(g1 + j) * load(b.psi1 + j));
        product(powers, k->m, 2 * Q, k->m, g1, 0, g1Z, ld);
        zero(r, k->m * ld);
        zero(quadratic, Q * ld);
        psi2_rows_block(k, b, weight_psi2, rows->groups, row_weights, r, quadratic);
        product(powers, k->m, 2 * Q, k->m, r, 0, rZ, ld);
        totals(k, g1, r, ld, total1, total2);
        for (int64_t i = 0; i < ld; i += LANES) {
            vec value = load(total1 + i) + load(total2 + i) - divergences(&b, k, i);
            for (int v = 0; v < LANES && i + v < count; v++) values[start + i + v] = value[v];
        }
        for (int64_t q = 0; q < Q; q++)
            for (int64_t i = 0; i < ld; i += LANES) {
                int64_t at = q * ld + i;
                vec x = load(b.muT + at), all1 = load(total1 + i), all2 = load(total2 + i), mean1 = load(g1Z + at);
                vec two1 = x * (x * all1 - 2 * mean1) + load(g1Z + Q * ld + at), by_mu, by_S;
                vec moment = psi2_moment(x, all2, load(rZ + at), load(rZ + Q * ld + at), load(quadratic + at));
                row_gradients(&b, k, q, at, x * all1 - mean1, two1, all1, load(rZ + at), moment, all2, &by_mu, &by_S);
                store(g1Z + at, by_mu);
                store(rZ + at, by_S);
            }
        scatter(g1Z, count, Q, ld, grad_mu + start * Q);
        scatter(rZ, count, Q, ld, grad_S + start * Q);
    }
}

/* Of rows with uncertain inputs: mean[row] = psi1 weights (m, d), and second[row][k] = sum of weights_psi2[k] psi2 over the pairs. */
void ISA(gplvm_moments)(const kernel_t *k, const rows_t *rows, const part_t *part, const double *weights, int64_t d,
                        const double *weights_psi2, int64_t count_psi2, double *mean, double *second)
{
    int64_t pairs = k->m * (k->m + 1) / 2;
    double *space = aligned(part->space);
    block_t b = take_block(k, rows, rows->groups, &space);
    double *e = take(&space, k->m * BLOCK), *weightsT = take_transposed(weights, k->m, d, k->m, &space);
    double *meanT = take(&space, d * BLOCK), *secondT = take(&space, count_psi2 * BLOCK);
    for (int64_t start = part->first * rows->chunk; start < smaller(part->last * rows->chunk, rows->n); start += BLOCK) {
        int64_t count = smaller(BLOCK, rows->n - start), ld = fill_block(&b, k, rows, start, count);
        product(weightsT, k->m, d, k->m, b.psi1, 0, meanT, ld);
        zero(secondT, count_psi2 * ld);
        for (int64_t m = 0; m < k->m; m++) {
            psi2_row(k, b, m, e);
            product(weights_psi2 + m * (m + 1) / 2, pairs, count_psi2, m + 1, e, 1, secondT, ld);
        }
        scatter(meanT, count, d, ld, mean + start * d);
        scatter(secondT, count, count_psi2, ld, second + start * count_psi2);
    }
}
