/*
 * Pieces of JSON text, as Prometheus writes them.
 */
#ifndef RIMSTONE_BASE_JSON_H
#define RIMSTONE_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

void json_write_raw(struct byte_writer *w, const char *text);
/* A quoted string; control characters, quotes and backslashes escaped, bytes that are no UTF-8
 * replaced by U+FFFD. No HTML escaping: both spellings are the same JSON. */
void json_write_string(struct byte_writer *w, struct str s);
enum { JSON_TIME_SIZE = 32 };
/* Milliseconds as seconds with up to three decimals: 1700000000, 1700000000.05. */
size_t json_format_time(int64_t t_ms, char out[JSON_TIME_SIZE]); /* returns how many; no NUL */
void json_write_time(struct byte_writer *w, int64_t t_ms);
/* The same with all three decimals or none: 1700000000, 1700000000.050. Prometheus writes the times
 * of samples so, those of scalars, strings and statistics as numbers. */
size_t json_format_sample_time(int64_t t_ms, char out[JSON_TIME_SIZE]);
void json_write_sample_time(struct byte_writer *w, int64_t t_ms);
/* A number with full precision, for statistics. */
void json_write_number(struct byte_writer *w, double value);

#endif
