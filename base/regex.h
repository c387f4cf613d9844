/*
 * Regular expressions with RE2's syntax in linear time, behind one C++ shim. `(?<name>` is accepted
 * as `(?P<name>`; `\C` is refused. Compiled expressions are immutable and thread-safe.
 */
#ifndef RIMSTONE_BASE_REGEX_H
#define RIMSTONE_BASE_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

struct regex;

/* Byte range of a capture group; begin == SIZE_MAX: the group took no part. */
struct regex_span {
    size_t begin, end;
};

/* The memory bounds the program, to some 350,000 instructions, and so the time of a compilation,
 * which nothing can stop: half a second or so, where 256 MiB took three. An alternation that fills
 * a pattern needs 64,000. */
enum { REGEX_MAX_MEMORY_BYTES = 32 << 20, REGEX_MAX_PATTERN_BYTES = 64 << 10 };

/* Compiles `pattern` fully anchored as `^(?s:pattern)$`, as Prometheus does. ERR_INVALID with RE2's
 * reason, ERR_LIMIT when it is too long or too large. */
MUST_USE enum err regex_compile(struct str pattern, struct regex **out, struct errinfo *ei);
void regex_free(struct regex *re);
bool regex_match(const struct regex *re, struct str text);
/* Fills spans[0..span_count) (0: whole match); false when the text does not match. */
bool regex_captures(const struct regex *re, struct str text, struct regex_span *spans,
                    size_t span_count);
size_t regex_group_count(const struct regex *re); /* without group 0 */
/* Index of a named group, or 0 if there is none. */
size_t regex_group_index(const struct regex *re, struct str name);
/* Appends `template` with $1, ${1}, $name, ${name} and $$ replaced, as Go's Regexp.Expand does:
 * names are as long as possible, what matched nothing or does not exist is empty, a `$` that starts
 * no name is itself. `spans` are those of `source`, from regex_captures(). */
void regex_expand(const struct regex *re, struct str template, struct str source,
                  const struct regex_span *spans, size_t span_count, struct byte_writer *out);
/* Rough bytes held, for budgets. */
size_t regex_memory(const struct regex *re);

#endif
