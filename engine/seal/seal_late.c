/*
 * Late samples: the frozen buffer, which only the seal changes, becomes slices of the seal's late
 * file. Readers see it until those are published.
 */
#include <stdlib.h>

#include "engine/seal/seal_run_internal.h"

enum {
    LATE_SLICE_CHUNKS = 8192,     /* a slice is written at so many chunks, */
    LATE_SLICE_SAMPLES = 1 << 20, /* or samples */
};

/* How many samples from `first` on lie in one window, and fit a chunk. */
static size_t window_run(const struct late_series *l, size_t first)
{
    int64_t end_ms = chunk_window_start_ms(chunk_window(l->t_ms[first]) + 1);
    size_t n = first;

    while (n < l->count && n - first < CODEC_SAMPLES_MAX && l->t_ms[n] < end_ms)
        n++;
    return n - first;
}

static enum err late_encode(struct seal_run *r, struct seal_file *f, const struct late_series *l,
                            struct errinfo *ei)
{
    const struct sealed_key key = {l->slot, l->generation};
    enum err e = ERR_OK;

    for (size_t first = 0; first < l->count && e == ERR_OK;) {
        size_t count = window_run(l, first);

        e = seal_chunk_put(r, f, &key, l->t_ms + first, l->value + first, count, ei);
        first += count;
    }
    r->result.late_sample_count += l->count;
    return e;
}

static enum err late_encode_all(struct seal_run *r, struct seal_file *f,
                                const struct late_series *const *list, size_t count,
                                struct errinfo *ei)
{
    struct shard *s = r->shard;
    uint64_t sample_count = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        /* A slot's chunks in one slice have one generation. */
        if (sealed_writer_chunk_count(f->writer) >= LATE_SLICE_CHUNKS ||
            sample_count >= LATE_SLICE_SAMPLES || (i > 0 && list[i]->slot == list[i - 1]->slot)) {
            sample_count = 0;
            e = seal_files_write(s, r->cut_sequence, &r->result, ei);
        }
        if (e == ERR_OK)
            e = late_encode(r, f, list[i], ei);
        sample_count += list[i]->count;
    }
    return e == ERR_OK ? seal_files_write(s, r->cut_sequence, &r->result, ei) : e;
}

static void late_drop_locked(void *ctx, struct shard *s)
{
    struct seal_run *r = ctx;

    shard_late_take(s, &r->late, &r->late_histograms);
}

static enum err late_floats(struct seal_run *r, struct errinfo *ei)
{
    const struct late_buffer *late = &r->shard->late_frozen;
    size_t count = late->series_count;
    const struct late_series **list;
    struct seal_file *f = NULL;
    enum err e;

    if (count == 0)
        return ERR_OK;
    list = calloc(count, sizeof(const struct late_series *));
    if (list == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "late samples of %zu series", count);
    late_buffer_list(late, list);
    e = seal_file_late(r->engine, r->shard, true, r->shard->histograms_late_frozen.series_count > 0,
                       &f, ei);
    if (e == ERR_OK)
        e = late_encode_all(r, f, list, count, ei);
    free(list);
    return e;
}

enum err seal_late(struct seal_run *r, struct errinfo *ei)
{
    struct shard *s = r->shard;
    enum err e;

    if (s->late_frozen.series_count + s->histograms_late_frozen.series_count == 0)
        return ERR_OK;
    e = late_floats(r, ei);
    if (e == ERR_OK)
        e = seal_late_histograms(r, ei);
    if (e == ERR_OK)
        e = seal_files_publish(s, late_drop_locked, r, ei);
    late_buffer_done(&r->late);
    histogram_lane_done(&r->late_histograms);
    return e;
}
