/* See flush_kit.h. */
#include "tests/engine/flush_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/tombstone_kit.h"

enum { SAMPLES_MAX = 60, HOUR_MS = 3600000 };

void flush_kit_init(struct flush_kit *k, struct test_random *r, struct fs *fs, size_t series_count)
{
    struct errinfo ei = {0};

    *k = (struct flush_kit){.fs = fs};
    merge_kit_init(&k->merge, r, series_count);
    k->slot_end = (uint32_t)(2 * k->merge.series_count + 1000);
    k->series = calloc(k->merge.series_count + 1, sizeof *k->series);
    k->number_of = calloc(k->slot_end, sizeof *k->number_of);
    CHECK(k->series != NULL && k->number_of != NULL);
    CHECK_OK(index_new(NULL, &k->index, &ei), &ei);
    for (uint32_t i = 0; i < k->merge.series_count; i++) {
        uint32_t slot;

        do {
            slot = (uint32_t)test_random_below(r, k->slot_end);
        } while (k->number_of[slot] != 0);
        k->number_of[slot] = i + 1;
        k->series[i].slot = slot;
        k->series[i].generation = (uint16_t)(1 + test_random_below(r, 3));
        k->series[i].is_wanted = test_random_below(r, 10) != 0;
        CHECK_OK(index_add(k->index, slot, &k->merge.series[i].labels, &ei), &ei);
    }
}

void flush_kit_done(struct flush_kit *k)
{
    for (size_t i = 0; i < k->view_count; i++) {
        for (size_t s = 0; s < k->views[i].slice_count; s++)
            free(k->sources[i].slices[s]);
        free(k->sources[i].slices);
        sealed_file_close(k->sources[i].file);
    }
    index_free(k->index);
    free(k->series);
    free(k->number_of);
    merge_kit_done(&k->merge);
}

/* ---- writing ---- */

struct filling {
    struct flush_kit *k;
    struct sealed_writer *writer;
    enum sealed_kind kind;
    int64_t begin_ms, end_ms;
    int64_t *next_ms; /* by number: where a series goes on */
    uint64_t order;
};

static double random_value(struct test_random *r)
{
    switch (test_random_below(r, 4)) {
    case 0:
        return 7;
    case 1:
        return (double)test_random_below(r, 100000) / 100;
    case 2:
        return (double)test_random_below(r, 1000);
    default:
        return double_from_bits(test_random_u64(r));
    }
}

/* Fills up to `count` samples from `t` on; returns how many. */
static size_t chunk_fill(struct filling *f, int64_t t, size_t count, int64_t *t_ms, double *value)
{
    struct test_random *r = f->k->merge.random;
    bool regular = test_random_below(r, 3) != 0;
    size_t n = 0;

    for (; n < count && t < f->end_ms; n++) {
        t_ms[n] = t;
        value[n] = random_value(r);
        t += regular ? 15000 : 1 + (int64_t)test_random_below(r, 30000);
    }
    return n;
}

/* One chunk of a series, or two that follow one another. */
static void series_fill(struct filling *f, uint32_t slot)
{
    struct test_random *r = f->k->merge.random;
    uint32_t number = f->k->number_of[slot] - 1;
    const struct flush_kit_series *s = &f->k->series[number];
    bool is_dead = test_random_below(r, 12) == 0;
    uint16_t generation = is_dead ? (uint16_t)(s->generation - 1) : s->generation;
    int64_t *next = &f->next_ms[number], t_ms[SAMPLES_MAX];
    double value[SAMPLES_MAX];
    struct histogram *h;
    uint64_t position = 0;
    struct errinfo ei = {0};

    if (f->kind == SEALED_LATE)
        *next = f->begin_ms +
                15000 * (int64_t)test_random_below(r, (uint64_t)(f->end_ms - f->begin_ms) / 15000);
    for (uint64_t chunks = 1 + test_random_below(r, 2); chunks > 0; chunks--) {
        size_t n = chunk_fill(f, *next, 1 + test_random_below(r, SAMPLES_MAX), t_ms, value);

        if (n == 0)
            return;
        h = merge_kit_histograms(&f->k->merge, n);
        if (h != NULL)
            CHECK_OK(sealed_writer_histograms(f->writer, slot, generation, t_ms, h, n, &ei), &ei);
        else
            CHECK_OK(sealed_writer_chunk(f->writer, slot, generation, t_ms, value, n, &ei), &ei);
        for (size_t i = 0; i < n && !is_dead && s->is_wanted; i++)
            merge_kit_list_push(&f->k->merge.written,
                                (struct merge_kit_sample){number, t_ms[i], f->order, value[i],
                                                          h == NULL ? NULL : &h[i], position++});
        *next = t_ms[n - 1] + 15000 * (1 + (int64_t)test_random_below(r, 3));
    }
}

