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

#include "base/thread.h"
#include "tools/data_dir_internal.h"
#include "tools/options_internal.h"
#include "tools/promqltest_internal.h"
#include "tools/tools_internal.h"

enum { SCRIPT_BYTES_MAX = 64 << 20, THREADS_MAX = 64, HELPER_QUEUE_LIMIT = 64 };

struct totals {
    size_t passed, failed, skipped;
    bool broken; /* a script could not be run */
};

struct options {
    bool experimental;
    bool aged;
    uint64_t thread_count; /* of the queries that are compared; 0: not given */
    struct thread_pool *helpers;
};

static const char usage[] =
    "usage: rimtool promqltest [--experimental] [--aged] [--threads N] PATH...\n"
    "Runs scripts in Prometheus's test language; a folder stands for its *.test files.\n\n"
    "  --experimental   enable every experimental part of the language\n"
    "  --aged           run every query also on a second store, whose samples are sealed,\n"
    "                   flushed and merged: the same answer to the last bit\n"
    "  --threads N      run every query also with N threads: the same answer to the last bit\n";

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

/* A script's stores: `twin` is aged; without that option only `store` is open. */
struct stores {
    struct store store, twin;
};

static enum err stores_open(struct stores *s, const struct options *options, struct errinfo *ei)
{
    enum err e = store_open(&s->store, false, ei);

    s->twin = (struct store){.engine = NULL};
    return e == ERR_OK && options->aged ? store_open(&s->twin, true, ei) : e;
}

static void stores_close(struct stores *s)
{
    store_close(&s->store);
    store_close(&s->twin);
}

static enum err stores_load(struct stores *s, const struct load_command *c,
                            const struct options *options, struct errinfo *ei)
{
    enum err e = store_load(&s->store, c, ei);

    return e == ERR_OK && options->aged ? store_load(&s->twin, c, ei) : e;
}

static void run_eval(const struct script *script, const struct command *c, struct stores *stores,
                     const struct options *options, struct totals *totals)
{
    struct eval_context ctx = {
        .store = &stores->store,
        .experimental = options->experimental,
        .helpers = options->helpers,
        .helper_count = options->helpers != NULL ? (uint32_t)options->thread_count - 1 : 0};
    enum eval_outcome outcome;
    struct byte_writer w;

    if (options->aged)
        ctx.twin = &stores->twin;
    else if (options->helpers != NULL)
        ctx.twin = &stores->store;
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
    struct stores stores;
    enum err e = stores_open(&stores, options, ei);

    for (size_t i = 0; e == ERR_OK && i < script->command_count; i++) {
        const struct command *c = &script->commands[i];

        switch (c->kind) {
        case COMMAND_CLEAR:
            stores_close(&stores);
            e = stores_open(&stores, options, ei);
            break;
        case COMMAND_LOAD:
            e = stores_load(&stores, &c->u.load, options, ei);
            break;
        case COMMAND_EVAL:
            run_eval(script, c, &stores, options, totals);
            break;
        }
        if (e != ERR_OK)
            errinfo_prefix(ei, "%s:%u", script->path, c->line);
    }
    stores_close(&stores);
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
    struct options o = {.experimental = false};
    const struct tool_option options[] = {
        {.name = "experimental", .flag = &o.experimental},
        {.name = "aged", .flag = &o.aged},
        {.name = "threads", .whole = &o.thread_count, .low = 1, .high = THREADS_MAX},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 1,
                                         TOOL_OPERANDS_ANY};
    struct totals totals = {0};
    struct errinfo ei = {0};
    int first, code = tool_options_parse(&command, argc, argv, &first);

    if (code >= 0)
        return code;
    if (o.thread_count > 1 && thread_pool_new("promqltest", (uint32_t)o.thread_count - 1,
                                              HELPER_QUEUE_LIMIT, &o.helpers, &ei) != ERR_OK) {
        tell(&ei);
        return 2;
    }
    for (int i = first; i < argc; i++)
        run_path(argv[i], &o, &totals);
    thread_pool_free(o.helpers);
    printf("%zu passed, %zu failed, %zu skipped\n", totals.passed, totals.failed, totals.skipped);
    if (totals.broken)
        return 2;
    return totals.failed > 0 ? 1 : 0;
}
