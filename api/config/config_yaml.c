/*
 * What the sections of the configuration share: stepping through libyaml's events, texts, mappings,
 * and errors with line and column.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/config/config_parse_internal.h"
#include "promql/ast.h"

enum { DEPTH_MAX = 100 };

enum err config_wrong_at(struct config_parser *p, const yaml_mark_t *at, const char *format, ...)
{
    char what[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args); /* may cut */
    va_end(args);
    return errinfo_set(p->ei, ERR_INVALID, 0, "%s:%zu:%zu: %s", p->name, at->line + 1,
                       at->column + 1, what);
}

/* What libyaml says, and for its two most frequent complaints what is behind them. */
static enum err yaml_wrong(struct config_parser *p)
{
    const char *what = p->yaml.problem != NULL ? p->yaml.problem : "broken YAML";
    const char *hint = "";

    if (strcmp(what, "found character that cannot start any token") == 0)
        hint = " (YAML is indented with spaces, not tabs; a text that begins with @, ` or % needs "
               "quotes)";
    else if (strcmp(what, "did not find expected key") == 0)
        hint = " (is it indented as far as the keys above?)";
    return config_wrong_at(p, &p->yaml.problem_mark, "%s%s", what, hint);
}

/* Steps to the next event. */
enum err config_next(struct config_parser *p)
{
    if (p->has_event)
        yaml_event_delete(&p->event);
    p->has_event = yaml_parser_parse(&p->yaml, &p->event) != 0;
    if (!p->has_event)
        return yaml_wrong(p);
    if (p->event.type == YAML_ALIAS_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "aliases are not supported");
    return ERR_OK;
}

struct str config_scalar_text(const struct config_parser *p)
{
    return (struct str){(const char *)p->event.data.scalar.value, p->event.data.scalar.length};
}

/* A key without a value ("global:") is a plain empty scalar. */
bool config_is_null(const struct config_parser *p)
{
    struct str text = {0};

    if (p->event.type != YAML_SCALAR_EVENT || p->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    text = config_scalar_text(p);
    return text.size == 0 || str_equal(text, STR_LITERAL("~")) ||
           str_equal(text, STR_LITERAL("null"));
}

enum err config_warning_add(struct config_parser *p, const struct config_key *key, const char *why)
{
    struct config *c = p->config;
    const char **grown = arena_grow_array(&c->arena, (void *)c->warnings, c->warning_count,
                                          c->warning_count + 1, sizeof *grown);
    char *text = arena_printf(&c->arena, "configuration: \"%s\" %s", key->name, why);

    if (grown == NULL || text == NULL)
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    c->warnings = grown;
    c->warnings[c->warning_count++] = text;
    return ERR_OK;
}

/* Steps over the node of the current event. */
enum err config_skip_node(struct config_parser *p)
{
    size_t depth = 0;

    for (;;) {
        enum err e = ERR_OK;

        if (p->event.type == YAML_MAPPING_START_EVENT || p->event.type == YAML_SEQUENCE_START_EVENT)
            depth++;
        else if (p->event.type == YAML_MAPPING_END_EVENT ||
                 p->event.type == YAML_SEQUENCE_END_EVENT)
            depth--;
        if (depth > DEPTH_MAX)
            return config_wrong_at(p, &p->event.start_mark, "nested deeper than %d", DEPTH_MAX);
        if (depth == 0)
            return ERR_OK;
        e = config_next(p);
        if (e != ERR_OK)
            return e;
    }
}

/* A section of Prometheus's that does nothing here. */
enum err config_key_ignored(struct config_parser *p, const struct config_key *key)
{
    enum err e = config_warning_add(p, key, "has no effect in this server");

    return e == ERR_OK ? config_skip_node(p) : e;
}

static const struct config_key *key_find(const struct config_key *keys, struct str name)
{
    while (keys->name != NULL && !str_equal(str_from(keys->name), name))
        keys++;
    return keys->name == NULL ? NULL : keys;
}

/* A mapping whose keys are all in `keys`, at most 64 of them. */
enum err config_mapping_parse(struct config_parser *p, const char *what,
                              const struct config_key *keys)
{
    uint64_t seen = 0;
    enum err e = ERR_OK;

    if (config_is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_MAPPING_START_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a mapping such as {%s: ...}",
                               what, keys[0].name);
    for (;;) {
        const struct config_key *key = NULL;
        struct str name = {0};

        e = config_next(p);
        if (e != ERR_OK || p->event.type == YAML_MAPPING_END_EVENT)
            return e;
        if (p->event.type != YAML_SCALAR_EVENT)
            return config_wrong_at(p, &p->event.start_mark, "a key of %s must be a text", what);
        name = config_scalar_text(p);
        key = key_find(keys, name);
        if (key == NULL)
            return config_wrong_at(p, &p->event.start_mark, "unknown key \"%.*s\" in %s",
                                   STR_ARGS(name), what);
        if (seen >> (key - keys) & 1)
            return config_wrong_at(p, &p->event.start_mark, "key \"%s\" stands twice in %s",
                                   key->name, what);
        seen |= (uint64_t)1 << (key - keys);
        e = config_next(p);
        if (e == ERR_OK)
            e = key->parse(p, key);
        if (e != ERR_OK)
            return e;
    }
}

enum err config_duration_parse(struct config_parser *p, const struct config_key *key, int64_t *out)
{
    struct str text = {0};

    if (p->event.type != YAML_SCALAR_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a duration", key->name);
    text = config_scalar_text(p);
    if (promql_duration_parse(text, out, NULL) != ERR_OK || *out < 0)
        return config_wrong_at(p, &p->event.start_mark,
                               "%s must be a duration such as 90s or 15d, not \"%.*s\"", key->name,
                               STR_ARGS(text));
    return ERR_OK;
}

enum err config_scalar_copy(struct config_parser *p, const char *what, struct str *out)
{
    struct str text = {0};
    char *copy = NULL;

    if (p->event.type != YAML_SCALAR_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a text", what);
    text = config_scalar_text(p);
    if (!utf8_is_valid(text))
        return config_wrong_at(p, &p->event.start_mark, "%s is not UTF-8", what);
    copy = arena_memdup0(&p->config->arena, text.data, text.size);
    if (copy == NULL)
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    *out = (struct str){copy, text.size};
    return ERR_OK;
}
