/* The command line: values, refusals, and that --help and the defaults agree. */
#include "tests/lib/test_cmocka.h"

#include <string.h>

#include "api/flags.h"
#include "tests/lib/test_support.h"

enum { ARGS_MAX = 10 };

static const uint64_t machine_bytes = (uint64_t)10 << 30;

static enum flags_outcome parse(struct server_flags *f, struct byte_writer *text,
                                const char *const args[ARGS_MAX])
{
    char *argv[ARGS_MAX + 2] = {(char *)"rimstone"};
    int argc = 1;

    while (argc <= ARGS_MAX && args[argc - 1] != NULL) {
        argv[argc] = (char *)args[argc - 1];
        argc++;
    }
    writer_init(text);
    return flags_parse(argc, argv, machine_bytes, f, text);
}

static void test_defaults(void **state)
{
    struct server_flags f;
    struct byte_writer text;

    (void)state;
    CHECK(parse(&f, &text, (const char *const[ARGS_MAX]){NULL}) == FLAGS_RUN);
    CHECK(f.config_file == NULL);
    CHECK(strcmp(f.data_dir, "data/") == 0);
    CHECK(strcmp(f.listen_address, "127.0.0.1:9440") == 0);
    CHECK(f.memory_limit_bytes == machine_bytes / 100 * 60);
    CHECK(f.query_total_memory_bytes == f.memory_limit_bytes / 2);
    CHECK(f.query_max_memory_bytes == 1 << 30);
    CHECK(f.query_timeout_ms == 120000 && f.query_concurrency == 20);
    CHECK(f.query_threads == 0);
    CHECK(f.query_max_samples == 50000000 && f.lookback_delta_ms == 300000);
    CHECK(f.max_request_bytes == 32 << 20);
    CHECK(f.wal_sync == WAL_SYNC_ALWAYS && f.wal_sync_interval_ms == 1000);
    CHECK(f.wal_io == FS_IO_AUTO && f.replay_threads == 0 && f.shard_count == 0);
    CHECK(!f.promql_language.experimental_functions && !f.delayed_name_removal);
    CHECK(f.retention_ms == UINT64_C(15) * 86400000 && f.retention_bytes == 0);
    CHECK(f.seal_interval_ms == 1800000 && !f.clock_is_data);
    CHECK(f.compactor_threads == 0 && !f.admin_api);
    CHECK(f.log_level == LOG_LEVEL_INFO && f.log_format == LOG_FORMAT_LOGFMT);
    writer_done(&text);
}

static void test_values(void **state)
{
    static const char features[] =
        "--enable-feature=promql-experimental-functions,promql-duration-expr,"
        "promql-binop-fill-modifiers,promql-delayed-name-removal";
    struct server_flags f;
    struct byte_writer text;

    (void)state;
    CHECK(parse(&f, &text,
                (const char *const[ARGS_MAX]){"--storage.memory-limit=512MB", "--wal.sync",
                                              "interval", "--wal.io=posix", "--query.timeout=5m",
                                              "--query.timeout=1m30s", "--no-web.enable-lifecycle",
                                              features, "--storage.shards=64"}) == FLAGS_RUN);
    CHECK(f.memory_limit_bytes == (uint64_t)512 << 20);
    CHECK(f.wal_sync == WAL_SYNC_INTERVAL && f.wal_io == FS_IO_POSIX);
    CHECK(f.query_timeout_ms == 90000 && f.shard_count == 64);
    CHECK(f.promql_language.experimental_functions && f.delayed_name_removal);
    CHECK(f.promql_language.binop_fill_modifiers);
    CHECK(!f.promql_language.extended_range_selectors && !f.type_and_unit_labels);
    writer_done(&text);
}

static void test_maintenance(void **state)
{
    struct server_flags f;
    struct byte_writer text;

    (void)state;
    CHECK(parse(&f, &text,
                (const char *const[ARGS_MAX]){"--storage.seal-interval=10m", "--storage.clock=data",
                                              "--compactor.threads=2", "--web.enable-admin-api",
                                              "--storage.tsdb.retention.time=1y",
                                              "--storage.tsdb.retention.size=10GB"}) == FLAGS_RUN);
    CHECK(f.seal_interval_ms == 600000 && f.clock_is_data && f.compactor_threads == 2);
    CHECK(f.admin_api && f.retention_ms == UINT64_C(365) * 86400000);
    CHECK(f.retention_bytes == UINT64_C(10) << 30);
    writer_done(&text);
}

