/*
 * The querier over memory, late samples, sealed files and parts of a real engine, against a table
 * of all samples. Files are made by the test and put into the shards' sets as a seal or a flush
 * would.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/engine_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/set_kit.h"
#include "tests/lib/test_cmocka.h"

enum {
    SERIES = 150,
    SHARDS = 4,
    TICKS = 100,
    TICK_MS = 60000,
    NAMES = 5,
    READ_RUNS = 12,
};

#define T0 (KIT_NOW_MS - (int64_t)TICKS * TICK_MS)

static const char *const names[NAMES] = {"A", "__name__", "host", "i", "zone"};

/* Where a series has samples. */
enum source_kind { IN_PART_1, IN_PART_2, IN_FOREIGN, IN_SEALED, IN_MEMORY, IN_LATE, SOURCE_KINDS };

struct model {
    const char *text; /* "name=value,..." */
    struct labels labels;
    struct label items[NAMES];
    struct series_identity identity;
    bool is_live;
    uint32_t slot;
    uint16_t generation;
    bool has[SOURCE_KINDS][TICKS];
    double value[SOURCE_KINDS][TICKS];
};

struct world {
    struct test_random random;
    struct fs *fs;
    struct kit k;
    struct budget memory; /* of parts */
    struct part_store *store;
    struct arena arena;
    struct model *series;
};

static int64_t time_of(size_t tick)
{
    return T0 + (int64_t)tick * TICK_MS;
}

