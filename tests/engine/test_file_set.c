/*
 * Sets of files: what is read from random ones is what a plain table says; who is closed and
 * removed when; readers beside a thread that publishes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file_sim.h"
#include "base/thread.h"
#include "tests/engine/histogram_kit.h"
#include "tests/engine/set_kit.h"
#include "tests/engine/tombstone_kit.h"
#include "tests/lib/test_cmocka.h"

#define BASE_MS 1767225600000

enum {
    SERIES = 12,
    TICKS = 160, /* timestamps that occur */
    TICK_MS = 1000,
    SOURCES_MAX = 7,
    SLICES_MAX = 4,
    RUN_MAX = 40, /* samples of a chunk */
};

/* Samples of one series in one slice of a source (parts: slice 0 only). */
struct run {
    size_t count;
    int64_t t_ms[RUN_MAX];
    double value[RUN_MAX];
    const struct histogram *histogram[RUN_MAX]; /* NULL: a float */
};

struct source_model {
    bool is_part;
    uint64_t generation;
    struct run runs[SLICES_MAX][SERIES];
};

struct world {
    struct test_random random;
    struct fs *fs;
    struct budget memory;
    struct part_store *store;
    struct arena arena;
    struct labels labels[SERIES];
    struct hash128 fingerprints[SERIES];
    uint16_t generations[SERIES];
    struct source_model sources[SOURCES_MAX]; /* ascending by generation */
    size_t source_count;
    struct run in_order[SERIES], late_frozen[SERIES], late[SERIES];
    struct file_set *set;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

static struct labels labels_make(struct arena *arena, unsigned i)
{
    struct label *items = ARENA_ARRAY(arena, 2, struct label);
    char *name, *value;

    name = arena_printf(arena, "m%u", i % 3);
    value = arena_printf(arena, "%u", i);
    CHECK(items != NULL && name != NULL && value != NULL);
    items[0] = (struct label){LABEL_METRIC_NAME, str_from(name)};
    items[1] = (struct label){STR_LITERAL("i"), str_from(value)};
    return (struct labels){2, items};
}

/* Half of the runs are of floats, some of histograms, some of both. */
static void histograms_add(struct world *w, struct run *run)
{
    uint64_t percent = below(w, 2) == 0 ? 0 : 1 + below(w, 120);
    struct histogram *h = ARENA_ARRAY(&w->arena, RUN_MAX, struct histogram);

    CHECK(h != NULL);
    memset(run->histogram, 0, sizeof run->histogram);
    if (percent > 0)
        histograms_fill_any(&w->random, &w->arena, h, run->count);
    for (size_t i = 0; i < run->count; i++) {
        if (below(w, 100) >= percent)
            continue;
        run->histogram[i] = &h[i];
        run->value[i] = h[i].sum;
    }
}

/* Ascending ticks from `first` on; returns the tick behind the last. */
static unsigned run_fill(struct world *w, struct run *run, unsigned first)
{
    size_t room = below(w, 3) == 0 ? 0 : 1 + below(w, RUN_MAX);
    unsigned tick = first, step = 1 + (unsigned)below(w, 4);

    run->count = 0;
    for (; run->count < room && tick < TICKS; tick += 1 + (unsigned)below(w, step)) {
        run->t_ms[run->count] = BASE_MS + (int64_t)tick * TICK_MS;
        run->value[run->count++] = below(w, 4) == 0 ? double_from_bits(0x7ff0000000000002)
                                                    : double_from_bits(test_random_u64(&w->random));
    }
    histograms_add(w, run);
    return tick;
}

static struct set_chunk chunk_of(const struct world *w, uint32_t series, const struct run *run)
{
    return (struct set_chunk){.slot = series * 7,
                              .generation = w->generations[series],
                              .labels = &w->labels[series],
                              .fingerprint = w->fingerprints[series],
                              .count = run->count,
                              .t_ms = run->t_ms,
                              .value = run->value,
                              .histogram = run->histogram};
}

static size_t chunks_of(const struct world *w, const struct run runs[SERIES],
                        struct set_chunk out[SERIES])
{
    size_t n = 0;

