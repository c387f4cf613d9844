#include "api/rules/rule_selector_internal.h"

#include <string.h>

#include "api/rules/drop_rule_json_internal.h"
#include "engine/purge.h"

/* ---- what is refused ---- */

/* Steps over one of the pieces that match any text. */
static bool any_text_skip(struct str *pattern)
{
    static const char *const pieces[] = {"(.*)", ".*"};

    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        size_t size = strlen(pieces[i]);

        if (pattern->size >= size && memcmp(pattern->data, pieces[i], size) == 0) {
            *pattern = (struct str){pattern->data + size, pattern->size - size};
            return true;
        }
    }
    return false;
}

/* Steps over a text that a pattern has as it is, or escaped where it must be. */
static bool literal_skip(struct str *pattern, struct str text)
{
    static const char special[] = "\\.+*?()|[]{}^$";
    struct str rest = *pattern;

    for (size_t i = 0; i < text.size; i++) {
        if (memchr(special, text.data[i], sizeof special - 1) != NULL) {
            if (rest.size == 0 || rest.data[0] != '\\')
                return false;
            rest = (struct str){rest.data + 1, rest.size - 1};
        }
        if (rest.size == 0 || rest.data[0] != text.data[i])
            return false;
        rest = (struct str){rest.data + 1, rest.size - 1};
    }
    *pattern = rest;
    return true;
}

/* Whether a pattern plainly matches whatever the labels are: ".*", or for two labels ".*;.*". */
static bool matches_everything(const struct relabel_config *c)
{
    struct str rest = c->regex;

    for (size_t i = 0; i < c->source_label_count; i++) {
        if (!any_text_skip(&rest))
            return false;
        if (rest.size == 0)
            return true;
        if (!literal_skip(&rest, c->separator))
            return false;
    }
    return false;
}

/* Of keepequal and dropequal: the target is compared with itself. */
static bool compares_with_itself(const struct relabel_config *c)
{
    return c->source_label_count == 1 && str_equal(c->source_labels[0], c->target_label);
}

static const char *filter_obstacle(const struct relabel_config *c)
{
    static const char everything[] = "\"purge\" would delete everything that is stored";
    static const char nothing[] = "\"purge\" on a rule that never drops anything";

    if (c->action == RELABEL_DROPEQUAL || c->action == RELABEL_KEEPEQUAL) {
        if (!compares_with_itself(c))
            return NULL;
        return c->action == RELABEL_DROPEQUAL ? everything : nothing;
    }
    if (c->source_label_count == 0)
        return "\"purge\" needs a source label: without one the rule drops all series or none";
    return c->action == RELABEL_DROP && matches_everything(c) ? everything : NULL;
}

/* What the engine would not take. Purges are made all or none, so that one of these would stand in
 * the way of all others. */
static bool is_too_large(const struct drop_rule *r)
{
    enum { ESCAPED_MAX = 6, LABEL_MORE = 3, TEXT_MORE = 256 }; /* \u0000; quotes and comma */
    const struct relabel_config *c = &r->relabel;
    size_t size = c->separator.size + c->regex.size + c->target_label.size;

    if (r->matchers != NULL)
        return r->matcher_count > PURGE_LABELS_MAX || r->selector.size > PURGE_KEY_SIZE_MAX;
    for (size_t i = 0; i < c->source_label_count; i++)
        size += c->source_labels[i].size;
    return c->source_label_count > PURGE_LABELS_MAX ||
           size * ESCAPED_MAX + c->source_label_count * LABEL_MORE + TEXT_MORE > PURGE_KEY_SIZE_MAX;
}

const char *rule_selector_obstacle(const struct drop_rule *r)
{
    if (is_too_large(r))
        return "\"purge\" takes at most 1024 matchers or source labels, and texts of 170 KiB in "
               "all";
    if (r->matchers != NULL)
        return NULL;
    if (!relabel_action_filters(r->relabel.action))
        return "\"purge\" needs a rule that drops series: \"drop\" with a selector, or the action "
               "drop, keep, dropequal or keepequal";
    return filter_obstacle(&r->relabel);
}

/* ---- which labels ---- */

static bool has_target(const struct relabel_config *c)
{
    return c->action == RELABEL_DROPEQUAL || c->action == RELABEL_KEEPEQUAL;
}

size_t rule_selector_label_count(const struct drop_rule *r)
{
    return r->matchers != NULL ? r->matcher_count
                               : r->relabel.source_label_count + has_target(&r->relabel);
}

struct str rule_selector_label(const struct drop_rule *r, size_t i)
{
    if (r->matchers != NULL)
        return r->matchers[i].name;
    return i < r->relabel.source_label_count ? r->relabel.source_labels[i]
                                             : r->relabel.target_label;
}

/* ---- the selection ---- */

/* One label is looked up by postings, so it is asked for by a matcher. */
static bool is_matcher(const struct relabel_config *c)
{
    return !has_target(c) && c->source_label_count == 1;
}

static enum matcher_kind kind_of(const struct drop_rule *r)
{
    return r->relabel.action == RELABEL_DROP ? MATCHER_REGEX : MATCHER_NOT_REGEX;
}

static enum err matcher_text(const struct drop_rule *r, struct arena *arena, struct str *out,
                             struct errinfo *ei)
{
    const struct matcher m = {
        .kind = kind_of(r), .name = rule_selector_label(r, 0), .value = r->relabel.regex};
    char *matcher = matcher_format(&m, arena);
    char *text = matcher == NULL ? NULL : arena_printf(arena, "{%s}", matcher);

    if (text == NULL)
        return arena_error(arena, ei);
    *out = str_from(text);
    return ERR_OK;
}

/* The rule's own form; no selector is spelled so. */
static enum err filter_text(const struct drop_rule *r, struct arena *arena, struct str *out,
                            struct errinfo *ei)
{
    struct byte_writer w;
    char *text;

    writer_init(&w);
    drop_rule_write_what(&w, r);
    text = w.failed ? NULL : arena_memdup0(arena, w.data, w.size);
    *out = (struct str){text, w.size};
    writer_done(&w);
    return text == NULL ? arena_error(arena, ei) : ERR_OK;
}

enum err rule_selector_text(const struct drop_rule *r, struct arena *arena, struct str *out,
                            struct errinfo *ei)
{
    if (r->matchers != NULL) {
        *out = r->selector;
        return ERR_OK;
    }
    return is_matcher(&r->relabel) ? matcher_text(r, arena, out, ei)
                                   : filter_text(r, arena, out, ei);
}

static enum err own_matcher(struct rule_selector *s, const struct drop_rule *r, struct arena *arena,
                            struct errinfo *ei)
{
    enum err e;

    s->own = ARENA_NEW(arena, struct matcher);
    e = s->own == NULL ? arena_error(arena, ei)
                       : matcher_init(s->own, kind_of(r), rule_selector_label(r, 0),
                                      r->relabel.regex, arena, ei);
    s->matchers = s->own;
    s->matcher_count = 1;
    return e;
}

enum err rule_selector_init(struct rule_selector *out, const struct drop_rule *r,
                            struct arena *arena, struct errinfo *ei)
{
    struct rule_selector s = {.matchers = r->matchers, .matcher_count = r->matcher_count};
    enum err e = rule_selector_text(r, arena, &s.text, ei);

    if (e == ERR_OK && r->matchers == NULL) {
        if (is_matcher(&r->relabel))
            e = own_matcher(&s, r, arena, ei);
        else
            s.filter = &r->relabel;
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
