/*
 * label_replace() and label_join(), absent() and absent_over_time(), and the sort functions.
 */
#include <string.h>

#include "base/regex.h"
#include "promql/eval/eval_labels_internal.h"
#include "promql/eval/label_sets_internal.h"

/* --- label_replace --- */

static struct str string_arg(const struct plan *p, size_t i)
{
    return node_unwrap(p->node->u.call.args[i])->u.string;
}

static enum err label_name_check(struct str name, const char *what, const char *function,
                                 struct errinfo *ei)
{
    if (name.size > 0 && utf8_is_valid(name))
        return ERR_OK;
    return errinfo_set(ei, ERR_EXECUTION, 0, "invalid %s label name in %s(): %.*s", what, function,
                       STR_ARGS(name));
}

/* Sets a label of a row to text that is copied into the vector. */
static enum err row_set_label(struct vector *v, struct row *row, struct str name,
                              const struct byte_writer *text, struct errinfo *ei)
{
    char *copy =
        arena_memdup0(&v->arena, text->data == NULL ? (const void *)"" : text->data, text->size);

    if (text->failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "label value of a query");
    if (copy == NULL)
        return arena_refused(&v->arena, ei);
    if (str_equal(name, LABEL_METRIC_NAME))
        row->drop_name = false; /* a name that was given on purpose stays */
    return labels_with(&row->labels, name, (struct str){copy, text->size}, &v->arena, &row->labels,
                       ei);
}

static enum err replace_rows(const struct plan *p, struct vector *v, const struct regex *re,
                             struct regex_span *spans, size_t span_count, struct byte_writer *text,
                             struct errinfo *ei)
{
    struct str dst = string_arg(p, 1), replacement = string_arg(p, 2), src = string_arg(p, 3);
    enum err e = ERR_OK;

    for (size_t i = 0; i < v->count && e == ERR_OK; i++) {
        struct str value = labels_get(&v->rows[i].labels, src);

        e = eval_tick(v->eval, 64 + value.size, ei);
        if (e != ERR_OK || !regex_captures(re, value, spans, span_count))
            continue;
        writer_reset(text);
        regex_expand(re, replacement, value, spans, span_count, text);
        e = row_set_label(v, &v->rows[i], dst, text, ei);
    }
    return e;
}

static enum err label_replace(const struct plan *p, struct vector *v, struct errinfo *ei)
{
    struct str pattern = string_arg(p, 4);
    struct regex *re = NULL;
    struct regex_span *spans;
    struct byte_writer text;
    size_t span_count;
    enum err e = regex_compile(pattern, &re, NULL);

    if (e != ERR_OK)
        return errinfo_set(ei, e == ERR_INVALID ? ERR_EXECUTION : e, 0,
                           "invalid regular expression in label_replace(): %.*s",
                           STR_ARGS(pattern));
    writer_init(&text);
    span_count = regex_group_count(re) + 1;
    spans = ARENA_ARRAY(&v->arena, span_count, struct regex_span);
    if (spans == NULL)
        e = arena_refused(&v->arena, ei);
    else
        e = label_name_check(string_arg(p, 1), "destination", "label_replace", ei);
    if (e == ERR_OK)
        e = replace_rows(p, v, re, spans, span_count, &text, ei);
    writer_done(&text);
    regex_free(re);
    return e;
}

static enum err label_join(const struct plan *p, struct vector *v, struct errinfo *ei)
{
    struct str dst = string_arg(p, 1), separator = string_arg(p, 2);
    size_t arg_count = p->node->u.call.arg_count;
    struct byte_writer text;
    enum err e = ERR_OK;

