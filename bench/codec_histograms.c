/*
 * Columns of native histograms of a busy service: latencies spread log-normally, 300 observations
 * between two scrapes, in exponential buckets of schema 3 and in the twelve custom buckets of
 * Prometheus's default classic histogram; and the rates of the former, which are true doubles.
 *
 * Beside the bits stands the entropy of the buckets alone, each count taken as Poisson's. The sum,
 * a double with noise in all its bits, comes on top of that: about 50 bits a sample.
 */
#include "bench/codec_histograms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "engine/codec_histogram.h"

enum { SAMPLES = 480, SERIES = 40, OBSERVATIONS = 300, REPEATS = 3, BUCKETS_MAX = 128 };

static const double classic_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
static const struct histogram_span classic_span[] = {{0, 12}};
/* 2^(-64 / 8) to 2^(32 / 8): 4 ms to 16 s, with 0.1 s in the middle. */
static const struct histogram_span exponential_span[] = {{-63, 96}};

struct model {
    const char *name;
    int32_t schema;
    bool is_rate;
};
static const struct model models[] = {
    {"exponential", 3, false}, {"custom", HISTOGRAM_SCHEMA_CUSTOM, false}, {"rates", 3, true}};

struct bench {
    struct codec_scratch scratch;
    struct histogram h[SERIES][SAMPLES], got[SAMPLES];
    struct arena arena, temp;
    struct byte_writer w;
    double entropy_bits; /* of all samples */
};

static double next_latency(uint64_t *state)
{
    double angle = 2 * 3.14159265358979 * bench_random_unit(state);

    return 0.1 * exp(0.8 * sqrt(-2 * log(1 - bench_random_unit(state))) * cos(angle));
}

static size_t bucket_of(const struct model *m, double v)
{
    size_t i = 0;

    if (m->schema != HISTOGRAM_SCHEMA_CUSTOM)
        return (size_t)fmin(fmax(ceil(log2(v) * 8) + 63, 0), 95);
    while (i < 11 && v > classic_bounds[i])
        i++;
    return i;
}

/* Entropy of a Poisson count with this mean, in bits. */
static double poisson_bits(double mean)
{
    double p = exp(-mean), bits = 0;

    if (mean > 20)
        return 0.5 * log2(2 * 3.14159265358979 * 2.718281828 * mean);
    for (int k = 1; k < 100; k++) {
        bits -= p > 0 ? p * log2(p) : 0;
        p *= mean / k;
    }
    return bits;
}

static void fill(struct bench *b, const struct model *m, uint64_t seed, struct histogram *h)
{
    bool is_custom = m->schema == HISTOGRAM_SCHEMA_CUSTOM;
    size_t buckets = is_custom ? 12 : 96;
    double counts[BUCKETS_MAX] = {0}, sum = 0;

    for (size_t i = 0; i < SAMPLES; i++) {
        double *v = ARENA_ARRAY(&b->arena, buckets, double);

        if (v == NULL)
            bench_fail("no memory", NULL);
        for (int k = 0; k < OBSERVATIONS; k++) {
            double latency = next_latency(&seed);

            counts[bucket_of(m, latency)]++;
            sum += latency;
        }
        for (size_t k = 0; k < buckets; k++)
            v[k] = m->is_rate ? counts[k] / 15 : counts[k];
        h[i] = (struct histogram){
            .schema = m->schema,
            .sum = sum,
            .count = (double)OBSERVATIONS * (double)(i + 1) / (m->is_rate ? 15 : 1),
            .zero_threshold = is_custom ? 0 : 0x1p-128,
            .positive = {is_custom ? classic_span : exponential_span, 1, v, buckets},
            .custom_values = is_custom ? classic_bounds : NULL,
            .custom_count = is_custom ? 11 : 0,
        };
        if (m->is_rate)
            memset(counts, 0, sizeof counts);
    }
    for (size_t k = 0; k < buckets; k++) {
        double mean = h[SAMPLES - 1].positive.buckets[k] / SAMPLES;

        b->entropy_bits += SAMPLES * poisson_bits(m->is_rate ? mean * 15 * SAMPLES : mean);
    }
}

static void encode_all(struct bench *b, size_t length)
{
    writer_reset(&b->w);
    for (size_t k = 0; k < SERIES; k++) {
        for (size_t at = 0; at + length <= SAMPLES; at += length) {
            if (codec_histograms_encode(b->h[k] + at, length, &b->scratch, &b->temp, &b->w) !=
                ERR_OK)
                bench_fail("a column does not encode", NULL);
        }
    }
}

/* Encodes and decodes chunk by chunk; returns the CPU time of the decoding alone. */
static uint64_t decode_all(struct bench *b, size_t length)
{
    uint64_t spent = 0;

    for (size_t k = 0; k < SERIES; k++) {
        for (size_t at = 0; at + length <= SAMPLES; at += length) {
            uint64_t start;

            writer_reset(&b->w);
            if (codec_histograms_encode(b->h[k] + at, length, &b->scratch, &b->temp, &b->w) !=
                ERR_OK)
                bench_fail("a column does not encode", NULL);
            arena_reset(&b->temp);
            start = clock_thread_cpu_ns();
            if (codec_histograms_decode(b->w.data, b->w.size, length, &b->temp, b->got) != ERR_OK)
                bench_fail("a column does not decode", NULL);
            spent += clock_thread_cpu_ns() - start;
            for (size_t i = 0; i < length; i++) {
                if (!histogram_equal(&b->got[i], &b->h[k][at + i]))
                    bench_fail("a histogram comes back different", NULL);
            }
        }
    }
    return spent;
}

static void report(struct bench *b, const struct model *m, size_t length)
{
    double samples = (double)SERIES * SAMPLES, buckets = (double)b->h[0][0].positive.bucket_count;
    uint64_t encode_ns = UINT64_MAX, start, spent;
    double bits;

    for (int i = 0; i < REPEATS; i++) {
        start = clock_thread_cpu_ns();
        encode_all(b, length);
        spent = clock_thread_cpu_ns() - start;
        encode_ns = spent < encode_ns ? spent : encode_ns;
    }
    bits = 8 * (double)b->w.size;
    printf("codec_histogram_%s_%zu %.1f bits/sample, entropy %.1f, %.3f bits/bucket of %.0f, "
           "encode %.0f ns/sample, decode %.0f ns/sample\n",
           m->name, length, bits / samples, b->entropy_bits / samples, bits / samples / buckets,
           buckets, (double)encode_ns / samples, (double)decode_all(b, length) / samples);
}

void codec_histograms_report(void)
{
    static const size_t lengths[] = {8, 60, 120, 480};
    struct bench *b = calloc(1, sizeof *b);

    if (b == NULL)
        bench_fail("no memory", NULL);
    arena_init(&b->arena, NULL);
    arena_init(&b->temp, NULL);
    writer_init(&b->w);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        arena_reset(&b->arena);
        b->entropy_bits = 0;
        for (size_t k = 0; k < SERIES; k++)
            fill(b, &models[m], 1000 * m + k, b->h[k]);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            report(b, &models[m], lengths[i]);
    }
    arena_done(&b->arena);
    arena_done(&b->temp);
    writer_done(&b->w);
    free(b);
}
