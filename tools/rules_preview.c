/*
 * `rimtool rules preview`: what rules would drop, by a server's figures.
 */
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options_internal.h"
#include "tools/rules_internal.h"
#include "tools/server_client_internal.h"

#define PREVIEW_PATH "/api/v1/rimstone/drop_rules/preview"

struct options {
    const char *url, *limit, *file;
    bool json;
};

static const char usage[] =
    "usage: rimtool rules preview [--url URL] [--limit N] [--json] FILE\n"
    "What a rule, a list of rules or a whole configuration (- is standard input) would drop "
    "in\n"
    "a server: series, samples a second, bytes, and the recent queries that read it. Changes\n"
    "nothing. Exit code 1 when the server refuses, 2 when it does not answer.\n\n"
    "  --url URL  the server (http://127.0.0.1:9440)\n"
    "  --limit N  rows of each list (20)\n"
    "  --json     the server's answer\n";

/* ---- the answer as text ---- */

static void list_print(const json_t *data, const char *key, const char *title)
{
    const json_t *rows = json_object_get(data, key);

    if (json_array_size(rows) > 0)
        printf("\n%-12s %s\n", "SERIES", title);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        printf("%-12" JSON_INTEGER_FORMAT " %s\n",
               json_integer_value(json_object_get(row, "value")),
               json_string_value(json_object_get(row, "name")));
    }
}

static void queries_print(const json_t *data)
{
    const json_t *rows = json_object_get(data, "queries");

    if (json_array_size(rows) > 0)
        printf("\n%-12s RECENT QUERIES THAT READ IT\n", "TIMES");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        printf("%-12" JSON_INTEGER_FORMAT " %s\n",
               json_integer_value(json_object_get(row, "count")),
               json_string_value(json_object_get(row, "query")));
    }
    if (!json_is_true(json_object_get(data, "queries_are_complete")))
        puts("(not all recent queries were looked at)");
}

static void preview_print(const json_t *data)
{
    const json_t *examples = json_object_get(data, "examples");

    printf("series              %" JSON_INTEGER_FORMAT "\n",
           json_integer_value(json_object_get(data, "series")));
    printf("samples per second  %.6g\n",
           json_number_value(json_object_get(data, "samples_per_second")));
    printf("memory bytes        %.0f\n", json_number_value(json_object_get(data, "memory_bytes")));
    printf("disk bytes          %.0f%s\n", json_number_value(json_object_get(data, "disk_bytes")),
           json_is_true(json_object_get(data, "disk_is_whole")) ? ""
                                                                : " (of series in memory only)");
    list_print(data, "metrics", "METRIC");
    list_print(data, "label_values", "LABEL VALUE");
    if (json_array_size(examples) > 0)
        puts("\nEXAMPLES");
    for (size_t i = 0; i < json_array_size(examples); i++)
        puts(json_string_value(json_array_get(examples, i)));
    queries_print(data);
}

/* ---- the call ---- */

static int preview(const struct options *o)
{
    struct byte_writer text, path, answer;
    struct errinfo ei = {0};
    json_t *data = NULL;
    long status = 0;
    int code = 2;

    writer_init(&text);
    writer_init(&path);
    writer_init(&answer);
    writer_printf(&path, PREVIEW_PATH "?limit=");
    url_escape(&path, str_from(o->limit));
    writer_u8(&path, 0);
    if (path.failed || !rules_file_read(o->file, &text))
        goto out;
    if (server_call("POST", o->url, (const char *)path.data, &text, "application/json", &status,
                    &answer, &ei) == ERR_OK)
        code = server_answer(status, &answer, &data, &ei) == ERR_OK ? 0 : 1;
    if (code != 0)
        fprintf(stderr, "rimtool rules preview: %s\n", ei.message);
    else if (o->json)
        (void)json_dumpf(data, stdout, JSON_INDENT(2)); /* a closed pipe ends the program */
    else
        preview_print(data);
    if (code == 0 && o->json)
        putchar('\n');
out:
    json_decref(data);
    writer_done(&text);
    writer_done(&path);
    writer_done(&answer);
    return code;
}

int rules_preview(int argc, char **argv)
{
    struct options o = {.url = SERVER_URL_DEFAULT, .limit = "20"};
    const struct tool_option options[] = {
        {.name = "url", .text = &o.url},
        {.name = "limit", .text = &o.limit},
        {.name = "json", .flag = &o.json},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 1, 1};
    int operands, code = tool_options_parse(&command, argc, argv, &operands);

    if (code >= 0)
        return code;
    o.file = argv[operands];
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* a failure shows at the call */
    return preview(&o);
}