    for (uint32_t k = 0; k < SERIES; k++) {
        if (runs[k].count > 0)
            out[n++] = chunk_of(w, k, &runs[k]);
    }
    return n;
}

static void source_make(struct world *w, struct source_model *m, uint64_t number)
{
    bool is_late = below(w, 3) == 0;
    unsigned begin[SERIES];
    struct set_chunk chunks[SERIES];
    struct set_sealed sealed = {0};

    m->is_part = below(w, 2) == 0;
    m->generation = generation_of_file(number);
    for (unsigned k = 0; k < SERIES; k++)
        begin[k] = (unsigned)below(w, TICKS);
    if (!m->is_part)
        sealed = set_sealed_begin(w->fs, is_late ? SEALED_LATE : SEALED_RECENT, number);
    for (unsigned i = 0; i < (m->is_part ? 1 : 1 + below(w, SLICES_MAX)); i++) {
        size_t n;

        for (unsigned k = 0; k < SERIES; k++)
            begin[k] = run_fill(w, &m->runs[i][k], is_late ? (unsigned)below(w, TICKS) : begin[k]);
        n = chunks_of(w, m->runs[i], chunks);
        if (m->is_part) {
            const struct part_key key = {.window_size_ms = 7200000,
                                         .window_start_ms = BASE_MS,
                                         .generation = m->generation,
                                         .shard_count = 1};

            w->set = set_with_part(w->set, set_part(w->fs, w->store, &key, chunks, n, false));
        } else {
            set_sealed_slice(&sealed, chunks, n);
        }
    }
    if (!m->is_part) {
        set_sealed_end(&sealed);
        w->set = set_with_sealed(w->set, sealed.source);
    }
}

static void store_init(struct world *w, uint64_t seed)
{
    struct part_store_options o = {.cache_bytes = 1 << 20, .descriptor_count = 2};
    struct errinfo ei = {0};

    w->random = test_random_init(seed);
    CHECK_OK(fs_sim_new(seed, &w->fs, &ei), &ei);
    budget_init(&w->memory, "test", UINT64_MAX, NULL);
    o.fs = w->fs;
    o.memory = &w->memory;
    CHECK_OK(part_store_new(&o, &w->store, &ei), &ei);
    arena_init(&w->arena, &w->memory);
    for (unsigned i = 0; i < SERIES; i++) {
        w->labels[i] = labels_make(&w->arena, i);
        w->fingerprints[i] =
            (struct hash128){test_random_u64(&w->random), test_random_u64(&w->random)};
        w->generations[i] = (uint16_t)below(w, 3);
    }
}

static void world_init(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    store_init(w, seed);
    w->source_count = below(w, SOURCES_MAX + 1);
    for (size_t i = 0; i < w->source_count; i++)
        source_make(w, &w->sources[i], 3 + 2 * i);
    for (unsigned k = 0; k < SERIES; k++) {
        run_fill(w, &w->in_order[k], (unsigned)below(w, TICKS));
        run_fill(w, &w->late_frozen[k], (unsigned)below(w, TICKS));
        run_fill(w, &w->late[k], (unsigned)below(w, TICKS));
    }
}

static void world_done(struct world *w)
{
    file_set_unref(w->set);
    arena_done(&w->arena);
    part_store_free(w->store);
    CHECK(budget_used(&w->memory) == 0);
    fs_free(w->fs);
}

/* ---- the slow twin ---- */

struct batch {
    size_t count;
    struct file_read_item items[SERIES * 2];
    uint32_t series[SERIES * 2]; /* SERIES: one that nobody knows */
    struct column in_order[SERIES * 2], late_frozen[SERIES * 2], late[SERIES * 2];
    int64_t min_time_ms, max_time_ms;
    size_t labels_calls;
    const struct world *world;
};

struct row {
    bool is_set[TICKS];
    double value[TICKS];
    const struct histogram *histogram[TICKS];
    const int64_t *origin[TICKS]; /* where its timestamp stands: tells what stood before it */
};

static bool is_deleted(const struct world *w, uint64_t generation, uint32_t series, int64_t t_ms)
{
    const struct tombstone_list *list = w->set == NULL ? NULL : w->set->tombstones;

    for (size_t i = 0; list != NULL && i < list->count; i++) {
        const struct tombstone *t = &list->items[i];

        if (t->generation > generation && t_ms >= t->min_time_ms && t_ms <= t->max_time_ms &&
            tombstone_kit_hits(t, &w->labels[series]))
            return true;
    }
    return false;
}

/* Samples of a file if `generation` is not 0. */
static void row_add(struct row *row, const struct world *w, const struct batch *b,
                    uint64_t generation, uint32_t series, const struct column *c)
{
    for (size_t i = 0; i < c->count; i++) {
        size_t tick = (size_t)(c->t_ms[i] - BASE_MS) / TICK_MS;

        if (c->t_ms[i] < b->min_time_ms || c->t_ms[i] > b->max_time_ms || row->is_set[tick] ||
            (generation != 0 && is_deleted(w, generation, series, c->t_ms[i])))
            continue;
        row->is_set[tick] = true;
        row->value[tick] = c->value[i];
        row->histogram[tick] = c->histogram == NULL ? NULL : c->histogram[i];
        row->origin[tick] = c->t_ms + i;
    }
}

static void check_histogram(const struct histogram *h, const struct histogram *got, bool follows)
{
    CHECK((h != NULL) == (got != NULL));
    CHECK(h == NULL || histogram_is_answer(h, got, follows));
}

static void check_item(const struct world *w, const struct batch *b, size_t i,
                       const struct column *got)
{
    uint32_t series = b->series[i];
    const int64_t *before = NULL;
    struct row row = {0};
    size_t at = 0;

    for (size_t k = 0; k < w->source_count && series < SERIES; k++) {
        const struct source_model *m = &w->sources[k];

        if (!m->is_part &&
            (b->items[i].slot == UINT32_MAX || b->items[i].generation != w->generations[series]))
            continue;
        for (size_t slice = 0; slice < SLICES_MAX; slice++) {
            const struct run *run = &m->runs[slice][series];
            const struct column c = {run->count, run->t_ms, run->value, run->histogram};

            row_add(&row, w, b, m->generation, series, &c);
        }
    }
    for (size_t k = 0; k < 3; k++) {
        const struct column *c =
            k == 0 ? &b->in_order[i] : (k == 1 ? &b->late_frozen[i] : &b->late[i]);

        row_add(&row, w, b, 0, series, c);
    }
    for (size_t tick = 0; tick < TICKS; tick++) {
        if (!row.is_set[tick])
            continue;
        CHECK(at < got->count);
        CHECK(got->t_ms[at] == BASE_MS + (int64_t)tick * TICK_MS);
        CHECK(double_bits(got->value[at]) == double_bits(row.value[tick]));
        check_histogram(row.histogram[tick], got->histogram == NULL ? NULL : got->histogram[at],
                        before == NULL || before + 1 == row.origin[tick]);
        before = row.origin[tick];
        at++;
    }
    CHECK(at == got->count);
}

static struct column clipped(const struct run *run, const struct batch *b)
{
    size_t begin = 0, end = run->count;

