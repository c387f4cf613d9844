/*
 * A segment image through the whole replay: header, scan, checksums, decompression, hand-over, cut.
 * Must not crash, read out of bounds, hang, or hand over a payload that is not as announced; and
 * what replay kept of the file must read the same a second time.
 *
 * Checksums would stop most of what a fuzzer makes up, so the first byte says what to repair:
 * bit 0 the segment header's, bit 1 those of all frame headers, bit 2 those of payloads; bit 3
 * writes segment number, epoch and a small shard into every frame header as well.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file_sim.h"
#include "wal/format_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

enum { SHARDS = 4, IMAGE_SIZE_MAX = 1 << 16 };
enum { REPAIR_SEGMENT = 1, REPAIR_FRAMES = 2, REPAIR_PAYLOADS = 4, REPAIR_IDENTITY = 8 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void put_le(uint8_t *p, uint64_t v, size_t size)
{
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void repair_frame(uint8_t *frame, size_t left, unsigned repairs)
{
    uint32_t stored_size;

    if (repairs & REPAIR_IDENTITY) {
        put_le(frame + 12, frame[12] % SHARDS, 2);
        put_le(frame + 28, 1, 4);
        put_le(frame + 32, 77, 8);
    }
    memcpy(&stored_size, frame + 4, sizeof stored_size);
    if ((repairs & REPAIR_PAYLOADS) && stored_size <= left - FRAME_HEADER_SIZE)
        put_le(frame + 40, crc32c(frame + FRAME_HEADER_SIZE, stored_size), 4);
    put_le(frame + 44, crc32c(frame, 44), 4);
}

static void repair(uint8_t *image, size_t size, unsigned repairs)
{
    if ((repairs & REPAIR_SEGMENT) && size >= SEGMENT_HEADER_SIZE)
        put_le(image + 60, crc32c(image, 60), 4);
    if (!(repairs & REPAIR_FRAMES))
        return;
    for (size_t i = 0; i + FRAME_HEADER_SIZE <= size; i++) {
        if (memcmp(image + i, frame_magic, FRAME_MAGIC_SIZE) == 0)
            repair_frame(image + i, size - i, repairs);
    }
}

struct tally {
    _Atomic uint64_t entries, payload_sum, lost;
    uint64_t next[SHARDS];
};

static enum err sink_apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                           struct bytes payload, struct errinfo *ei)
{
    struct tally *t = ctx;
    uint64_t sum = 0;

    (void)ei;
    REQUIRE(shard < SHARDS && entry_count > 0 && first_sequence > 0);
    REQUIRE(first_sequence >= t->next[shard]);
    if (payload.size > 0 && payload.data[0] == 0xff)
        return ERR_CORRUPT; /* refused, so its rewritten copy may come yet */
    t->next[shard] = first_sequence + entry_count;
    for (size_t i = 0; i < payload.size; i++) /* every byte must be readable */
        sum += payload.data[i];
    t->payload_sum += sum;
    t->entries += entry_count;
    return ERR_OK;
}

static void sink_lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    struct tally *t = ctx;

    REQUIRE(shard < SHARDS && from_sequence < to_sequence);
    t->lost += to_sequence - from_sequence;
}

static enum err replay(struct fs *fs, struct tally *t, struct wal_replay_result *result)
{
    struct wal_options options = {.fs = fs, .shard_count = SHARDS};
    struct wal_sink sink = {.ctx = t, .apply = sink_apply, .lost = sink_lost};
    struct wal *w;
    enum err e;

    *t = (struct tally){0};
    REQUIRE(wal_open(&options, &w, NULL) == ERR_OK);
    e = wal_replay(w, &sink, 1, result, NULL);
    wal_abandon(w);
    REQUIRE(e == ERR_OK || e == ERR_UNSUPPORTED || e == ERR_INVALID);
    return e;
}

static void write_image(struct fs *fs, const uint8_t *image, size_t size)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)image, .iov_len = size};
    struct file *f;

    REQUIRE(fs_mkdir(fs, "wal", NULL) == ERR_OK);
    REQUIRE(file_open(fs, "wal/00000001.wal", FILE_CREATE, &f, NULL) == ERR_OK);
    if (size > 0)
        REQUIRE(file_write(f, &iov, 1, 0, NULL) == ERR_OK);
    file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wal_replay_result first, second;
    struct tally t, again;
    uint8_t *image;
    struct fs *fs;

    if (size < 1 || size > IMAGE_SIZE_MAX)
        return 0;
    image = malloc(size);
    REQUIRE(image != NULL);
    memcpy(image, data + 1, size - 1);
    repair(image, size - 1, data[0]);
    REQUIRE(fs_sim_new(1, &fs, NULL) == ERR_OK);
    write_image(fs, image, size - 1);
    free(image);
    if (replay(fs, &t, &first) == ERR_OK) {
        REQUIRE(replay(fs, &again, &second) == ERR_OK);
        REQUIRE(second.torn_tail_bytes == 0);
        REQUIRE(again.entries == t.entries && again.payload_sum == t.payload_sum);
    }
    fs_free(fs);
    return 0;
}
