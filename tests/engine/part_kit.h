/*
 * Random parts and the plain list they are compared with.
 */
#ifndef RIMSTONE_TESTS_ENGINE_PART_KIT_H
#define RIMSTONE_TESTS_ENGINE_PART_KIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/file_sim.h"
#include "engine/part.h"
#include "tests/lib/test_support.h"

struct kit_chunk {
    size_t count;
    int64_t *t_ms;
    double *value;               /* of a histogram: its sum */
    struct histogram *histogram; /* NULL: floats */
};
struct kit_series {
    struct labels labels;
    struct hash128 fingerprint;
    size_t chunk_count;
    struct kit_chunk *chunks;
};
/* Series in storage order. */
struct kit_model {
    struct arena arena;
    size_t count;
    struct kit_series *series;
};

struct kit_shape {
    size_t series_count; /* before repeats are dropped */
    size_t spread;       /* how many different values some labels have */
    size_t samples_max;  /* in a chunk */
    size_t chunks_max;
    bool has_histograms; /* some chunks are of them */
};
void kit_model_init(struct kit_model *m, struct test_random *r, struct kit_shape shape);
void kit_model_done(struct kit_model *m);

extern const struct part_key kit_key;

/* Writes all of the model; stops at the first failure. `id` as in part_writer_options. */
enum err kit_write(struct part_store *s, const char *dir, const struct kit_model *m, uint64_t id,
                   struct part_info *info, struct errinfo *ei);

struct kit_store {
    struct fs *fs;
    struct budget memory;
    struct part_store *store;
};
/* On a simulated file layer. */
void kit_store_init(struct kit_store *k, uint64_t seed, uint64_t cache_bytes);
/* Checks that all memory was given back. */
void kit_store_done(struct kit_store *k);

/* Every answer of the part is that of the model. */
void kit_check_all(struct part *p, const struct kit_model *m);
/* The answer or an error that names the part, never another answer. ERR_OK when all was right. */
enum err kit_check_or_error(struct part *p, const struct kit_model *m, struct errinfo *ei);

#endif
