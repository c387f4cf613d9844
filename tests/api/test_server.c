#include "tests/api/test_server.h"

#include "base/file_sim.h"
#include "tests/lib/test_support.h"

void test_server_start(struct test_server *s, const struct test_server_options *o)
{
    struct errinfo ei = {0};
    struct engine_options store = {.clock = &s->clock, .memory = &s->memory, .shard_count = 16};
    struct api_options options = {
        .listen_address = "127.0.0.1:0",
        .max_request_bytes = o->max_request_bytes != 0 ? o->max_request_bytes : 4 << 20,
        .promql = {.lookback_delta_ms = 300000,
                   .default_step_ms = 60000,
                   .max_samples = o->query_max_samples != 0 ? o->query_max_samples : 50000000,
                   .max_memory_bytes = 256 << 20},
        .query_timeout_ms = o->query_timeout_ms != 0 ? o->query_timeout_ms : 60000,
        .query_concurrency = o->query_concurrency != 0 ? o->query_concurrency : 4,
        .query_total_memory_bytes = 512 << 20,
        .memory = &s->memory,
        .clock = &s->clock,
        .config_yaml = "",
        .storage_retention = "",
    };

    *s = (struct test_server){0};
    clock_init_real(&s->clock);
    budget_init(&s->memory, "memory limit",
                o->memory_bytes != 0 ? o->memory_bytes : (uint64_t)1 << 30, NULL);
    s->dir = test_dir_new();
    CHECK_OK(metrics_registry_new(&s->metrics, &ei), &ei);
    if (o->simulated)
        CHECK_OK(fs_sim_new(1, &s->fs, &ei), &ei);
    else
        CHECK_OK(fs_open(s->dir, FS_IO_POSIX, &s->fs, &ei), &ei);
    store.fs = s->fs;
    store.metrics = options.metrics = s->metrics;
    CHECK_OK(engine_open(&store, &s->engine, &ei), &ei);
    CHECK_OK(api_server_new(&options, &s->api, &ei), &ei);
    api_server_set_engine(s->api, s->engine);
    s->port = api_server_port(s->api);
    if (!o->not_ready)
        test_server_make_ready(s);
}

void test_server_make_ready(struct test_server *s)
{
    struct engine_replay_result result;
    struct errinfo ei = {0};

    CHECK_OK(engine_replay(s->engine, 1, &result, &ei), &ei);
    api_server_set_ready(s->api);
}

void test_server_stop(struct test_server *s)
{
    struct errinfo ei = {0};

    CHECK(api_server_stop(s->api, 10000) == API_STOPPED);
    CHECK_OK(engine_close(s->engine, 5000, &ei), &ei);
    api_server_free(s->api);
    fs_free(s->fs);
    metrics_registry_free(s->metrics);
    test_dir_remove(s->dir);
    CHECK(budget_used(&s->memory) == 0);
}
