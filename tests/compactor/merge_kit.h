/*
 * Random parts of one shard and the plain list of samples they are compared with.
 */
#ifndef RIMSTONE_TESTS_COMPACTOR_MERGE_KIT_H
#define RIMSTONE_TESTS_COMPACTOR_MERGE_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "compactor/merge.h"
#include "engine/histogram.h"
#include "engine/part.h"
#include "tests/lib/test_support.h"

#define MERGE_KIT_START INT64_C(1700006400000) /* a border of 8 h */
#define MERGE_KIT_HOUR INT64_C(3600000)
enum { MERGE_KIT_HISTOGRAMS_MAX = 60 }; /* in a chunk */

struct merge_kit_series {
    struct labels labels;
    struct hash128 fingerprint;
};
struct merge_kit_sample {
    uint32_t series;
    int64_t t_ms;
    uint64_t generation;
    double value;
    const struct histogram *histogram; /* NULL: a float; in the kit's arena, or the list's */
    uint64_t position; /* what was written: of the series' samples in that source, its number */
};
struct merge_kit_list {
    struct merge_kit_sample *items; /* owned */
    size_t count, capacity;
    struct arena arena; /* of what was read */
};
struct merge_kit {
    struct test_random *random;
    struct arena arena;
    struct merge_kit_series *series; /* in storage order; owned */
    size_t series_count;
    struct merge_kit_list written; /* all that went into parts */
    unsigned histogram_percent;    /* so many chunks are of histograms */
};

void merge_kit_init(struct merge_kit *k, struct test_random *r, size_t series_count);
void merge_kit_done(struct merge_kit *k);

struct part_key merge_kit_key(int64_t first_hour, int64_t hours, uint64_t generation);

struct merge_kit_shape {
    unsigned presence_percent; /* of the series are in the part */
    size_t chunks_max, samples_max;
    bool regular; /* all timestamps 15 s apart, chunks of samples_max */
};
/* Writes a random part into `dir` of the store and enters its samples. */
void merge_kit_part(struct merge_kit *k, struct part_store *s, const char *dir,
                    const struct part_key *key, struct merge_kit_shape shape);

/* By series and time, of repeats the lowest generation. */
void merge_kit_list_settle(struct merge_kit_list *l);
void merge_kit_list_push(struct merge_kit_list *l, struct merge_kit_sample s);
void merge_kit_list_copy(struct merge_kit_list *to, const struct merge_kit_list *from);
void merge_kit_list_done(struct merge_kit_list *l);

/* Appends all samples of an open part, by the generation of its key. */
void merge_kit_read(const struct merge_kit *k, struct part *p, struct merge_kit_list *out);
/* `n` random histograms in the kit's arena if the next chunk is to be of them, else NULL. */
struct histogram *merge_kit_histograms(struct merge_kit *k, size_t n);
/* Both settled. What a histogram's hint says of the sample before may be lost, and must be where
 * that sample is not there. */
void merge_kit_check_equal(const struct merge_kit_list *expected, const struct merge_kit_list *got);

#endif