    for (size_t i = 3; i < arg_count && e == ERR_OK; i++)
        e = label_name_check(string_arg(p, i), "source", "label_join", ei);
    if (e == ERR_OK)
        e = label_name_check(dst, "destination", "label_join", ei);
    if (e != ERR_OK)
        return e;
    writer_init(&text);
    for (size_t i = 0; i < v->count && e == ERR_OK; i++) {
        writer_reset(&text);
        for (size_t k = 3; k < arg_count; k++) {
            struct str value = labels_get(&v->rows[i].labels, string_arg(p, k));

            if (k > 3)
                writer_append(&text, separator.data, separator.size);
            writer_append(&text, value.data, value.size);
        }
        e = row_set_label(v, &v->rows[i], dst, &text, ei);
        if (e == ERR_OK)
            e = eval_tick(v->eval, 16, ei);
    }
    writer_done(&text);
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_labels(struct eval *ev, const struct plan *p, struct vector **out, struct errinfo *ei)
{
    struct vector *v = NULL;
    enum err e = eval_vector(ev, p->input, &v, ei);

    if (e == ERR_OK)
        e = p->function->id == FUNCTION_LABEL_REPLACE ? label_replace(p, v, ei)
                                                      : label_join(p, v, ei);
    if (e == ERR_OK)
        e = vector_merge(v, ei);
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

/* --- absent --- */

/* Prometheus's index moves matchers that take series away (`job!="a"` where another matcher demands
 * a job) behind the others, and absent() reads them in that order. */
static bool matcher_subtracts(const struct node *selector, size_t index)
{
    const struct matcher *m = &selector->u.selector.matchers[index];

    if ((m->kind == MATCHER_NOT_EQUAL || m->kind == MATCHER_NOT_REGEX) && matcher_matches_empty(m))
        return true;
    for (size_t i = 0; i < selector->u.selector.matcher_count; i++) {
        const struct matcher *other = &selector->u.selector.matchers[i];

        if (str_equal(other->name, m->name) && !matcher_matches_empty(other))
            return false;
    }
    return true;
}

/* The first equality tells a label's value; any other matcher of that label read after it takes the
 * label away. */
static enum err absent_matcher(const struct matcher *m, struct arena *arena, struct labels *seen,
                               struct labels *l, struct errinfo *ei)
{
    struct str value = m->value;
    enum err e = ERR_OK;

    if (str_equal(m->name, LABEL_METRIC_NAME))
        return ERR_OK;
    if (m->kind != MATCHER_EQUAL || labels_get(seen, m->name).size > 0)
        value = (struct str){NULL, 0};
    else
        e = labels_with(seen, m->name, STR_LITERAL("seen"), arena, seen, ei);
    return e == ERR_OK ? labels_with(l, m->name, value, arena, l, ei) : e;
}

enum err absent_labels(const struct node *argument, struct arena *arena, struct labels *out,
                       struct errinfo *ei)
{
    const struct node *n = node_unwrap(argument);
    struct labels l = {0, NULL}, seen = {0, NULL};
    enum err e = ERR_OK;

    if (n->kind == NODE_MATRIX)
        n = n->u.matrix.selector;
    if (n->kind != NODE_SELECTOR) {
        *out = l;
        return ERR_OK;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n->u.selector.matcher_count && e == ERR_OK; i++) {
            if (matcher_subtracts(n, i) == (pass == 1))
                e = absent_matcher(&n->u.selector.matchers[i], arena, &seen, &l, ei);
        }
    }
    *out = l;
    return e;
}

struct absent_sink {
    struct sink sink;
    uint64_t *any;
};

static enum err absent_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct absent_sink *s = (struct absent_sink *)sink;

