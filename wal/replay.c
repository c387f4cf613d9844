/*
 * Parallel replay: one reader, a ring of chunks, workers with fixed shards.
 *
 * The reader streams each segment in pieces of a megabyte, finds the frames (their headers are
 * checked here, since they hold the lengths) and hands whole chunks to all workers. Verifying,
 * decompressing and applying, which is nearly all of the work, is the workers'. A frame that
 * straddles two pieces is read again with the second one; a frame larger than a piece gets a chunk
 * of its size.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "wal/replay_internal.h"

enum { CHUNK_SIZE_BYTES = 1 << 20 };

/* The reader's notes on a shard: every valid header counts here, also of frames that are bad, dead
 * or cut off, so that no sequence number is ever given twice. */
struct reader_shard {
    uint64_t first_sequence; /* of the first frame that counts; 0: none */
    uint64_t live_end;       /* one above the highest sequence of frames that count */
    uint64_t highest;
};

struct replay {
    struct wal *w;
    const struct wal_sink *sink;
    struct replay_plan plan;
    struct replay_ring ring;
    struct replay_worker *workers; /* owned, ring.worker_count */
    struct replay_shard *shards;   /* owned, the workers' */
    struct reader_shard *noted;    /* owned, the reader's */
    uint64_t bad_region_count;
};

static void note_sequences(struct replay *r, const struct replay_segment *seg,
                           const struct frame_header *h, bool live)
{
    struct reader_shard *shard = &r->noted[h->shard];
    uint64_t end = h->first_sequence + h->entry_count;

    if (end - 1 > shard->highest)
        shard->highest = end - 1;
    if (!live)
        return;
    if (end - 1 > seg->highest[h->shard])
        seg->highest[h->shard] = end - 1;
    if (shard->first_sequence == 0)
        shard->first_sequence = h->first_sequence;
    if (end > shard->live_end)
        shard->live_end = end;
}

static enum err chunk_reserve(struct replay_chunk *chunk, size_t size, struct errinfo *ei)
{
    uint8_t *data;

    /* A chunk that a giant frame made large shrinks at its next use. */
    if (size <= chunk->capacity &&
        chunk->capacity <= (size > CHUNK_SIZE_BYTES ? SIZE_MAX : CHUNK_SIZE_BYTES))
        return ERR_OK;
    if (size < CHUNK_SIZE_BYTES)
        size = CHUNK_SIZE_BYTES;
    data = malloc(size);
    if (data == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "replay chunk of %zu bytes", size);
    free(chunk->data);
    chunk->data = data;
    chunk->capacity = size;
    return ERR_OK;
}

static enum err chunk_add(struct replay_chunk *chunk, const struct scan_frame *f,
                          struct errinfo *ei)
{
    if (chunk->frame_count == chunk->frame_capacity) {
        size_t capacity = chunk->frame_capacity == 0 ? 256 : chunk->frame_capacity * 2;
        struct scan_frame *frames = reallocarray(chunk->frames, capacity, sizeof *frames);

        if (frames == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "%zu log frames", capacity);
        chunk->frames = frames;
        chunk->frame_capacity = capacity;
    }
    chunk->frames[chunk->frame_count++] = *f;
    return ERR_OK;
}

/* A segment being read. */
struct segment_read {
    const struct replay_segment *segment;
    struct file *file;
    struct frame_scan scan;
    bool last;
    uint64_t bad_region_count; /* before the last frame that counts */
};

/* Moves the scan's window to its next bytes, at least `need` of them, in `chunk`. */
static enum err window_read(struct segment_read *sr, struct replay_chunk *chunk, size_t need,
                            struct errinfo *ei)
{
    uint64_t offset = frame_scan_offset(&sr->scan);
    uint64_t left = sr->segment->size - offset;
    size_t size = need > CHUNK_SIZE_BYTES ? need : CHUNK_SIZE_BYTES;
    enum err e;

    if (size > left)
        size = (size_t)left;
    ASSERT(size >= need);
    e = chunk_reserve(chunk, size, ei);
    if (e == ERR_OK)
        e = file_read(sr->file, chunk->data, size, offset, ei);
    if (e == ERR_OK)
        frame_scan_window(&sr->scan, chunk->data, size);
    return e;
}

/* Collects the window's frames in `chunk`; *need is what the next window must hold, 0 at the end of
 * the segment. */
