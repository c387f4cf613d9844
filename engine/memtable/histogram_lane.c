/*
 * Lanes of histograms: a hash table of short lists of blocks.
 *
 * A block grows by doubling while it is open: with a sample every 15 s it holds half an hour of a
 * series, some kilobytes, and is written as one chunk by the seal. Samples in it are differences
 * from the one before, for which the newest is kept unpacked; that is dropped when the block is
 * closed.
 */
#include "engine/memtable/histogram_lane_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/histogram/histogram_pack_internal.h"
#include "engine/memtable/chunk_internal.h"

enum {
    PLACE_COUNT_MIN = 64,
    BLOCK_SAMPLES_FIRST = 8,
    BLOCK_BYTES_FIRST = 256,
    BLOCK_BYTES_FULL = 8192, /* beyond, a block is closed */
    BLOCKS_FIRST = 2,
};

/* The newest sample of an open block: `value` points into this allocation. */
struct histogram_state {
    size_t bytes;
    struct histogram value;
};

static bool charge(struct histogram_lane *lane, size_t bytes)
{
    if (lane->memory != NULL && budget_charge(lane->memory, bytes, NULL) != ERR_OK)
        return false;
    lane->memory_bytes += bytes;
    return true;
}

static void discharge(struct histogram_lane *lane, size_t bytes)
{
    if (lane->memory != NULL)
        budget_release(lane->memory, bytes);
    lane->memory_bytes -= bytes;
}

/* Charged memory, or NULL. */
static void *lane_alloc(struct histogram_lane *lane, size_t bytes)
{
    void *p;

    if (!charge(lane, bytes))
        return NULL;
    p = malloc(bytes);
    if (p == NULL)
        discharge(lane, bytes);
    return p;
}

static void lane_free(struct histogram_lane *lane, void *p, size_t bytes)
{
    if (p == NULL)
        return;
    free(p);
    discharge(lane, bytes);
}

/* ---- blocks ---- */

static size_t block_bytes(const struct histogram_block *b)
{
    return sizeof *b + b->sample_capacity * sizeof *b->t_ms + b->capacity;
}

static const uint8_t *block_data(const struct histogram_block *b)
{
    return (const uint8_t *)(b->t_ms + b->sample_capacity);
}

static uint8_t *block_room(struct histogram_block *b)
{
    return (uint8_t *)(b->t_ms + b->sample_capacity) + b->size;
}

static struct histogram_block *block_new(struct histogram_lane *lane, uint32_t sample_capacity,
                                         uint32_t capacity)
{
    const struct histogram_block shape = {
        .sample_capacity = sample_capacity, .capacity = capacity, .memory = lane->memory};
    struct histogram_block *b = lane_alloc(lane, block_bytes(&shape));

    if (b == NULL)
        return NULL;
    *b = shape;
    atomic_init(&b->refs, 1);
    return b;
}

static void block_unref(struct histogram_block *b)
{
    /* Release what was read of it, and acquire before it is freed. */
    if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (b->memory != NULL)
        budget_release(b->memory, block_bytes(b));
    free(b);
}

/* The lane's own reference goes; a reader may keep the block alive, which it then pays for. */
static void block_drop(struct histogram_lane *lane, struct histogram_block *b)
{
    lane->memory_bytes -= block_bytes(b);
    block_unref(b);
}

static void block_copy(struct histogram_block *to, const struct histogram_block *from)
{
    to->count = from->count;
    to->size = from->size;
    to->weight = from->weight;
    memcpy(to->t_ms, from->t_ms, from->count * sizeof *from->t_ms);
    memcpy((uint8_t *)(to->t_ms + to->sample_capacity), block_data(from), from->size);
}

void histogram_blocks_free(struct histogram_block *list)
{
    while (list != NULL) {
        struct histogram_block *next = list->next_freed;

        block_unref(list);
        list = next;
    }
}

/* ---- the newest sample of an open block ---- */

static void side_store(struct histogram_side *to, const struct histogram_side *from, uint8_t **at)
{
    to->buckets = (double *)(void *)*at;
    to->bucket_count = from->bucket_count;
    if (from->bucket_count > 0)
        memcpy(to->buckets, from->buckets, from->bucket_count * sizeof(double));
    *at += from->bucket_count * sizeof(double);
    to->spans = (const struct histogram_span *)(void *)*at;
    to->span_count = from->span_count;
    if (from->span_count > 0)
        memcpy(*at, from->spans, from->span_count * sizeof *from->spans);
    *at += from->span_count * sizeof *from->spans;
}

