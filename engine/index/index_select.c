/*
 * Selection: the slots whose labels match a list of matchers.
 *
 * A matcher that refuses the empty string asks for slots that have one of some values ("include");
 * one that accepts it asks for all slots but those that have one of the other values ("exclude"),
 * since a missing label counts as empty. Includes run first, cheapest first, then excludes.
 *
 * Consistency without holding the lock throughout: a series is added in one critical section, so a
 * slot seen once is complete from then on. The first include (or the list of all slots) is read
 * before anything else; what a later step looks up (names, values, postings) is therefore there
 * for every slot of the intermediate result. That is why excludes are planned only once all
 * includes have run. New series may or may not appear, as the contract says.
 *
 * Intermediate results are roaring bitmaps outside the arena: at most a bit per slot each.
 */
#include <roaring/roaring.h>
#include <string.h>

#include "engine/index/index_layout_internal.h"

enum step_kind {
    STEP_PASS,     /* every slot meets it */
    STEP_NOTHING,  /* no slot meets it */
    STEP_VALUES,   /* the slots of `ids` */
    STEP_HAS_NAME, /* the slots that have the label at all */
    STEP_SCAN,     /* the slots whose value the matcher accepts (exclude: does not accept) */
};

struct step {
    const struct matcher *matcher;
    enum step_kind kind;
    uint32_t name_id;
    uint32_t *ids; /* in the arena */
    size_t id_count;
    uint64_t cost; /* slots touched */
};

struct selection {
    struct index *ix;
    const _Atomic bool *stop;
    struct arena *arena;
    struct errinfo *ei;
    roaring_bitmap_t *slots; /* owned; NULL: nothing read yet, that is all slots */
    size_t slice_cost;       /* since the lock was taken */
};

/* ---- slices ---- */

static enum err check_stop(const struct selection *sel)
{
    /* relaxed: a flag that orders nothing */
    if (sel->stop != NULL && atomic_load_explicit(sel->stop, memory_order_relaxed))
        return errinfo_set(sel->ei, ERR_CANCELED, 0, "selection was stopped");
    return ERR_OK;
}

static void slice_begin(struct selection *sel)
{
    rwlock_read_lock(&sel->ix->lock);
    sel->slice_cost = 0;
}

static void slice_end(struct selection *sel)
{
    rwlock_read_unlock(&sel->ix->lock);
}

/* Lets writers in once the slice has done its share. On an error the lock is still held. */
static enum err slice_spend(struct selection *sel, size_t cost)
{
    enum err e;

    sel->slice_cost += cost;
    if (sel->slice_cost < INDEX_SLICE_COST)
        return ERR_OK;
    slice_end(sel);
    e = check_stop(sel);
    slice_begin(sel);
    return e;
}

/* ---- planning ---- */

static bool accepts_all(const struct matcher *m)
{
    return m->form == MATCHER_FORM_WILD && m->literal.size == 0 && m->before != MATCHER_WILD_SOME &&
           m->after != MATCHER_WILD_SOME;
}
static bool accepts_non_empty(const struct matcher *m)
{
    return m->form == MATCHER_FORM_WILD && m->literal.size == 0 && !accepts_all(m);
}

static bool names_only_empty(const struct matcher *m)
{
    return m->form == MATCHER_FORM_SET ? m->set_count == 1 && m->set[0].size == 0
                                       : m->form == MATCHER_FORM_LITERAL && m->value.size == 0;
}

static enum err plan_ids(struct selection *sel, struct step *step, const struct str *values,
                         size_t count)
{
    const struct dictionary *d = index_dictionary(sel->ix, step->name_id);
    enum err e = ERR_OK;

    step->kind = STEP_VALUES;
    step->ids = ARENA_ARRAY(sel->arena, count, uint32_t);
    if (step->ids == NULL)
        return arena_error(sel->arena, sel->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        uint32_t id = dictionary_find(d, index_hash(sel->ix, values[i]), values[i]);

        e = slice_spend(sel, 16);
        if (id == DICTIONARY_NONE)
            continue;
        step->ids[step->id_count++] = id;
        step->cost += dictionary_at(d, id)->postings.count;
    }
    return e;
}

/* What an include has to match. The lock is held, and let go of between slices. */
static enum err plan_include(struct selection *sel, struct step *step)
{
    const struct matcher *m = step->matcher;

