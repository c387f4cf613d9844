/*
 * What queries read, in memory: the two tables of usage_internal.h under one lock, which is held
 * for a look-up and some additions; selectors are looked up without it.
 */
#include "api/usage/usage_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/querier.h"

enum {
    NAMES_FIRST = 256,
    NAMES_LEAVE_SHARE = 16, /* of them go at once when there is no room */
    EXPANSION_SLACK_MS = 10 * 60 * 1000,
    SECOND_MS = 1000,
    READING_NAMES_MAX = USAGE_NAMES_MAX / 2, /* of one text */
};

static const char *const kind_names[USAGE_KIND_COUNT] = {
    [USAGE_QUERY] = "query",
    [USAGE_QUERY_RANGE] = "query_range",
    [USAGE_SERIES] = "series",
    [USAGE_LABELS] = "labels",
    [USAGE_EXEMPLARS] = "query_exemplars",
    [USAGE_REMOTE_READ] = "remote_read",
    [USAGE_FEDERATE] = "federate",
};

const char *usage_kind_name(enum usage_kind kind)
{
    return (unsigned)kind < USAGE_KIND_COUNT ? kind_names[kind] : "unknown";
}

struct query_entry_names {
    uint32_t *ids; /* owned */
    size_t count;
    uint64_t generation; /* of the names' numbers */
    bool is_pattern;     /* they were looked up, and may be others now */
    int64_t at_ms, min_time_ms, max_time_ms;
};

struct kept_query {
    uint64_t hash;
    struct usage_query q; /* its text is owned */
    struct query_entry_names names;
};

struct usage {
    const struct clock *clock;
    struct fs *fs;
    struct hash_secret secret;
    struct mutex lock; /* a leaf; guards the rest */
    uint32_t since_s, complete_since_s;
    struct usage_name *names; /* owned, their texts too */
    uint32_t name_count, name_capacity;
    uint32_t *places; /* owned: number + 1 by hash, 0: free; twice the capacity */
    uint64_t generation;
    struct kept_query queries[USAGE_QUERIES_MAX];
    size_t query_count;
    uint64_t changes, saved_changes;
};

static uint32_t now_s(const struct usage *u)
{
    int64_t now_ms = clock_now_ms(u->clock);

    return now_ms < 0 ? 0 : (uint32_t)(now_ms / SECOND_MS);
}

/* ---- names ---- */

static uint32_t place_of(const struct usage *u, struct str name)
{
    uint32_t mask = 2 * u->name_capacity - 1;
    uint32_t at = (uint32_t)hash64_bytes(&u->secret, name.data, name.size) & mask;

    while (u->places[at] != 0 && !str_equal(u->names[u->places[at] - 1].name, name))
        at = (at + 1) & mask;
    return at;
}

static void places_fill(struct usage *u)
{
    memset(u->places, 0, 2 * (size_t)u->name_capacity * sizeof *u->places);
    for (uint32_t i = 0; i < u->name_count; i++)
        u->places[place_of(u, u->names[i].name)] = i + 1;
}

static bool names_grow(struct usage *u)
{
    uint32_t capacity = u->name_capacity == 0 ? NAMES_FIRST : 2 * u->name_capacity;
    uint32_t *places = calloc(2 * (size_t)capacity, sizeof *places);
    struct usage_name *names = reallocarray(u->names, capacity, sizeof *names);

    if (names != NULL)
        u->names = names;
    if (names == NULL || places == NULL) {
        free(places);
        return false;
    }
    free(u->places);
    u->places = places;
    u->name_capacity = capacity;
    places_fill(u);
    return true;
}

static int seconds_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Those that were not read for longest go. */
static bool names_leave(struct usage *u)
{
    uint32_t *times = calloc(u->name_count + (size_t)1, sizeof *times), limit, kept = 0;

    if (times == NULL)
        return false;
    for (uint32_t i = 0; i < u->name_count; i++)
        times[i] = u->names[i].newest_s;
    qsort(times, u->name_count, sizeof *times, seconds_compare);
    limit = times[u->name_count / NAMES_LEAVE_SHARE];
    free(times);
    for (uint32_t i = 0; i < u->name_count; i++) {
        if (u->names[i].newest_s <= limit)
            free((char *)u->names[i].name.data);
        else
            u->names[kept++] = u->names[i];
    }
    u->name_count = kept;
    u->complete_since_s = limit + 1;
    u->generation++;
    places_fill(u);
    return true;
}

