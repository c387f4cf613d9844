/*
 * The querier on a real engine over the simulated file layer, against a list of series.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/read/querier_internal.h"
#include "engine/write.h"
#include "tests/engine/index_twin.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SAMPLES_MAX = 6, SHARDS = 16, SPREAD = 300, WRITE_BATCH = 200 };

#define T0 INT64_C(1700000000000)

struct stored {
    size_t count;
    int64_t t_ms[SAMPLES_MAX];
    double value[SAMPLES_MAX];
};

struct world {
    struct test_random random;
    struct fs *fs;
    struct clock clock;
    struct budget memory;
    struct engine *engine;
    struct querier *querier;
    struct arena arena; /* of the label sets */
    size_t count;
    struct labels *labels;  /* by number; owned */
    struct stored *samples; /* by number; owned */
};

static enum err parse_number(const void *ctx, struct bytes wire, struct arena *arena,
                             struct labels *out)
{
    const struct world *w = ctx;
    uint32_t number;

    (void)arena;
    CHECK(wire.size == sizeof number);
    memcpy(&number, wire.data, sizeof number);
    *out = w->labels[number];
    return ERR_OK;
}

/* Writes the samples of series [first, first + count) as one request. */
static void write_series(struct world *w, size_t first, size_t count)
{
    struct write_batch *b;
    struct write_result result = {0};
    uint64_t sequences[SHARDS] = {0};
    uint32_t numbers[WRITE_BATCH];
    struct errinfo ei = {0};

    CHECK(count <= WRITE_BATCH);
    CHECK_OK(write_batch_new(&b, &ei), &ei);
    b->labels_parse = parse_number;
    b->labels_ctx = w;
    for (size_t i = 0; i < count; i++) {
        const struct stored *s = &w->samples[first + i];

        numbers[i] = (uint32_t)(first + i);
        CHECK(write_batch_grow_series(b));
        b->series[b->series_count++] = (struct write_series){
            .sender_key = hash128_bytes(engine_hash_secret(w->engine), &numbers[i], 4),
            .wire_labels = {(const uint8_t *)&numbers[i], sizeof numbers[i]},
            .sample_first = (uint32_t)b->sample_count,
            .sample_count = (uint32_t)s->count};
        for (size_t k = 0; k < s->count; k++) {
            CHECK(write_batch_grow_samples(b));
            b->samples[b->sample_count++] = (struct write_sample){s->t_ms[k], s->value[k]};
        }
    }
    result.sequences = sequences;
    CHECK_OK(engine_write(w->engine, b, &result, &ei), &ei);
    CHECK_MSG(result.stored_count == b->sample_count, "%s", result.examples[0]);
    write_batch_free(b);
}

static void make_samples(struct test_random *r, struct stored *out)
{
    int64_t t = T0 + (int64_t)test_random_below(r, 100000);

    out->count = 1 + test_random_below(r, SAMPLES_MAX);
    for (size_t k = 0; k < out->count; k++) {
        out->t_ms[k] = t;
        out->value[k] = (double)test_random_below(r, 1000) / 8;
        t += 1 + (int64_t)test_random_below(r, 20000);
    }
}

static void world_open(struct world *w, uint64_t seed, size_t count)
{
    struct engine_options options = {.shard_count = SHARDS, .hash_secret_seed = 5};
    struct engine_replay_result replayed;
    struct errinfo ei = {0};

    memset(w, 0, sizeof *w);
    w->random = test_random_init(seed);
    CHECK_OK(fs_sim_new(seed, &w->fs, &ei), &ei);
    clock_init_fake(&w->clock, T0 + 600000);
    budget_init(&w->memory, "test", UINT64_MAX, NULL);
    options.fs = w->fs;
    options.clock = &w->clock;
    options.memory = &w->memory;
    options.wal_sync = WAL_SYNC_NEVER;
    CHECK_OK(engine_open(&options, &w->engine, &ei), &ei);
    CHECK_OK(engine_replay(w->engine, 1, &replayed, &ei), &ei);
    CHECK_OK(querier_open(w->engine, &w->querier, &ei), &ei);
    arena_init(&w->arena, NULL);
    w->count = count;
    w->labels = calloc(count, sizeof *w->labels);
    w->samples = calloc(count, sizeof *w->samples);
    CHECK(w->labels != NULL && w->samples != NULL);
    for (size_t i = 0; i < count; i++)
        make_samples(&w->random, &w->samples[i]);
}

