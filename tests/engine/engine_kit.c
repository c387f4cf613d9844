#include "tests/engine/engine_kit.h"

#include <stdlib.h>
#include <string.h>

#include "engine/histogram/histogram_pack_internal.h"
#include "wal/wal.h"

static enum err parse_wire(const void *ctx, struct bytes wire, struct arena *arena,
                           struct labels *out)
{
    struct byte_reader in = reader_init(wire.data, wire.size);
    struct label *items = ARENA_ARRAY(arena, wire.size / 2 + 1, struct label);
    size_t count = 0;

    (void)ctx;
    if (items == NULL)
        return ERR_NOMEM;
    while (reader_left(&in) > 0) {
        struct str part[2];

        for (int i = 0; i < 2; i++) {
            part[i].size = reader_varint(&in);
            part[i].data = (const char *)reader_take(&in, part[i].size);
        }
        if (in.failed)
            return ERR_INVALID;
        items[count++] = (struct label){part[0], part[1]};
    }
    *out = (struct labels){count, items};
    return ERR_OK;
}

static void begin_writing(struct kit *k)
{
    CHECK_OK(write_batch_new(&k->batch, &k->ei), &k->ei);
    k->batch->labels_parse = parse_wire;
    k->sequences = calloc(engine_shard_count(k->engine), sizeof *k->sequences);
    CHECK(k->sequences != NULL);
    k->result.sequences = k->sequences;
    arena_init(&k->arena, NULL);
}

void kit_join(struct kit *k, struct engine *engine)
{
    memset(k, 0, sizeof *k);
    k->engine = engine;
    begin_writing(k);
}

enum err kit_try_open(struct kit *k, struct fs *fs, const struct engine_options *options)
{
    struct engine_options o = {0};
    enum err e;

    memset(k, 0, sizeof *k);
    if (options != NULL)
        o = *options;
    k->fs = fs;
    clock_init_fake(&k->clock, KIT_NOW_MS);
    o.fs = fs;
    o.clock = &k->clock;
    if (o.hash_secret_seed == 0)
        o.hash_secret_seed = 1;
    e = engine_open(&o, &k->engine, &k->ei);
    if (e != ERR_OK)
        return e;
    e = engine_replay(k->engine, 2, &k->replay, &k->ei);
    if (e != ERR_OK) {
        engine_abandon(k->engine);
        return e;
    }
    begin_writing(k);
    return ERR_OK;
}

void kit_open(struct kit *k, struct fs *fs, const struct engine_options *options)
{
    CHECK_OK(kit_try_open(k, fs, options), &k->ei);
}

void kit_leave(struct kit *k)
{
    write_batch_free(k->batch);
    free(k->sequences);
    arena_done(&k->arena);
}

void kit_close(struct kit *k)
{
    CHECK_OK(engine_close(k->engine, 5000, &k->ei), &k->ei);
    kit_leave(k);
}

void kit_abandon(struct kit *k)
{
    engine_abandon(k->engine);
    kit_leave(k);
}

static size_t put_part(uint8_t *out, const char *text, size_t size)
{
    size_t n = varint_write(out, size);

    memcpy(out + n, text, size);
    return n + size;
}

/* "a=b,c=d" as wire bytes in the arena. */
static struct bytes wire_of(struct arena *arena, const char *labels)
{
    size_t size = 0;
    uint8_t *wire = arena_alloc(arena, 2 * strlen(labels) + 32);

    CHECK(wire != NULL);
    for (const char *p = labels; *p != '\0';) {
        size_t name = strcspn(p, "=");

        CHECK(p[name] == '=');
        size_t value = strcspn(p + name + 1, ",");
        size += put_part(wire + size, p, name);
        size += put_part(wire + size, p + name + 1, value);
        p += name + 1 + value;
        p += *p == ',';
    }
    return (struct bytes){wire, size};
}

void kit_series_wire(struct kit *k, struct bytes wire)
{
    struct write_batch *b = k->batch;

    CHECK(write_batch_grow_series(b));
    b->series[b->series_count++] = (struct write_series){
        .sender_key = hash128_bytes(engine_hash_secret(k->engine), wire.data, wire.size),
        .wire_labels = wire,
        .sample_first = (uint32_t)b->sample_count,
        .histogram_first = (uint32_t)b->histogram_count,
    };
}

void kit_series(struct kit *k, const char *labels)
{
    kit_series_wire(k, wire_of(&k->arena, labels));
}

void kit_sample(struct kit *k, int64_t t_ms, double value)
{
    struct write_batch *b = k->batch;

    CHECK(write_batch_grow_samples(b));
    b->samples[b->sample_count++] = (struct write_sample){t_ms, value};
    b->series[b->series_count - 1].sample_count++;
}

void kit_histogram(struct kit *k, int64_t t_ms, const struct histogram *h)
{
    struct write_batch *b = k->batch;

    CHECK(write_batch_grow_histograms(b));
    b->histograms[b->histogram_count++] = (struct write_histogram){t_ms, *h};
    b->series[b->series_count - 1].histogram_count++;
}

bool kit_is_histogram(uint64_t series, int64_t t_ms)
{
    return series % 3 == 1 || (series % 6 == 2 && t_ms / 1000 % 2 == 0);
}

