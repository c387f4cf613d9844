/*
 * The explorer over the parts of a day, shard by shard.
 *
 * A series may stand in several parts of the day. A table by fingerprint joins them, with the first
 * and the last moment of each series in the day; its labels are those of the part in which it was
 * met first. There its entity gets one more: the labels of an entity are read once, whatever the
 * number of its series.
 */
#include <string.h>

#include "base/assert.h"
#include "engine/engine_internal.h"
#include "engine/maintain.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/part/part_store_internal.h"
#include "engine/read/explore_internal.h"

enum {
    GROUP = 512,
    DAY_MS = 86400000,
    BORDER_MS = 10 * 60 * 1000, /* samples this near to a border of the day are of its border */
    TABLE_FIRST = 1024,
};

/* A series of the day. */
struct day_series {
    struct hash128 fingerprint;
    uint32_t part, series;   /* where it was met first */
    int32_t first_s, last_s; /* seconds from the day's begin */
};

struct day_walk {
    struct explore_run *run;
    int64_t begin_ms, end_ms; /* of the day, both in it */
    int64_t newest_ms;        /* of the samples that there are in it, by the bounds of parts */
    struct arena scratch;     /* of one shard */
    struct day_series *items;
    uint32_t count, capacity;
    uint32_t *places;  /* number + 1, 0: free; twice the capacity */
    struct part *part; /* at hand */
    bool is_foreign;   /* it has series of other shards too */
    uint32_t shard;
    uint32_t part_number;
    struct explore_source *source;
    double series_bytes; /* of the part's index, for each series */
};

/* ---- the table ---- */

static uint32_t *place_of(const struct day_walk *w, struct hash128 fingerprint)
{
    uint64_t mask = 2 * (uint64_t)w->capacity - 1;

    for (uint64_t i = fingerprint.low & mask;; i = (i + 1) & mask) {
        uint32_t *at = &w->places[i];

        if (*at == 0 || hash128_equal(w->items[*at - 1].fingerprint, fingerprint))
            return at;
    }
}

static bool table_grow(struct day_walk *w)
{
    uint32_t capacity = w->capacity == 0 ? TABLE_FIRST : 2 * w->capacity;
    uint32_t *places = arena_calloc(&w->scratch, 2 * (size_t)capacity, sizeof *places);
    struct day_series *items =
        arena_grow_array(&w->scratch, w->items, w->count, capacity, sizeof *items);

    if (places == NULL || items == NULL)
        return false;
    w->items = items;
    w->places = places;
    w->capacity = capacity;
    for (uint32_t i = 0; i < w->count; i++)
        *place_of(w, items[i].fingerprint) = i + 1;
    return true;
}

static bool series_meet(struct day_walk *w, struct hash128 fingerprint, uint32_t series,
                        int64_t first_ms, int64_t last_ms)
{
    int32_t first_s = (int32_t)((first_ms - w->begin_ms) / 1000);
    int32_t last_s = (int32_t)((last_ms - w->begin_ms) / 1000);
    struct day_series *at;
    uint32_t *place;

    if (w->count == w->capacity && !table_grow(w))
        return false;
    place = place_of(w, fingerprint);
    if (*place == 0) {
        w->items[w->count++] =
            (struct day_series){fingerprint, w->part_number, series, first_s, last_s};
        *place = w->count;
        return true;
    }
    at = &w->items[*place - 1];
    at->first_s = first_s < at->first_s ? first_s : at->first_s;
    at->last_s = last_s > at->last_s ? last_s : at->last_s;
    return true;
}

/* ---- a part: who is in it, and what it costs ---- */

/* The share of a span of time that lies in the day. */
static double share_of(const struct day_walk *w, int64_t first_ms, int64_t last_ms)
{
    int64_t first = first_ms > w->begin_ms ? first_ms : w->begin_ms;
    int64_t last = last_ms < w->end_ms ? last_ms : w->end_ms;

    return last_ms <= first_ms ? 1 : (double)(last - first) / (double)(last_ms - first_ms);
}

/* Adds up the chunks of a series; its bounds in the day. */
static void chunks_add(struct day_walk *w, const struct part_chunk_list *chunks,
                       struct explore_cost *cost, int64_t *first_ms, int64_t *last_ms)
{
    for (size_t i = 0; i < chunks->count; i++) {
        const struct part_chunk *c = &chunks->items[i];
        double share = share_of(w, c->min_time_ms, c->max_time_ms);
        double bytes = 0;

        for (uint32_t k = 0; k < c->column_count; k++)
            bytes += c->column_size[k];
        cost->samples += share * c->sample_count;
        cost->bytes += share * bytes;
        *first_ms = c->min_time_ms < *first_ms ? c->min_time_ms : *first_ms;
        *last_ms = c->max_time_ms > *last_ms ? c->max_time_ms : *last_ms;
    }
    *first_ms = *first_ms > w->begin_ms ? *first_ms : w->begin_ms;
    *last_ms = *last_ms < w->end_ms ? *last_ms : w->end_ms;
    cost->bytes += w->series_bytes;
}

