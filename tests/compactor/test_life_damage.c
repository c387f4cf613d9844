/*
 * Single bits and lengths of every file of a whole store, changed at random, thousands of times.
 *
 * Whatever was changed: a verification names the file; a store that is opened all the same never
 * gives a value that was not written, nor a series that is none; and what is missing was told, by
 * an error that names a file or by what the start counts.
 *
 * DAMAGE_ROUNDS in the environment: how many (2,000).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/inspect.h"
#include "tests/compactor/life_kit.h"
#include "tests/lib/test_cmocka.h"
#include "wal/wal.h"

enum { SERIES = 36, SHARDS = 2, FILES_MAX = 96, ROUNDS = 2000, SERVER_EVERY = 8 };

struct store_file {
    char path[MANIFEST_PATH_SIZE];
    uint64_t size;
    enum store_kind { KIND_MANIFEST, KIND_PART, KIND_SHARD, KIND_LOG, KIND_COUNT } kind;
    bool is_last_segment;
};

struct damage_world {
    struct life l;
    struct test_random r;
    struct store_file files[FILES_MAX];
    size_t file_count;
    uint64_t sample_count; /* of the model */
    uint64_t torn_bytes;   /* of the log as it is */
    bool nobody_pauses;    /* for ten minutes: series that end have late files split */
};

/* ---- a store with everything in it ---- */

static void put_round(struct damage_world *w, int64_t t_ms, uint32_t first, uint32_t end)
{
    for (uint32_t s = first; s < end; s++) {
        if (w->nobody_pauses || test_random_below(&w->r, 10) < 8)
            life_put(&w->l, s, t_ms + s, (double)test_random_below(&w->r, 1000) / (s % 3 + 1));
    }
    life_send_checked(&w->l);
}

static void put_late(struct damage_world *w, int64_t t_ms)
{
    for (uint32_t s = 0; s < SERIES; s += 5)
        life_put(&w->l, s, t_ms + 1000 + s, -1.0);
    life_send_checked(&w->l);
}

static void step_all(struct damage_world *w, enum err (*step)(struct life *l, uint32_t shard))
{
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        CHECK_OK(step(&w->l, shard), &w->l.kit.ei);
}

static void flush_all(struct damage_world *w, int64_t until_ms)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        CHECK_OK(life_flush(&w->l, shard, until_ms), &w->l.kit.ei);
}

/* Three windows in parts, one of them with late samples in a late file, an open window sealed
 * twice, and a log above. */
static void store_fill(struct damage_world *w)
{
    int64_t t = LIFE_T0;

    life_open_checked(&w->l);
    for (int round = 0; round < 4 * 12; round++, t += 10 * LIFE_MINUTE) {
        life_set_now(&w->l, t + LIFE_MINUTE);
        w->nobody_pauses = round >= 36;
        put_round(w, t, 0, round < 30 ? SERIES - 6 : SERIES);
        if (round % 12 == 11 && round < 36)
            flush_all(w, t + LIFE_WINDOW);
        if (round == 38)
            put_late(w, LIFE_T0 + 3 * LIFE_HOUR);
        if (round == 40 || round == 44)
            step_all(w, life_seal);
    }
    put_late(w, t - 3 * LIFE_HOUR);
    put_round(w, t, 0, SERIES + 4);
    life_abandon(&w->l);
    w->sample_count = life_model_sample_count(&w->l.model);
}

/* ---- its files ---- */

static void file_add(struct damage_world *w, const char *path, enum store_kind kind)
{
    struct store_file *f = &w->files[w->file_count++];
    size_t size;

    CHECK(w->file_count <= FILES_MAX);
    CHECK(snprintf(f->path, sizeof f->path, "%s", path) < (int)sizeof f->path);
    free(test_file_read(w->l.fs, path, &size));
    f->size = size;
    f->kind = kind;
}

static void files_list(struct damage_world *w)
{
    uint64_t kinds[4] = {0};
    struct errinfo ei = {0};
    char path[MANIFEST_PATH_SIZE];
    struct manifest m;
    bool exists = true;

    CHECK_OK(manifest_read(w->l.fs, &m, &ei), &ei);
    file_add(w, MANIFEST_PATH, KIND_MANIFEST);
    for (size_t i = 0; i < m.file_count; i++) {
        manifest_file_path(&m.files[i], path);
        file_add(w, path, KIND_SHARD);
        kinds[m.files[i].kind]++;
    }
    for (size_t i = 0; i < m.part_count; i++) {
        for (int file = 0; file < 2; file++) {
            char name[PART_NAME_SIZE];

            part_name_format(&m.parts[i].key, (enum part_file)file, false, name);
            CHECK(snprintf(path, sizeof path, MANIFEST_PARTS_DIR "/%s", name) < (int)sizeof path);
            file_add(w, path, KIND_PART);
        }
    }
    CHECK(m.part_count >= 4 && kinds[MANIFEST_SEALED] >= SHARDS && kinds[MANIFEST_LATE] > 0 &&
          kinds[MANIFEST_SERIES] == SHARDS);
    manifest_done(&m);
    for (uint32_t n = 1; n < 1000; n++) { /* the first ones were cut off */
        char segment[WAL_PATH_SIZE];

        wal_segment_path(n, segment);
        CHECK_OK(fs_exists(w->l.fs, segment, &exists, &ei), &ei);
        if (exists)
            file_add(w, segment, KIND_LOG);
    }
    CHECK(w->files[w->file_count - 1].kind == KIND_LOG);
    w->files[w->file_count - 1].is_last_segment = true;
}

