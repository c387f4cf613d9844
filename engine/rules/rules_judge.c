/*
 * Which active series a change of rules may concern.
 *
 * A sender's labels are not kept, only its key. Where no rule has rewritten them they are the
 * stored ones, so a series that has only such keys is judged by those; one that a rewritten key
 * leads to (shard.rewritten) is forgotten whenever the answer could depend on what it was before.
 *
 * Filters that are new and work on the labels that are stored go through the postings; others, and
 * rules that rewrite, through every label set of the shard. Marking one too many costs a slow path.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/rules/rules_internal.h"

enum {
    SELECTED_MAX = 64, /* filters by postings; more of them cost more than one look at all */
    BATCH_SERIES = 512,
    THREADS_MAX = 8,
};

/* What has to be looked at. */
struct plan {
    bool judges_all, forgets_rewritten;
    uint32_t selected[SELECTED_MAX]; /* rules of `after` */
    uint32_t selected_count;
};

struct marking {
    struct engine *engine;
    const struct rule_set *after;
    struct plan plan;
    struct rule_marks *marks;
    _Atomic uint32_t next_shard; /* relaxed: hands out work */
};

/* ---- the plan ---- */

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct rule_key));
}

/* Keys of all filters, sorted; NULL when memory is short. */
static struct rule_key *filter_keys(const struct rule_set *set, size_t *count)
{
    struct rule_key *keys = calloc((size_t)set->rule_count + 1, sizeof *keys);

    *count = 0;
    if (keys == NULL)
        return NULL;
    for (uint32_t i = 0; i < set->rule_count; i++) {
        if (set->rules[i].is_filter)
            keys[(*count)++] = set->rules[i].key;
    }
    qsort(keys, *count, sizeof *keys, compare_keys);
    return keys;
}

/* Whether what the filter drops is a selection by matchers. */
static bool is_selectable(const struct rule *r)
{
    const struct relabel_config *c;

    if (r->relabel == NULL)
        return true;
    c = relabel_config_of(r->relabel);
    return (c->action == RELABEL_DROP || c->action == RELABEL_KEEP) && c->source_label_count == 1;
}

static void plan_filter(struct plan *p, const struct rule_set *set, uint32_t number,
                        bool same_chain)
{
    const struct rule *r = &set->rules[number];
    uint32_t last = set->stage_count - 1;
    bool sees_stored = r->stage == 0 || (r->stage == last && same_chain);

    if (r->stage < last)
        p->forgets_rewritten = true;
    if (sees_stored && is_selectable(r) && p->selected_count < SELECTED_MAX)
        p->selected[p->selected_count++] = number;
    else
        p->judges_all = true;
}

static void plan_make(struct plan *p, const struct rule_set *before, const struct rule_set *after)
{
    bool same_chain = rule_key_equal(&before->rewriting, &after->rewriting);
    size_t known_count = 0;
    struct rule_key *known = filter_keys(before, &known_count);

    *p = (struct plan){.judges_all = known == NULL || (!same_chain && after->stage_count > 1),
                       .forgets_rewritten = known == NULL || !same_chain};
    for (uint32_t i = 0; i < after->rule_count && known != NULL; i++) {
        const struct rule *r = &after->rules[i];

        if (r->is_filter &&
            bsearch(&r->key, known, known_count, sizeof *known, compare_keys) == NULL)
            plan_filter(p, after, i, same_chain);
    }
    free(known);
}

/* ---- marks ---- */

static void mark(struct rule_marks *m, uint32_t slot)
{
    uint64_t bit = (uint64_t)1 << slot % 64;

    if (slot >= m->slot_end || (m->bits[slot / 64] & bit) != 0)
        return;
    m->bits[slot / 64] |= bit;
    m->count++;
}

static bool marks_begin(struct rule_marks *m, struct shard *s)
{
    m->slot_end = shard_slot_end(s);
    m->bits = calloc(m->slot_end / 64 + 1, sizeof *m->bits);
    return m->bits != NULL;
}

void rules_marks_done(struct rule_marks *marks, uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++)
        free(marks[i].bits);
}

/* ---- one shard ---- */

/* Marks slots of a selection. False when memory is short. */
static bool mark_matches(struct rule_marks *m, struct index *ix, const struct matcher *matchers,
                         size_t count, struct arena *arena)
{
    struct errinfo ignored = {0};
    uint32_t *slots = NULL;
    size_t slot_count = 0;
    bool ok =
        index_select(ix, matchers, count, NULL, arena, &slots, &slot_count, &ignored) == ERR_OK;

    for (size_t i = 0; ok && i < slot_count; i++)
        mark(m, slots[i]);
    return ok;
}

static bool mark_filter(struct rule_marks *m, struct index *ix, const struct rule *r,
                        struct arena *arena)
{
    const struct relabel_config *c;
    struct errinfo ignored = {0};
    struct matcher matcher;
    bool ok;

