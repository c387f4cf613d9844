/*
 * What the log costs by itself: CPU of commit and of replay with opaque payloads, on the files of a
 * temporary directory, synced as the server does. Payloads compress about as well as
 * sample records (two of eight bytes are random). One figure a line: name, value, unit.
 *
 * Process CPU time, so the waiting for the disk does not count; the kernel's work does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "wal/wal.h"

enum { SHARDS = 16, PATTERN_BYTES = 1 << 20 };

static const char usage[] = "usage: bench_wal\n"
                            "  by environment: BENCH_DIR (default TMPDIR or /tmp)\n";

struct load {
    uint8_t *pattern;       /* PATTERN_BYTES, payloads are pieces of it */
    size_t payload_bytes;   /* of one batch */
    uint64_t queued;        /* commits asked for, one batch a shard each */
    uint64_t taken[SHARDS]; /* committer thread only, after the notify */
};

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
        bench_fail("out of memory", NULL);
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

    bench_check(wal_open(&options, &w, &ei), &ei);
    begin = clock_process_cpu_ns();
    bench_check(wal_replay(w, &sink, 0, result, &ei), &ei);
    *replay_cpu_ns = clock_process_cpu_ns() - begin;
    return w;
}

static void measure(struct load *load, size_t payload_bytes, uint64_t commit_count)
{
    struct bench_dir dir;
    struct wal_replay_result result;
    struct errinfo ei = {0};
    uint64_t sequences[SHARDS], begin, replay_cpu_ns, frames, commit_cpu_ns;
    struct wal_stats stats;
    struct wal *w;

    bench_dir_open(&dir, FS_IO_AUTO);
    memset(load->taken, 0, sizeof load->taken);
    load->queued = 0;
    load->payload_bytes = payload_bytes;
    w = start(dir.fs, load, &result, &replay_cpu_ns);
    bench_check(wal_start(w, &ei), &ei);
    begin = clock_process_cpu_ns();
    for (uint64_t i = 1; i <= commit_count; i++) {
        for (uint32_t s = 0; s < SHARDS; s++)
            sequences[s] = i;
        __atomic_store_n(&load->queued, i, __ATOMIC_RELEASE);
        wal_notify_bytes(w, SHARDS, SHARDS, (uint64_t)SHARDS * payload_bytes);
        bench_check(wal_wait_blocking(w, sequences, &ei), &ei);
    }
    commit_cpu_ns = clock_process_cpu_ns() - begin;
    wal_stats_get(w, &stats);
    bench_check(wal_close(w, 10000, &ei), &ei);
    frames = commit_count * SHARDS;
    figure("commit", payload_bytes, "cpu_per_frame", (double)commit_cpu_ns / (double)frames, "ns");
    figure("commit", payload_bytes, "cpu_per_byte",
           (double)commit_cpu_ns / (double)(frames * payload_bytes), "ns");
    figure("stored", payload_bytes, "bytes_per_byte",
           (double)stats.bytes_written / (double)(frames * payload_bytes), "B");
    w = start(dir.fs, load, &result, &replay_cpu_ns);
    if (result.entry_count != frames || result.bad_frame_count != 0)
        bench_fail("replay does not find what was committed", NULL);
    wal_abandon(w);
    figure("replay", payload_bytes, "cpu_per_frame", (double)replay_cpu_ns / (double)frames, "ns");
    figure("replay", payload_bytes, "cpu_per_byte",
           (double)replay_cpu_ns / (double)(frames * payload_bytes), "ns");
    bench_dir_close(&dir);
}

int main(int argc, char **argv)
{
    struct load load = {.pattern = pattern_new()};
    struct bench_args args;

    bench_args_init(&args, argc, argv, 0, usage);
    measure(&load, 512, 500);     /* stays uncompressed */
    measure(&load, 6 << 10, 500); /* about 512 samples */
    measure(&load, 64 << 10, 200);
    free(load.pattern);
    return 0;
}
