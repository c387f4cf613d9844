/*
 * /api/v1/series, /api/v1/labels, /api/v1/label/<name>/values: what series there are. The answers
 * are made from the index in batches while they are sent; a series answer holds 32 bytes a series,
 * not their labels.
 */
#include <stdlib.h>
#include <string.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"

enum { SERIES_BATCH = 256 };

/* Everything one metadata call holds, until its last byte is sent. */
struct meta_run {
    struct stream_source source; /* first, so that the two convert */
    struct budget memory;
    struct arena arena;   /* matchers, handles, strings */
    struct arena scratch; /* one batch's labels */
    struct querier *querier;
    struct matcher **owned; /* in the arena: compiled matchers to free */
    size_t *owned_counts;
    struct matcher_set *sets;
    size_t set_count;
    int64_t min_time_ms, max_time_ms;
    size_t limit;
    bool truncated;
    struct series_list series;
    struct str_list strings;
    size_t next; /* item to write */
    bool began;  /* a series has been written */
    /* Takes the place of the request's stop flag once the source may outlive the request. */
    _Atomic bool never_stops;
};

static void meta_run_free(struct stream_source *source)
{
    struct meta_run *m = (struct meta_run *)source;

    if (m == NULL)
        return;
    querier_close(m->querier);
    for (size_t i = 0; i < m->set_count; i++)
        for (size_t k = 0; k < m->owned_counts[i]; k++)
            matcher_done(&m->owned[i][k]);
    arena_done(&m->scratch);
    arena_done(&m->arena);
    query_memory_end(&m->memory);
    free(m);
}

/* Parameters. False when a reply was made. */

/* Prometheus names the parameter for series only. */
static void refuse_selector(struct http_request *r, const char *cause)
{
    if (str_equal(r->path, STR_LITERAL("/api/v1/series")))
        reply_bad_parameter(r, "match[]", cause);
    else
        reply_error(r, 400, "bad_data", cause);
}

static bool selector_parse(struct http_request *r, struct meta_run *m, struct str text)
{
    struct matcher *matchers = NULL;
    struct errinfo ei = {0};
    size_t count = 0;
    bool narrows = false;
    enum err e = promql_parse_selector(text, &m->arena, &matchers, &count, &ei);

    if (e != ERR_OK) {
        if (e == ERR_INVALID || e == ERR_UNSUPPORTED)
            refuse_selector(r, ei.message);
        else
            reply_err(r, e, ei.message);
        return false;
    }
    m->owned[m->set_count] = matchers;
    m->owned_counts[m->set_count] = count;
    m->sets[m->set_count] = (struct matcher_set){matchers, count};
    m->set_count++;
    for (size_t i = 0; i < count; i++)
        narrows |= !matcher_matches_empty(&matchers[i]);
    if (!narrows)
        refuse_selector(r, "match[] must contain at least one non-empty matcher");
    return narrows;
}

static bool selectors_parse(struct http_request *r, struct meta_run *m)
{
    size_t count = params_count(&r->params, "match[]");

    m->sets = ARENA_ARRAY(&m->arena, count, struct matcher_set);
    m->owned = ARENA_ARRAY(&m->arena, count, struct matcher *);
    m->owned_counts = ARENA_ARRAY(&m->arena, count, size_t);
    if (m->sets == NULL || m->owned == NULL || m->owned_counts == NULL) {
        struct errinfo ei = {0};

        reply_err(r, arena_error(&m->arena, &ei), ei.message);
        return false;
    }
    for (size_t i = 0; i < r->params.count; i++) {
        const struct param *p = &r->params.items[i];

        if (str_equal(p->name, STR_LITERAL("match[]")) && !selector_parse(r, m, p->value))
            return false;
    }
    return true;
}

bool request_bound(struct http_request *r, const char *name, int64_t fallback, int64_t *out)
{
    struct str text = params_get(&r->params, name);
    struct errinfo ei = {0};

    *out = fallback;
    if (text.size == 0 || time_parse(text, out, &ei) == ERR_OK)
        return true;
    errinfo_prefix(&ei, "invalid time value for '%s'", name);
    reply_bad_parameter(r, name, ei.message);
    return false;
}

