#include "tests/engine/inspect_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/part.h"
#include "engine/sealed/sealed_internal.h"
#include "engine/sealed/series_file_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/histogram_kit.h"
#include "tests/engine/sealed_twin.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"
#include "wal/wal.h"

enum { SHARDS = 2 };
#define WORLD_WINDOW_MS INT64_C(1700006400000)

static void file_note(struct world *w, const char *path, bool is_log)
{
    struct world_file *f = &w->files[w->file_count++];
    size_t size;

    CHECK(w->file_count <= WORLD_FILES_MAX);
    CHECK(snprintf(f->path, sizeof f->path, "%s", path) < (int)sizeof f->path);
    free(test_file_read(w->fs, path, &size));
    f->size = size;
    f->is_log = is_log;
}

static uint64_t file_size_of(struct fs *fs, const char *path)
{
    size_t size;

    free(test_file_read(fs, path, &size));
    return size;
}

/* ---- the log, and the manifest as a server makes it ---- */

/* One request a frame. */
static void log_write(struct world *w, uint64_t seed)
{
    struct engine_options o = {
        .shard_count = SHARDS, .hash_secret_seed = seed, .wal_segment_size_bytes = 1500};
    struct kit k;

    kit_open(&k, w->fs, &o);
    for (int64_t i = 0; i < 40; i++) {
        char labels[64];

        CHECK(snprintf(labels, sizeof labels, "__name__=up,job=j%d", (int)(i % 7)) > 0);
        kit_put(&k, labels, KIT_NOW_MS - 600000 + i * 1000, (double)i / 3);
        w->log_samples++;
    }
    kit_close(&k);
}

static void log_note(struct world *w)
{
    char path[WAL_PATH_SIZE];
    bool exists = true;
    struct errinfo ei = {0};

    for (uint32_t n = 1;; n++) {
        wal_segment_path(n, path);
        CHECK_OK(fs_exists(w->fs, path, &exists, &ei), &ei);
        if (!exists)
            break;
        file_note(w, path, true);
        w->segment_count++;
    }
    CHECK(w->segment_count >= 3);
}

/* ---- files that a seal makes ---- */

static void sealed_write(struct world *w, struct manifest *m, struct test_random *r,
                         enum manifest_kind kind, bool finish)
{
    struct manifest_file f = {.kind = kind,
                              .shard = (uint32_t)test_random_below(r, SHARDS),
                              .shard_count = SHARDS,
                              .number = m->next_file_number};
    struct sealed_identity id = {.kind = kind == MANIFEST_LATE ? SEALED_LATE : SEALED_RECENT,
                                 .shard = f.shard,
                                 .shard_count = SHARDS,
                                 .number = f.number,
                                 .secret_id = m->secret.id,
                                 .has_histograms = kind == MANIFEST_LATE,
                                 .epoch = 1 + test_random_u64(r) / 2};
    char path[MANIFEST_PATH_SIZE];
    struct sealed_writer *writer;
    struct sealed_file *file;
    struct twin_file twin = {0};
    struct errinfo ei = {0};

    manifest_file_path(&f, path);
    CHECK_OK(sealed_writer_create(w->fs, path, &id, &file, &writer, &ei), &ei);
    twin.has_histograms = id.has_histograms;
    twin_file_fill(r, &twin, 2, 12, 20);
    for (size_t i = 0; i < twin.slice_count; i++) {
        struct sealed_slice *slice;

        CHECK_OK(twin_slice_write(writer, &twin.slices[i], &slice, &ei), &ei);
        *(kind == MANIFEST_LATE ? &w->late_samples : &w->sealed_samples) += slice->sample_count;
        free(slice);
    }
    twin_file_free(&twin);
    if (finish)
        CHECK_OK(sealed_writer_finish(writer, &ei), &ei);
    else
        CHECK_OK(sealed_writer_sync(writer, &ei), &ei);
    sealed_writer_free(writer);
    sealed_file_close(file);
    f.durable_size = file_size_of(w->fs, path);
    CHECK_OK(manifest_file_add(m, &f, &ei), &ei);
    file_note(w, path, false);
}

