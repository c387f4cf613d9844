/*
 * Selection in a part.
 *
 * Matchers on the metric name choose ranges of series, since a metric's series stand together. All
 * others choose entities, as bits: one that refuses the empty string keeps the union of its values'
 * postings, one that accepts it removes the union of the other values' (a missing label counts as
 * empty). Series are then those of the ranges whose entity is left. Matchers that need only a few
 * values come first; where few series are in question, a matcher that would have to be asked about
 * every value of its label is asked about theirs only.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

struct range {
    uint32_t first, end;
};

struct selection {
    struct part *p;
    const _Atomic bool *stop;
    struct arena *arena;
    struct errinfo *ei;
    struct range *ranges; /* of series, ascending, not touching */
    size_t range_count, range_capacity;
    uint64_t *entities; /* bits that are left; NULL: all */
    size_t words;
};

static enum err check_stop(const struct selection *s)
{
    /* relaxed: a flag that orders nothing */
    if (s->stop != NULL && atomic_load_explicit(s->stop, memory_order_relaxed))
        return errinfo_set(s->ei, ERR_CANCELED, 0, "selection was stopped");
    return ERR_OK;
}

/* ---- values that a matcher accepts, or refuses ---- */

/* Called with numbers of values, ascending. */
struct value_visitor {
    enum err (*visit)(struct selection *s, void *ctx, uint32_t value);
    void *ctx;
};

static bool has_prefix(struct str text, struct str prefix)
{
    return text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(text.data, prefix.data, prefix.size) == 0);
}

/* Asks the matcher about values from `first` on, while they have the prefix. */
static enum err scan_values(struct selection *s, const struct matcher *m, uint32_t name,
                            bool wanted, uint32_t first, struct str prefix,
                            const struct value_visitor *v)
{
    struct part_value_cursor c;
    enum err e = ERR_OK;

    part_value_cursor_init(&c, s->p, name);
    for (uint32_t i = first; i < s->p->names[name].value_count && e == ERR_OK; i++) {
        struct str text;

        if (i % 1024 == 0 && (e = check_stop(s)) != ERR_OK)
            break;
        e = part_value_cursor_get(&c, i, &text, s->ei);
        if (e != ERR_OK || !has_prefix(text, prefix))
            break;
        if (matcher_matches(m, text) == wanted)
            e = v->visit(s, v->ctx, i);
    }
    part_value_cursor_done(&c);
    return e;
}

static enum err find_values(struct selection *s, uint32_t name, const struct str *texts,
                            size_t count, const struct value_visitor *v)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        uint32_t value;

        e = part_value_find(s->p, name, texts[i], &value, s->ei);
        if (e == ERR_OK && value != PART_NO_VALUE)
            e = v->visit(s, v->ctx, value);
    }
    return e;
}

/* Whether the wanted values are those that the form of the matcher names itself. */
static bool wants_named(const struct matcher *m, bool wanted)
{
    return (m->kind == MATCHER_EQUAL || m->kind == MATCHER_REGEX) == wanted;
}

static bool is_cheap(const struct matcher *m, bool wanted)
{
    return wants_named(m, wanted) &&
           (m->form == MATCHER_FORM_LITERAL || m->form == MATCHER_FORM_SET);
}

/* Visits the values of `name` for which matcher_matches() == wanted. */
static enum err visit_values(struct selection *s, const struct matcher *m, uint32_t name,
                             bool wanted, const struct value_visitor *v)
{
    struct str prefix = {NULL, 0};
    uint32_t first = 0;
    enum err e = ERR_OK;

    if (is_cheap(m, wanted) && m->form == MATCHER_FORM_LITERAL)
        return find_values(s, name, &m->value, 1, v);
    if (is_cheap(m, wanted))
        return find_values(s, name, m->set, m->set_count, v);
    if (wants_named(m, wanted) && (m->form == MATCHER_FORM_WILD || m->form == MATCHER_FORM_REGEX)) {
        prefix = m->prefix;
        if (prefix.size > 0)
            e = part_value_lower_bound(s->p, name, prefix, &first, s->ei);
    }
    return e == ERR_OK ? scan_values(s, m, name, wanted, first, prefix, v) : e;
}

/* ---- metric names ---- */

