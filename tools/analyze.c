/*
 * `rimtool analyze`: what a data directory or a snapshot holds, offline: series, samples, bytes and
 * bytes a sample by metric and by label, churn, codecs.
 *
 * Exit code 0: done; 1: some files are damaged and were left out; 2: wrong use, or it could not be
 * done.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/time_text.h"
#include "tools/analyze_internal.h"
#include "tools/data_dir_internal.h"
#include "tools/tools_internal.h"

enum { LIMIT_DEFAULT = 20, LIMIT_MAX = 1000000000 };

static void usage(FILE *f)
{
    fputs(
        "usage: rimtool analyze [options] DIRECTORY\n"
        "Says what a data directory that no server uses, or a snapshot, holds: series, samples,\n"
        "bytes by metric and label, codecs, churn. Changes nothing.\n\n"
        "  --limit N      lines of each list (20)\n"
        "  --label NAME   pairs of this label only; may be repeated\n"
        "  --from TIME    chunks that reach into the time from here on: Unix seconds or RFC 3339\n"
        "  --to TIME      up to here\n"
        "  --no-codecs    do not look into the data: only indexes and directories are read\n"
        "  --json         one JSON object\n",
        f);
}

static int bad_value(const char *name, const char *text)
{
    fprintf(stderr, "rimtool analyze: bad value \"%s\" for --%s\n", text, name);
    return 2;
}

static int option_apply(struct analyze_options *o, int id, const char *text)
{
    switch (id) {
    case 'n':
        return tool_number_parse(text, 1, LIMIT_MAX, &o->limit) ? -1 : bad_value("limit", text);
    case 'l':
        if (o->label_count == ANALYZE_LABELS_MAX)
            return bad_value("label", text);
        o->labels[o->label_count++] = str_from(text);
        return -1;
    case 'a':
        return time_parse(str_from(text), &o->min_time_ms, NULL) == ERR_OK
                   ? -1
                   : bad_value("from", text);
    case 'b':
        return time_parse(str_from(text), &o->max_time_ms, NULL) == ERR_OK ? -1
                                                                           : bad_value("to", text);
    case 'c':
        o->no_codecs = true;
        return -1;
    case 'j':
        o->json = true;
        return -1;
    case 'h':
        usage(stdout);
        return 0;
    default:
        return 2; /* getopt has said why */
    }
}

static int options_parse(int argc, char **argv, struct analyze_options *o)
{
    static const struct option long_options[] = {
        {"limit", required_argument, NULL, 'n'}, {"label", required_argument, NULL, 'l'},
        {"from", required_argument, NULL, 'a'},  {"to", required_argument, NULL, 'b'},
        {"no-codecs", no_argument, NULL, 'c'},   {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    int id;

    *o = (struct analyze_options){
        .limit = LIMIT_DEFAULT, .min_time_ms = TIME_MIN_MS, .max_time_ms = TIME_MAX_MS};
    optind = 1;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads yet */
    while ((id = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        int code = option_apply(o, id, optarg);

        if (code >= 0)
            return code;
    }
    if (optind + 1 != argc) {
        usage(stderr);
        return 2;
    }
    o->dir = argv[optind];
    return -1;
}

static void damaged(void *ctx, const struct inspect_finding *f)
{
    struct counter *c = ctx;

    c->damaged_count++;
    fprintf(stderr, "rimtool analyze: left out: %s\n", f->what);
}

static int result_write(struct counter *c, const struct inspect_analyze_result *r)
{
    struct byte_writer w;
    bool good;

    writer_init(&w);
    if (c->o->json)
        analyze_print_json(c, r, &w);
    else
        analyze_print_text(c, r, &w);
    good = tool_output("analyze", &w);
    writer_done(&w);
    if (!good)
        return 2;
    return c->damaged_count > 0 ? 1 : 0;
}

static int analyze_run(const struct analyze_options *o)
{
    struct counter c;
    const struct inspect_analyzer analyzer = {
        .series = counter_series, .damaged = damaged, .ctx = &c, .with_codecs = !o->no_codecs};
    struct inspect_analyze_result result;
    struct inspect_options inspect = {.thread_count = 0};
    struct errinfo ei = {0};
    int code = 2;

    counter_init(&c, o);
    if (data_dir_open(o->dir, &inspect.fs, &ei) == ERR_OK &&
        inspect_analyze(&inspect, &analyzer, &result, &ei) == ERR_OK &&
        counter_finish(&c, &ei) == ERR_OK)
        code = result_write(&c, &result);
    else
        data_dir_failure_print("analyze", &ei);
    counter_done(&c);
    fs_free(inspect.fs);
    return code;
}

int tool_analyze(int argc, char **argv)
{
    struct analyze_options o;
    int code = options_parse(argc, argv, &o);

    return code >= 0 ? code : analyze_run(&o);
}
