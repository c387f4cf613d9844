/*
 * The committer thread: decides when the next commit starts. It sleeps without a time-out while
 * nothing is queued; then until the average frame is full enough for zstd or the first entry has
 * waited commit_delay_ms; after a failed commit until its retry is due.
 */
#include "base/assert.h"
#include "base/log.h"
#include "wal/wal_internal.h"

enum { NS_PER_MS = 1000000 };

static bool queued_any(struct wal *w)
{
    return atomic_load_explicit(&w->notified_entries, memory_order_seq_cst) !=
           atomic_load_explicit(&w->seen_entries, memory_order_relaxed);
}

static bool queued_enough(struct wal *w, uint64_t wake_at_samples)
{
    return atomic_load_explicit(&w->notified_samples, memory_order_seq_cst) >= wake_at_samples;
}

static void wake_committer(struct wal *w)
{
    mutex_lock(&w->lock);
    cond_signal(&w->wake);
    mutex_unlock(&w->lock);
}

void wal_notify_bytes(struct wal *w, uint64_t entry_count, uint64_t sample_count,
                      uint64_t memory_bytes)
{
    uint32_t state;

    if (!queued_any(w))
        atomic_store_explicit(&w->first_queued_ns, clock_mono_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&w->notified_bytes, memory_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->backlog_bytes, (int64_t)memory_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->notified_samples, sample_count, memory_order_seq_cst);
    atomic_fetch_add_explicit(&w->notified_entries, entry_count, memory_order_seq_cst);
    state = atomic_load_explicit(&w->sleep_state, memory_order_seq_cst);
    if (state == SLEEP_AWAKE)
        return;
    if (state == SLEEP_PACING &&
        !queued_enough(w, atomic_load_explicit(&w->wake_at_samples, memory_order_relaxed)))
        return;
    /* One of many notifiers does the waking. */
    if (atomic_compare_exchange_strong_explicit(&w->sleep_state, &state, SLEEP_AWAKE,
                                                memory_order_seq_cst, memory_order_relaxed))
        wake_committer(w);
}

void wal_notify(struct wal *w, uint64_t entry_count, uint64_t sample_count)
{
    uint64_t each = atomic_load_explicit(&w->bytes_per_entry, memory_order_relaxed);

    wal_notify_bytes(w, entry_count, sample_count, entry_count * each);
}

/* Sleeps until `deadline_ns` (0: for good), a notifier that ends `state`, or stop. Needs the lock,
 * which guards stop; the caller has looked at the queue after storing `state`. */
static void sleep_until(struct wal *w, enum sleep_state state, uint64_t deadline_ns)
{
    while (w->stop == STOP_NOT &&
           atomic_load_explicit(&w->sleep_state, memory_order_relaxed) == state) {
        if (deadline_ns == 0)
            cond_wait(&w->wake, &w->lock);
        else if (!cond_wait_until(&w->wake, &w->lock, deadline_ns))
            break;
    }
    atomic_store_explicit(&w->sleep_state, SLEEP_AWAKE, memory_order_seq_cst);
}

static uint64_t sync_due_ns(const struct wal *w)
{
    if (w->options.sync != WAL_SYNC_INTERVAL || !commit_sync_needed(w))
        return 0;
    return w->unsynced_ns + (uint64_t)w->options.sync_interval_ms * NS_PER_MS;
}

/* Nothing is queued: sleeps until something is, or until a sync of SYNC_INTERVAL is due. */
static void sleep_idle(struct wal *w)
{
    atomic_store_explicit(&w->sleep_state, SLEEP_IDLE, memory_order_seq_cst);
    if (queued_any(w))
        atomic_store_explicit(&w->sleep_state, SLEEP_AWAKE, memory_order_seq_cst);
    else
        sleep_until(w, SLEEP_IDLE, sync_due_ns(w));
}

