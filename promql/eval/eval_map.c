/*
 * Per-sample operators: functions of one value, vector-scalar arithmetic and comparisons, clamp,
 * unary minus. A chain of them runs as stages over a row, so that each stage is one loop over a
 * column that stays in cache.
 */
#include "promql/eval/eval_map_internal.h"

#include <string.h>

#include "promql/eval/label_sets_internal.h"

double binary_op_apply(enum binary_op op, double lhs, double rhs)
{
    switch (op) {
    case OP_ADD:
        return lhs + rhs;
    case OP_SUB:
        return lhs - rhs;
    case OP_MUL:
        return lhs * rhs;
    case OP_DIV:
        return lhs / rhs;
    case OP_MOD:
        return fmod(lhs, rhs);
    case OP_POW:
        return go_pow(lhs, rhs);
    case OP_ATAN2:
        return atan2(lhs, rhs);
    default:
        return binary_op_compare(op, lhs, rhs) ? 1 : 0;
    }
}

bool binary_op_compare(enum binary_op op, double lhs, double rhs)
{
    switch (op) {
    case OP_EQ:
        return lhs == rhs;
    case OP_NE:
        return lhs != rhs;
    case OP_LT:
        return lhs < rhs;
    case OP_LE:
        return lhs <= rhs;
    case OP_GT:
        return lhs > rhs;
    case OP_GE:
        return lhs >= rhs;
    default:
        return false; /* set operators never get here */
    }
}

/* A stage with its arguments evaluated. */
struct stage {
    const struct map_stage *plan;
    map_function *function;
    double *scalars[2];
    struct stage *next;
};

/* Label sets that were seen at a stage that drops names, with the steps they cover. Hashes only: a
 * collision would refuse a query that is fine, once in about 10^7 queries over a million series. */
struct labelset_check {
    uint64_t *hashes; /* 0: free */
    uint64_t **present;
    size_t slot_count, count;
};

struct map_run {
    struct eval *ev;
    const struct plan *plan;
    struct stage *stages;
    struct labelset_check seen;
    uint64_t *histogram_steps; /* scratch of a row */
    struct arena arena;        /* scalars and label sets, for the whole run */
};

static enum err stages_prepare(struct map_run *run, struct errinfo *ei)
{
    struct stage **slot = &run->stages;

    for (const struct map_stage *m = run->plan->stages; m != NULL; m = m->next) {
        struct stage *s = ARENA_NEW(&run->arena, struct stage);

        if (s == NULL)
            return arena_refused(&run->arena, ei);
        s->plan = m;
        if (m->kind == MAP_FUNCTION && m->function != NULL &&
            m->function->id != FUNCTION_TIMESTAMP) {
            s->function = map_function_find(m->function->id);
            if (s->function == NULL)
                return errinfo_set(ei, ERR_UNSUPPORTED, 0, "function %s is not supported yet",
                                   m->function->name);
        }
        for (int i = 0; i < 2; i++) {
            enum err e = ERR_OK;

            if (m->scalars[i] != NULL)
                e = eval_scalar(run->ev, m->scalars[i], &run->arena, &s->scalars[i], ei);
            if (e != ERR_OK)
                return e;
        }
        *slot = s;
        slot = &s->next;
    }
    return ERR_OK;
}

static enum err map_run_init(struct map_run *run, struct eval *ev, const struct plan *p,
                             struct errinfo *ei)
{
    *run = (struct map_run){.ev = ev, .plan = p};
    arena_init(&run->arena, ev->query->memory);
    return stages_prepare(run, ei);
}

/* Sample op scalar, or the other way round. A comparison without bool keeps the sample's value
 * where it holds. */
static void stage_binary(const struct stage *s, size_t begin, size_t end, struct row *row)
{
    const struct map_stage *m = s->plan;
    bool left = m->kind == MAP_BINARY_LEFT;
    bool filters = binary_op_is_comparison(m->op) && !m->return_bool;

    for (size_t k = begin; k < end; k++) {
        double scalar = s->scalars[0][k], value = row->value[k];
        double lhs = left ? scalar : value, rhs = left ? value : scalar;

        if (!row_has(row, k))
            continue;
        if (!filters)
            row->value[k] = binary_op_apply(m->op, lhs, rhs);
        else if (!binary_op_compare(m->op, lhs, rhs))
            row_clear(row, k);
    }
}

