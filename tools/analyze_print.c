#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "tools/analyze_internal.h"
#include "tools/data_dir_internal.h"

enum { TIME_TEXT_SIZE = 40, LINE_SIZE = 512 };

const char *inspect_kind_text(enum inspect_kind kind)
{
    static const char *const texts[INSPECT_KIND_COUNT] = {
        [INSPECT_PART] = "parts", [INSPECT_SEALED] = "sealed",
        [INSPECT_LATE] = "late",  [INSPECT_SERIES_FILE] = "series files",
        [INSPECT_LOG] = "log",
    };

    return texts[kind];
}

static void line(struct byte_writer *w, const char *format, ...) PRINTF_LIKE(2, 3);
static void line(struct byte_writer *w, const char *format, ...)
{
    char text[LINE_SIZE];
    va_list args;
    int n;

    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm of clang-tidy 14 */
    n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0)
        n = 0;
    writer_append(w, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void time_text(int64_t t_ms, char out[TIME_TEXT_SIZE])
{
    time_t seconds = (time_t)(t_ms / 1000 - (t_ms % 1000 < 0));
    struct tm tm;

    if (gmtime_r(&seconds, &tm) == NULL ||
        strftime(out, TIME_TEXT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        (void)snprintf(out, TIME_TEXT_SIZE, "%" PRId64 " ms", t_ms); /* it fits */
}

static double divided(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static uint64_t all_bytes(const struct inspect_analyze_result *r)
{
    uint64_t sum = 0;

    for (int k = 0; k < INSPECT_KIND_COUNT; k++)
        sum += r->kinds[k].byte_count;
    return sum;
}

/* ---- text ---- */

static void print_totals(const struct counter *c, const struct inspect_analyze_result *r,
                         struct byte_writer *w)
{
    char first[TIME_TEXT_SIZE], last[TIME_TEXT_SIZE];

    line(w, "series   %zu\n", c->seen_count);
    line(w, "samples  %" PRIu64 ", %" PRIu64 " of them only in the log\n", c->total.sample_count,
         c->total.sample_count - c->total.file_sample_count);
    line(w, "bytes    %" PRIu64 "; of the samples in files %.0f, %.3f a sample\n", all_bytes(r),
         c->total.bytes, divided(c->total.bytes, (double)c->total.file_sample_count));
    if (c->min_time_ms <= c->max_time_ms) {
        time_text(c->min_time_ms, first);
        time_text(c->max_time_ms, last);
        line(w, "times    %s to %s\n", first, last);
    }
    if (r->damaged_file_count > 0)
        line(w, "DAMAGED  %" PRIu64 " files, left out from their first bad byte on\n",
             r->damaged_file_count);
    if (r->unnamed_sample_count > 0)
        line(w, "unnamed  %" PRIu64 " samples in sealed files or the log: of series that ended\n",
             r->unnamed_sample_count);
}

static void print_kinds(const struct counter *c, const struct inspect_analyze_result *r,
                        struct byte_writer *w)
{
    line(w, "\n%-14s %8s %14s %12s %14s %14s\n", "FILES", "files", "bytes", "chunks", "samples",
         "samples/chunk");
    for (int k = 0; k < INSPECT_KIND_COUNT; k++) {
        const struct inspect_kind_total *t = &r->kinds[k];
        bool chunks = k == INSPECT_PART || k == INSPECT_SEALED || k == INSPECT_LATE;

        line(w, "%-14s %8" PRIu64 " %14" PRIu64, inspect_kind_text((enum inspect_kind)k),
             t->file_count, t->byte_count);
        if (chunks)
            line(w, " %12" PRIu64 " %14" PRIu64 " %14.1f\n", c->kinds[k].chunk_count,
                 c->kinds[k].sample_count,
                 divided((double)c->kinds[k].sample_count, (double)c->kinds[k].chunk_count));
        else if (k == INSPECT_LOG)
            line(w, " %12s %14" PRIu64 "\n", "", c->kinds[k].sample_count);
        else
            line(w, "\n");
    }
}

static void print_class(struct byte_writer *w, const char *name, const struct class_count *k)
{
    if (k->chunk_count > 0)
        line(w, "%-18s %12" PRIu64 " %14" PRIu64 " %14.0f %10.3f\n", name, k->chunk_count,
             k->sample_count, k->bytes, divided(k->bytes, (double)k->sample_count));
}

static void print_classes(const struct counter *c, struct byte_writer *w)
{
    if (!c->o->no_codecs) {
        line(w, "\n%-18s %12s %14s %14s %10s\n", "CODECS", "chunks", "samples", "bytes",
             "B/sample");
        for (unsigned k = 0; k < CODEC_COUNT; k++)
            print_class(w, codec_kind_name(k), &c->codecs[k]);
        print_class(w, "native histograms", &c->histograms);
    }
    line(w, "\n%-18s %12s %14s %14s %10s\n", "SAMPLES A CHUNK", "chunks", "samples", "bytes",
         "B/sample");
    for (size_t i = 0; i < CHUNK_CLASS_COUNT; i++) {
        char name[32];

        if (i == 0)
            (void)snprintf(name, sizeof name, "1"); /* these fit */
        else
            (void)snprintf(name, sizeof name, "%" PRIu32 " to %" PRIu32,
                           chunk_class_limits[i - 1] + 1, chunk_class_limits[i]);
        print_class(w, name, &c->chunk_classes[i]);
    }
}

/* Texts may be of any length and hold anything: quoted where a line would suffer. */
static void print_name(struct byte_writer *w, const struct count_item *item)
{
    writer_u8(w, ' ');
    writer_u8(w, ' ');
    if (item->value.size == 0 && (item->name.size == 0 || !label_name_is_legacy(item->name)))
        str_quote(w, item->name);
    else
        writer_append(w, item->name.data, item->name.size);
    if (item->value.size > 0) {
        writer_u8(w, '=');
        str_quote(w, item->value);
    }
    writer_u8(w, '\n');
}

static void print_items(const struct counter *c, const struct count_table *t, const char *title,
                        struct byte_writer *w)
{
    struct count_item **items = count_table_sorted(t, false);

    if (items == NULL) {
        w->failed = true;
        return;
    }
    line(w, "\n%s BY BYTES (%zu)\n%10s %14s %14s %6s %9s\n", title, t->count, "series", "samples",
         "bytes", "share", "B/sample");
    for (size_t i = 0; i < t->count && i < c->o->limit; i++) {
        const struct tally *k = &items[i]->tally;

        line(w, "%10" PRIu64 " %14" PRIu64 " %14.0f %5.1f%% %9.3f", k->series_count,
             k->sample_count, k->bytes, 100 * divided(k->bytes, c->total.bytes),
             divided(k->bytes, (double)k->file_sample_count));
        print_name(w, items[i]);
    }
    free((void *)items);
}

static void print_labels(const struct counter *c, struct byte_writer *w)
{
    struct count_item **items = count_table_sorted(&c->names, true);

    if (items == NULL) {
        w->failed = true;
        return;
    }
    line(w, "\nLABELS BY NUMBER OF VALUES (%zu)\n%10s %10s\n", c->names.count, "values", "series");
    for (size_t i = 0; i < c->names.count && i < c->o->limit; i++) {
        line(w, "%10" PRIu64 " %10" PRIu64, items[i]->value_count, items[i]->tally.series_count);
        print_name(w, items[i]);
    }
    free((void *)items);
}

/* The newest windows in which anything is. */
static void print_churn(const struct counter *c, struct byte_writer *w)
{
    size_t first = c->window_count, lines = 0;

    while (first > 0 && lines < c->o->limit) {
        first--;
        lines += c->windows[first].active > 0;
    }
    line(w, "\nCHURN, windows of 2 h\n%-22s %10s %12s %12s\n", "", "series", "first seen",
         "last seen");
    for (size_t i = first; i < c->window_count; i++) {
        char text[TIME_TEXT_SIZE];

        if (c->windows[i].active == 0)
            continue;
        time_text(c->windows[i].start_ms, text);
        line(w, "%-22s %10" PRIu64 " %12" PRIu64 " %12" PRIu64 "\n", text, c->windows[i].active,
             c->windows[i].appeared, c->windows[i].disappeared);
    }
}

void analyze_print_text(struct counter *c, const struct inspect_analyze_result *r,
                        struct byte_writer *w)
{
    print_totals(c, r, w);
    print_kinds(c, r, w);
    print_classes(c, w);
    print_items(c, &c->metrics, "METRICS", w);
    print_items(c, &c->pairs, "LABEL PAIRS", w);
    print_labels(c, w);
    print_churn(c, w);
}

/* ---- JSON ---- */

static void json_tally(struct byte_writer *w, const struct tally *t)
{
    json_field_u64(w, "series", t->series_count);
    json_field_u64(w, "samples", t->sample_count);
    json_field_u64(w, "samplesInFiles", t->file_sample_count);
    json_field_number(w, "bytes", t->bytes);
    json_field_number(w, "bytesPerSample", divided(t->bytes, (double)t->file_sample_count));
}

static void json_begin(struct byte_writer *w, char bracket)
{
    if (w->size > 0 && w->data[w->size - 1] == '}')
        writer_u8(w, ',');
    writer_u8(w, (uint8_t)bracket);
}

static void json_str(struct byte_writer *w, const char *name, struct str value)
{
    json_field(w, name);
    json_write_string(w, value);
}

static void json_items(const struct counter *c, const struct count_table *t, const char *name,
                       bool by_values, struct byte_writer *w)
{
    struct count_item **items = count_table_sorted(t, by_values);

    if (items == NULL) {
        w->failed = true;
        return;
    }
    json_field(w, name);
    writer_u8(w, '[');
    for (size_t i = 0; i < t->count && i < c->o->limit; i++) {
        json_begin(w, '{');
        json_str(w, "name", items[i]->name);
        if (items[i]->value.size > 0)
            json_str(w, "value", items[i]->value);
        if (by_values)
            json_field_u64(w, "values", items[i]->value_count);
        json_tally(w, &items[i]->tally);
        writer_u8(w, '}');
    }
    writer_u8(w, ']');
    free((void *)items);
}

static void json_class(struct byte_writer *w, const struct class_count *k)
{
    json_field_u64(w, "chunks", k->chunk_count);
    json_field_u64(w, "samples", k->sample_count);
    json_field_number(w, "bytes", k->bytes);
    writer_u8(w, '}');
}

static void json_classes(const struct counter *c, struct byte_writer *w)
{
    json_field(w, "codecs");
    writer_u8(w, '[');
    for (unsigned k = 0; k < CODEC_COUNT && !c->o->no_codecs; k++) {
        if (c->codecs[k].chunk_count == 0)
            continue;
        json_begin(w, '{');
        json_field_text(w, "codec", codec_kind_name(k));
        json_class(w, &c->codecs[k]);
    }
    if (c->histograms.chunk_count > 0 && !c->o->no_codecs) {
        json_begin(w, '{');
        json_field_text(w, "codec", "native histograms");
        json_class(w, &c->histograms);
    }
    writer_u8(w, ']');
    json_field(w, "samplesPerChunk");
    writer_u8(w, '[');
    for (size_t i = 0; i < CHUNK_CLASS_COUNT; i++) {
        json_begin(w, '{');
        json_field_u64(w, "upTo", chunk_class_limits[i]);
        json_class(w, &c->chunk_classes[i]);
    }
    writer_u8(w, ']');
}

static void json_kinds(const struct counter *c, const struct inspect_analyze_result *r,
                       struct byte_writer *w)
{
    json_field(w, "files");
    writer_u8(w, '[');
    for (int k = 0; k < INSPECT_KIND_COUNT; k++) {
        json_begin(w, '{');
        json_field_text(w, "kind", inspect_kind_text((enum inspect_kind)k));
        json_field_u64(w, "files", r->kinds[k].file_count);
        json_field_u64(w, "bytes", r->kinds[k].byte_count);
        json_field_u64(w, "chunks", c->kinds[k].chunk_count);
        json_field_u64(w, "samples", c->kinds[k].sample_count);
        writer_u8(w, '}');
    }
    writer_u8(w, ']');
}

static void json_churn(const struct counter *c, struct byte_writer *w)
{
    json_field(w, "churn");
    writer_u8(w, '[');
    for (size_t i = 0; i < c->window_count; i++) {
        if (c->windows[i].active == 0)
            continue;
        json_begin(w, '{');
        json_field(w, "start");
        json_write_time(w, c->windows[i].start_ms);
        json_field_u64(w, "series", c->windows[i].active);
        json_field_u64(w, "firstSeen", c->windows[i].appeared);
        json_field_u64(w, "lastSeen", c->windows[i].disappeared);
        writer_u8(w, '}');
    }
    writer_u8(w, ']');
}

void analyze_print_json(struct counter *c, const struct inspect_analyze_result *r,
                        struct byte_writer *w)
{
    struct tally total = c->total;

    total.series_count = c->seen_count;
    writer_u8(w, '{');
    json_tally(w, &total);
    json_field_u64(w, "allBytes", all_bytes(r));
    if (c->min_time_ms <= c->max_time_ms) {
        json_field(w, "minTime");
        json_write_time(w, c->min_time_ms);
        json_field(w, "maxTime");
        json_write_time(w, c->max_time_ms);
    }
    json_field_u64(w, "damagedFiles", r->damaged_file_count);
    json_field_u64(w, "unnamedSamples", r->unnamed_sample_count);
    json_kinds(c, r, w);
    json_classes(c, w);
    json_field_u64(w, "metricCount", c->metrics.count);
    json_items(c, &c->metrics, "metrics", false, w);
    json_field_u64(w, "labelPairCount", c->pairs.count);
    json_items(c, &c->pairs, "labelPairs", false, w);
    json_field_u64(w, "labelCount", c->names.count);
    json_items(c, &c->names, "labels", true, w);
    json_churn(c, w);
    json_write_raw(w, "}\n");
}
