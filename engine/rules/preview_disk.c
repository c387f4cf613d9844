/*
 * What the series that would be dropped take in files.
 *
 * A part's series are found by its own postings where rules are selectors, else those of memory by
 * fingerprint. A series takes its columns, its chunk entries and what the index keeps of each
 * series; its share of what series share (labels, timestamp columns) stays as long as one of them
 * does, and is counted where most of the part goes. A part with many of them is looked at in some
 * groups of each few hundred, evenly spread.
 */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/part/part_store_internal.h"
#include "engine/rules/preview_internal.h"

enum {
    GROUP = 256,
    LOOK_SERIES = 1 << 20, /* in all parts; beyond it only some groups are looked at */
};

struct disk_walk {
    const struct preview *p;
    const struct rule_set *rules;
    struct errinfo *ei;
    struct file_set **sets; /* by shard */
    uint32_t shard;
    uint32_t every;  /* group that is looked at */
    uint64_t groups; /* so far */
    double bytes;
};

/* ---- a part ---- */

static double section_bytes(const struct part *p, enum part_section section)
{
    const struct part_table *t = &p->footer.tables[section];
    double bytes = 0;

    for (uint32_t i = 0; i < t->count; i++)
        bytes += t->pages[i].size;
    return bytes;
}

/* What the index keeps for each series: fingerprint, its tag, its entity, its chunk entries. */
static double series_bytes(const struct part *p)
{
    uint32_t series_count = p->footer.info.series_count;

    if (series_count == 0)
        return 0;
    return (section_bytes(p, PART_SECTION_PRINTS) + section_bytes(p, PART_SECTION_LOOKUP) +
            section_bytes(p, PART_SECTION_REFS) + section_bytes(p, PART_SECTION_CHUNKS)) /
           series_count;
}

/* What all series share. */
static double shared_bytes(const struct part *p)
{
    return (double)p->footer.info.index_size - series_bytes(p) * p->footer.info.series_count;
}

