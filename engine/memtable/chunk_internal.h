/*
 * Open and closed chunks of the memtable: blocks, codec, and the series struct they hang off.
 *
 * A chunk is a chain of 32-byte blocks out of one pool of the whole process: 28 bytes of tokens and
 * the number of the next block. The open chunk's writing state stands in the series struct, and
 * with it how often the newest value has come again: a constant series does not touch its blocks.
 * At 120 samples, or two hours after its first, the chunk is closed: one more block, its
 * descriptor, is put in front of the series' list of closed chunks, and the chain never changes
 * again. Borders of windows do not matter here; a seal splits chunks there, since otherwise all
 * series would begin another block at the same moment. Token format:
 * docs/formats/memtable-chunk.md.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_CHUNK_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_CHUNK_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/epoch.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "base/thread.h"
#include "engine/memtable/slab_internal.h"

enum {
    CHUNK_SAMPLE_MAX = 120,
    CHUNK_WINDOW_MS = 2 * 3600 * 1000, /* chunks in files do not cross multiples of this */
    /* Between the first and the last sample of a chunk in memory: steps fit 32 bits. */
    CHUNK_SPAN_MAX_MS = CHUNK_WINDOW_MS,
    CHUNK_BLOCK_PAYLOAD = 28,
    CHUNK_SAMPLE_BYTES_MAX = 14, /* a time token of 5 and a raw value of 9 */
    CHUNK_BYTES_MAX = CHUNK_SAMPLE_MAX * CHUNK_SAMPLE_BYTES_MAX,
    /* Decoding goes by vectors: so many bytes can be read behind the tokens, whatever they are, and
     * so many samples be written behind the last. */
    CHUNK_TOKENS_SLACK = 32,
    CHUNK_DECODE_SLACK = 8,
    CHUNK_TOKENS_ROOM = CHUNK_BYTES_MAX + CHUNK_TOKENS_SLACK,
    CHUNK_DECODE_ROOM = CHUNK_SAMPLE_MAX + CHUNK_DECODE_SLACK,
};

/* Times beyond these do not fit the window number in the series struct: about 4,400 years. */
#define CHUNK_TIME_MIN_MS (-((int64_t)1 << 47))
#define CHUNK_TIME_MAX_MS ((int64_t)1 << 47)

/* Value states: decimal exponents 0, 2, 3 and 6, or a double that fits none of them. */
enum { CHUNK_SCALE_COUNT = 4, CHUNK_SCALE_RAW = 4 };

struct chunk_block {
    uint8_t data[CHUNK_BLOCK_PAYLOAD];
    uint32_t next; /* block number, 0: none */
};
static_assert(sizeof(struct chunk_block) == 32, "two blocks a cache line");

/* What a closed chunk is, in a block of its own. */
struct chunk_descriptor {
    int64_t min_time_ms, max_time_ms;
    uint32_t head; /* first block of the tokens */
    uint16_t size_bytes;
    uint8_t sample_count;
    uint8_t is_moved;  /* written by a detach: another descriptor names the tokens now */
    uint32_t older;    /* the descriptor before this one, 0: none */
    uint32_t detached; /* written by a detach, read by nobody else: the list detached before */
};
static_assert(sizeof(struct chunk_descriptor) == sizeof(struct chunk_block), "one block each");

/* One series of a shard: exactly one cache line, since the append of a sample should touch no more
 * than this line and the tail of its chunk. Guarded by the shard's lock. */