static void random_labels(struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        struct twin_series *s = ARENA_NEW(&w->arena, struct twin_series);

        CHECK(s != NULL);
        twin_series_random(&w->random, &w->arena, SPREAD, true, (uint32_t)i, s);
        w->labels[i] = s->labels;
    }
}

static void write_all(struct world *w)
{
    for (size_t i = 0; i < w->count; i += WRITE_BATCH)
        write_series(w, i, w->count - i < WRITE_BATCH ? w->count - i : WRITE_BATCH);
}

static void world_init(struct world *w, uint64_t seed, size_t count)
{
    world_open(w, seed, count);
    random_labels(w);
    write_all(w);
}

static void world_done(struct world *w)
{
    struct errinfo ei = {0};

    querier_close(w->querier);
    CHECK_OK(engine_close(w->engine, 5000, &ei), &ei);
    fs_free(w->fs);
    CHECK_MSG(budget_used(&w->memory) == 0, "%llu bytes left",
              (unsigned long long)budget_used(&w->memory));
    arena_done(&w->arena);
    free(w->labels);
    free(w->samples);
}

/* The number of a series, from the label that makes it unique. */
static size_t number_of(const struct world *w, const struct labels *labels)
{
    struct str text = labels_get(labels, STR_LITERAL("\xc3\xa9"));
    char digits[16] = {0};
    size_t number;

    CHECK(text.size > 1 && text.size < sizeof digits);
    memcpy(digits, text.data + 1, text.size - 1);
    number = strtoul(digits, NULL, 10);
    CHECK(number < w->count && labels_equal(labels, &w->labels[number]));
    return number;
}

struct range {
    int64_t min, max;
};
static struct range random_range(struct test_random *r)
{
    int64_t min = T0 + (int64_t)test_random_below(r, 250000) - 20000;

    if (test_random_below(r, 3) == 0)
        return (struct range){INT64_MIN, INT64_MAX};
    return (struct range){min, min + (int64_t)test_random_below(r, 60000)};
}
static bool in_range(const struct stored *s, struct range range)
{
    return s->t_ms[0] <= range.max && s->t_ms[s->count - 1] >= range.min;
}

static size_t random_matchers(struct test_random *r, struct arena *arena, size_t max,
                              struct twin_matcher *twins, struct matcher *matchers)
{
    size_t n = test_random_below(r, max + 1);

    for (size_t i = 0; i < n; i++) {
        twin_matcher_random(r, arena, SPREAD, &twins[i]);
        matchers[i] = twins[i].matcher;
    }
    return n;
}
static void matchers_done(struct twin_matcher *twins, size_t count)
{
    for (size_t i = 0; i < count; i++)
        twin_matcher_done(&twins[i]);
}

static void check_select(struct world *w)
{
    struct twin_matcher twins[3];
    struct matcher matchers[3];
    struct range range = random_range(&w->random);
    struct series_list list;
    struct labels *sets;
    struct arena arena;
    struct errinfo ei = {0};
    size_t n, want = 0;
    bool *seen;

    arena_init(&arena, NULL);
    n = random_matchers(&w->random, &arena, 3, twins, matchers);
    CHECK_OK(querier_select(w->querier, matchers, n, range.min, range.max, &arena, &list, &ei),
             &ei);
    sets = ARENA_ARRAY(&arena, list.count, struct labels);
    seen = arena_calloc(&arena, w->count, sizeof *seen);
    CHECK_OK(querier_labels(w->querier, list.items, list.count, &arena, sets, &ei), &ei);
    for (size_t i = 0; i < list.count; i++) {
        size_t number = number_of(w, &sets[i]);

        CHECK(!seen[number] && twin_matches(twins, n, &sets[i]));
        seen[number] = true;
    }
    for (size_t i = 0; i < w->count; i++)
        want += twin_matches(twins, n, &w->labels[i]) && in_range(&w->samples[i], range);
    CHECK_MSG(list.count == want, "seed %llu: %zu, not %zu", (unsigned long long)w->random.seed,
              list.count, want);
    matchers_done(twins, n);
    arena_done(&arena);
}

