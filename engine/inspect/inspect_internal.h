/*
 * What the files of an inspection share.
 */
#ifndef RIMSTONE_ENGINE_INSPECT_INSPECT_INTERNAL_H
#define RIMSTONE_ENGINE_INSPECT_INSPECT_INTERNAL_H

#include "base/thread.h"
#include "engine/files/manifest_internal.h"
#include "engine/inspect.h"
#include "engine/log/record_internal.h"
#include "engine/part.h"
#include "engine/sealed/sealed_internal.h"
#include "engine/sealed/series_file_internal.h"

/* ---- findings ---- */

struct finding {
    struct inspect_finding f; /* its texts are owned */
    struct finding *next;
};

/* Thread-safe. Zero-initialise but for the lock. */
struct findings {
    struct mutex lock; /* guards the rest; a leaf */
    struct finding *first;
    size_t count;
    struct errinfo failure; /* the first reason why the inspection cannot go on */
};
void findings_init(struct findings *f);
void findings_done(struct findings *f);
/* Texts are copied. When memory is short the inspection fails. */
void findings_note(struct findings *f, const char *path, const char *format, ...) PRINTF_LIKE(3, 4);
void findings_note_at(struct findings *f, const char *path, uint64_t offset, const char *format,
                      ...) PRINTF_LIKE(4, 5);
/* An error about a file: damage, or, if it says nothing about the file (memory, a stop), the end of
 * the inspection. */
void findings_error(struct findings *f, const char *path, const struct errinfo *ei);
bool findings_failed(struct findings *f);
/* Hands them out by path, damage first; counts. */
void findings_report(struct findings *f, void (*found)(void *ctx, const struct inspect_finding *),
                     void *ctx, struct inspect_verify_result *out);

/* ---- the log ---- */

/* Adds segments and bytes to *result. */
void inspect_log(const struct inspect_options *o, const struct manifest *m, struct findings *f,
                 struct inspect_verify_result *result);

/* The entries of a samples record, for the caller to free(), also after a failure. */
MUST_USE enum err inspect_record_samples(const struct record *record, struct log_entry **out,
                                         size_t *count, struct errinfo *ei);

/* ---- names ---- */

struct sealed_identity inspect_sealed_identity(const struct manifest *m,
                                               const struct manifest_file *file);
struct series_file_identity inspect_series_identity(const struct manifest *m,
                                                    const struct manifest_file *file);
/* "parts/part-....index" */
void inspect_part_path(const struct part_key *key, enum part_file file,
                       char out[MANIFEST_PATH_SIZE]);
/* The file of a part that an error is about; where it names none, both are as good. */
void inspect_part_bad_path(const struct part_key *key, const struct errinfo *ei,
                           char out[MANIFEST_PATH_SIZE]);

/* ---- analysis ---- */

/* The series of a shard by slot. */
struct shard_names {
    struct series_image image;
    bool is_loaded;
    uint32_t *groups,
        *rows; /* owned; by slot; groups[slot] - 1 is an index of image.groups, 0: none */
};

struct analysis {
    const struct inspect_options *o;
    const struct inspect_analyzer *analyzer;
    struct manifest manifest;
    struct part_store *parts;   /* owned */
    struct shard_names *shards; /* owned, manifest.shard_count of them */
    struct arena arena;         /* of the group of series at hand */
    struct inspect_analyze_result result;
};

/* Hands out one series and counts it. */
MUST_USE enum err analysis_give(struct analysis *a, const struct inspect_series *series,
                                struct errinfo *ei);
MUST_USE enum err analysis_check_stop(const struct analysis *a, struct errinfo *ei);
/* Where a series is in its shard's image; false if it is not there. */
bool shard_names_find(const struct shard_names *n, uint32_t slot, uint16_t generation,
                      const struct series_image_group **group, uint32_t *row);
/* In the arena; false when it refuses. */
bool shard_names_labels(const struct shard_names *n, const struct series_image_group *group,
                        uint32_t row, struct arena *arena, struct labels *out);

MUST_USE enum err analyze_part(struct analysis *a, const struct manifest_part *part,
                               struct errinfo *ei);
MUST_USE enum err analyze_sealed(struct analysis *a, const struct manifest_file *file,
                                 const char *path, struct errinfo *ei);
MUST_USE enum err analyze_log(struct analysis *a, struct errinfo *ei);

#endif
