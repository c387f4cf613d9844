/*
 * Histograms among the points of a series line: {{schema:1 sum:2.5 count:3 buckets:[1 2]}}, keys in
 * any order, all of them optional. `x3` behind makes three more of the same, `+{{...}}x3` three
 * more with the second one added each time, `-{{...}}x3` subtracted.
 *
 * As in Prometheus what is written is not checked for sense: counts need not add up. Only layouts
 * that no function could walk are refused.
 */
#include "promql/histogram_math.h"
#include "tools/promqltest_scan_internal.h"

/* A histogram as it is being read. */
struct description {
    struct histogram h;
    int32_t offset, negative_offset;
    bool has_hint;
    unsigned seen; /* a bit for each key */
};

static enum err scan_integer(struct scanner *s, int32_t *out)
{
    bool is_negative = accept(s, '-');
    uint64_t v;
    enum err e = scan_count(s, &v); /* at most POINT_COUNT_MAX */

    if (e == ERR_OK)
        *out = is_negative ? -(int32_t)v : (int32_t)v;
    return e;
}

/* [1 2 3] */
static enum err scan_buckets(struct scanner *s, double **out, size_t *out_count)
{
    double *v = NULL;
    size_t count = 0, capacity = 0;

    if (!accept(s, '['))
        return scan_fail(s, "expected [ in histogram");
    skip_blanks(s);
    while (!accept(s, ']')) {
        enum err e = ERR_OK;

        if (count == capacity) {
            capacity = capacity * 2 + 8;
            v = arena_grow_array(s->arena, v, count, capacity, sizeof *v);
            e = v == NULL ? arena_error(s->arena, s->ei) : ERR_OK;
        }
        if (e == ERR_OK)
            e = scan_signed_number(s, &v[count]);
        if (e != ERR_OK)
            return e;
        count++;
        if (!at(s, ']') && (s->pos == s->end || !is_blank(*s->pos)))
            return scan_fail(s, "invalid bucket list");
        skip_blanks(s);
    }
    *out = v;
    *out_count = count;
    return count > 0 ? ERR_OK : scan_fail(s, "empty bucket list");
}

static enum err scan_hint(struct scanner *s, struct description *d)
{
    static const struct {
        const char *name;
        enum histogram_hint hint;
    } hints[] = {{"unknown", HISTOGRAM_HINT_UNKNOWN},
                 {"reset", HISTOGRAM_HINT_RESET},
                 {"not_reset", HISTOGRAM_HINT_NOT_RESET},
                 {"gauge", HISTOGRAM_HINT_GAUGE}};

    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        if (accept_text(s, hints[i].name)) {
            d->h.hint = hints[i].hint;
            d->has_hint = true;
            return ERR_OK;
        }
    }
    return scan_fail(s, "invalid counter reset hint");
}

enum key {
    KEY_SCHEMA,
    KEY_SUM,
    KEY_COUNT,
    KEY_OFFSET,
    KEY_N_OFFSET,
    KEY_BUCKETS,
    KEY_N_BUCKETS,
    KEY_Z_BUCKET,
    KEY_Z_BUCKET_W,
    KEY_CUSTOM_VALUES,
    KEY_HINT,
    KEY_COUNT_OF_KEYS,
};

/* With their colons, so that none is a prefix of another. */
static const char *const key_names[KEY_COUNT_OF_KEYS] = {
    "schema:",    "sum:",      "count:",      "offset:",        "n_offset:",           "buckets:",
    "n_buckets:", "z_bucket:", "z_bucket_w:", "custom_values:", "counter_reset_hint:",
};

static enum err scan_value(struct scanner *s, enum key key, struct description *d)
{
    double *custom = NULL;
    enum err e;

    switch (key) {
    case KEY_SCHEMA:
        return scan_integer(s, &d->h.schema);
    case KEY_SUM:
        return scan_signed_number(s, &d->h.sum);
    case KEY_COUNT:
        return scan_signed_number(s, &d->h.count);
    case KEY_OFFSET:
        return scan_integer(s, &d->offset);
    case KEY_N_OFFSET:
        return scan_integer(s, &d->negative_offset);
    case KEY_BUCKETS:
        return scan_buckets(s, &d->h.positive.buckets, &d->h.positive.bucket_count);
    case KEY_N_BUCKETS:
        return scan_buckets(s, &d->h.negative.buckets, &d->h.negative.bucket_count);
    case KEY_Z_BUCKET:
        return scan_signed_number(s, &d->h.zero_count);
    case KEY_Z_BUCKET_W:
        return scan_signed_number(s, &d->h.zero_threshold);
    case KEY_CUSTOM_VALUES:
        e = scan_buckets(s, &custom, &d->h.custom_count);
        d->h.custom_values = custom;
        return e;
    case KEY_HINT:
        return scan_hint(s, d);
    case KEY_COUNT_OF_KEYS:
        break;
    }
    return ERR_INTERNAL;
}