/* The number of a name, which is added if it is not there; false when memory is short. */
static bool name_number(struct usage *u, struct str name, uint32_t *out)
{
    uint32_t place;
    char *copy;

    if (u->name_capacity > 0) {
        place = place_of(u, name);
        if (u->places[place] != 0) {
            *out = u->places[place] - 1;
            return true;
        }
    }
    if (u->name_count == USAGE_NAMES_MAX)
        return false;
    if (u->name_count == u->name_capacity && !names_grow(u))
        return false;
    copy = malloc(name.size);
    if (copy == NULL)
        return false;
    memcpy(copy, name.data, name.size);
    *out = u->name_count++;
    u->names[*out] = (struct usage_name){.name = {copy, name.size}};
    u->places[place_of(u, u->names[*out].name)] = *out + 1;
    return true;
}

static void name_count(struct usage_name *n, enum usage_kind kind, uint32_t at_s)
{
    n->count[kind] += n->count[kind] < UINT32_MAX;
    n->last_s[kind] = at_s;
    n->newest_s = at_s;
}

/* ---- what a text reads ---- */

struct reading {
    struct arena arena;
    const struct usage_read *read;
    struct querier *querier; /* NULL before it is needed */
    struct str *names;
    size_t count;
    bool is_pattern;
    enum err err;
};

static void reading_add(struct reading *r, struct str name)
{
    struct str *grown;

    if (r->count == READING_NAMES_MAX)
        return;
    for (size_t i = 0; i < r->count && r->count < 64; i++)
        if (str_equal(r->names[i], name))
            return; /* a query names the same metric often; long lists come without repeats */
    grown = arena_grow_array(&r->arena, r->names, r->count, r->count + 1, sizeof *grown);
    if (grown == NULL) {
        r->err = ERR_NOMEM;
        return;
    }
    grown[r->count++] = name;
    r->names = grown;
}

static bool name_fits(const struct matcher_set *set, struct str name)
{
    for (size_t i = 0; i < set->count; i++)
        if (str_equal(set->items[i].name, LABEL_METRIC_NAME) &&
            !matcher_matches(&set->items[i], name))
            return false;
    return true;
}

static bool is_of_names_only(const struct matcher_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (!str_equal(set->items[i].name, LABEL_METRIC_NAME))
            return false;
    return true;
}

/* The names of the series that a selector finds. */
static enum err names_find(struct reading *r, const struct matcher_set *set, int64_t back_ms,
                           struct str_list *out)
{
    const struct usage_read *read = r->read;
    bool truncated, all = is_of_names_only(set);
    int64_t min_ms = read->min_time_ms - back_ms;
    enum err e;

    if (r->querier == NULL) {
        e = querier_open(read->engine, &r->querier, NULL);
        if (e != ERR_OK)
            return e;
        querier_set_stop(r->querier, read->stop);
        querier_set_deadline(r->querier, clock_mono_ns() + USAGE_EXPAND_MS * UINT64_C(1000000));
    }
    /* Names alone are asked for at once: the dictionary has them. */
    e = querier_label_values(r->querier, LABEL_METRIC_NAME, set, all ? 0 : 1, min_ms,
                             read->max_time_ms, USAGE_NAMES_MAX, &r->arena, out, &truncated, NULL);
    if (e != ERR_TIMEOUT && e != ERR_LIMIT)
        return e;
    /* Too much to look at: whatever it could mean counts, so that nothing in use is taken for
     * unused. */
    querier_set_deadline(r->querier, 0);
    return querier_label_values(r->querier, LABEL_METRIC_NAME, NULL, 0, min_ms, read->max_time_ms,
                                USAGE_NAMES_MAX, &r->arena, out, &truncated, NULL);
}