static uint64_t below(struct world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

/* ---- series ---- */

static void label_add(struct world *w, struct model *m, const char *name, const char *format,
                      size_t number)
{
    char *value = arena_printf(&w->arena, "%s%zu", format, number);

    CHECK(value != NULL);
    m->items[m->labels.count++] = (struct label){str_from(name), str_from(value)};
    m->text = m->text == NULL ? arena_printf(&w->arena, "%s=%s", name, value)
                              : arena_printf(&w->arena, "%s,%s=%s", m->text, name, value);
    CHECK(m->text != NULL);
}

static void model_init(struct world *w, size_t i)
{
    struct model *m = &w->series[i];
    struct byte_writer canonical, rest;

    m->labels.items = m->items;
    if (i % 7 == 0)
        label_add(w, m, "A", "", i % 2);
    label_add(w, m, "__name__", "m", i % 3);
    label_add(w, m, "host", "h", i % 11);
    label_add(w, m, "i", "", i);
    if (i % 5 != 0)
        label_add(w, m, "zone", "z", i % 4);
    writer_init(&canonical);
    writer_init(&rest);
    CHECK(engine_identify_labels(w->k.engine, &m->labels, &canonical, &rest, &m->identity));
    writer_done(&canonical);
    writer_done(&rest);
    m->is_live = i % 3 != 0;
}

static void samples_draw(struct world *w, struct model *m, enum source_kind kind, size_t first,
                         size_t end, unsigned percent)
{
    for (size_t tick = first; tick < end; tick++) {
        m->has[kind][tick] = below(w, 100) < percent;
        m->value[kind][tick] = (double)(1000 * (size_t)kind + tick);
    }
}

static void memory_write(struct world *w)
{
    for (size_t i = 0; i < SERIES; i++) {
        struct model *m = &w->series[i];

        if (!m->is_live)
            continue;
        kit_series(&w->k, m->text);
        for (size_t tick = 0; tick < TICKS; tick++) {
            if (m->has[IN_MEMORY][tick])
                kit_sample(&w->k, time_of(tick), m->value[IN_MEMORY][tick]);
        }
        CHECK(kit_write(&w->k) == ERR_OK);
    }
}

static void slots_find(struct world *w)
{
    for (size_t i = 0; i < SERIES; i++) {
        struct model *m = &w->series[i];
        struct shard *s = engine_shard(w->k.engine, m->identity.shard);

        if (!m->is_live)
            continue;
        m->slot = fingerprint_table_find(&s->fingerprints, m->identity.fingerprint);
        CHECK(m->slot != FINGERPRINT_SLOT_NONE);
        m->generation = series_find(&s->series, m->slot)->generation;
    }
}

/* ---- files ---- */

/* Chunks of a kind of source of one shard (SHARDS: of all), one a series. */
static size_t chunks_make(struct world *w, enum source_kind kind, uint32_t shard,
                          struct set_chunk *out)
{
    size_t n = 0;

    for (size_t i = 0; i < SERIES; i++) {
        struct model *m = &w->series[i];
        int64_t *t_ms = ARENA_ARRAY(&w->arena, TICKS, int64_t);
        double *value = ARENA_ARRAY(&w->arena, TICKS, double);
        size_t count = 0;

        CHECK(t_ms != NULL && value != NULL);
        for (size_t tick = 0; tick < TICKS; tick++) {
            if (!m->has[kind][tick])
                continue;
            t_ms[count] = time_of(tick);
            value[count++] = m->value[kind][tick];
        }
        if (count > 0 && (shard == SHARDS || m->identity.shard == shard))
            out[n++] = (struct set_chunk){.slot = m->slot,
                                          .generation = m->generation,
                                          .labels = &m->labels,
                                          .fingerprint = m->identity.fingerprint,
                                          .count = count,
                                          .t_ms = t_ms,
                                          .value = value};
    }
    return n;
}

static int compare_slots(const void *a, const void *b)
{
    const struct set_chunk *x = a, *y = b;

    return (x->slot > y->slot) - (x->slot < y->slot);
}

static struct part_key key_of(enum source_kind kind, uint32_t shard)
{
    bool is_foreign = kind == IN_FOREIGN;

    return (struct part_key){.window_start_ms = T0,
                             .window_size_ms = (uint64_t)TICKS * TICK_MS,
                             .generation = generation_of_file((uint64_t)kind + 1),
                             .shard = is_foreign ? 0 : shard,
                             .shard_count = is_foreign ? 1 : SHARDS};
}

static void shard_files_make(struct world *w, uint32_t shard, struct part_source *foreign)
{
    struct set_sealed sealed = set_sealed_begin(w->fs, SEALED_RECENT, 100 + shard);
    struct shard *s = engine_shard(w->k.engine, shard);
    struct set_chunk *chunks = calloc(SERIES, sizeof *chunks);
    struct file_set *set = s->files; /* nobody else is there yet */
    size_t n;

    CHECK(chunks != NULL);
    for (enum source_kind kind = IN_PART_1; kind <= IN_PART_2; kind++) {
        const struct part_key key = key_of(kind, shard);

        n = chunks_make(w, kind, shard, chunks);
        set = set_with_part(set, set_part(w->fs, w->store, &key, chunks, n, false));
    }
    set = set_with_part(set, part_source_ref(foreign));
    n = chunks_make(w, IN_SEALED, shard, chunks);
    qsort(chunks, n, sizeof *chunks, compare_slots);
    set_sealed_slice(&sealed, chunks, n);
    set_sealed_end(&sealed);
    set = set_with_sealed(set, sealed.source);
    mutex_lock(&s->lock);
    s->files = set;
    mutex_unlock(&s->lock);
    free(chunks);
}

/* What a seal and a late sample leave in the struct. */
static void series_mark(struct world *w)
{
    for (size_t i = 0; i < SERIES; i++) {
        struct model *m = &w->series[i];
        struct shard *s = engine_shard(w->k.engine, m->identity.shard);
        struct series *series;

        if (!m->is_live)
            continue;
        series = series_find(&s->series, m->slot) == NULL ? NULL : series_at(&s->series, m->slot);
        CHECK(series != NULL);
        for (size_t tick = 0; tick < TICKS; tick++) {
            if (m->has[IN_SEALED][tick] || m->has[IN_LATE][tick]) {
                series->has_files = 1;
                series_lower_oldest(series, time_of(tick));
            }
            if (m->has[IN_LATE][tick])
                CHECK(late_buffer_add(tick % 2 ? &s->late : &s->late_frozen, m->slot, m->generation,
                                      time_of(tick), m->value[IN_LATE][tick]) == LATE_STORED);
        }
    }
}

static void world_init(struct world *w, uint64_t seed)
{
    struct part_store_options o = {.cache_bytes = 1 << 20, .descriptor_count = 4};
    struct set_chunk *chunks = calloc(SERIES, sizeof *chunks);
    const struct part_key key = key_of(IN_FOREIGN, 0);
    struct part_source *foreign;
    struct errinfo ei = {0};

    memset(w, 0, sizeof *w);
    w->random = test_random_init(seed);
    CHECK_OK(fs_sim_new(seed, &w->fs, &ei), &ei);
    kit_open(&w->k, w->fs, &(struct engine_options){.shard_count = SHARDS});
    budget_init(&w->memory, "test", UINT64_MAX, NULL);
    o.fs = w->fs;
    o.memory = &w->memory;
    CHECK_OK(part_store_new(&o, &w->store, &ei), &ei);
    arena_init(&w->arena, NULL);
    w->series = calloc(SERIES, sizeof *w->series);
    CHECK(w->series != NULL && chunks != NULL);
    for (size_t i = 0; i < SERIES; i++) {
        struct model *m = &w->series[i];

        model_init(w, i);
        samples_draw(w, m, IN_PART_1, 0, 20, 30);
        samples_draw(w, m, IN_PART_2, 20, 40, i % 2 ? 30 : 0);
        samples_draw(w, m, IN_FOREIGN, 10, 30, i % 4 ? 0 : 50);
        if (!m->is_live)
            continue;
        samples_draw(w, m, IN_SEALED, 35, 75, 60);
        samples_draw(w, m, IN_MEMORY, 70, TICKS, 70);
        samples_draw(w, m, IN_LATE, 30, 70, i % 8 ? 0 : 20);
    }
    memory_write(w);
    slots_find(w);
    foreign =
        set_part(w->fs, w->store, &key, chunks, chunks_make(w, IN_FOREIGN, SHARDS, chunks), true);
    for (uint32_t i = 0; i < SHARDS; i++)
        shard_files_make(w, i, foreign);
    part_source_unref(foreign);
    series_mark(w);
    free(chunks);
}

static void world_done(struct world *w)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        file_set_unref(engine_shard(w->k.engine, i)->files);
        engine_shard(w->k.engine, i)->files = NULL;
    }
    kit_close(&w->k);
    part_store_free(w->store);
    CHECK(budget_used(&w->memory) == 0);
    arena_done(&w->arena);
    free(w->series);
    fs_free(w->fs);
}

