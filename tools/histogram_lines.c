#include "tools/histogram_lines_internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/float_text.h"
#include "base/json.h"

void histogram_line_series(struct byte_writer *w, const struct labels *labels)
{
    json_write_raw(w, "{\"metric\":{");
    for (size_t i = 0; i < labels->count; i++) {
        if (i > 0)
            writer_u8(w, ',');
        json_write_string(w, labels->items[i].name);
        writer_u8(w, ':');
        json_write_string(w, labels->items[i].value);
    }
    writer_u8(w, '}');
}

/* A string, since JSON has no number for infinities and NaNs; of the latter the bits stand behind
 * the word. */
static void number_write(struct byte_writer *w, double v)
{
    char text[FLOAT_TEXT_SIZE];

    writer_u8(w, '"');
    writer_append(w, text, float_format_json(v, text));
    if (isnan(v))
        writer_printf(w, ":%016" PRIx64, double_bits(v));
    writer_u8(w, '"');
}

static void numbers_write(struct byte_writer *w, const double *v, size_t count)
{
    writer_u8(w, '[');
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            writer_u8(w, ',');
        number_write(w, v[i]);
    }
    writer_u8(w, ']');
}

static void named_write(struct byte_writer *w, const char *name, double v)
{
    writer_printf(w, ",\"%s\":", name);
    number_write(w, v);
}

static void side_write(struct byte_writer *w, const char *name, const struct histogram_side *side)
{
    if (side->span_count == 0)
        return;
    writer_printf(w, ",\"%s\":{\"spans\":[", name);
    for (size_t i = 0; i < side->span_count; i++)
        writer_printf(w, "%s[%" PRId32 ",%" PRIu32 "]", i > 0 ? "," : "", side->spans[i].offset,
                      side->spans[i].length);
    json_write_raw(w, "],\"buckets\":");
    numbers_write(w, side->buckets, side->bucket_count);
    writer_u8(w, '}');
}

void histogram_line_sample(struct byte_writer *w, int64_t t_ms, const struct histogram *h)
{
    static const char *const hints[] = {
        [HISTOGRAM_HINT_UNKNOWN] = "unknown",
        [HISTOGRAM_HINT_RESET] = "reset",
        [HISTOGRAM_HINT_NOT_RESET] = "not_reset",
        [HISTOGRAM_HINT_GAUGE] = "gauge",
    };

    writer_printf(w, ",\"timestamp_ms\":%" PRId64, t_ms);
    if (h->start_ms != 0)
        writer_printf(w, ",\"start_timestamp_ms\":%" PRId64, h->start_ms);
    writer_printf(w, ",\"schema\":%" PRId32 ",\"counter_reset_hint\":\"%s\"", h->schema,
                  hints[h->hint]);
    named_write(w, "count", h->count);
    named_write(w, "sum", h->sum);
    named_write(w, "zero_threshold", h->zero_threshold);
    named_write(w, "zero_count", h->zero_count);
    side_write(w, "positive", &h->positive);
    side_write(w, "negative", &h->negative);
    if (h->custom_count > 0) {
        json_write_raw(w, ",\"custom_values\":");
        numbers_write(w, h->custom_values, h->custom_count);
    }
    json_write_raw(w, "}\n");
}
