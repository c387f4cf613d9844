/*
 * The storage order of parts, for slots of one index.
 *
 * Every label name in use is a column; the metric name is the first, the others stand in byte
 * order. A slot has one small code a column, and the order of these code strings is
 * part_labels_compare()'s:
 *
 *   0            the label set has ended before this column (or there is no metric name)
 *   1 .. V       the value's rank among those in use
 *   V + 1        the label is missing, but a later one follows: its name is greater than this
 *                column's, so the set sorts behind all that have the label
 *
 * A column that all slots have needs no code but the rank, and no bit when it has one value only.
 * Codes are packed into words, and the words are sorted. What does not fit is compared as label
 * sets.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/flush/flush_internal.h"
#include "engine/labels/label_key_internal.h"

enum { ORDER_VISIT_SLICE = 16384 };

/* A label name, by its id in the index. */
struct order_name {
    uint32_t *ranks; /* by value id; at first 1 for a value in use; NULL: the name is not in use */
    uint32_t value_count;
    uint32_t present; /* slots that have it */
    uint32_t column;
};

struct order_column {
    struct order_name *name;
    struct str text;
    uint32_t name_id, value_count, bits;
    bool is_universal; /* all slots have it */
};

struct order_item {
    uint64_t key; /* the first word */
    uint32_t slot, place;
};

struct order {
    struct index *ix;
    const uint32_t *slots;
    size_t count;
    const struct maintain_control *control;
    struct arena arena;
    struct order_name *names;
    uint32_t name_count;
    struct order_column *columns;
    uint32_t column_count, word_count;
    bool is_cut;              /* codes did not fit: equal words say nothing yet */
    struct order_item *items; /* by place */
    uint64_t *rest;           /* by place: word_count - 1 further words */
    size_t first;             /* place of a visit's first slot */
    bool is_refused;          /* the arena refused a visitor */
};

static enum err visit_all(struct order *o, index_visitor *visitor, struct errinfo *ei)
{
    for (o->first = 0; o->first < o->count; o->first += ORDER_VISIT_SLICE) {
        size_t left = o->count - o->first;
        enum err e = maintain_tick(o->control, "stopped", ei);

        if (e != ERR_OK)
            return e;
        index_visit(o->ix, o->slots + o->first, left < ORDER_VISIT_SLICE ? left : ORDER_VISIT_SLICE,
                    visitor, o);
        if (o->is_refused)
            return arena_error(&o->arena, ei);
    }
    return ERR_OK;
}

/* ---- columns ---- */

/* Ids of the slots' labels are below counts that were read before: the slots were there already. */
static void mark_values(void *ctx, const struct index_series *series)
{
    struct order *o = ctx;

    for (uint32_t i = 0; i < series->name_count && !o->is_refused; i++) {
        struct order_name *n = &o->names[series->names[i]];

        if (n->ranks == NULL)
            n->ranks = arena_calloc(&o->arena, n->value_count, sizeof *n->ranks);
        o->is_refused = n->ranks == NULL;
        if (o->is_refused)
            return;
        n->ranks[series->values[i]] = 1;
        n->present++;
    }
}

static enum err names_mark(struct order *o, struct errinfo *ei)
{
    o->name_count = index_name_count(o->ix);
    o->names = arena_calloc(&o->arena, o->name_count, sizeof *o->names);
    o->columns = ARENA_ARRAY(&o->arena, o->name_count, struct order_column);
    if (o->names == NULL || o->columns == NULL)
        return arena_error(&o->arena, ei);
    for (uint32_t i = 0; i < o->name_count; i++)
        o->names[i].value_count = index_value_count(o->ix, i);
    return visit_all(o, mark_values, ei);
}

struct ranked_value {
    struct str text;
    uint32_t *rank;
};

static int compare_ranked(const void *a, const void *b)
{
    return str_compare(((const struct ranked_value *)a)->text,
                       ((const struct ranked_value *)b)->text);
}

static enum err column_rank(struct order *o, struct order_column *c, struct errinfo *ei)
{
    struct arena_mark mark = arena_mark_get(&o->arena);
    struct ranked_value *values;
    uint32_t used = 0;