static void series_batch_write(struct series_file_writer *s, uint32_t first_slot)
{
    struct errinfo ei = {0};

    for (uint32_t i = 0; i < 5; i++) {
        uint32_t values[2] = {0, first_slot + i};
        struct series_file_entry entry = {.slot = first_slot + i,
                                          .value_ids = values,
                                          .fingerprint = {first_slot + i, 7},
                                          .newest_ms = KIT_NOW_MS + i,
                                          .newest_bits = i};
        char text[32];

        CHECK(snprintf(text, sizeof text, "instance-%u", values[1]) > 0);
        CHECK_OK(series_file_value(s, 1, values[1], str_from(text), &ei), &ei);
        CHECK_OK(series_file_add(s, &entry, &ei), &ei);
    }
    CHECK_OK(series_file_batch(s, first_slot + 1, &ei), &ei);
}

static void series_write(struct world *w, struct manifest *m)
{
    struct manifest_file f = {
        .kind = MANIFEST_SERIES, .shard = 1, .shard_count = SHARDS, .number = m->next_file_number};
    struct series_file_identity id = {
        .shard = 1, .shard_count = SHARDS, .number = f.number, .secret_id = m->secret.id};
    static const uint32_t names[2] = {0, 1};
    char path[MANIFEST_PATH_SIZE];
    struct series_file_writer *s;
    struct errinfo ei = {0};

    manifest_file_path(&f, path);
    CHECK_OK(series_file_create(w->fs, path, &id, &s, &ei), &ei);
    CHECK_OK(series_file_name(s, 0, str_from("__name__"), &ei), &ei);
    CHECK_OK(series_file_name(s, 1, str_from("instance"), &ei), &ei);
    CHECK_OK(series_file_value(s, 0, 0, str_from("up"), &ei), &ei);
    CHECK_OK(series_file_schema(s, 0, names, 2, &ei), &ei);
    series_batch_write(s, 0);
    series_batch_write(s, 5);
    CHECK_OK(series_file_sync(s, &ei), &ei);
    f.durable_size = series_file_durable_size(s);
    series_file_writer_free(s);
    CHECK_OK(manifest_file_add(m, &f, &ei), &ei);
    file_note(w, path, false);
}

/* ---- parts ---- */

/* Series in storage order, two chunks each, the second one of some of histograms. */
static void part_fill(struct part_writer *pw, struct test_random *r)
{
    struct histogram histograms[8];
    struct arena arena;
    struct errinfo ei = {0};

    arena_init(&arena, NULL);
    histograms_fill_any(r, &arena, histograms, 8);
    for (uint32_t i = 0; i < 12; i++) {
        char metric[16], job[16];
        struct label items[2] = {{LABEL_METRIC_NAME, {metric, 0}}, {str_from("job"), {job, 0}}};
        struct labels labels = {2, items};
        struct hash128 fingerprint = {test_random_u64(r), test_random_u64(r)};
        int64_t t_ms[8], at = WORLD_WINDOW_MS + (int64_t)test_random_below(r, 1000);
        double value[8];

        items[0].value.size = (size_t)snprintf(metric, sizeof metric, "metric%u", i / 4);
        items[1].value.size = (size_t)snprintf(job, sizeof job, "job%u", i % 4);
        CHECK_OK(part_writer_series(pw, &labels, fingerprint, &ei), &ei);
        for (int chunk = 0; chunk < 2; chunk++) {
            for (int k = 0; k < 8; k++) {
                t_ms[k] = at += 1 + (int64_t)test_random_below(r, 30000);
                value[k] = (double)test_random_below(r, 1000) / 8;
            }
            if (i % 3 == 1 && chunk == 1)
                CHECK_OK(part_writer_histograms(pw, t_ms, histograms, 8, &ei), &ei);
            else
                CHECK_OK(part_writer_samples(pw, t_ms, value, 8, &ei), &ei);
        }
    }
    arena_done(&arena);
}

