/*
 * Configuration as a stream of libyaml's events: every error can then name its line and column, and
 * a document is never built in memory. Aliases are refused, since they let a small file describe a
 * huge one.
 */
#include "api/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "api/machine_internal.h"
#include "promql/ast.h"

enum { DEFAULT_EVALUATION_INTERVAL_MS = 60000, DEPTH_MAX = 100 };

struct parser {
    yaml_parser_t yaml;
    yaml_event_t event; /* the current one */
    bool has_event;
    const char *name;
    struct config *config;
    struct errinfo *ei;
};

/* What may stand under a key. */
struct key {
    const char *name;
    enum err (*parse)(struct parser *p, const struct key *key);
};

void config_init(struct config *c)
{
    *c = (struct config){.evaluation_interval_ms = DEFAULT_EVALUATION_INTERVAL_MS, .text = ""};
    arena_init(&c->arena, NULL);
}

void config_done(struct config *c)
{
    arena_done(&c->arena);
}

static enum err wrong_at(struct parser *p, const yaml_mark_t *at, const char *format, ...)
    PRINTF_LIKE(3, 4);
static enum err wrong_at(struct parser *p, const yaml_mark_t *at, const char *format, ...)
{
    char what[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args); /* may cut */
    va_end(args);
    return errinfo_set(p->ei, ERR_INVALID, 0, "%s:%zu:%zu: %s", p->name, at->line + 1,
                       at->column + 1, what);
}

/* Steps to the next event. */
static enum err next(struct parser *p)
{
    if (p->has_event)
        yaml_event_delete(&p->event);
    p->has_event = yaml_parser_parse(&p->yaml, &p->event) != 0;
    if (!p->has_event)
        return wrong_at(p, &p->yaml.problem_mark, "%s",
                        p->yaml.problem != NULL ? p->yaml.problem : "broken YAML");
    if (p->event.type == YAML_ALIAS_EVENT)
        return wrong_at(p, &p->event.start_mark, "aliases are not supported");
    return ERR_OK;
}

static struct str scalar_text(const struct parser *p)
{
    return (struct str){(const char *)p->event.data.scalar.value, p->event.data.scalar.length};
}

/* A key without a value ("global:") is a plain empty scalar. */
static bool is_null(const struct parser *p)
{
    struct str text = {0};

    if (p->event.type != YAML_SCALAR_EVENT || p->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    text = scalar_text(p);
    return text.size == 0 || str_equal(text, STR_LITERAL("~")) ||
           str_equal(text, STR_LITERAL("null"));
}

static enum err warning_add(struct parser *p, const struct key *key, const char *why)
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
static enum err skip_node(struct parser *p)
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
            return wrong_at(p, &p->event.start_mark, "nested deeper than %d", DEPTH_MAX);
        if (depth == 0)
            return ERR_OK;
        e = next(p);
        if (e != ERR_OK)
            return e;
    }
}

/* A section of Prometheus's that does nothing here. */
static enum err ignored(struct parser *p, const struct key *key)
{
    enum err e = warning_add(p, key, "has no effect in this server");

    return e == ERR_OK ? skip_node(p) : e;
}

static const struct key *key_find(const struct key *keys, struct str name)
{
    while (keys->name != NULL && !str_equal(str_from(keys->name), name))
        keys++;
    return keys->name == NULL ? NULL : keys;
}

/* A mapping whose keys are all in `keys`, at most 64 of them. */
static enum err mapping_parse(struct parser *p, const char *what, const struct key *keys)
{
    uint64_t seen = 0;
    enum err e = ERR_OK;

    if (is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_MAPPING_START_EVENT)
        return wrong_at(p, &p->event.start_mark, "%s must be a mapping", what);
    for (;;) {
        const struct key *key = NULL;
        struct str name = {0};

        e = next(p);
        if (e != ERR_OK || p->event.type == YAML_MAPPING_END_EVENT)
            return e;
        if (p->event.type != YAML_SCALAR_EVENT)
            return wrong_at(p, &p->event.start_mark, "a key of %s must be a text", what);
        name = scalar_text(p);
        key = key_find(keys, name);
        if (key == NULL)
            return wrong_at(p, &p->event.start_mark, "unknown key \"%.*s\" in %s", STR_ARGS(name),
                            what);
        if (seen >> (key - keys) & 1)
            return wrong_at(p, &p->event.start_mark, "key \"%s\" stands twice in %s", key->name,
                            what);
        seen |= (uint64_t)1 << (key - keys);
        e = next(p);
        if (e == ERR_OK)
            e = key->parse(p, key);
        if (e != ERR_OK)
            return e;
    }
}

static enum err duration_parse(struct parser *p, const struct key *key, int64_t *out)
{
    struct str text = {0};

