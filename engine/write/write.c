/*
 * The fast path of a write: known series, found through the front table, grouped by shard, and
 * appended under one lock per group.
 *
 * What costs time here is memory latency, so the work is done in passes that let cache misses
 * overlap: the front table is probed in groups; series structs are fetched one by one some time
 * before their turn, chunk tails a little later. Under the lock a sample costs the codec and one
 * store to the log queue.
 */
#include "engine/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/histogram/histogram_pack_internal.h"
#include "engine/labels.h"
#include "engine/limits/limits_internal.h"
#include "engine/write/write_internal.h"

enum {
    STRUCTS_AHEAD = 64,      /* series structs on their way */
    TAILS_AHEAD = 24,        /* chunk tails on their way; all at once would only queue up */
    GROUP_SERIES = 128,      /* structs and tails of a group stay in the first-level cache */
    SESSION_WORK_MAX = 2048, /* samples until others get the lock */
};

/* ---- answers ---- */

void write_refuse(struct write_request *r, uint32_t series, int64_t t_ms, enum refusal reason)
{
    r->result->refused[reason]++;
    r->result->refused_count++;
    if (r->example_count < WRITE_EXAMPLE_COUNT)
        r->examples[r->example_count++] =
            (struct refusal_example){.series = series, .reason = reason, .t_ms = t_ms};
}

void write_refuse_series(struct write_request *r, uint32_t series, enum refusal reason,
                         uint32_t limit)
{
    const struct write_series *ws = &r->batch->series[series];
    uint32_t example_first = r->example_count;

    for (uint32_t i = 0; i < ws->sample_count; i++)
        write_refuse(r, series, r->batch->samples[ws->sample_first + i].t_ms, reason);
    for (uint32_t i = 0; i < ws->histogram_count; i++)
        write_refuse(r, series, r->batch->histograms[ws->histogram_first + i].t_ms, reason);
    for (uint32_t i = example_first; i < r->example_count; i++)
        r->examples[i].limit = limit;
    if (reason == REFUSAL_LIMIT)
        limits_count_samples(r->engine, limit, (uint64_t)ws->sample_count + ws->histogram_count);
}

/* Histograms that were refused before they came here. */
static void refuse_invalid(struct write_request *r)
{
    const struct write_batch *b = r->batch;

    r->result->refused[REFUSAL_INVALID_HISTOGRAM] += b->invalid_count;
    r->result->refused_count += b->invalid_count;
    for (uint64_t i = 0; i < b->invalid_count && r->example_count < WRITE_EXAMPLE_COUNT; i++)
        r->examples[r->example_count++] = (struct refusal_example){
            .series = b->invalid[i].series,
            .reason = REFUSAL_INVALID_HISTOGRAM,
            .t_ms = b->invalid[i].t_ms,
            .text = b->invalid[i].text,
        };
}

/* "reason: {labels} timestamp_ms", with labels cut in the middle when they are long. A limit says
 * in parentheses which it is, and whose. */
static void format_example(struct write_request *r, const struct refusal_example *x, char *out)
{
    struct labels labels = {0, NULL};
    char tail[32 + WRITE_INVALID_TEXT_SIZE], limit[200];
    const char *text = NULL;
    size_t size, room, begin;

    if (write_labels_plain(r, x->series, &labels) == ERR_OK)
        text = labels_format_braces(&labels, &r->scratch->arena);
    if (text == NULL)
        text = "{?}"; /* no memory for a message, or bytes that are no labels */
    if (x->reason == REFUSAL_LIMIT) {
        limits_describe(r->engine, x->limit, &labels, limit, sizeof limit);
        begin = (size_t)snprintf(out, WRITE_EXAMPLE_SIZE, "limit (%s): ", limit);
    } else {
        begin = (size_t)snprintf(out, WRITE_EXAMPLE_SIZE, "%s: ", refusal_name(x->reason));
    }
    size = (size_t)snprintf(tail, sizeof tail, " %lld%s%s", (long long)x->t_ms,
                            x->text == NULL ? "" : ": ", x->text == NULL ? "" : x->text);
    room = WRITE_EXAMPLE_SIZE - 1 - begin - size;
    if (strlen(text) <= room)
        (void)snprintf(out + begin, WRITE_EXAMPLE_SIZE - begin, "%s%s", text, tail);
    else
        (void)snprintf(out + begin, WRITE_EXAMPLE_SIZE - begin, "%.*s...%s", (int)room - 3, text,
                       tail);
    arena_reset(&r->scratch->arena);
}

