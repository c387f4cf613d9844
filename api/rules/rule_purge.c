/*
 * Purges follow from the rules in effect alone: whatever was cut off is made good by the next
 * change or start.
 */
#include "api/rules/rule_purge_internal.h"

#include <stdlib.h>
#include <string.h>

#include "api/rules/rule_selector_internal.h"
#include "base/log.h"
#include "engine/purge.h"

/* ---- which ---- */

static int compare_keys(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

struct purge_view {
    struct arena arena;
    struct str *standing; /* keys of purges; ascending */
    size_t standing_count;
    struct str *wanted; /* the same of the rules */
    size_t wanted_count;
    bool *is_new; /* by rule: it purges, and nothing stands of that */
};

static bool is_among(struct str key, const struct str *keys, size_t count)
{
    return count > 0 && bsearch(&key, keys, count, sizeof key, compare_keys) != NULL;
}

/* To be done with view_done(), also after a failure. */
static enum err view_get(struct engine *e, const struct rule_set *set, struct purge_view *v,
                         struct errinfo *ei)
{
    size_t count = rule_set_count(set);
    enum err err;

    *v = (struct purge_view){0};
    arena_init(&v->arena, NULL);
    err = engine_purges(e, &v->arena, &v->standing, &v->standing_count, ei);
    if (err != ERR_OK)
        return err;
    v->wanted = ARENA_ARRAY(&v->arena, count + 1, struct str);
    v->is_new = arena_calloc(&v->arena, count + 1, sizeof *v->is_new);
    if (v->wanted == NULL || v->is_new == NULL)
        return arena_error(&v->arena, ei);
    for (size_t i = 0; i < count; i++) {
        const struct drop_rule *r = rule_set_rule(set, i);
        struct str *key = &v->wanted[v->wanted_count];

        /* Rules of the API that were kept by an older program may have an obstacle. */
        if (!r->purge || rule_selector_obstacle(r) != NULL)
            continue;
        err = rule_selector_text(r, &v->arena, key, ei);
        if (err != ERR_OK)
            return err;
        v->is_new[i] = !is_among(*key, v->standing, v->standing_count);
        v->wanted_count++;
    }
    qsort(v->wanted, v->wanted_count, sizeof v->wanted[0], compare_keys);
    return ERR_OK;
}

static void view_done(struct purge_view *v)
{
    arena_done(&v->arena);
}

/* ---- what stands in the way ---- */

/* Whether a name is one that labeldrop or labelkeep matches. */
static enum err name_is_matched(const struct relabel_config *c, struct str name, bool *out,
                                struct errinfo *ei)
{
    struct arena arena;
    struct matcher m;
    enum err err;

    arena_init(&arena, NULL);
    err = matcher_init(&m, MATCHER_REGEX, name, c->regex, &arena, ei);
    if (err == ERR_OK) {
        *out = matcher_matches(&m, name);
        matcher_done(&m);
    }
    arena_done(&arena);
    return err;
}

/* Whether a rule may change a label of that name. */
static enum err rewrites_label(const struct drop_rule *r, struct str name, bool *out,
                               struct errinfo *ei)
{
    const struct relabel_config *c = &r->relabel;
    enum err err = ERR_OK;

    *out = false;
    if (r->matchers != NULL)
        return ERR_OK;
    switch (c->action) {
    case RELABEL_KEEP:
    case RELABEL_DROP:
    case RELABEL_KEEPEQUAL:
    case RELABEL_DROPEQUAL:
        return ERR_OK;
    case RELABEL_LABELMAP:
        *out = true; /* the name that comes out is not known before */
        return ERR_OK;
    case RELABEL_LABELDROP:
        return name_is_matched(c, name, out, ei);
    case RELABEL_LABELKEEP:
        err = name_is_matched(c, name, out, ei);
        *out = !*out;
        return err;
    case RELABEL_REPLACE:
    case RELABEL_HASHMOD:
    case RELABEL_LOWERCASE:
    case RELABEL_UPPERCASE:
        break;
    }
    *out = str_equal(c->target_label, name) ||
           memchr(c->target_label.data, '$', c->target_label.size) != NULL;
    return ERR_OK;
}

/* What a later rule writes into the labels is in what is stored, and was not in what rule `i` saw:
 * there it would find other series than it drops. */
static enum err obstacle_find(const struct rule_set *set, size_t i, struct errinfo *ei)
{
    const struct drop_rule *r = rule_set_rule(set, i);

    for (size_t k = i + 1; k < rule_set_count(set); k++) {
        const struct drop_rule *later = rule_set_rule(set, k);

        for (size_t m = 0; m < rule_selector_label_count(r); m++) {
            struct str name = rule_selector_label(r, m);
            bool rewrites = false;
            enum err err = rewrites_label(later, name, &rewrites, ei);

            if (err != ERR_OK)
                return err;
            if (rewrites)
                return errinfo_set(ei, ERR_INVALID, 0,
                                   "rule \"%.*s\" cannot purge: rule \"%.*s\" behind it may "
                                   "rewrite the label \"%.*s\", which it reads",
                                   STR_ARGS(r->name), STR_ARGS(later->name), STR_ARGS(name));
        }
    }
    return ERR_OK;
}

enum err rule_purges_check(struct engine *e, const struct rule_set *set, struct errinfo *ei)
{
    struct purge_view v;
    enum err err = view_get(e, set, &v, ei);

    for (size_t i = 0; i < rule_set_count(set) && err == ERR_OK; i++) {
        if (v.is_new[i])
            err = obstacle_find(set, i, ei);
    }
    view_done(&v);
    return err;
}

enum err rule_list_check_purges(const struct rule_set *set, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (size_t i = 0; i < rule_set_count(set) && err == ERR_OK; i++) {
        const struct drop_rule *r = rule_set_rule(set, i);
        const char *obstacle = r->purge ? rule_selector_obstacle(r) : NULL;

        if (obstacle != NULL)
            err = errinfo_set(ei, ERR_INVALID, 0, "rule \"%.*s\": %s", STR_ARGS(r->name), obstacle);
        else if (r->purge)
            err = obstacle_find(set, i, ei);
    }
    return err;
}

/* ---- doing it ---- */

/* The purges of a change: its selectors, as the engine wants them. */
struct making {
    struct rule_selector *selectors;
    struct purge_request *requests;
    const struct drop_rule **rules;
    size_t count;
};

/* A rule that cannot be purged is passed over. */
static enum err making_add(struct making *m, const struct rule_set *set, size_t i,
                           struct arena *arena, struct errinfo *ei)
{
    const struct drop_rule *r = rule_set_rule(set, i);
    struct rule_selector *s = &m->selectors[m->count];
    enum err err = obstacle_find(set, i, ei);

    if (err == ERR_INVALID) {
        LOG_ERROR("what is stored is not purged", LOG_STR("error", ei->message));
        return ERR_OK;
    }
    if (err == ERR_OK)
        err = rule_selector_init(s, r, arena, ei);
    if (err != ERR_OK)
        return err;
    m->requests[m->count] =
        (struct purge_request){s->text, s->matchers, s->matcher_count, s->filter};
    m->rules[m->count++] = r;
    return ERR_OK;
}

static enum err making_init(struct making *m, const struct rule_set *set, struct purge_view *v,
                            struct errinfo *ei)
{
    size_t count = 0;
    enum err err = ERR_OK;

    *m = (struct making){0};
    for (size_t i = 0; i < rule_set_count(set); i++)
        count += v->is_new[i];
    m->selectors = ARENA_ARRAY(&v->arena, count + 1, struct rule_selector);
    m->requests = ARENA_ARRAY(&v->arena, count + 1, struct purge_request);
    m->rules = ARENA_ARRAY(&v->arena, count + 1, const struct drop_rule *);
    if (m->selectors == NULL || m->requests == NULL || m->rules == NULL)
        return arena_error(&v->arena, ei);
    for (size_t i = 0; i < rule_set_count(set) && err == ERR_OK; i++) {
        if (v->is_new[i])
            err = making_add(m, set, i, &v->arena, ei);
    }
    return err;
}

/* All that a change wants at once: shards are sealed once for them. */
static enum err purges_make(struct engine *e, const struct rule_set *set, struct purge_view *v,
                            struct rule_purges *out, struct errinfo *ei)
{
    struct making m;
    size_t made = 0;
    enum err err = making_init(&m, set, v, ei);

    if (err == ERR_OK && m.count > 0)
        err = engine_purge(e, m.requests, m.count, &made, ei);
    out->made += made;
    for (size_t i = 0; i < m.count; i++) {
        if (err == ERR_OK)
            LOG_INFO("what is stored is deleted by a drop rule",
                     LOG_STR("rule", m.rules[i]->name.data),
                     LOG_STR("selector", m.selectors[i].text.data));
        rule_selector_done(&m.selectors[i]);
    }
    return err;
}

static void withdrawn_note(struct str key, const struct purge_withdrawn *w, struct rule_purges *out)
{
    out->withdrawn++;
    out->file_count += w->file_count;
    out->file_left += w->file_left;
    LOG_INFO(w->file_left == w->file_count ? "a purge is taken back: all it had deleted is there"
                                           : "a purge is taken back: what files held that were "
                                             "written anew since is gone",
             LOG_STR("selector", key.data), LOG_U64("files", w->file_count),
             LOG_U64("files_left", w->file_left));
}

/* All that no rule wants any more, at once: with one manifest. */
static enum err purges_take_back(struct engine *e, struct purge_view *v, struct rule_purges *out,
                                 struct errinfo *ei)
{
    struct str *keys = ARENA_ARRAY(&v->arena, v->standing_count, struct str);
    struct purge_withdrawn *w = ARENA_ARRAY(&v->arena, v->standing_count, struct purge_withdrawn);
    size_t count = 0;
    enum err err;

    if (keys == NULL || w == NULL)
        return arena_error(&v->arena, ei);
    for (size_t i = 0; i < v->standing_count; i++) {
        if (!is_among(v->standing[i], v->wanted, v->wanted_count))
            keys[count++] = v->standing[i];
    }
    err = engine_purges_withdraw(e, keys, count, w, ei);
    for (size_t i = 0; i < count && err == ERR_OK; i++)
        withdrawn_note(keys[i], &w[i], out);
    return err;
}

/* The first failure stays. */
static void note(enum err *first, enum err e, struct errinfo *ei, const struct errinfo *own)
{
    if (*first != ERR_OK || e == ERR_OK)
        return;
    *first = e;
    if (ei != NULL)
        *ei = *own;
}

enum err rule_purges_settle(struct engine *e, const struct rule_set *set, struct rule_purges *out,
                            struct errinfo *ei)
{
    struct purge_view v;
    enum err err = view_get(e, set, &v, ei);
    bool ok = err == ERR_OK;

    *out = (struct rule_purges){0};
    if (ok) {
        struct errinfo own = {0};

        note(&err, purges_make(e, set, &v, out, &own), ei, &own);
    }
    if (ok) {
        struct errinfo own = {0};

        note(&err, purges_take_back(e, &v, out, &own), ei, &own);
    }
    view_done(&v);
    return err;
}
