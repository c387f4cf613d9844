/* The open chunk's codec against plain arrays, with values chosen to hurt. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/chunk_tokens_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SAMPLE_MAX = 4000 };

struct world {
    struct slab slab;
    struct chunk_pool pool;
    struct chunk_source source;
    struct series series;
    size_t count;
    int64_t t_ms[SAMPLE_MAX];
    uint64_t bits[SAMPLE_MAX];
};

static void world_init(struct world *w)
{
    slab_init(&w->slab, NULL);
    CHECK(chunk_pool_init(&w->pool, &w->slab) == ERR_OK);
    w->source = (struct chunk_source){.pool = &w->pool};
    series_init(&w->series, (struct hash128){1, 2}, 7);
    w->count = 0;
}

static void world_done(struct world *w)
{
    chunk_pool_done(&w->pool);
    slab_done(&w->slab);
}

static void world_add(struct world *w, int64_t t_ms, uint64_t bits)
{
    uint32_t closed = 0;

    CHECK(w->count < SAMPLE_MAX);
    CHECK(chunk_append(&w->series, &w->source, t_ms, bits, &closed));
    CHECK(closed <= 1);
    w->t_ms[w->count] = t_ms;
    w->bits[w->count++] = bits;
    CHECK(w->series.newest_ms == t_ms && w->series.newest_bits == bits);
}

/* The tokens of samples by the page of the format alone, one after the other. */
struct plain_writer {
    uint8_t bytes[CHUNK_BYTES_MAX];
    size_t size, run_at; /* run_at: the run token that counts up, SIZE_MAX: none */
    int64_t step_ms, integer;
    unsigned scale;
};

static void plain_byte(struct plain_writer *p, uint64_t byte)
{
    CHECK(p->size < sizeof p->bytes && byte <= UINT8_MAX);
    p->bytes[p->size++] = (uint8_t)byte;
}

static size_t plain_length(uint64_t v, size_t at_least)
{
    size_t n = 1;

    while (n < 8 && v >> (8 * n) != 0)
        n++;
    return n < at_least ? at_least : n;
}

static void plain_le(struct plain_writer *p, uint64_t v, size_t size)
{
    for (size_t i = 0; i < size; i++)
        plain_byte(p, v >> (8 * i) & 0xff);
}

static uint64_t plain_zigzag(int64_t v)
{
    return v >= 0 ? (uint64_t)v * 2 : (uint64_t)(-(v + 1)) * 2 + 1;
}

static void plain_absolute(struct plain_writer *p, uint64_t bits)
{
    uint64_t u = 0;

    p->scale = chunk_scale_of(double_from_bits(bits));
    if (p->scale != CHUNK_SCALE_RAW) {
        CHECK(chunk_scale_exact(double_from_bits(bits), p->scale, &p->integer));
        u = plain_zigzag(p->integer);
    }
    if (p->scale == CHUNK_SCALE_RAW || u >> 56 != 0) {
        p->scale = CHUNK_SCALE_RAW;
        plain_byte(p, 0xf8);
        plain_le(p, bits, 8);
        return;
    }
    plain_byte(p, 0xe8 | p->scale);
    for (; u >= 0x80; u >>= 7)
        plain_byte(p, (u & 0x7f) | 0x80);
    plain_byte(p, u);
}

static void plain_value(struct plain_writer *p, uint64_t bits)
{
    int64_t integer = 0;

    if (p->scale == CHUNK_SCALE_RAW ||
        !chunk_scale_exact(double_from_bits(bits), p->scale, &integer)) {
        plain_absolute(p, bits);
        return;
    }
    uint64_t u = plain_zigzag(integer - p->integer);
    size_t size = plain_length(u, 3);

    p->integer = integer;
    if (u < 64) {
        plain_byte(p, 0x80 | u);
    } else if (u < 1 << 14) {
        plain_byte(p, 0x40 | u >> 8);
        plain_byte(p, u & 0xff);
    } else {
        plain_byte(p, 0xe0 | (size - 3));
        plain_le(p, u, size);
    }
}

