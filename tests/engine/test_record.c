/* Log records: round trips, damage, and the sizes the log's budget stands on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log/record_internal.h"
#include "engine/memtable/chunk_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { ENTRY_MAX = 5000 };

/* A chain of segments of irregular fill, as a queue may leave them. */
struct chain {
    struct log_segment *first, *last;
    size_t count;
};

static void chain_add(struct chain *c, struct log_entry e, uint32_t fill_max)
{
    if (c->last == NULL || c->last->count >= fill_max) {
        struct log_segment *seg = calloc(1, sizeof *seg);

        CHECK(seg != NULL);
        if (c->last == NULL)
            c->first = seg;
        else
            c->last->next = seg;
        c->last = seg;
    }
    c->last->items[c->last->count++] = e;
    c->count++;
}

static void chain_done(struct chain *c)
{
    for (struct log_segment *seg = c->first; seg != NULL;) {
        struct log_segment *next = seg->next;

        free(seg);
        seg = next;
    }
}

static uint8_t scale_of(double v, struct test_random *r)
{
    int64_t i;
    unsigned start = (unsigned)test_random_below(r, 2) * 2;

    for (unsigned scale = start; scale < CHUNK_SCALE_COUNT; scale++)
        if (chunk_scale_exact(v, scale, &i))
            return (uint8_t)scale;
    return CHUNK_SCALE_RAW;
}

static uint64_t random_bits(struct test_random *r)
{
    switch (test_random_below(r, 6)) {
    case 0:
        return double_bits((double)test_random_below(r, 70));
    case 1:
        return test_random_u64(r);
    case 2:
        return double_bits(-(double)test_random_below(r, 1000000) / 100);
    case 3:
        return double_bits((double)test_random_below(r, 1000000) / 1e6);
    case 4:
        return double_bits((double)(int64_t)test_random_wide(r, 63));
    default:
        return 0x8000000000000000U; /* -0 */
    }
}

static void random_chain(struct test_random *r, struct chain *c, size_t count)
{
    struct log_entry e = {.slot = (uint32_t)test_random_u64(r)};
    uint32_t fill = 1 + (uint32_t)test_random_below(r, LOG_SEGMENT_ENTRIES);

    for (size_t i = 0; i < count; i++) {
        uint64_t move = test_random_below(r, 8);

        if (move == 0)
            e.slot = (uint32_t)test_random_u64(r);
        else if (move < 6)
            e.slot++;
        if (test_random_below(r, 50) == 0)
            e.generation = (uint16_t)test_random_u64(r);
        if (test_random_below(r, 20) == 0)
            e.t_ms = (int64_t)test_random_u64(r);
        e.bits = random_bits(r);
        e.scale = scale_of(double_from_bits(e.bits), r);
        chain_add(c, e, fill);
    }
}

static struct bytes one_body(struct bytes payload, enum record_type type)
{
    struct byte_reader in = reader_init(payload.data, payload.size);
    struct record record;

    CHECK(record_next(&in, &record) && record.type == type);
    CHECK(reader_left(&in) == 0);
    return record.body;
}

static void check_same(const struct chain *c, const struct log_entry *got)
{
    size_t k = 0;

    for (const struct log_segment *seg = c->first; seg != NULL; seg = seg->next) {
        for (uint32_t i = 0; i < seg->count; i++, k++) {
            CHECK_MSG(got[k].slot == seg->items[i].slot, "entry %zu", k);
            CHECK_MSG(got[k].generation == seg->items[i].generation, "entry %zu", k);
            CHECK_MSG(got[k].t_ms == seg->items[i].t_ms, "entry %zu", k);
            CHECK_MSG(got[k].bits == seg->items[i].bits, "entry %zu", k);
        }
    }
    CHECK(k == c->count);
}

