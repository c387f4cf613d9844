/*
 * GET /api/v1/rimstone/usage: when each metric name was last queried, how often, and by which kind
 * of endpoint; the queries of late. `name` (repeatable) asks for some names only, `limit` for so
 * many queries (default 100).
 */
#include <inttypes.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "api/usage/usage_internal.h"

enum { QUERIES_DEFAULT = 100 };

void request_note_usage(struct http_request *r, enum usage_kind kind, bool is_selector,
                        struct str text, int64_t min_time_ms, int64_t max_time_ms)
{
    const struct usage_read read = {
        .kind = kind,
        .is_selector = is_selector,
        .text = text,
        .min_time_ms = min_time_ms < TIME_MIN_MS ? TIME_MIN_MS : min_time_ms,
        .max_time_ms = max_time_ms > TIME_MAX_MS ? TIME_MAX_MS : max_time_ms,
        .language = &r->server->options.promql.language,
        .engine = server_engine(r->server),
        .stop = &r->hangup.stop,
    };

    usage_note(r->server->usage, &read);
}

static void seconds_write(struct byte_writer *w, const char *key, uint32_t seconds)
{
    writer_printf(w, "\"%s\":%" PRIu32, key, seconds);
}

static void name_write(struct byte_writer *w, const struct usage_name *n)
{
    const char *separator = "";
    uint64_t count = 0;

    for (int k = 0; k < USAGE_KIND_COUNT; k++)
        count += n->count[k];
    json_write_raw(w, "{\"name\":");
    json_write_string(w, n->name);
    json_write_raw(w, ",");
    seconds_write(w, "lastQueried", n->newest_s);
    writer_printf(w, ",\"count\":%" PRIu64 ",\"byEndpoint\":{", count);
    for (int k = 0; k < USAGE_KIND_COUNT; k++) {
        if (n->count[k] == 0)
            continue;
        writer_printf(w, "%s\"%s\":{\"count\":%" PRIu32 ",", separator,
                      usage_kind_name((enum usage_kind)k), n->count[k]);
        seconds_write(w, "lastQueried", n->last_s[k]);
        json_write_raw(w, "}");
        separator = ",";
    }
    json_write_raw(w, "}}");
}

static void query_write(struct byte_writer *w, const struct usage_query *q)
{
    json_write_raw(w, "{\"query\":");
    json_write_string(w, q->text);
    writer_printf(w, ",\"endpoint\":\"%s\",\"count\":%" PRIu32 ",", usage_kind_name(q->kind),
                  q->count);
    seconds_write(w, "lastQueried", q->last_s);
    json_write_raw(w, "}");
}

static bool is_wanted(const struct params *p, struct str name)
{
    bool any = false;

    for (size_t i = 0; i < p->count; i++) {
        if (!str_equal(p->items[i].name, STR_LITERAL("name")))
            continue;
        if (str_equal(p->items[i].value, name))
            return true;
        any = true;
    }
    return !any;
}

static void snapshot_write(struct byte_writer *w, const struct usage_snapshot *s,
                           const struct params *params, size_t limit)
{
    const char *separator = "";

    json_write_raw(w, "{\"status\":\"success\",\"data\":{");
    seconds_write(w, "since", s->since_s);
    json_write_raw(w, ",");
    seconds_write(w, "completeSince", s->complete_since_s);
    json_write_raw(w, ",\"metrics\":[");
    for (size_t i = 0; i < s->name_count; i++) {
        if (!is_wanted(params, s->names[i].name))
            continue;
        json_write_raw(w, separator);
        name_write(w, &s->names[i]);
        separator = ",";
    }
    json_write_raw(w, "],\"recentQueries\":[");
    for (size_t i = 0; i < s->query_count && i < limit; i++) {
        json_write_raw(w, i == 0 ? "" : ",");
        query_write(w, &s->queries[i]);
    }
    json_write_raw(w, "]}}");
}

void endpoint_usage(struct http_request *r)
{
    struct str text = params_get(&r->params, "limit");
    struct usage_snapshot snapshot;
    struct errinfo ei = {0};
    struct budget memory;
    struct arena arena;
    size_t limit = QUERIES_DEFAULT;
    enum err e;

    if (text.size > 0 && param_limit_parse(text, &limit, &ei) != ERR_OK) {
        reply_bad_parameter(r, "limit", ei.message);
        return;
    }
    query_memory_begin(r->server, &memory);
    arena_init(&arena, &memory);
    e = usage_snapshot(r->server->usage, &arena, &snapshot, &ei);
    if (e == ERR_OK) {
        struct byte_writer w;

        writer_init(&w);
        snapshot_write(&w, &snapshot, &r->params, limit);
        reply_body(r, 200, "application/json", &w);
    } else {
        reply_err(r, e, ei.message);
    }
    arena_done(&arena);
    query_memory_end(&memory);
}