static void plain_sample(struct plain_writer *p, int64_t step_ms, uint64_t bits, bool is_same)
{
    int64_t change = step_ms - p->step_ms;
    uint64_t u = plain_zigzag(change);

    if (is_same && change == 0 && p->run_at != SIZE_MAX && p->bytes[p->run_at] < 63) {
        p->bytes[p->run_at]++;
        return;
    }
    p->step_ms = step_ms;
    if (change >= -16 && change < 16 && change != 0) {
        plain_byte(p, 0xc0 | (uint64_t)(change + 16));
    } else if (change != 0) {
        plain_byte(p, 0xf0 | (plain_length(u, 1) - 1));
        plain_le(p, u, plain_length(u, 1));
    }
    p->run_at = is_same ? p->size : SIZE_MAX;
    if (is_same)
        plain_byte(p, 0);
    else
        plain_value(p, bits);
}

/* Every token stands where the plain writer puts it. */
static void check_tokens(const struct world *w, size_t first, size_t count, const uint8_t *tokens,
                         size_t size)
{
    struct plain_writer p = {.run_at = SIZE_MAX};

    plain_absolute(&p, w->bits[first]);
    for (size_t k = first + 1; k < first + count; k++)
        plain_sample(&p, w->t_ms[k] - w->t_ms[k - 1], w->bits[k], w->bits[k] == w->bits[k - 1]);
    CHECK(size == p.size && memcmp(tokens, p.bytes, size) == 0);
}

/* chunk_decode() as all decoders there are; they must agree on what is malformed, and on what
 * is not. The arrays have room for CHUNK_DECODE_ROOM. */
static bool decode(const uint8_t *tokens, size_t size, int64_t first_ms, size_t count,
                   int64_t t_ms[CHUNK_DECODE_ROOM], double value[CHUNK_DECODE_ROOM])
{
    bool ok;

    memset(t_ms, 0x5a, CHUNK_DECODE_ROOM * sizeof *t_ms);
    memset(value, 0x5a, CHUNK_DECODE_ROOM * sizeof *value);
    ok = chunk_decode_portable(tokens, size, first_ms, count, t_ms, value);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        /* In the heap, so that ASan sees a step too far. */
        int64_t *other_t_ms = malloc((count + CHUNK_DECODE_SLACK) * sizeof *other_t_ms);
        double *other_value = malloc((count + CHUNK_DECODE_SLACK) * sizeof *other_value);

        CHECK(other_t_ms != NULL && other_value != NULL);
        CHECK(chunk_decode_avx2(tokens, size, first_ms, count, other_t_ms, other_value) == ok);
        CHECK(!ok || memcmp(t_ms, other_t_ms, count * sizeof *t_ms) == 0);
        CHECK(!ok || memcmp(value, other_value, count * sizeof *value) == 0);
        free(other_t_ms);
        free(other_value);
    }
#endif
    return ok;
}

static size_t check_chunk(const struct world *w, size_t end, const uint8_t *tokens, size_t size,
                          int64_t first_ms, size_t count)
{
    int64_t t_ms[CHUNK_DECODE_ROOM];
    double value[CHUNK_DECODE_ROOM];

    CHECK(count > 0 && count <= CHUNK_SAMPLE_MAX && count <= end);
    CHECK(decode(tokens, size, first_ms, count, t_ms, value));
    for (size_t i = 0; i < count; i++) {
        size_t k = end - count + i;

        CHECK_MSG(t_ms[i] == w->t_ms[k], "sample %zu", k);
        CHECK_MSG(double_bits(value[i]) == w->bits[k], "sample %zu", k);
        CHECK(t_ms[i] - first_ms < CHUNK_SPAN_MAX_MS);
    }
    check_tokens(w, end - count, count, tokens, size);
    return end - count;
}

/* Decodes everything, newest chunk first, and compares it with the plain arrays. */
static void world_check(const struct world *w)
{
    uint8_t tokens[CHUNK_TOKENS_ROOM] = {0};
    size_t end = w->count;
    const struct series *s = &w->series;

    if (s->open_count > 0) {
        size_t size = chunk_gather_open(&w->pool, s, tokens);

        end = check_chunk(w, end, tokens, size, s->open_first_ms, s->open_count);
    }
    for (uint32_t n = s->closed; n != 0;) {
        const struct chunk_descriptor *d = chunk_descriptor_at(&w->pool, n);

        CHECK(chunk_gather(&w->pool, d->head, d->size_bytes, tokens) == d->size_bytes);
        CHECK(d->max_time_ms == w->t_ms[end - 1]);
        end = check_chunk(w, end, tokens, d->size_bytes, d->min_time_ms, d->sample_count);
        n = d->older;
    }
    CHECK(end == 0);
    if (w->count > 0)
        CHECK(series_oldest_window_ms(s) <= w->t_ms[0] &&
              w->t_ms[0] - series_oldest_window_ms(s) < CHUNK_WINDOW_MS);
}

