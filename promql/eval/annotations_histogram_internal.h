/*
 * Annotations about native histograms, with Prometheus's texts.
 */
#ifndef RIMSTONE_PROMQL_EVAL_ANNOTATIONS_HISTOGRAM_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_ANNOTATIONS_HISTOGRAM_INTERNAL_H

#include <stdint.h>

#include "promql/eval/annotations_internal.h"
#include "promql/histogram_math.h"

/* At most 32: see told. */
enum histogram_annotation {
    HISTOGRAM_MIXED_WITH_FLOATS, /* in a range */
    HISTOGRAM_MIXED_IN_AGGREGATION,
    HISTOGRAM_MIXED_BUCKETS, /* exponential and custom ones */
    HISTOGRAM_MIXED_WITH_CLASSIC,
    HISTOGRAM_NOT_COUNTER,
    HISTOGRAM_NOT_GAUGE,
    HISTOGRAM_IGNORED_IN_RANGE,
    HISTOGRAM_NAN_QUANTILE,
    HISTOGRAM_NAN_SKEW,
    HISTOGRAM_NAN_FRACTION,
    HISTOGRAM_HINTS_ADDITION,
    HISTOGRAM_HINTS_SUBTRACTION,
    HISTOGRAM_HINTS_AGGREGATION,
    HISTOGRAM_BOUNDS_ADDITION,
    HISTOGRAM_BOUNDS_SUBTRACTION,
    HISTOGRAM_BOUNDS_AGGREGATION,
};

/* Says each thing once a metric name: reset `told` when that changes. */
struct histogram_annotator {
    struct annotations *annotations; /* borrowed */
    struct position_range position;
    struct str metric_name; /* may be empty; borrowed */
    uint32_t told;          /* bits */
};
MUST_USE enum err histogram_annotate(struct histogram_annotator *a, enum histogram_annotation what,
                                     struct errinfo *ei);
/* "ignored histogram in stddev aggregation". */
MUST_USE enum err annotations_add_ignored(struct annotations *a, struct position_range position,
                                          const char *aggregation, struct errinfo *ei);
/* The sample types of an operator that has no answer for them. */
MUST_USE enum err annotations_add_incompatible(struct annotations *a,
                                               struct position_range position, const char *op,
                                               bool left_is_histogram, bool right_is_histogram,
                                               struct errinfo *ei);

#endif
