/*
 * One commit: take every shard's batches, encode them, write all frames with one call, publish.
 *
 * What fails stays in `pending`, in order, and is written again by the next commit, before anything
 * younger of the same shard. A segment whose write or sync failed is never written to again: after
 * a failed fsync the kernel may have dropped the pages and call them clean. The frames go to a new
 * segment, whose header says up to where the old ones count (resume_segment, resume_size), and
 * sequence numbers let replay drop what nevertheless shows up twice.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "wal/wal_internal.h"

enum {
    COMMIT_IOV_COUNT = 1024, /* IOV_MAX of Linux */
    POOL_KEEP_BYTES = 8 << 20,
    RETRY_FIRST_NS = 10 * 1000000,
    RETRY_MAX_NS = 1000 * 1000000,
};

/* Room for one more pending frame; NULL without memory. The frame goes back to the pool by
 * frame_recycle() or into the list by pending_push(). */
static struct frame *frame_new(struct wal *w)
{
    struct frame *f = w->unused_frames;

    if (w->pending_count == w->pending_capacity) {
        size_t capacity = w->pending_capacity == 0 ? 64 : w->pending_capacity * 2;
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
        struct frame **pending = reallocarray(w->pending, capacity, sizeof(struct frame *));

        if (pending == NULL)
            return NULL;
        w->pending = pending;
        w->pending_capacity = capacity;
    }
    if (f == NULL)
        return calloc(1, sizeof *f);
    w->unused_frames = f->next;
    w->unused_bytes -= f->payload_capacity;
    return f;
}

static void frame_free(struct frame *f)
{
    if (f == NULL)
        return;
    free(f->payload);
    free(f);
}

static void frame_recycle(struct wal *w, struct frame *f)
{
    if (w->unused_bytes + f->payload_capacity > POOL_KEEP_BYTES) {
        frame_free(f);
        return;
    }
    f->next = w->unused_frames;
    w->unused_frames = f;
    w->unused_bytes += f->payload_capacity;
}

void commit_frames_free(struct wal *w)
{
    for (size_t i = 0; i < w->pending_count; i++) {
        struct frame *f = w->pending[i];

        if (!f->encoded)
            w->options.source.release(w->options.source.ctx, f->header.shard, &f->batch);
        frame_free(f);
    }
    while (w->unused_frames != NULL) {
        struct frame *next = w->unused_frames->next;

        frame_free(w->unused_frames);
        w->unused_frames = next;
    }
    free(w->pending);
    w->pending = NULL;
    w->pending_count = 0;
}

static void pending_push(struct wal *w, struct frame *f, uint32_t shard)
{
    const struct wal_batch *b = &f->batch;

    ASSERT(b->entry_count > 0 && b->entry_count <= UINT32_MAX);
    ASSERT(b->first_sequence == w->taken_sequences[shard]);
    w->taken_sequences[shard] += b->entry_count;
    f->header = (struct frame_header){.shard = shard,
                                      .first_sequence = b->first_sequence,
                                      .entry_count = (uint32_t)b->entry_count};
    f->encoded = false;
    f->selected = false;
    w->pending[w->pending_count++] = f;
}

struct sweep_sum {
    uint64_t entry_count, memory_bytes;
    uint32_t shard_count;
};

static enum err take_shard(struct wal *w, uint32_t shard, struct sweep_sum *sum)
{
    const struct wal_source *source = &w->options.source;
    uint64_t before = sum->entry_count;

    for (;;) {
        struct frame *f = frame_new(w); /* before take(): what was taken must have a place */

        if (f == NULL)
            return ERR_NOMEM;
        if (!source->take(source->ctx, shard, &f->batch)) {
            frame_recycle(w, f);
            break;
        }
        pending_push(w, f, shard);
        sum->entry_count += f->batch.entry_count;
        sum->memory_bytes += f->batch.memory_bytes;
    }
    if (sum->entry_count > before)
        sum->shard_count++;
    return ERR_OK;
}

/*
 * Takes all batches. The sums of wal_notify() are read first: whatever they count is in the queues
 * already, so it is taken below or was before. What is queued meanwhile may be taken too and counts
 * as news once more; that costs an early wake-up and corrects itself.
 */
static enum err sweep(struct wal *w)
{
    uint64_t entries = atomic_load_explicit(&w->notified_entries, memory_order_seq_cst);
    uint64_t bytes = atomic_load_explicit(&w->notified_bytes, memory_order_relaxed);
    struct sweep_sum sum = {0};
    enum err e = ERR_OK;

