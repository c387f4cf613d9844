/*
 * Parts against the list they were written from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"
#include "tests/engine/index_twin.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

static const struct kit_shape shapes[] = {
    {.series_count = 1, .spread = 1, .samples_max = 1, .chunks_max = 1},
    {.series_count = 40, .spread = 3, .samples_max = 20, .chunks_max = 3},
    {.series_count = 2500, .spread = 400, .samples_max = 30, .chunks_max = 4},
    {.series_count = 700, .spread = 20, .samples_max = 480, .chunks_max = 2},
    {.series_count = 100,
     .spread = 20,
     .samples_max = 100,
     .chunks_max = 4,
     .has_histograms = true},
};

/* Opens what was written and checks the footer. */
static struct part *write_and_open(struct kit_store *k, const char *dir, const struct kit_model *m)
{
    struct part_info info;
    struct errinfo ei = {0};
    struct part *p;

    CHECK_OK(kit_write(k->store, dir, m, 0, &info, &ei), &ei);
    CHECK_OK(part_open(k->store, dir, &kit_key, &p, &ei), &ei);
    CHECK(part_key_equal(&part_info(p)->key, &info.key) && part_info(p)->id == info.id);
    CHECK(part_info(p)->min_time_ms == info.min_time_ms);
    CHECK(part_info(p)->max_time_ms == info.max_time_ms);
    CHECK(part_info(p)->highest_sequence == info.highest_sequence);
    CHECK(part_info(p)->sample_count == info.sample_count);
    CHECK(part_info(p)->chunk_count == info.chunk_count);
    CHECK(part_info(p)->index_size == info.index_size);
    CHECK(part_info(p)->chunks_size == info.chunks_size);
    CHECK(part_info(p)->series_count == info.series_count);
    CHECK(part_info(p)->entity_count == info.entity_count);
    CHECK(part_info(p)->times_count == info.times_count);
    CHECK(info.series_count == m->count && info.highest_sequence == 77);
    return p;
}

static void test_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct test_random r = test_random_init(100 + i);
        struct kit_model m;
        struct kit_store k;
        struct part_info info;
        struct errinfo ei = {0};
        struct part *p;

        kit_model_init(&m, &r, shapes[i]);
        /* Without a cache, with a tiny one, with enough. */
        kit_store_init(&k, i, i == 1 ? 0 : i == 2 ? 1 << 20 : 64 << 20);
        p = write_and_open(&k, "", &m);
        kit_check_all(p, &m);
        kit_check_all(p, &m);
        part_close(p);
        CHECK_OK(part_verify(k.store, "", &kit_key, NULL, &info, &ei), &ei);
        kit_store_done(&k);
        kit_model_done(&m);
    }
}

static void test_no_series(void **state)
{
    struct kit_model m = {.count = 0};
    struct kit_store k;
    struct part_info info;
    struct errinfo ei = {0};
    struct arena arena;
    struct hash128 print = {1, 2};
    uint32_t *all, found = 0;
    size_t count = 1;
    struct part *p;

    (void)state;
    kit_store_init(&k, 1, 1 << 20);
    arena_init(&arena, NULL);
    CHECK_OK(fs_mkdir(k.fs, "parts", &ei), &ei);
    p = write_and_open(&k, "parts", &m);
    CHECK_OK(part_select(p, NULL, 0, NULL, &arena, &all, &count, &ei), &ei);
    CHECK(count == 0);
    CHECK_OK(part_find(p, &print, 1, &found, &ei), &ei);
    CHECK(found == PART_NO_SERIES);
    part_close(p);
    CHECK_OK(part_verify(k.store, "parts", &kit_key, NULL, &info, &ei), &ei);
    arena_done(&arena);
    kit_store_done(&k);
}

/* ---- selection ---- */

