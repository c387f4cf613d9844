#include "api/flags.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http/json_internal.h"
#include "engine/engine.h"
#include "promql/ast.h"

enum flag_kind {
    KIND_TEXT,
    KIND_BOOL,
    KIND_DURATION,
    KIND_SIZE,
    KIND_MEMORY,
    KIND_COUNT,
    KIND_CHOICE
};

enum flag_id {
    FLAG_CONFIG_FILE,
    FLAG_PATH,
    FLAG_RETENTION_TIME,
    FLAG_RETENTION_SIZE,
    FLAG_MEMORY_LIMIT,
    FLAG_SHARDS,
    FLAG_SEAL_INTERVAL,
    FLAG_CLOCK,
    FLAG_WAL_SYNC,
    FLAG_WAL_SYNC_INTERVAL,
    FLAG_WAL_IO,
    FLAG_REPLAY_THREADS,
    FLAG_COMPACTOR_THREADS,
    FLAG_LISTEN,
    FLAG_MAX_REQUEST,
    FLAG_ADMIN_API,
    FLAG_LIFECYCLE,
    FLAG_QUERY_TIMEOUT,
    FLAG_QUERY_CONCURRENCY,
    FLAG_QUERY_THREADS,
    FLAG_QUERY_SAMPLES,
    FLAG_QUERY_MEMORY,
    FLAG_QUERY_TOTAL_MEMORY,
    FLAG_LOOKBACK,
    FLAG_FEATURE,
    FLAG_LOG_LEVEL,
    FLAG_LOG_FORMAT,
    FLAG_COUNT,
};
_Static_assert((int)FLAG_COUNT <= (int)FLAG_COUNT_MAX, "FLAG_COUNT_MAX is too small");

/* A thousand years: sums of times and ages stay far from overflow. */
#define RETENTION_MS_MAX (UINT64_C(1000) * 366 * 86400000)

struct flag_spec {
    const char *name;
    enum flag_kind kind;
    const char *fallback; /* default, as text */
    const char *help;
    const char *choices[4]; /* KIND_CHOICE; the value is the index */
    uint64_t least, most;   /* numbers; most 0: no bound */
};

