/*
 * Columns for the codecs' tests: values and timestamps of every model the codecs were made for, and
 * of those they were not.
 */
#ifndef RIMSTONE_TESTS_ENGINE_CODEC_COLUMNS_H
#define RIMSTONE_TESTS_ENGINE_CODEC_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "tests/lib/test_support.h"

enum { COLUMN_HOSTILE_COUNT = 32 };
extern const uint64_t column_hostile_bits[COLUMN_HOSTILE_COUNT];

enum column_model {
    COLUMN_CONSTANT,
    COLUMN_COUNTER,
    COLUMN_COUNTER_RESETS,
    COLUMN_GAUGE,
    COLUMN_NOISE,
    COLUMN_RARE,
    COLUMN_PAGES, /* multiples of a power of two */
    COLUMN_BURSTS,
    COLUMN_CURVE,
    COLUMN_DOUBLES,
    COLUMN_SIGNED_DOUBLES,
    COLUMN_WALK,
    COLUMN_FLOATS,
    COLUMN_TOGGLE, /* between two hostile values */
    COLUMN_STEPS,  /* hostile values that stay for a while */
    COLUMN_HOSTILE,
    COLUMN_BITS,
    COLUMN_HUGE, /* whole numbers up to 2^63 */
    COLUMN_MODEL_COUNT,
};

double column_hostile(struct test_random *r);
void column_fill(struct test_random *r, enum column_model model, double *v, size_t n);
/* A length that is likely to be a border case, at most 3840. */
size_t column_length(struct test_random *r);

enum times_model {
    TIMES_REGULAR,
    TIMES_MISSED,
    TIMES_MISSED_JITTER,
    TIMES_JITTER,
    TIMES_DRIFT,
    TIMES_EVENTS,
    TIMES_REPEATS, /* some timestamps repeat */
    TIMES_CHAOS,
    TIMES_MODEL_COUNT,
};

void times_fill(struct test_random *r, enum times_model model, int64_t *t, size_t n);

#endif
