/*
 * A plain twin of a sealed file: chunks as they were given, slice by slice, compared with what a
 * reader finds.
 */
#ifndef RIMSTONE_TESTS_ENGINE_SEALED_TWIN_H
#define RIMSTONE_TESTS_ENGINE_SEALED_TWIN_H

#include "base/file.h"
#include "engine/sealed/sealed_internal.h"
#include "tests/lib/test_support.h"

struct twin_chunk {
    uint32_t slot;
    uint16_t generation;
    size_t count;
    int64_t *t_ms;
    double *value;               /* of a histogram: its sum */
    struct histogram *histogram; /* NULL: floats; in the file's arena */
};

struct twin_slice {
    uint64_t sequence;
    struct twin_chunk *chunks;
    size_t chunk_count;
};

struct twin_file {
    struct twin_slice *slices;
    size_t slice_count;
    bool has_histograms; /* twin_file_fill(): half of the chunks are of them */
    struct arena arena;
};

extern const struct sealed_identity twin_identity;

/* A slice of about `chunk_count` chunks, random in every respect the format allows. `histograms`:
 * an arena for some, or NULL. */
void twin_slice_fill(struct test_random *r, struct twin_slice *slice, size_t chunk_count,
                     size_t sample_max, struct arena *histograms);
void twin_file_fill(struct test_random *r, struct twin_file *twin, size_t slice_count,
                    size_t chunk_count, size_t sample_max);
void twin_file_free(struct twin_file *twin);

MUST_USE enum err twin_slice_write(struct sealed_writer *w, const struct twin_slice *twin,
                                   struct sealed_slice **out, struct errinfo *ei);
/* Writes all slices to a new file; CHECKs that it works. `finish` adds the footer. */
void twin_file_write(struct fs *fs, const char *path, const struct twin_file *twin, bool finish);

/* CHECKs that everything in a slice is the twin's, by one search for all, unless an error comes
 * first, which is returned. */
MUST_USE enum err twin_slice_compare(const struct sealed_file *f, const struct sealed_slice *slice,
                                     const struct twin_slice *twin, struct errinfo *ei);
/* Compares slices of an opened file by their index; damaged ones and those that fail to be read are
 * counted in *bad. */
void twin_file_compare(const struct sealed_opened *o, const struct twin_file *twin, size_t *bad);

#endif
