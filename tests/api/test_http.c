/* The server over real sockets: what clients may send, and what they get. */
#include "tests/lib/test_cmocka.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "api/http/http_internal.h"
#include "tests/api/http_client.h"
#include "tests/api/http_kit.h"
#include "tests/api/write_body.h"
#include "tests/lib/test_support.h"

static void test_status_codes(void **state)
{
    struct test_server s;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    check_status(&s, "GET", WRITE_PATH, "", NULL, 405);
    check_status(&s, "PUT", "/api/v1/query", "", NULL, 405);
    check_status(&s, "DELETE", "/-/healthy", "", NULL, 405);
    check_status(&s, "GET", "/api/v1/nothing", "", NULL, 404);
    check_status(&s, "GET", "/api/v1/label//values", "", NULL, 404);
    check_status(&s, "GET", "/nothing", "", NULL, 404);
    check_status(&s, "HEAD", "/-/healthy", "", NULL, 200);
    check_status(&s, "GET", "/-/ready", "", NULL, 200);
    check_status(&s, "OPTIONS", "/api/v1/query", "Origin: http://x\r\n", NULL, 204);
    check_status(&s, "GET", "/api/v1/query?query=%zz", "", NULL, 400);
    check_status(&s, "GET", "/%zz", "", NULL, 400);
    check_status(&s, "POST", WRITE_PATH, "", "not snappy", 400);
    check_status(&s, "POST", WRITE_PATH, "Content-Type: application/json\r\n", "{}", 415);
    check_status(&s, "POST", WRITE_PATH, "Content-Encoding: gzip\r\n", "x", 415);
    check_status(&s, "POST", WRITE_PATH,
                 "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n",
                 "x", 415);
    test_server_stop(&s);
}

static void test_content_types_that_are_taken(void **state)
{
    static const char *const headers[] = {
        "",
        "Content-Type: application/x-protobuf\r\n",
        "Content-Type: application/x-protobuf;proto=prometheus.WriteRequest\r\n",
        "Content-Type: application/x-protobuf; proto=\"prometheus.WriteRequest\"\r\n",
        "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n",
    };
    struct test_server s;
    struct byte_writer request;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    writer_init(&request);
    request_make(&request, "taken", 0, 1, clock_now_ms(&s.clock), 1);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct http_answer a;

        /* The same sample each time: a repeat is a success. */
        http_call(s.port, "POST", WRITE_PATH, headers[i], request.data, request.size, &a);
        CHECK_MSG(a.status == 204, "%s: %d", headers[i], a.status);
        http_answer_done(&a);
    }
    writer_done(&request);
    test_server_stop(&s);
}

static void test_too_large(void **state)
{
    struct test_server s;
    struct byte_writer request;
    struct http_answer a;
    int fd = -1;

    (void)state;
    test_server_start(&s, &(struct test_server_options){.max_request_bytes = 10000});
    writer_init(&request);
    request_make(&request, "large", 0, 5000, clock_now_ms(&s.clock), 1); /* decodes to > 10,000 */
    CHECK(request.size > body_compressed_max(10000));
    http_call(s.port, "POST", WRITE_PATH, "", request.data, request.size, &a);
    CHECK(a.status == 413);
    http_answer_done(&a);
    writer_reset(&request);
    request_make(&request, "large", 0, 400, clock_now_ms(&s.clock), 1);
    CHECK(request.size < body_compressed_max(10000)); /* small on the wire only */
    http_call(s.port, "POST", WRITE_PATH, "", request.data, request.size, &a);
    CHECK(a.status == 413);
    CHECK(http_body_contains(&a, "larger than the limit"));
    http_answer_done(&a);
    /* What is declared far beyond any limit is answered without being read. */
    fd = http_connect(s.port);
    http_send_text(fd, "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n"
                       "\r\n");
    http_read(fd, &a);
    CHECK(a.status == 413);
    http_answer_done(&a);
    (void)close(fd);
    check_body(&s, "/api/v1/query?query=count(%7B__name__=%22large%22%7D)", "\"result\":[]");
    writer_done(&request);
    test_server_stop(&s);
}

