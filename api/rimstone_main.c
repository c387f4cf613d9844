/*
 * The server's process: flags, configuration, start, signals, end.
 *
 * The main thread does nothing but wait for signals, which are blocked in all others; the replay
 * runs on a thread of its own, so that SIGTERM works from the first second.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/config.h"
#include "api/config/machine_internal.h"
#include "api/flags.h"
#include "api/rule_book.h"
#include "api/server.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/process.h"
#include "base/thread.h"
#include "compactor/compactor.h"
#include "engine/engine.h"

enum {
    EXIT_USAGE = 2,
    STOP_REQUESTS_MS = 7000, /* together below the promised 10 s */
    STOP_COMPACTOR_MS = 1000,
    STOP_LOG_MS = 1500,
    REPLAY_POLL_MS = 200,
    REPLAY_REPORT_MS = 5000,
    CONNECTIONS_LEAST = 64,
    ADMIT_POLL_MS = 1000,
    ADMIT_REPORT_MS = 60000,
    /* What a replay tells of the cost of the next one. */
    REPLAY_ENTRIES_LEAST = 1000000,
    REPLAY_COST_LEAST_NS = 20,
    REPLAY_COST_MOST_NS = 1000,
};

enum start_state { STARTING, STARTED, START_FAILED };

struct process {
    struct server_flags flags;
    struct config config; /* of the start; what a reload changes is with those who use it */
    struct mutex reload_lock;
    struct rule_book *rules;
    struct clock clock;
    struct budget memory;
    struct metrics_registry *metrics;
    struct fs *fs;
    struct engine *engine;
    struct api_server *server;
    struct compactor *compactor;
    char retention[64]; /* as status/runtimeinfo gives it */
    sigset_t
        signals; /* constant; the thread that waits for a second one reads it to the very end */
    struct thread replay;
    _Atomic enum start_state state; /* release by the replay's thread, acquire by main */
};

static const char *sync_name(enum wal_sync sync)
{
    static const char *const names[] = {"always", "interval", "never"};

    return names[sync];
}

/* As many shards as keep each one's memory near 1 GiB, 16 at least. */
static uint32_t shards_by_memory(uint64_t memory_bytes)
{
    uint32_t count = 16;

    while (count < 256 && memory_bytes / count > (uint64_t)1 << 30)
        count *= 2;
    return count;
}

static void log_warnings(const struct process *p, const struct config *c)
{
    for (size_t i = 0; i < c->warning_count; i++)
        LOG_WARN(c->warnings[i], LOG_STR("file", p->flags.config_file));
}

/* As in Prometheus the configuration goes before the flags. */
static void retention_take(struct process *p)
{
    const struct config_retention *r = &p->config.retention;
    struct server_flags *f = &p->flags;

    if (!r->is_given)
        return;
    f->retention_ms = (uint64_t)r->time_ms;
    f->retention_time = r->time;
    f->retention_bytes = r->size_bytes;
    f->retention_size = r->size;
}

static void log_settings(const struct process *p)
{
    const struct server_flags *f = &p->flags;

    LOG_INFO("starting rimstone", LOG_STR("version", api_version), LOG_STR("data", f->data_dir),
             LOG_U64("memory_limit_bytes", f->memory_limit_bytes),
             LOG_U64("cores", thread_cpu_count()), LOG_STR("wal_sync", sync_name(f->wal_sync)),
             LOG_U64("query_concurrency", f->query_concurrency),
             LOG_U64("query_memory_bytes", f->query_max_memory_bytes),
             LOG_U64("query_total_memory_bytes", f->query_total_memory_bytes));
    log_warnings(p, &p->config);
}

