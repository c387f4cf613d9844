/*
 * Cardinality over all shards: each label name's values are gathered, sorted and summed; heaps keep
 * the largest.
 */
#include "engine/cardinality.h"

#include <stdlib.h>

#include "engine/read/explore_internal.h"
#include "engine/read/querier_internal.h"

struct cardinality_run {
    struct querier *q;
    struct arena *arena;  /* of the answer */
    struct arena scratch; /* of one label name */
    struct index_count *counts;
    size_t count;
    struct explore_top metrics, values, bytes, pairs;
    uint64_t label_pair_count;
    struct errinfo *ei;
};

/* Offers a row named `name`, or "label=name" where a label is given. */
static enum err top_offer(struct cardinality_run *c, struct explore_top *t, struct str label,
                          struct str name, uint64_t value)
{
    const struct explore_row row = {.name = name, .series = value};

    return explore_top_offer(t, c->arena, label, &row) ? ERR_OK : arena_error(c->arena, c->ei);
}

/* The largest first. */
static enum err top_take(struct cardinality_run *c, struct explore_top *t,
                         struct cardinality_list *out)
{
    const struct explore_list list = explore_top_take(t);
    struct cardinality_row *rows = ARENA_ARRAY(c->arena, list.count, struct cardinality_row);

    if (rows == NULL)
        return arena_error(c->arena, c->ei);
    for (size_t i = 0; i < list.count; i++)
        rows[i] = (struct cardinality_row){list.rows[i].name, list.rows[i].series};
    *out = (struct cardinality_list){list.count, rows};
    return ERR_OK;
}

static int by_text(const void *a, const void *b)
{
    return str_compare(((const struct index_count *)a)->text,
                       ((const struct index_count *)b)->text);
}

/* The values of a name in all shards, each once, with the number of its series. */
static enum err counts_gather(struct cardinality_run *c, struct str name)
{
    size_t n = 0;

    c->counts = NULL;
    c->count = 0;
    for (uint32_t i = 0; i < c->q->shard_count; i++) {
        struct index_count *one = NULL, *grown;
        size_t count = 0;
        enum err e = querier_check_stop(c->q, c->ei);

        if (e == ERR_OK)
            e = index_value_counts(querier_index(c->q, i), name, &c->scratch, &one, &count, c->ei);
        if (e != ERR_OK)
            return e;
        grown = arena_grow_array(&c->scratch, c->counts, c->count, c->count + count, sizeof *grown);
        if (grown == NULL)
            return arena_error(&c->scratch, c->ei);
        for (size_t k = 0; k < count; k++)
            grown[c->count++] = one[k];
        c->counts = grown;
    }
    if (c->count > 1)
        qsort(c->counts, c->count, sizeof *c->counts, by_text);
    for (size_t i = 0; i < c->count; i++) {
        if (n > 0 && str_equal(c->counts[n - 1].text, c->counts[i].text))
            c->counts[n - 1].slots += c->counts[i].slots;
        else
            c->counts[n++] = c->counts[i];
    }
    c->count = n;
    return ERR_OK;
}

static enum err name_add(struct cardinality_run *c, struct str name)
{
    const struct str no_label = {"", 0};
    bool is_metric = str_equal(name, STR_LITERAL("__name__"));
    uint64_t bytes = 0;
    enum err e = counts_gather(c, name);

    if (e != ERR_OK || c->count == 0)
        return e;
    for (size_t i = 0; i < c->count && e == ERR_OK; i++) {
        const struct index_count *v = &c->counts[i];

        bytes += v->text.size * v->slots;
        e = top_offer(c, &c->pairs, name, v->text, v->slots);
        if (e == ERR_OK && is_metric)
            e = top_offer(c, &c->metrics, no_label, v->text, v->slots);
    }
    c->label_pair_count += c->count;
    if (e == ERR_OK)
        e = top_offer(c, &c->values, no_label, name, c->count);
    if (e == ERR_OK)
        e = top_offer(c, &c->bytes, no_label, name, bytes);
    return e;
}

enum err querier_cardinality(struct querier *q, size_t limit, struct arena *arena,
                             struct cardinality *out, struct errinfo *ei)
{
    struct cardinality_run c = {.q = q,
                                .arena = arena,
                                .metrics.limit = limit,
                                .values.limit = limit,
                                .bytes.limit = limit,
                                .pairs.limit = limit,
                                .ei = ei};
    struct cardinality found = {0};
    struct str_list names = {0};
    bool truncated = false;
    enum err e = limit == 0 ? errinfo_set(ei, ERR_INVALID, 0, "a list of nothing") : ERR_OK;

    arena_init(&c.scratch, arena->budget);
    if (e == ERR_OK)
        e = querier_label_names(q, NULL, 0, INT64_MIN, INT64_MAX, 0, arena, &names, &truncated, ei);
    for (size_t i = 0; i < names.count && e == ERR_OK; i++) {
        e = name_add(&c, names.items[i]);
        arena_reset(&c.scratch);
    }
    arena_done(&c.scratch);
    found.label_pair_count = c.label_pair_count;
    if (e == ERR_OK)
        e = top_take(&c, &c.metrics, &found.series_by_metric);
    if (e == ERR_OK)
        e = top_take(&c, &c.values, &found.values_by_label);
    if (e == ERR_OK)
        e = top_take(&c, &c.bytes, &found.bytes_by_label);
    if (e == ERR_OK)
        e = top_take(&c, &c.pairs, &found.series_by_pair);
    if (e == ERR_OK)
        *out = found;
    return e;
}
