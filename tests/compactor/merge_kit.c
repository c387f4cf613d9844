/*
 * See merge_kit.h. Timestamps lie on grids of 15 s with a few phases, so that parts repeat each
 * other's, or anywhere; values are hostile doubles, and differ between the parts that repeat a
 * timestamp.
 */
#include "tests/compactor/merge_kit.h"

#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"
#include "tests/engine/histogram_kit.h"
#include "tests/engine/index_twin.h"

/* ---- lists ---- */

void merge_kit_list_push(struct merge_kit_list *l, struct merge_kit_sample s)
{
    if (l->count == l->capacity) {
        l->capacity = l->capacity == 0 ? 1024 : 2 * l->capacity;
        l->items = realloc(l->items, l->capacity * sizeof *l->items);
        CHECK(l->items != NULL);
    }
    l->items[l->count++] = s;
}

void merge_kit_list_copy(struct merge_kit_list *to, const struct merge_kit_list *from)
{
    for (size_t i = 0; i < from->count; i++)
        merge_kit_list_push(to, from->items[i]);
}

void merge_kit_list_done(struct merge_kit_list *l)
{
    free(l->items);
    arena_done(&l->arena);
    *l = (struct merge_kit_list){0};
}

static int compare_samples(const void *a, const void *b)
{
    const struct merge_kit_sample *x = a, *y = b;

    if (x->series != y->series)
        return x->series < y->series ? -1 : 1;
    if (x->t_ms != y->t_ms)
        return x->t_ms < y->t_ms ? -1 : 1;
    return (x->generation > y->generation) - (x->generation < y->generation);
}

void merge_kit_list_settle(struct merge_kit_list *l)
{
    size_t kept = 0;

    if (l->count == 0)
        return;
    qsort(l->items, l->count, sizeof *l->items, compare_samples);
    for (size_t i = 1; i < l->count; i++) {
        if (l->items[kept].series == l->items[i].series && l->items[kept].t_ms == l->items[i].t_ms)
            continue;
        l->items[++kept] = l->items[i];
    }
    l->count = kept + 1;
}

static bool is_same(const struct merge_kit_sample *before, const struct merge_kit_sample *x,
                    const struct merge_kit_sample *y)
{
    bool follows = before != NULL && before->series == x->series &&
                   before->generation == x->generation && before->position + 1 == x->position;

    if (x->series != y->series || x->t_ms != y->t_ms ||
        (x->histogram != NULL) != (y->histogram != NULL))
        return false;
    return x->histogram != NULL ? histogram_is_answer(x->histogram, y->histogram, follows)
                                : double_bits(x->value) == double_bits(y->value);
}

void merge_kit_check_equal(const struct merge_kit_list *expected, const struct merge_kit_list *got)
{
    for (size_t i = 0; i < expected->count && i < got->count; i++) {
        const struct merge_kit_sample *x = &expected->items[i], *y = &got->items[i];

        CHECK_MSG(is_same(i > 0 ? x - 1 : NULL, x, y),
                  "sample %zu: series %u at %lld, not series %u at %lld", i, x->series,
                  (long long)x->t_ms, y->series, (long long)y->t_ms);
    }
    CHECK_MSG(expected->count == got->count, "%zu samples, not %zu", got->count, expected->count);
}

/* ---- series ---- */

static int compare_series(const void *a, const void *b)
{
    return part_labels_compare(&((const struct merge_kit_series *)a)->labels,
                               &((const struct merge_kit_series *)b)->labels);
}

void merge_kit_init(struct merge_kit *k, struct test_random *r, size_t series_count)
{
    size_t kept = 0;

    *k = (struct merge_kit){.random = r};
    arena_init(&k->arena, NULL);
    k->series = calloc(series_count + 1, sizeof *k->series);
    CHECK(k->series != NULL);
    for (size_t i = 0; i < series_count; i++) {
        struct twin_series *s = ARENA_NEW(&k->arena, struct twin_series);

        CHECK(s != NULL);
        twin_series_random(r, &k->arena, 20, test_random_below(r, 8) != 0, (uint32_t)i, s);
        k->series[i].labels = s->labels;
    }
    qsort(k->series, series_count, sizeof *k->series, compare_series);
    for (size_t i = 0; i < series_count; i++) {
        if (kept > 0 && compare_series(&k->series[kept - 1], &k->series[i]) == 0)
            continue;
        k->series[kept++] = k->series[i];
    }
    k->series_count = kept;
    for (size_t i = 0; i < kept; i++) {
        uint64_t first = test_random_u64(r);

        k->series[i].fingerprint = (struct hash128){first, test_random_u64(r)};
    }
}

void merge_kit_done(struct merge_kit *k)
{
    merge_kit_list_done(&k->written);
    arena_done(&k->arena);
    free(k->series);
}

struct part_key merge_kit_key(int64_t first_hour, int64_t hours, uint64_t generation)
{
    return (struct part_key){.window_start_ms = MERGE_KIT_START + first_hour * MERGE_KIT_HOUR,
                             .window_size_ms = (uint64_t)(hours * MERGE_KIT_HOUR),
                             .shard = 3,
                             .shard_count = 16,
                             .generation = generation};
}

/* ---- writing ---- */

struct histogram *merge_kit_histograms(struct merge_kit *k, size_t n)
{
    struct histogram *h;

    if (k->histogram_percent == 0 || test_random_below(k->random, 100) >= k->histogram_percent)
        return NULL;
    h = ARENA_ARRAY(&k->arena, n, struct histogram);
    CHECK(h != NULL);
    histograms_fill_any(k->random, &k->arena, h, n);
    return h;
}