/* math.Max(lower, math.Min(upper, value)) as Go has it: NaN anywhere gives NaN. Nothing is kept at
 * steps where the bounds are crossed. */
static void stage_clamp(const struct stage *s, size_t begin, size_t end, struct row *row)
{
    enum function_id id = s->plan->function->id;

    for (size_t k = begin; k < end; k++) {
        double lower = id == FUNCTION_CLAMP_MAX ? -INFINITY : s->scalars[0][k];
        double upper = id == FUNCTION_CLAMP       ? s->scalars[1][k]
                       : id == FUNCTION_CLAMP_MAX ? s->scalars[0][k]
                                                  : INFINITY;

        if (!row_has(row, k))
            continue;
        if (upper < lower)
            row_clear(row, k);
        else
            row->value[k] = go_max(lower, go_min(upper, row->value[k]));
    }
}

static bool stage_is_binary(const struct map_stage *m)
{
    return m->kind == MAP_BINARY_LEFT || m->kind == MAP_BINARY_RIGHT;
}

/* One stage on steps [begin, end). */
static void stage_run(const struct stage *s, const struct grid *grid, size_t begin, size_t end,
                      struct row *row)
{
    switch (s->plan->kind) {
    case MAP_BINARY_RIGHT:
    case MAP_BINARY_LEFT:
        stage_binary(s, begin, end, row);
        break;
    case MAP_KEEP_IF_CLAMP:
        stage_clamp(s, begin, end, row);
        break;
    case MAP_HISTOGRAM:
    case MAP_NOTHING:
        for (size_t k = begin; k < end; k++)
            row_clear(row, k);
        break;
    case MAP_NEGATE:
        for (size_t k = begin; k < end; k++) {
            if (row_has(row, k))
                row->value[k] = -row->value[k];
        }
        break;
    case MAP_FUNCTION:
        if (s->plan->function != NULL && s->plan->function->id == FUNCTION_TIMESTAMP) {
            for (size_t k = begin; k < end; k++)
                row->value[k] = (double)grid_time_ms(grid, k) / 1000;
        } else if (s->function != NULL) {
            for (size_t k = begin; k < end; k++) {
                if (row_has(row, k))
                    row->value[k] =
                        s->function(row->value[k], s->scalars[0] != NULL ? s->scalars[0][k] : 1);
            }
        }
        break;
    }
}

static enum err seen_grow(struct map_run *run, struct errinfo *ei)
{
    struct labelset_check *c = &run->seen, old = *c;

    c->slot_count = old.slot_count == 0 ? 256 : old.slot_count * 2;
    c->hashes = arena_calloc(&run->arena, c->slot_count, sizeof *c->hashes);
    c->present = arena_calloc(&run->arena, c->slot_count, sizeof *c->present);
    if (c->hashes == NULL || c->present == NULL)
        return arena_refused(&run->arena, ei);
    for (size_t i = 0; i < old.slot_count; i++) {
        size_t slot = (size_t)old.hashes[i] & (c->slot_count - 1);

        if (old.hashes[i] == 0)
            continue;
        while (c->hashes[slot] != 0)
            slot = (slot + 1) & (c->slot_count - 1);
        c->hashes[slot] = old.hashes[i];
        c->present[slot] = old.present[i];
    }
    return ERR_OK;
}

/* Two rows with the same labels must not have a sample at the same step. */
static enum err labelset_check_row(struct map_run *run, const struct row *row, struct errinfo *ei)
{
    struct labelset_check *c = &run->seen;
    size_t words = grid_words(&run->plan->grid), slot;
    uint64_t hash = labels_hash(&row->labels);

    hash += hash == 0;
    if (c->count + c->count / 2 >= c->slot_count) {
        enum err e = seen_grow(run, ei);

        if (e != ERR_OK)
            return e;
    }
    slot = (size_t)hash & (c->slot_count - 1);
    while (c->hashes[slot] != 0 && c->hashes[slot] != hash)
        slot = (slot + 1) & (c->slot_count - 1);
    if (c->hashes[slot] == 0) {
        c->present[slot] = arena_calloc(&run->arena, words, sizeof **c->present);
        if (c->present[slot] == NULL)
            return arena_refused(&run->arena, ei);
        c->hashes[slot] = hash;
        c->count++;
    }
    for (size_t i = 0; i < words; i++) {
        if (c->present[slot][i] & row->present[i])
            return errinfo_set(ei, ERR_EXECUTION, 0,
                               "vector cannot contain metrics with the same labelset");
        c->present[slot][i] |= row->present[i];
    }
    return ERR_OK;
}

