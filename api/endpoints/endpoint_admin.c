/*
 * The admin API, /api/v1/admin/tsdb/...: deletes, purges, snapshots. Off unless
 * --web.enable-admin-api is given; answers are Prometheus's. It runs in the query pool, since all
 * of it takes as long as it takes.
 */
#include <stdio.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "compactor/compactor.h"
#include "engine/maintain.h"

/* False when a reply was made. */
static bool admin_begin(struct http_request *r)
{
    if (r->server->options.admin_api && server_compactor(r->server) != NULL)
        return true;
    reply_error(r, 500, "unavailable", "admin APIs disabled"); /* Prometheus's own text */
    return false;
}

/* A failure of the store is the server's fault whatever it is, as in Prometheus. */
static void reply_failure(struct http_request *r, enum err e, const struct errinfo *ei)
{
    reply_err(r, e == ERR_CANCELED || e == ERR_UNAVAILABLE ? e : ERR_INTERNAL, ei->message);
}

/* ---- delete_series ---- */

/* Selectors in the order of the request, parsed before anything is deleted. */
struct selectors {
    struct budget memory;
    struct arena arena;
    struct matcher **items; /* in the arena; each to be freed by matcher_done() */
    size_t *counts;
    size_t count;
};

static void selectors_done(struct selectors *s)
{
    for (size_t i = 0; i < s->count; i++) {
        for (size_t k = 0; k < s->counts[i]; k++)
            matcher_done(&s->items[i][k]);
    }
    arena_done(&s->arena);
}

/* False when a reply was made; selectors_done() all the same. */
static bool selectors_read(struct http_request *r, struct selectors *s)
{
    size_t count = params_count(&r->params, "match[]");

    *s = (struct selectors){0};
    query_memory_begin(r->server, &s->memory);
    arena_init(&s->arena, &s->memory);
    s->items = ARENA_ARRAY(&s->arena, count, struct matcher *);
    s->counts = ARENA_ARRAY(&s->arena, count, size_t);
    if (s->items == NULL || s->counts == NULL) {
        struct errinfo ei = {0};

        reply_err(r, arena_error(&s->arena, &ei), ei.message);
        return false;
    }
    for (size_t i = 0; i < r->params.count; i++) {
        const struct param *p = &r->params.items[i];
        struct errinfo ei = {0};
        enum err e;

        if (!str_equal(p->name, STR_LITERAL("match[]")))
            continue;
        e = promql_parse_selector(p->value, &s->arena, &s->items[s->count], &s->counts[s->count],
                                  &ei);
        if (e != ERR_OK) {
            reply_parameter_err(r, "match[]", e, ei.message);
            return false;
        }
        s->count++;
    }
    return true;
}

static void delete_selected(struct http_request *r, const struct selectors *s, int64_t min_time_ms,
                            int64_t max_time_ms)
{
    struct engine *engine = server_engine(r->server);

    for (size_t i = 0; i < s->count && min_time_ms <= max_time_ms; i++) {
        struct errinfo ei = {0};
        enum err e = ERR_OK;

        if (s->counts[i] > 0) /* {} selects nothing here, as in Prometheus */
            e = engine_delete(engine, s->items[i], s->counts[i], min_time_ms, max_time_ms, &ei);
        if (e != ERR_OK) {
            reply_failure(r, e, &ei);
            return;
        }
    }
    reply_no_content(r);
}

void endpoint_delete_series(struct http_request *r)
{
    int64_t min_time_ms = 0, max_time_ms = 0;
    struct selectors s;

    if (!admin_begin(r))
        return;
    if (params_count(&r->params, "match[]") == 0) {
        reply_error(r, 400, "bad_data", "no match[] parameter provided");
        return;
    }
    if (!request_bound(r, "start", TIME_MIN_MS, &min_time_ms) ||
        !request_bound(r, "end", TIME_MAX_MS, &max_time_ms))
        return;
    if (selectors_read(r, &s))
        delete_selected(r, &s, min_time_ms, max_time_ms);
    selectors_done(&s);
}

/* ---- clean_tombstones ---- */

void endpoint_clean_tombstones(struct http_request *r)
{
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    if (!admin_begin(r))
        return;
    e = compactor_clean(server_compactor(r->server), &r->hangup.stop, &ei);
    if (e == ERR_OK)
        reply_no_content(r);
    else
        reply_failure(r, e, &ei);
}

/* ---- snapshot ---- */

/* Go's strconv.ParseBool(). */
static bool bool_parse(struct str text, bool *out)
{
    static const char *const names[2][6] = {{"0", "f", "F", "FALSE", "false", "False"},
                                            {"1", "t", "T", "TRUE", "true", "True"}};

    for (size_t v = 0; v < 2; v++) {
        for (size_t i = 0; i < 6; i++) {
            if (str_equal(text, str_from(names[v][i]))) {
                *out = v == 1;
                return true;
            }
        }
    }
    return false;
}

void endpoint_snapshot(struct http_request *r)
{
    struct str skip_head = params_get(&r->params, "skip_head");
    char name[COMPACTOR_SNAPSHOT_NAME_SIZE];
    struct errinfo ei = {0};
    struct byte_writer w;
    bool skips = false;
    enum err e = ERR_OK;

    if (!admin_begin(r))
        return;
    /* Read, and without effect: the seal has made files of all that was in memory. */
    if (skip_head.size > 0 && !bool_parse(skip_head, &skips)) {
        (void)errinfo_set(&ei, ERR_INVALID, 0,
                          "unable to parse boolean: strconv.ParseBool: parsing \"%.*s\": invalid "
                          "syntax",
                          STR_ARGS(skip_head));
        reply_bad_parameter(r, "skip_head", ei.message);
        return;
    }
    e = compactor_snapshot(server_compactor(r->server), &r->hangup.stop, name, &ei);
    if (e != ERR_OK) {
        errinfo_prefix(&ei, "create snapshot");
        reply_failure(r, e, &ei);
        return;
    }
    writer_init(&w);
    writer_printf(&w, "{\"status\":\"success\",\"data\":{\"name\":\"%s\"}}", name);
    reply_body(r, 200, "application/json", &w);
}
