/* Damaged logs: one rule, a bad frame costs only itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file_sim.h"
#include "base/log.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/wal/fake_owner.h"
#include "wal/scan_internal.h"
#include "wal/segment_internal.h"

enum { SHARDS = 3, FRAMES_MAX = 64 };

/* Where a frame of an undamaged log stands. */
struct placed_frame {
    struct frame_header header;
    uint32_t segment;
    uint64_t offset, end;
};

struct built_log {
    struct fs *fs;
    struct placed_frame frames[FRAMES_MAX];
    size_t frame_count;
    uint32_t segment_count;
    uint64_t entry_count;
};

static void segment_index(struct built_log *log, uint32_t number)
{
    char path[WAL_PATH_SIZE];
    struct segment_header header;
    struct scan_identity id = {.segment_number = number, .shard_count = SHARDS};
    struct frame_scan scan;
    struct scan_frame f;
    uint8_t *data;
    size_t size, need;

    wal_segment_path(number, path);
    size = fake_file_read(log->fs, path, &data);
    CHECK(segment_header_decode(data, size, &header) == SEGMENT_GOOD);
    id.start_epoch = header.start_epoch;
    id.epoch_known = true;
    frame_scan_init(&scan, &id, size);
    frame_scan_window(&scan, data + SEGMENT_HEADER_SIZE, size - SEGMENT_HEADER_SIZE);
    while (frame_scan_next(&scan, &f, &need) == SCAN_FRAME) {
        CHECK(log->frame_count < FRAMES_MAX);
        log->frames[log->frame_count++] = (struct placed_frame){
            f.header, number, f.offset, f.offset + FRAME_HEADER_SIZE + f.header.stored_size};
        log->entry_count += f.header.entry_count;
    }
    CHECK(!scan.in_bad_region && scan.bad_region_count == 0);
    free(data);
}

/* A small log: 18 frames over two segments or more, raw and compressed ones, all durable. */
static void build(struct built_log *log, uint64_t segment_size)
{
    struct fake_owner *o = fake_new(SHARDS);
    struct errinfo ei = {0};
    struct wal_options options;
    struct wal_stats stats;
    struct wal *w;

    *log = (struct built_log){0};
    CHECK_OK(fs_sim_new(3, &log->fs, &ei), &ei);
    options = fake_options(o, log->fs);
    options.segment_size_bytes = segment_size;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (uint32_t i = 0; i < 18; i++) {
        o->entry_words = i == 7 ? 90 : 1 + i % 3;
        o->compressible = true;
        CHECK_OK(fake_write(o, w, i * 7 % SHARDS, i == 7 ? 2 : 1 + i % 5, &ei), &ei);
    }
    wal_stats_get(w, &stats);
    log->segment_count = (uint32_t)stats.segment_current;
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    for (uint32_t n = 1; n <= log->segment_count; n++)
        segment_index(log, n);
    CHECK(log->frame_count == 18);
}

static struct fs *fs_copy(struct fs *fs)
{
    struct errinfo ei = {0};
    struct fs *copy;

    CHECK_OK(fs_sim_after_crash(fs, FS_SIM_KEEP_ALL, 1, &copy, &ei), &ei);
    return copy;
}

/* The frame that byte `offset` of `segment` belongs to; NULL: the segment's header. */
static const struct placed_frame *frame_at(const struct built_log *log, uint32_t segment,
                                           uint64_t offset)
{
    for (size_t i = 0; i < log->frame_count; i++) {
        const struct placed_frame *f = &log->frames[i];

        if (f->segment == segment && offset >= f->offset && offset < f->end)
            return f;
    }
    return NULL;
}

static bool shard_goes_on(const struct built_log *log, const struct placed_frame *f)
{
    for (size_t i = 0; i < log->frame_count; i++) {
        if (log->frames[i].header.shard == f->header.shard &&
            log->frames[i].header.first_sequence > f->header.first_sequence)
            return true;
    }
    return false;
}

