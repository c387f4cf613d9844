/*
 * The manifest: what a data directory is and which files count. docs/formats/manifest.md.
 *
 * A file that has one of our names and is not in the manifest is debris: of a seal, flush or merge
 * that was cut off before its files were named, or after they were no longer.
 */
#ifndef RIMSTONE_ENGINE_FILES_MANIFEST_INTERNAL_H
#define RIMSTONE_ENGINE_FILES_MANIFEST_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "engine/delete/purge_list_internal.h"
#include "engine/delete/tombstone_internal.h"
#include "engine/part.h"

#define MANIFEST_PATH "manifest"
#define MANIFEST_TEMP_PATH "manifest.tmp"
/* Folders of the data directory, beside "wal". */
#define MANIFEST_SHARDS_DIR "shards" /* sealed, late and series files */
#define MANIFEST_PARTS_DIR "parts"
/* Of names that damaged files get when a start goes on without them. */
#define SET_ASIDE_PREFIX "damaged-"

enum {
    MANIFEST_V1_SIZE = 256,
    MANIFEST_HEAD_SIZE = 256,
    MANIFEST_SIZE_MAX = 256 << 20,
    MANIFEST_PATH_SIZE = 256, /* of any file of ours, folder included */
};

enum manifest_kind {
    MANIFEST_SEALED = 1,
    MANIFEST_LATE = 2,
    MANIFEST_SERIES = 3,
};

/* A file of one shard that is not a part. */
struct manifest_file {
    enum manifest_kind kind;
    uint32_t shard, shard_count; /* the count it was written under */
    uint64_t number;             /* never used twice in a directory, whatever the kind */
    uint64_t durable_size;       /* synced up to here: what lies behind may be cut off */
};

struct manifest_part {
    struct part_key key;
    /* Tombstones up to this generation have been applied to the samples: readers would find none
     * that they hit. */
    uint64_t purged_generation;
    int64_t min_time_ms, max_time_ms; /* of the samples; min > max in a part without any */
    uint64_t sample_count, index_size, chunks_size;
};

/* Zero-initialise; manifest_done() frees what it owns. */
struct manifest {
    uint32_t shard_count; /* a power of two in 1..4096 */
    struct hash_secret secret;
    uint64_t next_file_number;   /* above that of every file ever named; at least 1 */
    uint64_t *covered_sequences; /* owned: per shard, the log up to here is in the files below;
                                  * NULL: all 0 */
    struct manifest_file *files; /* owned */
    size_t file_count, file_capacity;
    struct manifest_part *parts; /* owned */
    size_t part_count, part_capacity;
    struct tombstone_list *tombstones; /* counted; NULL: none */
    struct purge_list *purges;         /* the same */
};

void manifest_done(struct manifest *m);
MUST_USE enum err manifest_copy(const struct manifest *m, struct manifest *out, struct errinfo *ei);

/* ---- changing one in memory; the disk knows by manifest_write() only ---- */

/* ERR_EXISTS when the number is named already; raises next_file_number above it. */
MUST_USE enum err manifest_file_add(struct manifest *m, const struct manifest_file *file,
                                    struct errinfo *ei);
/* NULL if there is none; borrowed until the next change. */
struct manifest_file *manifest_file_find(const struct manifest *m, uint64_t number);
/* False if there is none. */
bool manifest_file_remove(struct manifest *m, uint64_t number);
/* ERR_EXISTS when the whole key is named already. */
MUST_USE enum err manifest_part_add(struct manifest *m, const struct manifest_part *part,
                                    struct errinfo *ei);
struct manifest_part *manifest_part_find(const struct manifest *m, const struct part_key *key);
bool manifest_part_remove(struct manifest *m, const struct part_key *key);
/* Makes covered_sequences an array of shard_count. */
MUST_USE enum err manifest_sequences_reserve(struct manifest *m, struct errinfo *ei);

/* ---- disk ---- */

/* Reads the manifest, of this version or an older one. `out` needs manifest_done() on success.
 * ERR_NOT_FOUND: a new directory. ERR_CORRUPT: damaged. ERR_UNSUPPORTED: a newer version, or
 * something this program must understand and does not. */
MUST_USE enum err manifest_read(struct fs *fs, struct manifest *out, struct errinfo *ei);
/* Replaces the manifest atomically and durably: after a crash the old one or the new one is there;
 * also after an error. The files it names must be durable before. */
MUST_USE enum err manifest_write(struct fs *fs, const struct manifest *m, struct errinfo *ei);

/* The two forms, for tests and tools. */
MUST_USE enum err manifest_encode(const struct manifest *m, struct byte_writer *w,
                                  struct errinfo *ei);
MUST_USE enum err manifest_decode(const uint8_t *data, size_t size, struct manifest *out,
                                  struct errinfo *ei);

/* ---- names ---- */

/* "shards/0003-0000000042.sealed". */
void manifest_file_path(const struct manifest_file *file, char out[MANIFEST_PATH_SIZE]);
/* Reads such a name without the folder, exactly as it is made; false for any other. */
bool manifest_file_name_parse(const char *name, enum manifest_kind *kind, uint32_t *shard,
                              uint64_t *number);

/* ---- debris ---- */

struct manifest_paths {
    char **items; /* owned, each of them too; freed by manifest_paths_done() */
    size_t count, capacity;
};
/* Files with names of ours that the manifest does not name, temporary ones included, with their
 * folders. Other files are left alone. Missing folders hold nothing. */
MUST_USE enum err manifest_debris(struct fs *fs, const struct manifest *m,
                                  struct manifest_paths *out, struct errinfo *ei);
void manifest_paths_done(struct manifest_paths *paths);

#endif
