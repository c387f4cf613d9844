/*
 * Configuration as a stream of libyaml's events: every error can then name its line and column, and
 * a document is never built in memory. Aliases are refused, since they let a small file describe a
 * huge one.
 */
#include "api/config.h"

#include <stdlib.h>
#include <string.h>

#include "api/config/config_parse_internal.h"
#include "api/config/machine_internal.h"
#include "api/flags.h"

enum { DEFAULT_EVALUATION_INTERVAL_MS = 60000 };

void config_init(struct config *c)
{
    *c = (struct config){.evaluation_interval_ms = DEFAULT_EVALUATION_INTERVAL_MS, .text = ""};
    limits_defaults(&c->limits);
    arena_init(&c->arena, NULL);
}

void config_done(struct config *c)
{
    for (size_t i = 0; i < c->drop_rule_count; i++)
        config_rule_done(&c->drop_rules[i]);
    arena_done(&c->arena);
}

static enum err evaluation_interval_parse(struct config_parser *p, const struct config_key *key)
{
    int64_t ms = 0;
    enum err e = config_duration_parse(p, key, &ms);

    if (e != ERR_OK)
        return e;
    if (ms == 0)
        return config_wrong_at(p, &p->event.start_mark, "%s must be positive", key->name);
    p->config->evaluation_interval_ms = ms;
    return ERR_OK;
}

static enum err out_of_order_parse(struct config_parser *p, const struct config_key *key)
{
    return config_duration_parse(p, key, &p->config->out_of_order_time_window_ms);
}

