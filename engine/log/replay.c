/*
 * Replay: frames of the log go straight into the series tables, each shard on one thread at a time,
 * all shards in parallel. The front table stays empty and warms through the slow path.
 *
 * A definition stands twice in the log. Where the first frame that held it is bad, samples of its
 * slot arrive before any definition: they are held, in order, until the second one comes. What is
 * left at the end is counted and named, never bound to another series. A definition that
 * contradicts an earlier one of its slot, or names a label set that another slot has, is counted
 * and not applied, and so its samples are of an unknown series too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/histogram/histogram_pack_internal.h"
#include "engine/labels.h"
#include "engine/memtable/ended_internal.h"

enum {
    HELD_SAMPLES_MAX = 1 << 18, /* per shard, 6 MiB: ten seconds of a busy shard */
    HELD_HISTOGRAM_BYTES_MAX = 16 << 20,
    LABEL_COUNT_MAX = 65536, /* of one definition; the door refuses far fewer bytes */
    DEFINITION_GROUP = 32,
    SLOTS_BURNT_MAX = 65536, /* slots that no definition used, when memory was short */
};

/* A frame being applied. */
struct replay_frame {
    struct engine *engine;
    struct shard *shard;
    struct shard_change change;
    struct arena arena;
    struct byte_writer rest; /* canonical fields without the metric name */
    struct definition last;  /* of the group of definitions before */
    struct byte_writer last_labels;
    bool any_new;          /* it defined a series */
    uint64_t sequence_end; /* one above its last entry */
    /* It begins at or below the covered sequence: what it says of unknown series is history. */
    bool is_border;
};

/* ---- memory ---- */

static bool grow_entries(struct shard *s, struct log_entry **items, size_t *capacity, size_t count)
{
    size_t wanted = *capacity == 0 ? 4096 : *capacity;
    struct log_entry *grown;

    if (count <= *capacity)
        return true;
    while (wanted < count)
        wanted *= 2;
    size_t bytes = (wanted - *capacity) * sizeof *grown;
    if (s->memory != NULL && budget_charge(s->memory, bytes, NULL) != ERR_OK)
        return false;
    grown = realloc(*items, wanted * sizeof *grown);
    if (grown == NULL) {
        if (s->memory != NULL)
            budget_release(s->memory, bytes);
        return false;
    }
    s->held_bytes += bytes;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* ---- samples ---- */

static void count_unknown(struct shard *s, uint32_t slot)
{
    if (s->unknown_ref_samples++ == 0)
        s->unknown_ref_first = slot;
}

/* A slot that the log names is not given to a new series, even if what it held stays unknown: the
 * next replay would bind the old samples to it. */
static void note_slot(struct shard *s, uint32_t slot)
{
    if (slot >= s->unknown_slot_end && slot < SERIES_SLOT_MAX - 1)
        s->unknown_slot_end = slot + 1;
}

/* What a late sample has come to. */
static enum err count_late(struct shard *s, enum late_outcome outcome)
{
    switch (outcome) {
    case LATE_STORED:
        s->replayed_samples++;
        return ERR_OK;
    case LATE_REPEAT:
    case LATE_DUPLICATE:
        return ERR_OK; /* of a file, or damage elsewhere: the first one stays */
    case LATE_NO_MEMORY:
        break;
    }
    return ERR_NOMEM;
}

/* Whether an entry that is not newer than its series' newest is to go to the late samples; else it
 * is counted. */
static bool is_for_late(struct shard *s, const struct log_entry *entry)
{
    if (entry->is_late)
        return true;
    /* The series' newest came out of the files of a seal that took this one too; in a shard that
     * was never sealed no writer queues such a sample. */
    if (s->covered_sequence > 0)
        s->sealed_samples++;
    else
        s->stale_samples++;
    return false;
}

static enum err apply_histogram(struct shard *s, struct series *series,
                                const struct log_entry *entry)
{
    struct bytes packed = record_entry_histogram(entry);
    struct byte_reader in = reader_init(packed.data, packed.size);
    struct histogram_sample h = {.t_ms = entry->t_ms, .packed = packed};
    struct histogram value;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL);
    e = histogram_unpack(&in, NULL, &arena, &value);
    if (e == ERR_OK && reader_left(&in) > 0)
        e = ERR_CORRUPT;
    if (e == ERR_OK) {
        h.value = &value;
        h.bits = histogram_packed_bits(packed);
        if (entry->t_ms <= series->newest_ms) {
            e = count_late(s, shard_store_late_histogram(s, entry->slot, series, &h));
        } else {
            e = shard_store_histogram(s, entry->slot, series, &h) ? ERR_OK : ERR_NOMEM;
            s->replayed_samples += e == ERR_OK;
        }
    }
    arena_done(&arena);
    return e;
}

