/*
 * /api/v1/format_query and /api/v1/parse_query: what a query says, without running it; and
 * /api/v1/query_exemplars, which finds none, since exemplars are not stored.
 */
#include "api/http/ast_json_internal.h"
#include "api/http/http_internal.h"
#include "api/http/json_internal.h"

enum { TREE_BYTES_MAX = 64 << 20 };

/* A query's tree, charged as a query is. */
struct parse_run {
    struct budget memory;
    struct arena arena;
    struct promql_expr *expr; /* NULL when it cannot be parsed */
};

static enum err parse_run_init(struct http_request *r, struct parse_run *run, struct errinfo *ei)
{
    const struct promql_settings *settings = &r->server->options.promql;

    run->expr = NULL;
    query_memory_begin(r->server, &run->memory);
    arena_init(&run->arena, &run->memory);
    return promql_parse(params_get(&r->params, "query"), &settings->language, &run->arena,
                        &run->expr, ei);
}

static void parse_run_done(struct parse_run *run)
{
    promql_expr_done(run->expr);
    arena_done(&run->arena);
    query_memory_end(&run->memory);
}

static enum err pretty_write(struct byte_writer *w, struct parse_run *run, struct errinfo *ei)
{
    struct str text = {NULL, 0};
    enum err e = promql_expr_pretty(run->expr, &run->arena, &text, ei);

    if (e == ERR_OK)
        json_write_string(w, text);
    return e;
}

/* Answers with what `as_tree` says of the query. */
static void parse_answer(struct http_request *r, bool as_tree)
{
    struct errinfo ei = {0};
    struct byte_writer w;
    struct parse_run run;
    enum err e = parse_run_init(r, &run, &ei);

    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"success\",\"data\":");
    if (e == ERR_OK)
        e = as_tree ? json_write_ast(&w, run.expr->root, TREE_BYTES_MAX, &run.arena, &ei)
                    : pretty_write(&w, &run, &ei);
    json_write_raw(&w, "}");
    if (e == ERR_OK)
        reply_body(r, 200, "application/json", &w);
    else
        reply_parameter_err(r, "query", e, ei.message);
    writer_done(&w);
    parse_run_done(&run);
}

void endpoint_format_query(struct http_request *r)
{
    parse_answer(r, false);
}

void endpoint_parse_query(struct http_request *r)
{
    parse_answer(r, true);
}

static void reply_no_exemplars(struct http_request *r)
{
    struct byte_writer w;

    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"success\",\"data\":[]}");
    reply_body(r, 200, "application/json", &w);
    writer_done(&w);
}

/* A query without selectors has no content, rather than none of the exemplars. */
void endpoint_query_exemplars(struct http_request *r)
{
    int64_t start_ms, end_ms;
    struct errinfo ei = {0};
    struct parse_run run;
    enum err e;

    if (!request_bound(r, "start", INT64_MIN, &start_ms) ||
        !request_bound(r, "end", INT64_MAX, &end_ms))
        return;
    if (end_ms < start_ms) {
        reply_error(r, 400, "bad_data", "end timestamp must not be before start timestamp");
        return;
    }
    e = parse_run_init(r, &run, &ei);
    if (e == ERR_INVALID || e == ERR_UNSUPPORTED)
        reply_error(r, 400, "bad_data", ei.message); /* Prometheus does not name the parameter */
    else if (e != ERR_OK)
        reply_err(r, e, ei.message);
    else if (run.expr->selector_count == 0)
        reply_no_content(r);
    else
        reply_no_exemplars(r);
    if (e == ERR_OK)
        request_note_usage(r, USAGE_EXEMPLARS, false, params_get(&r->params, "query"), start_ms,
                           end_ms);
    parse_run_done(&run);
}
