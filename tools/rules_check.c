/*
 * `rimtool rules check`: drop rules of files, offline, and what they make of series.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/config.h"
#include "api/rule_book.h"
#include "base/json.h"
#include "promql/ast.h"
#include "tools/options_internal.h"
#include "tools/rules_internal.h"

struct check_options {
    const char *series;
    bool is_list;
};

static const char usage[] =
    "usage: rimtool rules check [--list] [--series FILE] FILE...\n"
    "Checks configuration files, the drop rules and all else, or with --list files as\n"
    "`rules add` takes them. Exit code 1 with line, column and reason when something is\n"
    "wrong, 2 when a file cannot be read.\n\n"
    "  --list         a file is a rule or a list of rules, or has the section drop_rules\n"
    "  --series FILE  a series a line, such as up{job=\"a\"}: prints what becomes of each\n";

bool rules_file_read(const char *path, struct byte_writer *out)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe"); /* allow(fopen): a user's file */
    size_t n = 0;
    bool ok;

    writer_reset(out);
    if (f == NULL) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads */
        fprintf(stderr, "rimtool rules: %s: %s\n", path, strerror(errno));
        return false;
    }
    do {
        uint8_t *room = writer_reserve(out, 65536);

        n = room == NULL ? 0 : fread(room, 1, 65536, f);
        out->size += n;
    } while (n > 0);
    ok = !ferror(f) && !out->failed;
    if (!ok)
        fprintf(stderr, "rimtool rules: %s cannot be read\n", path);
    if (f != stdin)
        (void)fclose(f); /* only read */
    return ok;
}

static int compare_labels(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

/* `name{label="value"}` as labels, sorted. False when it is something else. */
static bool series_parse(struct str text, struct arena *arena, struct labels *out)
{
    struct matcher *matchers = NULL;
    struct label *items;
    struct errinfo ei = {0};
    size_t count = 0;
    bool ok = promql_parse_selector(text, arena, &matchers, &count, &ei) == ERR_OK;

    if (!ok) {
        fprintf(stderr, "rimtool rules: %.*s: %s\n", STR_ARGS(text), ei.message);
        return false;
    }
    items = ARENA_ARRAY(arena, count + 1, struct label);
    for (size_t i = 0; i < count; i++) {
        ok = ok && items != NULL && matchers[i].kind == MATCHER_EQUAL;
        if (ok)
            items[i] = (struct label){matchers[i].name, matchers[i].value};
        matcher_done(&matchers[i]);
    }
    if (!ok) {
        fprintf(stderr, "rimtool rules: %.*s: no series but a selection\n", STR_ARGS(text));
        return false;
    }
    qsort(items, count, sizeof *items, compare_labels);
    *out = (struct labels){count, items};
    return true;
}

static void fate_write(const struct rule_set *set, const struct rule_verdict *v,
                       struct byte_writer *w)
{
    if (v->dropped_by != RULE_NONE) {
        json_write_raw(w, "{\"dropped_by\":");
        json_write_string(w, rule_set_rule(set, v->dropped_by)->name);
    } else {
        json_write_raw(w, "{\"labels\":{");
        for (size_t i = 0; i < v->labels.count; i++) {
            json_write_raw(w, i == 0 ? "" : ",");
            json_write_string(w, v->labels.items[i].name);
            json_write_raw(w, ":");
            json_write_string(w, v->labels.items[i].value);
        }
        json_write_raw(w, "}");
    }
    json_write_raw(w, "}\n");
}

/* Prints what the rules make of each line's series. */
static bool series_judge(const struct rule_set *set, struct str text)
{
    struct byte_writer w;
    struct arena arena;
    bool ok = true;

    writer_init(&w);
    arena_init(&arena, NULL);
    while (text.size > 0 && ok) {
        const char *end = memchr(text.data, '\n', text.size);
        struct str line = {text.data, end == NULL ? text.size : (size_t)(end - text.data)};
        struct labels labels;
        struct rule_verdict v;

        text.data += line.size + (end != NULL);
        text.size -= line.size + (end != NULL);
        if (line.size == 0)
            continue;
        ok = series_parse(line, &arena, &labels) && rule_set_judge(set, &labels, &arena, &v);
        if (ok)
            fate_write(set, &v, &w);
        arena_reset(&arena);
    }
    if (w.size > 0)
        (void)fwrite(w.data, 1, w.size, stdout); /* a closed pipe ends the program */
    arena_done(&arena);
    writer_done(&w);
    return ok;
}

/* The exit code. */
static int check_file(const struct check_options *o, const char *path, struct str series)
{
    struct byte_writer text;
    struct config c;
    struct rule_set *set = NULL;
    struct errinfo ei = {0};
    enum err e = ERR_IO;
    bool ok;

    writer_init(&text);
    config_init(&c);
    if (!o->is_list)
        e = config_load(&c, path, &ei);
    else if (rules_file_read(path, &text))
        e = config_rules_read(&c, path, (struct str){(const char *)text.data, text.size}, &ei);
    if (e == ERR_OK)
        e = rule_set_new(c.drop_rules, c.drop_rule_count, &set, &ei);
    if (e == ERR_OK && rule_list_check_purges(set, &ei) != ERR_OK) {
        e = ERR_INVALID;
        errinfo_prefix(&ei, "%s", path);
    }
    if (e != ERR_OK && ei.message[0] != '\0')
        fprintf(stderr, "%s\n", ei.message);
    ok = e == ERR_OK;
    if (ok && series.data != NULL)
        ok = series_judge(set, series);
    else if (ok)
        printf("%s: %zu drop rules, all good\n", path, c.drop_rule_count);
    rule_set_free(set);
    config_done(&c);
    writer_done(&text);
    if (ok)
        return 0;
    return e == ERR_OK || e == ERR_INVALID ? 1 : 2;
}

static int check_all(const struct check_options *o, int argc, char **argv)
{
    struct byte_writer series;
    int code = 0;

    writer_init(&series);
    if (o->series != NULL && !rules_file_read(o->series, &series))
        code = 2;
    for (int i = 0; i < argc && code != 2; i++) {
        int own = check_file(o, argv[i], (struct str){(const char *)series.data, series.size});

        code = own > code ? own : code;
    }
    writer_done(&series);
    return code;
}

int rules_check(int argc, char **argv)
{
    struct check_options o = {NULL, false};
    const struct tool_option options[] = {
        {.name = "list", .flag = &o.is_list},
        {.name = "series", .text = &o.series},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 1,
                                         TOOL_OPERANDS_ANY};
    int first, code = tool_options_parse(&command, argc, argv, &first);

    return code >= 0 ? code : check_all(&o, argc - first, argv + first);
}
