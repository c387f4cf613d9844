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
#include "api/flags.h"
#include "api/machine_internal.h"
#include "api/server.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "engine/engine.h"

enum {
    EXIT_USAGE = 2,
    STOP_REQUESTS_MS = 7000, /* together below the promised 10 s */
    STOP_LOG_MS = 2500,
    REPLAY_POLL_MS = 200,
    REPLAY_REPORT_MS = 5000,
    ADMIT_POLL_MS = 1000,
    ADMIT_REPORT_MS = 60000,
};

enum start_state { STARTING, STARTED, START_FAILED };

struct process {
    struct server_flags flags;
    struct config config;
    struct clock clock;
    struct budget memory;
    struct metrics_registry *metrics;
    struct fs *fs;
    struct engine *engine;
    struct api_server *server;
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

static void log_settings(const struct process *p)
{
    const struct server_flags *f = &p->flags;

    LOG_INFO("starting rimstone", LOG_STR("version", api_version), LOG_STR("data", f->data_dir),
             LOG_U64("memory_limit_bytes", f->memory_limit_bytes),
             LOG_U64("cores", thread_cpu_count()), LOG_STR("wal_sync", sync_name(f->wal_sync)),
             LOG_U64("query_concurrency", f->query_concurrency),
             LOG_U64("query_memory_bytes", f->query_max_memory_bytes),
             LOG_U64("query_total_memory_bytes", f->query_total_memory_bytes));
    if (f->retention_given)
        LOG_WARN("retention has no effect yet: samples stay in memory and in the log",
                 LOG_STR("time", f->retention_time), LOG_STR("size", f->retention_size));
    for (size_t i = 0; i < p->config.warning_count; i++)
        LOG_WARN(p->config.warnings[i], LOG_STR("file", f->config_file));
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

static void *replay_run(void *arg)
{
    struct process *p = arg;
    struct engine_replay_result result = {0};
    struct errinfo ei = {0};
    uint64_t start_ns = clock_mono_ns();

    if (engine_replay(p->engine, p->flags.replay_threads, &result, &ei) != ERR_OK) {
        LOG_ERROR("replay of the log failed", LOG_STR("error", ei.message));
        atomic_store_explicit(&p->state, START_FAILED, memory_order_release);
        return NULL;
    }
    log_replayed(&result, (double)(clock_mono_ns() - start_ns) / 1e9);
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
        .shard_count = p->flags.shard_count != 0 ? p->flags.shard_count
                                                 : shards_by_memory(p->flags.memory_limit_bytes),
        .wal_sync = p->flags.wal_sync,
        .wal_sync_interval_ms = p->flags.wal_sync_interval_ms,
    };
    enum err e = fs_open(p->flags.data_dir, p->flags.wal_io, &p->fs, ei);

    if (e != ERR_OK)
        return e;
    options.fs = p->fs;
    e = engine_open(&options, &p->engine, ei);
    if (e != ERR_OK)
        return e;
    LOG_INFO("store opened", LOG_STR("directory", fs_dir(p->fs)),
             LOG_STR("io", fs_kind_of(p->fs) == FS_URING ? "io_uring" : "posix"),
             LOG_U64("shards", engine_shard_count(p->engine)));
    if (p->flags.shard_count != 0 && p->flags.shard_count != engine_shard_count(p->engine))
        LOG_WARN("--storage.shards has no effect on an existing directory",
                 LOG_U64("shards", engine_shard_count(p->engine)));
    return ERR_OK;
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
                   .experimental_functions = f->experimental_functions,
                   .delayed_name_removal = f->delayed_name_removal},
        .query_timeout_ms = f->query_timeout_ms,
        .query_concurrency = f->query_concurrency,
        .query_total_memory_bytes = f->query_total_memory_bytes,
        .memory = &p->memory,
        .metrics = p->metrics,
        .clock = &p->clock,
        .flags = f->rows,
        .flag_count = f->row_count,
        .config_yaml = p->config.text,
        .storage_retention = "", /* nothing is dropped by age yet */
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
    budget_init(&p->memory, "memory limit", p->flags.memory_limit_bytes, NULL);
    machine_raise_fd_limit();
    if (e == ERR_OK)
        e = store_open(p, ei);
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
            LOG_INFO("SIGHUP: the configuration is read at start only");
        if (state == START_FAILED)
            return 0;
        if (state == STARTED)
            log_not_admitted(p, &admit_report_ns);
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
    thread_join(&p->replay);
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
    fs_free(p->fs);
    metrics_registry_free(p->metrics);
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
    log_configure(p.flags.log_level, p.flags.log_format);
    config_init(&p.config);
    if (p.flags.config_file != NULL && config_load(&p.config, p.flags.config_file, &ei) != ERR_OK) {
        LOG_ERROR("cannot read the configuration", LOG_STR("error", ei.message));
        return EXIT_FAILURE;
    }
    log_settings(&p);
    code = process_run(&p);
    process_free(&p);
    return code;
}