/* Reads what the three endpoints share and opens the store; NULL when a reply was made. */
static struct meta_run *meta_run_new(struct http_request *r)
{
    struct meta_run *m = calloc(1, sizeof *m);
    struct errinfo ei = {0};
    enum err e = ERR_OK;
    bool ok = false;

    if (m == NULL) {
        reply_err(r, ERR_NOMEM, "out of memory for queries");
        return NULL;
    }
    m->source.free = meta_run_free;
    query_memory_begin(r->server, &m->memory);
    arena_init(&m->arena, &m->memory);
    arena_init(&m->scratch, &m->memory);
    if (param_limit_parse(params_get(&r->params, "limit"), &m->limit, &ei) != ERR_OK)
        reply_bad_parameter(r, "limit", ei.message);
    else
        ok = request_bound(r, "start", TIME_MIN_MS, &m->min_time_ms) &&
             request_bound(r, "end", TIME_MAX_MS, &m->max_time_ms) && selectors_parse(r, m);
    if (ok) {
        e = querier_open(server_engine(r->server), &m->querier, &ei);
        if (e != ERR_OK)
            reply_err(r, e, ei.message);
        else
            querier_set_stop(m->querier, &r->hangup.stop);
    }
    if (!ok || e != ERR_OK) {
        meta_run_free(&m->source);
        return NULL;
    }
    return m;
}

/* Selectors of a call that succeeded. */
static void note_usage(struct http_request *r, const struct meta_run *m, enum usage_kind kind)
{
    for (size_t i = 0; i < r->params.count; i++) {
        const struct param *p = &r->params.items[i];

        if (str_equal(p->name, STR_LITERAL("match[]")))
            request_note_usage(r, kind, true, p->value, m->min_time_ms, m->max_time_ms);
    }
}

/* From here on the source is sent by HTTP threads and may outlive the request. */
static void meta_run_reply(struct http_request *r, struct meta_run *m)
{
    struct byte_writer w;

    querier_set_stop(m->querier, &m->never_stops); /* libmicrohttpd notices a client that leaves */
    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"success\",\"data\":[");
    reply_stream(r, "application/json", &w, &m->source);
}

static void end_write(struct byte_writer *w, const struct meta_run *m)
{
    json_write_raw(w, "]");
    if (m->truncated)
        json_write_raw(w, ",\"warnings\":[\"results truncated due to limit\"]");
    json_write_raw(w, "}");
}

/* Strings. */

static enum err strings_fill(struct stream_source *source, struct byte_writer *w, bool *done,
                             struct errinfo *ei)
{
    struct meta_run *m = (struct meta_run *)source;

    (void)ei; /* all in memory */
    while (m->next < m->strings.count && w->size < STREAM_PIECE_BYTES) {
        if (m->next > 0)
            writer_u8(w, ',');
        json_write_string(w, m->strings.items[m->next++]);
    }
    if (m->next == m->strings.count) {
        end_write(w, m);
        *done = true;
    }
    return ERR_OK;
}

static void strings_reply(struct http_request *r, struct meta_run *m, enum err e,
                          const struct errinfo *ei)
{
    if (e != ERR_OK) {
        reply_err(r, e, ei->message);
        meta_run_free(&m->source);
        return;
    }
    note_usage(r, m, USAGE_LABELS);
    m->source.fill = strings_fill;
    meta_run_reply(r, m);
}

void endpoint_labels(struct http_request *r)
{
    struct meta_run *m = meta_run_new(r);
    struct errinfo ei = {0};

    if (m != NULL)
        strings_reply(r, m,
                      querier_label_names(m->querier, m->sets, m->set_count, m->min_time_ms,
                                          m->max_time_ms, m->limit, &m->arena, &m->strings,
                                          &m->truncated, &ei),
                      &ei);
}

