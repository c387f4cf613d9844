/*
 * /api/v1/rimstone/drop_rules: GET lists the rules in effect, POST adds some or replaces those of
 * the same name, DELETE removes one. Behind --web.enable-admin-api.
 */
#include <inttypes.h>
#include <stdio.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "api/rule_book.h"
#include "api/rules/drop_rule_json_internal.h"
#include "api/rules/rule_figures_internal.h"

static void state_write(struct byte_writer *w, const struct drop_rule_state *at)
{
    json_write_raw(w, "{\"name\":");
    json_write_string(w, at->rule.name);
    json_write_raw(w, ",\"comment\":");
    json_write_string(w, at->rule.comment);
    writer_printf(
        w, ",\"source\":\"%s\",\"rule\":", at->rule.origin == DROP_RULE_API ? "api" : "file");
    drop_rule_write_what(w, &at->rule);
    writer_printf(w,
                  ",\"series_dropped\":%" PRIu64 ",\"samples_dropped\":%" PRIu64 ",\"purge\":%s}",
                  at->series_dropped, at->samples_dropped, at->rule.purge ? "true" : "false");
}

static void list(struct http_request *r)
{
    struct drop_rule_state *states = NULL;
    struct errinfo ei = {0};
    struct byte_writer w;
    struct arena arena; /* the request's has room for parameters only */
    size_t count = 0;
    enum err e;

    arena_init(&arena, &r->server->query_memory);
    e = engine_rules_state(server_engine(r->server), &arena, &states, &count, &ei);
    if (e != ERR_OK) {
        arena_done(&arena);
        reply_err(r, e, ei.message);
        return;
    }
    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"success\",\"data\":[");
    for (size_t i = 0; i < count; i++) {
        json_write_raw(&w, i == 0 ? "" : ",");
        state_write(&w, &states[i]);
    }
    json_write_raw(&w, "]}");
    arena_done(&arena);
    reply_body(r, 200, "application/json", &w);
}

/* `figures`: NULL for none. */
static void reply_change(struct http_request *r, enum err e, const struct rule_change *change,
                         const struct rule_figures *figures, const struct errinfo *ei)
{
    const struct rule_purges *p = &change->purges;
    struct byte_writer w;

    if (e != ERR_OK) {
        reply_err(r, e, ei->message);
        return;
    }
    writer_init(&w);
    writer_printf(&w,
                  "{\"status\":\"success\",\"data\":{\"series_forgotten\":%" PRIu64
                  ",\"keys_removed\":%" PRIu64,
                  change->applied.series_forgotten, change->applied.keys_removed);
    if (figures != NULL && figures->rule_count > 0)
        rule_figures_write(figures, &w);
    if (p->withdrawn > 0)
        writer_printf(&w,
                      ",\"restored\":{\"purges\":%" PRIu64 ",\"files\":%" PRIu64
                      ",\"files_left\":%" PRIu64 "}",
                      p->withdrawn, p->file_count, p->file_left);
    json_write_raw(&w, "}}");
    reply_body(r, 200, "application/json", &w);
}

static void add(struct http_request *r)
{
    struct rule_change change = {0};
    struct rule_figures figures = {0};
    struct errinfo ei = {0};
    struct str text = {"", 0};
    enum err e;

    if (r->body != NULL)
        text = (struct str){(const char *)r->body->data, r->body->size};
    e = rule_figures_get(r, text, &figures, &ei);
    if (e == ERR_OK)
        e = rule_book_add(r->server->options.rules, text, &change, &ei);
    if (e == ERR_OK && figures.rule_count > 0)
        rule_figures_log(&figures);
    reply_change(r, e, &change, &figures, &ei);
}

static void delete (struct http_request *r)
{
    struct str name = params_get(&r->params, "name");
    struct rule_change change = {0};
    struct errinfo ei = {0};
    enum err e;

    if (name.size == 0) {
        reply_bad_parameter(r, "name", "the name of a rule of the API is wanted");
        return;
    }
    e = rule_book_remove(r->server->options.rules, name, &change, &ei);
    reply_change(r, e, &change, NULL, &ei);
}

void endpoint_drop_rules(struct http_request *r)
{
    if (!r->server->options.admin_api || r->server->options.rules == NULL) {
        reply_admin_disabled(r);
        return;
    }
    if (r->method == METHOD_POST)
        add(r);
    else if (r->method == METHOD_DELETE)
        delete (r);
    else
        list(r);
}

/* ---- /-/reload and /-/quit ---- */

static bool lifecycle_begin(struct http_request *r)
{
    if (r->server->options.lifecycle)
        return true;
    reply_text(r, 403, "Lifecycle API is not enabled.");
    return false;
}

void endpoint_reload(struct http_request *r)
{
    const struct api_options *o = &r->server->options;
    struct errinfo ei = {0};
    char message[ERRINFO_MESSAGE_SIZE + 64];

    if (!lifecycle_begin(r))
        return;
    if (o->reload(o->process, &ei) == ERR_OK) {
        reply_text(r, 200, "");
        return;
    }
    (void)snprintf(message, sizeof message, "failed to reload config: %s", ei.message);
    reply_text(r, 500, message);
}

void endpoint_quit(struct http_request *r)
{
    const struct api_options *o = &r->server->options;

    if (!lifecycle_begin(r))
        return;
    reply_text(r, 200, "Requesting termination... Goodbye!");
    o->quit(o->process);
}
