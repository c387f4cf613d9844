/*
 * Rows and vectors: see eval_internal.h.
 */
#include <stdlib.h>
#include <string.h>

#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"

void bitmap_fill(uint64_t *bits, size_t count)
{
    memset(bits, 0xff, count / 64 * sizeof *bits);
    if (count % 64 != 0)
        bits[count / 64] = (UINT64_C(1) << (count % 64)) - 1;
}

bool row_is_empty(const struct row *r, const struct grid *grid)
{
    for (size_t i = 0; i < grid_words(grid); i++) {
        if (r->present[i] != 0)
            return false;
    }
    return true;
}

size_t row_step_count(const struct row *r, const struct grid *grid)
{
    size_t n = 0;

    for (size_t i = 0; i < grid_words(grid); i++)
        n += (size_t)__builtin_popcountll(r->present[i]);
    return n;
}

uint64_t row_sample_count(const struct row *r, const struct grid *grid)
{
    uint64_t n = row_step_count(r, grid);

    for (size_t k = 0; r->histogram != NULL && k < grid->count; k++) {
        if (row_has(r, k) && r->histogram[k] != NULL)
            n += histogram_weight(r->histogram[k]) - 1;
    }
    return n;
}

enum err row_alloc_unset(struct row *r, const struct grid *grid, struct arena *arena,
                         struct errinfo *ei)
{
    *r = (struct row){0};
    r->present = arena_calloc(arena, grid_words(grid), sizeof *r->present);
    r->value = ARENA_ARRAY(arena, grid->count, double);
    return r->present == NULL || r->value == NULL ? arena_refused(arena, ei) : ERR_OK;
}

enum err row_alloc(struct eval *ev, struct row *r, const struct grid *grid, struct arena *arena,
                   struct errinfo *ei)
{
    enum err e = row_alloc_unset(r, grid, arena, ei);

    /* Zeroed, so that dense loops may run over absent steps too. */
    return e == ERR_OK ? eval_zero(ev, r->value, grid->count, ei) : e;
}

enum err vector_new(struct eval *ev, const struct grid *grid, struct vector **out,
                    struct errinfo *ei)
{
    struct vector *v = calloc(1, sizeof *v);

    if (v == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "vector of a query");
    arena_init(&v->arena, ev->query->memory);
    v->eval = ev;
    v->grid = *grid;
    *out = v;
    return ERR_OK;
}

void vector_free(struct vector *v)
{
    if (v == NULL)
        return;
    eval_samples_release(v->eval, v->sample_count);
    arena_done(&v->arena);
    free(v);
}

enum err vector_add(struct vector *v, struct row **out, struct errinfo *ei)
{
    if (v->count == v->capacity) {
        size_t capacity = v->capacity == 0 ? 16 : v->capacity * 2;
        struct row *rows =
            arena_grow_array(&v->arena, v->rows, v->count, capacity, sizeof *v->rows);

        if (rows == NULL)
            return arena_refused(&v->arena, ei);
        v->rows = rows;
        v->capacity = capacity;
    }
    enum err e = row_alloc(v->eval, &v->rows[v->count], &v->grid, &v->arena, ei);
    if (e == ERR_OK)
        *out = &v->rows[v->count++];
    return e;
}

enum err vector_add_copy(struct vector *v, const struct row *row, struct errinfo *ei)
{
    struct row *r;
    enum err e = vector_add(v, &r, ei);

    if (e == ERR_OK)
        e = labels_copy(&row->labels, &v->arena, &r->labels, ei);
    if (e != ERR_OK)
        return e;
    r->drop_name = row->drop_name;
    memcpy(r->present, row->present, grid_words(&v->grid) * sizeof *r->present);
    e = eval_copy(v->eval, r->value, row->value, v->grid.count, ei);
    if (e == ERR_OK && row->histogram != NULL)
        e = histograms_keep(v->eval, row->histogram, row->present, v->grid.count, &v->arena,
                            &r->histogram, ei);
    return e;
}

enum err vector_hold(struct vector *v, struct errinfo *ei)
{
    uint64_t count = 0;
    enum err e;

    for (size_t i = 0; i < v->count; i++)
        count += row_sample_count(&v->rows[i], &v->grid);
    eval_samples_release(v->eval, v->sample_count);
    v->sample_count = 0;
    e = eval_samples_hold(v->eval, count, ei);
    if (e == ERR_OK)
        v->sample_count = count;
    return e;
}

/* The first step with a sample; SIZE_MAX when there is none. */
static size_t row_first_step(const struct row *r, const struct grid *grid)
{
    for (size_t i = 0; i < grid_words(grid); i++) {
        if (r->present[i] != 0)
            return i * 64 + (size_t)__builtin_ctzll(r->present[i]);
    }
    return SIZE_MAX;
}

/* Moves the samples of `from` into `to`. Which of them began first decides, as in Prometheus,
 * whether the name will be dropped. */
