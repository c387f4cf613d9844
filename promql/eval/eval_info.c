/*
 * info(v, {selector}): adds the labels of info series (target_info unless the selector names
 * others) to the series of v that have the same instance and job. Which info series are there may
 * change from step to step, and with them the labels: a series of v becomes as many as it has
 * combinations of partners.
 *
 * Info series are read as of the times that the first selector in v reads: @ and offset of that
 * selector and of the subqueries around it count for both (plan->shift).
 */
#include <string.h>

#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"

static const struct str identifying[] = {{"instance", 8}, {"job", 3}};
enum { IDENTIFYING_COUNT = sizeof identifying / sizeof identifying[0] };

/* Info series of one name and one identity: order[first .. end). */
struct source {
    size_t first, end;
    /* Where there are several, by step: the place in `order` of the one with the newest sample, or
     * end. NULL for a single one. */
    size_t *winner;
};

struct info_run {
    struct eval *ev;
    const struct plan *plan;
    struct vector *base, *info, *out;
    struct arena arena;
    uint64_t *base_any; /* steps at which v has any sample */
    /* The selector's matchers: by what info series are told, and by what of their labels. */
    const struct matcher *selector;
    size_t selector_count;
    struct matcher name; /* ours, where the selector has no name */
    bool has_name;
    struct label_table identities;
    size_t *order; /* info rows by identity, then name */
    size_t *identity_of;
    struct source *sources; /* by identity, then name */
    size_t source_count;
    size_t *first_source; /* by identity; one more at the end */
};

static bool is_name_matcher(const struct matcher *m)
{
    return str_equal(m->name, LABEL_METRIC_NAME);
}

/* Without a matcher that demands a name, names must be target_info; beside matchers that only
 * exclude some, they must end in _info. */
static enum err name_matcher_make(struct info_run *r, struct errinfo *ei)
{
    bool any = false;
    enum err e;

    for (size_t i = 0; i < r->selector_count; i++) {
        const struct matcher *m = &r->selector[i];

        if (is_name_matcher(m) && (m->kind == MATCHER_EQUAL || m->kind == MATCHER_REGEX))
            return ERR_OK;
        any = any || is_name_matcher(m);
    }
    e = matcher_init(&r->name, any ? MATCHER_REGEX : MATCHER_EQUAL, LABEL_METRIC_NAME,
                     any ? STR_LITERAL(".+_info") : STR_LITERAL("target_info"), &r->arena, ei);
    r->has_name = e == ERR_OK;
    return e;
}

/* True for what are info series themselves: they stay as they are. */
static bool is_info_name(const struct info_run *r, struct str name)
{
    if (r->has_name && !matcher_matches(&r->name, name))
        return false;
    for (size_t i = 0; i < r->selector_count; i++) {
        if (is_name_matcher(&r->selector[i]) && !matcher_matches(&r->selector[i], name))
            return false;
    }
    return true;
}

static bool base_is_info(const struct info_run *r, const struct row *row)
{
    return is_info_name(r, labels_get(&row->labels, LABEL_METRIC_NAME));
}

/* --- the info series --- */

/* The values of an identifying label among the series of v. */
static enum err identity_values(struct info_run *r, struct str label, struct label_table *values,
                                struct errinfo *ei)
{
    enum err e = ERR_OK;

    label_table_init(values, &r->arena);
    for (size_t i = 0; i < r->base->count && e == ERR_OK; i++) {
        struct str value = labels_get(&r->base->rows[i].labels, label);
        struct label item = {label, value};
        struct labels key = {1, &item};
        size_t index;
        bool added;

        e = eval_tick(r->ev, 16, ei);
        if (e == ERR_OK && value.size > 0 && !base_is_info(r, &r->base->rows[i]))
            e = label_table_add(values, &key, &index, &added, ei);
    }
    return e;
}