static void reading_matchers(struct reading *r, const struct matcher *matchers, size_t count,
                             int64_t back_ms)
{
    const struct matcher_set set = {matchers, count};
    struct str_list names = {0};

    for (size_t i = 0; i < count; i++) {
        const struct matcher *m = &matchers[i];

        if (m->kind == MATCHER_EQUAL && m->value.size > 0 &&
            str_equal(m->name, LABEL_METRIC_NAME)) {
            if (m->value.size <= USAGE_NAME_MAX)
                reading_add(r, m->value);
            return;
        }
    }
    r->is_pattern = true;
    r->err = names_find(r, &set, back_ms, &names);
    for (size_t i = 0; i < names.count && r->err == ERR_OK; i++)
        if (names.items[i].size <= USAGE_NAME_MAX && name_fits(&set, names.items[i]))
            reading_add(r, names.items[i]);
}

static void visit_selector(void *ctx, const struct promql_selector *selector)
{
    struct reading *r = ctx;

    if (r->err != ERR_OK)
        return;
    if (selector->is_target_info)
        reading_add(r, STR_LITERAL("target_info"));
    else
        reading_matchers(r, selector->node->u.selector.matchers,
                         selector->node->u.selector.matcher_count, selector->back_ms);
}

static void reading_query(struct reading *r)
{
    struct promql_expr *expr = NULL;

    r->err = promql_parse(r->read->text, r->read->language, &r->arena, &expr, NULL);
    if (r->err == ERR_OK)
        promql_selectors_visit(expr, visit_selector, r);
    promql_expr_done(expr);
}

static void reading_selector(struct reading *r)
{
    struct matcher *matchers = NULL;
    size_t count = 0;

    r->err = promql_parse_selector(r->read->text, &r->arena, &matchers, &count, NULL);
    if (r->err != ERR_OK)
        return;
    reading_matchers(r, matchers, count, 0);
    for (size_t i = 0; i < count; i++)
        matcher_done(&matchers[i]);
}

static void reading_done(struct reading *r)
{
    querier_close(r->querier);
    arena_done(&r->arena);
}

/* ---- queries ---- */

static struct kept_query *query_find(struct usage *u, uint64_t hash, const struct usage_read *read)
{
    for (size_t i = 0; i < u->query_count; i++) {
        struct kept_query *k = &u->queries[i];

        if (k->hash == hash && k->q.is_selector == read->is_selector &&
            str_equal(k->q.text, read->text))
            return k;
    }
    return NULL;
}

/* Whether the names it had are those it reads. */
static bool is_known(const struct usage *u, const struct kept_query *k,
                     const struct usage_read *read)
{
    const struct query_entry_names *n = &k->names;
    int64_t age_ms = clock_now_ms(u->clock) - n->at_ms;

    if (n->generation != u->generation)
        return false;
    return !n->is_pattern || (age_ms >= 0 && age_ms < USAGE_EXPANSION_MS &&
                              read->min_time_ms >= n->min_time_ms - EXPANSION_SLACK_MS &&
                              read->max_time_ms <= n->max_time_ms + EXPANSION_SLACK_MS);
}

static void query_count(struct usage *u, struct kept_query *k, enum usage_kind kind)
{
    k->q.kind = kind;
    k->q.count += k->q.count < UINT32_MAX;
    k->q.last_s = now_s(u);
}

static void query_free(struct kept_query *k)
{
    free((char *)k->q.text.data);
    free(k->names.ids);
}

/* A place for a text that is not there; the one not asked for longest goes. NULL: no memory. */
static struct kept_query *query_add(struct usage *u, uint64_t hash, const struct usage_read *read)
{
    struct kept_query *k = &u->queries[0];
    char *copy = malloc(read->text.size + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, read->text.data, read->text.size);
    if (u->query_count < USAGE_QUERIES_MAX) {
        k = &u->queries[u->query_count++];
    } else {
        for (size_t i = 1; i < u->query_count; i++)
            if (u->queries[i].q.last_s < k->q.last_s)
                k = &u->queries[i];
        query_free(k);
    }
    *k = (struct kept_query){
        .hash = hash, .q = {.text = {copy, read->text.size}, .is_selector = read->is_selector}};
    return k;
}

