/*
 * Printing a syntax tree on one line (format.c), in parts for what prints it on several (pretty.c).
 */
#ifndef RIMSTONE_PROMQL_PARSE_FORMAT_INTERNAL_H
#define RIMSTONE_PROMQL_PARSE_FORMAT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "promql/ast.h"

struct formatter {
    struct byte_writer w;
    struct arena *arena;
    bool failed;   /* the arena refused */
    size_t *sizes; /* takes the bytes of each node's text, by its id; NULL: not wanted */
};

void format_node(struct formatter *f, const struct node *n);
/* True where the left operand is written Inf, not +Inf: the base of a power. */
bool format_drops_plus(const struct node *binary);
/* `sum by (x) `, `== bool on (x) group_left ()`, `[5m:1m] offset 1h`. */
void format_aggregate_head(struct formatter *f, const struct node *n);
void format_operator(struct formatter *f, const struct node *n);
void format_subquery_suffix(struct formatter *f, const struct node *n);

#endif