/* Everything but `missing` is there. */
static void check_all_but(struct fake_owner *o, const struct built_log *log,
                          const struct placed_frame *missing)
{
    for (size_t i = 0; i < log->frame_count; i++) {
        const struct placed_frame *f = &log->frames[i];

        for (uint64_t s = 0; s < f->header.entry_count; s++)
            CHECK(fake_has(o, f->header.shard, f->header.first_sequence + s) == (f != missing));
    }
}

/* After the damage the log must go on: a new life writes, and the life after that finds both. */
static void check_goes_on(struct fs *fs, uint64_t found)
{
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w;

    CHECK_OK(fake_start(o, &options, &w, &result, &ei), &ei);
    CHECK(fake_applied(o) == found);
    for (uint32_t s = 0; s < SHARDS; s++)
        CHECK_OK(fake_write(o, w, s, 2, &ei), &ei);
    wal_abandon(w);
    fake_free(o);
    o = fake_replay(fs, SHARDS, 2, &result);
    CHECK(fake_applied(o) == found + (uint64_t)2 * SHARDS);
    fake_free(o);
}

/* One bit in each byte of each segment in turn: only the frame it hits is missing. */
static void flip_everywhere(uint64_t segment_size)
{
    struct test_random r = test_random_init(11);
    struct built_log log;

    build(&log, segment_size);
    for (uint32_t n = 1; n <= log.segment_count; n++) {
        char path[WAL_PATH_SIZE];
        uint8_t *data;
        size_t size;

        wal_segment_path(n, path);
        size = fake_file_read(log.fs, path, &data);
        free(data);
        for (uint64_t i = 0; i < size; i++) {
            const struct placed_frame *hit = frame_at(&log, n, i);
            uint64_t lost = hit != NULL ? hit->header.entry_count : 0;
            struct fs *fs = fs_copy(log.fs);
            struct wal_replay_result result;
            struct errinfo ei = {0};
            struct fake_owner *o;

            CHECK_OK(fs_sim_flip_bit(fs, path, i * 8 + test_random_below(&r, 8), &ei), &ei);
            o = fake_replay(fs, SHARDS, 1 + (uint32_t)(i % 3), &result);
            check_all_but(o, &log, hit);
            CHECK(result.entry_count == log.entry_count - lost);
            if (hit != NULL)
                CHECK(result.bad_frame_count + (result.torn_tail_bytes > 0) >= 1);
            /* A bad header names nothing: only a later frame of the shard shows the gap. */
            if (hit == NULL)
                CHECK(result.lost_entry_count == 0);
            else if (i >= hit->offset + FRAME_HEADER_SIZE || shard_goes_on(&log, hit))
                CHECK(result.lost_entry_count == lost);
            fake_free(o);
            if (i % 16 == 0)
                check_goes_on(fs, log.entry_count - lost);
            fs_free(fs);
        }
    }
    fs_free(log.fs);
}

static void test_bit_flip_everywhere(void **state)
{
    (void)state;
    flip_everywhere(0);
    flip_everywhere(700);
}

static void segment_truncate(struct fs *fs, uint32_t number, uint64_t size)
{
    char path[WAL_PATH_SIZE];
    struct errinfo ei = {0};
    struct file *f;

    wal_segment_path(number, path);
    CHECK_OK(file_open(fs, path, FILE_READ_WRITE, &f, &ei), &ei);
    CHECK_OK(file_truncate(f, size, &ei), &ei);
    CHECK_OK(file_sync(f, &ei), &ei);
    file_close(f);
}

