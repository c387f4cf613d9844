/*
 * Cutting the log: whole segments go, from the oldest on, once the owner has all they hold.
 *
 * Why this order, and why the newest stays: the highest segment number must survive on disk, since
 * none may be used twice; and a segment that was given up is limited by the header of one behind it
 * (resume), so that one must not go first. Removals need not be durable one by one: a segment that
 * comes back after a power loss holds only covered entries, which replay passes over, and frames of
 * it that never counted are covered as well, or stand again behind the header that limits them.
 */
#include "wal/cut_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "wal/wal_internal.h"

void ledger_init(struct segment_ledger *ledger)
{
    *ledger = (struct segment_ledger){0};
    mutex_init(&ledger->cut_lock);
    mutex_init(&ledger->lock);
}

void ledger_done(struct segment_ledger *ledger)
{
    for (size_t i = 0; i < ledger->count; i++)
        free(ledger->closed[i].highest);
    free(ledger->closed);
    mutex_done(&ledger->lock);
    mutex_done(&ledger->cut_lock);
}

enum err ledger_reserve(struct segment_ledger *ledger, size_t count, struct errinfo *ei)
{
    enum err e = ERR_OK;

    mutex_lock(&ledger->lock);
    if (ledger->capacity - ledger->count < count) {
        size_t capacity = 2 * ledger->count + count;
        struct segment_record *closed = reallocarray(ledger->closed, capacity, sizeof *closed);

        if (closed == NULL) {
            e = errinfo_set(ei, ERR_NOMEM, 0, "ledger of %zu log segments", capacity);
        } else {
            ledger->closed = closed;
            ledger->capacity = capacity;
        }
    }
    mutex_unlock(&ledger->lock);
    return e;
}

void ledger_push(struct segment_ledger *ledger, uint32_t number, uint64_t size, uint64_t *highest)
{
    mutex_lock(&ledger->lock);
    ASSERT(ledger->count < ledger->capacity);
    ASSERT(ledger->count == 0 || ledger->closed[ledger->count - 1].number < number);
    ledger->closed[ledger->count++] =
        (struct segment_record){.number = number, .size = size, .highest = highest};
    mutex_unlock(&ledger->lock);
}

bool ledger_set_current(struct segment_ledger *ledger, uint32_t number)
{
    bool none_closed;

    mutex_lock(&ledger->lock);
    ledger->current = number;
    none_closed = ledger->count == 0;
    mutex_unlock(&ledger->lock);
    return none_closed;
}

void log_size_add(struct wal *w, int64_t bytes, int64_t segments)
{
    /* Unsigned addition of a negative number wraps to the right sum. */
    uint64_t sum =
        atomic_fetch_add_explicit(&w->stat_log_bytes, (uint64_t)bytes, memory_order_relaxed) +
        (uint64_t)bytes;

    atomic_fetch_add_explicit(&w->stat_segment_count, (uint64_t)segments, memory_order_relaxed);
    wal_gauge_set(w->metrics.log_bytes, (double)sum);
}

static bool record_covered(const struct segment_record *record, const uint64_t *sequences,
                           uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++) {
        if (record->highest[i] > sequences[i])
            return false;
    }
    return true;
}

/* Number of the first segment that must stay; 0 when none may go. */
static uint32_t ledger_keep(struct segment_ledger *ledger, const uint64_t *sequences,
                            uint32_t shard_count)
{
    uint32_t keep = 0;
    size_t n = 0;

    mutex_lock(&ledger->lock);
    while (n < ledger->count && record_covered(&ledger->closed[n], sequences, shard_count))
        n++;
    if (n == ledger->count && ledger->current == 0 && n > 0)
        n--; /* the newest of all */
    if (n > 0)
        keep = n < ledger->count ? ledger->closed[n].number : ledger->current;
    mutex_unlock(&ledger->lock);
    return keep;
}

/* Removes the files below `keep` in ascending order, those of segments that were given up and could
 * not be removed then included. *gone_below: all below this number are gone. */
static enum err files_remove(struct wal *w, uint32_t keep, uint32_t *gone_below,
                             uint64_t *removed_count, struct errinfo *ei)
{
    struct segment_list list = {0};
    enum err e = segment_list_read(w->fs, &list, ei);

    *gone_below = 0;
    for (size_t i = 0; e == ERR_OK && i < list.count && list.numbers[i] < keep; i++) {
        char path[WAL_PATH_SIZE];

        wal_segment_path(list.numbers[i], path);
        e = fs_unlink(w->fs, path, ei);
        if (e == ERR_OK) {
            *gone_below = list.numbers[i] + 1;
            ++*removed_count;
        }
    }
    if (e == ERR_OK)
        *gone_below = keep;
    segment_list_done(&list);
    return e;
}

static void ledger_forget(struct wal *w, uint32_t gone_below)
{
    struct segment_ledger *ledger = &w->ledger;
    uint64_t bytes = 0;
    size_t n = 0;

    mutex_lock(&ledger->lock);
    while (n < ledger->count && ledger->closed[n].number < gone_below) {
        bytes += ledger->closed[n].size;
        free(ledger->closed[n].highest);
        n++;
    }
    ledger->count -= n;
    if (n > 0)
        memmove(ledger->closed, ledger->closed + n, ledger->count * sizeof *ledger->closed);
    mutex_unlock(&ledger->lock);
    log_size_add(w, -(int64_t)bytes, -(int64_t)n);
}

static enum err cut(struct wal *w, const uint64_t *sequences, uint64_t *removed_count,
                    struct errinfo *ei)
{
    uint32_t keep = ledger_keep(&w->ledger, sequences, w->options.shard_count), gone_below;
    enum err e;

    if (keep == 0)
        return ERR_OK;
    wal_counter_add(w->metrics.cuts, 1);
    e = files_remove(w, keep, &gone_below, removed_count, ei);
    ledger_forget(w, gone_below);
    if (*removed_count > 0) {
        enum err sync_e = fs_sync_dir(w->fs, WAL_DIR, ei);

        if (e == ERR_OK)
            e = sync_e;
    }
    if (e != ERR_OK)
        wal_counter_add(w->metrics.cut_failures, 1);
    return e;
}

enum err wal_cut(struct wal *w, const uint64_t *sequences, uint64_t *removed_count,
                 struct errinfo *ei)
{
    uint64_t removed = 0;
    enum err e;

    ASSERT(w->replayed);
    mutex_lock(&w->ledger.cut_lock);
    e = cut(w, sequences, &removed, ei);
    mutex_unlock(&w->ledger.cut_lock);
    if (removed_count != NULL)
        *removed_count = removed;
    return e;
}
