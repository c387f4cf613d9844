/*
 * What replay does with the files themselves: find the segments, learn from their headers where
 * older ones stop to count, and cut them in the end.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "wal/replay_internal.h"

static enum err segment_inspect(struct wal *w, struct replay_segment *seg, struct errinfo *ei)
{
    char path[WAL_PATH_SIZE];
    uint8_t bytes[SEGMENT_HEADER_SIZE];
    struct file *file = NULL;
    size_t n = 0;
    enum err e;

    wal_segment_path(seg->number, path);
    seg->highest = calloc(w->options.shard_count, sizeof *seg->highest);
    if (seg->highest == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "log segments");
    e = file_open(w->fs, path, FILE_READ, &file, ei);
    if (e != ERR_OK)
        return e;
    e = file_size(file, &seg->size, ei);
    if (e == ERR_OK)
        e = file_read_some(file, bytes, sizeof bytes, 0, &n, ei);
    file_close(file);
    if (e != ERR_OK)
        return e;
    seg->verdict = segment_header_decode(bytes, n, &seg->header);
    if (seg->verdict == SEGMENT_UNSUPPORTED)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "%s: written by a newer version", path);
    /* An intact header of another segment is a stale block of a deleted file, or a renamed one. */
    if (seg->verdict == SEGMENT_GOOD && seg->header.segment_number != seg->number)
        seg->verdict = SEGMENT_DAMAGED;
    if (seg->verdict == SEGMENT_GOOD && seg->header.shard_count != w->options.shard_count)
        return errinfo_set(ei, ERR_INVALID, 0, "%s: has %" PRIu32 " shards, opened with %" PRIu32,
                           path, seg->header.shard_count, w->options.shard_count);
    seg->live_size = seg->size;
    seg->kept_size = seg->size;
    return ERR_OK;
}

/* Applies each header's word on where older segments stop to count. */
static void plan_limit(struct replay_plan *plan)
{
    for (size_t j = 0; j < plan->count; j++) {
        const struct segment_header *h = &plan->segments[j].header;

        if (plan->segments[j].verdict != SEGMENT_GOOD || h->resume_segment == 0)
            continue;
        for (size_t i = j; i-- > 0 && plan->segments[i].number >= h->resume_segment;) {
            struct replay_segment *seg = &plan->segments[i];
            uint64_t live = seg->number == h->resume_segment ? h->resume_size : 0;

            if (live < seg->live_size) {
                seg->live_size = live;
                seg->kept_size = live;
            }
        }
    }
}

enum err replay_plan_read(struct wal *w, struct replay_plan *out, struct errinfo *ei)
{
    struct replay_plan plan = {0};
    struct segment_list list = {0};
    bool exists = true;
    enum err e = ERR_OK;

    if (w->options.read_only) /* wal_open() has not made the folder */
        e = fs_exists(w->fs, WAL_DIR, &exists, ei);
    if (e == ERR_OK && exists)
        e = segment_list_read(w->fs, &list, ei);
    if (e != ERR_OK)
        return e;
    plan.segments = calloc(list.count + 1, sizeof *plan.segments);
    if (plan.segments == NULL) {
        segment_list_done(&list);
        return errinfo_set(ei, ERR_NOMEM, 0, "log segments");
    }
    for (size_t i = 0; i < list.count && e == ERR_OK; i++) {
        plan.segments[i].number = list.numbers[i];
        plan.count++;
        e = segment_inspect(w, &plan.segments[i], ei);
        plan.byte_count += plan.segments[i].size;
    }
    segment_list_done(&list);
    if (e != ERR_OK) {
        replay_plan_done(&plan);
        return e;
    }
    plan_limit(&plan);
    *out = plan;
    return ERR_OK;
}

void replay_plan_done(struct replay_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        free(plan->segments[i].highest);
    free(plan->segments);
    *plan = (struct replay_plan){0};
}

static enum err segment_cut(struct wal *w, const struct replay_segment *seg, struct errinfo *ei)
{
    char path[WAL_PATH_SIZE];
    struct file *file = NULL;
    enum err e;

    wal_segment_path(seg->number, path);
    e = file_open(w->fs, path, FILE_READ_WRITE, &file, ei);
    if (e != ERR_OK)
        return e;
    if (seg->kept_size < seg->size)
        e = file_truncate(file, seg->kept_size, ei);
    if (e == ERR_OK)
        e = file_sync(file, ei);
    file_close(file);
    return e;
}

enum err replay_plan_cut(struct wal *w, const struct replay_plan *plan, struct errinfo *ei)
{
    /* All of them: after a kill -9 any segment may stand in the page cache only (a log that ran
     * with sync=never, say). A clean file costs next to nothing. */
    for (size_t i = 0; i < plan->count; i++) {
        enum err e = segment_cut(w, &plan->segments[i], ei);

        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}
