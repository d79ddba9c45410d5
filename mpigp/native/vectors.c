/* Exponentials and dot products of vectors. Compiled once for each instruction set. */
#include "products.h"

INLINE void exponential_of(const double *x, double *out)
{
    const vec_anywhere *from = (const vec_anywhere *)x;
    vec_anywhere *to = (vec_anywhere *)out;
    vec a = LOG2E * from[0], b = LOG2E * from[1], c = LOG2E * from[2], d = LOG2E * from[3];
    exp2_vectors(&a, &b, &c, &d);
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

void ISA(exponential)(const double *x, double *out, int64_t n, int64_t repeat)
{
    for (int64_t r = 0; r < repeat; r++) {
        int64_t i = 0;
        for (; i + 4 * LANES <= n; i += 4 * LANES) exponential_of(x + i, out + i);
        if (i < n) {
            double rest[4 * LANES] = {0};
            memcpy(rest, x + i, (size_t)(n - i) * sizeof(double));
            exponential_of(rest, rest);
            memcpy(out + i, rest, (size_t)(n - i) * sizeof(double));
        }
        __asm__ volatile("" ::: "memory"); /* so that no repetition is left out */
    }
}

INLINE void dots_tile(const int NJ, const double *left, const double *right, int64_t stride, int64_t count, double *out)
{
    vec s[TALL];
    int64_t t = 0;
    for (int j = 0; j < TALL; j++) s[j] = (vec){0};
    for (; t + LANES <= count; t += LANES) {
        vec x = *(const vec_anywhere *)(left + t);
        for (int j = 0; j < NJ; j++) s[j] += x * *(const vec_anywhere *)(right + j * stride + t);
    }
    four sums = lane_sums(s[0], s[1], s[2], s[3]);
    for (int j = 0; j < NJ; j++) {
        for (int64_t r = t; r < count; r++) sums[j] += left[r] * right[j * stride + r];
        out[j] = sums[j];
    }
}

/* out[chunk][i][j] = the product of left i and right j over a chunk; vectors lie `stride` apart. */
void ISA(chunk_dots)(const double *left, int64_t n_left, int64_t left_stride, const double *right, int64_t n_right,
                     int64_t right_stride, int64_t length, int64_t chunk, double *out)
{
    for (int64_t start = 0; start < length; start += chunk) {
        int64_t count = smaller(chunk, length - start);
        for (int64_t i = 0; i < n_left; i++, out += n_right) {
            const double *x = left + i * left_stride + start, *y = right + start;
            int64_t j = 0;
            for (; j + TALL <= n_right; j += TALL) dots_tile(TALL, x, y + j * right_stride, right_stride, count, out + j);
            for (; j < n_right; j++) dots_tile(1, x, y + j * right_stride, right_stride, count, out + j);
        }
    }
}

/* which[i] = the numbers of the `count` of right that have the largest dot products with left i, the largest first, and of equal
 * ones the first. The space is for (n_right + 7) (length + TALL) + 8 doubles, and `count` more. */
void ISA(largest_dots)(const double *left, int64_t n_left, const double *right, int64_t n_right, int64_t length,
                       int64_t count, int64_t *which, double *space)
{
    int64_t places = (n_right + LANES - 1) / LANES * LANES;
    double *panels = aligned(space), *products = panels + length * places, *largest = products + TALL * places;
    pack(right, 1, length, length, n_right, panels);
    for (int64_t start = 0; start < n_left; start += TALL) {
        int64_t rows = smaller(TALL, n_left - start);
        packed_product(left + start * length, length, rows, panels, length, n_right, 0, 0, products, places);
        for (int64_t i = 0; i < rows; i++, which += count) {
            for (int64_t c = 0; c < count; c++) largest[c] = -INFINITY, which[c] = 0;
            double least = -INFINITY;
            for (int64_t j = 0; j < n_right; j++) {
                double product = products[i * places + j];
                if (!(product > least)) continue;
                int64_t c = count - 1;
                for (; c > 0 && product > largest[c - 1]; c--) largest[c] = largest[c - 1], which[c] = which[c - 1];
                largest[c] = product, which[c] = j;
                least = largest[count - 1];
            }
        }
    }
}
