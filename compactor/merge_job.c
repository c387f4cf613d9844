/*
 * One merge or purge of a shard: parts in, plan, result named in the manifest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "compactor/compactor_internal.h"
#include "compactor/plan.h"
#include "compactor/regroup.h"
#include "engine/engine.h"

/* What one job works on. */
struct job {
    struct worker *worker;
    struct compactor *c;
    uint32_t shard;
    struct arena arena;
    struct engine_parts parts;
    bool has_parts;
    struct part_key *keys; /* of all parts, then of other files; in the arena, as what is below */
    bool *usable, *chosen; /* files are neither */
    size_t key_count;
    const struct regroup *regroup; /* NULL: a merge */
    const char *why;               /* for the log: "overlap", "window", "purge", "shards" */
};

static void job_init(struct job *j, struct worker *w, uint32_t shard)
{
    *j = (struct job){.worker = w, .c = w->compactor, .shard = shard};
    arena_init(&j->arena, &w->compactor->memory);
}

static void job_parts_release(struct job *j)
{
    if (j->has_parts)
        engine_parts_release(&j->parts);
    j->has_parts = false;
}

static void job_done(struct job *j)
{
    job_parts_release(j);
    arena_done(&j->arena);
    arena_done(&j->worker->ranges_arena); /* an idle worker holds nothing */
}

static struct shard_work *job_shard(const struct job *j)
{
    return &j->c->shards[j->shard];
}

static enum err job_list(struct job *j, struct errinfo *ei)
{
    enum err e;

    job_parts_release(j);
    arena_reset(&j->arena);
    e = engine_parts_get(j->c->engine, j->shard, &j->arena, &j->parts, ei);
    if (e != ERR_OK)
        return e;
    j->has_parts = true;
    j->key_count = j->parts.count + j->parts.file_count;
    j->keys = ARENA_ARRAY(&j->arena, j->key_count, struct part_key);
    j->usable = ARENA_ARRAY(&j->arena, j->key_count, bool);
    j->chosen = ARENA_ARRAY(&j->arena, j->key_count, bool);
    if (j->keys == NULL || j->usable == NULL || j->chosen == NULL)
        return arena_error(&j->arena, ei);
    set_aside_refresh(j->c, job_shard(j), j->parts.items, j->parts.count);
    parts_usable(job_shard(j), j->parts.items, j->parts.count, j->usable);
    for (size_t i = 0; i < j->parts.count; i++) {
        j->keys[i] = j->parts.items[i].key;
        /* Split or joined first: regroup.h. */
        j->usable[i] = j->usable[i] && !j->parts.items[i].is_foreign;
    }
    for (size_t i = 0; i < j->parts.file_count; i++) {
        j->keys[j->parts.count + i] = j->parts.files[i];
        j->usable[j->parts.count + i] = false;
    }
    memset(j->chosen, 0, j->key_count * sizeof *j->chosen);
    return ERR_OK;
}

/* ---- running one ---- */

/* The tombstones' ranges for a series of an input. */
static enum err deleted_ranges(void *ctx, const struct labels *labels, struct hash128 fingerprint,
                               uint64_t generation, const struct merge_range **out,
                               size_t *out_count, struct errinfo *ei)
{
    struct worker *w = ctx;
    struct delete_range *deleted = NULL;
    struct merge_range *ranges;
    enum err e;

    (void)fingerprint;
    arena_reset(&w->ranges_arena);
    e = engine_deleted_ranges(w->compactor->engine, labels, generation, &w->ranges_arena, &deleted,
                              out_count, ei);
    if (e != ERR_OK)
        return e;
    ranges = ARENA_ARRAY(&w->ranges_arena, *out_count, struct merge_range);
    if (ranges == NULL)
        return arena_error(&w->ranges_arena, ei);
    for (size_t i = 0; i < *out_count; i++)
        ranges[i] = (struct merge_range){deleted[i].min_time_ms, deleted[i].max_time_ms};
    *out = ranges;
    return ERR_OK;
}

static uint64_t chosen_bytes(const struct job *j)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < j->parts.count; i++)
        sum += j->chosen[i] ? j->parts.items[i].size_bytes : 0;
    return sum;
}

/* The chosen parts, borrowed, and their keys; returns how many. */
static size_t chosen_fill(const struct job *j, struct part **inputs, struct part_key *removed)
{
    size_t n = 0;

    for (size_t i = 0; i < j->parts.count; i++) {
        if (!j->chosen[i])
            continue;
        inputs[n] = j->parts.items[i].part;
        removed[n++] = j->keys[i];
    }
    return n;
}

static void log_begin(const struct job *j, const struct part_key *key, size_t inputs)
{
    LOG_INFO("merge begins", LOG_STR("why", j->why), LOG_U64("shard", j->shard),
             LOG_I64("window_start_ms", key->window_start_ms),
             LOG_U64("window_hours", key->window_size_ms / 3600000), LOG_U64("parts", inputs),
             LOG_U64("bytes", chosen_bytes(j)));
}