    while (begin < end && run->t_ms[begin] < b->min_time_ms)
        begin++;
    while (end > begin && run->t_ms[end - 1] > b->max_time_ms)
        end--;
    return (struct column){.count = end - begin,
                           .t_ms = run->t_ms + begin,
                           .value = run->value + begin,
                           .histogram = run->histogram + begin};
}

static void batch_make(struct world *w, struct batch *b)
{
    *b = (struct batch){.world = w, .count = 1 + below(w, (uint64_t)SERIES * 2)};
    b->min_time_ms = below(w, 4) == 0 ? INT64_MIN : BASE_MS + (int64_t)below(w, TICKS) * TICK_MS;
    b->max_time_ms = below(w, 4) == 0 ? INT64_MAX
                                      : (b->min_time_ms == INT64_MIN ? BASE_MS : b->min_time_ms) +
                                            (int64_t)below(w, TICKS) * TICK_MS;
    for (size_t i = 0; i < b->count; i++) {
        uint32_t k = (uint32_t)below(w, SERIES + 1);

        b->series[i] = k;
        b->items[i] = (struct file_read_item){.slot = UINT32_MAX, .fingerprint = {1, 2}};
        if (k == SERIES)
            continue;
        b->items[i] = (struct file_read_item){w->fingerprints[k], k * 7, w->generations[k]};
        if (below(w, 6) == 0)
            b->items[i].slot = UINT32_MAX;
        if (below(w, 6) == 0)
            b->items[i].generation++;
        if (below(w, 2) == 0)
            b->in_order[i] = clipped(&w->in_order[k], b);
        if (below(w, 4) == 0)
            b->late_frozen[i] = clipped(&w->late_frozen[k], b);
        if (below(w, 4) == 0)
            b->late[i] = clipped(&w->late[k], b);
    }
}

static enum err labels_of(void *ctx, const size_t *items, size_t count, struct arena *arena,
                          struct labels *out, struct errinfo *ei)
{
    struct batch *b = ctx;