struct series {
    struct hash128 fingerprint;
    int64_t newest_ms; /* INT64_MIN: no sample yet */
    uint64_t newest_bits;
    int64_t open_first_ms;  /* first sample of the open chunk; meaningless while open_count is 0 */
    uint32_t closed;        /* newest closed chunk's descriptor, 0: none */
    uint32_t open_head;     /* first block of the open chunk */
    uint32_t open_tail;     /* and the one being filled */
    uint32_t delta_ms : 24; /* time step of the newest sample, below CHUNK_SPAN_MAX_MS */
    uint32_t run_count : 8; /* newest samples whose run token is not in the blocks yet */
    uint16_t generation;
    uint8_t open_count;          /* samples in the open chunk */
    uint8_t tail_used : 5;       /* bytes of the tail block */
    uint8_t scale : 3;           /* state of the newest value: an exponent's index, or RAW */
    uint32_t oldest_window : 28; /* window of the oldest sample the series ever had */
    uint32_t defined : 1;        /* the slot holds a series */
    uint32_t keyed : 1;          /* some sender key of the front table leads here */
    uint32_t has_files : 1;      /* it has samples outside of its chunks: in files, or late ones */
    /* While defined: it was there at the end of an earlier seal, and so may leave when it has
     * ended. Otherwise: the series is leaving. Queries find it in parts and no write may append to
     * it, but one for its labels brings it back. */
    uint32_t settled : 1;
};
static_assert(sizeof(struct series) == 64, "one cache line");
static_assert(CHUNK_SPAN_MAX_MS < 1 << 24, "a time step fits its field");

/* All blocks of the process, numbered from 1. */
enum {
    CHUNK_REGION_BLOCKS = SLAB_REGION_BYTES / 32,
    CHUNK_REGION_MAX = 65536, /* 4 G blocks, 128 GiB */
    CHUNK_SLICE_BLOCKS = 256, /* what a shard takes at once, at most */
    /* A run's token and the descriptor that close a chunk, and the next one's first block. */
    CHUNK_APPEND_BLOCKS_MAX = 3,
};

struct chunk_pool {
    struct slab *slab; /* borrowed */
    /* Owned. Whoever decodes closed chunks without the shard's lock does so inside a section that
     * was entered before they were seen under the lock. */
    struct epoch_domain *epoch;
    struct mutex lock;   /* guards next, region_count and free_slices */
    uint64_t next;       /* first number nobody ever had */
    uint32_t free_slice; /* blocks that were given back, in slices; 0: none */
    uint32_t region_count;
    _Atomic uint64_t free_count; /* blocks in free slices; written under the lock, read relaxed */
    /* Written once, before any number of that region is handed out; read without the lock. */
    struct chunk_block **regions;
};

MUST_USE enum err chunk_pool_init(struct chunk_pool *pool, struct slab *slab);
void chunk_pool_done(struct chunk_pool *pool);
/* Memory of blocks that were given back and are not in use again. Any thread. */
uint64_t chunk_pool_free_bytes(const struct chunk_pool *pool);

/* Chunks that were taken off their series: lists of descriptors, with their tokens. */
struct chunk_chains {
    uint32_t head;        /* newest descriptor of one list; the next in its `detached`. 0: none */
    uint64_t block_count; /* that will be free */
};
/* Gives the blocks back to the pool once no epoch section can see them; empties *freed. No lock is
 * held, and the caller is in no epoch section. */
void chunk_chains_retire(struct chunk_pool *pool, struct chunk_chains *freed);

/* A shard's private slice of the pool. Guarded by the shard's lock. */
struct chunk_source {
    struct chunk_pool *pool;
    uint32_t first, count; /* free blocks, linked by `next`; the last one's is rubbish */
    uint64_t taken, given; /* blocks that came from the pool, and that a detach returns to it */
};
/* Memory of the shard's chunks. Caller holds the shard's lock. */
static inline uint64_t chunk_source_used_bytes(const struct chunk_source *source)
{
    return (source->taken - source->count - source->given) * sizeof(struct chunk_block);
}
/* Makes room for CHUNK_APPEND_BLOCKS_MAX blocks; false when memory is refused. */
MUST_USE bool chunk_source_refill(struct chunk_source *source);
MUST_USE static inline bool chunk_source_reserve(struct chunk_source *source)
{
    return LIKELY(source->count >= CHUNK_APPEND_BLOCKS_MAX) || chunk_source_refill(source);
}

