/*
 * Text as Go prints and reads it, for the parser and the formatter: quoted strings, characters in
 * error messages, durations.
 */
#ifndef RIMSTONE_PROMQL_PARSE_TEXT_INTERNAL_H
#define RIMSTONE_PROMQL_PARSE_TEXT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

enum { RUNE_EOF = -1, RUNE_ERROR = 0xFFFD, RUNE_TEXT_SIZE = 32, DURATION_TEXT_SIZE = 64 };

/* Decodes the first character of `text`: RUNE_EOF and width 0 at the end, RUNE_ERROR and width 1
 * for bytes that are no UTF-8. */
int32_t rune_decode(struct str text, unsigned *width);
/* The character as Go's %q prints it: 'x', '\n', '\u00a0'. */
void rune_quote(int32_t rune, char out[RUNE_TEXT_SIZE]);
/* The character as Go's %#U prints it: U+0063 'c'. */
void rune_format_unicode(int32_t rune, char out[RUNE_TEXT_SIZE]);

/* str_quote() as a string in the arena; a short substitute when the arena refuses, so that the
 * error message it is made for still comes through. */
const char *text_quote(struct str text, struct arena *arena);
/* Reads a PromQL string literal with its quotes ("...", '...' or `...`); the result lives in
 * `arena`. ERR_INVALID when it is malformed, else what arena_error() says. */
MUST_USE enum err text_unquote(struct str literal, struct arena *arena, struct str *out);

/* Prometheus's text of a duration: weeks and years only when nothing is left over. */
size_t duration_format(int64_t ms, char out[DURATION_TEXT_SIZE]);
/* Prometheus's duration text in nanoseconds; false with the reason in *reason (in the arena). */
bool duration_parse_ns(struct str text, struct arena *arena, uint64_t *out_ns, const char **reason);

#endif
