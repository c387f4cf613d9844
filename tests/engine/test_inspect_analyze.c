/*
 * What an analysis hands out: every sample of a store once, under the right labels, and bytes that
 * add up to the files.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/log.h"
#include "engine/codec.h"
#include "engine/inspect.h"
#include "tests/engine/inspect_world.h"
#include "tests/engine/seal_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

struct taken {
    uint64_t samples[SEAL_SERIES_MAX]; /* by series of the model */
    size_t model_series;               /* 0: the labels are not the model's */
    uint64_t kind_samples[INSPECT_KIND_COUNT], kind_series[INSPECT_KIND_COUNT];
    double kind_bytes[INSPECT_KIND_COUNT];
    uint64_t codecs[CODEC_SPLIT + 1], histogram_chunks;
    size_t damaged_count;
    char damaged_path[MANIFEST_PATH_SIZE];
    struct inspect_analyze_result result;
};

/* The number of a series in the model, by its labels. */
static size_t series_number(const struct labels *l)
{
    char wanted[64], text[64];
    struct str name = labels_get(l, LABEL_METRIC_NAME), host = labels_get(l, str_from("instance"));
    struct str job = labels_get(l, str_from("job"));
    size_t number;

    CHECK(l->count == 3 && labels_are_canonical(l));
    CHECK(snprintf(text, sizeof text, "__name__=%.*s,instance=%.*s,job=%.*s", STR_ARGS(name),
                   STR_ARGS(host), STR_ARGS(job)) < (int)sizeof text);
    CHECK(name.size > 7 && host.size > 5);
    number = strtoul(host.data + 5, NULL, 10) * 7 + strtoul(name.data + 7, NULL, 10);
    CHECK(strcmp(seal_series_name(number, wanted), text) == 0);
    return number;
}

static enum err take_series(void *ctx, const struct inspect_series *s, struct errinfo *ei)
{
    struct taken *t = ctx;
    uint64_t samples = 0;

    (void)ei;
    t->kind_series[s->kind]++;
    t->kind_bytes[s->kind] += s->index_bytes;
    for (size_t i = 0; i < s->chunk_count; i++) {
        const struct inspect_chunk *c = &s->chunks[i];

        CHECK(c->sample_count > 0 && c->min_time_ms <= c->max_time_ms);
        CHECK(i == 0 || s->chunks[i - 1].max_time_ms < c->min_time_ms);
        CHECK(c->codec <= CODEC_SPLIT && c->bytes >= 0);
        CHECK((c->bytes == 0) == (s->kind == INSPECT_LOG));
        t->codecs[c->codec] += s->kind != INSPECT_LOG && !c->is_histograms;
        t->histogram_chunks += c->is_histograms;
        CHECK(!c->is_histograms || (c->codec == 0 && s->kind != INSPECT_LOG));
        t->kind_bytes[s->kind] += c->bytes;
        samples += c->sample_count;
    }
    t->kind_samples[s->kind] += samples;
    if (t->model_series > 0)
        t->samples[series_number(&s->labels)] += samples;
    return ERR_OK;
}

static void take_damage(void *ctx, const struct inspect_finding *f)
{
    struct taken *t = ctx;

    t->damaged_count++;
    CHECK(snprintf(t->damaged_path, sizeof t->damaged_path, "%s", f->path) <
          (int)sizeof t->damaged_path);
    CHECK(strstr(f->what, f->path) != NULL);
}

static void analyze(struct fs *fs, bool with_codecs, size_t model_series, struct taken *t)
{
    struct inspect_options o = {.fs = fs, .thread_count = 2};
    struct inspect_analyzer a = {
        .series = take_series, .damaged = take_damage, .ctx = t, .with_codecs = with_codecs};
    uint64_t before = fs_sim_op_count(fs);
    struct errinfo ei = {0};

    memset(t, 0, sizeof *t);
    t->model_series = model_series;
    CHECK_OK(inspect_analyze(&o, &a, &t->result, &ei), &ei);
    CHECK(fs_sim_op_count(fs) == before && t->damaged_count == t->result.damaged_file_count);
    for (int k = 0; k < INSPECT_KIND_COUNT; k++)
        CHECK(t->kind_samples[k] == t->result.kinds[k].sample_count);
}

static bool adds_up(double a, uint64_t b)
{
    return fabs(a - (double)b) < 1e-6 * (double)b + 1e-3;
}

static uint64_t codecs_sum(const struct taken *t)
{
    uint64_t sum = 0;

    for (int i = 0; i <= CODEC_SPLIT; i++)
        sum += t->codecs[i];
    return sum + t->histogram_chunks;
}

/* Series that ended have left chunks behind whose samples are in parts: nobody's bytes. */
static void check_sealed(const struct taken *t)
{
    const struct inspect_kind_total *sealed = &t->result.kinds[INSPECT_SEALED];
    double bytes = t->kind_bytes[INSPECT_SEALED];
    uint64_t elsewhere =
        t->result.kinds[INSPECT_PART].chunk_count + t->result.kinds[INSPECT_LATE].chunk_count;

    CHECK(t->codecs[0] == 0 && t->result.unnamed_chunk_count < sealed->chunk_count);
    CHECK(codecs_sum(t) == sealed->chunk_count + elsewhere); /* of series that are known */
    if (t->result.unnamed_chunk_count == 0)
        CHECK(adds_up(bytes, sealed->byte_count));
    else
        CHECK(bytes > 0.5 * (double)sealed->byte_count && bytes < (double)sealed->byte_count);
}

