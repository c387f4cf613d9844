/*
 * The engine a script runs on: in memory, with a clock far ahead of every sample, fresh after each
 * `clear`. Series that the engine cannot hold yet (native histograms) are noted instead, so that
 * the evals that select them can be told from those that do not.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file_sim.h"
#include "base/float_text.h"
#include "engine/engine.h"
#include "engine/write.h"
#include "tools/promqltest_internal.h"

enum { SHARD_COUNT = 4, CLOSE_DEADLINE_MS = 10000 };

/* Year 3084: samples must not lie in the future. */
#define FAKE_NOW_MS (1LL << 45)

enum err store_open(struct store *s, struct errinfo *ei)
{
    struct engine_options options = {
        .shard_count = SHARD_COUNT, .wal_sync = WAL_SYNC_NEVER, .hash_secret_seed = 1};
    struct engine_replay_result replayed;
    enum err e;

    *s = (struct store){.fs = NULL};
    arena_init(&s->arena, NULL);
    clock_init_fake(&s->clock, FAKE_NOW_MS);
    e = fs_sim_new(1, &s->fs, ei);
    options.fs = s->fs;
    options.clock = &s->clock;
    if (e == ERR_OK)
        e = engine_open(&options, &s->engine, ei);
    return e == ERR_OK ? engine_replay(s->engine, 1, &replayed, ei) : e;
}

void store_close(struct store *s)
{
    enum err e = ERR_OK;

    if (s->engine != NULL)
        e = engine_close(s->engine, CLOSE_DEADLINE_MS, NULL);
    (void)e; /* nothing is kept, so a log that did not close well does no harm */
    s->engine = NULL;
    fs_free(s->fs);
    s->fs = NULL;
    arena_done(&s->arena);
}

/* The wire form of our own: the number of labels, then names and values with their lengths. */
static void labels_encode(struct byte_writer *w, const struct labels *l)
{
    writer_varint(w, l->count);
    for (size_t i = 0; i < l->count; i++) {
        writer_str(w, l->items[i].name);
        writer_str(w, l->items[i].value);
    }
}

static struct str read_str(struct byte_reader *r)
{
    uint64_t size = reader_varint(r);
    const uint8_t *p = reader_take(r, size > reader_left(r) ? SIZE_MAX : (size_t)size);

    return (struct str){(const char *)p, p != NULL ? (size_t)size : 0};
}

static enum err labels_decode(const void *ctx, struct bytes wire, struct arena *arena,
                              struct labels *out)
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    uint64_t count = reader_varint(&r);
    struct label *items;

    (void)ctx;
    if (r.failed || count > reader_left(&r))
        return ERR_INVALID;
    items = ARENA_ARRAY(arena, (size_t)count, struct label);
    if (items == NULL)
        return arena_error(arena, NULL);
    for (uint64_t i = 0; i < count; i++) {
        items[i].name = read_str(&r);
        items[i].value = read_str(&r);
    }
    *out = (struct labels){(size_t)count, items};
    return r.failed ? ERR_INVALID : ERR_OK;
}

static enum err batch_add_samples(struct write_batch *b, const struct sequence *points,
                                  int64_t step_ms, struct errinfo *ei)
{
    for (size_t i = 0; i < points->count; i++) {
        int64_t t_ms;

        if (points->kinds[i] != POINT_FLOAT)
            continue;
        if (__builtin_mul_overflow((int64_t)i, step_ms, &t_ms))
            return errinfo_set(ei, ERR_INVALID, 0, "timestamp of point %zu overflows", i);
        if (!write_batch_grow_samples(b))
            return errinfo_set(ei, ERR_NOMEM, 0, "samples to load");
        b->samples[b->sample_count++] = (struct write_sample){t_ms, points->values[i]};
    }
    return ERR_OK;
}

static enum err batch_add(struct store *s, struct write_batch *b, const struct series_line *line,
                          int64_t step_ms, struct bytes wire, struct errinfo *ei)
{
    struct write_series *series;
    size_t first = b->sample_count;
    enum err e = batch_add_samples(b, &line->points, step_ms, ei);

    if (e != ERR_OK || b->sample_count == first)
        return e;
    if (!write_batch_grow_series(b))
        return errinfo_set(ei, ERR_NOMEM, 0, "series to load");
    series = &b->series[b->series_count++];
    series->wire_labels = wire;
    series->sender_key = hash128_bytes(engine_hash_secret(s->engine), wire.data, wire.size);
    series->sample_first = (uint32_t)first;
    series->sample_count = (uint32_t)(b->sample_count - first);
    return ERR_OK;
}

static enum err batch_write(struct store *s, struct write_batch *b, struct errinfo *ei)
{
    struct write_result *result = ARENA_NEW(&s->arena, struct write_result);
    enum err e;

