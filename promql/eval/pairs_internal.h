/*
 * Two doubles at once, for loops that compare: the compiler does not vectorise these by itself,
 * since a comparison with a NaN might trap.
 */
#ifndef RIMSTONE_PROMQL_EVAL_PAIRS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_PAIRS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef double pair __attribute__((vector_size(16)));
typedef int64_t pair_mask __attribute__((vector_size(16))); /* of a comparison: all bits or none */

static inline pair pair_load(const double *p)
{
    pair v;

    memcpy(&v, p, sizeof v);
    return v;
}
static inline void pair_store(double *p, pair v)
{
    memcpy(p, &v, sizeof v);
}
static inline bool pair_any(pair_mask m)
{
    return (m[0] | m[1]) != 0;
}
/* a where the mask is set, b elsewhere. */
static inline pair pair_select(pair_mask m, pair a, pair b)
{
    return (pair)(((pair_mask)a & m) | ((pair_mask)b & ~m));
}
static inline pair pair_abs(pair v)
{
    const pair_mask sign = {INT64_MIN, INT64_MIN};

    return (pair)((pair_mask)v & ~sign);
}

#endif