static enum err window_scan(struct replay *r, struct segment_read *sr, struct replay_chunk *chunk,
                            size_t *need, struct errinfo *ei)
{
    for (;;) {
        struct scan_frame f;
        enum scan_result found = frame_scan_next(&sr->scan, &f, need);
        enum err e;
        bool live;

        if (found == SCAN_MORE)
            return ERR_OK;
        if (found == SCAN_END) {
            *need = 0;
            return ERR_OK;
        }
        live = f.offset + FRAME_HEADER_SIZE + f.header.stored_size <= sr->segment->live_size;
        /* A frame cut off by the end of the file counts for gaps: its entries existed. */
        if (found == SCAN_BROKEN)
            live = sr->segment->live_size == sr->segment->size;
        note_sequences(r, sr->segment, &f.header, live);
        if (!live || found == SCAN_BROKEN)
            continue;
        if (sr->bad_region_count < sr->scan.bad_region_count)
            replay_report(r->sink, sr->segment->number, sr->scan.bad_region_offset,
                          "bytes that are no frame");
        sr->bad_region_count = sr->scan.bad_region_count;
        e = chunk_add(chunk, &f, ei);
        if (e != ERR_OK)
            return e;
    }
}

static enum err segment_stream(struct replay *r, struct segment_read *sr, struct errinfo *ei)
{
    size_t need = FRAME_HEADER_SIZE;

    if (sr->segment->size < SEGMENT_HEADER_SIZE + FRAME_HEADER_SIZE) {
        sr->scan.in_bad_region = sr->segment->size > SEGMENT_HEADER_SIZE;
        sr->scan.bad_region_offset = SEGMENT_HEADER_SIZE;
        return ERR_OK;
    }
    while (need > 0 && !replay_ring_failed(&r->ring)) {
        struct replay_chunk *chunk = replay_ring_chunk(&r->ring);
        enum err e = window_read(sr, chunk, need, ei);

        if (e == ERR_OK)
            e = window_scan(r, sr, chunk, &need, ei);
        if (e != ERR_OK)
            return e;
        chunk->last_segment = sr->last;
        if (chunk->frame_count > 0) /* else the next window uses it again */
            replay_ring_publish(&r->ring);
        atomic_fetch_add_explicit(&r->w->replay_bytes_done, sr->scan.pos, memory_order_relaxed);
    }
    return ERR_OK;
}

static enum err segment_replay(struct replay *r, const struct replay_segment *seg, bool last,
                               struct errinfo *ei)
{
    struct segment_read sr = {.segment = seg, .last = last};
    struct scan_identity id = {.segment_number = seg->number,
                               .shard_count = r->w->options.shard_count,
                               .epoch_known = seg->verdict == SEGMENT_GOOD,
                               .start_epoch = seg->header.start_epoch};
    char path[WAL_PATH_SIZE];
    enum err e;

    wal_segment_path(seg->number, path);
    e = file_open(r->w->fs, path, FILE_READ, &sr.file, ei);
    if (e != ERR_OK)
        return e;
    frame_scan_init(&sr.scan, &id, seg->size);
    e = segment_stream(r, &sr, ei);
    file_close(sr.file);
    r->bad_region_count += sr.bad_region_count;
    /* Behind the last frame of the last segment lies the torn tail; elsewhere it is damage, unless
     * a later segment says that those bytes never counted. */
    if (!last && seg->live_size == seg->size) {
        if (sr.scan.in_bad_region) {
            r->bad_region_count++;
            replay_report(r->sink, seg->number, sr.scan.bad_region_offset,
                          "bytes that are no frame");
        }
        if (seg->verdict == SEGMENT_DAMAGED && seg->size > 0) {
            r->bad_region_count++;
            replay_report(r->sink, seg->number, 0, "the header is damaged");
        }
    }
    return e;
}

static enum err segments_replay(struct replay *r, struct errinfo *ei)
{
    struct wal *w = r->w;
    const struct replay_plan *plan = &r->plan;