static void format_examples(struct write_request *r)
{
    for (uint32_t i = 0; i < r->example_count; i++)
        format_example(r, &r->examples[i], r->result->examples[i]);
    r->result->example_count = r->example_count;
}

/* ---- a shard's critical section ---- */

void write_session_begin(struct write_request *r, struct shard_session *session, struct shard *s)
{
    (void)r;
    mutex_lock(&s->lock);
    session->shard = s;
    session->change = shard_change_none();
    session->sequence_before = s->log.sequence;
    session->histogram_bytes_before = s->log.histogram_bytes;
    session->work_count = 0;
    session->is_gone = false;
}

void write_session_end(struct write_request *r, struct shard_session *session)
{
    struct shard *s = session->shard;
    uint64_t queued = s->log.sequence - session->sequence_before;
    uint64_t histogram_bytes = s->log.histogram_bytes - session->histogram_bytes_before;

    shard_change_apply(s, &session->change);
    /* Also when nothing was added: what this request met may not be durable yet. */
    r->result->sequences[s->number] = s->log.sequence;
    mutex_unlock(&s->lock);
    r->queued_entries += queued;
    r->queued_bytes += queued * sizeof(struct log_entry) + histogram_bytes;
}

static bool is_live(const struct series *series, const struct write_item *item)
{
    return series->defined && series->generation == front_target_generation(item->target);
}

static void session_breathe(struct write_request *r, struct shard_session *session,
                            const struct series *series, const struct write_item *item)
{
    struct shard *s = session->shard;

    write_session_end(r, session);
    old_samples_reset(&r->old); /* a delete may be at work meanwhile */
    write_session_begin(r, session, s);
    session->is_gone = !is_live(series, item);
}

static enum err count_outcome(struct write_request *r, enum append_outcome outcome,
                              uint32_t series_index, int64_t t_ms)
{
    switch (outcome) {
    case APPEND_STORED:
        r->result->stored_count++;
        return ERR_OK;
    case APPEND_REPEAT:
        r->result->repeat_count++;
        return ERR_OK;
    case APPEND_OUT_OF_ORDER:
        write_refuse(r, series_index, t_ms, REFUSAL_OUT_OF_ORDER);
        return ERR_OK;
    case APPEND_DUPLICATE:
        write_refuse(r, series_index, t_ms, REFUSAL_DUPLICATE_TIMESTAMP);
        return ERR_OK;
    case APPEND_NO_MEMORY:
        break;
    }
    return ERR_NOMEM;
}

/* Refuses a sample of a time that none may have. */
static bool time_is_refused(struct write_request *r, uint32_t series_index, int64_t t_ms)
{
    if (LIKELY(t_ms <= r->time_max_ms && t_ms >= r->time_min_ms))
        return false;
    write_refuse(r, series_index, t_ms,
                 t_ms > r->time_max_ms ? REFUSAL_TOO_FAR_IN_FUTURE : REFUSAL_TOO_OLD);
    return true;
}

/* Fills *out, which points into the request's scratch; false when memory is refused. */
static bool histogram_prepare(struct write_request *r, const struct write_histogram *h,
                              struct histogram_sample *out)
{
    struct byte_writer *packed = &r->scratch->packed;
    uint8_t *room;

    writer_reset(packed);
    room = writer_reserve(packed, histogram_pack_size_max(&h->value));
    if (room == NULL)
        return false;
    *out = (struct histogram_sample){.t_ms = h->t_ms, .value = &h->value};
    out->packed = (struct bytes){room, histogram_pack(room, &h->value, NULL)};
    out->bits = histogram_packed_bits(out->packed);
    return true;
}

