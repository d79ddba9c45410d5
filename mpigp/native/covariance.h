/* Covariances between rows and inducing points, and their derivatives: the tiles of regression with any kernel.
 *
 * A kernel is a sum of terms, a term a product of factors. A factor sees features of a point: inputs, or cosines and sines of them
 * (which make an RBF kernel periodic). It is a profile of their squared distance, or their dot product.
 *
 * Lanes are points of one side, as a rule inducing points: a block of rows is stored as [row][m], m running fastest and padded to
 * whole vectors. */
#ifndef MPIGP_COVARIANCE_H
#define MPIGP_COVARIANCE_H

#include "products.h"

/* Places of a row of m numbers in memory: whole vectors, and no multiple of the page size apart, which caches dislike. */
INLINE int64_t row_places(int64_t m)
{
    int64_t places = (m + LANES - 1) / LANES * LANES;
    return places % 256 ? places : places + LANES;
}

/* ---- profiles ------------------------------------------------------------------------------------------------------------ */

/* With t = sum_f w_f u_f^2 over a factor's features, k(t), and its slope -2 dk/dt:
 *
 *   RBF        exp(-t/2)                                   itself
 *   MATERN12   exp(-a)               a^2 = t               exp(-a) / a
 *   MATERN32   (1 + a) exp(-a)       a^2 = 3 t             3 exp(-a)
 *   MATERN52   (1 + a + a^2/3) exp(-a)   a^2 = 5 t         5/3 (1 + a) exp(-a)
 *   RATIONAL   (1 + y)^-c            y = t / 2c            (1 + y)^(-c-1)          by c: k (y / (1 + y) - log(1 + y))
 *   LINEAR     sum_f w_f x_f z_f                           1
 *
 * Features come in units in which the sum of u^2 is t log2(e)/2, (a log2 e)^2 or y, and the dot product LINEAR itself. */
static double feature_unit(const factor_t *factor, double weight)
{
    switch (factor->profile) {
    case RBF: return sqrt(0.5 * LOG2E * weight);
    case MATERN12: return LOG2E * sqrt(weight);
    case MATERN32: return LOG2E * sqrt(3 * weight);
    case MATERN52: return LOG2E * sqrt(5 * weight);
    case RATIONAL: return sqrt(0.5 * weight / factor->shape);
    default: return sqrt(weight);
    }
}

/* log(1 + y) for y >= 0: 1 + y = 2^k (1 + g) with 1 + g in [sqrt(1/2), sqrt(2)), where g is y itself if k = 0; then with
 * s = g / (2 + g) the series 2 (s + s^3/3 + ...), |s| <= 0.172. */
INLINE vec log_1p(vec y)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000;
    uvec bits = (uvec)(y + 1.0) + (one - root_half);
    ivec k = (ivec)(bits >> 52) - 1023, same = k == 0;
    vec g = (vec)((bits & 0x000fffffffffffff) + root_half) - 1.0, exponent;
    g = (vec)((same & (ivec)y) | (~same & (ivec)g));
    for (int v = 0; v < LANES; v++) exponent[v] = (double)k[v];
    vec s = g / (g + 2.0), z = s * s, p = splat(1.0 / 21);
    for (int i = 19; i > 0; i -= 2) p = p * z + splat(1.0 / i);
    return 2 * s * p + exponent / LOG2E;
}

/* t[row] = minus the sum of squares, or the dot product, becomes the value; with SLOPES also slope, and by_shape of RATIONAL. */
INLINE void profile_values(const int PROFILE, const int SLOPES, double shape, vec t[TALL], vec slope[TALL], vec by_shape[TALL])
{
    vec a[TALL];
    if (PROFILE == RBF) exp2_vectors(&t[0], &t[1], &t[2], &t[3]);
    if (PROFILE == MATERN12 || PROFILE == MATERN32 || PROFILE == MATERN52) {
        for (int r = 0; r < TALL; r++) {
            t[r] = -square_root(vmax(-t[r], splat(1e-280))); /* a > 0: a slope times u is then zero where u is */
            a[r] = t[r] * (-1 / LOG2E);
        }
        exp2_vectors(&t[0], &t[1], &t[2], &t[3]);
        for (int r = 0; r < TALL; r++) {
            vec e = t[r];
            if (PROFILE == MATERN12 && SLOPES) slope[r] = e / a[r];
            if (PROFILE == MATERN32) t[r] = e + e * a[r], slope[r] = 3 * e;
            if (PROFILE == MATERN52) slope[r] = (e + e * a[r]) * (5.0 / 3), t[r] = e + e * (a[r] + a[r] * a[r] * (1.0 / 3));
        }
    }
    if (PROFILE == RATIONAL) {
        for (int r = 0; r < TALL; r++) {
            slope[r] = -t[r];
            a[r] = log_1p(slope[r]);
            t[r] = -LOG2E * shape * a[r];
        }
        exp2_vectors(&t[0], &t[1], &t[2], &t[3]);
        for (int r = 0; r < TALL && SLOPES; r++) {
            vec y = slope[r], inverse = 1 / (y + 1.0);
            slope[r] = t[r] * inverse;
            by_shape[r] = t[r] * (y * inverse - a[r]);
        }
    }
}