static void check_select(struct part *p, const struct kit_model *m, struct test_random *r)
{
    struct twin_matcher matchers[TWIN_MATCHERS_MAX];
    struct matcher plain[TWIN_MATCHERS_MAX];
    size_t count = 1 + test_random_below(r, TWIN_MATCHERS_MAX), found_count, at = 0;
    struct errinfo ei = {0};
    struct arena arena;
    uint32_t *found;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < count; i++) {
        twin_matcher_random(r, &arena, 300, &matchers[i]);
        plain[i] = matchers[i].matcher;
    }
    CHECK_OK(part_select(p, plain, count, NULL, &arena, &found, &found_count, &ei), &ei);
    for (uint32_t i = 0; i < m->count; i++) {
        bool wanted = twin_matches(matchers, count, &m->series[i].labels);
        bool given = at < found_count && found[at] == i;

        CHECK_MSG(wanted == given, "seed %llu: series %u of %zu", (unsigned long long)r->seed, i,
                  m->count);
        at += given;
    }
    CHECK(at == found_count);
    for (size_t i = 0; i < count; i++)
        twin_matcher_done(&matchers[i]);
    arena_done(&arena);
}

static void test_select(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct test_random r = test_random_init(200 + i);
        struct kit_shape shape = shapes[i];
        struct kit_model m;
        struct kit_store k;
        struct part *p;

        shape.samples_max = 2;
        kit_model_init(&m, &r, shape);
        kit_store_init(&k, i, 16 << 20);
        p = write_and_open(&k, "", &m);
        for (size_t n = 0; n < 400; n++)
            check_select(p, &m, &r);
        part_close(p);
        kit_store_done(&k);
        kit_model_done(&m);
    }
}

static size_t count_of(struct part *p, enum matcher_kind kind, const char *name, const char *value,
                       uint32_t *first)
{
    struct errinfo ei = {0};
    struct arena arena;
    struct matcher m;
    uint32_t *found;
    size_t count;

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, kind, str_from(name), str_from(value), &arena, &ei), &ei);
    CHECK_OK(part_select(p, &m, 1, NULL, &arena, &found, &count, &ei), &ei);
    *first = count > 0 ? found[0] : PART_NO_SERIES;
    matcher_done(&m);
    arena_done(&arena);
    return count;
}

/* Values "00000000", "00000001", ... of a label, on many pages of the dictionary. */
static void check_long_dictionary(struct part *p, uint32_t count)
{
    struct str_list values;
    struct errinfo ei = {0};
    struct arena arena;
    uint32_t first;

    arena_init(&arena, NULL);
    CHECK_OK(part_label_values(p, STR_LITERAL("id"), &arena, &values, &ei), &ei);
    CHECK(values.count == count);
    for (uint32_t i = 0; i < count; i += 37) {
        char text[16];

        (void)snprintf(text, sizeof text, "%08u", i);
        CHECK(str_equal(values.items[i], str_from(text)));
        CHECK(count_of(p, MATCHER_EQUAL, "id", text, &first) == 1 && first == i);
    }
    CHECK(count_of(p, MATCHER_EQUAL, "id", "", &first) == 0);
    CHECK(count_of(p, MATCHER_EQUAL, "id", "0000000", &first) == 0);
    CHECK(count_of(p, MATCHER_EQUAL, "id", "00000000x", &first) == 0);
    CHECK(count_of(p, MATCHER_EQUAL, "id", "9", &first) == 0);
    CHECK(count_of(p, MATCHER_REGEX, "id", "000123.*", &first) == 100 && first == 12300);
    CHECK(count_of(p, MATCHER_REGEX, "id", "0001[0-4]..(0|1)", &first) == 1000 && first == 10000);
    CHECK(count_of(p, MATCHER_REGEX, "id", "0001[0-4]..(01|10)", &first) == 0);
    CHECK(count_of(p, MATCHER_REGEX, "id", "0001[0-4]0(01|10)", &first) == 10 && first == 10001);
    CHECK(count_of(p, MATCHER_REGEX, "id", ".*99", &first) == count / 100 && first == 99);
    CHECK(count_of(p, MATCHER_NOT_REGEX, "id", "0000.*", &first) == count - 10000);
    CHECK(count_of(p, MATCHER_NOT_EQUAL, "id", "00000007", &first) == count - 1 && first == 0);
    arena_done(&arena);
}