/* Any length of the last segment: the whole frames are there, the rest is cut, the log goes on. */
static void test_truncation_at_every_byte(void **state)
{
    struct built_log log;
    const struct placed_frame *last;

    (void)state;
    build(&log, 700);
    last = &log.frames[log.frame_count - 1];
    for (uint64_t size = 0; size <= last->end; size++) {
        struct fs *fs = fs_copy(log.fs);
        struct wal_replay_result result;
        uint64_t expected = 0, end = size >= SEGMENT_HEADER_SIZE ? SEGMENT_HEADER_SIZE : 0;
        struct fake_owner *o;

        segment_truncate(fs, log.segment_count, size);
        for (size_t i = 0; i < log.frame_count; i++) {
            const struct placed_frame *f = &log.frames[i];

            if (f->segment == log.segment_count && f->end > size)
                continue;
            expected += f->header.entry_count;
            if (f->segment == log.segment_count)
                end = f->end;
        }
        o = fake_replay(fs, SHARDS, 2, &result);
        CHECK(fake_applied(o) == expected);
        CHECK(result.bad_frame_count == 0);
        CHECK(result.torn_tail_bytes == size - end);
        fake_free(o);
        check_goes_on(fs, expected);
        fs_free(fs);
    }
    fs_free(log.fs);
}

/* Bytes that are no frames between good ones, and frames of another life or segment. */
static void test_foreign_bytes_between_frames(void **state)
{
    static const uint8_t garbage[] = {0xf7, 'R', 'w', 0xfa, 0xf7, 'R', 'w', 0xfa, 0, 0, 1, 0xf7};
    struct built_log log;

    (void)state;
    build(&log, 0);
    for (size_t i = 0; i + 1 < log.frame_count; i++) {
        for (int kind = 0; kind < 3; kind++) {
            const struct placed_frame *f = &log.frames[i];
            struct fs *fs = fs_copy(log.fs);
            struct frame_header stale = f->header;
            struct wal_replay_result result;
            uint8_t *data, *longer;
            size_t size = fake_file_read(fs, "wal/00000001.wal", &data), n = 0;
            struct fake_owner *o;

            longer = malloc(size + 4096);
            CHECK(longer != NULL);
            memcpy(longer, data, f->end);
            n = f->end;
            if (kind == 0) {
                memcpy(longer + n, garbage, sizeof garbage);
                n += sizeof garbage;
            } else {
                /* Intact but stale: sequence numbers from the future would hide real entries. */
                stale.first_sequence += 1000;
                stale.start_epoch += kind == 1;
                stale.segment_number += kind == 2;
                frame_header_encode(&stale, longer + n);
                n += FRAME_HEADER_SIZE;
                memcpy(longer + n, data + f->offset + FRAME_HEADER_SIZE, stale.stored_size);
                n += stale.stored_size;
            }
            memcpy(longer + n, data + f->end, size - f->end);
            n += size - f->end;
            fake_file_write(fs, "wal/00000001.wal", longer, n);
            o = fake_replay(fs, SHARDS, 2, &result);
            check_all_but(o, &log, NULL);
            CHECK(result.bad_frame_count == 1 && result.lost_entry_count == 0);
            CHECK(result.entry_count == log.entry_count && result.torn_tail_bytes == 0);
            fake_free(o);
            free(longer);
            free(data);
            fs_free(fs);
        }
    }
    fs_free(log.fs);
}

static void remove_durably(struct fs *fs, const char *path)
{
    struct errinfo ei = {0};

    CHECK_OK(fs_unlink(fs, path, &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, "wal", &ei), &ei);
}

static void test_missing_and_empty_segments(void **state)
{
    struct built_log log;

    (void)state;
    build(&log, 700);
    CHECK(log.segment_count >= 3);
    for (uint32_t n = 1; n <= log.segment_count; n++) {
        for (int kind = 0; kind < 2; kind++) {
            struct fs *fs = fs_copy(log.fs);
            struct wal_replay_result result;
            char path[WAL_PATH_SIZE];
            uint64_t gone = 0;

            wal_segment_path(n, path);
            if (kind == 0)
                remove_durably(fs, path);
            else
                segment_truncate(fs, n, 0);
            for (size_t i = 0; i < log.frame_count; i++)
                gone += log.frames[i].segment == n ? log.frames[i].header.entry_count : 0;
            fake_free(fake_replay(fs, SHARDS, 2, &result));
            CHECK(result.entry_count == log.entry_count - gone);
            CHECK(result.bad_frame_count == 0 && result.torn_tail_bytes == 0);
            /* Every shard goes on behind a middle segment here, so all of it shows as a gap; with
             * the first file gone (cut by a seal, as far as the log knows) nothing does. */
            if (n > 1 && n + 1 < log.segment_count)
                CHECK(result.lost_entry_count == gone);
            check_goes_on(fs, log.entry_count - gone);
            fs_free(fs);
        }
    }
    fs_free(log.fs);
}