/* Something is queued: sleeps until the next commit pays. */
static void sleep_pacing(struct wal *w)
{
    uint64_t first = atomic_load_explicit(&w->first_queued_ns, memory_order_relaxed);
    uint64_t wake_at =
        w->seen_samples + (uint64_t)w->options.commit_sample_target * w->shards_per_sweep;
    uint64_t deadline;

    /* The stamp may be of an earlier commit, see wal_internal.h; nothing queued now is older than
     * the last sweep. */
    if (first < w->sweep_ns)
        first = w->sweep_ns;
    deadline = first + (uint64_t)w->options.commit_delay_ms * NS_PER_MS;
    atomic_store_explicit(&w->wake_at_samples, wake_at, memory_order_relaxed);
    atomic_store_explicit(&w->sleep_state, SLEEP_PACING, memory_order_seq_cst);
    if (queued_enough(w, wake_at))
        atomic_store_explicit(&w->sleep_state, SLEEP_AWAKE, memory_order_seq_cst);
    else
        sleep_until(w, SLEEP_PACING, deadline);
}

/* The last commit failed: new entries do not hasten the retry, but a closing log does not wait past
 * its deadline for it. */
static void sleep_retry(struct wal *w)
{
    uint64_t deadline;

    do {
        deadline = w->retry_ns;
        if (w->stop == STOP_CLOSE && deadline > w->close_deadline_ns)
            deadline = w->close_deadline_ns;
    } while (w->stop != STOP_ABANDON && cond_wait_until(&w->wake, &w->lock, deadline));
}

enum step { STEP_COMMIT, STEP_SYNC, STEP_ROTATE, STEP_END };

/* Nothing is left to write, or time is up; but one attempt is always made. */
static bool closing_ends(struct wal *w)
{
    if (!queued_any(w) && w->pending_count == 0)
        return true;
    return w->close_tried && clock_mono_ns() >= w->close_deadline_ns;
}

/* What to do next. Needs the lock; sleeps in it. */
static enum step next_step(struct wal *w)
{
    for (;;) {
        uint64_t due;

        if (w->stop == STOP_ABANDON)
            return STEP_END;
        if (w->stop == STOP_CLOSE && closing_ends(w))
            return STEP_END;
        if (w->retry_ns != 0) {
            sleep_retry(w);
            if (w->stop == STOP_ABANDON)
                continue;
            w->close_tried = w->stop == STOP_CLOSE;
            return STEP_COMMIT;
        }
        if (w->stop == STOP_CLOSE) {
            w->close_tried = true;
            return STEP_COMMIT;
        }
        if (w->rotate) {
            w->rotate = false;
            return STEP_ROTATE;
        }
        due = sync_due_ns(w);
        if (due != 0 && clock_mono_ns() >= due)
            return STEP_SYNC;
        if (!queued_any(w)) {
            sleep_idle(w);
            continue;
        }
        sleep_pacing(w);
        if (w->stop == STOP_NOT && !w->rotate)
            return STEP_COMMIT;
    }
}

static void interval_sync(struct wal *w)
{
    struct errinfo ei = {0};

    /* The entries have been acknowledged as written, so there is nobody to tell but the operator;
     * the segment has been given up and the next commit opens another. */
    if (commit_sync(w, &ei) != ERR_OK)
        commit_failed(w, &ei);
}

void wal_rotate(struct wal *w)
{
    mutex_lock(&w->lock);
    w->rotate = true;
    /* Only a sleep for work is cut short: a retry after a failure keeps its time. */
    atomic_store_explicit(&w->sleep_state, SLEEP_AWAKE, memory_order_seq_cst);
    cond_signal(&w->wake);
    mutex_unlock(&w->lock);
}

static void rotate(struct wal *w)
{
    struct errinfo ei = {0};

    if (commit_segment_rotate(w, &ei) == ERR_OK)
        return;
    /* A failed sync has given the segment up, as a failed commit does; else nothing has changed and
     * the next commit finds out by itself whether the disk takes more. */
    if (w->segment == NULL)
        commit_failed(w, &ei);
    else
        LOG_WARN("the log's segment could not be ended", LOG_STR("err", ei.message));
}

void *committer_thread(void *arg)
{
    struct wal *w = arg;

    for (;;) {
        enum step step;

        mutex_lock(&w->lock);
        step = next_step(w);
        mutex_unlock(&w->lock);
        if (step == STEP_END)
            return NULL;
        if (step == STEP_SYNC)
            interval_sync(w);
        else if (step == STEP_ROTATE)
            rotate(w);
        else
            commit_once(w);
    }
}