/* More entities than one page of postings holds, under one value. */
static void test_long_postings(void **state)
{
    enum { SERIES = 20000 };
    struct kit_store k;
    struct part_writer_options o = {.dir = "", .key = kit_key};
    struct part_writer *w;
    struct part_info info;
    struct errinfo ei = {0};
    struct arena arena;
    struct matcher m;
    uint32_t *found;
    size_t count;
    struct part *p;

    (void)state;
    kit_store_init(&k, 1, 16 << 20);
    arena_init(&arena, NULL);
    CHECK_OK(part_writer_new(k.store, &o, &w, &ei), &ei);
    for (uint32_t i = 0; i < SERIES; i++) {
        char *text = arena_printf(&arena, "%08u", i);
        struct label items[] = {{LABEL_METRIC_NAME, STR_LITERAL("up")},
                                {STR_LITERAL("id"), str_from(text)},
                                {STR_LITERAL("rare"), STR_LITERAL("yes")},
                                {STR_LITERAL("same"), STR_LITERAL("all")}};
        struct labels l = {4, items};
        int64_t t = 1000;
        double v = i;

        if (i != 12345) {
            items[2] = items[3];
            l.count = 3;
        }
        CHECK_OK(
            part_writer_series(w, &l, (struct hash128){i, i * UINT64_C(0x9e3779b97f4a7c15)}, &ei),
            &ei);
        CHECK_OK(part_writer_samples(w, &t, &v, 1, &ei), &ei);
    }
    CHECK_OK(part_writer_finish(w, 1, &info, &ei), &ei);
    part_writer_free(w);
    CHECK(info.times_count == 1 && info.entity_count == SERIES);
    CHECK_OK(part_open(k.store, "", &kit_key, &p, &ei), &ei);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, STR_LITERAL("same"), STR_LITERAL("all"), &arena, &ei),
             &ei);
    CHECK_OK(part_select(p, &m, 1, NULL, &arena, &found, &count, &ei), &ei);
    CHECK(count == SERIES && found[0] == 0 && found[SERIES - 1] == SERIES - 1);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, STR_LITERAL("rare"), STR_LITERAL("yes"), &arena, &ei),
             &ei);
    CHECK_OK(part_select(p, &m, 1, NULL, &arena, &found, &count, &ei), &ei);
    CHECK(count == 1 && found[0] == 12345);
    check_long_dictionary(p, SERIES);
    part_close(p);
    CHECK_OK(part_verify(k.store, "", &kit_key, NULL, &info, &ei), &ei);
    arena_done(&arena);
    kit_store_done(&k);
}

static void test_select_stops(void **state)
{
    struct test_random r = test_random_init(3);
    _Atomic bool stop = true;
    struct kit_model m;
    struct kit_store k;
    struct errinfo ei = {0};
    struct arena arena;
    uint32_t *found;
    size_t count;
    struct part *p;

    (void)state;
    kit_model_init(&m, &r, shapes[1]);
    kit_store_init(&k, 1, 1 << 20);
    arena_init(&arena, NULL);
    p = write_and_open(&k, "", &m);
    CHECK(part_select(p, NULL, 0, &stop, &arena, &found, &count, &ei) == ERR_CANCELED);
    part_close(p);
    arena_done(&arena);
    kit_store_done(&k);
    kit_model_done(&m);
}

/* ---- labels, values, ranges of time ---- */

static void check_values_of(struct part *p, const struct kit_model *m, struct test_random *r)
{
    struct str names[] = {LABEL_METRIC_NAME, STR_LITERAL("a"), STR_LITERAL("unknown"),
                          STR_LITERAL("instance")};
    enum { COUNT = 64, NAMES = 4 };
    struct str out[COUNT * NAMES];
    uint32_t series[COUNT];
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < COUNT; i++)
        series[i] = (uint32_t)test_random_below(r, m->count); /* in any order, repeated */
    CHECK_OK(part_values_of(p, series, COUNT, names, NAMES, &arena, out, &ei), &ei);
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t n = 0; n < NAMES; n++)
            CHECK(
                str_equal(out[i * NAMES + n], labels_get(&m->series[series[i]].labels, names[n])));
    }
    arena_done(&arena);
}