/* Of a part of another shard count, the series of this shard. */
static enum err group_own(struct day_walk *w, const uint32_t *series, size_t count, bool *own)
{
    struct labels sets[GROUP];
    struct byte_writer scratch[2];
    struct arena arena;
    enum err e;

    arena_init(&arena, w->run->arena->budget);
    writer_init(&scratch[0]);
    writer_init(&scratch[1]);
    e = part_labels(w->part, series, count, &arena, sets, w->run->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        uint32_t shard = 0;

        if (!engine_shard_of(w->run->q->engine, &sets[i], scratch, &shard))
            e = errinfo_set(w->run->ei, ERR_NOMEM, 0, "labels of a part");
        own[i] = shard == w->shard;
    }
    writer_done(&scratch[0]);
    writer_done(&scratch[1]);
    arena_done(&arena);
    return e;
}

static enum err group_meet(struct day_walk *w, const uint32_t *series, size_t count)
{
    struct explore_run *run = w->run;
    struct hash128 fingerprints[GROUP];
    struct part_chunk_list chunks[GROUP];
    bool own[GROUP];
    struct arena arena;
    enum err e = ERR_OK;

    arena_init(&arena, run->arena->budget);
    memset(own, true, sizeof own);
    if (w->is_foreign)
        e = group_own(w, series, count, own);
    if (e == ERR_OK)
        e = part_fingerprints(w->part, series, count, fingerprints, run->ei);
    if (e == ERR_OK)
        e = part_chunks(w->part, series, count, w->begin_ms, w->end_ms, &arena, chunks, run->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        int64_t first_ms = INT64_MAX, last_ms = INT64_MIN;
        uint32_t metric = part_metric_of(w->part, series[i]);
        struct explore_cost cost = {0};

        if (chunks[i].count == 0 || !own[i])
            continue; /* of other days or shards */
        chunks_add(w, &chunks[i], &cost, &first_ms, &last_ms);
        run->all.samples += cost.samples;
        run->all.bytes += cost.bytes;
        if (metric != PART_NO_VALUE) {
            w->source->costs[metric].samples += cost.samples;
            w->source->costs[metric].bytes += cost.bytes;
        }
        if (!series_meet(w, fingerprints[i], series[i], first_ms, last_ms))
            e = arena_error(&w->scratch, run->ei);
    }
    arena_done(&arena);
    return e == ERR_OK ? querier_check_stop(run->q, run->ei) : e;
}

static enum err part_meet(struct day_walk *w)
{
    const struct explore_options *o = w->run->options;
    uint32_t total = w->part->footer.info.series_count, all[GROUP], *series = NULL;
    struct arena arena;
    size_t count = total;
    enum err e = ERR_OK;

    arena_init(&arena, w->run->arena->budget);
    if (o->matcher_count > 0)
        e = part_select(w->part, o->matchers, o->matcher_count, w->run->q->stop, &arena, &series,
                        &count, w->run->ei);
    for (size_t first = 0; first < count && e == ERR_OK; first += GROUP) {
        size_t n = count - first < GROUP ? count - first : GROUP;

        for (size_t i = 0; i < n && series == NULL; i++)
            all[i] = (uint32_t)(first + i);
        e = group_meet(w, series == NULL ? all : series + first, n);
    }
    arena_done(&arena);
    return e;
}

static enum err texts_of_part(const struct explore_source *s, size_t name, uint32_t first,
                              uint32_t count, struct arena *arena, struct str *out,
                              struct errinfo *ei)
{
    struct part_value_cursor c;
    enum err e = ERR_OK;

    part_value_cursor_init(&c, s->of, (uint32_t)name);
    for (uint32_t i = 0; i < count && e == ERR_OK; i++) {
        struct str text;

        out[i] = (struct str){"", 0};
        if (!explore_is_met(s, name, first + i))
            continue;
        e = part_value_cursor_get(&c, first + i, &text, ei);
        if (e != ERR_OK)
            break;
        out[i] = (struct str){arena_memdup0(arena, text.data, text.size), text.size};
        if (out[i].data == NULL)
            e = arena_error(arena, ei);
    }
    part_value_cursor_done(&c);
    return e;
}

