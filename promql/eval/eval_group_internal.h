/*
 * limit_ratio(): which series a share keeps. Users see the same ones as in Prometheus.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_GROUP_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_GROUP_INTERNAL_H

#include "promql/eval/eval_internal.h"

/* Where each row's label set lies in [0, 1): `in->count` numbers in `arena`. */
MUST_USE enum err ratio_offsets(const struct vector *in, struct arena *arena, double **out,
                                struct errinfo *ei);
/* A ratio from 0 on keeps the label sets below it, a negative one those from 1 + ratio on, so that
 * r and r - 1 share all series between them. Beyond -1 and 1 is the same as there. */
bool ratio_keeps(double ratio, double offset);

#endif
