/*
 * See part_kit.h. Values are hostile: NaN payloads, both zeros, infinities, denormals, neighbours
 * of 2^53; timestamps are regular, jittered, repeated by other series, or far apart.
 */
#include "tests/engine/part_kit.h"

#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"
#include "tests/engine/histogram_kit.h"
#include "tests/engine/index_twin.h"

const struct part_key kit_key = {.window_start_ms = 1700006400000,
                                 .window_size_ms = 7200000,
                                 .shard = 3,
                                 .shard_count = 16,
                                 .generation = 12};

static double hostile_value(struct test_random *r)
{
    static const uint64_t bits[] = {0,
                                    UINT64_C(1) << 63,
                                    UINT64_C(0x7ff0000000000000),
                                    UINT64_C(0xfff0000000000000),
                                    UINT64_C(0x7ff0000000000002),
                                    UINT64_C(0x7ff8000000000001),
                                    1,
                                    UINT64_C(0x4340000000000000),
                                    UINT64_C(0x433fffffffffffff)};

    return double_from_bits(bits[test_random_below(r, sizeof bits / sizeof bits[0])]);
}

static void fill_values(struct test_random *r, double *v, size_t n)
{
    uint64_t kind = test_random_below(r, 6);
    double x = (double)test_random_below(r, 1000000);

    for (size_t i = 0; i < n; i++) {
        switch (kind) {
        case 0: /* constant */
            v[i] = x;
            break;
        case 1:
            v[i] = x = x + (double)test_random_below(r, 500);
            break;
        case 2:
            v[i] = (double)test_random_below(r, 1000000) / 1e6;
            break;
        case 3:
            v[i] = double_from_bits(test_random_u64(r));
            break;
        case 4:
            v[i] = hostile_value(r);
            break;
        default:
            v[i] = test_random_below(r, 20) == 0 ? hostile_value(r) : x + (double)i;
            break;
        }
    }
}

/* From *t on, which moves behind the last. */
static void fill_times(struct test_random *r, int64_t *t_ms, size_t n, int64_t *t)
{
    uint64_t kind = test_random_below(r, 4);

    for (size_t i = 0; i < n; i++) {
        t_ms[i] = *t;
        if (kind == 0)
            *t += 1 + (int64_t)test_random_below(r, 30000);
        else
            *t += 15000 + (kind == 1 ? (int64_t)test_random_below(r, 10) : 0);
    }
}

static void fill_histograms(struct kit_model *m, struct test_random *r, struct kit_chunk *c)
{
    c->histogram = ARENA_ARRAY(&m->arena, c->count, struct histogram);
    CHECK(c->histogram != NULL);
    histograms_fill_any(r, &m->arena, c->histogram, c->count);
    for (size_t i = 0; i < c->count; i++)
        c->value[i] = c->histogram[i].sum;
}

static void fill_chunks(struct kit_model *m, struct test_random *r, struct kit_shape shape,
                        struct kit_series *s)
{
    int64_t t = kit_key.window_start_ms + (int64_t)test_random_below(r, 3) * 1000;

    s->chunk_count = 1 + test_random_below(r, shape.chunks_max);
    s->chunks = arena_calloc(&m->arena, s->chunk_count, sizeof *s->chunks);
    CHECK(s->chunks != NULL);
    for (size_t i = 0; i < s->chunk_count; i++) {
        struct kit_chunk *c = &s->chunks[i];

        c->count = 1 + test_random_below(r, shape.samples_max);
        c->t_ms = ARENA_ARRAY(&m->arena, c->count, int64_t);
        c->value = ARENA_ARRAY(&m->arena, c->count, double);
        CHECK(c->t_ms != NULL && c->value != NULL);
        fill_times(r, c->t_ms, c->count, &t);
        fill_values(r, c->value, c->count);
        if (shape.has_histograms && test_random_below(r, 3) == 0)
            fill_histograms(m, r, c);
    }
}

static int compare_series(const void *a, const void *b)
{
    return part_labels_compare(&((const struct kit_series *)a)->labels,
                               &((const struct kit_series *)b)->labels);
}

void kit_model_init(struct kit_model *m, struct test_random *r, struct kit_shape shape)
{
    size_t kept = 0;

    arena_init(&m->arena, NULL);
    m->series = calloc(shape.series_count, sizeof *m->series);
    CHECK(m->series != NULL);
    for (size_t i = 0; i < shape.series_count; i++) {
        struct twin_series *s = ARENA_NEW(&m->arena, struct twin_series);

        CHECK(s != NULL);
        twin_series_random(r, &m->arena, shape.spread, test_random_below(r, 8) == 0, (uint32_t)i,
                           s);
        m->series[i].labels = s->labels;
    }
    qsort(m->series, shape.series_count, sizeof *m->series, compare_series);
    for (size_t i = 0; i < shape.series_count; i++) {
        if (kept > 0 && compare_series(&m->series[kept - 1], &m->series[i]) == 0)
            continue;
        m->series[kept++] = m->series[i];
    }
    m->count = kept;
    for (size_t i = 0; i < kept; i++) {
        /* A few share the bits that the look-up goes by. */
        m->series[i].fingerprint.low = test_random_u64(r);
        m->series[i].fingerprint.high =
            test_random_below(r, 10) == 0 ? UINT64_MAX : test_random_u64(r);
        fill_chunks(m, r, shape, &m->series[i]);
    }
}