/* ---- a factor between rows and lanes --------------------------------------------------------------------------------------- */

/* Arrays [row][lane] of a factor: its values, and where gradients are wanted its slopes (those of RBF are its values) and
 * derivatives by shape. */
typedef struct {
    double *value, *slope, *by_shape;
} factor_block_t;

/* For NR rows and NV vectors from j on; x [row][feature] and ZT [feature][lane] are both in units. */
INLINE void factor_tile(const int PROFILE, const int SLOPES, const int NR, const int NV, const factor_t *factor, int64_t features,
                        const double *x, const double *ZT, int64_t j, factor_block_t out, int64_t places)
{
    vec t[2][TALL];
    for (int v = 0; v < 2; v++)
        for (int r = 0; r < TALL; r++) t[v][r] = (vec){0};
    for (int64_t f = factor->first; f < factor->last; f++)
        for (int v = 0; v < NV; v++) {
            vec z = load(ZT + f * places + j + v * LANES);
            for (int r = 0; r < NR; r++) {
                if (PROFILE == LINEAR)
                    t[v][r] += splat(x[r * features + f]) * z;
                else {
                    vec u = splat(x[r * features + f]) - z;
                    t[v][r] -= u * u;
                }
            }
        }
    vec slope[2][TALL], by_shape[2][TALL];
    profile_values(PROFILE, SLOPES, factor->shape, t[0], slope[0], by_shape[0]);
    if (NV > 1) profile_values(PROFILE, SLOPES, factor->shape, t[1], slope[1], by_shape[1]);
    for (int v = 0; v < NV; v++)
        for (int r = 0; r < NR; r++) {
            int64_t at = r * places + j + v * LANES;
            store(out.value + at, t[v][r]);
            if (SLOPES && PROFILE != RBF && PROFILE != LINEAR) store(out.slope + at, slope[v][r]);
            if (SLOPES && PROFILE == RATIONAL) store(out.by_shape + at, by_shape[v][r]);
        }
}

INLINE void factor_rows(const int PROFILE, const int SLOPES, const int NR, const factor_t *factor, int64_t features,
                        const double *x, const double *ZT, int64_t lanes, factor_block_t out, int64_t places)
{
    int64_t j = 0;
    for (; j + LANES < lanes; j += 2 * LANES) factor_tile(PROFILE, SLOPES, NR, 2, factor, features, x, ZT, j, out, places);
    if (j < lanes) factor_tile(PROFILE, SLOPES, NR, 1, factor, features, x, ZT, j, out, places);
}

INLINE factor_block_t from_row(factor_block_t b, int64_t offset)
{
    return (factor_block_t){b.value + offset, b.slope + offset, b.by_shape + offset};
}

#define FACTOR(PROFILE, SLOPES)                                                                                           \
    static void factor_##PROFILE##_##SLOPES(const factor_t *factor, int64_t features, const double *x, int64_t rows,      \
                                            const double *ZT, int64_t lanes, factor_block_t out, int64_t places)          \
    {                                                                                                                     \
        int64_t r = 0;                                                                                                    \
        for (; r + TALL <= rows; r += TALL)                                                                               \
            factor_rows(PROFILE, SLOPES, TALL, factor, features, x + r * features, ZT, lanes, from_row(out, r * places),  \
                        places);                                                                                          \
        for (; r < rows; r++)                                                                                             \
            factor_rows(PROFILE, SLOPES, 1, factor, features, x + r * features, ZT, lanes, from_row(out, r * places),     \
                        places);                                                                                          \
    }
