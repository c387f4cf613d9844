/*
 * Request parameters: percent decoding, form parsing, and the texts of Prometheus's API for times,
 * durations and limits.
 */
#ifndef RIMSTONE_API_HTTP_PARAMS_INTERNAL_H
#define RIMSTONE_API_HTTP_PARAMS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/time_text.h"

struct param {
    struct str name, value; /* in the arena */
};

/* In the order of Go's Request.Form: the body's before the URL's. */
struct params {
    struct param *items; /* in the arena */
    size_t count, capacity;
};

enum { PARAM_COUNT_MAX = 10000 };

/* Decodes %XX, and '+' as a space when `plus_is_space`. ERR_INVALID with Go's text
 * (`invalid URL escape "%zz"`). */
MUST_USE enum err percent_decode(struct str text, bool plus_is_space, struct arena *arena,
                                 struct str *out, struct errinfo *ei);
/* Appends the parameters of `a=b&c=d`. */
MUST_USE enum err params_parse(struct params *p, struct str text, struct arena *arena,
                               struct errinfo *ei);
/* The first value of `name`, or the empty string, as Go's FormValue(). */
struct str params_get(const struct params *p, const char *name);
size_t params_count(const struct params *p, const char *name);

/* Seconds as a number, or a duration such as 1h30m, in milliseconds (rounded to the nearest; a
 * positive duration below one is one). ERR_INVALID: `cannot parse "x" to a valid duration`. */
MUST_USE enum err param_duration_parse(struct str text, int64_t *out_ms, struct errinfo *ei);
/* Empty: 0. ERR_INVALID with Prometheus's text. */
MUST_USE enum err param_limit_parse(struct str text, size_t *out, struct errinfo *ei);

/* `U__` escaped label names of URL paths (values-encoding of UTF-8 names); anything that is not
 * such an escape comes back as it is. NULL data when the arena refuses. */
struct str label_name_unescape(struct str name, struct arena *arena);

#endif
