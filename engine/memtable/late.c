/*
 * The late buffer: a hash table of small sorted arrays.
 */
#include "engine/memtable/late_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

enum {
    PLACE_COUNT_MIN = 64,
    SAMPLE_BYTES = sizeof(int64_t) + sizeof(double),
    SAMPLES_FIRST = 4,
};

static bool charge(struct late_buffer *b, size_t bytes)
{
    if (b->memory != NULL && budget_charge(b->memory, bytes, NULL) != ERR_OK)
        return false;
    b->memory_bytes += bytes;
    return true;
}

static void discharge(struct late_buffer *b, size_t bytes)
{
    if (b->memory != NULL)
        budget_release(b->memory, bytes);
    b->memory_bytes -= bytes;
}

void late_buffer_init(struct late_buffer *b, struct budget *memory)
{
    *b = (struct late_buffer){
        .memory = memory,
        .min_time_ms = INT64_MAX,
        .max_time_ms = INT64_MIN,
    };
}

void late_buffer_done(struct late_buffer *b)
{
    for (size_t i = 0; i < b->place_count; i++)
        free(b->places[i].t_ms);
    free(b->places);
    if (b->memory_bytes > 0)
        discharge(b, b->memory_bytes);
    late_buffer_init(b, b->memory);
}

void late_buffer_move(struct late_buffer *from, struct late_buffer *to)
{
    ASSERT(to->places == NULL);
    *to = *from;
    late_buffer_init(from, to->memory);
}

/* ---- places ---- */

static bool is_of(const struct late_series *p, uint32_t slot, uint16_t generation)
{
    return p->slot == slot && p->generation == generation;
}

/* The place of a series, or the empty one where it would go. */
static struct late_series *place_find(struct late_series *places, size_t place_count, uint32_t slot,
                                      uint16_t generation)
{
    /* Fibonacci hashing: neighbouring slots spread over the table. */
    uint64_t i = (uint64_t)slot * 0x9e3779b97f4a7c15U >> 32;

    for (;; i++) {
        struct late_series *p = &places[i & (place_count - 1)];

        if (p->slot == LATE_SLOT_NONE || is_of(p, slot, generation))
            return p;
    }
}

