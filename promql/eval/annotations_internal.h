/*
 * Warnings and infos of a query. They are kept distinct by text before positions are added, as
 * Prometheus does, so that a million series give one line each kind and metric name.
 */
#ifndef RIMSTONE_PROMQL_EVAL_ANNOTATIONS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_ANNOTATIONS_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "promql/ast.h"
#include "promql/promql.h"

struct annotation_entry;

struct annotations {
    struct arena *arena;             /* borrowed */
    struct annotation_entry **slots; /* hash table by text */
    size_t slot_count, count;
};

/* Details of a forced monotonicity, merged over all of the same text. */
struct monotonicity_fix {
    int64_t t_ms;
    double min_bucket, max_bucket, max_diff;
};

void annotations_init(struct annotations *a, struct arena *arena);
/* Text without the "PromQL warning: " prefix and without position. */
MUST_USE enum err annotations_add(struct annotations *a, enum annotation_kind kind,
                                  struct position_range position, struct errinfo *ei,
                                  const char *format, ...) PRINTF_LIKE(5, 6);
/* "quantile value should be between 0 and 1, got ...". */
MUST_USE enum err annotations_add_quantile(struct annotations *a, struct position_range position,
                                           double q, struct errinfo *ei);
MUST_USE enum err annotations_add_monotonicity(struct annotations *a,
                                               struct position_range position,
                                               struct str metric_name,
                                               const struct monotonicity_fix *fix,
                                               struct errinfo *ei);
/* Adds those of `from`, which has none about monotonicity. */
MUST_USE enum err annotations_merge(struct annotations *a, const struct annotations *from,
                                    struct errinfo *ei);
/* All of them in the order of their positions, complete with prefix and position. */
MUST_USE enum err annotations_finish(struct annotations *a, struct str query,
                                     const struct annotation **out, size_t *out_count,
                                     struct errinfo *ei);

#endif