static const uint64_t hostile[] = {
    0x0000000000000000U, 0x8000000000000000U, /* 0, -0 */
    0x7ff0000000000000U, 0xfff0000000000000U, /* infinities */
    0x7ff8000000000000U, 0x7ff8000000000001U, /* quiet NaN, Prometheus's normal NaN */
    0x7ff0000000000002U,                      /* the staleness marker: a signalling NaN */
    0xffffffffffffffffU, 0x7ff4dead0000beefU, /* more NaN payloads */
    0x0000000000000001U, 0x800fffffffffffffU, /* denormals */
    0x7fefffffffffffffU, 0xffefffffffffffffU, /* largest */
    0x3ff0000000000000U, 0xbff0000000000000U, /* 1, -1 */
    0x3fb999999999999aU, 0x3fb9999999999999U, /* 0.1 and its neighbour */
    0x4340000000000000U, 0x4340000000000001U, /* 2^53 and above */
    0x43c0000000000000U, 0xc3c0000000000000U, /* +-2^61, the limit of integers */
    0x43c0000000000001U, 0x43e0000000000000U, /* above it, 2^63 */
    0x4320000000000000U, 0x432fffffffffffffU, /* 2^51, the limit of scaled ones */
};

static uint64_t random_value(struct test_random *r, uint64_t before)
{
    double v = double_from_bits(before);

    switch (test_random_below(r, 12)) {
    case 0:
    case 1:
        return before;
    case 2:
        return hostile[test_random_below(r, sizeof hostile / sizeof hostile[0])];
    case 3:
        return test_random_u64(r);
    case 4:
        return double_bits((double)(int64_t)test_random_u64(r));
    case 5:
        return double_bits((double)test_random_below(r, 1000000) / 1e6);
    case 6:
        return double_bits((double)(int64_t)test_random_wide(r, 63) / 1e2);
    case 7:
        return double_bits((double)(int64_t)test_random_wide(r, 63) / 1e3);
    case 8:
        return double_bits((isfinite(v) ? v : 0) + (double)test_random_below(r, 60) - 30);
    case 9:
        return double_bits(round((isfinite(v) ? v : 0) * 100 + (double)test_random_below(r, 3000)) /
                           100);
    case 10:
        return before ^ (uint64_t)1 << test_random_below(r, 64);
    default:
        return double_bits((double)test_random_below(r, (uint64_t)1 << test_random_below(r, 62)));
    }
}

static int64_t random_step(struct test_random *r, int64_t usual)
{
    switch (test_random_below(r, 10)) {
    case 0:
        return 1 + (int64_t)test_random_below(r, 100);
    case 1:
        return usual + (int64_t)test_random_below(r, 40) - 20 > 0
                   ? usual + (int64_t)test_random_below(r, 11) - 5
                   : 1;
    case 2:
        return 1 + (int64_t)test_random_below(r, (uint64_t)1 << test_random_below(r, 36));
    default:
        return usual;
    }
}

static void test_random_streams(void **state)
{
    struct test_random r = test_random_init(20260801);
    struct world *w = malloc(sizeof *w);

    (void)state;
    CHECK(w != NULL);
    for (int round = 0; round < 300; round++) {
        int64_t t = (int64_t)test_random_below(&r, (uint64_t)1 << 46) - ((int64_t)1 << 45);
        uint64_t bits = test_random_below(&r, 2) ? 0 : test_random_u64(&r);
        size_t count = 1 + test_random_below(&r, round % 50 == 0 ? SAMPLE_MAX - 1 : 400);
        int64_t usual = 1 + (int64_t)test_random_below(&r, 60000);

        world_init(w);
        for (size_t i = 0; i < count; i++) {
            bits = random_value(&r, bits);
            world_add(w, t, bits);
            t += random_step(&r, usual);
            if (t > CHUNK_TIME_MAX_MS)
                break;
            if (i % 97 == 0)
                world_check(w);
        }
        world_check(w);
        world_done(w);
    }
    free(w);
}

