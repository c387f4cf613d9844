/*
 * /api/v1/status/tsdb: what the memtable holds, and which names and values have most of it.
 */
#include <inttypes.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "engine/cardinality.h"
#include "engine/querier.h"

enum { ROWS_DEFAULT = 10, ROWS_MAX = 10000 };

/* False when a reply was made. */
static bool limit_read(struct http_request *r, size_t *out)
{
    struct str text = params_get(&r->params, "limit");

    *out = ROWS_DEFAULT;
    if (text.size == 0)
        return true;
    if (param_limit_parse(text, out, NULL) != ERR_OK || *out == 0) {
        reply_error(r, 400, "bad_data", "limit must be a positive number");
        return false;
    }
    if (*out > ROWS_MAX) {
        struct errinfo ei = {0};

        (void)errinfo_set(&ei, ERR_INVALID, 0, "limit must not exceed %d", ROWS_MAX);
        reply_error(r, 400, "bad_data", ei.message);
        return false;
    }
    return true;
}

static void list_write(struct byte_writer *w, const char *name, const struct cardinality_list *list)
{
    writer_printf(w, ",\"%s\":[", name);
    for (size_t i = 0; i < list->count; i++) {
        json_write_raw(w, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_string(w, list->rows[i].name);
        writer_printf(w, ",\"value\":%" PRIu64 "}", list->rows[i].value);
    }
    json_write_raw(w, "]");
}

static void answer_write(struct byte_writer *w, const struct engine_stats *st,
                         const struct cardinality *c)
{
    bool is_empty = st->min_time_ms > st->max_time_ms;

    writer_printf(w,
                  "{\"status\":\"success\",\"data\":{\"headStats\":{\"numSeries\":%" PRIu64
                  ",\"numLabelPairs\":%" PRIu64 ",\"chunkCount\":%" PRIu64 ",\"minTime\":%" PRId64
                  ",\"maxTime\":%" PRId64 "}",
                  st->series_count, c->label_pair_count, st->chunk_count,
                  /* As Prometheus says of an empty head. */
                  is_empty ? INT64_MAX : st->min_time_ms, is_empty ? INT64_MIN : st->max_time_ms);
    list_write(w, "seriesCountByMetricName", &c->series_by_metric);
    list_write(w, "labelValueCountByLabelName", &c->values_by_label);
    list_write(w, "memoryInBytesByLabelName", &c->bytes_by_label);
    list_write(w, "seriesCountByLabelValuePair", &c->series_by_pair);
    json_write_raw(w, "}}");
}

void endpoint_tsdb(struct http_request *r)
{
    struct engine *engine = server_engine(r->server);
    struct querier *q = NULL;
    struct budget memory;
    struct arena arena;
    struct cardinality c = {0};
    struct errinfo ei = {0};
    size_t limit = 0;
    enum err e = ERR_OK;

    if (!limit_read(r, &limit))
        return;
    query_memory_begin(r->server, &memory);
    arena_init(&arena, &memory);
    e = querier_open(engine, &q, &ei);
    if (e == ERR_OK) {
        querier_set_stop(q, &r->hangup.stop);
        querier_set_deadline(q, r->deadline_mono_ns);
        e = querier_cardinality(q, limit, &arena, &c, &ei);
        querier_close(q);
    }
    if (e == ERR_OK) {
        struct engine_stats stats;
        struct byte_writer w;

        engine_stats_get(engine, &stats);
        writer_init(&w);
        answer_write(&w, &stats, &c);
        reply_body(r, 200, "application/json", &w);
    } else {
        reply_err(r, e, ei.message);
    }
    arena_done(&arena);
    query_memory_end(&memory);
}
