/*
 * See fake_engine.h.
 */
#include "tests/promql/fake_engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_support.h"

struct querier {
    struct engine *engine;
    const _Atomic bool *stop;
    pthread_t owner;
};

static void *grow(void *array, size_t *capacity, size_t size)
{
    *capacity = *capacity == 0 ? 8 : *capacity * 2;
    array = realloc(array, *capacity * size);
    CHECK(array != NULL);
    return array;
}

struct engine *fake_engine_new(void)
{
    struct engine *e = calloc(1, sizeof *e);

    CHECK(e != NULL);
    arena_init(&e->arena, NULL);
    return e;
}

void fake_engine_free(struct engine *e)
{
    CHECK(e->open_queriers == 0);
    for (size_t i = 0; i < e->series_count; i++) {
        for (size_t k = 0; k < e->series[i].label_count; k++) {
            free((void *)e->series[i].items[k].name.data);
            free((void *)e->series[i].items[k].value.data);
        }
        free(e->series[i].t_ms);
        free(e->series[i].value);
        free((void *)e->series[i].histogram);
    }
    free(e->series);
    arena_done(&e->arena);
    free(e);
}

static struct str str_copy(const char *data, size_t size)
{
    char *copy = malloc(size + 1);

    CHECK(copy != NULL);
    memcpy(copy, data, size);
    copy[size] = '\0';
    return (struct str){copy, size};
}