static void ids_count(struct usage *u, const uint32_t *ids, size_t count, enum usage_kind kind)
{
    uint32_t at_s = now_s(u);

    for (size_t i = 0; i < count; i++)
        name_count(&u->names[ids[i]], kind, at_s);
    u->changes++;
}

/* Counts a text whose names have been found, and keeps them. Lock held. */
static void reading_enter(struct usage *u, const struct reading *r, uint64_t hash)
{
    const struct usage_read *read = r->read;
    uint32_t *ids = calloc(r->count + 1, sizeof *ids);
    struct kept_query *k = query_find(u, hash, read);
    size_t count = 0;

    if (ids == NULL)
        return;
    /* Before numbers are given out: they change when names leave. */
    while (u->name_count + r->count > USAGE_NAMES_MAX && names_leave(u)) {
    }
    for (size_t i = 0; i < r->count; i++)
        count += name_number(u, r->names[i], &ids[count]);
    ids_count(u, ids, count, read->kind);
    if (k == NULL && read->text.size <= USAGE_TEXT_MAX)
        k = query_add(u, hash, read);
    if (k == NULL) {
        free(ids);
        return;
    }
    free(k->names.ids);
    k->names = (struct query_entry_names){.ids = ids,
                                          .count = count,
                                          .generation = u->generation,
                                          .is_pattern = r->is_pattern,
                                          .at_ms = clock_now_ms(u->clock),
                                          .min_time_ms = read->min_time_ms,
                                          .max_time_ms = read->max_time_ms};
    query_count(u, k, read->kind);
}

void usage_note(struct usage *u, const struct usage_read *read)
{
    uint64_t hash = hash64_bytes(&u->secret, read->text.data, read->text.size);
    struct reading r = {.read = read};
    struct kept_query *k;
    bool known;

    mutex_lock(&u->lock);
    k = query_find(u, hash, read);
    known = k != NULL && is_known(u, k, read);
    if (known) {
        ids_count(u, k->names.ids, k->names.count, read->kind);
        query_count(u, k, read->kind);
    }
    mutex_unlock(&u->lock);
    if (known)
        return;
    arena_init(&r.arena, NULL);
    if (read->is_selector)
        reading_selector(&r);
    else
        reading_query(&r);
    /* Without memory or in the middle of a stop it counts for what was found until then. */
    if (r.err == ERR_OK || r.count > 0) {
        mutex_lock(&u->lock);
        reading_enter(u, &r, hash);
        mutex_unlock(&u->lock);
    }
    reading_done(&r);
}

/* ---- life ---- */

/* Takes over what the file has. */
static enum err file_take(struct usage *u, const struct usage_file *f)
{
    u->since_s = f->since_s;
    u->complete_since_s = f->complete_since_s;
    for (size_t i = 0; i < f->name_count && i < USAGE_NAMES_MAX; i++) {
        struct usage_name from = f->names[i];
        uint32_t number;

        if (!name_number(u, from.name, &number))
            return ERR_NOMEM;
        from.name = u->names[number].name;
        u->names[number] = from;
    }
    for (size_t i = 0; i < f->query_count && i < USAGE_QUERIES_MAX; i++) {
        const struct usage_query *q = &f->queries[i];
        const struct usage_read read = {.text = q->text, .is_selector = q->is_selector};
        struct kept_query *k =
            query_add(u, hash64_bytes(&u->secret, q->text.data, q->text.size), &read);

        if (k == NULL)
            return ERR_NOMEM;
        k->q.kind = q->kind;
        k->q.count = q->count;
        k->q.last_s = q->last_s;
        k->names.generation = UINT64_MAX; /* to be found anew */
    }
    return ERR_OK;
}

static enum err load(struct usage *u, struct errinfo *ei)
{
    struct usage_file f;
    struct bytes data;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL);
    e = usage_file_read(u->fs, &arena, &data, ei);
    if (e == ERR_OK)
        e = usage_file_decode(data.data, data.size, &arena, &f, ei);
    if (e == ERR_OK)
        e = file_take(u, &f);
    arena_done(&arena);
    return e;
}

enum err usage_new(const struct clock *clock, struct fs *fs, struct usage **out, struct errinfo *ei)
{
    struct usage *u = calloc(1, sizeof *u);
    struct errinfo story = {0};
    enum err e;

