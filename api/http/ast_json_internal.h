/*
 * A syntax tree as JSON, in the shape that Prometheus's user interface and Perses draw.
 */
#ifndef RIMSTONE_API_HTTP_AST_JSON_INTERNAL_H
#define RIMSTONE_API_HTTP_AST_JSON_INTERNAL_H

#include <stddef.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "promql/ast.h"

/* Appends the tree; scratch comes from `arena`. ERR_LIMIT when the arena refuses or the text would
 * be longer than `size_max`. */
MUST_USE enum err json_write_ast(struct byte_writer *w, const struct node *n, size_t size_max,
                                 struct arena *arena, struct errinfo *ei);

/* "scalar", "vector", "matrix" or "string", as the API names types. */
const char *value_type_text(enum value_type type);

#endif