/* A late sample may be the newest when damage took the others: then it goes to the open chunk, as
 * any other. */
static enum err apply_sample(struct shard *s, struct series *series, const struct log_entry *entry,
                             struct shard_change *change)
{
    if (entry->t_ms < CHUNK_TIME_MIN_MS || entry->t_ms > CHUNK_TIME_MAX_MS) {
        s->stale_samples++; /* no writer queues these */
        return ERR_OK;
    }
    if (entry->t_ms <= series->newest_ms && !is_for_late(s, entry))
        return ERR_OK;
    if (UNLIKELY(record_entry_is_histogram(entry)))
        return apply_histogram(s, series, entry);
    if (entry->t_ms <= series->newest_ms)
        return count_late(s, shard_store_late(s, entry->slot, series, entry->t_ms, entry->bits));
    if (!shard_store(s, series, entry->t_ms, entry->bits, change))
        return ERR_NOMEM;
    s->replayed_samples++;
    return ERR_OK;
}

/* Has a held entry point to a copy of its histogram, size included; false when memory is refused.
 */
static bool held_histogram_copy(struct shard *s, struct log_entry *entry)
{
    struct bytes packed = record_entry_histogram(entry);
    size_t size = (size_t)(packed.data - (const uint8_t *)(uintptr_t)entry->bits) + packed.size;
    uint8_t *copy;

    if (size > HELD_HISTOGRAM_BYTES_MAX - s->held.histogram_bytes ||
        (s->memory != NULL && budget_charge(s->memory, size, NULL) != ERR_OK))
        return false;
    copy = malloc(size);
    if (copy == NULL) {
        if (s->memory != NULL)
            budget_release(s->memory, size);
        return false;
    }
    memcpy(copy, packed.data + packed.size - size, size);
    s->held.histogram_bytes += size;
    s->held_bytes += size;
    entry->bits = (uintptr_t)copy;
    return true;
}

static void held_drop(struct shard *s, const struct log_entry *entry)
{
    struct bytes packed;
    size_t size;

    if (!record_entry_is_histogram(entry))
        return;
    packed = record_entry_histogram(entry);
    size = (size_t)(packed.data - (const uint8_t *)(uintptr_t)entry->bits) + packed.size;
    free((void *)(uintptr_t)entry->bits); /* NOLINT(performance-no-int-to-ptr) */
    s->held.histogram_bytes -= size;
    s->held_bytes -= size;
    if (s->memory != NULL)
        budget_release(s->memory, size);
}

/* Of a slot that files have named. Its series may have ended by the seal that is covered: the
 * covered sequence is that of the seal's first cut, and what came until the series' own cut, a
 * staleness marker above all, is in files and stands above it in the log. */
static bool may_have_ended(const struct shard *s, uint32_t slot)
{
    return slot < s->file_slot_end;
}

static void hold_sample(struct shard *s, const struct log_entry *entry)
{
    struct held_samples *held = &s->held;
    struct log_entry own = *entry;

    if (!may_have_ended(s, entry->slot))
        note_slot(s, entry->slot);
    if (held->count < HELD_SAMPLES_MAX &&
        grow_entries(s, &held->items, &held->capacity, held->count + 1) &&
        (!record_entry_is_histogram(entry) || held_histogram_copy(s, &own)))
        held->items[held->count++] = own;
    else if (!may_have_ended(s, entry->slot))
        count_unknown(s, entry->slot);
    else if (held->ended_left_out++ == 0)
        held->ended_slot = entry->slot;
}

/* What was held for series that were never defined. Where the log is whole, those of slots that
 * files have named had ended; else their definitions may be what was lost. */
static void held_finish(struct shard *s, bool is_damaged)
{
    struct held_samples *held = &s->held;

    for (size_t k = 0; k < held->count; k++) {
        uint32_t slot = held->items[k].slot;

        if (may_have_ended(s, slot) && !is_damaged) {
            s->sealed_samples++;
        } else {
            note_slot(s, slot);
            count_unknown(s, slot);
        }
        held_drop(s, &held->items[k]);
    }
    if (held->ended_left_out > 0 && is_damaged) {
        note_slot(s, held->ended_slot);
        count_unknown(s, held->ended_slot);
        s->unknown_ref_samples += held->ended_left_out - 1;
    }
    free(held->items);
    *held = (struct held_samples){0};
}

