/*
 * The manifest: what a data directory is. docs/formats/manifest.md.
 */
#ifndef RIMSTONE_ENGINE_MANIFEST_INTERNAL_H
#define RIMSTONE_ENGINE_MANIFEST_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/fingerprint.h"

#define MANIFEST_PATH "manifest"
#define MANIFEST_TEMP_PATH "manifest.tmp"

enum { MANIFEST_SIZE = 256 };

struct manifest {
    uint32_t shard_count; /* a power of two in 1..4096 */
    struct hash_secret secret;
};

/* Reads the manifest. ERR_NOT_FOUND: a new directory. ERR_CORRUPT: damaged. ERR_UNSUPPORTED: a
 * newer version, or a feature this program must understand and does not. */
MUST_USE enum err manifest_read(struct fs *fs, struct manifest *out, struct errinfo *ei);
/* Replaces the manifest atomically and durably: after a crash the old one or the new one is there.
 */
MUST_USE enum err manifest_write(struct fs *fs, const struct manifest *m, struct errinfo *ei);

/* The two forms, for tests. */
void manifest_encode(const struct manifest *m, uint8_t out[MANIFEST_SIZE]);
MUST_USE enum err manifest_decode(const uint8_t *data, size_t size, struct manifest *out,
                                  struct errinfo *ei);

#endif
