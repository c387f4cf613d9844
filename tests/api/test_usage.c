/* What queries read: the tables, and the file they are kept in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/usage/usage_internal.h"
#include "base/file_sim.h"
#include "engine/engine.h"
#include "engine/write.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

#define T0 INT64_C(1767225600000)
#define T0_S 1767225600U

struct world {
    struct fs *fs;
    struct clock clock;
    struct engine *engine;
    struct usage *usage;
    struct arena arena;
    struct usage_snapshot s;
    struct errinfo ei;
};

/* "m|job" as labels. */
static enum err parse_wire(const void *ctx, struct bytes wire, struct arena *arena,
                           struct labels *out)
{
    struct label *items = ARENA_ARRAY(arena, 2, struct label);
    const char *text = (const char *)wire.data, *bar = memchr(text, '|', wire.size);

    (void)ctx;
    CHECK(items != NULL && bar != NULL);
    items[0] = (struct label){LABEL_METRIC_NAME, {text, (size_t)(bar - text)}};
    items[1] = (struct label){STR_LITERAL("job"), {bar + 1, wire.size - (size_t)(bar - text) - 1}};
    *out = (struct labels){2, items};
    return ERR_OK;
}

static void put(struct world *w, const char *series)
{
    struct write_batch *b;
    struct write_result result;
    uint64_t sequences[64];

    CHECK_OK(write_batch_new(&b, &w->ei), &w->ei);
    b->labels_parse = parse_wire;
    CHECK(write_batch_grow_series(b) && write_batch_grow_samples(b));
    b->series[b->series_count++] = (struct write_series){
        .sender_key = hash128_bytes(engine_hash_secret(w->engine), series, strlen(series)),
        .wire_labels = {(const uint8_t *)series, strlen(series)},
        .sample_count = 1};
    b->samples[b->sample_count++] = (struct write_sample){T0, 1};
    result.sequences = sequences;
    CHECK_OK(engine_write(w->engine, b, &result, &w->ei), &w->ei);
    CHECK(result.stored_count == 1);
    write_batch_free(b);
}

static void world_open(struct world *w)
{
    struct engine_options o = {.clock = &w->clock, .hash_secret_seed = 1};
    struct engine_replay_result replay;

    memset(w, 0, sizeof *w);
    clock_init_fake(&w->clock, T0);
    arena_init(&w->arena, NULL);
    CHECK_OK(fs_sim_new(1, &w->fs, &w->ei), &w->ei);
    o.fs = w->fs;
    CHECK_OK(engine_open(&o, &w->engine, &w->ei), &w->ei);
    CHECK_OK(engine_replay(w->engine, 1, &replay, &w->ei), &w->ei);
    CHECK_OK(usage_new(&w->clock, w->fs, &w->usage, &w->ei), &w->ei);
}

static void world_close(struct world *w)
{
    usage_free(w->usage);
    CHECK_OK(engine_close(w->engine, 5000, &w->ei), &w->ei);
    arena_done(&w->arena);
    fs_free(w->fs);
}

static void note(struct world *w, enum usage_kind kind, bool is_selector, const char *text)
{
    static const struct promql_parse_options language = {.experimental_functions = true};
    int64_t now_ms = clock_now_ms(&w->clock);
    const struct usage_read read = {.kind = kind,
                                    .is_selector = is_selector,
                                    .text = str_from(text),
                                    .min_time_ms = now_ms - 3600000,
                                    .max_time_ms = now_ms,
                                    .language = &language,
                                    .engine = w->engine};

    usage_note(w->usage, &read);
}

static void query(struct world *w, const char *text)
{
    note(w, USAGE_QUERY, false, text);
}

/* The row of a name, or one of zeros. */
static struct usage_name row(struct world *w, const char *name)
{
    CHECK_OK(usage_snapshot(w->usage, &w->arena, &w->s, &w->ei), &w->ei);
    for (size_t i = 0; i < w->s.name_count; i++) {
        CHECK(i == 0 || str_compare(w->s.names[i - 1].name, w->s.names[i].name) < 0);
        if (str_equal(w->s.names[i].name, str_from(name)))
            return w->s.names[i];
    }
    return (struct usage_name){0};
}

static uint32_t count(struct world *w, const char *name)
{
    return row(w, name).count[USAGE_QUERY];
}