static void test_refusals(void **state)
{
    struct test_server s;
    struct byte_writer request;
    struct http_answer a;
    int64_t now_ms = 0;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    now_ms = clock_now_ms(&s.clock);
    write_series(&s, "refused", 0, 15, now_ms, 1);
    writer_init(&request);
    request_make(&request, "refused", 0, 20, now_ms, 2); /* 15 another value, 5 new */
    http_call(s.port, "POST", WRITE_PATH, "", request.data, request.size, &a);
    CHECK(a.status == 400);
    CHECK(strncmp((const char *)a.body.data, "15 of 20 samples refused (duplicate_timestamp=15)\n",
                  50) == 0);
    CHECK(http_body_contains(&a, "duplicate_timestamp: {__name__=\"refused\", i=\""));
    size_t lines = 0;

    for (size_t i = 0; i < a.body.size; i++)
        lines += a.body.data[i] == '\n';
    CHECK(lines == 11); /* the first and ten examples */
    http_answer_done(&a);
    check_body(&s, "/api/v1/query?query=count(refused)", "\"20\"]");
    writer_done(&request);
    test_server_stop(&s);
}

/* A value that ends as a sample does misleads the first look at a body, not the answer. */
static void test_label_like_a_sample(void **state)
{
    static const char value[] =
        "\x12\x10\x09\x01\x02\x03\x04\x05\x06\x07\x08\x10\xc3\xa9\xe2\x82\xac\x01";
    struct byte_writer body, series, request;
    struct test_server s;
    struct http_answer a;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    writer_init(&body);
    writer_init(&series);
    writer_init(&request);
    body_label(&series, "__name__", "misleading");
    body_sample(&series, clock_now_ms(&s.clock), 1);
    body_series(&body, &series);
    body_label(&series, "z", "v"); /* behind the sample */
    body_series(&body, &series);
    writer_reset(&series);
    body_label(&series, "__name__", "misleading");
    body_label(&series, "z", value);
    body_sample(&series, clock_now_ms(&s.clock), 1);
    body_series(&body, &series);
    body_snappy(&body, &request);
    for (int i = 0; i < 2; i++) { /* new, then known */
        http_call(s.port, "POST", WRITE_PATH, "", request.data, request.size, &a);
        CHECK_MSG(a.status == 204, "%d: %.*s", a.status, (int)a.body.size,
                  (const char *)a.body.data);
        http_answer_done(&a);
    }
    check_body(&s, "/api/v1/query?query=count(misleading)", "\"3\"]");
    check_body(&s, "/metrics", "rimstone_series_received_total 6\n");
    writer_done(&request);
    writer_done(&series);
    writer_done(&body);
    test_server_stop(&s);
}