static void test_other_files_are_left_alone(void **state)
{
    static const char *const names[] = {"wal/notes.txt",        "wal/1.wal",
                                        "wal/00000000.wal",     "wal/99999999999.wal",
                                        "wal/00000001.wal.bak", "wal/4294967296.wal"};
    struct wal_replay_result result;
    struct built_log log;

    (void)state;
    build(&log, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        fake_file_write(log.fs, names[i], "RIMSWAL1", 8);
    check_goes_on(log.fs, log.entry_count);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint8_t *data;

        CHECK(fake_file_read(log.fs, names[i], &data) == 8);
        free(data);
    }
    fake_free(fake_replay(log.fs, SHARDS, 1, &result));
    fs_free(log.fs);
}

static enum err replay_error(struct fs *fs, uint32_t shard_count, const struct wal_sink *use_sink,
                             struct errinfo *ei)
{
    struct fake_owner *o = fake_new(shard_count);
    struct wal_options options = fake_options(o, fs);
    struct wal_sink sink = use_sink != NULL ? *use_sink : fake_sink(o);
    struct wal_replay_result result;
    struct errinfo open_ei = {0};
    struct wal *w;
    enum err e;

    CHECK_OK(wal_open(&options, &w, &open_ei), &open_ei);
    e = wal_replay(w, &sink, 2, &result, ei);
    wal_abandon(w);
    fake_free(o);
    return e;
}

/* Rewrites a segment's header by `change` with a right checksum. */
static void header_patch(struct fs *fs, const char *path, size_t offset, uint8_t value)
{
    uint8_t *data;
    size_t size = fake_file_read(fs, path, &data);
    uint32_t crc;

    data[offset] = value;
    crc = crc32c(data, SEGMENT_HEADER_SIZE - 4);
    for (size_t i = 0; i < 4; i++)
        data[SEGMENT_HEADER_SIZE - 4 + i] = (uint8_t)(crc >> (8 * i));
    fake_file_write(fs, path, data, size);
    free(data);
}

static void test_newer_format_is_refused(void **state)
{
    enum { VERSION_OFFSET = 8, MUST_OFFSET = 12, MAY_OFFSET = 16 };
    struct built_log log;
    struct errinfo ei = {0};
    uint64_t ops;

    (void)state;
    build(&log, 700);
    header_patch(log.fs, "wal/00000002.wal", MAY_OFFSET, 0x80); /* may be ignored */
    CHECK(replay_error(log.fs, SHARDS, NULL, &ei) == ERR_OK);
    header_patch(log.fs, "wal/00000002.wal", VERSION_OFFSET, 2);
    ops = fs_sim_op_count(log.fs);
    CHECK(replay_error(log.fs, SHARDS, NULL, &ei) == ERR_UNSUPPORTED);
    CHECK(strstr(ei.message, "00000002.wal") != NULL);
    CHECK(fs_sim_op_count(log.fs) <= ops + 2); /* wal_open()'s folder, nothing else */
    header_patch(log.fs, "wal/00000002.wal", VERSION_OFFSET, 1);
    header_patch(log.fs, "wal/00000002.wal", MUST_OFFSET, 1);
    errinfo_clear(&ei);
    CHECK(replay_error(log.fs, SHARDS, NULL, &ei) == ERR_UNSUPPORTED);
    header_patch(log.fs, "wal/00000002.wal", MUST_OFFSET, 0);
    errinfo_clear(&ei);
    CHECK(replay_error(log.fs, SHARDS + 1, NULL, &ei) == ERR_INVALID); /* another shard count */
    errinfo_clear(&ei);
    CHECK(replay_error(log.fs, SHARDS, NULL, &ei) == ERR_OK);
    fs_free(log.fs);
}

