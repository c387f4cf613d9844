/*
 * The largest rows of a list.
 */
#include "engine/read/explore_internal.h"

enum { ROWS_FIRST = 16 };

/* Whether `a` goes before `b` is kept: fewer series, or as many with a later name. */
static bool is_less(const struct explore_row *a, const struct explore_row *b)
{
    if (a->series != b->series)
        return a->series < b->series;
    return str_compare(a->name, b->name) > 0;
}

static void rows_swap(struct explore_row *a, struct explore_row *b)
{
    struct explore_row swap = *a;

    *a = *b;
    *b = swap;
}

static void sift_down(struct explore_row *rows, size_t count, size_t at)
{
    for (;;) {
        size_t least = at;

        for (size_t child = 2 * at + 1; child < count && child <= 2 * at + 2; child++)
            if (is_less(&rows[child], &rows[least]))
                least = child;
        if (least == at)
            return;
        rows_swap(&rows[at], &rows[least]);
        at = least;
    }
}

static void sift_up(struct explore_row *rows, size_t at)
{
    for (; at > 0 && is_less(&rows[at], &rows[(at - 1) / 2]); at = (at - 1) / 2)
        rows_swap(&rows[at], &rows[(at - 1) / 2]);
}

static bool rows_grow(struct explore_top *t, struct arena *arena)
{
    size_t capacity = t->capacity == 0 ? ROWS_FIRST : 2 * t->capacity;
    struct explore_row *grown;

    capacity = capacity < t->limit ? capacity : t->limit;
    grown = arena_grow_array(arena, t->rows, t->count, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    t->rows = grown;
    t->capacity = capacity;
    return true;
}

bool explore_top_offer(struct explore_top *t, struct arena *arena, struct str label,
                       const struct explore_row *row)
{
    struct explore_row copy = *row;

    if (t->count == t->limit && row->series < t->rows[0].series)
        return true;
    if (label.size > 0) {
        copy.name.size = label.size + 1 + row->name.size;
        copy.name.data = arena_printf(arena, "%.*s=%.*s", STR_ARGS(label), STR_ARGS(row->name));
    } else {
        copy.name.data = arena_memdup0(arena, row->name.data, row->name.size);
    }
    if (copy.name.data == NULL)
        return false;
    if (t->count < t->limit) {
        if (t->count == t->capacity && !rows_grow(t, arena))
            return false;
        t->rows[t->count] = copy;
        sift_up(t->rows, t->count++);
    } else if (is_less(&t->rows[0], &copy)) {
        t->rows[0] = copy;
        sift_down(t->rows, t->count, 0);
    }
    return true;
}

struct explore_list explore_top_take(struct explore_top *t)
{
    for (size_t left = t->count; left > 1; left--) {
        rows_swap(&t->rows[0], &t->rows[left - 1]);
        sift_down(t->rows, left - 1, 0);
    }
    return (struct explore_list){t->count, t->rows};
}