static void selection_equals_the_twin(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 21, 3000);
    for (int i = 0; i < 150; i++)
        check_select(&w);
    world_done(&w);
}

static void select_all(struct world *w, struct arena *arena, struct series_list *out)
{
    struct errinfo ei = {0};

    CHECK_OK(querier_select(w->querier, NULL, 0, INT64_MIN, INT64_MAX, arena, out, &ei), &ei);
    CHECK(out->count == w->count);
}

static void shuffle(struct test_random *r, struct series_list *list)
{
    for (size_t i = list->count; i > 1; i--) {
        size_t k = test_random_below(r, i);
        struct series_handle swap = list->items[i - 1];

        list->items[i - 1] = list->items[k];
        list->items[k] = swap;
    }
}

/* A sort of `count` random series must leave the same series, strictly ascending. */
static void check_sort(struct world *w, size_t count)
{
    struct series_list list;
    struct labels *sets;
    struct arena arena;
    struct errinfo ei = {0};
    uint64_t before = 0;
    uint64_t after = 0;

    arena_init(&arena, NULL);
    select_all(w, &arena, &list);
    shuffle(&w->random, &list);
    list.count = count;
    for (size_t i = 0; i < count; i++)
        before += list.items[i].fingerprint.low;
    CHECK_OK(querier_sort(w->querier, &list, &ei), &ei);
    sets = ARENA_ARRAY(&arena, count, struct labels);
    CHECK_OK(querier_labels(w->querier, list.items, count, &arena, sets, &ei), &ei);
    for (size_t i = 0; i < count; i++) {
        after += list.items[i].fingerprint.low;
        CHECK_MSG(i == 0 || labels_compare(&sets[i - 1], &sets[i]) < 0, "seed %llu: %s, then %s",
                  (unsigned long long)w->random.seed, labels_format(&sets[i - 1], &arena),
                  labels_format(&sets[i], &arena));
    }
    CHECK(before == after);
    arena_done(&arena);
}

static void sort_equals_label_order(void **state)
{
    static const size_t counts[] = {0, 1, 2, 30, 64, 65, 100, 1000, 3000};
    struct world w;

    (void)state;
    world_init(&w, 22, 3000);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int round = 0; round < 5; round++)
            check_sort(&w, counts[i]);
    }
    world_done(&w);
}

/* So many columns that the codes do not fit the key: what is left is decided by label sets. */
static void sort_of_wide_label_sets(void **state)
{
    enum { WIDE = 110, COUNT = 400 };
    struct world w;

    (void)state;
    world_open(&w, 23, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        struct label *items = ARENA_ARRAY(&w.arena, WIDE, struct label);
        size_t n = 0;

        CHECK(items != NULL);
        for (uint32_t k = 0; k < WIDE; k++) {
            /* Few kinds of beginnings, so that whole keys are equal; the number comes last. */
            uint64_t kind = k < 90 ? i % 13 * (k + 7) : i * (k + 7);

            if (k != WIDE - 1 && k != 40 && kind % 5 == 0)
                continue;
            items[n].name = k == 40
                                ? LABEL_METRIC_NAME
                                : str_from(arena_printf(&w.arena, "%c%03u", k < 40 ? 'A' : 'a', k));
            items[n++].value = str_from(
                k == WIDE - 1 ? arena_printf(&w.arena, "n%zu", i)
                              : arena_printf(&w.arena, "v%llu", (unsigned long long)kind % 11));
        }
        w.labels[i] = (struct labels){n, items};
    }
    write_all(&w);
    for (int round = 0; round < 10; round++)
        check_sort(&w, round < 5 ? COUNT : 150);
    world_done(&w);
}