static double random_value(struct test_random *r, uint64_t kind, double base)
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

    switch (kind) {
    case 0:
        return base;
    case 1:
        return base + (double)test_random_below(r, 1000);
    case 2:
        return double_from_bits(test_random_u64(r));
    default:
        return double_from_bits(bits[test_random_below(r, sizeof bits / sizeof bits[0])]);
    }
}

struct column_buffer {
    int64_t t_ms[CODEC_SAMPLES_MAX];
    double value[CODEC_SAMPLES_MAX];
};

static int64_t next_time(struct merge_kit *k, bool regular, uint64_t kind, int64_t t_ms)
{
    if (regular || kind == 0)
        return t_ms + 15000;
    if (kind == 1)
        return t_ms + 15000 * (1 + (int64_t)test_random_below(k->random, 3));
    return t_ms + 1 + (int64_t)test_random_below(k->random, 40000);
}

static void write_series(struct merge_kit *k, struct part_writer *w, uint32_t series,
                         const struct part_key *key, struct merge_kit_shape shape,
                         struct column_buffer *b)
{
    struct test_random *r = k->random;
    int64_t end = key->window_start_ms + (int64_t)key->window_size_ms;
    int64_t t =
        key->window_start_ms + (shape.regular ? 0 : 5000 * (int64_t)test_random_below(r, 3));
    size_t chunks = shape.regular ? SIZE_MAX : 1 + test_random_below(r, shape.chunks_max);
    uint64_t kind = test_random_below(r, 3), values = test_random_below(r, 4);
    double base = (double)test_random_below(r, 100000);
    struct errinfo ei = {0};
    uint64_t position = 0;

    if (!shape.regular && test_random_below(r, 2) == 0)
        t += 15000 * (int64_t)test_random_below(r, key->window_size_ms / 15000);
    for (size_t c = 0; c < chunks && t < end; c++) {
        size_t count = shape.regular                  ? shape.samples_max
                       : test_random_below(r, 3) == 0 ? 1 + test_random_below(r, 5)
                                                      : 1 + test_random_below(r, shape.samples_max);
        struct histogram *h = merge_kit_histograms(
            k, count < MERGE_KIT_HISTOGRAMS_MAX ? count : MERGE_KIT_HISTOGRAMS_MAX);
        size_t n = 0;

        if (h != NULL && count > MERGE_KIT_HISTOGRAMS_MAX)
            count = MERGE_KIT_HISTOGRAMS_MAX;
        for (; n < count && t < end; n++) {
            b->t_ms[n] = t;
            b->value[n] = random_value(r, values, base);
            merge_kit_list_push(&k->written,
                                (struct merge_kit_sample){series, t, key->generation, b->value[n],
                                                          h == NULL ? NULL : &h[n], position++});
            t = next_time(k, shape.regular, kind, t);
        }
        if (h != NULL)
            CHECK_OK(part_writer_histograms(w, b->t_ms, h, n, &ei), &ei);
        else
            CHECK_OK(part_writer_samples(w, b->t_ms, b->value, n, &ei), &ei);
        if (!shape.regular && test_random_below(r, 4) == 0)
            t += 15000 * (int64_t)test_random_below(r, 400);
    }
}

void merge_kit_part(struct merge_kit *k, struct part_store *s, const char *dir,
                    const struct part_key *key, struct merge_kit_shape shape)
{
    struct part_writer_options o = {.dir = dir, .key = *key};
    struct column_buffer *b = malloc(sizeof *b);
    struct part_writer *w;
    struct part_info info;
    struct errinfo ei = {0};

    CHECK(b != NULL);
    CHECK_OK(part_writer_new(s, &o, &w, &ei), &ei);
    for (uint32_t i = 0; i < k->series_count; i++) {
        if (test_random_below(k->random, 100) >= shape.presence_percent)
            continue;
        CHECK_OK(part_writer_series(w, &k->series[i].labels, k->series[i].fingerprint, &ei), &ei);
        write_series(k, w, i, key, shape, b);
    }
    CHECK_OK(part_writer_finish(w, key->generation * 10, &info, &ei), &ei);
    part_writer_free(w);
    free(b);
}

/* ---- reading ---- */

void merge_kit_read(const struct merge_kit *k, struct part *p, struct merge_kit_list *out)
{
    uint32_t count = part_info(p)->series_count, at = 0;
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct column c;
        struct labels labels;
        struct hash128 print;

        CHECK_OK(part_labels(p, &i, 1, &arena, &labels, &ei), &ei);
        CHECK_OK(part_fingerprints(p, &i, 1, &print, &ei), &ei);
        CHECK_OK(part_read(p, &i, 1, INT64_MIN, INT64_MAX, &arena, &out->arena, &c, &ei), &ei);
        while (at < k->series_count && !labels_equal(&k->series[at].labels, &labels))
            at++;
        CHECK_MSG(at < k->series_count, "series %u is unknown or out of order", i);
        CHECK(hash128_equal(print, k->series[at].fingerprint));
        CHECK(c.count > 0);
        for (size_t n = 0; n < c.count; n++)
            merge_kit_list_push(out, (struct merge_kit_sample){
                                         .series = at,
                                         .t_ms = c.t_ms[n],
                                         .generation = part_info(p)->key.generation,
                                         .value = c.value[n],
                                         .histogram = c.histogram == NULL ? NULL : c.histogram[n]});
        arena_reset(&arena);
    }
    arena_done(&arena);
}
