/*
 * The codec of chunks in memory by itself: what appending and decoding a sample cost, by kind of
 * series as the GPU-fleet stream has them, regular and with scrapes that jitter. One figure a line,
 * of this thread's CPU time, the best of some runs, and the bytes that samples take.
 *
 * Chunks are full and their tokens stand in a row, so decoding is not waiting for memory here;
 * what it costs to collect chains is in bench_query_fleet.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "engine/memtable/chunk_internal.h"

enum { CHUNKS = 400, RUNS = 15, STEP_MS = 15000 };

static const char usage[] = "usage: bench_chunk [kind]\n"
                            "  kinds by number from 1 on, default all\n";

enum model {
    CONSTANT,
    CENTISECONDS,
    INTEGER,
    BYTES,
    GAUGE,
    RATIO,
    RARE,
    POWER,
    NOISE,
    MODEL_COUNT
};
static const char *const model_names[MODEL_COUNT] = {
    "constant", "centiseconds", "integer", "bytes", "gauge", "ratio", "rare", "power", "noise"};

static double next_value(enum model model, uint64_t *random, int64_t *state)
{
    uint64_t r = bench_random(random) >> 11;

    switch (model) {
    case CONSTANT:
        return 42;
    case CENTISECONDS:
        *state += (int64_t)(r % 1500);
        return (double)*state / 100;
    case INTEGER:
        *state += (int64_t)(r % 6000);
        return (double)*state;
    case BYTES:
        *state += (int64_t)(r % 4000000000);
        return (double)*state;
    case GAUGE:
        if (r % 3 == 0)
            *state += (int64_t)(r / 3 % 7) - 3;
        return (double)*state;
    case RATIO:
        return (double)(r % 1000000) / 1e6;
    case RARE:
        *state += r % 500 == 0;
        return (double)*state;
    case POWER:
        return (double)(300000 + r % 400000) / 1e3;
    default:
        return bench_random_unit(random);
    }
}

struct bench {
    struct slab slab;
    struct chunk_pool pool;
    struct chunk_source source;
    struct series series;
    /* Of each chunk. */
    uint8_t (*tokens)[CHUNK_TOKENS_ROOM];
    size_t size[CHUNKS];
    int64_t first_ms[CHUNKS];
};

struct samples {
    int64_t t_ms[CHUNKS * CHUNK_SAMPLE_MAX];
    uint64_t bits[CHUNKS * CHUNK_SAMPLE_MAX];
};

static void samples_make(struct samples *s, enum model model, int64_t jitter_ms)
{
    int64_t state = 1000000;
    uint64_t random = 7;

    for (size_t i = 0; i < (size_t)CHUNKS * CHUNK_SAMPLE_MAX; i++) {
        s->t_ms[i] = (int64_t)i * STEP_MS;
        if (jitter_ms > 0)
            s->t_ms[i] += (int64_t)(bench_random(&random) % (uint64_t)(2 * jitter_ms + 1));
        s->bits[i] = double_bits(next_value(model, &random, &state));
    }
}

/* Gives all blocks back, so that the next run finds them warm. */
static void chunks_drop(struct bench *b)
{
    for (uint32_t at = b->series.closed, older; at != 0; at = older) {
        const struct chunk_descriptor *d = chunk_descriptor_at(&b->pool, at);
        uint32_t block = d->head;

        older = d->older;
        for (uint32_t left = chunk_block_count(d->size_bytes); left > 0; left--) {
            uint32_t next = chunk_block_at(&b->pool, block)->next;

            chunk_source_put_back(&b->source, block);
            block = next;
        }
        chunk_source_put_back(&b->source, at);
    }
    b->series.closed = 0;
}

static double append_ns(struct bench *b, const struct samples *s)
{
    double best = 0;

    for (int run = 0; run < RUNS; run++) {
        uint32_t closed = 0;
        uint64_t before;
        double ns;

        chunks_drop(b);
        series_init(&b->series, (struct hash128){1, 2}, 7);
        before = clock_thread_cpu_ns();
        for (size_t i = 0; i < (size_t)CHUNKS * CHUNK_SAMPLE_MAX; i++)
            if (!chunk_append(&b->series, &b->source, s->t_ms[i], s->bits[i], &closed))
                bench_fail("no block", NULL);
        ns = (double)(clock_thread_cpu_ns() - before) / (CHUNKS * CHUNK_SAMPLE_MAX);
        best = run == 0 || ns < best ? ns : best;
        if (!chunk_cut(&b->series, &b->source))
            bench_fail("no block", NULL);
    }
    return best;
}

static size_t gather(struct bench *b)
{
    size_t n = CHUNKS, total = 0;

    for (uint32_t at = b->series.closed; at != 0;) {
        const struct chunk_descriptor *d = chunk_descriptor_at(&b->pool, at);

        n--;
        b->size[n] = chunk_gather(&b->pool, d->head, d->size_bytes, b->tokens[n]);
        b->first_ms[n] = d->min_time_ms;
        total += b->size[n];
        at = d->older;
    }
    return total;
}

static double decode_ns(struct bench *b)
{
    double best = 0;

    for (int run = 0; run < RUNS; run++) {
        int64_t t_ms[CHUNK_DECODE_ROOM];
        double value[CHUNK_DECODE_ROOM];
        uint64_t before = clock_thread_cpu_ns();
        double ns;

        for (int again = 0; again < 4; again++)
            for (size_t i = 0; i < CHUNKS; i++)
                if (!chunk_decode(b->tokens[i], b->size[i], b->first_ms[i], CHUNK_SAMPLE_MAX, t_ms,
                                  value))
                    bench_fail("a chunk does not decode", NULL);
        ns = (double)(clock_thread_cpu_ns() - before) / (4.0 * CHUNKS * CHUNK_SAMPLE_MAX);
        best = run == 0 || ns < best ? ns : best;
    }
    return best;
}

static void figure(const char *model, const char *how, const char *what, double value,
                   const char *unit)
{
    char name[96];

    (void)snprintf(name, sizeof name, "chunk_%s%s_%s", model, how, what);
    bench_figure(name, value, unit, "");
}

int main(int argc, char **argv)
{
    struct samples *samples = malloc(sizeof *samples);
    struct bench_args args;
    struct bench b = {0};
    uint32_t only;

    bench_args_init(&args, argc, argv, 1, usage);
    only = args.count > 0 ? bench_args_number(&args, 0, 1) : 0;
    slab_init(&b.slab, NULL);
    if (chunk_pool_init(&b.pool, &b.slab) != ERR_OK)
        bench_fail("no memory", NULL);
    b.source = (struct chunk_source){.pool = &b.pool};
    b.tokens = calloc(CHUNKS, sizeof *b.tokens);
    if (b.tokens == NULL || samples == NULL)
        bench_fail("no memory", NULL);
    for (int i = 0; i < 2 * MODEL_COUNT; i++) {
        enum model model = (enum model)(i / 2);
        const char *how = i % 2 == 0 ? "" : "_jitter";
        size_t size;

        if (only != 0 && only != (uint32_t)model + 1)
            continue;
        samples_make(samples, model, i % 2 == 0 ? 0 : 5);
        figure(model_names[model], how, "append", append_ns(&b, samples), "ns");
        size = gather(&b);
        figure(model_names[model], how, "decode", decode_ns(&b), "ns");
        figure(model_names[model], how, "size", (double)size / (CHUNKS * CHUNK_SAMPLE_MAX), "B");
    }
    free(b.tokens);
    free(samples);
    chunk_pool_done(&b.pool);
    slab_done(&b.slab);
    return 0;
}