void endpoint_label_values(struct http_request *r)
{
    struct str name = label_name_unescape(route_path_name(r->path), &r->arena);
    struct meta_run *m = NULL;
    struct errinfo ei = {0};

    if (name.size == 0 || !utf8_is_valid(name)) {
        (void)errinfo_set(&ei, ERR_INVALID, 0, "invalid label name: \"%.*s\"", STR_ARGS(name));
        reply_error(r, 400, "bad_data", ei.message);
        return;
    }
    m = meta_run_new(r);
    if (m != NULL)
        strings_reply(r, m,
                      querier_label_values(m->querier, name, m->sets, m->set_count, m->min_time_ms,
                                           m->max_time_ms, m->limit, &m->arena, &m->strings,
                                           &m->truncated, &ei),
                      &ei);
}

/* Series. */

static enum err series_fill(struct stream_source *source, struct byte_writer *w, bool *done,
                            struct errinfo *ei)
{
    struct meta_run *m = (struct meta_run *)source;

    while (m->next < m->series.count && w->size < STREAM_PIECE_BYTES) {
        size_t left = m->series.count - m->next;
        size_t count = left < SERIES_BATCH ? left : SERIES_BATCH;
        struct labels *labels = NULL;
        enum err e = ERR_OK;

        arena_reset(&m->scratch);
        labels = ARENA_ARRAY(&m->scratch, count, struct labels);
        if (labels == NULL)
            return arena_error(&m->scratch, ei);
        e = querier_labels(m->querier, m->series.items + m->next, count, &m->scratch, labels, ei);
        if (e != ERR_OK)
            return e;
        for (size_t i = 0; i < count; i++) {
            if (labels[i].count == 0)
                continue; /* ended since */
            if (m->began)
                writer_u8(w, ',');
            m->began = true;
            json_write_labels(w, &labels[i]);
        }
        m->next += count;
    }
    if (m->next == m->series.count) {
        end_write(w, m);
        *done = true;
    }
    return ERR_OK;
}

static int handle_compare(const void *a, const void *b)
{
    const struct series_handle *x = a, *y = b;

    if (x->fingerprint.high != y->fingerprint.high)
        return x->fingerprint.high < y->fingerprint.high ? -1 : 1;
    if (x->fingerprint.low != y->fingerprint.low)
        return x->fingerprint.low < y->fingerprint.low ? -1 : 1;
    return 0;
}

/* The union of the sets' series. One set has no repeats and is not sorted, as in Prometheus. */
static enum err series_select(struct meta_run *m, struct errinfo *ei)
{
    struct series_list all = {0};
    size_t kept = 0;

    for (size_t i = 0; i < m->set_count; i++) {
        struct series_list one = {0};
        struct series_handle *joined = NULL;
        enum err e = querier_select(m->querier, m->sets[i].items, m->sets[i].count, m->min_time_ms,
                                    m->max_time_ms, &m->arena, &one, ei);

        if (e != ERR_OK)
            return e;
        if (m->set_count == 1) {
            m->series = one;
            return ERR_OK;
        }
        joined = arena_grow_array(&m->arena, all.items, all.count, all.count + one.count,
                                  sizeof *all.items);
        if (joined == NULL)
            return arena_error(&m->arena, ei);
        if (one.count > 0)
            memcpy(joined + all.count, one.items, one.count * sizeof *joined);
        all = (struct series_list){all.count + one.count, joined};
    }
    if (all.count > 1)
        qsort(all.items, all.count, sizeof *all.items, handle_compare);
    for (size_t i = 0; i < all.count; i++)
        if (i == 0 || handle_compare(&all.items[i], &all.items[kept - 1]) != 0)
            all.items[kept++] = all.items[i];
    m->series = (struct series_list){kept, all.items};
    return querier_sort(m->querier, &m->series, ei);
}

void endpoint_series(struct http_request *r)
{
    struct meta_run *m = NULL;
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    if (params_count(&r->params, "match[]") == 0) {
        reply_error(r, 400, "bad_data", "no match[] parameter provided");
        return;
    }
    m = meta_run_new(r);
    if (m == NULL)
        return;
    e = series_select(m, &ei);
    if (e != ERR_OK) {
        reply_err(r, e, ei.message);
        meta_run_free(&m->source);
        return;
    }
    if (m->limit != 0 && m->series.count > m->limit) {
        m->series.count = m->limit;
        m->truncated = true;
    }
    note_usage(r, m, USAGE_SERIES);
    m->source.fill = series_fill;
    meta_run_reply(r, m);
}