static const struct flag_spec specs[FLAG_COUNT] = {
    [FLAG_CONFIG_FILE] = {.name = "config.file",
                          .kind = KIND_TEXT,
                          .fallback = "",
                          .help = "YAML configuration (optional)"},
    [FLAG_PATH] = {.name = "storage.tsdb.path",
                   .kind = KIND_TEXT,
                   .fallback = "data/",
                   .help = "where the data lie"},
    [FLAG_RETENTION_TIME] = {.name = "storage.tsdb.retention.time",
                             .kind = KIND_DURATION,
                             .fallback = "15d",
                             .help = "age at which data go, counted back from the newest 2 h "
                                     "window on disk; 0 for none; none also when only a size is "
                                     "given",
                             .most = RETENTION_MS_MAX},
    [FLAG_RETENTION_SIZE] = {.name = "storage.tsdb.retention.size",
                             .kind = KIND_SIZE,
                             .fallback = "0",
                             .help = "size of all files beyond which the oldest data go, 0 for "
                                     "none"},
    [FLAG_MEMORY_LIMIT] =
        {.name = "storage.memory-limit",
         .kind = KIND_MEMORY,
         .fallback = "60%",
         .help = "memory of the store and of queries: a share of the cgroup's limit or of "
                 "the machine's memory, or a size",
         .least = 16 << 20}, /* an empty store has about 8 MiB */
    [FLAG_SHARDS] =
        {.name = "storage.shards",
         .kind = KIND_COUNT,
         .fallback = "0",
         .help = "units of parallel work, a power of two; another number than a data directory has "
                 "rewrites its newest data at the start; 0: as it is, of a new one by memory, at "
                 "least 16",
         .most = WAL_SHARD_COUNT_MAX},
    [FLAG_SEAL_INTERVAL] = {.name = "storage.seal-interval",
                            .kind = KIND_DURATION,
                            .fallback = "30m",
                            .help = "longest time for which samples are in memory and log only",
                            .least = 1000,
                            .most = 86400000},
    [FLAG_CLOCK] = {.name = "storage.clock",
                    .kind = KIND_CHOICE,
                    .fallback = "wall",
                    .help =
                        "wall, or data: the newest accepted timestamp is now, for benchmarks and "
                        "replays of history",
                    .choices = {"wall", "data"}},
    [FLAG_WAL_SYNC] =
        {.name = "wal.sync",
         .kind = KIND_CHOICE,
         .fallback = "always",
         .help = "always: answered when on disk; interval: synced at times; never: left to the "
                 "kernel",
         .choices = {"always", "interval", "never"}},
    [FLAG_WAL_SYNC_INTERVAL] = {.name = "wal.sync-interval",
                                .kind = KIND_DURATION,
                                .fallback = "1s",
                                .help = "for --wal.sync=interval",
                                .least = 1,
                                .most = 3600000},
    [FLAG_WAL_IO] = {.name = "wal.io",
                     .kind = KIND_CHOICE,
                     .fallback = "auto",
                     .help = "auto: io_uring where the kernel allows it, else plain calls",
                     .choices = {"auto", "uring", "posix"}},
    [FLAG_REPLAY_THREADS] = {.name = "wal.replay-threads",
                             .kind = KIND_COUNT,
                             .fallback = "0",
                             .help = "threads of the replay, 0 for all cores",
                             .most = 4096},
    [FLAG_COMPACTOR_THREADS] = {.name = "compactor.threads",
                                .kind = KIND_COUNT,
                                .fallback = "0",
                                .help = "workers of the compactor, 0 for half the cores",
                                .most = 256},
    [FLAG_LISTEN] = {.name = "web.listen-address",
                     .kind = KIND_TEXT,
                     .fallback = "127.0.0.1:9440",
                     .help = "host:port to listen on; :port is every address"},
    [FLAG_MAX_REQUEST] = {.name = "web.max-request-size",
                          .kind = KIND_SIZE,
                          .fallback = "32MiB",
                          .help = "largest decoded remote-write body",
                          .least = 1024,
                          .most = (uint64_t)1 << 30},
    [FLAG_ADMIN_API] = {.name = "web.enable-admin-api",
                        .kind = KIND_BOOL,
                        .fallback = "false",
                        .help = "endpoints that delete series, purge, make snapshots, kill "
                                "queries and change drop rules"},
    [FLAG_LIFECYCLE] = {.name = "web.enable-lifecycle",
                        .kind = KIND_BOOL,
                        .fallback = "false",
                        .help = "POST /-/reload reads the configuration anew, /-/quit ends the "
                                "server"},
    [FLAG_QUERY_TIMEOUT] = {.name = "query.timeout",
                            .kind = KIND_DURATION,
                            .fallback = "2m",
                            .help = "longest run of a query, its wait included",
                            .least = 1,
                            .most = 86400000},
    [FLAG_QUERY_CONCURRENCY] = {.name = "query.max-concurrency",
                                .kind = KIND_COUNT,
                                .fallback = "20",
                                .help = "queries at once; others wait",
                                .least = 1,
                                .most = 1000},
    [FLAG_QUERY_THREADS] = {.name = "query.threads",
                            .kind = KIND_COUNT,
                            .fallback = "0",
                            .help = "threads of one query with many series; 0: one per core",
                            .least = 0,
                            .most = 256},
    [FLAG_QUERY_SAMPLES] = {.name = "query.max-samples",
                            .kind = KIND_COUNT,
                            .fallback = "50000000",
                            .help = "samples one query may hold",
                            .least = 1},
    [FLAG_QUERY_MEMORY] = {.name = "query.max-memory",
                           .kind = KIND_SIZE,
                           .fallback = "1GiB",
                           .help = "memory of one query",
                           .least = 1 << 20},
    [FLAG_QUERY_TOTAL_MEMORY] = {.name = "query.max-total-memory",
                                 .kind = KIND_SIZE,
                                 .fallback = "0",
                                 .help = "memory of all queries; 0: half the memory limit"},
    [FLAG_LOOKBACK] = {.name = "query.lookback-delta",
                       .kind = KIND_DURATION,
                       .fallback = "5m",
                       .help = "how far an instant selector looks back",
                       .least = 1,
                       .most = UINT64_C(10000) * 86400000},
    [FLAG_FEATURE] = {.name = "enable-feature",
                      .kind = KIND_TEXT,
                      .fallback = "",
                      .help = "experimental features as Prometheus names them, a comma-separated "
                              "list of promql-experimental-functions, "
                              "promql-extended-range-selectors, promql-binop-fill-modifiers, "
                              "promql-delayed-name-removal, promql-per-step-stats, "
                              "use-start-timestamps and type-and-unit-labels; "
                              "promql-duration-expr is on anyway"},
    [FLAG_LOG_LEVEL] = {.name = "log.level",
                        .kind = KIND_CHOICE,
                        .fallback = "info",
                        .help = "debug, info, warn or error",
                        .choices = {"debug", "info", "warn", "error"}},
    [FLAG_LOG_FORMAT] = {.name = "log.format",
                         .kind = KIND_CHOICE,
                         .fallback = "logfmt",
                         .help = "logfmt or json",
                         .choices = {"logfmt", "json"}},
};