    w->seen_samples = atomic_load_explicit(&w->notified_samples, memory_order_seq_cst);
    w->sweep_ns = clock_mono_ns();
    atomic_store_explicit(&w->seen_entries, entries, memory_order_relaxed);
    for (uint32_t shard = 0; shard < w->options.shard_count && e == ERR_OK; shard++)
        e = take_shard(w, shard, &sum);
    atomic_fetch_add_explicit(&w->backlog_bytes,
                              (int64_t)sum.memory_bytes - (int64_t)(bytes - w->seen_bytes),
                              memory_order_relaxed);
    w->seen_bytes = bytes;
    if (sum.shard_count > 0) {
        w->shards_per_sweep = sum.shard_count;
        atomic_store_explicit(&w->bytes_per_entry, sum.memory_bytes / sum.entry_count,
                              memory_order_relaxed);
    }
    return e;
}

static bool shard_blocked(const struct wal *w, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (!w->pending[i]->encoded &&
            w->pending[i]->header.shard == w->pending[index]->header.shard)
            return true;
    }
    return false;
}

/* Marks the frames to write: those that are encoded, unless an older one of their shard is not
 * (memory was short). Returns their size. */
static uint64_t frames_select(struct wal *w, bool all_encoded)
{
    uint64_t total = 0;

    for (size_t i = 0; i < w->pending_count; i++) {
        struct frame *f = w->pending[i];

        f->selected = f->encoded && (all_encoded || !shard_blocked(w, i));
        if (f->selected)
            total += FRAME_HEADER_SIZE + (uint64_t)f->header.stored_size;
    }
    return total;
}

bool commit_sync_needed(const struct wal *w)
{
    return w->segment != NULL && w->segment->size > w->segment->synced_size;
}

/* The current segment is closed for good; what counts of it ends at `keep_size`. */
static void segment_distrust(struct wal *w, uint64_t keep_size)
{
    uint32_t number = w->segment->number;
    uint64_t size = w->segment->size;
    uint64_t *highest = TAKE(w->segment->highest);
    bool is_only;

    if (keep_size < SEGMENT_HEADER_SIZE)
        keep_size = SEGMENT_HEADER_SIZE;
    /* A cut that runs now counts on this file to stay behind as the newest. */
    mutex_lock(&w->ledger.cut_lock);
    is_only = ledger_set_current(&w->ledger, 0);
    if (segment_give_up(w->fs, TAKE(w->segment), keep_size, is_only)) {
        w->resume_segment = number;
        w->resume_size = keep_size;
        log_size_add(w, (int64_t)keep_size - (int64_t)size, 0);
        ledger_push(&w->ledger, number, keep_size, highest);
    } else {
        log_size_add(w, -(int64_t)size, -1);
        free(highest);
    }
    mutex_unlock(&w->ledger.cut_lock);
}

enum err commit_sync(struct wal *w, struct errinfo *ei)
{
    uint64_t begin = clock_mono_ns();
    enum err e = file_sync(w->segment->file, ei);

    wal_histogram_observe(w->metrics.fsync_seconds, (double)(clock_mono_ns() - begin) * 1e-9);
    if (e == ERR_OK) {
        w->segment->synced_size = w->segment->size;
        return ERR_OK;
    }
    wal_counter_add(w->metrics.fsync_failures, 1);
    segment_distrust(w, w->segment->size); /* written counts as durable here: cut nothing */
    return e;
}

enum err commit_segment_open(struct wal *w, struct errinfo *ei)
{
    struct segment_header header = {.segment_number = w->segment_number_last + 1,
                                    .shard_count = w->options.shard_count,
                                    .start_epoch = w->start_epoch};
    struct segment *fresh;
    enum err e;