    if (r->relabel == NULL)
        return mark_matches(m, ix, r->matchers, r->definition.matcher_count, arena);
    c = relabel_config_of(r->relabel);
    if (matcher_init(&matcher, c->action == RELABEL_DROP ? MATCHER_REGEX : MATCHER_NOT_REGEX,
                     c->source_labels[0], c->regex, arena, &ignored) != ERR_OK)
        return false;
    ok = mark_matches(m, ix, &matcher, 1, arena);
    matcher_done(&matcher);
    return ok;
}

struct judging {
    struct rule_marks *marks;
    const struct rule_set *set;
};

/* Judges one batch of label sets by all rules. */
static enum err judge_batch(void *ctx, const uint32_t *slots, const struct labels *labels,
                            size_t count, struct arena *arena, struct errinfo *ei)
{
    const struct judging *j = ctx;
    struct arena_mark mark_before = arena_mark_get(arena);

    for (size_t i = 0; i < count; i++) {
        struct rule_verdict v;

        if (labels[i].count == 0)
            continue;
        if (!rule_set_judge(j->set, &labels[i], arena, &v))
            return arena_error(arena, ei);
        if (v.dropped_by != RULE_NONE || v.is_rewritten)
            mark(j->marks, slots[i]);
        arena_mark_return(arena, mark_before);
    }
    return ERR_OK;
}

static bool judge_all(struct rule_marks *m, struct index *ix, const struct rule_set *set)
{
    struct judging j = {m, set};
    struct errinfo ignored = {0};

    return index_walk(ix, m->slot_end, NULL, judge_batch, &j, &ignored) == ERR_OK;
}

static void mark_rewritten(struct rule_marks *m, struct shard *s)
{
    mutex_lock(&s->lock);
    for (size_t word = 0; word < s->rewritten.word_count; word++) {
        for (uint64_t bits = s->rewritten.words[word]; bits != 0; bits &= bits - 1)
            mark(m, (uint32_t)(word * 64) + (uint32_t)__builtin_ctzll(bits));
    }
    m->all = m->all || s->rewritten.unknown;
    slot_bits_clear(&s->rewritten);
    mutex_unlock(&s->lock);
}

static bool shard_look(const struct marking *w, struct rule_marks *m, struct shard *s,
                       struct index *ix, struct arena *arena)
{
    if (!marks_begin(m, s))
        return false;
    if (w->plan.forgets_rewritten)
        mark_rewritten(m, s);
    if (w->plan.judges_all)
        return judge_all(m, ix, w->after);
    for (uint32_t i = 0; i < w->plan.selected_count; i++) {
        arena_reset(arena);
        if (!mark_filter(m, ix, &w->after->rules[w->plan.selected[i]], arena))
            return false;
    }
    return true;
}

/* The keys of marked series go, so no key leads to them. */
static void forget_keyed(struct shard *s, const struct rule_marks *m)
{
    for (uint32_t first = 0; first < m->slot_end && (m->all || m->count > 0);
         first += BATCH_SERIES) {
        mutex_lock(&s->lock);
        for (uint32_t slot = first; slot < first + BATCH_SERIES && slot < m->slot_end; slot++) {
            struct series *series = rule_marks_has(m, slot) ? series_find(&s->series, slot) : NULL;

            if (series != NULL)
                shard_series_keyed(s, series, false);
        }
        mutex_unlock(&s->lock);
    }
}

static void *shards_run(void *arg)
{
    struct marking *w = arg;
    uint32_t number;
    struct arena arena;

    arena_init(&arena, NULL);
    while ((number = atomic_fetch_add_explicit(&w->next_shard, 1, memory_order_relaxed)) <
           w->engine->shard_count) {
        struct shard *s = &w->engine->shards[number];
        struct rule_marks *m = &w->marks[number];

        if (!shard_look(w, m, s, shard_index_pin(s), &arena))
            m->all = true;
        forget_keyed(s, m);
    }
    arena_done(&arena);
    return NULL;
}

void rules_mark(struct engine *e, const struct rule_set *before, const struct rule_set *after,
                struct rule_marks *out)
{
    struct marking w = {.engine = e, .after = after, .marks = out};
    struct thread helpers[THREADS_MAX] = {0};
    uint32_t count = thread_cpu_count();
    struct errinfo ignored = {0};
    struct reader reader;

    memset(out, 0, e->shard_count * sizeof *out);
    plan_make(&w.plan, before, after);
    if (!w.plan.judges_all && !w.plan.forgets_rewritten && w.plan.selected_count == 0)
        return;
    readers_enter(&e->readers, &reader);
    if (count > THREADS_MAX)
        count = THREADS_MAX;
    for (uint32_t i = 1; i < count && i < e->shard_count; i++) {
        if (thread_start(&helpers[i], "rules", shards_run, &w, &ignored) != ERR_OK)
            break; /* fewer will do */
    }
    (void)shards_run(&w);
    for (uint32_t i = 1; i < count; i++)
        thread_join(&helpers[i]);
    readers_leave(&e->readers, &reader);
}