/* What a histogram costs under the lock, in samples. */
static uint32_t histogram_work(const struct histogram *h)
{
    return 8 + (uint32_t)((h->positive.bucket_count + h->negative.bucket_count) / 8);
}

static enum err write_series_histograms(struct write_request *r, struct shard_session *session,
                                        const struct write_item *item, struct series *series)
{
    const struct write_histogram *h =
        &r->batch->histograms[r->batch->series[item->series].histogram_first];
    uint32_t slot = front_target_slot(item->target);
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < item->histogram_count && e == ERR_OK && !session->is_gone; i++, h++) {
        uint64_t old_work = r->old.work_count;
        struct histogram_sample sample;

        if (time_is_refused(r, item->series, h->t_ms))
            continue;
        if (!histogram_prepare(r, h, &sample))
            return ERR_NOMEM;
        enum append_outcome outcome =
            shard_append_histogram(session->shard, slot, series, &sample, &r->old);
        r->result->histogram_stored_count += outcome == APPEND_STORED;
        e = count_outcome(r, outcome, item->series, h->t_ms);
        session->work_count += histogram_work(&h->value) + (uint32_t)(r->old.work_count - old_work);
        if (session->work_count >= SESSION_WORK_MAX)
            session_breathe(r, session, series, item);
    }
    return e;
}

enum err write_series_samples(struct write_request *r, struct shard_session *session,
                              const struct write_item *item, struct series *series)
{
    const struct write_sample *sample = &r->batch->samples[item->sample_first];
    uint32_t slot = front_target_slot(item->target);
    uint64_t stored = 0;
    enum err e = ERR_OK;

    session->is_gone = false;
    for (uint32_t i = 0; i < item->sample_count && e == ERR_OK && !session->is_gone;
         i++, sample++) {
        uint64_t old_work = r->old.work_count;

        if (time_is_refused(r, item->series, sample->t_ms))
            continue;
        enum append_outcome outcome =
            shard_append(session->shard, slot, series, sample->t_ms, double_bits(sample->value),
                         &session->change, &r->old);
        if (LIKELY(outcome == APPEND_STORED))
            stored++;
        else
            e = count_outcome(r, outcome, item->series, sample->t_ms);
        session->work_count += 1 + (uint32_t)(r->old.work_count - old_work);
        if (UNLIKELY(session->work_count >= SESSION_WORK_MAX))
            session_breathe(r, session, series, item);
    }
    r->result->stored_count += stored;
    if (UNLIKELY(item->histogram_count > 0) && e == ERR_OK && !session->is_gone)
        e = write_series_histograms(r, session, item, series);
    return e;
}

/* ---- grouping ---- */

static bool scratch_reserve(struct write_scratch *scratch, size_t series_count, size_t shard_count)
{
    if (scratch->capacity < series_count) {
        size_t capacity = series_count + series_count / 2;

        free(scratch->targets);
        free(scratch->order);
        scratch->targets = calloc(capacity, sizeof *scratch->targets);
        scratch->order = calloc(capacity, sizeof *scratch->order);
        scratch->capacity = capacity;
        if (scratch->targets == NULL || scratch->order == NULL) {
            scratch->capacity = 0;
            return false;
        }
    }
    if (scratch->shard_capacity < shard_count + 2) {
        free(scratch->shard_end);
        scratch->shard_end = calloc(shard_count + 2, sizeof *scratch->shard_end);
        scratch->shard_capacity = scratch->shard_end == NULL ? 0 : shard_count + 2;
    }
    return scratch->shard_end != NULL;
}

/* The group of a series: its shard, or shard_count when its key leads to no series. */
static inline uint32_t group_of(const struct engine *e, front_target target)
{
    return front_target_kind(target) != FRONT_SERIES ? e->shard_count : front_target_shard(target);
}