/* What was read: each flag's text, and its number where it has one. */
struct reading {
    const char *text[FLAG_COUNT];
    uint64_t number[FLAG_COUNT];
    bool given[FLAG_COUNT];
    uint64_t machine_memory_bytes;
    struct byte_writer *why;
};

bool flags_size_parse(struct str text, uint64_t *out)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0},    {"B", 0},    {"KB", 10}, {"KiB", 10}, {"MB", 20}, {"MiB", 20},
                 {"GB", 30}, {"GiB", 30}, {"TB", 40}, {"TiB", 40}, {"PB", 50}, {"PiB", 50},
                 {"K", 10},  {"M", 20},   {"G", 30},  {"T", 40}};
    uint64_t v = 0;
    size_t i = 0;

    for (; i < text.size && text.data[i] >= '0' && text.data[i] <= '9'; i++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(text.data[i] - '0'), &v))
            return false;
    if (i == 0)
        return false;
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        if (!str_equal((struct str){text.data + i, text.size - i}, str_from(units[u].name)))
            continue;
        if (v > UINT64_MAX >> units[u].shift)
            return false;
        *out = v << units[u].shift;
        return true;
    }
    return false;
}

static bool memory_parse(const char *text, uint64_t machine, uint64_t *out)
{
    size_t size = strlen(text);
    char *end = NULL;
    unsigned long percent = 0;

    if (size == 0 || text[size - 1] != '%')
        return flags_size_parse(str_from(text), out) && *out > 0;
    if (text[0] < '0' || text[0] > '9')
        return false;
    percent = strtoul(text, &end, 10);
    if (end != text + size - 1 || percent < 1 || percent > 100)
        return false;
    *out = machine / 100 * percent;
    return true;
}

static bool duration_parse(const char *text, uint64_t *out)
{
    int64_t ms = 0;

    if (promql_duration_parse(str_from(text), &ms, NULL) != ERR_OK || ms < 0)
        return false;
    *out = (uint64_t)ms;
    return true;
}

