/*
 * limit_ratio(): label sets are spread over [0, 1) by the hash that Prometheus has for them, XXH64
 * over names and values with their lengths ahead, as its label sets lie in memory.
 */
#include <math.h>

#include "base/fingerprint.h"
#include "promql/eval/eval_group_internal.h"

/* Lengths from 255 on take four bytes, the first of them 255. */
static void text_write(struct byte_writer *w, struct str text)
{
    if (text.size < 255) {
        writer_u8(w, (uint8_t)text.size);
    } else {
        writer_u8(w, 255);
        writer_u8(w, (uint8_t)text.size);
        writer_u8(w, (uint8_t)(text.size >> 8));
        writer_u8(w, (uint8_t)(text.size >> 16));
    }
    writer_append(w, text.data, text.size);
}

static double labels_offset(const struct labels *labels, struct byte_writer *scratch)
{
    writer_reset(scratch);
    for (size_t i = 0; i < labels->count; i++) {
        text_write(scratch, labels->items[i].name);
        text_write(scratch, labels->items[i].value);
    }
    return (double)hash64_unkeyed(scratch->data, scratch->size) / 0x1p64;
}

enum err ratio_offsets(const struct vector *in, struct arena *arena, double **out,
                       struct errinfo *ei)
{
    double *offsets = ARENA_ARRAY(arena, in->count, double);
    struct byte_writer scratch;
    enum err e = ERR_OK;

    if (offsets == NULL)
        return arena_refused(arena, ei);
    writer_init(&scratch);
    for (size_t i = 0; i < in->count && e == ERR_OK; i++) {
        offsets[i] = labels_offset(&in->rows[i].labels, &scratch);
        if (scratch.failed)
            e = errinfo_set(ei, ERR_NOMEM, 0, "label set of a query");
        else
            e = eval_tick(in->eval, 16, ei);
    }
    writer_done(&scratch);
    *out = offsets;
    return e;
}

bool ratio_keeps(double ratio, double offset)
{
    ratio = fmax(-1, fmin(1, ratio));
    return ratio >= 0 ? offset < ratio : offset >= 1 + ratio;
}
