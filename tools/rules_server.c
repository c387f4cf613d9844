/*
 * `rimtool rules list`, `add` and `remove`: the drop rules of a server that was started with
 * --web.enable-admin-api.
 */
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tools/options_internal.h"
#include "tools/rules_internal.h"
#include "tools/server_client_internal.h"

#define RULES_PATH "/api/v1/rimstone/drop_rules"

struct server_options {
    const char *url;
    bool json;
};

static const char usage[] =
    "usage: rimtool rules list [--url URL] [--json]\n"
    "       rimtool rules add [--url URL] FILE...      (- is standard input)\n"
    "       rimtool rules remove [--url URL] NAME...\n"
    "The drop rules of a server that was started with --web.enable-admin-api. add takes a\n"
    "rule, a list of them, or a configuration with the section drop_rules, in JSON or YAML;\n"
    "a rule with a name that is known replaces that.\n"
    "Exit code 1 when the server refuses, 2 when it does not answer.\n\n"
    "  --url URL  the server (http://127.0.0.1:9440)\n"
    "  --json     the list as JSON\n";

/* `data` of the server's answer in *out; 0, or the exit code with the reason printed. */
static int call(const struct server_options *o, const char *method, const char *path,
                const struct byte_writer *body, json_t **out)
{
    struct byte_writer answer;
    struct errinfo ei = {0};
    long status = 0;
    int code = 0;

    writer_init(&answer);
    if (server_call(method, o->url, path, body, "application/json", &status, &answer, &ei) !=
        ERR_OK)
        code = 2;
    else if (server_answer(status, &answer, out, &ei) != ERR_OK)
        code = 1;
    if (code != 0)
        fprintf(stderr, "rimtool rules: %s\n", ei.message);
    writer_done(&answer);
    return code;
}

/* ---- verbs ---- */

/* Of the column of names; a longer one moves the rest of its row only. */
static int name_width(const json_t *rules)
{
    enum { LEAST = 24, MOST = 60 };
    size_t width = LEAST;

    for (size_t i = 0; i < json_array_size(rules); i++) {
        size_t length = json_string_length(json_object_get(json_array_get(rules, i), "name"));

        width = length > width && length <= MOST ? length : width;
    }
    return (int)width;
}

static void row_print(const json_t *rule, int name_width)
{
    char *what = json_dumps(json_object_get(rule, "rule"), JSON_COMPACT | JSON_SORT_KEYS);

    printf("%-*s %-6s %12" JSON_INTEGER_FORMAT " %16" JSON_INTEGER_FORMAT " %-5s %s\n", name_width,
           json_string_value(json_object_get(rule, "name")),
           json_string_value(json_object_get(rule, "source")),
           json_integer_value(json_object_get(rule, "series_dropped")),
           json_integer_value(json_object_get(rule, "samples_dropped")),
           json_is_true(json_object_get(rule, "purge")) ? "yes" : "no", what == NULL ? "" : what);
    free(what);
}

static int list(const struct server_options *o, int argc, char **argv)
{
    json_t *rules = NULL;
    int code = call(o, "GET", RULES_PATH, NULL, &rules);

    (void)argc;
    (void)argv;
    if (code == 0 && o->json) {
        (void)json_dumpf(rules, stdout, JSON_INDENT(2)); /* a closed pipe ends the program */
        putchar('\n');
    } else if (code == 0) {
        int width = name_width(rules);

        printf("%-*s %-6s %12s %16s %-5s %s\n", width, "NAME", "SOURCE", "SERIES", "SAMPLES",
               "PURGE", "RULE");
        for (size_t i = 0; i < json_array_size(rules); i++)
            row_print(json_array_get(rules, i), width);
    }
    json_decref(rules);
    return code;
}

static double number_of(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

/* What a change did to what is stored. */
static void change_print(const json_t *data)
{
    const json_t *purge = json_object_get(data, "purge");
    const json_t *restored = json_object_get(data, "restored");

    if (purge != NULL)
        printf("purged: %.0f series in memory, about %.0f bytes on disk once compacted\n",
               number_of(purge, "series"), number_of(purge, "disk_bytes"));
    if (restored != NULL && number_of(restored, "files_left") == number_of(restored, "files"))
        printf("restored: all that was deleted\n");
    else if (restored != NULL)
        printf("restored: what %.0f of %.0f files held; the others were written anew since\n",
               number_of(restored, "files_left"), number_of(restored, "files"));
}

static int add(const struct server_options *o, int argc, char **argv)
{
    struct byte_writer text;
    int code = 0;

    writer_init(&text);
    for (int i = 0; i < argc && code == 0; i++) {
        json_t *data = NULL;

        code = rules_file_read(argv[i], &text) ? call(o, "POST", RULES_PATH, &text, &data) : 2;
        if (code == 0)
            printf("%s: in effect\n", argv[i]);
        change_print(data);
        json_decref(data);
    }
    writer_done(&text);
    return code;
}

static int remove_rules(const struct server_options *o, int argc, char **argv)
{
    struct byte_writer path;
    int code = 0;

    writer_init(&path);
    for (int i = 0; i < argc && code == 0; i++) {
        json_t *data = NULL;

        writer_reset(&path);
        json_write_raw(&path, RULES_PATH "?name=");
        url_escape(&path, str_from(argv[i]));
        writer_u8(&path, 0);
        code = path.failed ? 2 : call(o, "DELETE", (const char *)path.data, NULL, &data);
        if (code == 0)
            printf("%s: removed\n", argv[i]);
        change_print(data);
        json_decref(data);
    }
    writer_done(&path);
    return code;
}

static int run(int argc, char **argv, bool wants_arguments,
               int (*verb)(const struct server_options *o, int argc, char **argv))
{
    struct server_options o = {SERVER_URL_DEFAULT, false};
    const struct tool_option options[] = {
        {.name = "url", .text = &o.url},
        {.name = "json", .flag = &o.json},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0],
                                         wants_arguments ? 1 : 0,
                                         wants_arguments ? TOOL_OPERANDS_ANY : 0};
    int first, code = tool_options_parse(&command, argc, argv, &first);

    if (code >= 0)
        return code;
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    code = verb(&o, argc - first, argv + first);
    curl_global_cleanup();
    return code;
}

int rules_list(int argc, char **argv)
{
    return run(argc, argv, false, list);
}

int rules_add(int argc, char **argv)
{
    return run(argc, argv, true, add);
}

int rules_remove(int argc, char **argv)
{
    return run(argc, argv, true, remove_rules);
}