/* A size alone takes the place of the default age, as in Prometheus. */
static void test_retention_defaults(void **state)
{
    struct server_flags f;
    struct byte_writer text;

    (void)state;
    CHECK(parse(&f, &text, (const char *const[ARGS_MAX]){"--storage.tsdb.retention.size=1TB"}) ==
          FLAGS_RUN);
    CHECK(f.retention_ms == 0 && f.retention_bytes == UINT64_C(1) << 40);
    writer_done(&text);
    CHECK(parse(&f, &text, (const char *const[ARGS_MAX]){"--storage.tsdb.retention.time=0s"}) ==
          FLAGS_RUN);
    CHECK(f.retention_ms == 0 && f.retention_bytes == 0);
    writer_done(&text);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
        bool ok;
    } cases[] = {
        {"0", 0, true},
        {"100B", 100, true},
        {"1KB", 1024, true},
        {"1KiB", 1024, true},
        {"2GiB", (uint64_t)2 << 30, true},
        {"16PiB", (uint64_t)16 << 50, true},
        {"", 0, false},
        {"MiB", 0, false},
        {"1.5MiB", 0, false},
        {"-1", 0, false},
        {"1 MiB", 0, false},
        {"1mib", 0, false},
        {"99999999999999999999", 0, false},
        {"20000000TB", 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 0;

        CHECK_MSG(flags_size_parse(str_from(cases[i].text), &bytes) == cases[i].ok, "%s",
                  cases[i].text);
        CHECK(!cases[i].ok || bytes == cases[i].bytes);
    }
}

/* Each refusal names its flag, and what it takes. */
static void test_refused(void **state)
{
    static const struct {
        const char *args[ARGS_MAX];
        const char *named;
    } cases[] = {
        {{"--no.such.flag=1"}, "no.such.flag"},
        {{"stray"}, "unexpected argument 'stray'"},
        {{"-x"}, "-x"},
        {{"--query.timeout"}, "query.timeout"},
        {{"--query.timeout=soon"}, "a duration such as 30s or 1h30m from 1ms to 1d"},
        {{"--query.timeout=0"}, "query.timeout"},
        {{"--query.max-samples=-1"}, "query.max-samples"},
        {{"--query.max-samples=0"}, "query.max-samples"},
        {{"--query.max-concurrency=4x"}, "expected a whole number from 1 to 1000"},
        {{"--storage.shards=3"}, "storage.shards"},
        {{"--storage.shards=8192"}, "storage.shards"},
        {{"--storage.memory-limit=much"}, "8GiB, or 1% to 100%, from 16MiB on"},
        {{"--storage.memory-limit=500"}, "storage.memory-limit"},
        {{"--query.max-memory=1"}, "a size such as 512MiB from 1MiB on"},
        {{"--web.max-request-size=2GiB"}, "a size such as 512MiB from 1KiB to 1GiB"},
        {{"--storage.memory-limit=0%"}, "storage.memory-limit"},
        {{"--storage.memory-limit=101%"}, "storage.memory-limit"},
        {{"--storage.tsdb.path="}, "storage.tsdb.path"},
        {{"--web.listen-address=nowhere"}, "web.listen-address"},
        {{"--web.listen-address=:65536"}, "web.listen-address"},
        {{"--web.listen-address=127.0.0.1:4294967296"}, "web.listen-address"},
        {{"--web.listen-address=[::1]:"}, "web.listen-address"},
        {{"--web.listen-address=:-1"}, "web.listen-address"},
        {{"--web.listen-address=:http"}, "web.listen-address"},
        {{"--wal.sync=sometimes"}, "wal.sync=sometimes: expected one of always, interval, never"},
        {{"--log.level=loud"}, "log.level"},
        {{"--enable-feature=native-histograms"}, "enable-feature"},
        {{"--storage.seal-interval=999ms"}, "storage.seal-interval"},
        {{"--storage.seal-interval=2d"}, "storage.seal-interval"},
        {{"--storage.clock=mine"}, "storage.clock"},
        {{"--compactor.threads=257"}, "compactor.threads"},
        {{"--web.enable-admin-api=yes"}, "web.enable-admin-api"},
        {{"--storage.tsdb.retention.time=forever"}, "storage.tsdb.retention.time"},
        {{"--storage.tsdb.retention.time=2000y"}, "from 0 to 366000d"},
        {{"--storage.tsdb.retention.size=big"}, "storage.tsdb.retention.size"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct server_flags f;
        struct byte_writer text;

        CHECK_MSG(parse(&f, &text, cases[i].args) == FLAGS_WRONG, "%s", cases[i].args[0]);
        CHECK_MSG(memmem(text.data, text.size, cases[i].named, strlen(cases[i].named)) != NULL,
                  "%.*s", (int)text.size, (const char *)text.data);
        writer_done(&text);
    }
}

static void test_help_names_every_flag(void **state)
{
    struct server_flags f;
    struct byte_writer text, unused;

    (void)state;
    CHECK(parse(&f, &unused, (const char *const[ARGS_MAX]){NULL}) == FLAGS_RUN);
    writer_done(&unused);
    CHECK(f.row_count > 20);
    struct server_flags rows = f;

    CHECK(parse(&f, &text, (const char *const[ARGS_MAX]){"--help"}) == FLAGS_PRINT);
    for (size_t i = 0; i < rows.row_count; i++)
        CHECK(memmem(text.data, text.size, rows.rows[i].name, strlen(rows.rows[i].name)) != NULL);
    writer_done(&text);
    CHECK(parse(&f, &text, (const char *const[ARGS_MAX]){"--version"}) == FLAGS_PRINT);
    CHECK(memmem(text.data, text.size, api_version, strlen(api_version)) != NULL);
    writer_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_maintenance),
        cmocka_unit_test(test_retention_defaults),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_help_names_every_flag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