static bool choice_parse(const struct flag_spec *spec, const char *text, uint64_t *out)
{
    for (size_t i = 0; i < sizeof spec->choices / sizeof spec->choices[0]; i++) {
        if (spec->choices[i] != NULL && strcmp(spec->choices[i], text) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool value_parse(const struct flag_spec *spec, const char *text, uint64_t machine,
                        uint64_t *out)
{
    bool ok = true;

    switch (spec->kind) {
    case KIND_TEXT:
        return true;
    case KIND_BOOL:
        *out = strcmp(text, "true") == 0;
        return *out == 1 || strcmp(text, "false") == 0;
    case KIND_CHOICE:
        return choice_parse(spec, text, out);
    case KIND_DURATION:
        ok = duration_parse(text, out);
        break;
    case KIND_SIZE:
        ok = flags_size_parse(str_from(text), out);
        break;
    case KIND_MEMORY:
        ok = memory_parse(text, machine, out);
        break;
    case KIND_COUNT:
        ok = flags_size_parse(str_from(text), out) && text[strlen(text) - 1] >= '0' &&
             text[strlen(text) - 1] <= '9';
        break;
    }
    return ok && *out >= spec->least && (spec->most == 0 || *out <= spec->most);
}

static enum flags_outcome wrong(struct byte_writer *why, const char *format, ...) PRINTF_LIKE(2, 3);
static enum flags_outcome wrong(struct byte_writer *why, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm of clang-tidy 14 */
    (void)vsnprintf(text, sizeof text, format, args); /* may cut */
    va_end(args);
    writer_reset(why);
    writer_printf(why, "rimstone: error: %s; try --help\n", text);
    return FLAGS_WRONG;
}

/* A bound as one would give it: 1d, 16MiB. */
static void bound_write(struct byte_writer *out, enum flag_kind kind, uint64_t bound)
{
    static const struct unit {
        const char *name;
        uint64_t size;
    } durations[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}},
      sizes[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}},
      numbers[] = {{"", 1}};
    const struct unit *unit = kind == KIND_DURATION                      ? durations
                              : kind == KIND_SIZE || kind == KIND_MEMORY ? sizes
                                                                         : numbers;

    if (bound == 0) {
        writer_printf(out, "0");
        return;
    }
    while (bound % unit->size != 0)
        unit++;
    writer_printf(out, "%" PRIu64 "%s", bound / unit->size, unit->name);
}

/* What a value looks like, for whoever gave one that is none. */
static void value_describe(const struct flag_spec *spec, struct byte_writer *out)
{
    static const char *const texts[] = {
        [KIND_TEXT] = "a text",
        [KIND_BOOL] = "true or false",
        [KIND_DURATION] = "a duration such as 30s or 1h30m",
        [KIND_SIZE] = "a size such as 512MiB",
        [KIND_MEMORY] = "a size such as 8GiB, or 1% to 100%",
        [KIND_COUNT] = "a whole number",
        [KIND_CHOICE] = "one of",
    };

    writer_printf(out, "%s", texts[spec->kind]);
    if (spec->kind == KIND_CHOICE)
        for (size_t i = 0; i < sizeof spec->choices / sizeof spec->choices[0]; i++)
            if (spec->choices[i] != NULL)
                writer_printf(out, "%s %s", i == 0 ? "" : ",", spec->choices[i]);
    if (spec->least == 0 && spec->most == 0)
        return;
    writer_printf(out, spec->kind == KIND_MEMORY ? ", from " : " from ");
    bound_write(out, spec->kind, spec->least);
    writer_printf(out, spec->most == 0 ? " on" : " to ");
    if (spec->most != 0)
        bound_write(out, spec->kind, spec->most);
}

static enum flags_outcome value_refuse(struct byte_writer *why, const struct flag_spec *spec,
                                       const char *text)
{
    struct byte_writer wanted;
    enum flags_outcome outcome = FLAGS_WRONG;

    writer_init(&wanted);
    value_describe(spec, &wanted);
    writer_u8(&wanted, 0);
    outcome = wrong(why, "--%s=%s: expected %s", spec->name, text,
                    wanted.failed ? "another value" : (const char *)wanted.data);
    writer_done(&wanted);
    return outcome;
}

static enum flags_outcome value_set(struct reading *in, enum flag_id id, const char *text)
{
    const struct flag_spec *spec = &specs[id];

    in->given[id] = true; /* given twice: the last one counts, so that scripts can have defaults */
    in->text[id] = text;
    if (!value_parse(spec, text, in->machine_memory_bytes, &in->number[id]))
        return value_refuse(in->why, spec, text);
    return FLAGS_RUN;
}

static enum flag_id flag_find(struct str name)
{
    size_t id = 0;

    while (id < FLAG_COUNT && !str_equal(name, str_from(specs[id].name)))
        id++;
    return (enum flag_id)id;
}

/* Reads argv[*index] (which begins with "--") and its value, and steps behind both. */
static enum flags_outcome flag_read(struct reading *in, int argc, char *const *argv, int *index)
{
    const char *arg = argv[(*index)++] + 2;
    const char *equal = strchr(arg, '=');
    struct str name = {arg, equal == NULL ? strlen(arg) : (size_t)(equal - arg)};
    enum flag_id id = flag_find(name);

    if (id == FLAG_COUNT && name.size > 3 && memcmp(name.data, "no-", 3) == 0 && equal == NULL) {
        id = flag_find((struct str){name.data + 3, name.size - 3});
        if (id != FLAG_COUNT && specs[id].kind == KIND_BOOL)
            return value_set(in, id, "false");
        id = FLAG_COUNT;
    }
    if (id == FLAG_COUNT)
        return wrong(in->why, "unknown long flag '--%.*s'", STR_ARGS(name));
    if (equal != NULL)
        return value_set(in, id, equal + 1);
    if (specs[id].kind == KIND_BOOL)
        return value_set(in, id, "true");
    if (*index >= argc)
        return wrong(in->why, "expected argument for flag '--%s'", specs[id].name);
    return value_set(in, id, argv[(*index)++]);
}

static void help_write(struct byte_writer *text)
{
    json_write_raw(text, "usage: rimstone [<flags>]\n\n"
                         "A Prometheus-compatible time-series store.\n\nFlags:\n");
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        const char *quote = specs[i].kind == KIND_TEXT ? "\"" : "";

        writer_printf(text, "  --%s", specs[i].name);
        if (specs[i].kind != KIND_BOOL)
            writer_printf(text, "=%s%s%s", quote, specs[i].fallback, quote);
        writer_printf(text, "\n        %s\n", specs[i].help);
    }
    json_write_raw(text, "  --help\n        this list\n  --version\n        the version\n");
}