static void check_samples(const struct taken *t, const struct seal_model *m)
{
    for (size_t i = 0; i < m->series_count; i++)
        CHECK_MSG(t->samples[i] == m->series[i].count, "series %zu: %zu of %zu samples", i,
                  (size_t)t->samples[i], m->series[i].count);
}

/* Sealed files, and in the log what came after; then all in files; then nothing in them yet. */
static void test_store(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct seal_model *m = malloc(sizeof *m);
    struct taken *t = malloc(sizeof *t);
    struct kit k;

    (void)state;
    CHECK(m != NULL && t != NULL);
    seal_model_init(m, 250, 1);
    seal_open(&k, fs, m);
    for (int round = 0; round < 40; round++) {
        CHECK(seal_send(&k, m, 70));
        seal_advance(&k, m, 300000);
        if (round == 4) {
            kit_close(&k);
            analyze(fs, true, m->series_count, t);
            check_samples(t, m);
            CHECK(t->kind_series[INSPECT_SEALED] == 0 && t->kind_series[INSPECT_LOG] > 0);
            seal_open(&k, fs, m);
        }
        if (round % 12 == 11)
            CHECK_OK(seal_all(&k, NULL), &k.ei);
    }
    kit_abandon(&k);
    analyze(fs, true, m->series_count, t);
    check_samples(t, m);
    CHECK(t->kind_samples[INSPECT_SEALED] > 0 && t->kind_samples[INSPECT_LOG] > 0);
    check_sealed(t);
    CHECK(t->result.kinds[INSPECT_SERIES_FILE].file_count == SEAL_SHARDS);
    CHECK(t->damaged_count == 0);
    analyze(fs, false, m->series_count, t);
    check_samples(t, m);
    CHECK(t->codecs[0] > 0 && t->codecs[0] + t->histogram_chunks == codecs_sum(t));
    seal_open(&k, fs, m);
    CHECK_OK(seal_all(&k, NULL), &k.ei);
    kit_close(&k);
    analyze(fs, true, m->series_count, t);
    check_samples(t, m);
    CHECK(t->kind_series[INSPECT_LOG] == 0);
    seal_model_done(m);
    free(m);
    free(t);
    fs_free(fs);
}

/* Parts, and sealed files whose series nobody names. */
static void test_files(void **state)
{
    struct taken *t = malloc(sizeof *t);
    struct world w;

    (void)state;
    CHECK(t != NULL);
    world_init(&w, 2);
    analyze(w.fs, true, 0, t);
    CHECK(t->kind_samples[INSPECT_PART] == w.part_samples);
    CHECK(t->result.kinds[INSPECT_PART].file_count == 2);
    CHECK(adds_up(t->kind_bytes[INSPECT_PART], t->result.kinds[INSPECT_PART].byte_count));
    CHECK(t->codecs[0] == 0 && t->damaged_count == 0);
    CHECK(t->histogram_chunks == (size_t)2 * 4); /* of two parts */
    CHECK(t->kind_samples[INSPECT_SEALED] + t->kind_samples[INSPECT_LATE] +
              t->result.unnamed_sample_count ==
          w.sealed_samples + w.late_samples);
    CHECK(t->result.kinds[INSPECT_SEALED].file_count == 2);
    CHECK(t->result.kinds[INSPECT_LATE].file_count == 1);
    CHECK(t->result.kinds[INSPECT_LOG].file_count == w.segment_count);
    world_done(&w);
    free(t);
}

/* A damaged file is told and left out; the others are there. */
static void test_damage(void **state)
{
    struct taken *t = malloc(sizeof *t);
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    CHECK(t != NULL);
    world_init(&w, 3);
    for (size_t i = 0; i < w.file_count; i++) {
        const struct world_file *f = &w.files[i];

        if (f->is_log || strcmp(f->path, MANIFEST_PATH) == 0)
            continue;
        CHECK_OK(fs_sim_flip_bit(w.fs, f->path, 9, &ei), &ei);
        analyze(w.fs, true, 0, t);
        CHECK(t->damaged_count == 1);
        CHECK_MSG(strcmp(t->damaged_path, f->path) == 0, "%s: %s", f->path, t->damaged_path);
        CHECK_OK(fs_sim_flip_bit(w.fs, f->path, 9, &ei), &ei);
    }
    CHECK_OK(fs_sim_flip_bit(w.fs, MANIFEST_PATH, 9, &ei), &ei);
    {
        struct inspect_options o = {.fs = w.fs};
        struct inspect_analyzer a = {.series = take_series, .damaged = take_damage, .ctx = t};

        CHECK(inspect_analyze(&o, &a, &t->result, NULL) == ERR_CORRUPT);
    }
    world_done(&w);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_damage),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