/* Kinds of files alike, so that large ones do not take it all. */
static struct store_file *file_draw(struct damage_world *w)
{
    enum store_kind kind = (enum store_kind)test_random_below(&w->r, KIND_COUNT);

    for (;;) {
        struct store_file *f = &w->files[test_random_below(&w->r, w->file_count)];

        if (f->kind == kind && f->size > 0)
            return f;
    }
}

/* ---- reading what is left ---- */

struct outcome {
    uint64_t samples; /* that were read; all of them right */
    uint64_t errors;  /* series that could not be read */
    bool is_told;     /* the start said that something is wrong */
};

static bool names_file(const struct errinfo *ei)
{
    return strstr(ei->message, MANIFEST_SHARDS_DIR "/") != NULL ||
           strstr(ei->message, MANIFEST_PARTS_DIR "/") != NULL;
}

static void check_column(const struct life_model *m, uint32_t series, const struct column *c,
                         const char *path)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct life_sample *s = life_model_find(m, series, c->t_ms[i]);

        CHECK_MSG(s != NULL && s->bits == double_bits(c->value[i]),
                  "%s: series %" PRIu32 " has a sample at %" PRId64 " that nobody wrote", path,
                  series, c->t_ms[i]);
        CHECK(i == 0 || c->t_ms[i - 1] < c->t_ms[i]);
    }
}

/* Every series by itself, so that an error of one hides no other. */
static void read_all(struct kit *k, const struct life_model *m, const char *path,
                     struct outcome *out)
{
    struct series_list list = {0, NULL};
    struct errinfo ei = {0};
    struct querier *q = NULL;
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK_OK(querier_open(k->engine, &q, &ei), &ei);
    if (querier_select(q, NULL, 0, INT64_MIN, INT64_MAX, &arena, &list, &ei) != ERR_OK) {
        CHECK_MSG(names_file(&ei), "%s: %s", path, ei.message);
        out->errors++;
        list.count = 0;
    }
    for (size_t i = 0; i < list.count; i++) {
        struct labels labels;
        struct column column;
        enum err e;

        errinfo_clear(&ei);
        e = querier_labels(q, &list.items[i], 1, &arena, &labels, &ei);
        if (e == ERR_OK)
            e = querier_read(q, &list.items[i], 1, INT64_MIN, INT64_MAX, &arena, &column, &ei);
        if (e != ERR_OK) {
            CHECK_MSG(e == ERR_CORRUPT && names_file(&ei), "%s: %s", path, ei.message);
            out->errors++;
            continue;
        }
        check_column(m, life_series_of(&labels), &column, path);
        out->samples += column.count;
    }
    querier_close(q);
    arena_done(&arena);
}

static bool is_told(const struct damage_world *w, const struct engine_replay_result *r)
{
    return r->files_set_aside + r->series_files_damaged + r->unknown_ref_samples +
                   r->wal.bad_frame_count + r->wal.lost_entry_count >
               0 ||
           r->wal.torn_tail_bytes != w->torn_bytes;
}

/* Opens `fs` and reads all there is. */
static void serve(struct damage_world *w, struct fs *fs, bool read_only, const char *path,
                  struct outcome *out)
{
    const struct engine_options o = {.read_only = read_only, .wal_commit_delay_ms = 1};
    struct kit k;
    enum err e = kit_try_open(&k, fs, &o);

    *out = (struct outcome){0};
    if (e != ERR_OK) {
        CHECK_MSG(e == ERR_CORRUPT || e == ERR_UNSUPPORTED || e == ERR_INVALID, "%s: %s: %s", path,
                  err_name(e), k.ei.message);
        out->is_told = true;
        return;
    }
    out->is_told = is_told(w, &k.replay);
    read_all(&k, &w->l.model, path, out);
    if (read_only)
        kit_close(&k);
    else
        kit_abandon(&k);
}

/* ---- verification ---- */

struct verdict {
    const char *path;
    size_t damaged, notes, others; /* findings of the file, and of others */
};