static enum err range_add(struct selection *s, uint32_t first, uint32_t end)
{
    if (first == end)
        return ERR_OK;
    if (s->range_count > 0 && s->ranges[s->range_count - 1].end == first) {
        s->ranges[s->range_count - 1].end = end;
        return ERR_OK;
    }
    if (s->range_count == s->range_capacity) {
        size_t grown = s->range_capacity == 0 ? 16 : s->range_capacity * 2;

        s->ranges = arena_grow_array(s->arena, s->ranges, s->range_count, grown, sizeof *s->ranges);
        if (s->ranges == NULL)
            return arena_error(s->arena, s->ei);
        s->range_capacity = grown;
    }
    s->ranges[s->range_count++] = (struct range){first, end};
    return ERR_OK;
}

struct metric_choice {
    const struct matcher *first;         /* chose the values */
    const struct matcher *const *others; /* of the same name */
    size_t other_count;
};

static enum err visit_metric(struct selection *s, void *ctx, uint32_t value)
{
    const struct metric_choice *c = ctx;
    enum err e = ERR_OK;

    if (c->other_count > 0) {
        struct part_value_cursor cursor;
        struct str text = {NULL, 0};
        bool matches = true;

        part_value_cursor_init(&cursor, s->p, s->p->metric_name);
        e = part_value_cursor_get(&cursor, value, &text, s->ei);
        for (size_t i = 0; i < c->other_count && e == ERR_OK; i++)
            matches = matches && matcher_matches(c->others[i], text);
        part_value_cursor_done(&cursor);
        if (e != ERR_OK || !matches)
            return e;
    }
    return range_add(s, s->p->metric_starts[value], s->p->metric_starts[value + 1]);
}

/* Series by all matchers of the metric name. The set and literal forms come in byte order, so the
 * ranges ascend. */
static enum err choose_metrics(struct selection *s, const struct matcher **metrics, size_t count)
{
    struct metric_choice c = {.first = NULL, .others = metrics, .other_count = count};
    struct value_visitor v = {visit_metric, &c};
    bool empty = true;
    enum err e;

    if (count == 0)
        return range_add(s, 0, s->p->footer.info.series_count);
    for (size_t i = 0; i < count; i++) {
        empty = empty && matcher_matches_empty(metrics[i]);
        if (is_cheap(metrics[i], true) && !is_cheap(metrics[0], true)) {
            const struct matcher *swap = metrics[0];

            metrics[0] = metrics[i];
            metrics[i] = swap;
        }
    }
    e = empty ? range_add(s, 0, s->p->footer.unnamed_count) : ERR_OK;
    c.others = metrics + 1;
    c.other_count = count - 1;
    if (e == ERR_OK && s->p->metric_name != PART_NO_NAME)
        e = visit_values(s, metrics[0], s->p->metric_name, true, &v);
    return e;
}

static size_t chosen_count(const struct selection *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->range_count; i++)
        n += s->ranges[i].end - s->ranges[i].first;
    return n;
}

/* ---- entities as bits ---- */

static uint64_t *bits_new(struct selection *s)
{
    return arena_calloc(s->arena, s->words + 1, sizeof(uint64_t));
}