static void check_names(struct part *p, const struct kit_model *m)
{
    struct errinfo ei = {0};
    struct str_list names, values;
    struct arena arena;
    size_t pairs = 0, seen = 0;

    arena_init(&arena, NULL);
    CHECK_OK(part_label_names(p, &arena, &names, &ei), &ei);
    for (size_t i = 0; i < names.count; i++) {
        CHECK(i == 0 || str_compare(names.items[i - 1], names.items[i]) < 0);
        CHECK_OK(part_label_values(p, names.items[i], &arena, &values, &ei), &ei);
        for (size_t k = 0; k < values.count; k++) {
            bool used = false;

            CHECK(k == 0 || str_compare(values.items[k - 1], values.items[k]) < 0);
            for (size_t s = 0; s < m->count; s++) {
                bool here =
                    str_equal(labels_get(&m->series[s].labels, names.items[i]), values.items[k]);

                used |= here;
                seen += here;
            }
            CHECK(used);
        }
    }
    for (size_t s = 0; s < m->count; s++)
        pairs += m->series[s].labels.count;
    CHECK(seen == pairs); /* no label of any series was left out */
    CHECK_OK(part_label_values(p, STR_LITERAL("unknown"), &arena, &values, &ei), &ei);
    CHECK(values.count == 0);
    arena_done(&arena);
}

static void check_range(struct part *p, const struct kit_model *m, struct test_random *r)
{
    enum { COUNT = 50 };
    uint32_t series[COUNT];
    struct column out[COUNT];
    int64_t min = kit_key.window_start_ms + (int64_t)test_random_below(r, 900000) - 10000;
    int64_t max = min + (int64_t)test_random_below(r, 900000);
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < COUNT; i++)
        series[i] = (uint32_t)test_random_below(r, m->count);
    CHECK_OK(part_read(p, series, COUNT, min, max, &arena, &arena, out, &ei), &ei);
    for (size_t i = 0; i < COUNT; i++) {
        const struct kit_series *s = &m->series[series[i]];
        size_t at = 0;

        for (size_t c = 0; c < s->chunk_count; c++) {
            for (size_t k = 0; k < s->chunks[c].count; k++) {
                if (s->chunks[c].t_ms[k] < min || s->chunks[c].t_ms[k] > max)
                    continue;
                CHECK(at < out[i].count && out[i].t_ms[at] == s->chunks[c].t_ms[k]);
                CHECK(double_bits(out[i].value[at]) == double_bits(s->chunks[c].value[k]));
                at++;
            }
        }
        CHECK(at == out[i].count);
    }
    arena_done(&arena);
}

static void test_partial_reads(void **state)
{
    struct test_random r = test_random_init(300);
    struct kit_model m;
    struct kit_store k;
    struct part *p;

    (void)state;
    kit_model_init(&m, &r, shapes[2]);
    kit_store_init(&k, 1, 1 << 20);
    p = write_and_open(&k, "", &m);
    check_names(p, &m);
    for (size_t i = 0; i < 200; i++) {
        check_values_of(p, &m, &r);
        check_range(p, &m, &r);
    }
    part_close(p);
    kit_store_done(&k);
    kit_model_done(&m);
}

/* ---- copying ---- */

