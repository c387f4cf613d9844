#include "api/http/json_internal.h"

#include "base/float_text.h"

void json_write_labels(struct byte_writer *w, const struct labels *l)
{
    writer_u8(w, '{');
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            writer_u8(w, ',');
        json_write_string(w, l->items[i].name);
        writer_u8(w, ':');
        json_write_string(w, l->items[i].value);
    }
    writer_u8(w, '}');
}

static void point_write(struct byte_writer *w, int64_t t_ms, double value,
                        size_t (*format_time)(int64_t t_ms, char *out),
                        size_t (*format)(double v, char *out))
{
    char *out = (char *)writer_reserve(w, FLOAT_TEXT_SIZE + JSON_TIME_SIZE + 16);
    size_t used = 0;

    if (out == NULL)
        return;
    out[used++] = '[';
    used += format_time(t_ms, out + used);
    out[used++] = ',';
    out[used++] = '"';
    used += format(value, out + used);
    out[used++] = '"';
    out[used++] = ']';
    w->size += used;
}

void json_write_point(struct byte_writer *w, int64_t t_ms, double value)
{
    point_write(w, t_ms, value, json_format_sample_time, float_format_json);
}

void json_write_point_f(struct byte_writer *w, int64_t t_ms, double value)
{
    point_write(w, t_ms, value, json_format_time, float_format_f);
}
