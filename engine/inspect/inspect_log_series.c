/*
 * The log under analysis: how many samples it has of each series that no file has yet. A replay
 * that counts. Slots are named by the definitions in the log, else by the shard's series file.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inspect/inspect_internal.h"
#include "engine/log/record_internal.h"
#include "engine/memtable/series_internal.h"
#include "wal/wal.h"

/* What the log says of a slot. */
struct log_slot {
    uint64_t sample_count;
    int64_t min_time_ms, max_time_ms;
    uint8_t *labels; /* owned: canonical fields of the definition; NULL: none was seen */
    uint32_t labels_size;
    uint16_t generation;
    bool is_used;
};

/* One shard's slots; its frames come one at a time. */
struct log_shard {
    struct log_slot *slots; /* owned */
    uint32_t slot_end;
};

struct log_walk {
    struct analysis *a;
    struct log_shard *shards; /* owned, one a shard */
};

static struct log_slot *slot_at(struct log_shard *s, uint32_t slot)
{
    if (slot >= SERIES_SLOT_MAX)
        return NULL;
    if (slot >= s->slot_end) {
        uint32_t end = s->slot_end * 2 > slot + 1 ? s->slot_end * 2 : slot + 1;
        struct log_slot *grown = reallocarray(s->slots, end, sizeof *grown);

        if (grown == NULL)
            return NULL;
        memset(grown + s->slot_end, 0, (end - s->slot_end) * sizeof *grown);
        s->slots = grown;
        s->slot_end = end;
    }
    return &s->slots[slot];
}

/* A slot that goes to another series begins anew; what the log had of the one before is little, and
 * in a part as a rule. */
static struct log_slot *slot_of(struct log_walk *w, uint32_t shard, uint32_t slot,
                                uint16_t generation)
{
    struct log_slot *s = slot_at(&w->shards[shard], slot);

    if (s == NULL || (s->is_used && s->generation == generation))
        return s;
    free(s->labels);
    *s = (struct log_slot){.generation = generation,
                           .is_used = true,
                           .min_time_ms = INT64_MAX,
                           .max_time_ms = INT64_MIN};
    return s;
}

/* ---- records ---- */

static enum err refused(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "series of the log");
}

static enum err define(struct log_walk *w, uint32_t shard, const struct definition *d,
                       struct errinfo *ei)
{
    struct log_slot *s = slot_of(w, shard, d->slot, d->generation);

    if (s == NULL)
        return refused(ei);
    if (s->labels != NULL)
        return ERR_OK; /* the second of two */
    s->labels = malloc(d->labels.size + 1);
    if (s->labels == NULL)
        return refused(ei);
    memcpy(s->labels, d->labels.data, d->labels.size);
    s->labels_size = (uint32_t)d->labels.size;
    return ERR_OK;
}

static enum err series_take(struct log_walk *w, uint32_t shard, struct bytes body,
                            struct errinfo *ei)
{
    struct definition last = {0}, next;
    struct byte_reader in;
    struct arena arena;
    uint32_t count;
    enum err e = ERR_OK;

    if (!record_series_open(body, &in, &count))
        return ERR_CORRUPT;
    arena_init(&arena, NULL);
    for (uint32_t i = 0; i < count && e == ERR_OK; i++) {
        if (!record_series_next(&in, &last, &arena, &next)) {
            e = in.failed ? ERR_CORRUPT : refused(ei);
            break;
        }
        e = define(w, shard, &next, ei);
        last = next;
    }
    arena_done(&arena);
    return e;
}

/* In-order samples that are not newer than the series' newest are in a sealed file. */
static bool is_in_file(const struct log_walk *w, uint32_t shard, const struct log_entry *entry)
{
    const struct series_image_group *group;
    uint32_t row;

    return shard_names_find(&w->a->shards[shard], entry->slot, entry->generation, &group, &row) &&
           entry->t_ms <= group->newest_ms[row];
}

static enum err samples_take(struct log_walk *w, uint32_t shard, const struct record *record,
                             struct errinfo *ei)
{
    struct log_entry *entries;
    size_t count;
    enum err e = inspect_record_samples(record, &entries, &count, ei);

    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        struct log_slot *s;

        if (!record_is_late(record->type) && is_in_file(w, shard, &entries[i]))
            continue;
        s = slot_of(w, shard, entries[i].slot, entries[i].generation);
        if (s == NULL) {
            e = refused(ei);
            break;
        }
        s->sample_count++;
        s->min_time_ms = entries[i].t_ms < s->min_time_ms ? entries[i].t_ms : s->min_time_ms;
        s->max_time_ms = entries[i].t_ms > s->max_time_ms ? entries[i].t_ms : s->max_time_ms;
    }
    free(entries);
    return e;
}

static enum err sink_apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                           struct bytes payload, struct errinfo *ei)
{
    struct log_walk *w = ctx;
    struct byte_reader in = reader_init(payload.data, payload.size);
    struct record record;
    enum err e = analysis_check_stop(w->a, ei);

