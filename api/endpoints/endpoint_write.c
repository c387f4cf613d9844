/*
 * POST /api/v1/write: remote write 1.0.
 *
 * One HTTP thread does a request's whole work: decompress, walk, store. Then the request is
 * suspended, holding nothing but its text of refusals and the sequence numbers it waits for, and is
 * answered when the log says that they are durable: 2xx means on disk, and so does a 400 that
 * stored a part.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "base/assert.h"
#include "base/log.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static struct str trim(struct str s)
{
    while (s.size > 0 && is_space(s.data[0])) {
        s.data++;
        s.size--;
    }
    while (s.size > 0 && is_space(s.data[s.size - 1]))
        s.size--;
    return s;
}

static bool equal_nocase(struct str a, const char *b)
{
    return a.size == strlen(b) && strncasecmp(a.data, b, a.size) == 0;
}

/* Cuts the text up to `separator` off *rest. */
static struct str next_part(struct str *rest, char separator)
{
    const char *at = rest->size == 0 ? NULL : memchr(rest->data, separator, rest->size);
    struct str part = {rest->data, at == NULL ? rest->size : (size_t)(at - rest->data)};
    size_t step = at == NULL ? rest->size : part.size + 1;

    rest->data += step;
    rest->size -= step;
    return trim(part);
}

/* Absent: version 1. `application/x-protobuf`, alone or with proto=prometheus.WriteRequest. */
static bool content_type_is_v1(const char *header)
{
    struct str rest = str_from(header == NULL ? "" : header);

    if (trim(rest).size == 0)
        return true;
    if (!equal_nocase(next_part(&rest, ';'), "application/x-protobuf"))
        return false;
    while (rest.size > 0) {
        struct str value = next_part(&rest, ';');
        struct str name = next_part(&value, '=');

        value = trim(value);
        if (value.size >= 2 && value.data[0] == '"' && value.data[value.size - 1] == '"')
            value = (struct str){value.data + 1, value.size - 2};
        if (equal_nocase(name, "proto") && !equal_nocase(value, "prometheus.WriteRequest"))
            return false;
    }
    return true;
}

/* Absent: snappy. */
static bool content_encoding_parse(const char *header, enum body_encoding *out)
{
    struct str text = trim(str_from(header == NULL ? "" : header));

    if (text.size == 0 || equal_nocase(text, "snappy"))
        *out = BODY_SNAPPY;
    else if (equal_nocase(text, "zstd"))
        *out = BODY_ZSTD;
    else
        return false;
    return true;
}

static void reply_try_later(struct http_request *r, const char *text)
{
    reply_text(r, 503, text);
    reply_header(r, "Retry-After", "5");
}

void endpoint_write_begin(struct http_request *r)
{
    const char *type = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Type");
    const char *encoding =
        MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Encoding");
    struct errinfo ei = {0};

    if (!content_type_is_v1(type))
        reply_text(r, 415,
                   "unsupported Content-Type: this server takes remote write 1.0 "
                   "(application/x-protobuf; Prometheus: protobuf_message: "
                   "prometheus.WriteRequest)\n");
    else if (!content_encoding_parse(encoding, &r->encoding))
        reply_text(r, 415, "unsupported Content-Encoding: snappy or zstd\n");
    else if (engine_admit(server_engine(r->server), &ei) != ERR_OK)
        reply_try_later(r, ei.message);
}

static struct write_workspace *workspace_get(struct api_server *s)
{
    struct write_workspace *ws = NULL;

    mutex_lock(&s->lock);
    ws = s->workspaces;
    if (ws != NULL)
        s->workspaces = ws->next;
    mutex_unlock(&s->lock);
    if (ws != NULL)
        return ws;
    ws = calloc(1, sizeof *ws);
    if (ws == NULL || remote_write_decoder_init(&ws->decoder, engine_hash_secret(server_engine(s)),
                                                &s->request_memory, NULL) != ERR_OK) {
        write_workspace_free(ws);
        return NULL;
    }
    return ws;
}

static void workspace_put(struct api_server *s, struct write_workspace *ws)
{
    remote_write_decoder_reset(&ws->decoder);
    mutex_lock(&s->lock);
    ws->next = s->workspaces;
    s->workspaces = ws;
    mutex_unlock(&s->lock);
}

void write_workspace_free(struct write_workspace *ws)
{
    if (ws == NULL)
        return;
    body_decoder_done(&ws->body);
    remote_write_decoder_done(&ws->decoder);
    free(ws);
}

/* `N of M samples refused (reason=count, ...)`, then the examples, one a line. */
static void refusals_reply(struct http_request *r, const struct write_result *result)
{
    struct byte_writer w;
    const char *separator = "";

    writer_init(&w);
    writer_printf(&w, "%" PRIu64 " of %" PRIu64 " samples refused (", result->refused_count,
                  result->sample_count);
    for (int i = 0; i < REFUSAL_COUNT; i++) {
        if (result->refused[i] == 0)
            continue;
        writer_printf(&w, "%s%s=%" PRIu64, separator, refusal_name((enum refusal)i),
                      result->refused[i]);
        separator = ", ";
    }
    json_write_raw(&w, ")\n");
    for (uint32_t i = 0; i < result->example_count; i++)
        writer_printf(&w, "%s\n", result->examples[i]);
    reply_body(r, 400, "text/plain; charset=utf-8", &w);
}

