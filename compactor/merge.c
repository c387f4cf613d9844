/*
 * A merge from beginning to end: checks, cursors, series in label order. What happens within a
 * series is in merge_series.c, which parts may be merged in merge_inputs.c.
 *
 * Inputs are walked by one iterator each. Parts of a shard mostly hold the same series, so that the
 * next one is found by a scan over all heads: one comparison for each head that is then consumed,
 * which no heap can better. Cursors stay sorted by generation: the first of equals wins.
 */
#include "compactor/merge.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "compactor/merge_internal.h"

enum {
    BATCH_SAMPLES = 65536,
    SERIES_COST_SAMPLES = 64, /* a series takes as long as so many samples */
};

void merge_chunk_sizes(uint64_t window_size_ms, uint32_t *target_samples,
                       uint32_t *copy_min_samples)
{
    enum { COPY_MIN = 240 };
    uint32_t target = part_chunk_target(window_size_ms);

    *target_samples = target;
    /* Three quarters of what the step before makes, when steps are fourfold: its full chunks are
     * copied, a few missed scrapes included, and grow two steps later. */
    *copy_min_samples = target * 3 / 16 > COPY_MIN ? target * 3 / 16 : COPY_MIN;
}

enum err merge_alloc(struct merge *m, size_t count, size_t size, void **out, struct errinfo *ei)
{
    enum err e;

    if (count > SIZE_MAX / size)
        return errinfo_set(ei, ERR_LIMIT, 0, "merge: %zu items", count);
    e = m->o->memory == NULL ? ERR_OK : budget_charge(m->o->memory, count * size, ei);
    if (e != ERR_OK)
        return e;
    m->charged_bytes += count * size;
    *out = malloc(count * size);
    return *out != NULL ? ERR_OK : errinfo_set(ei, ERR_NOMEM, 0, "merge");
}

enum err merge_input_error(const struct merge *m, const struct merge_cursor *c, enum err code,
                           enum part_file file, const char *what, struct errinfo *ei)
{
    const char *dir = m->o->dir;
    char name[PART_NAME_SIZE];

    part_name_format(&part_info(c->part)->key, file, false, name);
    errinfo_clear(ei);
    return errinfo_set(ei, code, 0, "%s%s%s: series %" PRIu32 ": %s", dir,
                       dir[0] == '\0' ? "" : "/", name, c->series == NULL ? 0 : c->series->series,
                       what);
}

enum err merge_tick(struct merge *m, uint64_t samples, struct errinfo *ei)
{
    const struct merge_options *o = m->o;

    /* relaxed: a flag that is set once; nothing is read by it */
    if (o->stop != NULL && atomic_load_explicit(o->stop, memory_order_relaxed))
        return errinfo_set(ei, ERR_CANCELED, 0, "merge: stopped");
    m->batch_samples += samples;
    if (m->batch_samples < BATCH_SAMPLES)
        return ERR_OK;
    if (o->progress != NULL) { /* relaxed: statistics */
        const struct merge_stats *s = &m->stats;

        atomic_store_explicit(&o->progress->samples_done,
                              s->samples_copied + s->samples_encoded + s->samples_repeated +
                                  s->samples_purged,
                              memory_order_relaxed);
        atomic_store_explicit(&o->progress->series_done, s->series_count, memory_order_relaxed);
    }
    m->batch_samples = 0;
    if (o->yield != NULL)
        o->yield(o->yield_ctx);
    return ERR_OK;
}

/* ---- checks ---- */

/* Whether an input's series belong to the result or the results. */
static bool is_family(const struct merge *m, const struct part_key *key)
{
    struct part_key last = m->o->key;

    if (key->resolution_ms != last.resolution_ms || key->retention_class != last.retention_class)
        return false;
    if (m->o->split.count == 0)
        return part_key_shard_within(key, &last);
    last.shard += m->o->split.count - 1;
    return part_key_shard_within(&m->o->key, key) && part_key_shard_within(&last, key);
}

static enum err input_check(const struct merge *m, const struct merge_cursor *c, struct errinfo *ei)
{
    const struct part_info *info = part_info(c->part);

    if (!is_family(m, &info->key) || c->first_ms < m->first_ms || c->last_ms > m->last_ms ||
        info->key.generation > m->o->key.generation)
        return errinfo_set(ei, ERR_INVALID, 0, "merge: the result's key does not cover an input");
    if (info->series_count > 0 &&
        (info->min_time_ms < c->first_ms || info->max_time_ms > c->last_ms))
        return merge_corrupt(m, c, PART_FILE_INDEX, "samples lie outside of the window", ei);
    for (size_t i = 0; &m->cursors[i] < c; i++) {
        const struct merge_cursor *other = &m->cursors[i];

        if (part_info(other->part)->key.generation == info->key.generation &&
            part_key_meets(&part_info(other->part)->key, &info->key))
            return errinfo_set(ei, ERR_INVALID, 0,
                               "merge: two inputs overlap and have the same generation");
    }
    return ERR_OK;
}