/* Sorts the series by group, in the order of the request within a group; group g ends at
 * shard_end[g]. */
static void group_by_shard(struct write_request *r)
{
    const struct write_batch *b = r->batch;
    struct write_scratch *scratch = r->scratch;
    uint32_t *end = scratch->shard_end, sum = 0;

    memset(end, 0, (r->engine->shard_count + 2) * sizeof *end);
    for (size_t i = 0; i < b->series_count; i++)
        end[group_of(r->engine, scratch->targets[i])]++;
    for (uint32_t g = 0; g <= r->engine->shard_count; g++) {
        uint32_t count = end[g];

        end[g] = sum; /* the group's begin, moved to its end below */
        sum += count;
    }
    for (size_t i = 0; i < b->series_count; i++)
        scratch->order[end[group_of(r->engine, scratch->targets[i])]++] = (struct write_item){
            .target = scratch->targets[i],
            .series = (uint32_t)i,
            .sample_first = b->series[i].sample_first,
            .sample_count = b->series[i].sample_count,
            .histogram_count = b->series[i].histogram_count,
        };
}

/* ---- known series ---- */

static inline struct series *item_series(const struct shard *s, const struct write_item *item)
{
    /* The slot was published through the front table, and pages never move: no lock needed. */
    return series_at(&s->series, front_target_slot(item->target));
}

/* Fetches the struct of the series at `at` in the order in which a request goes around its shards.
 * One by one, a while before each is needed: a core has some dozen lines on their way, and waits
 * with more. */
static inline void prefetch_struct(const struct write_request *r, size_t at)
{
    const struct write_scratch *scratch = r->scratch;
    size_t known_count = scratch->shard_end[r->engine->shard_count - 1];

    if (at >= known_count) /* from the last shard on to the first */
        at -= known_count;
    if (at < known_count) {
        const struct write_item *item = &scratch->order[at];

        __builtin_prefetch(item_series(&r->engine->shards[front_target_shard(item->target)], item),
                           1);
    }
}

/* The structs of the first series of a request, which begins with that shard. */
static void prefetch_first(const struct write_request *r, uint32_t shard)
{
    size_t begin = shard == 0 ? 0 : r->scratch->shard_end[shard - 1];

    for (size_t i = 0; i < STRUCTS_AHEAD; i++)
        prefetch_struct(r, begin + i);
}

/* At most GROUP_SERIES series of one shard, whose structs are on their way into the cache. A key
 * whose series is gone takes the slow path later: it is moved to the front of `items`, behind
 * *stale_count others. */
static enum err write_group(struct write_request *r, struct shard *s, struct write_item *items,
                            size_t count, uint32_t *stale_count)
{
    size_t far = (size_t)(items - r->scratch->order) + STRUCTS_AHEAD;
    struct series *series[GROUP_SERIES];
    struct shard_session session;
    enum err e = ERR_OK;

    for (size_t i = 0; i < count; i++)
        series[i] = item_series(s, &items[i]);
    write_session_begin(r, &session, s);
    for (size_t i = 0; i < count && i < TAILS_AHEAD; i++)
        chunk_prefetch_tail(s->blocks.pool, series[i]);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        bool is_stale = !is_live(series[i], &items[i]);

        prefetch_struct(r, far + i);
        if (i + TAILS_AHEAD < count)
            chunk_prefetch_tail(s->blocks.pool, series[i + TAILS_AHEAD]);

        if (LIKELY(!is_stale)) {
            e = write_series_samples(r, &session, &items[i], series[i]);
            is_stale = session.is_gone;
        }
        if (UNLIKELY(is_stale))
            items[(*stale_count)++] = items[i];
    }
    write_session_end(r, &session);
    return e;
}

static enum err write_known(struct write_request *r, uint32_t shard, struct errinfo *ei)
{
    struct write_scratch *scratch = r->scratch;
    struct shard *s = &r->engine->shards[shard];
    uint32_t begin = shard == 0 ? 0 : scratch->shard_end[shard - 1];
    uint32_t end = scratch->shard_end[shard];
    enum err e = ERR_OK;