    atomic_store_explicit(&w->replay_bytes_total, plan->byte_count, memory_order_relaxed);
    if (plan->count == 0)
        return ERR_OK;
    atomic_store_explicit(&w->replay_segment_min, plan->segments[0].number, memory_order_relaxed);
    atomic_store_explicit(&w->replay_segment_max, plan->segments[plan->count - 1].number,
                          memory_order_relaxed);
    for (size_t i = 0; i < plan->count; i++) {
        enum err e;

        atomic_store_explicit(&w->replay_segment_current, plan->segments[i].number,
                              memory_order_relaxed);
        e = segment_replay(r, &plan->segments[i], i + 1 == plan->count, ei);
        if (e != ERR_OK)
            return e;
    }
    atomic_store_explicit(&w->replay_bytes_done, plan->byte_count, memory_order_relaxed);
    return ERR_OK;
}

/* Which entry of each shard comes first. */
static void shards_begin(struct replay *r, const uint64_t *covered)
{
    /* A log that still has its first segment begins with entry 1 of every shard; without an owner
     * who knows, one that has not may begin anywhere. */
    bool from_one = r->plan.count > 0 && r->plan.segments[0].number == 1;

    for (uint32_t i = 0; i < r->w->options.shard_count; i++) {
        r->shards[i].covered = covered != NULL ? covered[i] : 0;
        if (covered != NULL || from_one)
            r->shards[i].next_sequence = r->shards[i].covered + 1;
    }
}

static enum err replay_init(struct replay *r, struct wal *w, const struct wal_sink *sink,
                            uint32_t thread_count, struct errinfo *ei)
{
    uint32_t shard_count = w->options.shard_count;
    enum err e;

    if (thread_count > shard_count)
        thread_count = shard_count;
    *r = (struct replay){.w = w, .sink = sink};
    e = replay_ring_init(&r->ring, thread_count, ei);
    if (e != ERR_OK)
        return e;
    r->workers = calloc(thread_count, sizeof *r->workers);
    r->shards = calloc(shard_count, sizeof *r->shards);
    r->noted = calloc(shard_count, sizeof *r->noted);
    if (r->workers == NULL || r->shards == NULL || r->noted == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "replay of %" PRIu32 " shards", shard_count);
    for (uint32_t i = 0; i < thread_count && e == ERR_OK; i++) {
        r->workers[i] =
            (struct replay_worker){.ring = &r->ring, .sink = sink, .shards = r->shards, .index = i};
        e = replay_worker_init(&r->workers[i], ei);
    }
    if (e == ERR_OK)
        e = replay_plan_read(w, &r->plan, ei);
    if (e == ERR_OK)
        shards_begin(r, sink->covered_sequences);
    return e;
}

static void replay_done(struct replay *r)
{
    for (uint32_t i = 0; r->workers != NULL && i < r->ring.worker_count; i++)
        replay_worker_done(&r->workers[i]);
    free(r->workers);
    free(r->shards);
    free(r->noted);
    replay_plan_done(&r->plan);
    replay_ring_done(&r->ring);
}

/* Runs reader and workers to the end; the first error of any of them. */
static enum err replay_run(struct replay *r, struct errinfo *ei)
{
    struct replay_ring *ring = &r->ring;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < ring->worker_count && e == ERR_OK; i++)
        e = thread_start(&r->workers[i].thread, "wal-replay", replay_worker_thread, &r->workers[i],
                         ei);
    if (e == ERR_OK)
        e = segments_replay(r, ei);
    replay_ring_end(ring);
    for (uint32_t i = 0; i < ring->worker_count; i++)
        thread_join(&r->workers[i].thread);
    if (e == ERR_OK && ring->error.code != ERR_OK)
        e = errinfo_set(ei, ring->error.code, ring->error.sys_errno, "%s", ring->error.message);
    return e;
}

/* Entries whose headers were seen but that nothing valid follows. */
static void report_last_gaps(struct replay *r, const struct wal_sink *sink,
                             struct wal_replay_result *out)
{
    for (uint32_t i = 0; i < r->w->options.shard_count; i++) {
        uint64_t from = r->shards[i].next_sequence, to = r->noted[i].live_end;

        if (from == 0)
            from = r->noted[i].first_sequence;
        if (from >= to)
            continue;
        out->lost_entry_count += to - from;
        out->lost_at_end_count += to - from;
        sink->lost(sink->ctx, i, from, to);
    }
}

