/* The psi statistics of a block of rows and the contraction of their gradients: the tiles of the Bayesian GPLVM.
 *
 * Lanes are rows of data: an array over a block of rows is stored as [index][row], the row running fastest, and the block is
 * padded to a whole number of vectors with rows whose exponentials are 2^-1020. Exponents are kept in powers of two. */
#ifndef MPIGP_PSI_H
#define MPIGP_PSI_H

#include "products.h"

#define STEP (2 * LANES) /* rows that a tile takes at a time */
#define FAR (-1e300)     /* the exponent of padding rows */
#define PANEL 4          /* inducing points m' that a tile takes at a time */

/* A block of rows, and the inducing points as its tiles need them. Functions that loop over tiles take it by value: its pointers
 * then stay in registers. */
typedef struct {
    int64_t ld;              /* places of the rows */
    double *muT, *ST, *YT;   /* mu - center, S, Y */
    double *OT;              /* the weights of a row in pairs' sums: `observed` where it is known, and the trace weight; or NULL */
    double *aa, *a, *cc, *c; /* [a mu, a] and [c mu, c]: a and c begin in their middle */
    double *base1, *base2;   /* the exponents that all inducing points share, of psi1 and of half a pair of psi2 */
    double *psi1, *f;        /* [m][row]: psi1, and the exponent of half a pair */
    double *w;               /* of a tile, [q][PANEL] */
    double *ZZ1, *ZZ2;       /* [Z, -Z^2 / 2] log2(e) and [Z, -Z^2 / 4] log2(e) */
    double *panels;          /* PANEL rows of Z as [q][PANEL], then the next */
} block_t;

INLINE int64_t padded(int64_t rows) { return (rows + STEP - 1) / STEP * STEP; }
INLINE int64_t paneled(int64_t points) { return (points + PANEL - 1) / PANEL * PANEL; }

/* ---- a block of rows, transposed to lanes --------------------------------------------------------------- */

/* The logarithm of a product by one logarithm: mantissas multiply, exponents add. */
typedef struct {
    vec mantissa;
    ivec exponent;
} product_t;

#define ONES ((product_t){splat(1.0), (ivec){0}})

INLINE void multiply(product_t *p, vec factor)
{
    vec x = p->mantissa * factor;
    p->exponent += (ivec)((uvec)x >> 52) - 1023;
    p->mantissa = (vec)(((ivec)x & 0x000fffffffffffff) | 0x3ff0000000000000);
}

INLINE vec product_log2(product_t p)
{
    vec exponent;
    for (int v = 0; v < LANES; v++) exponent[v] = (double)p.exponent[v];
    return log2_mantissa(p.mantissa) + exponent;
}

/* factor[q][row] = alpha_q / (times alpha_q S + 1) and base[row] = log2 of prod_q (times alpha_q S + 1)^power. */
static void precision(const kernel_t *k, const block_t *b, int64_t rows, double times, double power, double *factor, double *base)
{
    int64_t ld = b->ld;
    for (int64_t i = 0; i < ld; i += LANES) {
        product_t D = ONES;
        for (int64_t q = 0; q < k->q; q++) {
            vec Dq = times * k->alpha[q] * load(b->ST + q * ld + i) + 1.0;
            store(factor + q * ld + i, k->alpha[q] / Dq);
            multiply(&D, Dq);
        }
        store(base + i, power * product_log2(D));
    }
    for (int64_t i = rows; i < ld; i++) base[i] = FAR;
}

/* out[column][row] = in[row][column] - center[column], with `padding` after the last row. */
static void transpose(const double *in, const double *center, double padding, int64_t rows, int64_t columns, int64_t ld,
                      double *out)
{
    for (int64_t c = 0; c < columns; c++) {
        double shift = center ? center[c] : 0;
        for (int64_t i = 0; i < rows; i++) out[c * ld + i] = in[i * columns + c] - shift;
        for (int64_t i = rows; i < ld; i++) out[c * ld + i] = padding;
    }
}

/* ---- psi1 ------------------------------------------------------------------------- */

/* f[m][row] = base + log2(e) sum_q (-c mu^2/2 + c mu Z_m - half c Z_m^2), where cc is [c mu, c] and ZZ [Z, -half Z^2] log2(e). */
static void exponents(const kernel_t *k, const block_t *b, const double *cc, const double *base, const double *ZZ, double *f)
{
    int64_t ld = b->ld;
    for (int64_t i = 0; i < ld; i += LANES) {
        vec s = {0};
        for (int64_t q = 0; q < k->q; q++) s += load(cc + q * ld + i) * load(b->muT + q * ld + i);
        s = load(base + i) - 0.5 * LOG2E * s;
        for (int64_t m = 0; m < k->m; m++) store(f + m * ld + i, s);
    }
    product(ZZ, 2 * k->q, k->m, 2 * k->q, cc, 1, f, ld);
}

