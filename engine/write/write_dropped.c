/*
 * Samples of series that rules drop. Their counters are shared by all requests, so a request
 * gathers first: neighbours are dropped by the same rule more often than not.
 *
 * The first sample that a new rule drops ends what is stored of its series, as a scrape ends a
 * series that it does not find any more. The marker goes to the log like any sample, and the answer
 * waits for it. It is written once: the key leads to the rule from then on, and a series that has a
 * marker as its newest sample gets no other one.
 */
#include "engine/memtable/ended_internal.h"
#include "engine/write/write_internal.h"

static void slot_count(struct write_request *r, uint32_t slot)
{
    if (r->dropped[slot].decider == NULL)
        return;
    atomic_fetch_add_explicit(&r->dropped[slot].decider->samples, r->dropped[slot].samples,
                              memory_order_relaxed);
    r->dropped[slot].decider = NULL;
    r->dropped[slot].samples = 0;
}

void write_drop(struct write_request *r, uint32_t series, struct decider *decider)
{
    const struct write_series *ws = &r->batch->series[series];
    uint64_t count = (uint64_t)ws->sample_count + ws->histogram_count;
    uint32_t slot = decider->id % WRITE_DROPPED_SLOTS;

    if (r->dropped[slot].decider != decider) {
        slot_count(r, slot);
        r->dropped[slot].decider = decider;
    }
    r->dropped[slot].samples += count;
    r->result->dropped_count += count;
}

bool write_dropped_again(struct write_request *r, uint32_t series, front_target target)
{
    struct decider *decider = rules_decider(r->rules, target);

    if (decider == NULL)
        return false;
    write_drop(r, series, decider);
    if (UNLIKELY(front_target_generation(target) != r->rules_stamp))
        rules_remember(r->engine, r->batch->series[series].sender_key, decider, r->rules_stamp,
                       true);
    return true;
}

void write_dropped_count(struct write_request *r)
{
    if (r->result->dropped_count == 0)
        return;
    for (uint32_t i = 0; i < WRITE_DROPPED_SLOTS; i++)
        slot_count(r, i);
    atomic_fetch_add_explicit(&r->engine->rules.samples_dropped, r->result->dropped_count,
                              memory_order_relaxed);
}

/* ---- the end of what is stored ---- */

/* The first sample of the series that is newer; else the moment behind. */
static int64_t end_time(const struct write_batch *b, const struct write_series *ws,
                        int64_t newest_ms)
{
    int64_t first_ms = INT64_MAX;

    for (uint32_t i = 0; i < ws->sample_count; i++) {
        int64_t t_ms = b->samples[ws->sample_first + i].t_ms;

        if (t_ms > newest_ms && t_ms < first_ms)
            first_ms = t_ms;
    }
    for (uint32_t i = 0; i < ws->histogram_count; i++) {
        int64_t t_ms = b->histograms[ws->histogram_first + i].t_ms;

        if (t_ms > newest_ms && t_ms < first_ms)
            first_ms = t_ms;
    }
    return first_ms == INT64_MAX ? newest_ms + 1 : first_ms;
}

/* Caller holds the shard's lock. What was deleted shall not come back as a marker alone. */
static bool goes_on(const struct engine *e, const struct series *series)
{
    return series->defined && series->newest_ms != INT64_MIN &&
           series->newest_bits != SERIES_BITS_UNKNOWN &&
           !series_has_ended(series, engine_now_ms(e));
}

static enum err end_slot(struct write_request *r, struct shard_session *session, uint32_t slot,
                         uint32_t series_index)
{
    struct series *series = series_at(&session->shard->series, slot);
    int64_t t_ms;

    if (!goes_on(r->engine, series))
        return ERR_OK;
    t_ms = end_time(r->batch, &r->batch->series[series_index], series->newest_ms);
    if (t_ms > r->time_max_ms)
        return ERR_OK;
    if (shard_append(session->shard, slot, series, t_ms, STALE_NAN_BITS, &session->change,
                     &r->old) == APPEND_NO_MEMORY)
        return ERR_NOMEM;
    atomic_fetch_add_explicit(&r->engine->rules.series_ended, 1, memory_order_relaxed);
    return ERR_OK;
}

enum err write_end_dropped(struct write_request *r, uint32_t series, const struct labels *labels)
{
    struct write_scratch *scratch = r->scratch;
    struct shard_session session;
    struct series_identity id;
    enum err e = ERR_OK;
    bool is_stored;
    uint32_t slot;

    /* What goes on a while after the last change of rules is somebody else's. */
    if (!rules_are_new(r->engine))
        return ERR_OK;
    /* Of labels that rules rewrite, others may be senders too. */
    if (!rule_set_leaves_alone(r->rules, labels, &scratch->arena, &is_stored))
        return ERR_NOMEM;
    if (!is_stored)
        return ERR_OK;
    if (!engine_identify_labels(r->engine, labels, &scratch->canonical, &scratch->rest, &id))
        return ERR_NOMEM;
    old_samples_reset(&r->old); /* it may be of another shard */
    write_session_begin(r, &session, &r->engine->shards[id.shard]);
    slot = fingerprint_table_find(&session.shard->fingerprints, id.fingerprint);
    if (slot != FINGERPRINT_SLOT_NONE)
        e = end_slot(r, &session, slot, series);
    write_session_end(r, &session);
    return e;
}
