/*
 * `rimtool rules suggest`: metrics that nobody reads, as rules ready to be reviewed.
 *
 * A server says which metrics it has and what they cost (rimstone/cardinality), and which were
 * queried (rimstone/usage). Whatever dashboards and rule files name counts as read, queried or not;
 * what their selectors without a name mean the server is asked too, by a call that does not count
 * as a query.
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "promql/ast.h"
#include "tools/options_internal.h"
#include "tools/rules_internal.h"
#include "tools/rules_suggest_internal.h"
#include "tools/server_client_internal.h"
#include "tools/used_names_internal.h"

enum { METRICS_MAX = 100000, DAY_S = 86400 };

struct options {
    const char *url, *unused_for;
    int64_t unused_ms;
    struct tool_texts dashboards, rules;
    bool json, quiet;
};

struct run {
    const struct options *o;
    struct used_names used;
    struct arena arena;
    struct suggestions found;
    uint32_t complete_since_s;
    json_t *usage, *memory, *day; /* answers; texts are borrowed from them */
    struct errinfo ei;
};

static const char usage[] =
    "usage: rimtool rules suggest [options]\n"
    "Prints rules that drop the metrics which nobody reads, most expensive first, as they may\n"
    "stand in the configuration: for review, nothing is changed.\n\n"
    "  --url URL          the server (http://127.0.0.1:9440)\n"
    "  --unused-for TIME  metrics that were not queried for so long (30d)\n"
    "  --dashboards DIR   what the Grafana dashboards (*.json) below DIR read counts as read;\n"
    "                     may be repeated\n"
    "  --rules DIR        the same for rule files (*.yml, *.yaml)\n"
    "  --json             one object with the metrics and figures\n"
    "  --quiet            no warnings about expressions that say too little\n\n"
    "Exit code 1 when the server refuses, 2 when it or a file could not be read.\n";

/* ---- options ---- */

/* -1: go on; else the exit code. */
static int options_read(struct options *o, int argc, char **argv)
{
    const struct tool_option options[] = {
        {.name = "url", .text = &o->url},
        {.name = "unused-for", .text = &o->unused_for},
        {.name = "dashboards", .texts = &o->dashboards},
        {.name = "rules", .texts = &o->rules},
        {.name = "json", .flag = &o->json},
        {.name = "quiet", .flag = &o->quiet},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 0, 0};
    int operands, code;

    *o = (struct options){.url = SERVER_URL_DEFAULT, .unused_for = "30d"};
    code = tool_options_parse(&command, argc, argv, &operands);
    if (code >= 0 || promql_duration_parse(str_from(o->unused_for), &o->unused_ms, NULL) == ERR_OK)
        return code;
    fprintf(stderr, "%s: bad value \"%s\" for --unused-for, a time such as 30d\n", argv[0],
            o->unused_for);
    return 2;
}

/* ---- what is read ---- */

static void warn_of(void *ctx, const char *file, struct str expression, const char *what)
{
    const struct run *r = ctx;

    if (!r->o->quiet)
        fprintf(stderr, "rimtool rules suggest: %s: %s: %.*s\n", file, what, STR_ARGS(expression));
}

static enum err files_read(struct run *r)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->o->dashboards.count && e == ERR_OK; i++)
        e = used_names_dashboards(&r->used, r->o->dashboards.items[i], &r->ei);
    for (size_t i = 0; i < r->o->rules.count && e == ERR_OK; i++)
        e = used_names_rules(&r->used, r->o->rules.items[i], &r->ei);
    return e;
}

static const json_t *metrics_of(const json_t *cardinality)
{
    return json_object_get(cardinality, "seriesCountByMetricName");
}

static struct str name_of(const json_t *row)
{
    const json_t *name = json_object_get(row, "name");

    return (struct str){json_string_value(name), json_string_length(name)};
}

