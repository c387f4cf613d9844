/*
 * Label names and label values over all shards.
 *
 * Without matchers the dictionaries answer, and a name or value counts when one of its slots may
 * have a sample in the range: mostly the first one asked. With matchers the series are selected and
 * their names or value ids marked. Either way the shards' strings are gathered as references to
 * dictionary text, sorted, and only what is returned is copied: extra memory is 16 bytes a
 * distinct string and shard, and 4 bytes a selected series of one shard at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/read/querier_internal.h"

struct gather {
    struct querier *q;
    const struct matcher_set *sets;
    size_t set_count;
    int64_t min_time_ms, max_time_ms;
    struct arena found_arena; /* holds found */
    struct arena scratch;     /* reset for every shard */
    struct str_pool texts;    /* out of parts */
    struct str *found;
    size_t count, capacity;
    struct errinfo *ei;
};

static void gather_init(struct gather *g, struct querier *q, const struct matcher_set *sets,
                        size_t set_count, int64_t min_time_ms, int64_t max_time_ms,
                        struct budget *budget, struct errinfo *ei)
{
    *g = (struct gather){.q = q,
                         .sets = sets,
                         .set_count = set_count,
                         .min_time_ms = min_time_ms,
                         .max_time_ms = max_time_ms,
                         .ei = ei};
    arena_init(&g->found_arena, budget);
    arena_init(&g->scratch, budget);
    str_pool_init(&g->texts, budget, engine_hash_secret(q->engine));
}

static void gather_done(struct gather *g)
{
    arena_done(&g->found_arena);
    arena_done(&g->scratch);
    str_pool_done(&g->texts);
}

static enum err gather_add(struct gather *g, const struct str *texts, size_t count)
{
    size_t need = g->count + count;

    if (need > g->capacity) {
        size_t grown = g->capacity == 0 ? 64 : g->capacity * 2;

        if (grown < need)
            grown = need;
        g->found =
            arena_grow_array(&g->found_arena, g->found, g->capacity, grown, sizeof *g->found);
        if (g->found == NULL)
            return arena_error(&g->found_arena, g->ei);
        g->capacity = grown;
    }
    if (count != 0)
        memcpy(g->found + g->count, texts, count * sizeof *texts);
    g->count = need;
    return ERR_OK;
}