struct moody_sink {
    _Atomic uint64_t calls;
    enum err code;
    uint64_t lost;
};

static enum err moody_apply(void *ctx, uint32_t shard, uint64_t first_sequence,
                            uint64_t entry_count, struct bytes payload, struct errinfo *ei)
{
    struct moody_sink *m = ctx;

    (void)first_sequence;
    (void)entry_count;
    (void)payload;
    m->calls++;
    return shard == 1 ? errinfo_set(ei, m->code, 0, "moody") : ERR_OK;
}

static void moody_lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    struct moody_sink *m = ctx;

    CHECK(shard == 1); /* one worker's, or the end's: no race */
    m->lost += to_sequence - from_sequence;
}

static void test_sink_errors(void **state)
{
    struct moody_sink m = {.code = ERR_LIMIT};
    struct wal_sink sink = {.ctx = &m, .apply = moody_apply, .lost = moody_lost};
    struct built_log log;
    struct errinfo ei = {0};
    uint64_t in_shard = 0;

    (void)state;
    build(&log, 0);
    CHECK(replay_error(log.fs, SHARDS, &sink, &ei) == ERR_LIMIT);
    CHECK(strcmp(ei.message, "moody") == 0);
    errinfo_clear(&ei);
    m = (struct moody_sink){.code = ERR_CORRUPT}; /* costs its frames, not the replay */
    CHECK(replay_error(log.fs, SHARDS, &sink, &ei) == ERR_OK);
    for (size_t i = 0; i < log.frame_count; i++)
        in_shard += log.frames[i].header.shard == 1 ? log.frames[i].header.entry_count : 0;
    CHECK(m.calls == log.frame_count && m.lost == in_shard);
    fs_free(log.fs);
}

/* Two segments by hand: the second says where the first stops to count, and brings its frames
 * again. */
struct crafted {
    uint8_t data[2048];
    size_t size;
};

static void craft_segment(struct crafted *c, uint32_t number, uint32_t resume_segment,
                          uint64_t resume_size)
{
    struct segment_header h = {.segment_number = number,
                               .shard_count = SHARDS,
                               .start_epoch = 77,
                               .resume_segment = resume_segment,
                               .resume_size = resume_size};

    segment_header_encode(&h, c->data);
    c->size = SEGMENT_HEADER_SIZE;
}

static void craft_frame(struct crafted *c, uint32_t number, uint64_t first, uint32_t count)
{
    struct frame_header h = {.stored_size = count * 8,
                             .raw_size = count * 8,
                             .first_sequence = first,
                             .entry_count = count,
                             .segment_number = number,
                             .start_epoch = 77};
    uint8_t *payload = c->data + c->size + FRAME_HEADER_SIZE;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t v = fake_entry_value(0, first + i);

        memcpy(payload + (size_t)i * 8, &v, sizeof v);
    }
    h.payload_crc = crc32c(payload, h.stored_size);
    frame_header_encode(&h, c->data + c->size);
    c->size += FRAME_HEADER_SIZE + h.stored_size;
}

static void test_rewritten_frames_count_once(void **state)
{
    struct wal_replay_result result;
    struct crafted one = {.size = 0}, two = {.size = 0};
    struct fake_owner *o;
    struct errinfo ei = {0};
    struct fs *fs;
    size_t good_end;

    (void)state;
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    craft_segment(&one, 1, 0, 0);
    craft_frame(&one, 1, 1, 3);
    good_end = one.size;
    craft_frame(&one, 1, 4, 2); /* the failed commit: entries 4..5 torn, 6..7 as written */
    one.data[one.size - 1] ^= 1;
    craft_frame(&one, 1, 6, 2);
    fake_file_write(fs, "wal/00000001.wal", one.data, one.size);
    craft_segment(&two, 2, 1, good_end);
    craft_frame(&two, 2, 4, 2);
    craft_frame(&two, 2, 6, 2);
    craft_frame(&two, 2, 6, 2); /* and one twice in a row */
    craft_frame(&two, 2, 8, 1);
    fake_file_write(fs, "wal/00000002.wal", two.data, two.size);
    o = fake_replay(fs, SHARDS, 1, &result);
    CHECK(fake_applied(o) == 8 && result.entry_count == 8);
    CHECK(result.bad_frame_count == 0 && result.lost_entry_count == 0);
    fake_free(o);
    /* The dead frames are cut, so that nothing has to remember them. */
    {
        uint8_t *data;

        CHECK(fake_file_read(fs, "wal/00000001.wal", &data) == good_end);
        free(data);
    }
    check_goes_on(fs, 8);
    fs_free(fs);
}

