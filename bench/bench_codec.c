/*
 * The codecs of sealed files and parts on the value models of the GPU-fleet stream: bits per value
 * next to the model's entropy, and the CPU cost of encoding and decoding, for several chunk
 * lengths; then models the stream does not have, timestamps, native histograms, and whether zstd
 * over pages of encoded chunks would pay.
 *
 * One figure a line: name, value, unit; budgets stand behind a #.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "bench/bench_support.h"
#include "bench/codec_histograms.h"
#include "bench/fleet_capture.h"
#include "engine/codec.h"

enum {
    SAMPLE_COUNT = 3840,
    SERIES_PER_NODE = 1000,
    REPEATS = 3, /* of each timing; the fastest counts */
    PAGE_SIZE = 64 << 10,
};

static const char usage[] = "usage: bench_codec [nodes]\n"
                            "  default 2 nodes of 1,000 series, 3,840 samples each\n";

enum model {
    CONSTANT,
    CENTISECONDS,
    INTEGER_COUNTER,
    BYTE_COUNTER,
    GAUGE,
    RATIO,
    RARE,
    POWER,
    FLEET_MODEL_COUNT,
};

struct model_info {
    const char *name;
    double entropy_bits; /* of one value, given the one before */
};

static const struct model_info fleet_models[FLEET_MODEL_COUNT] = {
    [CONSTANT] = {"constant", 0},
    [CENTISECONDS] = {"centiseconds", 10.551},  /* log2 1500 */
    [INTEGER_COUNTER] = {"integer_counter", 0}, /* by series: entropy_of() */
    [BYTE_COUNTER] = {"byte_counter", 31.897},  /* log2 4e9 */
    [GAUGE] = {"gauge", 1.602},                 /* 5/7 stays, six steps of 1/21 */
    [RATIO] = {"ratio", 19.932},                /* log2 1e6 */
    [RARE] = {"rare", 0.0208},                  /* a chance of 1/500 */
    [POWER] = {"power", 18.610},                /* log2 400000 */
};

/* The stream's series by their place in a node's block, as its design lists them. */
static enum model model_of(size_t series)
{
    if (series < 240) {
        size_t metric = series % 30;

        if (metric == 0)
            return POWER;
        if (metric <= 5)
            return RATIO;
        if (metric <= 12)
            return GAUGE;
        return metric <= 16 ? RARE : CONSTANT;
    }
    if (series < 752) {
        size_t cpu = (series - 240) / 8, mode = (series - 240) % 8;

        return mode < 4 || (mode == 4 && cpu < 16) ? CENTISECONDS : CONSTANT;
    }
    if (series < 880)
        return (series - 752) % 8 < 4 ? BYTE_COUNTER : INTEGER_COUNTER;
    size_t verb = (series - 880) / 12, bucket = (series - 880) % 12;

    return bucket < 2 || (bucket == 2 && verb < 8) ? CONSTANT : INTEGER_COUNTER;
}

static double entropy_of(size_t series)
{
    enum model model = model_of(series);

    if (model != INTEGER_COUNTER)
        return fleet_models[model].entropy_bits;
    return log2(series < 880 ? 6000 : 500 * (double)((series - 880) % 12 + 1));
}

/* A set of columns, each SAMPLE_COUNT values, and what coding them took. */
struct columns {
    double *values;
    size_t count;
    double entropy_bits; /* sum over columns, of one value each */
};

struct result {
    double bits, encode_per_s, decode_per_s;
};

struct bench {
    struct codec_scratch scratch;
    double decoded[CODEC_SAMPLES_MAX];
    int64_t decoded_ms[CODEC_SAMPLES_MAX];
    uint8_t *bytes; /* all chunks of a set of columns */
    uint32_t *sizes;
    size_t bytes_used;
};

static void encode_all(struct bench *b, const struct columns *c, size_t length)
{
    size_t chunks = 0;

    b->bytes_used = 0;
    for (size_t i = 0; i < c->count; i++) {
        for (size_t at = 0; at + length <= SAMPLE_COUNT; at += length) {
            size_t size = codec_values_encode(c->values + i * SAMPLE_COUNT + at, length,
                                              &b->scratch, b->bytes + b->bytes_used);

            b->sizes[chunks++] = (uint32_t)size;
            b->bytes_used += size;
        }
    }
}