static void log_replayed(const struct engine_replay_result *r, double seconds)
{
    LOG_INFO("log replayed", LOG_U64("series", r->series_count),
             LOG_U64("samples", r->sample_count), LOG_U64("segments", r->wal.segment_count),
             LOG_U64("bytes", r->wal.byte_count), LOG_F64("seconds", seconds),
             LOG_F64("samples_per_second", seconds > 0 ? (double)r->sample_count / seconds : 0),
             LOG_U64("torn_tail_bytes", r->wal.torn_tail_bytes));
    if (r->wal.bad_frame_count != 0 || r->wal.lost_entry_count != 0 || r->unknown_ref_samples != 0)
        LOG_WARN("the log was damaged: what could be read was kept",
                 LOG_U64("bad_frames", r->wal.bad_frame_count),
                 LOG_U64("lost_entries", r->wal.lost_entry_count),
                 LOG_U64("samples_of_lost_series", r->unknown_ref_samples));
}

/* CPU nanoseconds that an entry of the log took; 0: too few of them to tell. */
static uint64_t replay_cost(const struct engine_replay_result *r, uint64_t cpu_ns)
{
    uint64_t cost = r->wal.entry_count < REPLAY_ENTRIES_LEAST ? 0 : cpu_ns / r->wal.entry_count;

    if (cost != 0 && cost < REPLAY_COST_LEAST_NS)
        cost = REPLAY_COST_LEAST_NS;
    return cost > REPLAY_COST_MOST_NS ? REPLAY_COST_MOST_NS : cost;
}

static uint64_t server_load(void *ctx)
{
    return api_server_load(ctx);
}

static enum err compactor_begin(struct process *p, uint64_t replay_ns_per_entry, struct errinfo *ei)
{
    const struct compactor_options options = {
        .engine = p->engine,
        .fs = p->fs,
        .clock = &p->clock,
        .clock_is_data = p->flags.clock_is_data,
        .thread_count = p->flags.compactor_threads,
        .retention_ms = p->flags.retention_ms,
        .retention_bytes = p->flags.retention_bytes,
        .seal_interval_ms = p->flags.seal_interval_ms,
        .replay_ns_per_entry = replay_ns_per_entry,
        .memory = &p->memory,
        .metrics = p->metrics,
        .load = server_load,
        .load_ctx = p->server,
    };
    enum err e = compactor_new(&options, &p->compactor, ei);

    if (e == ERR_OK)
        e = compactor_start(p->compactor, ei);
    if (e == ERR_OK)
        api_server_set_compactor(p->server, p->compactor);
    return e;
}

static void *replay_run(void *arg)
{
    struct process *p = arg;
    struct engine_replay_result result = {0};
    struct rule_purges purges;
    struct errinfo ei = {0};
    uint64_t start_ns = clock_mono_ns(), cpu_ns = clock_process_cpu_ns();

    if (engine_replay(p->engine, p->flags.replay_threads, &result, &ei) != ERR_OK) {
        LOG_ERROR("the store cannot be loaded", LOG_STR("error", ei.message));
        atomic_store_explicit(&p->state, START_FAILED, memory_order_release);
        return NULL;
    }
    cpu_ns = clock_process_cpu_ns() - cpu_ns;
    log_replayed(&result, (double)(clock_mono_ns() - start_ns) / 1e9);
    if (rule_book_settle(p->rules, &purges, &ei) != ERR_OK)
        LOG_ERROR("what is stored does not follow the drop rules yet",
                  LOG_STR("error", ei.message));
    if (compactor_begin(p, replay_cost(&result, cpu_ns), &ei) != ERR_OK) {
        LOG_ERROR("the compactor cannot start", LOG_STR("error", ei.message));
        atomic_store_explicit(&p->state, START_FAILED, memory_order_release);
        return NULL;
    }
    api_server_set_ready(p->server);
    LOG_INFO("server is ready", LOG_STR("address", p->flags.listen_address),
             LOG_U64("port", api_server_port(p->server)));
    atomic_store_explicit(&p->state, STARTED, memory_order_release);
    return NULL;
}