static int compare_strs(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

/* Sorts what was found, drops repeats, cuts, and copies the rest into the caller's arena. */
static enum err gather_give(struct gather *g, size_t limit, struct arena *arena,
                            struct str_list *out, bool *truncated)
{
    size_t n = 0;
    struct str *items;

    if (g->count != 0)
        qsort(g->found, g->count, sizeof *g->found, compare_strs);
    for (size_t i = 0; i < g->count; i++) {
        if (n == 0 || !str_equal(g->found[n - 1], g->found[i]))
            g->found[n++] = g->found[i];
    }
    *truncated = limit != 0 && n > limit;
    if (*truncated)
        n = limit;
    items = ARENA_ARRAY(arena, n, struct str);
    if (items == NULL)
        return arena_error(arena, g->ei);
    for (size_t i = 0; i < n; i++) {
        char *copy = arena_memdup0(arena, g->found[i].data, g->found[i].size);

        if (copy == NULL)
            return arena_error(arena, g->ei);
        items[i] = (struct str){copy, g->found[i].size};
    }
    *out = (struct str_list){n, items};
    return ERR_OK;
}

/* ---- with matchers: marks ---- */

/* Which names, or which values of one name, the visited series have. */
struct marks {
    uint32_t name_id; /* values of this name; UINT32_MAX: mark names instead */
    uint32_t last_schema, last_position;
    bool has_last;
    bool *seen;
    uint32_t seen_count;
};

static void mark_names(void *ctx, const struct index_series *series)
{
    struct marks *m = ctx;

    if (m->has_last && m->last_schema == series->schema_id)
        return;
    m->last_schema = series->schema_id;
    m->has_last = series->name_count != 0;
    for (uint32_t i = 0; i < series->name_count; i++) {
        if (series->names[i] < m->seen_count)
            m->seen[series->names[i]] = true;
    }
}

static void mark_values(void *ctx, const struct index_series *series)
{
    struct marks *m = ctx;
    uint32_t i;

    if (series->name_count == 0)
        return;
    if (!m->has_last || m->last_schema != series->schema_id) {
        for (i = 0; i < series->name_count && series->names[i] != m->name_id; i++)
            ;
        m->last_position = i;
        m->last_schema = series->schema_id;
        m->has_last = true;
    }
    i = m->last_position;
    if (i < series->name_count && series->values[i] < m->seen_count)
        m->seen[series->values[i]] = true;
}

/* Runs every matcher set on one shard and marks what the live series have. */
static enum err mark_selected(struct gather *g, uint32_t shard, struct marks *marks,
                              index_visitor *visit)
{
    struct index *ix = querier_index(g->q, shard);
    struct time_filter filter = {engine_shard(g->q->engine, shard), g->min_time_ms, g->max_time_ms};

    for (size_t k = 0; k < g->set_count; k++) {
        uint32_t *slots;
        size_t count;
        enum err e = index_select(ix, g->sets[k].items, g->sets[k].count, g->q->stop, &g->scratch,
                                  &slots, &count, g->ei);

        for (size_t i = 0; i < count && e == ERR_OK; i += QUERIER_GROUP_MAX) {
            size_t n = count - i < QUERIER_GROUP_MAX ? count - i : QUERIER_GROUP_MAX;
            bool keep[QUERIER_GROUP_MAX];
            size_t kept = 0;

            time_filter_keep(&filter, slots + i, n, keep);
            for (size_t j = 0; j < n; j++) {
                if (keep[j])
                    slots[i + kept++] = slots[i + j];
            }
            index_visit(ix, slots + i, kept, visit, marks);
            e = querier_check_stop(g->q, g->ei);
        }
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err gather_selected_names(struct gather *g, uint32_t shard)
{
    struct index *ix = querier_index(g->q, shard);
    struct marks marks = {.name_id = UINT32_MAX, .seen_count = index_name_count(ix)};
    enum err e;

    marks.seen = arena_calloc(&g->scratch, marks.seen_count, sizeof *marks.seen);
    if (marks.seen == NULL)
        return arena_error(&g->scratch, g->ei);
    e = mark_selected(g, shard, &marks, mark_names);
    for (uint32_t i = 0; i < marks.seen_count && e == ERR_OK; i++) {
        if (marks.seen[i]) {
            struct str text = index_name_text(ix, i);

            e = gather_add(g, &text, 1);
        }
    }
    return e;
}

static enum err gather_selected_values(struct gather *g, uint32_t shard, struct str name)
{
    struct index *ix = querier_index(g->q, shard);
    struct marks marks = {.name_id = index_name_id(ix, name)};
    enum err e;

    if (marks.name_id == UINT32_MAX)
        return ERR_OK;
    marks.seen_count = index_value_count(ix, marks.name_id);
    marks.seen = arena_calloc(&g->scratch, marks.seen_count, sizeof *marks.seen);
    if (marks.seen == NULL)
        return arena_error(&g->scratch, g->ei);
    e = mark_selected(g, shard, &marks, mark_values);
    for (uint32_t i = 0; i < marks.seen_count && e == ERR_OK; i++) {
        if (marks.seen[i]) {
            struct str text;

            index_value_texts(ix, marks.name_id, i, 1, &text);
            e = gather_add(g, &text, 1);
        }
    }
    return e;
}

/* ---- without matchers ---- */

static enum err gather_all(struct gather *g, uint32_t shard, const struct str *name)
{
    struct index *ix = querier_index(g->q, shard);
    struct time_filter time = {engine_shard(g->q->engine, shard), g->min_time_ms, g->max_time_ms};
    struct slot_filter filter = {time_filter_keep, &time};
    struct str *texts;
    size_t count;
    enum err e = name == NULL ? index_names_live(ix, &filter, &g->scratch, &texts, &count, g->ei)
                              : index_values_live(ix, *name, &filter, g->q->stop, &g->scratch,
                                                  &texts, &count, g->ei);

    return e == ERR_OK ? gather_add(g, texts, count) : e;
}

/* ---- parts ---- */

/* Adds a string that goes with the scratch arena. */
static enum err gather_text(struct gather *g, struct str text)
{
    bool is_new;

    if (text.size == 0)
        return ERR_OK;
    if (!str_pool_intern(&g->texts, &text, &is_new))
        return arena_error(&g->texts.arena, g->ei);
    return is_new ? gather_add(g, &text, 1) : ERR_OK;
}

/* name NULL: label names. */
static enum err part_gather_all(struct gather *g, struct part *p, const struct str *name)
{
    struct str_list list = {0, NULL};
    enum err e = name == NULL ? part_label_names(p, &g->scratch, &list, g->ei)
                              : part_label_values(p, *name, &g->scratch, &list, g->ei);

    for (size_t i = 0; i < list.count && e == ERR_OK; i++)
        e = gather_text(g, list.items[i]);
    return e;
}

static enum err part_gather_names(struct gather *g, struct part *p, const uint32_t *series,
                                  size_t count)
{
    struct labels sets[QUERIER_GROUP_MAX];
    enum err e = part_labels(p, series, count, &g->scratch, sets, g->ei);

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        for (size_t k = 0; k < sets[i].count && e == ERR_OK; k++)
            e = gather_text(g, sets[i].items[k].name);
    }
    return e;
}

static enum err part_gather_values(struct gather *g, struct part *p, const uint32_t *series,
                                   size_t count, struct str name)
{
    struct str values[QUERIER_GROUP_MAX];
    enum err e = part_values_of(p, series, count, &name, 1, &g->scratch, values, g->ei);

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        if (i == 0 || values[i].data != values[i - 1].data) /* equal values share a pointer */
            e = gather_text(g, values[i]);
    }
    return e;
}

static enum err part_gather_selected(struct gather *g, struct part *p, const struct str *name)
{
    enum err e = ERR_OK;

    for (size_t k = 0; k < g->set_count && e == ERR_OK; k++) {
        uint32_t *series = NULL;
        size_t count = 0;

        e = part_select(p, g->sets[k].items, g->sets[k].count, g->q->stop, &g->scratch, &series,
                        &count, g->ei);
        for (size_t i = 0; i < count && e == ERR_OK; i += QUERIER_GROUP_MAX) {
            size_t n = count - i < QUERIER_GROUP_MAX ? count - i : QUERIER_GROUP_MAX;
            struct arena_mark mark = arena_mark_get(&g->scratch);

            e = name == NULL ? part_gather_names(g, p, series + i, n)
                             : part_gather_values(g, p, series + i, n, *name);
            arena_mark_return(&g->scratch, mark);
            if (e == ERR_OK)
                e = querier_check_stop(g->q, g->ei);
        }
    }
    return e;
}

static enum err gather_parts(struct gather *g, uint32_t shard, const struct str *name)
{
    struct file_set *files = shard_files(engine_shard(g->q->engine, shard));
    enum err e = ERR_OK;

    for (size_t i = 0; files != NULL && i < files->part_count && e == ERR_OK; i++) {
        struct part_source *p = files->parts[i];

        if (!part_source_overlaps(p, g->min_time_ms, g->max_time_ms))
            continue;
        arena_reset(&g->scratch);
        e = querier_check_stop(g->q, g->ei);
        if (e == ERR_OK)
            e = g->set_count == 0 ? part_gather_all(g, p->part, name)
                                  : part_gather_selected(g, p->part, name);
    }
    file_set_unref(files);
    return e;
}

/* name NULL: label names. */
static enum err gather_shards(struct gather *g, const struct str *name)
{
    for (uint32_t s = 0; s < g->q->shard_count; s++) {
        enum err e = querier_check_stop(g->q, g->ei);

        if (e == ERR_OK && g->set_count == 0)
            e = gather_all(g, s, name);
        else if (e == ERR_OK && name == NULL)
            e = gather_selected_names(g, s);
        else if (e == ERR_OK)
            e = gather_selected_values(g, s, *name);
        if (e == ERR_OK)
            e = gather_parts(g, s, name);
        if (e != ERR_OK)
            return e;
        arena_reset(&g->scratch);
    }
    return ERR_OK;
}

enum err querier_label_names(struct querier *q, const struct matcher_set *sets, size_t set_count,
                             int64_t min_time_ms, int64_t max_time_ms, size_t limit,
                             struct arena *arena, struct str_list *out, bool *truncated,
                             struct errinfo *ei)
{
    struct gather g;
    enum err e;

    gather_init(&g, q, sets, set_count, min_time_ms, max_time_ms, arena->budget, ei);
    e = gather_shards(&g, NULL);
    if (e == ERR_OK)
        e = gather_give(&g, limit, arena, out, truncated);
    gather_done(&g);
    return e;
}

enum err querier_label_values(struct querier *q, struct str name, const struct matcher_set *sets,
                              size_t set_count, int64_t min_time_ms, int64_t max_time_ms,
                              size_t limit, struct arena *arena, struct str_list *out,
                              bool *truncated, struct errinfo *ei)
{
    struct gather g;
    enum err e;

    gather_init(&g, q, sets, set_count, min_time_ms, max_time_ms, arena->budget, ei);
    e = gather_shards(&g, &name);
    if (e == ERR_OK)
        e = gather_give(&g, limit, arena, out, truncated);
    gather_done(&g);
    return e;
}