static void test_samples_round_trip(void **state)
{
    struct test_random r = test_random_init(5);
    struct log_entry *got = calloc(ENTRY_MAX, sizeof *got);

    (void)state;
    CHECK(got != NULL);
    for (int round = 0; round < 200; round++) {
        struct chain c = {0};
        enum record_type type = round % 2 == 0 ? RECORD_SAMPLES : RECORD_LATE;
        struct byte_writer w;
        size_t count = 0;

        writer_init(&w);
        random_chain(&r, &c, 1 + test_random_below(&r, round % 10 == 0 ? ENTRY_MAX - 1 : 60));
        record_samples_write(&w, type, c.first);
        CHECK(!w.failed);
        struct bytes body = one_body((struct bytes){w.data, w.size}, type);
        CHECK(record_samples_count(body, &count) && count == c.count);
        CHECK(record_samples_read(&(struct record){(uint8_t)type, body}, got, count));
        check_same(&c, got);
        writer_done(&w);
        chain_done(&c);
    }
    free(got);
}

static bool samples_read_all(enum record_type type, struct bytes body)
{
    const struct record record = {(uint8_t)type, body};
    size_t count = 0;
    struct log_entry *got;
    bool ok;

    if (!record_samples_count(body, &count))
        return false;
    CHECK(count <= body.size);
    got = calloc(count + 1, sizeof *got);
    CHECK(got != NULL);
    ok = record_samples_read(&record, got, count);
    free(got);
    return ok;
}

