/*
 * Replies: made once by an endpoint, compressed, and handed to libmicrohttpd as one buffer or as a
 * stream whose pieces are made while it is sent.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "base/log.h"

static const char content_type_text[] = "text/plain; charset=utf-8";
static const char content_type_json[] = "application/json";

enum {
    COMPRESS_BYTES_MIN = 1024, /* below, compression costs more than it saves */
    COMPRESS_LEVEL = 1,        /* the answers are text that repeats itself: 1 is most of the gain */
    STREAM_BLOCK_BYTES = 32 << 10,
};

/* The rest of a streamed answer: owns its source, outlives the request. */
struct stream_reply {
    struct byte_writer pending;
    size_t pos;                   /* in pending */
    struct stream_source *source; /* NULL: pending is the last piece */
    enum compression compression;
    bool zlib_open, zlib_ended;
    z_stream zlib;
};

void reply_header(struct http_request *r, const char *name, const char *value)
{
    if (r->reply.header_count < REPLY_HEADER_COUNT_MAX) {
        r->reply.headers[r->reply.header_count].name = name;
        r->reply.headers[r->reply.header_count].value = value;
        r->reply.header_count++;
    }
}

void reply_body(struct http_request *r, unsigned status, const char *content_type,
                struct byte_writer *body)
{
    if (r->reply.status != 0 || body->failed) {
        writer_done(body);
        if (r->reply.status == 0)
            reply_text(r, 503, "out of memory for the answer\n");
        return;
    }
    r->reply.status = status;
    r->reply.content_type = content_type;
    r->reply.body = *body;
    writer_init(body);
}

void reply_text(struct http_request *r, unsigned status, const char *text)
{
    if (r->reply.status != 0)
        return;
    r->reply.status = status;
    r->reply.content_type = content_type_text;
    writer_init(&r->reply.body);
    json_write_raw(&r->reply.body, text);
}

void reply_no_content(struct http_request *r)
{
    if (r->reply.status == 0)
        r->reply.status = 204;
}

void reply_error(struct http_request *r, unsigned status, const char *error_type,
                 const char *message)
{
    struct byte_writer w;

    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"error\",\"errorType\":");
    json_write_string(&w, str_from(error_type));
    json_write_raw(&w, ",\"error\":");
    json_write_string(&w, str_from(message));
    json_write_raw(&w, "}");
    reply_body(r, status, content_type_json, &w);
}

void reply_err(struct http_request *r, enum err code, const char *message)
{
    switch (code) {
    case ERR_INVALID:
    case ERR_UNSUPPORTED:
        reply_error(r, 400, "bad_data", message);
        break;
    case ERR_EXECUTION:
    case ERR_LIMIT:
        reply_error(r, 422, "execution", message);
        break;
    case ERR_TIMEOUT:
        reply_error(r, 503, "timeout", message);
        break;
    case ERR_UNAVAILABLE:
    case ERR_NOMEM:
        reply_error(r, 503, "unavailable", message);
        break;
    case ERR_CANCELED:
        if (atomic_load_explicit(&r->server->stopping, memory_order_relaxed))
            reply_error(r, 503, "unavailable", "the server is stopping");
        else if (query_list_was_killed(&r->server->queries, &r->entry))
            reply_error(r, 499, "canceled", "query was killed through /api/v1/rimstone/queries");
        else
            reply_error(r, 499, "canceled", message);
        break;
    case ERR_NOT_FOUND:
        reply_error(r, 404, "not_found", message);
        break;
    default:
        LOG_ERROR("request failed", LOG_STR("path", r->route != NULL ? r->route->path : ""),
                  LOG_STR("code", err_name(code)), LOG_STR("error", message));
        reply_error(r, 500, "internal", message);
    }
}

void reply_bad_parameter(struct http_request *r, const char *name, const char *cause)
{
    char text[ERRINFO_MESSAGE_SIZE + 64];

    (void)snprintf(text, sizeof text, "invalid parameter \"%s\": %s", name, cause); /* may cut */
    reply_error(r, 400, "bad_data", text);
}

void reply_admin_disabled(struct http_request *r)
{
    reply_error(r, 500, "unavailable", "admin APIs disabled; --web.enable-admin-api enables them");
}

void reply_parameter_err(struct http_request *r, const char *name, enum err code,
                         const char *message)
{
    if (code == ERR_INVALID || code == ERR_UNSUPPORTED)
        reply_bad_parameter(r, name, message);
    else
        reply_err(r, code, message);
}

void reply_stream(struct http_request *r, const char *content_type, struct byte_writer *body,
                  struct stream_source *source)
{
    unsigned before = r->reply.status;