/* Drops info series whose value of `label` no series of v has. */
static void info_filter(struct info_run *r, struct str label, const struct label_table *values)
{
    size_t kept = 0;

    for (size_t i = 0; i < r->info->count; i++) {
        struct label item = {label, labels_get(&r->info->rows[i].labels, label)};
        struct labels key = {1, &item};

        if (label_table_find(values, &key) != SIZE_MAX)
            r->info->rows[kept++] = r->info->rows[i];
    }
    r->info->count = kept;
}

/* Reads the series that `matchers` select; their values are the times of their samples, in seconds.
 */
static enum err info_select(struct info_run *r, const struct matcher *matchers, size_t count,
                            struct errinfo *ei)
{
    const struct node selector = {
        .kind = NODE_SELECTOR,
        .type = VALUE_VECTOR,
        .u.selector = {.matchers = matchers, .matcher_count = count},
    };
    const struct plan select = {
        .kind = PLAN_SELECTOR,
        .node = &selector,
        .selector = &selector,
        .shift = r->plan->shift,
        .wants_timestamp = true,
        .refuses_histograms = true,
        .grid = r->plan->grid,
        .need = {.all = true},
        .order = ORDER_LABELS,
    };

    return eval_vector(r->ev, &select, &r->info, ei);
}

/* Info series that may belong to some series of v; none where that has no identity at all. */
static enum err info_read(struct info_run *r, struct errinfo *ei)
{
    struct label_table values[IDENTIFYING_COUNT];
    struct matcher *matchers =
        ARENA_ARRAY(&r->arena, r->selector_count + 1 + IDENTIFYING_COUNT, struct matcher);
    size_t count = 0, any = 0;
    enum err e = ERR_OK;

    if (matchers == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; i < r->selector_count; i++)
        matchers[count++] = r->selector[i];
    if (r->has_name)
        matchers[count++] = r->name;
    for (size_t i = 0; i < IDENTIFYING_COUNT && e == ERR_OK; i++) {
        e = identity_values(r, identifying[i], &values[i], ei);
        any += e == ERR_OK ? values[i].count : 0;
        if (e == ERR_OK && values[i].count == 1) /* spares reading those of the whole fleet */
            e = matcher_init(&matchers[count++], MATCHER_EQUAL, identifying[i],
                             values[i].keys[0].items[0].value, &r->arena, ei);
    }
    if (e != ERR_OK)
        return e;
    if (any == 0)
        return vector_new(r->ev, &r->plan->grid, &r->info, ei);
    e = info_select(r, matchers, count, ei);
    for (size_t i = 0; i < IDENTIFYING_COUNT && e == ERR_OK; i++) {
        if (values[i].count > 0)
            info_filter(r, identifying[i], &values[i]);
    }
    return e;
}

static struct str info_name(const struct info_run *r, size_t row)
{
    return labels_get(&r->info->rows[row].labels, LABEL_METRIC_NAME);
}

static int order_compare(const void *a, const void *b, void *context)
{
    const struct info_run *r = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    if (r->identity_of[x] != r->identity_of[y])
        return r->identity_of[x] < r->identity_of[y] ? -1 : 1;
    return str_compare(info_name(r, x), info_name(r, y)); /* the sort is stable */
}

static enum err info_order(struct info_run *r, struct errinfo *ei)
{
    size_t count = r->info->count;
    enum err e = ERR_OK;

    label_table_init(&r->identities, &r->arena);
    r->order = ARENA_ARRAY(&r->arena, count, size_t);
    r->identity_of = ARENA_ARRAY(&r->arena, count, size_t);
    if (r->order == NULL || r->identity_of == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        struct labels key;
        bool added;

        r->order[i] = i;
        e = labels_keep(&r->info->rows[i].labels, identifying, IDENTIFYING_COUNT, &r->arena, &key,
                        ei);
        if (e == ERR_OK)
            e = label_table_add(&r->identities, &key, &r->identity_of[i], &added, ei);
        if (e == ERR_OK)
            e = eval_tick(r->ev, 16, ei);
    }
    return e == ERR_OK
               ? eval_sort_items(r->ev, r->order, count, sizeof *r->order, order_compare, r, ei)
               : e;
}