static void bits_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static bool bits_get(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

/* Decoded form: the number of values, their starts and the end, the entities. */
static enum err postings_decode(struct part *p, uint32_t index, struct page **out,
                                struct errinfo *ei)
{
    uint32_t counts[PART_POSTINGS_PER_PAGE], *to;
    struct byte_reader r;
    struct page *page, *decoded = NULL;
    uint64_t values, total = 0;
    enum err e = part_page_get(p, PART_SECTION_POSTINGS, index, &page, ei);

    if (e != ERR_OK)
        return e;
    r = part_page_reader(page);
    values = reader_varint(&r);
    if (values == 0 || values > PART_POSTINGS_PER_PAGE ||
        !part_ints_get(&r, (size_t)values, PART_POSTINGS_PER_PAGE, counts))
        r.failed = true;
    for (uint64_t i = 0; i < values && !r.failed; i++)
        total += counts[i];
    if (r.failed || total > PART_POSTINGS_PER_PAGE || p->footer.info.entity_count == 0)
        e = part_page_corrupt(p, PART_SECTION_POSTINGS, index, ei);
    else
        e = part_decoded_new(p, PART_SECTION_POSTINGS, index,
                             (size_t)(2 + values + total) * sizeof *to, &decoded, ei);
    if (decoded != NULL) {
        to = (uint32_t *)(void *)decoded->data;
        *to++ = (uint32_t)values;
        *to++ = 0;
        for (uint64_t i = 0; i < values; i++, to++)
            *to = to[-1] + counts[i];
        if (!part_ints_get(&r, (size_t)total, p->footer.info.entity_count - 1, to) ||
            reader_left(&r) != 0)
            e = part_page_corrupt(p, PART_SECTION_POSTINGS, index, ei);
    }
    page_release(page);
    if (e == ERR_OK)
        *out = part_decoded_keep(p, TAKE(decoded));
    page_release(decoded);
    return e;
}

enum err part_postings_get(struct part *p, uint32_t index, struct part_postings_page *out,
                           struct errinfo *ei)
{
    struct page *page = part_decoded_find(p, PART_SECTION_POSTINGS, index);
    const uint32_t *numbers;
    enum err e = page == NULL ? postings_decode(p, index, &page, ei) : ERR_OK;

    if (e != ERR_OK)
        return e;
    numbers = (const uint32_t *)(const void *)page->data;
    *out = (struct part_postings_page){
        .first_value = p->footer.tables[PART_SECTION_POSTINGS].pages[index].key,
        .value_count = numbers[0],
        .starts = numbers + 1,
        .entities = numbers + 2 + numbers[0],
        .page = page,
    };
    return ERR_OK;
}

/* Unites posting lists of one name; values come in ascending order. */
struct posting_union {
    uint32_t name;
    uint64_t *bits;
    struct part_postings_page page; /* at hand */
    uint32_t page_index;            /* UINT32_MAX: none */
};

static void unite_page(struct posting_union *u, uint32_t value)
{
    const struct part_postings_page *page = &u->page;
    uint32_t i = value - page->first_value;

    if (value < page->first_value || i >= page->value_count)
        return;
    for (uint32_t k = page->starts[i]; k < page->starts[i + 1]; k++)
        bits_set(u->bits, page->entities[k]);
}

static enum err unite_load(struct selection *s, struct posting_union *u, uint32_t index)
{
    enum err e;

    if (u->page_index == index)
        return ERR_OK;
    page_release(u->page.page);
    u->page.page = NULL;
    e = part_postings_get(s->p, index, &u->page, s->ei);
    u->page_index = e == ERR_OK ? index : UINT32_MAX;
    return e;
}

static enum err visit_postings(struct selection *s, void *ctx, uint32_t value)
{
    struct posting_union *u = ctx;
    const struct part_name_entry *n = &s->p->names[u->name];
    const struct part_page_entry *pages = s->p->footer.tables[PART_SECTION_POSTINGS].pages;
    uint32_t index =
        part_page_find(s->p, PART_SECTION_POSTINGS, n->posting_page, n->posting_page_count, value);
    enum err e = unite_load(s, u, index);

    if (e == ERR_OK)
        unite_page(u, value);
    /* A long list has several pages of its own, all with the same key; the last one was found. */
    while (e == ERR_OK && index > n->posting_page && pages[index].key == value &&
           pages[index - 1].key == value) {
        e = unite_load(s, u, --index);
        if (e == ERR_OK)
            unite_page(u, value);
        if (e == ERR_OK)
            e = check_stop(s);
    }
    return e;
}

/* Makes the bits of all entities, if they are not there yet. */
static enum err entities_need(struct selection *s)
{
    uint32_t count = s->p->footer.info.entity_count;

    if (s->entities != NULL)
        return ERR_OK;
    s->entities = bits_new(s);
    if (s->entities == NULL)
        return arena_error(s->arena, s->ei);
    memset(s->entities, 0xff, s->words * sizeof *s->entities);
    if (count % 64 != 0)
        s->entities[count / 64] = (UINT64_C(1) << (count % 64)) - 1;
    return ERR_OK;
}

static enum err apply_postings(struct selection *s, const struct matcher *m, uint32_t name,
                               bool include)
{
    struct posting_union u = {.name = name, .bits = bits_new(s), .page_index = UINT32_MAX};
    struct value_visitor v = {visit_postings, &u};
    enum err e = u.bits == NULL ? arena_error(s->arena, s->ei) : entities_need(s);

    if (e == ERR_OK)
        e = visit_values(s, m, name, include, &v);
    page_release(u.page.page);
    for (size_t i = 0; i < s->words && e == ERR_OK; i++)
        s->entities[i] &= include ? u.bits[i] : ~u.bits[i];
    return e;
}

/* ---- few series: their values are looked at, one by one ---- */

enum verdict { VERDICT_UNKNOWN, VERDICT_YES, VERDICT_NO };

struct value_filter {
    const struct matcher *matcher;
    uint32_t name;
    uint8_t *verdicts; /* by value */
    struct part_value_cursor cursor;
};

static enum err filter_value(struct selection *s, struct value_filter *f, uint32_t value, bool *yes)
{
    struct str text = {NULL, 0};
    enum err e = ERR_OK;

    if (value == PART_NO_VALUE) {
        *yes = matcher_matches_empty(f->matcher);
        return ERR_OK;
    }
    if (f->verdicts[value] == VERDICT_UNKNOWN) {
        e = part_value_cursor_get(&f->cursor, value, &text, s->ei);
        if (e == ERR_OK)
            f->verdicts[value] = matcher_matches(f->matcher, text) ? VERDICT_YES : VERDICT_NO;
    }
    *yes = f->verdicts[value] == VERDICT_YES;
    return e;
}

static uint32_t entity_value(const struct part_entity_page *page, uint32_t entity, uint32_t name)
{
    const struct part_schema *schema = &page->schemas[page->schema[entity]];

    for (uint32_t i = 0; i < schema->name_count; i++) {
        if (schema->names[i] == name)
            return schema->values[(size_t)i * schema->entity_count + page->row[entity]];
    }
    return PART_NO_VALUE;
}

static enum err filter_page(struct selection *s, struct value_filter *f, uint32_t index,
                            struct arena *scratch)
{
    struct part_entity_page page;
    enum err e = part_entity_page_read(s->p, index, scratch, &page, s->ei);

    for (uint32_t i = 0; e == ERR_OK && i < page.count; i++) {
        bool yes = false;

        if (!bits_get(s->entities, page.first + i))
            continue;
        e = filter_value(s, f, entity_value(&page, i, f->name), &yes);
        if (!yes)
            s->entities[(page.first + i) / 64] &= ~(UINT64_C(1) << ((page.first + i) % 64));
    }
    return e;
}

static bool page_is_empty(const struct selection *s, uint32_t index)
{
    enum { WORDS = PART_ENTITIES_PER_PAGE / 64 };

    for (size_t i = (size_t)index * WORDS; i < ((size_t)index + 1) * WORDS && i < s->words; i++) {
        if (s->entities[i] != 0)
            return false;
    }
    return true;
}

static enum err apply_filter(struct selection *s, const struct matcher *m, uint32_t name)
{
    struct value_filter f = {.matcher = m, .name = name};
    struct arena scratch;
    enum err e = ERR_OK;

    f.verdicts = arena_calloc(s->arena, s->p->names[name].value_count, sizeof *f.verdicts);
    if (f.verdicts == NULL)
        return arena_error(s->arena, s->ei);
    arena_init(&scratch, s->arena->budget);
    part_value_cursor_init(&f.cursor, s->p, name);
    for (uint32_t i = 0; i < s->p->footer.tables[PART_SECTION_ENTITIES].count && e == ERR_OK; i++) {
        if (page_is_empty(s, i))
            continue;
        arena_reset(&scratch);
        e = filter_page(s, &f, i, &scratch);
        if (e == ERR_OK)
            e = check_stop(s);
    }
    part_value_cursor_done(&f.cursor);
    arena_done(&scratch);
    return e;
}

/* ---- series of the entities that are left ---- */

/* Calls `visit` for the series of the ranges with their entities. */
static enum err walk_refs(struct selection *s,
                          void (*visit)(void *ctx, uint32_t series, uint32_t entity), void *ctx)
{
    struct part_refs refs = {.page = NULL};
    enum err e = ERR_OK;

    for (size_t i = 0; i < s->range_count && e == ERR_OK; i++) {
        uint32_t series = s->ranges[i].first;

        while (series < s->ranges[i].end && e == ERR_OK) {
            e = check_stop(s);
            if (e == ERR_OK)
                e = part_refs_seek(s->p, series, &refs, s->ei);
            for (; e == ERR_OK && series < s->ranges[i].end && series - refs.first < refs.count;
                 series++)
                visit(ctx, series, refs.entities[series - refs.first]);
        }
    }
    page_release(refs.page);
    return e;
}

static void visit_mark(void *ctx, uint32_t series, uint32_t entity)
{
    (void)series;
    bits_set(ctx, entity);
}

/* Narrows the entities to those of the chosen series. */
static enum err entities_of_ranges(struct selection *s)
{
    uint64_t *bits = bits_new(s);
    enum err e;

    if (bits == NULL)
        return arena_error(s->arena, s->ei);
    e = walk_refs(s, visit_mark, bits);
    for (size_t i = 0; e == ERR_OK && s->entities != NULL && i < s->words; i++)
        bits[i] &= s->entities[i];
    s->entities = bits;
    return e;
}

struct collector {
    const uint64_t *entities;
    uint32_t *series;
    size_t count;
};

static void visit_collect(void *ctx, uint32_t series, uint32_t entity)
{
    struct collector *c = ctx;

    c->series[c->count] = series;
    c->count += bits_get(c->entities, entity);
}

static enum err collect(struct selection *s, uint32_t **out, size_t *out_count)
{
    struct collector c = {.entities = s->entities};
    enum err e = ERR_OK;

    /* One more: visit_collect() writes before it counts. */
    c.series = ARENA_ARRAY(s->arena, chosen_count(s) + 1, uint32_t);
    if (c.series == NULL)
        return arena_error(s->arena, s->ei);
    if (s->entities != NULL) {
        e = walk_refs(s, visit_collect, &c);
    } else {
        for (size_t i = 0; i < s->range_count; i++) {
            for (uint32_t k = s->ranges[i].first; k < s->ranges[i].end; k++)
                c.series[c.count++] = k;
        }
    }
    *out = c.series;
    *out_count = c.count;
    return e;
}

/* ---- one matcher after the other ---- */

static size_t entities_left(const struct selection *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->words; i++)
        n += (size_t)__builtin_popcountll(s->entities[i]);
    return n;
}