static void part_write(struct world *w, struct manifest *m, struct part_store *store,
                       struct test_random *r, uint64_t generation)
{
    struct part_writer_options o = {.dir = MANIFEST_PARTS_DIR,
                                    .key = {.window_start_ms = WORLD_WINDOW_MS,
                                            .window_size_ms = 7200000,
                                            .shard = 1,
                                            .shard_count = SHARDS,
                                            .generation = generation}};
    char name[PART_NAME_SIZE], path[MANIFEST_PATH_SIZE];
    struct part_writer *pw = NULL;
    struct manifest_part p;
    struct part_info info;
    struct errinfo ei = {0};

    CHECK_OK(part_writer_new(store, &o, &pw, &ei), &ei);
    part_fill(pw, r);
    CHECK_OK(part_writer_finish(pw, 5, &info, &ei), &ei);
    part_writer_free(pw);
    p = (struct manifest_part){.key = info.key,
                               .min_time_ms = info.min_time_ms,
                               .max_time_ms = info.max_time_ms,
                               .sample_count = info.sample_count,
                               .index_size = info.index_size,
                               .chunks_size = info.chunks_size};
    w->part_samples += info.sample_count;
    CHECK_OK(manifest_part_add(m, &p, &ei), &ei);
    for (int f = 0; f < 2; f++) {
        part_name_format(&info.key, (enum part_file)f, false, name);
        CHECK(snprintf(path, sizeof path, MANIFEST_PARTS_DIR "/%s", name) < (int)sizeof path);
        file_note(w, path, false);
    }
}

static void parts_write(struct world *w, struct manifest *m, struct test_random *r)
{
    struct part_store_options so = {.fs = w->fs, .cache_bytes = 1 << 20, .descriptor_count = 4};
    struct part_store *store = NULL;
    struct errinfo ei = {0};

    CHECK_OK(part_store_new(&so, &store, &ei), &ei);
    part_write(w, m, store, r, 3 << 16);
    part_write(w, m, store, r, 4 << 16);
    part_store_free(store);
}

/* ---- all ---- */

void world_init(struct world *w, uint64_t seed)
{
    struct test_random r = test_random_init(seed);
    struct errinfo ei = {0};
    struct manifest m;

    *w = (struct world){.fs = test_fs_new(seed)};
    log_write(w, seed);
    CHECK_OK(manifest_read(w->fs, &m, &ei), &ei);
    CHECK_OK(fs_mkdir(w->fs, MANIFEST_SHARDS_DIR, &ei), &ei);
    CHECK_OK(fs_mkdir(w->fs, MANIFEST_PARTS_DIR, &ei), &ei);
    sealed_write(w, &m, &r, MANIFEST_SEALED, false);
    sealed_write(w, &m, &r, MANIFEST_SEALED, true);
    sealed_write(w, &m, &r, MANIFEST_LATE, true);
    series_write(w, &m);
    parts_write(w, &m, &r);
    CHECK_OK(manifest_sequences_reserve(&m, &ei), &ei);
    m.covered_sequences[0] = 6; /* the log of shard 0 begins with entries that need not be there */
    CHECK_OK(manifest_write(w->fs, &m, &ei), &ei);
    manifest_done(&m);
    file_note(w, MANIFEST_PATH, false);
    log_note(w);
}

void world_done(struct world *w)
{
    fs_free(w->fs);
}

const struct world_file *world_file_find(const struct world *w, const char *path)
{
    for (size_t i = 0; i < w->file_count; i++) {
        if (strcmp(w->files[i].path, path) == 0)
            return &w->files[i];
    }
    return NULL;
}
