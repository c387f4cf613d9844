/*
 * The log under inspection: a replay that applies nothing. So what counts as bad is by construction
 * what a start of the server would pass over.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/histogram/histogram_pack_internal.h"
#include "engine/inspect/inspect_internal.h"
#include "engine/log/record_internal.h"
#include "wal/wal.h"

struct log_check {
    const struct inspect_options *o;
    struct mutex lock;         /* guards the rest; a leaf */
    struct wal_damage *places; /* owned */
    size_t place_count, place_capacity;
    bool is_refused; /* memory for a place */
};

/* ---- what frames hold ---- */

static bool series_are_good(struct bytes body, struct arena *arena)
{
    struct definition last = {0}, next;
    struct byte_reader in;
    uint32_t count;

    if (!record_series_open(body, &in, &count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!record_series_next(&in, &last, arena, &next))
            return !in.failed; /* else memory was refused */
        last = next;
    }
    return reader_left(&in) == 0;
}

static enum err histogram_check(const struct log_entry *entry, struct arena *arena)
{
    struct bytes packed = record_entry_histogram(entry);
    struct byte_reader in = reader_init(packed.data, packed.size);
    struct arena_mark mark = arena_mark_get(arena);
    struct histogram h;
    enum err e = histogram_unpack(&in, NULL, arena, &h);

    arena_mark_return(arena, mark);
    return e == ERR_OK && reader_left(&in) > 0 ? ERR_CORRUPT : e;
}

enum err inspect_record_samples(const struct record *record, struct log_entry **out, size_t *count,
                                struct errinfo *ei)
{
    *out = NULL;
    if (!record_samples_count(record->body, count))
        return ERR_CORRUPT;
    *out = reallocarray(NULL, *count + 1, sizeof **out);
    if (*out == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu samples of the log", *count);
    return record_samples_read(record, *out, *count) ? ERR_OK : ERR_CORRUPT;
}

static enum err samples_check(const struct record *record, struct arena *arena, struct errinfo *ei)
{
    struct log_entry *entries;
    size_t count;
    enum err e = inspect_record_samples(record, &entries, &count, ei);

    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        if (record_entry_is_histogram(&entries[i]))
            e = histogram_check(&entries[i], arena);
    }
    free(entries);
    return e == ERR_OK || e == ERR_CORRUPT
               ? e
               : errinfo_set(ei, e, 0, "memory for a histogram of the log");
}

static enum err record_check(const struct record *record, struct arena *arena, struct errinfo *ei)
{
    if (record->type == RECORD_SERIES)
        return series_are_good(record->body, arena) ? ERR_OK : ERR_CORRUPT;
    /* Others are of a newer version, and their length is known. */
    return record_has_samples(record->type) ? samples_check(record, arena, ei) : ERR_OK;
}

static enum err payload_check(const struct log_check *c, struct bytes payload, struct errinfo *ei)
{
    struct byte_reader in = reader_init(payload.data, payload.size);
    struct record record;
    struct arena arena;
    enum err e = ERR_OK;

    arena_init(&arena, c->o->memory);
    while (e == ERR_OK && record_next(&in, &record)) {
        arena_reset(&arena);
        e = record_check(&record, &arena, ei);
    }
    arena_done(&arena);
    return e == ERR_OK && in.failed ? ERR_CORRUPT : e;
}

/* ---- the sink ---- */

static enum err sink_apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                           struct bytes payload, struct errinfo *ei)
{
    struct log_check *c = ctx;

    (void)shard;
    (void)first_sequence;
    (void)entry_count;
    /* relaxed: a flag that orders nothing */
    if (c->o->stop != NULL && atomic_load_explicit(c->o->stop, memory_order_relaxed))
        return errinfo_set(ei, ERR_CANCELED, 0, "verification was stopped");
    return payload_check(c, payload, ei);
}

static void sink_lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    (void)ctx; /* the result has the sums */
    (void)shard;
    (void)from_sequence;
    (void)to_sequence;
}

static void sink_bad(void *ctx, const struct wal_damage *damage)
{
    struct log_check *c = ctx;

    mutex_lock(&c->lock);
    if (c->place_count == c->place_capacity) {
        size_t capacity = c->place_capacity == 0 ? 64 : 2 * c->place_capacity;
        struct wal_damage *places = reallocarray(c->places, capacity, sizeof *places);

        c->is_refused |= places == NULL;
        if (places != NULL) {
            c->places = places;
            c->place_capacity = capacity;
        }
    }
    if (c->place_count < c->place_capacity)
        c->places[c->place_count++] = *damage;
    mutex_unlock(&c->lock);
}

/* ---- what it comes to ---- */