/* A matcher of a label that no series has: all or nothing. */
static enum err apply_unknown(struct selection *s, bool include)
{
    enum err e = entities_need(s);

    if (e == ERR_OK && include)
        memset(s->entities, 0, s->words * sizeof *s->entities);
    return e;
}

static enum err apply(struct selection *s, const struct matcher *m, bool *narrowed)
{
    bool include = !matcher_matches_empty(m);
    uint32_t name = part_name_find(s->p, m->name);
    uint32_t values;
    enum err e = ERR_OK;

    if (name == PART_NO_NAME)
        return apply_unknown(s, include);
    if (is_cheap(m, include))
        return apply_postings(s, m, name, include);
    /* Every value has to be asked, or every series in question. */
    values = s->p->names[name].value_count;
    if (!*narrowed && chosen_count(s) < s->p->footer.info.series_count)
        e = entities_of_ranges(s);
    *narrowed = true;
    if (e == ERR_OK)
        e = entities_need(s);
    if (e != ERR_OK)
        return e;
    return entities_left(s) / 4 < values ? apply_filter(s, m, name)
                                         : apply_postings(s, m, name, include);
}

static enum err run(struct selection *s, const struct matcher *matchers, size_t count)
{
    const struct matcher **metrics = arena_calloc(s->arena, count + 1, sizeof(void *));
    size_t metric_count = 0;
    bool narrowed = false;
    enum err e;