static enum err source_make(struct day_walk *w)
{
    struct explore_run *run = w->run;
    struct part *p = w->part;
    struct explore_source *s = explore_source_new(run, p->footer.name_count);
    double window_ms = (double)p->footer.info.key.window_size_ms;

    if (s == NULL)
        return arena_error(&run->work, run->ei);
    s->texts = texts_of_part;
    s->of = p;
    w->source = s;
    for (uint32_t i = 0; i < p->footer.name_count; i++) {
        s->names[i] = p->names[i].text;
        s->value_counts[i] = p->names[i].value_count;
        s->counts[i] = arena_calloc(&run->work, s->value_counts[i], sizeof *s->counts[i]);
        if (s->counts[i] == NULL)
            return arena_error(&run->work, run->ei);
    }
    if (p->metric_name != PART_NO_NAME) {
        s->costs = arena_calloc(&run->work, s->value_counts[p->metric_name], sizeof *s->costs);
        if (s->costs == NULL)
            return arena_error(&run->work, run->ei);
    }
    w->series_bytes = p->footer.info.series_count == 0
                          ? 0
                          : (double)p->footer.info.index_size / p->footer.info.series_count;
    if (window_ms > DAY_MS)
        w->series_bytes *= DAY_MS / window_ms;
    return ERR_OK;
}

/* ---- a part: labels of those that were met in it first ---- */

/* What a series adds to its entity and its metric: its place in `flags`, 0: it was met elsewhere.
 */
enum { FLAG_COUNTS = 1, FLAG_CREATED = 2, FLAG_ENDED = 4 };

static enum err entities_weigh(struct day_walk *w, const uint8_t *flags,
                               struct explore_count *entities)
{
    struct part *p = w->part;
    struct part_refs refs = {.page = NULL};
    enum err e = ERR_OK;

    for (uint32_t series = 0; series < p->footer.info.series_count && e == ERR_OK; series++) {
        uint8_t f = flags[series];
        uint32_t metric;

        if (f == 0)
            continue;
        e = part_refs_seek(p, series, &refs, w->run->ei);
        if (e != ERR_OK)
            break;
        explore_count_add(&entities[refs.entities[series - refs.first]], f & FLAG_CREATED,
                          f & FLAG_ENDED);
        metric = part_metric_of(p, series);
        if (metric != PART_NO_VALUE)
            explore_count_add(&w->source->counts[p->metric_name][metric], f & FLAG_CREATED,
                              f & FLAG_ENDED);
    }
    page_release(refs.page);
    return e;
}

static void weight_add(struct explore_count *to, const struct explore_count *from)
{
    to->series += from->series;
    to->created += from->created;
    to->ended += from->ended;
}

static enum err entity_page_count(struct day_walk *w, uint32_t index,
                                  const struct explore_count *entities)
{
    struct part_entity_page page;
    struct arena arena;
    enum err e;

    ASSERT(entities != NULL);
    arena_init(&arena, w->run->arena->budget);
    e = part_entity_page_read(w->part, index, &arena, &page, w->run->ei);
    for (uint32_t i = 0; e == ERR_OK && i < page.count; i++) {
        const struct part_schema *schema = &page.schemas[page.schema[i]];
        const struct explore_count *weight = &entities[page.first + i];

        for (uint32_t k = 0; k < schema->name_count && weight->series > 0; k++) {
            uint32_t name = schema->names[k];
            uint32_t value = schema->values[k * schema->entity_count + page.row[i]];

            if (value < w->source->value_counts[name])
                weight_add(&w->source->counts[name][value], weight);
        }
    }
    arena_done(&arena);
    return e == ERR_OK ? querier_check_stop(w->run->q, w->run->ei) : e;
}

static enum err part_count(struct day_walk *w, const uint8_t *flags)
{
    uint32_t entity_count = w->part->footer.info.entity_count;
    struct explore_count *entities;
    struct arena arena;
    enum err e;

    arena_init(&arena, w->run->arena->budget);
    entities = arena_calloc(&arena, entity_count, sizeof *entities);
    e = entities == NULL ? arena_error(&arena, w->run->ei) : entities_weigh(w, flags, entities);
    for (uint32_t i = 0; i * PART_ENTITIES_PER_PAGE < entity_count && e == ERR_OK; i++)
        e = entity_page_count(w, i, entities);
    arena_done(&arena);
    return e;
}

/* ---- a shard ---- */

struct shard_parts {
    struct part_source **items;
    struct explore_source **sources;
    uint8_t **flags; /* by part, then by series */
    uint32_t count;
};