    step->name_id = index_find_name(sel->ix, m->name);
    if (step->name_id == DICTIONARY_NONE || (m->kind == MATCHER_NOT_REGEX && accepts_all(m))) {
        step->kind = STEP_NOTHING;
        return ERR_OK;
    }
    if (m->kind == MATCHER_EQUAL)
        return plan_ids(sel, step, &m->value, 1);
    if (m->kind == MATCHER_REGEX && m->form == MATCHER_FORM_SET)
        return plan_ids(sel, step, m->set, m->set_count);
    /* != "", !~ "" and =~ ".+" */
    step->kind = names_only_empty(m) || (m->kind == MATCHER_REGEX && accepts_non_empty(m))
                     ? STEP_HAS_NAME
                     : STEP_SCAN;
    step->cost = step->kind == STEP_SCAN ? UINT64_MAX : sel->ix->all.count;
    return ERR_OK;
}

/* What an exclude has to remove. */
static enum err plan_exclude(struct selection *sel, struct step *step)
{
    const struct matcher *m = step->matcher;

    step->name_id = index_find_name(sel->ix, m->name);
    if (step->name_id == DICTIONARY_NONE || (m->kind == MATCHER_REGEX && accepts_all(m))) {
        step->kind = STEP_PASS;
        return ERR_OK;
    }
    if (m->kind == MATCHER_NOT_EQUAL)
        return plan_ids(sel, step, &m->value, 1);
    if (m->kind == MATCHER_NOT_REGEX && m->form == MATCHER_FORM_SET)
        return plan_ids(sel, step, m->set, m->set_count);
    /* = "", =~ "" and !~ ".+" */
    step->kind = names_only_empty(m) || (m->kind == MATCHER_NOT_REGEX && accepts_non_empty(m))
                     ? STEP_HAS_NAME
                     : STEP_SCAN;
    return ERR_OK;
}

/* ---- running ---- */

static enum err union_ids(struct selection *sel, const struct step *step, roaring_bitmap_t *into)
{
    const struct dictionary *d;
    enum err e = ERR_OK;

    if (step->id_count == 0) /* the name itself may be unknown */
        return ERR_OK;
    slice_begin(sel);
    d = index_dictionary(sel->ix, step->name_id);
    for (size_t i = 0; i < step->id_count && e == ERR_OK; i++) {
        const struct postings *p = &dictionary_at(d, step->ids[i])->postings;

        postings_or_into(p, into);
        e = slice_spend(sel, postings_cost(p));
    }
    slice_end(sel);
    return e;
}

static bool schema_has(const struct schema *s, uint32_t name_id)
{
    for (uint32_t i = 0; i < s->name_count; i++) {
        if (s->names[i] == name_id)
            return true;
    }
    return false;
}

static enum err union_schemas(struct selection *sel, const struct step *step,
                              roaring_bitmap_t *into)
{
    enum err e = ERR_OK;

    slice_begin(sel);
    for (uint32_t i = 0; i < sel->ix->schemas.count && e == ERR_OK; i++) {
        const struct schema *s = index_schema(sel->ix, i);
        const struct postings *p = &dictionary_at(&sel->ix->schemas, i)->postings;

        if (schema_has(s, step->name_id)) {
            postings_or_into(p, into);
            e = slice_spend(sel, postings_cost(p));
        }
        if (e == ERR_OK)
            e = slice_spend(sel, 1 + s->name_count);
    }
    slice_end(sel);
    return e;
}

/* Finds the values that count for a scan (accepted, or for an exclude refused) into step->ids.
 * Matching runs outside the lock: the text stays where it is. */
static enum err scan_values(struct selection *sel, struct step *step, bool wanted)
{
    struct str texts[INDEX_SLICE_VALUES];
    uint32_t *ids = NULL;
    size_t capacity = 0;

    step->id_count = 0;
    for (uint32_t first = 0;;) {
        const struct dictionary *d;
        uint32_t n;
        enum err e = check_stop(sel);

        if (e != ERR_OK)
            return e;
        slice_begin(sel);
        d = index_dictionary(sel->ix, step->name_id);
        n = d->count - first < INDEX_SLICE_VALUES ? d->count - first : INDEX_SLICE_VALUES;
        for (uint32_t i = 0; i < n; i++)
            texts[i] = dictionary_text(d, first + i);
        slice_end(sel);
        if (n == 0)
            break;
        if (capacity - step->id_count < n) {
            size_t grown = capacity == 0 ? INDEX_SLICE_VALUES : capacity * 2;

            ids = arena_grow_array(sel->arena, ids, capacity, grown, sizeof *ids);
            if (ids == NULL)
                return arena_error(sel->arena, sel->ei);
            capacity = grown;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (matcher_matches(step->matcher, texts[i]) == wanted)
                ids[step->id_count++] = first + i;
        }
        first += n;
    }
    step->ids = ids;
    return ERR_OK;
}