static int label_compare(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

size_t fake_engine_add(struct engine *e, const char *text)
{
    struct fake_series *s;

    if (e->series_count == e->series_capacity)
        e->series = grow(e->series, &e->series_capacity, sizeof *e->series);
    s = &e->series[e->series_count];
    memset(s, 0, sizeof *s);
    while (*text != '\0') {
        size_t name = strcspn(text, "="), value = strcspn(text + name + 1, ",");

        CHECK(s->label_count < FAKE_LABELS_MAX);
        s->items[s->label_count].name = str_copy(text, name);
        s->items[s->label_count++].value = str_copy(text + name + 1, value);
        text += name + 1 + value;
        text += *text == ',';
    }
    qsort(s->items, s->label_count, sizeof *s->items, label_compare);
    return e->series_count++;
}

void fake_engine_sample(struct engine *e, size_t series, int64_t t_ms, double value)
{
    struct fake_series *s = &e->series[series];

    if (s->sample_count == s->sample_capacity) {
        size_t capacity = s->sample_capacity;

        s->t_ms = grow(s->t_ms, &capacity, sizeof *s->t_ms);
        if (s->histogram != NULL) {
            capacity = s->sample_capacity;
            s->histogram = grow((void *)s->histogram, &capacity, sizeof(struct histogram *));
        }
        s->value = grow(s->value, &s->sample_capacity, sizeof *s->value);
    }
    if (s->histogram != NULL)
        s->histogram[s->sample_count] = NULL;
    s->t_ms[s->sample_count] = t_ms;
    s->value[s->sample_count++] = value;
}

void fake_engine_histogram(struct engine *e, size_t series, int64_t t_ms, const struct histogram *h)
{
    struct histogram *copy = ARENA_NEW(&e->arena, struct histogram);
    struct fake_series *s = &e->series[series];

    CHECK(copy != NULL && histogram_copy_deep(h, &e->arena, copy) == ERR_OK);
    fake_engine_sample(e, series, t_ms, h->sum);
    if (s->histogram == NULL)
        s->histogram = calloc(s->sample_capacity, sizeof(struct histogram *));
    CHECK(s->histogram != NULL);
    s->histogram[s->sample_count - 1] = copy;
}

static struct labels series_labels(const struct engine *e, size_t i)
{
    return (struct labels){e->series[i].label_count, e->series[i].items};
}

enum err querier_open(struct engine *e, struct querier **out, struct errinfo *ei)
{
    struct querier *q = calloc(1, sizeof *q);

    if (q == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "querier");
    q->engine = e;
    q->owner = pthread_self();
    e->open_queriers++;
    *out = q;
    return ERR_OK;
}

void querier_close(struct querier *q)
{
    q->engine->open_queriers--;
    free(q);
}

void querier_set_stop(struct querier *q, const _Atomic bool *stop)
{
    q->stop = stop;
}

void querier_set_deadline(struct querier *q, uint64_t mono_ns)
{
    (void)q; /* reads nothing that takes long */
    (void)mono_ns;
}

/* Depends on the labels alone, as the real one does. */
static struct hash128 fingerprint(const struct labels *l)
{
    uint64_t a = 0x9e3779b97f4a7c15U, b = 1;

    for (size_t i = 0; i < l->count; i++) {
        for (size_t k = 0; k < l->items[i].name.size; k++)
            a = (a ^ (uint8_t)l->items[i].name.data[k]) * 0x100000001b3U;
        for (size_t k = 0; k < l->items[i].value.size; k++)
            a = (a ^ (uint8_t)l->items[i].value.data[k]) * 0x100000001b3U;
        a = (a ^ 0xff) * 0x100000001b3U;
        b = (b ^ a) * 0xc6a4a7935bd1e995U;
    }
    a ^= a >> 29;
    a *= 0xbf58476d1ce4e5b9U;
    return (struct hash128){b, a ^ a >> 32};
}

static bool series_matches(const struct engine *e, size_t i, const struct matcher *matchers,
                           size_t matcher_count, int64_t min_time_ms, int64_t max_time_ms)
{
    const struct fake_series *s = &e->series[i];
    struct labels l = series_labels(e, i);

    for (size_t k = 0; k < matcher_count; k++) {
        if (!matcher_matches(&matchers[k], labels_get(&l, matchers[k].name)))
            return false;
    }
    return s->sample_count > 0 && s->t_ms[0] <= max_time_ms &&
           s->t_ms[s->sample_count - 1] >= min_time_ms;
}

enum err querier_select(struct querier *q, const struct matcher *matchers, size_t matcher_count,
                        int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                        struct series_list *out, struct errinfo *ei)
{
    struct engine *e = q->engine;
    struct test_random r = {e->order_seed, e->order_seed};

    *out = (struct series_list){0, ARENA_ARRAY(arena, e->series_count, struct series_handle)};
    if (out->items == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < e->series_count; i++) {
        struct labels l = series_labels(e, i);

        if (series_matches(e, i, matchers, matcher_count, min_time_ms, max_time_ms))
            out->items[out->count++] =
                (struct series_handle){.fingerprint = fingerprint(&l), .slot = (uint32_t)i};
    }
    for (size_t i = out->count; e->order_seed != 0 && i > 1; i--) {
        size_t k = (size_t)test_random_below(&r, i);
        struct series_handle swap = out->items[i - 1];

        out->items[i - 1] = out->items[k];
        out->items[k] = swap;
    }
    return ERR_OK;
}

static int handle_compare(const void *a, const void *b, void *context)
{
    const struct engine *e = context;
    struct labels x = series_labels(e, ((const struct series_handle *)a)->slot);
    struct labels y = series_labels(e, ((const struct series_handle *)b)->slot);

    return labels_compare(&x, &y);
}

enum err querier_sort(struct querier *q, struct series_list *list, struct errinfo *ei)
{
    (void)ei; /* cannot fail */
    qsort_r(list->items, list->count, sizeof *list->items, handle_compare, q->engine);
    return ERR_OK;
}

/* Deep copies for the same reason. False: no memory. */
static bool histograms_read(const struct fake_series *s, size_t first, size_t end,
                            struct arena *arena, struct column *out)
{
    const struct histogram **list;

    if (s->histogram == NULL)
        return true;
    list = arena_calloc(arena, end - first, sizeof(struct histogram *));
    for (size_t i = first; list != NULL && i < end; i++) {
        struct histogram *copy = ARENA_NEW(arena, struct histogram);

        if (s->histogram[i] == NULL)
            continue;
        if (copy == NULL || histogram_copy_deep(s->histogram[i], arena, copy) != ERR_OK)
            return false;
        list[i - first] = copy;
    }
    out->histogram = list;
    return list != NULL;
}

enum err querier_read(struct querier *q, const struct series_handle *items, size_t count,
                      int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                      struct column *out, struct errinfo *ei)
{
    CHECK(count <= QUERIER_READ_BATCH_MAX);
    if (!pthread_equal(q->owner, pthread_self()))
        atomic_fetch_add(&q->engine->helped_reads, 1);
    if (q->engine->set_on_read != NULL)
        atomic_store(q->engine->set_on_read, true);
    for (size_t i = 0; i < count; i++) {
        const struct fake_series *s = &q->engine->series[items[i].slot];
        size_t first = 0, end = s->sample_count;
        int64_t *t_ms;
        double *value;

        while (first < end && s->t_ms[first] < min_time_ms)
            first++;
        while (end > first && s->t_ms[end - 1] > max_time_ms)
            end--;
        /* Copies, so that sanitizers see a use after the batch. */
        t_ms = ARENA_ARRAY(arena, end - first, int64_t);
        value = ARENA_ARRAY(arena, end - first, double);
        if (t_ms == NULL || value == NULL)
            return arena_error(arena, ei);
        if (end > first) {
            memcpy(t_ms, s->t_ms + first, (end - first) * sizeof *t_ms);
            memcpy(value, s->value + first, (end - first) * sizeof *value);
        }
        out[i] = (struct column){.count = end - first, .t_ms = t_ms, .value = value};
        if (!histograms_read(s, first, end, arena, &out[i]))
            return arena_error(arena, ei);
    }
    return ERR_OK;
}

enum err querier_labels(struct querier *q, const struct series_handle *items, size_t count,
                        struct arena *arena, struct labels *out, struct errinfo *ei)
{
    for (size_t i = 0; i < count; i++) {
        struct labels l = series_labels(q->engine, items[i].slot);
        struct label *copy = ARENA_ARRAY(arena, l.count, struct label);

        if (copy == NULL)
            return arena_error(arena, ei);
        memcpy(copy, l.items, l.count * sizeof *copy);
        out[i] = (struct labels){l.count, copy};
    }
    return ERR_OK;
}

enum err querier_label_values_of(struct querier *q, const struct series_handle *items, size_t count,
                                 const struct str *names, size_t name_count, struct str *out,
                                 struct errinfo *ei)
{
    (void)ei; /* cannot fail */
    for (size_t i = 0; i < count; i++) {
        struct labels l = series_labels(q->engine, items[i].slot);

        for (size_t k = 0; k < name_count; k++)
            out[i * name_count + k] = labels_get(&l, names[k]);
    }
    return ERR_OK;
}
