#include "tools/openmetrics_internal.h"

#include <math.h>

#include "base/float_text.h"
#include "base/json.h"

static void text_write(struct byte_writer *w, struct str s)
{
    writer_append(w, s.data, s.size);
}

/* Only these three are escaped; everything else stands for itself. */
static void quoted_write(struct byte_writer *w, struct str s)
{
    size_t start = 0;

    writer_u8(w, '"');
    for (size_t i = 0; i < s.size; i++) {
        char c = s.data[i];

        if (c != '"' && c != '\\' && c != '\n')
            continue;
        writer_append(w, s.data + start, i - start);
        writer_u8(w, '\\');
        writer_u8(w, c == '\n' ? 'n' : (uint8_t)c);
        start = i + 1;
    }
    writer_append(w, s.data + start, s.size - start);
    writer_u8(w, '"');
}

/* [a-zA-Z_:][a-zA-Z0-9_:]* */
static bool metric_name_is_legacy(struct str name)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';

        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return name.size > 0;
}

bool openmetrics_write_series(struct byte_writer *w, const struct labels *labels)
{
    struct str name = labels_get(labels, LABEL_METRIC_NAME);
    bool quoted = !metric_name_is_legacy(name), first = true;

    if (name.size == 0)
        return false;
    if (!quoted)
        text_write(w, name);
    if (!quoted && labels->count == 1)
        return true;
    writer_u8(w, '{');
    if (quoted) {
        quoted_write(w, name);
        first = false;
    }
    for (size_t i = 0; i < labels->count; i++) {
        const struct label *l = &labels->items[i];

        if (str_equal(l->name, LABEL_METRIC_NAME))
            continue;
        if (!first)
            writer_u8(w, ',');
        first = false;
        if (label_name_is_legacy(l->name))
            text_write(w, l->name);
        else
            quoted_write(w, l->name);
        writer_u8(w, '=');
        quoted_write(w, l->value);
    }
    writer_u8(w, '}');
    return true;
}

static void time_write(struct byte_writer *w, int64_t t_ms)
{
    double seconds = (double)t_ms / 1000;
    char text[FLOAT_TEXT_SIZE];

    if ((int64_t)(seconds * 1000) == t_ms) {
        json_write_time(w, t_ms);
        return;
    }
    /* 1.001 * 1000 is 1000.9999999999999: the next double away from zero is still the same time. */
    seconds = nextafter(seconds, seconds < 0 ? -INFINITY : INFINITY);
    writer_append(w, text, float_format_f(seconds, text));
}

void openmetrics_write_sample(struct byte_writer *w, int64_t t_ms, double value)
{
    char *out = (char *)writer_reserve(w, FLOAT_TEXT_SIZE + 1);

    if (out == NULL)
        return;
    out[0] = ' ';
    w->size += 1 + float_format_json(value, out + 1);
    writer_u8(w, ' ');
    time_write(w, t_ms);
    writer_u8(w, '\n');
}
