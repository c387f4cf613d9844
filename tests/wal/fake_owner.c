#include "tests/wal/fake_owner.h"

#include <stdlib.h>

#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"

enum { FAKE_WORDS_DEFAULT = 1 };

struct fake_owner *fake_new(uint32_t shard_count)
{
    struct fake_owner *o = calloc(1, sizeof *o);

    CHECK(o != NULL);
    o->shards = calloc(shard_count, sizeof *o->shards);
    CHECK(o->shards != NULL);
    o->shard_count = shard_count;
    o->entry_words = FAKE_WORDS_DEFAULT;
    for (uint32_t i = 0; i < shard_count; i++) {
        mutex_init(&o->shards[i].lock);
        o->shards[i].queue_begin = o->shards[i].queue_end = 1;
    }
    return o;
}

void fake_free(struct fake_owner *o)
{
    if (o == NULL)
        return;
    CHECK(o->held_batches == 0);
    for (uint32_t i = 0; i < o->shard_count; i++) {
        mutex_done(&o->shards[i].lock);
        free(o->shards[i].applied);
    }
    free(o->shards);
    free(o);
}

uint64_t fake_entry_value(uint32_t shard, uint64_t sequence)
{
    uint64_t z = (sequence + ((uint64_t)shard << 40)) * 0x9e3779b97f4a7c15U;

    return z ^ (z >> 29);
}

static uint64_t entry_word(const struct fake_owner *o, uint32_t shard, uint64_t sequence,
                           uint32_t word)
{
    uint64_t v = fake_entry_value(shard, sequence);

    if (word == 0)
        return v;
    return o->compressible ? word : v * (2 * (uint64_t)word + 1);
}

static bool source_take(void *ctx, uint32_t shard, struct wal_batch *out)
{
    struct fake_owner *o = ctx;
    struct fake_shard *s = &o->shards[shard];
    uint64_t count;

    mutex_lock(&s->lock);
    count = s->queue_end - s->queue_begin;
    if (o->batch_limit > 0 && count > o->batch_limit)
        count = o->batch_limit;
    *out = (struct wal_batch){.first_sequence = s->queue_begin,
                              .entry_count = count,
                              .sample_count = count,
                              .memory_bytes = (size_t)count * o->entry_words * 8,
                              .data = o};
    s->queue_begin += count;
    mutex_unlock(&s->lock);
    if (count > 0)
        o->held_batches++;
    return count > 0;
}

static enum err source_encode(void *ctx, uint32_t shard, const struct wal_batch *batch,
                              struct byte_writer *payload)
{
    struct fake_owner *o = ctx;

    CHECK(batch->data == o);
    if (o->encode_fails > 0) {
        o->encode_fails--;
        return ERR_NOMEM;
    }
    for (uint64_t i = 0; i < batch->entry_count; i++) {
        for (uint32_t word = 0; word < o->entry_words; word++)
            writer_le64(payload, entry_word(o, shard, batch->first_sequence + i, word));
    }
    return ERR_OK;
}

static void source_release(void *ctx, uint32_t shard, struct wal_batch *batch)
{
    struct fake_owner *o = ctx;

    (void)shard;
    CHECK(batch->data == o);
    batch->data = NULL;
    o->held_batches--;
}

struct wal_source fake_source(struct fake_owner *o)
{
    return (struct wal_source){
        .ctx = o, .take = source_take, .encode = source_encode, .release = source_release};
}

static void applied_mark(struct fake_shard *s, uint64_t sequence)
{
    if (sequence >= s->applied_capacity) {
        uint64_t capacity = sequence * 2 + 64;
        bool *applied = calloc(capacity, sizeof *applied);

        CHECK(applied != NULL);
        for (uint64_t i = 0; i < s->applied_capacity; i++)
            applied[i] = s->applied[i];
        free(s->applied);
        s->applied = applied;
        s->applied_capacity = capacity;
    }
    CHECK(!s->applied[sequence]); /* once only */
    s->applied[sequence] = true;
    s->applied_count++;
}

static enum err sink_apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                           struct bytes payload, struct errinfo *ei)
{
    struct fake_owner *o = ctx;
    struct fake_shard *s = &o->shards[shard];
    struct byte_reader r = reader_init(payload.data, payload.size);
    size_t entry_size = payload.size / entry_count;

    (void)ei;
    CHECK(shard < o->shard_count);
    CHECK(entry_size >= 8 && payload.size % (8 * entry_count) == 0);
    CHECK(first_sequence >= s->applied_end); /* in order */
    for (uint64_t i = 0; i < entry_count; i++) {
        CHECK(reader_le64(&r) == fake_entry_value(shard, first_sequence + i));
        CHECK(reader_take(&r, entry_size - 8) != NULL);
        if (o->covered == NULL || first_sequence + i > o->covered[shard])
            applied_mark(s, first_sequence + i);
        else
            s->covered_mate_count++;
    }
    CHECK(o->covered == NULL || first_sequence + entry_count - 1 > o->covered[shard]);
    s->applied_end = first_sequence + entry_count;
    return ERR_OK;
}

