/*
 * What the log costs by itself: CPU of commit and of replay with opaque payloads, on the files of a
 * temporary directory under TMPDIR, synced as the server does. Payloads compress about as well as
 * sample records (two of eight bytes are random). One figure a line: name, value, unit.
 *
 * Process CPU time, so the waiting for the disk does not count; the kernel's work does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "wal/wal.h"

enum { SHARDS = 16, PATTERN_BYTES = 1 << 20 };

struct load {
    uint8_t *pattern;       /* PATTERN_BYTES, payloads are pieces of it */
    size_t payload_bytes;   /* of one batch */
    uint64_t queued;        /* commits asked for, one batch a shard each */
    uint64_t taken[SHARDS]; /* committer thread only, after the notify */
};

static void check(enum err e, const struct errinfo *ei)
{
    if (e == ERR_OK)
        return;
    fprintf(stderr, "bench_wal: %s: %s\n", err_name(e), ei->message);
    exit(1); /* NOLINT(concurrency-mt-unsafe): no handlers are installed */
}

static bool take(void *ctx, uint32_t shard, struct wal_batch *out)
{
    struct load *load = ctx;
    uint64_t queued = __atomic_load_n(&load->queued, __ATOMIC_ACQUIRE);

    if (load->taken[shard] == queued)
        return false;
    *out = (struct wal_batch){.first_sequence = ++load->taken[shard],
                              .entry_count = 1,
                              .sample_count = 1,
                              .memory_bytes = load->payload_bytes};
    return true;
}

static enum err encode(void *ctx, uint32_t shard, const struct wal_batch *batch,
                       struct byte_writer *payload)
{
    const struct load *load = ctx;
    size_t from = (batch->first_sequence * 7919 + (uint64_t)shard * 104729) %
                  (PATTERN_BYTES - load->payload_bytes);

    writer_append(payload, load->pattern + from, load->payload_bytes);
    return payload->failed ? ERR_NOMEM : ERR_OK;
}

static void release(void *ctx, uint32_t shard, struct wal_batch *batch)
{
    (void)ctx;
    (void)shard;
    (void)batch;
}

static enum err apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                      struct bytes payload, struct errinfo *ei)
{
    (void)ctx;
    (void)shard;
    (void)first_sequence;
    (void)entry_count;
    (void)payload;
    (void)ei;
    return ERR_OK;
}

static void lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    (void)ctx;
    (void)shard;
    (void)from_sequence;
    (void)to_sequence;
}

static uint8_t *pattern_new(void)
{
    uint8_t *p = malloc(PATTERN_BYTES);
    uint64_t z = 42;

    if (p == NULL)
        exit(1); /* NOLINT(concurrency-mt-unsafe): no handlers are installed */
    for (size_t i = 0; i < PATTERN_BYTES; i++) {
        z = z * 6364136223846793005U + 1442695040888963407U;
        p[i] = i % 8 < 2 ? (uint8_t)(z >> 56) : (uint8_t)(i % 8);
    }
    return p;
}

static void figure(const char *what, size_t payload_bytes, const char *per, double value,
                   const char *unit)
{
    printf("wal_%s_%zu_byte_payload_%s %.3g %s\n", what, payload_bytes, per, value, unit);
}

static struct wal *start(struct fs *fs, struct load *load, struct wal_replay_result *result,
                         uint64_t *replay_cpu_ns)
{
    struct wal_source source = {.ctx = load, .take = take, .encode = encode, .release = release};
    struct wal_options options = {
        .fs = fs, .shard_count = SHARDS, .commit_sample_target = 1, .source = source};
    struct wal_sink sink = {.ctx = load, .apply = apply, .lost = lost};
    struct errinfo ei = {0};
    uint64_t begin;
    struct wal *w;

    check(wal_open(&options, &w, &ei), &ei);
    begin = clock_process_cpu_ns();
    check(wal_replay(w, &sink, 0, result, &ei), &ei);
    *replay_cpu_ns = clock_process_cpu_ns() - begin;
    return w;
}

static enum err file_remove(void *ctx, const char *name, struct errinfo *ei)
{
    char path[300];

    (void)snprintf(path, sizeof path, "wal/%s", name);
    return fs_unlink(ctx, path, ei);
}

static void folder_remove(struct fs *fs, const char *dir)
{
    struct errinfo ei = {0};
    char path[4200];

    check(fs_list(fs, "wal", file_remove, fs, &ei), &ei);
    (void)snprintf(path, sizeof path, "%s/wal", dir);
    /* allow(rmdir): the benchmark's own directory */
    if (rmdir(path) != 0 || rmdir(dir) != 0) /* allow(rmdir): the same */
        fprintf(stderr, "bench_wal: %s is left behind\n", dir);
}

static void measure(struct load *load, size_t payload_bytes, uint64_t commit_count)
{
    char dir[4096];
    const char *base = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody writes */
    struct wal_replay_result result;
    struct errinfo ei = {0};
    uint64_t sequences[SHARDS], begin, replay_cpu_ns, frames, commit_cpu_ns;
    struct wal_stats stats;
    struct fs *fs;
    struct wal *w;

    (void)snprintf(dir, sizeof dir, "%s/bench-wal-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL) /* allow(mkdtemp): the benchmark's own directory */
        exit(1);              /* NOLINT(concurrency-mt-unsafe): no handlers are installed */
    check(fs_open(dir, FS_IO_AUTO, &fs, &ei), &ei);
    memset(load->taken, 0, sizeof load->taken);
    load->queued = 0;
    load->payload_bytes = payload_bytes;
    w = start(fs, load, &result, &replay_cpu_ns);
    check(wal_start(w, &ei), &ei);
    begin = clock_process_cpu_ns();
    for (uint64_t i = 1; i <= commit_count; i++) {
        for (uint32_t s = 0; s < SHARDS; s++)
            sequences[s] = i;
        __atomic_store_n(&load->queued, i, __ATOMIC_RELEASE);
        wal_notify_bytes(w, SHARDS, SHARDS, (uint64_t)SHARDS * payload_bytes);
        check(wal_wait_blocking(w, sequences, &ei), &ei);
    }
    commit_cpu_ns = clock_process_cpu_ns() - begin;
    wal_stats_get(w, &stats);
    check(wal_close(w, 10000, &ei), &ei);
    frames = commit_count * SHARDS;
    figure("commit", payload_bytes, "cpu_per_frame", (double)commit_cpu_ns / (double)frames, "ns");
    figure("commit", payload_bytes, "cpu_per_byte",
           (double)commit_cpu_ns / (double)(frames * payload_bytes), "ns");
    figure("stored", payload_bytes, "bytes_per_byte",
           (double)stats.bytes_written / (double)(frames * payload_bytes), "B");
    w = start(fs, load, &result, &replay_cpu_ns);
    if (result.entry_count != frames || result.bad_frame_count != 0)
        exit(1); /* NOLINT(concurrency-mt-unsafe): no handlers are installed */
    wal_abandon(w);
    figure("replay", payload_bytes, "cpu_per_frame", (double)replay_cpu_ns / (double)frames, "ns");
    figure("replay", payload_bytes, "cpu_per_byte",
           (double)replay_cpu_ns / (double)(frames * payload_bytes), "ns");
    folder_remove(fs, dir);
    fs_free(fs);
}

int main(void)
{
    struct load load = {.pattern = pattern_new()};

    measure(&load, 512, 500);     /* stays uncompressed */
    measure(&load, 6 << 10, 500); /* about 512 samples */
    measure(&load, 64 << 10, 200);
    free(load.pattern);
    return 0;
}