    old_samples_reset(&r->old);
    for (uint32_t at = begin; at < end && e == ERR_OK;) {
        uint32_t count = end - at < GROUP_SERIES ? end - at : GROUP_SERIES, stale = 0;

        e = write_group(r, s, scratch->order + at, count, &stale);
        for (uint32_t i = 0; i < stale && e == ERR_OK; i++)
            e = write_unknown_series(r, scratch->order[at + i].series, ei);
        at += count;
    }
    return e;
}

/* ---- the request ---- */

static void result_clear(struct write_result *result, const struct write_batch *b,
                         uint32_t shard_count)
{
    result->sample_count = b->sample_count + b->histogram_count + b->invalid_count;
    result->stored_count = result->repeat_count = result->refused_count = 0;
    result->dropped_count = result->histogram_stored_count = 0;
    memset(result->refused, 0, sizeof result->refused);
    result->example_count = 0;
    memset(result->sequences, 0, shard_count * sizeof *result->sequences);
}

/* Looks the keys up. False when the labels of an unknown one are none. */
static bool keys_find(struct write_request *r)
{
    const struct write_batch *b = r->batch;

    front_table_find(r->engine->front, &b->series[0].sender_key, sizeof b->series[0],
                     b->series_count, r->scratch->targets);
    for (size_t i = 0; b->labels_check != NULL && i < b->series_count; i++)
        if (UNLIKELY(r->scratch->targets[i] == 0) &&
            !b->labels_check(b->labels_ctx, b->series[i].wire_labels))
            return false;
    return true;
}

/* A series whose key leads to no series: that of a dropped or refused one is enough to drop or
 * refuse it again. */
static enum err write_other(struct write_request *r, const struct write_item *item,
                            struct errinfo *ei)
{
    uint32_t limit;

    if (front_target_kind(item->target) == FRONT_DROPPED &&
        write_dropped_again(r, item->series, item->target))
        return ERR_OK;
    if (front_target_kind(item->target) == FRONT_REFUSED &&
        limits_key_holds(r->engine, item->target, &limit)) {
        write_refuse_series(r, item->series, REFUSAL_LIMIT, limit);
        return ERR_OK;
    }
    return write_unknown_series(r, item->series, ei);
}

static enum err write_all(struct write_request *r, struct errinfo *ei)
{
    struct engine *e = r->engine;
    uint32_t first = atomic_fetch_add_explicit(&e->first_shard, 1, memory_order_relaxed);
    enum err err = ERR_OK;

    group_by_shard(r);
    /* Requests start at different shards, so that they do not queue up behind each other. */
    prefetch_first(r, first & (e->shard_count - 1));
    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++)
        err = write_known(r, (first + i) & (e->shard_count - 1), ei);
    for (uint32_t i = r->scratch->shard_end[e->shard_count - 1];
         i < r->scratch->shard_end[e->shard_count] && err == ERR_OK; i++)
        err = write_other(r, &r->scratch->order[i], ei);
    write_dropped_count(r);
    return err;
}

/* The series of a request that fit the limit of its samples: those up to here. */
static size_t series_within(const struct write_batch *b, uint64_t samples_max)
{
    uint64_t samples = 0;

    for (size_t i = 0; i < b->series_count; i++) {
        samples += (uint64_t)b->series[i].sample_count + b->series[i].histogram_count;
        if (samples > samples_max)
            return i;
    }
    return b->series_count;
}

/* Stores the series that fit the request's limit, and refuses the others. */
static enum err write_within(struct write_request *r, struct errinfo *ei)
{
    struct write_batch *b = r->batch;
    size_t series_count = b->series_count;
    uint64_t max = atomic_load_explicit(&r->engine->limiter.request_max, memory_order_relaxed);
    enum err err = ERR_OK;

