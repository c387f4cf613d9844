/*
 * See fake_maintain.h.
 */
#include "tests/compactor/fake_maintain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

static const char dir[] = "parts";

/* ---- life ---- */

void fake_init(struct engine *e, uint64_t seed)
{
    struct errinfo ei = {0};

    memset(e, 0, sizeof *e);
    mutex_init(&e->lock);
    cond_init(&e->changed);
    e->random = test_random_init(seed);
    kit_store_init(&e->store, seed, 1 << 20);
    CHECK_OK(fs_mkdir(e->store.fs, dir, &ei), &ei);
    e->now_ms = MERGE_KIT_START + 10000 * MERGE_KIT_HOUR;
    for (uint32_t i = 0; i < FAKE_SHARDS; i++) {
        merge_kit_init(&e->kits[i], &e->random, FAKE_SERIES);
        e->states[i].oldest_sealed_window_end_ms = INT64_MAX;
        e->states[i].sealed_mono_ns = UINT64_MAX / 2;
    }
}

static void part_path(const struct part_key *key, enum part_file file, char out[512])
{
    char name[PART_NAME_SIZE];

    part_name_format(key, file, false, name);
    (void)snprintf(out, 512, "%s/%s", dir, name);
}

static void part_unlink(struct engine *e, const struct part_key *key)
{
    struct errinfo ei = {0};
    char path[512];

    for (int i = 0; i < 2; i++) {
        part_path(key, (enum part_file)i, path);
        CHECK_OK(fs_unlink(e->store.fs, path, &ei), &ei);
    }
}

static void source_unref(struct engine *e, struct fake_part *p)
{
    struct part_key key;

    CHECK(p->refs > 0);
    if (--p->refs > 0)
        return;
    key = part_info(p->part)->key;
    part_close(p->part);
    p->part = NULL;
    part_unlink(e, &key);
}

static enum err no_file(void *ctx, const char *name, struct errinfo *ei)
{
    (void)ctx;
    (void)ei;
    CHECK_MSG(false, "%s is left", name);
    return ERR_OK;
}

void fake_done(struct engine *e)
{
    struct errinfo ei = {0};

    for (uint32_t s = 0; s < FAKE_SHARDS; s++) {
        for (size_t i = 0; i < e->part_counts[s]; i++) {
            CHECK(e->parts[s][i].refs == (e->parts[s][i].is_live ? 1 : 0));
            if (e->parts[s][i].is_live)
                source_unref(e, &e->parts[s][i]);
        }
        merge_kit_done(&e->kits[s]);
    }
    CHECK_OK(fs_list(e->store.fs, dir, no_file, NULL, &ei), &ei);
    kit_store_done(&e->store);
    cond_done(&e->changed);
    mutex_done(&e->lock);
}

/* ---- parts ---- */

static void live_add(struct engine *e, uint32_t shard, const struct part_key *key)
{
    struct fake_part *p = &e->parts[shard][e->part_counts[shard]++];
    struct errinfo ei = {0};

    CHECK(e->part_counts[shard] < FAKE_PARTS_MAX);
    CHECK_OK(part_open(e->store.store, dir, key, &p->part, &ei), &ei);
    p->refs = 1;
    p->is_live = true;
}

void fake_part_add(struct engine *e, uint32_t shard, int64_t first_hour, int64_t hours,
                   uint64_t generation)
{
    struct merge_kit_shape shape = {.presence_percent = 80, .chunks_max = 3, .samples_max = 300};
    struct part_key key = merge_kit_key(first_hour, hours, generation);

    key.shard = shard;
    merge_kit_part(&e->kits[shard], e->store.store, dir, &key, shape);
    live_add(e, shard, &key);
}

size_t fake_live_count(struct engine *e, uint32_t shard)
{
    size_t count = 0;

    mutex_lock(&e->lock);
    for (size_t i = 0; i < e->part_counts[shard]; i++)
        count += e->parts[shard][i].is_live;
    mutex_unlock(&e->lock);
    return count;
}

void fake_damage(struct engine *e, uint32_t shard, uint64_t generation)
{
    for (size_t i = 0; i < e->part_counts[shard]; i++) {
        const struct part_info *info = part_info(e->parts[shard][i].part);
        struct errinfo ei = {0};
        char path[512];

        if (info->key.generation != generation)
            continue;
        part_path(&info->key, PART_FILE_CHUNKS, path);
        CHECK_OK(fs_sim_flip_bit(e->store.fs, path, info->chunks_size * 4, &ei), &ei);
        return;
    }
    CHECK_MSG(false, "no part of generation %llu", (unsigned long long)generation);
}

