/*
 * `rimtool dump`: writes what a data directory holds as OpenMetrics text, through the engine opened
 * for reading only. Metric by metric, so that the samples of one stand together as the text format
 * asks, and within it series by series in the order of their labels. Beside the engine's own,
 * memory is what one metric's list of series takes, and --memory for samples.
 *
 * Native histograms, which the text cannot say, go to a file of their own as lines of JSON.
 *
 * The last line, "# EOF", is only written when everything before it is complete.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/time_text.h"
#include "engine/engine.h"
#include "engine/querier.h"
#include "engine/write.h"
#include "promql/ast.h"
#include "tools/data_dir_internal.h"
#include "tools/histogram_lines_internal.h"
#include "tools/openmetrics_internal.h"
#include "tools/options_internal.h"
#include "tools/tools_internal.h"

enum {
    READ_BUDGET_MB = 128, /* of decoded samples */
    FLUSH_BYTES = 1 << 20,
};

struct dump_options {
    const char *dir;
    struct tool_texts matches;
    int64_t min_time_ms, max_time_ms;
    uint64_t memory_mb;
    const char *histograms; /* path; NULL: they are only counted */
    bool stale, skip_damaged;
};

struct dump {
    const struct dump_options *o;
    struct engine *engine;
    struct querier *q;
    struct arena arena; /* selectors, names of metrics */
    struct budget read_budget;
    struct arena read_arena; /* of one batch */
    struct matcher_set sets[TOOL_TEXTS_MAX];
    struct matcher *owned[TOOL_TEXTS_MAX];
    size_t set_count;
    int64_t min_time_ms, max_time_ms; /* of what there is, within the options */
    size_t batch;                     /* series read at once */
    struct byte_writer out, prefix;
    FILE *histograms; /* owned; NULL without the option */
    struct byte_writer histogram_out, histogram_prefix;
    uint64_t nameless_count, skipped_count, histogram_count; /* what was left out */
    struct errinfo *ei;
};

/* ---- options ---- */

static const char usage[] =
    "usage: rimtool dump [options] DIRECTORY\n"
    "Writes the samples of a data directory that no server uses, or of a snapshot, as\n"
    "OpenMetrics text to standard output. Changes nothing in the directory. Exit code 1 when\n"
    "something could not be read or written; the text then ends without # EOF, or files were\n"
    "damaged from the start on, and the message says so.\n\n"
    "  --match SELECTOR   only series that match, e.g. '{job=\"node\"}'; may be repeated\n"
    "  --min-time TIME    from this time on: Unix seconds or RFC 3339\n"
    "  --max-time TIME    up to this time\n"
    "  --memory MB        for samples on their way (128)\n"
    "  --skip-damaged     leave out series that cannot be read and name them, go on\n"
    "  --histograms FILE  write native histograms there, as lines of JSON\n"
    "  --stale            write staleness markers, as NaN (they are left out otherwise)\n";

static int options_parse(int argc, char **argv, struct dump_options *o)
{
    const struct tool_option options[] = {
        {.name = "match", .texts = &o->matches},
        {.name = "min-time", .time_ms = &o->min_time_ms},
        {.name = "max-time", .time_ms = &o->max_time_ms},
        {.name = "memory", .whole = &o->memory_mb, .low = 1, .high = 1 << 20},
        {.name = "stale", .flag = &o->stale},
        {.name = "skip-damaged", .flag = &o->skip_damaged},
        {.name = "histograms", .text = &o->histograms},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 1, 1};
    int operands, code;

    *o = (struct dump_options){
        .min_time_ms = TIME_MIN_MS, .max_time_ms = TIME_MAX_MS, .memory_mb = READ_BUDGET_MB};
    code = tool_options_parse(&command, argc, argv, &operands);
    if (code < 0)
        o->dir = argv[operands];
    return code;
}

static enum err selectors_parse(struct dump *d)
{
    for (size_t i = 0; i < d->o->matches.count; i++) {
        struct matcher *matchers = NULL;
        size_t count = 0;
        enum err e = promql_parse_selector(str_from(d->o->matches.items[i]), &d->arena, &matchers,
                                           &count, d->ei);

        if (e != ERR_OK) {
            errinfo_prefix(d->ei, "--match %s", d->o->matches.items[i]);
            return e;
        }
        d->owned[d->set_count] = matchers;
        d->sets[d->set_count++] = (struct matcher_set){matchers, count};
    }
    return ERR_OK;
}

/* ---- output ---- */

static enum err output_flush(struct dump *d, struct byte_writer *out, FILE *file, const char *name)
{
    if (out->failed)
        return errinfo_set(d->ei, ERR_NOMEM, 0, "text of %zu bytes", out->size);
    if (out->size > 0 && fwrite(out->data, 1, out->size, file) != out->size)
        return errinfo_set(d->ei, ERR_IO, errno, "cannot write to %s", name);
    writer_reset(out);
    return ERR_OK;
}

