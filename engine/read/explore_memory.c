/*
 * The explorer over memory: the series of a shard in slices, their structs under the shard's lock
 * and their numbers of values under the index's, and three additions for each label.
 */
#include "engine/memtable/ended_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/read/explore_internal.h"

enum { SLICE = 512 };

/* What the struct of a series tells. */
struct activity {
    bool is_live, created, ended;
    double samples_per_second;
};

struct memory_walk {
    struct explore_run *run;
    struct shard *shard;
    const struct slot_marks *marks; /* of the shard; NULL: all slots */
    struct explore_source *source;
    uint32_t metric_name; /* number of __name__; UINT32_MAX: none */
    uint32_t first_window;
    int64_t now_ms;
    struct activity activity[SLICE];
};

/* ---- counting ---- */

static void activity_of(const struct memory_walk *w, const struct series *series,
                        struct activity *out)
{
    *out = (struct activity){0};
    if (series == NULL || series->newest_ms == INT64_MIN)
        return;
    out->is_live = true;
    out->created = series->oldest_window >= w->first_window;
    out->ended = series_has_ended(series, w->now_ms);
    if (!out->ended && series->delta_ms > 0)
        out->samples_per_second = 1000.0 / series->delta_ms;
}

static void activities_read(struct memory_walk *w, const uint32_t *slots, size_t count)
{
    mutex_lock(&w->shard->lock);
    for (size_t i = 0; i < count; i++)
        activity_of(w, series_find_any(&w->shard->series, slots[i]), &w->activity[i]);
    mutex_unlock(&w->shard->lock);
}

/* Called with the index's lock held. */
static void series_count(void *ctx, const struct index_series *series)
{
    struct memory_walk *w = ctx;
    struct explore_source *s = w->source;
    const struct activity *a = &w->activity[series->item];
    struct explore_row *all = &w->run->all;

    if (!a->is_live || series->name_count == 0)
        return;
    all->series++;
    all->created += a->created;
    all->ended += a->ended;
    all->samples_per_second += a->samples_per_second;
    for (uint32_t i = 0; i < series->name_count; i++) {
        uint32_t name = series->names[i], value = series->values[i];

        /* What came into the index since it was measured is left out. */
        if (name >= s->name_count || value >= s->value_counts[name])
            continue;
        explore_count_add(&s->counts[name][value], a->created, a->ended);
        if (name == w->metric_name)
            s->costs[value].samples_per_second += a->samples_per_second;
    }
}

static bool is_marked(const struct slot_marks *m, uint32_t slot)
{
    return slot < m->slot_end && slot_is_marked(m, slot);
}

static bool any_marked(const struct slot_marks *m, const uint32_t *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_marked(m, slots[i]))
            return true;
    return false;
}

static enum err slots_count(struct memory_walk *w, const uint32_t *slots, size_t count)
{
    enum err e = ERR_OK;

    for (size_t first = 0; first < count && e == ERR_OK; first += SLICE) {
        size_t n = count - first < SLICE ? count - first : SLICE;

        if (w->marks != NULL && !any_marked(w->marks, slots + first, n))
            continue;
        activities_read(w, slots + first, n);
        for (size_t i = 0; w->marks != NULL && i < n; i++)
            w->activity[i].is_live &= is_marked(w->marks, slots[first + i]);
        index_visit(w->source->of, slots + first, n, series_count, w);
        e = querier_check_stop(w->run->q, w->run->ei);
    }
    return e;
}

/* ---- a shard ---- */

static enum err texts_of_index(const struct explore_source *s, size_t name, uint32_t first,
                               uint32_t count, struct arena *arena, struct str *out,
                               struct errinfo *ei)
{
    (void)arena;
    (void)ei;
    index_value_texts(s->of, (uint32_t)name, first, count, out);
    return ERR_OK;
}

static enum err source_make(struct memory_walk *w, struct index *ix)
{
    struct explore_run *run = w->run;
    uint32_t name_count = index_name_count(ix);
    struct explore_source *s = explore_source_new(run, name_count);

    if (s == NULL)
        return arena_error(&run->work, run->ei);
    s->texts = texts_of_index;
    s->of = ix;
    w->source = s;
    w->metric_name = index_name_id(ix, LABEL_METRIC_NAME);
    for (uint32_t i = 0; i < name_count; i++) {
        s->names[i] = index_name_text(ix, i);
        s->value_counts[i] = index_value_count(ix, i);
        s->counts[i] = arena_calloc(&run->work, s->value_counts[i], sizeof *s->counts[i]);
        if (s->counts[i] == NULL)
            return arena_error(&run->work, run->ei);
    }
    if (w->metric_name < name_count)
        s->costs = arena_calloc(&run->work, s->value_counts[w->metric_name], sizeof *s->costs);
    return w->metric_name < name_count && s->costs == NULL ? arena_error(&run->work, run->ei)
                                                           : ERR_OK;
}

/* Every slot there is, slice by slice. */
static enum err all_count(struct memory_walk *w)
{
    uint32_t slots[SLICE], end;
    enum err e = ERR_OK;

    mutex_lock(&w->shard->lock);
    end = w->shard->series.slot_end;
    mutex_unlock(&w->shard->lock);
    for (uint32_t first = 0; first < end && e == ERR_OK;) {
        uint32_t n = end - first < SLICE ? end - first : (uint32_t)SLICE;

        for (uint32_t i = 0; i < n; i++)
            slots[i] = first + i;
        e = slots_count(w, slots, n);
        first += n;
    }
    return e;
}

static enum err shard_count(struct memory_walk *w, uint32_t shard)
{
    const struct explore_options *o = w->run->options;
    struct index *ix = querier_index(w->run->q, shard);
    struct arena scratch;
    uint32_t *slots = NULL;
    size_t count = 0;
    enum err e;

    w->shard = engine_shard(w->run->q->engine, shard);
    w->marks = w->run->marks == NULL ? NULL : &w->run->marks[shard];
    e = source_make(w, ix);
    if (e != ERR_OK)
        return e;
    if (o->matcher_count == 0)
        return all_count(w);
    arena_init(&scratch, w->run->arena->budget);
    e = index_select(ix, o->matchers, o->matcher_count, w->run->q->stop, &scratch, &slots, &count,
                     w->run->ei);
    if (e == ERR_OK)
        e = slots_count(w, slots, count);
    arena_done(&scratch);
    return e;
}

enum err explore_memory(struct explore_run *run)
{
    struct memory_walk w = {.run = run, .now_ms = engine_now_ms(run->q->engine)};
    uint32_t window = w.now_ms < CHUNK_TIME_MIN_MS ? 0 : chunk_window(w.now_ms);
    enum err e = ERR_OK;

    w.first_window = window == 0 ? 0 : window - 1;
    run->hours = (double)(w.now_ms - chunk_window_start_ms(w.first_window)) / 3600000.0;
    for (uint32_t i = 0; i < run->q->shard_count && e == ERR_OK; i++)
        e = shard_count(&w, i);
    return e;
}