    (void)arena;
    (void)ei;
    b->labels_calls++;
    for (size_t i = 0; i < count; i++)
        out[i] = b->world->labels[b->series[items[i]]];
    return ERR_OK;
}

static enum err batch_read(const struct world *w, struct batch *b, struct arena *arena,
                           struct column *out, struct errinfo *ei)
{
    const struct file_read read = {.set = w->set,
                                   .items = b->items,
                                   .count = b->count,
                                   .min_time_ms = b->min_time_ms,
                                   .max_time_ms = b->max_time_ms,
                                   .in_order = b->in_order,
                                   .late_frozen = b->late_frozen,
                                   .late = b->late,
                                   .labels_of = labels_of,
                                   .ctx = b,
                                   .arena = arena};

    return file_set_read(&read, out, ei);
}

static void check_world(struct world *w)
{
    struct column out[SERIES * 2];
    struct errinfo ei = {0};
    struct batch b;
    struct arena arena;

    arena_init(&arena, &w->memory);
    for (int i = 0; i < 8; i++) {
        batch_make(w, &b);
        CHECK_OK(batch_read(w, &b, &arena, out, &ei), &ei);
        for (size_t k = 0; k < b.count; k++)
            check_item(w, &b, k, &out[k]);
    }
    arena_done(&arena);
}

static void test_reads_like_the_twin(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct world w;

        world_init(&w, seed);
        check_world(&w);
        world_done(&w);
    }
}

static struct tombstone_list *tombstones_make(struct world *w)
{
    static const char *const values[] = {"m0", "m1", "m.", "(1|2|3|7)"};
    struct tombstone_list *list = NULL;

    for (size_t i = 0; i < 1 + below(w, 4); i++) {
        size_t which = below(w, 4);
        struct tombstone_list *longer;
        struct errinfo ei = {0};
        struct matcher m;
        int64_t min = BASE_MS + (int64_t)below(w, TICKS) * TICK_MS;
        int64_t max = below(w, 4) == 0 ? INT64_MAX : min + (int64_t)below(w, TICKS) * TICK_MS;

        CHECK_OK(matcher_init(&m, which < 2 ? MATCHER_EQUAL : MATCHER_REGEX,
                              which < 3 ? LABEL_METRIC_NAME : STR_LITERAL("i"),
                              str_from(values[which]), &w->arena, &ei),
                 &ei);
        CHECK_OK(tombstone_list_add(list, &m, 1, below(w, 4) == 0 ? INT64_MIN : min, max,
                                    generation_of_file(below(w, 20)), &longer, &ei),
                 &ei);
        matcher_done(&m);
        tombstone_list_unref(list);
        list = longer;
    }
    return list;
}

