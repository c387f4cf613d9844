/*
 * load_with_nhcb: beside the classic histograms of a `load`, the native ones with custom buckets
 * that they stand for, under the base name and without `le`.
 *
 * Series belong together that have the same labels then: `x_bucket{le="..."}`, `x_count`, `x_sum`.
 * Each timestamp that any of them has makes one histogram. Bucket counts are cumulative; without a
 * `+Inf` bucket that is the count, without a count that is the highest bucket.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_text.h"
#include "tools/promqltest_internal.h"

enum role { ROLE_NONE, ROLE_BUCKET, ROLE_COUNT, ROLE_SUM };

/* A classic series with the histogram it belongs to. */
struct member {
    enum role role;
    double bound; /* of a bucket */
    struct labels base;
    const struct sequence *points;
};

/* Takes the suffix off *name. */
static enum role role_of(struct str *name)
{
    static const struct {
        const char *suffix;
        enum role role;
    } roles[] = {{"_bucket", ROLE_BUCKET}, {"_sum", ROLE_SUM}, {"_count", ROLE_COUNT}};

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        size_t n = strlen(roles[i].suffix);

        if (name->size < n || memcmp(name->data + name->size - n, roles[i].suffix, n) != 0)
            continue;
        name->size -= n;
        return roles[i].role;
    }
    return ROLE_NONE;
}

/* The labels without le, and with `name` for the metric. */
static enum err base_labels(const struct labels *from, struct str name, struct arena *arena,
                            struct labels *out, struct errinfo *ei)
{
    struct label *items = ARENA_ARRAY(arena, from->count, struct label);
    size_t n = 0;

    if (items == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < from->count; i++) {
        struct label l = from->items[i];

        if (str_equal(l.name, LABEL_METRIC_NAME))
            l.value = name;
        if (!str_equal(l.name, STR_LITERAL("le")) && l.value.size > 0)
            items[n++] = l;
    }
    *out = (struct labels){n, items};
    return ERR_OK;
}

/* Role ROLE_NONE for a series of no histogram: also a bucket whose bound is no number. */
static enum err member_init(struct member *m, const struct series_line *line, struct arena *arena,
                            struct errinfo *ei)
{
    struct str name = labels_get(&line->labels, LABEL_METRIC_NAME);

    *m = (struct member){.role = role_of(&name), .points = &line->points};
    if (m->role == ROLE_BUCKET &&
        (!float_parse(labels_get(&line->labels, STR_LITERAL("le")), &m->bound) || isnan(m->bound)))
        m->role = ROLE_NONE;
    return m->role == ROLE_NONE ? ERR_OK : base_labels(&line->labels, name, arena, &m->base, ei);
}

/* By labels, and the buckets of a histogram by bound. */
static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = labels_compare(&x->base, &y->base);

    if (order == 0)
        order = (x->role > y->role) - (x->role < y->role);
    return order != 0 ? order : (x->bound > y->bound) - (x->bound < y->bound);
}

/* What the members of one histogram say of one point in time. */
struct classic {
    double *bounds, *counts; /* of buckets; cumulative counts; room for one more than there are */
    size_t bucket_count;
    double count, sum;
    bool has_count, has_any;
};

static enum err take_bucket(struct classic *c, double bound, double count, struct errinfo *ei)
{
    if (count < 0)
        return errinfo_set(ei, ERR_INVALID, 0, "bucket count must be non-negative: le=%g, count=%g",
                           bound, count);
    if (c->bucket_count > 0 && c->bounds[c->bucket_count - 1] == bound)
        return ERR_OK; /* `1` and `1.0` */
    if (c->bucket_count > 0 && count < c->counts[c->bucket_count - 1])
        return errinfo_set(ei, ERR_INVALID, 0, "count is not cumulative: %g < %g", count,
                           c->counts[c->bucket_count - 1]);
    c->bounds[c->bucket_count] = bound;
    c->counts[c->bucket_count++] = count;
    return ERR_OK;
}

static enum err take_member(struct classic *c, const struct member *m, size_t point,
                            struct errinfo *ei)
{
    double value;

    if (point >= m->points->count || m->points->kinds[point] != POINT_FLOAT)
        return ERR_OK;
    value = m->points->values[point];
    c->has_any = true;
    switch (m->role) {
    case ROLE_BUCKET:
        return take_bucket(c, m->bound, value, ei);
    case ROLE_COUNT:
        if (value < 0)
            return errinfo_set(ei, ERR_INVALID, 0, "count must be non-negative: count=%g", value);
        c->count = value;
        c->has_count = true;
        break;
    case ROLE_SUM:
        c->sum = value;
        break;
    case ROLE_NONE:
        break;
    }
    return ERR_OK;
}