static void columns_and_samples_come_back(void **state)
{
    const struct str names[] = {STR_LITERAL("instance"), STR_LITERAL("none"),
                                STR_LITERAL("__name__")};
    struct world w;
    struct series_list list;
    struct labels *sets;
    struct str *values;
    struct column *columns;
    struct arena arena;
    struct errinfo ei = {0};

    (void)state;
    world_init(&w, 24, 3000);
    arena_init(&arena, NULL);
    select_all(&w, &arena, &list);
    shuffle(&w.random, &list);
    sets = ARENA_ARRAY(&arena, list.count, struct labels);
    values = ARENA_ARRAY(&arena, list.count * 3, struct str);
    columns = ARENA_ARRAY(&arena, list.count, struct column);
    CHECK_OK(querier_labels(w.querier, list.items, list.count, &arena, sets, &ei), &ei);
    CHECK_OK(querier_label_values_of(w.querier, list.items, list.count, names, 3, values, &ei),
             &ei);
    for (size_t i = 0; i < list.count; i += QUERIER_READ_BATCH_MAX) {
        size_t n =
            list.count - i < QUERIER_READ_BATCH_MAX ? list.count - i : QUERIER_READ_BATCH_MAX;

        CHECK_OK(querier_read(w.querier, list.items + i, n, T0 + 40000, T0 + 120000, &arena,
                              columns + i, &ei),
                 &ei);
    }
    for (size_t i = 0; i < list.count; i++) {
        const struct stored *s = &w.samples[number_of(&w, &sets[i])];
        size_t n = 0;

        for (size_t k = 0; k < 3; k++)
            CHECK(str_equal(values[i * 3 + k], labels_get(&sets[i], names[k])));
        for (size_t k = 0; k < s->count; k++) {
            if (s->t_ms[k] < T0 + 40000 || s->t_ms[k] > T0 + 120000)
                continue;
            CHECK(n < columns[i].count && columns[i].t_ms[n] == s->t_ms[k]);
            CHECK(double_bits(columns[i].value[n]) == double_bits(s->value[k]));
            n++;
        }
        CHECK(n == columns[i].count);
    }
    arena_done(&arena);
    world_done(&w);
}

static int compare_strs(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

/* What label names (name empty) or values the twin finds. */
static size_t twin_list(struct world *w, struct str name, struct twin_matcher (*twins)[2],
                        const size_t *counts, size_t set_count, struct range range, struct str *out)
{
    size_t n = 0;
    size_t distinct = 0;

    for (size_t i = 0; i < w->count; i++) {
        bool matched = set_count == 0;

        for (size_t s = 0; s < set_count; s++)
            matched = matched || twin_matches(twins[s], counts[s], &w->labels[i]);
        if (!matched || !in_range(&w->samples[i], range))
            continue;
        for (size_t k = 0; k < w->labels[i].count; k++) {
            const struct label *item = &w->labels[i].items[k];

            if (name.size == 0)
                out[n++] = item->name;
            else if (str_equal(item->name, name))
                out[n++] = item->value;
        }
    }
    qsort(out, n, sizeof *out, compare_strs);
    for (size_t i = 0; i < n; i++) {
        if (distinct == 0 || !str_equal(out[distinct - 1], out[i]))
            out[distinct++] = out[i];
    }
    return distinct;
}

static void check_lists(struct world *w, struct str name)
{
    struct twin_matcher twins[2][2];
    struct matcher matchers[2][2];
    struct matcher_set sets[2];
    size_t counts[2];
    size_t set_count = test_random_below(&w->random, 3);
    struct range range = random_range(&w->random);
    size_t limit = test_random_below(&w->random, 3) == 0 ? 0 : test_random_below(&w->random, 30);
    struct str_list got;
    struct arena arena;
    struct errinfo ei = {0};
    struct str *want;
    size_t want_count;
    bool truncated;

    arena_init(&arena, NULL);
    for (size_t s = 0; s < set_count; s++) {
        counts[s] = random_matchers(&w->random, &arena, 2, twins[s], matchers[s]);
        sets[s] = (struct matcher_set){matchers[s], counts[s]};
    }
    want = ARENA_ARRAY(&arena, w->count * TWIN_LABELS_MAX, struct str);
    want_count = twin_list(w, name, twins, counts, set_count, range, want);
    if (name.size == 0)
        CHECK_OK(querier_label_names(w->querier, sets, set_count, range.min, range.max, limit,
                                     &arena, &got, &truncated, &ei),
                 &ei);
    else
        CHECK_OK(querier_label_values(w->querier, name, sets, set_count, range.min, range.max,
                                      limit, &arena, &got, &truncated, &ei),
                 &ei);
    CHECK(truncated == (limit != 0 && want_count > limit));
    if (truncated)
        want_count = limit;
    CHECK_MSG(got.count == want_count, "seed %llu: %zu, not %zu",
              (unsigned long long)w->random.seed, got.count, want_count);
    for (size_t i = 0; i < want_count; i++)
        CHECK(str_equal(got.items[i], want[i]));
    for (size_t s = 0; s < set_count; s++)
        matchers_done(twins[s], counts[s]);
    arena_done(&arena);
}

static void names_and_values_equal_the_twin(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 25, 1500);
    for (int i = 0; i < 100; i++) {
        check_lists(&w, (struct str){NULL, 0});
        check_lists(&w, STR_LITERAL("instance"));
        check_lists(&w, STR_LITERAL("\xc3\xa9"));
        check_lists(&w, STR_LITERAL("unknown"));
    }
    world_done(&w);
}

