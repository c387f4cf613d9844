/*
 * POST /api/v1/rimstone/drop_rules/preview: what rules would drop, what that costs, and who reads
 * it. The body is a rule, a list of rules, or a whole configuration, in JSON or YAML; nothing is
 * changed.
 */
#include <inttypes.h>
#include <string.h>

#include "api/config.h"
#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "engine/preview.h"
#include "engine/querier.h"
#include "promql/ast.h"

enum {
    ROWS_DEFAULT = 20,
    ROWS_MAX = 10000,
    QUERIES_MS = 300, /* for asking what recent queries read */
};

struct preview_run {
    struct http_request *r;
    struct config config; /* its rules */
    struct rule_set *rules;
    struct querier *querier;
    struct budget memory;
    struct arena arena;
    size_t limit;
    struct preview_result result;
    struct preview *preview;
    /* Of recent queries, those that read what would be dropped. */
    struct usage_query *queries;
    size_t query_count;
    bool queries_are_complete;
    struct errinfo ei;
};

/* ---- recent queries ---- */

struct query_look {
    struct preview_run *p;
    bool meets;
    enum err err;
};

static bool drops_metric(const struct preview_run *p, struct str name)
{
    for (size_t i = 0; i < p->result.metrics.count; i++)
        if (str_equal(p->result.metrics.rows[i].name, name))
            return true;
    return false;
}

static void look_at(struct query_look *l, const struct matcher *matchers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct matcher *m = &matchers[i];

        if (m->kind == MATCHER_EQUAL && m->value.size > 0 &&
            str_equal(m->name, LABEL_METRIC_NAME) && !drops_metric(l->p, m->value))
            return;
    }
    l->err = preview_meets(l->p->preview, matchers, count, &l->meets, &l->p->ei);
}

static void visit(void *ctx, const struct promql_selector *selector)
{
    struct query_look *l = ctx;

    if (l->meets || l->err != ERR_OK)
        return;
    if (selector->node == NULL)
        l->meets = drops_metric(l->p, STR_LITERAL("target_info"));
    else
        look_at(l, selector->node->u.selector.matchers, selector->node->u.selector.matcher_count);
}

/* What cannot be parsed any more reads nothing. */
static enum err query_look_at(struct preview_run *p, const struct usage_query *q, bool *meets)
{
    struct query_look l = {.p = p};
    struct arena arena;

    arena_init(&arena, &p->memory);
    if (q->is_selector) {
        struct matcher *matchers = NULL;
        size_t count = 0;

        if (promql_parse_selector(q->text, &arena, &matchers, &count, NULL) == ERR_OK)
            look_at(&l, matchers, count);
        for (size_t i = 0; i < count; i++)
            matcher_done(&matchers[i]);
    } else {
        struct promql_expr *expr = NULL;

        if (promql_parse(q->text, &p->r->server->options.promql.language, &arena, &expr, NULL) ==
            ERR_OK)
            promql_selectors_visit(expr, visit, &l);
        promql_expr_done(expr);
    }
    arena_done(&arena);
    *meets = l.meets;
    return l.err;
}

static enum err queries_find(struct preview_run *p)
{
    uint64_t end_ns = clock_mono_ns() + QUERIES_MS * UINT64_C(1000000);
    struct usage_snapshot s;
    enum err e = usage_snapshot(p->r->server->usage, &p->arena, &s, &p->ei);

    p->queries_are_complete = true;
    p->queries = s.queries;
    for (size_t i = 0; e == ERR_OK && i < s.query_count && p->result.metrics.count > 0; i++) {
        bool meets = false;

        if (clock_mono_ns() >= end_ns) {
            p->queries_are_complete = false;
            break;
        }
        e = query_look_at(p, &s.queries[i], &meets);
        if (meets)
            p->queries[p->query_count++] = s.queries[i];
    }
    return e;
}

/* ---- the answer ---- */

