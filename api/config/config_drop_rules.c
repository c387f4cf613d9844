/*
 * The configuration's section `drop_rules`, and the same list on its own, as requests bring it:
 * JSON is YAML's flow style.
 */
#include <stdlib.h>
#include <string.h>

#include "api/config/config_parse_internal.h"
#include "api/rules/rule_selector_internal.h"
#include "base/unicode.h"
#include "promql/ast.h"

/* The item at hand. */
struct config_rule {
    struct drop_rule rule;
    yaml_mark_t regex_at;
    bool has_drop, has_relabel;
};

/* ---- fields ---- */

static enum err text_parse(struct config_parser *p, const struct config_key *key, struct str *out)
{
    if (config_is_null(p)) {
        *out = (struct str){"", 0};
        return ERR_OK;
    }
    return config_scalar_copy(p, key->name, out);
}

static enum err name_parse(struct config_parser *p, const struct config_key *key)
{
    return text_parse(p, key, &p->rule->rule.name);
}

static enum err comment_parse(struct config_parser *p, const struct config_key *key)
{
    return text_parse(p, key, &p->rule->rule.comment);
}

static enum err purge_parse(struct config_parser *p, const struct config_key *key)
{
    struct str text = {"", 0};

    if (p->event.type == YAML_SCALAR_EVENT)
        text = config_scalar_text(p);
    p->rule->rule.purge = str_equal(text, STR_LITERAL("true"));
    if (!p->rule->rule.purge && !str_equal(text, STR_LITERAL("false")))
        return config_wrong_at(p, &p->event.start_mark, "%s must be true or false", key->name);
    return ERR_OK;
}

/* A selector that would drop everything is a slip, not a wish. */
static bool refuses_something(const struct matcher *matchers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!matcher_matches_empty(&matchers[i]))
            return true;
    }
    return false;
}

static enum err drop_parse(struct config_parser *p, const struct config_key *key)
{
    yaml_mark_t at = p->event.start_mark;
    struct drop_rule *r = &p->rule->rule;
    struct matcher *matchers = NULL;
    struct errinfo why = {0};
    enum err e = config_scalar_copy(p, key->name, &r->selector);

    if (e != ERR_OK)
        return e;
    p->rule->has_drop = true;
    e = promql_parse_selector(r->selector, &p->config->arena, &matchers, &r->matcher_count, &why);
    if (e != ERR_OK)
        return config_wrong_at(p, &at, "%s: %s", key->name, why.message);
    r->matchers = matchers;
    if (!refuses_something(matchers, r->matcher_count)) {
        for (size_t i = 0; i < r->matcher_count; i++)
            matcher_done(&matchers[i]);
        r->matchers = NULL;
        return config_wrong_at(
            p, &at, "%s: the selector must contain at least one matcher that is not empty",
            key->name);
    }
    return ERR_OK;
}

static enum err source_labels_parse(struct config_parser *p, const struct config_key *key)
{
    struct relabel_config *c = &p->rule->rule.relabel;
    struct str *names = NULL;
    enum err e = ERR_OK;