void kit_model_done(struct kit_model *m)
{
    arena_done(&m->arena);
    free(m->series);
}

static enum err chunk_write(struct part_writer *w, const struct kit_chunk *c, struct errinfo *ei)
{
    return c->histogram != NULL ? part_writer_histograms(w, c->t_ms, c->histogram, c->count, ei)
                                : part_writer_samples(w, c->t_ms, c->value, c->count, ei);
}

enum err kit_write(struct part_store *s, const char *dir, const struct kit_model *m, uint64_t id,
                   struct part_info *info, struct errinfo *ei)
{
    struct part_writer_options o = {.dir = dir, .key = kit_key, .id = id};
    struct part_writer *w = NULL;
    enum err e = part_writer_new(s, &o, &w, ei);

    for (size_t i = 0; i < m->count && e == ERR_OK; i++) {
        const struct kit_series *k = &m->series[i];

        e = part_writer_series(w, &k->labels, k->fingerprint, ei);
        for (size_t c = 0; c < k->chunk_count && e == ERR_OK; c++)
            e = chunk_write(w, &k->chunks[c], ei);
    }
    if (e == ERR_OK)
        e = part_writer_finish(w, 77, info, ei);
    part_writer_free(w);
    return e;
}

void kit_store_init(struct kit_store *k, uint64_t seed, uint64_t cache_bytes)
{
    struct part_store_options o = {.cache_bytes = cache_bytes, .descriptor_count = 2};
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(seed, &k->fs, &ei), &ei);
    budget_init(&k->memory, "test", UINT64_MAX, NULL);
    o.fs = k->fs;
    o.memory = &k->memory;
    CHECK_OK(part_store_new(&o, &k->store, &ei), &ei);
}

void kit_store_done(struct kit_store *k)
{
    part_store_free(k->store);
    CHECK(budget_used(&k->memory) == 0);
    fs_free(k->fs);
}

/* ---- comparing ---- */

static void check_column(const struct kit_series *s, const struct column *c)
{
    size_t at = 0;

    for (size_t i = 0; i < s->chunk_count; i++) {
        const struct kit_chunk *k = &s->chunks[i];

        CHECK(c->count - at >= k->count);
        CHECK(memcmp(c->t_ms + at, k->t_ms, k->count * sizeof *k->t_ms) == 0);
        CHECK(memcmp(c->value + at, k->value, k->count * sizeof *k->value) == 0);
        for (size_t n = 0; n < k->count; n++) {
            const struct histogram *got = c->histogram == NULL ? NULL : c->histogram[at + n];

            CHECK((got != NULL) == (k->histogram != NULL));
            if (got != NULL && at + n > 0)
                CHECK(histogram_same_bits(&k->histogram[n], got));
            else if (got != NULL)
                CHECK(histogram_is_answer(&k->histogram[n], got, false));
        }
        at += k->count;
    }
    CHECK(at == c->count);
}

enum { CHECK_BATCH = 100 };

static enum err check_batch(struct part *p, const struct kit_model *m, uint32_t first,
                            uint32_t count, struct arena *arena, struct errinfo *ei)
{
    uint32_t series[CHECK_BATCH], found[CHECK_BATCH];
    struct hash128 prints[CHECK_BATCH], wanted[CHECK_BATCH];
    struct labels labels[CHECK_BATCH];
    struct column columns[CHECK_BATCH];
    enum err e;

    for (uint32_t i = 0; i < count; i++) {
        series[i] = first + i;
        wanted[i] = m->series[first + i].fingerprint;
    }
    if ((e = part_labels(p, series, count, arena, labels, ei)) != ERR_OK ||
        (e = part_fingerprints(p, series, count, prints, ei)) != ERR_OK ||
        (e = part_find(p, wanted, count, found, ei)) != ERR_OK ||
        (e = part_read(p, series, count, INT64_MIN, INT64_MAX, arena, arena, columns, ei)) !=
            ERR_OK)
        return e;
    for (uint32_t i = 0; i < count; i++) {
        const struct kit_series *s = &m->series[first + i];

        CHECK(labels_equal(&labels[i], &s->labels));
        CHECK(hash128_equal(prints[i], s->fingerprint));
        CHECK(found[i] == first + i);
        check_column(s, &columns[i]);
    }
    return ERR_OK;
}

enum err kit_check_or_error(struct part *p, const struct kit_model *m, struct errinfo *ei)
{
    struct arena arena;
    uint32_t *all = NULL;
    size_t all_count = 0;
    enum err e;

    CHECK(part_info(p)->series_count == m->count);
    arena_init(&arena, NULL);
    e = part_select(p, NULL, 0, NULL, &arena, &all, &all_count, ei);
    CHECK(e != ERR_OK || all_count == m->count);
    for (uint32_t i = 0, n; i < m->count && e == ERR_OK; i += n) {
        n = m->count - i < CHECK_BATCH ? (uint32_t)(m->count - i) : CHECK_BATCH;
        e = check_batch(p, m, i, n, &arena, ei);
        arena_reset(&arena);
    }
    arena_done(&arena);
    return e;
}

void kit_check_all(struct part *p, const struct kit_model *m)
{
    struct errinfo ei = {0};

    CHECK_OK(kit_check_or_error(p, m, &ei), &ei);
}
