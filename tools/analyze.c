/*
 * `rimtool analyze`: what a data directory or a snapshot holds, offline: series, samples, bytes and
 * bytes a sample by metric and by label, churn, codecs.
 *
 * Exit code 0: done; 1: some files are damaged and were left out; 2: wrong use, or it could not be
 * done.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/time_text.h"
#include "tools/analyze_internal.h"
#include "tools/data_dir_internal.h"
#include "tools/tools_internal.h"

enum { LIMIT_DEFAULT = 20, LIMIT_MAX = 1000000000 };

static const char usage[] =
    "usage: rimtool analyze [options] DIRECTORY\n"
    "Says what a data directory that no server uses, or a snapshot, holds: series, samples,\n"
    "bytes by metric and label, codecs, churn. Changes nothing.\n\n"
    "  --limit N      lines of each list (20)\n"
    "  --label NAME   pairs of this label only; may be repeated\n"
    "  --from TIME    chunks that reach into the time from here on: Unix seconds or RFC 3339\n"
    "  --to TIME      up to here\n"
    "  --no-codecs    do not look into the data: only indexes and directories are read\n"
    "  --json         one JSON object\n";

static int options_parse(int argc, char **argv, struct analyze_options *o)
{
    const struct tool_option options[] = {
        {.name = "limit", .whole = &o->limit, .low = 1, .high = LIMIT_MAX},
        {.name = "label", .texts = &o->labels},
        {.name = "from", .time_ms = &o->min_time_ms},
        {.name = "to", .time_ms = &o->max_time_ms},
        {.name = "no-codecs", .flag = &o->no_codecs},
        {.name = "json", .flag = &o->json},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 1, 1};
    int operands, code;

    *o = (struct analyze_options){
        .limit = LIMIT_DEFAULT, .min_time_ms = TIME_MIN_MS, .max_time_ms = TIME_MAX_MS};
    code = tool_options_parse(&command, argc, argv, &operands);
    if (code < 0)
        o->dir = argv[operands];
    return code;
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
