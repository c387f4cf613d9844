/*
 * The configuration's section `limits`.
 */
#include <string.h>

#include "api/config/config_parse_internal.h"

/* A whole number below 2^53, in decimal digits; underscores may separate them, as in YAML 1.1. */
static enum err number_parse(struct config_parser *p, const struct config_key *key, uint64_t *out)
{
    uint64_t n = 0;
    struct str text;

    if (p->event.type != YAML_SCALAR_EVENT || config_is_null(p))
        return config_wrong_at(p, &p->event.start_mark, "%s must be a number", key->name);
    text = config_scalar_text(p);
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];

        if (c == '_' && i > 0)
            continue;
        if (c < '0' || c > '9')
            return config_wrong_at(p, &p->event.start_mark,
                                   "%s must be a whole number, not \"%.*s\"", key->name,
                                   STR_ARGS(text));
        n = n * 10 + (uint64_t)(c - '0');
        if (n >= UINT64_C(1) << 53)
            return config_wrong_at(p, &p->event.start_mark, "%s is too large", key->name);
    }
    *out = n;
    return ERR_OK;
}

static enum err max_parse(struct config_parser *p, const struct config_key *key)
{
    return number_parse(p, key, &p->limit->max);
}

static enum err warn_parse(struct config_parser *p, const struct config_key *key)
{
    return number_parse(p, key, &p->limit->warn);
}

static enum err label_parse(struct config_parser *p, const struct config_key *key)
{
    yaml_mark_t at = p->event.start_mark;
    enum err e = config_scalar_copy(p, key->name, &p->limit_label);

    if (e == ERR_OK && p->limit_label.size == 0)
        return config_wrong_at(p, &at, "a label's name is empty");
    if (e == ERR_OK && str_equal(p->limit_label, LABEL_METRIC_NAME))
        return config_wrong_at(p, &at, "for __name__ there is series_per_metric");
    return e;
}

/* A threshold that can never be met would mislead. */
static enum err warn_check(struct config_parser *p, const yaml_mark_t *at, const char *what)
{
    if (p->limit->max > 0 && p->limit->warn > p->limit->max)
        return config_wrong_at(p, at, "warn is above max in %s", what);
    return ERR_OK;
}

/* A limit of how many series there are: with a threshold. */
static enum err counted_parse(struct config_parser *p, const struct config_key *key,
                              enum limit_kind kind)
{
    static const struct config_key keys[] = {
        {"max", max_parse}, {"warn", warn_parse}, {NULL, NULL}};
    yaml_mark_t at = p->event.start_mark;
    enum err e;

    p->limit = &p->config->limits.items[kind];
    e = config_mapping_parse(p, key->name, keys);
    return e == ERR_OK ? warn_check(p, &at, key->name) : e;
}

/* A limit of one request's or series' size. */
static enum err sized_parse(struct config_parser *p, const struct config_key *key,
                            enum limit_kind kind)
{
    static const struct config_key keys[] = {{"max", max_parse}, {NULL, NULL}};

    p->limit = &p->config->limits.items[kind];
    return config_mapping_parse(p, key->name, keys);
}

static enum err active_series_parse(struct config_parser *p, const struct config_key *key)
{
    return counted_parse(p, key, LIMIT_ACTIVE_SERIES);
}

static enum err series_per_metric_parse(struct config_parser *p, const struct config_key *key)
{
    return counted_parse(p, key, LIMIT_SERIES_PER_METRIC);
}

static enum err labels_per_series_parse(struct config_parser *p, const struct config_key *key)
{
    return sized_parse(p, key, LIMIT_LABELS_PER_SERIES);
}

static enum err label_name_bytes_parse(struct config_parser *p, const struct config_key *key)
{
    return sized_parse(p, key, LIMIT_LABEL_NAME_BYTES);
}

static enum err label_value_bytes_parse(struct config_parser *p, const struct config_key *key)
{
    return sized_parse(p, key, LIMIT_LABEL_VALUE_BYTES);
}

static enum err samples_per_request_parse(struct config_parser *p, const struct config_key *key)
{
    return sized_parse(p, key, LIMIT_SAMPLES_PER_REQUEST);
}

/* One item of series_per_label_value. */
static enum err label_limit_parse(struct config_parser *p, const struct config_key *key)
{
    static const struct config_key keys[] = {
        {"label", label_parse}, {"max", max_parse}, {"warn", warn_parse}, {NULL, NULL}};
    struct config *c = p->config;
    struct limit limit = {0};
    yaml_mark_t at = p->event.start_mark;
    struct label_limit *grown;
    enum err e;

    p->limit = &limit;
    p->limit_label = (struct str){"", 0};
    e = config_mapping_parse(p, key->name, keys);
    if (e == ERR_OK && p->limit_label.size == 0)
        return config_wrong_at(p, &at, "an item of %s needs a label", key->name);
    if (e == ERR_OK)
        e = warn_check(p, &at, key->name);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < c->limits.label_count; i++)
        if (str_equal(c->limits.labels[i].label, p->limit_label))
            return config_wrong_at(p, &at, "label \"%.*s\" stands twice in %s",
                                   STR_ARGS(p->limit_label), key->name);
    if (c->limits.label_count == LIMITS_LABELS_MAX)
        return config_wrong_at(p, &at, "more than %d labels in %s", (int)LIMITS_LABELS_MAX,
                               key->name);
    grown = arena_grow_array(&c->arena, (void *)c->limits.labels, c->limits.label_count,
                             c->limits.label_count + 1, sizeof *grown);
    if (grown == NULL)
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    grown[c->limits.label_count++] = (struct label_limit){p->limit_label, limit};
    c->limits.labels = grown;
    return ERR_OK;
}

static enum err series_per_label_value_parse(struct config_parser *p, const struct config_key *key)
{
    enum err e = ERR_OK;

    if (config_is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_SEQUENCE_START_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a list", key->name);
    while (e == ERR_OK) {
        e = config_next(p);
        if (e != ERR_OK || p->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        e = label_limit_parse(p, key);
    }
    return e;
}

enum err config_limits_parse(struct config_parser *p, const struct config_key *key)
{
    static const struct config_key keys[] = {
        {"active_series", active_series_parse},
        {"series_per_metric", series_per_metric_parse},
        {"series_per_label_value", series_per_label_value_parse},
        {"labels_per_series", labels_per_series_parse},
        {"label_name_bytes", label_name_bytes_parse},
        {"label_value_bytes", label_value_bytes_parse},
        {"samples_per_request", samples_per_request_parse},
        {NULL, NULL},
    };

    return config_mapping_parse(p, key->name, keys);
}
