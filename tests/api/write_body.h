/*
 * Remote-write bodies for tests, encoded as clients do and in every other way that protobuf allows.
 */
#ifndef RIMSTONE_TESTS_WRITE_BODY_H
#define RIMSTONE_TESTS_WRITE_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "engine/histogram.h"
#include "tests/lib/test_support.h"

/* Fields. `padding` bytes are added to each varint. */
void body_tag(struct byte_writer *w, unsigned field, unsigned wire, unsigned padding);
void body_varint(struct byte_writer *w, uint64_t v, unsigned padding);
void body_bytes(struct byte_writer *w, unsigned field, const void *data, size_t size);

/* A Label field as encoders write it. */
void body_label(struct byte_writer *series, const char *name, const char *value);
/* A Sample field; a value of +0 is left out, as encoders do. */
void body_sample(struct byte_writer *series, int64_t t_ms, double value);
/* A Histogram field as encoders write it: an integer histogram if is_float is false (all counts are
 * whole numbers then), and packed fields. */
void body_histogram(struct byte_writer *series, int64_t t_ms, const struct histogram *h,
                    bool is_float);
/* A TimeSeries field holding `series`. */
void body_series(struct byte_writer *body, const struct byte_writer *series);

/* A valid WriteRequest with everything random: order, padding, unknown fields, repeats. */
void body_random(struct byte_writer *body, struct test_random *random);

/* `body` as one snappy block. */
void body_snappy(const struct byte_writer *body, struct byte_writer *out);

#endif