    if (result != NULL)
        result->sequences =
            arena_calloc(&s->arena, engine_shard_count(s->engine), sizeof(uint64_t));
    if (result == NULL || result->sequences == NULL)
        return arena_error(&s->arena, ei);
    b->labels_parse = labels_decode;
    e = engine_write(s->engine, b, result, ei);
    if (e == ERR_OK && result->refused_count > 0)
        return errinfo_set(ei, ERR_INVALID, 0, "%llu samples refused: %s",
                           (unsigned long long)result->refused_count,
                           result->example_count > 0 ? result->examples[0] : "");
    return e;
}

/* One request a series: a large load command needs no large batch. */
static enum err store_series(struct store *s, struct write_batch *b, const struct series_line *line,
                             int64_t step_ms, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    writer_init(&w);
    labels_encode(&w, &line->labels);
    e = w.failed ? errinfo_set(ei, ERR_NOMEM, 0, "labels to load")
                 : batch_add(s, b, line, step_ms, (struct bytes){w.data, w.size}, ei);
    if (e == ERR_OK && b->series_count > 0)
        e = batch_write(s, b, ei);
    write_batch_reset(b);
    writer_done(&w);
    return e;
}

static enum err copy_labels(struct arena *arena, const struct labels *from, struct labels *out,
                            struct errinfo *ei)
{
    struct label *items = ARENA_ARRAY(arena, from->count, struct label);

    if (items == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < from->count; i++) {
        struct str name = from->items[i].name, value = from->items[i].value;

        name.data = arena_memdup0(arena, name.data, name.size);
        value.data = arena_memdup0(arena, value.data, value.size);
        if (name.data == NULL || value.data == NULL)
            return arena_error(arena, ei);
        items[i] = (struct label){name, value};
    }
    *out = (struct labels){from->count, items};
    return ERR_OK;
}

static enum err left_out_add(struct store *s, const struct labels *labels,
                             bool only_start_timestamps, struct errinfo *ei)
{
    struct left_out *x;

    for (size_t i = 0; i < s->left_out_count; i++) {
        x = &s->left_out[i];
        if (labels_equal(&x->labels, labels)) {
            x->only_start_timestamps &= only_start_timestamps;
            return ERR_OK;
        }
    }
    if (s->left_out_count == s->left_out_capacity) {
        size_t wanted = s->left_out_capacity == 0 ? 16 : s->left_out_capacity * 2;

        s->left_out = arena_grow_array(&s->arena, s->left_out, s->left_out_count, wanted,
                                       sizeof *s->left_out);
        if (s->left_out == NULL)
            return arena_error(&s->arena, ei);
        s->left_out_capacity = wanted;
    }
    x = &s->left_out[s->left_out_count++];
    x->only_start_timestamps = only_start_timestamps;
    return copy_labels(&s->arena, labels, &x->labels, ei);
}

/* The length of the metric's base name when it belongs to a classic histogram, else 0. A bucket
 * whose bound is no number belongs to none. */
static size_t classic_base_size(const struct labels *labels)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    struct str name = labels_get(labels, LABEL_METRIC_NAME);
    double bound;

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t n = strlen(suffixes[i]);

        if (name.size <= n || memcmp(name.data + name.size - n, suffixes[i], n) != 0)
            continue;
        if (i == 0 && (!float_parse(labels_get(labels, STR_LITERAL("le")), &bound) || isnan(bound)))
            continue;
        return name.size - n;
    }
    return 0;
}

/* Notes the custom-bucket histogram that Prometheus would make of a classic histogram's series: the
 * base name, without le. */
static enum err note_custom_buckets(struct store *s, const struct labels *classic,
                                    struct errinfo *ei)
{
    size_t base_size = classic_base_size(classic), n = 0;
    struct label *items;
    struct labels made;

    if (base_size == 0)
        return ERR_OK;
    items = ARENA_ARRAY(&s->arena, classic->count, struct label);
    if (items == NULL)
        return arena_error(&s->arena, ei);
    for (size_t i = 0; i < classic->count; i++) {
        struct label l = classic->items[i];

        if (str_equal(l.name, STR_LITERAL("le")))
            continue;
        if (str_equal(l.name, LABEL_METRIC_NAME))
            l.value.size = base_size;
        items[n++] = l;
    }
    made = (struct labels){n, items};
    return left_out_add(s, &made, false, ei);
}

enum err store_load(struct store *s, const struct load_command *c, struct errinfo *ei)
{
    struct write_batch *b = NULL;
    enum err e = write_batch_new(&b, ei);

    for (size_t i = 0; e == ERR_OK && i < c->series_count; i++) {
        const struct load_series *series = &c->series[i];

        if (series->line.points.has_histogram) {
            e = left_out_add(s, &series->line.labels, false, ei);
            continue;
        }
        e = store_series(s, b, &series->line, c->step_ms, ei);
        if (e == ERR_OK && series->has_start_timestamps)
            e = left_out_add(s, &series->line.labels, true, ei);
        if (e == ERR_OK && c->with_nhcb)
            e = note_custom_buckets(s, &series->line.labels, ei);
    }
    write_batch_free(b);
    return e;
}