static void test_deleted_samples_are_left_out(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1120; seed++) {
        struct file_set_change change = {.set_tombstones = true};
        struct errinfo ei = {0};
        struct file_set *set;
        struct world w;

        world_init(&w, seed);
        change.tombstones = tombstones_make(&w);
        CHECK_OK(file_set_new(w.set, &change, &set, &ei), &ei);
        tombstone_list_unref(change.tombstones);
        file_set_unref(w.set);
        w.set = set;
        check_world(&w);
        world_done(&w);
    }
}

/* ---- what is shared, what is copied ---- */

static void simple_run(struct run *run, unsigned first, size_t count)
{
    run->count = count;
    for (size_t i = 0; i < count; i++) {
        run->t_ms[i] = BASE_MS + (int64_t)(first + i) * TICK_MS;
        run->value[i] = (double)(first + i);
    }
}

/* Two slices in which all series have the same timestamps. */
static void world_regular(struct world *w, uint64_t seed, size_t slice_count)
{
    struct set_chunk chunks[SERIES];
    struct set_sealed sealed;

    memset(w, 0, sizeof *w);
    store_init(w, seed);
    sealed = set_sealed_begin(w->fs, SEALED_RECENT, 3);
    w->source_count = 1;
    w->sources[0].generation = generation_of_file(3);
    for (unsigned i = 0; i < slice_count; i++) {
        for (unsigned k = 0; k < SERIES; k++)
            simple_run(&w->sources[0].runs[i][k], 20 * i, 20);
        set_sealed_slice(&sealed, chunks, chunks_of(w, w->sources[0].runs[i], chunks));
    }
    set_sealed_end(&sealed);
    w->set = set_with_sealed(w->set, sealed.source);
}

static void batch_all(struct world *w, struct batch *b)
{
    *b = (struct batch){
        .world = w, .count = SERIES, .min_time_ms = INT64_MIN, .max_time_ms = INT64_MAX};
    for (uint32_t k = 0; k < SERIES; k++) {
        b->series[k] = k;
        b->items[k] = (struct file_read_item){w->fingerprints[k], k * 7, w->generations[k]};
    }
}

static void test_timestamps_stay_shared(void **state)
{
    (void)state;
    for (size_t slices = 1; slices <= 3; slices++) {
        struct column out[SERIES];
        struct errinfo ei = {0};
        struct world w;
        struct batch b;

        world_regular(&w, 5, slices);
        batch_all(&w, &b);
        CHECK_OK(batch_read(&w, &b, &w.arena, out, &ei), &ei);
        for (size_t k = 0; k < SERIES; k++) {
            check_item(&w, &b, k, &out[k]);
            CHECK(out[k].count == 20 * slices && out[k].t_ms == out[0].t_ms);
        }
        CHECK(b.labels_calls == 0);
        world_done(&w);
    }
}

static void test_memory_alone_is_not_copied(void **state)
{
    struct column out[SERIES];
    struct errinfo ei = {0};
    struct world w;
    struct batch b;

    (void)state;
    world_regular(&w, 6, 1);
    batch_all(&w, &b);
    for (uint32_t k = 0; k < SERIES; k++) {
        simple_run(&w.in_order[k], 100, 10);
        b.in_order[k] =
            (struct column){.count = 10, .t_ms = w.in_order[k].t_ms, .value = w.in_order[k].value};
    }
    b.min_time_ms = BASE_MS + INT64_C(50) * TICK_MS; /* the file is older */
    CHECK_OK(batch_read(&w, &b, &w.arena, out, &ei), &ei);
    for (size_t k = 0; k < SERIES; k++)
        CHECK(out[k].count == 10 && out[k].value == w.in_order[k].value);
    world_done(&w);
}

/* ---- damage ---- */

