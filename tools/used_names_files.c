/*
 * Where expressions stand: `expr` of panels, annotations and rules, queries of dashboard variables.
 */
#include <errno.h>
#include <fts.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "tools/used_names_internal.h"

enum { FILE_BYTES_MAX = 64 << 20, JSON_DEPTH_MAX = 64 };

/* ---- Grafana ---- */

/* The selector or expression in a variable's query: label_values(x, l), query_result(x),
 * metrics(x); else the text. */
static enum err variable_query(struct used_names *u, struct str text, struct errinfo *ei)
{
    static const char *const functions[] = {"label_values", "query_result", "metrics"};
    const char *comma = NULL, *end;

    while (text.size > 0 && text.data[0] == ' ')
        text = (struct str){text.data + 1, text.size - 1};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        size_t name = strlen(functions[i]);

        if (text.size <= name + 1 || memcmp(text.data, functions[i], name) != 0 ||
            text.data[name] != '(')
            continue;
        text = (struct str){text.data + name + 1, text.size - name - 1};
        end = memrchr(text.data, ')', text.size);
        text.size = end == NULL ? text.size : (size_t)(end - text.data);
        if (i == 1)
            return used_names_expression(u, text, true, ei);
        /* The selector may have commas of its own: the label stands behind the last one. */
        comma = memrchr(text.data, ',', text.size);
        if (i == 0 && comma == NULL)
            return ERR_OK; /* label_values(label): all metrics, and none in particular */
        if (i == 0)
            text.size = (size_t)(comma - text.data);
        if (i == 2) { /* a regular expression of names */
            struct byte_writer w;
            enum err e;

            writer_init(&w);
            writer_printf(&w, "{__name__=~\".*(%.*s).*\"}", STR_ARGS(text));
            e = used_names_expression(u, (struct str){(const char *)w.data, w.size}, true, ei);
            writer_done(&w);
            return e;
        }
        return used_names_expression(u, text, true, ei);
    }
    return ERR_OK; /* a list of values, or a query of something else */
}

static enum err object_walk(struct used_names *u, const json_t *object, int depth,
                            struct errinfo *ei);

static enum err member_take(struct used_names *u, const char *key, const json_t *value,
                            struct errinfo *ei)
{
    struct str text = {json_string_value(value), json_string_length(value)};

    if (strcmp(key, "expr") == 0 && text.size > 0)
        return used_names_expression(u, text, true, ei);
    if (strcmp(key, "query") == 0 || strcmp(key, "definition") == 0)
        return variable_query(u, text, ei);
    return ERR_OK;
}

static enum err value_walk(struct used_names *u, // NOLINT(misc-no-recursion): JSON_DEPTH_MAX
                           const char *key, const json_t *value, int depth, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (json_is_string(value))
        return key == NULL ? ERR_OK : member_take(u, key, value, ei);
    if (json_is_object(value))
        return object_walk(u, value, depth + 1, ei);
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value) && e == ERR_OK; i++)
        e = value_walk(u, NULL, json_array_get(value, i), depth + 1, ei);
    return e;
}

static enum err object_walk(struct used_names *u, // NOLINT(misc-no-recursion): JSON_DEPTH_MAX
                            const json_t *object, int depth, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (depth > JSON_DEPTH_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "nested deeper than %d", (int)JSON_DEPTH_MAX);
    /* jansson's iteration has no const form. */
    for (void *it = json_object_iter((json_t *)object); it != NULL && e == ERR_OK;
         it = json_object_iter_next((json_t *)object, it))
        e = value_walk(u, json_object_iter_key(it), json_object_iter_value(it), depth, ei);
    return e;
}

enum err used_names_dashboard_text(struct used_names *u, struct str json, struct errinfo *ei)
{
    json_error_t error;
    json_t *root = json_loadb(json.data, json.size, 0, &error);
    enum err e;

    if (root == NULL)
        return errinfo_set(ei, ERR_INVALID, 0, "%d:%d: %s", error.line, error.column, error.text);
    e = value_walk(u, NULL, root, 0, ei);
    json_decref(root);
    return e;
}

/* ---- rules ---- */

/* Where in the tree of a YAML document the parser is: in mappings keys and values take turns. */
struct yaml_place {
    bool is_mapping, expects_value, is_expr;
};

static enum err yaml_event(struct used_names *u, const yaml_event_t *event,
                           struct yaml_place *stack, size_t *depth, struct errinfo *ei)
{
    struct yaml_place *at = &stack[*depth];
    bool opens =
        event->type == YAML_MAPPING_START_EVENT || event->type == YAML_SEQUENCE_START_EVENT;

