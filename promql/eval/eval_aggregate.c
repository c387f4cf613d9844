/*
 * Aggregations that fold: sum, avg, count, min, max, group, stddev, stdvar. Rows are folded into
 * their group's cells as they come, so that memory follows the number of groups.
 *
 * A stream comes in the order of labels, or in any (eval_selector.c); then nothing may depend on
 * it: see fold_cells_internal.h.
 */
#include <string.h>

#include "promql/eval/eval_internal.h"
#include "promql/eval/eval_share_internal.h"
#include "promql/eval/fold_cells_internal.h"
#include "promql/eval/fold_histograms_internal.h"
#include "promql/eval/label_sets_internal.h"

struct group {
    struct cells cells;
    struct histogram_cells *histograms; /* NULL: none so far */
    bool drop_name;
};

/* Groups by the pointers of their label values, for rows whose strings stay: most rows then find
 * their group without touching the text. Direct-mapped; what does not fit is looked up. */
enum { POINTER_CACHE_BITS = 14, POINTER_CACHE_LABELS = 2 };

struct pointer_entry {
    uint32_t group; /* index + 1, 0: free */
    uint32_t label_count;
    const char *name[POINTER_CACHE_LABELS], *value[POINTER_CACHE_LABELS];
    size_t size[POINTER_CACHE_LABELS];
};

struct fold {
    struct sink sink;
    struct pointer_entry *pointers; /* NULL until a batch can use them */
    struct eval *ev;
    const struct plan *plan;
    enum aggregate_op op;
    struct arena arena; /* groups, cells, keys; lives until the result is made */
    struct label_table keys;
    struct group *groups;
    size_t group_capacity;
    struct str *names; /* sorted; of by or without */
    size_t name_count;
    bool any_order; /* of the stream; the same in all its batches */
    /* Histograms are summed up in the order of labels, and an annotation may want a name that
     * nobody needs otherwise: then the stream ends with an error and is run anew. */
    bool wants_labels;
    struct histogram_annotator annotator;
};

/* --- groups --- */

static bool labels_within(const struct labels *l, const struct str *names, size_t count)
{
    if (l->count > count)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        if (!names_contain(names, count, l->items[i].name))
            return false;
    }
    return true;
}

static enum err group_key(struct fold *f, const struct labels *in, struct arena *arena,
                          struct labels *out, struct errinfo *ei)
{
    if (f->plan->node->u.aggregate.without)
        return labels_drop(in, f->names, f->name_count, arena, out, ei);
    if (labels_within(in, f->names, f->name_count)) {
        *out = *in;
        return ERR_OK;
    }
    return labels_keep(in, f->names, f->name_count, arena, out, ei);
}

static enum err group_add(struct fold *f, const struct labels *key, struct group **out,
                          struct errinfo *ei)
{
    size_t index;
    bool added;
    enum err e = label_table_add(&f->keys, key, &index, &added, ei);

    if (e != ERR_OK)
        return e;
    if (f->keys.count > f->group_capacity) {
        size_t capacity = f->group_capacity == 0 ? 16 : f->group_capacity * 2;

        f->groups =
            arena_grow_array(&f->arena, f->groups, f->group_capacity, capacity, sizeof *f->groups);
        if (f->groups == NULL)
            return arena_refused(&f->arena, ei);
        f->group_capacity = capacity;
    }
    if (added)
        memset(&f->groups[index], 0, sizeof f->groups[index]);
    *out = &f->groups[index];
    return ERR_OK;
}

static enum err group_find(struct fold *f, const struct row *row, struct arena *arena,
                           struct group **out, struct errinfo *ei)
{
    struct labels key;
    enum err e = group_key(f, &row->labels, arena, &key, ei);

    return e == ERR_OK ? group_add(f, &key, out, ei) : e;
}

static struct pointer_entry *pointer_slot(struct fold *f, const struct labels *l)
{
    uint64_t h = 0;

    for (size_t i = 0; i < l->count; i++)
        h = (h ^ (uintptr_t)l->items[i].value.data) * 0x9e3779b97f4a7c15U;
    return &f->pointers[h >> (64 - POINTER_CACHE_BITS)];
}

static bool pointers_equal(const struct pointer_entry *p, const struct labels *l)
{
    if (p->group == 0 || p->label_count != l->count)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        if (p->value[i] != l->items[i].value.data || p->size[i] != l->items[i].value.size ||
            p->name[i] != l->items[i].name.data)
            return false;
    }
    return true;
}

/* group_find() through the cache of pointers. */
static enum err group_find_stable(struct fold *f, const struct row *row, struct arena *arena,
                                  struct group **out, struct errinfo *ei)
{
    const struct labels *l = &row->labels;
    struct pointer_entry *p;
    enum err e;

