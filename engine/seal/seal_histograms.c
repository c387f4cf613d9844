/*
 * Native histograms out of memory into sealed and late files: a slice of floats is followed by one
 * of histograms in the same file, or in another one where the shard had no histograms before. So
 * chunks of a series that has both may
 * overlap in time, as those of a slice that was written twice do; they never share a timestamp.
 */
#include <stdlib.h>

#include "engine/histogram_chunk.h"
#include "engine/seal/seal_run_internal.h"

enum {
    SLICE_CHUNKS = 8192,    /* a slice is written at so many chunks, */
    SLICE_BYTES = 32 << 20, /* or so much of them, decoded */
};

/* What has been given to the writers since a slice was written. */
struct slice_fill {
    size_t chunk_count, bytes;
    uint32_t slot;
};

static enum err fill_write(struct seal_run *r, struct slice_fill *fill, struct errinfo *ei)
{
    *fill = (struct slice_fill){.slot = UINT32_MAX};
    return seal_files_write(r->shard, r->cut_sequence, &r->result, ei);
}

/* How many samples from `first` on are to be one chunk; *weight is what they take decoded. */
static size_t chunk_count(const struct histogram_run *run, size_t first, size_t *weight)
{
    size_t n = first;

    *weight = 0;
    while (n < run->count && n - first < HISTOGRAM_CHUNK_SAMPLES_MAX &&
           *weight < HISTOGRAM_CHUNK_BYTES) {
        *weight += histogram_chunk_weight(&run->values[n], n == first ? NULL : &run->values[n - 1]);
        n++;
    }
    return n - first;
}

static enum err run_put(struct seal_run *r, struct seal_file *f, const struct sealed_key *key,
                        const struct histogram_run *run, struct slice_fill *fill,
                        struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t first = 0, weight; first < run->count && e == ERR_OK;) {
        size_t count = chunk_count(run, first, &weight);

        if (fill->chunk_count >= SLICE_CHUNKS || fill->bytes + weight > SLICE_BYTES)
            e = fill_write(r, fill, ei);
        if (e == ERR_OK)
            e = sealed_writer_histograms(f->writer, key->slot, key->generation, run->t_ms + first,
                                         run->values + first, count, ei);
        first += count;
        fill->chunk_count++;
        fill->bytes += weight;
        fill->slot = key->slot;
    }
    return e;
}

/* All runs of the series whose blocks r->histograms has; *samples is raised. */
static enum err series_put(struct seal_run *r, const struct sealed_key *key, bool is_late,
                           struct slice_fill *fill, uint64_t *samples, struct errinfo *ei)
{
    struct histogram_run run;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL); /* small, and a seal is what brings memory back */
    for (;;) {
        struct seal_file *f = NULL;

        e = cut_histograms_next(&r->histograms, &arena, &run, ei);
        if (e != ERR_OK || run.count == 0)
            break;
        uint32_t window = chunk_window(run.t_ms[0]);
        /* In the late file the in-order samples come first: earlier slices win. */
        e = !is_late && seal_window_is_open(r, window)
                ? seal_file_recent(r->engine, r->shard, window, true, &f, ei)
                : seal_file_late(r->engine, r->shard, is_late, true, &f, ei);
        if (e == ERR_OK)
            e = run_put(r, f, key, &run, fill, ei);
        if (e != ERR_OK)
            break;
        *samples += run.count;
        arena_reset(&arena);
    }
    arena_done(&arena);
    return e;
}

enum err seal_histograms(struct seal_run *r, struct errinfo *ei)
{
    struct slice_fill fill = {.slot = UINT32_MAX};
    bool any = false;
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->cut_count && e == ERR_OK; i++) {
        const struct sealed_key key = {r->cuts[i].slot, r->cuts[i].generation};

        if (r->cuts[i].histogram_blocks == 0)
            continue;
        any = true;
        e = cut_histograms_begin(&r->histograms, r->shard, &r->cuts[i])
                ? series_put(r, &key, false, &fill, &r->result.sample_count, ei)
                : errinfo_set(ei, ERR_NOMEM, 0, "histograms of a series");
    }
    return e == ERR_OK && any ? fill_write(r, &fill, ei) : e;
}

static enum err late_put_all(struct seal_run *r, const struct histogram_series *const *list,
                             size_t count, struct errinfo *ei)
{
    struct slice_fill fill = {.slot = UINT32_MAX};
    enum err e = ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        const struct sealed_key key = {list[i]->slot, list[i]->generation};

        /* A slot's chunks in one slice have one generation. */
        if (fill.slot == list[i]->slot)
            e = fill_write(r, &fill, ei);
        if (e != ERR_OK)
            break;
        e = cut_histograms_begin_late(&r->histograms, list[i])
                ? series_put(r, &key, true, &fill, &r->result.late_sample_count, ei)
                : errinfo_set(ei, ERR_NOMEM, 0, "late histograms of a series");
    }
    return e == ERR_OK ? fill_write(r, &fill, ei) : e;
}

enum err seal_late_histograms(struct seal_run *r, struct errinfo *ei)
{
    const struct histogram_lane *lane = &r->shard->histograms_late_frozen;
    const struct histogram_series **list;
    enum err e;

    if (lane->series_count == 0)
        return ERR_OK;
    list = calloc(lane->series_count, sizeof(const struct histogram_series *));
    if (list == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "late histograms of %zu series", lane->series_count);
    histogram_lane_list(lane, list);
    e = late_put_all(r, list, lane->series_count, ei);
    free(list);
    return e;
}
