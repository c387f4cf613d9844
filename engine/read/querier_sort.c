/*
 * Sorting series by their labels without building the label sets.
 *
 * Every label name that occurs in the list is a column; columns stand in byte order of the names.
 * The values a column takes in the list are ranked over all shards. A series then has one small
 * code per column, most significant first:
 *
 *   0            the label set has ended before this column: it sorts before what goes on
 *   1 .. V       the value's rank
 *   V + 1        the label is missing, but a later one follows: its name is greater than this
 *                column's, so the series sorts behind all that have the label
 *
 * and labels_compare()'s order is the order of these code strings. A column that all series have
 * needs only the ranks; one with a single value then takes no bits at all. The codes are packed
 * into words, the first word is sorted by radix, and only runs that it leaves equal look at the
 * others. What the codes have beyond the words is compared as label sets.
 *
 * Memory while it runs: 4 bytes a value of the dictionaries involved and 32 to 60 bytes a series.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/labels/label_key_internal.h"
#include "engine/read/querier_sort_internal.h"

enum {
    SORT_SMALL_MAX = 64, /* shorter lists are sorted by their label sets */
    SORT_STOP_SLICE = 16384,
    SORT_PREFETCH = 16,
    DIGIT_BITS = 8,
    DIGIT_COUNT = 1 << DIGIT_BITS,
};

/* One name of one shard. */
struct shard_name {
    uint32_t *ranks; /* by value id; first 1 for a value in use, then its rank; NULL: not in use */
    uint32_t value_count;
    uint32_t present; /* series of the list that have it */
    uint32_t column;
};

/* The list's series of one shard. */
struct shard_part {
    size_t first, count; /* in slots[] and order[] */
    struct shard_name *names;
    uint32_t name_count;
};

struct column_plan {
    struct str name;
    uint64_t present;
    uint32_t value_count; /* V */
    uint32_t bits;
    bool universal; /* every series has it: codes are rank - 1 */
};

struct sort_item {
    uint64_t key; /* the first word */
    uint32_t index;
};

struct sort {
    struct querier *q;
    struct series_list *list;
    /* Several, so that each piece goes as soon as it is not needed. All have one budget. */
    struct arena arena;      /* of the two passes; later the final order */
    struct arena rest_arena; /* rest */
    struct arena buffers[2]; /* items, and the other side of a radix pass */
    uint32_t current;        /* which buffer has the items */
    struct errinfo *ei;
    struct shard_part *parts; /* by shard */
    uint32_t *slots, *order;  /* grouped by shard: slots, and where they stand in the list */
    struct column_plan *columns;
    uint32_t column_count;
    uint32_t word_count;     /* 1 .. LABEL_KEY_WORDS_MAX */
    bool is_cut;             /* codes did not fit: equal keys say nothing yet */
    struct sort_item *items; /* by index in the list */
    uint64_t *rest;          /* (word_count - 1) further words each, by index in the list */
};

/* For s->arena. */
static enum err refused(struct sort *s)
{
    return arena_error(&s->arena, s->ei);
}

/* ---- grouping by shard ---- */

static enum err group(struct sort *s)
{
    const struct series_list *list = s->list;
    size_t first = 0;

    s->parts = arena_calloc(&s->arena, s->q->shard_count, sizeof *s->parts);
    s->slots = ARENA_ARRAY(&s->arena, list->count, uint32_t);
    s->order = ARENA_ARRAY(&s->arena, list->count, uint32_t);
    if (s->parts == NULL || s->slots == NULL || s->order == NULL)
        return refused(s);
    for (size_t i = 0; i < list->count; i++) {
        ASSERT(list->items[i].shard < s->q->shard_count);
        s->parts[list->items[i].shard].count++;
    }
    for (uint32_t k = 0; k < s->q->shard_count; k++) {
        s->parts[k].first = first;
        first += s->parts[k].count;
        s->parts[k].count = 0;
    }
    for (size_t i = 0; i < list->count; i++) {
        struct shard_part *p = &s->parts[list->items[i].shard];
        size_t at = p->first + p->count++;

        s->slots[at] = list->items[i].slot;
        s->order[at] = (uint32_t)i;
    }
    return ERR_OK;
}

