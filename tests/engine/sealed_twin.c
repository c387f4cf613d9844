#include "tests/engine/sealed_twin.h"

#include <stdlib.h>
#include <string.h>

#include "tests/engine/codec_columns.h"
#include "tests/engine/histogram_kit.h"

const struct sealed_identity twin_identity = {.kind = SEALED_RECENT,
                                              .shard = 3,
                                              .shard_count = 16,
                                              .number = 77,
                                              .secret_id = 0x1122334455667788,
                                              .epoch = 0xabcdef0123456789};

static void chunk_fill(struct test_random *r, struct twin_chunk *c, int64_t first_ms,
                       const struct twin_chunk *share, size_t sample_max)
{
    int64_t t = first_ms;

    c->count = 1 + test_random_below(r, sample_max);
    if (share != NULL && (share->t_ms == NULL || share->t_ms[0] < first_ms))
        share = NULL; /* too early to be shared */
    if (share != NULL)
        c->count = share->count;
    c->t_ms = malloc(c->count * sizeof *c->t_ms);
    c->value = malloc(c->count * sizeof *c->value);
    CHECK(c->t_ms != NULL && c->value != NULL);
    column_fill(r, (enum column_model)test_random_below(r, COLUMN_MODEL_COUNT), c->value, c->count);
    for (size_t i = 0; i < c->count; i++) {
        c->t_ms[i] = t;
        t += 1 + (int64_t)test_random_below(r, test_random_below(r, 8) == 0 ? 1000000 : 15000);
    }
    if (share != NULL)
        memcpy(c->t_ms, share->t_ms, c->count * sizeof *c->t_ms);
}

static void chunk_histograms(struct test_random *r, struct twin_chunk *c, struct arena *arena)
{
    c->histogram = ARENA_ARRAY(arena, c->count, struct histogram);
    CHECK(c->histogram != NULL);
    histograms_fill_any(r, arena, c->histogram, c->count);
    for (size_t i = 0; i < c->count; i++)
        c->value[i] = c->histogram[i].sum;
}

void twin_slice_fill(struct test_random *r, struct twin_slice *slice, size_t chunk_count,
                     size_t sample_max, struct arena *histograms)
{
    uint32_t slot = (uint32_t)test_random_below(r, 100);

    *slice = (struct twin_slice){.sequence = test_random_u64(r)};
    slice->chunks = calloc(chunk_count, sizeof *slice->chunks);
    CHECK(slice->chunks != NULL);
    for (size_t i = 0; i < chunk_count; i++) {
        struct twin_chunk *c = &slice->chunks[i], *last = i > 0 ? c - 1 : NULL;
        const struct twin_chunk *share = NULL;
        int64_t first = 1767225600000 + (int64_t)test_random_below(r, 100000);

        if (last != NULL && test_random_below(r, 3) != 0)
            share = &slice->chunks[test_random_below(r, i)];
        if (last != NULL && last->t_ms != NULL &&
            test_random_below(r, 6) == 0) { /* another chunk of the same slot */
            first = last->t_ms[last->count - 1] + 1 + (int64_t)test_random_below(r, 1000);
            c->generation = last->generation;
        } else {
            slot += (uint32_t)(i == 0 ? 0 : 1 + test_random_below(r, 3));
            c->generation = (uint16_t)(test_random_below(r, 4) == 0 ? test_random_u64(r) : 1);
        }
        c->slot = slot;
        chunk_fill(r, c, first, share, sample_max);
        if (histograms != NULL && test_random_below(r, 2) == 0)
            chunk_histograms(r, c, histograms);
    }
    slice->chunk_count = chunk_count;
}

void twin_file_fill(struct test_random *r, struct twin_file *twin, size_t slice_count,
                    size_t chunk_count, size_t sample_max)
{
    twin->slices = calloc(slice_count, sizeof *twin->slices);
    CHECK(twin->slices != NULL);
    arena_init(&twin->arena, NULL);
    twin->slice_count = slice_count;
    for (size_t i = 0; i < slice_count; i++)
        twin_slice_fill(r, &twin->slices[i], 1 + test_random_below(r, chunk_count), sample_max,
                        twin->has_histograms ? &twin->arena : NULL);
}

void twin_file_free(struct twin_file *twin)
{
    for (size_t i = 0; i < twin->slice_count; i++) {
        for (size_t k = 0; k < twin->slices[i].chunk_count; k++) {
            free(twin->slices[i].chunks[k].t_ms);
            free(twin->slices[i].chunks[k].value);
        }
        free(twin->slices[i].chunks);
    }
    free(twin->slices);
    arena_done(&twin->arena);
    *twin = (struct twin_file){0};
}