/* Differences of one size for long, as counters and gauges have them, with a few others
 * between. */
static void test_even_streams(void **state)
{
    static const double scales[] = {1, 1e2, 1e3, 1e6};
    static const uint64_t sizes[] = {30, 60, 3000, 16000};
    struct test_random r = test_random_init(20260802);
    struct world *w = malloc(sizeof *w);

    (void)state;
    CHECK(w != NULL);
    for (int round = 0; round < 600; round++) {
        double scale = scales[test_random_below(&r, 4)];
        uint64_t size = sizes[test_random_below(&r, 4)];
        uint64_t odd_one_in = 2 + test_random_below(&r, 60);
        size_t count = 1 + test_random_below(&r, 300);
        int64_t t = (int64_t)test_random_below(&r, 1000000), integer = 1000000;

        world_init(w);
        for (size_t i = 0; i < count; i++) {
            bool is_odd = test_random_below(&r, odd_one_in) == 0;

            integer += (int64_t)test_random_below(&r, is_odd ? 5000 : size) - (int64_t)(size / 2);
            t += is_odd && i % 2 == 0 ? 15001 : 15000;
            world_add(w, t, double_bits((double)integer / scale));
        }
        world_check(w);
        world_done(w);
    }
    free(w);
}

/* Values that stay for any number of samples, also beyond what a token counts and across
 * blocks. */
static void test_runs(void **state)
{
    struct test_random r = test_random_init(20260803);
    struct world *w = malloc(sizeof *w);

    (void)state;
    CHECK(w != NULL);
    for (int round = 0; round < 400; round++) {
        int64_t t = (int64_t)test_random_below(&r, 1000000);
        uint64_t bits = 0;

        world_init(w);
        for (size_t run = 1 + test_random_below(&r, 12); run > 0; run--) {
            size_t length = 1 + test_random_below(&r, test_random_below(&r, 4) ? 6 : 150);

            bits = random_value(&r, bits);
            for (; length > 0; length--) {
                t += test_random_below(&r, 40) == 0 ? 15007 : 15000;
                world_add(w, t, bits);
            }
            if (test_random_below(&r, 8) == 0)
                CHECK(chunk_cut(&w->series, &w->source));
            world_check(w);
        }
        world_done(w);
    }
    free(w);
}

static void test_every_hostile_pair(void **state)
{
    size_t n = sizeof hostile / sizeof hostile[0];
    struct world *w = malloc(sizeof *w);

    (void)state;
    CHECK(w != NULL);
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            world_init(w);
            for (int i = 0; i < 8; i++)
                world_add(w, (int64_t)15000 * i, hostile[i % 3 == 0 ? a : b]);
            world_check(w);
            world_done(w);
        }
    }
    free(w);
}

static void test_cuts(void **state)
{
    struct world *w = malloc(sizeof *w);

    (void)state;
    CHECK(w != NULL);
    world_init(w);
    for (int i = 0; i < CHUNK_SAMPLE_MAX; i++)
        world_add(w, (int64_t)1000 * i, double_bits(i));
    CHECK(w->series.closed == 0 && w->series.open_count == CHUNK_SAMPLE_MAX);
    world_add(w, (int64_t)1000 * CHUNK_SAMPLE_MAX, 0);
    CHECK(w->series.closed != 0 && w->series.open_count == 1);
    /* Borders of windows do not matter, the time since the first sample does. */
    world_add(w, CHUNK_WINDOW_MS - 1, 0);
    CHECK(w->series.open_count == 2);
    world_add(w, CHUNK_WINDOW_MS, 0);
    CHECK(w->series.open_count == 3);
    world_add(w, (int64_t)1000 * CHUNK_SAMPLE_MAX + CHUNK_SPAN_MAX_MS - 1, 0);
    CHECK(w->series.open_count == 4);
    world_add(w, (int64_t)1000 * CHUNK_SAMPLE_MAX + CHUNK_SPAN_MAX_MS, 0);
    CHECK(w->series.open_count == 1);
    world_check(w);
    world_done(w);
    /* Windows before the epoch round downwards. */
    world_init(w);
    world_add(w, -1, 0);
    world_add(w, 0, 0);
    CHECK(w->series.open_count == 2 && chunk_window(-1) + 1 == chunk_window(0));
    world_check(w);
    world_done(w);
    world_init(w);
    world_add(w, CHUNK_TIME_MIN_MS, 5);
    world_add(w, CHUNK_TIME_MAX_MS, 5);
    world_check(w);
    world_done(w);
    free(w);
}

