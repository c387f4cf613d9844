/*
 * One eval in all the forms Prometheus's harness gives it. An instant query runs
 *   - as it is,
 *   - with `@ <its time>` put on every selector and subquery, at five other evaluation times, where
 *     no function in it looks at the evaluation time;
 * and each of these, where its result is a vector or scalar, once more as a range query of three
 * steps whose middle step must give the same.
 *
 * What needs language that is switched off or refused by name is skipped.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "promql/ast.h"
#include "promql/functions.h"
#include "promql/promql.h"
#include "tools/promqltest_internal.h"

enum { MINUTE_MS = 60000, LOOKBACK_MS = 300000, MAX_SAMPLES = 10000, FORM_COUNT_MAX = 6 };
enum { QUERY_MEMORY_BYTES = 256 << 20 };

/* One form of an instant query. */
struct form {
    struct str text;
    int64_t time_ms;
};

struct eval_state {
    const struct eval_context *ctx;
    const struct eval_command *command;
    struct byte_writer *report;
    struct arena arena; /* of the whole eval: parsed tree, forms */
    struct promql_expr *expr;
};

/* Nodes still to be looked at; a tree is walked by a loop, since chains may be long. */
struct walk_item {
    struct node *node;
    bool in_subquery;
};
struct walk {
    struct walk_item *items;
    size_t count, capacity;
    struct arena *arena;
    bool failed;
};

static void walk_push(struct walk *w, struct node *n, bool in_subquery)
{
    if (w->count == w->capacity) {
        size_t wanted = w->capacity == 0 ? 64 : w->capacity * 2;

        w->items = arena_grow_array(w->arena, w->items, w->count, wanted, sizeof *w->items);
        w->failed |= w->items == NULL;
        w->capacity = w->items == NULL ? 0 : wanted;
        w->count = w->items == NULL ? 0 : w->count;
    }
    if (!w->failed)
        w->items[w->count++] = (struct walk_item){n, in_subquery};
}

/* Takes the next node off and puts its children on. */
static bool walk_next(struct walk *w, struct walk_item *out)
{
    struct node *n;

    if (w->count == 0 || w->failed)
        return false;
    *out = w->items[--w->count];
    n = out->node;
    switch (n->kind) {
    case NODE_NUMBER:
    case NODE_STRING:
    case NODE_SELECTOR:
        break;
    case NODE_MATRIX:
        walk_push(w, n->u.matrix.selector, out->in_subquery);
        break;
    case NODE_SUBQUERY:
        walk_push(w, n->u.subquery.expr, true);
        break;
    case NODE_UNARY:
        walk_push(w, n->u.unary.expr, out->in_subquery);
        break;
    case NODE_BINARY:
        walk_push(w, n->u.binary.lhs, out->in_subquery);
        walk_push(w, n->u.binary.rhs, out->in_subquery);
        break;
    case NODE_AGGREGATE:
        walk_push(w, n->u.aggregate.expr, out->in_subquery);
        if (n->u.aggregate.param != NULL)
            walk_push(w, n->u.aggregate.param, out->in_subquery);
        break;
    case NODE_CALL:
        for (size_t i = 0; i < n->u.call.arg_count; i++)
            walk_push(w, n->u.call.args[i], out->in_subquery);
        break;
    case NODE_PAREN:
        walk_push(w, n->u.paren, out->in_subquery);
        break;
    }
    return true;
}

/* All switches of the language, or none. */
static struct promql_parse_options language_options(bool experimental)
{
    return (struct promql_parse_options){.experimental_functions = experimental,
                                         .extended_range_selectors = experimental,
                                         .binop_fill_modifiers = experimental};
}

static enum err parse(struct eval_state *s, bool experimental, struct errinfo *ei)
{
    struct promql_parse_options options = language_options(experimental);

    return promql_parse(s->command->expr, &options, &s->arena, &s->expr, ei);
}

/* True for what is right, built or not, once all switches are on. */
static bool is_experimental(struct eval_state *s)
{
    enum err e = parse(s, true, NULL);

    promql_expr_done(s->expr);
    s->expr = NULL;
    return e == ERR_OK || e == ERR_UNSUPPORTED;
}

/* Why the eval is skipped, in the arena; NULL when it is to run. Parses the expression; one that is
 * simply wrong has no tree and is left to the query itself. */
static const char *find_obstacle(struct eval_state *s)
{
    struct errinfo ei = {0};
    enum err e = parse(s, s->ctx->experimental, &ei);

    if (e == ERR_INVALID && !s->ctx->experimental && is_experimental(s))
        return "needs --experimental";
    return e == ERR_UNSUPPORTED ? arena_printf(&s->arena, "%s", ei.message) : NULL;
}

/* What looks at the whole query's bounds, which no @ changes. */
static bool looks_at_query(enum function_id id)
{
    return id == FUNCTION_START || id == FUNCTION_END || id == FUNCTION_RANGE ||
           id == FUNCTION_STEP;
}

static bool looks_at_time(enum function_id id)
{
    return function_is_date(id) || id == FUNCTION_PREDICT_LINEAR || id == FUNCTION_TIME ||
           id == FUNCTION_TIMESTAMP || looks_at_query(id);
}