/* The flags of all series, at the parts in which they were met first. */
static void flags_set(struct day_walk *w, const struct shard_parts *parts)
{
    int64_t newest_s = (w->newest_ms - w->begin_ms) / 1000;

    for (uint32_t i = 0; i < w->count; i++) {
        const struct day_series *s = &w->items[i];
        bool created = s->first_s >= BORDER_MS / 1000;
        bool ended = s->last_s < newest_s - BORDER_MS / 1000;

        parts->flags[s->part][s->series] =
            (uint8_t)(FLAG_COUNTS | (created ? FLAG_CREATED : 0) | (ended ? FLAG_ENDED : 0));
        w->run->all.series++;
        w->run->all.created += created;
        w->run->all.ended += ended;
    }
}

static enum err parts_prepare(struct day_walk *w, const struct file_set *set,
                              struct shard_parts *out)
{
    out->items = ARENA_ARRAY(&w->scratch, set->part_count, struct part_source *);
    out->sources = ARENA_ARRAY(&w->scratch, set->part_count, struct explore_source *);
    out->flags = ARENA_ARRAY(&w->scratch, set->part_count, uint8_t *);
    if (out->items == NULL || out->sources == NULL || out->flags == NULL)
        return arena_error(&w->scratch, w->run->ei);
    for (size_t i = 0; i < set->part_count; i++) {
        struct part_source *p = set->parts[i];

        if (!part_source_overlaps(p, w->begin_ms, w->end_ms))
            continue;
        out->flags[out->count] =
            arena_calloc(&w->scratch, part_info(p->part)->series_count, sizeof(uint8_t));
        if (out->flags[out->count] == NULL)
            return arena_error(&w->scratch, w->run->ei);
        out->items[out->count++] = p;
    }
    return ERR_OK;
}

static enum err shard_count(struct day_walk *w, const struct file_set *set)
{
    struct shard_parts parts = {0};
    enum err e = parts_prepare(w, set, &parts);

    for (uint32_t i = 0; i < parts.count && e == ERR_OK; i++) {
        w->part = parts.items[i]->part;
        w->is_foreign = parts.items[i]->is_foreign;
        w->part_number = i;
        e = source_make(w);
        parts.sources[i] = w->source;
        if (e == ERR_OK)
            e = part_meet(w);
    }
    if (e != ERR_OK)
        return e;
    flags_set(w, &parts);
    for (uint32_t i = 0; i < parts.count && e == ERR_OK; i++) {
        w->part = parts.items[i]->part;
        w->source = parts.sources[i];
        e = part_count(w, parts.flags[i]);
    }
    return e;
}

/* The newest sample of the day, by the parts' bounds: who ended before it has ended. */
static int64_t newest_of(const struct day_walk *w, const struct file_set *const *sets,
                         uint32_t count)
{
    int64_t newest_ms = w->begin_ms;

    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; sets[i] != NULL && k < sets[i]->part_count; k++) {
            const struct part_info *info = part_info(sets[i]->parts[k]->part);

            if (info->min_time_ms <= w->end_ms && info->max_time_ms > newest_ms)
                newest_ms = info->max_time_ms;
        }
    return newest_ms < w->end_ms ? newest_ms : w->end_ms;
}

enum err explore_day(struct explore_run *run)
{
    struct day_walk w = {.run = run};
    uint32_t shard_count_all = run->q->shard_count;
    int64_t day_ms = run->options->day_ms;
    struct file_set **sets = arena_calloc(&run->work, shard_count_all, sizeof(struct file_set *));
    enum err e = ERR_OK;

    if (sets == NULL)
        return arena_error(&run->work, run->ei);

    w.begin_ms = day_ms - (day_ms % DAY_MS + DAY_MS) % DAY_MS;
    w.end_ms = w.begin_ms + DAY_MS - 1;
    for (uint32_t i = 0; i < shard_count_all && e == ERR_OK; i++)
        sets[i] = shard_files(engine_shard(run->q->engine, i));
    if (e == ERR_OK) {
        w.newest_ms = newest_of(&w, (const struct file_set *const *)sets, shard_count_all);
        run->hours = (double)(w.newest_ms - w.begin_ms) / 3600000.0;
    }
    for (uint32_t i = 0; i < shard_count_all && e == ERR_OK; i++) {
        if (sets[i] == NULL)
            continue;
        arena_init(&w.scratch, run->arena->budget);
        w.items = NULL;
        w.places = NULL;
        w.count = w.capacity = 0;
        w.shard = i;
        e = shard_count(&w, sets[i]);
        arena_done(&w.scratch);
    }
    /* Texts of parts are read until the answer is made. */
    run->sets = sets;
    run->set_count = shard_count_all;
    return e;
}