static inline struct chunk_block *chunk_block_at(const struct chunk_pool *pool, uint32_t number)
{
    return &pool->regions[number / CHUNK_REGION_BLOCKS][number % CHUNK_REGION_BLOCKS];
}
static inline const struct chunk_descriptor *chunk_descriptor_at(const struct chunk_pool *pool,
                                                                 uint32_t number)
{
    return (const struct chunk_descriptor *)(const void *)chunk_block_at(pool, number);
}

/* Fetches the block that the next sample goes to, as far as the series needs it: one that has said
 * the same several times will most likely count once more. Caller holds the shard's lock. */
static inline void chunk_prefetch_tail(const struct chunk_pool *pool, const struct series *s)
{
    enum { RUN_IS_LONG = 4 };

    if (s->open_tail != 0 && s->run_count < RUN_IS_LONG)
        __builtin_prefetch(chunk_block_at(pool, s->open_tail), 1);
}

/* Takes a block out of a source that has one. */
static inline uint32_t chunk_source_take(struct chunk_source *source)
{
    uint32_t number = source->first;

    ASSERT(source->count > 0);
    source->first = chunk_block_at(source->pool, number)->next;
    source->count--;
    if (LIKELY(source->count > 0)) /* else it is no number */
        __builtin_prefetch(chunk_block_at(source->pool, source->first), 1);
    return number;
}
static inline void chunk_source_put_back(struct chunk_source *source, uint32_t number)
{
    chunk_block_at(source->pool, number)->next = source->first;
    source->first = number;
    source->count++;
}

/* Blocks of tokens that a chunk of that size takes. */
static inline uint32_t chunk_block_count(size_t size_bytes)
{
    return (uint32_t)((size_bytes + CHUNK_BLOCK_PAYLOAD - 1) / CHUNK_BLOCK_PAYLOAD);
}

enum { CHUNK_WINDOW_BIAS = 1 << 27 };

/* floor(t_ms / CHUNK_WINDOW_MS) plus CHUNK_WINDOW_BIAS, for times within CHUNK_TIME_*: positive, so
 * that the division is one multiplication. */
static inline uint32_t chunk_window(int64_t t_ms)
{
    return (uint32_t)((uint64_t)(t_ms + (int64_t)CHUNK_WINDOW_BIAS * CHUNK_WINDOW_MS) /
                      CHUNK_WINDOW_MS);
}
static inline int64_t chunk_window_start_ms(uint32_t window)
{
    return ((int64_t)window - CHUNK_WINDOW_BIAS) * CHUNK_WINDOW_MS;
}

/* Start of the window that holds the oldest sample; only for a series that ever had one. */
static inline int64_t series_oldest_window_ms(const struct series *s)
{
    return chunk_window_start_ms(s->oldest_window);
}

/* Stands for the newest sample's bits after a delete: only a bound of its time is known then. A NaN
 * that nobody makes; a sample that has these bits all the same is merely looked up. */
#define SERIES_BITS_UNKNOWN UINT64_C(0xfff4d1e7ed000000)

/* After a delete of all samples from `end_ms` on: the next sample may be that old. Only without an
 * open chunk, that is after a cut. */
static inline void series_lower_newest(struct series *s, int64_t end_ms)
{
    ASSERT(s->open_count == 0);
    if (s->newest_ms < end_ms)
        return;
    s->newest_ms = end_ms <= CHUNK_TIME_MIN_MS ? INT64_MIN : end_ms - 1;
    s->newest_bits = SERIES_BITS_UNKNOWN;
}

/* Notes that the series has, or had, a sample of that time; before newest_ms is set. */
static inline void series_lower_oldest(struct series *s, int64_t t_ms)
{
    uint32_t window = chunk_window(t_ms);

    if (s->newest_ms == INT64_MIN || window < s->oldest_window)
        s->oldest_window = window & 0xfffffff;
}

void series_init(struct series *s, struct hash128 fingerprint, uint16_t generation);

/*
 * Appends a sample that is newer than s->newest_ms, within CHUNK_TIME_MIN_MS..CHUNK_TIME_MAX_MS.
 * Every bit of `bits` is kept. False, with nothing changed, when no block can be had. *closed_count
 * is raised by one when a chunk was closed on the way.
 */