static enum err flush(struct dump *d)
{
    enum err e = output_flush(d, &d->out, stdout, "standard output");

    return e == ERR_OK && d->histograms != NULL
               ? output_flush(d, &d->histogram_out, d->histograms, d->o->histograms)
               : e;
}

static void histogram_write(struct dump *d, int64_t t_ms, const struct histogram *h)
{
    if (d->histograms == NULL) {
        d->histogram_count++;
        return;
    }
    writer_append(&d->histogram_out, d->histogram_prefix.data, d->histogram_prefix.size);
    histogram_line_sample(&d->histogram_out, t_ms, h);
}

static enum err samples_write(struct dump *d, const struct column *c)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < c->count && e == ERR_OK; i++) {
        if (double_bits(c->value[i]) == STALE_NAN_BITS && !d->o->stale)
            continue;
        if (c->histogram != NULL && c->histogram[i] != NULL) {
            histogram_write(d, c->t_ms[i], c->histogram[i]);
        } else {
            writer_append(&d->out, d->prefix.data, d->prefix.size);
            openmetrics_write_sample(&d->out, c->t_ms[i], c->value[i]);
        }
        if (d->out.size + d->histogram_out.size >= FLUSH_BYTES)
            e = flush(d);
    }
    return e;
}

/* ---- reading ---- */

static enum err prefix_make(struct dump *d, const struct labels *labels)
{
    writer_reset(&d->prefix);
    (void)openmetrics_write_series(&d->prefix, labels); /* it was selected by its name */
    writer_reset(&d->histogram_prefix);
    if (d->histograms != NULL)
        histogram_line_series(&d->histogram_prefix, labels);
    return d->prefix.failed || d->histogram_prefix.failed
               ? errinfo_set(d->ei, ERR_NOMEM, 0, "labels")
               : ERR_OK;
}

/* All samples of `count` series at once; ERR_LIMIT when they do not fit, and nothing was written.
 */
static enum err batch_write(struct dump *d, const struct series_handle *items, size_t count)
{
    struct column columns[QUERIER_READ_BATCH_MAX];
    struct labels *labels = ARENA_ARRAY(&d->read_arena, count, struct labels);
    enum err e;

    if (labels == NULL)
        return arena_error(&d->read_arena, d->ei);
    e = querier_labels(d->q, items, count, &d->read_arena, labels, d->ei);
    if (e == ERR_OK)
        e = querier_read(d->q, items, count, d->min_time_ms, d->max_time_ms, &d->read_arena,
                         columns, d->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        e = prefix_make(d, &labels[i]);
        if (e == ERR_OK)
            e = samples_write(d, &columns[i]);
    }
    return e;
}

/* One series that is too large to be read at once: window by window. */
static enum err windows_write(struct dump *d, const struct series_handle *item)
{
    int64_t from = d->min_time_ms, span = (d->max_time_ms - d->min_time_ms) / 2 + 1;
    struct labels labels;
    enum err e = querier_labels(d->q, item, 1, &d->read_arena, &labels, d->ei);

    if (e == ERR_OK)
        e = prefix_make(d, &labels);
    while (e == ERR_OK && from <= d->max_time_ms) {
        int64_t to = d->max_time_ms - from < span ? d->max_time_ms : from + span - 1;
        struct column column;

        arena_reset(&d->read_arena);
        e = querier_read(d->q, item, 1, from, to, &d->read_arena, &column, d->ei);
        if (e == ERR_LIMIT && span > 1) {
            errinfo_clear(d->ei);
            span /= 2;
            e = ERR_OK;
            continue;
        }
        if (e == ERR_OK)
            e = samples_write(d, &column);
        from = to + 1;
    }
    return e;
}

/* Names a series that cannot be read. */
static enum err damaged_skip(struct dump *d, const struct series_handle *item)
{
    struct errinfo ei = {0};
    struct labels labels;
    char *name = NULL;

    arena_reset(&d->read_arena);
    if (querier_labels(d->q, item, 1, &d->read_arena, &labels, &ei) == ERR_OK)
        name = labels_format(&labels, &d->read_arena);
    fprintf(stderr, "rimtool dump: left out %s: %s\n", name != NULL ? name : "a series",
            d->ei->message);
    errinfo_clear(d->ei);
    d->skipped_count++;
    return ERR_OK;
}

/* As many series at a time as fit: half of them where they do not, more again where there is room.
 */
static enum err list_write(struct dump *d, const struct series_list *list)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < list->count && e == ERR_OK;) {
        size_t count = list->count - i < d->batch ? list->count - i : d->batch;

