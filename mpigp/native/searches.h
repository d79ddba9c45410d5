/* Many small problems of minimisation: the memory that they take, and what a round of theirs is made of. */
#ifndef MPIGP_SEARCHES_H
#define MPIGP_SEARCHES_H

#include <stdint.h>

#define SEARCH_MEMORY 8 /* steps that a problem remembers */

/* n problems of k variables: `records` has a record for each, at a multiple of 64 bytes. */
typedef struct {
    int64_t n, k;
    double *records;
} searches_t;

static inline int64_t search_places(int64_t k) { return (k + 7) / 8 * 8; }
static inline int64_t search_record(int64_t k) { return 8 + SEARCH_MEMORY + (4 + 2 * SEARCH_MEMORY) * search_places(k); }

#endif
