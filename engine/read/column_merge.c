/*
 * Merging the columns of one series. Most sources do not overlap in time: they are put one behind
 * the other. Those that do are merged pairwise in rounds, neighbours in precedence first, so that
 * the first of equals always wins.
 *
 * Columns of floats alone have loops of their own: they are nearly all there are.
 */
#include "engine/read/column_merge_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- histograms ---- */

static bool any_histograms(const struct column_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].column.histogram != NULL)
            return true;
    }
    return false;
}

static const struct histogram *histogram_at(const struct column *c, size_t i)
{
    return c->histogram == NULL ? NULL : c->histogram[i];
}

/* What stands for h behind a sample of another source; *refused without memory. Counts are shared.
 */
static const struct histogram *at_border(const struct histogram *h, struct arena *arena,
                                         bool *refused)
{
    struct histogram *copy;

    if (h == NULL || histogram_hint_at_border(h->hint) == h->hint)
        return h;
    copy = ARENA_NEW(arena, struct histogram);
    if (copy == NULL) {
        *refused = true;
        return NULL;
    }
    *copy = *h;
    copy->hint = histogram_hint_at_border(h->hint);
    return copy;
}

/* The histograms of pieces that follow one another, as one array; NULL when memory is refused. */
static const struct histogram *const *histograms_join(struct column_merger *m,
                                                      const struct column_piece *pieces,
                                                      size_t count, size_t total)
{
    const struct histogram **out = arena_calloc(m->arena, total, sizeof(const struct histogram *));
    bool refused = out == NULL;

    for (size_t i = 0, at = 0; i < count && !refused; at += pieces[i].column.count, i++) {
        const struct column *c = &pieces[i].column;

        if (c->histogram == NULL || c->count == 0)
            continue;
        memcpy(out + at, c->histogram, c->count * sizeof(const struct histogram *));
        if (i > 0)
            out[at] = at_border(out[at], m->arena, &refused);
    }
    return refused ? NULL : out;
}

/* ---- one behind the other ---- */

static uint64_t shape_hash(const struct column_piece *pieces, size_t count)
{
    uint64_t h = count;

    for (size_t i = 0; i < count; i++)
        h = (h ^ (uintptr_t)pieces[i].column.t_ms ^ pieces[i].column.count) * 0x9e3779b97f4a7c15U;
    return h >> (64 - COLUMN_MEMO_BITS);
}

static bool same_times(const struct column_memo *memo, const struct column_piece *pieces,
                       size_t count)
{
    if (memo->pieces == NULL || memo->count != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (memo->pieces[i].column.t_ms != pieces[i].column.t_ms ||
            memo->pieces[i].column.count != pieces[i].column.count)
            return false;
    }
    return true;
}

/* The timestamps of pieces that follow one another, as one array; NULL when memory is refused. */
static const int64_t *times_join(struct column_merger *m, const struct column_piece *pieces,
                                 size_t count, size_t total)
{
    struct column_memo *memo = &m->memo[shape_hash(pieces, count)];
    int64_t *t_ms;

    if (same_times(memo, pieces, count))
        return memo->t_ms;
    t_ms = ARENA_ARRAY(m->arena, total, int64_t);
    if (t_ms == NULL)
        return NULL;
    for (size_t i = 0, at = 0; i < count; at += pieces[i].column.count, i++)
        memcpy(t_ms + at, pieces[i].column.t_ms, pieces[i].column.count * sizeof *t_ms);
    *memo = (struct column_memo){pieces, count, t_ms};
    return t_ms;
}

static enum err join(struct column_merger *m, const struct column_piece *pieces, size_t count,
                     struct column *out, struct errinfo *ei)
{
    size_t total = 0;
    const int64_t *t_ms;
    double *value;

