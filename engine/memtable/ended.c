/*
 * Ended series on their way out: which they are, and the steps that ended_internal.h describes.
 */
#include "engine/memtable/ended_internal.h"

#include "engine/flush/flush_internal.h"
#include "engine/memtable/rebuild_internal.h"
#include "engine/seal/seal_internal.h"

enum {
    LOOK_SLOTS = 4096, /* in one critical section */
    MARK_SERIES = 512,
    BURY_SERIES = 256, /* a look at the fingerprint table each */
};

/* ---- who has ended ---- */

bool series_has_ended(const struct series *series, int64_t now_ms)
{
    return series->newest_bits == STALE_NAN_BITS || series->newest_ms < now_ms - ENDED_SILENT_MS;
}

/* Nothing of it is in memory. Late samples are: they would need a part of their own. */
static bool is_sealed(const struct shard *s, uint32_t slot, const struct series *series)
{
    return series->open_count == 0 && series->closed == 0 &&
           !shard_has_histograms(s, slot, series->generation) &&
           (s->late.series_count == 0 ||
            late_buffer_find(&s->late, slot, series->generation) == NULL) &&
           (s->late_frozen.series_count == 0 ||
            late_buffer_find(&s->late_frozen, slot, series->generation) == NULL);
}

/* A look at all series. */
struct look {
    int64_t now_ms;
    bool may_leave;
    uint64_t series_count, stale_count, silent_count;
    struct slot_batch *ended; /* those that may leave */
};

static void look_at(struct look *l, const struct shard *s, uint32_t slot, struct series *series)
{
    bool is_stale = series->newest_bits == STALE_NAN_BITS;

    l->series_count++;
    if (series_has_ended(series, l->now_ms)) {
        l->stale_count += is_stale;
        l->silent_count += !is_stale;
        if (l->may_leave && series->settled && is_sealed(s, slot, series) &&
            l->ended->count < l->ended->capacity)
            slot_batch_add(l->ended, slot);
    }
    series->settled = 1;
}

static enum err look_at_all(struct shard *s, struct look *l, const struct maintain_control *control,
                            struct errinfo *ei)
{
    uint64_t stale_before = 0;
    uint32_t end = 1;
    enum err e = ERR_OK;

    for (uint32_t slot = 0; slot < end && e == ERR_OK;) {
        mutex_lock(&s->lock);
        if (slot == 0)
            stale_before = s->stale_count;
        end = s->series.slot_end;
        for (uint32_t n = 0; slot < end && n < LOOK_SLOTS; slot++, n++) {
            struct series *series = series_find(&s->series, slot);

            if (series != NULL)
                look_at(l, s, slot, series);
        }
        /* Whoever has been marked was defined by now. */
        s->leave.settled_definitions = s->log.defined_count;
        if (slot == end) {
            s->silent_count = l->silent_count;
            /* Counted anew, with what has changed meanwhile: it never drifts for long. */
            s->stale_count = l->stale_count + (s->stale_count - stale_before);
        }
        mutex_unlock(&s->lock);
        e = maintain_tick(control, "stopped", ei);
    }
    return e;
}

uint64_t ended_repeated(struct shard *s)
{
    uint64_t n;

    mutex_lock(&s->lock);
    n = s->log.repeated_count;
    mutex_unlock(&s->lock);
    return n;
}

void ended_recount(struct shard *s)
{
    mutex_lock(&s->lock);
    s->stale_count = 0;
    for (uint32_t slot = 0; slot < s->series.slot_end; slot++) {
        const struct series *series = series_find(&s->series, slot);

        s->stale_count += series != NULL && series->newest_bits == STALE_NAN_BITS;
    }
    mutex_unlock(&s->lock);
}

/* ---- leaving ---- */

/* Marks those for which nothing came since the look; the others stay, and drop out of the batch. */
static enum err mark_leaving(struct shard *s, struct slot_batch *b,
                             const struct maintain_control *control, struct errinfo *ei)
{
    uint32_t kept = 0;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < b->count && e == ERR_OK;) {
        mutex_lock(&s->lock);
        for (uint32_t n = 0; i < b->count && n < MARK_SERIES; i++, n++) {
            struct series *series = series_at(&s->series, b->slots[i]);

            ASSERT(series->defined && series->settled); /* only a maintainer changes that */
            if (!is_sealed(s, b->slots[i], series))
                continue;
            series->defined = 0;
            *(series->newest_bits == STALE_NAN_BITS ? &s->stale_count : &s->silent_count) -= 1;
            b->slots[kept++] = b->slots[i];
        }
        mutex_unlock(&s->lock);
        e = maintain_tick(control, "stopped", ei);
    }
    b->count = kept;
    return e;
}