static enum err group_add(struct disk_walk *w, struct part *p, const uint32_t *series, size_t count,
                          double *bytes)
{
    struct part_chunk_list chunks[GROUP];
    struct arena arena;
    enum err e;

    arena_init(&arena, w->p->arena->budget);
    e = part_chunks(p, series, count, INT64_MIN, INT64_MAX, &arena, chunks, w->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        for (size_t k = 0; k < chunks[i].count; k++)
            for (uint32_t column = 0; column < chunks[i].items[k].column_count; column++)
                *bytes += chunks[i].items[k].column_size[column];
    arena_done(&arena);
    return e == ERR_OK ? querier_check_stop(w->p->q, w->ei) : e;
}

/* Adds what `count` series of a part take, by groups. */
static enum err series_add(struct disk_walk *w, struct part *p, const uint32_t *series,
                           size_t count)
{
    double bytes = 0, total = p->footer.info.series_count;
    size_t looked = 0;
    enum err e = ERR_OK;

    for (size_t first = 0; first < count && e == ERR_OK; first += GROUP) {
        size_t n = count - first < GROUP ? count - first : GROUP;

        if (w->groups++ % w->every != 0)
            continue;
        looked += n;
        e = group_add(w, p, series + first, n, &bytes);
    }
    if (looked > 0)
        bytes *= (double)count / (double)looked;
    w->bytes += bytes + series_bytes(p) * (double)count;
    if ((double)count == total)
        w->bytes += shared_bytes(p);
    return e;
}

/* Those that some selector finds, each once. */
static enum err part_select_add(struct disk_walk *w, struct part *p)
{
    uint32_t total = p->footer.info.series_count, *series, kept = 0;
    struct arena arena;
    uint8_t *marks;
    enum err e = ERR_OK;

    arena_init(&arena, w->p->arena->budget);
    marks = arena_calloc(&arena, total, sizeof *marks);
    series = ARENA_ARRAY(&arena, total, uint32_t);
    if (marks == NULL || series == NULL) {
        e = arena_error(&arena, w->ei);
        arena_done(&arena);
        return e;
    }
    for (size_t i = 0; i < rule_set_count(w->rules) && e == ERR_OK; i++) {
        const struct drop_rule *rule = rule_set_rule(w->rules, i);
        struct arena_mark mark = arena_mark_get(&arena);
        uint32_t *found = NULL;
        size_t count = 0;

        e = part_select(p, rule->matchers, rule->matcher_count, w->p->q->stop, &arena, &found,
                        &count, w->ei);
        for (size_t k = 0; k < count && e == ERR_OK; k++)
            marks[found[k]] = 1;
        arena_mark_return(&arena, mark);
    }
    for (uint32_t i = 0; i < total && e == ERR_OK; i++)
        if (marks[i] != 0)
            series[kept++] = i;
    if (e == ERR_OK)
        e = series_add(w, p, series, kept);
    arena_done(&arena);
    return e;
}

/* ---- by fingerprint ---- */

/* Fingerprints of the next marked slots of the shard. */
static size_t prints_next(const struct disk_walk *w, uint32_t *at, struct hash128 *out)
{
    const struct slot_marks *m = &w->p->marks[w->shard];
    struct series_meta meta[GROUP];
    uint32_t slots[GROUP];
    size_t count = 0, kept = 0;

    for (; *at < m->slot_end && count < GROUP; ++*at)
        if (slot_is_marked(m, *at))
            slots[count++] = *at;
    shard_series_meta(engine_shard(w->p->q->engine, w->shard), slots, count, meta);
    for (size_t i = 0; i < count; i++)
        if (meta[i].is_live)
            out[kept++] = meta[i].fingerprint;
    return kept;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static enum err part_find_add(struct disk_walk *w, struct part *p)
{
    uint32_t *series, found[GROUP], at = 0;
    size_t count = 0;
    struct arena arena;
    enum err e = ERR_OK;

    arena_init(&arena, w->p->arena->budget);
    series = ARENA_ARRAY(&arena, p->footer.info.series_count, uint32_t);
    if (series == NULL)
        e = arena_error(&arena, w->ei);
    while (e == ERR_OK && at < w->p->marks[w->shard].slot_end) {
        struct hash128 prints[GROUP];
        size_t n = prints_next(w, &at, prints);

        e = part_find(p, prints, n, found, w->ei);
        for (size_t i = 0; i < n && e == ERR_OK; i++)
            if (found[i] != PART_NO_SERIES && count < p->footer.info.series_count)
                series[count++] = found[i];
        if (e == ERR_OK)
            e = querier_check_stop(w->p->q, w->ei);
    }
    if (e == ERR_OK && count > 1)
        qsort(series, count, sizeof *series, by_number);
    if (e == ERR_OK)
        e = series_add(w, p, series, count);
    arena_done(&arena);
    return e;
}

/* ---- sealed files ---- */

/* What is in no part yet, by the share of the shard's series that would go. */
static void sealed_add(struct disk_walk *w, const struct file_set *set)
{
    const struct slot_marks *m = &w->p->marks[w->shard];
    struct shard *s = engine_shard(w->p->q->engine, w->shard);
    double series = (double)atomic_load_explicit(&s->series_count, memory_order_relaxed);
    double marked = 0, bytes = 0;

    for (uint32_t i = 0; i <= m->slot_end / 64; i++)
        marked += __builtin_popcountll(m->bits[i]);
    for (size_t i = 0; i < set->sealed_count; i++)
        for (size_t k = 0; k < set->sealed[i].slice_count; k++)
            bytes += (double)set->sealed[i].slices[k]->size;
    if (series > 0)
        w->bytes += bytes * (marked < series ? marked / series : 1);
}

/* A part of another shard count stands in the sets of several shards. */
static bool is_done(const struct disk_walk *w, const struct part_source *p)
{
    for (uint32_t i = 0; p->is_foreign && i < w->shard; i++)
        for (size_t k = 0; w->sets[i] != NULL && k < w->sets[i]->part_count; k++)
            if (w->sets[i]->parts[k] == p)
                return true;
    return false;
}

static enum err set_add(struct disk_walk *w, const struct file_set *set)
{
    enum err e = ERR_OK;

    sealed_add(w, set);
    for (size_t i = 0; i < set->part_count && e == ERR_OK; i++) {
        struct part *p = set->parts[i]->part;

        if (!w->p->is_selectors)
            e = part_find_add(w, p);
        else if (!is_done(w, set->parts[i]))
            e = part_select_add(w, p);
    }
    return e;
}

enum err preview_disk(const struct preview *p, const struct rule_set *rules, double *out,
                      struct errinfo *ei)
{
    struct disk_walk w = {.p = p, .rules = rules, .ei = ei};
    uint32_t shard_count = p->q->shard_count;
    struct file_set **sets = arena_calloc(p->arena, shard_count, sizeof(struct file_set *));
    uint64_t series = 0;
    enum err e = ERR_OK;

    if (sets == NULL)
        return arena_error(p->arena, ei);
    for (uint32_t i = 0; i < shard_count; i++) {
        sets[i] = shard_files(engine_shard(p->q->engine, i));
        for (size_t k = 0; sets[i] != NULL && k < sets[i]->part_count; k++)
            series += part_info(sets[i]->parts[k]->part)->series_count;
    }
    w.sets = sets;
    w.every = 1 + (uint32_t)(series / LOOK_SERIES);
    for (w.shard = 0; w.shard < shard_count && e == ERR_OK; w.shard++)
        if (sets[w.shard] != NULL)
            e = set_add(&w, sets[w.shard]);
    for (uint32_t i = 0; i < shard_count; i++)
        file_set_unref(sets[i]);
    if (e == ERR_OK)
        *out = w.bytes;
    return e;
}
