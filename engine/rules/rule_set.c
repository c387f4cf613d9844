/*
 * Compiling a list of rules, and judging series by it.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/rules/rule_set_internal.h"

enum { KEY_PART_SEPARATOR = 0xFF };

/* ---- keys ---- */

static void key_text(struct byte_writer *w, struct str text)
{
    writer_str(w, text);
}

/* What a rule does, unambiguously: the same bytes, the same rule. Its name and comment are not part
 * of that. */
static void definition_write(const struct drop_rule *r, struct byte_writer *w)
{
    const struct relabel_config *c = &r->relabel;

    if (r->matchers != NULL) {
        writer_u8(w, KEY_PART_SEPARATOR);
        for (size_t i = 0; i < r->matcher_count; i++) {
            writer_u8(w, (uint8_t)r->matchers[i].kind);
            key_text(w, r->matchers[i].name);
            key_text(w, r->matchers[i].value);
        }
        return;
    }
    writer_u8(w, (uint8_t)c->action);
    writer_varint(w, c->source_label_count);
    for (size_t i = 0; i < c->source_label_count; i++)
        key_text(w, c->source_labels[i]);
    key_text(w, c->separator);
    key_text(w, c->regex);
    key_text(w, c->target_label);
    key_text(w, c->replacement);
    writer_varint(w, c->modulus);
}

/* The key of a rule behind `before`. */
static bool key_make(const struct rule_key *before, const struct drop_rule *r, struct rule_key *out)
{
    struct byte_writer w;
    bool ok;

    writer_init(&w);
    writer_append(&w, before->bytes, sizeof before->bytes);
    definition_write(r, &w);
    ok = !w.failed;
    if (ok)
        md5_bytes(w.data, w.size, out->bytes);
    writer_done(&w);
    return ok;
}

/* ---- compiling ---- */

static enum err text_copy(struct str from, struct arena *arena, struct str *out, struct errinfo *ei)
{
    char *copy = arena_memdup0(arena, from.size == 0 ? "" : from.data, from.size);

    if (copy == NULL)
        return arena_error(arena, ei);
    *out = (struct str){copy, from.size};
    return ERR_OK;
}

static enum err matchers_copy(struct rule_set *set, const struct drop_rule *from, struct rule *r,
                              struct errinfo *ei)
{
    enum err e = ERR_OK;

    r->matchers = arena_calloc(&set->arena, from->matcher_count + 1, sizeof *r->matchers);
    if (r->matchers == NULL)
        return arena_error(&set->arena, ei);
    for (size_t i = 0; i < from->matcher_count && e == ERR_OK; i++)
        e = matcher_init(&r->matchers[i], from->matchers[i].kind, from->matchers[i].name,
                         from->matchers[i].value, &set->arena, ei);
    r->definition.matchers = r->matchers;
    return e;
}

static enum err relabel_copy(struct rule_set *set, const struct drop_rule *from, struct rule *r,
                             struct errinfo *ei)
{
    enum err e = relabel_config_check(&from->relabel, ei);

    if (e == ERR_OK)
        e = relabel_compile(&from->relabel, &set->arena, &r->relabel, ei);
    if (e == ERR_OK)
        r->definition.relabel = *relabel_config_of(r->relabel);
    return e;
}

static enum err rule_compile(struct rule_set *set, const struct drop_rule *from, struct rule *r,
                             struct errinfo *ei)
{
    struct errinfo why = {0};
    enum err e;

    r->definition = *from;
    r->definition.matchers = NULL;
    if ((e = text_copy(from->name, &set->arena, &r->definition.name, ei)) != ERR_OK ||
        (e = text_copy(from->comment, &set->arena, &r->definition.comment, ei)) != ERR_OK ||
        (e = text_copy(from->selector, &set->arena, &r->definition.selector, ei)) != ERR_OK)
        return e;
    e = from->matchers != NULL ? matchers_copy(set, from, r, &why)
                               : relabel_copy(set, from, r, &why);
    if (e != ERR_OK)
        return errinfo_set(ei, e, 0, "rule \"%.*s\": %s", STR_ARGS(from->name), why.message);
    r->is_filter = from->matchers != NULL || relabel_action_filters(from->relabel.action);
    return ERR_OK;
}

static enum err stage_close(struct rule_set *set, uint32_t end, uint32_t rewriting,
                            struct errinfo *ei)
{
    struct rule_stage *stage = &set->stages[set->stage_count++];
    uint32_t first = stage == set->stages ? 0 : stage[-1].end + 1;

    *stage = (struct rule_stage){.first = first, .end = end, .rewriting = rewriting};
    return rule_index_new(set->rules, first, end, &set->arena, &stage->index, ei);
}

