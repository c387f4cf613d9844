/*
 * The command line, in the manner of Prometheus's: --flag=value or --flag value.
 */
#ifndef RIMSTONE_API_FLAGS_H
#define RIMSTONE_API_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/server.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "promql/ast.h"
#include "wal/wal.h"

enum { FLAG_COUNT_MAX = 32 };

struct server_flags {
    const char *config_file; /* NULL: none */
    const char *data_dir;
    const char *retention_time, *retention_size; /* as text */
    uint64_t retention_ms, retention_bytes;      /* 0: none */
    uint64_t memory_limit_bytes;
    uint32_t shard_count; /* 0: not given */
    uint64_t seal_interval_ms;
    bool clock_is_data;
    uint32_t compactor_threads; /* 0: half the cores */
    bool admin_api, lifecycle;
    enum wal_sync wal_sync;
    uint32_t wal_sync_interval_ms;
    enum fs_io wal_io;
    uint32_t replay_threads;
    const char *listen_address;
    size_t max_request_bytes;
    uint64_t query_timeout_ms;
    uint32_t query_concurrency;
    uint32_t query_threads; /* 0: one per core */
    uint64_t query_max_samples;
    uint64_t query_max_memory_bytes;
    uint64_t query_total_memory_bytes;
    uint64_t lookback_delta_ms;
    struct promql_parse_options promql_language;
    bool delayed_name_removal, type_and_unit_labels, per_step_stats, start_timestamps;
    enum log_level log_level;
    enum log_format log_format;
    struct api_flag rows[FLAG_COUNT_MAX]; /* all of them with their values, for status/flags */
    size_t row_count;
};

enum flags_outcome {
    FLAGS_RUN,   /* *out is filled */
    FLAGS_PRINT, /* `text` goes to standard output, exit 0: --help or --version */
    FLAGS_WRONG, /* `text` goes to standard error, exit 2 */
};

/*
 * Reads argv[1..]. machine_memory_bytes is what percentages refer to. Values in *out point into
 * argv or at literals. A flag that is known but does nothing yet is FLAGS_WRONG, so that nobody
 * relies on it.
 */
enum flags_outcome flags_parse(int argc, char *const *argv, uint64_t machine_memory_bytes,
                               struct server_flags *out, struct byte_writer *text);
/* "512MiB", "1GB" (units of 1024), "100B", "0". False when it is no size. */
bool flags_size_parse(struct str text, uint64_t *out);

#endif
