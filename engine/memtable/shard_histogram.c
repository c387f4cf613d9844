/*
 * Native histograms on their way into a shard: the lane of those in order, the lane of late ones,
 * and the log queue.
 *
 * The newest sample of a series is that of either kind: series.newest_ms decides what is in order,
 * and newest_bits stand for a histogram by a hash (histogram_packed_bits()), so that the path of
 * floats looks at nothing else. An open chunk is closed before a histogram: its codec takes the
 * newest sample for its own.
 */
#include "engine/histogram/histogram_pack_internal.h"
#include "engine/memtable/shard_internal.h"

enum { MOVES_A_WORK = 64 }; /* blocks moved in a late lane that count as one sample's work */

void shard_histogram_statistics(struct shard *s)
{
    atomic_store_explicit(&s->histogram_count, s->histograms.sample_count, memory_order_relaxed);
    atomic_store_explicit(&s->histogram_bytes, s->histograms.memory_bytes, memory_order_relaxed);
}

bool shard_has_histograms(const struct shard *s, uint32_t slot, uint16_t generation)
{
    return histogram_lane_find(&s->histograms, slot, generation) != NULL ||
           histogram_lane_find(&s->histograms_late, slot, generation) != NULL ||
           histogram_lane_find(&s->histograms_late_frozen, slot, generation) != NULL;
}

bool shard_store_histogram(struct shard *s, uint32_t slot, struct series *series,
                           const struct histogram_sample *h)
{
    bool was_stale = series->newest_bits == STALE_NAN_BITS;

    if (!chunk_cut(series, &s->blocks) ||
        !histogram_lane_append(&s->histograms, slot, series->generation, h->t_ms, h->value,
                               series->newest_ms))
        return false;
    series_lower_oldest(series, h->t_ms);
    series->newest_ms = h->t_ms;
    series->newest_bits = h->bits;
    series->has_files = 1;
    s->stale_count += (uint64_t)((h->bits == STALE_NAN_BITS) - was_stale);
    shard_widen_bounds(s, h->t_ms, h->t_ms);
    shard_histogram_statistics(s);
    return true;
}

enum late_outcome shard_judge_late_histograms(const struct shard *s, uint32_t slot,
                                              const struct series *series, int64_t t_ms,
                                              uint64_t bits)
{
    enum late_outcome outcome =
        histogram_lane_judge(&s->histograms_late, slot, series->generation, t_ms, bits);

    return outcome == LATE_STORED ? histogram_lane_judge(&s->histograms_late_frozen, slot,
                                                         series->generation, t_ms, bits)
                                  : outcome;
}

static enum late_outcome judge_late_floats(const struct shard *s, uint32_t slot,
                                           const struct series *series, int64_t t_ms, uint64_t bits)
{
    const struct late_buffer *const buffers[] = {&s->late, &s->late_frozen};

    for (size_t i = 0; i < 2; i++) {
        const struct late_series *late = late_buffer_find(buffers[i], slot, series->generation);
        enum late_outcome outcome =
            late == NULL ? LATE_STORED : late_series_judge(late, t_ms, double_from_bits(bits));

        if (outcome != LATE_STORED)
            return outcome;
    }
    return LATE_STORED;
}

enum late_outcome shard_store_late_histogram(struct shard *s, uint32_t slot, struct series *series,
                                             const struct histogram_sample *h)
{
    enum late_outcome outcome = judge_late_floats(s, slot, series, h->t_ms, h->bits);

    if (outcome == LATE_STORED)
        outcome = shard_judge_late_histograms(s, slot, series, h->t_ms, h->bits);
    if (outcome != LATE_STORED)
        return outcome;
    if (!histogram_lane_insert(&s->histograms_late, slot, series->generation, h->t_ms, h->packed))
        return LATE_NO_MEMORY;
    series_lower_oldest(series, h->t_ms);
    series->has_files = 1;
    shard_widen_bounds(s, h->t_ms, h->t_ms);
    shard_late_statistics(s);
    return LATE_STORED;
}

static enum append_outcome append_late(struct shard *s, uint32_t slot, struct series *series,
                                       const struct histogram_sample *h, struct old_samples *old)
{
    uint64_t moved = s->histograms_late.moved_count;

    switch (shard_store_late_histogram(s, slot, series, h)) {
    case LATE_STORED:
        break;
    case LATE_REPEAT:
        return APPEND_REPEAT;
    case LATE_DUPLICATE:
        return APPEND_DUPLICATE;
    case LATE_NO_MEMORY:
        return APPEND_NO_MEMORY;
    }
    old->work_count += (s->histograms_late.moved_count - moved) / MOVES_A_WORK;
    log_queue_histogram(&s->log, &s->log.late, slot, series->generation, h->t_ms, h->packed);
    return APPEND_STORED;
}

enum append_outcome shard_append_histogram(struct shard *s, uint32_t slot, struct series *series,
                                           const struct histogram_sample *h,
                                           struct old_samples *old)
{
    bool is_old = h->t_ms <= series->newest_ms;

    if (is_old) {
        enum append_outcome outcome = shard_judge_old(s, slot, series, h->t_ms, h->bits, old);

        if (outcome != APPEND_STORED)
            return outcome;
    }
    if (!log_queue_reserve_histogram(&s->log, is_old ? &s->log.late : &s->log.in_order,
                                     h->packed.size))
        return APPEND_NO_MEMORY;
    if (is_old)
        return append_late(s, slot, series, h, old);
    if (!shard_store_histogram(s, slot, series, h))
        return APPEND_NO_MEMORY;
    log_queue_histogram(&s->log, &s->log.in_order, slot, series->generation, h->t_ms, h->packed);
    return APPEND_STORED;
}