/* The names that a selector finds, by the server. */
static enum err selector_resolve(struct run *r, struct str selector)
{
    struct byte_writer path;
    json_t *data = NULL;
    enum err e;

    writer_init(&path);
    writer_printf(&path, "/api/v1/rimstone/cardinality?limit=%d&match%%5B%%5D=", (int)METRICS_MAX);
    url_escape(&path, selector);
    writer_u8(&path, 0);
    e = path.failed ? errinfo_set(&r->ei, ERR_NOMEM, 0, "a selector")
                    : server_get(r->o->url, (const char *)path.data, &data, &r->ei);
    for (size_t i = 0; e == ERR_OK && i < json_array_size(metrics_of(data)); i++)
        if (!text_set_add(&r->used.names, &r->used.arena,
                          name_of(json_array_get(metrics_of(data), i))))
            e = errinfo_set(&r->ei, ERR_NOMEM, 0, "names of metrics");
    writer_done(&path);
    json_decref(data);
    return e;
}

static enum err selectors_resolve(struct run *r)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->used.selectors.count && e == ERR_OK; i++)
        e = selector_resolve(r, r->used.selectors.items[i]);
    return e;
}

/* Of the names in `usage`: those that were queried of late count as read, the others have a last
 * time. */
static enum err usage_take(struct run *r, json_t **last)
{
    const json_t *metrics = json_object_get(r->usage, "metrics");
    int64_t limit_s = (int64_t)r->found.now_s - r->o->unused_ms / 1000;

    r->found.since_s = (uint32_t)json_integer_value(json_object_get(r->usage, "since"));
    r->complete_since_s = (uint32_t)json_integer_value(json_object_get(r->usage, "completeSince"));
    r->found.is_short = r->complete_since_s > limit_s;
    *last = json_object();
    for (size_t i = 0; i < json_array_size(metrics); i++) {
        const json_t *row = json_array_get(metrics, i);
        json_int_t at_s = json_integer_value(json_object_get(row, "lastQueried"));
        struct str name = name_of(row);

        if (name.data == NULL)
            continue;
        if (at_s >= limit_s && !text_set_add(&r->used.names, &r->used.arena, name))
            return errinfo_set(&r->ei, ERR_NOMEM, 0, "names of metrics");
        (void)json_object_setn_new(*last, name.data, name.size, json_integer(at_s));
    }
    return *last == NULL ? errinfo_set(&r->ei, ERR_NOMEM, 0, "names of metrics") : ERR_OK;
}

/* ---- what there is ---- */

/* Bytes a day by name, of the day before this one, or of this one in a store that is younger. */
static enum err day_get(struct run *r, json_t **bytes)
{
    enum err e = ERR_OK;

    *bytes = json_object();
    for (int back = 1; back >= 0 && e == ERR_OK && json_object_size(*bytes) == 0; back--) {
        char path[128];
        time_t at = (time_t)(r->found.now_s - (uint32_t)back * DAY_S);
        struct tm day;
        double share;

        if (gmtime_r(&at, &day) == NULL)
            break;
        (void)snprintf(path, sizeof path,
                       "/api/v1/rimstone/cardinality?limit=%d&day=%04d-%02d-%02d", (int)METRICS_MAX,
                       day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
        json_decref(r->day);
        r->day = NULL;
        e = server_get(r->o->url, path, &r->day, &r->ei);
        share = json_number_value(json_object_get(r->day, "hours")) / 24;
        for (size_t i = 0; e == ERR_OK && i < json_array_size(metrics_of(r->day)); i++) {
            const json_t *row = json_array_get(metrics_of(r->day), i);
            double all = json_number_value(json_object_get(row, "bytes"));
            struct str name = name_of(row);

            if (name.data != NULL && share > 0)
                (void)json_object_setn_new(*bytes, name.data, name.size, json_real(all / share));
        }
    }
    return e;
}

static int by_cost(const void *a, const void *b)
{
    const struct suggestion *x = a, *y = b;

    if (x->samples_per_second != y->samples_per_second)
        return x->samples_per_second < y->samples_per_second ? 1 : -1;
    if (x->series != y->series)
        return x->series < y->series ? 1 : -1;
    return str_compare(x->name, y->name);
}

static enum err suggestions_make(struct run *r, const json_t *last, const json_t *bytes)
{
    const json_t *metrics = metrics_of(r->memory);
    size_t count = json_array_size(metrics);
    struct suggestions *s = &r->found;

