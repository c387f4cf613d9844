/*
 * Reading the points of a series line: what promqltest_series.c and promqltest_histogram.c share.
 */
#ifndef RIMSTONE_TOOLS_PROMQLTEST_SCAN_INTERNAL_H
#define RIMSTONE_TOOLS_PROMQLTEST_SCAN_INTERNAL_H

#include <string.h>

#include "tools/promqltest_internal.h"

enum { POINT_COUNT_MAX = 1 << 20 };

struct scanner {
    const char *pos, *end;
    struct arena *arena;
    struct errinfo *ei;
    double *values;
    const struct point_histogram **histograms;
    uint8_t *kinds;
    size_t count, capacity;
    bool has_histogram;
};

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool at(const struct scanner *s, char c)
{
    return s->pos < s->end && *s->pos == c;
}

static inline bool accept(struct scanner *s, char c)
{
    if (!at(s, c))
        return false;
    s->pos++;
    return true;
}

static inline bool accept_text(struct scanner *s, const char *text)
{
    size_t n = strlen(text);

    if ((size_t)(s->end - s->pos) < n || memcmp(s->pos, text, n) != 0)
        return false;
    s->pos += n;
    return true;
}

static inline void skip_blanks(struct scanner *s)
{
    while (s->pos < s->end && is_blank(*s->pos))
        s->pos++;
}

/* ERR_INVALID with what is wrong and where. */
enum err scan_fail(struct scanner *s, const char *what);
/* The repetition behind `x`, and digits elsewhere. */
MUST_USE enum err scan_count(struct scanner *s, uint64_t *out);
MUST_USE enum err scan_signed_number(struct scanner *s, double *out);
/* Adds `count` points with this histogram, which lives in the scanner's arena. */
MUST_USE enum err scan_histogram_point(struct scanner *s, const struct point_histogram *h,
                                       uint64_t count);
/* {{...}}, {{...}}x3, {{...}}+{{...}}x3 */
MUST_USE enum err scan_histograms(struct scanner *s);

#endif