static void results_merge(struct replay *r, struct wal_replay_result *out)
{
    struct replay_plan *plan = &r->plan;
    struct replay_segment *last = plan->count > 0 ? &plan->segments[plan->count - 1] : NULL;
    uint64_t recovered = 0;

    *out = (struct wal_replay_result){.segment_count = plan->count,
                                      .byte_count = plan->byte_count,
                                      .bad_frame_count = r->bad_region_count};
    for (uint32_t i = 0; i < r->ring.worker_count; i++) {
        const struct replay_worker *k = &r->workers[i];

        out->frame_count += k->result.frame_count;
        out->covered_frame_count += k->result.covered_frame_count;
        out->entry_count += k->result.entry_count;
        out->bad_frame_count += k->result.bad_frame_count;
        out->lost_entry_count += k->result.lost_entry_count;
        out->lost_at_start_count += k->result.lost_at_start_count;
        if (k->recovered_end > recovered)
            recovered = k->recovered_end;
    }
    if (last == NULL)
        return;
    if (last->verdict == SEGMENT_DAMAGED && recovered > 0) {
        out->bad_frame_count++; /* its header; without a frame behind, all is torn tail */
        replay_report(r->sink, last->number, 0, "the header is damaged");
    }
    if (last->verdict == SEGMENT_GOOD && recovered < SEGMENT_HEADER_SIZE)
        recovered = SEGMENT_HEADER_SIZE;
    last->kept_size = recovered;
    out->torn_tail_bytes = last->size - recovered;
    out->last_segment = last->number;
    out->last_segment_end = recovered;
}

/* The numbers the log goes on with. */
static void wal_continue(struct wal *w, struct replay *r)
{
    struct replay_plan *plan = &r->plan;

    for (uint32_t i = 0; i < w->options.shard_count; i++) {
        uint64_t highest = r->noted[i].highest;

        if (highest < r->shards[i].covered)
            highest = r->shards[i].covered;
        w->next_sequences[i] = highest + 1;
        atomic_store_explicit(&w->durable_sequences[i], highest, memory_order_release);
    }
    for (size_t i = 0; i < plan->count; i++) {
        struct replay_segment *seg = &plan->segments[i];

        ledger_push(&w->ledger, seg->number, seg->kept_size, TAKE(seg->highest));
        log_size_add(w, (int64_t)seg->kept_size, 1);
    }
    if (plan->count > 0) {
        w->segment_number_last = plan->segments[plan->count - 1].number;
        w->resume_segment = w->segment_number_last;
        w->resume_size = plan->segments[plan->count - 1].kept_size;
    }
}

enum err wal_replay(struct wal *w, const struct wal_sink *sink, uint32_t thread_count,
                    struct wal_replay_result *out, struct errinfo *ei)
{
    uint64_t begin = clock_mono_ns();
    struct wal_replay_result result;
    struct replay r;
    enum err e;

    ASSERT(!w->replayed && !w->started);
    e = replay_init(&r, w, sink, thread_count != 0 ? thread_count : thread_cpu_count(), ei);
    if (e == ERR_OK)
        e = replay_run(&r, ei);
    if (e != ERR_OK)
        goto out;
    results_merge(&r, &result);
    report_last_gaps(&r, sink, &result);
    e = ledger_reserve(&w->ledger, r.plan.count, ei);
    if (e == ERR_OK && !w->options.read_only)
        e = replay_plan_cut(w, &r.plan, ei);
    if (e != ERR_OK)
        goto out;
    wal_continue(w, &r);
    w->replayed = true;
    wal_counter_add(w->metrics.corruptions, result.bad_frame_count);
    wal_counter_add(w->metrics.lost_entries, result.lost_entry_count);
    wal_gauge_set(w->metrics.replay_seconds, (double)(clock_mono_ns() - begin) * 1e-9);
    *out = result;
out:
    replay_done(&r);
    return e;
}

void wal_progress_get(const struct wal *w, struct wal_progress *out)
{
    *out = (struct wal_progress){
        .segment_min = atomic_load_explicit(&w->replay_segment_min, memory_order_relaxed),
        .segment_max = atomic_load_explicit(&w->replay_segment_max, memory_order_relaxed),
        .segment_current = atomic_load_explicit(&w->replay_segment_current, memory_order_relaxed),
        .bytes_done = atomic_load_explicit(&w->replay_bytes_done, memory_order_relaxed),
        .bytes_total = atomic_load_explicit(&w->replay_bytes_total, memory_order_relaxed),
    };
}