static int64_t sample_ms(const struct row *row, size_t step)
{
    return llround(row->value[step] * 1000);
}

static enum err duplicate_refuse(struct info_run *r, size_t existing, size_t other, size_t step,
                                 struct errinfo *ei)
{
    const struct row *a = &r->info->rows[existing], *b = &r->info->rows[other];
    char *a_text = labels_text(&a->labels, &r->arena), *b_text = labels_text(&b->labels, &r->arena);

    if (a_text == NULL || b_text == NULL)
        return arena_refused(&r->arena, ei);
    return errinfo_set(ei, ERR_EXECUTION, 0,
                       "found duplicate series for info metric: existing %s @ %lld, new %s @ %lld",
                       a_text, (long long)sample_ms(a, step), b_text,
                       (long long)sample_ms(b, step));
}

/* Of several info series of one name and identity the one with the newest sample counts; two of the
 * same time are an error, where v has anything at all. */
static enum err source_resolve(struct info_run *r, struct source *s, struct errinfo *ei)
{
    size_t steps = r->plan->grid.count;
    enum err e = ERR_OK;

    s->winner = ARENA_ARRAY(&r->arena, steps, size_t);
    if (s->winner == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t k = 0; k < steps && e == ERR_OK; k++) {
        s->winner[k] = s->end;
        e = eval_tick(r->ev, s->end - s->first, ei);
        for (size_t i = s->first; i < s->end && e == ERR_OK; i++) {
            const struct row *row = &r->info->rows[r->order[i]], *best;

            if (!row_has(row, k) || !((r->base_any[k / 64] >> (k % 64)) & 1))
                continue;
            best = s->winner[k] == s->end ? NULL : &r->info->rows[r->order[s->winner[k]]];
            if (best == NULL || sample_ms(best, k) < sample_ms(row, k))
                s->winner[k] = i;
            else if (sample_ms(best, k) == sample_ms(row, k))
                e = duplicate_refuse(r, r->order[s->winner[k]], r->order[i], k, ei);
        }
    }
    return e;
}

static enum err sources_make(struct info_run *r, struct errinfo *ei)
{
    size_t count = r->info->count;
    enum err e = info_order(r, ei);

    r->sources = ARENA_ARRAY(&r->arena, count, struct source);
    r->first_source = ARENA_ARRAY(&r->arena, r->identities.count + 1, size_t);
    if (e == ERR_OK && (r->sources == NULL || r->first_source == NULL))
        return arena_refused(&r->arena, ei);
    for (size_t i = 0, end; e == ERR_OK && i < count; i = end) {
        size_t identity = r->identity_of[r->order[i]];
        struct source *s = &r->sources[r->source_count];

        for (end = i + 1; end < count && order_compare(&r->order[i], &r->order[end], r) == 0;)
            end++;
        if (i == 0 || r->identity_of[r->order[i - 1]] != identity)
            r->first_source[identity] = r->source_count;
        r->source_count++;
        *s = (struct source){.first = i, .end = end};
        if (end - i > 1)
            e = source_resolve(r, s, ei);
    }
    /* Identities were numbered as their rows came, and are sorted by number. */
    if (e == ERR_OK)
        r->first_source[r->identities.count] = r->source_count;
    return e;
}

/* --- joining --- */

/* What one series of v has met: which info series of each source, and the row that came of it. */
struct combination {
    size_t *partners; /* by source: place in `order`, or SIZE_MAX */
    size_t row;       /* of r->out; SIZE_MAX: dropped */
    struct combination *next;
};

static size_t partner_at(const struct info_run *r, const struct source *s, size_t step)
{
    if (s->winner != NULL)
        return s->winner[step] == s->end ? SIZE_MAX : s->winner[step];
    return row_has(&r->info->rows[r->order[s->first]], step) ? s->first : SIZE_MAX;
}