    if (event->type == YAML_MAPPING_END_EVENT || event->type == YAML_SEQUENCE_END_EVENT) {
        (*depth)--;
        return ERR_OK;
    }
    if (!opens && event->type != YAML_SCALAR_EVENT && event->type != YAML_ALIAS_EVENT)
        return ERR_OK;
    if (event->type == YAML_SCALAR_EVENT) {
        struct str text = {(const char *)event->data.scalar.value, event->data.scalar.length};

        if (at->is_mapping && !at->expects_value)
            at->is_expr = str_equal(text, STR_LITERAL("expr"));
        else if (at->is_mapping && at->is_expr && text.size > 0) {
            at->expects_value = false;
            return used_names_expression(u, text, false, ei);
        }
    }
    if (at->is_mapping)
        at->expects_value = !at->expects_value;
    if (!opens)
        return ERR_OK;
    if (*depth + 1 == JSON_DEPTH_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "nested deeper than %d", (int)JSON_DEPTH_MAX);
    stack[++*depth] = (struct yaml_place){.is_mapping = event->type == YAML_MAPPING_START_EVENT};
    return ERR_OK;
}

enum err used_names_rule_text(struct used_names *u, struct str yaml, struct errinfo *ei)
{
    struct yaml_place stack[JSON_DEPTH_MAX] = {{0}};
    size_t depth = 0;
    yaml_parser_t parser;
    bool ended = false;
    enum err e = ERR_OK;

    if (!yaml_parser_initialize(&parser))
        return errinfo_set(ei, ERR_NOMEM, 0, "rules");
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml.data, yaml.size);
    while (e == ERR_OK && !ended) {
        yaml_event_t event;

        if (!yaml_parser_parse(&parser, &event)) {
            e = errinfo_set(ei, ERR_INVALID, 0, "%zu:%zu: %s", parser.problem_mark.line + 1,
                            parser.problem_mark.column + 1,
                            parser.problem != NULL ? parser.problem : "broken YAML");
            break;
        }
        ended = event.type == YAML_STREAM_END_EVENT;
        e = yaml_event(u, &event, stack, &depth, ei);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return e;
}

/* ---- files ---- */

static enum err file_read_all(const char *path, struct byte_writer *out, struct errinfo *ei)
{
    uint8_t piece[65536];
    size_t size;
    /* allow(fopen): a file of the user's, not of a data directory */
    FILE *f = fopen(path, "rbe");

    if (f == NULL)
        return errinfo_set(ei, ERR_IO, errno, "%s", path);
    while ((size = fread(piece, 1, sizeof piece, f)) > 0 && out->size < FILE_BYTES_MAX)
        writer_append(out, piece, size);
    bool failed = ferror(f) != 0 || out->failed || out->size >= FILE_BYTES_MAX;
    (void)fclose(f); /* nothing was written */
    return failed ? errinfo_set(ei, ERR_IO, 0, "%s cannot be read, or is too large", path) : ERR_OK;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), n = strlen(suffix);

    return size > n && strcmp(name + size - n, suffix) == 0;
}

typedef enum err text_taker(struct used_names *u, struct str text, struct errinfo *ei);

static enum err file_take(struct used_names *u, const char *path, text_taker *take,
                          struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    writer_init(&w);
    u->file = path;
    u->file_count++;
    e = file_read_all(path, &w, ei);
    if (e == ERR_OK) {
        e = take(u, (struct str){(const char *)w.data, w.size}, ei);
        if (e == ERR_INVALID)
            errinfo_prefix(ei, "%s", path);
    }
    u->file = "";
    writer_done(&w);
    return e;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static enum err files_take(struct used_names *u, const char *dir, const char *const suffixes[2],
                           text_taker *take, struct errinfo *ei)
{
    char *const paths[] = {(char *)dir, NULL}; /* fts_open() changes none of it */
    FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    enum err e = ERR_OK;

    if (tree == NULL)
        return errinfo_set(ei, ERR_IO, errno, "%s", dir);
    for (const FTSENT *at; e == ERR_OK && (at = fts_read(tree)) != NULL;) {
        if (at->fts_info == FTS_DNR || at->fts_info == FTS_ERR || at->fts_info == FTS_NS)
            e = errinfo_set(ei, ERR_IO, at->fts_errno, "%s", at->fts_path);
        else if (at->fts_info == FTS_F &&
                 (has_suffix(at->fts_name, suffixes[0]) || has_suffix(at->fts_name, suffixes[1])))
            e = file_take(u, at->fts_path, take, ei);
    }
    (void)fts_close(tree); /* only read */
    return e;
}

enum err used_names_dashboards(struct used_names *u, const char *dir, struct errinfo *ei)
{
    static const char *const suffixes[2] = {".json", ".json"};

    return files_take(u, dir, suffixes, used_names_dashboard_text, ei);
}

enum err used_names_rules(struct used_names *u, const char *dir, struct errinfo *ei)
{
    static const char *const suffixes[2] = {".yml", ".yaml"};

    return files_take(u, dir, suffixes, used_names_rule_text, ei);
}
