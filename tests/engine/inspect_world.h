/*
 * A data directory with a file of every kind, for whoever looks at files without serving them: a
 * manifest that names two parts, sealed and late files, a series file, and a log of several
 * segments. Small, so that every byte can be tried. The files do not belong together as those of
 * one store do; each is whole.
 */
#ifndef RIMSTONE_TESTS_ENGINE_INSPECT_WORLD_H
#define RIMSTONE_TESTS_ENGINE_INSPECT_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "engine/files/manifest_internal.h"

enum { WORLD_FILES_MAX = 64 };

struct world_file {
    char path[MANIFEST_PATH_SIZE];
    uint64_t size;
    bool is_log;
};

struct world {
    struct fs *fs;                            /* a simulated layer */
    struct world_file files[WORLD_FILES_MAX]; /* all that count, the log's ascending at the end */
    size_t file_count, segment_count;
    uint64_t last_frame_offset; /* of the last segment */
    uint64_t part_samples, sealed_samples, late_samples, log_samples;
};

void world_init(struct world *w, uint64_t seed);
void world_done(struct world *w);
/* The file with that path; NULL if it is none of the world. */
const struct world_file *world_file_find(const struct world *w, const char *path);

#endif
