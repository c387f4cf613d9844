/*
 * What is told of limits: lines of the log at a bounded rate, and the state of all of them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine/limits/limits_internal.h"

enum { LOG_INTERVAL_MS = 60000 };

/* ---- the log ---- */

static void watch_log(const struct limit_watch *w)
{
    char label[LIMIT_TEXT_SIZE + 1] = "", value[LIMIT_TEXT_SIZE + 1] = "";
    const char *what = w->refusals > w->logged_refusals
                           ? "a limit is reached: new series are refused"
                           : "a limit's warning threshold is reached";

    memcpy(label, w->label, w->label_size);
    memcpy(value, w->value, w->value_size);
    LOG_WARN(what, LOG_STR("limit", limits_number_name(w->number)), LOG_U64("max", w->max),
             LOG_STR("label", label), LOG_STR("value", value), LOG_U64("series", w->series),
             LOG_U64("refusals", w->refusals - w->logged_refusals));
}

static bool is_due(const struct limit_watch *w, int64_t now_ms)
{
    return w->number != 0 && (w->refusals > w->logged_refusals || w->is_warning) &&
           (now_ms >= w->next_log_ms || w->next_log_ms > now_ms + LOG_INTERVAL_MS);
}

/* Takes the lines that are due, the lock held. */
static size_t lines_take(struct limiter *l, int64_t now_ms,
                         struct limit_watch out[LIMITS_LOG_LINES])
{
    size_t count = 0;

    if (now_ms / LOG_INTERVAL_MS != l->log_minute) {
        l->log_minute = now_ms / LOG_INTERVAL_MS;
        l->log_lines = 0;
    }
    for (size_t i = 0; i < LIMIT_OFFENDERS_MAX && l->log_lines < LIMITS_LOG_LINES; i++) {
        struct limit_watch *w = &l->watches[i];

        if (!is_due(w, now_ms))
            continue;
        out[count++] = *w;
        l->log_lines++;
        if (w->refusals == w->logged_refusals)
            atomic_fetch_add_explicit(&l->warnings[w->number], 1, memory_order_relaxed);
        w->logged_refusals = w->refusals;
        w->is_warning = false;
        w->next_log_ms = now_ms + LOG_INTERVAL_MS;
    }
    return count;
}

void engine_limits_log(struct engine *e)
{
    struct limit_watch lines[LIMITS_LOG_LINES];
    struct limiter *l = &e->limiter;
    size_t count;

    mutex_lock(&l->watch_lock);
    count = lines_take(l, clock_now_ms(e->clock), lines);
    mutex_unlock(&l->watch_lock);
    for (size_t i = 0; i < count; i++)
        watch_log(&lines[i]);
}

/* ---- the report ---- */

static enum err states_write(struct limiter *l, struct arena *arena, struct limits_report *out,
                             struct errinfo *ei)
{
    const struct limit_set *set = l->set;
    size_t count = LIMIT_KIND_COUNT - 1 + (set == NULL ? 0 : set->limits.label_count);
    struct limit_state *states = ARENA_ARRAY(arena, count, struct limit_state);

    if (states == NULL)
        return arena_error(arena, ei);
    out->states = states;
    out->state_count = 0;
    for (uint32_t n = LIMIT_ACTIVE_SERIES; set != NULL && n <= count; n++) {
        struct limit_state *at = &states[out->state_count];

        if (n == LIMIT_SERIES_PER_LABEL_VALUE)
            continue;
        *at = (struct limit_state){
            .kind = n < LIMIT_KIND_COUNT ? (enum limit_kind)n : LIMIT_SERIES_PER_LABEL_VALUE,
            .refusals = atomic_load_explicit(&l->refusals[n], memory_order_relaxed),
            .samples_refused = atomic_load_explicit(&l->samples_refused[n], memory_order_relaxed),
            .warnings = atomic_load_explicit(&l->warnings[n], memory_order_relaxed),
        };
        if (n < LIMIT_KIND_COUNT) {
            at->limit = set->limits.items[n];
        } else {
            const struct label_limit *label = &set->limits.labels[n - LIMIT_KIND_COUNT];

            at->limit = label->limit;
            at->label.size = label->label.size;
            at->label.data = arena_memdup0(arena, label->label.data, label->label.size);
            if (at->label.data == NULL)
                return arena_error(arena, ei);
        }
        out->state_count++;
    }
    return ERR_OK;
}

static int by_time(const void *a, const void *b)
{
    int64_t at = ((const struct limit_offender *)a)->last_ms;
    int64_t bt = ((const struct limit_offender *)b)->last_ms;

    return (at < bt) - (at > bt);
}

static bool offender_write(struct arena *arena, const struct limit_watch *w,
                           struct limit_offender *out)
{
    *out = (struct limit_offender){
        .kind = w->number < LIMIT_KIND_COUNT ? (enum limit_kind)w->number
                                             : LIMIT_SERIES_PER_LABEL_VALUE,
        .label = {arena_memdup0(arena, w->label, w->label_size), w->label_size},
        .value = {arena_memdup0(arena, w->value, w->value_size), w->value_size},
        .series = w->series,
        .refusals = w->refusals,
        .last_ms = w->last_ms,
    };
    return out->label.data != NULL && out->value.data != NULL;
}

static enum err offenders_write(struct limiter *l, struct arena *arena, struct limits_report *out,
                                struct errinfo *ei)
{
    struct limit_offender *items = ARENA_ARRAY(arena, LIMIT_OFFENDERS_MAX, struct limit_offender);
    bool ok = items != NULL;

    out->offenders = items;
    out->offender_count = 0;
    mutex_lock(&l->watch_lock);
    for (size_t i = 0; i < LIMIT_OFFENDERS_MAX && ok; i++) {
        if (l->watches[i].number == 0)
            continue;
        ok = offender_write(arena, &l->watches[i], &items[out->offender_count]);
        out->offender_count += ok;
    }
    mutex_unlock(&l->watch_lock);
    if (!ok)
        return arena_error(arena, ei);
    qsort(items, out->offender_count, sizeof *items, by_time);
    return ERR_OK;
}

enum err engine_limits_report(struct engine *e, struct arena *arena, struct limits_report *out,
                              struct errinfo *ei)
{
    struct limiter *l = &e->limiter;
    struct limits_report report = {.active_series = limits_active_series(l)};
    enum err err;

    rwlock_read_lock(&l->lock);
    err = states_write(l, arena, &report, ei);
    rwlock_read_unlock(&l->lock);
    if (err == ERR_OK)
        err = offenders_write(l, arena, &report, ei);
    if (err == ERR_OK)
        *out = report;
    return err;
}