static void test_not_ready(void **state)
{
    struct test_server s;
    struct http_answer a;
    char value[256];

    (void)state;
    test_server_start(&s, &(struct test_server_options){.not_ready = true});
    http_get(s.port, "/-/ready", &a);
    CHECK(a.status == 503);
    CHECK(http_header(&a, "X-Prometheus-Stopping", value) && strcmp(value, "false") == 0);
    http_answer_done(&a);
    check_status(&s, "GET", "/api/v1/query?query=1", "", NULL, 503);
    check_status(&s, "POST", WRITE_PATH, "", "x", 503);
    check_status(&s, "GET", "/-/healthy", "", NULL, 200);
    check_status(&s, "GET", "/api/v1/status/walreplay", "", NULL, 200);
    check_status(&s, "GET", "/metrics", "", NULL, 200);
    test_server_make_ready(&s);
    check_status(&s, "GET", "/-/ready", "", NULL, 200);
    check_status(&s, "GET", "/api/v1/query?query=1", "", NULL, 200);
    test_server_stop(&s);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    struct test_server s;
    struct http_answer a;
    int fd = -1;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    fd = http_connect(s.port);
    http_send_text(fd, "GET /api/v1/query?query=11&time=1 HTTP/1.1\r\nHost: x\r\n\r\n"
                       "GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
                       "POST /api/v1/query HTTP/1.1\r\nHost: x\r\n"
                       "Content-Type: application/x-www-form-urlencoded\r\n"
                       "Content-Length: 15\r\n\r\nquery=33&time=1"
                       "GET /api/v1/query?query=44&time=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    http_read(fd, &a);
    CHECK(a.status == 200 && http_body_contains(&a, "[1,\"11\"]"));
    http_answer_done(&a);
    http_read(fd, &a);
    CHECK(a.status == 200 && http_body_contains(&a, "Healthy"));
    http_answer_done(&a);
    http_read(fd, &a);
    CHECK(a.status == 200 && http_body_contains(&a, "[1,\"33\"]"));
    http_answer_done(&a);
    http_read(fd, &a);
    CHECK(a.status == 200 && http_body_contains(&a, "[1,\"44\"]"));
    http_answer_done(&a);
    (void)close(fd);
    test_server_stop(&s);
}

/* More than libmicrohttpd could keep: it used to lose such requests, which then stood for minutes.
 */
static void test_many_parameters(void **state)
{
    static const int counts[] = {100, 2000, 4000, 20000};
    struct test_server s;
    struct http_answer a;
    struct byte_writer path;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        writer_init(&path);
        writer_printf(&path, "/api/v1/query?query=7");
        for (int n = 0; n < counts[i]; n++)
            writer_printf(&path, "&a");
        writer_printf(&path, "&time=1");
        writer_u8(&path, 0);
        CHECK(!path.failed);
        http_get(s.port, (const char *)path.data, &a);
        if (counts[i] < PARAM_COUNT_MAX)
            CHECK(a.status == 200 && http_body_contains(&a, "[1,\"7\"]"));
        else
            CHECK(a.status == 400 && http_body_contains(&a, "parameters"));
        http_answer_done(&a);
        writer_done(&path);
    }
    test_server_stop(&s);
}

/* vmalert posts JSON with an empty body and its parameters in the URL. */
static void test_parameters_of_posts(void **state)
{
    struct test_server s;
    struct http_answer a;
    static const char body[] = "query=2&time=9";

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    http_call(s.port, "POST", "/api/v1/query?query=1%2B1&time=4",
              "Content-Type: application/json\r\n", "", 0, &a);
    CHECK(a.status == 200 && http_body_contains(&a, "[4,\"2\"]"));
    http_answer_done(&a);
    http_call(s.port, "POST", "/api/v1/query?query=1&time=4",
              "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n", body,
              sizeof body - 1, &a);
    CHECK(a.status == 200 && http_body_contains(&a, "[9,\"2\"]")); /* the body's first */
    http_answer_done(&a);
    test_server_stop(&s);
}

static void check_unzipped(const struct http_answer *a, int window_bits, const char *text)
{
    enum { SIZE = 8 << 20 };
    unsigned char *out = malloc(SIZE);
    z_stream z = {0};
    struct http_answer plain = {0};

    CHECK(out != NULL);
    CHECK(inflateInit2(&z, window_bits) == Z_OK);
    z.next_in = a->body.data;
    z.avail_in = (uInt)a->body.size;
    z.next_out = out;
    z.avail_out = SIZE;
    CHECK(inflate(&z, Z_FINISH) == Z_STREAM_END);
    CHECK(z.avail_in == 0);
    plain.body.data = out;
    plain.body.size = z.total_out;
    CHECK(http_body_contains(&plain, text));
    CHECK(inflateEnd(&z) == Z_OK);
    free(out);
}

