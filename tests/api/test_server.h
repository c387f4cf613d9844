/*
 * A whole server in the test's process: store in a temporary directory, any free port.
 */
#ifndef RIMSTONE_TESTS_TEST_SERVER_H
#define RIMSTONE_TESTS_TEST_SERVER_H

#include "api/server.h"
#include "base/file.h"
#include "engine/engine.h"

struct test_server {
    char *dir;
    struct fs *fs;
    struct clock clock;
    struct budget memory;
    struct metrics_registry *metrics;
    struct engine *engine;
    struct api_server *api;
    uint16_t port;
};

struct test_server_options {
    uint64_t memory_bytes;      /* 0: 1 GiB */
    size_t max_request_bytes;   /* 0: 4 MiB */
    uint64_t query_timeout_ms;  /* 0: 60 s */
    uint32_t query_concurrency; /* 0: 4 */
    uint64_t query_max_samples; /* 0: 50 M */
    bool not_ready;
    bool simulated; /* files in memory, whose faults a test can set */
};

/* Aborts on failure. */
void test_server_start(struct test_server *s, const struct test_server_options *options);
void test_server_make_ready(struct test_server *s);
void test_server_stop(struct test_server *s);

#endif
