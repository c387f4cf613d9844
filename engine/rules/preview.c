/*
 * A preview: a bit for each slot that would be dropped, by postings where all rules are selectors,
 * else by judging label sets; the explorer counts what the bits say; parts are asked for the bytes.
 */
#include "engine/preview.h"

#include <string.h>

#include "engine/engine_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/read/explore_internal.h"
#include "engine/rules/preview_internal.h"

enum { EXAMPLES_BATCH = 256, METRICS_MAX = 100000 };

/* ---- which slots ---- */

static void bit_set(struct slot_marks *m, uint32_t slot)
{
    if (slot < m->slot_end)
        m->bits[slot / 64] |= UINT64_C(1) << slot % 64;
}

static enum err select_shard(struct preview *p, const struct rule_set *rules, uint32_t shard,
                             struct errinfo *ei)
{
    struct index *ix = querier_index(p->q, shard);
    enum err e = ERR_OK;

    for (size_t i = 0; i < rule_set_count(rules) && e == ERR_OK; i++) {
        const struct drop_rule *rule = rule_set_rule(rules, i);
        struct arena scratch;
        uint32_t *slots = NULL;
        size_t count = 0;

        arena_init(&scratch, p->arena->budget);
        e = index_select(ix, rule->matchers, rule->matcher_count, p->q->stop, &scratch, &slots,
                         &count, ei);
        for (size_t k = 0; k < count && e == ERR_OK; k++)
            bit_set(&p->marks[shard], slots[k]);
        arena_done(&scratch);
        if (e == ERR_OK)
            e = querier_check_stop(p->q, ei);
    }
    return e;
}

struct judging {
    const struct preview *p;
    const struct rule_set *rules;
    struct slot_marks *marks;
};

static enum err judge_slots(void *ctx, const uint32_t *slots, const struct labels *sets,
                            size_t count, struct arena *scratch, struct errinfo *ei)
{
    const struct judging *j = ctx;

    for (size_t i = 0; i < count; i++) {
        struct rule_verdict verdict;

        if (sets[i].count == 0)
            continue;
        if (!rule_set_judge(j->rules, &sets[i], scratch, &verdict))
            return arena_error(scratch, ei);
        if (verdict.dropped_by != RULE_NONE)
            bit_set(j->marks, slots[i]);
    }
    return querier_check_stop(j->p->q, ei);
}

static enum err judge_shard(struct preview *p, const struct rule_set *rules, uint32_t shard,
                            struct errinfo *ei)
{
    struct judging j = {p, rules, &p->marks[shard]};

    return index_walk(querier_index(p->q, shard), j.marks->slot_end, p->arena->budget, judge_slots,
                      &j, ei);
}

static enum err marks_make(struct preview *p, const struct rule_set *rules, struct errinfo *ei)
{
    enum err e = ERR_OK;

    p->marks = arena_calloc(p->arena, p->q->shard_count, sizeof *p->marks);
    if (p->marks == NULL)
        return arena_error(p->arena, ei);
    for (uint32_t i = 0; i < p->q->shard_count && e == ERR_OK; i++) {
        struct slot_marks *m = &p->marks[i];

        m->slot_end = shard_slot_end(engine_shard(p->q->engine, i));
        m->bits = arena_calloc(p->arena, m->slot_end / 64 + 1, sizeof *m->bits);
        if (m->bits == NULL)
            return arena_error(p->arena, ei);
        e = p->is_selectors ? select_shard(p, rules, i, ei) : judge_shard(p, rules, i, ei);
    }
    return e;
}

/* ---- examples ---- */

/* The next slots with a mark, from *at on. */
static size_t marked_next(const struct slot_marks *m, uint32_t *at, uint32_t *out, size_t max)
{
    size_t count = 0;

    for (; *at < m->slot_end && count < max; ++*at)
        if (slot_is_marked(m, *at))
            out[count++] = *at;
    return count;
}