struct visit {
    struct sort *sort;
    struct shard_part *part;
    size_t first; /* of the slice, in order[] */
    bool is_refused;
};

/* Visits a shard's series in slices, between which a stop is noticed. */
static enum err visit_part(struct sort *s, uint32_t shard, index_visitor *visitor)
{
    struct shard_part *p = &s->parts[shard];
    struct visit v = {.sort = s, .part = p};

    for (size_t i = 0; i < p->count; i += SORT_STOP_SLICE) {
        size_t n = p->count - i < SORT_STOP_SLICE ? p->count - i : SORT_STOP_SLICE;
        enum err e = querier_check_stop(s->q, s->ei);

        if (e != ERR_OK)
            return e;
        v.first = p->first + i;
        index_visit(querier_index(s->q, shard), s->slots + v.first, n, visitor, &v);
        if (v.is_refused)
            return refused(s);
    }
    return ERR_OK;
}

/* ---- first pass: which values occur ---- */

/* A slot may be given to another series while we sort; its place no longer matters then, but its
 * ids may be newer than our tables. NULL for such a label. */
static struct shard_name *known_name(const struct shard_part *p, const struct index_series *series,
                                     uint32_t i)
{
    struct shard_name *n;

    if (series->names[i] >= p->name_count)
        return NULL;
    n = &p->names[series->names[i]];
    return series->values[i] < n->value_count ? n : NULL;
}

static void mark_values(void *ctx, const struct index_series *series)
{
    struct visit *v = ctx;

    for (uint32_t i = 0; i < series->name_count && !v->is_refused; i++) {
        struct shard_name *n = known_name(v->part, series, i);

        if (n == NULL)
            continue;
        if (n->ranks == NULL) {
            n->ranks = arena_calloc(&v->sort->arena, n->value_count, sizeof *n->ranks);
            v->is_refused = n->ranks == NULL;
            if (v->is_refused)
                return;
        }
        n->ranks[series->values[i]] = 1;
        n->present++;
    }
}

/* The counts are read before the visit: they only grow, and the list's series are all there. */
static enum err mark_part(struct sort *s, uint32_t shard)
{
    struct shard_part *p = &s->parts[shard];
    struct index *ix = querier_index(s->q, shard);

    if (p->count == 0)
        return ERR_OK;
    p->name_count = index_name_count(ix);
    p->names = arena_calloc(&s->arena, p->name_count, sizeof *p->names);
    if (p->names == NULL)
        return refused(s);
    for (uint32_t i = 0; i < p->name_count; i++)
        p->names[i].value_count = index_value_count(ix, i);
    return visit_part(s, shard, mark_values);
}

/* ---- columns and ranks ---- */

struct name_use {
    struct str text;
    struct shard_name *name;
    uint32_t shard, name_id;
};

static int compare_name_uses(const void *a, const void *b)
{
    return str_compare(((const struct name_use *)a)->text, ((const struct name_use *)b)->text);
}

static enum err list_name_uses(struct sort *s, struct name_use **out, size_t *out_count)
{
    size_t count = 0;
    size_t n = 0;
    struct name_use *uses;

    for (uint32_t k = 0; k < s->q->shard_count; k++) {
        for (uint32_t i = 0; i < s->parts[k].name_count; i++)
            count += s->parts[k].names[i].ranks != NULL;
    }
    uses = ARENA_ARRAY(&s->arena, count, struct name_use);
    if (uses == NULL)
        return refused(s);
    for (uint32_t k = 0; k < s->q->shard_count; k++) {
        for (uint32_t i = 0; i < s->parts[k].name_count; i++) {
            struct shard_name *name = &s->parts[k].names[i];

            if (name->ranks != NULL)
                uses[n++] =
                    (struct name_use){index_name_text(querier_index(s->q, k), i), name, k, i};
        }
    }
    if (count != 0)
        qsort(uses, count, sizeof *uses, compare_name_uses);
    *out = uses;
    *out_count = count;
    return ERR_OK;
}