    if (w->segment_number_last == UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "the log has used all segment numbers");
    w->segment_number_last++;
    if (w->segment != NULL) {
        w->resume_segment = w->segment->number;
        w->resume_size = w->segment->size;
    }
    header.resume_segment = w->resume_segment;
    header.resume_size = w->resume_size;
    /* For the current one and, should it fail, for the fresh one: giving up must not fail. */
    e = ledger_reserve(&w->ledger, 2, ei);
    if (e == ERR_OK)
        e = segment_create(w->fs, &header, &fresh, ei);
    if (e != ERR_OK)
        return e;
    if (w->segment != NULL)
        ledger_push(&w->ledger, w->segment->number, w->segment->size, TAKE(w->segment->highest));
    segment_close(w->segment);
    w->segment = fresh;
    (void)ledger_set_current(&w->ledger, fresh->number); /* whether others are there: no matter */
    log_size_add(w, (int64_t)fresh->size, 1);
    atomic_store_explicit(&w->stat_segment, fresh->number, memory_order_relaxed);
    wal_gauge_set(w->metrics.segment_current, fresh->number);
    return ERR_OK;
}

/* Goes on in a new segment; the one before, if any, is finished. */
static enum err segment_change(struct wal *w, struct errinfo *ei)
{
    if (w->options.sync == WAL_SYNC_INTERVAL && commit_sync_needed(w)) {
        enum err e = commit_sync(w, ei);

        if (e != ERR_OK)
            return e;
    }
    return commit_segment_open(w, ei);
}

enum err commit_segment_rotate(struct wal *w, struct errinfo *ei)
{
    if (w->segment == NULL || w->segment->size == SEGMENT_HEADER_SIZE)
        return ERR_OK;
    return segment_change(w, ei);
}

/* Makes the current segment one that takes `size` more bytes. */
static enum err segment_ensure(struct wal *w, uint64_t size, struct errinfo *ei)
{
    struct segment *seg = w->segment;

    if (seg != NULL &&
        (seg->size == SEGMENT_HEADER_SIZE || seg->size + size <= w->options.segment_size_bytes))
        return ERR_OK;
    return segment_change(w, ei);
}

static int frame_stamp(struct wal *w, struct frame *f, struct iovec *iov)
{
    f->header.segment_number = w->segment->number;
    f->header.start_epoch = w->start_epoch;
    frame_header_encode(&f->header, f->header_bytes);
    iov[0] = (struct iovec){.iov_base = f->header_bytes, .iov_len = FRAME_HEADER_SIZE};
    if (f->header.stored_size == 0)
        return 1;
    iov[1] = (struct iovec){.iov_base = f->payload, .iov_len = f->header.stored_size};
    return 2;
}

static uint64_t iov_size(const struct iovec *iov, int iov_count)
{
    uint64_t sum = 0;

    for (int i = 0; i < iov_count; i++)
        sum += iov[i].iov_len;
    return sum;
}

/* Writes the selected frames behind the segment's end: one call, or, for more frames than one
 * call takes, several of which the last one syncs all. */
static enum err frames_write_iov(struct wal *w, uint64_t *end, struct errinfo *ei)
{
    struct iovec iov[COMMIT_IOV_COUNT];
    struct file *file = w->segment->file;
    uint64_t offset = w->segment->size;
    int n = 0;
    enum err e;

    for (size_t i = 0; i < w->pending_count; i++) {
        if (!w->pending[i]->selected)
            continue;
        if (n > COMMIT_IOV_COUNT - 2) {
            e = file_write(file, iov, n, offset, ei);
            if (e != ERR_OK)
                return e;
            offset += iov_size(iov, n);
            n = 0;
        }
        n += frame_stamp(w, w->pending[i], iov + n);
    }
    if (w->options.sync == WAL_SYNC_ALWAYS)
        e = file_write_sync(file, iov, n, offset, ei);
    else
        e = file_write(file, iov, n, offset, ei);
    *end = offset + iov_size(iov, n);
    return e;
}

static enum err frames_write(struct wal *w, uint64_t size, struct errinfo *ei)
{
    enum err e = segment_ensure(w, size, ei);
    struct segment *seg = w->segment;
    bool always = w->options.sync == WAL_SYNC_ALWAYS;
    uint64_t begin = clock_mono_ns(), end;

    if (e != ERR_OK)
        return e;
    if (seg->synced_size == seg->size)
        w->unsynced_ns = begin;
    e = frames_write_iov(w, &end, ei);
    if (always)
        wal_histogram_observe(w->metrics.fsync_seconds, (double)(clock_mono_ns() - begin) * 1e-9);
    if (e != ERR_OK) {
        if (always && e != ERR_NO_SPACE)
            wal_counter_add(w->metrics.fsync_failures, 1);
        segment_distrust(w, always ? seg->synced_size : seg->size);
        return e;
    }
    ASSERT(end == seg->size + size);
    seg->size = end;
    if (always)
        seg->synced_size = end;
    return ERR_OK;
}

