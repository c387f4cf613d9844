/*
 * Manifest of a data directory, version 1: 256 bytes, little-endian. docs/formats/manifest.md
 *
 *   0        8         12     16        24        32        36       40
 *   | magic  | version | zero | must    | may     | shard   | secret | secret's id
 *   |        |         |      | under-  | ignore  | count   | size   | (8 bytes)
 *   |        |         |      | stand   |         |         |        |
 *   48                                  240                 252      256
 *   | secret (192 bytes)                | zero              | crc32c |
 *
 * The checksum covers bytes [0, 252).
 */
#include "engine/manifest_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "wal/wal.h"

static const uint8_t manifest_magic[8] = {'R', 'I', 'M', 'M', 'A', 'N', 'I', 'F'};

enum {
    MANIFEST_VERSION = 1,
    MANIFEST_SECRET_AT = 48,
    MANIFEST_CRC_AT = MANIFEST_SIZE - 4,
    MANIFEST_FEATURES_KNOWN = 0, /* none yet */
};
static_assert(MANIFEST_SECRET_AT + HASH_SECRET_SIZE <= MANIFEST_CRC_AT, "the secret fits");

static void put(uint8_t *at, uint64_t v, size_t size)
{
    memcpy(at, &v, size);
}

void manifest_encode(const struct manifest *m, uint8_t out[MANIFEST_SIZE])
{
    memset(out, 0, MANIFEST_SIZE);
    memcpy(out, manifest_magic, sizeof manifest_magic);
    put(out + 8, MANIFEST_VERSION, 4);
    put(out + 32, m->shard_count, 4);
    put(out + 36, HASH_SECRET_SIZE, 4);
    put(out + 40, m->secret.id, 8);
    memcpy(out + MANIFEST_SECRET_AT, m->secret.bytes, HASH_SECRET_SIZE);
    put(out + MANIFEST_CRC_AT, crc32c(out, MANIFEST_CRC_AT), 4);
}

static enum err check_body(struct byte_reader *r, struct manifest *out, struct errinfo *ei)
{
    uint64_t must_understand = reader_le64(r);

    (void)reader_le64(r); /* features that may be ignored */
    uint32_t shard_count = reader_le32(r), secret_size = reader_le32(r);
    uint64_t secret_id = reader_le64(r);
    const uint8_t *secret = reader_take(r, HASH_SECRET_SIZE);

    if (must_understand & ~(uint64_t)MANIFEST_FEATURES_KNOWN)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0,
                           "%s: unknown features %" PRIx64 "; a newer version wrote it",
                           MANIFEST_PATH, must_understand);
    if (r->failed || shard_count == 0 || shard_count > WAL_SHARD_COUNT_MAX ||
        (shard_count & (shard_count - 1)) != 0 || secret_size != HASH_SECRET_SIZE)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: %u shards, secret of %u bytes", MANIFEST_PATH,
                           shard_count, secret_size);
    struct hash_secret loaded;
    hash_secret_from_bytes(&loaded, secret);
    if (loaded.id != secret_id)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: the secret's id does not fit the secret",
                           MANIFEST_PATH);
    out->shard_count = shard_count;
    out->secret = loaded;
    return ERR_OK;
}

enum err manifest_decode(const uint8_t *data, size_t size, struct manifest *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *magic = reader_take(&r, sizeof manifest_magic);
    uint32_t version = reader_le32(&r), crc;

    if (magic == NULL || memcmp(magic, manifest_magic, sizeof manifest_magic) != 0)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: not a manifest", MANIFEST_PATH);
    if (!r.failed && version > MANIFEST_VERSION)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "%s: version %u, this program knows %u",
                           MANIFEST_PATH, version, MANIFEST_VERSION);
    if (size != MANIFEST_SIZE)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: %zu bytes instead of %d", MANIFEST_PATH, size,
                           MANIFEST_SIZE);
    memcpy(&crc, data + MANIFEST_CRC_AT, sizeof crc);
    if (crc != crc32c(data, MANIFEST_CRC_AT))
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: checksum of bytes 0 to %d is wrong",
                           MANIFEST_PATH, MANIFEST_CRC_AT);
    (void)reader_le32(&r); /* zero */
    return check_body(&r, out, ei);
}

enum err manifest_read(struct fs *fs, struct manifest *out, struct errinfo *ei)
{
    uint8_t data[MANIFEST_SIZE + 1]; /* one more, to notice a longer file */
    struct file *f = NULL;
    size_t size = 0;
    bool exists = false;
    enum err e = fs_exists(fs, MANIFEST_PATH, &exists, ei);

    if (e != ERR_OK)
        return e;
    if (!exists)
        return ERR_NOT_FOUND; /* no story: a new directory is no failure */
    e = file_open(fs, MANIFEST_PATH, FILE_READ, &f, ei);
    if (e != ERR_OK)
        return e;
    e = file_read_some(f, data, sizeof data, 0, &size, ei);
    file_close(f);
    return e == ERR_OK ? manifest_decode(data, size, out, ei) : e;
}

/* Debris of a start that was cut off is ours to remove. */
static enum err temp_remove(struct fs *fs, struct errinfo *ei)
{
    bool exists = false;
    enum err e = fs_exists(fs, MANIFEST_TEMP_PATH, &exists, ei);

    if (e == ERR_OK && exists)
        e = fs_unlink(fs, MANIFEST_TEMP_PATH, ei);
    return e;
}

enum err manifest_write(struct fs *fs, const struct manifest *m, struct errinfo *ei)
{
    uint8_t data[MANIFEST_SIZE];
    struct iovec iov = {data, sizeof data};
    struct file *f = NULL;
    enum err e;

    manifest_encode(m, data);
    e = temp_remove(fs, ei);
    if (e == ERR_OK)
        e = file_open(fs, MANIFEST_TEMP_PATH, FILE_CREATE, &f, ei);
    if (e == ERR_OK)
        e = file_write_sync(f, &iov, 1, 0, ei);
    file_close(f);
    if (e == ERR_OK)
        e = fs_rename(fs, MANIFEST_TEMP_PATH, MANIFEST_PATH, ei);
    if (e == ERR_OK)
        e = fs_sync_dir(fs, ".", ei);
    return e;
}
