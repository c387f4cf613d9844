/*
 * One line of a `load` block or of an expectation: `metric{labels} points`.
 *
 * Points are separated by blanks: `1`, `-2.5`, `1+2x3` (four points from 1 in steps of 2), `1x3`
 * (four times 1), `_`, `_x3` (three omitted points), `stale`, and histograms `{{...}}`, also with
 * `x3` or `+{{...}}x3` behind (promqltest_histogram.c).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/write.h"
#include "promql/ast.h"
#include "tools/promqltest_scan_internal.h"

enum err scan_fail(struct scanner *s, const char *what)
{
    size_t left = (size_t)(s->end - s->pos);

    (void)errinfo_set(s->ei, ERR_INVALID, 0, "%s at \"%.*s\"", what, left > 20 ? 20 : (int)left,
                      s->pos);
    return ERR_INVALID;
}

static enum err points_grow(struct scanner *s, size_t wanted)
{
    s->values = arena_grow_array(s->arena, s->values, s->count, wanted, sizeof *s->values);
    s->kinds = arena_grow_array(s->arena, s->kinds, s->count, wanted, sizeof *s->kinds);
    s->histograms = arena_grow_array(s->arena, s->histograms, s->count, wanted, sizeof(void *));
    if (s->values == NULL || s->kinds == NULL || s->histograms == NULL)
        return arena_error(s->arena, s->ei);
    s->capacity = wanted;
    return ERR_OK;
}

/* `count` equal points. */
static enum err points_add(struct scanner *s, enum point_kind kind, double value,
                           const struct point_histogram *histogram, uint64_t count)
{
    if (count > POINT_COUNT_MAX - s->count)
        return scan_fail(s, "too many points");
    if (s->count + count > s->capacity) {
        enum err e = points_grow(s, (s->count + count) * 2);

        if (e != ERR_OK)
            return e;
    }
    for (uint64_t i = 0; i < count; i++) {
        s->values[s->count] = value;
        s->histograms[s->count] = histogram;
        s->kinds[s->count++] = (uint8_t)kind;
    }
    return ERR_OK;
}

static enum err point_add(struct scanner *s, enum point_kind kind, double value, uint64_t count)
{
    return points_add(s, kind, value, NULL, count);
}

enum err scan_histogram_point(struct scanner *s, const struct point_histogram *h, uint64_t count)
{
    s->has_histogram = true;
    return points_add(s, POINT_HISTOGRAM, 0, h, count);
}

/* The repetition behind `x`. */
enum err scan_count(struct scanner *s, uint64_t *out)
{
    uint64_t v = 0;
    const char *first = s->pos;

    for (; s->pos < s->end && is_digit(*s->pos) && v <= POINT_COUNT_MAX; s->pos++)
        v = v * 10 + (uint64_t)(*s->pos - '0');
    if (s->pos == first || v > POINT_COUNT_MAX)
        return scan_fail(s, "invalid repetition");
    *out = v;
    return ERR_OK;
}

/* An unsigned number: digits, dot, exponent, or Inf and NaN. */
static enum err scan_number(struct scanner *s, double *out)
{
    const char *first = s->pos;
    bool digits = false;

    if (accept_text(s, "Inf") || accept_text(s, "inf") || accept_text(s, "NaN") ||
        accept_text(s, "nan"))
        goto convert;
    while (s->pos < s->end && (is_digit(*s->pos) || *s->pos == '.')) {
        digits = true;
        s->pos++;
    }
    if (digits && (at(s, 'e') || at(s, 'E'))) {
        s->pos++;
        if (!accept(s, '+'))
            (void)accept(s, '-');
        while (s->pos < s->end && is_digit(*s->pos))
            s->pos++;
    }
convert:
    if (promql_number_parse((struct str){first, (size_t)(s->pos - first)}, out) == ERR_OK)
        return ERR_OK;
    s->pos = first;
    return scan_fail(s, "invalid number");
}

enum err scan_signed_number(struct scanner *s, double *out)
{
    bool negative = accept(s, '-');
    enum err e;

    if (!negative)
        (void)accept(s, '+');
    e = scan_number(s, out);
    if (e == ERR_OK && negative)
        *out = -*out;
    return e;
}

static enum err scan_omitted(struct scanner *s)
{
    uint64_t count = 1;
    enum err e = ERR_OK;

    s->pos++;
    if (accept(s, 'x'))
        e = scan_count(s, &count);
    return e == ERR_OK ? point_add(s, POINT_OMITTED, 0, count) : e;
}