/* A part written from the bytes of another is the same, byte for byte, but for its id. */
static void test_copy(void **state)
{
    struct test_random r = test_random_init(400);
    struct part_writer_options o = {.dir = "copy", .key = kit_key};
    struct kit_model m;
    struct kit_store k;
    struct part_info info;
    struct errinfo ei = {0};
    const struct part_series *s;
    struct part_writer *w;
    struct part_iter *it;
    struct part *p, *copy;

    (void)state;
    kit_model_init(&m, &r, shapes[2]);
    kit_store_init(&k, 1, 1 << 20);
    CHECK_OK(fs_mkdir(k.fs, "copy", &ei), &ei);
    p = write_and_open(&k, "", &m);
    CHECK_OK(part_writer_new(k.store, &o, &w, &ei), &ei);
    CHECK_OK(part_iter_new(p, &it, &ei), &ei);
    for (size_t i = 0;; i++) {
        CHECK_OK(part_iter_next(it, &s, &ei), &ei);
        if (s == NULL) {
            CHECK(i == m.count);
            break;
        }
        CHECK(labels_equal(&s->labels, &m.series[i].labels));
        CHECK(s->chunk_count == m.series[i].chunk_count);
        CHECK_OK(part_writer_series(w, &s->labels, s->fingerprint, &ei), &ei);
        for (size_t c = 0; c < s->chunk_count; c++)
            CHECK_OK(part_writer_chunk(w, &s->chunks[c], &ei), &ei);
    }
    part_iter_free(it);
    CHECK_OK(part_writer_finish(w, 77, &info, &ei), &ei);
    part_writer_free(w);
    CHECK_OK(part_open(k.store, "copy", &kit_key, &copy, &ei), &ei);
    kit_check_all(copy, &m);
    CHECK(info.times_count == part_info(p)->times_count);
    CHECK(info.index_size == part_info(p)->index_size);
    CHECK(info.chunks_size == part_info(p)->chunks_size);
    part_close(copy);
    part_close(p);
    kit_store_done(&k);
    kit_model_done(&m);
}

/* ---- columns of a later version ---- */

static void test_unknown_column(void **state)
{
    struct label items[] = {{LABEL_METRIC_NAME, STR_LITERAL("up")}};
    struct part_writer_options o = {.dir = "", .key = kit_key};
    struct codec_scratch *scratch = malloc(sizeof *scratch);
    int64_t t[] = {1000, 2000};
    double v[] = {1, 2};
    uint8_t times[64], columns[64] = {9, 9, 9}, other[] = {7};
    struct part_chunk_raw c = {.min_time_ms = 1000, .max_time_ms = 2000, .sample_count = 2};
    struct labels l = {1, items};
    struct kit_store k;
    struct part_info info;
    struct errinfo ei = {0};
    struct part_writer *w;
    struct column out;
    struct arena arena;
    struct part *p;
    uint32_t series = 0;

    (void)state;
    CHECK(scratch != NULL);
    kit_store_init(&k, 1, 1 << 20);
    arena_init(&arena, NULL);
    c.times = (struct bytes){times, codec_times_encode(t, 2, scratch, times)};
    c.column_count = 2;
    c.column_kind[0] = 200; /* e.g. start timestamps */
    c.column_size[0] = 3;
    c.column_kind[1] = PART_COLUMN_VALUES;
    c.column_size[1] = (uint32_t)codec_values_encode(v, 2, scratch, columns + 3);
    c.columns = (struct bytes){columns, 3 + (size_t)c.column_size[1]};
    CHECK_OK(part_writer_new(k.store, &o, &w, &ei), &ei);
    CHECK_OK(part_writer_series(w, &l, (struct hash128){1, 1}, &ei), &ei);
    CHECK_OK(part_writer_chunk(w, &c, &ei), &ei);
    items[0].value = STR_LITERAL("with_histograms");
    CHECK_OK(part_writer_series(w, &l, (struct hash128){1, 2}, &ei), &ei);
    c.column_count = 1;
    c.column_size[0] = 1;
    c.columns = (struct bytes){other, 1};
    CHECK_OK(part_writer_chunk(w, &c, &ei), &ei);
    CHECK_OK(part_writer_finish(w, 1, &info, &ei), &ei);
    part_writer_free(w);
    CHECK_OK(part_open(k.store, "", &kit_key, &p, &ei), &ei);
    CHECK_OK(part_read(p, &series, 1, INT64_MIN, INT64_MAX, &arena, &arena, &out, &ei), &ei);
    CHECK(out.count == 2 && out.value[1] == 2);
    series = 1;
    CHECK(part_read(p, &series, 1, INT64_MIN, INT64_MAX, &arena, &arena, &out, &ei) ==
          ERR_UNSUPPORTED);
    part_close(p);
    errinfo_clear(&ei);
    CHECK_OK(part_verify(k.store, "", &kit_key, NULL, &info, &ei), &ei);
    arena_done(&arena);
    kit_store_done(&k);
    free(scratch);
}