static enum err store_open(struct process *p, struct errinfo *ei)
{
    struct engine_options options = {
        .clock = &p->clock,
        .metrics = p->metrics,
        .memory = &p->memory,
        .shard_count = p->flags.shard_count,
        .new_shard_count = shards_by_memory(p->flags.memory_limit_bytes),
        .wal_sync = p->flags.wal_sync,
        .wal_sync_interval_ms = p->flags.wal_sync_interval_ms,
        .retention_ms = (int64_t)p->flags.retention_ms,
        .out_of_order_window_ms = p->config.out_of_order_time_window_ms,
        .clock_is_data = p->flags.clock_is_data,
    };
    enum err e = fs_open(p->flags.data_dir, p->flags.wal_io, &p->fs, ei);

    if (e != ERR_OK)
        return e;
    options.fs = p->fs;
    e = engine_open(&options, &p->engine, ei);
    if (e == ERR_OK)
        e = engine_limits_apply(p->engine, &p->config.limits, ei);
    if (e == ERR_OK)
        e = rule_book_new(p->fs, p->engine, &p->config, &p->rules, ei);
    if (e != ERR_OK)
        return e;
    LOG_INFO("store opened", LOG_STR("directory", fs_dir(p->fs)),
             LOG_STR("io", fs_kind_of(p->fs) == FS_URING ? "io_uring" : "posix"),
             LOG_U64("shards", engine_shard_count(p->engine)));
    return ERR_OK;
}

/* A store that may not open its files takes samples and then can seal none of them. */
static enum err descriptors_check(const struct process *p, struct errinfo *ei)
{
    uint32_t shards = engine_shard_count(p->engine), needed = engine_descriptor_count(shards);
    uint64_t limit = machine_fd_limit();

    if (limit >= (uint64_t)needed + CONNECTIONS_LEAST)
        return ERR_OK;
    return errinfo_set(ei, ERR_LIMIT, 0,
                       "at most %" PRIu64 " files may be open, and a store of %" PRIu32
                       " shards needs %" PRIu32 ": raise the limit (ulimit -n, LimitNOFILE=)",
                       limit, shards, needed + CONNECTIONS_LEAST);
}

/* "15d", "15d or 10GB": as Prometheus writes it. */
static const char *retention_text(struct process *p)
{
    const struct server_flags *f = &p->flags;
    const char *time = f->retention_ms != 0 ? f->retention_time : "";
    const char *size = f->retention_bytes != 0 ? f->retention_size : "";

    (void)snprintf(p->retention, sizeof p->retention, "%s%s%s", time,
                   *time != '\0' && *size != '\0' ? " or " : "", size); /* may cut */
    return p->retention;
}

/* ---- reload ---- */

static bool text_differs(const char *a, const char *b)
{
    return (a == NULL) != (b == NULL) || (a != NULL && strcmp(a, b) != 0);
}

static bool retention_differs(const struct config_retention *a, const struct config_retention *b)
{
    return a->is_given != b->is_given || a->time_ms != b->time_ms || a->size_bytes != b->size_bytes;
}

/* What only a start takes up. */
static void warn_of_restart(const struct process *p, const struct config *c)
{
    if (c->out_of_order_time_window_ms != p->config.out_of_order_time_window_ms ||
        c->evaluation_interval_ms != p->config.evaluation_interval_ms ||
        text_differs(c->query_log_file, p->config.query_log_file) ||
        retention_differs(&c->retention, &p->config.retention))
        LOG_WARN("retention, out_of_order_time_window, evaluation_interval and query_log_file take "
                 "effect at the next start");
}

static enum err config_apply(struct process *p, const struct config *c, struct errinfo *ei)
{
    uint64_t start_ns = clock_mono_ns();
    struct rule_change change = {0};
    enum err e = rule_book_set_file(p->rules, c, &change, ei);