static void decode_all(struct bench *b, const struct columns *c, size_t length)
{
    const uint8_t *p = b->bytes;
    size_t chunks = SAMPLE_COUNT / length * c->count;

    for (size_t i = 0; i < chunks; i++) {
        if (!codec_values_decode(p, b->sizes[i], length, b->decoded))
            bench_fail("a column does not decode", NULL);
        p += b->sizes[i];
    }
}

/* Every value once, outside of the timing. */
static void verify_all(struct bench *b, const struct columns *c, size_t length)
{
    const uint8_t *p = b->bytes;
    size_t chunk = 0;

    for (size_t i = 0; i < c->count; i++) {
        for (size_t at = 0; at + length <= SAMPLE_COUNT; at += length) {
            if (!codec_values_decode(p, b->sizes[chunk], length, b->decoded) ||
                memcmp(b->decoded, c->values + i * SAMPLE_COUNT + at, length * sizeof(double)) != 0)
                bench_fail("a column comes back different", NULL);
            p += b->sizes[chunk++];
        }
    }
}

static struct result measure(struct bench *b, const struct columns *c, size_t length)
{
    size_t per_column = SAMPLE_COUNT - SAMPLE_COUNT % length;
    double values = (double)(per_column * c->count);
    uint64_t encode_ns = UINT64_MAX, decode_ns = UINT64_MAX, start, spent;

    for (int i = 0; i < REPEATS; i++) {
        start = clock_thread_cpu_ns();
        encode_all(b, c, length);
        spent = clock_thread_cpu_ns() - start;
        encode_ns = spent < encode_ns ? spent : encode_ns;
        start = clock_thread_cpu_ns();
        decode_all(b, c, length);
        spent = clock_thread_cpu_ns() - start;
        decode_ns = spent < decode_ns ? spent : decode_ns;
    }
    verify_all(b, c, length);
    return (struct result){8 * (double)b->bytes_used / values, values / (double)encode_ns * 1e3,
                           values / (double)decode_ns * 1e3};
}

static const size_t lengths[] = {60, 120, 480, 3840};
enum { LENGTH_COUNT = sizeof lengths / sizeof lengths[0] };

static void report(struct bench *b, const char *name, const struct columns *c, const char *budget)
{
    for (int i = 0; i < LENGTH_COUNT; i++) {
        struct result r = measure(b, c, lengths[i]);
        double entropy = c->entropy_bits / (double)c->count;

        printf("codec_%s_%zu %.3f bits/value, entropy %.3f, encode %.0f M/s, decode %.0f M/s%s\n",
               name, lengths[i], r.bits, entropy, r.encode_per_s, r.decode_per_s,
               lengths[i] == 480 ? budget : "");
    }
}

/* The pages of encoded chunks under zstd: what a layer above could win on cold data. */
static void report_zstd(struct bench *b, const char *name, const struct columns *c, size_t length)
{
    static const int levels[] = {1, 3, 9};
    size_t bound = ZSTD_compressBound(PAGE_SIZE), packed_size = 0;
    uint8_t *packed = malloc(bound);
    size_t per_column = SAMPLE_COUNT - SAMPLE_COUNT % length;
    double values = (double)(per_column * c->count);

    if (packed == NULL)
        bench_fail("no memory", NULL);
    encode_all(b, c, length);
    for (size_t k = 0; k < sizeof levels / sizeof levels[0]; k++) {
        uint64_t start = clock_thread_cpu_ns(), spent;

        packed_size = 0;
        for (size_t at = 0; at < b->bytes_used; at += PAGE_SIZE) {
            size_t left = b->bytes_used - at;
            size_t size = ZSTD_compress(packed, bound, b->bytes + at,
                                        left < PAGE_SIZE ? left : PAGE_SIZE, levels[k]);

            if (ZSTD_isError(size))
                bench_fail("zstd", NULL);
            packed_size += size;
        }
        spent = clock_thread_cpu_ns() - start;
        printf("codec_zstd%d_%s_%zu %.4f of the size, %.2f ns/value\n", levels[k], name, length,
               (double)packed_size / (double)b->bytes_used, (double)spent / values);
    }
    free(packed);
}