static enum err rules_compile(struct rule_set *set, const struct drop_rule *rules,
                              struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < set->rule_count && e == ERR_OK; i++) {
        struct rule *r = &set->rules[i];

        e = rule_compile(set, &rules[i], r, ei);
        if (e != ERR_OK)
            break;
        r->stage = set->stage_count;
        if (!key_make(&set->rewriting, &r->definition, &r->key))
            return errinfo_set(ei, ERR_NOMEM, 0, "rules");
        if (r->is_filter)
            continue;
        set->rewriting = r->key;
        e = stage_close(set, i, i, ei);
    }
    return e == ERR_OK ? stage_close(set, set->rule_count, RULE_NONE, ei) : e;
}

enum err rule_set_new(const struct drop_rule *rules, size_t count, struct rule_set **out,
                      struct errinfo *ei)
{
    struct rule_set *set;
    enum err e;

    if (count > DROP_RULES_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "%zu rules: at most %d are taken", count,
                           (int)DROP_RULES_MAX);
    set = calloc(1, sizeof *set);
    if (set == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "rules");
    arena_init(&set->arena, NULL);
    set->rules = arena_calloc(&set->arena, count + 1, sizeof *set->rules);
    set->stages = arena_calloc(&set->arena, count + 1, sizeof *set->stages);
    set->deciders = arena_calloc(&set->arena, count + 1, sizeof(void *));
    if (set->rules == NULL || set->stages == NULL || set->deciders == NULL) {
        e = arena_error(&set->arena, ei);
    } else {
        set->rule_count = (uint32_t)count;
        e = rules_compile(set, rules, ei);
    }
    if (e == ERR_OK)
        *out = TAKE(set);
    rule_set_free(set);
    return e;
}

void rule_set_free(struct rule_set *set)
{
    if (set == NULL)
        return;
    for (uint32_t i = 0; i < set->rule_count; i++) {
        struct rule *r = &set->rules[i];

        relabel_done(r->relabel);
        for (size_t k = 0; r->matchers != NULL && k < r->definition.matcher_count; k++)
            matcher_done(&r->matchers[k]);
    }
    arena_done(&set->arena);
    free(set->by_id);
    free(set);
}

size_t rule_set_count(const struct rule_set *set)
{
    return set->rule_count;
}

const struct drop_rule *rule_set_rule(const struct rule_set *set, size_t i)
{
    return &set->rules[i].definition;
}

/* ---- judging ---- */

bool rule_drops(const struct rule *r, struct relabel_set *s)
{
    if (r->relabel != NULL)
        return !relabel_apply(r->relabel, s);
    for (size_t i = 0; i < r->definition.matcher_count; i++) {
        const struct matcher *m = &r->matchers[i];

        if (!matcher_matches(m, relabel_set_get(s, m->name)))
            return false;
    }
    return true;
}

static uint32_t stage_find(const struct rule_stage *stage, struct relabel_set *s)
{
    struct labels now = {s->base_count, s->base};

    if (stage->first == stage->end)
        return RULE_NONE;
    if (s->changed && !relabel_set_labels(s, &now)) {
        s->failed = true;
        return RULE_NONE;
    }
    return rule_index_find(stage->index, s, now.items, now.count);
}

bool rule_set_leaves_alone(const struct rule_set *set, const struct labels *labels,
                           struct arena *arena, bool *out)
{
    struct relabel_set s;
    struct labels after = *labels;
    bool ok = true;

    *out = true;
    if (set->stage_count == 1) /* none rewrites */
        return true;
    ok = relabel_set_begin(&s, labels, arena);
    for (uint32_t i = 0; i < set->stage_count && ok; i++) {
        if (set->stages[i].rewriting != RULE_NONE)
            (void)relabel_apply(set->rules[set->stages[i].rewriting].relabel, &s);
        ok = !s.failed;
    }
    if (ok && s.changed)
        ok = relabel_set_labels(&s, &after);
    if (ok)
        *out = labels_equal(&after, labels);
    return ok;
}

bool rule_set_judge(const struct rule_set *set, const struct labels *labels, struct arena *arena,
                    struct rule_verdict *out)
{
    struct relabel_set s;

    *out = (struct rule_verdict){RULE_NONE, false, *labels};
    if (set->rule_count == 0)
        return true;
    if (!relabel_set_begin(&s, labels, arena))
        return false;
    for (uint32_t i = 0; i < set->stage_count; i++) {
        const struct rule_stage *stage = &set->stages[i];

        out->dropped_by = stage_find(stage, &s);
        if (s.failed || out->dropped_by != RULE_NONE)
            return !s.failed;
        if (stage->rewriting != RULE_NONE)
            (void)relabel_apply(set->rules[stage->rewriting].relabel, &s); /* never drops */
        if (s.failed)
            return false;
    }
    if (!s.changed)
        return true;
    if (!relabel_set_labels(&s, &out->labels))
        return false;
    out->is_rewritten = !labels_equal(&out->labels, labels);
    return true;
}