static void log_end(const struct job *j, const struct part_key *key, const struct merge_result *r,
                    double seconds)
{
    const struct merge_stats *st = &r->stats;

    LOG_INFO("merge ends", LOG_STR("why", j->why), LOG_U64("shard", j->shard),
             LOG_I64("window_start_ms", key->window_start_ms),
             LOG_U64("window_hours", key->window_size_ms / 3600000),
             LOG_U64("series", st->series_count), LOG_U64("parts", r->info_count),
             LOG_U64("samples", st->samples_copied + st->samples_encoded),
             LOG_U64("samples_copied", st->samples_copied),
             LOG_U64("samples_purged", st->samples_purged), LOG_U64("bytes_in", st->input_bytes),
             LOG_U64("bytes", st->output_bytes), LOG_F64("seconds", seconds),
             LOG_F64("paused_seconds", (double)j->worker->paused_ns / 1e9));
}

static void count_result(struct compactor *c, const struct merge_result *r, double seconds)
{
    struct compactor_metrics *m = &c->metrics;
    const struct merge_stats *st = &r->stats;

    metric_counter_add(m->merges, 1);
    metric_histogram_observe(m->merge_seconds, seconds);
    metric_counter_add(m->merge_copied, st->samples_copied);
    metric_counter_add(m->merge_encoded, st->samples_encoded);
    metric_counter_add(m->merge_repeated, st->samples_repeated);
    metric_counter_add(m->merge_purged, st->samples_purged);
    metric_counter_add(m->merge_bytes_in, st->input_bytes);
    metric_counter_add(m->merge_bytes_out, st->output_bytes);
}

static void progress_clear(struct merge_progress *p)
{
    atomic_store_explicit(&p->samples_total, 0, memory_order_relaxed);
    atomic_store_explicit(&p->samples_done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->series_done, 0, memory_order_relaxed);
}

/* How any merge is done, but for what. */
static struct merge_options options_of(struct job *j)
{
    struct compactor *c = j->c;
    struct merge_options o = {
        .memory = &c->memory,
        .stop = &c->stop,
        .yield = pace_yield,
        .yield_ctx = j->worker,
        .progress = &j->worker->progress,
    };

    if (engine_tombstone_count(c->engine) > 0)
        o.purge.ranges = deleted_ranges;
    o.purge.ctx = j->worker;
    return o;
}

/* Merges the chosen parts and puts the result in their place. ERR_NOT_FOUND: one of them has gone
 * meanwhile (retention), and nothing has changed. */
static enum err job_run(struct job *j, const struct part_key *key, struct merge_result *result,
                        struct errinfo *ei)
{
    struct compactor *c = j->c;
    struct part *inputs[MERGE_INPUTS_MAX];
    struct part_key removed[MERGE_INPUTS_MAX];
    size_t count = chosen_fill(j, inputs, removed);
    struct merge_options o = options_of(j);
    enum err e;

    if (j->regroup != NULL)
        return regroup_run(c->engine, j->regroup, &j->parts, j->chosen, &o, result, ei);
    o.store = engine_part_store(c->engine);
    o.dir = engine_parts_dir();
    o.key = *key;
    o.inputs = inputs;
    o.input_count = count;
    e = engine_part_clear(c->engine, key, ei);
    if (e == ERR_OK)
        e = merge_run(&o, result, ei);
    if (e != ERR_OK)
        return e;
    e = engine_parts_exchange(c->engine, j->shard, removed, count,
                              result->written ? &result->info : NULL, j->parts.purged_generation,
                              ei);
    return e;
}

/* job_run() with all that is told about it. */
static enum err job_execute(struct job *j, const struct part_key *key, struct errinfo *ei)
{
    struct compactor *c = j->c;
    struct merge_result result = {0};
    uint64_t start_ns = clock_mono_ns();
    size_t inputs = 0;
    double seconds;
    enum err e;