static void selectors_with_names(void **state)
{
    struct world w;
    struct usage_name up;

    (void)state;
    world_open(&w);
    query(&w, "sum(rate(a_total{job=\"x\"}[5m])) / on (job) up + max_over_time((b > 1)[1h:5m])");
    CHECK(count(&w, "a_total") == 1 && count(&w, "up") == 1 && count(&w, "b") == 1);
    CHECK(w.s.name_count == 3 && w.s.query_count == 1);
    clock_set_fake(&w.clock, T0 + 5000);
    query(&w, "up");
    query(&w, "up");
    note(&w, USAGE_QUERY_RANGE, false, "up - up{job=\"x\"}"); /* once a query */
    note(&w, USAGE_SERIES, true, "{__name__=\"up\"}");
    up = row(&w, "up");
    CHECK(up.count[USAGE_QUERY] == 3 && up.last_s[USAGE_QUERY] == T0_S + 5);
    CHECK(up.count[USAGE_QUERY_RANGE] == 1 && up.count[USAGE_SERIES] == 1);
    CHECK(up.newest_s == T0_S + 5 && row(&w, "b").newest_s == T0_S);
    CHECK(w.s.query_count == 4);
    /* What cannot be parsed, or reads nothing, counts for nothing. */
    query(&w, "sum(");
    query(&w, "1 + 1");
    note(&w, USAGE_SERIES, true, "{");
    CHECK(row(&w, "up").count[USAGE_QUERY] == 3 && w.s.name_count == 3);
    /* info() reads target_info, or what its selector names. */
    query(&w, "info(a_total)");
    CHECK(count(&w, "target_info") == 1 && count(&w, "a_total") == 2);
    query(&w, "info(b, {__name__=\"build_info\"})");
    CHECK(count(&w, "target_info") == 1 && count(&w, "build_info") == 1);
    query(&w, "info(b, {x=\"y\"})");
    CHECK(count(&w, "target_info") == 2 && count(&w, "b") == 3);
    world_close(&w);
}

/* Others count for the names of the series that they find. */
static void selectors_without_names(void **state)
{
    struct world w;

    (void)state;
    world_open(&w);
    put(&w, "node_a|n");
    put(&w, "node_b|n");
    put(&w, "other|n");
    put(&w, "third|m");
    query(&w, "{__name__=~\"node_.*\"}");
    CHECK(count(&w, "node_a") == 1 && count(&w, "node_b") == 1 && w.s.name_count == 2);
    query(&w, "count({job=\"n\"})");
    CHECK(count(&w, "node_a") == 2 && count(&w, "other") == 1 && w.s.name_count == 3);
    query(&w, "{__name__!~\"node_.*\", job=~\"m.*\"}");
    CHECK(count(&w, "third") == 1 && count(&w, "other") == 1);
    /* The same text again is not looked up for a while, but counts. */
    put(&w, "node_c|n");
    query(&w, "{__name__=~\"node_.*\"}");
    CHECK(count(&w, "node_a") == 3 && count(&w, "node_c") == 0);
    clock_set_fake(&w.clock, T0 + USAGE_EXPANSION_MS);
    query(&w, "{__name__=~\"node_.*\"}");
    CHECK(count(&w, "node_a") == 4 && count(&w, "node_c") == 1);
    world_close(&w);
}

static int compare_names(const void *a, const void *b)
{
    return str_compare(((const struct usage_name *)a)->name, ((const struct usage_name *)b)->name);
}

static bool name_is_there(const struct world *w, const char *name)
{
    const struct usage_name key = {.name = str_from(name)};

    return bsearch(&key, w->s.names, w->s.name_count, sizeof key, compare_names) != NULL;
}

static void tables_are_bounded(void **state)
{
    struct world w;
    char text[32];

    (void)state;
    world_open(&w);
    for (int i = 0; i < USAGE_NAMES_MAX + 10000; i++) {
        if (i % 100 == 0)
            clock_set_fake(&w.clock, T0 + (int64_t)i * 1000);
        (void)snprintf(text, sizeof text, "metric_%d", i);
        query(&w, text);
        if (i % 1000 == 0)
            query(&w, "stays");
    }
    CHECK(count(&w, "stays") == (USAGE_NAMES_MAX + 10000 + 999) / 1000);
    CHECK(w.s.name_count <= USAGE_NAMES_MAX && w.s.name_count > USAGE_NAMES_MAX * 3 / 4);
    CHECK(w.s.query_count == USAGE_QUERIES_MAX);
    CHECK(count(&w, "metric_0") == 0);
    CHECK(w.s.since_s == T0_S && w.s.complete_since_s > T0_S);
    /* Complete from there on. */
    for (uint32_t i = 0; i < USAGE_NAMES_MAX + 10000; i += 50) {
        (void)snprintf(text, sizeof text, "metric_%u", i);
        if (T0_S + i / 100 * 100 >= w.s.complete_since_s)
            CHECK(name_is_there(&w, text));
    }
    CHECK(w.s.queries[0].last_s >= w.s.queries[1].last_s);
    world_close(&w);
}

/* ---- the file ---- */

static const uint8_t golden[] = {
    0x52, 0x49, 0x4d, 0x55, 0x53, 0x41, 0x47, 0x45, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf4, 0x01, 0x00, 0x00, 0x58, 0x02, 0x00, 0x00,
    0x02, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x24, 0x00, 0x00, 0x00, 0x1b, 0x91,
    0xca, 0xad, 0x01, 0x61, 0x01, 0x03, 0xe8, 0x07, 0x02, 0x75, 0x70, 0x42, 0xac, 0x02,
    0xd0, 0x0f, 0x01, 0xb8, 0x17, 0x02, 0x75, 0x70, 0x02, 0x07, 0xd0, 0x0f, 0x07, 0x7b,
    0x61, 0x3d, 0x22, 0x62, 0x22, 0x7d, 0x05, 0x01, 0x84, 0x07, 0x64, 0x04, 0xf4, 0xb5,
};