static int label_compare(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

static enum err query_log_file_parse(struct config_parser *p, const struct config_key *key)
{
    struct str path = {0};
    enum err e = config_is_null(p) ? ERR_OK : config_scalar_copy(p, key->name, &path);

    if (e == ERR_OK && path.size > 0)
        p->config->query_log_file = path.data;
    return e;
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
static enum err variables_expand(struct config_parser *p, const struct config_key *key,
                                 struct str *value)
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
                e = config_warning_add(p, key, "names an environment variable that is not set");
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

static enum err external_label_parse(struct config_parser *p, const struct config_key *key,
                                     struct label **items, size_t *count)
{
    yaml_mark_t at = p->event.start_mark;
    struct label label = {0};
    struct label *grown = NULL;
    enum err e = config_scalar_copy(p, "a label's name", &label.name);

    if (e == ERR_OK && label.name.size == 0)
        return config_wrong_at(p, &at, "a label's name is empty");
    for (size_t i = 0; e == ERR_OK && i < *count; i++)
        if (str_equal((*items)[i].name, label.name))
            return config_wrong_at(p, &at, "label \"%.*s\" stands twice", STR_ARGS(label.name));
    if (e == ERR_OK)
        e = config_next(p);
    if (e == ERR_OK)
        e = config_scalar_copy(p, "a label's value", &label.value);
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

static enum err external_labels_parse(struct config_parser *p, const struct config_key *key)
{
    struct label *items = NULL;
    size_t count = 0;
    enum err e = ERR_OK;

    if (config_is_null(p))
        return ERR_OK;
    if (p->event.type != YAML_MAPPING_START_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "%s must be a mapping", key->name);
    for (;;) {
        e = config_next(p);
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
        return config_warning_add(p, key, "has no effect yet: nothing is sent on to other servers");
    return ERR_OK;
}

static enum err global_parse(struct config_parser *p, const struct config_key *key)
{
    static const struct config_key keys[] = {
        {"external_labels", external_labels_parse},
        {"evaluation_interval", evaluation_interval_parse},
        {"scrape_interval", config_key_ignored},
        {"scrape_timeout", config_key_ignored},
        {"scrape_protocols", config_key_ignored},
        {"rule_query_offset", config_key_ignored},
        {"query_log_file", query_log_file_parse},
        {"scrape_failure_log_file", config_key_ignored},
        {"body_size_limit", config_key_ignored},
        {"sample_limit", config_key_ignored},
        {"label_limit", config_key_ignored},
        {"label_name_length_limit", config_key_ignored},
        {"label_value_length_limit", config_key_ignored},
        {"target_limit", config_key_ignored},
        {"keep_dropped_targets", config_key_ignored},
        {"metric_name_validation_scheme", config_key_ignored},
        {"metric_name_escaping_scheme", config_key_ignored},
        {"scrape_native_histograms", config_key_ignored},
        {"always_scrape_classic_histograms", config_key_ignored},
        {"convert_classic_histograms_to_nhcb", config_key_ignored},
        {"extra_scrape_metrics", config_key_ignored},
        {NULL, NULL},
    };

    return config_mapping_parse(p, key->name, keys);
}

static enum err retention_time_parse(struct config_parser *p, const struct config_key *key)
{
    struct config_retention *r = &p->config->retention;
    struct str text = {0};
    enum err e = config_duration_parse(p, key, &r->time_ms);

    if (e == ERR_OK)
        e = config_scalar_copy(p, key->name, &text);
    if (e == ERR_OK)
        r->time = text.data;
    return e;
}

static enum err retention_size_parse(struct config_parser *p, const struct config_key *key)
{
    struct config_retention *r = &p->config->retention;
    yaml_mark_t at = p->event.start_mark;
    struct str text = {0};
    enum err e = config_scalar_copy(p, key->name, &text);

    if (e != ERR_OK)
        return e;
    if (!flags_size_parse(text, &r->size_bytes))
        return config_wrong_at(p, &at, "%s must be a size such as 512MiB or 500GB, not \"%.*s\"",
                               key->name, STR_ARGS(text));
    r->size = text.data;
    return ERR_OK;
}

static enum err retention_parse(struct config_parser *p, const struct config_key *key)
{
    static const struct config_key keys[] = {
        {"time", retention_time_parse},
        {"size", retention_size_parse},
        {"percentage", config_key_ignored},
        {NULL, NULL},
    };

    if (config_is_null(p))
        return ERR_OK;
    p->config->retention = (struct config_retention){.is_given = true, .time = "0", .size = "0"};
    return config_mapping_parse(p, key->name, keys);
}

static enum err tsdb_parse(struct config_parser *p, const struct config_key *key)
{
    static const struct config_key keys[] = {
        {"out_of_order_time_window", out_of_order_parse},
        {"retention", retention_parse},
        {"stale_series_compaction_threshold", config_key_ignored},
        {"chunk_encoding", config_key_ignored},
        {NULL, NULL},
    };

    return config_mapping_parse(p, key->name, keys);
}

static enum err storage_parse(struct config_parser *p, const struct config_key *key)
{
    static const struct config_key keys[] = {
        {"tsdb", tsdb_parse}, {"exemplars", config_key_ignored}, {NULL, NULL}};

    return config_mapping_parse(p, key->name, keys);
}

static enum err configuration_parse(struct config_parser *p)
{
    static const struct config_key keys[] = {
        {"global", global_parse},
        {"storage", storage_parse},
        {"limits", config_limits_parse},
        {"drop_rules", config_drop_rules_parse},
        {"scrape_configs", config_key_ignored},
        {"scrape_config_files", config_key_ignored},
        {"rule_files", config_key_ignored},
        {"alerting", config_key_ignored},
        {"remote_write", config_key_ignored},
        {"remote_read", config_key_ignored},
        {"tracing", config_key_ignored},
        {"otlp", config_key_ignored},
        {"runtime", config_key_ignored},
        {NULL, NULL},
    };

    return config_mapping_parse(p, "the configuration", keys);
}

/* A single document, whose node `node_parse` reads. */
static enum err document_parse(struct config_parser *p,
                               enum err (*node_parse)(struct config_parser *p))
{
    enum err e = config_next(p); /* stream start */

    if (e == ERR_OK)
        e = config_next(p);
    if (e != ERR_OK || p->event.type == YAML_STREAM_END_EVENT)
        return e;       /* an empty file: the defaults */
    e = config_next(p); /* document start is behind us */
    if (e == ERR_OK)
        e = node_parse(p);
    if (e == ERR_OK)
        e = config_next(p); /* document end */
    if (e == ERR_OK)
        e = config_next(p);
    if (e == ERR_OK && p->event.type != YAML_STREAM_END_EVENT)
        return config_wrong_at(p, &p->event.start_mark, "more than one document");
    return e;
}

static enum err text_parse(struct config_parser *p, struct str text,
                           enum err (*node_parse)(struct config_parser *p))
{
    enum err e = ERR_OK;

    if (!yaml_parser_initialize(&p->yaml))
        return errinfo_set(p->ei, ERR_NOMEM, 0, "configuration");
    /* libyaml insists on a pointer. */
    yaml_parser_set_input_string(
        &p->yaml, (const unsigned char *)(text.data == NULL ? "" : text.data), text.size);
    e = document_parse(p, node_parse);
    if (p->has_event)
        yaml_event_delete(&p->event);
    yaml_parser_delete(&p->yaml);
    return e;
}

enum err config_parse(struct config *c, const char *name, struct str text, struct errinfo *ei)
{
    struct errinfo local = {0};
    struct config_parser p = {
        .name = name, .config = c, .ei = ei == NULL ? &local : ei, .rule_origin = DROP_RULE_FILE};
    char *copy = arena_memdup0(&c->arena, text.data, text.size);
    enum err e = ERR_OK;

    if (copy == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "configuration");
    e = text_parse(&p, text, configuration_parse);
    if (e == ERR_OK)
        c->text = copy;
    return e;
}

enum err config_rules_parse(struct config *c, const char *name, struct str text,
                            enum drop_rule_origin origin, struct errinfo *ei)
{
    struct errinfo local = {0};
    struct config_parser p = {
        .name = name, .config = c, .ei = ei == NULL ? &local : ei, .rule_origin = origin};
    struct byte_writer plain;
    enum err e = ERR_OK;

    writer_init(&plain);
    config_json_plain(text, &plain);
    if (plain.failed)
        e = errinfo_set(ei, ERR_NOMEM, 0, "rules");
    else
        e = text_parse(&p, (struct str){(const char *)plain.data, plain.size},
                       config_rule_list_parse);
    writer_done(&plain);
    return e;
}

enum err config_rules_read(struct config *c, const char *name, struct str text, struct errinfo *ei)
{
    struct errinfo of_list = {0}, of_file = {0};
    struct config file;
    enum err e = config_rules_parse(c, name, text, DROP_RULE_API, &of_list);

    if (e == ERR_INVALID) {
        config_init(&file);
        if (config_parse(&file, name, text, &of_file) == ERR_OK && file.drop_rule_count > 0) {
            config_done(c);
            *c = file;
            return ERR_OK;
        }
        config_done(&file);
        /* The error of a configuration counts where there is the section. */
        if (memmem(text.data, text.size, "drop_rules", 10) != NULL && of_file.code != ERR_OK)
            of_list = of_file;
    }
    if (e != ERR_OK && ei != NULL)
        *ei = of_list;
    return e;
}

/* Paths in the file are relative to its directory. */
static enum err path_resolve(struct config *c, const char *config_path, const char **path,
                             struct errinfo *ei)
{
    const char *slash = strrchr(config_path, '/');

    if (*path == NULL || **path == '/' || slash == NULL)
        return ERR_OK;
    *path = arena_printf(&c->arena, "%.*s/%s", (int)(slash - config_path), config_path, *path);
    return *path == NULL ? errinfo_set(ei, ERR_NOMEM, 0, "configuration") : ERR_OK;
}

enum err config_load(struct config *c, const char *path, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e = ERR_OK;

    writer_init(&w);
    e = machine_file_read(path, CONFIG_BYTES_MAX, &w, ei);
    if (e == ERR_OK)
        e = config_parse(c, path, (struct str){(const char *)w.data, w.size}, ei);
    if (e == ERR_OK)
        e = path_resolve(c, path, &c->query_log_file, ei);
    writer_done(&w);
    return e;
}