/* At most half of the places are in use. The largest step is one pass over the table. */
static bool places_grow(struct late_buffer *b)
{
    size_t count = b->place_count == 0 ? PLACE_COUNT_MIN : 2 * b->place_count;
    struct late_series *grown;

    if (!charge(b, count * sizeof *grown))
        return false;
    grown = malloc(count * sizeof *grown);
    if (grown == NULL) {
        discharge(b, count * sizeof *grown);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        grown[i] = (struct late_series){.slot = LATE_SLOT_NONE};
    for (size_t i = 0; i < b->place_count; i++) {
        const struct late_series *p = &b->places[i];

        if (p->slot != LATE_SLOT_NONE)
            *place_find(grown, count, p->slot, p->generation) = *p;
    }
    free(b->places);
    discharge(b, b->place_count * sizeof *grown);
    b->places = grown;
    b->place_count = count;
    return true;
}

const struct late_series *late_buffer_find(const struct late_buffer *b, uint32_t slot,
                                           uint16_t generation)
{
    const struct late_series *p;

    if (b->series_count == 0)
        return NULL;
    p = place_find(b->places, b->place_count, slot, generation);
    return p->slot == LATE_SLOT_NONE ? NULL : p;
}

/* ---- samples ---- */

/* Index of the first sample that is not older. */
static size_t position_of(const struct late_series *p, int64_t t_ms)
{
    size_t low = 0, high = p->count;

    if (p->count > 0 && p->t_ms[p->count - 1] < t_ms)
        return p->count;
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (p->t_ms[middle] < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum late_outcome late_series_judge(const struct late_series *p, int64_t t_ms, double value)
{
    size_t at = position_of(p, t_ms);

    if (at == p->count || p->t_ms[at] != t_ms)
        return LATE_STORED;
    return double_bits(p->value[at]) == double_bits(value) ? LATE_REPEAT : LATE_DUPLICATE;
}

static bool series_grow(struct late_buffer *b, struct late_series *p)
{
    uint32_t capacity = p->capacity == 0 ? SAMPLES_FIRST : 2 * p->capacity;
    int64_t *grown;

    if (p->capacity > UINT32_MAX / 2 || !charge(b, (size_t)capacity * SAMPLE_BYTES))
        return false;
    grown = malloc((size_t)capacity * SAMPLE_BYTES);
    if (grown == NULL) {
        discharge(b, (size_t)capacity * SAMPLE_BYTES);
        return false;
    }
    double *value = (double *)(void *)(grown + capacity);
    if (p->count > 0) {
        memcpy(grown, p->t_ms, p->count * sizeof *grown);
        memcpy(value, p->value, p->count * sizeof *value);
    }
    free(p->t_ms);
    discharge(b, (size_t)p->capacity * SAMPLE_BYTES);
    p->t_ms = grown;
    p->value = value;
    p->capacity = capacity;
    b->moved_count += p->count;
    return true;
}

static void series_insert(struct late_buffer *b, struct late_series *p, size_t at, int64_t t_ms,
                          double value)
{
    size_t behind = p->count - at;

    memmove(p->t_ms + at + 1, p->t_ms + at, behind * sizeof *p->t_ms);
    memmove(p->value + at + 1, p->value + at, behind * sizeof *p->value);
    p->t_ms[at] = t_ms;
    p->value[at] = value;
    p->count++;
    b->moved_count += behind;
    b->sample_count++;
    if (t_ms < b->min_time_ms)
        b->min_time_ms = t_ms;
    if (t_ms > b->max_time_ms)
        b->max_time_ms = t_ms;
}

enum late_outcome late_buffer_add(struct late_buffer *b, uint32_t slot, uint16_t generation,
                                  int64_t t_ms, double value)
{
    struct late_series *p;
    enum late_outcome outcome;

    ASSERT(slot != LATE_SLOT_NONE);
    if (b->series_count >= b->place_count / 2 && !places_grow(b))
        return LATE_NO_MEMORY;
    p = place_find(b->places, b->place_count, slot, generation);
    outcome = late_series_judge(p, t_ms, value);
    if (outcome != LATE_STORED)
        return outcome;
    if (p->count == p->capacity && !series_grow(b, p))
        return LATE_NO_MEMORY;
    if (p->slot == LATE_SLOT_NONE) {
        p->slot = slot;
        p->generation = generation;
        b->series_count++;
    }
    series_insert(b, p, position_of(p, t_ms), t_ms, value);
    return LATE_STORED;
}

bool late_buffer_read(const struct late_buffer *b, uint32_t slot, uint16_t generation,
                      int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                      struct column *out)
{
    const struct late_series *p = late_buffer_find(b, slot, generation);
    size_t begin, end;

    *out = (struct column){0};
    if (p == NULL || min_time_ms > max_time_ms)
        return true;
    begin = position_of(p, min_time_ms);
    end = max_time_ms == INT64_MAX ? p->count : position_of(p, max_time_ms + 1);
    if (begin == end)
        return true;
    int64_t *t_ms = ARENA_ARRAY(arena, end - begin, int64_t);
    double *values = ARENA_ARRAY(arena, end - begin, double);
    if (t_ms == NULL || values == NULL)
        return false;
    memcpy(t_ms, p->t_ms + begin, (end - begin) * sizeof *t_ms);
    memcpy(values, p->value + begin, (end - begin) * sizeof *values);
    *out = (struct column){.count = end - begin, .t_ms = t_ms, .value = values};
    return true;
}

/* ---- in order ---- */

static int compare_places(const void *a, const void *b)
{
    const struct late_series *x = *(const struct late_series *const *)a;
    const struct late_series *y = *(const struct late_series *const *)b;

    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->generation < y->generation ? -1 : x->generation > y->generation;
}

void late_buffer_list(const struct late_buffer *b, const struct late_series **out)
{
    size_t count = 0;

    for (size_t i = 0; i < b->place_count; i++)
        if (b->places[i].slot != LATE_SLOT_NONE)
            out[count++] = &b->places[i];
    if (count > 1)
        qsort(out, count, sizeof *out, compare_places); /* NOLINT(bugprone-sizeof-expression) */
}