    if (UNLIKELY(b->sample_count + b->histogram_count > max))
        b->series_count = series_within(b, max);
    if (b->series_count > 0)
        err = write_all(r, ei);
    if (UNLIKELY(b->series_count < series_count)) {
        const struct limit_verdict verdict = {.number = LIMIT_SAMPLES_PER_REQUEST, .max = max};

        (void)limits_refused(r->engine, &verdict); /* there is never room again */
        for (size_t i = b->series_count; i < series_count; i++)
            write_refuse_series(r, (uint32_t)i, REFUSAL_LIMIT, LIMIT_SAMPLES_PER_REQUEST);
        b->series_count = series_count;
    }
    return err;
}

static void count_result(struct engine *e, const struct write_result *result)
{
    atomic_fetch_add_explicit(&e->samples_appended,
                              result->stored_count - result->histogram_stored_count,
                              memory_order_relaxed);
    if (result->histogram_stored_count > 0)
        atomic_fetch_add_explicit(&e->histograms_appended, result->histogram_stored_count,
                                  memory_order_relaxed);
    if (result->repeat_count > 0)
        atomic_fetch_add_explicit(&e->samples_repeated, result->repeat_count, memory_order_relaxed);
    for (int i = 0; result->refused_count > 0 && i < REFUSAL_COUNT; i++)
        atomic_fetch_add_explicit(&e->samples_refused[i], result->refused[i], memory_order_relaxed);
}

/* Samples before it are too old. */
static int64_t time_min_ms(const struct engine *e)
{
    int64_t now_ms = engine_now_ms(e);

    if (e->retention_ms == 0 || now_ms - CHUNK_TIME_MIN_MS <= e->retention_ms)
        return CHUNK_TIME_MIN_MS;
    return now_ms - e->retention_ms;
}

/* Samples before it are out of order when they are older than their series' newest. */
static int64_t late_min_ms(const struct engine *e)
{
    int64_t newest_ms = engine_newest_ms(e);

    if (e->out_of_order_window_ms == 0 || newest_ms < CHUNK_TIME_MIN_MS ||
        newest_ms - CHUNK_TIME_MIN_MS <= e->out_of_order_window_ms)
        return CHUNK_TIME_MIN_MS;
    return newest_ms - e->out_of_order_window_ms;
}

enum err engine_write(struct engine *e, struct write_batch *b, struct write_result *result,
                      struct errinfo *ei)
{
    struct write_request r = {
        .engine = e,
        .batch = b,
        .scratch = b->scratch,
        .result = result,
        .time_max_ms = clock_now_ms(e->clock) + ENGINE_FUTURE_LIMIT_MS,
        .time_min_ms = time_min_ms(e),
        .old = {.late_min_ms = late_min_ms(e)},
    };
    enum err err;

    if (r.time_max_ms > CHUNK_TIME_MAX_MS)
        r.time_max_ms = CHUNK_TIME_MAX_MS;
    result_clear(result, b, e->shard_count);
    err = engine_admit(e, ei);
    if (err != ERR_OK)
        return err;
    if (b->series_count == 0)
        return ERR_OK;
    if (!scratch_reserve(r.scratch, b->series_count, e->shard_count))
        return errinfo_set(ei, ERR_NOMEM, 0, "scratch for %zu series", b->series_count);
    uint32_t token = 0;
    r.rules = rules_enter(&e->rules, &token);
    r.rules_stamp = rules_stamp(e);
    bool all_are_labels = keys_find(&r);
    if (all_are_labels) {
        refuse_invalid(&r);
        err = write_within(&r, ei);
    }
    rules_leave(&e->rules, token);
    if (!all_are_labels)
        return errinfo_set(ei, ERR_INVALID, 0, "labels of a series");
    /* Whatever was queued must reach the disk, also when the request failed midway. */
    if (r.queued_entries > 0)
        wal_notify_bytes(e->wal, r.queued_entries, result->stored_count, r.queued_bytes);
    count_result(e, result);
    if (err != ERR_OK)
        return errinfo_set(ei, err, 0, "memory for samples was refused");
    format_examples(&r);
    return ERR_OK;
}
