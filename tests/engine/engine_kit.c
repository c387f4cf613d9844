#include "tests/engine/engine_kit.h"

#include <stdlib.h>
#include <string.h>

#include "engine/memtable_internal.h"
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
    CHECK_OK(write_batch_new(&k->batch, &k->ei), &k->ei);
    k->batch->labels_parse = parse_wire;
    k->sequences = calloc(engine_shard_count(k->engine), sizeof *k->sequences);
    CHECK(k->sequences != NULL);
    k->result.sequences = k->sequences;
    arena_init(&k->arena, NULL);
    return ERR_OK;
}

void kit_open(struct kit *k, struct fs *fs, const struct engine_options *options)
{
    CHECK_OK(kit_try_open(k, fs, options), &k->ei);
}

static void kit_done(struct kit *k)
{
    write_batch_free(k->batch);
    free(k->sequences);
    arena_done(&k->arena);
}

void kit_close(struct kit *k)
{
    CHECK_OK(engine_close(k->engine, 5000, &k->ei), &k->ei);
    kit_done(k);
}

void kit_abandon(struct kit *k)
{
    engine_abandon(k->engine);
    kit_done(k);
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

static bool find_slot(struct kit *k, struct arena *arena, const struct labels *wanted,
                      struct shard **shard, uint32_t *slot)
{
    struct matcher *matchers = ARENA_ARRAY(arena, wanted->count, struct matcher);
    bool found = false;

    for (size_t i = 0; i < wanted->count; i++)
        CHECK_OK(matcher_init(&matchers[i], MATCHER_EQUAL, wanted->items[i].name,
                              wanted->items[i].value, arena, &k->ei),
                 &k->ei);
    for (uint32_t n = 0; n < engine_shard_count(k->engine); n++) {
        struct shard *s = engine_shard(k->engine, n);
        uint32_t *slots;
        size_t count = 0;

        CHECK_OK(index_select(shard_index(s), matchers, wanted->count, NULL, arena, &slots, &count,
                              &k->ei),
                 &k->ei);
        for (size_t i = 0; i < count; i++) {
            struct labels got;

            CHECK_OK(index_labels(shard_index(s), &slots[i], 1, arena, &got, &k->ei), &k->ei);
            if (got.count != wanted->count)
                continue;
            CHECK(!found); /* a label set is one series */
            found = true;
            *shard = s;
            *slot = slots[i];
        }
    }
    for (size_t i = 0; i < wanted->count; i++)
        matcher_done(&matchers[i]);
    return found;
}

bool kit_read(struct kit *k, struct arena *arena, const char *labels, int64_t min_time_ms,
              int64_t max_time_ms, struct column *out)
{
    struct labels wanted;
    struct shard *s;
    struct series_meta meta;
    uint32_t slot;

    CHECK(parse_wire(NULL, wire_of(arena, labels), arena, &wanted) == ERR_OK);
    if (!find_slot(k, arena, &wanted, &s, &slot))
        return false;
    shard_series_meta(s, &slot, 1, &meta);
    CHECK_OK(
        shard_read(s, &slot, &meta.generation, 1, min_time_ms, max_time_ms, arena, out, &k->ei),
        &k->ei);
    shard_series_meta(s, &slot, 1, &meta); /* once more: a writer may have been at work */
    if (out->count > 0)
        CHECK(meta.min_time_ms <= out->t_ms[0] && meta.max_time_ms >= out->t_ms[out->count - 1]);
    return true;
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
