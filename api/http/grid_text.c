#include "api/http/grid_text_internal.h"

#include <string.h>

#include "base/float_text.h"
#include "base/json.h"

_Static_assert(sizeof(struct grid_time) == GRID_TIME_SIZE, "copied as a whole");

const struct grid_time *grid_times_new(struct arena *arena, int64_t start_ms, int64_t step_ms,
                                       size_t count)
{
    struct grid_time *times = ARENA_ARRAY(arena, count, struct grid_time);

    for (size_t i = 0; times != NULL && i < count; i++) {
        char text[JSON_TIME_SIZE];
        size_t size = json_format_sample_time(start_ms + (int64_t)i * step_ms, text);
        char *out = times[i].text;

        /* Milliseconds since 1970 of an int64: 21 characters at most. */
        memset(out, 0, sizeof times[i].text);
        out[0] = ',';
        out[1] = '[';
        memcpy(out + 2, text, size);
        out[2 + size] = ',';
        out[3 + size] = '"';
        times[i].size = (uint8_t)(size + 4);
    }
    return times;
}

/* The text of the value before. */
struct value_text {
    uint64_t bits;
    size_t size; /* 0: none that is short enough */
    char text[GRID_TIME_SIZE];
};

static char *value_put(struct value_text *last, double value, char *out)
{
    uint64_t bits = double_bits(value);
    size_t size;

    if (bits == last->bits && last->size > 0) {
        memcpy(out, last->text, sizeof last->text);
        return out + last->size;
    }
    size = float_format_json(value, out);
    last->bits = bits;
    last->size = size <= sizeof last->text ? size : 0;
    if (last->size > 0)
        memcpy(last->text, out, sizeof last->text);
    return out + size;
}

size_t grid_points_write(struct byte_writer *w, const struct grid_time *times,
                         const struct result_series *s, size_t first, size_t count, size_t size_max,
                         bool *any)
{
    enum { POINT_SIZE = GRID_TIME_SIZE + FLOAT_TEXT_SIZE + 2 };
    struct value_text last = {.size = 0};
    size_t i = first;

    for (; i < count && w->size < size_max; i++) {
        char *out, *begin;

        if (!result_point_present(s, i))
            continue;
        begin = out = (char *)writer_reserve(w, POINT_SIZE);
        if (out == NULL)
            return i;
        memcpy(out, &times[i], GRID_TIME_SIZE);
        if (*any) {
            out += times[i].size;
        } else { /* without the comma */
            memmove(out, out + 1, GRID_TIME_SIZE - 1);
            out += times[i].size - 1;
            *any = true;
        }
        out = value_put(&last, s->value[i], out);
        *out++ = '"';
        *out++ = ']';
        w->size += (size_t)(out - begin);
    }
    return i;
}
