/*
 * JSON text as Prometheus's HTTP API writes it.
 */
#ifndef RIMSTONE_API_JSON_INTERNAL_H
#define RIMSTONE_API_JSON_INTERNAL_H

#include <stdint.h>

#include "base/bytes.h"
#include "engine/labels.h"

void json_write_raw(struct byte_writer *w, const char *text);
/* A quoted string; control characters, quotes and backslashes escaped, bytes that are no UTF-8
 * replaced by U+FFFD. No HTML escaping: both spellings are the same JSON. */
void json_write_string(struct byte_writer *w, struct str s);
/* Milliseconds as seconds with up to three decimals: 1700000000, 1700000000.05. */
void json_write_time(struct byte_writer *w, int64_t t_ms);
/* {"name":"value",...} */
void json_write_labels(struct byte_writer *w, const struct labels *l);
/* [<time>,"<value>"], the value as in samples ('f' or 'e' form) or always in 'f' form. */
void json_write_point(struct byte_writer *w, int64_t t_ms, double value);
void json_write_point_f(struct byte_writer *w, int64_t t_ms, double value);
/* A number with full precision, for statistics. */
void json_write_number(struct byte_writer *w, double value);

#endif