static struct series *series_of(struct shard *s, const struct log_entry *entry)
{
    struct series *series = series_find(&s->series, entry->slot);

    return series != NULL && series->generation == entry->generation ? series : NULL;
}

/* Applies what was held for series that are known by now. */
static enum err apply_held(struct shard *s, struct shard_change *change)
{
    size_t kept = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < s->held.count; i++) {
        struct series *series = series_of(s, &s->held.items[i]);

        if (series == NULL || e != ERR_OK) {
            s->held.items[kept++] = s->held.items[i];
            continue;
        }
        e = apply_sample(s, series, &s->held.items[i], change);
        held_drop(s, &s->held.items[i]);
    }
    s->held.count = kept;
    return e;
}

/* Fetches what the samples ahead will touch: first the struct, later its chunk's tail. */
static inline void prefetch_ahead(const struct shard *s, const struct log_entry *near,
                                  const struct log_entry *far)
{
    const struct series *series;

    if (far != NULL && far->slot < s->series.slot_end &&
        s->series.pages[far->slot / SERIES_PAGE_SERIES] != NULL)
        __builtin_prefetch(series_at(&s->series, far->slot), 1);
    series = series_find(&s->series, near->slot);
    if (series != NULL)
        chunk_prefetch_tail(s->blocks.pool, series);
}

static enum err samples_error(const struct shard *s, enum err e, struct errinfo *ei)
{
    return e == ERR_CORRUPT
               ? errinfo_set(ei, e, 0, "shard %u: a histogram of a samples record", s->number)
               : errinfo_set(ei, e, 0, "memory for replayed samples was refused");
}

static enum err apply_samples(struct replay_frame *f, const struct record *record,
                              struct errinfo *ei)
{
    enum { NEAR = 12, FAR = 24 };
    struct shard *s = f->shard;
    size_t count = 0;

    if (!record_samples_count(record->body, &count))
        return errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: sizes of a samples record", s->number);
    if (!grow_entries(s, &s->decoded, &s->decoded_capacity, count))
        return errinfo_set(ei, ERR_NOMEM, 0, "replay of %zu samples", count);
    if (!record_samples_read(record, s->decoded, count))
        return errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: columns of a samples record", s->number);
    for (size_t i = 0; i < count; i++) {
        struct log_entry *entry = &s->decoded[i];
        struct series *series = series_of(s, entry);
        enum err e = ERR_OK;

        entry->is_late = record_is_late(record->type);

        if (i + NEAR < count)
            prefetch_ahead(s, entry + NEAR, i + FAR < count ? entry + FAR : NULL);
        if (series != NULL)
            e = apply_sample(s, series, entry, &f->change);
        else if (!f->is_border)
            hold_sample(s, entry);
        else if (!may_have_ended(s, entry->slot))
            note_slot(s, entry->slot);
        if (e != ERR_OK)
            return samples_error(s, e, ei);
    }
    return ERR_OK;
}

/* ---- definitions ---- */

/* Splits canonical fields into labels; false when they are not canonical. The metric name's field
 * is [*name_begin, *name_end). */
static bool labels_split(struct bytes canonical, struct arena *arena, struct labels *out,
                         size_t *name_begin, size_t *name_end)
{
    struct byte_reader in = reader_init(canonical.data, canonical.size);
    struct label *items;
    size_t count = 0, capacity = canonical.size / 4 + 1;

    if (capacity > LABEL_COUNT_MAX)
        capacity = LABEL_COUNT_MAX;
    items = ARENA_ARRAY(arena, capacity, struct label);
    *name_begin = *name_end = 0;
    while (items != NULL && reader_left(&in) > 0) {
        size_t begin = (size_t)(in.pos - canonical.data);
        struct str part[2];

        for (int i = 0; i < 2; i++) {
            uint64_t size = reader_varint(&in);

            part[i].size = size > canonical.size ? SIZE_MAX : (size_t)size;
            part[i].data = (const char *)reader_take(&in, part[i].size);
            if (part[i].data == NULL)
                return false;
        }
        if (part[0].size == 0 || part[1].size == 0 || count == capacity ||
            (count > 0 && str_compare(items[count - 1].name, part[0]) >= 0))
            return false;
        if (str_equal(part[0], LABEL_METRIC_NAME)) {
            *name_begin = begin;
            *name_end = (size_t)(in.pos - canonical.data);
        }
        items[count++] = (struct label){part[0], part[1]};
    }
    *out = (struct labels){count, items};
    return items != NULL && *name_end > 0;
}

