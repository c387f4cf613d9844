#include "tests/api/http_kit.h"

#include <stdio.h>
#include <string.h>

#include "tests/api/http_client.h"
#include "tests/api/write_body.h"
#include "tests/lib/test_support.h"

void request_make(struct byte_writer *out, const char *name, size_t first, size_t count,
                  int64_t t_ms, double value)
{
    struct byte_writer body, series;
    char text[32];

    writer_init(&body);
    writer_init(&series);
    for (size_t i = first; i < first + count; i++) {
        writer_reset(&series);
        (void)snprintf(text, sizeof text, "%zu", i);
        body_label(&series, "__name__", name);
        body_label(&series, "i", text);
        body_sample(&series, t_ms, value);
        body_series(&body, &series);
    }
    body_snappy(&body, out);
    writer_done(&body);
    writer_done(&series);
}

void write_series(const struct test_server *s, const char *name, size_t first, size_t count,
                  int64_t t_ms, double value)
{
    struct byte_writer request;
    struct http_answer a;

    writer_init(&request);
    request_make(&request, name, first, count, t_ms, value);
    http_call(s->port, "POST", WRITE_PATH, "", request.data, request.size, &a);
    CHECK_MSG(a.status == 204 && a.body.size == 0, "%s%.*s", a.headers, (int)a.body.size,
              (const char *)a.body.data);
    http_answer_done(&a);
    writer_done(&request);
}

void check_status(const struct test_server *s, const char *method, const char *path,
                  const char *headers, const char *body, int status)
{
    struct http_answer a;

    http_call(s->port, method, path, headers, body, body == NULL ? 0 : strlen(body), &a);
    CHECK_MSG(a.status == status, "%s %s %s: %d, not %d: %.*s", method, path, headers, a.status,
              status, (int)a.body.size, (const char *)a.body.data);
    CHECK(strcmp(method, "HEAD") == 0 || a.complete);
    http_answer_done(&a);
}

void check_body(const struct test_server *s, const char *path, const char *text)
{
    struct http_answer a;

    http_get(s->port, path, &a);
    CHECK_MSG(http_body_contains(&a, text), "%s: no %s in %.*s", path, text, (int)a.body.size,
              (const char *)a.body.data);
    http_answer_done(&a);
}