static void make(struct world *w, struct byte_writer *out)
{
    struct usage_name names[] = {
        {.name = STR_LITERAL("a"), .count = {[USAGE_QUERY] = 3}, .last_s = {[USAGE_QUERY] = 1000}},
        {.name = STR_LITERAL("up"),
         .count = {[USAGE_QUERY_RANGE] = 300, [USAGE_FEDERATE] = 1},
         .last_s = {[USAGE_QUERY_RANGE] = 2000, [USAGE_FEDERATE] = 3000}},
    };
    struct usage_query queries[] = {
        {.text = STR_LITERAL("up"), .kind = USAGE_QUERY_RANGE, .count = 7, .last_s = 2000},
        {.text = STR_LITERAL("{a=\"b\"}"),
         .is_selector = true,
         .kind = USAGE_SERIES,
         .count = 1,
         .last_s = 900},
    };
    const struct usage_file f = {.since_s = 500,
                                 .complete_since_s = 600,
                                 .names = names,
                                 .name_count = 2,
                                 .queries = queries,
                                 .query_count = 2};

    CHECK_OK(usage_file_encode(&f, out, &w->ei), &w->ei);
}

static void golden_file(void **state)
{
    struct byte_writer out;
    struct usage_file f;
    struct world w = {0};

    (void)state;
    arena_init(&w.arena, NULL);
    writer_init(&out);
    make(&w, &out);
    CHECK(out.size == sizeof golden && memcmp(out.data, golden, sizeof golden) == 0);
    CHECK_OK(usage_file_decode(golden, sizeof golden, &w.arena, &f, &w.ei), &w.ei);
    CHECK(f.since_s == 500 && f.complete_since_s == 600 && f.name_count == 2 && f.query_count == 2);
    CHECK(str_equal(f.names[1].name, STR_LITERAL("up")));
    CHECK(f.names[1].count[USAGE_QUERY_RANGE] == 300 && f.names[1].newest_s == 3000);
    CHECK(f.queries[1].is_selector && f.queries[1].kind == USAGE_SERIES);
    writer_done(&out);
    arena_done(&w.arena);
}

/* Every bit flipped, every length: an error, and nothing read. */
static void damage_is_found(void **state)
{
    struct byte_writer out;
    struct usage_file f;
    struct world w = {0};

    (void)state;
    arena_init(&w.arena, NULL);
    writer_init(&out);
    make(&w, &out);
    for (size_t bit = 0; bit < out.size * 8; bit++) {
        enum err e;

        out.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        e = usage_file_decode(out.data, out.size, &w.arena, &f, &w.ei);
        CHECK(e == ERR_CORRUPT);
        out.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < out.size; size++)
        CHECK(usage_file_decode(out.data, size, &w.arena, &f, &w.ei) == ERR_CORRUPT);
    writer_done(&out);
    arena_done(&w.arena);
}

static void it_survives_a_restart(void **state)
{
    struct world w;
    struct file *f;
    uint64_t size;

    (void)state;
    world_open(&w);
    query(&w, "a + b");
    note(&w, USAGE_LABELS, true, "a{x=\"y\"}");
    CHECK_OK(usage_save(w.usage, &w.ei), &w.ei);
    query(&w, "c");
    usage_free(w.usage);
    clock_set_fake(&w.clock, T0 + 1000000);
    CHECK_OK(usage_new(&w.clock, w.fs, &w.usage, &w.ei), &w.ei);
    CHECK(count(&w, "a") == 1 && count(&w, "b") == 1 && count(&w, "c") == 0);
    CHECK(row(&w, "a").count[USAGE_LABELS] == 1 && w.s.since_s == T0_S && w.s.query_count == 2);
    query(&w, "a + b");
    CHECK(count(&w, "a") == 2 && w.s.query_count == 2 && w.s.queries[0].count == 2);
    CHECK(row(&w, "b").newest_s == T0_S + 1000);
    CHECK_OK(usage_save(w.usage, &w.ei), &w.ei);
    /* Damaged, it is as if there had been none, and it is replaced. */
    CHECK_OK(file_open(w.fs, USAGE_PATH, FILE_READ_WRITE, &f, &w.ei), &w.ei);
    CHECK_OK(file_size(f, &size, &w.ei), &w.ei);
    CHECK_OK(file_truncate(f, size - 1, &w.ei), &w.ei);
    file_close(f);
    usage_free(w.usage);
    CHECK_OK(usage_new(&w.clock, w.fs, &w.usage, &w.ei), &w.ei);
    CHECK(count(&w, "a") == 0 && w.s.since_s == T0_S + 1000);
    query(&w, "a");
    CHECK_OK(usage_save(w.usage, &w.ei), &w.ei);
    usage_free(w.usage);
    CHECK_OK(usage_new(&w.clock, w.fs, &w.usage, &w.ei), &w.ei);
    CHECK(count(&w, "a") == 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selectors_with_names), cmocka_unit_test(selectors_without_names),
        cmocka_unit_test(tables_are_bounded),   cmocka_unit_test(golden_file),
        cmocka_unit_test(damage_is_found),      cmocka_unit_test(it_survives_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