    p->rule->has_relabel = true;
    if (config_is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_SEQUENCE_START_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a list", key->name);
    c->has_source_labels = true;
    for (;;) {
        struct str name = {0};

        e = config_next(p);
        if (e != ERR_OK || p->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        e = config_scalar_copy(p, "a source label", &name);
        if (e != ERR_OK)
            break;
        names = arena_grow_array(&p->config->arena, names, c->source_label_count,
                                 c->source_label_count + 1, sizeof *names);
        if (names == NULL)
            return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
        names[c->source_label_count++] = name;
        c->source_labels = names;
    }
    return e;
}

static enum err separator_parse(struct config_parser *p, const struct config_key *key)
{
    p->rule->has_relabel = true;
    return text_parse(p, key, &p->rule->rule.relabel.separator);
}

static enum err regex_parse(struct config_parser *p, const struct config_key *key)
{
    yaml_mark_t at = p->event.start_mark;
    struct relabel_config *c = &p->rule->rule.relabel;
    struct errinfo why = {0};
    struct regex *re = NULL;
    enum err e = text_parse(p, key, &c->regex);

    p->rule->has_relabel = true;
    c->has_regex = true;
    if (e == ERR_OK && regex_compile(c->regex, &re, &why) != ERR_OK)
        e = config_wrong_at(p, &at, "%s", why.message);
    regex_free(re);
    return e;
}

static enum err modulus_parse(struct config_parser *p, const struct config_key *key)
{
    struct str text = {"", 0};
    uint64_t n = 0;
    bool ok;

    p->rule->has_relabel = true;
    if (p->event.type == YAML_SCALAR_EVENT)
        text = config_scalar_text(p);
    ok = text.size > 0;
    for (size_t i = 0; i < text.size && ok; i++) {
        ok = text.data[i] >= '0' && text.data[i] <= '9' && !__builtin_mul_overflow(n, 10, &n) &&
             !__builtin_add_overflow(n, (uint64_t)(text.data[i] - '0'), &n);
    }
    if (!ok)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a whole number", key->name);
    p->rule->rule.relabel.modulus = n;
    return ERR_OK;
}

static enum err target_label_parse(struct config_parser *p, const struct config_key *key)
{
    p->rule->has_relabel = true;
    return text_parse(p, key, &p->rule->rule.relabel.target_label);
}

static enum err replacement_parse(struct config_parser *p, const struct config_key *key)
{
    p->rule->has_relabel = true;
    return text_parse(p, key, &p->rule->rule.relabel.replacement);
}

static enum err action_parse(struct config_parser *p, const struct config_key *key)
{
    struct str name = {"", 0};
    enum err e;

    p->rule->has_relabel = true;
    e = text_parse(p, key, &name);
    if (e == ERR_OK && !relabel_action_parse(name, &p->rule->rule.relabel.action))
        return config_wrong_at(p, &p->event.start_mark, "unknown relabel action \"%.*s\"",
                               STR_ARGS(name));
    return e;
}

/* ---- items ---- */

static enum err item_check(struct config_parser *p, const yaml_mark_t *at,
                           const struct config_rule *item)
{
    const char *obstacle = NULL;
    struct errinfo why = {0};

    if (item->rule.name.size == 0)
        return config_wrong_at(p, at, "a drop rule needs a name");
    if (item->has_drop && item->has_relabel)
        return config_wrong_at(p, at,
                               "rule \"%.*s\": \"drop\" stands alone, without the fields of a "
                               "relabel_config",
                               STR_ARGS(item->rule.name));
    if (!item->has_drop && !item->has_relabel)
        return config_wrong_at(p, at,
                               "rule \"%.*s\" needs \"drop\" or the fields of a relabel_config",
                               STR_ARGS(item->rule.name));
    /* Rules of the API that were kept before this was refused shall not cost the others. */
    if (item->rule.purge && item->rule.origin == DROP_RULE_FILE)
        obstacle = rule_selector_obstacle(&item->rule);
    if (!item->has_drop && relabel_config_check(&item->rule.relabel, &why) != ERR_OK)
        obstacle = why.message;
    return obstacle == NULL
               ? ERR_OK
               : config_wrong_at(p, at, "rule \"%.*s\": %s", STR_ARGS(item->rule.name), obstacle);
}

static int compare_names(const void *a, const void *b)
{
    return str_compare(**(const struct str *const *)a, **(const struct str *const *)b);
}

/* No name twice: rules are replaced and removed by it. */
static enum err names_check(struct config_parser *p, const yaml_mark_t *at)
{
    const struct config *c = p->config;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    const struct str **names = calloc(c->drop_rule_count + 1, sizeof *names);
    const struct str *twice = NULL;

    if (names == NULL)
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    for (size_t i = 0; i < c->drop_rule_count; i++)
        names[i] = &c->drop_rules[i].name;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): as above */
    qsort(names, c->drop_rule_count, sizeof *names, compare_names);
    for (size_t i = 1; i < c->drop_rule_count && twice == NULL; i++) {
        if (str_equal(*names[i - 1], *names[i]))
            twice = names[i];
    }
    free(names);
    if (twice != NULL)
        return config_wrong_at(p, at, "rule \"%.*s\" stands twice", STR_ARGS(*twice));
    return ERR_OK;
}

static enum err item_parse(struct config_parser *p)
{
    static const struct config_key keys[] = {
        {"name", name_parse},
        {"comment", comment_parse},
        {"purge", purge_parse},
        {"drop", drop_parse},
        {"source_labels", source_labels_parse},
        {"separator", separator_parse},
        {"regex", regex_parse},
        {"modulus", modulus_parse},
        {"target_label", target_label_parse},
        {"replacement", replacement_parse},
        {"action", action_parse},
        {NULL, NULL},
    };
    struct config *c = p->config;
    struct config_rule item = {.rule = {.name = {"", 0}, .comment = {"", 0}, .selector = {"", 0}}};
    yaml_mark_t at = p->event.start_mark;
    struct drop_rule *grown;
    enum err e;

