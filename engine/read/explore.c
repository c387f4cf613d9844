/*
 * The counts of all sources, put together by text: one label name at a time.
 */
#include "engine/explore.h"

#include <stdlib.h>

#include "base/assert.h"
#include "engine/read/explore_internal.h"

enum { TEXT_SLICE = 1024 };

/* One value of a name in one source. */
struct value_row {
    struct str text;
    struct explore_count count;
    struct explore_cost cost;
};

struct gather {
    struct explore_run *run;
    struct arena scratch; /* of one name */
    struct value_row *rows;
    size_t count, capacity;
    struct explore_top metrics, labels, values, pairs;
    uint64_t label_pair_count;
};

struct explore_source *explore_source_new(struct explore_run *run, size_t name_count)
{
    struct explore_source *s = ARENA_NEW(&run->work, struct explore_source);

    if (s == NULL)
        return NULL;
    s->name_count = name_count;
    s->names = arena_calloc(&run->work, name_count, sizeof *s->names);
    s->value_counts = arena_calloc(&run->work, name_count, sizeof *s->value_counts);
    s->counts = arena_calloc(&run->work, name_count, sizeof(struct explore_count *));
    if (s->names == NULL || s->value_counts == NULL || s->counts == NULL)
        return NULL;
    s->next = run->sources;
    run->sources = s;
    return s;
}

/* ---- one name ---- */