/* Their samples into parts, which readers see from then on. */
static enum err write_parts(struct engine *e, struct shard *s, const struct slot_batch *b,
                            const struct maintain_control *control, struct errinfo *ei)
{
    struct flush_result ignored = {0};
    struct flush_parts parts = {0};
    const struct flush_exchange x = {.parts_added = &parts};
    enum err err = flush_ended(e, s, b->slots, b->count, control, &parts, &ignored, ei);

    if (err == ERR_OK && parts.count > 0)
        err = flush_exchange_run(e, s, &x, ei);
    flush_parts_done(e, &parts, err == ERR_OK);
    return err;
}

void ended_sealed(struct shard *s)
{
    s->leave.is_durable = s->leave.slots != NULL;
}

static enum err leave(struct engine *e, struct shard *s, struct slot_batch *b,
                      const struct maintain_control *control, struct errinfo *ei)
{
    enum err err = write_parts(e, s, b, control, ei);
    bool done = false;

    if (err != ERR_OK)
        return err;
    /* A series that begins anew may have samples of times that the old one had late, in a file or
     * part younger than the sealed files that are still growing: its own must be younger still. */
    sealer_end_files(s);
    s->leave.slots = b;
    s->leave.is_durable = false;
    err = mark_leaving(s, b, control, ei);
    if (err == ERR_OK)
        err = seal_ended(e, s, b->slots, b->count, &done, ei);
    if (err == ERR_OK && done) /* else the next seal's series file is without them */
        ended_sealed(s);
    return err;
}

enum err ended_leave(struct engine *e, struct shard *s, uint64_t repeated, bool force,
                     const struct maintain_control *control, uint64_t *out_count,
                     struct errinfo *ei)
{
    struct look l = {.now_ms = engine_now_ms(e)};
    uint32_t slot_end;
    enum err err;

    ended_finish(e, s);
    l.may_leave = s->leave.slots == NULL && repeated >= s->leave.settled_definitions;
    mutex_lock(&s->lock);
    slot_end = s->series.slot_end;
    mutex_unlock(&s->lock);
    l.ended = slot_batch_new(&s->slots, l.may_leave ? slot_end : 0);
    if (l.ended == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "list of ended series");
    err = look_at_all(s, &l, control, ei);
    if (err == ERR_OK && l.ended->count > 0 &&
        (force || (l.stale_count + l.silent_count) * 100 > l.series_count * ENDED_LEAVE_PERCENT)) {
        err = leave(e, s, l.ended, control, ei);
        *out_count += s->leave.slots == NULL ? 0 : l.ended->count;
    }
    if (s->leave.slots != l.ended)
        slot_batch_free(&s->slots, l.ended);
    ended_finish(e, s);
    return err;
}

/* ---- dead ---- */

/* Those of the next few that did not come back are dead; how many sender keys lead to them. */
static uint64_t bury_some(struct engine *e, struct shard *s, struct slot_batch *b, uint32_t *next,
                          uint32_t *kept)
{
    uint32_t first = *kept;
    uint64_t keys = 0;

    mutex_lock(&s->create_lock);
    limits_end_begin(e);
    mutex_lock(&s->lock);
    for (uint32_t n = 0; *next < b->count && n < BURY_SERIES; ++*next, n++) {
        struct series *series = series_at(&s->series, b->slots[*next]);

        if (series->defined || !series->settled)
            continue;
        keys += series->keyed;
        shard_unpublish_series(s, b->slots[*next]);
        b->slots[(*kept)++] = b->slots[*next];
    }
    mutex_unlock(&s->lock);
    limits_end(e, s, b->slots + first, *kept - first);
    mutex_unlock(&s->create_lock);
    return keys;
}

void ended_finish(struct engine *e, struct shard *s)
{
    struct slot_batch *b = s->leave.slots;
    uint32_t next = 0, kept = 0;

    if (b == NULL || !s->leave.is_durable)
        return;
    while (next < b->count)
        atomic_fetch_add_explicit(&e->dead_keys, bury_some(e, s, b, &next, &kept),
                                  memory_order_relaxed);
    b->count = kept;
    mutex_lock(&s->create_lock);
    slot_pool_bury(&s->slots, b);
    mutex_unlock(&s->create_lock);
    s->leave.slots = NULL;
}