/* One slice of filter_slots(): value ids and texts of `n` slots. */
static void read_values(struct selection *sel, struct column_cursor *cursor, const uint32_t *slots,
                        uint32_t n, uint32_t *ids, struct str *texts)
{
    const struct dictionary *d;

    slice_begin(sel);
    d = index_dictionary(sel->ix, cursor->name_id);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = column_cursor_read(cursor, slots[i]);
        texts[i] = (struct str){NULL, 0};
        if (ids[i] != DICTIONARY_NONE)
            texts[i] = dictionary_text(d, ids[i]);
    }
    slice_end(sel);
}

enum verdict { VERDICT_UNKNOWN, VERDICT_YES, VERDICT_NO };

/* Asks the matcher about the value of each slot that is left, once per distinct value; a missing
 * label asks about "". Right for includes and excludes alike. */
static enum err filter_slots(struct selection *sel, const struct step *step, uint32_t value_count)
{
    uint32_t slots[INDEX_SLICE_VALUES], ids[INDEX_SLICE_VALUES];
    struct str texts[INDEX_SLICE_VALUES];
    bool empty_accepted = matcher_matches_empty(step->matcher);
    uint8_t *verdicts = arena_calloc(sel->arena, value_count, sizeof *verdicts);
    roaring_bitmap_t *kept;
    roaring_uint32_iterator_t it;
    struct column_cursor cursor;
    enum err e = ERR_OK;

    if (verdicts == NULL)
        return arena_error(sel->arena, sel->ei);
    kept = roaring_bitmap_create();
    if (kept == NULL)
        return errinfo_set(sel->ei, ERR_NOMEM, 0, "selection");
    column_cursor_init(&cursor, sel->ix, step->name_id);
    roaring_init_iterator(sel->slots, &it);
    while (e == ERR_OK) {
        uint32_t n = roaring_read_uint32_iterator(&it, slots, INDEX_SLICE_VALUES);
        uint32_t kept_count = 0;

        if (n == 0)
            break;
        read_values(sel, &cursor, slots, n, ids, texts);
        for (uint32_t i = 0; i < n; i++) {
            bool yes = empty_accepted;

            if (ids[i] != DICTIONARY_NONE) {
                uint8_t *v = &verdicts[ids[i]];

                if (*v == VERDICT_UNKNOWN)
                    *v = matcher_matches(step->matcher, texts[i]) ? VERDICT_YES : VERDICT_NO;
                yes = *v == VERDICT_YES;
            }
            if (yes)
                slots[kept_count++] = slots[i];
        }
        roaring_bitmap_add_many(kept, kept_count, slots);
        e = check_stop(sel);
    }
    if (e == ERR_OK) {
        roaring_bitmap_free(sel->slots);
        sel->slots = TAKE(kept);
    }
    if (kept != NULL)
        roaring_bitmap_free(kept);
    return e;
}

static enum err read_all(struct selection *sel)
{
    sel->slots = roaring_bitmap_create();
    if (sel->slots == NULL)
        return errinfo_set(sel->ei, ERR_NOMEM, 0, "selection");
    slice_begin(sel);
    postings_or_into(&sel->ix->all, sel->slots);
    slice_end(sel);
    return ERR_OK;
}

/* A single posting list needs no union: it is combined in place. */
static enum err combine_one(struct selection *sel, const struct step *step, bool exclude)
{
    const struct postings *p;

    if (sel->slots == NULL) { /* an include: excludes come after the first read */
        sel->slots = roaring_bitmap_create();
        if (sel->slots == NULL)
            return errinfo_set(sel->ei, ERR_NOMEM, 0, "selection");
        return union_ids(sel, step, sel->slots);
    }
    slice_begin(sel);
    p = &dictionary_at(index_dictionary(sel->ix, step->name_id), step->ids[0])->postings;
    if (exclude)
        postings_andnot_into(p, sel->slots);
    else
        postings_and_into(p, sel->slots);
    slice_end(sel);
    return ERR_OK;
}

static enum err combine(struct selection *sel, const struct step *step, bool exclude)
{
    roaring_bitmap_t *set;
    enum err e;

    if (step->kind == STEP_VALUES && step->id_count == 1)
        return combine_one(sel, step, exclude);
    set = roaring_bitmap_create();
    if (set == NULL)
        return errinfo_set(sel->ei, ERR_NOMEM, 0, "selection");
    e = step->kind == STEP_HAS_NAME ? union_schemas(sel, step, set) : union_ids(sel, step, set);
    if (e == ERR_OK && sel->slots == NULL)
        sel->slots = TAKE(set);
    else if (e == ERR_OK && exclude)
        roaring_bitmap_andnot_inplace(sel->slots, set);
    else if (e == ERR_OK)
        roaring_bitmap_and_inplace(sel->slots, set);
    if (set != NULL)
        roaring_bitmap_free(set);
    return e;
}