    if (u == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "usage of metrics");
    u->clock = clock;
    u->fs = fs;
    mutex_init(&u->lock);
    hash_secret_init(&u->secret, 0);
    u->since_s = u->complete_since_s = now_s(u);
    e = fs == NULL ? ERR_NOT_FOUND : load(u, &story);
    if (e == ERR_NOMEM) {
        usage_free(u);
        return errinfo_set(ei, ERR_NOMEM, 0, "usage of metrics");
    }
    if (e != ERR_OK && e != ERR_NOT_FOUND)
        LOG_WARN("what queries have read so far is not known: the file cannot be used",
                 LOG_STR("file", USAGE_PATH), LOG_STR("error", story.message));
    *out = u;
    return ERR_OK;
}

void usage_free(struct usage *u)
{
    if (u == NULL)
        return;
    for (uint32_t i = 0; i < u->name_count; i++)
        free((char *)u->names[i].name.data);
    for (size_t i = 0; i < u->query_count; i++)
        query_free(&u->queries[i]);
    free(u->names);
    free(u->places);
    mutex_done(&u->lock);
    free(u);
}

/* ---- out of it ---- */

static bool text_copy(struct arena *arena, struct str *text)
{
    text->data = arena_memdup0(arena, text->data, text->size);
    return text->data != NULL;
}

static int by_name(const void *a, const void *b)
{
    return str_compare(((const struct usage_name *)a)->name, ((const struct usage_name *)b)->name);
}

static int by_time(const void *a, const void *b)
{
    const struct usage_query *x = a, *y = b;

    if (x->last_s != y->last_s)
        return x->last_s < y->last_s ? 1 : -1;
    return str_compare(x->text, y->text);
}

/* Copies both tables; *changes is what they stood at. Lock held. */
static bool tables_copy(struct usage *u, struct arena *arena, struct usage_snapshot *out)
{
    bool ok;

    out->since_s = u->since_s;
    out->complete_since_s = u->complete_since_s;
    out->name_count = u->name_count;
    out->query_count = u->query_count;
    out->names = ARENA_ARRAY(arena, u->name_count, struct usage_name);
    out->queries = ARENA_ARRAY(arena, u->query_count, struct usage_query);
    ok = out->names != NULL && out->queries != NULL;
    for (uint32_t i = 0; i < u->name_count && ok; i++) {
        out->names[i] = u->names[i];
        ok = text_copy(arena, &out->names[i].name);
    }
    for (size_t i = 0; i < u->query_count && ok; i++) {
        out->queries[i] = u->queries[i].q;
        ok = text_copy(arena, &out->queries[i].text);
    }
    return ok;
}

enum err usage_snapshot(struct usage *u, struct arena *arena, struct usage_snapshot *out,
                        struct errinfo *ei)
{
    struct usage_snapshot s = {0};
    bool ok;

    mutex_lock(&u->lock);
    ok = tables_copy(u, arena, &s);
    mutex_unlock(&u->lock);
    if (!ok)
        return arena_error(arena, ei);
    qsort(s.names, s.name_count, sizeof *s.names, by_name);
    qsort(s.queries, s.query_count, sizeof *s.queries, by_time);
    *out = s;
    return ERR_OK;
}

enum err usage_save(struct usage *u, struct errinfo *ei)
{
    struct usage_snapshot s;
    struct arena arena;
    uint64_t changes;
    enum err e;

    mutex_lock(&u->lock);
    changes = u->changes;
    mutex_unlock(&u->lock);
    if (u->fs == NULL || changes == u->saved_changes)
        return ERR_OK;
    arena_init(&arena, NULL);
    e = usage_snapshot(u, &arena, &s, ei);
    if (e == ERR_OK) {
        const struct usage_file f = {.since_s = s.since_s,
                                     .complete_since_s = s.complete_since_s,
                                     .names = s.names,
                                     .name_count = s.name_count,
                                     .queries = s.queries,
                                     .query_count = s.query_count};

        e = usage_file_write(u->fs, &f, ei);
    }
    if (e == ERR_OK)
        u->saved_changes = changes;
    arena_done(&arena);
    return e;
}