    if (e == ERR_OK)
        e = engine_limits_apply(p->engine, &c->limits, ei);
    if (e != ERR_OK)
        return e;
    LOG_INFO("configuration read", LOG_U64("drop_rules", c->drop_rule_count),
             LOG_U64("series_forgotten", change.applied.series_forgotten),
             LOG_U64("keys_removed", change.applied.keys_removed),
             LOG_U64("purges", change.purges.made),
             LOG_U64("purges_withdrawn", change.purges.withdrawn),
             LOG_F64("seconds", (double)(clock_mono_ns() - start_ns) / 1e9));
    return ERR_OK;
}

/* Reads the configuration anew; one that cannot be read changes nothing. */
static enum err reload(void *process, struct errinfo *ei)
{
    struct process *p = process;
    struct config c;
    enum err e = ERR_OK;

    if (p->flags.config_file == NULL)
        return ERR_OK;
    mutex_lock(&p->reload_lock);
    config_init(&c);
    e = config_load(&c, p->flags.config_file, ei);
    if (e == ERR_OK)
        e = config_apply(p, &c, ei);
    if (e == ERR_OK) {
        log_warnings(p, &c);
        warn_of_restart(p, &c);
    } else {
        LOG_ERROR("the configuration stays as it was", LOG_STR("error", ei->message));
    }
    api_server_note_reload(p->server, e == ERR_OK, c.text);
    config_done(&c);
    mutex_unlock(&p->reload_lock);
    return e;
}

static void quit(void *process)
{
    (void)process;
    (void)kill(getpid(), SIGTERM); /* our own process: cannot fail */
}

static enum err server_open(struct process *p, struct errinfo *ei)
{
    const struct server_flags *f = &p->flags;
    struct api_options options = {
        .listen_address = f->listen_address,
        .max_request_bytes = f->max_request_bytes,
        .promql = {.lookback_delta_ms = (int64_t)f->lookback_delta_ms,
                   .default_step_ms = p->config.evaluation_interval_ms,
                   .max_samples = f->query_max_samples,
                   .max_memory_bytes = f->query_max_memory_bytes,
                   .language = f->promql_language,
                   .type_and_unit_labels = f->type_and_unit_labels,
                   .delayed_name_removal = f->delayed_name_removal,
                   .start_timestamps = f->start_timestamps},
        .per_step_stats = f->per_step_stats,
        .query_timeout_ms = f->query_timeout_ms,
        .query_concurrency = f->query_concurrency,
        .query_threads = f->query_threads,
        .query_total_memory_bytes = f->query_total_memory_bytes,
        .memory = &p->memory,
        .metrics = p->metrics,
        .clock = &p->clock,
        .flags = f->rows,
        .flag_count = f->row_count,
        .fs = p->fs,
        .query_log_path = p->config.query_log_file,
        .config_yaml = p->config.text,
        .storage_retention = retention_text(p),
        .admin_api = f->admin_api,
        .rules = p->rules,
        .lifecycle = f->lifecycle,
        .reload = reload,
        .quit = quit,
        .process = p,
        .descriptors_reserved = engine_descriptor_count(engine_shard_count(p->engine)),
    };
    enum err e = api_server_new(&options, &p->server, ei);

    if (e != ERR_OK)
        return e;
    api_server_set_engine(p->server, p->engine);
    LOG_INFO("listening", LOG_STR("address", f->listen_address),
             LOG_U64("port", api_server_port(p->server)));
    return thread_start(&p->replay, "replay", replay_run, p, ei);
}

static enum err process_start(struct process *p, struct errinfo *ei)
{
    enum err e = metrics_registry_new(&p->metrics, ei);

    clock_init_real(&p->clock);
    budget_init(&p->memory, "memory limit (--storage.memory-limit)", p->flags.memory_limit_bytes,
                NULL);
    machine_raise_fd_limit();
    if (e == ERR_OK)
        e = store_open(p, ei);
    if (e == ERR_OK)
        e = descriptors_check(p, ei);
    if (e == ERR_OK)
        e = server_open(p, ei);
    return e;
}