static void sink_lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    struct fake_owner *o = ctx;

    CHECK(from_sequence < to_sequence);
    CHECK(o->covered == NULL || from_sequence > o->covered[shard]);
    o->shards[shard].lost_count += to_sequence - from_sequence;
    if (o->shards[shard].lost_from_min == 0 || from_sequence < o->shards[shard].lost_from_min)
        o->shards[shard].lost_from_min = from_sequence;
}

struct wal_sink fake_sink(struct fake_owner *o)
{
    return (struct wal_sink){
        .ctx = o, .apply = sink_apply, .lost = sink_lost, .covered_sequences = o->covered};
}

struct wal_options fake_options(struct fake_owner *o, struct fs *fs)
{
    return (struct wal_options){.fs = fs,
                                .shard_count = o->shard_count,
                                .sync = WAL_SYNC_ALWAYS,
                                .commit_sample_target = 1,
                                .commit_delay_ms = 1,
                                .encode_threads = 1,
                                .source = fake_source(o)};
}

enum err fake_start(struct fake_owner *o, const struct wal_options *options, struct wal **out,
                    struct wal_replay_result *result, struct errinfo *ei)
{
    struct wal_sink sink = fake_sink(o);
    struct wal_replay_result local;
    struct wal *w;
    enum err e = wal_open(options, &w, ei);

    *out = NULL;
    if (e != ERR_OK)
        return e;
    e = wal_replay(w, &sink, 2, result != NULL ? result : &local, ei);
    if (e == ERR_OK) {
        for (uint32_t i = 0; i < o->shard_count; i++)
            o->shards[i].queue_begin = o->shards[i].queue_end = wal_next_sequence(w, i);
        e = wal_start(w, ei);
    }
    if (e != ERR_OK) {
        wal_abandon(w);
        return e;
    }
    *out = w;
    return ERR_OK;
}

uint64_t fake_queue(struct fake_owner *o, uint32_t shard, uint64_t count)
{
    struct fake_shard *s = &o->shards[shard];
    uint64_t newest;

    mutex_lock(&s->lock);
    s->queue_end += count;
    newest = s->queue_end - 1;
    mutex_unlock(&s->lock);
    return newest;
}

enum err fake_write(struct fake_owner *o, struct wal *w, uint32_t shard, uint64_t count,
                    struct errinfo *ei)
{
    uint64_t *sequences = calloc(o->shard_count, sizeof *sequences);
    enum err e;

    CHECK(sequences != NULL);
    sequences[shard] = fake_queue(o, shard, count);
    wal_notify_bytes(w, count, count, count * o->entry_words * 8);
    e = wal_wait_blocking(w, sequences, ei);
    free(sequences);
    return e;
}

bool fake_has(struct fake_owner *o, uint32_t shard, uint64_t sequence)
{
    const struct fake_shard *s = &o->shards[shard];

    return sequence < s->applied_capacity && s->applied[sequence];
}

uint64_t fake_applied(const struct fake_owner *o)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < o->shard_count; i++)
        sum += o->shards[i].applied_count;
    return sum;
}

uint64_t fake_lost(const struct fake_owner *o)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < o->shard_count; i++)
        sum += o->shards[i].lost_count;
    return sum;
}

static uint64_t covered_mates(const struct fake_owner *o)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < o->shard_count; i++)
        sum += o->shards[i].covered_mate_count;
    return sum;
}

struct fake_owner *fake_replay(struct fs *fs, uint32_t shard_count, uint32_t threads,
                               struct wal_replay_result *result)
{
    return fake_replay_covered(fs, shard_count, threads, NULL, result);
}

struct fake_owner *fake_replay_covered(struct fs *fs, uint32_t shard_count, uint32_t threads,
                                       const uint64_t *covered, struct wal_replay_result *result)
{
    struct fake_owner *o = fake_new(shard_count);
    struct wal_options options = fake_options(o, fs);
    struct wal_sink sink;
    struct errinfo ei = {0};
    struct wal *w;

    o->covered = covered;
    sink = fake_sink(o);
    CHECK_OK(wal_open(&options, &w, &ei), &ei);
    CHECK_OK(wal_replay(w, &sink, threads, result, &ei), &ei);
    CHECK(result->entry_count == fake_applied(o) + covered_mates(o));
    CHECK(result->lost_entry_count == fake_lost(o));
    wal_abandon(w);
    return o;
}

size_t fake_file_read(struct fs *fs, const char *path, uint8_t **out)
{
    size_t size;

    *out = test_file_read(fs, path, &size);
    return size;
}

void fake_file_write(struct fs *fs, const char *path, const void *data, size_t size)
{
    struct errinfo ei = {0};
    struct file *f;
    bool exists;

    CHECK_OK(fs_mkdir(fs, "wal", &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    CHECK_OK(fs_exists(fs, path, &exists, &ei), &ei);
    if (exists)
        CHECK_OK(fs_unlink(fs, path, &ei), &ei);
    CHECK_OK(file_open(fs, path, FILE_CREATE, &f, &ei), &ei);
    if (size > 0)
        CHECK_OK(file_write_bytes(f, data, size, 0, &ei), &ei);
    CHECK_OK(file_sync(f, &ei), &ei);
    file_close(f);
    CHECK_OK(fs_sync_dir(fs, "wal", &ei), &ei);
}
