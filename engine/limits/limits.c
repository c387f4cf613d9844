/*
 * Limits at work: who is let in, who is not, and how limits are exchanged.
 */
#include "engine/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/engine_internal.h"
#include "engine/limits/limits_internal.h"

enum { WARN_EVERY = 1024, KEYS_SWEEP_MS = 10 * 60 * 1000, EXPIRY_MASK = (1 << 26) - 1 };

static const char *const kind_names[LIMIT_KIND_COUNT] = {
    [LIMIT_STORE] = "store",
    [LIMIT_ACTIVE_SERIES] = "active_series",
    [LIMIT_SERIES_PER_METRIC] = "series_per_metric",
    [LIMIT_SERIES_PER_LABEL_VALUE] = "series_per_label_value",
    [LIMIT_LABELS_PER_SERIES] = "labels_per_series",
    [LIMIT_LABEL_NAME_BYTES] = "label_name_bytes",
    [LIMIT_LABEL_VALUE_BYTES] = "label_value_bytes",
    [LIMIT_SAMPLES_PER_REQUEST] = "samples_per_request",
};

const char *limit_kind_name(enum limit_kind kind)
{
    return (unsigned)kind < LIMIT_KIND_COUNT ? kind_names[kind] : "unknown";
}

const char *limits_number_name(uint32_t number)
{
    return limit_kind_name(number < LIMIT_KIND_COUNT ? (enum limit_kind)number
                                                     : LIMIT_SERIES_PER_LABEL_VALUE);
}

void limits_defaults(struct limits *out)
{
    *out = (struct limits){.items = {[LIMIT_LABELS_PER_SERIES] = {.max = 64},
                                     [LIMIT_LABEL_NAME_BYTES] = {.max = 1024},
                                     [LIMIT_LABEL_VALUE_BYTES] = {.max = 4096},
                                     [LIMIT_SAMPLES_PER_REQUEST] = {.max = 100000}}};
}

void limiter_init(struct limiter *l)
{
    rwlock_init(&l->lock);
    mutex_init(&l->watch_lock);
    mutex_init(&l->recount_lock);
    atomic_init(&l->request_max, UINT64_MAX);
}

/* ---- sets ---- */

static void table_free(struct limit_table *t)
{
    if (t == NULL)
        return;
    limit_counts_done(&t->counts);
    free(t);
}

/* Frees a set, and its tables but those that `heir` has too. */
static void set_free(struct limit_set *set, const struct limit_set *heir)
{
    if (set == NULL)
        return;
    for (size_t i = 0; set->tables != NULL && i < set->table_count; i++) {
        bool is_kept = false;

        for (size_t k = 0; heir != NULL && heir->tables != NULL && k < heir->table_count; k++)
            is_kept = is_kept || heir->tables[k] == set->tables[i];
        if (!is_kept)
            table_free(set->tables[i]);
    }
    free(set->tables);
    arena_done(&set->texts);
    free(set);
}

void limiter_done(struct limiter *l)
{
    set_free(l->set, NULL);
    mutex_done(&l->recount_lock);
    mutex_done(&l->watch_lock);
    rwlock_done(&l->lock);
}

static bool is_on(const struct limit *limit)
{
    return limit->max > 0 || limit->warn > 0;
}

static struct limit_table *table_find(const struct limit_set *set, struct str label)
{
    for (size_t i = 0; set != NULL && i < set->table_count; i++)
        if (str_equal(set->tables[i]->label, label))
            return set->tables[i];
    return NULL;
}

/* A table for a label of `set`: that of the set before, or a new one, whose series are counted. */
static enum err table_put(struct engine *e, struct limit_set *set, struct str label,
                          struct errinfo *ei)
{
    struct limit_table *t = table_find(e->limiter.set, label);
    enum err err = ERR_OK;

    if (t == NULL) {
        t = calloc(1, sizeof *t);
        if (t == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "limits");
        limit_counts_init(&t->counts, e->memory);
        t->label = label;
        if (e->limiter.is_counting)
            err = limits_count_label(e, t, ei);
    }
    ASSERT(set->tables != NULL);
    set->tables[set->table_count++] = t;
    return err;
}