static void note_finding(void *ctx, const struct inspect_finding *f)
{
    struct verdict *v = ctx;

    if (strcmp(f->path, v->path) != 0)
        v->others++;
    else if (f->is_damage)
        v->damaged++;
    else
        v->notes++;
}

static void verify(struct fs *fs, struct verdict *v)
{
    const struct inspect_options o = {.fs = fs, .thread_count = 1};
    struct inspect_verify_result result;
    struct errinfo ei = {0};

    CHECK_OK(inspect_verify(&o, note_finding, v, &result, &ei), &ei);
}

/* ---- one damage ---- */

static void check_damaged(struct damage_world *w, struct fs *fs, const struct store_file *f,
                          bool is_cut, uint64_t at)
{
    struct verdict v = {.path = f->path};
    struct outcome outcome;

    verify(fs, &v);
    /* The end of the newest segment cannot be told from one that was torn; and of whole frames that
     * are cut off only gaps in front of later ones tell. */
    if (f->kind != KIND_LOG || (!is_cut && !f->is_last_segment))
        CHECK_MSG(v.damaged == 1 && v.others == 0, "%s at %" PRIu64 ": %zu, %zu other findings",
                  f->path, at, v.damaged, v.others);
    else if (!is_cut)
        CHECK_MSG(v.damaged + v.notes == 1 && v.others == 0, "%s at %" PRIu64, f->path, at);
    serve(w, fs, true, f->path, &outcome);
    if (!is_cut || f->kind != KIND_LOG)
        CHECK_MSG(outcome.samples == w->sample_count || outcome.errors > 0 || outcome.is_told,
                  "%s at %" PRIu64 ": %" PRIu64 " of %" PRIu64 " samples, and not a word", f->path,
                  at, outcome.samples, w->sample_count);
}

static struct fs *copy_of(struct damage_world *w)
{
    return test_fs_after(w->l.fs, FS_SIM_KEEP_ALL, 1);
}

static void cut(struct fs *fs, const struct store_file *f, uint64_t size)
{
    struct errinfo ei = {0};
    struct file *file;

    CHECK_OK(file_open(fs, f->path, FILE_READ_WRITE, &file, &ei), &ei);
    CHECK_OK(file_truncate(file, size, &ei), &ei);
    file_close(file);
}

/* A server that starts on it, puts aside what it cannot use, and starts again. */
static void check_server(struct damage_world *w, struct fs *fs, const struct store_file *f)
{
    struct outcome first, second;

    serve(w, fs, false, f->path, &first);
    serve(w, fs, false, f->path, &second);
    CHECK_MSG(second.samples == first.samples, "%s: %" PRIu64 " samples, then %" PRIu64, f->path,
              first.samples, second.samples);
}

static void flip_round(struct damage_world *w, size_t round)
{
    const struct store_file *f = file_draw(w);
    uint64_t bit = test_random_below(&w->r, f->size * 8);
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_flip_bit(w->l.fs, f->path, bit, &ei), &ei);
    check_damaged(w, w->l.fs, f, false, bit / 8);
    if (round % SERVER_EVERY == 0) {
        struct fs *fs = copy_of(w);

        check_server(w, fs, f);
        fs_free(fs);
    }
    CHECK_OK(fs_sim_flip_bit(w->l.fs, f->path, bit, &ei), &ei);
}

static void cut_round(struct damage_world *w, size_t round)
{
    const struct store_file *f = file_draw(w);
    uint64_t size = test_random_below(&w->r, f->size);
    struct fs *fs = copy_of(w);

    cut(fs, f, size);
    check_damaged(w, fs, f, true, size);
    if (round % SERVER_EVERY == 0)
        check_server(w, fs, f);
    fs_free(fs);
}

static void check_whole(struct damage_world *w)
{
    struct verdict v = {.path = ""};
    struct outcome outcome;

    verify(w->l.fs, &v);
    CHECK(v.others == 0);
    serve(w, w->l.fs, true, "the whole store", &outcome);
    CHECK_MSG(outcome.samples == w->sample_count && outcome.errors == 0 && !outcome.is_told,
              "%" PRIu64 " of %" PRIu64 " samples", outcome.samples, w->sample_count);
}

static void test_damage(void **state)
{
    const char *text = getenv("DAMAGE_ROUNDS"); /* NOLINT(concurrency-mt-unsafe) */
    size_t rounds = text != NULL ? strtoul(text, NULL, 10) : ROUNDS;
    struct damage_world w = {.r = test_random_init(1)};

    (void)state;
    life_init(&w.l, test_fs_new(1), SHARDS);
    store_fill(&w);
    files_list(&w);
    check_whole(&w);
    for (size_t round = 0; round < rounds; round++) {
        if (round % 4 == 3)
            cut_round(&w, round / 4);
        else
            flip_round(&w, round);
    }
    check_whole(&w);
    life_done(&w.l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