/* True when the selector asks for some labels only and not for this one. */
static bool label_is_left_out(const struct info_run *r, struct str name)
{
    bool any = false;

    for (size_t i = 0; i < r->selector_count; i++) {
        if (str_equal(r->selector[i].name, name))
            return false;
        any = any || !is_name_matcher(&r->selector[i]);
    }
    return any;
}

/* Adds the labels of one info series to `added`. */
static enum err labels_collect(struct info_run *r, const struct row *base, const struct row *info,
                               struct labels *added, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < info->labels.count && e == ERR_OK; i++) {
        struct label l = info->labels.items[i];
        struct str other;

        if (str_equal(l.name, LABEL_METRIC_NAME) || label_is_left_out(r, l.name))
            continue;
        other = labels_get(added, l.name);
        if (other.size > 0 && !str_equal(other, l.value))
            return errinfo_set(ei, ERR_EXECUTION, 0, "conflicting label: %.*s", STR_ARGS(l.name));
        if (labels_get(&base->labels, l.name).size == 0)
            e = labels_with(added, l.name, l.value, &r->arena, added, ei);
    }
    return e;
}

/* A series without a partner is dropped where a matcher demands a label. */
static bool is_dropped_alone(const struct info_run *r)
{
    for (size_t i = 0; i < r->selector_count; i++) {
        if (!is_name_matcher(&r->selector[i]) && !matcher_matches_empty(&r->selector[i]))
            return true;
    }
    return false;
}

static enum err combination_new(struct info_run *r, const struct row *base, const size_t *partners,
                                size_t count, struct combination **out, struct errinfo *ei)
{
    struct combination *c = ARENA_NEW(&r->arena, struct combination);
    struct labels added = {0, NULL}, all = base->labels;
    struct row *row;
    bool alone = true;
    enum err e = ERR_OK;

    if (c != NULL)
        c->partners = ARENA_ARRAY(&r->arena, count, size_t);
    if (c == NULL || c->partners == NULL)
        return arena_refused(&r->arena, ei);
    memcpy(c->partners, partners, count * sizeof *partners);
    c->row = SIZE_MAX;
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        if (partners[i] == SIZE_MAX)
            continue;
        alone = false;
        e = labels_collect(r, base, &r->info->rows[r->order[partners[i]]], &added, ei);
    }
    *out = c;
    if (e != ERR_OK || (alone && is_dropped_alone(r) && !base_is_info(r, base)))
        return e;
    for (size_t i = 0; i < added.count && e == ERR_OK; i++)
        e = labels_with(&all, added.items[i].name, added.items[i].value, &r->arena, &all, ei);
    if (e == ERR_OK)
        e = vector_add(r->out, &row, ei);
    if (e == ERR_OK)
        e = labels_copy(&all, &r->out->arena, &row->labels, ei);
    if (e != ERR_OK)
        return e;
    row->drop_name = base->drop_name;
    c->row = r->out->count - 1;
    return ERR_OK;
}

/* The combination of one step, made when it is new. */
static enum err combination_find(struct info_run *r, const struct row *base, const size_t *partners,
                                 size_t count, struct combination **all, struct combination **out,
                                 struct errinfo *ei)
{
    enum err e;

    for (struct combination *c = *all; c != NULL; c = c->next) {
        if (memcmp(c->partners, partners, count * sizeof *partners) == 0) {
            *out = c;
            return eval_tick(r->ev, count, ei);
        }
    }
    e = combination_new(r, base, partners, count, out, ei);
    if (e != ERR_OK)
        return e;
    ASSERT(*out != NULL);
    (*out)->next = *all;
    *all = *out;
    return ERR_OK;
}

static enum err sample_copy(struct info_run *r, const struct row *from, size_t step, struct row *to,
                            struct histogram_keeper *keeper, struct errinfo *ei)
{
    const struct histogram *h = row_histogram(from, step);
    enum err e;