static void a_stopped_querier_ends_its_calls(void **state)
{
    _Atomic bool stop = false;
    struct world w;
    struct series_list list;
    struct series_list again;
    struct str_list names;
    struct labels *sets;
    struct column *columns;
    struct arena arena;
    bool truncated;

    (void)state;
    world_init(&w, 26, 500);
    arena_init(&arena, NULL);
    querier_set_stop(w.querier, &stop);
    select_all(&w, &arena, &list);
    sets = ARENA_ARRAY(&arena, list.count, struct labels);
    columns = ARENA_ARRAY(&arena, list.count, struct column);
    atomic_store(&stop, true);
    CHECK(querier_select(w.querier, NULL, 0, INT64_MIN, INT64_MAX, &arena, &again, NULL) ==
          ERR_CANCELED);
    CHECK(querier_sort(w.querier, &list, NULL) == ERR_CANCELED);
    CHECK(querier_labels(w.querier, list.items, list.count, &arena, sets, NULL) == ERR_CANCELED);
    CHECK(querier_read(w.querier, list.items, list.count, T0, T0 + 1000, &arena, columns, NULL) ==
          ERR_CANCELED);
    CHECK(querier_label_names(w.querier, NULL, 0, INT64_MIN, INT64_MAX, 0, &arena, &names,
                              &truncated, NULL) == ERR_CANCELED);
    arena_done(&arena);
    world_done(&w);
}

/* Sorting is charged to the engine's memory, here replaced by a budget that nothing else touches:
 * wherever its limit falls, ERR_LIMIT or success. */
static void check_sort_limits(struct world *w)
{
    struct budget memory;
    struct series_list list;
    struct arena arena;
    size_t refused = 0;
    size_t sorted = 0;

    arena_init(&arena, NULL);
    select_all(w, &arena, &list);
    w->querier->memory = &memory;
    for (uint64_t room = 0; room < 1 << 20; room += 9000) {
        struct errinfo ei = {0};
        enum err e;

        budget_init(&memory, "test", room, NULL);
        e = querier_sort(w->querier, &list, &ei);
        CHECK_MSG(e == ERR_OK || e == ERR_LIMIT, "%s", ei.message);
        refused += e == ERR_LIMIT;
        sorted += e == ERR_OK;
        CHECK(budget_used(&memory) == 0);
    }
    w->querier->memory = &w->memory;
    CHECK(refused > 3 && sorted > 3);
    arena_done(&arena);
}

static void a_spent_budget_is_an_error(void **state)
{
    struct budget small;
    struct world w;
    struct series_list list;
    struct str_list names;
    struct arena arena;
    struct errinfo ei = {0};
    bool truncated;

    (void)state;
    world_init(&w, 27, 3000);
    budget_init(&small, "query memory", 20000, NULL);
    arena_init(&arena, &small);
    CHECK(querier_select(w.querier, NULL, 0, INT64_MIN, INT64_MAX, &arena, &list, &ei) ==
          ERR_LIMIT);
    CHECK(querier_label_values(w.querier, STR_LITERAL("\xc3\xa9"), NULL, 0, INT64_MIN, INT64_MAX, 0,
                               &arena, &names, &truncated, NULL) == ERR_LIMIT);
    arena_done(&arena);
    CHECK(budget_used(&small) == 0);
    check_sort_limits(&w);
    world_done(&w);
}

/* ---- queries beside writes ---- */

struct race {
    struct world world;
    _Atomic size_t written; /* release after the write, acquire by readers: these must be found */
    _Atomic size_t rounds;  /* relaxed: the writer goes on only while readers do */
};

