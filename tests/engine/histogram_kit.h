/*
 * Histograms for tests: counters as clients send them, and layouts and counts that nobody would.
 */
#ifndef RIMSTONE_TESTS_ENGINE_HISTOGRAM_KIT_H
#define RIMSTONE_TESTS_ENGINE_HISTOGRAM_KIT_H

#include "engine/histogram.h"
#include "tests/lib/test_support.h"

enum histogram_model {
    HISTOGRAMS_COUNTER,   /* exponential, growing, few layouts; integral */
    HISTOGRAMS_CUSTOM,    /* custom buckets, growing */
    HISTOGRAMS_FRACTIONS, /* rates: doubles in few layouts */
    HISTOGRAMS_RESTS,     /* the same again and again */
    HISTOGRAMS_STALE,     /* counters with staleness markers between them */
    HISTOGRAMS_HOSTILE,   /* any layout, any bits */
    HISTOGRAMS_SINCE,     /* counters and floats with start timestamps */
    HISTOGRAMS_MODEL_COUNT,
};

/* Fills h[0..n); everything lives in `arena`. Each passes histogram_check_layout(). */
void histograms_fill(struct test_random *r, enum histogram_model model, struct arena *arena,
                     struct histogram *h, size_t n);
/* One with any layout and small whole counts, some 0; schema -4 to 8, or custom. */
struct histogram histogram_any(struct test_random *r, struct arena *arena);
/* Any of the models, with any hints. */
void histograms_fill_any(struct test_random *r, struct arena *arena, struct histogram *h, size_t n);
/* Whether a reader may give `got` for what was written as h: the same bits, but that a hint may say
 * less than it did, and must where the sample before is not the one it speaks of. */
bool histogram_is_answer(const struct histogram *h, const struct histogram *got, bool follows);
/* Equal in every bit, spans and hints included. */
bool histogram_same_bits(const struct histogram *a, const struct histogram *b);

#endif
