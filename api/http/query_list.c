#include "api/http/query_list_internal.h"

#include <inttypes.h>

#include "api/http/json_internal.h"
#include "base/assert.h"
#include "base/clock.h"

enum { TEXT_BYTES_MAX = 16 << 10 }; /* of a query, in the list */

void query_list_init(struct query_list *l)
{
    *l = (struct query_list){.next_id = 1};
    mutex_init(&l->lock);
}

void query_list_done(struct query_list *l)
{
    ASSERT(l->first == NULL);
    mutex_done(&l->lock);
}

void query_list_add(struct query_list *l, struct query_entry *q)
{
    mutex_lock(&l->lock);
    q->id = l->next_id++;
    q->next = NULL;
    q->previous = l->last;
    *(l->last == NULL ? &l->first : &l->last->next) = q;
    l->last = q;
    q->is_listed = true;
    mutex_unlock(&l->lock);
}

void query_list_remove(struct query_list *l, struct query_entry *q)
{
    mutex_lock(&l->lock);
    if (q->is_listed) {
        *(q->previous == NULL ? &l->first : &q->previous->next) = q->next;
        *(q->next == NULL ? &l->last : &q->next->previous) = q->previous;
        q->is_listed = false;
    }
    mutex_unlock(&l->lock);
}

void query_list_run(struct query_list *l, struct query_entry *q)
{
    mutex_lock(&l->lock);
    q->is_running = true;
    mutex_unlock(&l->lock);
}

void query_list_show(struct query_list *l, struct query_entry *q, const struct budget *memory,
                     const struct promql_progress *progress)
{
    mutex_lock(&l->lock);
    q->memory = memory;
    q->progress = progress;
    mutex_unlock(&l->lock);
}

bool query_list_kill(struct query_list *l, uint64_t id)
{
    struct query_entry *q = NULL;

    mutex_lock(&l->lock);
    q = l->first;
    while (q != NULL && q->id != id)
        q = q->next;
    if (q != NULL) {
        q->is_killed = true;
        /* relaxed: who sees it takes the lock before it asks for the reason */
        atomic_store_explicit(q->stop, true, memory_order_relaxed);
    }
    mutex_unlock(&l->lock);
    return q != NULL;
}

bool query_list_was_killed(struct query_list *l, const struct query_entry *q)
{
    bool killed = false;

    mutex_lock(&l->lock);
    killed = q->is_killed;
    mutex_unlock(&l->lock);
    return killed;
}

static void entry_write(const struct query_entry *q, uint64_t now_ns, struct byte_writer *w)
{
    struct str text = q->text;
    uint64_t samples = 0, bytes = 0, peak = 0;

    if (text.size > TEXT_BYTES_MAX)
        text.size = TEXT_BYTES_MAX;
    if (q->progress != NULL)
        samples = atomic_load_explicit(&q->progress->samples_read, memory_order_relaxed);
    if (q->memory != NULL) {
        bytes = budget_used(q->memory);
        peak = atomic_load_explicit(&q->memory->peak_bytes, memory_order_relaxed);
    }
    writer_printf(w, "{\"id\":%" PRIu64 ",\"state\":\"%s\",\"path\":\"%s\",\"query\":", q->id,
                  q->is_killed    ? "killed"
                  : q->is_running ? "running"
                                  : "waiting",
                  q->path);
    json_write_string(w, text);
    writer_printf(w, ",\"client\":\"%s\",\"ageSeconds\":", q->client);
    json_write_number(w, (double)(now_ns - q->start_mono_ns) / 1e9);
    writer_printf(w,
                  ",\"samplesRead\":%" PRIu64 ",\"memoryBytes\":%" PRIu64
                  ",\"peakMemoryBytes\":%" PRIu64 "}",
                  samples, bytes, peak);
}

void query_list_write(struct query_list *l, struct byte_writer *w)
{
    json_write_raw(w, "[");
    mutex_lock(&l->lock);
    for (const struct query_entry *q = l->first; q != NULL; q = q->next) {
        if (q != l->first)
            json_write_raw(w, ",");
        entry_write(q, clock_mono_ns(), w);
    }
    mutex_unlock(&l->lock);
    json_write_raw(w, "]");
}