#define PROFILES(CALL) CALL(RBF, 0) CALL(MATERN12, 0) CALL(MATERN12, 1) CALL(MATERN32, 0) CALL(MATERN32, 1) CALL(MATERN52, 0) \
    CALL(MATERN52, 1) CALL(RATIONAL, 0) CALL(RATIONAL, 1) CALL(LINEAR, 0)
PROFILES(FACTOR)
#undef FACTOR

static void factor_block(const factor_t *factor, int slopes, int64_t features, const double *x, int64_t rows, const double *ZT,
                         int64_t lanes, factor_block_t out, int64_t places)
{
#define CASE(PROFILE, SLOPES)                                                                  \
    if (factor->profile == PROFILE && (slopes == SLOPES || PROFILE == RBF || PROFILE == LINEAR)) \
        factor_##PROFILE##_##SLOPES(factor, features, x, rows, ZT, lanes, out, places);
    PROFILES(CASE)
#undef CASE
    if (factor->profile == BIAS)
        for (int64_t i = 0; i < rows * places; i += LANES) store(out.value + i, splat(1.0));
}

/* ---- features ---------------------------------------------------------------------------------------------------------------- */

/* A feature of a point's input x, which is given as x - shift where the feature is the input itself. */
INLINE double feature(const kernel_t *k, int64_t f, double x)
{
    double frequency = k->frequencies[f];
    return frequency == 0 ? x : frequency > 0 ? cos(frequency * x) : sin(-frequency * x);
}

/* The factor that a feature belongs to. */
static const factor_t *factor_of(const kernel_t *k, int64_t f)
{
    const factor_t *factor = k->factor;
    while (f >= factor->last) factor++;
    return factor;
}

/* Feature f of inducing point j. The input itself is Z but for the shift, so that centered features have the bits of Z. */
INLINE double point_feature(const kernel_t *k, int64_t f, int64_t j)
{
    int64_t column = k->columns[f];
    return feature(k, f, k->Z[j * k->q + column] + (k->center[column] - k->shifts[f]));
}

/* The points of both sides: features of the lanes [feature][lane] and of rows [row][feature], as they are and in units. */
typedef struct {
    int64_t places;
    double *ZT, *scaled_ZT, *unit, *x, *scaled_x;
} points_t;

static points_t take_points(const kernel_t *k, int64_t lanes, int64_t rows, double **space)
{
    int64_t F = k->features;
    points_t p = {.places = row_places(lanes)};
    p.ZT = take(space, F * p.places);
    p.scaled_ZT = take(space, F * p.places);
    p.unit = take(space, F);
    p.x = take(space, rows * F);
    p.scaled_x = take(space, rows * F);
    zero(p.ZT, F * p.places);
    zero(p.scaled_ZT, F * p.places);
    for (int64_t f = 0; f < F; f++) p.unit[f] = feature_unit(factor_of(k, f), k->weights[f]);
    return p;
}

static void set_lane(points_t *p, int64_t f, int64_t lane, double value)
{
    p->ZT[f * p->places + lane] = value;
    p->scaled_ZT[f * p->places + lane] = p->unit[f] * value;
}

static void set_row(const kernel_t *k, points_t *p, int64_t row, int64_t f, double value)
{
    p->x[row * k->features + f] = value;
    p->scaled_x[row * k->features + f] = p->unit[f] * value;
}

static void lanes_of_inducing(const kernel_t *k, points_t *p)
{
    for (int64_t f = 0; f < k->features; f++)
        for (int64_t j = 0; j < k->m; j++) set_lane(p, f, j, point_feature(k, f, j));
}

static void rows_of_inducing(const kernel_t *k, points_t *p, int64_t start, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t f = 0; f < k->features; f++) set_row(k, p, i, f, point_feature(k, f, start + i));
}

