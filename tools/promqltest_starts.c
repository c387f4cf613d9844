/*
 * The values of an `@st` line: start timestamps as signed durations from the times of the samples,
 * `-1m`, `-1mx3` (four times), `-1m+10sx3` (four, 10 s more each), `_`, `_x3` (three omitted).
 */
#include "promql/ast.h"
#include "tools/promqltest_scan_internal.h"

/* Steps may be as large: no sum of two overflows. */
#define OFFSET_MAX_MS HISTOGRAM_START_MAX_MS

struct starts {
    struct scanner scan;
    int64_t *offsets_ms;
    size_t count;
};

static enum err add(struct starts *s, int64_t offset_ms, int64_t step_ms, uint64_t count)
{
    if (count > POINT_COUNT_MAX - s->count)
        return scan_fail(&s->scan, "too many start timestamps");
    s->offsets_ms = arena_grow_array(s->scan.arena, s->offsets_ms, s->count,
                                     s->count + (size_t)count, sizeof *s->offsets_ms);
    if (s->offsets_ms == NULL)
        return arena_error(s->scan.arena, s->scan.ei);
    for (uint64_t i = 0; i < count; i++, offset_ms += step_ms) {
        if (offset_ms != START_OMITTED && (offset_ms > OFFSET_MAX_MS || offset_ms < -OFFSET_MAX_MS))
            return scan_fail(&s->scan, "start timestamp out of range");
        s->offsets_ms[s->count++] = offset_ms;
    }
    return ERR_OK;
}

/* A signed duration; units end before `x`. */
static enum err scan_duration(struct scanner *s, int64_t *out)
{
    bool is_negative = accept(s, '-');
    const char *first;

    if (!is_negative)
        (void)accept(s, '+');
    first = s->pos;
    while (s->pos < s->end && is_digit(*s->pos))
        s->pos++;
    while (s->pos < s->end && *s->pos >= 'a' && *s->pos <= 'z' && *s->pos != 'x')
        s->pos++;
    if (promql_duration_parse((struct str){first, (size_t)(s->pos - first)}, out, NULL) != ERR_OK)
        return scan_fail(s, "invalid start timestamp");
    if (*out > OFFSET_MAX_MS)
        return scan_fail(s, "start timestamp out of range");
    if (is_negative)
        *out = -*out;
    return ERR_OK;
}

static enum err scan_omitted(struct starts *s)
{
    uint64_t count = 1;
    enum err e = accept(&s->scan, 'x') ? scan_count(&s->scan, &count) : ERR_OK;

    return e == ERR_OK ? add(s, START_OMITTED, 0, count) : e;
}

static enum err scan_item(struct starts *s)
{
    struct scanner *scan = &s->scan;
    int64_t offset_ms, step_ms = 0;
    uint64_t repeat = 0;
    bool has_step;
    enum err e;

    if (accept(scan, '_'))
        return scan_omitted(s);
    e = scan_duration(scan, &offset_ms);
    if (e != ERR_OK)
        return e;
    has_step = at(scan, '+') || at(scan, '-');
    if (has_step)
        e = scan_duration(scan, &step_ms);
    if (e == ERR_OK && has_step && !at(scan, 'x'))
        return scan_fail(scan, "expected repetition");
    if (e == ERR_OK && accept(scan, 'x'))
        e = scan_count(scan, &repeat);
    return e == ERR_OK ? add(s, offset_ms, step_ms, repeat + 1) : e;
}

enum err start_timestamps_parse(struct str text, struct arena *arena, struct start_offsets *out,
                                struct errinfo *ei)
{
    struct starts s = {
        .scan = {.pos = text.data, .end = text.data + text.size, .arena = arena, .ei = ei}};
    enum err e = ERR_OK;

    skip_blanks(&s.scan);
    while (e == ERR_OK && s.scan.pos < s.scan.end) {
        e = scan_item(&s);
        if (e == ERR_OK && s.scan.pos < s.scan.end && !is_blank(*s.scan.pos))
            return scan_fail(&s.scan, "invalid start timestamp");
        skip_blanks(&s.scan);
    }
    if (e == ERR_OK)
        *out = (struct start_offsets){s.count, s.offsets_ms};
    return e;
}