static enum err examples_take(const struct preview *p, size_t limit, const char **out,
                              size_t *out_count, struct errinfo *ei)
{
    struct arena scratch;
    enum err e = ERR_OK;

    *out_count = 0;
    arena_init(&scratch, p->arena->budget);
    for (uint32_t shard = 0; shard < p->q->shard_count && *out_count < limit && e == ERR_OK;
         shard++) {
        struct labels sets[EXAMPLES_BATCH];
        uint32_t slots[EXAMPLES_BATCH], at = 0;
        size_t left = limit - *out_count;
        size_t count = marked_next(&p->marks[shard], &at, slots,
                                   left < EXAMPLES_BATCH ? left : (size_t)EXAMPLES_BATCH);

        e = index_labels(querier_index(p->q, shard), slots, count, &scratch, sets, ei);
        for (size_t i = 0; i < count && e == ERR_OK; i++) {
            if (sets[i].count == 0)
                continue;
            out[*out_count] = labels_format(&sets[i], p->arena);
            if (out[(*out_count)++] == NULL)
                e = arena_error(p->arena, ei);
        }
    }
    arena_done(&scratch);
    return e;
}

/* ---- all of it ---- */

static double memory_of(const struct engine *e, uint64_t series)
{
    struct engine_stats stats;

    engine_stats_get(e, &stats);
    if (stats.series_count == 0)
        return 0;
    return (double)(stats.memory_bytes - stats.free_block_bytes) / (double)stats.series_count *
           (double)series;
}

static bool is_selectors(const struct rule_set *rules)
{
    for (size_t i = 0; i < rule_set_count(rules); i++)
        if (rule_set_rule(rules, i)->matchers == NULL)
            return false;
    return true;
}

/* Counts what is marked. */
static enum err marked_count(const struct preview *p, size_t limit, struct preview_result *out,
                             struct errinfo *ei)
{
    const struct explore_options all = {.limit = METRICS_MAX, .day_ms = EXPLORE_MEMORY};
    struct explore x;
    enum err e = explore_marked(p->q, &all, p->marks, p->arena, &x, ei);

    if (e != ERR_OK)
        return e;
    out->series = x.all.series > x.all.ended ? x.all.series - x.all.ended : 0;
    out->samples_per_second = x.all.samples_per_second;
    out->metrics = x.by_metric;
    out->label_values = x.by_pair;
    if (out->label_values.count > limit)
        out->label_values.count = limit;
    out->memory_bytes = memory_of(p->q->engine, x.all.series);
    return ERR_OK;
}

enum err querier_preview(struct querier *q, const struct preview_options *options,
                         struct arena *arena, struct preview_result *out, struct preview **preview,
                         struct errinfo *ei)
{
    struct preview *p = ARENA_NEW(arena, struct preview);
    const char **examples = ARENA_ARRAY(arena, options->limit, const char *);
    struct preview_result result = {.examples = examples};
    enum err e;

    if (p == NULL || examples == NULL)
        return arena_error(arena, ei);
    p->q = q;
    p->arena = arena;
    p->is_selectors = is_selectors(options->rules);
    result.disk_is_whole = p->is_selectors;
    e = marks_make(p, options->rules, ei);
    if (e == ERR_OK)
        e = marked_count(p, options->limit, &result, ei);
    if (e == ERR_OK)
        e = examples_take(p, options->limit, examples, &result.example_count, ei);
    if (e == ERR_OK)
        e = preview_disk(p, options->rules, &result.disk_bytes, ei);
    if (e != ERR_OK)
        return e;
    *out = result;
    *preview = p;
    return ERR_OK;
}

enum err preview_meets(const struct preview *p, const struct matcher *matchers, size_t count,
                       bool *out, struct errinfo *ei)
{
    enum err e = ERR_OK;

    *out = false;
    for (uint32_t shard = 0; shard < p->q->shard_count && !*out && e == ERR_OK; shard++) {
        struct arena scratch;
        uint32_t *slots = NULL;
        size_t n = 0;

        arena_init(&scratch, p->arena->budget);
        e = index_select(querier_index(p->q, shard), matchers, count, p->q->stop, &scratch, &slots,
                         &n, ei);
        for (size_t i = 0; i < n && e == ERR_OK && !*out; i++)
            *out =
                slots[i] < p->marks[shard].slot_end && slot_is_marked(&p->marks[shard], slots[i]);
        arena_done(&scratch);
    }
    return e;
}