bool fake_wait(struct engine *e, uint64_t deadline_mono_ns)
{
    return cond_wait_until(&e->changed, &e->lock, deadline_mono_ns);
}

/* ---- deletion ---- */

static bool is_hit(const struct fake_tombstone *t, uint32_t shard, const struct merge_kit_sample *s)
{
    return t->shard == shard && t->series == s->series && t->generation > s->generation &&
           s->t_ms >= t->range.min_time_ms && s->t_ms <= t->range.max_time_ms;
}

static bool is_hidden(const struct engine *e, uint32_t shard, const struct merge_kit_sample *s)
{
    for (size_t i = 0; i < e->tombstone_count; i++) {
        if (is_hit(&e->tombstones[i], shard, s))
            return true;
    }
    return false;
}

/* Drops what tombstones hide and returns how much that was. */
static size_t hidden_drop(const struct engine *e, uint32_t shard, struct merge_kit_list *l)
{
    size_t kept = 0, before = l->count;

    for (size_t i = 0; i < l->count; i++) {
        if (!is_hidden(e, shard, &l->items[i]))
            l->items[kept++] = l->items[i];
    }
    l->count = kept;
    return before - kept;
}

void fake_delete(struct engine *e, uint32_t shard, uint32_t series, int64_t first_hour,
                 int64_t hours, uint64_t generation)
{
    int64_t first_ms = MERGE_KIT_START + first_hour * MERGE_KIT_HOUR;

    CHECK(e->tombstone_count < FAKE_TOMBSTONES_MAX);
    e->tombstones[e->tombstone_count++] = (struct fake_tombstone){
        shard, series, {first_ms, first_ms + hours * MERGE_KIT_HOUR - 1}, generation};
    (void)hidden_drop(e, shard, &e->kits[shard].written);
}

static void live_read(struct engine *e, uint32_t shard, struct merge_kit_list *out)
{
    for (size_t i = 0; i < e->part_counts[shard]; i++) {
        if (e->parts[shard][i].is_live)
            merge_kit_read(&e->kits[shard], e->parts[shard][i].part, out);
    }
}

void fake_check(struct engine *e)
{
    for (uint32_t s = 0; s < FAKE_SHARDS; s++) {
        struct merge_kit_list got = {0}, expected = {0};

        live_read(e, s, &got);
        (void)hidden_drop(e, s, &got);
        merge_kit_list_copy(&expected, &e->kits[s].written);
        merge_kit_list_settle(&got);
        merge_kit_list_settle(&expected);
        merge_kit_check_equal(&expected, &got);
        merge_kit_list_done(&got);
        merge_kit_list_done(&expected);
    }
}

size_t fake_hidden_count(struct engine *e)
{
    size_t count = 0;

    for (uint32_t s = 0; s < FAKE_SHARDS; s++) {
        struct merge_kit_list got = {0};

        live_read(e, s, &got);
        count += hidden_drop(e, s, &got);
        merge_kit_list_done(&got);
    }
    return count;
}

/* ---- engine/engine.h ---- */

uint32_t engine_shard_count(const struct engine *e)
{
    (void)e;
    return FAKE_SHARDS;
}

void engine_stats_get(const struct engine *e, struct engine_stats *out)
{
    *out = (struct engine_stats){.wal = {.log_bytes = e->log_bytes}};
}

/* ---- engine/maintain.h ---- */

const char *seal_reason_name(enum seal_reason r)
{
    static const char *const names[SEAL_REASON_COUNT] = {"none",   "replay_cost", "log_size",
                                                         "memory", "interval",    "late",
                                                         "ended",  "chunks",      "flush"};

    return names[r];
}

int64_t engine_now_ms(const struct engine *e)
{
    return e->now_ms;
}

void engine_file_stats_get(struct engine *e, struct engine_file_stats *out)
{
    mutex_lock(&e->lock);
    *out = e->files;
    mutex_unlock(&e->lock);
}

void engine_seal_state(const struct engine *e, uint32_t shard, struct seal_state *out)
{
    struct engine *own = (struct engine *)e; /* the lock is not part of what is constant */

    mutex_lock(&own->lock);
    *out = e->states[shard];
    mutex_unlock(&own->lock);
}

/* Under the lock. */
static enum err maybe_fail(struct fake_failure *f, struct errinfo *ei)
{
    if (f->times == 0)
        return ERR_OK;
    f->times -= f->times > 0;
    return errinfo_set(ei, f->code, 0, "as the test wants it");
}

enum err engine_seal(struct engine *e, uint32_t shard, enum seal_reason reason,
                     const struct maintain_control *control, struct seal_result *out,
                     struct errinfo *ei)
{
    enum err err;