static void set_at(struct time_shift *shift, int64_t time_ms)
{
    if (shift->at != AT_TIME)
        shift->at_ms = time_ms;
    shift->at = AT_TIME;
}

/* Puts `@ time` on every selector and subquery that has none, except below a subquery, whose own @
 * fixes the times of what is in it. False when the expression may depend on the evaluation time all
 * the same. */
static bool pin_time(struct eval_state *s, int64_t time_ms)
{
    struct walk w = {.arena = &s->arena};
    struct walk_item item;
    bool pinned = true;

    walk_push(&w, s->expr->root, false);
    while (walk_next(&w, &item)) {
        if (item.node->kind == NODE_CALL && looks_at_query(item.node->u.call.function->id))
            pinned = false;
        if (item.in_subquery)
            continue;
        if (item.node->kind == NODE_SELECTOR)
            set_at(&item.node->u.selector.shift, time_ms);
        else if (item.node->kind == NODE_CALL && looks_at_time(item.node->u.call.function->id))
            pinned = false;
        else if (item.node->kind == NODE_SUBQUERY)
            set_at(&item.node->u.subquery.shift, time_ms);
    }
    return pinned && !w.failed;
}

/* The forms of an instant query; the first is the query itself. */
static size_t make_forms(struct eval_state *s, struct form forms[FORM_COUNT_MAX])
{
    int64_t t = s->command->time_ms;
    int64_t times[] = {-10 * t, 0, t / 5, t, 10 * t};
    int64_t times_at_zero[] = {-1000, 0, 1000};
    size_t count = 1, time_count = t == 0 ? 3 : 5;
    const char *text;

    forms[0] = (struct form){s->command->expr, t};
    if (s->expr == NULL || !pin_time(s, t))
        return count;
    text = promql_node_format(s->expr->root, &s->arena);
    for (size_t i = 0; text != NULL && i < time_count; i++)
        forms[count++] = (struct form){str_from(text), t == 0 ? times_at_zero[i] : times[i]};
    return count;
}

/* A query being run: what it charges and what it holds. */
struct run {
    struct budget memory;
    struct arena arena;
    struct promql_result result;
    struct promql_handle *handle;
    struct errinfo ei;
    enum err e;
    const char *twin_differs; /* in what the twin's answer does; NULL: in nothing */
};

/* When a query is evaluated. */
struct times {
    bool is_range;
    int64_t start_ms, end_ms, step_ms;
};

/* Without helpers on the store, with them on its twin. */
static void run_query_on(struct run *run, const struct eval_state *s, struct str text,
                         const struct times *times, bool is_twin)
{
    const struct promql_settings settings = {
        .lookback_delta_ms = LOOKBACK_MS,
        .default_step_ms = MINUTE_MS,
        .max_samples = MAX_SAMPLES,
        .max_memory_bytes = QUERY_MEMORY_BYTES,
        .language = language_options(s->ctx->experimental),
        .delayed_name_removal = true,
        .start_timestamps = true,
        .helpers = is_twin ? s->ctx->helpers : NULL,
        .helper_count = is_twin ? s->ctx->helper_count : 0,
    };
    struct promql_query query = {
        .engine = is_twin ? s->ctx->twin->engine : s->ctx->store->engine,
        .settings = &settings,
        .text = text,
        .is_range = times->is_range,
        .start_ms = times->start_ms,
        .end_ms = times->end_ms,
        .step_ms = times->step_ms,
        .memory = &run->memory,
    };

    *run = (struct run){.handle = NULL};
    budget_init(&run->memory, "query memory", QUERY_MEMORY_BYTES, NULL);
    arena_init(&run->arena, &run->memory);
    run->e = promql_query_run(&query, &run->arena, &run->result, &run->handle, &run->ei);
}

static void run_done(struct run *run)
{
    promql_query_done(run->handle);
    arena_done(&run->arena);
}

static void run_twin(struct run *run, const struct eval_state *s, struct str text,
                     const struct times *times)
{
    struct run twin;

    run_query_on(&twin, s, text, times, true);
    if (run->e != twin.e || strcmp(run->ei.message, twin.ei.message) != 0)
        run->twin_differs =
            twin.e == ERR_OK ? "an error" : arena_printf(&run->arena, "%s", twin.ei.message);
    else if (run->e == ERR_OK)
        run->twin_differs =
            results_differ(&run->result, &twin.result, eval_expects(s->command, EXPECT_ORDERED));
    run_done(&twin);
}

static void run_query(struct run *run, const struct eval_state *s, struct str text,
                      const struct times *times)
{
    run_query_on(run, s, text, times, false);
    if (s->ctx->twin != NULL)
        run_twin(run, s, text, times);
}

/* What the query says of itself, ahead of a difference. */
static void describe(struct byte_writer *report, struct str text, int64_t start_ms, int64_t end_ms)
{
    writer_printf(report, "  query    %.*s at %" PRId64, STR_ARGS(text), start_ms);
    if (end_ms != start_ms)
        writer_printf(report, " to %" PRId64, end_ms);
    writer_printf(report, " ms\n");
}