/* ---- the table's answers ---- */

/* The sample of a tick by the rule for repeats: kinds stand in order of precedence. */
static bool sample_at(const struct model *m, size_t tick, double *value)
{
    for (enum source_kind kind = 0; kind < SOURCE_KINDS; kind++) {
        if (m->has[kind][tick]) {
            *value = m->value[kind][tick];
            return true;
        }
    }
    return false;
}

struct range {
    int64_t min_time_ms, max_time_ms;
};

static bool has_sample(const struct model *m, struct range r)
{
    double value;

    for (size_t tick = 0; tick < TICKS; tick++) {
        if (time_of(tick) >= r.min_time_ms && time_of(tick) <= r.max_time_ms &&
            sample_at(m, tick, &value))
            return true;
    }
    return false;
}

static const struct model *model_find(const struct world *w, const struct series_handle *h)
{
    for (size_t i = 0; i < SERIES; i++) {
        if (hash128_equal(w->series[i].identity.fingerprint, h->fingerprint))
            return &w->series[i];
    }
    CHECK(false);
    return NULL;
}

static bool matches(const struct model *m, const struct matcher *matcher)
{
    return matcher == NULL || matcher_matches(matcher, labels_get(&m->labels, matcher->name));
}

static void check_column(const struct model *m, struct range r, const struct column *c)
{
    size_t at = 0;
    double value = 0;

    for (size_t tick = 0; tick < TICKS; tick++) {
        if (time_of(tick) < r.min_time_ms || time_of(tick) > r.max_time_ms ||
            !sample_at(m, tick, &value))
            continue;
        CHECK_MSG(at < c->count && c->t_ms[at] == time_of(tick), "%s: tick %zu", m->text, tick);
        CHECK_MSG(c->value[at] == value, "%s: tick %zu: %g, not %g", m->text, tick, c->value[at],
                  value);
        at++;
    }
    CHECK_MSG(at == c->count, "%s: %zu samples, not %zu", m->text, c->count, at);
}

/* ---- checks of one answer ---- */

/* All that must be there once, and nothing that does not match. */
static void check_list(const struct world *w, const struct matcher *matcher, struct range r,
                       const struct series_list *list)
{
    size_t seen[SERIES] = {0};

    for (size_t i = 0; i < list->count; i++) {
        const struct model *m = model_find(w, &list->items[i]);

        CHECK(matches(m, matcher));
        CHECK(list->items[i].shard == m->identity.shard);
        CHECK_MSG(++seen[m - w->series] == 1, "%s twice", m->text);
        CHECK(m->is_live == (list->items[i].slot == m->slot) || !m->is_live);
    }
    for (size_t i = 0; i < SERIES; i++) {
        const struct model *m = &w->series[i];

        if (matches(m, matcher) && has_sample(m, r))
            CHECK_MSG(seen[i] == 1, "%s is missing", m->text);
    }
}