    for (uint32_t i = 0; i < c->name->value_count; i++)
        used += c->name->ranks[i];
    values = ARENA_ARRAY(&o->arena, used, struct ranked_value);
    if (values == NULL)
        return arena_error(&o->arena, ei);
    for (uint32_t i = 0; i < c->name->value_count; i++) {
        struct ranked_value *v = &values[c->value_count];

        if (c->name->ranks[i] == 0)
            continue;
        index_value_texts(o->ix, c->name_id, i, 1, &v->text);
        v->rank = &c->name->ranks[i];
        c->value_count++;
    }
    qsort(values, used, sizeof *values, compare_ranked);
    for (uint32_t i = 0; i < used; i++)
        *values[i].rank = i + 1;
    arena_mark_return(&o->arena, mark);
    return maintain_tick(o->control, "stopped", ei);
}

static int compare_columns(const void *a, const void *b)
{
    const struct order_column *x = a, *y = b;
    bool x_first = str_equal(x->text, LABEL_METRIC_NAME);
    bool y_first = str_equal(y->text, LABEL_METRIC_NAME);

    if (x_first != y_first)
        return x_first ? -1 : 1;
    return str_compare(x->text, y->text);
}

static enum err columns_plan(struct order *o, struct errinfo *ei)
{
    uint64_t bits = 0;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < o->name_count; i++) {
        if (o->names[i].ranks != NULL)
            o->columns[o->column_count++] = (struct order_column){
                .name = &o->names[i], .name_id = i, .text = index_name_text(o->ix, i)};
    }
    qsort(o->columns, o->column_count, sizeof *o->columns, compare_columns);
    for (uint32_t i = 0; i < o->column_count && e == ERR_OK; i++) {
        struct order_column *c = &o->columns[i];

        c->name->column = i;
        c->is_universal = c->name->present == o->count;
        e = column_rank(o, c, ei);
        c->bits =
            label_key_bits(c->is_universal ? c->value_count - 1U : c->value_count + UINT64_C(1));
        bits += c->bits;
    }
    o->is_cut = bits > (uint64_t)LABEL_KEY_WORDS_MAX * LABEL_KEY_WORD_BITS;
    o->word_count = o->is_cut ? LABEL_KEY_WORDS_MAX
                              : (uint32_t)((bits + LABEL_KEY_WORD_BITS - 1) / LABEL_KEY_WORD_BITS);
    if (o->word_count == 0)
        o->word_count = 1;
    return e;
}

/* ---- keys ---- */

static void column_put(struct label_key *k, const struct order *o, uint32_t column, uint32_t rank)
{
    const struct order_column *c = &o->columns[column];

    label_key_put(k, c->is_universal ? rank - 1 : rank, c->bits);
}

/* What a missing label counts as when another one follows. */
static void column_skip(struct label_key *k, const struct order *o, uint32_t column)
{
    const struct order_column *c = &o->columns[column];

    label_key_put(k, str_equal(c->text, LABEL_METRIC_NAME) ? 0 : c->value_count + UINT64_C(1),
                  c->bits);
}

static uint32_t rank_of(const struct order *o, const struct index_series *series, uint32_t i)
{
    return o->names[series->names[i]].ranks[series->values[i]];
}

/* Labels come in byte order of their names, which is that of the columns but for the first. */
static void write_key(void *ctx, const struct index_series *series)
{
    struct order *o = ctx;
    size_t place = o->first + series->item;
    bool has_metric = o->column_count > 0 && str_equal(o->columns[0].text, LABEL_METRIC_NAME);
    struct label_key k = {{0}, 0};
    uint32_t column = 0;

    for (uint32_t i = 0; has_metric && column == 0 && i < series->name_count; i++) {
        if (o->names[series->names[i]].column == 0)
            column_put(&k, o, column++, rank_of(o, series, i));
    }
    for (uint32_t i = 0; i < series->name_count; i++) {
        uint32_t own = o->names[series->names[i]].column;

        if (has_metric && own == 0)
            continue;
        for (; column < own; column++)
            column_skip(&k, o, column);
        column_put(&k, o, column++, rank_of(o, series, i));
    }
    o->items[place] = (struct order_item){k.words[0], o->slots[place], (uint32_t)place};
    memcpy(o->rest + place * (o->word_count - 1), k.words + 1,
           (o->word_count - 1) * sizeof *o->rest);
}

