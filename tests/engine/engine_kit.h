/*
 * An engine for tests: requests from plain calls, samples back as plain arrays.
 *
 * Labels on the "wire" are pairs of varint-length strings in the order given, so that tests can
 * send them unsorted, repeated, empty or broken.
 */
#ifndef RIMSTONE_TESTS_ENGINE_KIT_H
#define RIMSTONE_TESTS_ENGINE_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "engine/querier.h"
#include "engine/write.h"
#include "tests/lib/test_support.h"

#define KIT_NOW_MS 1767225600000 /* 2026-01-01T00:00:00Z, a multiple of two hours */

struct kit {
    struct fs *fs; /* borrowed */
    struct clock clock;
    struct engine *engine;
    struct engine_replay_result replay;
    struct write_batch *batch;
    struct write_result result;
    uint64_t *sequences;
    struct arena arena; /* wire bytes of the request at hand */
    struct errinfo ei;
};

/* Opens and replays; CHECKs that it works. `options` may be NULL; fs and clock are filled in. */
void kit_open(struct kit *k, struct fs *fs, const struct engine_options *options);
/* The same, but returns the error of engine_open() or engine_replay(); then nothing is open. */
enum err kit_try_open(struct kit *k, struct fs *fs, const struct engine_options *options);
/* Another user of an open engine, for one thread more; fs and clock are not used. Left with
 * kit_leave(). */
void kit_join(struct kit *k, struct engine *engine);
void kit_leave(struct kit *k);
void kit_close(struct kit *k);
/* As if the process had died. */
void kit_abandon(struct kit *k);

/* Adds a series to the request: `labels` is "name=value,name=value" in any order; a sample too. */
void kit_series(struct kit *k, const char *labels);
void kit_series_wire(struct kit *k, struct bytes wire);
void kit_sample(struct kit *k, int64_t t_ms, double value);
/* A histogram, whose arrays must stay until kit_write(). */
void kit_histogram(struct kit *k, int64_t t_ms, const struct histogram *h);
/* So that tests of floats are also tests of native histograms: whether a series' sample is one, for
 * a third of the series always, for a sixth of them at some times. */
bool kit_is_histogram(uint64_t series, int64_t t_ms);
/* kit_sample(), or the histogram that stands for the value: its sum, and buckets made of its bits.
 */
void kit_sample_of(struct kit *k, uint64_t series, int64_t t_ms, double value);
/* CHECKs that sample i of a column of that series is of its kind, and the histogram of its value.
 */
void kit_check_kind(uint64_t series, const struct column *c, size_t i);
/* engine_write(), then empties the request. */
enum err kit_write(struct kit *k);
/* Waits until what the last kit_write() touched is durable. */
enum err kit_wait(struct kit *k);
/* Write one sample and wait; CHECKs that it was stored or is a repeat. */
void kit_put(struct kit *k, const char *labels, int64_t t_ms, double value);

/* All samples of the series with exactly these labels, in the arena; false when there is none. */
bool kit_read(struct kit *k, struct arena *arena, const char *labels, int64_t min_time_ms,
              int64_t max_time_ms, struct column *out);
/* The same, but gives the error of the read; ERR_NOT_FOUND without such a series. */
enum err kit_try_read(struct kit *k, struct arena *arena, const char *labels, int64_t min_time_ms,
                      int64_t max_time_ms, struct column *out, struct errinfo *ei);
/* CHECKs that the series has `count` samples that fit t[] and v[] bit for bit. */
void kit_check(struct kit *k, const char *labels, size_t count, const int64_t *t_ms,
               const double *value);

#endif