    if (metrics == NULL)
        return arena_error(s->arena, s->ei);
    for (size_t i = 0; i < count; i++) {
        if (str_equal(matchers[i].name, LABEL_METRIC_NAME))
            metrics[metric_count++] = &matchers[i];
    }
    e = choose_metrics(s, metrics, metric_count);
    for (int cheap = 1; cheap >= 0; cheap--) {
        for (size_t i = 0; i < count && e == ERR_OK && s->range_count > 0; i++) {
            const struct matcher *m = &matchers[i];

            if (!str_equal(m->name, LABEL_METRIC_NAME) &&
                is_cheap(m, !matcher_matches_empty(m)) == (cheap == 1))
                e = apply(s, m, &narrowed);
        }
    }
    return e;
}

enum err part_select(struct part *p, const struct matcher *matchers, size_t matcher_count,
                     const _Atomic bool *stop, struct arena *arena, uint32_t **out,
                     size_t *out_count, struct errinfo *ei)
{
    struct selection s = {.p = p, .stop = stop, .arena = arena, .ei = ei};
    enum err e = check_stop(&s);

    s.words = ((size_t)p->footer.info.entity_count + 63) / 64;
    if (e == ERR_OK)
        e = run(&s, matchers, matcher_count);
    return e == ERR_OK ? collect(&s, out, out_count) : e;
}