static bool rows_reserve(struct gather *g, size_t more)
{
    size_t capacity = g->capacity;
    struct value_row *grown;

    if (g->count + more <= capacity)
        return true;
    while (capacity < g->count + more)
        capacity = capacity == 0 ? 256 : 2 * capacity;
    grown = arena_grow_array(&g->scratch, g->rows, g->count, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    g->rows = grown;
    g->capacity = capacity;
    return true;
}

/* Values of a name that some series have, of one source. */
static enum err source_gather(struct gather *g, const struct explore_source *s, size_t name)
{
    const struct explore_count *counts = s->counts[name];
    bool is_metric = str_equal(s->names[name], LABEL_METRIC_NAME);
    struct str texts[TEXT_SLICE];
    enum err e = ERR_OK;

    if (counts == NULL)
        return ERR_OK;
    for (uint32_t first = 0; first < s->value_counts[name] && e == ERR_OK; first += TEXT_SLICE) {
        uint32_t left = s->value_counts[name] - first;
        uint32_t n = left < TEXT_SLICE ? left : (uint32_t)TEXT_SLICE;

        e = s->texts(s, name, first, n, &g->scratch, texts, g->run->ei);
        if (e == ERR_OK && !rows_reserve(g, n))
            e = arena_error(&g->scratch, g->run->ei);
        for (uint32_t i = 0; i < n && e == ERR_OK; i++) {
            struct value_row row = {.text = texts[i], .count = counts[first + i]};

            if (is_metric && s->costs != NULL)
                row.cost = s->costs[first + i];
            if (explore_is_met(s, name, first + i))
                g->rows[g->count++] = row;
        }
        if (e == ERR_OK)
            e = querier_check_stop(g->run->q, g->run->ei);
    }
    return e;
}

static int by_text(const void *a, const void *b)
{
    return str_compare(((const struct value_row *)a)->text, ((const struct value_row *)b)->text);
}

static void row_add(struct explore_row *to, const struct value_row *from)
{
    to->series += from->count.series;
    to->created += from->count.created;
    to->ended += from->count.ended;
    to->samples_per_second += from->cost.samples_per_second;
    to->samples += from->cost.samples;
    to->bytes += from->cost.bytes;
}

static bool value_offer(struct gather *g, struct str name, const struct explore_row *row)
{
    const struct str no_label = {"", 0};
    struct explore_row pair = *row;
    struct arena *arena = g->run->arena;

    pair.samples_per_second = pair.samples = pair.bytes = 0;
    return explore_top_offer(&g->pairs, arena, name, &pair) &&
           (!str_equal(name, LABEL_METRIC_NAME) ||
            explore_top_offer(&g->metrics, arena, no_label, row)) &&
           (!str_equal(name, g->run->options->focus) ||
            explore_top_offer(&g->values, arena, no_label, &pair));
}

/* The rows of a name, equal texts joined, to the lists. */
static enum err rows_offer(struct gather *g, struct str name)
{
    const struct str no_label = {"", 0};
    struct explore_row label = {.name = name};
    bool ok = true;

    if (g->count > 1)
        qsort(g->rows, g->count, sizeof *g->rows, by_text);
    for (size_t i = 0; i < g->count && ok;) {
        struct explore_row row = {.name = g->rows[i].text};

        for (; i < g->count && str_equal(g->rows[i].text, row.name); i++) {
            row_add(&row, &g->rows[i]);
            row_add(&label, &g->rows[i]);
        }
        label.values++;
        ok = value_offer(g, name, &row);
    }
    g->label_pair_count += label.values;
    label.samples_per_second = label.samples = label.bytes = 0;
    if (ok && label.values > 0)
        ok = explore_top_offer(&g->labels, g->run->arena, no_label, &label);
    return ok ? ERR_OK : arena_error(g->run->arena, g->run->ei);
}

static enum err name_gather(struct gather *g, struct str name)
{
    enum err e = ERR_OK;

    g->rows = NULL;
    g->count = g->capacity = 0;
    for (const struct explore_source *s = g->run->sources; s != NULL && e == ERR_OK; s = s->next) {
        for (size_t i = 0; i < s->name_count && e == ERR_OK; i++)
            if (str_equal(s->names[i], name))
                e = source_gather(g, s, i);
    }
    if (e == ERR_OK)
        e = rows_offer(g, name);
    arena_reset(&g->scratch);
    return e;
}

/* ---- all names ---- */

static int by_str(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

/* The names of all sources, each once. */
static enum err names_collect(struct explore_run *run, struct str_list *out)
{
    size_t count = 0, kept = 0;
    struct str *names;

    for (const struct explore_source *s = run->sources; s != NULL; s = s->next)
        count += s->name_count;
    names = ARENA_ARRAY(&run->work, count, struct str);
    if (names == NULL)
        return arena_error(&run->work, run->ei);
    count = 0;
    for (const struct explore_source *s = run->sources; s != NULL; s = s->next)
        for (size_t i = 0; i < s->name_count; i++)
            if (s->counts[i] != NULL)
                names[count++] = s->names[i];
    if (count > 1)
        qsort(names, count, sizeof *names, by_str);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || !str_equal(names[kept - 1], names[i]))
            names[kept++] = names[i];
    *out = (struct str_list){kept, names};
    return ERR_OK;
}

static enum err gather_all(struct explore_run *run, struct explore *out)
{
    size_t limit = run->options->limit;
    struct gather g = {.run = run,
                       .metrics.limit = limit,
                       .labels.limit = limit,
                       .values.limit = limit,
                       .pairs.limit = limit};
    struct str_list names = {0};
    enum err e = names_collect(run, &names);

    arena_init(&g.scratch, run->arena->budget);
    for (size_t i = 0; i < names.count && e == ERR_OK; i++)
        e = name_gather(&g, names.items[i]);
    arena_done(&g.scratch);
    if (e != ERR_OK)
        return e;
    *out = (struct explore){.all = run->all,
                            .label_pair_count = g.label_pair_count,
                            .hours = run->hours,
                            .by_metric = explore_top_take(&g.metrics),
                            .by_label = explore_top_take(&g.labels),
                            .by_value = explore_top_take(&g.values),
                            .by_pair = explore_top_take(&g.pairs)};
    return ERR_OK;
}

enum err explore_marked(struct querier *q, const struct explore_options *options,
                        const struct slot_marks *marks, struct arena *arena, struct explore *out,
                        struct errinfo *ei)
{
    struct explore_run run = {.q = q, .options = options, .marks = marks, .arena = arena, .ei = ei};
    enum err e;

    ASSERT(options->limit > 0);
    arena_init(&run.work, arena->budget);
    e = options->day_ms == EXPLORE_MEMORY ? explore_memory(&run) : explore_day(&run);
    if (e == ERR_OK)
        e = gather_all(&run, out);
    for (uint32_t i = 0; run.sets != NULL && i < run.set_count; i++)
        file_set_unref(run.sets[i]);
    arena_done(&run.work);
    return e;
}

enum err querier_explore(struct querier *q, const struct explore_options *options,
                         struct arena *arena, struct explore *out, struct errinfo *ei)
{
    return explore_marked(q, options, NULL, arena, out, ei);
}
