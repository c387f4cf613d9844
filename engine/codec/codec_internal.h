/*
 * What the codec files share: the inner loops (built twice, chosen once) and the packed integer
 * column that values and timestamps are both made of.
 */
#ifndef RIMSTONE_ENGINE_CODEC_CODEC_INTERNAL_H
#define RIMSTONE_ENGINE_CODEC_CODEC_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "engine/codec.h"

/* Decoders build integers in the caller's double or int64 array and turn them into values in
 * place. */
typedef uint64_t __attribute__((may_alias)) codec_word;

/* The inner loops. Both builds give the same results bit for bit; tests compare them. */
struct codec_kernels {
    /* out[i] = x[i + 1] - x[i] for i in [0, m), wrapping. */
    void (*differences)(const uint64_t *x, uint64_t *out, size_t m);
    /* Smallest and largest of each CODEC_STAT_BLOCK of d[0..m), m > 0, as signed numbers. Returns
     * the bits in which any two of them differ. */
    uint64_t (*ranges)(const uint64_t *d, size_t m, int64_t *mins, int64_t *maxs);
    /* How many i in [1, n) have other bits than i - 1. */
    size_t (*changes)(const double *v, size_t n);
    /* x[i] = v[i] * power rounded; returns how many of them do not give v[i] back. */
    size_t (*decimal_from)(const double *v, size_t n, double power, uint64_t *x);
    /* In place: a[i] = (double)(int64_t)a[i] / power. power 1 means no division. */
    void (*decimal_to)(codec_word *a, size_t n, double power);
    /* Writes (d[i] - base) >> shift as `width`-bit numbers (0 to 57, or 64), lowest bit first:
     * codec_packed_size() bytes, and scribbles at most 8 behind them. */
    void (*pack)(const uint64_t *d, size_t count, uint64_t base, unsigned shift, unsigned width,
                 uint8_t *out);
    /* out[i] = (packed[i] << shift) + base. `size` is how much may be read at p, at least
     * codec_packed_size(). */
    void (*unpack)(const uint8_t *p, size_t size, size_t count, uint64_t base, unsigned shift,
                   unsigned width, codec_word *out);
    /* a[i] += a[i - 1] for i in [1, n), wrapping. */
    void (*prefix_sum)(codec_word *a, size_t n);
};

extern const struct codec_kernels codec_kernels_portable;
#if defined(__x86_64__)
extern const struct codec_kernels codec_kernels_avx2;
#endif
/* The build this CPU should use; constant once main() has started. */
const struct codec_kernels *codec_kernels_get(void);

enum {
    CODEC_WIDTH_MAX = 57, /* the widest number that 8 bytes hold at any bit offset; then 64 */
    CODEC_EXPONENT_MAX = 14,
};

static inline size_t codec_packed_size(size_t count, unsigned width)
{
    return (count * width + 7) / 8;
}
static inline unsigned codec_bit_length(uint64_t v)
{
    return v == 0 ? 0 : 64 - (unsigned)__builtin_clzll(v);
}
/* The smallest width that the packer takes for numbers up to `max`. */
static inline unsigned codec_width_for(uint64_t max)
{
    unsigned bits = codec_bit_length(max);

    return bits > CODEC_WIDTH_MAX ? 64 : bits;
}
static inline size_t codec_varint_size(uint64_t v)
{
    return (codec_bit_length(v | 1) + 6) / 7;
}
static inline uint64_t codec_zigzag(uint64_t v)
{
    return zigzag_encode((int64_t)v);
}
static inline uint64_t codec_unzigzag(uint64_t v)
{
    return (uint64_t)zigzag_decode(v);
}
static inline unsigned codec_log2_ceiling(size_t count)
{
    return codec_bit_length(count - 1);
}

/* How a column of integers will be stored; made by codec_ints_plan(). */
struct codec_ints_plan {
    unsigned order;     /* of the differences that are packed: 0, 1 or 2 */
    unsigned block_log; /* blocks of 1 << block_log residuals; 0: all in one */
    unsigned width, shift;
    uint64_t base;
    size_t outlier_count;
    size_t size; /* exact, in bytes */
};

/*
 * Finds the smallest form of the integers s->residuals[0][0..n), n > 0. The plan is good until the
 * scratch changes. codec_ints_write() writes plan->size bytes (and scribbles up to 8 more) and
 * returns that size; it spoils the residuals.
 */
void codec_ints_plan(struct codec_scratch *s, size_t n, struct codec_ints_plan *plan);
size_t codec_ints_write(struct codec_scratch *s, size_t n, const struct codec_ints_plan *plan,
                        uint8_t *out);
/* Reads n > 0 integers. False when the bytes are no such column. */
MUST_USE bool codec_ints_read(struct byte_reader *r, size_t n, codec_word *out);

/* Powers of ten, exact. */
extern const double codec_powers[CODEC_EXPONENT_MAX + 1];

/* A list of positions that only grow, each below 2^16: gaps as varints. */
size_t codec_positions_size(const uint16_t *positions, size_t count);
uint8_t *codec_positions_write(uint8_t *out, const uint16_t *positions, size_t count);

/* Parts of the value column that encoder and decoder share. */
enum {
    CODEC_KIND_MASK = 15,
    CODEC_EXPONENT_BIT = 4,  /* the first byte's high bits: the decimal exponent */
    CODEC_CONSTANT_RAW = 15, /* in place of an exponent: 8 bytes follow */
    CODEC_DICTIONARY_MAX = 128,
    CODEC_SPLIT_LOW_MIN = 48, /* so that the high part fits 16 bits */
    CODEC_SPLIT_LOW_MAX = 52,
};
enum codec_exceptions { CODEC_EXCEPTIONS_OWN, CODEC_EXCEPTIONS_SAME, CODEC_EXCEPTIONS_STALE };
#define CODEC_STALE_BITS UINT64_C(0x7ff0000000000002) /* Prometheus's staleness marker */

#endif