static void *write_series_slowly(void *arg)
{
    struct race *race = arg;

    for (size_t i = 0; i < race->world.count; i += 50) {
        while (atomic_load_explicit(&race->rounds, memory_order_relaxed) < i / 200)
            sched_yield();
        write_series(&race->world, i, 50);
        atomic_store_explicit(&race->written, i + 50, memory_order_release);
    }
    return NULL;
}

static void query_once(struct race *race, struct test_random *r)
{
    struct world *w = &race->world;
    struct twin_matcher twins[2];
    struct matcher matchers[2];
    size_t must = atomic_load_explicit(&race->written, memory_order_acquire);
    struct series_list list;
    struct labels *sets;
    struct column *columns;
    struct arena arena;
    struct errinfo ei = {0};
    size_t n, found = 0, want = 0;

    arena_init(&arena, NULL);
    n = random_matchers(r, &arena, 2, twins, matchers);
    CHECK_OK(querier_select(w->querier, matchers, n, INT64_MIN, INT64_MAX, &arena, &list, &ei),
             &ei);
    CHECK_OK(querier_sort(w->querier, &list, &ei), &ei);
    sets = ARENA_ARRAY(&arena, list.count, struct labels);
    columns = ARENA_ARRAY(&arena, list.count, struct column);
    CHECK_OK(querier_labels(w->querier, list.items, list.count, &arena, sets, &ei), &ei);
    for (size_t i = 0; i < list.count; i += QUERIER_READ_BATCH_MAX)
        CHECK_OK(querier_read(w->querier, list.items + i,
                              list.count - i < QUERIER_READ_BATCH_MAX ? list.count - i
                                                                      : QUERIER_READ_BATCH_MAX,
                              INT64_MIN, INT64_MAX, &arena, columns + i, &ei),
                 &ei);
    for (size_t i = 0; i < list.count; i++) {
        size_t number = number_of(w, &sets[i]);

        CHECK(twin_matches(twins, n, &sets[i]));
        CHECK(i == 0 || labels_compare(&sets[i - 1], &sets[i]) < 0);
        if (number >= must)
            continue;
        CHECK(columns[i].count == w->samples[number].count);
        found++;
    }
    for (size_t i = 0; i < must; i++)
        want += twin_matches(twins, n, &w->labels[i]);
    CHECK(found == want);
    matchers_done(twins, n);
    arena_done(&arena);
}

static void list_once(struct world *w)
{
    struct arena arena;
    struct str_list list;
    struct errinfo ei = {0};
    bool truncated;

    arena_init(&arena, NULL);
    CHECK_OK(querier_label_names(w->querier, NULL, 0, INT64_MIN, INT64_MAX, 0, &arena, &list,
                                 &truncated, &ei),
             &ei);
    CHECK_OK(querier_label_values(w->querier, STR_LITERAL("instance"), NULL, 0, INT64_MIN,
                                  INT64_MAX, 0, &arena, &list, &truncated, &ei),
             &ei);
    arena_done(&arena);
}

static void *query_series(void *arg)
{
    struct race *race = arg;
    struct test_random r = test_random_init(78);

    do {
        query_once(race, &r);
        list_once(&race->world);
        atomic_fetch_add_explicit(&race->rounds, 1, memory_order_relaxed);
    } while (atomic_load_explicit(&race->written, memory_order_acquire) < race->world.count);
    return NULL;
}

static void queries_run_beside_writes(void **state)
{
    struct race race = {0};
    struct thread threads[4] = {0};
    struct errinfo ei = {0};

    (void)state;
    world_open(&race.world, 28, 4000);
    random_labels(&race.world);
    CHECK_OK(thread_start(&threads[0], "writer", write_series_slowly, &race, &ei), &ei);
    for (int i = 1; i < 4; i++)
        CHECK_OK(thread_start(&threads[i], "reader", query_series, &race, &ei), &ei);
    for (int i = 0; i < 4; i++)
        thread_join(&threads[i]);
    world_done(&race.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_equals_the_twin),
        cmocka_unit_test(sort_equals_label_order),
        cmocka_unit_test(sort_of_wide_label_sets),
        cmocka_unit_test(columns_and_samples_come_back),
        cmocka_unit_test(names_and_values_equal_the_twin),
        cmocka_unit_test(a_stopped_querier_ends_its_calls),
        cmocka_unit_test(a_spent_budget_is_an_error),
        cmocka_unit_test(queries_run_beside_writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