    if (l->count > POINTER_CACHE_LABELS)
        return group_find(f, row, arena, out, ei);
    if (f->pointers == NULL)
        f->pointers = arena_calloc(&f->arena, (size_t)1 << POINTER_CACHE_BITS, sizeof *f->pointers);
    if (f->pointers == NULL)
        return arena_refused(&f->arena, ei);
    p = pointer_slot(f, l);
    if (pointers_equal(p, l)) {
        *out = &f->groups[p->group - 1];
        return ERR_OK;
    }
    e = group_find(f, row, arena, out, ei);
    if (e != ERR_OK)
        return e;
    p->group = (uint32_t)(*out - f->groups) + 1;
    p->label_count = (uint32_t)l->count;
    for (size_t i = 0; i < l->count; i++) {
        p->name[i] = l->items[i].name.data;
        p->value[i] = l->items[i].value.data;
        p->size[i] = l->items[i].value.size;
    }
    return ERR_OK;
}

/* --- rows with histograms --- */

/* What the rows of a fold may depend on is not there: see wants_labels. */
static enum err labels_want(struct fold *f, struct errinfo *ei)
{
    f->wants_labels = true;
    return errinfo_set(ei, ERR_INTERNAL, 0, "histograms are folded in the order of labels");
}

/* Buckets of two kinds met in a group: the warning tells whose they are. */
static enum err annotate_incompatible(struct fold *f, const struct row *row, struct errinfo *ei)
{
    const struct plan *input = f->plan->input;
    struct histogram_annotator a = f->annotator;

    a.metric_name =
        input->name_state == NAME_FIXED ? input->name : labels_get(&row->labels, LABEL_METRIC_NAME);
    if (input->name_state != NAME_FIXED && !input->need.all && !f->ev->in_label_order)
        return labels_want(f, ei);
    return histogram_annotate(&a, HISTOGRAM_MIXED_BUCKETS, ei);
}

static enum err histograms_sum(struct fold *f, struct group *g, struct row *row, struct errinfo *ei)
{
    struct histogram_folding h = {f->ev, f->op == AGG_AVG, &f->arena, &f->annotator, false};
    enum err e;

    if (f->any_order)
        return labels_want(f, ei);
    e = histogram_cells_fold(&h, &g->histograms, g->cells.seen, row, &f->plan->grid, ei);
    if (e == ERR_OK && h.met_incompatible)
        e = annotate_incompatible(f, row, ei);
    return e;
}

/* Takes the histograms of a row aside, so that only floats are left where an operator takes those
 * alone. */
static enum err row_fold_histograms(struct fold *f, struct group *g, struct row *row,
                                    struct errinfo *ei)
{
    const struct grid *grid = &f->plan->grid;
    bool any = false;

    if (f->op == AGG_COUNT || f->op == AGG_GROUP)
        return ERR_OK;
    if (f->op == AGG_SUM || f->op == AGG_AVG)
        return histograms_sum(f, g, row, ei);
    for (size_t k = 0; k < grid->count; k++) {
        if (row_has(row, k) && row->histogram[k] != NULL) {
            row_clear(row, k);
            any = true;
        }
    }
    return any ? annotations_add_ignored(&f->ev->annotations, f->annotator.position,
                                         aggregate_op_name(f->op), ei)
               : ERR_OK;
}

static enum err fold_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct fold *f = (struct fold *)sink;
    enum err e = ERR_OK;

    f->any_order = b->any_order && fold_takes_any_order(f->op);
    for (size_t i = 0; i < b->count && e == ERR_OK; i++) {
        struct group *g;

        if (b->stable_strings)
            e = group_find_stable(f, &b->rows[i], b->arena, &g, ei);
        else
            e = group_find(f, &b->rows[i], b->arena, &g, ei);
        if (e == ERR_OK && g->cells.seen == NULL)
            e = cells_alloc(f->ev, f->op, f->any_order, b->grid->count, &f->arena, &g->cells, ei);
        if (e != ERR_OK)
            break;
        g->drop_name = g->drop_name || b->rows[i].drop_name;
        if (UNLIKELY(b->rows[i].histogram != NULL ||
                     (g->histograms != NULL && g->histograms->any_incompatible)))
            e = row_fold_histograms(f, g, &b->rows[i], ei);
        if (e == ERR_OK)
            e = cells_fold(f->ev, f->op, f->any_order, &g->cells, &b->rows[i], b->grid->count, ei);
    }
    return e;
}

/* --- the result --- */