/* Where a feature's switch is; NULL when there is no such feature. */
static bool *feature_switch(struct server_flags *out, struct str name)
{
    const struct {
        const char *name;
        bool *on;
    } features[] = {
        {"promql-experimental-functions", &out->promql_language.experimental_functions},
        {"promql-extended-range-selectors", &out->promql_language.extended_range_selectors},
        {"promql-binop-fill-modifiers", &out->promql_language.binop_fill_modifiers},
        {"promql-delayed-name-removal", &out->delayed_name_removal},
        {"type-and-unit-labels", &out->type_and_unit_labels},
        {"promql-per-step-stats", &out->per_step_stats},
        {"use-start-timestamps", &out->start_timestamps},
    };

    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (str_equal(name, str_from(features[i].name)))
            return features[i].on;
    }
    return NULL;
}

/* The features in a comma-separated list. Duration expressions are on without their switch, as in
 * Prometheus since 3.14. */
static enum flags_outcome features_parse(struct reading *in, struct server_flags *out)
{
    const char *text = in->text[FLAG_FEATURE];

    while (*text != '\0') {
        size_t size = strcspn(text, ",");
        struct str name = {text, size};
        bool *on = feature_switch(out, name);

        text += size + (text[size] == ',');
        if (on != NULL)
            *on = true;
        else if (size > 0 && !str_equal(name, STR_LITERAL("promql-duration-expr")))
            return wrong(in->why, "--enable-feature: this version has no feature \"%.*s\"",
                         STR_ARGS(name));
    }
    return FLAGS_RUN;
}