static struct sealed_slice *slice_fill(struct filling *f)
{
    uint64_t presence = 20 + test_random_below(f->k->merge.random, 80);
    struct sealed_slice *slice;
    struct errinfo ei = {0};

    for (uint32_t slot = 0; slot < f->k->slot_end; slot++) {
        if (f->k->number_of[slot] != 0 && test_random_below(f->k->merge.random, 100) < presence)
            series_fill(f, slot);
    }
    CHECK_OK(sealed_writer_slice(f->writer, f->order, &slice, &ei), &ei);
    return slice;
}

/* As a file set shows it. */
static void view_fill(struct flush_kit *k, struct sealed_file *file, uint64_t number)
{
    struct sealed_source *s = &k->sources[k->view_count];
    struct sealed_view *v = &k->views[k->view_count];

    s->file = file;
    s->kind = sealed_file_identity(file)->kind;
    s->number = number;
    s->generation = generation_of_file(number);
    *v = (struct sealed_view){.source = s, .min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
}

void flush_kit_file(struct flush_kit *k, enum sealed_kind kind, int64_t first_hour, int64_t hours,
                    size_t slice_count)
{
    uint64_t number = 10 + 3 * k->view_count;
    struct sealed_identity identity = {
        .kind = kind, .shard = 3, .shard_count = 16, .number = number, .secret_id = 1};
    struct filling f = {.k = k, .kind = kind};
    struct sealed_view *v = &k->views[k->view_count];
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    struct sealed_slice **slices = calloc(slice_count, sizeof *slices);
    struct sealed_file *file;
    struct errinfo ei = {0};
    char path[64];

    CHECK(k->view_count < FLUSH_KIT_FILES_MAX && slices != NULL);
    identity.has_histograms = k->merge.histogram_percent > 0;
    (void)snprintf(path, sizeof path, "file-%d", (int)number);
    CHECK_OK(sealed_writer_create(k->fs, path, &identity, &file, &f.writer, &ei), &ei);
    f.begin_ms = MERGE_KIT_START + first_hour * HOUR_MS;
    f.end_ms = f.begin_ms + hours * HOUR_MS;
    f.next_ms = calloc(k->merge.series_count + 1, sizeof *f.next_ms);
    CHECK(f.next_ms != NULL);
    for (size_t i = 0; i < k->merge.series_count; i++)
        f.next_ms[i] = f.begin_ms + 5000 * (int64_t)test_random_below(k->merge.random, 3);
    view_fill(k, file, number);
    for (size_t i = 0; i < slice_count; i++) {
        struct sealed_slice *slice;

        f.order = generation_of_file(number) + i;
        slice = slice_fill(&f);
        if (slice == NULL)
            continue;
        slices[v->slice_count++] = slice;
        v->min_time_ms = slice->min_time_ms < v->min_time_ms ? slice->min_time_ms : v->min_time_ms;
        v->max_time_ms = slice->max_time_ms > v->max_time_ms ? slice->max_time_ms : v->max_time_ms;
    }
    k->sources[k->view_count].slices = slices;
    k->sources[k->view_count].slice_count = v->slice_count;
    v->slices = slices;
    k->view_count++;
    sealed_writer_free(f.writer);
    free(f.next_ms);
}

/* ---- what a flush sees, and must give ---- */

void flush_kit_lookup(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out)
{
    const struct flush_kit *k = ctx;

    for (size_t i = 0; i < count; i++) {
        uint32_t number = slots[i] < k->slot_end ? k->number_of[slots[i]] : 0;

        out[i] = (struct flush_series){.is_wanted = false};
        if (number != 0)
            out[i] = (struct flush_series){k->merge.series[number - 1].fingerprint,
                                           k->series[number - 1].generation,
                                           k->series[number - 1].is_wanted};
    }
}

static bool is_deleted(const struct flush_kit *k, const struct tombstone_list *tombstones,
                       const struct merge_kit_sample *s)
{
    for (size_t i = 0; tombstones != NULL && i < tombstones->count; i++) {
        const struct tombstone *t = &tombstones->items[i];

        if (generation_of_file(generation_file_number(s->generation)) < t->generation &&
            s->t_ms >= t->min_time_ms && s->t_ms <= t->max_time_ms &&
            tombstone_kit_hits(t, &k->merge.series[s->series].labels))
            return true;
    }
    return false;
}

void flush_kit_expect(const struct flush_kit *k, const struct part_key *key,
                      const struct tombstone_list *tombstones, struct merge_kit_list *out)
{
    int64_t end = key->window_start_ms + (int64_t)key->window_size_ms;

    for (size_t i = 0; i < k->merge.written.count; i++) {
        const struct merge_kit_sample *s = &k->merge.written.items[i];

        if (s->t_ms >= key->window_start_ms && s->t_ms < end && !is_deleted(k, tombstones, s))
            merge_kit_list_push(out, *s);
    }
    merge_kit_list_settle(out);
}
