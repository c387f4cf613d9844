/*
 * Text work of the label functions, apart from the operators so that tests reach it.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_LABELS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_LABELS_INTERNAL_H

#include "base/bytes.h"
#include "promql/eval/eval_internal.h"

/* Natural order: runs of digits compare as numbers, everything else as bytes. */
int natural_compare(struct str a, struct str b);

#endif
