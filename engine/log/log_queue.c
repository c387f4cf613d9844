/*
 * The queues between the shards and the log. Samples wait in segments of 1,024 entries out of a
 * common pool: a backlog grows by whole segments, and nothing is ever copied under a shard's lock.
 */
#include "engine/log/log_queue_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { REPEAT_DELAY_NS = 500 * 1000 * 1000, VARINT_BYTES_MAX = 10 };

void log_pool_init(struct log_pool *pool, struct budget *memory)
{
    *pool = (struct log_pool){.memory = memory};
    atomic_init(&pool->memory_bytes, 0);
    atomic_init(&pool->recent_count, 0);
    atomic_init(&pool->repeat_delay_ns, REPEAT_DELAY_NS);
    mutex_init(&pool->lock);
}

static bool pool_charge(struct log_pool *pool, size_t bytes)
{
    if (pool->memory != NULL && budget_charge(pool->memory, bytes, NULL) != ERR_OK)
        return false;
    atomic_fetch_add_explicit(&pool->memory_bytes, bytes, memory_order_relaxed);
    return true;
}

static void pool_discharge(struct log_pool *pool, size_t bytes)
{
    if (pool->memory != NULL)
        budget_release(pool->memory, bytes);
    atomic_fetch_sub_explicit(&pool->memory_bytes, bytes, memory_order_relaxed);
}

/* Charged memory, or NULL. */
static void *pool_alloc(struct log_pool *pool, size_t bytes)
{
    void *p;

    if (!pool_charge(pool, bytes))
        return NULL;
    p = malloc(bytes);
    if (p == NULL)
        pool_discharge(pool, bytes);
    return p;
}

static void segments_free(struct log_pool *pool, struct log_segment *seg)
{
    while (seg != NULL) {
        struct log_segment *next = seg->next;

        pool_discharge(pool, sizeof *seg);
        free(seg);
        seg = next;
    }
}

void log_pool_done(struct log_pool *pool)
{
    segments_free(pool, pool->spare);
    pool->spare = NULL;
    mutex_done(&pool->lock);
}

static struct log_segment *segment_get(struct log_pool *pool)
{
    struct log_segment *seg;

    mutex_lock(&pool->lock);
    seg = pool->spare;
    if (seg != NULL) {
        pool->spare = seg->next;
        pool->spare_count--;
    }
    mutex_unlock(&pool->lock);
    if (seg == NULL) {
        seg = pool_alloc(pool, sizeof *seg);
        if (seg == NULL)
            return NULL;
    }
    seg->next = NULL;
    seg->count = 0;
    return seg;
}

static void definitions_free(struct log_pool *pool, struct definition_list *list)
{
    for (struct definition_buffer *b = list->first; b != NULL;) {
        struct definition_buffer *next = b->next;

        pool_discharge(pool, sizeof *b + b->capacity);
        free(b);
        b = next;
    }
    *list = (struct definition_list){0};
}

static void histograms_free(struct log_pool *pool, struct histogram_buffer *b)
{
    while (b != NULL) {
        struct histogram_buffer *next = b->next;

        pool_discharge(pool, sizeof *b + b->capacity);
        free(b);
        b = next;
    }
}

static void chain_free(struct log_pool *pool, struct log_chain *chain)
{
    segments_free(pool, chain->first);
    histograms_free(pool, chain->histograms);
    *chain = (struct log_chain){0};
}

static void definitions_append(struct definition_list *list, struct definition_buffer *b)
{
    b->next = NULL;
    if (list->last == NULL)
        list->first = b;
    else
        list->last->next = b;
    list->last = b;
    list->count += b->count;
    list->size_bytes += b->size;
    list->memory_bytes += sizeof *b + b->capacity;
}

void log_queue_init(struct log_queue *q, struct log_pool *pool)
{
    *q = (struct log_queue){.pool = pool};
}

void log_queue_done(struct log_queue *q)
{
    if (q->pool == NULL)
        return;
    chain_free(q->pool, &q->in_order);
    chain_free(q->pool, &q->late);
    chain_free(q->pool, &q->ahead.in_order);
    chain_free(q->pool, &q->ahead.late);
    definitions_free(q->pool, &q->ahead.fresh);
    definitions_free(q->pool, &q->fresh);
    definitions_free(q->pool, &q->recent);
    free(q->before_labels);
    q->before_labels = NULL;
}

struct log_segment *log_chain_grow(struct log_queue *q, struct log_chain *chain)
{
    struct log_segment *seg = segment_get(q->pool);

    if (seg == NULL)
        return NULL;
    if (chain->last == NULL)
        chain->first = seg;
    else
        chain->last->next = seg;
    chain->last = seg;
    return seg;
}