MUST_USE bool chunk_append(struct series *s, struct chunk_source *source, int64_t t_ms,
                           uint64_t bits, uint32_t *closed_count);

/* Closes the open chunk, if there is one; the next sample begins another. False, with nothing
 * changed, when no block can be had. */
MUST_USE bool chunk_cut(struct series *s, struct chunk_source *source);

/* Copies a chain's tokens into `out` (CHUNK_TOKENS_ROOM bytes), returns their size. */
size_t chunk_gather(const struct chunk_pool *pool, uint32_t head, size_t size_bytes, uint8_t *out);
/* Puts the token of a run that is not in the blocks yet behind the others; the bytes it takes. */
static inline size_t chunk_run_token(unsigned run_count, uint8_t *out)
{
    *out = (uint8_t)(run_count - 1); /* docs/formats/memtable-chunk.md: 00nnnnnn */
    return run_count > 0;
}
/* Tokens of the open chunk so far. The caller holds the shard's lock. */
size_t chunk_gather_open(const struct chunk_pool *pool, const struct series *s, uint8_t *out);

/*
 * Decodes `sample_count` samples, CHUNK_SAMPLE_MAX at most, that start at first_ms. False when the
 * tokens are malformed: they end early, have bytes left, or name a state that cannot be. Reads
 * nothing outside [data, data + size + CHUNK_TOKENS_SLACK), writes nothing behind the first
 * sample_count + CHUNK_DECODE_SLACK samples of both arrays.
 */
MUST_USE bool chunk_decode(const uint8_t *data, size_t size, int64_t first_ms, size_t sample_count,
                           int64_t *t_ms, double *value);

/* ---- decimal forms, also used by the log's records ---- */

/* Differences of integers must fit 64 bits with their sign. */
#define CHUNK_INTEGER_LIMIT 0x1p61
/* Adding 1.5 * 2^52 rounds a smaller double to an integer; lrint() would be a call. */
#define CHUNK_SCALED_LIMIT 0x1p51
#define CHUNK_ROUND_MAGIC 0x1.8p52

static inline double chunk_scale_factor(unsigned scale)
{
    static const double factors[CHUNK_SCALE_COUNT] = {1.0, 1e2, 1e3, 1e6};

    return factors[scale];
}

/* The value of an integer at an exponent's index (below CHUNK_SCALE_COUNT). */
static inline double chunk_scale_value(int64_t i, unsigned scale)
{
    return scale == 0 ? (double)i : (double)i / chunk_scale_factor(scale);
}

/* The integer nearest to v at an exponent's index: the exact one when v is known to have one. */
static inline bool chunk_scale_round(double v, unsigned scale, int64_t *out)
{
    if (scale == 0) {
        if (!(__builtin_fabs(v) <= CHUNK_INTEGER_LIMIT)) /* NaN fails too */
            return false;
        *out = (int64_t)v;
        return true;
    }
    double x = v * chunk_scale_factor(scale);
    if (!(__builtin_fabs(x) <= CHUNK_SCALED_LIMIT))
        return false;
    *out = (int64_t)(double_bits(x + CHUNK_ROUND_MAGIC) - double_bits(CHUNK_ROUND_MAGIC));
    return true;
}

/* The integer that stands for v, if the decoder's own division gives back every bit of v. */
static inline bool chunk_scale_exact(double v, unsigned scale, int64_t *out)
{
    return chunk_scale_round(v, scale, out) &&
           double_bits(chunk_scale_value(*out, scale)) == double_bits(v);
}

/* The first exponent's index at which v is exact, or CHUNK_SCALE_RAW. */
static inline unsigned chunk_scale_of(double v)
{
    unsigned scale = 0;
    int64_t i;

    while (scale < CHUNK_SCALE_COUNT && !chunk_scale_exact(v, scale, &i))
        scale++;
    return scale;
}
static_assert(CHUNK_SCALE_RAW == CHUNK_SCALE_COUNT, "what is exact at no exponent is raw");

#endif