struct value_use {
    struct str text;
    uint32_t *rank;
};

static int compare_value_uses(const void *a, const void *b)
{
    return str_compare(((const struct value_use *)a)->text, ((const struct value_use *)b)->text);
}

static size_t count_used(const struct shard_name *n)
{
    size_t used = 0;

    for (uint32_t i = 0; i < n->value_count; i++)
        used += n->ranks[i] != 0;
    return used;
}

/* Ranks the values that the shards of one column use: equal text, equal rank, from 1. */
static enum err rank_column(struct sort *s, struct column_plan *column, const struct name_use *uses,
                            size_t use_count)
{
    struct arena_mark mark = arena_mark_get(&s->arena);
    struct value_use *values;
    size_t count = 0;
    size_t n = 0;

    for (size_t u = 0; u < use_count; u++)
        count += count_used(uses[u].name);
    values = ARENA_ARRAY(&s->arena, count, struct value_use);
    if (values == NULL)
        return refused(s);
    for (size_t u = 0; u < use_count; u++) {
        struct index *ix = querier_index(s->q, uses[u].shard);
        struct shard_name *name = uses[u].name;

        for (uint32_t i = 0; i < name->value_count; i++) {
            if (name->ranks[i] == 0)
                continue;
            index_value_texts(ix, uses[u].name_id, i, 1, &values[n].text);
            values[n++].rank = &name->ranks[i];
        }
    }
    qsort(values, n, sizeof *values, compare_value_uses);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !str_equal(values[i - 1].text, values[i].text))
            column->value_count++;
        *values[i].rank = column->value_count;
    }
    arena_mark_return(&s->arena, mark);
    return querier_check_stop(s->q, s->ei);
}

static enum err plan_columns(struct sort *s)
{
    struct name_use *uses = NULL;
    size_t use_count = 0;
    uint64_t total_bits = 0;
    enum err e = list_name_uses(s, &uses, &use_count);

    if (e != ERR_OK)
        return e;
    s->columns = arena_calloc(&s->arena, use_count, sizeof *s->columns);
    if (s->columns == NULL)
        return refused(s);
    for (size_t i = 0; i < use_count && e == ERR_OK;) {
        struct column_plan *c = &s->columns[s->column_count];
        size_t first = i;

        c->name = uses[i].text;
        for (; i < use_count && str_equal(uses[i].text, c->name); i++) {
            uses[i].name->column = s->column_count;
            c->present += uses[i].name->present;
        }
        e = rank_column(s, c, uses + first, i - first);
        c->universal = c->present == s->list->count;
        c->bits = label_key_bits(c->universal ? c->value_count - 1U : c->value_count + UINT64_C(1));
        total_bits += c->bits;
        s->column_count++;
    }
    s->is_cut = total_bits > (uint64_t)LABEL_KEY_WORDS_MAX * LABEL_KEY_WORD_BITS;
    s->word_count = s->is_cut
                        ? LABEL_KEY_WORDS_MAX
                        : (uint32_t)((total_bits + LABEL_KEY_WORD_BITS - 1) / LABEL_KEY_WORD_BITS);
    if (s->word_count == 0)
        s->word_count = 1;
    return e;
}

/* ---- second pass: keys ---- */

/* A code that is too large is that of a universal column that is missing: see known_name(). */
static void key_put(struct label_key *k, uint64_t code, uint32_t bits)
{
    uint64_t largest = (UINT64_C(1) << bits) - 1; /* bits <= 33 */

    label_key_put(k, code > largest ? largest : code, bits);
}

static void write_key(void *ctx, const struct index_series *series)
{
    struct visit *v = ctx;
    struct sort *s = v->sort;
    uint32_t index = s->order[v->first + series->item];
    struct label_key k = {{0}, 0};
    uint32_t column = 0;

    for (uint32_t i = 0; i < series->name_count; i++) {
        const struct shard_name *n = known_name(v->part, series, i);
        uint32_t rank = n == NULL || n->ranks == NULL ? 0 : n->ranks[series->values[i]];

        if (rank == 0) /* see known_name() */
            continue;
        for (; column < n->column; column++)
            key_put(&k, s->columns[column].value_count + UINT64_C(1), s->columns[column].bits);
        key_put(&k, s->columns[column].universal ? rank - 1 : rank, s->columns[column].bits);
        column++;
    }
    /* The set has ended: zeros follow. */
    s->items[index] = (struct sort_item){k.words[0], index};
    if (s->word_count > 1)
        memcpy(s->rest + (size_t)index * (s->word_count - 1), k.words + 1,
               (s->word_count - 1) * sizeof *s->rest);
}