/* A file of the set, by chance a sealed one or one of a part's two; false if the set is empty. */
static bool file_draw(struct world *w, char path[PART_NAME_SIZE])
{
    size_t sealed = w->set == NULL ? 0 : w->set->sealed_count;
    size_t parts = w->set == NULL ? 0 : w->set->part_count;
    size_t i;

    if (sealed + parts == 0)
        return false;
    i = below(w, sealed + parts);
    if (i < sealed)
        (void)snprintf(path, PART_NAME_SIZE, "%s",
                       sealed_file_path(w->set->sealed[i].source->file));
    else
        part_name_format(&w->set->parts[i - sealed]->key,
                         below(w, 3) == 0 ? PART_FILE_INDEX : PART_FILE_CHUNKS, false, path);
    return true;
}

/* One bit of one file: every bit in turn would take long. */
static void test_damage_is_told(void **state)
{
    size_t told = 0;

    (void)state;
    for (uint64_t seed = 2000; seed < 2120; seed++) {
        char path[PART_NAME_SIZE];
        struct column out[SERIES * 2];
        struct errinfo ei = {0};
        struct world w;
        struct batch b;
        uint64_t size = 0;
        struct file *file;

        world_init(&w, seed);
        if (file_draw(&w, path)) {
            CHECK_OK(file_open(w.fs, path, FILE_READ, &file, &ei), &ei);
            CHECK_OK(file_size(file, &size, &ei), &ei);
            file_close(file);
            CHECK_OK(fs_sim_flip_bit(w.fs, path, below(&w, size * 8), &ei), &ei);
        }
        for (int i = 0; size > 0 && i < 8; i++) {
            enum err e;

            batch_make(&w, &b);
            errinfo_clear(&ei);
            e = batch_read(&w, &b, &w.arena, out, &ei);
            CHECK_MSG(e == ERR_OK || (e == ERR_CORRUPT && strstr(ei.message, path) != NULL &&
                                      strstr(ei.message, "offset") != NULL),
                      "%s: %s", path, ei.message);
            told += e != ERR_OK;
            for (size_t k = 0; k < b.count && e == ERR_OK; k++)
                check_item(&w, &b, k, &out[k]);
        }
        world_done(&w);
    }
    CHECK_MSG(told > 100, "%zu", told);
}

static void test_memory_limit(void **state)
{
    struct column out[SERIES];
    struct errinfo ei = {0};
    struct budget small;
    struct arena arena;
    struct world w;
    struct batch b;

    (void)state;
    world_regular(&w, 9, 3);
    batch_all(&w, &b);
    budget_init(&small, "small", 5000, NULL);
    arena_init(&arena, &small);
    CHECK(batch_read(&w, &b, &arena, out, &ei) == ERR_LIMIT);
    arena_done(&arena);
    CHECK(budget_used(&small) == 0);
    world_done(&w);
}

/* ---- life of a source ---- */

static bool exists(struct fs *fs, const char *path)
{
    struct errinfo ei = {0};
    bool yes = false;

    CHECK_OK(fs_exists(fs, path, &yes, &ei), &ei);
    return yes;
}

static void test_the_last_reader_removes(void **state)
{
    struct file_set_change change = {0};
    const struct part_key key = {.window_size_ms = 7200000,
                                 .window_start_ms = BASE_MS,
                                 .generation = generation_of_file(9),
                                 .shard_count = 1};
    struct set_chunk chunks[SERIES];
    char index[PART_NAME_SIZE], data[PART_NAME_SIZE];
    struct sealed_source *sealed;
    struct part_source *part;
    struct file_set *older, *newer;
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    world_regular(&w, 7, 1);
    w.set = set_with_part(w.set, set_part(w.fs, w.store, &key, chunks,
                                          chunks_of(&w, w.sources[0].runs[0], chunks), false));
    part_name_format(&key, PART_FILE_INDEX, false, index);
    part_name_format(&key, PART_FILE_CHUNKS, false, data);
    older = file_set_ref(w.set);
    sealed = w.set->sealed[0].source;
    part = w.set->parts[0];
    change = (struct file_set_change){.sealed_remove = &sealed,
                                      .sealed_remove_count = 1,
                                      .part_remove = &part,
                                      .part_remove_count = 1};
    CHECK_OK(file_set_new(w.set, &change, &newer, &ei), &ei);
    CHECK(newer->sealed_count == 0 && newer->part_count == 0);
    atomic_store(&sealed->is_removed, true);
    atomic_store(&part->is_removed, true);
    file_set_unref(w.set);
    w.set = newer;
    CHECK(exists(w.fs, "1-3") && exists(w.fs, index) && exists(w.fs, data));
    file_set_unref(older);
    CHECK(!exists(w.fs, "1-3") && !exists(w.fs, index) && !exists(w.fs, data));
    world_done(&w);
}

