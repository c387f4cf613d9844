/*
 * Text work of the label functions, apart from the operators so that tests reach it.
 */
#ifndef RIMSTONE_PROMQL_EVAL_LABELS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_LABELS_INTERNAL_H

#include "base/bytes.h"
#include "base/regex.h"
#include "promql/eval_internal.h"

/* Appends `template` with $1, ${1}, $name, ${name} and $$ replaced, as Go's Regexp.Expand does:
 * names are as long as possible, what matched nothing or does not exist is empty, a `$` that starts
 * no name is itself. */
void template_expand(struct str template, const struct regex *re, struct str source,
                     const struct regex_span *spans, size_t span_count, struct byte_writer *out);
/* Natural order: runs of digits compare as numbers, everything else as bytes. */
int natural_compare(struct str a, struct str b);

#endif