/* 1, 1x3, 1+2x3: `x3` makes three more. Values are summed up one by one, as Prometheus does. */
static enum err scan_floats(struct scanner *s)
{
    double value = 0, step = 0;
    uint64_t count = 0;
    bool has_step = false;
    enum err e = ERR_OK;

    if (accept_text(s, "stale"))
        value = double_from_bits(STALE_NAN_BITS);
    else
        e = scan_signed_number(s, &value);
    if (e == ERR_OK && (at(s, '+') || at(s, '-'))) {
        has_step = true;
        e = scan_signed_number(s, &step);
        if (e == ERR_OK && !at(s, 'x'))
            return scan_fail(s, "expected repetition");
    }
    if (e == ERR_OK && accept(s, 'x'))
        e = scan_count(s, &count);
    for (uint64_t i = 0; e == ERR_OK && i <= count; i++) {
        e = point_add(s, POINT_FLOAT, value, 1);
        if (has_step)
            value += step;
    }
    return e;
}

static enum err scan_points(struct scanner *s)
{
    enum err e = ERR_OK;

    skip_blanks(s);
    while (e == ERR_OK && s->pos < s->end) {
        if (at(s, '_'))
            e = scan_omitted(s);
        else if (at(s, '{'))
            e = scan_histograms(s);
        else
            e = scan_floats(s);
        if (e == ERR_OK && s->pos < s->end && !is_blank(*s->pos))
            return scan_fail(s, "invalid series values");
        skip_blanks(s);
    }
    return e;
}

/* Bytes of the metric at the line's start: a name, and braces with their strings. */
static size_t metric_size(struct str line)
{
    size_t i = 0;
    char quote = 0;

    while (i < line.size && !is_blank(line.data[i]) && line.data[i] != '{')
        i++;
    if (i == line.size || line.data[i] != '{')
        return i;
    for (; i < line.size; i++) {
        char c = line.data[i];

        if (quote != 0 && c == '\\' && quote != '`')
            i++;
        else if (quote != 0 && c == quote)
            quote = 0;
        else if (quote != 0)
            continue;
        else if (c == '"' || c == '\'' || c == '`')
            quote = c;
        else if (c == '}')
            return i + 1;
    }
    return line.size;
}

static int compare_labels(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

static enum err labels_from_matchers(const struct matcher *matchers, size_t count,
                                     struct arena *arena, struct labels *out, struct errinfo *ei)
{
    struct label *items = ARENA_ARRAY(arena, count, struct label);
    size_t n = 0;

    if (items == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < count; i++) {
        if (matchers[i].kind != MATCHER_EQUAL)
            return errinfo_set(ei, ERR_INVALID, 0, "a label needs `=` and a value");
        if (matchers[i].value.size > 0)
            items[n++] = (struct label){matchers[i].name, matchers[i].value};
    }
    qsort(items, n, sizeof *items, compare_labels);
    for (size_t i = 1; i < n; i++) {
        if (str_equal(items[i - 1].name, items[i].name))
            return errinfo_set(ei, ERR_INVALID, 0, "label \"%.*s\" is given twice",
                               STR_ARGS(items[i].name));
    }
    *out = (struct labels){n, items};
    return ERR_OK;
}

/* A metric is written like a selector that only has equalities. */
enum err series_metric_parse(struct str text, struct arena *arena, struct labels *out,
                             struct errinfo *ei)
{
    struct matcher *matchers = NULL;
    size_t count = 0;
    enum err e = promql_parse_selector(text, arena, &matchers, &count, ei);

    if (e == ERR_OK)
        e = labels_from_matchers(matchers, count, arena, out, ei);
    for (size_t i = 0; i < count; i++)
        matcher_done(&matchers[i]);
    return e;
}

enum err series_line_parse(struct str line, struct arena *arena, struct series_line *out,
                           struct errinfo *ei)
{
    size_t size = metric_size(line);
    struct scanner s = {
        .pos = line.data + size, .end = line.data + line.size, .arena = arena, .ei = ei};
    enum err e = series_metric_parse((struct str){line.data, size}, arena, &out->labels, ei);

    if (e == ERR_OK && s.pos < s.end && !is_blank(*s.pos))
        return scan_fail(&s, "expected a blank behind the metric");
    if (e == ERR_OK)
        e = scan_points(&s);
    if (e == ERR_OK)
        out->points = (struct sequence){s.count, s.values, s.kinds, s.histograms, s.has_histogram};
    return e;
}