/* ---- sorting ---- */

static int compare_items(const void *a, const void *b, void *ctx)
{
    const struct order_item *x = a, *y = b;
    const struct order *o = ctx;
    size_t words = o->word_count - 1;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return label_key_compare_rest(o->rest + x->place * words, o->rest + y->place * words,
                                  o->word_count);
}

struct labelled_slot {
    struct labels labels;
    uint32_t slot;
};

static int compare_labelled(const void *a, const void *b)
{
    return part_labels_compare(&((const struct labelled_slot *)a)->labels,
                               &((const struct labelled_slot *)b)->labels);
}

/* Orders a run of equal words by the label sets. */
static enum err run_sort(struct order *o, uint32_t *slots, size_t count, struct errinfo *ei)
{
    struct arena_mark mark = arena_mark_get(&o->arena);
    struct labelled_slot *pairs = ARENA_ARRAY(&o->arena, count, struct labelled_slot);
    struct labels *sets = ARENA_ARRAY(&o->arena, count, struct labels);
    enum err e;

    if (pairs == NULL || sets == NULL)
        e = arena_error(&o->arena, ei);
    else
        e = index_labels(o->ix, slots, count, &o->arena, sets, ei);
    if (e == ERR_OK) {
        for (size_t i = 0; i < count; i++)
            pairs[i] = (struct labelled_slot){sets[i], slots[i]};
        qsort(pairs, count, sizeof *pairs, compare_labelled);
        for (size_t i = 0; i < count; i++)
            slots[i] = pairs[i].slot;
    }
    arena_mark_return(&o->arena, mark);
    return e == ERR_OK ? maintain_tick(o->control, "stopped", ei) : e;
}

static enum err runs_sort(struct order *o, uint32_t *slots, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0, end; i < o->count && e == ERR_OK; i = end) {
        for (end = i + 1; end < o->count && compare_items(&o->items[i], &o->items[end], o) == 0;)
            end++;
        if (end - i > 1)
            e = run_sort(o, slots + i, end - i, ei);
    }
    return e;
}

static enum err order_run(struct order *o, uint32_t *slots, struct errinfo *ei)
{
    size_t scratch = o->count * sizeof *o->items;
    enum err e = names_mark(o, ei);

    if (e == ERR_OK)
        e = columns_plan(o, ei);
    if (e != ERR_OK)
        return e;
    o->items = ARENA_ARRAY(&o->arena, o->count, struct order_item);
    o->rest = arena_alloc_array(&o->arena, o->count, (o->word_count - 1) * sizeof *o->rest);
    if (o->items == NULL || o->rest == NULL)
        return arena_error(&o->arena, ei);
    e = visit_all(o, write_key, ei);
    /* qsort_r() takes as much again, which it does not ask for. */
    if (e == ERR_OK && o->arena.budget != NULL)
        e = budget_charge(o->arena.budget, scratch, ei);
    if (e != ERR_OK)
        return e;
    qsort_r(o->items, o->count, sizeof *o->items, compare_items, o);
    if (o->arena.budget != NULL)
        budget_release(o->arena.budget, scratch);
    for (size_t i = 0; i < o->count; i++)
        slots[i] = o->items[i].slot;
    return o->is_cut ? runs_sort(o, slots, ei) : ERR_OK;
}

enum err flush_order_slots(struct index *ix, uint32_t *slots, size_t count, struct budget *memory,
                           const struct maintain_control *control, struct errinfo *ei)
{
    struct order o = {.ix = ix, .slots = slots, .count = count, .control = control};
    enum err e;

    if (count < 2)
        return ERR_OK;
    if (count > UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "more than 2^32 series");
    arena_init(&o.arena, memory);
    e = order_run(&o, slots, ei);
    arena_done(&o.arena);
    return e;
}
