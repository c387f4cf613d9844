/*
 * A frame's payload through replay: records, definitions, columns, and what they do to a shard. The
 * input is cut into up to four frames (a length byte pair before each). Must not crash or read out
 * of bounds, and whatever was applied must read back as ascending columns.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file_sim.h"
#include "engine/engine_internal.h"
#include "engine/histogram.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/read_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

enum { FRAME_MAX = 4, FRAME_ENTRIES = 100, INPUT_SIZE_MAX = 1 << 16 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void apply_frames(struct engine *e, const uint8_t *data, size_t size)
{
    struct wal_sink sink = engine_replay_sink(e);
    struct byte_reader in = reader_init(data, size);

    for (uint64_t i = 0; i < FRAME_MAX && reader_left(&in) > 0; i++) {
        size_t wanted = reader_le16(&in);
        size_t frame_size = wanted < reader_left(&in) ? wanted : reader_left(&in);
        const uint8_t *frame = reader_take(&in, frame_size);
        uint8_t *exact = malloc(frame_size + 1); /* so that ASan sees a read too far */
        enum err err;

        REQUIRE(exact != NULL);
        if (frame_size > 0 && frame != NULL)
            memcpy(exact + 1, frame, frame_size);
        err = sink.apply(sink.ctx, 0, 1 + i * FRAME_ENTRIES, FRAME_ENTRIES,
                         (struct bytes){exact + 1, frame == NULL ? 0 : frame_size}, NULL);
        REQUIRE(err == ERR_OK || err == ERR_CORRUPT || err == ERR_NOMEM);
        free(exact);
    }
}

static void read_back(struct engine *e)
{
    struct shard *s = engine_shard(e, 0);
    uint64_t sample_count = 0;

    for (uint32_t slot = 0; slot < s->series.slot_end; slot++) {
        struct series_meta meta;
        struct column column;
        struct arena arena;

        if (series_find(&s->series, slot) == NULL)
            continue;
        arena_init(&arena, NULL);
        shard_series_meta(s, &slot, 1, &meta);
        REQUIRE(kit_read_slots(s, &slot, &meta.generation, 1, INT64_MIN, INT64_MAX, &arena, &column,
                               NULL) == ERR_OK);
        for (size_t i = 0; i < column.count; i++) {
            const struct histogram *h = column.histogram == NULL ? NULL : column.histogram[i];

            REQUIRE(h == NULL || histogram_check_layout(h, NULL) == ERR_OK);
            REQUIRE(column.t_ms[i] >= meta.min_time_ms && column.t_ms[i] <= meta.max_time_ms);
            REQUIRE(i == 0 || column.t_ms[i] > column.t_ms[i - 1]);
        }
        sample_count += column.count;
        arena_done(&arena);
    }
    uint64_t in_order = atomic_load(&s->sample_count) + atomic_load(&s->histogram_count);
    /* A late sample may have a timestamp that one in order has too. */
    REQUIRE(sample_count >= in_order);
    REQUIRE(sample_count <= in_order + atomic_load(&s->late_count));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct engine_options options = {.shard_count = 1, .hash_secret_seed = 1};
    struct clock clock;
    struct engine *e;
    struct fs *fs;

    if (size > INPUT_SIZE_MAX)
        return 0;
    clock_init_fake(&clock, 0);
    REQUIRE(fs_sim_new(1, &fs, NULL) == ERR_OK);
    options.fs = fs;
    options.clock = &clock;
    REQUIRE(engine_open(&options, &e, NULL) == ERR_OK);
    apply_frames(e, data, size);
    read_back(e);
    engine_abandon(e);
    fs_free(fs);
    return 0;
}
