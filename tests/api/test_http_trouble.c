/* The server among clients that misbehave, full disks and spent memory. */
#include "tests/lib/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/http_internal.h"
#include "base/file_sim.h"
#include "tests/api/http_client.h"
#include "tests/api/http_kit.h"
#include "tests/api/write_body.h"
#include "tests/lib/test_support.h"

/* What cannot be made durable is not acknowledged; queries go on, and so does the server when there
 * is room again. */
static void test_disk_full(void **state)
{
    struct test_server s;
    struct byte_writer request;
    struct http_answer a;
    char value[256];

    (void)state;
    test_server_start(&s, &(struct test_server_options){.simulated = true});
    write_series(&s, "full", 0, 10, clock_now_ms(&s.clock), 1);
    writer_init(&request);
    request_make(&request, "full", 10, 10, clock_now_ms(&s.clock), 1);
    fs_sim_set_fault(s.fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(s.fs));
    http_call(s.port, "POST", WRITE_PATH, "", request.data, request.size, &a);
    CHECK_MSG(a.status == 503, "%d", a.status);
    CHECK(http_header(&a, "Retry-After", value) && strtol(value, NULL, 10) > 0);
    http_answer_done(&a);
    check_status(&s, "GET", "/api/v1/query?query=count(full)", "", NULL, 200);
    fs_sim_clear_fault(s.fs);
    do { /* the sender's retries */
        http_call(s.port, "POST", WRITE_PATH, "", request.data, request.size, &a);
        CHECK(a.status == 503 || a.status == 204);
        http_answer_done(&a);
    } while (a.status != 204);
    check_body(&s, "/api/v1/query?query=count(full)", "\"20\"]");
    writer_done(&request);
    test_server_stop(&s);
}

/* No answer before the sync has returned; and a server whose log hangs says so when it is stopped.
 */
static void test_answer_waits_for_the_disk(void **state)
{
    struct test_server s;
    struct byte_writer request;
    struct http_answer a;
    char byte = 0;
    int fd = -1;

    (void)state;
    test_server_start(&s, &(struct test_server_options){.simulated = true});
    writer_init(&request);
    request_make(&request, "waits", 0, 10, clock_now_ms(&s.clock), 1);
    fs_sim_set_fault(s.fs, FS_SIM_FAULT_SLOW, fs_sim_op_count(s.fs));
    fd = http_connect(s.port);
    http_send_text(fd, "POST /api/v1/write HTTP/1.1\r\nHost: x\r\n");
    char length[64];

    (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n\r\n", request.size);
    http_send_text(fd, length);
    http_send(fd, request.data, request.size);
    while (!fs_sim_fault_hit(s.fs) || atomic_load(&s.api->write_waiting) == 0)
        (void)sched_yield();
    check_status(&s, "GET", "/api/v1/query?query=count(waits)", "", NULL, 200);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1);
    CHECK(api_server_stop(s.api, 300) == API_STOP_WRITES_WAIT);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1);
    fs_sim_clear_fault(s.fs);
    http_read(fd, &a);
    CHECK(a.status == 204);
    http_answer_done(&a);
    (void)close(fd);
    writer_done(&request);
    test_server_stop(&s);
}