    for (size_t i = 0; i < j->parts.count; i++)
        inputs += j->chosen[i];
    log_begin(j, key, inputs);
    metric_counter_add(c->metrics.merges_triggered, 1);
    metric_gauge_add(c->metrics.merges_running, 1);
    pace_begin(j->worker);
    e = job_run(j, key, &result, ei);
    seconds = (double)(clock_mono_ns() - start_ns) / 1e9;
    progress_clear(&j->worker->progress);
    metric_gauge_add(c->metrics.merges_running, -1);
    metric_counter_add(c->metrics.merge_pause_ms, j->worker->paused_ns / 1000000);
    if (e == ERR_OK) {
        count_result(c, &result, seconds);
        log_end(j, key, &result, seconds);
    } else if (e == ERR_NOT_FOUND) {
        LOG_INFO("merge given up: what it is made of has changed", LOG_U64("shard", j->shard),
                 LOG_STR("reason", ei->message));
    } else if (e == ERR_UNAVAILABLE) {
        LOG_INFO("merge given up: a late file must be split first", LOG_U64("shard", j->shard));
        atomic_store_explicit(&job_shard(j)->split_wanted, true, memory_order_relaxed);
        compactor_poke(c);
    } else if (e != ERR_CANCELED) {
        metric_counter_add(c->metrics.merge_failures, 1);
        LOG_ERROR("merge failed", LOG_STR("why", j->why), LOG_U64("shard", j->shard),
                  LOG_I64("window_start_ms", key->window_start_ms),
                  LOG_U64("window_hours", key->window_size_ms / 3600000),
                  LOG_STR("code", err_name(e)), LOG_STR("error", ei->message));
    }
    if (e == ERR_CORRUPT)
        parts_set_aside(c, job_shard(j), j->parts.items, j->chosen, j->parts.count, ei);
    return e;
}

/* ---- what to merge ---- */

/* Fills j->chosen by plan_next() over the usable parts. */
static enum err plan_usable(struct job *j, int64_t flushed_until_ms, struct plan *plan,
                            struct errinfo *ei)
{
    const struct plan_options o = {.retention_ms = j->c->options.retention_ms,
                                   .closed_until_ms = flushed_until_ms};
    struct plan_part *list = ARENA_ARRAY(&j->arena, j->key_count, struct plan_part);
    enum err e;

    if (list == NULL)
        return arena_error(&j->arena, ei);
    for (size_t i = 0; i < j->key_count; i++)
        list[i] = (struct plan_part){.key = j->keys[i], .is_fixed = !j->usable[i]};
    for (size_t i = 0; i < j->parts.count; i++)
        list[i].size_bytes = j->parts.items[i].size_bytes;
    e = plan_next(list, j->key_count, &o, &j->arena, plan, ei);
    for (size_t i = 0; e == ERR_OK && plan->reason != PLAN_NOTHING && i < j->parts.count; i++)
        j->chosen[i] = plan->chosen[i];
    return e;
}

/* Lists the parts and plans, while no late file can become a part. JOB_DONE: there is a plan. */
static enum job_outcome job_plan(struct job *j, struct plan *plan, struct errinfo *ei)
{
    struct compactor *c = j->c;
    struct shard_work *s = job_shard(j);
    struct seal_state state;
    enum err e;

    /* A flush or a split is under way: it has news when it ends. */
    if (!mutex_trylock(&s->files_lock))
        return JOB_NOTHING;
    engine_seal_state(c->engine, j->shard, &state);
    e = job_list(j, ei);
    mutex_unlock(&s->files_lock);
    if (e == ERR_OK)
        e = plan_usable(j, policy_flushed_until_ms(&state, engine_now_ms(c->engine)), plan, ei);
    if (e != ERR_OK)
        return JOB_FAILED;
    if (plan->reason == PLAN_NOTHING)
        return JOB_NOTHING;
    if (state.late_file_bytes > 0) {
        /* A late file may lie between the inputs, by generation. */
        atomic_store_explicit(&s->split_wanted, true, memory_order_relaxed);
        compactor_poke(c);
        return JOB_NOTHING;
    }
    return JOB_DONE;
}

/* ---- parts of another number of shards ---- */

/* Splits or joins the next ones. */
static enum job_outcome regroup_job(struct job *j, struct errinfo *ei)
{
    struct compactor *c = j->c;
    struct regroup g;
    bool *sound;
    enum err e = job_list(j, ei);

    sound = e == ERR_OK ? ARENA_ARRAY(&j->arena, j->parts.count, bool) : NULL;
    if (sound == NULL)
        return JOB_FAILED;
    for (size_t i = 0; i < j->parts.count; i++)
        sound[i] = j->parts.items[i].is_foreign && !part_is_set_aside(job_shard(j), &j->keys[i]);
    if (!regroup_next(j->keys, sound, j->parts.count, j->shard, c->shard_count, j->chosen, &g))
        return JOB_NOTHING;
    j->regroup = &g;
    j->why = "shards";
    e = job_execute(j, &g.key, ei);
    j->regroup = NULL;
    if (e == ERR_OK)
        compactor_all_changed(c); /* what kept merges of other shards back may have gone */
    return e == ERR_OK || e == ERR_NOT_FOUND ? JOB_DONE : JOB_FAILED;
}

enum job_outcome merge_job(struct worker *w, uint32_t shard)
{
    struct job j;
    struct plan plan = {0};
    struct errinfo ei = {0};
    enum job_outcome outcome;