static void report_twin(const struct eval_state *s, const struct run *run)
{
    writer_printf(s->report, "  another answer from the other store or with more threads: %s\n",
                  run->twin_differs);
}

/* The outcome when the error alone decides it; *decided tells. */
static enum eval_outcome check_error(const struct eval_state *s, const struct run *run,
                                     bool *decided)
{
    bool fails = eval_expects(s->command, EXPECT_FAIL);

    *decided = true;
    if (run->twin_differs != NULL) {
        report_twin(s, run);
        return EVAL_FAILED;
    }
    if (run->e == ERR_UNSUPPORTED) {
        writer_printf(s->report, "%s", run->ei.message);
        return EVAL_SKIPPED;
    }
    if (run->e != ERR_OK && fails)
        return compare_failure(s->command, run->ei.message, s->report) ? EVAL_PASSED : EVAL_FAILED;
    if (run->e != ERR_OK) {
        writer_printf(s->report, "  got      error: %s\n", run->ei.message);
        return EVAL_FAILED;
    }
    if (fails) {
        writer_printf(s->report, "  expected an error, got a result\n");
        return EVAL_FAILED;
    }
    *decided = false;
    return EVAL_PASSED;
}

static enum eval_outcome check_run(const struct eval_state *s, const struct run *run, bool *decided)
{
    enum eval_outcome outcome = check_error(s, run, decided);

    if (*decided)
        return outcome;
    return compare_annotations(s->command, &run->result, s->report) &&
                   compare_result(s->command, &run->result, s->report)
               ? EVAL_PASSED
               : EVAL_FAILED;
}

/* start(), end(), range() and step() have other values in another range. */
static bool depends_on_range(struct str text)
{
    static const char *const calls[] = {"start()", "end()", "range()", "step()"};

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (memmem(text.data, text.size, calls[i], strlen(calls[i])) != NULL)
            return true;
    }
    return false;
}

/* The same query as a range of three steps. */
static enum eval_outcome check_range_form(const struct eval_state *s, const struct form *form,
                                          enum value_type type)
{
    const struct times times = {true, form->time_ms - MINUTE_MS, form->time_ms + MINUTE_MS,
                                MINUTE_MS};
    enum eval_outcome outcome = EVAL_FAILED;
    struct run run;

    run_query(&run, s, form->text, &times);
    if (run.twin_differs != NULL)
        report_twin(s, &run);
    else if (run.e != ERR_OK)
        writer_printf(s->report, "  got      error: %s\n", run.ei.message);
    else if (eval_expects(s->command, EXPECT_ORDERED) || /* ranges are sorted by labels */
             compare_middle_step(s->command, &run.result, type, s->report))
        outcome = EVAL_PASSED;
    run_done(&run);
    if (outcome == EVAL_FAILED)
        describe(s->report, form->text, times.start_ms, times.end_ms);
    return outcome;
}

static enum eval_outcome check_form(const struct eval_state *s, const struct form *form)
{
    enum eval_outcome outcome;
    enum value_type type;
    bool decided;
    struct run run;

    run_query(&run, s, form->text, &(struct times){false, form->time_ms, form->time_ms, 0});
    outcome = check_run(s, &run, &decided);
    type = run.result.type;
    run_done(&run);
    if (outcome == EVAL_FAILED)
        describe(s->report, form->text, form->time_ms, form->time_ms);
    if (outcome != EVAL_PASSED || decided || s->command->not_in_range_form ||
        depends_on_range(form->text))
        return outcome;
    return check_range_form(s, form, type);
}

static enum eval_outcome run_instant(struct eval_state *s)
{
    struct form forms[FORM_COUNT_MAX];
    size_t count = make_forms(s, forms);
    enum eval_outcome outcome = EVAL_PASSED;

    for (size_t i = 0; i < count && outcome == EVAL_PASSED; i++)
        outcome = check_form(s, &forms[i]);
    return outcome;
}

static enum eval_outcome run_range(const struct eval_state *s)
{
    const struct eval_command *c = s->command;
    enum eval_outcome outcome;
    bool decided;
    struct run run;

    run_query(&run, s, c->expr, &(struct times){true, c->start_ms, c->end_ms, c->step_ms});
    outcome = check_run(s, &run, &decided);
    run_done(&run);
    if (outcome == EVAL_FAILED)
        describe(s->report, c->expr, c->start_ms, c->end_ms);
    return outcome;
}

enum eval_outcome eval_run(const struct eval_context *ctx, const struct eval_command *c,
                           struct byte_writer *report)
{
    struct eval_state s = {.ctx = ctx, .command = c, .report = report};
    enum eval_outcome outcome = EVAL_SKIPPED;
    const char *obstacle;

    arena_init(&s.arena, NULL);
    obstacle = find_obstacle(&s);
    if (obstacle != NULL)
        writer_printf(report, "%s", obstacle);
    else
        outcome = c->is_range ? run_range(&s) : run_instant(&s);
    promql_expr_done(s.expr);
    arena_done(&s.arena);
    return outcome;
}