/* A client that reads nothing of a large answer costs others nothing and can leave. */
static void test_reader_that_leaves_midway(void **state)
{
    struct test_server s;
    char first[1024];
    int fd = -1;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    for (size_t i = 0; i < 50000; i += 10000)
        write_series(&s, "left", i, 10000, clock_now_ms(&s.clock), 1);
    fd = http_connect(s.port);
    http_send_text(fd, "GET /api/v1/series?match%5B%5D=left HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(recv(fd, first, sizeof first, 0) > 0);
    check_status(&s, "GET", "/api/v1/query?query=count(left)", "", NULL, 200);
    (void)close(fd);
    test_server_stop(&s); /* checks that all memory is given back */
}

/* Half-sent bodies hold only what has come, and nobody else up. */
static void test_slow_senders(void **state)
{
    enum { SLOW_COUNT = 50 };
    struct test_server s;
    int fds[SLOW_COUNT];

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    for (size_t i = 0; i < SLOW_COUNT; i++) {
        fds[i] = http_connect(s.port);
        http_send_text(fds[i], i % 2 == 0 ? "POST /api/v1/write HTTP/1.1\r\nHost: x\r\n"
                                            "Content-Length: 3000000\r\n\r\na few bytes"
                                          : "GET /api/v1/quer");
    }
    for (int i = 0; i < 5; i++) {
        write_series(&s, "brisk", 0, 10, clock_now_ms(&s.clock) + i, i);
        check_status(&s, "GET", "/api/v1/query?query=brisk", "", NULL, 200);
    }
    CHECK(budget_used(&s.api->request_memory) < SLOW_COUNT * (uint64_t)100000);
    for (size_t i = 0; i < SLOW_COUNT; i++)
        (void)close(fds[i]);
    test_server_stop(&s);
}

/* Whatever a request breaks off at, nothing of it stays. */
static void test_broken_off_requests(void **state)
{
    static const char *const starts[] = {
        "GET /api/v1/quer",
        "GET /api/v1/query?query=1 HTTP/1.1\r\n",
        "GET /api/v1/query?query=1 HTTP/1.1\r\nHost: x\r\nAccept-Enc",
        "GET /api/v1/query?query=1 HTTP/1.1\r\nno header at all\r\n\r\n",
        "GET /api/v1/query?query=1 HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n",
        "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /api/v1/series HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nmatch[]=",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    };
    struct test_server s;
    uint64_t deadline_ns = clock_mono_ns() + 20000000000U;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        int fd = http_connect(s.port);

        http_send_text(fd, starts[i]);
        check_status(&s, "GET", "/-/healthy", "", NULL, 200);
        (void)close(fd);
    }
    while (atomic_load(&s.api->active_count) != 0) {
        CHECK(clock_mono_ns() < deadline_ns);
        (void)sched_yield();
    }
    test_server_stop(&s);
}

/* The end of the stream arrives together with the last bytes: libmicrohttpd misses it. */
static void test_clients_that_leave_amid_a_body(void **state)
{
    enum { CLIENTS = 50, BYTES = 40000 };
    struct test_server s;
    char *body = calloc(1, BYTES);
    uint64_t deadline_ns = clock_mono_ns() + 20000000000U;
    int fd = -1;

    (void)state;
    CHECK(body != NULL);
    test_server_start(&s, &(struct test_server_options){0});
    for (size_t i = 0; i < CLIENTS; i++) {
        fd = http_connect(s.port);
        http_send_text(fd, "POST /api/v1/write HTTP/1.1\r\nHost: x\r\n"
                           "Content-Length: 50000\r\n\r\n");
        http_send(fd, body, BYTES);
        (void)close(fd);
    }
    while (atomic_load(&s.api->active_count) != 0) {
        CHECK(clock_mono_ns() < deadline_ns);
        (void)sched_yield();
    }
    free(body);
    test_server_stop(&s);
}

/* A replay may end above the limit: then nothing is taken in, but the server can be looked at. */
static void test_memory_used_up(void **state)
{
    struct test_server s;
    struct http_answer a;
    char value[256];
    size_t size = 0;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    size = s.memory.limit_bytes + 1;
    budget_force(&s.memory, size);
    check_status(&s, "GET", "/-/healthy", "", NULL, 200);
    check_status(&s, "GET", "/-/ready", "", NULL, 200);
    check_status(&s, "GET", "/metrics", "", NULL, 200);
    check_status(&s, "GET", "/api/v1/status/buildinfo?a=b", "", NULL, 200);
    http_get(s.port, "/api/v1/query?query=sum(up)", &a);
    CHECK(a.status == 422 || a.status == 503);
    CHECK(http_body_contains(&a, "memory limit"));
    http_answer_done(&a);
    http_call(s.port, "POST", WRITE_PATH, "", "", 0, &a);
    CHECK(a.status == 503 && http_header(&a, "Retry-After", value));
    http_answer_done(&a);
    budget_release(&s.memory, size);
    check_status(&s, "GET", "/api/v1/query?query=sum(up)", "", NULL, 200);
    test_server_stop(&s);
}