        arena_reset(&d->read_arena);
        e = batch_write(d, list->items + i, count);
        if (e == ERR_LIMIT) {
            errinfo_clear(d->ei);
            arena_reset(&d->read_arena);
            d->batch = count > 1 ? count / 2 : 1;
            e = count > 1 ? ERR_OK : windows_write(d, &list->items[i]);
            i += count == 1;
            continue;
        }
        if (e == ERR_CORRUPT && d->o->skip_damaged && count > 1) {
            errinfo_clear(d->ei);
            d->batch = 1;
            e = ERR_OK;
            continue;
        }
        if (e == ERR_CORRUPT && d->o->skip_damaged)
            e = damaged_skip(d, &list->items[i]);
        i += count;
        if (d->read_arena.used_bytes < d->read_budget.limit_bytes / 4 &&
            d->batch < QUERIER_READ_BATCH_MAX)
            d->batch *= 2;
    }
    return e;
}

/* ---- selection ---- */

/* Series of one metric that match `set` (NULL: all) go behind *list. */
static enum err metric_select(struct dump *d, struct str name, const struct matcher_set *set,
                              struct arena *arena, struct series_list *list)
{
    size_t count = set != NULL ? set->count : 0;
    struct matcher *matchers = ARENA_ARRAY(arena, count + 1, struct matcher);
    struct series_list found = {0, NULL};
    struct series_handle *items;
    enum err e;

    if (matchers == NULL)
        return arena_error(arena, d->ei);
    if (count > 0)
        memcpy(matchers, set->items, count * sizeof *matchers);
    e = matcher_init(&matchers[count], MATCHER_EQUAL, LABEL_METRIC_NAME, name, arena, d->ei);
    if (e != ERR_OK)
        return e;
    e = querier_select(d->q, matchers, count + 1, d->min_time_ms, d->max_time_ms, arena, &found,
                       d->ei);
    matcher_done(&matchers[count]); /* the others are the set's */
    if (e != ERR_OK || found.count == 0)
        return e;
    if (list->count == 0) {
        *list = found;
        return ERR_OK;
    }
    items =
        arena_grow_array(arena, list->items, list->count, list->count + found.count, sizeof *items);
    if (items == NULL)
        return arena_error(arena, d->ei);
    memcpy(items + list->count, found.items, found.count * sizeof *items);
    *list = (struct series_list){list->count + found.count, items};
    return ERR_OK;
}

/* Series that match several selectors stand there several times, side by side once sorted. */
static void repeats_drop(struct series_list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        if (kept > 0 &&
            hash128_equal(list->items[kept - 1].fingerprint, list->items[i].fingerprint))
            continue;
        list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

static enum err series_of_metric(struct dump *d, struct str name, struct arena *arena,
                                 struct series_list *list)
{
    enum err e = ERR_OK;

    *list = (struct series_list){0, NULL};
    for (size_t i = 0; i < d->set_count && e == ERR_OK; i++)
        e = metric_select(d, name, &d->sets[i], arena, list);
    if (d->set_count == 0)
        e = metric_select(d, name, NULL, arena, list);
    if (e == ERR_OK)
        e = querier_sort(d->q, list, d->ei);
    if (e == ERR_OK)
        repeats_drop(list);
    return e;
}

static enum err metric_write(struct dump *d, struct str name)
{
    struct series_list list;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL);
    e = series_of_metric(d, name, &arena, &list);
    if (e == ERR_OK && name.size == 0)
        d->nameless_count = list.count; /* OpenMetrics has no form for them */
    else if (e == ERR_OK)
        e = list_write(d, &list);
    arena_done(&arena);
    return e;
}

static void bounds_set(struct dump *d)
{
    struct engine_stats stats;

    engine_stats_get(d->engine, &stats);
    d->min_time_ms = d->o->min_time_ms > stats.min_time_ms ? d->o->min_time_ms : stats.min_time_ms;
    d->max_time_ms = d->o->max_time_ms < stats.max_time_ms ? d->o->max_time_ms : stats.max_time_ms;
}

static enum err everything_write(struct dump *d)
{
    struct str_list names = {0};
    bool truncated;
    enum err e = ERR_OK;