/* psi1[m][row] from its exponents, in place. */
static void psi1_block(const kernel_t *k, int64_t ld, double *psi1)
{
    for (int64_t i = 0; i < k->m * ld; i += 4 * LANES) { /* perhaps two vectors too many, into the skew after psi1 */
        vec t[4];
        for (int v = 0; v < 4; v++) t[v] = load(psi1 + i + v * LANES);
        exp2_vectors(&t[0], &t[1], &t[2], &t[3]);
        for (int v = 0; v < 4; v++) store(psi1 + i + v * LANES, t[v]);
    }
}

/* With g = dF/dpsi1 * psi1 and u = mu - Z, for NM rows of Z:  grad_Z[m][q] += sum_rows a g u,
 * first[q][row] += sum_m g u,  second[q][row] += sum_m g u^2. */
INLINE void psi1_gradient_tile(const int NM, const kernel_t *k, const block_t *b, int64_t m, const double *g, double *first,
                               double *second, double *grad_Z)
{
    int64_t ld = b->ld;
    for (int64_t q = 0; q < k->q; q++) {
        vec z[4], sum[4];
        for (int j = 0; j < NM; j++) {
            z[j] = splat(k->Z[(m + j) * k->q + q]);
            sum[j] = (vec){0};
        }
        for (int64_t i = 0; i < ld; i += LANES) {
            vec x = load(b->muT + q * ld + i), a = load(b->a + q * ld + i);
            vec one = load(first + q * ld + i), two = load(second + q * ld + i);
            for (int j = 0; j < NM; j++) {
                vec u = x - z[j], gu = load(g + (m + j) * ld + i) * u;
                one += gu;
                two += gu * u;
                sum[j] += a * gu;
            }
            store(first + q * ld + i, one);
            store(second + q * ld + i, two);
        }
        for (int j = 0; j < NM; j++) grad_Z[(m + j) * k->q + q] += lane_sum(sum[j]);
    }
}

static void psi1_gradient_block(const kernel_t *k, block_t b, const double *g, double *first, double *second, double *grad_Z)
{
    int64_t m = 0;
    for (; m + 4 <= k->m; m += 4) psi1_gradient_tile(4, k, &b, m, g, first, second, grad_Z);
    for (; m < k->m; m++) psi1_gradient_tile(1, k, &b, m, g, first, second, grad_Z);
}

/* ---- psi2 ---------------------------------------------------------------------------------------------------- */

/* The exponent of psi2, less the part of Z alone, is f(m) + f(m') + sum_q c_q w_q(m, m') with w_q = -log2(e)/2 Z_mq Z_m'q and f
 * the exponents above, half = 1/4. Pairs (m, m') are taken four m' at a time, those of a panel, which begins with `first`. */
INLINE void pair_weights(const kernel_t *k, const block_t *b, int64_t m, int64_t first)
{
    for (int64_t q = 0; q < k->q; q++)
        *(four *)(b->w + q * PANEL) =
            -0.5 * LOG2E * k->Z[m * k->q + q] * *(const four *)(b->panels + first * k->q + q * PANEL);
}

/* e[j][v] = the exponentials of pairs (m, first + j) for the STEP rows at i. */
INLINE void psi2_exponentials(const int NP, const kernel_t *k, const block_t *b, int64_t m, int64_t first, int64_t i, vec e[4][2])
{
    int64_t ld = b->ld;
    const double *fm = b->f + m * ld, *f = b->f + first * ld;
    for (int j = 0; j < NP; j++)
        for (int v = 0; v < 2; v++) e[j][v] = load(fm + i + v * LANES) + load(f + j * ld + i + v * LANES);
    for (int64_t q = 0; q < k->q; q++) {
        vec c0 = load(b->c + q * ld + i), c1 = load(b->c + q * ld + i + LANES);
        for (int j = 0; j < NP; j++) {
            vec wj = splat(b->w[q * PANEL + j]);
            e[j][0] += c0 * wj;
            e[j][1] += c1 * wj;
        }
    }
    for (int j = NP; j < 4; j++) e[j][0] = e[j][1] = (vec){0};
    exp2_vectors(&e[0][0], &e[0][1], &e[1][0], &e[1][1]);
    if (NP > 2) exp2_vectors(&e[2][0], &e[2][1], &e[3][0], &e[3][1]);
}