static enum err set_new(const struct limits *limits, struct limit_set **out, struct errinfo *ei)
{
    struct limit_set *set = calloc(1, sizeof *set);
    struct label_limit *labels;

    if (set == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "limits");
    arena_init(&set->texts, NULL);
    labels = ARENA_ARRAY(&set->texts, limits->label_count, struct label_limit);
    set->tables = calloc(limits->label_count + 1, sizeof(struct limit_table *));
    if (labels == NULL || set->tables == NULL)
        goto no_memory;
    for (size_t i = 0; i < limits->label_count; i++) {
        struct str from = limits->labels[i].label;

        labels[i] = limits->labels[i];
        labels[i].label.data = arena_memdup0(&set->texts, from.data, from.size);
        if (labels[i].label.data == NULL)
            goto no_memory;
    }
    set->limits = *limits;
    set->limits.labels = labels;
    *out = set;
    return ERR_OK;
no_memory:
    set_free(set, NULL);
    return errinfo_set(ei, ERR_NOMEM, 0, "limits");
}

/* Numbers of label limits mean other labels from now on: what was counted stays in their sum. */
static void label_figures_fold(struct limiter *l)
{
    for (uint32_t i = LIMIT_KIND_COUNT; i < LIMIT_NUMBER_MAX; i++) {
        _Atomic uint64_t *figures[] = {l->refusals, l->samples_refused, l->warnings};

        for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
            atomic_fetch_add_explicit(
                &figures[k][LIMIT_SERIES_PER_LABEL_VALUE],
                atomic_exchange_explicit(&figures[k][i], 0, memory_order_relaxed),
                memory_order_relaxed);
    }
}

static bool labels_differ(const struct limit_set *old, const struct limit_set *set)
{
    if (old == NULL || old->limits.label_count != set->limits.label_count)
        return true;
    for (size_t i = 0; i < set->limits.label_count; i++)
        if (!str_equal(old->limits.labels[i].label, set->limits.labels[i].label))
            return true;
    return false;
}

static void set_publish(struct limiter *l, struct limit_set *set)
{
    struct limit_set *old = l->set;
    uint64_t request_max = set->limits.items[LIMIT_SAMPLES_PER_REQUEST].max;

    if (labels_differ(old, set)) {
        label_figures_fold(l);
        /* Watches name label limits by number too. */
        mutex_lock(&l->watch_lock);
        memset(l->watches, 0, sizeof l->watches);
        mutex_unlock(&l->watch_lock);
    }
    for (size_t i = 0; i < set->table_count; i++) {
        struct limit_table *t = set->tables[i];

        ASSERT(t != NULL);
        t->number = LIMIT_SERIES_PER_METRIC;
        for (size_t k = 0; k < set->limits.label_count; k++) {
            if (str_equal(set->limits.labels[k].label, t->label)) {
                t->number = LIMIT_KIND_COUNT + (uint32_t)k;
                t->label = set->limits.labels[k].label;
            }
        }
    }
    l->set = set;
    atomic_store_explicit(&l->request_max, request_max == 0 ? UINT64_MAX : request_max,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&l->version, 1, memory_order_relaxed);
    set_free(old, set);
}

enum err engine_limits_apply(struct engine *e, const struct limits *limits, struct errinfo *ei)
{
    struct limiter *l = &e->limiter;
    struct limit_set *set = NULL;
    enum err err;

    if (limits->label_count > LIMITS_LABELS_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "limits of more than %d labels",
                           (int)LIMITS_LABELS_MAX);
    err = set_new(limits, &set, ei);
    if (err != ERR_OK)
        return err;
    ASSERT(set != NULL);
    rwlock_write_lock(&l->lock);
    if (is_on(&limits->items[LIMIT_SERIES_PER_METRIC]))
        err = table_put(e, set, LABEL_METRIC_NAME, ei);
    for (size_t i = 0; i < set->limits.label_count && err == ERR_OK; i++)
        if (is_on(&set->limits.labels[i].limit))
            err = table_put(e, set, set->limits.labels[i].label, ei);
    if (err == ERR_OK)
        set_publish(l, set);
    else
        set_free(set, l->set);
    rwlock_write_unlock(&l->lock);
    return err;
}