bool log_queue_reserve_histogram(struct log_queue *q, struct log_chain *chain, size_t size)
{
    size_t need = size + VARINT_BYTES_MAX, capacity = LOG_HISTOGRAM_BUFFER_BYTES;
    uint64_t waiting = q->in_order.histogram_bytes + q->late.histogram_bytes +
                       q->ahead.in_order.histogram_bytes + q->ahead.late.histogram_bytes;
    struct histogram_buffer *b = chain->histograms;

    if (size > LOG_HISTOGRAM_BYTES_MAX || waiting > LOG_HISTOGRAM_BYTES_MAX ||
        log_queue_next(q, chain) == NULL)
        return false;
    if (b != NULL && b->capacity - b->size >= need)
        return true;
    if (capacity < need)
        capacity = need;
    b = pool_alloc(q->pool, sizeof *b + capacity);
    if (b == NULL)
        return false;
    *b = (struct histogram_buffer){.next = chain->histograms, .capacity = capacity};
    chain->histograms = b;
    return true;
}

void log_queue_histogram(struct log_queue *q, struct log_chain *chain, uint32_t slot,
                         uint16_t generation, int64_t t_ms, struct bytes packed)
{
    struct histogram_buffer *b = chain->histograms;
    uint8_t *at = b->data + b->size;
    size_t size = varint_write(at, packed.size) + packed.size;

    ASSERT(b->capacity - b->size >= packed.size + VARINT_BYTES_MAX);
    memcpy(at + size - packed.size, packed.data, packed.size);
    b->size += size;
    chain->histogram_count++;
    chain->histogram_bytes += size;
    q->histogram_bytes += size;
    *log_queue_next(q, chain) = (struct log_entry){
        .slot = slot,
        .generation = generation,
        .scale = RECORD_SCALE_HISTOGRAM,
        .t_ms = t_ms,
        .bits = (uintptr_t)at,
    };
    log_queue_commit(q, chain);
}

bool log_queue_reserve_definition(struct log_queue *q, size_t labels_size)
{
    size_t need = definition_size_max(labels_size), capacity = LOG_DEFINITION_BUFFER_BYTES;
    struct definition_buffer *b = q->fresh.last;

    if (q->before_labels == NULL)
        q->before_labels = malloc(LOG_BEFORE_BYTES_MAX);
    if (q->before_labels == NULL)
        return false;
    if (b != NULL && b->capacity - b->size >= need)
        return true;
    if (b != NULL) /* many at once: fewer, larger buffers */
        capacity = LOG_DEFINITION_BUFFER_MAX;
    if (capacity < need)
        capacity = need;
    b = pool_alloc(q->pool, sizeof *b + capacity);
    if (b == NULL)
        return false;
    *b = (struct definition_buffer){.capacity = capacity};
    q->before = (struct definition){0}; /* a buffer is read by itself */
    definitions_append(&q->fresh, b);
    return true;
}

void log_queue_define(struct log_queue *q, const struct definition *d)
{
    struct definition_buffer *b = q->fresh.last;
    size_t size;

    ASSERT(b != NULL && b->capacity - b->size >= definition_size_max(d->labels.size));
    size = definition_write(b->data + b->size, d, &q->before);
    q->before = (struct definition){d->slot, d->generation, {q->before_labels, 0}};
    if (d->labels.size <= LOG_BEFORE_BYTES_MAX) {
        memcpy(q->before_labels, d->labels.data, d->labels.size);
        q->before.labels.size = d->labels.size;
    }
    b->size += size;
    b->count++;
    q->fresh.size_bytes += size;
    q->fresh.count++;
    q->defined_count++;
    q->sequence++;
}

/* Takes the buffers whose time for a second frame has come; the oldest stand first. */
static void take_due(struct log_queue *q, uint64_t now_ns, struct definition_list *out)
{
    uint64_t delay = atomic_load_explicit(&q->pool->repeat_delay_ns, memory_order_relaxed);
    bool is_full = q->recent.memory_bytes > LOG_RECENT_BYTES_MAX;

    while (q->recent.first != NULL && (is_full || q->recent.first->logged_ns + delay <= now_ns)) {
        struct definition_buffer *b = q->recent.first;

        q->recent.first = b->next;
        if (b->next == NULL)
            q->recent.last = NULL;
        q->recent.count -= b->count;
        q->recent.size_bytes -= b->size;
        q->recent.memory_bytes -= sizeof *b + b->capacity;
        definitions_append(out, b);
    }
    q->repeated_count += out->count;
    if (out->count > 0)
        atomic_fetch_sub_explicit(&q->pool->recent_count, out->count, memory_order_relaxed);
}

/* An empty chain stays, with the segment it may have. */
static struct log_chain chain_take(struct log_chain *chain)
{
    struct log_chain taken = {0};

    if (chain->sample_count > 0) {
        taken = *chain;
        *chain = (struct log_chain){0};
    }
    return taken;
}

static void histograms_append(struct log_chain *to, const struct log_chain *from)
{
    struct histogram_buffer **end = &to->histograms;

    while (*end != NULL)
        end = &(*end)->next;
    *end = from->histograms;
    to->histogram_count += from->histogram_count;
    to->histogram_bytes += from->histogram_bytes;
}