    (void)control;
    mutex_lock(&e->lock);
    e->calls.seals++;
    e->calls.last_shard = shard;
    e->calls.last_reason = reason;
    err = maybe_fail(&e->seal_fails, ei);
    if (err == ERR_OK) {
        *out = (struct seal_result){.sample_count = e->states[shard].sample_count,
                                    .late_sample_count = e->states[shard].late_sample_count};
        e->states[shard].sample_count = e->states[shard].chunk_bytes = 0;
        e->states[shard].log_is_damaged = false;
        e->states[shard].log_entries = e->states[shard].ended_series_count = 0;
        e->states[shard].late_sample_count = e->states[shard].late_bytes = 0;
    }
    cond_broadcast(&e->changed);
    mutex_unlock(&e->lock);
    return err;
}

enum err engine_flush(struct engine *e, uint32_t shard, int64_t until_ms,
                      const struct maintain_control *control, struct flush_result *out,
                      struct errinfo *ei)
{
    enum err err;

    (void)control;
    mutex_lock(&e->lock);
    e->calls.flushes++;
    e->calls.last_shard = shard;
    e->calls.last_until_ms = until_ms;
    err = maybe_fail(&e->flush_fails, ei);
    if (err == ERR_OK) {
        *out = (struct flush_result){.part_count = 1};
        e->states[shard].oldest_sealed_window_end_ms = INT64_MAX;
    }
    cond_broadcast(&e->changed);
    mutex_unlock(&e->lock);
    return err;
}

enum err engine_split_late(struct engine *e, uint32_t shard, const struct maintain_control *control,
                           struct flush_result *out, struct errinfo *ei)
{
    (void)control;
    (void)ei;
    mutex_lock(&e->lock);
    e->calls.splits++;
    e->calls.last_shard = shard;
    *out = (struct flush_result){.part_count = 1};
    e->states[shard].late_file_bytes = 0;
    cond_broadcast(&e->changed);
    mutex_unlock(&e->lock);
    return ERR_OK;
}

struct part_store *engine_part_store(const struct engine *e)
{
    return e->store.store;
}

const char *engine_parts_dir(void)
{
    return dir;
}

/* Caller holds the lock. */
static bool is_touched(const struct engine *e, uint64_t generation, int64_t min_time_ms,
                       int64_t max_time_ms)
{
    bool touched = false;

    for (size_t i = 0; i < e->tombstone_count && !touched; i++)
        touched = e->tombstones[i].generation > generation &&
                  e->tombstones[i].range.min_time_ms <= max_time_ms &&
                  e->tombstones[i].range.max_time_ms >= min_time_ms;
    return touched;
}

enum err engine_parts_get(struct engine *e, uint32_t shard, struct arena *arena,
                          struct engine_parts *out, struct errinfo *ei)
{
    struct engine_part *items = ARENA_ARRAY(arena, FAKE_PARTS_MAX, struct engine_part);

    if (items == NULL)
        return arena_error(arena, ei);
    *out = (struct engine_parts){.items = items, .set = e};
    mutex_lock(&e->lock);
    for (size_t i = 0; i < e->part_counts[shard]; i++) {
        struct fake_part *p = &e->parts[shard][i];
        const struct part_info *info;

        if (!p->is_live)
            continue;
        p->refs++;
        info = part_info(p->part);
        items[out->count++] =
            (struct engine_part){.part = p->part,
                                 .key = info->key,
                                 .size_bytes = info->index_size + info->chunks_size,
                                 .is_touched_by_delete = is_touched(
                                     e, info->key.generation, info->min_time_ms, info->max_time_ms),
                                 .source = p};
    }
    mutex_unlock(&e->lock);
    return ERR_OK;
}

void engine_parts_release(struct engine_parts *parts)
{
    struct engine *e = parts->set;

    mutex_lock(&e->lock);
    for (size_t i = 0; i < parts->count; i++)
        source_unref(e, parts->items[i].source);
    mutex_unlock(&e->lock);
}

static struct fake_part *live_find(struct engine *e, uint32_t shard, const struct part_key *key)
{
    for (size_t i = 0; i < e->part_counts[shard]; i++) {
        struct fake_part *p = &e->parts[shard][i];

        if (p->is_live && part_key_equal(&part_info(p->part)->key, key))
            return p;
    }
    return NULL;
}