    (void)first_sequence;
    (void)entry_count;
    while (e == ERR_OK && record_next(&in, &record)) {
        if (record.type == RECORD_SERIES)
            e = series_take(w, shard, record.body, ei);
        else if (record_has_samples(record.type))
            e = samples_take(w, shard, &record, ei);
    }
    return e == ERR_OK && in.failed ? ERR_CORRUPT : e;
}

static void sink_lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    (void)ctx; /* verification tells */
    (void)shard;
    (void)from_sequence;
    (void)to_sequence;
}

/* ---- handing out ---- */

/* Canonical fields as labels that point into them; false when they are none. */
static bool fields_split(struct bytes fields, struct arena *arena, struct labels *out)
{
    struct byte_reader in = reader_init(fields.data, fields.size);
    struct label *items = ARENA_ARRAY(arena, fields.size / 4 + 1, struct label);
    size_t count = 0;

    while (items != NULL && reader_left(&in) > 0) {
        struct str part[2];

        for (int i = 0; i < 2; i++) {
            uint64_t size = reader_varint(&in);

            part[i].size = size > fields.size ? SIZE_MAX : (size_t)size;
            part[i].data = (const char *)reader_take(&in, part[i].size);
            if (part[i].data == NULL || part[i].size == 0)
                return false;
        }
        items[count++] = (struct label){part[0], part[1]};
    }
    *out = (struct labels){count, items};
    return items != NULL;
}

/* Labels and fingerprint of a slot; false when nobody defines it. */
static bool slot_name(struct log_walk *w, uint32_t shard, uint32_t slot, const struct log_slot *s,
                      struct inspect_series *series)
{
    const struct shard_names *names = &w->a->shards[shard];
    const struct series_image_group *group;
    uint32_t row;

    if (s->labels != NULL) {
        series->fingerprint = hash128_bytes(&w->a->manifest.secret, s->labels, s->labels_size);
        return fields_split((struct bytes){s->labels, s->labels_size}, &w->a->arena,
                            &series->labels);
    }
    if (!shard_names_find(names, slot, s->generation, &group, &row))
        return false;
    series->fingerprint = group->fingerprints[row];
    return shard_names_labels(names, group, row, &w->a->arena, &series->labels);
}

static enum err slot_give(struct log_walk *w, uint32_t shard, uint32_t slot, struct errinfo *ei)
{
    const struct log_slot *s = &w->shards[shard].slots[slot];
    const struct inspect_chunk chunk = {.min_time_ms = s->min_time_ms,
                                        .max_time_ms = s->max_time_ms,
                                        .sample_count = s->sample_count};
    struct inspect_series series = {.kind = INSPECT_LOG, .chunk_count = 1, .chunks = &chunk};

    if (s->sample_count == 0)
        return ERR_OK;
    arena_reset(&w->a->arena);
    if (slot_name(w, shard, slot, s, &series))
        return analysis_give(w->a, &series, ei);
    w->a->result.unnamed_sample_count += s->sample_count;
    return ERR_OK;
}

static enum err slots_give(struct log_walk *w, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < w->a->manifest.shard_count; i++) {
        for (uint32_t slot = 0; slot < w->shards[i].slot_end && e == ERR_OK; slot++)
            e = slot_give(w, i, slot, ei);
    }
    return e;
}

static enum err log_read(struct log_walk *w, struct errinfo *ei)
{
    const struct wal_options options = {
        .fs = w->a->o->fs, .shard_count = w->a->manifest.shard_count, .read_only = true};
    const struct wal_sink sink = {.ctx = w,
                                  .apply = sink_apply,
                                  .lost = sink_lost,
                                  .covered_sequences = w->a->manifest.covered_sequences};
    struct inspect_kind_total *total = &w->a->result.kinds[INSPECT_LOG];
    struct wal_replay_result r;
    struct wal *wal = NULL;
    enum err e = wal_open(&options, &wal, ei);

    if (e != ERR_OK)
        return e;
    e = wal_replay(wal, &sink, w->a->o->thread_count, &r, ei);
    wal_abandon(wal);
    if (e != ERR_OK)
        return e;
    total->file_count = r.segment_count;
    total->byte_count = r.byte_count;
    return ERR_OK;
}

static void walk_done(struct log_walk *w)
{
    for (uint32_t i = 0; i < w->a->manifest.shard_count; i++) {
        for (uint32_t slot = 0; slot < w->shards[i].slot_end; slot++)
            free(w->shards[i].slots[slot].labels);
        free(w->shards[i].slots);
    }
    free(w->shards);
}

enum err analyze_log(struct analysis *a, struct errinfo *ei)
{
    struct log_walk w = {.a = a, .shards = calloc(a->manifest.shard_count, sizeof *w.shards)};
    enum err e;

    if (w.shards == NULL)
        return refused(ei);
    e = log_read(&w, ei);
    if (e == ERR_OK)
        e = slots_give(&w, ei);
    walk_done(&w);
    return e;
}