/* Rows of inputs X (count, q). */
static void rows_of_inputs(const kernel_t *k, points_t *p, const double *X, int64_t count)
{
    const int64_t q = k->q;
    const double *restrict shift = k->shifts, *restrict unit = p->unit, *restrict from = X;
    double *restrict x = p->x, *restrict scaled = p->scaled_x;
    for (int64_t i = 0; k->plain && i < count; i++, from += q, x += q, scaled += q)
        for (int64_t f = 0; f < q; f++) {
            x[f] = from[f] - shift[f];
            scaled[f] = unit[f] * (from[f] - shift[f]);
        }
    for (int64_t i = 0; !k->plain && i < count; i++)
        for (int64_t f = 0; f < k->features; f++)
            set_row(k, p, i, f, feature(k, f, X[i * k->q + k->columns[f]] - k->shifts[f]));
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------------ */

/* K [row][lane], and the factors that it is made of. Where the kernel is one factor alone, K is its values. */
typedef struct {
    double *K, *scratch;
    factor_block_t factor[MAX_FACTORS];
} covariance_t;

static covariance_t take_covariance(const kernel_t *k, int64_t rows, int64_t places, int slopes, double **space)
{
    covariance_t c;
    c.K = take(space, rows * places);
    zero(c.K, rows * places);
    c.scratch = k->composite && slopes ? take(space, rows * places) : NULL;
    for (int64_t j = 0; j < k->factors; j++) {
        int64_t profile = k->factor[j].profile;
        double *value = k->composite ? take(space, rows * places) : c.K;
        int own = slopes && profile != RBF && profile != LINEAR && profile != BIAS;
        if (k->composite) zero(value, rows * places);
        c.factor[j] = (factor_block_t){value, own ? take(space, rows * places) : value, value};
        if (own) zero(c.factor[j].slope, rows * places);
        if (slopes && profile == RATIONAL) {
            c.factor[j].by_shape = take(space, rows * places);
            zero(c.factor[j].by_shape, rows * places);
        }
    }
    return c;
}

/* Multiply p by the values of a term's factors, but for the factor `without`. */
INLINE vec times_factors(const kernel_t *k, const covariance_t *c, int64_t term, int64_t without, vec p, int64_t at)
{
    for (int64_t j = 0; j < k->factors; j++)
        if (k->factor[j].term == term && j != without) p *= load(c->factor[j].value + at);
    return p;
}

static void covariance_block(const kernel_t *k, covariance_t *c, int slopes, const double *x, int64_t rows, const double *ZT,
                             int64_t lanes, int64_t places)
{
    for (int64_t j = 0; j < k->factors; j++)
        factor_block(k->factor + j, slopes, k->features, x, rows, ZT, lanes, c->factor[j], places);
    if (!k->composite) return;
    for (int64_t at = 0; at < rows * places; at += LANES) {
        vec sum = {0};
        for (int64_t t = 0; t < k->terms; t++) sum += times_factors(k, c, t, -1, splat(k->term_weights[t]), at);
        store(c->K + at, sum);
    }
}

/* k(x, x) of the row whose features are x, or of one term without its weight. */
static double term_diagonal(const kernel_t *k, const double *x, int64_t term, int64_t without)
{
    double product = 1;
    for (int64_t j = 0; j < k->factors; j++) {
        const factor_t *factor = k->factor + j;
        if (factor->profile != LINEAR || factor->term != term || j == without) continue;
        double sum = 0;
        for (int64_t f = factor->first; f < factor->last; f++) sum += k->weights[f] * x[f] * x[f];
        product *= sum;
    }
    return product;
}

static double diagonal(const kernel_t *k, const double *x)
{
    double sum = 0;
    for (int64_t t = 0; t < k->terms; t++) sum += k->term_weights[t] * term_diagonal(k, x, t, -1);
    return sum;
}

/* ---- gradients ------------------------------------------------------------------------------------------------------------ */

/* Sums over rows of the derivatives: of features of the lanes [feature][lane], and lane by lane of weights, and of the frequencies
 * of cosines [feature][LANES], of shapes [factor][LANES] and of the terms' weights [term][LANES]. */
typedef struct {
    double *features, *weights, *frequencies, *shapes, *terms;
} sums_t;

static sums_t take_sums(const kernel_t *k, int64_t places, double **space)
{
    return (sums_t){take(space, k->features * places), take(space, k->features * LANES), take(space, k->features * LANES),
                    take(space, k->factors * LANES), take(space, k->terms * LANES)};
}

static void clear_sums(const kernel_t *k, sums_t s, int64_t places)
{
    zero(s.features, k->features * places);
    zero(s.weights, k->features * LANES);
    zero(s.frequencies, k->features * LANES);
    zero(s.shapes, k->factors * LANES);
    zero(s.terms, k->terms * LANES);
}

/* With g = G W, W the slopes of the factor, and u = z - x, for NR rows: features[f][lane] -= sum of g u, and weights[f] += sum of
 * g u^2, lane by lane. LINEAR: += sum of g x, and of g x z. Even and odd rows have sums of their own, which need not wait for each
 * other. */
INLINE void gradient_rows(const int NR, const int DOT, const factor_t *factor, int64_t features, int64_t lanes, const double *x,
                          const double *ZT, const double *G, const double *W, int64_t places, sums_t s)
{
    for (int64_t j = 0; j < lanes; j += LANES) {
        vec g[LANES];
        for (int r = 0; r < NR; r++) g[r] = load(G + r * places + j) * load(W + r * places + j);
        for (int64_t f = factor->first; f < factor->last; f++) {
            double *first = s.features + f * places + j, *second = s.weights + f * LANES;
            vec z = load(ZT + f * places + j), sum1[2] = {{0}}, sum2[2] = {{0}};
            for (int r = 0; r < NR; r++) {
                vec u = DOT ? splat(x[r * features + f]) : z - splat(x[r * features + f]), gu = g[r] * u;
                sum1[r % 2] += gu;
                if (!DOT) sum2[r % 2] += gu * u;
            }
            if (DOT) {
                store(first, load(first) + (sum1[0] + sum1[1]));
                store(second, load(second) + (sum1[0] + sum1[1]) * z);
            } else {
                store(first, load(first) - (sum1[0] + sum1[1]));
                store(second, load(second) + (sum2[0] + sum2[1]));
            }
        }
    }
}

#define GRADIENT(name, DOT)                                                                                                     \
    static void name(const factor_t *factor, int64_t features, int64_t lanes, const double *x, int64_t rows, const double *ZT,  \
                     const double *G, const double *W, int64_t places, sums_t s)                                                \
    {                                                                                                                           \
        int64_t r = 0;                                                                                                          \
        for (; r + LANES <= rows; r += LANES)                                                                                   \
            gradient_rows(LANES, DOT, factor, features, lanes, x + r * features, ZT, G + r * places, W + r * places, places, s); \
        for (; r < rows; r++)                                                                                                   \
            gradient_rows(1, DOT, factor, features, lanes, x + r * features, ZT, G + r * places, W + r * places, places, s);    \
    }
GRADIENT(distance_gradient, 0)
GRADIENT(dot_gradient, 1)
#undef GRADIENT

static void factor_gradient(const factor_t *factor, int64_t features, int64_t lanes, const double *x, int64_t rows,
                            const double *ZT, const double *G, const double *W, int64_t places, sums_t s)
{
    if (factor->profile == LINEAR)
        dot_gradient(factor, features, lanes, x, rows, ZT, G, W, places, s);
    else
        distance_gradient(factor, features, lanes, x, rows, ZT, G, W, places, s);
}

/* By the frequency of a cosine and its sine: frequencies[f] += sum of g (v_z - v_x) sin(omega (v_z - v_x)), v the input itself, of
 * which the sine of the difference is that of features f and f + 1. */
static void frequency_gradient(const kernel_t *k, int64_t f, const double *inputs, int64_t lanes, const double *x, int64_t rows,
                               const double *ZT, const double *inputs_T, const double *G, const double *W, int64_t places,
                               sums_t s)
{
    vec sum = load(s.frequencies + f * LANES);
    for (int64_t r = 0; r < rows; r++) {
        vec c = splat(x[r * k->features + f]), d = splat(x[r * k->features + f + 1]), v = splat(inputs[r * k->features + f]);
        for (int64_t j = 0; j < lanes; j += LANES) {
            vec sine = load(ZT + (f + 1) * places + j) * c - load(ZT + f * places + j) * d;
            vec g = load(G + r * places + j) * load(W + r * places + j);
            sum += g * (load(inputs_T + f * places + j) - v) * sine;
        }
    }
    store(s.frequencies + f * LANES, sum);
}

/* The inputs behind cosines and sines, which the derivatives by frequency need: of lanes [feature][lane], of rows [row][feature]. */
typedef struct {
    double *lanes, *rows;
} inputs_t;

static inputs_t take_inputs(const kernel_t *k, int64_t rows, int64_t places, double **space)
{
    inputs_t inputs = {NULL, NULL};
    if (!k->composite) return inputs;
    inputs.lanes = take(space, k->features * places);
    inputs.rows = take(space, rows * k->features);
    zero(inputs.lanes, k->features * places);
    for (int64_t f = 0; f < k->features; f++)
        for (int64_t j = 0; j < k->m; j++)
            inputs.lanes[f * places + j] = k->Z[j * k->q + k->columns[f]] + k->center[k->columns[f]];
    return inputs;
}

/* The derivatives of sum G K through `rows` rows. */
static void covariance_gradient(const kernel_t *k, const covariance_t *c, const points_t *p, const inputs_t *inputs, int64_t rows,
                                const double *G, sums_t s)
{
    int64_t places = p->places, F = k->features;
    if (!k->composite) {
        factor_gradient(k->factor, F, k->m, p->x, rows, p->ZT, G, c->factor[0].slope, places, s);
        return;
    }
    for (int64_t t = 0; t < k->terms; t++) {
        vec by_weight = load(s.terms + t * LANES);
        for (int64_t at = 0; at < rows * places; at += LANES)
            by_weight += times_factors(k, c, t, -1, load(G + at), at);
        store(s.terms + t * LANES, by_weight);
    }
    for (int64_t j = 0; j < k->factors; j++) {
        const factor_t *factor = k->factor + j;
        if (factor->profile == BIAS) continue;
        vec by_shape = load(s.shapes + j * LANES), w = splat(k->term_weights[factor->term]);
        for (int64_t at = 0; at < rows * places; at += LANES) {
            vec others = times_factors(k, c, factor->term, j, w, at);
            if (factor->profile == RATIONAL) by_shape += others * load(G + at) * load(c->factor[j].by_shape + at);
            store(c->scratch + at, factor->profile == LINEAR ? others : others * load(c->factor[j].slope + at));
        }
        store(s.shapes + j * LANES, by_shape);
        factor_gradient(factor, F, k->m, p->x, rows, p->ZT, G, c->scratch, places, s);
        for (int64_t f = factor->first; f < factor->last; f++)
            if (k->frequencies[f] > 0)
                frequency_gradient(k, f, inputs->rows, k->m, p->x, rows, p->ZT, inputs->lanes, G, c->scratch, places, s);
    }
}

/* Numbers of a kernel's gradient: of Z (m, q), of the features' weights, and of a composite one also of frequencies (features),
 * shapes (factors) and the terms' weights. */
INLINE int64_t gradient_count(const kernel_t *k)
{
    return k->m * k->q + k->features + (k->composite ? k->features + k->factors + k->terms : 0);
}

/* Put the sums into the order of the gradient. A feature moves with its input by 1, or by the frequency times the other of a pair of
 * cosine and sine. */
static void finish_gradient(const kernel_t *k, const points_t *p, sums_t s, double *grad)
{
    int64_t m = k->m, q = k->q, nZ = m * q, F = k->features;
    zero(grad, gradient_count(k));
    for (int64_t f = 0; f < F; f++) { /* several features may be of one input */
        double frequency = k->frequencies[f], weight = k->weights[f], *by = s.features + f * p->places;
        double *to = grad + k->columns[f];
        if (frequency == 0)
            for (int64_t j = 0; j < m; j++) to[j * q] += weight * by[j];
        else {
            const double *other = p->ZT + (frequency > 0 ? f + 1 : f - 1) * p->places;
            for (int64_t j = 0; j < m; j++) to[j * q] -= weight * frequency * other[j] * by[j];
        }
        double total = lane_sum(load(s.weights + f * LANES));
        grad[nZ + f] = factor_of(k, f)->profile == LINEAR ? total : -0.5 * total;
    }
    if (!k->composite) return;
    for (int64_t f = 0; f < F; f++) grad[nZ + F + f] = -k->weights[f] * lane_sum(load(s.frequencies + f * LANES));
    for (int64_t j = 0; j < k->factors; j++) grad[nZ + 2 * F + j] = lane_sum(load(s.shapes + j * LANES));
    for (int64_t t = 0; t < k->terms; t++) grad[nZ + 2 * F + k->factors + t] = lane_sum(load(s.terms + t * LANES));
}

/* Add the derivatives of sum_i by_diagonal k(x_i, x_i) by one row, whose features are x. */
static void add_diagonal_gradient(const kernel_t *k, const double *x, double by_diagonal, double *grad)
{
    int64_t nZ = k->m * k->q, F = k->features;
    for (int64_t t = 0; t < k->terms; t++)
        grad[nZ + 2 * F + k->factors + t] += by_diagonal * term_diagonal(k, x, t, -1);
    for (int64_t j = 0; j < k->factors; j++) {
        const factor_t *factor = k->factor + j;
        if (factor->profile != LINEAR) continue;
        double others = by_diagonal * k->term_weights[factor->term] * term_diagonal(k, x, factor->term, j);
        for (int64_t f = factor->first; f < factor->last; f++) grad[nZ + f] += others * x[f] * x[f];
    }
}

#endif