/* An error before or while storing, as the sender should act on it. */
static void failure_answer(struct http_request *r, enum err code, const char *message)
{
    switch (code) {
    case ERR_INVALID:
    case ERR_CORRUPT:
        metric_counter_add(r->server->metrics.bad_requests, 1);
        reply_text(r, 400, message);
        break;
    case ERR_LIMIT: /* of the body's size */
        metric_counter_add(r->server->metrics.bad_requests, 1);
        reply_text(r, 413, message);
        break;
    case ERR_UNAVAILABLE:
    case ERR_NOMEM:
    case ERR_NO_SPACE:
    case ERR_IO:
        reply_try_later(r, message);
        break;
    default:
        LOG_ERROR("remote write failed", LOG_STR("code", err_name(code)),
                  LOG_STR("error", message));
        reply_try_later(r, message);
    }
}

static void failure_reply(struct http_request *r, enum err code, const char *message)
{
    failure_answer(r, code, message);
    writer_u8(&r->reply.body, '\n');
}

static void counters_add(struct api_server *s, const struct write_workspace *ws)
{
    const struct remote_write_counts *counts = &ws->decoder.counts;

    metric_counter_add(s->metrics.series_received, counts->series_count);
    metric_counter_add(s->metrics.samples_received, ws->decoder.batch->sample_count);
    if (counts->histogram_count != 0)
        metric_counter_add(s->metrics.histograms_received, counts->histogram_count);
    if (counts->exemplar_count != 0)
        metric_counter_add(s->metrics.exemplars_skipped, counts->exemplar_count);
    if (counts->metadata_count != 0)
        metric_counter_add(s->metrics.metadata_skipped, counts->metadata_count);
}

/* Decompresses the request's body. Gives the compressed body back as soon as it is not needed. */
static enum err body_take(struct http_request *r, struct write_workspace *ws,
                          struct buffer *decoded, struct errinfo *ei)
{
    struct api_server *s = r->server;
    struct bytes body = {0};
    enum err e = ERR_OK;

    if (r->body != NULL)
        body = (struct bytes){r->body->data, r->body->size};
    metric_counter_add(s->metrics.write_bytes_compressed, body.size);
    e = body_decode(&ws->body, r->encoding, body, s->options.max_request_bytes, &s->buffers,
                    decoded, ei);
    buffer_pool_put(&s->buffers, r->body);
    r->body = NULL;
    if (e != ERR_OK)
        return e;
    metric_counter_add(s->metrics.write_bytes_decoded, decoded->size);
    return ERR_OK;
}

static enum err batch_store(struct http_request *r, struct write_workspace *ws, struct errinfo *ei)
{
    struct engine *engine = server_engine(r->server);
    struct write_result *result = &ws->result;
    enum err e = ERR_OK;

    if (r->sequences == NULL)
        r->sequences = calloc(engine_shard_count(engine), sizeof *r->sequences);
    if (r->sequences == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "out of memory for requests");
    result->sequences = r->sequences;
    e = engine_write(engine, ws->decoder.batch, result, ei);
    if (e != ERR_INVALID)
        counters_add(r->server, ws);
    if (e == ERR_OK && result->refused_count != 0)
        refusals_reply(r, result);
    return e;
}

/* Walks a decoded body and stores it. The labels of known series are passed over; where that does
 * not work out, for whatever reason, all is walked. */
static enum err body_store(struct http_request *r, struct write_workspace *ws, struct bytes body,
                           struct errinfo *ei)
{
    enum err e = remote_write_v1_guess(&ws->decoder, body, ei);

    if (e == ERR_OK) {
        e = batch_store(r, ws, ei);
        if (e != ERR_INVALID)
            return e;
    }
    errinfo_clear(ei);
    e = remote_write_v1_decode(&ws->decoder, body, ei);
    return e == ERR_OK ? batch_store(r, ws, ei) : e;
}

static bool waits_for_log(const struct http_request *r, uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++)
        if (r->sequences[i] != 0)
            return true;
    return false;
}

/* The committer's thread. */
static void write_is_durable(struct wal_waiter *waiter, enum err code)
{
    struct http_request *r =
        (struct http_request *)((char *)waiter - offsetof(struct http_request, waiter));

    r->durable = code;
    MHD_resume_connection(r->connection);
}

void endpoint_write(struct http_request *r)
{
    struct api_server *s = r->server;
    struct engine *engine = server_engine(s);
    struct write_workspace *ws = workspace_get(s);
    struct buffer *decoded = buffer_pool_get(&s->buffers);
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    if (ws != NULL && decoded != NULL) {
        e = body_take(r, ws, decoded, &ei);
        if (e == ERR_OK)
            e = body_store(r, ws, (struct bytes){decoded->data, decoded->size}, &ei);
    } else {
        e = errinfo_set(&ei, ERR_NOMEM, 0, "out of memory for requests");
    }
    if (ws != NULL)
        workspace_put(s, ws);
    buffer_pool_put(&s->buffers, decoded);
    if (e != ERR_OK) {
        failure_reply(r, e, ei.message);
        return;
    }
    if (!waits_for_log(r, engine_shard_count(engine))) {
        reply_no_content(r); /* unless there were refusals */
        return;
    }
    r->waiter = (struct wal_waiter){.sequences = r->sequences, .done = write_is_durable};
    request_suspend(r);
    engine_wait_durable(engine, &r->waiter); /* r is the committer's until it is resumed */
}

void endpoint_write_end(struct http_request *r)
{
    if (r->durable != ERR_OK) {
        writer_done(&r->reply.body); /* refusals do not matter now */
        r->reply.status = 0;
        r->reply.header_count = 0;
        reply_try_later(r, r->durable == ERR_NO_SPACE ? "the disk is full: not stored durably\n"
                                                      : "the log failed: not stored durably\n");
        return;
    }
    reply_no_content(r);
}