    s->items = ARENA_ARRAY(&r->arena, count, struct suggestion);
    if (s->items == NULL)
        return errinfo_set(&r->ei, ERR_NOMEM, 0, "metrics");
    s->metric_count = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(metrics, i), *day;
        struct str name = name_of(row);

        if (name.data == NULL || text_set_has(&r->used.names, name))
            continue;
        day = json_object_getn(bytes, name.data, name.size);
        s->items[s->count++] = (struct suggestion){
            .name = name,
            .series = (uint64_t)json_integer_value(json_object_get(row, "value")),
            .samples_per_second = json_number_value(json_object_get(row, "samplesPerSecond")),
            .bytes_per_day = day == NULL ? -1 : json_number_value(day),
            .last_s = (uint32_t)json_integer_value(json_object_getn(last, name.data, name.size)),
        };
    }
    qsort(s->items, s->count, sizeof *s->items, by_cost);
    return ERR_OK;
}

static void warn_of_gaps(const struct run *r)
{
    if (r->found.metric_count >= METRICS_MAX)
        fprintf(stderr,
                "rimtool rules suggest: only the %d metrics with most series were looked at\n",
                (int)METRICS_MAX);
    if (r->found.is_short && !r->o->json)
        fprintf(stderr, "rimtool rules suggest: the server has not counted queries for %s yet\n",
                r->o->unused_for);
}

static enum err suggest(struct run *r)
{
    char path[96];
    json_t *last = NULL, *bytes = NULL;
    enum err e = files_read(r);

    (void)snprintf(path, sizeof path, "/api/v1/rimstone/cardinality?limit=%d", (int)METRICS_MAX);
    if (e == ERR_OK)
        e = server_get(r->o->url, "/api/v1/rimstone/usage?limit=1", &r->usage, &r->ei);
    if (e == ERR_OK)
        e = usage_take(r, &last);
    if (e == ERR_OK)
        e = selectors_resolve(r);
    if (e == ERR_OK)
        e = server_get(r->o->url, path, &r->memory, &r->ei);
    if (e == ERR_OK)
        e = day_get(r, &bytes);
    if (e == ERR_OK)
        e = suggestions_make(r, last, bytes);
    json_decref(last);
    json_decref(bytes);
    return e;
}

int rules_suggest(int argc, char **argv)
{
    struct options o;
    struct clock clock;
    struct run r = {.o = &o};
    enum err e;
    int code = options_read(&o, argc, argv);

    if (code >= 0)
        return code;
    clock_init_real(&clock);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* a failure shows at the first call */
    arena_init(&r.arena, NULL);
    used_names_init(&r.used);
    r.used.warn = warn_of;
    r.used.warn_ctx = &r;
    r.found.now_s = (uint32_t)(clock_now_ms(&clock) / 1000);
    r.found.unused_for = o.unused_for;
    e = suggest(&r);
    code = e == ERR_OK ? 0 : e == ERR_INVALID ? 1 : 2;
    if (e == ERR_OK) {
        warn_of_gaps(&r);
        if (!(o.json ? suggestions_print_json(&r.found)
                     : suggestions_print_rules(&r.found, &r.arena)))
            code = 2;
    } else {
        fprintf(stderr, "rimtool rules suggest: %s\n", r.ei.message);
    }
    json_decref(r.usage);
    json_decref(r.memory);
    json_decref(r.day);
    used_names_done(&r.used);
    arena_done(&r.arena);
    return code;
}