    if (h == NULL) {
        row_set(to, step, from->value[step]);
        return ERR_OK;
    }
    e = row_want_histograms(r->ev, to, &r->plan->grid, keeper->arena, ei);
    if (e == ERR_OK)
        e = histogram_keep(keeper, h, &h, ei);
    if (e == ERR_OK)
        row_set_histogram(to, step, h);
    return e;
}

static enum err base_join(struct info_run *r, const struct row *base, struct errinfo *ei)
{
    struct combination *all = NULL, *c = NULL;
    const struct source *sources = r->sources;
    size_t *partners, count = 0, identity = SIZE_MAX;
    struct histogram_keeper keeper = {.arena = &r->out->arena};
    struct labels key;
    enum err e = labels_keep(&base->labels, identifying, IDENTIFYING_COUNT, &r->arena, &key, ei);

    if (e == ERR_OK && !base_is_info(r, base))
        identity = label_table_find(&r->identities, &key);
    if (identity != SIZE_MAX) {
        sources += r->first_source[identity];
        count = r->first_source[identity + 1] - r->first_source[identity];
    }
    partners = ARENA_ARRAY(&r->arena, count, size_t);
    if (partners == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        e = eval_tick(r->ev, 1 + count, ei);
        if (e != ERR_OK || !row_has(base, k))
            continue;
        for (size_t i = 0; i < count; i++)
            partners[i] = partner_at(r, &sources[i], k);
        if (c == NULL || memcmp(c->partners, partners, count * sizeof *partners) != 0)
            e = combination_find(r, base, partners, count, &all, &c, ei);
        if (e == ERR_OK && c->row != SIZE_MAX)
            e = sample_copy(r, base, k, &r->out->rows[c->row], &keeper, ei);
    }
    return e;
}

static enum err base_join_all(struct info_run *r, struct errinfo *ei)
{
    enum err e = vector_new(r->ev, &r->plan->grid, &r->out, ei);

    for (size_t i = 0; i < r->base->count && e == ERR_OK; i++)
        e = base_join(r, &r->base->rows[i], ei);
    if (e == ERR_OK)
        e = vector_merge(r->out, ei);
    return e == ERR_OK ? vector_hold(r->out, ei) : e;
}

static enum err base_read(struct info_run *r, struct errinfo *ei)
{
    size_t words = grid_words(&r->plan->grid);
    enum err e = eval_vector(r->ev, r->plan->input, &r->base, ei);

    r->base_any = arena_calloc(&r->arena, words, sizeof *r->base_any);
    if (e == ERR_OK && r->base_any == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; e == ERR_OK && i < r->base->count; i++) {
        for (size_t w = 0; w < words; w++)
            r->base_any[w] |= r->base->rows[i].present[w];
        e = eval_tick(r->ev, 4 + words, ei);
    }
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_info(struct eval *ev, const struct plan *p, struct vector **out, struct errinfo *ei)
{
    struct info_run r = {.ev = ev, .plan = p};
    enum err e;

    arena_init(&r.arena, ev->query->memory);
    if (p->node->u.call.arg_count > 1) {
        const struct node *selector = p->node->u.call.args[1];

        r.selector = selector->u.selector.matchers;
        r.selector_count = selector->u.selector.matcher_count;
    }
    e = base_read(&r, ei);
    if (e == ERR_OK)
        e = name_matcher_make(&r, ei);
    if (e == ERR_OK)
        e = info_read(&r, ei);
    if (e == ERR_OK)
        e = sources_make(&r, ei);
    if (e == ERR_OK)
        e = base_join_all(&r, ei);
    if (e == ERR_OK)
        *out = TAKE(r.out);
    vector_free(r.out);
    vector_free(r.info);
    vector_free(r.base);
    if (r.has_name)
        matcher_done(&r.name);
    arena_done(&r.arena);
    return e;
}