static enum err classic_complete(struct classic *c, struct errinfo *ei)
{
    if (!c->has_count && c->bucket_count > 0)
        c->count = c->counts[c->bucket_count - 1];
    if (c->bucket_count == 0 || c->bounds[c->bucket_count - 1] != INFINITY) {
        c->bounds[c->bucket_count] = INFINITY;
        c->counts[c->bucket_count++] = c->count;
    }
    if (c->count != c->counts[c->bucket_count - 1])
        return errinfo_set(ei, ERR_INVALID, 0, "count mismatch: count=%g != le=+Inf count=%g",
                           c->count, c->counts[c->bucket_count - 1]);
    return ERR_OK;
}

/* The histogram takes over the arrays. */
static enum err classic_convert(struct classic *c, struct arena *arena,
                                struct point_histogram **out, struct errinfo *ei)
{
    struct histogram_span *span = ARENA_NEW(arena, struct histogram_span);
    struct point_histogram *point = ARENA_NEW(arena, struct point_histogram);

    if (span == NULL || point == NULL)
        return arena_error(arena, ei);
    for (size_t i = c->bucket_count - 1; i > 0; i--)
        c->counts[i] -= c->counts[i - 1];
    *span = (struct histogram_span){0, (uint32_t)c->bucket_count};
    point->value = (struct histogram){.schema = HISTOGRAM_SCHEMA_CUSTOM,
                                      .count = c->count,
                                      .sum = c->sum,
                                      .positive = {span, 1, c->counts, c->bucket_count},
                                      .custom_values = c->bounds,
                                      .custom_count = c->bucket_count - 1};
    *out = point;
    return histogram_compact(&point->value, arena) == ERR_OK ? ERR_OK : arena_error(arena, ei);
}

/* *out is NULL where no member has a value. */
static enum err histogram_at(const struct member *members, size_t count, size_t point,
                             struct arena *arena, struct point_histogram **out, struct errinfo *ei)
{
    struct classic c = {.bounds = ARENA_ARRAY(arena, count + 1, double),
                        .counts = ARENA_ARRAY(arena, count + 1, double)};
    enum err e = ERR_OK;

    *out = NULL;
    if (c.bounds == NULL || c.counts == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; e == ERR_OK && i < count; i++)
        e = take_member(&c, &members[i], point, ei);
    if (e != ERR_OK || !c.has_any)
        return e;
    e = classic_complete(&c, ei);
    return e == ERR_OK ? classic_convert(&c, arena, out, ei) : e;
}

static enum err convert_group(const struct member *members, size_t count, struct arena *arena,
                              struct series_line *out, struct errinfo *ei)
{
    const struct point_histogram **histograms;
    size_t point_count = 0;
    uint8_t *kinds;
    enum err e = ERR_OK;

    for (size_t i = 0; i < count; i++) {
        if (members[i].points->count > point_count)
            point_count = members[i].points->count;
    }
    histograms = ARENA_ARRAY(arena, point_count, const struct point_histogram *);
    kinds = ARENA_ARRAY(arena, point_count, uint8_t);
    if (histograms == NULL || kinds == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; e == ERR_OK && i < point_count; i++) {
        struct point_histogram *point;

        e = histogram_at(members, count, i, arena, &point, ei);
        histograms[i] = point;
        kinds[i] = point != NULL ? POINT_HISTOGRAM : POINT_OMITTED;
    }
    *out = (struct series_line){members[0].base, .points = {.count = point_count,
                                                            .kinds = kinds,
                                                            .histograms = histograms,
                                                            .has_histogram = point_count > 0}};
    return e;
}

static enum err load_groups(struct store *s, struct write_batch *b, const struct member *members,
                            size_t count, int64_t step_ms, struct arena *arena, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t first = 0, end; e == ERR_OK && first < count; first = end) {
        struct series_line line;

        for (end = first + 1; end < count; end++) {
            if (!labels_equal(&members[first].base, &members[end].base))
                break;
        }
        e = convert_group(members + first, end - first, arena, &line, ei);
        if (e == ERR_OK)
            e = store_series(s, b, &line, step_ms, ei);
    }
    return e;
}

enum err store_load_custom_buckets(struct store *s, struct write_batch *b,
                                   const struct load_command *c, struct errinfo *ei)
{
    struct member *members;
    struct arena arena;
    size_t count = 0;
    enum err e = ERR_OK;

    arena_init(&arena, NULL);
    members = ARENA_ARRAY(&arena, c->series_count, struct member);
    if (members == NULL)
        e = arena_error(&arena, ei);
    for (size_t i = 0; e == ERR_OK && i < c->series_count; i++) {
        e = member_init(&members[count], &c->series[i], &arena, ei);
        count += e == ERR_OK && members[count].role != ROLE_NONE;
    }
    if (e == ERR_OK && count > 0) {
        qsort(members, count, sizeof *members, compare_members);
        e = load_groups(s, b, members, count, c->step_ms, &arena, ei);
    }
    arena_done(&arena);
    return e;
}