static bool is_power_of_two(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

static void fill(const struct reading *in, struct server_flags *out)
{
    const uint64_t *n = in->number;

    out->config_file = in->text[FLAG_CONFIG_FILE][0] == '\0' ? NULL : in->text[FLAG_CONFIG_FILE];
    out->data_dir = in->text[FLAG_PATH];
    out->retention_time = in->text[FLAG_RETENTION_TIME];
    out->retention_size = in->text[FLAG_RETENTION_SIZE];
    out->retention_bytes = n[FLAG_RETENTION_SIZE];
    /* As in Prometheus: a size alone means that only the size counts. */
    out->retention_ms =
        in->given[FLAG_RETENTION_TIME] || out->retention_bytes == 0 ? n[FLAG_RETENTION_TIME] : 0;
    out->memory_limit_bytes = n[FLAG_MEMORY_LIMIT];
    out->shard_count = (uint32_t)n[FLAG_SHARDS];
    out->seal_interval_ms = n[FLAG_SEAL_INTERVAL];
    out->clock_is_data = n[FLAG_CLOCK] == 1;
    out->compactor_threads = (uint32_t)n[FLAG_COMPACTOR_THREADS];
    out->admin_api = n[FLAG_ADMIN_API] != 0;
    out->lifecycle = n[FLAG_LIFECYCLE] != 0;
    out->wal_sync = (enum wal_sync)n[FLAG_WAL_SYNC];
    out->wal_sync_interval_ms = (uint32_t)n[FLAG_WAL_SYNC_INTERVAL];
    out->wal_io = (enum fs_io)n[FLAG_WAL_IO];
    out->replay_threads = (uint32_t)n[FLAG_REPLAY_THREADS];
    out->listen_address = in->text[FLAG_LISTEN];
    out->max_request_bytes = (size_t)n[FLAG_MAX_REQUEST];
    out->query_timeout_ms = n[FLAG_QUERY_TIMEOUT];
    out->query_concurrency = (uint32_t)n[FLAG_QUERY_CONCURRENCY];
    out->query_threads = (uint32_t)n[FLAG_QUERY_THREADS];
    out->query_max_samples = n[FLAG_QUERY_SAMPLES];
    out->query_max_memory_bytes = n[FLAG_QUERY_MEMORY];
    out->query_total_memory_bytes =
        n[FLAG_QUERY_TOTAL_MEMORY] != 0 ? n[FLAG_QUERY_TOTAL_MEMORY] : out->memory_limit_bytes / 2;
    out->lookback_delta_ms = n[FLAG_LOOKBACK];
    out->log_level = (enum log_level)n[FLAG_LOG_LEVEL];
    out->log_format = (enum log_format)n[FLAG_LOG_FORMAT];
    for (size_t i = 0; i < FLAG_COUNT; i++)
        out->rows[i] = (struct api_flag){specs[i].name, in->text[i]};
    out->row_count = FLAG_COUNT;
}

/* Ends in ":port". The resolver, which sees it later, takes the port modulo 65,536. */
static bool address_is_plausible(const char *address)
{
    const char *colon = strrchr(address, ':');
    uint32_t port = 0;
    size_t digits = 0;

    if (colon == NULL)
        return false;
    for (const char *p = colon + 1; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || ++digits > 5)
            return false;
        port = port * 10 + (uint32_t)(*p - '0');
    }
    return digits > 0 && port <= UINT16_MAX;
}

enum flags_outcome flags_parse(int argc, char *const *argv, uint64_t machine_memory_bytes,
                               struct server_flags *out, struct byte_writer *text)
{
    struct reading in = {.machine_memory_bytes = machine_memory_bytes, .why = text};
    int index = 1;

    *out = (struct server_flags){0};
    while (index < argc) {
        enum flags_outcome outcome = FLAGS_RUN;

        if (strcmp(argv[index], "--help") == 0 || strcmp(argv[index], "-h") == 0) {
            help_write(text);
            return FLAGS_PRINT;
        }
        if (strcmp(argv[index], "--version") == 0) {
            writer_printf(text, "rimstone, version %s\n", api_version);
            return FLAGS_PRINT;
        }
        if (strncmp(argv[index], "--", 2) != 0)
            return wrong(text, "unexpected argument '%s': flags begin with --", argv[index]);
        outcome = flag_read(&in, argc, argv, &index);
        if (outcome != FLAGS_RUN)
            return outcome;
    }
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        if (in.given[i])
            continue;
        in.text[i] = specs[i].fallback;
        if (!value_parse(&specs[i], in.text[i], machine_memory_bytes, &in.number[i]))
            return wrong(text, "the default of --%s does not fit this machine", specs[i].name);
    }
    if (in.number[FLAG_SHARDS] != 0 && !is_power_of_two(in.number[FLAG_SHARDS]))
        return wrong(text, "--storage.shards=%s is no power of two", in.text[FLAG_SHARDS]);
    if (!address_is_plausible(in.text[FLAG_LISTEN]))
        return wrong(text, "--web.listen-address=%s is not host:port such as 127.0.0.1:9440",
                     in.text[FLAG_LISTEN]);
    if (in.text[FLAG_PATH][0] == '\0')
        return wrong(text, "--storage.tsdb.path is empty");
    fill(&in, out);
    return features_parse(&in, out);
}
