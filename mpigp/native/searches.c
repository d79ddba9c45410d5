/* L-BFGS on many small problems side by side, as mpigp/gp/batch_lbfgs.py has it. Compiled once for each instruction set.
 *
 * A problem has a record of its own, so that all it needs lies together: scalars, then vectors of k numbers, padded with zeros
 * to `places`. Points are kept in `units` of the problem. */
#include "sums.h"

#define SUFFICIENT 1e-4 /* Armijo's condition: of what the slope promises, a step must gain so much */
#define FIRST_STEP 0.5  /* length of the first step of all */
#define SMALL_STEPS 3   /* as many steps in a row that gain next to nothing end a problem */

enum { VALUE, SLOPE, STEP, KNOWN, SMALL }; /* KNOWN: steps that were remembered, -1 before the first evaluation */

typedef struct {
    double *scalars, *curvature, *units, *point, *gradient, *direction, *steps, *changes;
} problem_t;

INLINE problem_t problem_at(const searches_t *s, int64_t number)
{
    double *record = s->records + number * search_record(s->k);
    int64_t places = search_places(s->k);
    problem_t p = {.scalars = record, .curvature = record + 8, .units = record + 8 + SEARCH_MEMORY};
    p.point = p.units + places;
    p.gradient = p.point + places;
    p.direction = p.gradient + places;
    p.steps = p.direction + places;
    p.changes = p.steps + SEARCH_MEMORY * places;
    return p;
}

INLINE double inner(const double *a, const double *b, int64_t places)
{
    vec s = {0};
    for (int64_t i = 0; i < places; i += LANES) s += load(a + i) * load(b + i);
    return lane_sums(s, s, s, s)[0];
}

/* a += factor b */
INLINE void add(double *a, double factor, const double *b, int64_t places)
{
    for (int64_t i = 0; i < places; i += LANES) store(a + i, load(a + i) + factor * load(b + i));
}

/* The direction by the two-loop recursion, and a full step along it. */
static void direct(const problem_t *p, int64_t places)
{
    double *d = p->direction, factor[SEARCH_MEMORY], scale = 1;
    int64_t known = (int64_t)p->scalars[KNOWN], oldest = known > SEARCH_MEMORY ? known - SEARCH_MEMORY : 0;
    memcpy(d, p->gradient, (size_t)places * sizeof(double));
    for (int64_t t = known - 1; t >= oldest; t--) {
        int64_t slot = t % SEARCH_MEMORY;
        factor[slot] = p->curvature[slot] * inner(p->steps + slot * places, d, places);
        add(d, -factor[slot], p->changes + slot * places, places);
    }
    if (known) {
        const double *y = p->changes + (known - 1) % SEARCH_MEMORY * places;
        scale = 1 / (p->curvature[(known - 1) % SEARCH_MEMORY] * inner(y, y, places));
    }
    for (int64_t i = 0; i < places; i += LANES) store(d + i, scale * load(d + i));
    for (int64_t t = oldest; t < known; t++) {
        int64_t slot = t % SEARCH_MEMORY;
        double back = p->curvature[slot] * inner(p->changes + slot * places, d, places);
        add(d, factor[slot] - back, p->steps + slot * places, places);
    }
    double length = sqrt(inner(d, d, places)), shorten = known || length <= FIRST_STEP ? 1 : FIRST_STEP / length;
    p->scalars[SLOPE] = -shorten * inner(d, p->gradient, places);
    p->scalars[STEP] = 1;
    for (int64_t i = 0; i < places; i += LANES) store(d + i, -shorten * load(d + i));
}

/* Go to the point that was tried, whose gradient in units is `by`, and remember the step where its curvature is positive. */
static void take_step(const problem_t *p, double value, const double *by, double tolerance, int64_t places)
{
    double *scalars = p->scalars, before = scalars[VALUE];
    int64_t slot = (int64_t)scalars[KNOWN] % SEARCH_MEMORY;
    double *step = p->steps + slot * places, *change = p->changes + slot * places;
    /* The oldest step is forgotten even where the new one is not remembered: rare, and then it says little. */
    for (int64_t i = 0; i < places; i += LANES) {
        store(step + i, scalars[STEP] * load(p->direction + i));
        store(change + i, load(by + i) - load(p->gradient + i));
        store(p->point + i, load(p->point + i) + load(step + i));
        store(p->gradient + i, load(by + i));
    }
    double product = inner(step, change, places);
    if (product > 1e-12 * inner(change, change, places)) {
        p->curvature[slot] = 1 / product;
        scalars[KNOWN] += 1;
    } else
        p->curvature[slot] = 0;
    scalars[SMALL] = before - value <= tolerance * (1 + fabs(before)) ? scalars[SMALL] + 1 : 0;
    scalars[VALUE] = value;
}

void ISA(search_begin)(const searches_t *s, const double *start, const double *units)
{
    int64_t places = search_places(s->k);
    zero(s->records, s->n * search_record(s->k));
    for (int64_t row = 0; row < s->n; row++) {
        problem_t p = problem_at(s, row);
        p.scalars[VALUE] = INFINITY;
        p.scalars[KNOWN] = -1;
        for (int64_t i = 0; i < places; i++) p.units[i] = i < s->k ? units[row * s->k + i] : 1;
        for (int64_t i = 0; i < s->k; i++) p.point[i] = start[row * s->k + i] / p.units[i];
    }
}

int64_t ISA(search_advance)(const searches_t *s, int64_t *alive, int64_t count, const double *values,
                            const double *gradients, double tolerance, double *by)
{
    int64_t places = search_places(s->k), left = 0;
    zero(by, places);
    for (int64_t j = 0; j < count; j++) {
        problem_t p = problem_at(s, alive[j]);
        double *scalars = p.scalars;
        for (int64_t i = 0; i < s->k; i++) by[i] = gradients[j * s->k + i] * p.units[i];
        int goes_on;
        if (scalars[KNOWN] < 0) {
            goes_on = isfinite(values[j]);
            if (goes_on) scalars[VALUE] = values[j];
            scalars[KNOWN] = 0;
            memcpy(p.gradient, by, (size_t)places * sizeof(double));
            if (goes_on) direct(&p, places);
        } else {
            if (values[j] <= scalars[VALUE] + SUFFICIENT * scalars[STEP] * scalars[SLOPE]) { /* not where it is NaN */
                take_step(&p, values[j], by, tolerance, places);
                direct(&p, places);
            } else
                scalars[STEP] *= 0.5;
            double promise = -scalars[STEP] * scalars[SLOPE]; /* what the next step gains, to first order */
            goes_on = scalars[SMALL] < SMALL_STEPS && promise > 0.01 * tolerance * (1 + fabs(scalars[VALUE]));
        }
        if (goes_on) alive[left++] = alive[j];
    }
    return left;
}

void ISA(search_points)(const searches_t *s, const int64_t *numbers, int64_t count, int ahead, double *points)
{
    for (int64_t j = 0; j < count; j++) {
        problem_t p = problem_at(s, numbers[j]);
        double step = ahead && p.scalars[KNOWN] >= 0 ? p.scalars[STEP] : 0;
        for (int64_t i = 0; i < s->k; i++) { /* a direction that is not finite is no part of a point */
            double ahead_of = step != 0 ? p.point[i] + step * p.direction[i] : p.point[i];
            points[j * s->k + i] = ahead_of * p.units[i];
        }
    }
}
