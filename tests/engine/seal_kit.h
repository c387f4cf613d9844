/*
 * A store of a few series against a plain model: what was sent and acknowledged, through seals and
 * restarts.
 */
#ifndef RIMSTONE_TESTS_SEAL_KIT_H
#define RIMSTONE_TESTS_SEAL_KIT_H

#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"

enum { SEAL_SERIES_MAX = 2048, SEAL_SHARDS = 4 };

struct seal_samples {
    int64_t *t_ms;
    double *value;
    bool *acknowledged;
    size_t count, capacity;
};

struct seal_model {
    struct seal_samples series[SEAL_SERIES_MAX];
    size_t series_count;
    int64_t now_ms; /* of the fake clock, and of the next samples */
    struct test_random random;
};

void seal_model_init(struct seal_model *m, size_t series_count, uint64_t seed);
void seal_model_done(struct seal_model *m);
const char *seal_series_name(size_t series, char out[64]);
/* Opens with SEAL_SHARDS shards, at the model's time. */
enum err seal_try_open(struct kit *k, struct fs *fs, const struct seal_model *m);
enum err seal_try_open_with(struct kit *k, struct fs *fs, const struct seal_model *m,
                            uint32_t shard_count);
void seal_open(struct kit *k, struct fs *fs, const struct seal_model *m);
/* Moves the clock. */
void seal_advance(struct kit *k, struct seal_model *m, int64_t ms);
/* One sample each for about `share` percent of the series at the model's time; true when it was
 * acknowledged. */
bool seal_send(struct kit *k, struct seal_model *m, unsigned share);
/* The same without waiting: the caller waits with kit_wait() before it relies on the log. */
void seal_send_ahead(struct kit *k, struct seal_model *m, unsigned share);
/* One sample each for some series, older than their newest and new to them. */
bool seal_send_late(struct kit *k, struct seal_model *m, int64_t max_age_ms);
/* Seals all shards; the first error. */
enum err seal_all(struct kit *k, struct seal_result *total);
/* Every acknowledged sample is there once, bit for bit, and none that was not sent. */
void seal_check(struct kit *k, const struct seal_model *m);

#endif
