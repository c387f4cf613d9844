#include "api/rule_selector_internal.h"

static bool matches_everything(struct str regex)
{
    return str_equal(regex, STR_LITERAL("(.*)")) || str_equal(regex, STR_LITERAL(".*"));
}

const char *rule_selector_obstacle(const struct drop_rule *r)
{
    const struct relabel_config *c = &r->relabel;

    if (r->matchers != NULL)
        return NULL;
    if (c->action != RELABEL_DROP && c->action != RELABEL_KEEP)
        return "\"purge\" needs \"drop\" with a selector, or the action drop or keep with one "
               "source "
               "label";
    if (c->source_label_count != 1)
        return "\"purge\" needs one source label: write the rule as \"drop\" with a selector, such "
               "as "
               "{a=~\"x\", b=~\"y\"}";
    if (c->action == RELABEL_DROP && matches_everything(c->regex))
        return "\"purge\" would delete everything that is stored";
    return NULL;
}

size_t rule_selector_label_count(const struct drop_rule *r)
{
    return r->matchers != NULL ? r->matcher_count : 1;
}

struct str rule_selector_label(const struct drop_rule *r, size_t i)
{
    return r->matchers != NULL ? r->matchers[i].name : r->relabel.source_labels[0];
}

static enum matcher_kind kind_of(const struct drop_rule *r)
{
    return r->relabel.action == RELABEL_DROP ? MATCHER_REGEX : MATCHER_NOT_REGEX;
}

enum err rule_selector_text(const struct drop_rule *r, struct arena *arena, struct str *out,
                            struct errinfo *ei)
{
    char *matcher, *text = NULL;

    if (r->matchers != NULL) {
        *out = r->selector;
        return ERR_OK;
    }
    const struct matcher m = {
        .kind = kind_of(r), .name = rule_selector_label(r, 0), .value = r->relabel.regex};

    matcher = matcher_format(&m, arena);
    if (matcher != NULL)
        text = arena_printf(arena, "{%s}", matcher);
    if (text == NULL)
        return arena_error(arena, ei);
    *out = str_from(text);
    return ERR_OK;
}

enum err rule_selector_init(struct rule_selector *out, const struct drop_rule *r,
                            struct arena *arena, struct errinfo *ei)
{
    struct rule_selector s = {.matchers = r->matchers, .matcher_count = r->matcher_count};
    enum err e = rule_selector_text(r, arena, &s.text, ei);

    if (e == ERR_OK && r->matchers == NULL) {
        s.own = ARENA_NEW(arena, struct matcher);
        e = s.own == NULL ? arena_error(arena, ei)
                          : matcher_init(s.own, kind_of(r), rule_selector_label(r, 0),
                                         r->relabel.regex, arena, ei);
        s.matchers = s.own;
        s.matcher_count = 1;
    }
    if (e == ERR_OK)
        *out = s;
    return e;
}

void rule_selector_done(struct rule_selector *s)
{
    matcher_done(s->own);
    *s = (struct rule_selector){0};
}