static size_t state_bytes(const struct histogram *h)
{
    static_assert(sizeof(struct histogram_span) == sizeof(double), "all parts are aligned alike");
    return sizeof(struct histogram_state) +
           (h->positive.bucket_count + h->positive.span_count + h->negative.bucket_count +
            h->negative.span_count + h->custom_count) *
               sizeof(double);
}

/* Memory for the state of `h` where the present one is too small. */
static bool state_reserve(struct histogram_lane *lane, struct histogram_series *p,
                          const struct histogram *h)
{
    size_t bytes = state_bytes(h);
    struct histogram_state *s;

    if (p->newest != NULL && p->newest->bytes >= bytes)
        return true;
    s = lane_alloc(lane, bytes);
    if (s == NULL)
        return false;
    *s = (struct histogram_state){.bytes = bytes};
    if (p->newest != NULL) /* the block goes on: what it differs from is still needed */
        s->value = p->newest->value;
    if (p->newest != NULL) {
        uint8_t *at = (uint8_t *)(s + 1);
        struct histogram before = p->newest->value;

        side_store(&s->value.positive, &before.positive, &at);
        side_store(&s->value.negative, &before.negative, &at);
        s->value.custom_values = (const double *)(void *)at;
        if (before.custom_count > 0)
            memcpy(at, before.custom_values, before.custom_count * sizeof(double));
        lane_free(lane, p->newest, p->newest->bytes);
    }
    p->newest = s;
    return true;
}

/* There is room. */
static void state_store(struct histogram_series *p, const struct histogram *h)
{
    struct histogram_state *s = p->newest;
    uint8_t *at = (uint8_t *)(s + 1);

    s->value = *h;
    side_store(&s->value.positive, &h->positive, &at);
    side_store(&s->value.negative, &h->negative, &at);
    s->value.custom_values = (const double *)(void *)at;
    if (h->custom_count > 0)
        memcpy(at, h->custom_values, h->custom_count * sizeof(double));
}

static void state_drop(struct histogram_lane *lane, struct histogram_series *p)
{
    if (p->newest != NULL)
        lane_free(lane, p->newest, p->newest->bytes);
    p->newest = NULL;
}

/* ---- places ---- */

void histogram_lane_init(struct histogram_lane *lane, struct budget *memory)
{
    *lane = (struct histogram_lane){
        .memory = memory,
        .min_time_ms = INT64_MAX,
        .max_time_ms = INT64_MIN,
    };
}

static void series_done(struct histogram_lane *lane, struct histogram_series *p)
{
    for (uint32_t i = 0; i < p->block_count; i++)
        block_drop(lane, p->blocks[i]);
    lane_free(lane, p->blocks, p->block_capacity * sizeof(struct histogram_block *));
    state_drop(lane, p);
}

void histogram_lane_done(struct histogram_lane *lane)
{
    for (size_t i = 0; i < lane->place_count; i++) {
        if (lane->places[i].slot != LATE_SLOT_NONE)
            series_done(lane, &lane->places[i]);
    }
    lane_free(lane, lane->places, lane->place_count * sizeof *lane->places);
    histogram_lane_init(lane, lane->memory);
}

void histogram_lane_move(struct histogram_lane *from, struct histogram_lane *to)
{
    ASSERT(to->places == NULL);
    *to = *from;
    histogram_lane_init(from, to->memory);
}

static size_t place_first(uint32_t slot, size_t place_count)
{
    /* Fibonacci hashing: neighbouring slots spread over the table. */
    return (size_t)((uint64_t)slot * 0x9e3779b97f4a7c15U >> 32) & (place_count - 1);
}

/* The place of a series, or the empty one where it would go. */
static struct histogram_series *place_find(struct histogram_series *places, size_t place_count,
                                           uint32_t slot, uint16_t generation)
{
    for (size_t i = place_first(slot, place_count);; i++) {
        struct histogram_series *p = &places[i & (place_count - 1)];

        if (p->slot == LATE_SLOT_NONE || (p->slot == slot && p->generation == generation))
            return p;
    }
}