/* psi2[j] += sum over the rows of the exponentials; where EXPLAINED, c[row] += sum over the pairs of explained[j] times them. */
INLINE void psi2_tile(const int NP, const int EXPLAINED, const kernel_t *k, const block_t *b, int64_t m, int64_t first, double *psi2,
                      const double *explained, double *c)
{
    vec sum[4], e[4][2];
    pair_weights(k, b, m, first);
    for (int j = 0; j < 4; j++) sum[j] = (vec){0};
    for (int64_t i = 0; i < b->ld; i += STEP) {
        psi2_exponentials(NP, k, b, m, first, i, e);
        for (int j = 0; j < NP; j++) sum[j] += e[j][0] + e[j][1];
        for (int v = 0; EXPLAINED && v < 2; v++) {
            vec s = load(c + i + v * LANES);
            for (int j = 0; j < NP; j++) s += e[j][v] * explained[j];
            store(c + i + v * LANES, s);
        }
    }
    four sums = lane_sums(sum[0], sum[1], sum[2], sum[3]);
    for (int j = 0; j < NP; j++) psi2[j] += sums[j];
}

/* CALL(NP) for the pairs (m, m' <= m) of one m, m' from p on, NP at a time. */
#define PAIRS_OF_ONE(CALL)                  \
    int64_t p = 0;                          \
    for (; p + 4 <= m + 1; p += 4) CALL(4); \
    UP_TO_THREE(m + 1 - p, CALL)

/* The same for all m; `pair` is the number of the pair (m, 0). */
#define PAIRS(CALL)                        \
    for (int64_t m = 0; m < k->m; m++) {   \
        int64_t pair = m * (m + 1) / 2;    \
        PAIRS_OF_ONE(CALL)                 \
    }

static void psi2_block(const kernel_t *k, block_t b, double *psi2)
{
#define TILE(NP) psi2_tile(NP, 0, k, &b, m, p, psi2 + pair + p, NULL, NULL)
    PAIRS(TILE)
#undef TILE
}

static void psi2_explained_block(const kernel_t *k, block_t b, double *psi2, const double *explained, double *c)
{
#define TILE(NP) psi2_tile(NP, 1, k, &b, m, p, psi2 + pair + p, explained + pair + p, c)
    PAIRS(TILE)
#undef TILE
}

/* e[m'][row] = the exponentials of the pairs (m, m' <= m). */
INLINE void psi2_row_tile(const int NP, const kernel_t *k, const block_t *b, int64_t m, int64_t first, double *e)
{
    vec t[4][2];
    pair_weights(k, b, m, first);
    for (int64_t i = 0; i < b->ld; i += STEP) {
        psi2_exponentials(NP, k, b, m, first, i, t);
        for (int j = 0; j < NP; j++)
            for (int v = 0; v < 2; v++) store(e + (first + j) * b->ld + i + v * LANES, t[j][v]);
    }
}

static void psi2_row(const kernel_t *k, block_t b, int64_t m, double *e)
{
#define TILE(NP) psi2_row_tile(NP, k, &b, m, p, e)
    PAIRS_OF_ONE(TILE)
#undef TILE
}

/* With g = weight * psi2 of the pairs (m, m' <= m), the weight of m' = m halved:
 *   r[m][row] += g,  r[m'][row] += g;   quadratic[q][row] += g w_q;   with OT [group][row] the weight of a row is weight OT;
 *   where g is not NULL, it is kept, [j][row];   where tilted is not, tilted[j] += sum over the rows of psi2 times the last of OT. */