static void log_progress(const struct process *p, uint64_t *last_bytes)
{
    struct wal_progress progress = {0};
    double rate = 0;

    engine_replay_progress(p->engine, &progress);
    rate = (double)(progress.bytes_done - *last_bytes) * 1000 / REPLAY_REPORT_MS;
    *last_bytes = progress.bytes_done;
    LOG_INFO("replaying the log", LOG_U64("bytes_done", progress.bytes_done),
             LOG_U64("bytes_total", progress.bytes_total), LOG_F64("bytes_per_second", rate),
             LOG_U64("segment", progress.segment_current),
             LOG_U64("last_segment", progress.segment_max));
}

/* Says why writes get 503, once a minute while they do: the senders may not tell anybody. */
static void log_not_admitted(const struct process *p, uint64_t *report_ns)
{
    uint64_t now = clock_mono_ns();
    struct errinfo ei = {0};

    if (now < *report_ns || engine_admit(p->engine, &ei) == ERR_OK)
        return;
    *report_ns = now + (uint64_t)ADMIT_REPORT_MS * 1000000U;
    LOG_WARN("writes are answered with 503 for now", LOG_STR("reason", ei.message),
             LOG_U64("memory_bytes", budget_used(&p->memory)),
             LOG_U64("memory_limit_bytes", p->memory.limit_bytes));
}

static void reopen(struct process *p)
{
    struct errinfo ei = {0};

    (void)reload(p, &ei); /* has logged how it went */
    LOG_INFO("SIGHUP: the query log is opened anew");
    if (api_server_reopen(p->server, &ei) != ERR_OK)
        LOG_ERROR("the query log stays with the old file", LOG_STR("error", ei.message));
}

static void usage_keep(struct process *p, bool now)
{
    struct errinfo ei = {0};

    if (api_server_keep(p->server, now, &ei) != ERR_OK)
        LOG_WARN("what queries have read could not be saved", LOG_STR("error", ei.message));
}

/* Waits for SIGTERM or SIGINT; returns it, or 0 when the start failed. Reports the replay,
 * and after it that writes are refused. */
static int signal_wait(struct process *p)
{
    const struct timespec replay_poll = {.tv_nsec = REPLAY_POLL_MS * 1000000L};
    const struct timespec admit_poll = {.tv_sec = ADMIT_POLL_MS / 1000};
    uint64_t report_ns = clock_mono_ns() + (uint64_t)REPLAY_REPORT_MS * 1000000U;
    uint64_t admit_report_ns = 0;
    uint64_t last_bytes = 0;

    for (;;) {
        enum start_state state = atomic_load_explicit(&p->state, memory_order_acquire);
        int signal_number =
            sigtimedwait(&p->signals, NULL, state == STARTED ? &admit_poll : &replay_poll);

        if (signal_number == SIGTERM || signal_number == SIGINT)
            return signal_number;
        if (signal_number == SIGHUP)
            reopen(p);
        if (state == START_FAILED)
            return 0;
        if (state == STARTED) {
            log_not_admitted(p, &admit_report_ns);
            engine_limits_log(p->engine);
            usage_keep(p, false);
        }
        if (state == STARTING && clock_mono_ns() >= report_ns) {
            log_progress(p, &last_bytes);
            report_ns += (uint64_t)REPLAY_REPORT_MS * 1000000U;
        }
    }
}

/* A second signal while the server stops: no more patience. */
static void *second_signal_run(void *arg)
{
    const sigset_t *signals = arg;
    int signal_number = 0;

    do {
        signal_number = sigwaitinfo(signals, NULL);
    } while (signal_number != SIGTERM && signal_number != SIGINT);
    LOG_WARN("second signal: quitting at once");
    _exit(1);
}

