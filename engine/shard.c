/*
 * A shard's life, its statistics, and the rule for samples that are not new.
 */
#include "engine/shard_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/memtable_internal.h"

enum err shard_init(struct shard *s, uint32_t number, struct chunk_pool *blocks, struct slab *slab,
                    struct log_pool *logs, struct budget *memory, struct errinfo *ei)
{
    memset(s, 0, sizeof *s);
    mutex_init(&s->lock);
    mutex_init(&s->create_lock);
    s->number = number;
    s->memory = memory;
    s->blocks.pool = blocks;
    atomic_init(&s->min_time_ms, INT64_MAX);
    atomic_init(&s->max_time_ms, INT64_MIN);
    log_queue_init(&s->log, logs);
    if (series_table_init(&s->series, slab) != ERR_OK ||
        fingerprint_table_init(&s->fingerprints, &s->series, memory) != ERR_OK)
        return errinfo_set(ei, ERR_NOMEM, 0, "memory for shard %u", number);
    return index_new(memory, &s->index, ei);
}

void shard_done(struct shard *s)
{
    if (s->log.pool == NULL)
        return; /* shard_init() was never reached */
    if (s->index != NULL)
        index_free(s->index);
    log_queue_done(&s->log);
    fingerprint_table_done(&s->fingerprints);
    series_table_done(&s->series);
    free(s->held.items);
    free(s->decoded);
    if (s->memory != NULL && s->held_bytes > 0)
        budget_release(s->memory, s->held_bytes);
    mutex_done(&s->create_lock);
    mutex_done(&s->lock);
}

struct index *shard_index(const struct shard *s)
{
    return s->index;
}

static void add_relaxed(_Atomic uint64_t *counter, uint64_t n)
{
    /* Only the holder of the lock writes, so that no locked instruction is needed. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

void shard_change_apply(struct shard *s, struct shard_change *change)
{
    if (change->stored_count == 0)
        return;
    add_relaxed(&s->sample_count, change->stored_count);
    add_relaxed(&s->chunk_count, change->opened_count);
    if (change->min_time_ms < atomic_load_explicit(&s->min_time_ms, memory_order_relaxed))
        atomic_store_explicit(&s->min_time_ms, change->min_time_ms, memory_order_relaxed);
    if (change->max_time_ms > atomic_load_explicit(&s->max_time_ms, memory_order_relaxed))
        atomic_store_explicit(&s->max_time_ms, change->max_time_ms, memory_order_relaxed);
    *change = shard_change_none();
}

bool shard_publish_series(struct shard *s, uint32_t slot, uint16_t generation,
                          struct hash128 fingerprint)
{
    struct series *series = series_at(&s->series, slot);

    series_init(series, fingerprint, generation);
    if (!fingerprint_table_add(&s->fingerprints, slot)) {
        series->defined = 0;
        return false;
    }
    if (slot >= s->series.slot_end)
        s->series.slot_end = slot + 1;
    s->series.series_count++;
    add_relaxed(&s->series_count, 1);
    return true;
}

/* ---- samples that are not new ---- */

static void cache_decode(struct repeat_cache *cache, const uint8_t *tokens, size_t size,
                         int64_t first_ms, size_t count)
{
    bool ok = chunk_decode(tokens, size, first_ms, count, cache->t_ms, cache->value);

    ASSERT(ok); /* our own memory */
    cache->count = count;
    cache->decode_count++;
}

/* Fills the cache with the chunk that may hold t_ms; false if no chunk does. */
static bool cache_load(struct shard *s, const struct series *series, int64_t t_ms,
                       struct repeat_cache *cache)
{
    const struct chunk_pool *pool = s->blocks.pool;
    uint8_t tokens[CHUNK_BYTES_MAX];

    if (series->open_count > 0 && t_ms >= series->open_first_ms) {
        size_t size = chunk_gather_open(pool, series, tokens);

        cache_decode(cache, tokens, size, series->open_first_ms, series->open_count);
        return true;
    }
    for (uint32_t n = series->closed; n != 0;) {
        const struct chunk_descriptor *d = chunk_descriptor_at(pool, n);

        if (t_ms > d->max_time_ms)
            return false;
        if (t_ms >= d->min_time_ms) {
            size_t size = chunk_gather(pool, d->head, d->size_bytes, tokens);

            cache_decode(cache, tokens, size, d->min_time_ms, d->sample_count);
            return true;
        }
        n = d->older;
    }
    return false;
}

/* Index of t_ms in the cached chunk, or its count. */
static size_t cache_find(const struct repeat_cache *cache, int64_t t_ms)
{
    size_t low = 0, high = cache->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (cache->t_ms[middle] < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low < cache->count && cache->t_ms[low] == t_ms ? low : cache->count;
}

enum append_outcome shard_judge_old(struct shard *s, uint32_t slot, const struct series *series,
                                    int64_t t_ms, uint64_t bits, struct repeat_cache *cache)
{
    size_t at;

    if (t_ms == series->newest_ms)
        return bits == series->newest_bits ? APPEND_REPEAT : APPEND_DUPLICATE;
    if (cache->slot != slot || cache->count == 0 || t_ms < cache->t_ms[0] ||
        t_ms > cache->t_ms[cache->count - 1]) {
        cache->count = 0;
        cache->slot = slot;
        if (!cache_load(s, series, t_ms, cache))
            return APPEND_OUT_OF_ORDER;
    }
    at = cache_find(cache, t_ms);
    if (at == cache->count)
        return APPEND_OUT_OF_ORDER;
    return double_bits(cache->value[at]) == bits ? APPEND_REPEAT : APPEND_DUPLICATE;
}