    bounds_set(d);
    if (d->min_time_ms <= d->max_time_ms)
        e = querier_label_values(d->q, LABEL_METRIC_NAME, d->sets, d->set_count, d->min_time_ms,
                                 d->max_time_ms, 0, &d->arena, &names, &truncated, d->ei);
    if (e == ERR_OK && d->min_time_ms <= d->max_time_ms)
        e = metric_write(d, (struct str){"", 0});
    for (size_t i = 0; i < names.count && e == ERR_OK; i++)
        e = metric_write(d, names.items[i]);
    if (e == ERR_OK && d->nameless_count + d->skipped_count + d->histogram_count == 0)
        writer_append(&d->out, "# EOF\n", 6);
    if (e == ERR_OK)
        e = flush(d);
    if (e == ERR_OK && fflush(stdout) != 0)
        e = errinfo_set(d->ei, ERR_IO, errno, "cannot write to standard output");
    if (e == ERR_OK && d->histograms != NULL && fclose(TAKE(d->histograms)) != 0)
        e = errinfo_set(d->ei, ERR_IO, errno, "cannot write to %s", d->o->histograms);
    if (e == ERR_OK && d->skipped_count > 0)
        e = errinfo_set(d->ei, ERR_CORRUPT, 0, "%" PRIu64 " series could not be read",
                        d->skipped_count);
    if (e == ERR_OK && d->nameless_count > 0)
        e = errinfo_set(d->ei, ERR_UNSUPPORTED, 0,
                        "%" PRIu64 " series have no metric name: OpenMetrics cannot say them",
                        d->nameless_count);
    if (e == ERR_OK && d->histogram_count > 0)
        e = errinfo_set(d->ei, ERR_UNSUPPORTED, 0,
                        "left out %" PRIu64 " native histograms: OpenMetrics cannot say them, "
                        "--histograms FILE writes them",
                        d->histogram_count);
    return e;
}

/* ---- the run ---- */

static enum err histograms_open(struct dump *d)
{
    if (d->o->histograms == NULL)
        return ERR_OK;
    d->histograms = fopen(d->o->histograms, "we"); /* allow(fopen): like standard output */
    return d->histograms != NULL
               ? ERR_OK
               : errinfo_set(d->ei, ERR_IO, errno, "cannot write to %s", d->o->histograms);
}

static enum err engine_load(struct dump *d, struct fs *fs, const struct clock *clock,
                            struct engine_replay_result *replay)
{
    const struct engine_options options = {.fs = fs, .clock = clock, .read_only = true};
    enum err e = engine_open(&options, &d->engine, d->ei);

    if (e == ERR_OK)
        e = engine_replay(d->engine, 0, replay, d->ei);
    return e == ERR_OK ? querier_open(d->engine, &d->q, d->ei) : e;
}

static void dump_done(struct dump *d)
{
    enum err e = ERR_OK;

    if (d->q != NULL)
        querier_close(d->q);
    for (size_t i = 0; i < d->set_count; i++) {
        for (size_t k = 0; k < d->sets[i].count; k++)
            matcher_done(&d->owned[i][k]);
    }
    arena_done(&d->arena);
    arena_done(&d->read_arena);
    if (d->engine != NULL)
        e = engine_close(d->engine, 0, NULL);
    (void)e; /* nothing was written */
    if (d->histograms != NULL)
        (void)fclose(d->histograms); /* after an error, which has been told */
    writer_done(&d->out);
    writer_done(&d->prefix);
    writer_done(&d->histogram_out);
    writer_done(&d->histogram_prefix);
}

static int dump_run(const struct dump_options *o)
{
    struct errinfo ei = {0};
    struct dump d = {.o = o, .batch = 16, .ei = &ei};
    struct engine_replay_result replay = {0};
    struct clock clock;
    struct fs *fs = NULL;
    int code = 0;

    clock_init_real(&clock);
    log_configure(LOG_LEVEL_WARN, LOG_FORMAT_LOGFMT);
    budget_init(&d.read_budget, "memory for samples", o->memory_mb << 20, NULL);
    arena_init(&d.arena, NULL);
    arena_init(&d.read_arena, &d.read_budget);
    writer_init(&d.out);
    writer_init(&d.prefix);
    writer_init(&d.histogram_out);
    writer_init(&d.histogram_prefix);
    if (selectors_parse(&d) != ERR_OK || histograms_open(&d) != ERR_OK ||
        data_dir_open(o->dir, &fs, &ei) != ERR_OK || engine_load(&d, fs, &clock, &replay) != ERR_OK)
        code = 2;
    else if (everything_write(&d) != ERR_OK)
        code = 1;
    if (code != 0) {
        data_dir_failure_print("dump", &ei);
    } else if (replay.wal.bad_frame_count + replay.unknown_ref_samples + replay.files_set_aside +
                   replay.series_files_damaged >
               0) {
        fprintf(stderr, "rimtool dump: the directory is damaged: what could be read was written; "
                        "see rimtool verify\n");
        code = 1;
    }
    dump_done(&d);
    fs_free(fs);
    return code;
}

int tool_dump(int argc, char **argv)
{
    struct dump_options o;
    int code = options_parse(argc, argv, &o);

    return code >= 0 ? code : dump_run(&o);
}