static void test_samples_damage(void **state)
{
    struct test_random r = test_random_init(6);

    (void)state;
    for (int round = 0; round < 60; round++) {
        struct chain c = {0};
        struct byte_writer w;

        writer_init(&w);
        random_chain(&r, &c, 1 + test_random_below(&r, 100));
        record_samples_write(&w, RECORD_LATE, c.first);
        for (size_t cut = 0; cut < w.size - RECORD_HEADER_BYTES; cut++) {
            uint8_t *exact = malloc(cut + 1); /* so that ASan sees a read too far */

            CHECK(exact != NULL);
            memcpy(exact + 1, w.data + RECORD_HEADER_BYTES, cut);
            CHECK(!samples_read_all(RECORD_LATE, (struct bytes){exact + 1, cut}));
            free(exact);
        }
        for (size_t bit = 0; bit < w.size * 8; bit++) {
            struct byte_reader in = reader_init(w.data, w.size);
            struct record record;

            w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            while (record_next(&in, &record))
                if (record.type == RECORD_LATE)
                    (void)samples_read_all(RECORD_LATE, record.body);
            w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        writer_done(&w);
        chain_done(&c);
    }
}

/* Floats with histograms among them: here any bytes, which the record does not look into. */

enum { MIXED_BYTES = 1 << 16 };

static void mixed_chain(struct test_random *r, struct chain *c, size_t count, uint8_t *bytes)
{
    struct log_segment *seg;
    size_t at = 0;

    random_chain(r, c, count);
    for (seg = c->first; seg != NULL; seg = seg->next) {
        for (uint32_t i = 0; i < seg->count; i++) {
            size_t size = test_random_below(r, 300);
            struct log_entry *e = &seg->items[i];

            if (test_random_below(r, 3) > 0 || at + size + 10 > MIXED_BYTES)
                continue;
            e->scale = RECORD_SCALE_HISTOGRAM;
            e->bits = (uintptr_t)(bytes + at);
            at += varint_write(bytes + at, size);
            for (size_t k = 0; k < size; k++)
                bytes[at++] = (uint8_t)test_random_u64(r);
        }
    }
}

static void check_mixed(const struct chain *c, const struct log_entry *got)
{
    size_t k = 0;

    for (const struct log_segment *seg = c->first; seg != NULL; seg = seg->next) {
        for (uint32_t i = 0; i < seg->count; i++, k++) {
            const struct log_entry *e = &seg->items[i];
            bool is_histogram = record_entry_is_histogram(e);

            CHECK(got[k].slot == e->slot && got[k].generation == e->generation);
            CHECK(got[k].t_ms == e->t_ms && !got[k].is_late);
            CHECK(record_entry_is_histogram(&got[k]) == is_histogram);
            if (!is_histogram) {
                CHECK(got[k].bits == e->bits && got[k].scale == 0);
                continue;
            }
            struct bytes a = record_entry_histogram(e), b = record_entry_histogram(&got[k]);
            CHECK(a.size == b.size && memcmp(a.data, b.data, a.size) == 0);
        }
    }
    CHECK(k == c->count);
}

static void mixed_damage(struct byte_writer *w, enum record_type type)
{
    for (size_t cut = 0; cut < w->size - RECORD_HEADER_BYTES; cut++) {
        uint8_t *exact = malloc(cut + 1); /* so that ASan sees a read too far */

        CHECK(exact != NULL);
        memcpy(exact + 1, w->data + RECORD_HEADER_BYTES, cut);
        CHECK(!samples_read_all(type, (struct bytes){exact + 1, cut}));
        free(exact);
    }
    for (size_t bit = (size_t)RECORD_HEADER_BYTES * 8; bit < w->size * 8; bit++) {
        w->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        (void)samples_read_all(
            type, (struct bytes){w->data + RECORD_HEADER_BYTES, w->size - RECORD_HEADER_BYTES});
        w->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void test_mixed(void **state)
{
    struct test_random r = test_random_init(7);
    struct log_entry *got = calloc(ENTRY_MAX, sizeof *got);
    uint8_t *bytes = malloc(MIXED_BYTES);

    (void)state;
    CHECK(got != NULL && bytes != NULL);
    for (int round = 0; round < 100; round++) {
        enum record_type type = round % 2 == 0 ? RECORD_MIXED : RECORD_LATE_MIXED;
        struct record record = {.type = (uint8_t)type};
        struct chain c = {0};
        struct byte_writer w;
        size_t count = 0;

        writer_init(&w);
        mixed_chain(&r, &c, 1 + test_random_below(&r, round < 90 ? 20 : ENTRY_MAX - 1), bytes);
        record_samples_write(&w, type, c.first);
        CHECK(!w.failed);
        record.body = one_body((struct bytes){w.data, w.size}, type);
        CHECK(record_samples_count(record.body, &count) && count == c.count);
        CHECK(record_samples_read(&record, got, count));
        check_mixed(&c, got);
        /* Where no histogram may be, its tag is damage. */
        record.type = (uint8_t)(type - RECORD_MIXED + RECORD_SAMPLES);
        bool any = false;
        for (size_t i = 0; i < count; i++)
            any |= record_entry_is_histogram(&got[i]);
        CHECK(record_samples_read(&record, got, count) == !any);
        if (round < 20)
            mixed_damage(&w, type);
        writer_done(&w);
        chain_done(&c);
    }
    free(bytes);
    free(got);
}

enum { DEFINITION_COUNT = 60, LABELS_MAX = 300 };

/* Labels that share beginnings and ends with those before them, or nothing. */
static struct bytes random_labels(struct test_random *r, uint8_t *out, struct bytes before)
{
    size_t size = test_random_below(r, LABELS_MAX), keep = test_random_below(r, 3);

    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)test_random_below(r, 3);
    if (keep > 0 && before.size > 0) {
        size = before.size;
        memcpy(out, before.data, size);
        for (size_t i = test_random_below(r, size); keep == 2 && i < size; i += 40)
            out[i] = (uint8_t)test_random_u64(r);
    }
    return (struct bytes){out, size};
}

static bool definitions_read(struct bytes body, struct definition *out, uint32_t max,
                             struct arena *arena)
{
    struct byte_reader reader;
    struct definition last = {0};
    uint32_t count = 0;
    bool ok = record_series_open(body, &reader, &count) && count <= max;

    for (uint32_t i = 0; ok && i < count; i++) {
        ok = record_series_next(&reader, &last, arena, &out[i]);
        last = out[i];
    }
    return ok && reader_left(&reader) == 0;
}

static void test_definitions(void **state)
{
    static uint8_t labels[DEFINITION_COUNT][LABELS_MAX];
    static uint8_t buffer[DEFINITION_COUNT * (LABELS_MAX + 23)];
    struct test_random r = test_random_init(8);
    struct definition in[DEFINITION_COUNT], out[DEFINITION_COUNT], last = {0};
    struct byte_writer w;
    struct arena arena;
    size_t size = 0;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < DEFINITION_COUNT; i++) {
        size_t added;
        uint32_t slot = (uint32_t)test_random_u64(&r);
        uint16_t generation = (uint16_t)test_random_u64(&r);

        in[i] = (struct definition){slot, generation, random_labels(&r, labels[i], last.labels)};
        added = definition_write(buffer + size, &in[i], &last);
        CHECK(added <= definition_size_max(in[i].labels.size));
        size += added;
        last = in[i];
    }
    writer_init(&w);
    record_series_write(&w, (struct bytes){buffer, size}, DEFINITION_COUNT);
    struct bytes body = one_body((struct bytes){w.data, w.size}, RECORD_SERIES);
    CHECK(definitions_read(body, out, DEFINITION_COUNT, &arena));
    for (size_t i = 0; i < DEFINITION_COUNT; i++) {
        CHECK(out[i].slot == in[i].slot && out[i].generation == in[i].generation);
        CHECK(out[i].labels.size == in[i].labels.size);
        CHECK(memcmp(out[i].labels.data, labels[i], out[i].labels.size) == 0);
    }
    for (size_t cut = 0; cut < body.size; cut++)
        CHECK(!definitions_read((struct bytes){body.data, cut}, out, DEFINITION_COUNT, &arena));
    for (size_t bit = 0; bit < body.size * 8; bit += 3) {
        w.data[RECORD_HEADER_BYTES + bit / 8] ^= (uint8_t)(1 << bit % 8);
        (void)definitions_read(body, out, DEFINITION_COUNT, &arena); /* ASan watches */
        w.data[RECORD_HEADER_BYTES + bit / 8] ^= (uint8_t)(1 << bit % 8);
        arena_reset(&arena);
    }
    arena_done(&arena);
    writer_done(&w);
}

/* Neighbouring series differ in little, and little is written. */
static void test_definition_sizes(void **state)
{
    struct definition d = {77, 0, {(const uint8_t *)"\010__name__\006metric\003job\001a", 22}};
    struct definition last = {76, 0, {(const uint8_t *)"\010__name__\006metriC\003job\001a", 22}};
    const struct definition none = {0};
    uint8_t out[64];

    (void)state;
    CHECK(definition_write(out, &d, &last) == 6); /* slot, generation, two lengths, size, a byte */
    CHECK(definition_write(out, &d, &d) == 5);
    CHECK(definition_write(out, &d, &none) == 28);
}

/* A reader steps over records of types it does not know. */
static void test_unknown_type(void **state)
{
    const uint8_t payload[] = {200, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 1,
                               0,   0, 0, 4, 0, 0, 0, 0, 0, 0, 0};
    struct byte_reader in = reader_init(payload, sizeof payload);
    struct record record;

    (void)state;
    CHECK(record_next(&in, &record) && record.type == 200 && record.body.size == 3);
    CHECK(record_next(&in, &record) && record.type == RECORD_SERIES && record.body.size == 4);
    CHECK(!record_next(&in, &record) && !in.failed);
    in = reader_init(payload, 7);
    CHECK(!record_next(&in, &record) && in.failed);
    in = reader_init(payload, 10);
    CHECK(!record_next(&in, &record) && in.failed);
}

/* Neighbouring series of one scrape: refs and times cost nothing, small constants one tag byte. */
static void test_sizes(void **state)
{
    struct chain c = {0};
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    for (uint32_t i = 0; i < 512; i++)
        chain_add(
            &c,
            (struct log_entry){.slot = 1000 + i, .t_ms = 1767225600000, .bits = double_bits(i % 2)},
            1024);
    record_samples_write(&w, RECORD_SAMPLES, c.first);
    CHECK(w.size < 512 + 40);
    chain_done(&c);
    writer_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_round_trip),
        cmocka_unit_test(test_samples_damage),
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_definition_sizes),
        cmocka_unit_test(test_unknown_type),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_mixed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