static void histogram_of(double value, struct arena *arena, struct histogram *out)
{
    static const double bounds[] = {-1, 0, 0.5, 1, 2, 10, 1000};
    static const struct histogram_span spans[][2] = {{{0, 3}, {1, 2}}, {{0, 5}, {0, 0}}};
    uint64_t bits = double_bits(value);
    bool is_custom = bits >> 5 & 1;

    *out = (struct histogram){.schema = is_custom ? HISTOGRAM_SCHEMA_CUSTOM : 3,
                              .sum = value,
                              .custom_values = bounds,
                              .custom_count = is_custom ? 7 : 0};
    out->positive = (struct histogram_side){.spans = spans[bits >> 6 & 1],
                                            .span_count = 2,
                                            .buckets = ARENA_ARRAY(arena, 5, double),
                                            .bucket_count = 5};
    CHECK(out->positive.buckets != NULL);
    for (unsigned i = 0; i < 5; i++)
        out->count += out->positive.buckets[i] = (double)(bits >> 10 * i & 0x3ff);
}

void kit_sample_of(struct kit *k, uint64_t series, int64_t t_ms, double value)
{
    struct histogram h;

    if (!kit_is_histogram(series, t_ms)) {
        kit_sample(k, t_ms, value);
        return;
    }
    histogram_of(value, &k->batch->histogram_arena, &h);
    kit_histogram(k, t_ms, &h);
}

void kit_check_kind(uint64_t series, const struct column *c, size_t i)
{
    const struct histogram *h = c->histogram == NULL ? NULL : c->histogram[i];
    struct histogram wanted;
    uint64_t got_bits, wanted_bits;
    struct arena arena;

    CHECK_MSG((h != NULL) == kit_is_histogram(series, c->t_ms[i]), "series %llu at %lld",
              (unsigned long long)series, (long long)c->t_ms[i]);
    if (h == NULL)
        return;
    arena_init(&arena, NULL);
    histogram_of(c->value[i], &arena, &wanted);
    CHECK(double_bits(h->sum) == double_bits(c->value[i]));
    CHECK(histogram_layout_same(h, &wanted));
    CHECK(histogram_value_bits(h, &got_bits) && histogram_value_bits(&wanted, &wanted_bits));
    CHECK(got_bits == wanted_bits && h->count == wanted.count);
    arena_done(&arena);
}

enum err kit_write(struct kit *k)
{
    enum err e;

    errinfo_clear(&k->ei);
    e = engine_write(k->engine, k->batch, &k->result, &k->ei);
    write_batch_reset(k->batch);
    arena_reset(&k->arena);
    return e;
}

enum err kit_wait(struct kit *k)
{
    return wal_wait_blocking(k->engine->wal, k->sequences, &k->ei);
}

void kit_put(struct kit *k, const char *labels, int64_t t_ms, double value)
{
    kit_series(k, labels);
    kit_sample(k, t_ms, value);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.refused_count == 0 && k->result.sample_count == 1);
    CHECK_OK(kit_wait(k), &k->ei);
}

static bool find_series(struct kit *k, struct querier *q, struct arena *arena,
                        const struct labels *wanted, int64_t min_time_ms, int64_t max_time_ms,
                        struct series_handle *out)
{
    struct matcher *matchers = ARENA_ARRAY(arena, wanted->count, struct matcher);
    struct series_list list = {0};
    bool found = false;

    for (size_t i = 0; i < wanted->count; i++)
        CHECK_OK(matcher_init(&matchers[i], MATCHER_EQUAL, wanted->items[i].name,
                              wanted->items[i].value, arena, &k->ei),
                 &k->ei);
    CHECK_OK(
        querier_select(q, matchers, wanted->count, min_time_ms, max_time_ms, arena, &list, &k->ei),
        &k->ei);
    for (size_t i = 0; i < list.count; i++) {
        struct labels got;

        CHECK_OK(querier_labels(q, &list.items[i], 1, arena, &got, &k->ei), &k->ei);
        if (got.count != wanted->count)
            continue;
        CHECK(!found); /* a label set is one series */
        found = true;
        *out = list.items[i];
    }
    for (size_t i = 0; i < wanted->count; i++)
        matcher_done(&matchers[i]);
    return found;
}

enum err kit_try_read(struct kit *k, struct arena *arena, const char *labels, int64_t min_time_ms,
                      int64_t max_time_ms, struct column *out, struct errinfo *ei)
{
    struct series_handle handle = {0};
    struct labels wanted;
    struct querier *q;
    enum err e = ERR_NOT_FOUND;

    CHECK(parse_wire(NULL, wire_of(arena, labels), arena, &wanted) == ERR_OK);
    CHECK_OK(querier_open(k->engine, &q, &k->ei), &k->ei);
    if (find_series(k, q, arena, &wanted, min_time_ms, max_time_ms, &handle))
        e = querier_read(q, &handle, 1, min_time_ms, max_time_ms, arena, out, ei);
    querier_close(q);
    return e;
}

bool kit_read(struct kit *k, struct arena *arena, const char *labels, int64_t min_time_ms,
              int64_t max_time_ms, struct column *out)
{
    enum err e = kit_try_read(k, arena, labels, min_time_ms, max_time_ms, out, &k->ei);

    if (e != ERR_NOT_FOUND)
        CHECK_OK(e, &k->ei);
    return e == ERR_OK;
}

void kit_check(struct kit *k, const char *labels, size_t count, const int64_t *t_ms,
               const double *value)
{
    struct arena arena;
    struct column got = {0};

    arena_init(&arena, NULL);
    CHECK_MSG(kit_read(k, &arena, labels, INT64_MIN, INT64_MAX, &got) || count == 0, "%s", labels);
    CHECK_MSG(got.count == count, "%s: %zu samples, not %zu", labels, got.count, count);
    for (size_t i = 0; i < count; i++) {
        CHECK_MSG(got.t_ms[i] == t_ms[i], "%s: sample %zu", labels, i);
        CHECK_MSG(double_bits(got.value[i]) == double_bits(value[i]), "%s: sample %zu", labels, i);
    }
    arena_done(&arena);
}
