/*
 * Long work that can be stopped: columns piece by piece, and a sort.
 */
#include <stdlib.h>
#include <string.h>

#include "promql/eval/eval_internal.h"

enum {
    SORT_RUN = 4096,    /* items that the C library sorts at once */
    MERGE_TICK = 4096,  /* items merged between two ticks */
    COMPARE_WORK = 4,   /* units of work of a comparison */
    SORT_RUN_LOG2 = 12, /* comparisons an item of a run */
};

enum err eval_zero(struct eval *ev, double *out, size_t count, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0, end; e == ERR_OK && i < count; i = end) {
        e = eval_piece(ev, i, count, &end, ei);
        if (e == ERR_OK)
            memset(out + i, 0, (end - i) * sizeof *out);
    }
    return e;
}

enum err eval_copy(struct eval *ev, double *out, const double *in, size_t count, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0, end; e == ERR_OK && i < count; i = end) {
        e = eval_piece(ev, i, count, &end, ei);
        if (e == ERR_OK)
            memcpy(out + i, in + i, (end - i) * sizeof *out);
    }
    return e;
}

/* Two sorted runs next to each other, [a, middle) and [middle, end), into `out`. */
struct merge {
    struct eval *ev;
    size_t size;
    int (*compare)(const void *a, const void *b, void *context);
    void *context;
};

static enum err runs_merge(const struct merge *m, const char *a, const char *middle,
                           const char *end, char *out, struct errinfo *ei)
{
    const char *b = middle;
    enum err e = ERR_OK;

    while (e == ERR_OK && (a < middle || b < end)) {
        for (size_t n = 0; n < MERGE_TICK && (a < middle || b < end); n++) {
            bool take_b = a == middle || (b < end && m->compare(a, b, m->context) > 0);

            memcpy(out, take_b ? b : a, m->size);
            out += m->size;
            *(take_b ? &b : &a) += m->size;
        }
        e = eval_tick(m->ev, (uint64_t)MERGE_TICK * COMPARE_WORK, ei);
    }
    return e;
}

/* One level: pairs of runs of `width` items from `in` to `out`. */
static enum err level_merge(const struct merge *m, const char *in, char *out, size_t count,
                            size_t width, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t low = 0; e == ERR_OK && low < count; low += 2 * width) {
        size_t middle = count - low < width ? count : low + width;
        size_t high = count - middle < width ? count : middle + width;

        e = runs_merge(m, in + low * m->size, in + middle * m->size, in + high * m->size,
                       out + low * m->size, ei);
    }
    return e;
}

enum err eval_sort_items(struct eval *ev, void *items, size_t count, size_t size,
                         int (*compare)(const void *a, const void *b, void *context), void *context,
                         struct errinfo *ei)
{
    const struct merge m = {ev, size, compare, context};
    char *from = items, *to;
    struct arena scratch;
    enum err e = ERR_OK;

    for (size_t i = 0; e == ERR_OK && i < count; i += SORT_RUN) {
        size_t n = count - i < SORT_RUN ? count - i : SORT_RUN;

        if (n > 1)
            qsort_r(from + i * size, n, size, compare, context);
        e = eval_tick(ev, (uint64_t)n * SORT_RUN_LOG2 * COMPARE_WORK, ei);
    }
    if (e != ERR_OK || count <= SORT_RUN)
        return e;
    arena_init(&scratch, ev->query->memory);
    to = arena_alloc_array(&scratch, count, size);
    if (to == NULL)
        e = arena_refused(&scratch, ei);
    for (size_t width = SORT_RUN; e == ERR_OK && width < count; width *= 2) {
        char *swap = from;

        e = level_merge(&m, from, to, count, width, ei);
        from = to;
        to = swap;
    }
    if (e == ERR_OK && from != items)
        memcpy(items, from, count * size); /* fits: it is the size of the scratch */
    arena_done(&scratch);
    return e;
}
