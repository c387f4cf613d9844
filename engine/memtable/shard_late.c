/*
 * Samples that are not newer than their series' newest: looked up in the chunks in memory, then in
 * the late buffers, and put into the late buffer when nobody has them.
 *
 * Late samples of a series come in runs, as a rule. So the chunk in which the last one was looked
 * up stays decoded, and where there was none, the gap between two chunks is remembered.
 */
#include "engine/memtable/shard_internal.h"

enum {
    DECODE_WORK = 64,            /* samples that a decoded chunk counts as */
    HISTOGRAM_DECODE_WORK = 512, /* and a decoded block of histograms */
    MOVES_A_WORK = 64,           /* samples moved in the late buffer that count as one */
    STEPS_A_WORK = 4,            /* chunks passed over */
};

static void cache_decode(struct old_samples *old, const uint8_t *tokens, size_t size,
                         int64_t first_ms, size_t count)
{
    bool ok = chunk_decode(tokens, size, first_ms, count, old->t_ms, old->value);

    ASSERT(ok); /* our own memory */
    old->count = count;
    old->gap_min_ms = INT64_MAX; /* there is none */
    old->gap_max_ms = INT64_MIN;
    old->work_count += DECODE_WORK;
}

/* Fills the cache with the chunk that may hold t_ms; if no chunk does, notes the gap and returns
 * false. */
static bool cache_load(struct shard *s, const struct series *series, int64_t t_ms,
                       struct old_samples *old)
{
    const struct chunk_pool *pool = s->blocks.pool;
    uint8_t tokens[CHUNK_TOKENS_ROOM];
    uint32_t steps = 0;

    if (series->open_count > 0 && t_ms >= series->open_first_ms) {
        size_t size = chunk_gather_open(pool, series, tokens);

        cache_decode(old, tokens, size, series->open_first_ms, series->open_count);
        return true;
    }
    old->gap_min_ms = INT64_MIN;
    old->gap_max_ms = series->open_count > 0 ? series->open_first_ms - 1 : series->newest_ms;
    for (uint32_t n = series->closed; n != 0;) {
        const struct chunk_descriptor *d = chunk_descriptor_at(pool, n);

        if (++steps % STEPS_A_WORK == 0)
            old->work_count++;
        if (t_ms > d->max_time_ms) {
            old->gap_min_ms = d->max_time_ms + 1;
            return false;
        }
        if (t_ms >= d->min_time_ms) {
            size_t size = chunk_gather(pool, d->head, d->size_bytes, tokens);

            cache_decode(old, tokens, size, d->min_time_ms, d->sample_count);
            return true;
        }
        old->gap_max_ms = d->min_time_ms - 1;
        n = d->older;
    }
    return false;
}