enum err engine_parts_exchange(struct engine *e, uint32_t shard, const struct part_key *removed,
                               size_t removed_count, const struct part_info *added,
                               uint64_t purged_generation, struct errinfo *ei)
{
    enum err err;

    (void)purged_generation;
    mutex_lock(&e->lock);
    e->calls.exchanges++;
    err = maybe_fail(&e->exchange_fails, ei);
    for (size_t i = 0; i < removed_count && err == ERR_OK; i++) {
        if (live_find(e, shard, &removed[i]) == NULL)
            err = errinfo_set(ei, ERR_NOT_FOUND, 0, "no such part");
    }
    for (size_t i = 0; i < removed_count && err == ERR_OK; i++) {
        struct fake_part *p = live_find(e, shard, &removed[i]);

        p->is_live = false;
        source_unref(e, p);
    }
    if (err == ERR_OK && added != NULL)
        live_add(e, shard, &added->key);
    if (err != ERR_OK && added != NULL)
        part_unlink(e, &added->key);
    cond_broadcast(&e->changed);
    mutex_unlock(&e->lock);
    return err;
}

enum err engine_part_clear(struct engine *e, const struct part_key *key, struct errinfo *ei)
{
    (void)e, (void)key, (void)ei;
    return ERR_OK;
}

enum err engine_foreign_part_remove(struct engine *e, const struct part_key *key,
                                    struct errinfo *ei)
{
    (void)e; /* this store has none */
    (void)key;
    return errinfo_set(ei, ERR_INVALID, 0, "no such part");
}

enum err engine_foreign_parts_exchange(struct engine *e, const struct part_key *removed,
                                       size_t removed_count, const struct part_info *added,
                                       size_t added_count, uint64_t purged_generation,
                                       struct errinfo *ei)
{
    (void)e, (void)removed, (void)removed_count, (void)added, (void)added_count;
    (void)purged_generation;
    return errinfo_set(ei, ERR_INVALID, 0, "no such part");
}

bool engine_shard_of(const struct engine *e, const struct labels *labels,
                     struct byte_writer scratch[2], uint32_t *out)
{
    (void)e, (void)labels, (void)scratch, (void)out;
    return false;
}

void engine_part_discard(struct engine *e, const struct part_key *key)
{
    (void)e, (void)key;
}

enum err engine_deleted_ranges(struct engine *e, const struct labels *labels, uint64_t generation,
                               struct arena *arena, struct delete_range **out, size_t *out_count,
                               struct errinfo *ei)
{
    struct delete_range *ranges = ARENA_ARRAY(arena, FAKE_TOMBSTONES_MAX, struct delete_range);
    size_t n = 0;

    if (ranges == NULL)
        return arena_error(arena, ei);
    mutex_lock(&e->lock);
    for (size_t i = 0; i < e->tombstone_count; i++) {
        const struct fake_tombstone *t = &e->tombstones[i];

        if (t->generation > generation &&
            labels_equal(labels, &e->kits[t->shard].series[t->series].labels))
            ranges[n++] = (struct delete_range){t->range.min_time_ms, t->range.max_time_ms};
    }
    mutex_unlock(&e->lock);
    *out = ranges;
    *out_count = n;
    return ERR_OK;
}

bool engine_is_touched_by_delete(struct engine *e, uint64_t generation, int64_t min_time_ms,
                                 int64_t max_time_ms)
{
    bool touched;

    mutex_lock(&e->lock);
    touched = is_touched(e, generation, min_time_ms, max_time_ms);
    mutex_unlock(&e->lock);
    return touched;
}

size_t engine_tombstone_count(struct engine *e)
{
    size_t count;

    mutex_lock(&e->lock);
    count = e->tombstone_count;
    mutex_unlock(&e->lock);
    return count;
}

enum err engine_snapshot_discard(struct engine *e, const char *path, struct errinfo *ei)
{
    char temporary[64];

    CHECK(snprintf(temporary, sizeof temporary, "%s" ENGINE_SNAPSHOT_SUFFIX, path) <
          (int)sizeof temporary);
    return fs_unlink(e->store.fs, temporary, ei);
}

enum err engine_snapshot(struct engine *e, const char *path, const struct maintain_control *control,
                         struct errinfo *ei)
{
    enum err err;

    (void)control;
    mutex_lock(&e->lock);
    err = maybe_fail(&e->snapshot_fails, ei);
    (void)snprintf(e->snapshot_path, sizeof e->snapshot_path, "%s", path);
    mutex_unlock(&e->lock);
    return err;
}

void engine_housekeep(struct engine *e)
{
    (void)e; /* no series of it ever ends */
}

/* All of them or none: a tombstone is retired when it hides nothing any more. */
enum err engine_tombstones_retire(struct engine *e, struct errinfo *ei)
{
    (void)ei;
    mutex_lock(&e->lock);
    if (fake_hidden_count(e) == 0)
        e->tombstone_count = 0;
    mutex_unlock(&e->lock);
    return ERR_OK;
}
