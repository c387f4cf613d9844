/*
 * See annotations_internal.h.
 */
#include "promql/eval/annotations_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/float_text.h"
#include "promql/eval/arena_refused_internal.h"
#include "promql/parse/text_internal.h"

struct annotation_entry {
    struct annotation_entry *next; /* in its slot */
    enum annotation_kind kind;
    struct position_range position;
    const char *text; /* without position: the identity */
    /* Only for forced monotonicity. */
    bool is_monotonicity;
    struct monotonicity_fix fix; /* t_ms: the earliest */
    int64_t max_t_ms;
    uint64_t sample_count;
};

enum { ANNOTATION_SLOTS = 256 };

void annotations_init(struct annotations *a, struct arena *arena)
{
    *a = (struct annotations){.arena = arena};
}

/* FNV-1a: few texts, and not from outside in any number. */
static size_t text_slot(const char *text)
{
    uint64_t h = 14695981039346656037U;

    for (; *text != '\0'; text++)
        h = (h ^ (uint8_t)*text) * 1099511628211U;
    return (size_t)(h % ANNOTATION_SLOTS);
}

/* Finds or adds; *added tells which. The text is copied when added. */
static enum err entry_get(struct annotations *a, enum annotation_kind kind,
                          struct position_range position, const char *text,
                          struct annotation_entry **out, bool *added, struct errinfo *ei)
{
    struct annotation_entry *entry;
    size_t slot = text_slot(text);

    if (a->slots == NULL) {
        a->slots = arena_calloc(a->arena, ANNOTATION_SLOTS, sizeof(struct annotation_entry *));
        if (a->slots == NULL)
            return arena_refused(a->arena, ei);
        a->slot_count = ANNOTATION_SLOTS;
    }
    for (entry = a->slots[slot]; entry != NULL; entry = entry->next) {
        if (entry->kind == kind && strcmp(entry->text, text) == 0)
            break;
    }
    *added = entry == NULL;
    if (*added) {
        entry = ARENA_NEW(a->arena, struct annotation_entry);
        if (entry == NULL)
            return arena_refused(a->arena, ei);
        entry->text = arena_memdup0(a->arena, text, strlen(text));
        if (entry->text == NULL)
            return arena_refused(a->arena, ei);
        entry->kind = kind;
        entry->position = position;
        entry->next = a->slots[slot];
        a->slots[slot] = entry;
        a->count++;
    }
    *out = entry;
    return ERR_OK;
}

enum err annotations_add(struct annotations *a, enum annotation_kind kind,
                         struct position_range position, struct errinfo *ei, const char *format,
                         ...)
{
    struct annotation_entry *entry;
    char text[1024]; /* metric names beyond that are cut */
    va_list args;
    bool added;
    enum err e;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args); /* truncation is fine */
    va_end(args);
    e = entry_get(a, kind, position, text, &entry, &added, ei);
    if (e == ERR_OK)
        entry->position = position; /* of equal texts the last one's is shown, as in Prometheus */
    return e;
}

enum err annotations_add_quantile(struct annotations *a, struct position_range position, double q,
                                  struct errinfo *ei)
{
    char text[FLOAT_TEXT_SIZE];

    (void)float_format_g(q, text); /* the length is not needed */
    return annotations_add(a, ANNOTATION_WARNING, position, ei,
                           "quantile value should be between 0 and 1, got %s", text);
}

enum err annotations_add_monotonicity(struct annotations *a, struct position_range position,
                                      struct str metric_name, const struct monotonicity_fix *fix,
                                      struct errinfo *ei)
{
    static const char text[] =
        "input to histogram_quantile needed to be fixed for monotonicity (see "
        "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
    struct annotation_entry *entry;
    const char *full = text;
    bool added;
    enum err e;

