/*
 * Sealed files and parts made of plain arrays, for tests of sets and of queriers over them.
 */
#ifndef RIMSTONE_TESTS_ENGINE_SET_KIT_H
#define RIMSTONE_TESTS_ENGINE_SET_KIT_H

#include "engine/files/file_set_internal.h"
#include "tests/lib/test_support.h"

/* What goes into a file as one chunk, or as several where floats and histograms alternate. */
struct set_chunk {
    uint32_t slot;
    uint16_t generation;
    const struct labels *labels; /* parts: of the series */
    struct hash128 fingerprint;  /* parts */
    size_t count;
    const int64_t *t_ms;
    const double *value;
    const struct histogram *const *histogram; /* NULL, or one a sample, NULL where it is a float */
};

struct set_sealed {
    struct sealed_source *source; /* one reference */
    struct sealed_writer *writer; /* owned: freed by set_sealed_end() */
};
/* Creates "<kind>-<number>" without slices. */
struct set_sealed set_sealed_begin(struct fs *fs, enum sealed_kind kind, uint64_t number);
/* Writes chunks, ascending by slot and then time, as one slice of the source. */
void set_sealed_slice(struct set_sealed *s, const struct set_chunk *chunks, size_t count);
/* Frees the writer; the source stays. */
void set_sealed_end(struct set_sealed *s);

/* A part in the root folder, of one window; chunks in any order, those of a series ascending. */
struct part_source *set_part(struct fs *fs, struct part_store *store, const struct part_key *key,
                             struct set_chunk *chunks, size_t count, bool is_foreign);

/* `base` with more or less; takes over the reference to `base` and those that are added. */
struct file_set *set_with_sealed(struct file_set *base, struct sealed_source *added);
struct file_set *set_with_part(struct file_set *base, struct part_source *added);

#endif
