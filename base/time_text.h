/*
 * Times as people and Prometheus's clients write them.
 */
#ifndef RIMSTONE_BASE_TIME_TEXT_H
#define RIMSTONE_BASE_TIME_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

/* The times that stand for "no bound". */
#define TIME_MIN_MS (-(INT64_MAX / 4))
#define TIME_MAX_MS (INT64_MAX / 4)

/* A number as Go's strconv.ParseFloat takes it: one too large for a double is none, "Inf" is. */
bool seconds_parse(struct str text, double *out);
/* Unix seconds with fraction, or RFC 3339. Milliseconds, clamped to the range above. ERR_INVALID:
 * `cannot parse "x" to a valid timestamp`. */
MUST_USE enum err time_parse(struct str text, int64_t *out_ms, struct errinfo *ei);

#endif
