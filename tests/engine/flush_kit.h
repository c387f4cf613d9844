/*
 * Random sealed and late files of one shard, the index of their series, and the plain list of
 * samples that parts made of them are compared with.
 */
#ifndef RIMSTONE_TESTS_ENGINE_FLUSH_KIT_H
#define RIMSTONE_TESTS_ENGINE_FLUSH_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "engine/flush/flush_internal.h"
#include "tests/compactor/merge_kit.h"
#include "tests/lib/test_support.h"

#define FLUSH_KIT_WINDOW_MS INT64_C(7200000)
enum { FLUSH_KIT_FILES_MAX = 8 };

/* Of a series of the kit: where it is in the shard. */
struct flush_kit_series {
    uint32_t slot;
    uint16_t generation;
    bool is_wanted;
};

/*
 * merge.series are in storage order; merge.written has every sample of a wanted series; its
 * `generation` is that of the file with the number of the slice in the low bits: the order in which
 * they were acknowledged.
 */
struct flush_kit {
    struct fs *fs; /* borrowed */
    struct merge_kit merge;
    struct index *index;
    struct flush_kit_series *series; /* owned, by number */
    uint32_t *number_of;             /* owned, by slot: number + 1, or 0 */
    uint32_t slot_end;
    struct sealed_source sources[FLUSH_KIT_FILES_MAX];
    struct sealed_view views[FLUSH_KIT_FILES_MAX];
    size_t view_count;
};

void flush_kit_init(struct flush_kit *k, struct test_random *r, struct fs *fs, size_t series_count);
void flush_kit_done(struct flush_kit *k);

/* Adds a file with random slices. A sealed one has samples from `first_hour` on, for about
 * `hours`, each series' in order; those of a late one lie anywhere in these hours. */
void flush_kit_file(struct flush_kit *k, enum sealed_kind kind, int64_t first_hour, int64_t hours,
                    size_t slice_count);

/* For struct flush_window; ctx is the kit. */
void flush_kit_lookup(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out);

/* Settled: what a part of that window must hold. `tombstones` may be NULL. */
void flush_kit_expect(const struct flush_kit *k, const struct part_key *key,
                      const struct tombstone_list *tombstones, struct merge_kit_list *out);

#endif
