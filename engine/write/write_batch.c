/*
 * The flat arrays of a request. They grow by doubling and are kept from request to request.
 */
#include <stdlib.h>

#include "engine/write/write_internal.h"

enum { BATCH_CAPACITY_FIRST = 1024 };

static const char *const refusal_names[REFUSAL_COUNT] = {
    [REFUSAL_INVALID_LABELS] = "invalid_labels",
    [REFUSAL_DUPLICATE_LABEL] = "duplicate_label",
    [REFUSAL_INVALID_UTF8] = "invalid_utf8",
    [REFUSAL_TOO_FAR_IN_FUTURE] = "too_far_in_future",
    [REFUSAL_TOO_OLD] = "too_old",
    [REFUSAL_OUT_OF_ORDER] = "out_of_order",
    [REFUSAL_DUPLICATE_TIMESTAMP] = "duplicate_timestamp",
    [REFUSAL_INVALID_HISTOGRAM] = "invalid_histogram",
    [REFUSAL_LIMIT] = "limit",
};

const char *refusal_name(enum refusal r)
{
    return (unsigned)r < REFUSAL_COUNT ? refusal_names[r] : "unknown";
}

enum err write_batch_new(struct write_batch **out, struct errinfo *ei)
{
    struct write_batch *b = calloc(1, sizeof *b);
    struct write_scratch *scratch = calloc(1, sizeof *scratch);

    if (b == NULL || scratch == NULL) {
        free(b);
        free(scratch);
        return errinfo_set(ei, ERR_NOMEM, 0, "write batch");
    }
    arena_init(&scratch->arena, NULL);
    arena_init(&b->histogram_arena, NULL);
    writer_init(&scratch->canonical);
    writer_init(&scratch->rest);
    writer_init(&scratch->packed);
    b->scratch = scratch;
    *out = b;
    return ERR_OK;
}

void write_batch_free(struct write_batch *b)
{
    struct write_scratch *scratch;

    if (b == NULL)
        return;
    scratch = b->scratch;
    arena_done(&scratch->arena);
    writer_done(&scratch->canonical);
    writer_done(&scratch->rest);
    writer_done(&scratch->packed);
    free(scratch->targets);
    free(scratch->order);
    free(scratch->shard_end);
    free(scratch);
    free(b->series);
    free(b->samples);
    free(b->histograms);
    arena_done(&b->histogram_arena);
    free(b);
}

void write_batch_reset(struct write_batch *b)
{
    b->series_count = 0;
    b->sample_count = 0;
    b->histogram_count = 0;
    b->invalid_count = 0;
    arena_reset(&b->histogram_arena);
}

static bool grow(void **array, size_t *capacity, size_t item_bytes)
{
    size_t count = *capacity == 0 ? BATCH_CAPACITY_FIRST : *capacity;
    void *grown;

    /* Indices into the arrays are 32 bits. */
    if (*capacity > 0 && __builtin_mul_overflow(count, 2, &count))
        return false;
    if (count > UINT32_MAX)
        return false;
    grown = realloc(*array, count * item_bytes);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = count;
    return true;
}

bool write_batch_grow_series(struct write_batch *b)
{
    void *array = b->series;
    bool ok = b->series_count < b->series_capacity ||
              grow(&array, &b->series_capacity, sizeof *b->series);

    b->series = array;
    return ok;
}

bool write_batch_grow_samples(struct write_batch *b)
{
    void *array = b->samples;
    bool ok = b->sample_count < b->sample_capacity ||
              grow(&array, &b->sample_capacity, sizeof *b->samples);

    b->samples = array;
    return ok;
}

bool write_batch_grow_histograms(struct write_batch *b)
{
    void *array = b->histograms;
    bool ok = b->histogram_count < b->histogram_capacity ||
              grow(&array, &b->histogram_capacity, sizeof *b->histograms);

    b->histograms = array;
    return ok;
}