static enum err define_new(struct replay_frame *f, const struct definition *d,
                           struct hash128 fingerprint, struct errinfo *ei)
{
    struct shard *s = f->shard;
    struct series_identity identity = {0};
    struct labels labels;
    size_t name_begin, name_end;

    if (!labels_split(d->labels, &f->arena, &labels, &name_begin, &name_end))
        return errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: labels of slot %u", s->number, d->slot);
    if (!engine_identify(f->engine, d->labels, name_begin, name_end, &f->rest, &identity) ||
        !series_table_reserve(&s->series, d->slot))
        return errinfo_set(ei, ERR_NOMEM, 0, "memory for replayed series was refused");
    if (identity.shard != s->number ||
        fingerprint_table_find(&s->fingerprints, fingerprint) != FINGERPRINT_SLOT_NONE) {
        s->conflicting_definitions += !f->is_border;
        note_slot(s, d->slot);
        return ERR_OK;
    }
    enum err e = index_add(s->index, d->slot, &labels, ei);
    if (e == ERR_OK && !shard_publish_series(s, d->slot, d->generation, fingerprint))
        e = errinfo_set(ei, ERR_NOMEM, 0, "memory for replayed series was refused");
    f->any_new = true;
    return e;
}

static enum err apply_definition(struct replay_frame *f, const struct definition *d,
                                 struct hash128 fingerprint, struct errinfo *ei)
{
    struct shard *s = f->shard;
    const struct series *known = series_find(&s->series, d->slot);

    /* Each slot was given out by an entry: a larger one would make us allocate by a wild number. */
    if (d->slot >= SERIES_SLOT_MAX - 1 ||
        d->slot >= f->sequence_end + s->series.slot_end + SLOTS_BURNT_MAX)
        return errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: slot %u", s->number, d->slot);
    if (known != NULL) { /* the second of two, as a rule */
        if (!f->is_border &&
            (known->generation != d->generation || !hash128_equal(known->fingerprint, fingerprint)))
            s->conflicting_definitions++;
        return ERR_OK;
    }
    struct arena_mark mark = arena_mark_get(&f->arena);
    enum err e = define_new(f, d, fingerprint, ei);
    arena_mark_return(&f->arena, mark);
    return e;
}

/* Hashes a group of definitions first, so that the cache misses of their look-ups overlap. */
static enum err apply_definitions(struct replay_frame *f, struct byte_reader *in, uint32_t count,
                                  struct errinfo *ei)
{
    struct definition d[DEFINITION_GROUP];
    struct hash128 fingerprint[DEFINITION_GROUP];
    enum err e = ERR_OK;
    struct arena_mark mark = arena_mark_get(&f->arena);
    struct definition last = f->last;

    ASSERT(count <= DEFINITION_GROUP);
    for (uint32_t i = 0; i < count; i++) {
        if (!record_series_next(in, &last, &f->arena, &d[i]))
            return in->failed ? errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: a series definition",
                                            f->shard->number)
                              : arena_error(&f->arena, ei);
        last = d[i];
        fingerprint[i] = hash128_bytes(&f->engine->secret, d[i].labels.data, d[i].labels.size);
        fingerprint_table_prefetch(&f->shard->fingerprints, fingerprint[i]);
    }
    for (uint32_t i = 0; i < count && e == ERR_OK; i++)
        e = apply_definition(f, &d[i], fingerprint[i], ei);
    writer_reset(&f->last_labels);
    writer_append(&f->last_labels, last.labels.data, last.labels.size);
    f->last = last;
    f->last.labels = (struct bytes){f->last_labels.data, f->last_labels.size};
    arena_mark_return(&f->arena, mark);
    if (e == ERR_OK && f->last_labels.failed)
        e = errinfo_set(ei, ERR_NOMEM, 0, "labels of a definition");
    return e;
}

static enum err apply_series(struct replay_frame *f, struct bytes body, struct errinfo *ei)
{
    struct byte_reader in;
    uint32_t left = 0;
    enum err e = ERR_OK;