static void test_compressed_answers(void **state)
{
    static const struct {
        const char *header, *encoding;
        int window_bits;
    } cases[] = {
        {"Accept-Encoding: gzip\r\n", "gzip", 15 + 16},
        {"Accept-Encoding: br, deflate, gzip\r\n", "deflate", 15},
        {"Accept-Encoding: gzip;q=0, deflate;q=0.5\r\n", "deflate", 15},
        {"Accept-Encoding: zstd\r\n", NULL, 0},
        {"", NULL, 0},
    };
    /* One answer that is made at once and one that is streamed. */
    static const char *const paths[] = {"/metrics", "/api/v1/series?match%5B%5D=zipped"};
    struct test_server s;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    write_series(&s, "zipped", 0, 5000, clock_now_ms(&s.clock), 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < 2; k++) {
            struct http_answer a;
            char value[256];

            http_call(s.port, "GET", paths[k], cases[i].header, NULL, 0, &a);
            CHECK(a.status == 200 && a.complete);
            CHECK(http_header(&a, "Vary", value) && strcmp(value, "Accept-Encoding") == 0);
            CHECK(http_header(&a, "Content-Encoding", value) == (cases[i].encoding != NULL));
            if (cases[i].encoding != NULL) {
                CHECK(strcmp(value, cases[i].encoding) == 0);
                check_unzipped(&a, cases[i].window_bits,
                               k == 0 ? "prometheus_ready 1" : "\"4999\"");
            }
            http_answer_done(&a);
        }
    }
    test_server_stop(&s);
}

/* Twenty thousand series, streamed: valid JSON, each series once. */
static void test_streamed_series(void **state)
{
    enum { COUNT = 20000 };
    struct test_server s;
    struct http_answer a;
    char value[256];
    json_t *root = NULL, *data = NULL;
    bool *seen = calloc(COUNT, sizeof *seen);

    (void)state;
    CHECK(seen != NULL);
    test_server_start(&s, &(struct test_server_options){0});
    for (size_t i = 0; i < COUNT; i += 5000)
        write_series(&s, "streamed", i, 5000, clock_now_ms(&s.clock), 1);
    /* Both selectors match everything: the union has each series once. */
    for (int sets = 1; sets <= 2; sets++) {
        http_get(s.port,
                 sets == 1 ? "/api/v1/series?match%5B%5D=streamed"
                           : "/api/v1/series?match[]=streamed&match[]=%7Bi=~%22.%2B%22%7D",
                 &a);
        CHECK(a.status == 200 && a.complete);
        CHECK(http_header(&a, "Transfer-Encoding", value));
        root = json_loadb((const char *)a.body.data, a.body.size, 0, NULL);
        CHECK(root != NULL);
        data = json_object_get(root, "data");
        CHECK(json_array_size(data) == COUNT);
        memset(seen, 0, COUNT * sizeof *seen);
        for (size_t i = 0; i < COUNT; i++) {
            const char *text = json_string_value(json_object_get(json_array_get(data, i), "i"));
            size_t k = 0;

            CHECK(text != NULL);
            k = strtoul(text, NULL, 10);
            CHECK(k < COUNT && !seen[k]);
            seen[k] = true;
        }
        json_decref(root);
        http_answer_done(&a);
    }
    http_get(s.port, "/api/v1/query?query=streamed", &a);
    root = json_loadb((const char *)a.body.data, a.body.size, 0, NULL);
    CHECK(a.complete && root != NULL);
    CHECK(json_array_size(json_object_get(json_object_get(root, "data"), "result")) == COUNT);
    json_decref(root);
    http_answer_done(&a);
    free(seen);
    test_server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_codes),
        cmocka_unit_test(test_content_types_that_are_taken),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_label_like_a_sample),
        cmocka_unit_test(test_not_ready),
        cmocka_unit_test(test_pipelined_requests_are_answered_in_order),
        cmocka_unit_test(test_many_parameters),
        cmocka_unit_test(test_parameters_of_posts),
        cmocka_unit_test(test_compressed_answers),
        cmocka_unit_test(test_streamed_series),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