enum err twin_slice_write(struct sealed_writer *w, const struct twin_slice *twin,
                          struct sealed_slice **out, struct errinfo *ei)
{
    for (size_t i = 0; i < twin->chunk_count; i++) {
        const struct twin_chunk *c = &twin->chunks[i];
        enum err e =
            c->histogram != NULL
                ? sealed_writer_histograms(w, c->slot, c->generation, c->t_ms, c->histogram,
                                           c->count, ei)
                : sealed_writer_chunk(w, c->slot, c->generation, c->t_ms, c->value, c->count, ei);

        if (e != ERR_OK)
            return e;
    }
    return sealed_writer_slice(w, twin->sequence, out, ei);
}

void twin_file_write(struct fs *fs, const char *path, const struct twin_file *twin, bool finish)
{
    struct sealed_identity identity = twin_identity;
    struct sealed_file *f;
    struct sealed_writer *w;
    struct errinfo ei = {0};

    identity.has_histograms = twin->has_histograms;
    CHECK_OK(sealed_writer_create(fs, path, &identity, &f, &w, &ei), &ei);
    for (size_t i = 0; i < twin->slice_count; i++) {
        struct sealed_slice *slice;

        CHECK_OK(twin_slice_write(w, &twin->slices[i], &slice, &ei), &ei);
        CHECK(slice->index == i && slice->sequence == twin->slices[i].sequence);
        CHECK_OK(twin_slice_compare(f, slice, &twin->slices[i], &ei), &ei);
        free(slice);
    }
    if (finish)
        CHECK_OK(sealed_writer_finish(w, &ei), &ei);
    else
        CHECK_OK(sealed_writer_sync(w, &ei), &ei);
    sealed_writer_free(w);
    sealed_file_close(f);
}

enum err twin_slice_compare(const struct sealed_file *f, const struct sealed_slice *slice,
                            const struct twin_slice *twin, struct errinfo *ei)
{
    struct sealed_key *keys = calloc(twin->chunk_count, sizeof *keys);
    struct sealed_chunk_list list = {0};
    struct column *columns;
    size_t key_count = 0;
    struct arena arena;
    enum err e;

    CHECK(keys != NULL);
    for (size_t i = 0; i < twin->chunk_count; i++) {
        const struct twin_chunk *c = &twin->chunks[i];

        if (i == 0 || c->slot != c[-1].slot)
            keys[key_count++] = (struct sealed_key){c->slot, c->generation};
    }
    arena_init(&arena, NULL);
    e = sealed_find(f, slice, keys, key_count, INT64_MIN, INT64_MAX, &arena, &list, ei);
    if (e == ERR_OK) {
        CHECK(list.count == twin->chunk_count);
        columns = ARENA_ARRAY(&arena, list.count, struct column);
        CHECK(columns != NULL);
        e = sealed_read(f, list.items, list.count, &arena, &arena, columns, ei);
    }
    for (size_t i = 0; e == ERR_OK && i < list.count; i++) {
        const struct twin_chunk *c = &twin->chunks[i];

        CHECK(list.items[i].slot == c->slot && list.items[i].generation == c->generation);
        CHECK(keys[list.items[i].key_index].slot == c->slot);
        CHECK(columns[i].count == c->count);
        CHECK(list.items[i].min_time_ms == c->t_ms[0]);
        CHECK(list.items[i].max_time_ms == c->t_ms[c->count - 1]);
        CHECK(memcmp(columns[i].t_ms, c->t_ms, c->count * sizeof *c->t_ms) == 0);
        CHECK(memcmp(columns[i].value, c->value, c->count * sizeof *c->value) == 0);
        CHECK((columns[i].histogram != NULL) == (c->histogram != NULL));
        for (size_t k = 0; c->histogram != NULL && k < c->count; k++)
            CHECK(histogram_same_bits(columns[i].histogram[k], &c->histogram[k]));
    }
    arena_done(&arena);
    free(keys);
    return e;
}

void twin_file_compare(const struct sealed_opened *o, const struct twin_file *twin, size_t *bad)
{
    *bad = 0;
    for (size_t i = 0; i < o->slice_count; i++) {
        const struct sealed_slice *s = o->slices[i];
        struct errinfo ei = {0};
        enum err e = ERR_CORRUPT;

        if (!s->is_damaged) {
            CHECK(s->index < twin->slice_count);
            CHECK(s->sequence == twin->slices[s->index].sequence);
            e = twin_slice_compare(o->file, s, &twin->slices[s->index], &ei);
            CHECK(e == ERR_OK || e == ERR_CORRUPT);
            if (e == ERR_CORRUPT)
                CHECK(strstr(ei.message, sealed_file_path(o->file)) != NULL);
        }
        if (e == ERR_OK)
            continue;
        ++*bad;
        errinfo_clear(&ei);
        CHECK(sealed_slice_verify(o->file, s, &ei) == ERR_CORRUPT);
        CHECK(strstr(ei.message, "offset") != NULL);
    }
}