static enum err fold_result(struct fold *f, struct vector **out, struct errinfo *ei)
{
    struct histogram_folding h = {f->ev, f->op == AGG_AVG, &f->arena, &f->annotator, false};
    const struct grid *grid = &f->plan->grid;
    struct vector *v = NULL;
    enum err e = vector_new(f->ev, grid, &v, ei);

    for (size_t i = 0; e == ERR_OK && i < f->keys.count; i++) {
        struct group *g = &f->groups[i];
        struct row *row;

        e = vector_add(v, &row, ei);
        if (e == ERR_OK)
            e = labels_copy(&f->keys.keys[i], &v->arena, &row->labels, ei);
        if (e != ERR_OK)
            break;
        row->drop_name = g->drop_name;
        e = cells_result(f->ev, f->op, f->any_order, &g->cells, grid->count, row, ei);
        if (e == ERR_OK && g->histograms != NULL)
            e = histogram_cells_result(&h, g->histograms, row, grid, &v->arena, ei);
    }
    /* Groups stand in the order of their first member where series came by labels; otherwise that
     * order means nothing. */
    if (e == ERR_OK && (f->any_order || f->plan->input->order == ORDER_ANY))
        e = vector_sort_labels(v, ei);
    if (e == ERR_OK)
        e = vector_hold(v, ei);
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

/* The names of by(), or those that without() removes. */
static enum err fold_names(struct fold *f, struct errinfo *ei)
{
    const struct node *n = f->plan->node;
    size_t count = n->u.aggregate.label_count;
    struct str *names = ARENA_ARRAY(&f->arena, count + 1, struct str);

    if (names == NULL)
        return arena_refused(&f->arena, ei);
    for (size_t i = 0; i < count; i++)
        names[i] = n->u.aggregate.labels[i];
    if (n->u.aggregate.without)
        names[count++] = LABEL_METRIC_NAME;
    return names_sort(names, count, &f->arena, &f->names, &f->name_count, ei);
}

static void fold_init(struct fold *f, struct eval *ev, const struct plan *p)
{
    *f = (struct fold){.sink.push = fold_push, .ev = ev, .plan = p, .op = p->node->u.aggregate.op};
    arena_init(&f->arena, ev->query->memory);
    label_table_init(&f->keys, &f->arena);
    f->annotator =
        (struct histogram_annotator){.annotations = &ev->annotations,
                                     .position = node_unwrap(p->node->u.aggregate.expr)->position};
}

/* --- several threads --- */

/* What a thread of the pool folds by itself. */
struct fold_helper {
    struct fold fold;
    struct eval eval;
    struct arena arena; /* of the eval */
    struct errinfo ei;
    enum err error;
    bool began;
};

struct fold_help {
    struct fold *fold;
    struct share share;
    struct fold_helper *helpers;
};

static void fold_help(void *context, uint32_t index)
{
    const struct fold_help *all = context;
    struct fold_helper *h = &all->helpers[index];
    const struct fold *f = all->fold;

    h->began = true;
    h->eval = (struct eval){.query = f->ev->query,
                            .settings = f->ev->settings,
                            .querier = f->ev->querier,
                            .arena = &h->arena,
                            .lookback_ms = f->ev->lookback_ms,
                            .delayed_names = f->ev->delayed_names,
                            .counters = f->ev->counters,
                            .in_subquery = f->ev->in_subquery,
                            .queue = all->share.queue};
    arena_init(&h->arena, f->ev->query->memory);
    annotations_init(&h->eval.annotations, &h->arena);
    fold_init(&h->fold, &h->eval, f->plan);
    h->fold.names = f->names;
    h->fold.name_count = f->name_count;
    h->error = eval_stream(&h->eval, f->plan->input, &h->fold.sink, &h->ei);
}

/* Takes over what a helper has folded. */
static enum err fold_merge(struct fold *f, struct fold_helper *h, struct errinfo *ei)
{
    enum err e = annotations_merge(&f->ev->annotations, &h->eval.annotations, ei);