INLINE void psi2_rows_tile(const int NP, const kernel_t *k, const block_t *b, int64_t m, int64_t first, const double *weight,
                           int64_t groups, double *row_weights, double *g, double *r, double *quadratic, double *tilted)
{
    int64_t ld = b->ld;
    vec e[4][2], sum[4] = {{0}};
    if (b->OT) product(weight, groups, NP, groups, b->OT, 0, row_weights, ld);
    pair_weights(k, b, m, first);
    for (int64_t i = 0; i < ld; i += STEP) {
        psi2_exponentials(NP, k, b, m, first, i, e);
        for (int v = 0; tilted && v < 2; v++) {
            vec last = load(b->OT + (groups - 1) * ld + i + v * LANES);
            for (int j = 0; j < NP; j++) sum[j] += e[j][v] * last;
        }
        for (int j = 0; j < NP; j++)
            for (int v = 0; v < 2; v++) {
                double *rj = r + (first + j) * ld + i + v * LANES;
                e[j][v] *= b->OT ? load(row_weights + j * ld + i + v * LANES) : splat(weight[j]);
                if (g) store(g + j * ld + i + v * LANES, e[j][v]);
                store(rj, load(rj) + e[j][v]);
            }
        for (int v = 0; v < 2; v++) {
            double *rm = r + m * ld + i + v * LANES;
            vec s = load(rm);
            for (int j = 0; j < NP; j++) s += e[j][v];
            store(rm, s);
        }
        for (int64_t q = 0; q < k->q; q++) {
            double *at = quadratic + q * ld + i;
            vec s0 = load(at), s1 = load(at + LANES);
            for (int j = 0; j < NP; j++) {
                vec wj = splat(b->w[q * PANEL + j]);
                s0 += e[j][0] * wj;
                s1 += e[j][1] * wj;
            }
            store(at, s0);
            store(at + LANES, s1);
        }
    }
    if (tilted) {
        four sums = lane_sums(sum[0], sum[1], sum[2], sum[3]);
        for (int j = 0; j < NP; j++) tilted[j] += sums[j];
    }
}

/* The same, and  to_m -= (sum_rows c_q g) Z_m',  to_panel -= (sum_rows c_q g) Z_m: the gradients of Z_m, four parts of a sum, and of
 * the panel. */
INLINE void psi2_gradient_tile(const int NP, const kernel_t *k, const block_t *b, int64_t m, int64_t first, const double *weight,
                               int64_t groups, double *g, double *r, double *quadratic, double *to_m, double *to_panels,
                               double *tilted)
{
    int64_t ld = b->ld;
    const double *panel = b->panels + first * k->q;
    double *to_panel = to_panels + first * k->q;
    psi2_rows_tile(NP, k, b, m, first, weight, groups, g + PANEL * ld, g, r, quadratic, tilted);
    for (int64_t q = 0; q < k->q; q += 2) {
        int64_t odd = q + 1 < k->q ? q + 1 : q; /* the last dimension twice, where their number is odd */
        vec h[4][2];
        for (int j = 0; j < 4; j++) h[j][0] = h[j][1] = (vec){0};
        for (int64_t i = 0; i < ld; i += LANES) {
            vec c0 = load(b->c + q * ld + i), c1 = load(b->c + odd * ld + i);
            for (int j = 0; j < NP; j++) {
                vec gj = load(g + j * ld + i);
                h[j][0] += gj * c0;
                h[j][1] += gj * c1;
            }
        }
        for (int v = 0; v < 2 && q + v < k->q; v++) {
            int64_t at = (q + v) * PANEL;
            four sums = lane_sums(h[0][v], h[1][v], h[2][v], h[3][v]);
            *(four *)(to_m + at) -= sums * *(const four *)(panel + at);
            *(four *)(to_panel + at) -= sums * k->Z[m * k->q + q + v];
        }
    }
}

#define GRADIENT_TILE(NP, tilted)                                                              \
    psi2_gradient_tile(NP, k, &b, m, p, weight + (pair + p) * groups, groups, g, r, quadratic, \
                       to_m + PANEL * k->q * m, to_panels, tilted)

static void psi2_gradient_block(const kernel_t *k, block_t b, const double *weight, int64_t groups, double *g, double *r,
                                double *quadratic, double *to_m, double *to_panels)
{
#define TILE(NP) GRADIENT_TILE(NP, NULL)
    PAIRS(TILE)
#undef TILE
}

static void psi2_tilted_gradient_block(const kernel_t *k, block_t b, const double *weight, int64_t groups, double *g, double *r,
                                       double *quadratic, double *to_m, double *to_panels, double *tilted)
{
#define TILE(NP) GRADIENT_TILE(NP, tilted + pair + p)
    PAIRS(TILE)
#undef TILE
}

static void psi2_rows_block(const kernel_t *k, block_t b, const double *weight, int64_t groups, double *row_weights,
                            double *r, double *quadratic)
{
#define TILE(NP) psi2_rows_tile(NP, k, &b, m, p, weight + (pair + p) * groups, groups, row_weights, NULL, r, quadratic, NULL)
    PAIRS(TILE)
#undef TILE
}

#endif