static void stat_add(_Atomic uint64_t *stat, struct metric_counter *metric, uint64_t n)
{
    atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
    wal_counter_add(metric, n);
}

/* The selected frames are durable: tells so, frees them, closes the ranks of the others. */
static void frames_publish(struct wal *w, uint64_t size)
{
    uint64_t samples = 0, payload_bytes = 0;
    size_t kept = 0, frame_count;

    for (size_t i = 0; i < w->pending_count; i++) {
        struct frame *f = w->pending[i];
        const struct frame_header *h = &f->header;

        if (!f->selected) {
            w->pending[kept++] = f;
            continue;
        }
        w->segment->highest[h->shard] = h->first_sequence + h->entry_count - 1;
        atomic_store_explicit(&w->durable_sequences[h->shard], w->segment->highest[h->shard],
                              memory_order_release);
        samples += f->batch.sample_count;
        payload_bytes += h->stored_size;
        frame_recycle(w, f);
    }
    frame_count = w->pending_count - kept;
    w->pending_count = kept;
    log_size_add(w, (int64_t)size, 0);
    atomic_fetch_sub_explicit(&w->backlog_bytes, (int64_t)payload_bytes, memory_order_relaxed);
    stat_add(&w->stat_bytes, w->metrics.bytes_written, size);
    stat_add(&w->stat_frames, w->metrics.frames, frame_count);
    stat_add(&w->stat_samples, w->metrics.samples, samples);
    stat_add(&w->stat_commits, w->metrics.commits, 1);
}

void commit_failed(struct wal *w, const struct errinfo *ei)
{
    enum err code = ei->code;
    uint64_t backoff = RETRY_FIRST_NS;

    if (code != ERR_NO_SPACE && code != ERR_NOMEM)
        code = ERR_IO;
    for (uint32_t i = 0; i < w->failure_count && backoff < RETRY_MAX_NS; i++)
        backoff *= 2;
    if (backoff > RETRY_MAX_NS)
        backoff = RETRY_MAX_NS;
    w->failure_count++;
    w->last_failure = code;
    w->retry_ns = clock_mono_ns() + backoff;
    stat_add(&w->stat_failures, w->metrics.commit_failures, 1);
    if (code != ERR_NOMEM)
        wal_counter_add(w->metrics.writes_failed, 1);
    /* One failed sync heals with the next segment; a second in a row means that requests had
     * better not touch the memtable. A full disk is plain at once. */
    if (code == ERR_NO_SPACE || w->failure_count > 1)
        atomic_store_explicit(&w->admit_code, code, memory_order_relaxed);
    if (w->failure_count == 1)
        LOG_WARN("log commit failed, trying again", LOG_STR("err", ei->message));
    waiter_list_resolve(w, code);
}

static void commit_succeeded(struct wal *w)
{
    if (w->failure_count > 0)
        LOG_INFO("log commits work again", LOG_U64("failed_commits", w->failure_count));
    w->failure_count = 0;
    w->retry_ns = 0;
    atomic_store_explicit(&w->admit_code, ERR_OK, memory_order_relaxed);
    waiter_list_resolve(w, ERR_OK);
}

void commit_once(struct wal *w)
{
    struct errinfo ei = {0};
    uint64_t begin = clock_mono_ns(), size;
    enum err taken = sweep(w);
    enum err encoded = encode_team_run(w->team, w->pending, w->pending_count);
    enum err e = ERR_OK;

    size = frames_select(w, encoded == ERR_OK);
    if (size > 0)
        e = frames_write(w, size, &ei);
    else if (w->segment == NULL) /* the retry after a full disk found nothing queued */
        e = commit_segment_open(w, &ei);
    if (e == ERR_OK && size > 0)
        frames_publish(w, size);
    if (e == ERR_OK && (taken != ERR_OK || encoded != ERR_OK))
        e = errinfo_set(&ei, ERR_NOMEM, 0, "encode log frames");
    if (e == ERR_OK)
        commit_succeeded(w);
    else
        commit_failed(w, &ei);
    wal_gauge_set(w->metrics.backlog_bytes,
                  (double)atomic_load_explicit(&w->backlog_bytes, memory_order_relaxed));
    if (size > 0)
        wal_histogram_observe(w->metrics.commit_seconds, (double)(clock_mono_ns() - begin) * 1e-9);
}