static enum err row_join(struct eval *ev, struct row *to, const struct row *from,
                         const struct grid *grid, struct arena *arena, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (row_first_step(from, grid) < row_first_step(to, grid))
        to->drop_name = from->drop_name;
    for (size_t i = 0; i < grid_words(grid); i++) {
        if (to->present[i] & from->present[i])
            return errinfo_set(ei, ERR_EXECUTION, 0,
                               "vector cannot contain metrics with the same labelset");
    }
    if (from->histogram != NULL)
        e = row_want_histograms(ev, to, grid, arena, ei);
    for (size_t i = 0, end; e == ERR_OK && i < grid->count; i = end) {
        e = eval_piece(ev, i, grid->count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            if (!row_has(from, k))
                continue;
            row_set(to, k, from->value[k]);
            if (to->histogram != NULL)
                to->histogram[k] = row_histogram(from, k);
        }
    }
    return e;
}

enum err vector_merge(struct vector *v, struct errinfo *ei)
{
    struct label_table table;
    struct arena scratch;
    size_t kept = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < v->count; i++) {
        if (!row_is_empty(&v->rows[i], &v->grid))
            v->rows[kept++] = v->rows[i];
    }
    v->count = kept;
    if (v->count < 2)
        return ERR_OK;
    arena_init(&scratch, v->eval->query->memory);
    label_table_init(&table, &scratch);
    kept = 0;
    for (size_t i = 0; i < v->count && e == ERR_OK; i++) {
        size_t index;
        bool added;

        e = label_table_add(&table, &v->rows[i].labels, &index, &added, ei);
        if (e == ERR_OK && added)
            v->rows[kept++] = v->rows[i];
        else if (e == ERR_OK)
            e = row_join(v->eval, &v->rows[index], &v->rows[i], &v->grid, &v->arena, ei);
        if (e == ERR_OK)
            e = eval_tick(v->eval, 16, ei);
    }
    if (e == ERR_OK)
        v->count = kept;
    arena_done(&scratch);
    return e;
}

enum err vector_finish_names(struct vector *v, struct errinfo *ei)
{
    for (size_t i = 0; i < v->count; i++) {
        struct row *r = &v->rows[i];
        enum err e = ERR_OK;

        if (r->drop_name)
            e = labels_without_metadata(&r->labels, &v->arena, &r->labels, ei);
        if (e == ERR_OK)
            e = eval_tick(v->eval, 16, ei);
        if (e != ERR_OK)
            return e;
    }
    return vector_merge(v, ei);
}

static int index_compare(const void *a, const void *b, void *context)
{
    struct sort_context *c = context;
    size_t i = *(const size_t *)a, k = *(const size_t *)b;
    int result = c->compare(&c->rows[i], &c->rows[k], c->context);

    return result != 0 ? result : (i > k) - (i < k); /* ties stay in the order they came */
}

enum err rows_sort(struct vector *v, struct sort_context *context, struct errinfo *ei)
{
    struct row *sorted;
    size_t *order;
    enum err e;

    if (v->count < 2)
        return ERR_OK;
    order = ARENA_ARRAY(&v->arena, v->count, size_t);
    sorted = ARENA_ARRAY(&v->arena, v->count, struct row);
    if (order == NULL || sorted == NULL)
        return arena_refused(&v->arena, ei);
    context->rows = v->rows;
    for (size_t i = 0; i < v->count; i++)
        order[i] = i;
    e = eval_sort_items(v->eval, order, v->count, sizeof *order, index_compare, context, ei);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < v->count; i++)
        sorted[i] = v->rows[order[i]];
    v->rows = sorted;
    v->capacity = v->count;
    return eval_tick(v->eval, 16 * v->count, ei);
}

static int label_order(const struct row *a, const struct row *b, const void *context)
{
    (void)context; /* labels need none */
    return labels_compare(&a->labels, &b->labels);
}

enum err vector_sort_labels(struct vector *v, struct errinfo *ei)
{
    struct sort_context context = {.compare = label_order};

    return rows_sort(v, &context, ei);
}

enum err vector_push(struct vector *v, struct sink *sink, struct errinfo *ei)
{
    struct arena scratch;
    enum err e = ERR_OK;

    arena_init(&scratch, v->eval->query->memory);
    for (size_t i = 0; i < v->count && e == ERR_OK; i += QUERIER_READ_BATCH_MAX) {
        size_t left = v->count - i;
        struct batch b = {.count = left < QUERIER_READ_BATCH_MAX ? left : QUERIER_READ_BATCH_MAX,
                          .rows = v->rows + i,
                          .grid = &v->grid,
                          .arena = &scratch};

        e = eval_tick(v->eval, b.count * v->grid.count, ei);
        if (e == ERR_OK)
            e = sink->push(sink, &b, ei);
        arena_reset(&scratch);
    }
    arena_done(&scratch);
    return e;
}