/* At most half of the places are in use. The largest step is one pass over the table. */
static bool places_grow(struct histogram_lane *lane)
{
    size_t count = lane->place_count == 0 ? PLACE_COUNT_MIN : 2 * lane->place_count;
    struct histogram_series *grown = lane_alloc(lane, count * sizeof *grown);

    if (grown == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        grown[i] = (struct histogram_series){.slot = LATE_SLOT_NONE};
    for (size_t i = 0; i < lane->place_count; i++) {
        const struct histogram_series *p = &lane->places[i];

        if (p->slot != LATE_SLOT_NONE)
            *place_find(grown, count, p->slot, p->generation) = *p;
    }
    lane_free(lane, lane->places, lane->place_count * sizeof *grown);
    lane->places = grown;
    lane->place_count = count;
    return true;
}

static struct histogram_series *series_find_place(const struct histogram_lane *lane, uint32_t slot,
                                                  uint16_t generation)
{
    struct histogram_series *p;

    if (lane->series_count == 0)
        return NULL;
    p = place_find(lane->places, lane->place_count, slot, generation);
    return p->slot == LATE_SLOT_NONE ? NULL : p;
}

const struct histogram_series *histogram_lane_find(const struct histogram_lane *lane, uint32_t slot,
                                                   uint16_t generation)
{
    return series_find_place(lane, slot, generation);
}

/* The place of a series, a new one if need be, with room for one block more. A new place counts
 * only once place_take() was called. */
static struct histogram_series *place_reserve(struct histogram_lane *lane, uint32_t slot,
                                              uint16_t generation)
{
    struct histogram_series *p;
    struct histogram_block **grown;
    uint32_t capacity;

    ASSERT(slot != LATE_SLOT_NONE);
    if (lane->series_count >= lane->place_count / 2 && !places_grow(lane))
        return NULL;
    p = place_find(lane->places, lane->place_count, slot, generation);
    if (p->block_count < p->block_capacity)
        return p;
    capacity = p->block_capacity == 0 ? BLOCKS_FIRST : 2 * p->block_capacity;
    grown = lane_alloc(lane, capacity * sizeof(struct histogram_block *));
    if (grown == NULL)
        return NULL;
    if (p->block_count > 0)
        memcpy(grown, p->blocks, p->block_count * sizeof(struct histogram_block *));
    lane_free(lane, p->blocks, p->block_capacity * sizeof(struct histogram_block *));
    lane->moved_count += p->block_count;
    p->blocks = grown;
    p->block_capacity = capacity;
    return p;
}

static void place_take(struct histogram_lane *lane, struct histogram_series *p, uint32_t slot,
                       uint16_t generation)
{
    if (p->slot != LATE_SLOT_NONE)
        return;
    p->slot = slot;
    p->generation = generation;
    lane->series_count++;
}

/* Memory was refused: an empty place holds nothing. */
static void place_give_up(struct histogram_lane *lane, struct histogram_series *p)
{
    if (p->slot != LATE_SLOT_NONE)
        return;
    series_done(lane, p);
    *p = (struct histogram_series){.slot = LATE_SLOT_NONE};
}

/* Removes a series without blocks; those behind it that were pushed along move up. */
static void place_remove(struct histogram_lane *lane, struct histogram_series *p)
{
    size_t mask = lane->place_count - 1, hole = (size_t)(p - lane->places);

    series_done(lane, p);
    lane->series_count--;
    for (size_t i = (hole + 1) & mask; lane->places[i].slot != LATE_SLOT_NONE; i = (i + 1) & mask) {
        size_t first = place_first(lane->places[i].slot, lane->place_count);

        if (((i - first) & mask) < ((i - hole) & mask))
            continue; /* the hole is not on its way */
        lane->places[hole] = lane->places[i];
        hole = i;
    }
    lane->places[hole] = (struct histogram_series){.slot = LATE_SLOT_NONE};
    if (lane->series_count > 0)
        return;
    ASSERT(lane->sample_count == 0);
    lane->min_time_ms = INT64_MAX;
    lane->max_time_ms = INT64_MIN;
}

static void count_sample(struct histogram_lane *lane, int64_t t_ms)
{
    lane->sample_count++;
    if (t_ms < lane->min_time_ms)
        lane->min_time_ms = t_ms;
    if (t_ms > lane->max_time_ms)
        lane->max_time_ms = t_ms;
}

/* ---- adding ---- */

static int64_t block_last_ms(const struct histogram_block *b)
{
    return b->t_ms[b->count - 1];
}

static void block_close(struct histogram_lane *lane, struct histogram_series *p)
{
    p->is_open = false;
    state_drop(lane, p);
}

static bool block_is_full(const struct histogram_block *b, int64_t t_ms)
{
    return b->count >= HISTOGRAM_BLOCK_SAMPLES || b->size >= BLOCK_BYTES_FULL ||
           b->weight >= HISTOGRAM_BLOCK_WEIGHT ||
           t_ms >= chunk_window_start_ms(chunk_window(b->t_ms[0]) + 1);
}

/* Makes room for one sample of `size` bytes in the open block. */
static bool block_grow(struct histogram_lane *lane, struct histogram_series *p, size_t size)
{
    struct histogram_block *b = p->blocks[p->block_count - 1], *grown;
    uint32_t samples = b->sample_capacity;
    size_t bytes = b->capacity;

    if (b->count < samples && b->size + size <= bytes)
        return true;
    while (samples <= b->count)
        samples *= 2;
    if (samples > HISTOGRAM_BLOCK_SAMPLES)
        samples = HISTOGRAM_BLOCK_SAMPLES;
    while (bytes < b->size + size)
        bytes += bytes / 2 + 64;
    grown = block_new(lane, samples, (uint32_t)bytes);
    if (grown == NULL)
        return false;
    block_copy(grown, b);
    block_drop(lane, b);
    p->blocks[p->block_count - 1] = grown;
    return true;
}

static bool block_begin(struct histogram_lane *lane, struct histogram_series *p, size_t size)
{
    uint32_t bytes = size < BLOCK_BYTES_FIRST ? BLOCK_BYTES_FIRST : (uint32_t)(size + size / 2);
    struct histogram_block *b = block_new(lane, BLOCK_SAMPLES_FIRST, bytes);

    if (b == NULL)
        return false;
    p->blocks[p->block_count++] = b;
    p->is_open = true;
    return true;
}

/* Puts packed bytes into the open block or a new one. */
static bool open_put(struct histogram_lane *lane, struct histogram_series *p, int64_t t_ms,
                     const uint8_t *packed, size_t size)
{
    struct histogram_block *b;

    if (p->is_open ? !block_grow(lane, p, size) : !block_begin(lane, p, size))
        return false;
    b = p->blocks[p->block_count - 1];
    memcpy(block_room(b), packed, size);
    b->size += (uint32_t)size;
    b->t_ms[b->count++] = t_ms;
    return true;
}

/* The sample in the open block that a new one follows; NULL where it is another's, or a float. */
static const struct histogram *open_predecessor(const struct histogram_series *p, int64_t before_ms)
{
    if (!p->is_open || block_last_ms(p->blocks[p->block_count - 1]) != before_ms)
        return NULL;
    return &p->newest->value;
}

bool histogram_lane_append(struct histogram_lane *lane, uint32_t slot, uint16_t generation,
                           int64_t t_ms, const struct histogram *h, int64_t before_ms)
{
    struct histogram_series *p = place_reserve(lane, slot, generation);
    struct histogram stored = *h; /* counts are borrowed */
    uint8_t *packed;
    bool ok;

    if (p == NULL)
        return false;
    ASSERT(p->block_count == 0 ? !p->is_open : t_ms > block_last_ms(p->blocks[p->block_count - 1]));
    if (p->is_open && block_is_full(p->blocks[p->block_count - 1], t_ms))
        block_close(lane, p);
    stored.hint = histogram_hint_behind(h, open_predecessor(p, before_ms));
    packed = malloc(histogram_pack_size_max(h));
    ok = packed != NULL && state_reserve(lane, p, h);
    if (ok) {
        size_t size = histogram_pack(packed, &stored, p->is_open ? &p->newest->value : NULL);

        ok = open_put(lane, p, t_ms, packed, size);
    }
    free(packed);
    if (!ok) {
        place_give_up(lane, p);
        return false;
    }
    p->blocks[p->block_count - 1]->weight += state_bytes(&stored);
    state_store(p, &stored);
    place_take(lane, p, slot, generation);
    count_sample(lane, t_ms);
    return true;
}

/* The first block whose newest sample is not older. */
static uint32_t block_of(const struct histogram_series *p, int64_t t_ms)
{
    uint32_t low = 0, high = p->block_count;

    if (high > 0 && block_last_ms(p->blocks[high - 1]) < t_ms)
        return high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (block_last_ms(p->blocks[middle]) < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool histogram_lane_insert(struct histogram_lane *lane, uint32_t slot, uint16_t generation,
                           int64_t t_ms, struct bytes packed)
{
    struct histogram_series *p = place_reserve(lane, slot, generation);
    struct histogram_block *b;
    uint32_t at, behind;

    if (p == NULL)
        return false;
    b = block_new(lane, 1, (uint32_t)packed.size);
    if (b == NULL) {
        place_give_up(lane, p);
        return false;
    }
    memcpy(block_room(b), packed.data, packed.size);
    histogram_packed_forget_hint(block_room(b));
    b->size = (uint32_t)packed.size;
    b->weight = sizeof(struct histogram) + packed.size * sizeof(double); /* a byte a bucket */
    b->t_ms[b->count++] = t_ms;
    at = block_of(p, t_ms);
    behind = p->block_count - at;
    memmove(p->blocks + at + 1, p->blocks + at, behind * sizeof(struct histogram_block *));
    p->blocks[at] = b;
    p->block_count++;
    lane->moved_count += behind;
    place_take(lane, p, slot, generation);
    count_sample(lane, t_ms);
    return true;
}

/* ---- reading ---- */

enum err histogram_block_read(const struct histogram_block *block, struct arena *arena,
                              struct histogram *out, struct errinfo *ei)
{
    struct byte_reader in = reader_init(block_data(block), block->size);

    for (uint32_t i = 0; i < block->count; i++) {
        enum err e = histogram_unpack(&in, i == 0 ? NULL : &out[i - 1], arena, &out[i]);

        if (e != ERR_OK)
            return e == ERR_CORRUPT
                       ? errinfo_set(ei, ERR_INTERNAL, 0, "a histogram in memory does not decode")
                       : arena_error(arena, ei);
    }
    return ERR_OK;
}

static bool sample_bits(const struct histogram_block *b, uint32_t at, uint64_t *out)
{
    struct histogram values[HISTOGRAM_BLOCK_SAMPLES];
    struct arena arena;
    bool ok;

    arena_init(&arena, NULL);
    ok = histogram_block_read(b, &arena, values, NULL) == ERR_OK &&
         histogram_value_bits(&values[at], out);
    arena_done(&arena);
    return ok;
}

enum late_outcome histogram_lane_judge(const struct histogram_lane *lane, uint32_t slot,
                                       uint16_t generation, int64_t t_ms, uint64_t bits)
{
    const struct histogram_series *p = histogram_lane_find(lane, slot, generation);
    const struct histogram_block *b;
    uint32_t number, at = 0;
    uint64_t own;

    if (p == NULL)
        return LATE_STORED;
    number = block_of(p, t_ms);
    if (number == p->block_count)
        return LATE_STORED;
    b = p->blocks[number];
    while (b->t_ms[at] < t_ms) /* the last one is not older */
        at++;
    if (b->t_ms[at] != t_ms)
        return LATE_STORED;
    if (!sample_bits(b, at, &own))
        return LATE_NO_MEMORY;
    return own == bits ? LATE_REPEAT : LATE_DUPLICATE;
}

static struct histogram_block *block_snapshot(const struct histogram_block *b, struct arena *arena)
{
    struct histogram_block *copy = arena_alloc(arena, block_bytes(b));

    if (copy == NULL)
        return NULL;
    *copy =
        (struct histogram_block){.sample_capacity = b->sample_capacity, .capacity = b->capacity};
    block_copy(copy, b);
    return copy;
}

bool histogram_take_blocks(struct histogram_take *take, const struct histogram_lane *lane,
                           uint32_t slot, uint16_t generation, int64_t min_time_ms,
                           int64_t max_time_ms, struct arena *arena)
{
    const struct histogram_series *p = histogram_lane_find(lane, slot, generation);
    uint32_t first, end;

    if (p == NULL || min_time_ms > max_time_ms)
        return true;
    first = end = block_of(p, min_time_ms);
    while (end < p->block_count && p->blocks[end]->t_ms[0] <= max_time_ms)
        end++;
    if (first == end)
        return true;
    take->blocks = arena_alloc_array(arena, end - first, sizeof(struct histogram_block *));
    if (take->blocks == NULL)
        return false;
    for (uint32_t i = first; i < end; i++) {
        struct histogram_block *b = p->blocks[i];

        if (p->is_open && i + 1 == p->block_count) {
            b = block_snapshot(b, arena);
            if (b == NULL)
                return false;
        } else {
            atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed); /* the lock orders it */
            take->ref_count++;
        }
        take->blocks[take->count++] = b;
        take->sample_count += b->count;
    }
    return true;
}

void histogram_take_drop(struct histogram_take *take)
{
    for (size_t i = 0; i < take->ref_count; i++)
        block_unref(take->blocks[i]);
    *take = (struct histogram_take){0};
}

enum err histogram_take_read(const struct histogram_take *take, int64_t min_time_ms,
                             int64_t max_time_ms, struct arena *arena, struct column *out,
                             struct errinfo *ei)
{
    size_t n = 0;
    int64_t *t_ms;
    double *value;
    const struct histogram **pointers;
    struct histogram *values;

    *out = (struct column){0};
    if (take->sample_count == 0)
        return ERR_OK;
    t_ms = ARENA_ARRAY(arena, take->sample_count, int64_t);
    value = ARENA_ARRAY(arena, take->sample_count, double);
    pointers = arena_alloc_array(arena, take->sample_count, sizeof(const struct histogram *));
    values = ARENA_ARRAY(arena, take->sample_count, struct histogram);
    if (t_ms == NULL || value == NULL || pointers == NULL || values == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < take->count; i++) {
        const struct histogram_block *b = take->blocks[i];
        enum err e = histogram_block_read(b, arena, values, ei);

        if (e != ERR_OK)
            return e;
        for (uint32_t k = 0; k < b->count; k++) {
            if (b->t_ms[k] < min_time_ms || b->t_ms[k] > max_time_ms)
                continue;
            t_ms[n] = b->t_ms[k];
            value[n] = values[k].sum;
            pointers[n++] = &values[k];
        }
        values += b->count;
    }
    if (n > 0)
        *out = (struct column){.count = n, .t_ms = t_ms, .value = value, .histogram = pointers};
    return ERR_OK;
}

bool columns_interleave(const struct column *a, const struct column *b, struct arena *arena,
                        struct column *out)
{
    size_t total = a->count + b->count, i = 0, k = 0, n = 0;
    int64_t *t_ms;
    double *value;
    const struct histogram **pointers;

    if (a->count == 0 || b->count == 0) {
        *out = a->count == 0 ? *b : *a;
        return true;
    }
    t_ms = ARENA_ARRAY(arena, total, int64_t);
    value = ARENA_ARRAY(arena, total, double);
    pointers = arena_alloc_array(arena, total, sizeof(const struct histogram *));
    if (t_ms == NULL || value == NULL || pointers == NULL)
        return false;
    while (i < a->count || k < b->count) {
        bool from_a = k == b->count || (i < a->count && a->t_ms[i] <= b->t_ms[k]);
        const struct column *c = from_a ? a : b;
        size_t at = from_a ? i : k;

        k += from_a && k < b->count && a->t_ms[i] == b->t_ms[k];
        t_ms[n] = c->t_ms[at];
        value[n] = c->value[at];
        pointers[n++] = c->histogram == NULL ? NULL : c->histogram[at];
        i += from_a;
        k += !from_a;
    }
    *out = (struct column){.count = n, .t_ms = t_ms, .value = value, .histogram = pointers};
    return true;
}

/* ---- out of the lane ---- */

uint32_t histogram_lane_cut(struct histogram_lane *lane, uint32_t slot, uint16_t generation)
{
    struct histogram_series *p = series_find_place(lane, slot, generation);

    if (p == NULL)
        return 0;
    block_close(lane, p);
    return p->block_count;
}

void histogram_lane_detach(struct histogram_lane *lane, uint32_t slot, uint16_t generation,
                           uint32_t count, struct histogram_block **freed)
{
    struct histogram_series *p = series_find_place(lane, slot, generation);

    if (p == NULL || count == 0)
        return;
    ASSERT(count <= p->block_count);
    for (uint32_t i = 0; i < count; i++) {
        struct histogram_block *b = p->blocks[i];

        lane->sample_count -= b->count;
        lane->memory_bytes -= block_bytes(b);
        b->next_freed = *freed;
        *freed = b;
    }
    p->block_count -= count;
    memmove(p->blocks, p->blocks + count, p->block_count * sizeof(struct histogram_block *));
    if (p->block_count == 0)
        place_remove(lane, p);
}

static int compare_places(const void *a, const void *b)
{
    const struct histogram_series *x = *(const struct histogram_series *const *)a;
    const struct histogram_series *y = *(const struct histogram_series *const *)b;

    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->generation < y->generation ? -1 : x->generation > y->generation;
}

void histogram_lane_list(const struct histogram_lane *lane, const struct histogram_series **out)
{
    size_t count = 0;

    for (size_t i = 0; i < lane->place_count; i++)
        if (lane->places[i].slot != LATE_SLOT_NONE)
            out[count++] = &lane->places[i];
    if (count > 1)
        qsort(out, count, sizeof *out, compare_places); /* NOLINT(bugprone-sizeof-expression) */
}