static struct columns columns_new(size_t count)
{
    struct columns c = {.values = calloc(count * SAMPLE_COUNT, sizeof(double)), .count = count};

    if (c.values == NULL)
        bench_fail("no memory", NULL);
    return c;
}

static struct columns fleet_columns(uint32_t node_count)
{
    const struct fleet_options options = {
        .profile = FLEET_GPU, .seed = 1, .node_count = node_count, .interval_ms = 15000};
    struct fleet_source fleet;
    struct columns c = columns_new((size_t)node_count * SERIES_PER_NODE);

    fleet_source_init(&fleet, &options);
    for (size_t scrape = 0; scrape < SAMPLE_COUNT; scrape++) {
        for (uint32_t node = 0; node < node_count; node++) {
            const struct fleet_sample *samples;

            if (fleet_node_scrape(fleet.nodes, node, &samples) != SERIES_PER_NODE)
                bench_fail("a node has 1,000 series without churn", NULL);
            for (size_t i = 0; i < SERIES_PER_NODE; i++)
                c.values[((size_t)node * SERIES_PER_NODE + i) * SAMPLE_COUNT + scrape] =
                    samples[i].value;
        }
    }
    for (size_t i = 0; i < c.count; i++)
        c.entropy_bits += entropy_of(i % SERIES_PER_NODE);
    fleet_source_done(&fleet);
    return c;
}

static void report_fleet_model(struct bench *b, const struct columns *all, enum model model)
{
    struct columns c = columns_new(all->count);

    c.count = 0;
    for (size_t i = 0; i < all->count; i++) {
        if (model_of(i % SERIES_PER_NODE) != model)
            continue;
        memcpy(c.values + c.count++ * SAMPLE_COUNT, all->values + i * SAMPLE_COUNT,
               SAMPLE_COUNT * sizeof(double));
        c.entropy_bits += entropy_of(i % SERIES_PER_NODE);
    }
    report(b, fleet_models[model].name, &c, "");
    free(c.values);
}

/* --- Models the stream does not have --- */

struct other_model {
    const char *name;
    double entropy_bits;
    double (*next)(double before, size_t i, uint64_t *state);
};

static double next_double(double before, size_t i, uint64_t *state)
{
    (void)before;
    (void)i;
    return bench_random_unit(state);
}
static double next_normal(double before, size_t i, uint64_t *state)
{
    (void)before;
    (void)i;
    return sqrt(-2 * log(1 - bench_random_unit(state))) *
           cos(2 * 3.14159265358979 * bench_random_unit(state));
}
static double next_walk(double before, size_t i, uint64_t *state)
{
    (void)i;
    return before + 1e-6 * (bench_random_unit(state) - 0.5) + (before == 0);
}
static double next_float(double before, size_t i, uint64_t *state)
{
    (void)before;
    (void)i;
    return (double)(float)(0.5 + bench_random_unit(state) / 2);
}
static double next_reset(double before, size_t i, uint64_t *state)
{
    return i % 400 == 399 ? 0 : before + 900 + (double)(bench_random(state) % 256);
}
static double next_pages(double before, size_t i, uint64_t *state)
{
    (void)i;
    return before + 4096 * (double)(bench_random(state) % 64) + (before == 0 ? 1e9 : 0);
}
static double next_bursts(double before, size_t i, uint64_t *state)
{
    return before + (double)(bench_random(state) % (i / 128 % 4 == 0 ? 65536 : 4));
}
/* Binomial, close to normal with a standard deviation of 8: requests of a busy service. */
static double next_requests(double before, size_t i, uint64_t *state)
{
    (void)i;
    return before + 1000 + __builtin_popcountll(bench_random(state)) +
           __builtin_popcountll(bench_random(state)) + __builtin_popcountll(bench_random(state)) +
           __builtin_popcountll(bench_random(state));
}
/* The same without a sum: a temperature in tenths about a middle. */
static double next_temperature(double before, size_t i, uint64_t *state)
{
    return next_requests(0 * before, i, state) / 10;
}
static double next_toggle(double before, size_t i, uint64_t *state)
{
    (void)before;
    (void)i;
    return bench_random(state) % 2 == 0 ? 1410 : 1980;
}

