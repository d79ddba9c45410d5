/* Matrix products by tiles whose sums stay in registers, in an order that depends on shapes alone.
 *
 * On one core they run at the speed of a tuned BLAS, for the shapes that matter here: blocks of 64 rows against some hundred
 * inducing points. Nothing is copied, triangles cost what triangles should, and the bits are the same with any BLAS. */
#ifndef MPIGP_PRODUCTS_H
#define MPIGP_PRODUCTS_H

#include "sums.h"

#define WIDE 3    /* vectors of a tile */
#define TALL 4    /* rows of a tile */
#define DEPTH 256 /* inner length at a time: a panel of a packed matrix then fits the first-level cache */

/* How many vectors a tile takes of those that are left: two and two rather than three and one, whose additions would wait for
 * each other. */
INLINE int64_t tile_vectors(int64_t left) { return left == WIDE + 1 ? 2 : smaller(left, WIDE); }

/* CALL(count) with a count of 1, 2 or 3 as a constant: the sums of a tile stay in registers only if its size is known. */
#define UP_TO_THREE(count, CALL) \
    switch (count) {             \
    case 3: CALL(3); break;      \
    case 2: CALL(2); break;      \
    case 1: CALL(1); break;      \
    }

/* ---- products with a matrix ----------------------------------------------------------------------------------------- */

/* The matrix B[k][j], (inner, m) with B[k][j] = from[k * down + j * right], in panels of a tile's width: panel by panel,
 * then k, then the panel's columns; zero beyond m. */
static inline void pack(const double *from, int64_t down, int64_t right, int64_t inner, int64_t m, double *panels)
{
    int64_t vectors = (m + LANES - 1) / LANES;
    for (int64_t v = 0; v < vectors; v += tile_vectors(vectors - v)) {
        int64_t width = tile_vectors(vectors - v) * LANES;
        for (int64_t k = 0; k < inner; k++)
            for (int64_t j = 0; j < width; j++, panels++)
                *panels = v * LANES + j < m ? from[k * down + (v * LANES + j) * right] : 0;
    }
}

/* s[i][.] += sum over `begin` <= k < `end` of left[i * across + k * along] right[k][.], for a tile's vectors from `first` on. */
INLINE void add_terms(const int NR, const int first, const int NV, const double *left, int64_t across, int64_t along,
                      const double *right, int64_t down, int64_t begin, int64_t end, vec s[TALL][WIDE])
{
    for (int64_t k = begin; k < end; k++) {
        vec b[WIDE];
        for (int v = first; v < NV; v++) b[v] = load(right + k * down + v * LANES);
        for (int i = 0; i < NR; i++) {
            vec a = splat(left[i * across + k * along]);
            for (int v = first; v < NV; v++) s[i][v] += a * b[v];
        }
    }
}

/* out[row][.] (+)= sum over k of left[row][k] right[k][.], for `count` values of k, and `ramp` more with which a triangle's
 * first vectors end: after each LANES of those, one vector less. */
INLINE void product_tile(const int NR, const int NV, const double *left, int64_t stride, const double *right, int64_t down,
                         int64_t count, int64_t ramp, int add, double *out, int64_t places)
{
    vec s[TALL][WIDE];
    for (int r = 0; r < NR; r++)
        for (int v = 0; v < NV; v++) s[r][v] = add ? load(out + r * places + v * LANES) : (vec){0};
    add_terms(NR, 0, NV, left, stride, 1, right, down, 0, count, s);
    if (ramp) {
        int64_t ends[] = {count + smaller(ramp, LANES), count + smaller(ramp, 2 * LANES), count + ramp};
        add_terms(NR, 0, NV, left, stride, 1, right, down, count, ends[0], s);
        if (NV > 1) add_terms(NR, 1, NV, left, stride, 1, right, down, ends[0], ends[1], s);
        if (NV > 2) add_terms(NR, 2, NV, left, stride, 1, right, down, ends[1], ends[2], s);
    }
    for (int r = 0; r < NR; r++)
        for (int v = 0; v < NV; v++) store(out + r * places + v * LANES, s[r][v]);
}

INLINE void product_rows(const int NV, const double *left, int64_t stride, int64_t rows, const double *right, int64_t down,
                         int64_t count, int64_t ramp, int add, double *out, int64_t places)
{
    int64_t r = 0;
    for (; r + TALL <= rows; r += TALL)
        product_tile(TALL, NV, left + r * stride, stride, right, down, count, ramp, add, out + r * places, places);
    for (; r < rows; r++)
        product_tile(1, NV, left + r * stride, stride, right, down, count, ramp, add, out + r * places, places);
}

INLINE void product_vectors(int64_t vectors, const double *left, int64_t stride, int64_t rows, const double *right, int64_t down,
                            int64_t count, int64_t ramp, int add, double *out, int64_t places)
{
#define TILE(NV) product_rows(NV, left, stride, rows, right, down, count, ramp, add, out, places)
    UP_TO_THREE(vectors, TILE)
#undef TILE
}

enum { SQUARE, UPPER, LOWER }; /* the shape of a matrix B[k][j]: triangular ones are zero where k > j, or k < j */

