/* The loops of the Bayesian GPLVM. Compiled once for each instruction set.
 *
 * Lanes are rows of data: an array over a block of rows is stored as [index][row], the row running fastest, and the block is
 * padded to a whole number of vectors with rows whose exponentials are 2^-1020. Exponents are kept in powers of two. */
#include "products.h"

#define LOG2E 1.4426950408889634
#define STEP (2 * LANES) /* rows that a tile takes at a time */
#define BLOCK 64         /* rows that are worked on together: their arrays stay in the first-level cache */
#define FAR (-1e300)     /* the exponent of padding rows */

#define PANEL 4          /* inducing points m' that a tile takes at a time */

INLINE int64_t padded(int64_t rows) { return (rows + STEP - 1) / STEP * STEP; }
INLINE int64_t paneled(int64_t points) { return (points + PANEL - 1) / PANEL * PANEL; }

/* ---- what a block of rows needs, transposed to lanes --------------------------------------------------------------- */

/* The logarithm of a product by one logarithm: mantissas multiply, exponents add. */
typedef struct {
    vec mantissa;
    ivec exponent;
} product_t;

#define ONES ((product_t){splat(1.0), (ivec){0}})

INLINE void multiply(product_t *p, vec factor)
{
    typedef uint64_t uvec __attribute__((vector_size(8 * LANES)));
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
static void precision(const rbf_t *k, const double *ST, int64_t rows, int64_t ld, double times, double power, double *factor,
                      double *base)
{
    for (int64_t i = 0; i < ld; i += LANES) {
        product_t D = ONES;
        for (int64_t q = 0; q < k->q; q++) {
            vec Dq = times * k->alpha[q] * load(ST + q * ld + i) + 1.0;
            store(factor + q * ld + i, k->alpha[q] / Dq);
            multiply(&D, Dq);
        }
        store(base + i, power * product_log2(D));
    }
    for (int64_t i = rows; i < ld; i++) base[i] = FAR;
}

/* out[column][row] = in[row][column] - centre[column], with `padding` after the last row. */
static void transpose(const double *in, const double *centre, double padding, int64_t rows, int64_t columns, int64_t ld,
                      double *out)
{
    for (int64_t c = 0; c < columns; c++) {
        double shift = centre ? centre[c] : 0;
        for (int64_t i = 0; i < rows; i++) out[c * ld + i] = in[i * columns + c] - shift;
        for (int64_t i = rows; i < ld; i++) out[c * ld + i] = padding;
    }
}

/* ---- psi1 ------------------------------------------------------------------------- */

/* f[m][row] = base + log2(e) sum_q (-c mu^2/2 + c mu Z_m - half c Z_m^2), where cc is [c mu, c] and ZZ [Z, -half Z^2] log2(e). */
static void exponents(const rbf_t *k, const double *muT, const double *cc, const double *base, const double *ZZ, int64_t ld,
                      double *f)
{
    for (int64_t i = 0; i < ld; i += LANES) {
        vec s = {0};
        for (int64_t q = 0; q < k->q; q++) s += load(cc + q * ld + i) * load(muT + q * ld + i);
        s = load(base + i) - 0.5 * LOG2E * s;
        for (int64_t m = 0; m < k->m; m++) store(f + m * ld + i, s);
    }
    product(ZZ, k->m, 2 * k->q, cc, 1, f, ld);
}

/* psi1[m][row] from its exponents, in place. */
static void psi1_block(const rbf_t *k, int64_t ld, double *psi1)
{
    int64_t i = 0, numbers = k->m * ld; /* ld is a multiple of two vectors */
    for (; i + 4 * LANES <= numbers; i += 4 * LANES) {
        vec t[4];
        for (int v = 0; v < 4; v++) t[v] = load(psi1 + i + v * LANES);
        exp2_vectors(&t[0], &t[1], &t[2], &t[3]);
        for (int v = 0; v < 4; v++) store(psi1 + i + v * LANES, t[v]);
    }
    if (i < numbers) {
        vec t[4] = {load(psi1 + i), load(psi1 + i + LANES)};
        exp2_vectors(&t[0], &t[1], &t[2], &t[3]);
        for (int v = 0; v < 2; v++) store(psi1 + i + v * LANES, t[v]);
    }
}

/* With g = dF/dpsi1 * psi1 and u = mu - Z, for NM rows of Z:  grad_Z[m][q] += sum_rows a g u,
 * first[q][row] += sum_m g u,  second[q][row] += sum_m g u^2. */
INLINE void psi1_gradient_tile(const int NM, const rbf_t *k, int64_t m, const double *g, const double *muT, const double *a,
                               int64_t ld, double *first, double *second, double *grad_Z)
{
    for (int64_t q = 0; q < k->q; q++) {
        vec z[4], sum[4];
        for (int j = 0; j < NM; j++) {
            z[j] = splat(k->Z[(m + j) * k->q + q]);
            sum[j] = (vec){0};
        }
        for (int64_t i = 0; i < ld; i += LANES) {
            vec x = load(muT + q * ld + i), w = load(a + q * ld + i);
            vec one = load(first + q * ld + i), two = load(second + q * ld + i);
            for (int j = 0; j < NM; j++) {
                vec u = x - z[j], gu = load(g + (m + j) * ld + i) * u;
                one += gu;
                two += gu * u;
                sum[j] += w * gu;
            }
            store(first + q * ld + i, one);
            store(second + q * ld + i, two);
        }
        for (int j = 0; j < NM; j++) grad_Z[(m + j) * k->q + q] += lane_sum(sum[j]);
    }
}

static void psi1_gradient_block(const rbf_t *k, const double *g, const double *muT, const double *a, int64_t ld,
                                double *first, double *second, double *grad_Z)
{
    int64_t m = 0;
    for (; m + 4 <= k->m; m += 4) psi1_gradient_tile(4, k, m, g, muT, a, ld, first, second, grad_Z);
    for (; m < k->m; m++) psi1_gradient_tile(1, k, m, g, muT, a, ld, first, second, grad_Z);
}

/* ---- psi2 ---------------------------------------------------------------------------------------------------- */

/* The exponent of psi2, less the part of Z alone, is f(m) + f(m') + sum_q c_q w_q(m, m') with w_q = -log2(e)/2 Z_mq Z_m'q and f
 * the exponents above, half = 1/4. Pairs (m, m') are taken four m' at a time: a panel holds four rows of Z as [q][4]. */
INLINE void pair_weights(const rbf_t *k, int64_t m, const double *panel, double *w)
{
    for (int64_t q = 0; q < k->q; q++)
        *(four *)(w + q * PANEL) = -0.5 * LOG2E * k->Z[m * k->q + q] * *(const four *)(panel + q * PANEL);
}

/* e[j][v] = the exponentials of pairs (m, first + j) for the STEP rows at i. */
INLINE void psi2_exponentials(const int NP, const rbf_t *k, const double *fm, const double *f, const double *c,
                              const double *w, int64_t ld, int64_t i, vec e[4][2])
{
    for (int j = 0; j < NP; j++)
        for (int v = 0; v < 2; v++) e[j][v] = load(fm + i + v * LANES) + load(f + j * ld + i + v * LANES);
    for (int64_t q = 0; q < k->q; q++) {
        vec c0 = load(c + q * ld + i), c1 = load(c + q * ld + i + LANES);
        for (int j = 0; j < NP; j++) {
            vec wj = splat(w[q * PANEL + j]);
            e[j][0] += c0 * wj;
            e[j][1] += c1 * wj;
        }
    }
    for (int j = NP; j < 4; j++) e[j][0] = e[j][1] = (vec){0};
    exp2_vectors(&e[0][0], &e[0][1], &e[1][0], &e[1][1]);
    if (NP > 2) exp2_vectors(&e[2][0], &e[2][1], &e[3][0], &e[3][1]);
}

INLINE void psi2_tile(const int NP, const rbf_t *k, int64_t m, int64_t first, const double *panels, const double *f,
                      const double *c, int64_t ld, double *w, double *psi2)
{
    vec sum[4], e[4][2];
    pair_weights(k, m, panels + first * k->q, w);
    for (int j = 0; j < 4; j++) sum[j] = (vec){0};
    for (int64_t i = 0; i < ld; i += STEP) {
        psi2_exponentials(NP, k, f + m * ld, f + first * ld, c, w, ld, i, e);
        for (int j = 0; j < NP; j++) sum[j] += e[j][0] + e[j][1];
    }
    four sums = lane_sums(sum[0], sum[1], sum[2], sum[3]);
    for (int j = 0; j < NP; j++) psi2[j] += sums[j];
}

static void psi2_block(const rbf_t *k, const double *panels, const double *f, const double *c, int64_t ld, double *w,
                       double *psi2)
{
#define TILE(NP) psi2_tile(NP, k, m, p, panels, f, c, ld, w, psi2 + pair + p)
    for (int64_t m = 0; m < k->m; m++) {
        int64_t p = 0, pair = m * (m + 1) / 2;
        for (; p + 4 <= m + 1; p += 4) TILE(4);
        switch (m + 1 - p) {
        case 3: TILE(3); break;
        case 2: TILE(2); break;
        case 1: TILE(1); break;
        }
    }
#undef TILE
}

/* e[m'][row] = the exponentials of the pairs (m, m' <= m). */
INLINE void psi2_row_tile(const int NP, const rbf_t *k, int64_t m, int64_t first, const double *panels, const double *f,
                          const double *c, int64_t ld, double *w, double *e)
{
    vec t[4][2];
    pair_weights(k, m, panels + first * k->q, w);
    for (int64_t i = 0; i < ld; i += STEP) {
        psi2_exponentials(NP, k, f + m * ld, f + first * ld, c, w, ld, i, t);
        for (int j = 0; j < NP; j++)
            for (int v = 0; v < 2; v++) store(e + (first + j) * ld + i + v * LANES, t[j][v]);
    }
}

static void psi2_row(const rbf_t *k, int64_t m, const double *panels, const double *f, const double *c, int64_t ld, double *w,
                     double *e)
{
    int64_t p = 0;
    for (; p + 4 <= m + 1; p += 4) psi2_row_tile(4, k, m, p, panels, f, c, ld, w, e);
    switch (m + 1 - p) {
    case 3: psi2_row_tile(3, k, m, p, panels, f, c, ld, w, e); break;
    case 2: psi2_row_tile(2, k, m, p, panels, f, c, ld, w, e); break;
    case 1: psi2_row_tile(1, k, m, p, panels, f, c, ld, w, e); break;
    }
}

/* With g = weight * psi2 of the pairs (m, m' <= m), the weight of m' = m halved:
 *   r[m][row] += g,  r[m'][row] += g;   quadratic[q][row] += g w_q;   with OT [group][row] the weight of a row is weight OT;
 *   to_m -= (sum_rows c_q g) Z_m',  to_panel -= (sum_rows c_q g) Z_m: the gradients of Z_m, four parts of a sum, and of the panel. */
INLINE void psi2_gradient_tile(const int NP, const rbf_t *k, int64_t m, int64_t first, const double *panels,
                               const double *weight, int64_t groups, const double *OT, const double *f, const double *c,
                               int64_t ld, double *w, double *g, double *r, double *quadratic, double *to_m,
                               double *to_panels)
{
    double *row_weights = g + PANEL * ld;
    if (OT) product(weight, NP, groups, OT, 0, row_weights, ld);
    const double *panel = panels + first * k->q;
    double *to_panel = to_panels + first * k->q;
    vec e[4][2];
    pair_weights(k, m, panel, w);
    for (int64_t i = 0; i < ld; i += STEP) {
        psi2_exponentials(NP, k, f + m * ld, f + first * ld, c, w, ld, i, e);
        for (int j = 0; j < NP; j++)
            for (int v = 0; v < 2; v++) {
                double *rj = r + (first + j) * ld + i + v * LANES;
                e[j][v] *= OT ? load(row_weights + j * ld + i + v * LANES) : splat(weight[j]);
                store(g + j * ld + i + v * LANES, e[j][v]);
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
                vec wj = splat(w[q * PANEL + j]);
                s0 += e[j][0] * wj;
                s1 += e[j][1] * wj;
            }
            store(at, s0);
            store(at + LANES, s1);
        }
    }
    for (int64_t q = 0; q < k->q; q += 2) {
        int64_t odd = q + 1 < k->q ? q + 1 : q; /* the last dimension twice, where their number is odd */
        vec h[4][2];
        for (int j = 0; j < 4; j++) h[j][0] = h[j][1] = (vec){0};
        for (int64_t i = 0; i < ld; i += LANES) {
            vec c0 = load(c + q * ld + i), c1 = load(c + odd * ld + i);
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

static void psi2_gradient_block(const rbf_t *k, const double *panels, const double *weight, int64_t groups, const double *OT,
                                const double *f, const double *c, int64_t ld, double *w, double *g, double *r,
                                double *quadratic, double *to_m, double *to_panels)
{
#define TILE(NP)                                                                                                    \
    psi2_gradient_tile(NP, k, m, p, panels, weight + (pair + p) * groups, groups, OT, f, c, ld, w, g, r, quadratic, \
                       to_m + PANEL * k->q * m, to_panels)
    for (int64_t m = 0; m < k->m; m++) {
        int64_t p = 0, pair = m * (m + 1) / 2;
        for (; p + 4 <= m + 1; p += 4) TILE(4);
        switch (m + 1 - p) {
        case 3: TILE(3); break;
        case 2: TILE(2); break;
        case 1: TILE(1); break;
        }
    }
#undef TILE
}

/* ---- chunks ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    double *muT, *ST, *YT, *OT, *aa, *a, *base1, *cc, *c, *base2, *psi1, *f, *w, *ZZ1, *ZZ2, *panels;
} block_t;

static block_t take_block(const rbf_t *k, const rows_t *rows, double **space)
{
    block_t b;
    b.muT = take(space, k->q * BLOCK);
    b.ST = take(space, k->q * BLOCK);
    b.YT = take(space, rows->d * BLOCK);
    b.OT = rows->observed ? take(space, rows->groups * BLOCK) : NULL;
    b.aa = take(space, 2 * k->q * BLOCK); /* [a mu, a]: a itself begins at a */
    b.base1 = take(space, BLOCK);
    b.cc = take(space, 2 * k->q * BLOCK); /* [c mu, c] likewise */
    b.base2 = take(space, BLOCK);
    b.psi1 = take(space, k->m * BLOCK);
    b.f = take(space, k->m * BLOCK);
    b.w = take(space, PANEL * (k->q + 1));
    b.ZZ1 = take(space, 2 * k->m * k->q);
    b.ZZ2 = take(space, 2 * k->m * k->q);
    b.panels = take(space, paneled(k->m) * k->q);
    memset(b.panels, 0, (size_t)(paneled(k->m) * k->q) * 8);
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

static void fill_block(block_t *b, const rbf_t *k, const rows_t *rows, int64_t start, int64_t count, int64_t ld)
{
    transpose(rows->mu + start * k->q, k->centre, 0, count, k->q, ld, b->muT);
    transpose(rows->S + start * k->q, NULL, 1, count, k->q, ld, b->ST);
    transpose(rows->Y + start * rows->d, NULL, 0, count, rows->d, ld, b->YT);
    if (b->OT) transpose(rows->observed + start * rows->groups, NULL, 0, count, rows->groups, ld, b->OT);
    b->a = b->aa + k->q * ld;
    b->c = b->cc + k->q * ld;
    precision(k, b->ST, count, ld, 1, -0.5, b->a, b->base1);
    precision(k, b->ST, count, ld, 2, -0.25, b->c, b->base2); /* each of a pair has half of its base */
    for (int64_t j = 0; j < k->q * ld; j += LANES) {
        store(b->aa + j, load(b->a + j) * load(b->muT + j));
        store(b->cc + j, load(b->c + j) * load(b->muT + j));
    }
    exponents(k, b->muT, b->aa, b->base1, b->ZZ1, ld, b->psi1);
    psi1_block(k, ld, b->psi1);
    exponents(k, b->muT, b->cc, b->base2, b->ZZ2, ld, b->f);
}

/* sum over dimensions of (S + mu^2 - 1 - log S) / 2, of the rows at i */
INLINE vec divergences(const block_t *b, const rbf_t *k, int64_t i, int64_t ld)
{
    product_t S = ONES;
    vec sum = {0};
    for (int64_t q = 0; q < k->q; q++) {
        vec Sq = load(b->ST + q * ld + i), x = load(b->muT + q * ld + i) + k->centre[q];
        multiply(&S, Sq);
        sum += Sq + x * x - 1.0;
    }
    return 0.5 * (sum - product_log2(S) / LOG2E);
}

static double divergence(const block_t *b, const rbf_t *k, int64_t count, int64_t ld)
{
    double total = 0;
    for (int64_t i = 0; i < ld; i += LANES) {
        vec parts = divergences(b, k, i, ld);
        for (int v = 0; v < LANES && i + v < count; v++) total += parts[v];
    }
    return total;
}

int64_t ISA(gplvm_statistics)(const rbf_t *k, const rows_t *rows, int64_t first, int64_t last, sums_t out,
                              double *space)
{
    int64_t misfits = 0, pairs = k->m * (k->m + 1) / 2, sums = pairs * rows->groups;
    space = aligned(space);
    block_t b = take_block(k, rows, &space);
    double *psi2 = take(&space, sums), *B = take(&space, k->m * rows->d), *e = take(&space, k->m * BLOCK);
    for (int64_t c = first; c < last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        double kl = 0;
        memset(psi2, 0, (size_t)sums * 8);
        memset(B, 0, (size_t)(k->m * rows->d) * 8);
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start), ld = padded(count);
            fill_block(&b, k, rows, start, count, ld);
            if (!b.OT)
                psi2_block(k, b.panels, b.f, b.c, ld, b.w, psi2);
            for (int64_t m = 0; b.OT && m < k->m; m++) {
                psi2_row(k, m, b.panels, b.f, b.c, ld, b.w, e);
                dot(e, m + 1, b.OT, rows->groups, ld, 1, psi2 + m * (m + 1) / 2 * rows->groups);
            }
            kl += divergence(&b, k, count, ld);
            dot(b.psi1, k->m, b.YT, rows->d, ld, 1, B);
        }
        misfits += add_to_words(out, 0, psi2, sums, MOST);
        misfits += add_to_words(out, sums, B, k->m * rows->d, MOST);
        double parts[2] = {nearbyint(kl), kl - nearbyint(kl)}; /* nothing bounds KL beforehand: whole nats, and the rest */
        misfits += add_to_words(out, sums + k->m * rows->d, parts, 2, MOST / (double)rows->all_chunks);
    }
    return misfits;
}

int64_t ISA(gplvm_gradient)(const rbf_t *k, const rows_t *rows, int64_t first, int64_t last,
                            const double *weight_psi2, const double *weight_psi1Y, double *grad_mu, double *grad_S,
                            double *values, sums_t out, double *space)
{
    int64_t misfits = 0, nZ = k->m * k->q, Q = k->q;
    space = aligned(space);
    block_t b = take_block(k, rows, &space);
    double *g1 = take(&space, k->m * BLOCK), *first1 = take(&space, Q * BLOCK), *second1 = take(&space, Q * BLOCK);
    double *total1 = take(&space, BLOCK), *total2 = take(&space, BLOCK), *g = take(&space, 2 * PANEL * BLOCK);
    double *r = take(&space, k->m * BLOCK), *quadratic = take(&space, Q * BLOCK);
    double *powers = take(&space, 2 * nZ); /* Z and Z^2, [q][m] */
    double *to_m = take(&space, PANEL * nZ), *to_panels = take(&space, paneled(k->m) * Q);
    double *rZ = take(&space, 2 * Q * BLOCK), *rc = take(&space, 2 * nZ), *grad = take(&space, nZ + Q);
    for (int64_t j = 0; j < k->m; j++)
        for (int64_t q = 0; q < Q; q++) {
            powers[q * k->m + j] = k->Z[j * Q + q];
            powers[(Q + q) * k->m + j] = k->Z[j * Q + q] * k->Z[j * Q + q];
        }
    for (int64_t c = first; c < last; c++) {
        int64_t end = smaller((c + 1) * rows->chunk, rows->n);
        memset(grad, 0, (size_t)(nZ + Q) * 8);
        for (int64_t start = c * rows->chunk; start < end; start += BLOCK) {
            int64_t count = smaller(BLOCK, end - start), ld = padded(count);
            fill_block(&b, k, rows, start, count, ld);

            /* psi1: g1 = (weight_psi1Y Y^T) psi1. */
            product(weight_psi1Y, k->m, rows->d, b.YT, 0, g1, ld);
            for (int64_t j = 0; j < k->m * ld; j += LANES) store(g1 + j, load(g1 + j) * load(b.psi1 + j));
            memset(first1, 0, (size_t)(Q * ld) * 8);
            memset(second1, 0, (size_t)(Q * ld) * 8);
            psi1_gradient_block(k, g1, b.muT, b.a, ld, first1, second1, grad);

            /* psi2: the pairs; then r's products rZ = r^T [Z, Z^2] and rc = r [c mu, c]. */
            memset(r, 0, (size_t)(k->m * ld) * 8);
            memset(quadratic, 0, (size_t)(Q * ld) * 8);
            memset(to_m, 0, (size_t)(PANEL * nZ) * 8);
            memset(to_panels, 0, (size_t)(paneled(k->m) * Q) * 8);
            psi2_gradient_block(k, b.panels, weight_psi2, rows->groups, b.OT, b.f, b.c, ld, b.w, g, r, quadratic, to_m, to_panels);
            product(powers, 2 * Q, k->m, r, 0, rZ, ld);
            dot(r, k->m, b.cc, 2 * Q, ld, 0, rc);
            for (int64_t j = 0; j < k->m; j++)
                for (int64_t q = 0; q < Q; q++) {
                    const double *parts = to_m + PANEL * (j * Q + q);
                    grad[j * Q + q] += 2 * rc[j * 2 * Q + q] - k->Z[j * Q + q] * rc[j * 2 * Q + Q + q] +
                                       to_panels[j / PANEL * PANEL * Q + q * PANEL + j % PANEL] +
                                       ((parts[0] + parts[1]) + (parts[2] + parts[3]));
                }

            /* rows: the gradients of mu and S, and alpha's sums over them */
            for (int64_t i = 0; i < ld; i += LANES) {
                vec sum1 = {0}, sum2 = {0};
                for (int64_t j = 0; j < k->m; j++) {
                    sum1 += load(g1 + j * ld + i);
                    sum2 += load(r + j * ld + i);
                }
                store(total1 + i, sum1);
                store(total2 + i, sum2);
                if (values) {
                    vec value = sum1 + sum2 - divergences(&b, k, i, ld);
                    for (int v = 0; v < LANES && i + v < count; v++) values[start + i + v] = value[v];
                }
            }
            for (int64_t q = 0; q < Q; q++) {
                vec by_alpha = {0};
                for (int64_t i = 0; i < ld; i += LANES) {
                    int64_t at = q * ld + i;
                    vec x = load(b.muT + at), S = load(b.ST + at), a = load(b.a + at), cq = load(b.c + at);
                    vec all1 = load(total1 + i), all2 = load(total2 + i);
                    vec inverse1 = 1 / (k->alpha[q] * S + 1.0), inverse2 = 1 / (2 * k->alpha[q] * S + 1.0);
                    vec one1 = load(first1 + at), two1 = load(second1 + at), mean = load(rZ + at);
                    vec moment = x * (x * all2 - 2 * mean) + 0.5 * load(rZ + Q * ld + at) -
                                 2 / LOG2E * load(quadratic + at);
                    by_alpha += 0.5 * (S * all1 + two1 * inverse1) * inverse1 + (S * all2 + moment * inverse2) * inverse2;
                    store(first1 + at, -a * one1 - 2 * cq * (x * all2 - mean) - (x + k->centre[q]));
                    store(second1 + at, 0.5 * a * (a * two1 - all1) + cq * (2 * cq * moment - all2) - 0.5 + 0.5 / S);
                }
                grad[nZ + q] -= lane_sum(by_alpha);
            }
            for (int64_t i = 0; i < count; i++)
                for (int64_t q = 0; q < Q; q++) {
                    grad_mu[(start + i) * Q + q] = first1[q * ld + i];
                    grad_S[(start + i) * Q + q] = second1[q * ld + i];
                }
        }
        misfits += add_to_words(out, 0, grad, nZ + Q, MOST / (double)rows->all_chunks);
    }
    return misfits;
}

/* Of rows with uncertain inputs: mean[row] = psi1 weights (m, d), and second[row][k] = sum of weights_psi2[k] psi2 over the pairs. */
void ISA(gplvm_moments)(const rbf_t *k, const rows_t *rows, int64_t first, int64_t last, const double *weights, int64_t d,
                        const double *weights_psi2, int64_t count_psi2, double *mean, double *second, double *space)
{
    int64_t pairs = k->m * (k->m + 1) / 2;
    space = aligned(space);
    block_t b = take_block(k, rows, &space);
    double *e = take(&space, k->m * BLOCK), *weightsT = take(&space, k->m * d);
    double *meanT = take(&space, d * BLOCK), *secondT = take(&space, count_psi2 * BLOCK);
    for (int64_t j = 0; j < k->m; j++)
        for (int64_t i = 0; i < d; i++) weightsT[i * k->m + j] = weights[j * d + i];
    for (int64_t start = first * rows->chunk; start < smaller(last * rows->chunk, rows->n); start += BLOCK) {
        int64_t count = smaller(BLOCK, rows->n - start), ld = padded(count);
        fill_block(&b, k, rows, start, count, ld);
        product(weightsT, d, k->m, b.psi1, 0, meanT, ld);
        memset(secondT, 0, (size_t)(count_psi2 * ld) * 8);
        for (int64_t m = 0; m < k->m; m++) {
            psi2_row(k, m, b.panels, b.f, b.c, ld, b.w, e);
            for (int64_t v = 0, NV; v < ld / LANES; v += NV) {
                NV = tile_vectors(ld / LANES - v);
                product_vectors(NV, weights_psi2 + m * (m + 1) / 2, pairs, count_psi2, e + v * LANES, ld, m + 1, 0, 1,
                                secondT + v * LANES, ld);
            }
        }
        for (int64_t i = 0; i < count; i++) {
            for (int64_t j = 0; j < d; j++) mean[(start + i) * d + j] = meanT[j * ld + i];
            for (int64_t j = 0; j < count_psi2; j++) second[(start + i) * count_psi2 + j] = secondT[j * ld + i];
        }
    }
}