enum err limits_replayed(struct engine *e, struct errinfo *ei)
{
    struct limiter *l = &e->limiter;
    uint64_t series = 0;
    enum err err = ERR_OK;

    rwlock_write_lock(&l->lock);
    for (uint32_t i = 0; i < e->shard_count; i++)
        series += atomic_load_explicit(&e->shards[i].series_count, memory_order_relaxed);
    atomic_store_explicit(&l->series, series, memory_order_relaxed);
    l->is_counting = true;
    for (size_t i = 0; l->set != NULL && i < l->set->table_count && err == ERR_OK; i++)
        err = limits_count_label(e, l->set->tables[i], ei);
    rwlock_write_unlock(&l->lock);
    return err;
}

/* ---- being let in ---- */

static const struct limit *limit_of(const struct limit_set *set, uint32_t number)
{
    return number < LIMIT_KIND_COUNT ? &set->limits.items[number]
                                     : &set->limits.labels[number - LIMIT_KIND_COUNT].limit;
}

static bool is_past(const struct limit_set *set, enum limit_kind kind, uint64_t size,
                    struct limit_verdict *v)
{
    uint64_t max = set->limits.items[kind].max;

    if (max == 0 || size <= max)
        return false;
    *v = (struct limit_verdict){.number = kind, .max = max};
    return true;
}

static enum err sizes_check(const struct limit_set *set, const struct labels *labels,
                            struct limit_verdict *v)
{
    if (is_past(set, LIMIT_LABELS_PER_SERIES, labels->count, v)) {
        v->value = labels_get(labels, LABEL_METRIC_NAME);
        v->label = LABEL_METRIC_NAME;
        return ERR_LIMIT;
    }
    for (size_t i = 0; i < labels->count; i++) {
        if (is_past(set, LIMIT_LABEL_NAME_BYTES, labels->items[i].name.size, v) ||
            is_past(set, LIMIT_LABEL_VALUE_BYTES, labels->items[i].value.size, v)) {
            v->label = labels->items[i].name;
            return ERR_LIMIT;
        }
    }
    return ERR_OK;
}

/* The watch of a limit and value, made if it is not there; watch_lock held. */
static struct limit_watch *watch_get(struct limiter *l, uint32_t number, uint64_t key)
{
    struct limit_watch *oldest = &l->watches[0];

    for (size_t i = 0; i < LIMIT_OFFENDERS_MAX; i++) {
        struct limit_watch *w = &l->watches[i];

        if (w->number == number && w->key == key)
            return w;
        if (oldest->number != 0 && (w->number == 0 || w->last_ms < oldest->last_ms))
            oldest = w;
    }
    *oldest = (struct limit_watch){.number = number, .key = key};
    return oldest;
}

/* Copies a text, cut between characters. */
static uint16_t text_copy(char out[LIMIT_TEXT_SIZE], struct str text)
{
    size_t size = text.size < LIMIT_TEXT_SIZE ? text.size : LIMIT_TEXT_SIZE;

    while (size > 0 && size < text.size && ((uint8_t)text.data[size] & 0xc0) == 0x80)
        size--;
    if (size > 0)
        memcpy(out, text.data, size);
    return (uint16_t)size;
}

uint64_t limits_watch_key(const struct engine *e, const struct limit_verdict *v)
{
    return v->value.size == 0 ? hash64_bytes(&e->secret, v->label.data, v->label.size)
                              : limits_key_of(e, v->value);
}

static void watch_note(struct engine *e, struct limit_watch *w, const struct limit_verdict *v)
{
    if (w->label_size == 0) {
        w->label_size = text_copy(w->label, v->label);
        w->value_size = text_copy(w->value, v->value);
    }
    w->series = v->series;
    w->max = v->max;
    w->last_ms = clock_now_ms(e->clock);
}