    reply_body(r, 200, content_type, body);
    if (before != 0 || r->reply.content_type != content_type)
        source->free(source); /* a reply was there, or memory was short */
    else
        r->reply.source = source;
}

/* Compression. */

enum compression compression_choose(const char *accept_encoding)
{
    struct str left = str_from(accept_encoding == NULL ? "" : accept_encoding);

    while (left.size > 0) {
        const char *comma = memchr(left.data, ',', left.size);
        struct str one = {left.data, comma == NULL ? left.size : (size_t)(comma - left.data)};
        const char *semicolon = memchr(one.data, ';', one.size);
        bool refused = false;

        left.data += comma == NULL ? left.size : one.size + 1;
        left.size -= comma == NULL ? left.size : one.size + 1;
        if (semicolon != NULL) {
            size_t rest = one.size - (size_t)(semicolon - one.data);

            refused = memmem(semicolon, rest, "q=0", 3) != NULL &&
                      memmem(semicolon, rest, "q=0.", 4) == NULL;
            one.size = (size_t)(semicolon - one.data);
        }
        while (one.size > 0 && one.data[0] == ' ') {
            one.data++;
            one.size--;
        }
        while (one.size > 0 && one.data[one.size - 1] == ' ')
            one.size--;
        if (!refused && str_equal(one, STR_LITERAL("gzip")))
            return COMPRESSION_GZIP;
        if (!refused && str_equal(one, STR_LITERAL("deflate")))
            return COMPRESSION_DEFLATE;
    }
    return COMPRESSION_NONE;
}

static bool zlib_begin(z_stream *z, enum compression compression)
{
    enum { WINDOW_BITS = 15, GZIP = 16, MEMORY_LEVEL = 8 };

    *z = (z_stream){0};
    return deflateInit2(z, COMPRESS_LEVEL, Z_DEFLATED,
                        compression == COMPRESSION_GZIP ? WINDOW_BITS + GZIP : WINDOW_BITS,
                        MEMORY_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK;
}

/* Compresses a whole body; leaves it as it is when memory is short. */
static void body_compress(struct http_request *r)
{
    struct byte_writer *plain = &r->reply.body, packed;
    z_stream z;
    size_t bound = 0;
    uint8_t *out = NULL;

    if (plain->size > UINT32_MAX / 2 || !zlib_begin(&z, r->compression))
        return;
    writer_init(&packed);
    bound = deflateBound(&z, plain->size);
    out = writer_reserve(&packed, bound);
    if (out != NULL) {
        z.next_in = plain->data;
        z.avail_in = (uInt)plain->size;
        z.next_out = out;
        z.avail_out = (uInt)bound;
        if (deflate(&z, Z_FINISH) == Z_STREAM_END) {
            packed.size = z.total_out;
            writer_done(plain);
            *plain = packed;
            writer_init(&packed);
            r->reply.compressed = true;
        }
    }
    writer_done(&packed);
    (void)deflateEnd(&z); /* the result is complete or dropped */
}

void reply_prepare(struct http_request *r)
{
    struct reply *reply = &r->reply;
    struct errinfo ei = {0};
    enum err e = ERR_OK;
    bool done = false;

    while (reply->source != NULL && !done && e == ERR_OK && reply->body.size < STREAM_PIECE_BYTES) {
        e = reply->source->fill(reply->source, &reply->body, &done, &ei);
        if (e == ERR_OK && reply->body.failed)
            e = errinfo_set(&ei, ERR_NOMEM, 0, "out of memory for the answer");
    }
    if (reply->source != NULL && (done || e != ERR_OK)) {
        reply->source->free(reply->source);
        reply->source = NULL;
    }
    if (e != ERR_OK) {
        writer_done(&reply->body);
        reply->status = 0;
        reply->header_count = 0;
        reply_err(r, e, ei.message);
    }
    if (reply->source == NULL && r->compression != COMPRESSION_NONE &&
        reply->body.size >= COMPRESS_BYTES_MIN)
        body_compress(r);
}

/* Streaming. */

static void stream_reply_free(void *cls)
{
    struct stream_reply *s = cls;

    if (s == NULL)
        return;
    if (s->source != NULL)
        s->source->free(s->source);
    if (s->zlib_open)
        (void)deflateEnd(&s->zlib); /* a cut stream is meant to be cut */
    writer_done(&s->pending);
    free(s);
}

/* Makes pending hold unsent bytes, or leaves it empty at the end. */
static enum err stream_refill(struct stream_reply *s)
{
    while (s->pos == s->pending.size && s->source != NULL) {
        struct errinfo ei = {0};
        bool done = false;
        enum err e = ERR_OK;

        writer_reset(&s->pending);
        s->pos = 0;
        e = s->source->fill(s->source, &s->pending, &done, &ei);
        if (e == ERR_OK && s->pending.failed)
            e = ERR_NOMEM;
        if (e != ERR_OK) {
            LOG_WARN("answer cut short", LOG_STR("error", ei.message));
            return e;
        }
        if (done) {
            s->source->free(s->source);
            s->source = NULL;
        }
    }
    return ERR_OK;
}

static ssize_t stream_deflate(struct stream_reply *s, char *out, size_t size)
{
    s->zlib.next_out = (Bytef *)out;
    s->zlib.avail_out = (uInt)(size > UINT32_MAX ? UINT32_MAX : size);
    while (s->zlib.avail_out > 0 && !s->zlib_ended) {
        size_t left = 0;
        int z = Z_OK;

        if (stream_refill(s) != ERR_OK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        left = s->pending.size - s->pos;
        left = left > UINT32_MAX ? UINT32_MAX : left;
        s->zlib.next_in = s->pending.data == NULL ? NULL : s->pending.data + s->pos;
        s->zlib.avail_in = (uInt)left;
        z = deflate(&s->zlib, left == 0 ? Z_FINISH : Z_NO_FLUSH);
        s->pos += left - s->zlib.avail_in;
        if (z == Z_STREAM_END)
            s->zlib_ended = true;
        else if (z != Z_OK && z != Z_BUF_ERROR)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size = (size_t)((char *)s->zlib.next_out - out);
    return size == 0 ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)size;
}

static ssize_t stream_read(void *cls, uint64_t pos, char *out, size_t size)
{
    struct stream_reply *s = cls;
    size_t left = 0;

    (void)pos; /* strictly forward */
    if (s->compression != COMPRESSION_NONE)
        return stream_deflate(s, out, size);
    if (stream_refill(s) != ERR_OK)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    left = s->pending.size - s->pos;
    if (left == 0)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (left > size)
        left = size;
    memcpy(out, s->pending.data + s->pos, left);
    s->pos += left;
    return (ssize_t)left;
}

static struct MHD_Response *stream_response(struct http_request *r)
{
    struct stream_reply *s = calloc(1, sizeof *s);
    struct MHD_Response *response = NULL;

    if (s == NULL)
        return NULL;
    s->pending = r->reply.body;
    writer_init(&r->reply.body);
    s->source = r->reply.source;
    r->reply.source = NULL;
    s->compression = r->compression;
    if (s->compression != COMPRESSION_NONE) {
        s->zlib_open = zlib_begin(&s->zlib, s->compression);
        if (s->zlib_open)
            r->reply.compressed = true;
        else
            s->compression = COMPRESSION_NONE;
    }
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, stream_read,
                                                 s, stream_reply_free);
    if (response == NULL)
        stream_reply_free(s);
    return response;
}

/* libmicrohttpd's refusals of a header mean a lack of memory: the answer then goes without. */
static void response_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)MHD_add_response_header(response, name, value);
}