/* The floats of a row. */
static enum err stage_floats(struct map_run *run, const struct stage *s, struct row *row,
                             struct errinfo *ei)
{
    const struct grid *grid = &run->plan->grid;
    enum err e = ERR_OK;

    if (binary_op_is_trim(s->plan->op) && stage_is_binary(s->plan))
        return stage_trims_floats(run->ev, s->plan, grid, row, ei);
    for (size_t i = 0, end; e == ERR_OK && i < grid->count; i = end) {
        e = eval_piece(run->ev, i, grid->count, &end, ei);
        if (e == ERR_OK)
            stage_run(s, grid, i, end, row);
    }
    return e;
}

/* Floats and histograms each by themselves. */
static enum err stage_mixed(struct map_run *run, const struct stage *s, struct row *row,
                            struct arena *arena, struct errinfo *ei)
{
    const struct grid *grid = &run->plan->grid;
    bool any;
    enum err e;

    if (run->histogram_steps == NULL)
        run->histogram_steps = ARENA_ARRAY(&run->arena, grid_words(grid), uint64_t);
    if (run->histogram_steps == NULL)
        return arena_refused(&run->arena, ei);
    e = row_split(run->ev, row, grid, run->histogram_steps, &any, ei);
    if (e == ERR_OK)
        e = stage_floats(run, s, row, ei);
    if (e == ERR_OK && any)
        e = stage_histograms(run->ev, s->plan, s->scalars[0], run->histogram_steps, grid, row,
                             arena, ei);
    return e;
}

static enum err stage_drop_name(struct map_run *run, const struct stage *s, struct row *row,
                                struct arena *arena, struct errinfo *ei)
{
    if (run->ev->delayed_names) {
        row->drop_name = true;
        return ERR_OK;
    }
    /* As in Prometheus, type and unit stay. */
    if (s->plan->kind == MAP_HISTOGRAM)
        return labels_with(&row->labels, LABEL_METRIC_NAME, (struct str){NULL, 0}, arena,
                           &row->labels, ei);
    return labels_without_metadata(&row->labels, arena, &row->labels, ei);
}

static enum err row_run(struct map_run *run, struct row *row, bool streaming, struct arena *arena,
                        struct errinfo *ei)
{
    for (const struct stage *s = run->stages; s != NULL; s = s->next) {
        enum err e = LIKELY(row->histogram == NULL) ? stage_floats(run, s, row, ei)
                                                    : stage_mixed(run, s, row, arena, ei);

        if (e != ERR_OK)
            return e;
        if (!s->plan->drops_name)
            continue;
        e = stage_drop_name(run, s, row, arena, ei);
        /* Here and not behind the last stage: a later one may filter samples that clash. A vector
         * that no stage filters any more is checked by its merge. */
        if (e == ERR_OK && s->plan->checks_labelset && (streaming || s->next != NULL))
            e = labelset_check_row(run, row, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

enum err eval_map_vector(struct eval *ev, const struct plan *p, struct vector *v,
                         struct errinfo *ei)
{
    struct map_run run;
    enum err e = map_run_init(&run, ev, p, ei);

    for (size_t i = 0; i < v->count && e == ERR_OK; i++) {
        e = row_run(&run, &v->rows[i], false, &v->arena, ei);
        if (e == ERR_OK)
            e = eval_tick(ev, 16, ei); /* labels */
    }
    arena_done(&run.arena);
    return e;
}

struct map_sink {
    struct sink sink;
    struct map_run run;
    struct sink *next;
};

static enum err map_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct map_sink *s = (struct map_sink *)sink;
    enum err e = ERR_OK;

    for (size_t i = 0; i < b->count && e == ERR_OK; i++)
        e = row_run(&s->run, &b->rows[i], true, b->arena, ei);
    if (e == ERR_OK)
        e = eval_tick(s->run.ev, 16 * b->count, ei); /* labels */
    return e == ERR_OK ? s->next->push(s->next, b, ei) : e;
}

enum err eval_map_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                         struct errinfo *ei)
{
    struct map_sink s = {.sink.push = map_push, .next = sink};
    enum err e = map_run_init(&s.run, ev, p, ei);

    if (e == ERR_OK)
        e = eval_stream(ev, p->input, &s.sink, ei);
    arena_done(&s.run.arena);
    return e;
}