/* Called when a series was let in above the threshold: now and then is enough. */
static void threshold_note(struct engine *e, const struct limit *limit,
                           const struct limit_verdict *v)
{
    struct limiter *l = &e->limiter;
    struct limit_watch *w;

    if (limit->warn == 0 || v->series < limit->warn || (v->series - limit->warn) % WARN_EVERY != 0)
        return;
    mutex_lock(&l->watch_lock);
    w = watch_get(l, v->number, limits_watch_key(e, v));
    watch_note(e, w, v);
    w->is_warning = true;
    mutex_unlock(&l->watch_lock);
}

uint64_t limits_active_series(const struct limiter *l)
{
    uint64_t series = atomic_load_explicit(&l->series, memory_order_relaxed);
    uint64_t ended = atomic_load_explicit(&l->ended, memory_order_relaxed);

    return series > ended ? series - ended : 0;
}

static enum err active_take(struct engine *e, const struct limit_set *set, struct limit_verdict *v)
{
    struct limiter *l = &e->limiter;
    const struct limit *limit = &set->limits.items[LIMIT_ACTIVE_SERIES];
    uint64_t before = atomic_load_explicit(&l->series, memory_order_relaxed), active;

    do {
        uint64_t ended = atomic_load_explicit(&l->ended, memory_order_relaxed);

        active = before > ended ? before - ended : 0;
        if (limit->max > 0 && active >= limit->max) {
            *v = (struct limit_verdict){
                .number = LIMIT_ACTIVE_SERIES, .max = limit->max, .series = active};
            return ERR_LIMIT;
        }
    } while (!atomic_compare_exchange_weak_explicit(&l->series, &before, before + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    const struct limit_verdict in = {
        .number = LIMIT_ACTIVE_SERIES, .max = limit->max, .series = active + 1};
    threshold_note(e, limit, &in);
    return ERR_OK;
}

/* A label's name as the series has it: the set's goes with its lock. */
static struct str name_in(const struct labels *labels, struct str name)
{
    for (size_t i = 0; i < labels->count; i++)
        if (str_equal(labels->items[i].name, name))
            return labels->items[i].name;
    return (struct str){"", 0};
}

/* Counts the series out of the first tables. */
static void tables_drop(struct engine *e, const struct limit_set *set, size_t count,
                        const struct labels *labels)
{
    for (size_t i = 0; i < count; i++) {
        struct str value = labels_get(labels, set->tables[i]->label);

        if (value.size > 0)
            limit_counts_drop(&set->tables[i]->counts, limits_key_of(e, value));
    }
}

static enum err tables_take(struct engine *e, const struct limit_set *set,
                            const struct labels *labels, struct limit_verdict *v)
{
    for (size_t i = 0; i < set->table_count; i++) {
        struct limit_table *t = set->tables[i];
        const struct limit *limit = limit_of(set, t->number);
        struct limit_verdict at = {.number = t->number, .max = limit->max, .label = t->label};
        enum err err;

        at.value = labels_get(labels, t->label);
        if (at.value.size == 0)
            continue;
        err = limit_counts_take(&t->counts, limits_key_of(e, at.value), limit->max, &at.series);
        if (err != ERR_OK) {
            tables_drop(e, set, i, labels);
            *v = at;
            return err;
        }
        threshold_note(e, limit, &at);
    }
    return ERR_OK;
}

enum err limits_admit(struct engine *e, const struct labels *labels, struct limit_verdict *verdict)
{
    struct limiter *l = &e->limiter;
    enum err err;

    rwlock_read_lock(&l->lock);
    if (l->set == NULL) {
        atomic_fetch_add_explicit(&l->series, 1, memory_order_relaxed);
        return ERR_OK;
    }
    err = sizes_check(l->set, labels, verdict);
    if (err == ERR_OK)
        err = active_take(e, l->set, verdict);
    if (err == ERR_OK) {
        err = tables_take(e, l->set, labels, verdict);
        if (err != ERR_OK)
            atomic_fetch_sub_explicit(&l->series, 1, memory_order_relaxed);
    }
    if (err == ERR_LIMIT)
        verdict->label = name_in(labels, verdict->label);
    if (err != ERR_OK)
        rwlock_read_unlock(&l->lock);
    return err;
}

void limits_settle(struct engine *e)
{
    rwlock_read_unlock(&e->limiter.lock);
}

void limits_withdraw(struct engine *e, const struct labels *labels)
{
    struct limiter *l = &e->limiter;

    atomic_fetch_sub_explicit(&l->series, 1, memory_order_relaxed);
    if (l->set != NULL)
        tables_drop(e, l->set, l->set->table_count, labels);
    rwlock_read_unlock(&l->lock);
}

/* ---- the end of series ---- */

void limits_end_begin(struct engine *e)
{
    rwlock_read_lock(&e->limiter.lock);
}

static void ended_lower(struct limiter *l, uint64_t count)
{
    uint64_t ended = atomic_load_explicit(&l->ended, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&l->ended, &ended,
                                                  ended > count ? ended - count : 0,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void limits_end(struct engine *e, struct shard *s, const uint32_t *slots, size_t count)
{
    enum { GROUP = 256 };
    struct limiter *l = &e->limiter;
    struct str values[GROUP];

    for (size_t i = 0; l->set != NULL && i < l->set->table_count; i++) {
        struct limit_table *t = l->set->tables[i];

        for (size_t first = 0; first < count; first += GROUP) {
            size_t n = count - first < GROUP ? count - first : GROUP;

            index_values_of(s->index, slots + first, n, &t->label, 1, values);
            for (size_t k = 0; k < n; k++)
                if (values[k].size > 0)
                    limit_counts_drop(&t->counts, limits_key_of(e, values[k]));
        }
    }
    atomic_fetch_add_explicit(&l->end_count, count, memory_order_relaxed);
    /* First the smaller number: nobody may see more room than there is. */
    ended_lower(l, count);
    atomic_fetch_sub_explicit(&l->series, count, memory_order_relaxed);
    rwlock_read_unlock(&l->lock);
}

/* ---- refused ---- */

bool limits_refused(struct engine *e, const struct limit_verdict *verdict)
{
    struct limiter *l = &e->limiter;
    struct limit_watch *w;

    atomic_fetch_add_explicit(&l->refusals[verdict->number], 1, memory_order_relaxed);
    mutex_lock(&l->watch_lock);
    w = watch_get(l, verdict->number, limits_watch_key(e, verdict));
    watch_note(e, w, verdict);
    w->refusals++;
    mutex_unlock(&l->watch_lock);
    return verdict->series > 0 && limits_recount(e, verdict);
}

void limits_count_samples(struct engine *e, uint32_t number, uint64_t samples)
{
    atomic_fetch_add_explicit(&e->limiter.samples_refused[number], samples, memory_order_relaxed);
}

static uint32_t clock_s(const struct engine *e)
{
    return (uint32_t)(uint64_t)(clock_now_ms(e->clock) / 1000) & EXPIRY_MASK;
}

static uint16_t key_tag(const struct engine *e, uint32_t number)
{
    uint32_t version = atomic_load_explicit(&e->limiter.version, memory_order_relaxed);

    return (uint16_t)((version & 0xff) << 8 | number);
}

uint64_t limits_key_make(struct engine *e, uint64_t salt, uint32_t number)
{
    uint32_t wait = LIMIT_EXPIRY_LEAST_S + (uint32_t)(salt % LIMIT_EXPIRY_SPREAD_S);

    return front_target_refused((clock_s(e) + wait) & EXPIRY_MASK, key_tag(e, number));
}

bool limits_key_holds(const struct engine *e, uint64_t target, uint32_t *number)
{
    uint32_t left = (front_target_slot(target) - clock_s(e)) & EXPIRY_MASK;

    *number = front_target_generation(target) & 0xff;
    /* A clock that was set back or ahead ends it as well. */
    return left > 0 && left <= LIMIT_EXPIRY_LEAST_S + LIMIT_EXPIRY_SPREAD_S &&
           front_target_generation(target) == key_tag(e, *number);
}

void limits_keys_expire(struct engine *e)
{
    atomic_fetch_add_explicit(&e->limiter.version, 1, memory_order_relaxed);
}

void limits_key_count(struct engine *e, int more)
{
    _Atomic uint64_t *keys = &e->limiter.refused_keys;
    uint64_t before = atomic_load_explicit(keys, memory_order_relaxed), after;

    do {
        /* Two requests may count the same key, and a sweep counts anew: it never wraps. */
        after = more > 0 ? before + 1 : before - (before > 0);
    } while (!atomic_compare_exchange_weak_explicit(keys, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void limits_keys_swept(struct engine *e, uint64_t kept)
{
    atomic_store_explicit(&e->limiter.refused_keys, kept, memory_order_relaxed);
    atomic_store_explicit(&e->limiter.keys_swept_ms, clock_now_ms(e->clock), memory_order_relaxed);
}

uint64_t limits_keys_worn(const struct engine *e)
{
    const struct limiter *l = &e->limiter;
    int64_t age_ms =
        clock_now_ms(e->clock) - atomic_load_explicit(&l->keys_swept_ms, memory_order_relaxed);

    return age_ms >= 0 && age_ms < KEYS_SWEEP_MS
               ? 0
               : atomic_load_explicit(&l->refused_keys, memory_order_relaxed);
}

bool limits_key_allowed(struct engine *e)
{
    const struct limiter *l = &e->limiter;
    uint64_t memory = e->memory_limit == NULL ? UINT64_MAX : e->memory_limit->limit_bytes;
    uint64_t free_keys = memory == UINT64_MAX ? LIMIT_KEYS_UNLIMITED : memory / LIMIT_KEY_MEMORY;

    if (free_keys < LIMIT_KEYS_LEAST)
        free_keys = LIMIT_KEYS_LEAST;
    return atomic_load_explicit(&l->refused_keys, memory_order_relaxed) <
           free_keys + atomic_load_explicit(&l->series, memory_order_relaxed) / LIMIT_KEYS_SHARE;
}

/* The label that is too long, or the first of all. */
static const struct label *long_label(const struct labels *labels, uint32_t number, uint64_t max)
{
    for (size_t i = 0; i < labels->count; i++) {
        const struct label *at = &labels->items[i];

        if ((number == LIMIT_LABEL_NAME_BYTES ? at->name.size : at->value.size) > max)
            return at;
    }
    return NULL;
}

void limits_describe(struct engine *e, uint32_t number, const struct labels *labels, char *out,
                     size_t size)
{
    struct limiter *l = &e->limiter;
    const char *name = limits_number_name(number);
    struct str label = {"", 0}, value = {"", 0};
    uint64_t max = 0;

    rwlock_read_lock(&l->lock);
    if (l->set != NULL &&
        (number < LIMIT_KIND_COUNT || number - LIMIT_KIND_COUNT < l->set->limits.label_count))
        max = limit_of(l->set, number)->max;
    if (number == LIMIT_SERIES_PER_METRIC)
        label = LABEL_METRIC_NAME;
    else if (number >= LIMIT_KIND_COUNT && max > 0)
        label = name_in(labels, l->set->limits.labels[number - LIMIT_KIND_COUNT].label);
    rwlock_read_unlock(&l->lock);
    value = labels_get(labels, label);
    if (max == 0) {
        (void)snprintf(out, size, "%s", name);
    } else if (value.size > 0) {
        (void)snprintf(out, size, "%s: max %" PRIu64 " of %.*s=\"%.*s\"", name, max,
                       (int)(label.size < 64 ? label.size : 64), label.data,
                       (int)(value.size < 64 ? value.size : 64), value.data);
    } else if (number == LIMIT_LABEL_NAME_BYTES || number == LIMIT_LABEL_VALUE_BYTES) {
        const struct label *at = long_label(labels, number, max);

        label = at == NULL ? label : at->name;
        (void)snprintf(out, size, "%s: max %" PRIu64 ", label %.*s", name, max,
                       (int)(label.size < 64 ? label.size : 64), label.data);
    } else {
        (void)snprintf(out, size, "%s: max %" PRIu64, name, max);
    }
}
