/*
 * /api/v1/rimstone/queries: GET lists what runs or waits on query threads, DELETE kills one of
 * them. Both run on the HTTP thread, since all query threads may be busy when they are needed.
 */
#include <inttypes.h>
#include <stdio.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"

static bool id_parse(struct str text, uint64_t *out)
{
    uint64_t id = 0;

    if (text.size == 0 || text.size > 18)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        id = id * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out = id;
    return true;
}

static void query_kill(struct http_request *r)
{
    char message[64];
    uint64_t id = 0;

    if (!r->server->options.admin_api) {
        reply_admin_disabled(r);
        return;
    }
    if (!id_parse(params_get(&r->params, "id"), &id)) {
        reply_bad_parameter(r, "id", "the id of a query in the list is wanted");
        return;
    }
    if (query_list_kill(&r->server->queries, id)) {
        reply_no_content(r);
        return;
    }
    (void)snprintf(message, sizeof message, "no query with id %" PRIu64 " is running", id);
    reply_err(r, ERR_NOT_FOUND, message);
}

void endpoint_queries(struct http_request *r)
{
    struct byte_writer w;

    if (r->method == METHOD_DELETE) {
        query_kill(r);
        return;
    }
    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"success\",\"data\":{\"queries\":");
    query_list_write(&r->server->queries, &w);
    json_write_raw(&w, "}}");
    reply_body(r, 200, "application/json", &w);
}
