/* Where damage of a log is: every bad place is named, and a log that is only looked at stays as it
 * is. */
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/log.h"
#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"
#include "tests/wal/fake_owner.h"
#include "wal/scan_internal.h"
#include "wal/segment_internal.h"

enum { SHARDS = 3, PLACES_MAX = 64, FRAMES = 18 };

struct places {
    struct mutex lock; /* guards the rest */
    struct wal_damage items[PLACES_MAX];
    size_t count;
};

struct frame_place {
    uint32_t segment;
    uint64_t offset, end;
};

struct log_image {
    struct fs *fs;
    struct frame_place frames[FRAMES];
    size_t frame_count;
    uint32_t segment_count;
    uint64_t entries[SHARDS];
};

static void frames_find(struct log_image *log, uint32_t number)
{
    char path[WAL_PATH_SIZE];
    struct scan_identity id = {.segment_number = number, .shard_count = SHARDS};
    struct frame_scan scan;
    struct scan_frame f;
    size_t size, need;
    uint8_t *data;

    wal_segment_path(number, path);
    data = test_file_read(log->fs, path, &size);
    frame_scan_init(&scan, &id, size);
    frame_scan_window(&scan, data + SEGMENT_HEADER_SIZE, size - SEGMENT_HEADER_SIZE);
    while (frame_scan_next(&scan, &f, &need) == SCAN_FRAME) {
        CHECK(log->frame_count < FRAMES);
        log->frames[log->frame_count++] = (struct frame_place){
            number, f.offset, f.offset + FRAME_HEADER_SIZE + f.header.stored_size};
    }
    free(data);
}

static void log_build(struct log_image *log)
{
    struct fake_owner *o = fake_new(SHARDS);
    struct errinfo ei = {0};
    struct wal_options options;
    struct wal_stats stats;
    struct wal *w;

    *log = (struct log_image){.fs = test_fs_new(5)};
    options = fake_options(o, log->fs);
    options.segment_size_bytes = 700;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (uint32_t i = 0; i < FRAMES; i++) {
        o->entry_words = 1 + i % 3;
        CHECK_OK(fake_write(o, w, i % SHARDS, 1 + i % 5, &ei), &ei);
        log->entries[i % SHARDS] += 1 + i % 5;
    }
    wal_stats_get(w, &stats);
    log->segment_count = (uint32_t)stats.segment_current;
    CHECK(log->segment_count >= 3);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    for (uint32_t n = 1; n <= log->segment_count; n++)
        frames_find(log, n);
    CHECK(log->frame_count == FRAMES);
}

static void note_place(void *ctx, const struct wal_damage *damage)
{
    struct places *p = ctx;

    mutex_lock(&p->lock);
    CHECK(p->count < PLACES_MAX);
    p->items[p->count++] = *damage;
    mutex_unlock(&p->lock);
}

/* The sink's context is the owner for the tests' sink; here both are needed. */
struct looker {
    struct fake_owner *owner;
    struct places places;
};

static enum err look_apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                           struct bytes payload, struct errinfo *ei)
{
    struct wal_sink sink = fake_sink(((struct looker *)ctx)->owner);

    return sink.apply(sink.ctx, shard, first_sequence, entry_count, payload, ei);
}

static void look_lost(void *ctx, uint32_t shard, uint64_t from, uint64_t to)
{
    struct wal_sink sink = fake_sink(((struct looker *)ctx)->owner);

    sink.lost(sink.ctx, shard, from, to);
}

static void look_bad(void *ctx, const struct wal_damage *damage)
{
    note_place(&((struct looker *)ctx)->places, damage);
}

/* Replays without changing anything. Places of the torn tail are left out. */
static void look(struct fs *fs, const uint64_t *covered, struct places *out,
                 struct wal_replay_result *result)
{
    struct looker k = {.owner = fake_new(SHARDS)};
    struct wal_options options = fake_options(k.owner, fs);
    const struct wal_sink sink = {.ctx = &k,
                                  .apply = look_apply,
                                  .lost = look_lost,
                                  .covered_sequences = covered,
                                  .bad = look_bad,
                                  .verify_covered = true};
    struct errinfo ei = {0};
    uint64_t before, after;
    struct wal *w;