/* out[row][j] (+)= sum over k < inner of left[row][k] B[k][j], B packed; where B is triangular, over the k of its triangle alone. */
static inline void packed_product(const double *left, int64_t stride, int64_t rows, const double *panels, int64_t inner,
                                  int64_t m, int shape, int add, double *out, int64_t places)
{
    int64_t vectors = (m + LANES - 1) / LANES;
    for (int64_t v = 0, NV; v < vectors; v += NV) {
        NV = tile_vectors(vectors - v);
        int64_t first = shape == LOWER ? smaller(inner, v * LANES) : 0, full = shape == UPPER ? smaller(inner, v * LANES) : inner;
        int64_t end = shape == UPPER ? smaller(inner, (v + NV) * LANES) : inner;
        const double *panel = panels + v * LANES * inner;
        for (int64_t k = first, next; k < end; k = next) {
            next = full - k > DEPTH ? k + DEPTH : end;
            product_vectors(NV, left + k, stride, rows, panel + k * NV * LANES, NV * LANES, smaller(next, full) - k,
                            next > full ? next - full : 0, add || k > first, out + v * LANES, places);
        }
    }
}

/* out[i][row] (+)= sum over k < inner of left[i][k] right[k][row], for `count` values of i, `stride` apart, and blocks of `places`
 * rows. */
static inline void product(const double *left, int64_t stride, int64_t count, int64_t inner, const double *right, int add,
                           double *out, int64_t places)
{
    for (int64_t v = 0, NV; v < places / LANES; v += NV) {
        NV = tile_vectors(places / LANES - v);
        product_vectors(NV, left, stride, count, right + v * LANES, places, inner, 0, add, out + v * LANES, places);
    }
}

/* ---- products summed over rows ---------------------------------------------------------------------------------------- */

/* out[i][j] (+)= sum over rows of left[row][i] right[row][j]. */
INLINE void outer_tile(const int NR, const int NV, const double *left, int64_t stride, const double *right, int64_t rows,
                       int add, double *out, int64_t places)
{
    vec s[TALL][WIDE];
    for (int i = 0; i < NR; i++)
        for (int v = 0; v < NV; v++) s[i][v] = (vec){0};
    add_terms(NR, 0, NV, left, 1, stride, right, places, 0, rows, s);
    for (int i = 0; i < NR; i++)
        for (int v = 0; v < NV; v++) {
            double *at = out + i * places + v * LANES;
            store(at, add ? load(at) + s[i][v] : s[i][v]);
        }
}

/* The same for i < count and all j < m; where `triangular`, only for vectors that reach j <= i. */
static inline void outer(const double *left, int64_t stride, int64_t count, const double *right, int64_t rows, int64_t m,
                         int triangular, int add, double *out, int64_t places)
{
    int64_t vectors = (m + LANES - 1) / LANES;
    for (int64_t v = 0, NV; v < vectors; v += NV) {
        NV = tile_vectors(vectors - v);
        int64_t first = triangular ? v * LANES : 0; /* a multiple of TALL */
        for (int64_t i = first, NR; i < count; i += NR) {
            NR = i + TALL <= count ? TALL : 1;
            int64_t reached = triangular ? smaller(NV, (i - first) / LANES + 1) : NV;
#define TILE(NR, NV) \
    outer_tile(NR, NV, left + i, stride, right + v * LANES, rows, add, out + i * places + v * LANES, places)
#define TALL_TILE(NV) TILE(TALL, NV)
#define ROW_TILE(NV) TILE(1, NV)
            if (NR == TALL) {
                UP_TO_THREE(reached, TALL_TILE)
            } else
                UP_TO_THREE(reached, ROW_TILE)
#undef TILE
#undef TALL_TILE
#undef ROW_TILE
        }
    }
}

/* out[i][j] (+)= sum over the rows of left[i][row] right[j][row]: both have their rows in lanes. */
INLINE void dot_tile(const int NI, const int NJ, const double *left, const double *right, int64_t places, int add,
                     double *out, int64_t n_right)
{
    vec s[2][TALL];
    for (int i = 0; i < NI; i++)
        for (int j = 0; j < TALL; j++) s[i][j] = (vec){0};
    for (int64_t r = 0; r < places; r += LANES)
        for (int i = 0; i < NI; i++) {
            vec a = load(left + i * places + r);
            for (int j = 0; j < NJ; j++) s[i][j] += a * load(right + j * places + r);
        }
    for (int i = 0; i < NI; i++) {
        four sums = lane_sums(s[i][0], s[i][1], s[i][2], s[i][3]);
        for (int j = 0; j < NJ; j++) out[i * n_right + j] = (add ? out[i * n_right + j] : 0) + sums[j];
    }
}

static inline void dot(const double *left, int64_t n_left, const double *right, int64_t n_right, int64_t places, int add,
                       double *out)
{
#define TILE(NI, NJ) dot_tile(NI, NJ, left + i * places, right + j * places, places, add, out + i * n_right + j, n_right)
    int64_t i = 0;
    for (; i + 2 <= n_left; i += 2) {
        int64_t j = 0;
        for (; j + TALL <= n_right; j += TALL) TILE(2, TALL);
        for (; j < n_right; j++) TILE(2, 1);
    }
    for (; i < n_left; i++)
        for (int64_t j = 0; j < n_right; j++) TILE(1, 1);
#undef TILE
}

#endif