    job_init(&j, w, shard);
    outcome = regroup_job(&j, &ei);
    if (outcome != JOB_NOTHING) {
        job_done(&j);
        return outcome;
    }
    outcome = job_plan(&j, &plan, &ei);
    if (outcome == JOB_DONE) {
        enum err e;

        j.why = plan.reason == PLAN_OVERLAP ? "overlap" : "window";
        e = job_execute(&j, &plan.key, &ei);
        outcome = e == ERR_OK || e == ERR_NOT_FOUND ? JOB_DONE : JOB_FAILED;
    } else if (outcome == JOB_FAILED) {
        LOG_ERROR("merges cannot be planned", LOG_U64("shard", shard),
                  LOG_STR("error", ei.message));
    }
    job_done(&j);
    return outcome;
}

/* ---- purge ---- */

static bool is_touched(const struct job *j, size_t i)
{
    return j->usable[i] && j->parts.items[i].is_touched_by_delete;
}

/* Chooses a part to be rewritten, with the ended parts beside it whose numbers leave its result no
 * room of its own; *key is the result's. */
static bool purge_choose(struct job *j, size_t first, struct part_key *key, struct errinfo *ei)
{
    memset(j->chosen, 0, j->key_count * sizeof *j->chosen);
    j->chosen[first] = true;
    if (merge_inputs_valid(j->keys, j->chosen, j->key_count, key, NULL) == ERR_OK)
        return true;
    for (size_t i = 0; i < j->parts.count; i++) {
        j->chosen[i] = j->usable[i] &&
                       j->keys[i].generation >> 16 == j->keys[first].generation >> 16 &&
                       j->keys[i].window_start_ms == j->keys[first].window_start_ms &&
                       j->keys[i].window_size_ms == j->keys[first].window_size_ms;
    }
    return merge_inputs_valid(j->keys, j->chosen, j->key_count, key, ei) == ERR_OK;
}

/* Parts that a pass has dealt with: their results would look touched again. */
struct seen_keys {
    struct part_key *items;
    size_t count, capacity;
};

static bool is_seen(const struct seen_keys *seen, const struct part_key *key)
{
    for (size_t i = 0; i < seen->count; i++) {
        if (part_key_equal(&seen->items[i], key))
            return true;
    }
    return false;
}

static enum err see(struct seen_keys *seen, struct arena *arena, const struct part_key *key,
                    struct errinfo *ei)
{
    if (seen->count == seen->capacity) {
        struct part_key *grown =
            arena_grow_array(arena, seen->items, seen->count, seen->count * 2 + 16, sizeof *grown);

        if (grown == NULL)
            return arena_error(arena, ei);
        seen->items = grown;
        seen->capacity = seen->count * 2 + 16;
    }
    seen->items[seen->count++] = *key;
    return ERR_OK;
}

/* Rewrites the next touched part that was not seen; *found false: there is none. */
static enum err purge_next(struct job *j, struct seen_keys *seen, struct arena *seen_arena,
                           bool *found, struct errinfo *ei)
{
    struct part_key key = {0};
    size_t next = 0;
    enum err e = job_list(j, ei);

    *found = false;
    if (e != ERR_OK)
        return e;
    while (next < j->parts.count && (is_seen(seen, &j->keys[next]) || !is_touched(j, next)))
        next++;
    if (next == j->parts.count)
        return ERR_OK;
    *found = true;
    e = see(seen, seen_arena, &j->keys[next], ei);
    if (e != ERR_OK)
        return e;
    if (!purge_choose(j, next, &key, ei))
        return ei->code;
    for (size_t i = 0; i < j->parts.count && e == ERR_OK; i++) {
        if (j->chosen[i])
            e = see(seen, seen_arena, &j->keys[i], ei);
    }
    if (e == ERR_OK)
        e = see(seen, seen_arena, &key, ei);
    return e == ERR_OK ? job_execute(j, &key, ei) : e;
}

enum err purge_job(struct worker *w, uint32_t shard, struct errinfo *ei)
{
    struct job j;
    struct arena seen_arena;
    struct seen_keys seen = {0};
    bool found = true;
    enum err first = ERR_OK;

    job_init(&j, w, shard);
    while (regroup_job(&j, &(struct errinfo){0}) == JOB_DONE)
        continue; /* which purges them; others are purged in any case */
    j.why = "purge";
    arena_init(&seen_arena, &w->compactor->memory);
    while (found) {
        struct errinfo one = {0};
        enum err e = purge_next(&j, &seen, &seen_arena, &found, &one);

        if (e != ERR_OK && e != ERR_NOT_FOUND && first == ERR_OK)
            first = errinfo_set(ei, e, 0, "%s", one.message);
        if (e == ERR_CANCELED || (e != ERR_OK && !found))
            break;
    }
    arena_done(&seen_arena);
    job_done(&j);
    return first;
}