static void check_order(struct querier *q, const struct world *w, struct series_list *list,
                        struct arena *arena)
{
    struct labels *sets = ARENA_ARRAY(arena, list->count, struct labels);
    struct errinfo ei = {0};

    CHECK_OK(querier_sort(q, list, &ei), &ei);
    CHECK_OK(querier_labels(q, list->items, list->count, arena, sets, &ei), &ei);
    for (size_t i = 0; i < list->count; i++) {
        CHECK(labels_equal(&sets[i], &model_find(w, &list->items[i])->labels));
        if (i > 0)
            CHECK(labels_compare(&sets[i - 1], &sets[i]) < 0);
    }
}

static void check_values(struct querier *q, const struct world *w, const struct series_list *list,
                         struct arena *arena)
{
    const struct str wanted[] = {STR_LITERAL("zone"), STR_LITERAL("A"), STR_LITERAL("nothing")};
    struct str *out = arena_alloc_array(arena, list->count, sizeof wanted);
    struct errinfo ei = {0};

    CHECK_OK(querier_label_values_of(q, list->items, list->count, wanted, 3, out, &ei), &ei);
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; k < 3; k++)
            CHECK(str_equal(out[3 * i + k],
                            labels_get(&model_find(w, &list->items[i])->labels, wanted[k])));
    }
}

static void check_samples(struct querier *q, const struct world *w, struct range r,
                          const struct series_list *list, struct arena *arena)
{
    struct column *columns = ARENA_ARRAY(arena, list->count, struct column);
    struct errinfo ei = {0};

    CHECK(list->count <= QUERIER_READ_BATCH_MAX);
    CHECK_OK(querier_read(q, list->items, list->count, r.min_time_ms, r.max_time_ms, arena, columns,
                          &ei),
             &ei);
    for (size_t i = 0; i < list->count; i++)
        check_column(model_find(w, &list->items[i]), r, &columns[i]);
}

static bool list_has(const struct str_list *list, struct str text)
{
    for (size_t i = 0; i < list->count; i++) {
        if (str_equal(list->items[i], text))
            return true;
    }
    return false;
}

/* Strings of series that have samples in the range are there, strings of none are not. */
static void check_strings(const struct world *w, const struct matcher *matcher, struct range r,
                          const char *name, const struct str_list *list)
{
    size_t known = 0;

    for (size_t i = 1; i < list->count; i++)
        CHECK(str_compare(list->items[i - 1], list->items[i]) < 0);
    for (size_t i = 0; i < SERIES; i++) {
        const struct model *m = &w->series[i];

        for (size_t k = 0; k < m->labels.count; k++) {
            const struct label *l = &m->labels.items[k];

            if (name != NULL && !str_equal(l->name, str_from(name)))
                continue;
            if (matches(m, matcher) && has_sample(m, r))
                CHECK(list_has(list, name == NULL ? l->name : l->value));
        }
    }
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; k < SERIES && known == i; k++) {
            const struct model *m = &w->series[k];

            for (size_t n = 0; n < m->labels.count && matches(m, matcher) && known == i; n++) {
                const struct label *l = &m->labels.items[n];

                known += name == NULL ? str_equal(l->name, list->items[i])
                                      : str_equal(l->name, str_from(name)) &&
                                            str_equal(l->value, list->items[i]);
            }
        }
        CHECK_MSG(known == i + 1, "%.*s", STR_ARGS(list->items[i]));
    }
}

static void check_names(struct querier *q, const struct world *w, const struct matcher *matcher,
                        struct range r, struct arena *arena)
{
    const struct matcher_set set = {matcher, 1};
    struct errinfo ei = {0};
    struct str_list list;
    bool truncated;

    CHECK_OK(querier_label_names(q, &set, matcher != NULL, r.min_time_ms, r.max_time_ms, 0, arena,
                                 &list, &truncated, &ei),
             &ei);
    check_strings(w, matcher, r, NULL, &list);
    for (size_t k = 0; k < NAMES; k++) {
        CHECK_OK(querier_label_values(q, str_from(names[k]), &set, matcher != NULL, r.min_time_ms,
                                      r.max_time_ms, 0, arena, &list, &truncated, &ei),
                 &ei);
        check_strings(w, matcher, r, names[k], &list);
    }
}