/* One key with its value; a key may be given once. */
static enum err scan_item(struct scanner *s, struct description *d)
{
    for (unsigned key = 0; key < KEY_COUNT_OF_KEYS; key++) {
        if (!accept_text(s, key_names[key]))
            continue;
        if (d->seen & 1U << key)
            return scan_fail(s, "duplicate key in histogram");
        d->seen |= 1U << key;
        return scan_value(s, (enum key)key, d);
    }
    return scan_fail(s, "unknown histogram key");
}

/* The one span of a list of buckets. */
static enum err side_finish(struct scanner *s, struct histogram_side *side, int32_t offset)
{
    struct histogram_span *span;

    if (side->bucket_count == 0)
        return ERR_OK;
    span = ARENA_NEW(s->arena, struct histogram_span);
    if (span == NULL)
        return arena_error(s->arena, s->ei);
    *span = (struct histogram_span){offset, (uint32_t)side->bucket_count};
    side->spans = span;
    side->span_count = 1;
    return ERR_OK;
}

static enum err finish(struct scanner *s, struct description *d, struct point_histogram *out)
{
    struct histogram checked;
    enum err e = side_finish(s, &d->h.positive, d->offset);

    if (e == ERR_OK)
        e = side_finish(s, &d->h.negative, d->negative_offset);
    if (e != ERR_OK)
        return e;
    checked = d->h;
    if (histogram_is_custom(&checked)) {
        checked.zero_count = checked.zero_threshold = 0;
        checked.negative = (struct histogram_side){0};
    } else {
        checked.custom_count = 0;
    }
    *out = (struct point_histogram){d->h, d->has_hint};
    return histogram_check_layout(&checked, s->ei);
}

/* {{...}} */
static enum err scan_histogram(struct scanner *s, struct point_histogram *out)
{
    struct description d = {0};

    if (!accept_text(s, "{{"))
        return scan_fail(s, "expected histogram");
    skip_blanks(s);
    while (!accept_text(s, "}}")) {
        enum err e = scan_item(s, &d);

        if (e != ERR_OK)
            return e;
        if (s->pos < s->end && !is_blank(*s->pos) && *s->pos != '}')
            return scan_fail(s, "invalid histogram");
        skip_blanks(s);
    }
    return finish(s, &d, out);
}

/* NULL when the arena refuses. */
static struct point_histogram *point_new(struct scanner *s, const struct histogram *h,
                                         bool has_hint)
{
    struct point_histogram *point = ARENA_NEW(s->arena, struct point_histogram);

    if (point == NULL || histogram_copy(h, s->arena, &point->value) != ERR_OK)
        return NULL;
    point->has_hint = has_hint;
    return point;
}

/* The first histogram, then `count` more, each by `step` from the one before. */
static enum err add_sequence(struct scanner *s, const struct histogram *first,
                             const struct point_histogram *step, bool is_negative, uint64_t count)
{
    struct point_histogram *point = point_new(s, first, step->has_hint);
    enum err e;

    if (point == NULL)
        return arena_error(s->arena, s->ei);
    e = scan_histogram_point(s, point, 1);
    for (uint64_t i = 0; e == ERR_OK && i < count; i++) {
        struct histogram_notes notes = {0};

        if (point->value.schema > step->value.schema)
            return scan_fail(s, "the second histogram has the coarser schema");
        point = point_new(s, &point->value, step->has_hint);
        if (point == NULL)
            return arena_error(s->arena, s->ei);
        e = (is_negative ? histogram_subtract : histogram_add)(&point->value, &step->value,
                                                               s->arena, &notes);
        if (e == ERR_INVALID)
            return scan_fail(s, "histograms with exponential and custom buckets");
        if (e == ERR_OK)
            e = scan_histogram_point(s, point, 1);
        else
            e = arena_error(s->arena, s->ei);
    }
    return e;
}

enum err scan_histograms(struct scanner *s)
{
    struct point_histogram first = {0}, step = {0}, *point;
    uint64_t count = 0;
    enum err e = scan_histogram(s, &first);

    if (e == ERR_OK && (at(s, '+') || at(s, '-'))) {
        bool is_negative = *s->pos++ == '-';

        e = scan_histogram(s, &step);
        if (e == ERR_OK && !accept(s, 'x'))
            return scan_fail(s, "expected repetition");
        if (e == ERR_OK)
            e = scan_count(s, &count);
        return e == ERR_OK ? add_sequence(s, &first.value, &step, is_negative, count) : e;
    }
    if (e == ERR_OK && accept(s, 'x'))
        e = scan_count(s, &count);
    if (e != ERR_OK)
        return e;
    point = point_new(s, &first.value, first.has_hint);
    return point == NULL ? arena_error(s->arena, s->ei) : scan_histogram_point(s, point, count + 1);
}