    for (size_t i = 0; i < count; i++)
        total += pieces[i].column.count;
    t_ms = times_join(m, pieces, count, total);
    value = ARENA_ARRAY(m->arena, total, double);
    if (t_ms == NULL || value == NULL)
        return arena_error(m->arena, ei);
    for (size_t i = 0, at = 0; i < count; at += pieces[i].column.count, i++)
        memcpy(value + at, pieces[i].column.value, pieces[i].column.count * sizeof *value);
    *out = (struct column){.count = total, .t_ms = t_ms, .value = value};
    if (any_histograms(pieces, count)) {
        out->histogram = histograms_join(m, pieces, count, total);
        if (out->histogram == NULL)
            return arena_error(m->arena, ei);
    }
    return ERR_OK;
}

/* ---- overlapping ---- */

struct ranked {
    struct column column;
    size_t rank; /* 0: wins over all others */
};

static int64_t first_ms(const struct column *c)
{
    return c->t_ms[0];
}

static int64_t last_ms(const struct column *c)
{
    return c->t_ms[c->count - 1];
}

static int compare_times(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (first_ms(&x->column) != first_ms(&y->column))
        return first_ms(&x->column) < first_ms(&y->column) ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_ranks(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The samples from number `from` on; returns how many. */
static size_t rest_copy(const struct column *c, size_t from, int64_t *t_ms, double *value)
{
    size_t count = c->count - from;

    if (count > 0) { /* an empty column may have no arrays */
        memcpy(t_ms, c->t_ms + from, count * sizeof *t_ms);
        memcpy(value, c->value + from, count * sizeof *value);
    }
    return count;
}

/* Into arrays with room for both. */
static size_t merge_two(const struct column *a, const struct column *b, int64_t *t_ms,
                        double *value)
{
    size_t i = 0, k = 0, n = 0;

    while (i < a->count && k < b->count) {
        bool from_a = a->t_ms[i] <= b->t_ms[k];

        k += from_a && a->t_ms[i] == b->t_ms[k];
        t_ms[n] = from_a ? a->t_ms[i] : b->t_ms[k];
        value[n++] = from_a ? a->value[i++] : b->value[k++];
    }
    n += rest_copy(a, i, t_ms + n, value + n);
    return n + rest_copy(b, k, t_ms + n, value + n);
}

/* merge_two() with histograms; *refused without memory for those at borders. */
static size_t merge_two_mixed(struct column_merger *m, const struct column *a,
                              const struct column *b, int64_t *t_ms, double *value,
                              const struct histogram **histogram, bool *refused)
{
    size_t i = 0, k = 0, n = 0;
    bool was_a = true;

    while (i < a->count || k < b->count) {
        bool from_a = i < a->count && (k == b->count || a->t_ms[i] <= b->t_ms[k]);
        const struct column *from = from_a ? a : b;
        size_t at = from_a ? i : k;

        k += from_a && k < b->count && a->t_ms[i] == b->t_ms[k];
        t_ms[n] = from->t_ms[at];
        value[n] = from->value[at];
        histogram[n] = histogram_at(from, at);
        if (n > 0 && from_a != was_a)
            histogram[n] = at_border(histogram[n], m->arena, refused);
        was_a = from_a;
        i += from_a;
        k += !from_a;
        n++;
    }
    return n;
}

/* Room for what a round of merges makes. */
struct cluster_room {
    int64_t *t_ms;
    double *value;
    const struct histogram **histogram; /* NULL: floats only */
};

static bool room_make(struct column_merger *m, size_t total, bool is_mixed,
                      struct cluster_room *out)
{
    *out = (struct cluster_room){.t_ms = ARENA_ARRAY(m->scratch, total, int64_t),
                                 .value = ARENA_ARRAY(m->scratch, total, double)};
    if (is_mixed)
        out->histogram = arena_alloc_array(m->scratch, total, sizeof(const struct histogram *));
    return out->t_ms != NULL && out->value != NULL && (!is_mixed || out->histogram != NULL);
}

/* Merges neighbours; returns how many columns are left. */
static size_t merge_round(struct column_merger *m, struct ranked *pieces, size_t count,
                          const struct cluster_room *room, bool *refused)
{
    size_t kept = 0, at = 0;

    for (size_t i = 0; i < count; i += 2) {
        struct column b = i + 1 < count ? pieces[i + 1].column : (struct column){0};
        struct column out = {.t_ms = room->t_ms + at, .value = room->value + at};

        if (room->histogram != NULL) {
            out.histogram = room->histogram + at;
            out.count = merge_two_mixed(m, &pieces[i].column, &b, room->t_ms + at, room->value + at,
                                        room->histogram + at, refused);
        } else {
            out.count = merge_two(&pieces[i].column, &b, room->t_ms + at, room->value + at);
        }
        at += out.count;
        pieces[kept++].column = out;
    }
    return kept;
}

/* Makes the first of `count` pieces, ascending by rank, all of them. */
static enum err merge_cluster(struct column_merger *m, struct ranked *pieces, size_t count,
                              struct errinfo *ei)
{
    bool is_mixed = false, refused = false;
    struct cluster_room rooms[2];
    size_t total = 0;

    for (size_t i = 0; i < count; i++) {
        total += pieces[i].column.count;
        is_mixed |= pieces[i].column.histogram != NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        if (!room_make(m, total, is_mixed, &rooms[i]))
            return arena_error(m->scratch, ei);
    }
    for (size_t side = 0; count > 1 && !refused; side ^= 1)
        count = merge_round(m, pieces, count, &rooms[side], &refused);
    return refused ? arena_error(m->arena, ei) : ERR_OK;
}

/* How many of `count` pieces, ascending by time, overlap in one go from the first on. */
static size_t cluster_size(const struct ranked *pieces, size_t count)
{
    int64_t end_ms = last_ms(&pieces[0].column);
    size_t n = 1;

    for (; n < count && first_ms(&pieces[n].column) <= end_ms; n++) {
        if (last_ms(&pieces[n].column) > end_ms)
            end_ms = last_ms(&pieces[n].column);
    }
    return n;
}

static enum err merge_any(struct column_merger *m, const struct column_piece *pieces, size_t count,
                          struct column *out, struct errinfo *ei)
{
    struct ranked *ranked = ARENA_ARRAY(m->scratch, count, struct ranked);
    struct column_piece *rest = ARENA_ARRAY(m->scratch, count, struct column_piece);
    size_t kept = 0;

    if (ranked == NULL || rest == NULL)
        return arena_error(m->scratch, ei);
    for (size_t i = 0; i < count; i++)
        ranked[i] = (struct ranked){pieces[i].column, i};
    qsort(ranked, count, sizeof *ranked, compare_times);
    for (size_t i = 0; i < count;) {
        size_t n = cluster_size(ranked + i, count - i);
        enum err e = ERR_OK;

        if (n > 1) {
            qsort(ranked + i, n, sizeof *ranked, compare_ranks);
            e = merge_cluster(m, ranked + i, n, ei);
        }
        if (e != ERR_OK)
            return e;
        rest[kept++] = (struct column_piece){ranked[i].column, true};
        i += n;
    }
    return join(m, rest, kept, out, ei);
}

enum err column_merge(struct column_merger *m, const struct column_piece *pieces, size_t count,
                      struct column *out, struct errinfo *ei)
{
    bool is_ascending = true;

    if (count == 0) {
        *out = (struct column){0};
        return ERR_OK;
    }
    if (count == 1 && !pieces[0].is_scratch) {
        *out = pieces[0].column;
        return ERR_OK;
    }
    for (size_t i = 1; i < count && is_ascending; i++)
        is_ascending = last_ms(&pieces[i - 1].column) < first_ms(&pieces[i].column);
    return is_ascending ? join(m, pieces, count, out, ei) : merge_any(m, pieces, count, out, ei);
}