static void chain_append(struct log_chain *to, struct log_chain from)
{
    if (from.sample_count == 0)
        return;
    if (to->last == NULL)
        to->first = from.first;
    else
        to->last->next = from.first;
    to->last = from.last;
    to->sample_count += from.sample_count;
    histograms_append(to, &from);
}

void log_queue_split(struct log_queue *q)
{
    struct definition_buffer *b = q->fresh.first;

    if (q->sequence == q->taken_sequence || q->sequence == q->ahead_sequence)
        return;
    chain_append(&q->ahead.in_order, chain_take(&q->in_order));
    chain_append(&q->ahead.late, chain_take(&q->late));
    while (b != NULL) {
        struct definition_buffer *next = b->next;

        definitions_append(&q->ahead.fresh, b);
        b = next;
    }
    q->fresh = (struct definition_list){0};
    q->ahead_sequence = q->sequence;
}

static void batch_describe(const struct log_batch *batch, uint64_t from, uint64_t to,
                           struct wal_batch *out)
{
    uint64_t sample_count = batch->in_order.sample_count + batch->late.sample_count;

    *out = (struct wal_batch){
        .first_sequence = from + 1,
        .entry_count = to - from,
        .sample_count = sample_count,
        .memory_bytes = sample_count * sizeof(struct log_entry) + batch->in_order.histogram_bytes +
                        batch->late.histogram_bytes + batch->fresh.size_bytes,
    };
}

bool log_queue_take(struct log_queue *q, uint64_t now_ns, struct log_batch *batch,
                    struct wal_batch *out)
{
    uint64_t from = q->taken_sequence;

    if (q->ahead_sequence > from) {
        *batch = q->ahead;
        q->ahead = (struct log_batch){0};
        q->taken_sequence = q->ahead_sequence;
    } else {
        take_due(q, now_ns, &batch->repeated);
        /* A repetition is an entry too: a frame covers at least one sequence number. */
        q->sequence += batch->repeated.count;
        if (q->sequence == from)
            return false;
        batch->in_order = chain_take(&q->in_order);
        batch->late = chain_take(&q->late);
        batch->fresh = q->fresh;
        q->fresh = (struct definition_list){0};
        q->taken_sequence = q->sequence;
    }
    batch_describe(batch, from, q->taken_sequence, out);
    return true;
}

/* A record for each buffer, whose first definition has nothing before it. */
static void encode_definitions(const struct definition_list *list, struct byte_writer *payload)
{
    for (const struct definition_buffer *b = list->first; b != NULL; b = b->next)
        if (b->count > 0)
            record_series_write(payload, (struct bytes){b->data, b->size}, b->count);
}

static void encode_chain(const struct log_chain *chain, enum record_type plain,
                         enum record_type mixed, struct byte_writer *payload)
{
    if (chain->sample_count > 0)
        record_samples_write(payload, chain->histogram_count > 0 ? mixed : plain, chain->first);
}

enum err log_batch_encode(const struct log_batch *batch, struct byte_writer *payload)
{
    encode_definitions(&batch->repeated, payload);
    encode_definitions(&batch->fresh, payload);
    encode_chain(&batch->in_order, RECORD_SAMPLES, RECORD_MIXED, payload);
    encode_chain(&batch->late, RECORD_LATE, RECORD_LATE_MIXED, payload);
    return payload->failed ? ERR_NOMEM : ERR_OK;
}

static void chain_release(struct log_chain *chain, struct log_pool *pool)
{
    struct log_segment *seg = chain->first, *surplus = NULL;

    mutex_lock(&pool->lock);
    while (seg != NULL) {
        struct log_segment *next = seg->next, **list = &surplus;

        if (pool->spare_count < LOG_POOL_SPARE_MAX) {
            list = &pool->spare;
            pool->spare_count++;
        }
        seg->next = *list;
        *list = seg;
        seg = next;
    }
    mutex_unlock(&pool->lock);
    segments_free(pool, surplus);
    histograms_free(pool, chain->histograms);
    *chain = (struct log_chain){0};
}

void log_batch_release_samples(struct log_batch *batch, struct log_pool *pool)
{
    chain_release(&batch->in_order, pool);
    if (batch->late.first != NULL)
        chain_release(&batch->late, pool);
}

void log_batch_release_definitions(struct log_batch *batch, struct log_queue *q, uint64_t now_ns)
{
    struct definition_buffer *b = batch->fresh.first;

    if (batch->fresh.count > 0)
        atomic_fetch_add_explicit(&q->pool->recent_count, batch->fresh.count, memory_order_relaxed);
    while (b != NULL) {
        struct definition_buffer *next = b->next;

        b->logged_ns = now_ns;
        /* An empty one was reserved by a write that failed. */
        definitions_append(b->count > 0 ? &q->recent : &batch->repeated, b);
        b = next;
    }
    batch->fresh = (struct definition_list){0};
    definitions_free(q->pool, &batch->repeated);
}