/* What the budget of memory stands on: 20 samples of a constant series in one block. */
static void test_sizes(void **state)
{
    struct world *w = malloc(sizeof *w);
    uint8_t tokens[CHUNK_TOKENS_ROOM] = {0};

    (void)state;
    CHECK(w != NULL);
    world_init(w);
    for (int i = 0; i < 20; i++)
        world_add(w, 1767225600000 + (int64_t)15000 * i, double_bits(80.0 * 1024 * 1024 * 1024));
    CHECK(chunk_gather_open(&w->pool, &w->series, tokens) <= CHUNK_BLOCK_PAYLOAD);
    world_done(w);
    world_init(w);
    for (int i = 0; i < 20; i++)
        world_add(w, 1767225600000 + (int64_t)15000 * i, double_bits(123456.78 + 13.37 * i));
    CHECK(chunk_gather_open(&w->pool, &w->series, tokens) > CHUNK_BLOCK_PAYLOAD);
    world_done(w);
    world_init(w);
    for (int i = 0; i < 20; i++) /* centiseconds: two bytes each */
        world_add(w, 1767225600000 + (int64_t)15000 * i,
                  double_bits((12345678 + 1337 * i) / 100.0));
    CHECK(chunk_gather_open(&w->pool, &w->series, tokens) <= (size_t)2 * CHUNK_BLOCK_PAYLOAD);
    world_check(w);
    world_done(w);
    free(w);
}