/* ---- what the writer refuses ---- */

static void test_writer_refuses(void **state)
{
    struct label items[] = {{LABEL_METRIC_NAME, STR_LITERAL("b")},
                            {STR_LITERAL("x"), STR_LITERAL("1")}};
    struct label twisted[] = {items[1], items[0]};
    struct labels l = {2, items}, wrong = {2, twisted};
    struct part_writer_options o = {.dir = "", .key = kit_key};
    int64_t t[] = {1000, 2000, 2000};
    double v[] = {1, 2, 3};
    struct kit_store k;
    struct part_info info;
    struct errinfo ei = {0};
    struct part_writer *w, *second = NULL;

    (void)state;
    kit_store_init(&k, 1, 1 << 20);
    CHECK_OK(part_writer_new(k.store, &o, &w, &ei), &ei);
    CHECK(part_writer_series(w, &wrong, (struct hash128){1, 1}, NULL) == ERR_INVALID);
    CHECK_OK(part_writer_series(w, &l, (struct hash128){1, 1}, &ei), &ei);
    CHECK(part_writer_samples(w, t, v, 3, NULL) == ERR_INVALID);
    CHECK(part_writer_samples(w, t, v, 0, NULL) == ERR_INVALID);
    CHECK_OK(part_writer_samples(w, t, v, 2, &ei), &ei);
    CHECK(part_writer_samples(w, t + 1, v, 1, NULL) == ERR_INVALID); /* not behind the last */
    CHECK(part_writer_series(w, &l, (struct hash128){1, 1}, NULL) == ERR_INVALID);
    items[0].value = STR_LITERAL("a");
    CHECK(part_writer_series(w, &l, (struct hash128){1, 1}, NULL) == ERR_INVALID);
    items[0].value = STR_LITERAL("c"); /* gets no chunk */
    CHECK_OK(part_writer_series(w, &l, (struct hash128){1, 2}, &ei), &ei);
    CHECK_OK(part_writer_finish(w, 1, &info, &ei), &ei);
    part_writer_free(w);
    CHECK(info.series_count == 1 && info.sample_count == 2);
    CHECK_OK(part_verify(k.store, "", &kit_key, NULL, &info, &ei), &ei);
    CHECK(part_writer_new(k.store, &o, &second, NULL) == ERR_EXISTS);
    kit_store_done(&k);
}

static void test_names(void **state)
{
    static const struct part_key keys[] = {
        {0},
        {-7200000, 7200000, 300000, 5, 1, 2, 3},
        {INT64_MIN, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
    };
    static const char *const wrong[] = {
        "",
        "part-",
        "part-0-0-0of0-r0-c0-g0",
        "part-0-0-0of0-r0-c0-g0.index.tm",
        "part-0-0-0of0-r0-c0-g00.index",
        "part--0-0-0of0-r0-c0-g0.index",
        "part-0-0-4294967296of0-r0-c0-g0.index",
        "part-0-18446744073709551616-0of0-r0-c0-g0.index",
        "part-9223372036854775808-0-0of0-r0-c0-g0.index",
    };
    enum part_file file;
    struct part_key key;
    bool temporary;
    char name[PART_NAME_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (int f = 0; f < 4; f++) {
            part_name_format(&keys[i], f % 2 == 0 ? PART_FILE_INDEX : PART_FILE_CHUNKS, f >= 2,
                             name);
            CHECK(part_name_parse(name, &key, &file, &temporary));
            CHECK(part_key_equal(&key, &keys[i]) && temporary == (f >= 2));
            CHECK(file == (f % 2 == 0 ? PART_FILE_INDEX : PART_FILE_CHUNKS));
        }
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_MSG(!part_name_parse(wrong[i], &key, &file, &temporary), "%s", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_no_series),
        cmocka_unit_test(test_select),         cmocka_unit_test(test_long_postings),
        cmocka_unit_test(test_select_stops),   cmocka_unit_test(test_partial_reads),
        cmocka_unit_test(test_copy),           cmocka_unit_test(test_unknown_column),
        cmocka_unit_test(test_writer_refuses), cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