/* Bodies beyond the memory for requests get 503, and all is well when they are gone. */
static void test_memory_for_bodies(void **state)
{
    enum { HOLDERS = 24, PIECE = 1 << 20 };
    struct test_server s;
    struct http_answer a;
    int fds[HOLDERS], damaged = 0, refused = 0;
    char *piece = calloc(1, PIECE);

    (void)state;
    CHECK(piece != NULL);
    test_server_start(&s, &(struct test_server_options){.memory_bytes = 40 << 20});
    for (size_t i = 0; i < HOLDERS; i++) {
        fds[i] = http_connect(s.port);
        http_send_text(fds[i], "POST /api/v1/write HTTP/1.1\r\nHost: x\r\n"
                               "Content-Length: 1048576\r\n\r\n");
        http_send(fds[i], piece, PIECE - 1);
        /* The first eight surely get what they need; the others must fight for the rest. */
        while (i < 8 && budget_used(&s.api->request_memory) < (i + 1) * PIECE)
            (void)sched_yield();
    }
    for (size_t i = HOLDERS; i-- > 0;) {
        http_send(fds[i], piece, 1);
        http_read(fds[i], &a);
        damaged += a.status == 400; /* there was room for it, and zeros are no snappy */
        refused += a.status == 503;
        http_answer_done(&a);
        (void)close(fds[i]);
    }
    CHECK(damaged + refused == HOLDERS);
    CHECK_MSG(damaged >= 8 && refused >= 1, "%d damaged, %d refused", damaged, refused);
    write_series(&s, "after", 0, 100, clock_now_ms(&s.clock), 1);
    free(piece);
    test_server_stop(&s);
}

/* Writers, queries and metadata calls at once; for ThreadSanitizer above all. */
struct worker {
    struct test_server *server;
    struct thread thread;
    unsigned number;
};

enum { WORKER_COUNT = 6, ROUNDS = 25 };

static void *worker_run(void *arg)
{
    static const char *const paths[] = {
        "/api/v1/query?query=sum(rate(mixed[1m]))",
        "/api/v1/query?query=mixed",
        "/api/v1/series?match%5B%5D=mixed",
        "/api/v1/label/i/values",
        "/api/v1/labels",
        "/metrics",
    };
    struct worker *w = arg;
    int64_t now_ms = clock_now_ms(&w->server->clock);

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (w->number < 2)
            write_series(w->server, "mixed", (size_t)w->number * 1000, 500, now_ms + i, i);
        else
            check_status(w->server, "GET", paths[(i + w->number) % 6], "", NULL, 200);
    }
    return NULL;
}

static void test_everything_at_once(void **state)
{
    struct test_server s;
    struct worker workers[WORKER_COUNT] = {{0}};
    struct errinfo ei = {0};

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    for (unsigned i = 0; i < WORKER_COUNT; i++) {
        workers[i].server = &s;
        workers[i].number = i;
        CHECK_OK(thread_start(&workers[i].thread, "worker", worker_run, &workers[i], &ei), &ei);
    }
    for (unsigned i = 0; i < WORKER_COUNT; i++)
        thread_join(&workers[i].thread);
    check_body(&s, "/api/v1/query?query=count(count_over_time(mixed[5m])%20==%2025)", "\"1000\"]");
    test_server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_answer_waits_for_the_disk),
        cmocka_unit_test(test_reader_that_leaves_midway),
        cmocka_unit_test(test_slow_senders),
        cmocka_unit_test(test_broken_off_requests),
        cmocka_unit_test(test_clients_that_leave_amid_a_body),
        cmocka_unit_test(test_memory_used_up),
        cmocka_unit_test(test_memory_for_bodies),
        cmocka_unit_test(test_everything_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