static void list_write(struct byte_writer *w, const char *name, const struct explore_list *list,
                       size_t limit)
{
    writer_printf(w, ",\"%s\":[", name);
    for (size_t i = 0; i < list->count && i < limit; i++) {
        json_write_raw(w, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_string(w, list->rows[i].name);
        writer_printf(w, ",\"value\":%" PRIu64 "}", list->rows[i].series);
    }
    json_write_raw(w, "]");
}

static void answer_write(struct byte_writer *w, const struct preview_run *p)
{
    const struct preview_result *x = &p->result;

    writer_printf(
        w, "{\"status\":\"success\",\"data\":{\"series\":%" PRIu64 ",\"samples_per_second\":",
        x->series);
    json_write_number(w, x->samples_per_second);
    writer_printf(w, ",\"disk_bytes\":%.0f,\"memory_bytes\":%.0f,\"disk_is_whole\":%s",
                  x->disk_bytes, x->memory_bytes, x->disk_is_whole ? "true" : "false");
    writer_printf(w, ",\"metric_count\":%zu", x->metrics.count);
    list_write(w, "metrics", &x->metrics, p->limit);
    list_write(w, "label_values", &x->label_values, p->limit);
    json_write_raw(w, ",\"examples\":[");
    for (size_t i = 0; i < x->example_count; i++) {
        json_write_raw(w, i == 0 ? "" : ",");
        json_write_string(w, str_from(x->examples[i]));
    }
    json_write_raw(w, "],\"queries\":[");
    for (size_t i = 0; i < p->query_count && i < p->limit; i++) {
        const struct usage_query *q = &p->queries[i];

        json_write_raw(w, i == 0 ? "{\"query\":" : ",{\"query\":");
        json_write_string(w, q->text);
        writer_printf(w, ",\"endpoint\":\"%s\",\"count\":%" PRIu32 ",\"last_queried\":%" PRIu32 "}",
                      usage_kind_name(q->kind), q->count, q->last_s);
    }
    writer_printf(w, "],\"query_count\":%zu,\"queries_are_complete\":%s}}", p->query_count,
                  p->queries_are_complete ? "true" : "false");
}

static enum err preview_make(struct preview_run *p, struct str text)
{
    struct preview_options o = {.limit = p->limit};
    enum err e = config_rules_read(&p->config, "rules", text, &p->ei);

    if (e == ERR_OK && p->config.drop_rule_count == 0)
        e = errinfo_set(&p->ei, ERR_INVALID, 0, "no rule in the request");
    if (e == ERR_OK)
        e = rule_set_new(p->config.drop_rules, p->config.drop_rule_count, &p->rules, &p->ei);
    if (e == ERR_OK)
        e = querier_open(server_engine(p->r->server), &p->querier, &p->ei);
    if (e != ERR_OK)
        return e;
    querier_set_stop(p->querier, &p->r->hangup.stop);
    querier_set_deadline(p->querier, p->r->deadline_mono_ns);
    o.rules = p->rules;
    e = querier_preview(p->querier, &o, &p->arena, &p->result, &p->preview, &p->ei);
    return e == ERR_OK ? queries_find(p) : e;
}

static bool limit_read(struct http_request *r, size_t *out)
{
    struct str text = params_get(&r->params, "limit");

    *out = ROWS_DEFAULT;
    if (text.size == 0 ||
        (param_limit_parse(text, out, NULL) == ERR_OK && *out > 0 && *out <= ROWS_MAX))
        return true;
    reply_bad_parameter(r, "limit", "a number from 1 to 10000 is wanted");
    return false;
}

void endpoint_rules_preview(struct http_request *r)
{
    struct preview_run p = {.r = r};
    struct str text = {"", 0};
    enum err e;

    if (!limit_read(r, &p.limit))
        return;
    if (r->body != NULL)
        text = (struct str){(const char *)r->body->data, r->body->size};
    config_init(&p.config);
    query_memory_begin(r->server, &p.memory);
    arena_init(&p.arena, &p.memory);
    e = preview_make(&p, text);
    if (e == ERR_OK) {
        struct byte_writer w;

        writer_init(&w);
        answer_write(&w, &p);
        reply_body(r, 200, "application/json", &w);
    } else {
        reply_err(r, e, p.ei.message);
    }
    querier_close(p.querier);
    rule_set_free(p.rules);
    arena_done(&p.arena);
    query_memory_end(&p.memory);
    config_done(&p.config);
}