static void check_all(struct querier *q, const struct world *w, const struct matcher *matcher,
                      struct range r)
{
    struct series_list list;
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK_OK(querier_select(q, matcher, matcher != NULL, r.min_time_ms, r.max_time_ms, &arena,
                            &list, &ei),
             &ei);
    check_list(w, matcher, r, &list);
    check_samples(q, w, r, &list, &arena);
    check_order(q, w, &list, &arena);
    check_values(q, w, &list, &arena);
    check_samples(q, w, r, &list, &arena);
    check_names(q, w, matcher, r, &arena);
    arena_done(&arena);
}

static struct range range_draw(struct test_random *r)
{
    size_t first = test_random_below(r, TICKS), last = first + test_random_below(r, TICKS);

    switch (test_random_below(r, 5)) {
    case 0:
        return (struct range){INT64_MIN, INT64_MAX};
    case 1: /* old: most of it in parts */
        return (struct range){time_of(first % 30), time_of(first % 30 + last % 10)};
    default:
        return (struct range){time_of(first), time_of(last)};
    }
}

static void matcher_draw(struct test_random *r, struct arena *arena, struct matcher *out)
{
    static const struct {
        enum matcher_kind kind;
        const char *name, *value;
    } all[] = {{MATCHER_EQUAL, "__name__", "m1"}, {MATCHER_REGEX, "i", "1.*"},
               {MATCHER_EQUAL, "zone", ""},       {MATCHER_NOT_EQUAL, "host", "h3"},
               {MATCHER_EQUAL, "A", "1"},         {MATCHER_EQUAL, "i", "21"}};
    size_t i = test_random_below(r, sizeof all / sizeof all[0]);
    struct errinfo ei = {0};

    CHECK_OK(
        matcher_init(out, all[i].kind, str_from(all[i].name), str_from(all[i].value), arena, &ei),
        &ei);
}

static void check_random(struct querier *q, const struct world *w, struct test_random *r)
{
    struct matcher matcher;
    struct arena arena;

    arena_init(&arena, NULL);
    for (int i = 0; i < READ_RUNS; i++) {
        struct range range = range_draw(r);

        matcher_draw(r, &arena, &matcher);
        check_all(q, w, test_random_below(r, 3) == 0 ? NULL : &matcher, range);
        matcher_done(&matcher);
    }
    arena_done(&arena);
}

static void test_all_sources(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct errinfo ei = {0};
        struct querier *q;
        struct world w;

        world_init(&w, seed);
        CHECK_OK(querier_open(w.k.engine, &q, &ei), &ei);
        check_random(q, &w, &w.random);
        querier_close(q);
        world_done(&w);
    }
}

struct user {
    struct querier *querier;
    const struct world *world;
    struct test_random random;
};

static void *use(void *arg)
{
    struct user *u = arg;

    check_random(u->querier, u->world, &u->random);
    return NULL;
}

/* Several threads, one querier. */
static void test_one_querier_many_threads(void **state)
{
    struct thread threads[3] = {0};
    struct user users[3];
    struct errinfo ei = {0};
    struct querier *q;
    struct world w;

    (void)state;
    world_init(&w, 20);
    CHECK_OK(querier_open(w.k.engine, &q, &ei), &ei);
    for (size_t i = 0; i < 3; i++) {
        users[i] = (struct user){q, &w, test_random_init(100 + i)};
        CHECK_OK(thread_start(&threads[i], "user", use, &users[i], &ei), &ei);
    }
    for (size_t i = 0; i < 3; i++)
        thread_join(&threads[i]);
    querier_close(q);
    world_done(&w);
}

/* ---- what changes while a querier is open ---- */

/* Moves all samples of live series of a shard into a part and marks the series dead, in one
 * critical section, as when they have ended. */
