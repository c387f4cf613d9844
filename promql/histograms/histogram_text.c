/*
 * Native histograms as text.
 */
#include "promql/histogram_text.h"

#include "base/float_text.h"
#include "base/json.h"

static void write_number(struct byte_writer *w, const char *before, double v)
{
    char text[FLOAT_TEXT_SIZE];

    json_write_raw(w, before);
    writer_append(w, text, float_format_g(v, text));
}

/* --- As in errors --- */

static void write_bucket(struct byte_writer *w, const struct histogram_bucket *b)
{
    if (b->count == 0)
        return;
    write_number(w, b->lower_inclusive ? ", [" : ", (", b->lower);
    write_number(w, ",", b->upper);
    write_number(w, b->upper_inclusive ? "]:" : "):", b->count);
}

void histogram_write_text(struct byte_writer *w, const struct histogram *h)
{
    struct histogram_cursor c;
    struct histogram_bucket b;

    write_number(w, "{count:", h->count);
    write_number(w, ", sum:", h->sum);
    histogram_cursor_end(&c, &h->negative);
    while (histogram_cursor_previous(&c)) {
        b = histogram_bucket_at(h, false, c.index, h->negative.buckets[c.position]);
        write_bucket(w, &b);
    }
    b = histogram_bucket_zero(h);
    write_bucket(w, &b);
    histogram_cursor_init(&c, &h->positive);
    while (histogram_cursor_next(&c)) {
        b = histogram_bucket_at(h, true, c.index, h->positive.buckets[c.position]);
        write_bucket(w, &b);
    }
    json_write_raw(w, "}");
}

/* --- JSON --- */

static void write_json_number(struct byte_writer *w, const char *before, double v)
{
    char text[FLOAT_TEXT_SIZE];

    json_write_raw(w, before);
    writer_append(w, text, float_format_json(v, text));
    writer_u8(w, '"');
}

void histogram_write_json(struct byte_writer *w, const struct histogram *h)
{
    struct histogram_iter it;
    const char *before = ",\"buckets\":[[";

    write_json_number(w, "{\"count\":\"", h->count);
    write_json_number(w, ",\"sum\":\"", h->sum);
    histogram_iter_init(&it, h, false);
    while (histogram_iter_next(&it)) {
        const struct histogram_bucket *b = &it.bucket;
        /* Indexed by both inclusions, the lower one first. */
        static const char rules[] = {'2', '0', '1', '3'};

        if (b->count == 0)
            continue;
        json_write_raw(w, before);
        before = ",[";
        writer_u8(w, (uint8_t)rules[2 * b->lower_inclusive + b->upper_inclusive]);
        write_json_number(w, ",\"", b->lower);
        write_json_number(w, ",\"", b->upper);
        write_json_number(w, ",\"", b->count);
        writer_u8(w, ']');
    }
    if (before[1] == '[')
        writer_u8(w, ']');
    writer_u8(w, '}');
}

/* --- The test language --- */

static void write_item(struct byte_writer *w, bool *is_first, const char *name)
{
    if (!*is_first)
        writer_u8(w, ' ');
    *is_first = false;
    json_write_raw(w, name);
}

static void write_item_number(struct byte_writer *w, bool *is_first, const char *name, double v)
{
    if (v == 0)
        return;
    write_item(w, is_first, name);
    write_number(w, "", v);
}

/* From the first populated bucket to the last, gaps filled with zeros. */
static void write_side(struct byte_writer *w, bool *is_first, const struct histogram_side *side,
                       const char *offset_name, const char *buckets_name)
{
    struct histogram_cursor c;
    int32_t next = 0;
    bool is_open = false;

    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c)) {
        if (side->buckets[c.position] == 0)
            continue;
        if (!is_open) {
            if (c.index != 0) {
                write_item(w, is_first, offset_name);
                writer_printf(w, "%d", (int)c.index);
            }
            write_item(w, is_first, buckets_name);
            next = c.index;
        }
        for (; next < c.index; next++)
            json_write_raw(w, " 0");
        write_number(w, is_open ? " " : "[", side->buckets[c.position]);
        is_open = true;
        next++;
    }
    if (is_open)
        writer_u8(w, ']');
}

void histogram_write_script(struct byte_writer *w, const struct histogram *h)
{
    static const char *const hints[] = {NULL, "counter_reset_hint:reset",
                                        "counter_reset_hint:not_reset", "counter_reset_hint:gauge"};
    bool is_first = true;

    json_write_raw(w, "{{");
    if (h->schema != 0) {
        write_item(w, &is_first, "schema:");
        writer_printf(w, "%d", (int)h->schema);
    }
    write_item_number(w, &is_first, "count:", h->count);
    write_item_number(w, &is_first, "sum:", h->sum);
    write_item_number(w, &is_first, "z_bucket:", h->zero_count);
    write_item_number(w, &is_first, "z_bucket_w:", h->zero_threshold);
    if (histogram_is_custom(h)) {
        write_item(w, &is_first, "custom_values:[");
        for (size_t i = 0; i < h->custom_count; i++)
            write_number(w, i == 0 ? "" : " ", h->custom_values[i]);
        writer_u8(w, ']');
    }
    if (h->hint != HISTOGRAM_HINT_UNKNOWN)
        write_item(w, &is_first, hints[h->hint]);
    write_side(w, &is_first, &h->positive, "offset:", "buckets:");
    write_side(w, &is_first, &h->negative, "n_offset:", "n_buckets:");
    json_write_raw(w, "}}");
}
