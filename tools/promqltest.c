/*
 * `rimtool promqltest`: runs scripts in Prometheus's test language on the real engine.
 *
 * Every failing or skipped eval is told as `file:line`, and the last line counts evals. Exit code
 * 1 when one failed, 2 for wrong use and for scripts that cannot be read or are wrong themselves.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/promqltest_internal.h"
#include "tools/tools_internal.h"

enum { SCRIPT_BYTES_MAX = 64 << 20 };

struct totals {
    size_t passed, failed, skipped;
    bool broken; /* a script could not be run */
};

struct options {
    bool experimental;
};

static void usage(FILE *f)
{
    fputs("usage: rimtool promqltest [--experimental] PATH...\n"
          "Runs scripts in Prometheus's test language; a folder stands for its *.test files.\n\n"
          "  --experimental   enable experimental functions\n",
          f);
}

static void tell(const struct errinfo *ei)
{
    fprintf(stderr, "rimtool promqltest: %s\n", ei->message);
}

static void eval_report(const struct script *script, const struct command *c,
                        enum eval_outcome outcome, struct byte_writer *w)
{
    writer_u8(w, 0);
    if (w->failed || outcome == EVAL_PASSED)
        return;
    if (outcome == EVAL_SKIPPED)
        printf("%s:%u: skipped: %s\n", script->path, c->line, (const char *)w->data);
    else
        printf("%s:%u: failed: %.*s\n%s", script->path, c->line, STR_ARGS(c->u.eval.expr),
               (const char *)w->data);
}

static void run_eval(const struct script *script, const struct command *c, struct store *store,
                     const struct options *options, struct totals *totals)
{
    struct eval_context ctx = {store, options->experimental};
    enum eval_outcome outcome;
    struct byte_writer w;

    writer_init(&w);
    outcome = eval_run(&ctx, &c->u.eval, &w);
    totals->passed += outcome == EVAL_PASSED;
    totals->failed += outcome == EVAL_FAILED;
    totals->skipped += outcome == EVAL_SKIPPED;
    eval_report(script, c, outcome, &w);
    writer_done(&w);
}

/* Runs the commands in turn. */
static enum err script_run(const struct script *script, const struct options *options,
                           struct totals *totals, struct errinfo *ei)
{
    struct store store;
    enum err e = store_open(&store, ei);

    for (size_t i = 0; e == ERR_OK && i < script->command_count; i++) {
        const struct command *c = &script->commands[i];

        switch (c->kind) {
        case COMMAND_CLEAR:
            store_close(&store);
            e = store_open(&store, ei);
            break;
        case COMMAND_LOAD:
            e = store_load(&store, &c->u.load, ei);
            break;
        case COMMAND_EVAL:
            run_eval(script, c, &store, options, totals);
            break;
        }
        if (e != ERR_OK)
            errinfo_prefix(ei, "%s:%u", script->path, c->line);
    }
    store_close(&store);
    return e;
}

static enum err file_read_whole(const char *path, struct byte_writer *out, struct errinfo *ei)
{
    /* allow(fopen): a file of the user's, not of a data directory */
    FILE *f = fopen(path, "rbe");
    enum err e = ERR_OK;
    size_t n = 1;

    if (f == NULL)
        return errinfo_set(ei, err_from_errno(errno), errno, "%s", path);
    while (n > 0 && out->size <= SCRIPT_BYTES_MAX) {
        uint8_t *room = writer_reserve(out, 1 << 16);

        if (room == NULL) {
            e = errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
            break;
        }
        n = fread(room, 1, 1 << 16, f);
        out->size += n;
    }
    if (e == ERR_OK && ferror(f))
        e = errinfo_set(ei, ERR_IO, errno, "%s", path);
    if (e == ERR_OK && out->size > SCRIPT_BYTES_MAX)
        e = errinfo_set(ei, ERR_LIMIT, 0, "%s: larger than %d bytes", path, SCRIPT_BYTES_MAX);
    (void)fclose(f); /* only read from */
    return e;
}

static void run_file(const char *path, const struct options *options, struct totals *totals)
{
    struct errinfo ei = {0};
    struct byte_writer text;
    struct script script;
    enum err e;

    writer_init(&text);
    e = file_read_whole(path, &text, &ei);
    if (e == ERR_OK) {
        e = script_parse(path, (struct str){(const char *)text.data, text.size}, &script, &ei);
        if (e == ERR_OK)
            e = script_run(&script, options, totals, &ei);
        script_done(&script);
    }
    writer_done(&text);
    if (e != ERR_OK) {
        tell(&ei);
        totals->broken = true;
    }
}

static int is_script(const struct dirent *d)
{
    size_t n = strlen(d->d_name);

    return n > 5 && strcmp(d->d_name + n - 5, ".test") == 0;
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void run_folder(const char *path, const struct options *options, struct totals *totals)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_script, compare_entries);

    if (count < 0) {
        struct errinfo ei = {0};

        (void)errinfo_set(&ei, err_from_errno(errno), errno, "%s", path);
        tell(&ei);
        totals->broken = true;
        return;
    }
    for (int i = 0; i < count; i++) {
        struct byte_writer file;

        writer_init(&file);
        writer_printf(&file, "%s/%s", path, entries[i]->d_name);
        writer_u8(&file, 0);
        if (!file.failed)
            run_file((const char *)file.data, options, totals);
        totals->broken |= file.failed;
        writer_done(&file);
        free(entries[i]);
    }
    free(entries);
}

static void run_path(const char *path, const struct options *options, struct totals *totals)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        run_folder(path, options, totals);
    else
        run_file(path, options, totals);
}

int tool_promqltest(int argc, char **argv)
{
    struct options options = {.experimental = false};
    struct totals totals = {0};
    int first = 1;

    for (; first < argc && strncmp(argv[first], "--", 2) == 0; first++) {
        if (strcmp(argv[first], "--help") == 0) {
            usage(stdout);
            return 0;
        }
        if (strcmp(argv[first], "--experimental") != 0) {
            fprintf(stderr, "rimtool promqltest: unknown option %s\n", argv[first]);
            return 2;
        }
        options.experimental = true;
    }
    if (first >= argc) {
        usage(stderr);
        return 2;
    }
    for (int i = first; i < argc; i++)
        run_path(argv[i], &options, &totals);
    printf("%zu passed, %zu failed, %zu skipped\n", totals.passed, totals.failed, totals.skipped);
    if (totals.broken)
        return 2;
    return totals.failed > 0 ? 1 : 0;
}
