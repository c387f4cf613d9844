/*
 * The small endpoints: health, status, and what is empty here by design.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"

static const char json_type[] = "application/json";

static void begin(struct byte_writer *w)
{
    writer_init(w);
    json_write_raw(w, "{\"status\":\"success\",\"data\":");
}

static void end(struct http_request *r, struct byte_writer *w)
{
    json_write_raw(w, "}");
    reply_body(r, 200, json_type, w);
}

static void field(struct byte_writer *w, const char *name, const char *value, bool first)
{
    if (!first)
        writer_u8(w, ',');
    json_write_string(w, str_from(name));
    writer_u8(w, ':');
    json_write_string(w, str_from(value));
}

static void reply_data(struct http_request *r, const char *data)
{
    struct byte_writer w;

    begin(&w);
    json_write_raw(&w, data);
    end(r, &w);
}

/* False when a reply was made. */
static bool metadata_limit_check(struct http_request *r, const char *name)
{
    struct str text = params_get(&r->params, name);
    struct errinfo ei = {0};
    size_t limit = 0;

    if (text.size > 1 && text.data[0] == '-')
        text = (struct str){text.data + 1, text.size - 1}; /* negative: no limit */
    if (param_limit_parse(text, &limit, &ei) == ERR_OK)
        return true;
    ei = (struct errinfo){0}; /* the first message would win */
    (void)errinfo_set(&ei, ERR_INVALID, 0, "%s must be a number", name);
    reply_error(r, 400, "bad_data", ei.message);
    return false;
}

void endpoint_metadata(struct http_request *r)
{
    if (!metadata_limit_check(r, "limit") || !metadata_limit_check(r, "limit_per_metric"))
        return;
    reply_data(r, "{}"); /* metadata in messages is not kept yet */
}

void endpoint_rules(struct http_request *r)
{
    reply_data(r, "{\"groups\":[]}"); /* true: this server evaluates none */
}

void endpoint_alerts(struct http_request *r)
{
    reply_data(r, "{\"alerts\":[]}");
}

/* `features` is left out on purpose: Grafana takes a server with features for a Mimir. */
void endpoint_buildinfo(struct http_request *r)
{
    struct byte_writer w;

    begin(&w);
    json_write_raw(&w, "{");
    field(&w, "version", api_prometheus_version, true);
    field(&w, "application", "rimstone", false);
    field(&w, "applicationVersion", api_version, false);
    field(&w, "revision", "", false);
    field(&w, "branch", "", false);
    field(&w, "buildUser", "", false);
    field(&w, "buildDate", "", false);
    field(&w, "goVersion", "", false);
    json_write_raw(&w, "}");
    end(r, &w);
}

/* RFC 3339 in UTC with milliseconds. */
static void time_field(struct byte_writer *w, const char *name, int64_t t_ms, bool first)
{
    time_t seconds = (time_t)(t_ms / 1000);
    struct tm parts;
    char day[32], text[64];

    if (gmtime_r(&seconds, &parts) == NULL || strftime(day, sizeof day, "%FT%T", &parts) == 0)
        day[0] = '\0';
    (void)snprintf(text, sizeof text, "%s.%03dZ", day, (int)(t_ms % 1000)); /* fits */
    field(w, name, text, first);
}

void endpoint_runtimeinfo(struct http_request *r)
{
    struct api_server *s = r->server;
    char cwd[PATH_MAX], host[256];
    struct byte_writer w;

    if (getcwd(cwd, sizeof cwd) == NULL)
        cwd[0] = '\0';
    if (gethostname(host, sizeof host) != 0)
        host[0] = '\0';
    host[sizeof host - 1] = '\0';
    begin(&w);
    json_write_raw(&w, "{");
    time_field(&w, "startTime", s->start_ms, true);
    field(&w, "CWD", cwd, false);
    field(&w, "hostname", host, false);
    time_field(&w, "serverTime", clock_now_ms(s->options.clock), false);
    mutex_lock(&s->lock);
    bool failed = s->reload.failed;
    int64_t last_ms = s->reload.last_ms;
    mutex_unlock(&s->lock);
    writer_printf(&w, ",\"reloadConfigSuccess\":%s", failed ? "false" : "true");
    time_field(&w, "lastConfigTime", last_ms, false);
    writer_printf(&w, ",\"corruptionCount\":0,\"GOMAXPROCS\":%" PRIu32, thread_cpu_count());
    field(&w, "storageRetention", s->options.storage_retention, false);
    json_write_raw(&w, "}");
    end(r, &w);
}

void endpoint_flags(struct http_request *r)
{
    const struct api_options *o = &r->server->options;
    struct byte_writer w;

    begin(&w);
    json_write_raw(&w, "{");
    for (size_t i = 0; i < o->flag_count; i++)
        field(&w, o->flags[i].name, o->flags[i].value, i == 0);
    json_write_raw(&w, "}");
    end(r, &w);
}

void endpoint_config(struct http_request *r)
{
    struct byte_writer w;

    begin(&w);
    json_write_raw(&w, "{");
    mutex_lock(&r->server->lock);
    const char *text = r->server->reload.text;
    field(&w, "yaml", text == NULL ? r->server->options.config_yaml : text, true);
    mutex_unlock(&r->server->lock);
    json_write_raw(&w, "}");
    end(r, &w);
}

void endpoint_walreplay(struct http_request *r)
{
    struct engine *engine = server_engine(r->server);
    struct wal_progress progress = {0};
    struct byte_writer w;

    if (engine != NULL)
        engine_replay_progress(engine, &progress);
    begin(&w);
    writer_printf(&w, "{\"min\":%" PRIu64 ",\"max\":%" PRIu64 ",\"current\":%" PRIu64 "}",
                  progress.segment_min, progress.segment_max, progress.segment_current);
    end(r, &w);
}

void endpoint_healthy(struct http_request *r)
{
    reply_text(r, 200, "Rimstone is Healthy.\n");
}

void endpoint_ready(struct http_request *r)
{
    reply_text(r, 200, "Rimstone is Ready.\n"); /* the gate has let it through */
}

void endpoint_index(struct http_request *r)
{
    struct byte_writer w;

    writer_init(&w);
    json_write_raw(&w, "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">"
                       "<title>Rimstone</title></head><body><h1>Rimstone ");
    json_write_raw(&w, api_version);
    json_write_raw(&w, "</h1><p>A Prometheus-compatible time-series store.</p><ul>"
                       "<li>remote write: POST <code>/api/v1/write</code></li>"
                       "<li>Grafana: add this address as a data source of type Prometheus</li>"
                       "<li><a href=\"/metrics\">/metrics</a></li>"
                       "<li><a href=\"/api/v1/status/buildinfo\">/api/v1/status/buildinfo</a></li>"
                       "<li><a href=\"/-/ready\">/-/ready</a></li></ul></body></html>\n");
    reply_body(r, 200, "text/html; charset=utf-8", &w);
}