/* Index of t_ms in the cached chunk, or its count. */
static size_t cache_find(const struct old_samples *old, int64_t t_ms)
{
    size_t low = 0, high = old->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (old->t_ms[middle] < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low < old->count && old->t_ms[low] == t_ms ? low : old->count;
}

/* What the chunks in memory say: APPEND_REPEAT, APPEND_DUPLICATE, or APPEND_STORED when the sample
 * is not there. */
static enum append_outcome chunks_judge(struct shard *s, uint32_t slot, const struct series *series,
                                        int64_t t_ms, uint64_t bits, struct old_samples *old)
{
    size_t at;

    if (old->slot != slot)
        old_samples_reset(old);
    if (t_ms >= old->gap_min_ms && t_ms <= old->gap_max_ms)
        return APPEND_STORED;
    if (old->count == 0 || t_ms < old->t_ms[0] || t_ms > old->t_ms[old->count - 1]) {
        old_samples_reset(old);
        old->slot = slot;
        if (!cache_load(s, series, t_ms, old))
            return APPEND_STORED;
    }
    at = cache_find(old, t_ms);
    if (at == old->count)
        return APPEND_STORED;
    return double_bits(old->value[at]) == bits ? APPEND_REPEAT : APPEND_DUPLICATE;
}

void shard_late_statistics(struct shard *s)
{
    const struct late_buffer *late = &s->late, *frozen = &s->late_frozen;
    const struct histogram_lane *lane = &s->histograms_late,
                                *lane_frozen = &s->histograms_late_frozen;

    atomic_store_explicit(&s->late_count,
                          late->sample_count + frozen->sample_count + lane->sample_count +
                              lane_frozen->sample_count,
                          memory_order_relaxed);
    atomic_store_explicit(&s->late_bytes,
                          late->memory_bytes + frozen->memory_bytes + lane->memory_bytes +
                              lane_frozen->memory_bytes,
                          memory_order_relaxed);
}

static enum late_outcome late_judge(const struct late_buffer *b, uint32_t slot,
                                    const struct series *series, int64_t t_ms, double value)
{
    const struct late_series *late = late_buffer_find(b, slot, series->generation);

    return late == NULL ? LATE_STORED : late_series_judge(late, t_ms, value);
}

/* What the late samples of both kinds say, of `bits` as in shard_judge_old(). */
static enum late_outcome late_judge_all(const struct shard *s, uint32_t slot,
                                        const struct series *series, int64_t t_ms, uint64_t bits)
{
    double value = double_from_bits(bits);
    enum late_outcome outcome = late_judge(&s->late, slot, series, t_ms, value);

    if (outcome == LATE_STORED)
        outcome = late_judge(&s->late_frozen, slot, series, t_ms, value);
    if (outcome == LATE_STORED)
        outcome = shard_judge_late_histograms(s, slot, series, t_ms, bits);
    return outcome;
}

static enum append_outcome append_outcome_of(enum late_outcome outcome)
{
    switch (outcome) {
    case LATE_STORED:
        return APPEND_STORED;
    case LATE_REPEAT:
        return APPEND_REPEAT;
    case LATE_DUPLICATE:
        return APPEND_DUPLICATE;
    case LATE_NO_MEMORY:
        break;
    }
    return APPEND_NO_MEMORY;
}

enum late_outcome shard_store_late(struct shard *s, uint32_t slot, struct series *series,
                                   int64_t t_ms, uint64_t bits)
{
    double value = double_from_bits(bits);
    enum late_outcome outcome = late_judge(&s->late_frozen, slot, series, t_ms, value);

    if (outcome == LATE_STORED)
        outcome = shard_judge_late_histograms(s, slot, series, t_ms, bits);
    if (outcome == LATE_STORED)
        outcome = late_buffer_add(&s->late, slot, series->generation, t_ms, value);
    if (outcome != LATE_STORED)
        return outcome;
    series_lower_oldest(series, t_ms);
    series->has_files = 1;
    shard_widen_bounds(s, t_ms, t_ms);
    shard_late_statistics(s);
    return LATE_STORED;
}

void shard_late_freeze(struct shard *s)
{
    if (s->late_frozen.sample_count == 0 && s->late.sample_count > 0)
        late_buffer_move(&s->late, &s->late_frozen);
    if (s->histograms_late_frozen.sample_count == 0 && s->histograms_late.sample_count > 0)
        histogram_lane_move(&s->histograms_late, &s->histograms_late_frozen);
}

void shard_late_take(struct shard *s, struct late_buffer *out,
                     struct histogram_lane *out_histograms)
{
    late_buffer_init(out, s->memory);
    late_buffer_move(&s->late_frozen, out);
    histogram_lane_init(out_histograms, s->memory);
    histogram_lane_move(&s->histograms_late_frozen, out_histograms);
    shard_late_statistics(s);
}

/* A late sample that is not in memory. */
static enum append_outcome append_late(struct shard *s, uint32_t slot, struct series *series,
                                       int64_t t_ms, uint64_t bits, struct old_samples *old)
{
    struct log_entry *entry = log_queue_next(&s->log, &s->log.late);
    uint64_t moved = s->late.moved_count;
    enum late_outcome outcome;

    if (entry == NULL)
        return APPEND_NO_MEMORY;
    outcome = shard_store_late(s, slot, series, t_ms, bits);
    if (outcome != LATE_STORED)
        return append_outcome_of(outcome);
    *entry = (struct log_entry){
        .slot = slot,
        .generation = series->generation,
        .scale = (uint8_t)chunk_scale_of(double_from_bits(bits)),
        .t_ms = t_ms,
        .bits = bits,
    };
    log_queue_commit(&s->log, &s->log.late);
    old->work_count += (s->late.moved_count - moved) / MOVES_A_WORK;
    return APPEND_STORED;
}

enum append_outcome shard_judge_old(struct shard *s, uint32_t slot, const struct series *series,
                                    int64_t t_ms, uint64_t bits, struct old_samples *old)
{
    enum append_outcome outcome;

    if (t_ms == series->newest_ms && series->newest_bits != SERIES_BITS_UNKNOWN)
        return bits == series->newest_bits ? APPEND_REPEAT : APPEND_DUPLICATE;
    outcome = chunks_judge(s, slot, series, t_ms, bits, old);
    if (outcome == APPEND_STORED && s->histograms.series_count > 0) {
        outcome = append_outcome_of(
            histogram_lane_judge(&s->histograms, slot, series->generation, t_ms, bits));
        if (outcome != APPEND_STORED) /* one with its timestamp was looked at */
            old->work_count += HISTOGRAM_DECODE_WORK;
    }
    /* a repeat is harmless at any age */
    if (outcome == APPEND_STORED && t_ms < old->late_min_ms) {
        outcome = append_outcome_of(late_judge_all(s, slot, series, t_ms, bits));
        if (outcome == APPEND_STORED)
            outcome = APPEND_OUT_OF_ORDER;
    }
    return outcome;
}

enum append_outcome shard_append_old(struct shard *s, uint32_t slot, struct series *series,
                                     int64_t t_ms, uint64_t bits, struct old_samples *old)
{
    enum append_outcome outcome = shard_judge_old(s, slot, series, t_ms, bits, old);

    return outcome == APPEND_STORED ? append_late(s, slot, series, t_ms, bits, old) : outcome;
}