static void cursor_insert(struct merge *m, struct part *p)
{
    size_t at = m->cursor_count++;

    while (at > 0 &&
           part_info(m->cursors[at - 1].part)->key.generation > part_info(p)->key.generation) {
        m->cursors[at] = m->cursors[at - 1];
        at--;
    }
    m->cursors[at] = (struct merge_cursor){.part = p};
    arena_init(&m->cursors[at].arena, m->o->memory);
}

static enum err cursors_open(struct merge *m, struct errinfo *ei)
{
    uint64_t total = 0;

    for (size_t i = 0; i < m->o->input_count; i++)
        cursor_insert(m, m->o->inputs[i]);
    for (size_t i = 0; i < m->cursor_count; i++) {
        struct merge_cursor *c = &m->cursors[i];
        const struct part_info *info = part_info(c->part);
        enum err e;

        if (!merge_window(&info->key, &c->first_ms, &c->last_ms))
            return errinfo_set(ei, ERR_INVALID, 0, "merge: the window of an input is none");
        if ((e = input_check(m, c, ei)) != ERR_OK ||
            (e = part_iter_new(c->part, &c->it, ei)) != ERR_OK ||
            (e = part_iter_next(c->it, &c->series, ei)) != ERR_OK)
            return e;
        total += info->sample_count;
        m->stats.input_bytes += info->index_size + info->chunks_size;
    }
    if (m->o->progress != NULL) /* relaxed: a statistic */
        atomic_store_explicit(&m->o->progress->samples_total, total, memory_order_relaxed);
    return ERR_OK;
}

static enum err writers_open(struct merge *m, struct errinfo *ei)
{
    struct part_writer_options wo = {.dir = m->o->dir, .key = m->o->key};
    uint32_t count = m->o->split.count == 0 ? 1 : m->o->split.count;
    enum err e = ERR_OK;

    for (; m->writer_count < count && e == ERR_OK; wo.key.shard++) {
        e = part_writer_new(m->o->store, &wo, &m->writers[m->writer_count], ei);
        m->writer_count += e == ERR_OK;
    }
    m->writer = m->writers[0];
    return e;
}

static enum err prepare(struct merge *m, struct errinfo *ei)
{
    void *t_ms = NULL, *value = NULL;
    enum err e;

    if (m->o->input_count == 0 || m->o->input_count > MERGE_INPUTS_MAX ||
        m->o->split.count > MERGE_SPLIT_MAX || !merge_window(&m->o->key, &m->first_ms, &m->last_ms))
        return errinfo_set(ei, ERR_INVALID, 0, "merge: %zu inputs, or no window",
                           m->o->input_count);
    merge_chunk_sizes(m->o->key.window_size_ms, &m->target_samples, &m->copy_min_samples);
    if (m->o->target_samples != 0)
        m->target_samples = m->o->target_samples;
    if (m->o->copy_min_samples != 0)
        m->copy_min_samples = m->o->copy_min_samples;
    if (m->target_samples > CODEC_SAMPLES_MAX / 2)
        m->target_samples = CODEC_SAMPLES_MAX / 2;
    if ((e = merge_alloc(m, CODEC_SAMPLES_MAX, sizeof *m->t_ms, &t_ms, ei)) == ERR_OK) {
        m->t_ms = t_ms;
        e = merge_alloc(m, CODEC_SAMPLES_MAX, sizeof *m->value, &value, ei);
        m->value = value;
    }
    if (e != ERR_OK || (e = cursors_open(m, ei)) != ERR_OK)
        return e;
    return writers_open(m, ei);
}

/* ---- series ---- */

/* Compares a head with the series found so far. Equal fingerprints are nearly always the same
 * series, which is cheaper to see than an order. */
static int head_compare(const struct part_series *head, const struct part_series *best)
{
    if (hash128_equal(head->fingerprint, best->fingerprint) &&
        labels_equal(&head->labels, &best->labels))
        return 0;
    return part_labels_compare(&head->labels, &best->labels);
}

/* Fills m->group with the cursors at the first series in order; leaves it empty at the end. */
static enum err group_find(struct merge *m, struct errinfo *ei)
{
    const struct part_series *best = NULL;

    m->group_count = 0;
    for (size_t i = 0; i < m->cursor_count; i++) {
        struct merge_cursor *c = &m->cursors[i];
        int order;

        if (c->series == NULL)
            continue;
        order = best == NULL ? -1 : head_compare(c->series, best);
        if (order > 0)
            continue;
        if (order == 0 && !hash128_equal(c->series->fingerprint, best->fingerprint))
            return merge_corrupt(m, c, PART_FILE_INDEX, "its fingerprint is not that of its labels",
                                 ei);
        if (order < 0) {
            m->group_count = 0;
            best = c->series;
        }
        m->group[m->group_count++] = c;
    }
    return ERR_OK;
}

