/*
 * A shard's life, its statistics, and its series.
 */
#include "engine/memtable/shard_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/memtable/memtable_internal.h"
#include "engine/seal/seal_internal.h"

enum err shard_init(struct shard *s, uint32_t number, struct chunk_pool *blocks, struct slab *slab,
                    struct log_pool *logs, struct budget *memory, struct errinfo *ei)
{
    memset(s, 0, sizeof *s);
    mutex_init(&s->lock);
    mutex_init(&s->create_lock);
    mutex_init(&s->maintain_lock);
    mutex_init(&s->files_lock);
    s->number = number;
    s->memory = memory;
    s->blocks.pool = blocks;
    late_buffer_init(&s->late, memory);
    late_buffer_init(&s->late_frozen, memory);
    histogram_lane_init(&s->histograms, memory);
    histogram_lane_init(&s->histograms_late, memory);
    histogram_lane_init(&s->histograms_late_frozen, memory);
    s->memory_min_ms = INT64_MAX;
    atomic_init(&s->log_is_damaged, false);
    atomic_init(&s->min_time_ms, INT64_MAX);
    atomic_init(&s->max_time_ms, INT64_MIN);
    slot_pool_init(&s->slots, memory);
    log_queue_init(&s->log, logs);
    if (series_table_init(&s->series, slab) != ERR_OK ||
        fingerprint_table_init(&s->fingerprints, &s->series, memory) != ERR_OK)
        return errinfo_set(ei, ERR_NOMEM, 0, "memory for shard %u", number);
    return index_new(memory, &s->index, ei);
}

static void held_done(struct shard *s)
{
    for (size_t i = 0; i < s->held.count; i++) {
        if (record_entry_is_histogram(&s->held.items[i]))
            free((void *)(uintptr_t)s->held.items[i].bits); /* NOLINT(performance-no-int-to-ptr) */
    }
    free(s->held.items);
}

void shard_done(struct shard *s)
{
    if (s->log.pool == NULL)
        return; /* shard_init() was never reached */
    if (s->index != NULL)
        index_free(s->index);
    if (s->leave.slots != NULL)
        slot_batch_free(&s->slots, s->leave.slots);
    slot_pool_done(&s->slots);
    log_queue_done(&s->log);
    late_buffer_done(&s->late);
    late_buffer_done(&s->late_frozen);
    histogram_lane_done(&s->histograms);
    histogram_lane_done(&s->histograms_late);
    histogram_lane_done(&s->histograms_late_frozen);
    fingerprint_table_done(&s->fingerprints);
    series_table_done(&s->series);
    held_done(s);
    slot_bits_clear(&s->rewritten);
    free(s->decoded);
    if (s->memory != NULL && s->held_bytes > 0)
        budget_release(s->memory, s->held_bytes);
    shard_sealer_free(s->sealer);
    file_set_unref(s->files);
    mutex_done(&s->files_lock);
    mutex_done(&s->maintain_lock);
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

void shard_widen_bounds(struct shard *s, int64_t min_time_ms, int64_t max_time_ms)
{
    if (min_time_ms < s->memory_min_ms)
        s->memory_min_ms = min_time_ms;
    if (min_time_ms < atomic_load_explicit(&s->min_time_ms, memory_order_relaxed))
        atomic_store_explicit(&s->min_time_ms, min_time_ms, memory_order_relaxed);
    if (max_time_ms > atomic_load_explicit(&s->max_time_ms, memory_order_relaxed))
        atomic_store_explicit(&s->max_time_ms, max_time_ms, memory_order_relaxed);
}

void shard_settle_newest(struct shard *s)
{
    int64_t newest_ms = INT64_MIN;

    for (uint32_t slot = 0; slot < s->series.slot_end; slot++) {
        const struct series *series = series_find(&s->series, slot);

        if (series != NULL && series->newest_ms > newest_ms)
            newest_ms = series->newest_ms;
    }
    if (newest_ms < atomic_load_explicit(&s->max_time_ms, memory_order_relaxed))
        atomic_store_explicit(&s->max_time_ms, newest_ms, memory_order_relaxed);
}

void shard_change_apply(struct shard *s, struct shard_change *change)
{
    if (change->stored_count == 0)
        return;
    add_relaxed(&s->sample_count, change->stored_count);
    s->stale_count += (uint64_t)(int64_t)change->stale_count;
    add_relaxed(&s->chunk_count, change->opened_count);
    shard_widen_bounds(s, change->min_time_ms, change->max_time_ms);
    *change = shard_change_none();
}

void shard_count_detached(struct shard *s, uint64_t chunk_count, uint64_t sample_count)
{
    add_relaxed(&s->chunk_count, 0 - chunk_count);
    add_relaxed(&s->sample_count, 0 - sample_count);
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

void shard_revive_series(struct shard *s, uint32_t slot)
{
    struct series *series = series_at(&s->series, slot);

    series->defined = 1;
    series->settled = 0;
    s->stale_count += series->newest_bits == STALE_NAN_BITS;
}

void shard_unpublish_series(struct shard *s, uint32_t slot)
{
    struct series *series = series_at(&s->series, slot);

    ASSERT(series->open_count == 0 && series->closed == 0);
    ASSERT(histogram_lane_find(&s->histograms, slot, series->generation) == NULL);
    s->stale_count -= series->defined && series->newest_bits == STALE_NAN_BITS;
    fingerprint_table_remove(&s->fingerprints, slot);
    shard_series_keyed(s, series, false);
    series->defined = series->settled = 0;
    s->series.series_count--;
    add_relaxed(&s->series_count, UINT64_MAX);
}

void shard_series_keyed(struct shard *s, struct series *series, bool keyed)
{
    if (series->keyed == keyed)
        return;
    series->keyed = keyed;
    add_relaxed(&s->keyed_count, keyed ? 1 : UINT64_MAX);
}