/* Sequence numbers of frames that do not count are not given again either. */
static void test_sequence_goes_on_above_everything_seen(void **state)
{
    struct crafted one = {.size = 0}, two = {.size = 0};
    struct wal_options options;
    struct fake_owner *o = fake_new(SHARDS);
    struct errinfo ei = {0};
    struct fs *fs;
    struct wal *w;

    (void)state;
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    craft_segment(&one, 1, 0, 0);
    craft_frame(&one, 1, 1, 3);
    craft_segment(&two, 2, 1, one.size);
    craft_frame(&one, 1, 4, 60); /* dead: behind what the second segment lets count */
    fake_file_write(fs, "wal/00000001.wal", one.data, one.size);
    craft_frame(&two, 2, 4, 2);
    craft_frame(&two, 2, 6, 10);
    fake_file_write(fs, "wal/00000002.wal", two.data, two.size - 1); /* cut off */
    options = fake_options(o, fs);
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    CHECK(fake_applied(o) == 5);
    CHECK(wal_next_sequence(w, 0) == 64 && wal_next_sequence(w, 1) == 1);
    CHECK(fake_lost(o) == 10); /* the header that was cut off told of them */
    wal_abandon(w);
    fake_free(o);
    fs_free(fs);
}

/* Whatever the bytes are: no crash, nothing invented (the sink checks every entry). */
static void test_random_damage(void **state)
{
    struct test_random r = test_random_init(17);
    struct built_log log;

    (void)state;
    build(&log, 700);
    for (int round = 0; round < 300; round++) {
        struct fs *fs = fs_copy(log.fs);
        struct wal_replay_result result;

        for (uint64_t n = 1 + test_random_below(&r, 3); n > 0; n--) {
            uint32_t number = 1 + (uint32_t)test_random_below(&r, log.segment_count);
            char path[WAL_PATH_SIZE];
            uint8_t *data;
            size_t size, from, run;

            wal_segment_path(number, path);
            size = fake_file_read(fs, path, &data);
            from = test_random_below(&r, size);
            run = test_random_below(&r, size - from + 1);
            switch (test_random_below(&r, 4)) {
            case 0:
                memset(data + from, 0, run);
                break;
            case 1: /* a piece moved to another place */
                memmove(data + test_random_below(&r, size - run + 1), data + from, run);
                break;
            case 2: /* a piece cut out */
                memmove(data + from, data + from + run, size - from - run);
                size -= run;
                break;
            default:
                data[from] ^= (uint8_t)(1U << test_random_below(&r, 8));
            }
            fake_file_write(fs, path, data, size > 0 ? size : 1);
            free(data);
        }
        fake_free(fake_replay(fs, SHARDS, 1 + (uint32_t)test_random_below(&r, 3), &result));
        check_goes_on(fs, result.entry_count);
        fs_free(fs);
    }
    fs_free(log.fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bit_flip_everywhere),
        cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_foreign_bytes_between_frames),
        cmocka_unit_test(test_missing_and_empty_segments),
        cmocka_unit_test(test_other_files_are_left_alone),
        cmocka_unit_test(test_newer_format_is_refused),
        cmocka_unit_test(test_sink_errors),
        cmocka_unit_test(test_rewritten_frames_count_once),
        cmocka_unit_test(test_sequence_goes_on_above_everything_seen),
        cmocka_unit_test(test_random_damage),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