static void end_shard(struct world *w, uint32_t shard)
{
    struct shard *s = engine_shard(w->k.engine, shard);
    struct set_chunk *chunks = calloc(SERIES, sizeof *chunks);
    const struct part_key key = {.window_start_ms = T0,
                                 .window_size_ms = (uint64_t)TICKS * TICK_MS,
                                 .generation = generation_of_file(4),
                                 .shard = shard,
                                 .shard_count = SHARDS};
    struct file_set *before = s->files;
    struct part_source *ended;
    struct file_set_change change = {0};
    struct errinfo ei = {0};
    struct file_set *set;

    CHECK(chunks != NULL);
    for (size_t i = 0; i < SERIES; i++) { /* all in IN_SEALED, what wins first */
        struct model *m = &w->series[i];

        for (size_t tick = 0; tick < TICKS; tick++) {
            for (enum source_kind kind = IN_MEMORY; kind <= IN_LATE; kind++) {
                if (m->identity.shard == shard && m->has[kind][tick] && !m->has[IN_SEALED][tick]) {
                    m->has[IN_SEALED][tick] = true;
                    m->value[IN_SEALED][tick] = m->value[kind][tick];
                }
            }
        }
    }
    ended =
        set_part(w->fs, w->store, &key, chunks, chunks_make(w, IN_SEALED, shard, chunks), false);
    change.part_add = &ended;
    change.part_add_count = 1;
    change.sealed_remove = &before->sealed[0].source;
    change.sealed_remove_count = 1;
    CHECK_OK(file_set_new(before, &change, &set, &ei), &ei);
    mutex_lock(&s->lock);
    s->files = set;
    for (size_t i = 0; i < SERIES; i++) {
        struct model *m = &w->series[i];

        if (!m->is_live || m->identity.shard != shard)
            continue;
        series_at(&s->series, m->slot)->defined = 0;
        m->is_live = false;
    }
    mutex_unlock(&s->lock);
    file_set_unref(before);
    part_source_unref(ended);
    free(chunks);
}

/* Handles from before stay good: samples by fingerprint, labels out of the pinned index. A later
 * selection finds the series in the part. */
static void test_series_that_end_meanwhile(void **state)
{
    const struct range all = {INT64_MIN, INT64_MAX};
    struct series_list list;
    struct errinfo ei = {0};
    struct querier *q, *later;
    struct arena arena;
    struct world w;

    (void)state;
    world_init(&w, 30);
    arena_init(&arena, NULL);
    CHECK_OK(querier_open(w.k.engine, &q, &ei), &ei);
    CHECK_OK(querier_select(q, NULL, 0, INT64_MIN, INT64_MAX, &arena, &list, &ei), &ei);
    for (uint32_t i = 0; i < SHARDS; i++)
        end_shard(&w, i);
    CHECK_OK(querier_open(w.k.engine, &later, &ei), &ei);
    check_samples(q, &w, all, &list, &arena);
    check_order(q, &w, &list, &arena);
    check_random(q, &w, &w.random);
    check_random(later, &w, &w.random);
    querier_close(later);
    querier_close(q);
    arena_done(&arena);
    world_done(&w);
}

static void delete_all(struct world *w, const struct matcher *matcher, struct range r)
{
    struct tombstone_list *list;
    struct errinfo ei = {0};

    CHECK_OK(tombstone_list_add(NULL, matcher, 1, r.min_time_ms, r.max_time_ms,
                                generation_of_file(1000), &list, &ei),
             &ei);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct file_set_change change = {.set_tombstones = true, .tombstones = list};
        struct shard *s = engine_shard(w->k.engine, i);
        struct file_set *before = s->files, *set;

        CHECK_OK(file_set_new(before, &change, &set, &ei), &ei);
        mutex_lock(&s->lock);
        s->files = set;
        mutex_unlock(&s->lock);
        file_set_unref(before);
    }
    tombstone_list_unref(list);
}

/* What was deleted of files is gone for series with a slot and without. */
static void test_deleted(void **state)
{
    const struct range gone = {time_of(5), time_of(50)}, all = {INT64_MIN, INT64_MAX};
    struct series_list list;
    struct errinfo ei = {0};
    struct matcher matcher;
    struct querier *q;
    struct arena arena;
    struct world w;

    (void)state;
    world_init(&w, 40);
    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&matcher, MATCHER_REGEX, STR_LITERAL("host"), STR_LITERAL("h[1-4]"),
                          &arena, &ei),
             &ei);
    delete_all(&w, &matcher, gone);
    for (size_t i = 0; i < SERIES; i++) {
        for (size_t tick = 5; tick <= 50 && matches(&w.series[i], &matcher); tick++) {
            for (enum source_kind kind = 0; kind <= IN_SEALED; kind++)
                w.series[i].has[kind][tick] = false;
        }
    }
    CHECK_OK(querier_open(w.k.engine, &q, &ei), &ei);
    CHECK_OK(querier_select(q, NULL, 0, INT64_MIN, INT64_MAX, &arena, &list, &ei), &ei);
    check_samples(q, &w, all, &list, &arena);
    check_samples(q, &w, (struct range){time_of(30), time_of(60)}, &list, &arena);
    querier_close(q);
    matcher_done(&matcher);
    arena_done(&arena);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sources),
        cmocka_unit_test(test_one_querier_many_threads),
        cmocka_unit_test(test_series_that_end_meanwhile),
        cmocka_unit_test(test_deleted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