static int process_stop(struct process *p, int signal_number)
{
    struct errinfo ei = {0};
    struct thread second = {0};

    LOG_INFO("stopping", LOG_STR("signal", signal_number == SIGINT ? "SIGINT" : "SIGTERM"));
    if (thread_start(&second, "second-signal", second_signal_run, &p->signals, &ei) != ERR_OK)
        LOG_WARN("a second signal will not be noticed", LOG_STR("error", ei.message));
    if (atomic_load_explicit(&p->state, memory_order_acquire) != STARTED) {
        /* Nothing new has been acknowledged: leaving now is like not having started. */
        LOG_INFO("stopped during the replay");
        _exit(0);
    }
    if (compactor_stop(p->compactor, 0, NULL) != ERR_OK)
        LOG_DEBUG("the compactor is stopping"); /* while requests end */
    switch (api_server_stop(p->server, STOP_REQUESTS_MS)) {
    case API_STOPPED:
        break;
    case API_STOP_QUERIES_RUN:
        LOG_WARN("stopped in spite of running queries; everything acknowledged is in the log");
        _exit(0);
    case API_STOP_WRITES_WAIT:
        LOG_ERROR("the log does not answer: some writes were not acknowledged");
        _exit(1);
    }
    usage_keep(p, true);
    thread_join(&p->replay);
    if (compactor_stop(p->compactor, STOP_COMPACTOR_MS, &ei) != ERR_OK) {
        LOG_WARN("stopped in spite of running maintenance; everything acknowledged is in the log",
                 LOG_STR("reason", ei.message));
        _exit(0);
    }
    if (engine_close(p->engine, STOP_LOG_MS, &ei) != ERR_OK) {
        LOG_ERROR("the log could not be closed", LOG_STR("error", ei.message));
        _exit(1);
    }
    p->engine = NULL;
    LOG_INFO("stopped");
    return 0;
}

static void process_free(struct process *p)
{
    api_server_free(p->server);
    compactor_free(p->compactor);
    fs_free(p->fs);
    metrics_registry_free(p->metrics);
    rule_book_free(p->rules);
    mutex_done(&p->reload_lock);
    config_done(&p->config);
}

static int process_run(struct process *p)
{
    struct errinfo ei = {0};
    int signal_number = 0;

    (void)sigemptyset(&p->signals); /* none of these can fail */
    (void)sigaddset(&p->signals, SIGTERM);
    (void)sigaddset(&p->signals, SIGINT);
    (void)sigaddset(&p->signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &p->signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (process_start(p, &ei) != ERR_OK) {
        LOG_ERROR("cannot start", LOG_STR("error", ei.message));
        _exit(EXIT_FAILURE); /* whatever runs already holds nothing that could be lost */
    }
    signal_number = signal_wait(p);
    if (signal_number == 0)
        _exit(EXIT_FAILURE); /* the replay's thread has said why */
    return process_stop(p, signal_number);
}

int main(int argc, char **argv)
{
    static struct process p; /* zero, and too large for some stacks */
    struct byte_writer text;
    struct errinfo ei = {0};
    enum flags_outcome outcome = FLAGS_RUN;
    int code = 0;

    writer_init(&text);
    outcome = flags_parse(argc, argv, machine_memory_bytes(), &p.flags, &text);
    if (outcome != FLAGS_RUN) {
        writer_u8(&text, 0);
        if (text.data != NULL) /* allow(fputs): the program's own output */
            (void)fputs((const char *)text.data, outcome == FLAGS_PRINT ? stdout : stderr);
        writer_done(&text);
        return outcome == FLAGS_PRINT ? 0 : EXIT_USAGE;
    }
    writer_done(&text);
    process_memory_setup();
    log_configure(p.flags.log_level, p.flags.log_format);
    config_init(&p.config);
    mutex_init(&p.reload_lock);
    if (p.flags.config_file != NULL && config_load(&p.config, p.flags.config_file, &ei) != ERR_OK) {
        LOG_ERROR("cannot read the configuration", LOG_STR("error", ei.message));
        return EXIT_FAILURE;
    }
    retention_take(&p);
    log_settings(&p);
    code = process_run(&p);
    process_free(&p);
    return code;
}