/* Damaged tokens end in false or in some samples, never outside the buffers (ASan watches). */
static void test_damage(void **state)
{
    struct test_random r = test_random_init(77);
    struct world *w = malloc(sizeof *w);
    int64_t t_ms[CHUNK_DECODE_ROOM];
    double value[CHUNK_DECODE_ROOM];
    uint8_t tokens[CHUNK_TOKENS_ROOM] = {0};

    (void)state;
    CHECK(w != NULL);
    for (int round = 0; round < 200; round++) {
        uint64_t bits = 0;
        int64_t t = 0;

        world_init(w);
        for (size_t i = 0; i < CHUNK_SAMPLE_MAX; i++, t += random_step(&r, 1000) % 50000 + 1) {
            bits = random_value(&r, bits);
            if (t >= CHUNK_SPAN_MAX_MS)
                break;
            world_add(w, t, bits);
        }
        size_t size = chunk_gather_open(&w->pool, &w->series, tokens);
        size_t count = w->series.open_count;
        for (size_t cut = 0; cut < size; cut++) {
            /* So that ASan sees a read too far. */
            uint8_t *exact = malloc(cut + CHUNK_TOKENS_SLACK);

            CHECK(exact != NULL);
            memcpy(exact, tokens, cut);
            memset(exact + cut, (int)test_random_below(&r, 256), CHUNK_TOKENS_SLACK);
            CHECK(!decode(exact, cut, 0, count, t_ms, value));
            free(exact);
        }
        for (int flip = 0; flip < 50; flip++) {
            size_t bit = test_random_below(&r, size * 8);

            tokens[bit / 8] ^= (uint8_t)(1 << bit % 8);
            bool ignored = decode(tokens, size, 0, count, t_ms, value);
            (void)ignored;
            tokens[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        world_done(w);
    }
    free(w);
}

/* Tokens that no writer makes, of all kinds and with all lengths at the end: whatever comes of
 * them, it must be the same from all decoders. */
static void test_random_tokens(void **state)
{
    struct test_random r = test_random_init(20260803);
    int64_t t_ms[CHUNK_DECODE_ROOM];
    double value[CHUNK_DECODE_ROOM];
    uint8_t tokens[CHUNK_TOKENS_ROOM] = {0};
    size_t good = 0;

    (void)state;
    for (int round = 0; round < 12000; round++) {
        /* First byte, how many more there are of it, bytes behind. */
        static const uint8_t classes[][3] = {{0x00, 0x01, 0}, {0x00, 0x04, 0}, {0x00, 0x40, 0},
                                             {0x40, 0x40, 1}, {0x80, 0x40, 0}, {0xc0, 0x20, 0},
                                             {0xe0, 0x01, 3}, {0xe0, 0x06, 0}, {0xe8, 0x04, 0},
                                             {0xf0, 0x04, 0}, {0xf8, 0x01, 8}, {0x00, 0xff, 0}};
        const size_t class_count = sizeof classes / sizeof classes[0];
        uint32_t mix = (uint32_t)test_random_u64(&r) | 1U << test_random_below(&r, class_count);
        size_t size = 0, size_max = 1 + test_random_below(&r, 260);
        int64_t first_ms = (int64_t)test_random_below(&r, (uint64_t)1 << 48);

        if (round % 4 != 0) /* few kinds go far */
            mix &= (uint32_t)(test_random_u64(&r) >> 32 & test_random_u64(&r)) & 0x3f;
        mix |= mix == 0;
        tokens[size++] = (uint8_t)(TOKEN_ABSOLUTE | test_random_below(&r, 4));
        tokens[size++] = (uint8_t)test_random_below(&r, 128);
        while (size < size_max) {
            size_t class = test_random_below(&r, class_count);

            if ((mix >> class & 1) == 0)
                continue;
            tokens[size++] =
                (uint8_t)(classes[class][0] + test_random_below(&r, classes[class][1]));
            for (size_t bytes = classes[class][2]; bytes > 0; bytes--)
                tokens[size++] = (uint8_t)test_random_u64(&r);
        }
        for (size_t count = 1; count <= CHUNK_SAMPLE_MAX; count++)
            good += decode(tokens, size, first_ms, count, t_ms, value);
    }
    CHECK_MSG(good > 2000, "only %zu", good);
}

/* The decoder's way around a division, over integers of all sizes. */
static void test_division(void **state)
{
    struct test_random r = test_random_init(20260804);
    int64_t t_ms[CHUNK_DECODE_ROOM];
    double value[CHUNK_DECODE_ROOM];
    uint8_t tokens[CHUNK_TOKENS_ROOM] = {0};

    (void)state;
    for (int round = 0; round < 40000; round++) {
        unsigned scale = (unsigned)test_random_below(&r, CHUNK_SCALE_COUNT);
        int64_t integer = (int64_t)test_random_wide(&r, 1 + (unsigned)test_random_below(&r, 62));
        size_t size = 0;

        tokens[size++] = (uint8_t)(TOKEN_ABSOLUTE | scale);
        size += varint_write(tokens + size, zigzag_encode(integer));
        for (int i = 0; i < 60; i++) {
            uint64_t zigzag = test_random_below(&r, 1 << 14);

            tokens[size++] = (uint8_t)(TOKEN_DIFF14 | zigzag >> 8);
            tokens[size++] = (uint8_t)zigzag;
        }
        CHECK(decode(tokens, size, 0, 61, t_ms, value));
    }
}

static void test_memory_refused(void **state)
{
    struct budget budget;
    struct slab slab;
    struct chunk_pool pool;
    struct chunk_source source = {.pool = &pool};
    struct series s;
    uint32_t closed = 0;

    (void)state;
    budget_init(&budget, "test", SLAB_REGION_BYTES - 1, NULL);
    slab_init(&slab, &budget);
    CHECK(chunk_pool_init(&pool, &slab) == ERR_OK);
    series_init(&s, (struct hash128){0, 0}, 0);
    CHECK(!chunk_append(&s, &source, 1, 1, &closed));
    CHECK(s.newest_ms == INT64_MIN && s.open_count == 0);
    CHECK(budget_used(&budget) == 0);
    chunk_pool_done(&pool);
    slab_done(&slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_streams), cmocka_unit_test(test_even_streams),
        cmocka_unit_test(test_runs),           cmocka_unit_test(test_every_hostile_pair),
        cmocka_unit_test(test_cuts),           cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_random_tokens),
        cmocka_unit_test(test_division),       cmocka_unit_test(test_memory_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