static const struct other_model other_models[] = {
    {"double_uniform", 53, next_double},
    {"double_normal", NAN, next_normal},
    {"double_walk", NAN, next_walk},
    {"float", 23, next_float},
    {"counter_resets", 8, next_reset},
    {"memory_pages", 6, next_pages},
    {"bursts", 5.5, next_bursts},
    {"requests", 5.047, next_requests}, /* log2(8 * sqrt(2 pi e)) */
    {"temperature", 5.047, next_temperature},
    {"toggle", 1, next_toggle},
};

static void report_other_models(struct bench *b)
{
    struct columns c = columns_new(50);

    for (size_t m = 0; m < sizeof other_models / sizeof other_models[0]; m++) {
        uint64_t state = m;

        for (size_t k = 0; k < c.count; k++) {
            double v = 0;

            for (size_t i = 0; i < SAMPLE_COUNT; i++) {
                v = other_models[m].next(v, i, &state);
                c.values[k * SAMPLE_COUNT + i] = v;
            }
        }
        c.entropy_bits = other_models[m].entropy_bits * (double)c.count;
        report(b, other_models[m].name, &c, "");
    }
    free(c.values);
}

/* --- Timestamps --- */

static void report_times(struct bench *b, const char *name, unsigned jitter_ms, bool with_gaps)
{
    static int64_t t[CODEC_SAMPLES_MAX];

    for (int k = 0; k < LENGTH_COUNT; k++) {
        uint64_t state = 7, encode_ns, decode_ns, start;
        size_t n = lengths[k], size = 0;
        double values = 1000 * (double)n;

        for (size_t i = 0; i < n; i++) {
            t[i] = 1700000000123 + 15000 * (int64_t)(i + (with_gaps ? i / 100 : 0)) +
                   (int64_t)(bench_random(&state) % (2 * jitter_ms + 1)) - (int64_t)jitter_ms;
        }
        start = clock_thread_cpu_ns();
        for (int i = 0; i < 1000; i++)
            size = codec_times_encode(t, n, &b->scratch, b->bytes);
        encode_ns = clock_thread_cpu_ns() - start;
        start = clock_thread_cpu_ns();
        for (int i = 0; i < 1000; i++) {
            if (!codec_times_decode(b->bytes, size, n, b->decoded_ms))
                bench_fail("timestamps do not decode", NULL);
        }
        decode_ns = clock_thread_cpu_ns() - start;
        if (memcmp(t, b->decoded_ms, n * sizeof *t) != 0)
            bench_fail("timestamps come back different", NULL);
        printf("codec_times_%s_%zu %.3f bits/value, entropy %.3f, encode %.0f M/s, decode %.0f "
               "M/s\n",
               name, n, 8 * (double)size / (double)n, log2(2 * jitter_ms + 1),
               values / (double)encode_ns * 1e3, values / (double)decode_ns * 1e3);
    }
}

int main(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    struct bench_args args;
    struct columns fleet;
    struct result r;

    bench_args_init(&args, argc, argv, 1, usage);
    if (b == NULL)
        bench_fail("no memory", NULL);
    fleet = fleet_columns(bench_args_number(&args, 0, 2));
    b->bytes = malloc(fleet.count * SAMPLE_COUNT * 9 + codec_bound(CODEC_SAMPLES_MAX));
    b->sizes = malloc(fleet.count * SAMPLE_COUNT / lengths[0] * sizeof *b->sizes);
    if (b->bytes == NULL || b->sizes == NULL)
        bench_fail("no memory", NULL);
    for (int m = 0; m < FLEET_MODEL_COUNT; m++)
        report_fleet_model(b, &fleet, (enum model)m);
    report(b, "mix", &fleet, " # encode: budget 30 M/s");
    r = measure(b, &fleet, 480);
    printf("codec_mix_480_bytes %.4f bytes/sample # budget 1.06\n", r.bits / 8);
    report_other_models(b);
    report_times(b, "regular", 0, false);
    report_times(b, "gaps", 0, true);
    report_times(b, "jitter5", 5, false);
    report_times(b, "jitter5_gaps", 5, true);
    codec_histograms_report();
    report_zstd(b, "mix", &fleet, 480);
    report_zstd(b, "mix", &fleet, 3840);
    free(b->bytes);
    free(b->sizes);
    free(fleet.values);
    free(b);
    return 0;
}