    if (metric_name.size > 0) {
        full = arena_printf(a->arena, "%s for metric name %s", text,
                            text_quote(metric_name, a->arena));
        if (full == NULL)
            return arena_refused(a->arena, ei);
    }
    e = entry_get(a, ANNOTATION_INFO, position, full, &entry, &added, ei);
    if (e != ERR_OK)
        return e;
    entry->sample_count++;
    if (added) {
        entry->is_monotonicity = true;
        entry->fix = *fix;
        entry->max_t_ms = fix->t_ms;
        return ERR_OK;
    }
    entry->fix.t_ms = fix->t_ms < entry->fix.t_ms ? fix->t_ms : entry->fix.t_ms;
    entry->max_t_ms = fix->t_ms > entry->max_t_ms ? fix->t_ms : entry->max_t_ms;
    entry->fix.min_bucket = fmin(entry->fix.min_bucket, fix->min_bucket);
    entry->fix.max_bucket = fmax(entry->fix.max_bucket, fix->max_bucket);
    entry->fix.max_diff = fmax(entry->fix.max_diff, fix->max_diff);
    return ERR_OK;
}

static void time_text(int64_t t_ms, char *out, size_t out_size)
{
    time_t seconds = (time_t)(t_ms / 1000);
    struct tm tm;

    out[0] = '\0';
    if (gmtime_r(&seconds, &tm) != NULL)
        (void)strftime(out, out_size, "%Y-%m-%dT%H:%M:%SZ", &tm); /* fits or stays empty */
}

/* The full line as a user sees it. */
static const char *entry_text(const struct annotations *a, const struct annotation_entry *entry,
                              struct str query)
{
    const char *prefix = entry->kind == ANNOTATION_WARNING ? "PromQL warning" : "PromQL info";
    char position[48], from[FLOAT_TEXT_SIZE], to[FLOAT_TEXT_SIZE], first[40], last[40];

    promql_position_text(query, entry->position.start, position, sizeof position);
    if (!entry->is_monotonicity)
        return arena_printf(a->arena, "%s: %s (%s)", prefix, entry->text, position);
    (void)float_format_g(entry->fix.min_bucket, from); /* the lengths are not needed */
    (void)float_format_g(entry->fix.max_bucket, to);
    time_text(entry->fix.t_ms, first, sizeof first);
    time_text(entry->max_t_ms, last, sizeof last);
    return arena_printf(a->arena,
                        "%s: %s, from buckets %s to %s, with a max diff of %.2g, over %llu samples "
                        "from %s to %s (%s)",
                        prefix, entry->text, from, to, entry->fix.max_diff,
                        (unsigned long long)entry->sample_count, first, last, position);
}

enum err annotations_merge(struct annotations *a, const struct annotations *from,
                           struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < from->slot_count; i++) {
        for (const struct annotation_entry *x = from->slots[i]; x != NULL && e == ERR_OK;
             x = x->next) {
            struct annotation_entry *entry;
            bool added;

            ASSERT(!x->is_monotonicity);
            e = entry_get(a, x->kind, x->position, x->text, &entry, &added, ei);
        }
    }
    return e;
}

static int annotation_compare(const void *x, const void *y)
{
    const struct annotation *a = x, *b = y;

    if (a->position.start != b->position.start)
        return a->position.start < b->position.start ? -1 : 1;
    return strcmp(a->text, b->text);
}

enum err annotations_finish(struct annotations *a, struct str query, const struct annotation **out,
                            size_t *out_count, struct errinfo *ei)
{
    struct annotation *list = ARENA_ARRAY(a->arena, a->count, struct annotation);
    size_t n = 0;

    if (list == NULL)
        return arena_refused(a->arena, ei);
    for (size_t i = 0; i < a->slot_count; i++) {
        for (const struct annotation_entry *e = a->slots[i]; e != NULL; e = e->next) {
            const char *text = entry_text(a, e, query);

            if (text == NULL)
                return arena_refused(a->arena, ei);
            list[n++] = (struct annotation){e->kind, text, e->position};
        }
    }
    if (n > 1)
        qsort(list, n, sizeof *list, annotation_compare);
    *out = list;
    *out_count = n;
    return ERR_OK;
}
