/*
 * GET /api/v1/rimstone/limits: the limits in effect, what they have refused, and who met them.
 */
#include <inttypes.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "engine/limits.h"

static void state_write(struct byte_writer *w, const struct limit_state *at)
{
    writer_printf(w, "{\"limit\":\"%s\"", limit_kind_name(at->kind));
    if (at->label.size > 0) {
        json_write_raw(w, ",\"label\":");
        json_write_string(w, at->label);
    }
    writer_printf(w,
                  ",\"max\":%" PRIu64 ",\"warn\":%" PRIu64 ",\"refusals\":%" PRIu64
                  ",\"samplesRefused\":%" PRIu64 ",\"warnings\":%" PRIu64 "}",
                  at->limit.max, at->limit.warn, at->refusals, at->samples_refused, at->warnings);
}

static void offender_write(struct byte_writer *w, const struct limit_offender *at)
{
    writer_printf(w, "{\"limit\":\"%s\",\"label\":", limit_kind_name(at->kind));
    json_write_string(w, at->label);
    json_write_raw(w, ",\"value\":");
    json_write_string(w, at->value);
    writer_printf(w, ",\"series\":%" PRIu64 ",\"refusals\":%" PRIu64 ",\"lastSeen\":", at->series,
                  at->refusals);
    json_write_time(w, at->last_ms);
    json_write_raw(w, "}");
}

static void report_write(struct byte_writer *w, const struct limits_report *report)
{
    writer_printf(w, "{\"status\":\"success\",\"data\":{\"activeSeries\":%" PRIu64 ",\"limits\":[",
                  report->active_series);
    for (size_t i = 0; i < report->state_count; i++) {
        json_write_raw(w, i == 0 ? "" : ",");
        state_write(w, &report->states[i]);
    }
    json_write_raw(w, "],\"offenders\":[");
    for (size_t i = 0; i < report->offender_count; i++) {
        json_write_raw(w, i == 0 ? "" : ",");
        offender_write(w, &report->offenders[i]);
    }
    json_write_raw(w, "]}}");
}

void endpoint_limits(struct http_request *r)
{
    struct limits_report report;
    struct errinfo ei = {0};
    struct byte_writer w;
    enum err e = engine_limits_report(server_engine(r->server), &r->arena, &report, &ei);

    if (e != ERR_OK) {
        reply_err(r, e, ei.message);
        return;
    }
    writer_init(&w);
    report_write(&w, &report);
    reply_body(r, 200, "application/json", &w);
}