static enum err write_keys(struct sort *s)
{
    enum err e = ERR_OK;

    s->items = ARENA_ARRAY(&s->buffers[0], s->list->count, struct sort_item);
    if (s->items == NULL)
        return arena_error(&s->buffers[0], s->ei);
    if (s->word_count > 1) {
        s->rest = arena_alloc_array(&s->rest_arena, s->list->count,
                                    (s->word_count - 1) * sizeof *s->rest);
        if (s->rest == NULL)
            return arena_error(&s->rest_arena, s->ei);
    }
    for (uint32_t k = 0; k < s->q->shard_count && e == ERR_OK; k++)
        e = visit_part(s, k, write_key);
    return e;
}

/* ---- sorting ---- */

static void radix_pass(const struct sort_item *from, struct sort_item *to, size_t count,
                       uint32_t shift)
{
    size_t starts[DIGIT_COUNT] = {0};
    size_t sum = 0;

    for (size_t i = 0; i < count; i++)
        starts[from[i].key >> shift & (DIGIT_COUNT - 1)]++;
    for (size_t d = 0; d < DIGIT_COUNT; d++) {
        size_t n = starts[d];

        starts[d] = sum;
        sum += n;
    }
    for (size_t i = 0; i < count; i++)
        to[starts[from[i].key >> shift & (DIGIT_COUNT - 1)]++] = from[i];
}

/* Sorts items by their first word, from the least significant digit that differs anywhere. */
static enum err radix_sort(struct sort *s)
{
    size_t count = s->list->count;
    struct sort_item *other = ARENA_ARRAY(&s->buffers[1], count, struct sort_item);
    uint64_t differs = 0;

    if (other == NULL)
        return arena_error(&s->buffers[1], s->ei);
    for (size_t i = 1; i < count; i++)
        differs |= s->items[i].key ^ s->items[0].key;
    for (uint32_t shift = 0; shift < LABEL_KEY_WORD_BITS; shift += DIGIT_BITS) {
        struct sort_item *swap = s->items;
        enum err e;

        if ((differs >> shift & (DIGIT_COUNT - 1)) == 0)
            continue;
        radix_pass(s->items, other, count, shift);
        s->items = other;
        other = swap;
        s->current ^= 1;
        e = querier_check_stop(s->q, s->ei);
        if (e != ERR_OK)
            return e;
    }
    arena_done(&s->buffers[s->current ^ 1]);
    return ERR_OK;
}

static int compare_rest(const void *a, const void *b, void *ctx)
{
    const struct sort *s = ctx;
    size_t words = s->word_count - 1;

    return label_key_compare_rest(s->rest + ((const struct sort_item *)a)->index * words,
                                  s->rest + ((const struct sort_item *)b)->index * words,
                                  s->word_count);
}

static void sort_runs(struct sort *s)
{
    for (size_t i = 0; i < s->list->count;) {
        size_t end = i + 1;

        while (end < s->list->count && s->items[end].key == s->items[i].key)
            end++;
        if (end - i > 1)
            qsort_r(s->items + i, end - i, sizeof *s->items, compare_rest, s);
        i = end;
    }
}

/* Puts the handles into the order of `items`, from a copy: following cycles in place needs no copy
 * but waits for every cache miss, 200 ns a series at 1 M; this fetches ahead. */
static enum err permute(struct sort *s)
{
    size_t count = s->list->count;
    uint32_t *from = ARENA_ARRAY(&s->arena, count, uint32_t);
    struct series_handle *copy;