    options.read_only = true;
    mutex_init(&k.places.lock);
    before = fs_sim_op_count(fs);
    CHECK_OK(wal_open(&options, &w, &ei), &ei);
    CHECK_OK(wal_replay(w, &sink, 2, result, &ei), &ei);
    wal_abandon(w);
    after = fs_sim_op_count(fs);
    CHECK_MSG(before == after, "%zu changes", (size_t)(after - before));
    mutex_done(&k.places.lock);
    *out = (struct places){.count = 0};
    for (size_t i = 0; i < k.places.count; i++) {
        if (k.places.items[i].segment != result->last_segment ||
            k.places.items[i].offset < result->last_segment_end)
            out->items[out->count++] = k.places.items[i];
    }
    fake_free(k.owner);
}

/* Where the damage of a byte must be found: at its frame, or at the header. */
static uint64_t place_of(const struct log_image *log, uint32_t segment, uint64_t byte)
{
    for (size_t i = 0; i < log->frame_count; i++) {
        const struct frame_place *f = &log->frames[i];

        if (f->segment == segment && byte >= f->offset && byte < f->end)
            return f->offset;
    }
    return 0;
}

static bool is_last_frame(const struct log_image *log, uint32_t segment, uint64_t offset)
{
    const struct frame_place *last = &log->frames[log->frame_count - 1];

    return segment == last->segment && offset == last->offset;
}

/* `covered` or not, a flipped bit is named with its segment and the place of its frame. */
static void flip_every_byte(const uint64_t *covered, struct log_image *log)
{
    for (uint32_t n = 1; n <= log->segment_count; n++) {
        char path[WAL_PATH_SIZE];
        struct errinfo ei = {0};
        size_t size;

        wal_segment_path(n, path);
        free(test_file_read(log->fs, path, &size));
        for (size_t byte = 0; byte < size; byte++) {
            uint64_t want = place_of(log, n, byte);
            struct wal_replay_result result;
            struct places places;

            CHECK_OK(fs_sim_flip_bit(log->fs, path, byte * 8 + byte % 8, &ei), &ei);
            look(log->fs, covered, &places, &result);
            if (is_last_frame(log, n, want)) {
                CHECK(places.count == 0 && result.last_segment == n);
                CHECK(result.last_segment_end == want && result.torn_tail_bytes == size - want);
            } else {
                CHECK_MSG(places.count == 1 && places.items[0].segment == n &&
                              places.items[0].offset == want,
                          "byte %zu of %s: %zu places, the first is %u at %zu (%s)", byte, path,
                          places.count, places.items[0].segment, (size_t)places.items[0].offset,
                          places.items[0].what);
            }
            CHECK_OK(fs_sim_flip_bit(log->fs, path, byte * 8 + byte % 8, &ei), &ei);
        }
    }
}

static void test_every_byte_is_located(void **state)
{
    struct log_image log;
    uint64_t covered[SHARDS];

    (void)state;
    log_build(&log);
    flip_every_byte(NULL, &log);
    for (uint32_t i = 0; i < SHARDS; i++)
        covered[i] = log.entries[i] / 2;
    flip_every_byte(covered, &log);
    fs_free(log.fs);
}

/* Two places in one segment are two findings; a directory without a log is none. */
static void test_several_places(void **state)
{
    const struct frame_place *a, *b;
    struct wal_replay_result result;
    char path[WAL_PATH_SIZE];
    struct errinfo ei = {0};
    struct places places;
    struct log_image log;
    struct fs *empty = test_fs_new(6);

    (void)state;
    log_build(&log);
    a = &log.frames[0];
    b = &log.frames[2];
    CHECK(a->segment == 1 && b->segment == 1);
    wal_segment_path(1, path);
    CHECK_OK(fs_sim_flip_bit(log.fs, path, a->offset * 8, &ei), &ei);    /* a header */
    CHECK_OK(fs_sim_flip_bit(log.fs, path, (b->end - 1) * 8, &ei), &ei); /* a payload */
    look(log.fs, NULL, &places, &result);
    CHECK(places.count == 2 && result.bad_frame_count == 2);
    CHECK((places.items[0].offset == a->offset && places.items[1].offset == b->offset) ||
          (places.items[1].offset == a->offset && places.items[0].offset == b->offset));
    look(empty, NULL, &places, &result);
    CHECK(places.count == 0 && result.segment_count == 0 && result.last_segment == 0);
    fs_free(empty);
    fs_free(log.fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_is_located),
        cmocka_unit_test(test_several_places),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
