/*
 * Codecs of a chunk's columns in sealed files and parts: values and timestamps, each a column of
 * n samples (1 to CODEC_SAMPLES_MAX) turned into bytes and back, bit for bit. A pure library: no
 * I/O, no locks, no allocation; every function may run in any number of threads at once, with one
 * scratch each. Format: docs/formats/chunk-codecs.md; how the encoder chooses:
 * engine/codec/README.md.
 *
 * A column does not hold its own length or sample count: whoever stores it (the chunk index) keeps
 * both, and a checksum. The decoders still trust nothing they are given.
 */
#ifndef RIMSTONE_ENGINE_CODEC_H
#define RIMSTONE_ENGINE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    CODEC_VERSION = 1, /* of both column formats; files that hold columns record it */
    CODEC_SAMPLES_MAX = 8192,
    CODEC_STAT_BLOCK = 32, /* the encoder's smallest block */
    CODEC_STAT_BLOCK_MAX = CODEC_SAMPLES_MAX / CODEC_STAT_BLOCK,
    CODEC_BOUND_SLACK = 32,
};

/* Working memory of the encoders, about 350 KB, of which short columns touch only the beginning of
 * each array. The caller allocates one per thread; it needs no initialisation and keeps nothing
 * between calls. */
struct codec_scratch {
    /* An integer column, its differences and the differences of those. */
    uint64_t residuals[3][CODEC_SAMPLES_MAX];
    int64_t block_min[3][CODEC_STAT_BLOCK_MAX], block_max[3][CODEC_STAT_BLOCK_MAX];
    double run_values[CODEC_SAMPLES_MAX];
    uint16_t run_starts[CODEC_SAMPLES_MAX];
    uint16_t exceptions[CODEC_SAMPLES_MAX];
    uint16_t outliers[CODEC_SAMPLES_MAX];
    uint64_t excesses[CODEC_SAMPLES_MAX];
};

/* What an encoder may write at most for n samples, scribbling past the result included. */
static inline size_t codec_bound(size_t n)
{
    return 8 * n + CODEC_BOUND_SLACK;
}

/*
 * Encodes the n values v[0..n), n from 1 to CODEC_SAMPLES_MAX, into `out`, which has room for
 * codec_bound(n) bytes. Returns how many were used: never more than 8 * n + 1; what lies between
 * them and the bound is undefined afterwards. The same values always give the same bytes.
 * The decimal form follows Afroozeh et al., "ALP", SIGMOD 2024, with division by a power of ten in
 * place of two factors.
 */
size_t codec_values_encode(const double *v, size_t n, struct codec_scratch *s, uint8_t *out);

/*
 * Fills out[0..n) from a column of exactly `size` bytes. False when the bytes are no such column;
 * out[0..n) is then undefined. Reads nothing outside of the column, writes nothing outside of
 * out[0..n).
 */
MUST_USE bool codec_values_decode(const uint8_t *data, size_t size, size_t n, double *out);

/* The same for timestamps in milliseconds: any int64, in any order, although increasing ones are
 * what the format is made for. */
size_t codec_times_encode(const int64_t *t_ms, size_t n, struct codec_scratch *s, uint8_t *out);
MUST_USE bool codec_times_decode(const uint8_t *data, size_t size, size_t n, int64_t *out_ms);

/* A hash of a timestamp column, for finding equal ones in memory; never stored. It has no secret:
 * whoever gets a match compares the columns. */
uint64_t codec_times_hash(const int64_t *t_ms, size_t n);

/* How a value column is stored; rimtool analyze reports them by these numbers and names. They are
 * the low four bits of its first byte. */
enum codec_kind {
    CODEC_RAW = 1,
    CODEC_CONSTANT = 2,
    CODEC_DECIMAL = 3,
    CODEC_DECIMAL_PATCHED = 4, /* some values stand beside the integers */
    CODEC_BITS = 5,            /* the doubles' bits, packed as integers */
    CODEC_DICTIONARY = 6,
    CODEC_RUNS_LIST = 7, /* starts of runs as a list; the runs' values are a column of their own */
    CODEC_RUNS_BITMAP = 8, /* the same, starts as one bit a sample */
    CODEC_SPLIT = 9,       /* high bits by a dictionary, low bits packed */
};
/* The kind of a stored column, 0 if `size` is 0 or the kind is unknown. */
unsigned codec_values_kind(const uint8_t *data, size_t size);
/* "raw", "constant", ...; "unknown" for anything else. */
const char *codec_kind_name(unsigned kind);

#endif