    if (!record_series_open(body, &in, &left))
        return errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: a series record", f->shard->number);
    f->last = (struct definition){0};
    while (left > 0 && e == ERR_OK) {
        uint32_t count = left < DEFINITION_GROUP ? left : DEFINITION_GROUP;

        e = apply_definitions(f, &in, count, ei);
        left -= count;
    }
    if (e == ERR_OK && reader_left(&in) > 0)
        e = errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: bytes behind definitions", f->shard->number);
    return e;
}

/* ---- frames ---- */

static enum err apply_record(struct replay_frame *f, const struct record *record,
                             struct errinfo *ei)
{
    enum err e;

    switch (record->type) {
    case RECORD_SERIES:
        f->any_new = false;
        e = apply_series(f, record->body, ei);
        if (e == ERR_OK && f->any_new && f->shard->held.count > 0)
            e = apply_held(f->shard, &f->change);
        return e;
    case RECORD_SAMPLES:
    case RECORD_LATE:
    case RECORD_MIXED:
    case RECORD_LATE_MIXED:
        return apply_samples(f, record, ei);
    default:
        return ERR_OK; /* of a newer version, and its length is known */
    }
}

static enum err sink_apply(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                           struct bytes payload, struct errinfo *ei)
{
    struct engine *e = ctx;
    struct replay_frame f = {.engine = e,
                             .shard = &e->shards[shard],
                             .change = shard_change_none(),
                             .sequence_end = first_sequence + entry_count};
    struct byte_reader in = reader_init(payload.data, payload.size);
    struct record record;
    enum err err = ERR_OK;

    arena_init(&f.arena, NULL);
    f.is_border =
        first_sequence <= atomic_load_explicit(&f.shard->covered_sequence, memory_order_relaxed);
    writer_init(&f.rest);
    writer_init(&f.last_labels);
    mutex_lock(&f.shard->lock); /* nobody contends; it orders this with later readers */
    while (err == ERR_OK && record_next(&in, &record))
        err = apply_record(&f, &record, ei);
    shard_change_apply(f.shard, &f.change);
    mutex_unlock(&f.shard->lock);
    writer_done(&f.rest);
    writer_done(&f.last_labels);
    arena_done(&f.arena);
    if (err == ERR_OK && in.failed)
        err = errinfo_set(ei, ERR_CORRUPT, 0, "shard %u: a record's header", shard);
    return err;
}

static void sink_lost(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence)
{
    (void)ctx;
    /* The wal counts it; the operator learns which shard and how much. */
    LOG_WARN("log entries are lost", LOG_U64("shard", shard), LOG_U64("from", from_sequence),
             LOG_U64("to", to_sequence));
}

struct wal_sink engine_replay_sink(struct engine *e)
{
    return (struct wal_sink){.ctx = e,
                             .apply = sink_apply,
                             .lost = sink_lost,
                             /* nobody changes the manifest before the replay has ended */
                             .covered_sequences = e->manifest.covered_sequences};
}

void engine_replay_finish(struct engine *e, struct engine_replay_result *out)
{
    bool is_damaged = out->wal.bad_frame_count + out->wal.lost_entry_count > 0;

    for (uint32_t i = 0; i < e->shard_count; i++) {
        struct shard *s = &e->shards[i];

        held_finish(s, is_damaged);
        free(s->decoded);
        if (s->memory != NULL)
            budget_release(s->memory, s->held_bytes);
        s->decoded = NULL;
        s->decoded_capacity = 0;
        s->held_bytes = 0;
        if (s->series.slot_end < s->unknown_slot_end)
            s->series.slot_end = s->unknown_slot_end;
        s->log.sequence = s->log.taken_sequence = wal_next_sequence(e->wal, i) - 1;
        ended_recount(s);
        /* All shards: else the segment stays for those that were not hit. */
        atomic_store_explicit(&s->log_is_damaged, is_damaged, memory_order_relaxed);
        out->series_count += s->series.series_count;
        out->sample_count += s->replayed_samples;
        out->unknown_ref_samples += s->unknown_ref_samples;
        if (s->unknown_ref_samples + s->conflicting_definitions + s->stale_samples > 0)
            LOG_WARN("samples or definitions could not be applied", LOG_U64("shard", i),
                     LOG_U64("unknown_ref_samples", s->unknown_ref_samples),
                     LOG_U64("first_unknown_slot", s->unknown_ref_first),
                     LOG_U64("conflicting_definitions", s->conflicting_definitions),
                     LOG_U64("samples_not_newer", s->stale_samples));
    }
}