    if (p->event.type != YAML_SCALAR_EVENT)
        return wrong_at(p, &p->event.start_mark, "%s must be a duration", key->name);
    text = scalar_text(p);
    if (promql_duration_parse(text, out, NULL) != ERR_OK || *out < 0)
        return wrong_at(p, &p->event.start_mark, "\"%.*s\" is no duration for %s", STR_ARGS(text),
                        key->name);
    return ERR_OK;
}

static enum err evaluation_interval_parse(struct parser *p, const struct key *key)
{
    int64_t ms = 0;
    enum err e = duration_parse(p, key, &ms);

    if (e != ERR_OK)
        return e;
    if (ms == 0)
        return wrong_at(p, &p->event.start_mark, "%s must be positive", key->name);
    p->config->evaluation_interval_ms = ms;
    return ERR_OK;
}

static enum err out_of_order_parse(struct parser *p, const struct key *key)
{
    enum err e = duration_parse(p, key, &p->config->out_of_order_time_window_ms);

    if (e == ERR_OK && p->config->out_of_order_time_window_ms != 0)
        e = warning_add(p, key,
                        "has no effect yet: samples older than their series' newest are refused");
    return e;
}

static int label_compare(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

static enum err scalar_copy(struct parser *p, const char *what, struct str *out)
{
    struct str text = {0};
    char *copy = NULL;

    if (p->event.type != YAML_SCALAR_EVENT)
        return wrong_at(p, &p->event.start_mark, "%s must be a text", what);
    text = scalar_text(p);
    if (!utf8_is_valid(text))
        return wrong_at(p, &p->event.start_mark, "%s is not UTF-8", what);
    copy = arena_memdup0(&p->config->arena, text.data, text.size);
    if (copy == NULL)
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    *out = (struct str){copy, text.size};
    return ERR_OK;
}

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* Length of the reference to an environment variable at text[0] == '$', its name in *name: `$$`
 * (empty name), `$NAME` or `${NAME}`; 1 with an empty name for a lone '$', which goes. */
static size_t variable_read(struct str text, struct str *name)
{
    size_t size = 1;

    *name = (struct str){"", 0};
    if (text.size > 1 && text.data[1] == '{') {
        const char *end = memchr(text.data, '}', text.size);

        if (end == NULL)
            return 2; /* "${" without an end goes, as in Prometheus */
        *name = (struct str){text.data + 2, (size_t)(end - text.data) - 2};
        return (size_t)(end - text.data) + 1;
    }
    while (size < text.size && is_name_char(text.data[size], size == 1))
        size++;
    *name = (struct str){text.data + 1, size - 1};
    return size;
}

/* Puts environment variables into an external label's value, as Prometheus does; `$$` is a dollar.
 * A variable that is not set is an empty text and a warning. */
static enum err variables_expand(struct parser *p, const struct key *key, struct str *value)
{
    struct arena *arena = &p->config->arena;
    struct str rest = *value, out = {"", 0};
    enum err e = ERR_OK;

    while (e == ERR_OK && rest.size > 0) {
        const char *dollar = memchr(rest.data, '$', rest.size);
        size_t plain = dollar == NULL ? rest.size : (size_t)(dollar - rest.data), step = 0;
        struct str ref = {rest.data + plain, rest.size - plain}, name = {0};
        const char *text = "";

        if (ref.size > 1 && ref.data[1] == '$') {
            text = "$";
            step = 2;
        } else if (ref.size > 0) {
            char *name0 = NULL;

            step = variable_read(ref, &name);
            name0 = arena_memdup0(arena, name.data, name.size);
            text = name0 == NULL ? NULL : getenv(name0); /* NOLINT(concurrency-mt-unsafe): start */
            if (text == NULL) {
                text = "";
                e = warning_add(p, key, "names an environment variable that is not set");
            }
        }
        out.data = arena_printf(arena, "%.*s%.*s%s", STR_ARGS(out), (int)plain, rest.data, text);
        if (out.data == NULL)
            return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
        out.size += plain + strlen(text);
        rest.data += plain + step;
        rest.size -= plain + step;
    }
    *value = out;
    return e;
}

static enum err external_label_parse(struct parser *p, const struct key *key, struct label **items,
                                     size_t *count)
{
    yaml_mark_t at = p->event.start_mark;
    struct label label = {0};
    struct label *grown = NULL;
    enum err e = scalar_copy(p, "a label's name", &label.name);

    if (e == ERR_OK && label.name.size == 0)
        return wrong_at(p, &at, "a label's name is empty");
    for (size_t i = 0; e == ERR_OK && i < *count; i++)
        if (str_equal((*items)[i].name, label.name))
            return wrong_at(p, &at, "label \"%.*s\" stands twice", STR_ARGS(label.name));
    if (e == ERR_OK)
        e = next(p);
    if (e == ERR_OK)
        e = scalar_copy(p, "a label's value", &label.value);
    if (e == ERR_OK)
        e = variables_expand(p, key, &label.value);
    if (e != ERR_OK)
        return e;
    grown = arena_grow_array(&p->config->arena, *items, *count, *count + 1, sizeof *grown);
    if (grown == NULL)
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    grown[(*count)++] = label;
    *items = grown;
    return ERR_OK;
}

static enum err external_labels_parse(struct parser *p, const struct key *key)
{
    struct label *items = NULL;
    size_t count = 0;
    enum err e = ERR_OK;

    if (is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_MAPPING_START_EVENT)
        return wrong_at(p, &p->event.start_mark, "%s must be a mapping", key->name);
    for (;;) {
        e = next(p);
        if (e != ERR_OK)
            return e;
        if (p->event.type == YAML_MAPPING_END_EVENT)
            break;
        e = external_label_parse(p, key, &items, &count);
        if (e != ERR_OK)
            return e;
    }
    if (count > 1)
        qsort(items, count, sizeof *items, label_compare);
    p->config->external_labels = (struct labels){count, items};
    if (count > 0)
        return warning_add(p, key, "has no effect yet: nothing is sent on to other servers");
    return ERR_OK;
}

static enum err global_parse(struct parser *p, const struct key *key)
{
    static const struct key keys[] = {
        {"external_labels", external_labels_parse},
        {"evaluation_interval", evaluation_interval_parse},
        {"scrape_interval", ignored},
        {"scrape_timeout", ignored},
        {"scrape_protocols", ignored},
        {"rule_query_offset", ignored},
        {"query_log_file", ignored},
        {"scrape_failure_log_file", ignored},
        {"body_size_limit", ignored},
        {"sample_limit", ignored},
        {"label_limit", ignored},
        {"label_name_length_limit", ignored},
        {"label_value_length_limit", ignored},
        {"target_limit", ignored},
        {"keep_dropped_targets", ignored},
        {"metric_name_validation_scheme", ignored},
        {"metric_name_escaping_scheme", ignored},
        {"scrape_native_histograms", ignored},
        {"always_scrape_classic_histograms", ignored},
        {"convert_classic_histograms_to_nhcb", ignored},
        {"extra_scrape_metrics", ignored},
        {NULL, NULL},
    };

    return mapping_parse(p, key->name, keys);
}

static enum err tsdb_parse(struct parser *p, const struct key *key)
{
    static const struct key keys[] = {
        {"out_of_order_time_window", out_of_order_parse},
        {"retention", ignored},
        {"stale_series_compaction_threshold", ignored},
        {"chunk_encoding", ignored},
        {NULL, NULL},
    };

    return mapping_parse(p, key->name, keys);
}

static enum err storage_parse(struct parser *p, const struct key *key)
{
    static const struct key keys[] = {{"tsdb", tsdb_parse}, {"exemplars", ignored}, {NULL, NULL}};

    return mapping_parse(p, key->name, keys);
}

static enum err document_parse(struct parser *p)
{
    static const struct key keys[] = {
        {"global", global_parse},    {"storage", storage_parse},
        {"scrape_configs", ignored}, {"scrape_config_files", ignored},
        {"rule_files", ignored},     {"alerting", ignored},
        {"remote_write", ignored},   {"remote_read", ignored},
        {"tracing", ignored},        {"otlp", ignored},
        {"runtime", ignored},        {NULL, NULL},
    };
    enum err e = next(p); /* stream start */

    if (e == ERR_OK)
        e = next(p);
    if (e != ERR_OK || p->event.type == YAML_STREAM_END_EVENT)
        return e; /* an empty file: the defaults */
    e = next(p);  /* document start is behind us */
    if (e == ERR_OK)
        e = mapping_parse(p, "the configuration", keys);
    if (e == ERR_OK)
        e = next(p); /* document end */
    if (e == ERR_OK)
        e = next(p);
    if (e == ERR_OK && p->event.type != YAML_STREAM_END_EVENT)
        return wrong_at(p, &p->event.start_mark, "more than one document");
    return e;
}

enum err config_parse(struct config *c, const char *name, struct str text, struct errinfo *ei)
{
    struct errinfo local = {0};
    struct parser p = {.name = name, .config = c, .ei = ei == NULL ? &local : ei};
    char *copy = arena_memdup0(&c->arena, text.data, text.size);
    enum err e = ERR_OK;

    if (copy == NULL || !yaml_parser_initialize(&p.yaml))
        return errinfo_set(ei, ERR_NOMEM, 0, "configuration");
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)text.data, text.size);
    e = document_parse(&p);
    if (p.has_event)
        yaml_event_delete(&p.event);
    yaml_parser_delete(&p.yaml);
    if (e == ERR_OK)
        c->text = copy;
    return e;
}

enum err config_load(struct config *c, const char *path, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e = ERR_OK;

    writer_init(&w);
    e = machine_file_read(path, CONFIG_BYTES_MAX, &w, ei);
    if (e == ERR_OK)
        e = config_parse(c, path, (struct str){(const char *)w.data, w.size}, ei);
    writer_done(&w);
    return e;
}