static void response_headers(struct http_request *r, struct MHD_Response *response, bool cors)
{
    if (r->reply.content_type != NULL) {
        response_header(response, "Content-Type", r->reply.content_type);
        response_header(response, "Vary", "Accept-Encoding");
    }
    if (r->reply.compressed)
        response_header(response, "Content-Encoding",
                        r->compression == COMPRESSION_GZIP ? "gzip" : "deflate");
    if (cors) {
        response_header(response, "Access-Control-Allow-Headers",
                        "Accept, Authorization, Content-Type, Origin");
        response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        response_header(response, "Access-Control-Allow-Origin", "*");
        response_header(response, "Access-Control-Expose-Headers", "Date");
    }
    for (size_t i = 0; i < r->reply.header_count; i++)
        response_header(response, r->reply.headers[i].name, r->reply.headers[i].value);
}

enum MHD_Result reply_queue(struct http_request *r)
{
    struct MHD_Response *response = NULL;
    enum MHD_Result result = MHD_NO;
    bool cors = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Origin") != NULL;

    r->phase = PHASE_ANSWERED;
    if (r->reply.status == 204 && !cors && r->reply.header_count == 0)
        return MHD_queue_response(r->connection, 204, r->server->no_content);
    if (r->reply.source != NULL) {
        response = stream_response(r);
    } else {
        response = MHD_create_response_from_buffer(r->reply.body.size, r->reply.body.data,
                                                   MHD_RESPMEM_MUST_FREE);
        if (response != NULL)
            writer_init(&r->reply.body); /* the response frees it */
    }
    if (response == NULL)
        return MHD_NO; /* out of memory: the connection is closed */
    response_headers(r, response, cors);
    result = MHD_queue_response(r->connection, r->reply.status, response);
    MHD_destroy_response(response); /* libmicrohttpd holds its own reference */
    return result;
}