static int compare_places(const void *a, const void *b)
{
    const struct wal_damage *x = a, *y = b;

    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* One finding a segment: the first place, and how many more there are. */
static void report_places(struct log_check *c, struct findings *f)
{
    char path[WAL_PATH_SIZE];

    if (c->place_count > 0)
        qsort(c->places, c->place_count, sizeof *c->places, compare_places);
    for (size_t i = 0, end; i < c->place_count; i = end) {
        struct errinfo ei = {0};

        for (end = i + 1; end < c->place_count && c->places[end].segment == c->places[i].segment;)
            end++;
        wal_segment_path(c->places[i].segment, path);
        if (end - i == 1)
            (void)errinfo_set_at(&ei, ERR_CORRUPT, path, c->places[i].offset, "%s",
                                 c->places[i].what);
        else
            (void)errinfo_set_at(&ei, ERR_CORRUPT, path, c->places[i].offset,
                                 "%s, and %zu more bad places behind", c->places[i].what,
                                 end - i - 1);
        findings_error(f, path, &ei);
    }
}

/* Bad places explain what is missing. */
static void report_gaps(const struct wal_replay_result *r, size_t place_count, struct findings *f)
{
    uint64_t within = r->lost_entry_count - r->lost_at_start_count - r->lost_at_end_count;
    struct errinfo ei = {0};

    if (within > 0 && place_count == 0) {
        (void)errinfo_set(&ei, ERR_CORRUPT, 0,
                          WAL_DIR ": %" PRIu64 " entries are missing between frames that are there",
                          within);
        findings_error(f, WAL_DIR, &ei);
    }
    if (r->lost_at_start_count > 0)
        findings_note(f, WAL_DIR,
                      "%" PRIu64
                      " entries are missing where the server was started again: torn off "
                      "by a crash, unless somebody removed a segment",
                      r->lost_at_start_count);
}

static void report_result(struct log_check *c, const struct wal_replay_result *r,
                          struct findings *f)
{
    char path[WAL_PATH_SIZE];
    size_t kept = 0;

    for (size_t i = 0; i < c->place_count; i++) {
        if (c->places[i].segment != r->last_segment || c->places[i].offset < r->last_segment_end)
            c->places[kept++] = c->places[i];
    }
    c->place_count = kept;
    report_places(c, f);
    report_gaps(r, kept, f);
    if (r->torn_tail_bytes > 0) {
        wal_segment_path(r->last_segment, path);
        findings_note_at(f, path, r->last_segment_end,
                         "%" PRIu64 " bytes behind the last whole frame: a torn tail",
                         r->torn_tail_bytes);
    }
}

/* An error of the replay itself names its segment. */
static void report_error(struct findings *f, const struct errinfo *ei)
{
    char path[WAL_PATH_SIZE] = WAL_DIR;
    const char *end = strstr(ei->message, ": ");

    if (strncmp(ei->message, WAL_DIR "/", sizeof WAL_DIR) == 0 && end != NULL &&
        (size_t)(end - ei->message) < sizeof path) {
        memcpy(path, ei->message, (size_t)(end - ei->message));
        path[end - ei->message] = '\0';
    }
    findings_error(f, path, ei);
}

static enum err log_read(struct log_check *c, const struct manifest *m,
                         struct wal_replay_result *out, struct errinfo *ei)
{
    const struct wal_options options = {
        .fs = c->o->fs, .shard_count = m->shard_count, .read_only = true};
    const struct wal_sink sink = {.ctx = c,
                                  .apply = sink_apply,
                                  .lost = sink_lost,
                                  .covered_sequences = m->covered_sequences,
                                  .bad = sink_bad,
                                  .verify_covered = true};
    struct wal *w = NULL;
    enum err e = wal_open(&options, &w, ei);

    if (e != ERR_OK)
        return e;
    e = wal_replay(w, &sink, c->o->thread_count, out, ei);
    wal_abandon(w);
    return e;
}

void inspect_log(const struct inspect_options *o, const struct manifest *m, struct findings *f,
                 struct inspect_verify_result *result)
{
    struct log_check c = {.o = o};
    struct wal_replay_result r = {0};
    struct errinfo ei = {0};
    enum err e;

    mutex_init(&c.lock);
    e = log_read(&c, m, &r, &ei);
    if (e == ERR_OK && c.is_refused)
        e = errinfo_set(&ei, ERR_NOMEM, 0, "bad places of the log");
    if (e == ERR_OK)
        report_result(&c, &r, f);
    else
        report_error(f, &ei);
    result->segment_count += r.segment_count;
    result->file_count += r.segment_count;
    result->byte_count += r.byte_count;
    free(c.places);
    mutex_done(&c.lock);
}