static void test_a_source_that_stays_is_not_removed(void **state)
{
    struct world w;
    struct fs *fs;
    struct errinfo ei = {0};
    struct file_set *again;

    (void)state;
    world_regular(&w, 8, 2);
    fs = w.fs;
    CHECK_OK(file_set_new(w.set, NULL, &again, &ei), &ei);
    file_set_unref(w.set);
    CHECK(again->sealed_count == 1 && again->sealed[0].slice_count == 2);
    file_set_unref(again);
    w.set = NULL;
    CHECK(exists(fs, "1-3"));
    world_done(&w);
}

static void test_sets_are_ordered(void **state)
{
    static const uint64_t numbers[] = {9, 4, 6, 5};
    struct file_set *set = NULL;
    struct world w;

    (void)state;
    memset(&w, 0, sizeof w);
    store_init(&w, 3);
    for (size_t i = 0; i < 4; i++) {
        struct set_sealed s = set_sealed_begin(w.fs, SEALED_RECENT, numbers[i]);
        const struct part_key key = {.window_size_ms = 7200000,
                                     .window_start_ms = (int64_t)(numbers[i] % 2) * 7200000,
                                     .generation = generation_of_file(numbers[i]),
                                     .shard_count = 1};

        set_sealed_end(&s);
        set = set_with_sealed(set, s.source);
        set = set_with_part(set, set_part(w.fs, w.store, &key, NULL, 0, false));
    }
    for (size_t i = 1; i < 4; i++) {
        const struct part_key *a = &set->parts[i - 1]->key, *b = &set->parts[i]->key;

        CHECK(set->sealed[i - 1].source->generation < set->sealed[i].source->generation);
        CHECK(a->window_start_ms < b->window_start_ms ||
              (a->window_start_ms == b->window_start_ms && a->generation < b->generation));
    }
    CHECK(!file_set_overlaps(set, INT64_MIN, INT64_MAX)); /* nothing in them */
    w.set = set;
    world_done(&w);
}

/* ---- threads ---- */

enum { PUBLISHED = 120, READERS = 3 };

struct publishing {
    struct world *w;
    struct mutex lock; /* guards set */
    struct file_set *set;
    _Atomic bool is_over;
};

static struct file_set *current(struct publishing *p)
{
    struct file_set *set;

    mutex_lock(&p->lock);
    set = file_set_ref(p->set);
    mutex_unlock(&p->lock);
    return set;
}

/* What is there is always a run of samples from the first on. */
static void *read_on(void *arg)
{
    struct publishing *p = arg;
    size_t seen = 0;

    while (!atomic_load(&p->is_over)) {
        struct file_set *set = current(p);
        struct column out[SERIES];
        struct errinfo ei = {0};
        struct arena arena;
        struct batch b;

        arena_init(&arena, NULL);
        batch_all(p->w, &b);
        const struct file_read read = {.set = set,
                                       .items = b.items,
                                       .count = b.count,
                                       .min_time_ms = INT64_MIN,
                                       .max_time_ms = INT64_MAX,
                                       .arena = &arena};
        CHECK_OK(file_set_read(&read, out, &ei), &ei);
        CHECK(out[0].count >= seen);
        seen = out[0].count;
        for (size_t k = 0; k < SERIES; k++) {
            CHECK(out[k].count == seen);
            for (size_t i = 0; i < seen; i++)
                CHECK(out[k].t_ms[i] == BASE_MS + (int64_t)i * TICK_MS &&
                      out[k].value[i] == (double)i);
        }
        arena_done(&arena);
        file_set_unref(set);
    }
    return NULL;
}