static enum err group_advance(struct merge *m, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < m->group_count && e == ERR_OK; i++)
        e = part_iter_next(m->group[i]->it, &m->group[i]->series, ei);
    return e;
}

static enum err writer_choose(struct merge *m, const struct labels *labels, struct errinfo *ei)
{
    uint32_t at = 0;
    enum err e;

    if (m->o->split.count == 0)
        return ERR_OK;
    e = m->o->split.place(m->o->split.ctx, labels, &at, ei);
    if (e != ERR_OK)
        return e;
    if (at >= m->writer_count)
        return merge_corrupt(m, m->group[0], PART_FILE_INDEX, "it is of another shard", ei);
    m->writer = m->writers[at];
    return ERR_OK;
}

static enum err series_write(struct merge *m, struct errinfo *ei)
{
    const struct part_series *s = m->group[0]->series;
    enum err e = writer_choose(m, &s->labels, ei);
    uint64_t before;

    if (e != ERR_OK)
        return e;
    before = part_writer_sample_count(m->writer);
    e = part_writer_series(m->writer, &s->labels, s->fingerprint, ei);
    /* The writer refuses labels that are not sorted, and series out of order. All other heads lie
     * behind this one, so it is its own part that is out of order. */
    if (e == ERR_INVALID)
        return merge_corrupt(m, m->group[0], PART_FILE_INDEX, "its labels are out of order", ei);
    if (e == ERR_OK)
        e = merge_series_chunks(m, ei);
    if (e == ERR_OK && part_writer_sample_count(m->writer) > before)
        m->stats.series_count++;
    return e == ERR_OK ? merge_tick(m, SERIES_COST_SAMPLES, ei) : e;
}

/* *result is undefined after a failure. */
static enum err finish(struct merge *m, struct merge_result *result, struct errinfo *ei)
{
    uint64_t sequence = 0, samples = 0;
    enum err e = ERR_OK;

    *result = (struct merge_result){.stats = m->stats};
    for (size_t i = 0; i < m->cursor_count; i++) {
        uint64_t s = part_info(m->cursors[i].part)->highest_sequence;

        sequence = s > sequence ? s : sequence;
    }
    for (uint32_t i = 0; i < m->writer_count; i++)
        samples += part_writer_sample_count(m->writers[i]);
    ASSERT(samples == m->stats.samples_copied + m->stats.samples_encoded);
    for (uint32_t i = 0; i < m->writer_count && e == ERR_OK; i++) {
        struct part_info *info = &result->infos[result->info_count];

        if (part_writer_sample_count(m->writers[i]) == 0)
            continue;
        e = part_writer_finish(m->writers[i], sequence, info, ei);
        result->info_count++;
        result->stats.output_bytes += info->index_size + info->chunks_size;
    }
    result->written = result->info_count > 0;
    result->info = result->infos[0];
    return e;
}

static void merge_done(struct merge *m)
{
    for (size_t i = 0; i < m->cursor_count; i++) {
        part_iter_free(m->cursors[i].it);
        free(m->cursors[i].t_ms);
        free(m->cursors[i].value);
        arena_done(&m->cursors[i].arena);
        free(m->cursors[i].ranges);
    }
    for (uint32_t i = 0; i < m->writer_count; i++)
        part_writer_free(m->writers[i]);
    free(m->t_ms);
    free(m->value);
    histogram_chunk_builder_done(&m->histograms);
    if (m->o->memory != NULL)
        budget_release(m->o->memory, m->charged_bytes);
    free(m);
}

static void progress_complete(const struct merge_options *o, uint64_t series)
{
    if (o->progress == NULL)
        return;
    /* relaxed: statistics */
    atomic_store_explicit(&o->progress->samples_done,
                          atomic_load_explicit(&o->progress->samples_total, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&o->progress->series_done, series, memory_order_relaxed);
}

enum err merge_run(const struct merge_options *o, struct merge_result *out, struct errinfo *ei)
{
    struct merge *m = calloc(1, sizeof *m);
    struct merge_result result;
    enum err e;

    if (m == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "merge");
    m->o = o;
    histogram_chunk_builder_init(&m->histograms, o->memory);
    e = prepare(m, ei);
    while (e == ERR_OK) {
        e = group_find(m, ei);
        if (e != ERR_OK || m->group_count == 0)
            break;
        if ((e = series_write(m, ei)) == ERR_OK)
            e = group_advance(m, ei);
    }
    if (e == ERR_OK)
        e = merge_tick(m, 0, ei); /* a stop before the part is made durable */
    if (e == ERR_OK)
        e = finish(m, &result, ei);
    if (e == ERR_OK)
        *out = result;
    if (e == ERR_OK)
        progress_complete(o, m->stats.series_count);
    merge_done(m);
    return e;
}