    f->any_order = true;
    for (size_t i = 0; i < h->fold.keys.count && e == ERR_OK; i++) {
        struct group *g;

        e = group_add(f, &h->fold.keys.keys[i], &g, ei);
        if (e == ERR_OK && g->cells.seen == NULL)
            e = cells_alloc(f->ev, f->op, true, f->plan->grid.count, &f->arena, &g->cells, ei);
        if (e != ERR_OK)
            break;
        g->drop_name = g->drop_name || h->fold.groups[i].drop_name;
        e = cells_merge(f->ev, f->op, &g->cells, &h->fold.groups[i].cells, f->plan->grid.count, ei);
    }
    return e;
}

/* Merges all that helpers have done. An error of theirs is the query's unless `e` is one already.
 */
static enum err helpers_end(struct fold_help *all, enum err e, struct errinfo *ei)
{
    for (uint32_t i = 0; i < all->share.helper_count; i++) {
        struct fold_helper *h = &all->helpers[i];

        if (!h->began)
            continue;
        all->fold->wants_labels = all->fold->wants_labels || h->fold.wants_labels;
        if (e == ERR_OK && h->error != ERR_OK) {
            e = h->error;
            if (ei != NULL)
                *ei = h->ei;
        }
        if (e == ERR_OK)
            e = fold_merge(all->fold, h, ei);
        arena_done(&h->fold.arena);
        arena_done(&h->arena);
    }
    return e;
}

/* *was_shared: helpers took part. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err fold_with_help(struct fold *f, bool *was_shared, struct errinfo *ei)
{
    struct eval *ev = f->ev;
    struct fold_help all = {.fold = f,
                            .share = {.pool = ev->settings->helpers,
                                      .helper_count = ev->settings->helper_count,
                                      .help = fold_help}};
    enum err e;

    all.share.context = &all;
    all.helpers = arena_calloc(&f->arena, all.share.helper_count, sizeof *all.helpers);
    if (all.helpers == NULL)
        return arena_refused(&f->arena, ei);
    ev->share = &all.share;
    e = eval_stream(ev, f->plan->input, &f->sink, ei);
    ev->share = NULL;
    *was_shared = all.share.queue != NULL;
    return helpers_end(&all, e, ei);
}

/* What a run that is done over has counted. */
struct counters_mark {
    uint64_t read, queryable, largest_bytes;
    struct position_range largest_selector;
};

static struct counters_mark counters_mark_get(const struct eval_counters *c)
{
    return (struct counters_mark){
        atomic_load_explicit(&c->samples_read, memory_order_relaxed),
        atomic_load_explicit(&c->samples_queryable, memory_order_relaxed),
        c->largest_bytes,
        c->largest_selector,
    };
}

static void counters_mark_return(struct eval_counters *c, const struct counters_mark *mark)
{
    atomic_store_explicit(&c->samples_read, mark->read, memory_order_relaxed);
    atomic_store_explicit(&c->samples_queryable, mark->queryable, memory_order_relaxed);
    c->largest_bytes = mark->largest_bytes;
    c->largest_selector = mark->largest_selector;
}

static bool fold_may_share(const struct fold *f)
{
    const struct eval *ev = f->ev;

    return ev->settings->helpers != NULL && ev->settings->helper_count > 0 && ev->queue == NULL &&
           !eval_counts_steps(ev) && fold_takes_any_order(f->op) &&
           plan_is_shareable(f->plan->input);
}

/* Runs the stream once more without help, from the start. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err fold_again(struct fold *f, const struct counters_mark *mark, bool in_label_order,
                           struct errinfo *ei)
{
    struct eval *ev = f->ev;
    bool was_in_label_order = ev->in_label_order;
    enum err e;

    arena_done(&f->arena);
    fold_init(f, ev, f->plan);
    counters_mark_return(ev->counters, mark);
    errinfo_clear(ei);
    e = fold_names(f, ei);
    ev->in_label_order = was_in_label_order || in_label_order;
    if (e == ERR_OK)
        e = eval_stream(ev, f->plan->input, &f->sink, ei);
    ev->in_label_order = was_in_label_order;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err fold_run(struct fold *f, struct errinfo *ei)
{
    struct counters_mark mark = counters_mark_get(f->ev->counters);
    bool was_shared = false;
    enum err e = fold_names(f, ei);

    if (e != ERR_OK)
        return e;
    if (fold_may_share(f))
        e = fold_with_help(f, &was_shared, ei);
    else
        e = eval_stream(f->ev, f->plan->input, &f->sink, ei);
    if (e == ERR_OK || e == ERR_CANCELED || e == ERR_TIMEOUT)
        return e;
    if (f->wants_labels)
        return fold_again(f, &mark, true, ei);
    /* Several partial folds need more memory than one, and which error comes first is chance:
     * whether a query fails and of what must not depend on which threads were free. */
    if (was_shared)
        e = fold_again(f, &mark, false, ei);
    return e == ERR_INTERNAL && f->wants_labels ? fold_again(f, &mark, true, ei) : e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_aggregate(struct eval *ev, const struct plan *p, struct vector **out,
                        struct errinfo *ei)
{
    struct fold f;
    enum err e;

    if (p->node->u.aggregate.op >= AGG_TOPK)
        return eval_group_select(ev, p, out, ei);
    fold_init(&f, ev, p);
    e = fold_run(&f, ei);
    if (e == ERR_OK)
        e = fold_result(&f, out, ei);
    arena_done(&f.arena);
    return e;
}