static void publish(struct publishing *p, const struct file_set_change *change)
{
    struct errinfo ei = {0};
    struct file_set *before = p->set, *set;

    CHECK_OK(file_set_new(before, change, &set, &ei), &ei);
    mutex_lock(&p->lock);
    p->set = set;
    mutex_unlock(&p->lock);
    file_set_unref(before);
}

/* A slice of one more sample; now and then the sealed file becomes a part. */
static void publish_all(struct publishing *p)
{
    struct world *w = p->w;
    struct set_sealed sealed = set_sealed_begin(w->fs, SEALED_RECENT, 1);
    struct set_chunk chunks[SERIES];
    struct run *all = calloc(SERIES, sizeof *all), *one = calloc(SERIES, sizeof *one);
    unsigned first = 0;

    CHECK(all != NULL && one != NULL);
    publish(p, &(struct file_set_change){.sealed_add = &sealed.source, .sealed_add_count = 1});
    for (unsigned i = 0; i < PUBLISHED; i++) {
        for (unsigned k = 0; k < SERIES; k++)
            simple_run(&one[k], i, 1);
        set_sealed_slice(&sealed, chunks, chunks_of(w, one, chunks));
        publish(p, NULL);
        if (i % 30 != 29)
            continue;
        const struct part_key key = {.window_size_ms = 7200000,
                                     .window_start_ms = BASE_MS,
                                     .generation = sealed.source->generation,
                                     .shard_count = 1};
        struct sealed_source *old = sealed.source;
        struct part_source *part;

        for (unsigned k = 0; k < SERIES; k++)
            simple_run(&all[k], first, i + 1 - first);
        first = i + 1;
        part = set_part(w->fs, w->store, &key, chunks, chunks_of(w, all, chunks), false);
        set_sealed_end(&sealed);
        sealed = set_sealed_begin(w->fs, SEALED_RECENT, i + 2);
        atomic_store(&old->is_removed, true);
        publish(p, &(struct file_set_change){.sealed_add = &sealed.source,
                                             .sealed_add_count = 1,
                                             .sealed_remove = &old,
                                             .sealed_remove_count = 1,
                                             .part_add = &part,
                                             .part_add_count = 1});
        sealed_source_unref(old);
        part_source_unref(part);
    }
    set_sealed_end(&sealed);
    sealed_source_unref(sealed.source);
    free(all);
    free(one);
}

static void test_readers_beside_a_publisher(void **state)
{
    struct publishing p = {0};
    struct thread threads[READERS] = {0};
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    memset(&w, 0, sizeof w);
    store_init(&w, 11);
    p.w = &w;
    mutex_init(&p.lock);
    CHECK_OK(file_set_new(NULL, NULL, &p.set, &ei), &ei);
    for (size_t i = 0; i < READERS; i++)
        CHECK_OK(thread_start(&threads[i], "reader", read_on, &p, &ei), &ei);
    publish_all(&p);
    atomic_store(&p.is_over, true);
    for (size_t i = 0; i < READERS; i++)
        thread_join(&threads[i]);
    CHECK(!exists(w.fs, "1-1"));
    w.set = p.set;
    mutex_done(&p.lock);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_like_the_twin),
        cmocka_unit_test(test_deleted_samples_are_left_out),
        cmocka_unit_test(test_timestamps_stay_shared),
        cmocka_unit_test(test_memory_alone_is_not_copied),
        cmocka_unit_test(test_damage_is_told),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_the_last_reader_removes),
        cmocka_unit_test(test_a_source_that_stays_is_not_removed),
        cmocka_unit_test(test_sets_are_ordered),
        cmocka_unit_test(test_readers_beside_a_publisher),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