    if (from == NULL)
        return refused(s);
    for (size_t i = 0; i < count; i++)
        from[i] = s->items[i].index;
    if (!s->is_cut) { /* else sort_cut_runs() needs the keys */
        arena_done(&s->buffers[s->current]);
        arena_done(&s->rest_arena);
    }
    copy = ARENA_ARRAY(&s->arena, count, struct series_handle);
    if (copy == NULL)
        return refused(s);
    memcpy(copy, s->list->items, count * sizeof *copy);
    for (size_t i = 0; i < count; i++) {
        if (i + SORT_PREFETCH < count)
            __builtin_prefetch(&copy[from[i + SORT_PREFETCH]]);
        s->list->items[i] = copy[from[i]];
    }
    return ERR_OK;
}

/* ---- by label sets ---- */

struct labelled {
    struct labels labels;
    struct series_handle handle;
};

static int compare_labelled(const void *a, const void *b)
{
    return labels_compare(&((const struct labelled *)a)->labels,
                          &((const struct labelled *)b)->labels);
}

enum err querier_sort_by_sets(struct querier *q, struct series_handle *items, size_t count,
                              struct errinfo *ei)
{
    struct arena arena;
    struct labelled *pairs;
    struct labels *sets;
    enum err e;

    if (count < 2)
        return ERR_OK;
    arena_init(&arena, q->memory);
    pairs = ARENA_ARRAY(&arena, count, struct labelled);
    sets = ARENA_ARRAY(&arena, count, struct labels);
    if (pairs == NULL || sets == NULL)
        e = arena_error(&arena, ei);
    else
        e = querier_labels(q, items, count, &arena, sets, ei);
    if (e == ERR_OK) {
        for (size_t i = 0; i < count; i++)
            pairs[i] = (struct labelled){sets[i], items[i]};
        qsort(pairs, count, sizeof *pairs, compare_labelled);
        for (size_t i = 0; i < count; i++)
            items[i] = pairs[i].handle;
    }
    arena_done(&arena);
    return e;
}

static bool keys_equal(const struct sort *s, const struct sort_item *a, const struct sort_item *b)
{
    return a->key == b->key && compare_rest(a, b, (void *)(uintptr_t)s) == 0;
}

/* Where the codes were cut, runs of equal keys are ordered by their label sets. */
static enum err sort_cut_runs(struct sort *s)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < s->list->count && e == ERR_OK;) {
        size_t end = i + 1;

        while (end < s->list->count && keys_equal(s, &s->items[i], &s->items[end]))
            end++;
        if (end - i > 1)
            e = querier_sort_by_sets(s->q, s->list->items + i, end - i, s->ei);
        i = end;
    }
    return e;
}

static enum err run(struct sort *s)
{
    enum err e = group(s);

    for (uint32_t k = 0; k < s->q->shard_count && e == ERR_OK; k++)
        e = mark_part(s, k);
    if (e == ERR_OK)
        e = plan_columns(s);
    if (e == ERR_OK)
        e = write_keys(s);
    arena_done(&s->arena);
    if (e == ERR_OK)
        e = radix_sort(s);
    if (e != ERR_OK)
        return e;
    if (s->word_count > 1)
        sort_runs(s);
    e = permute(s);
    if (e == ERR_OK && s->is_cut)
        e = sort_cut_runs(s);
    return e;
}

enum err querier_sort_live(struct querier *q, struct series_list *list, struct errinfo *ei)
{
    struct sort s = {.q = q, .list = list, .ei = ei};
    enum err e;

    if (list->count < 2)
        return ERR_OK;
    if (list->count <= SORT_SMALL_MAX)
        return querier_sort_by_sets(q, list->items, list->count, ei);
    if (list->count > UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "more than 2^32 series");
    arena_init(&s.arena, q->memory);
    arena_init(&s.rest_arena, q->memory);
    arena_init(&s.buffers[0], q->memory);
    arena_init(&s.buffers[1], q->memory);
    e = run(&s);
    arena_done(&s.arena);
    arena_done(&s.rest_arena);
    arena_done(&s.buffers[0]);
    arena_done(&s.buffers[1]);
    return e;
}