static enum err run_scan(struct selection *sel, struct step *step, bool exclude)
{
    uint32_t value_count;
    enum err e;

    slice_begin(sel);
    value_count = index_dictionary(sel->ix, step->name_id)->count;
    slice_end(sel);
    /* Few slots left: look at theirs. Otherwise every value is matched once, whatever is left. */
    if (sel->slots != NULL && roaring_bitmap_get_cardinality(sel->slots) / 4 <= value_count)
        return filter_slots(sel, step, value_count);
    e = scan_values(sel, step, !exclude);
    return e == ERR_OK ? combine(sel, step, exclude) : e;
}

static enum err run_step(struct selection *sel, struct step *step, bool exclude)
{
    switch (step->kind) {
    case STEP_PASS:
        return ERR_OK;
    case STEP_SCAN:
        return run_scan(sel, step, exclude);
    case STEP_NOTHING: /* includes only; no ids: the union is empty */
    case STEP_VALUES:
    case STEP_HAS_NAME:
        return combine(sel, step, exclude);
    }
    return ERR_OK;
}

static enum err plan(struct selection *sel, struct step *step, bool exclude)
{
    enum err e;

    slice_begin(sel);
    e = exclude ? plan_exclude(sel, step) : plan_include(sel, step);
    slice_end(sel);
    return e;
}

/* Plans the includes and puts the cheapest first (insertion sort: a handful). */
static enum err plan_includes(struct selection *sel, struct step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum err e = plan(sel, &steps[i], false);
        struct step s = steps[i];
        size_t k = i;

        if (e != ERR_OK)
            return e;
        for (; k > 0 && steps[k - 1].cost > s.cost; k--)
            steps[k] = steps[k - 1];
        steps[k] = s;
    }
    return ERR_OK;
}

static enum err run(struct selection *sel, struct step *includes, size_t include_count,
                    struct step *excludes, size_t exclude_count)
{
    enum err e = plan_includes(sel, includes, include_count);

    for (size_t i = 0; i < include_count && e == ERR_OK; i++) {
        if (sel->slots != NULL && roaring_bitmap_is_empty(sel->slots))
            return ERR_OK;
        e = run_step(sel, &includes[i], false);
        if (e == ERR_OK)
            e = check_stop(sel);
    }
    if (e == ERR_OK && sel->slots == NULL)
        e = read_all(sel);
    for (size_t i = 0; i < exclude_count && e == ERR_OK; i++) {
        if (roaring_bitmap_is_empty(sel->slots))
            return ERR_OK;
        e = plan(sel, &excludes[i], true);
        if (e == ERR_OK)
            e = run_step(sel, &excludes[i], true);
        if (e == ERR_OK)
            e = check_stop(sel);
    }
    return e;
}

static enum err give_slots(const struct selection *sel, uint32_t **out, size_t *out_count)
{
    size_t n = roaring_bitmap_get_cardinality(sel->slots);
    uint32_t *slots = ARENA_ARRAY(sel->arena, n, uint32_t);

    if (slots == NULL)
        return arena_error(sel->arena, sel->ei);
    roaring_bitmap_to_uint32_array(sel->slots, slots);
    *out = slots;
    *out_count = n;
    return ERR_OK;
}

enum err index_select(struct index *ix, const struct matcher *matchers, size_t matcher_count,
                      const _Atomic bool *stop, struct arena *arena, uint32_t **out_slots,
                      size_t *out_count, struct errinfo *ei)
{
    struct selection sel = {.ix = ix, .stop = stop, .arena = arena, .ei = ei};
    struct step *includes = arena_calloc(arena, matcher_count, sizeof *includes);
    struct step *excludes = arena_calloc(arena, matcher_count, sizeof *excludes);
    size_t include_count = 0;
    size_t exclude_count = 0;
    enum err e;

    if (includes == NULL || excludes == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < matcher_count; i++) {
        if (matcher_matches_empty(&matchers[i]))
            excludes[exclude_count++].matcher = &matchers[i];
        else
            includes[include_count++].matcher = &matchers[i];
    }
    e = run(&sel, includes, include_count, excludes, exclude_count);
    if (e == ERR_OK)
        e = give_slots(&sel, out_slots, out_count);
    if (sel.slots != NULL)
        roaring_bitmap_free(sel.slots);
    return e;
}