    (void)ei; /* nothing here can fail */
    for (size_t i = 0; i < b->count; i++) {
        for (size_t w = 0; w < grid_words(b->grid); w++)
            s->any[w] |= b->rows[i].present[w];
    }
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_absent(struct eval *ev, const struct plan *p, struct vector **out, struct errinfo *ei)
{
    struct absent_sink s = {.sink.push = absent_push};
    struct vector *v = NULL;
    struct row *row;
    enum err e = vector_new(ev, &p->grid, &v, ei);

    if (e == ERR_OK)
        e = vector_add(v, &row, ei);
    if (e == ERR_OK) {
        s.any = arena_calloc(&v->arena, grid_words(&p->grid), sizeof *s.any);
        e = s.any == NULL ? arena_refused(&v->arena, ei) : eval_stream(ev, p->input, &s.sink, ei);
    }
    if (e == ERR_OK)
        e = absent_labels(p->node->u.call.args[0], &v->arena, &row->labels, ei);
    if (e == ERR_OK) {
        for (size_t i = 0, end; e == ERR_OK && i < p->grid.count; i = end) {
            e = eval_piece(ev, i, p->grid.count, &end, ei);
            for (size_t k = i; e == ERR_OK && k < end; k++) {
                if (!((s.any[k / 64] >> (k % 64)) & 1))
                    row_set(row, k, 1);
            }
        }
        if (row_is_empty(row, &p->grid))
            v->count = 0;
        if (e == ERR_OK)
            e = vector_hold(v, ei);
    }
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

/* --- sort --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The run of digits or of other bytes at `at`. */
static struct str chunk_at(struct str s, size_t at)
{
    size_t end = at;

    while (end < s.size && is_digit(s.data[end]) == is_digit(s.data[at]))
        end++;
    return (struct str){s.data + at, end - at};
}

/* Compares runs of digits as numbers (without leading zeros by length, then by bytes). */
static int digits_compare(struct str a, struct str b)
{
    while (a.size > 1 && a.data[0] == '0') {
        a.data++;
        a.size--;
    }
    while (b.size > 1 && b.data[0] == '0') {
        b.data++;
        b.size--;
    }
    if (a.size != b.size)
        return a.size < b.size ? -1 : 1;
    return str_compare(a, b);
}

int natural_compare(struct str a, struct str b)
{
    size_t i = 0, k = 0;

    while (i < a.size && k < b.size) {
        struct str x = chunk_at(a, i), y = chunk_at(b, k);
        bool numbers = is_digit(x.data[0]) && is_digit(y.data[0]);
        int c = numbers ? digits_compare(x, y) : str_compare(x, y);

        if (c != 0)
            return c;
        i += x.size;
        k += y.size;
    }
    return i < a.size ? 1 : k < b.size ? -1 : 0;
}

/* By value, NaN last in both directions. */
static int value_compare(double a, double b, bool descending)
{
    if (isnan(a) || isnan(b))
        return (int)isnan(a) - (int)isnan(b) == 0 ? 0 : isnan(a) ? 1 : -1;
    if (a == b)
        return 0;
    return (a < b) != descending ? -1 : 1;
}

static int by_labels_compare(const struct plan *p, const struct row *a, const struct row *b)
{
    for (size_t i = 1; i < p->node->u.call.arg_count; i++) {
        struct str name = string_arg(p, i);
        int c = natural_compare(labels_get(&a->labels, name), labels_get(&b->labels, name));

        if (c != 0)
            return c;
    }
    return labels_compare(&a->labels, &b->labels);
}

static int sort_order(const struct row *a, const struct row *b, const void *context)
{
    const struct plan *p = context;

    switch (p->function->id) {
    case FUNCTION_SORT:
        return value_compare(a->value[0], b->value[0], false);
    case FUNCTION_SORT_DESC:
        return value_compare(a->value[0], b->value[0], true);
    case FUNCTION_SORT_BY_LABEL:
        return by_labels_compare(p, a, b);
    default:
        return -by_labels_compare(p, a, b);
    }
}

/* sort() and sort_desc() leave histograms out. */
static enum err sort_drop_histograms(struct vector *v, struct errinfo *ei)
{
    enum err e = ERR_OK;
    size_t kept = 0;

    for (size_t i = 0; i < v->count && e == ERR_OK; i++) {
        struct row *row = &v->rows[i];

        for (size_t k = 0; row->histogram != NULL && k < v->grid.count; k++) {
            if (row->histogram[k] != NULL)
                row_clear(row, k);
        }
        if (row->histogram != NULL)
            e = eval_tick(v->eval, v->grid.count, ei);
        row->histogram = NULL;
        if (!row_is_empty(row, &v->grid))
            v->rows[kept++] = *row;
    }
    v->count = kept;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_sort(struct eval *ev, const struct plan *p, struct vector **out, struct errinfo *ei)
{
    struct sort_context context = {.compare = sort_order, .context = p};
    struct vector *v = NULL;
    enum err e = eval_vector(ev, p->input, &v, ei);

    if (e == ERR_OK && (p->function->id == FUNCTION_SORT || p->function->id == FUNCTION_SORT_DESC))
        e = sort_drop_histograms(v, ei);
    /* A range shorter than its step is one all the same. */
    if (e == ERR_OK && p->grid.count == 1 && p->grid.end_ms == p->grid.start_ms)
        e = rows_sort(v, &context, ei);
    else if (e == ERR_OK)
        e = annotations_add(&ev->annotations, ANNOTATION_WARNING, p->node->position, ei,
                            "sort is ineffective for range queries since results are always "
                            "ordered by labels");
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}
