/*
 * The engine a script runs on: in memory, with a clock far ahead of every sample, fresh after each
 * `clear`.
 */
#include <string.h>

#include "base/clock.h"
#include "base/file_sim.h"
#include "engine/engine.h"
#include "tools/promqltest_internal.h"

enum { SHARD_COUNT = 4, CLOSE_DEADLINE_MS = 10000 };

/* Year 3084: samples must not lie in the future. */
#define FAKE_NOW_MS (1LL << 45)
/* Distances of start timestamps from here on do not overflow. */
#define START_TIME_MAX_MS (1LL << 50)

enum err store_open(struct store *s, bool is_aged, struct errinfo *ei)
{
    struct engine_options options = {.shard_count = SHARD_COUNT,
                                     .wal_sync = WAL_SYNC_NEVER,
                                     .hash_secret_seed = 1,
                                     /* Windows are open or closed as they would have been. */
                                     .clock_is_data = is_aged};
    struct engine_replay_result replayed;
    enum err e;

    *s = (struct store){.is_aged = is_aged};
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

/* The start timestamp of point `i`; 0: none, as wherever such times are. */
static int64_t start_of(const struct series_line *line, size_t i, int64_t t_ms)
{
    int64_t offset_ms = line->start_offsets_ms == NULL ? START_OMITTED : line->start_offsets_ms[i];

    return offset_ms == START_OMITTED ? 0 : t_ms + offset_ms;
}

/* What is no plain float: histograms, and floats that have a start timestamp. */
static enum err batch_add_histogram(struct write_batch *b, const struct histogram *value,
                                    int64_t t_ms, int64_t start_ms, struct errinfo *ei)
{
    struct write_histogram *h;

    if (!write_batch_grow_histograms(b))
        return errinfo_set(ei, ERR_NOMEM, 0, "histograms to load");
    h = &b->histograms[b->histogram_count];
    h->t_ms = t_ms;
    if (histogram_copy_deep(value, &b->histogram_arena, &h->value) != ERR_OK)
        return arena_error(&b->histogram_arena, ei);
    h->value.start_ms = start_ms;
    b->histogram_count++;
    return histogram_is_float(value) ? histogram_check_layout(&h->value, ei)
                                     : histogram_accept(&h->value, &b->histogram_arena, ei);
}

/* False: as a float. */
static bool goes_as_histogram(const struct series_line *line, size_t i, int64_t t_ms)
{
    return line->points.kinds[i] == POINT_HISTOGRAM || start_of(line, i, t_ms) != 0;
}

static enum err batch_add_point(struct write_batch *b, const struct series_line *line, size_t i,
                                int64_t t_ms, struct errinfo *ei)
{
    const struct sequence *points = &line->points;
    struct histogram counted = {.schema = HISTOGRAM_SCHEMA_FLOAT};

    if (points->kinds[i] == POINT_HISTOGRAM)
        return batch_add_histogram(b, &points->histograms[i]->value, t_ms, start_of(line, i, t_ms),
                                   ei);
    if (goes_as_histogram(line, i, t_ms)) {
        counted.sum = points->values[i];
        return batch_add_histogram(b, &counted, t_ms, start_of(line, i, t_ms), ei);
    }
    if (!write_batch_grow_samples(b))
        return errinfo_set(ei, ERR_NOMEM, 0, "samples to load");
    b->samples[b->sample_count++] = (struct write_sample){t_ms, points->values[i]};
    return ERR_OK;
}

/* Adds the run of points that are sent alike that begins at *next, and moves that behind it, so
 * that one request never leaves the order of time. Omitted points are passed over. */
static enum err batch_add_run(struct write_batch *b, const struct series_line *line, size_t end,
                              int64_t step_ms, size_t *next, struct errinfo *ei)
{
    bool any = false, as_histograms = false;
    enum err e = ERR_OK;

    for (size_t i = *next; e == ERR_OK && i < end; *next = ++i) {
        int64_t t_ms;

        if (line->points.kinds[i] == POINT_OMITTED)
            continue;
        if (__builtin_mul_overflow((int64_t)i, step_ms, &t_ms) || t_ms > START_TIME_MAX_MS)
            return errinfo_set(ei, ERR_INVALID, 0, "timestamp of point %zu overflows", i);
        if (any && goes_as_histogram(line, i, t_ms) != as_histograms)
            break;
        any = true;
        as_histograms = goes_as_histogram(line, i, t_ms);
        e = batch_add_point(b, line, i, t_ms, ei);
    }
    return e;
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

/* Writes what the batch holds as samples of one series. */
static enum err batch_write_series(struct store *s, struct write_batch *b, struct bytes wire,
                                   struct errinfo *ei)
{
    struct write_series *series;

    if (b->sample_count + b->histogram_count == 0)
        return ERR_OK;
    if (!write_batch_grow_series(b))
        return errinfo_set(ei, ERR_NOMEM, 0, "series to load");
    series = &b->series[b->series_count++];
    *series = (struct write_series){
        .sender_key = hash128_bytes(engine_hash_secret(s->engine), wire.data, wire.size),
        .wire_labels = wire,
        .sample_count = (uint32_t)b->sample_count,
        .histogram_count = (uint32_t)b->histogram_count};
    return batch_write(s, b, ei);
}

enum err store_series(struct store *s, struct write_batch *b, const struct series_line *line,
                      int64_t step_ms, struct errinfo *ei)
{
    size_t middle = line->points.count / 2;
    size_t next = s->share == LOAD_SECOND_HALF ? middle : 0;
    size_t end = s->share == LOAD_FIRST_HALF ? middle : line->points.count;
    struct byte_writer w;
    enum err e = ERR_OK;

    writer_init(&w);
    labels_encode(&w, &line->labels);
    if (w.failed)
        e = errinfo_set(ei, ERR_NOMEM, 0, "labels to load");
    while (e == ERR_OK && next < end) {
        e = batch_add_run(b, line, end, step_ms, &next, ei);
        if (e == ERR_OK)
            e = batch_write_series(s, b, (struct bytes){w.data, w.size}, ei);
        write_batch_reset(b);
    }
    writer_done(&w);
    return e;
}

static enum err load_share(struct store *s, const struct load_command *c, enum load_share share,
                           struct errinfo *ei)
{
    struct write_batch *b = NULL;
    enum err e = write_batch_new(&b, ei);

    s->share = share;
    for (size_t i = 0; e == ERR_OK && i < c->series_count; i++) {
        e = store_series(s, b, &c->series[i], c->step_ms, ei);
    }
    if (e == ERR_OK && c->with_nhcb)
        e = store_load_custom_buckets(s, b, c, ei);
    write_batch_free(b);
    return e;
}

enum err store_load(struct store *s, const struct load_command *c, struct errinfo *ei)
{
    enum err e;

    if (!s->is_aged)
        return load_share(s, c, LOAD_ALL, ei);
    e = load_share(s, c, LOAD_FIRST_HALF, ei);
    if (e == ERR_OK)
        e = store_age(s, ei);
    if (e == ERR_OK)
        e = load_share(s, c, LOAD_SECOND_HALF, ei);
    return e == ERR_OK ? store_age(s, ei) : e;
}