    relabel_config_init(&item.rule.relabel);
    item.rule.origin = p->rule_origin;
    p->rule = &item;
    e = config_mapping_parse(p, "a drop rule", keys);
    if (e == ERR_OK)
        e = item_check(p, &at, &item);
    p->rule = NULL;
    if (c->drop_rule_count == DROP_RULES_MAX && e == ERR_OK)
        e = config_wrong_at(p, &at, "more than %d drop rules", (int)DROP_RULES_MAX);
    if (c->drop_rule_count == c->drop_rule_capacity) {
        size_t capacity = c->drop_rule_capacity == 0 ? 8 : 2 * c->drop_rule_capacity;

        grown =
            arena_grow_array(&c->arena, c->drop_rules, c->drop_rule_count, capacity, sizeof *grown);
        if (grown == NULL) {
            config_rule_done(&item.rule);
            return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
        }
        c->drop_rules = grown;
        c->drop_rule_capacity = capacity;
    }
    c->drop_rules[c->drop_rule_count++] = item.rule; /* also a bad one: config_done() frees it */
    return e;
}

void config_rule_done(struct drop_rule *r)
{
    for (size_t i = 0; r->matchers != NULL && i < r->matcher_count; i++)
        matcher_done((struct matcher *)(uintptr_t)&r->matchers[i]);
    r->matchers = NULL;
}

enum err config_drop_rules_parse(struct config_parser *p, const struct config_key *key)
{
    yaml_mark_t at = p->event.start_mark;
    enum err e = ERR_OK;

    if (config_is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_SEQUENCE_START_EVENT)
        return config_wrong_at(p, &at, "%s must be a list", key->name);
    for (;;) {
        e = config_next(p);
        if (e != ERR_OK)
            return e;
        if (p->event.type == YAML_SEQUENCE_END_EVENT)
            return names_check(p, &at);
        e = item_parse(p);
        if (e != ERR_OK)
            return e;
    }
}

enum err config_rule_list_parse(struct config_parser *p)
{
    static const struct config_key key = {"the list of rules", NULL};

    if (p->event.type == YAML_SEQUENCE_START_EVENT)
        return config_drop_rules_parse(p, &key);
    if (p->event.type != YAML_MAPPING_START_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "a rule or a list of rules is wanted");
    return item_parse(p);
}

/* ---- JSON ---- */

/* The value of `\uXXXX` at the beginning of a text, or -1. */
static int32_t escape_read(struct str text)
{
    int32_t value = 0;

    if (text.size < 6 || text.data[0] != '\\' || text.data[1] != 'u')
        return -1;
    for (size_t i = 2; i < 6; i++) {
        char c = text.data[i];
        int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Whether a pair of escapes that stands for one character begins here; writes it. */
static bool pair_write(struct str text, struct byte_writer *out)
{
    int32_t high = escape_read(text), low = -1;
    uint32_t c;

    if (high < 0xD800 || high > 0xDBFF)
        return false;
    low = escape_read((struct str){text.data + 6, text.size - 6});
    if (low < 0xDC00 || low > 0xDFFF)
        return false;
    c = 0x10000 + ((uint32_t)(high - 0xD800) << 10 | (uint32_t)(low - 0xDC00));
    utf8_write(out, c);
    return true;
}

void config_json_plain(struct str text, struct byte_writer *out)
{
    for (size_t i = 0; i < text.size;) {
        struct str rest = {text.data + i, text.size - i};
        size_t size = 1;

        if (rest.data[0] == '\\' && pair_write(rest, out)) {
            i += 12;
            continue;
        }
        if (rest.data[0] == '\\' && rest.size > 1)
            size = 2; /* an escaped backslash escapes nothing behind it */
        writer_append(out, rest.data, size);
        i += size;
    }
}
