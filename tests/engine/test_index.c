/*
 * The index of one shard against a list of label sets: selection with all kinds of matchers,
 * label sets, columns, names and values; the memory limit; readers beside a writer.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "engine/index/index_internal.h"
#include "engine/sealed/series_file_internal.h"
#include "tests/engine/index_twin.h"
#include "tests/lib/test_cmocka.h"

struct world {
    struct test_random random;
    struct budget memory;
    struct index *index;
    struct arena arena; /* of the label sets */
    size_t count, spread;
    struct twin_series *series; /* owned; by slot, ascending */
};

/* `count` series at ascending slots with random gaps. */
static void world_init(struct world *w, uint64_t seed, size_t count, size_t spread, uint32_t gap)
{
    struct errinfo ei = {0};
    uint32_t slot = 0;

    w->random = test_random_init(seed);
    budget_init(&w->memory, "test", UINT64_MAX, NULL);
    CHECK_OK(index_new(&w->memory, &w->index, &ei), &ei);
    arena_init(&w->arena, NULL);
    w->count = count;
    w->spread = spread;
    w->series = calloc(count, sizeof *w->series);
    CHECK(w->series != NULL);
    for (size_t i = 0; i < count; i++) {
        twin_series_random(&w->random, &w->arena, spread, false, (uint32_t)i, &w->series[i]);
        w->series[i].slot = slot;
        slot += 1 + (uint32_t)test_random_below(&w->random, gap);
    }
}

static void world_done(struct world *w)
{
    index_free(w->index);
    CHECK(budget_used(&w->memory) == 0);
    arena_done(&w->arena);
    free(w->series);
}

static void add_series(struct world *w, size_t i)
{
    struct errinfo ei = {0};

    CHECK_OK(index_add(w->index, w->series[i].slot, &w->series[i].labels, &ei), &ei);
}

/* In slot order but for every eighth, which comes later: what reused slots look like. */
static void add_all(struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        if (i % 8 != 3)
            add_series(w, i);
    }
    for (size_t i = 0; i < w->count; i++) {
        if (i % 8 == 3)
            add_series(w, i);
    }
}

static void check_select(struct world *w, struct arena *arena, size_t matcher_count)
{
    struct twin_matcher twins[TWIN_MATCHERS_MAX];
    struct matcher matchers[TWIN_MATCHERS_MAX];
    struct errinfo ei = {0};
    uint32_t *slots;
    size_t count;
    size_t next = 0;

    for (size_t i = 0; i < matcher_count; i++) {
        twin_matcher_random(&w->random, arena, w->spread, &twins[i]);
        matchers[i] = twins[i].matcher;
    }
    CHECK_OK(index_select(w->index, matchers, matcher_count, NULL, arena, &slots, &count, &ei),
             &ei);
    for (size_t i = 0; i < w->count; i++) {
        if (!twin_matches(twins, matcher_count, &w->series[i].labels))
            continue;
        CHECK_MSG(next < count && slots[next] == w->series[i].slot,
                  "seed %llu: series %zu of %zu, first matcher %s",
                  (unsigned long long)w->random.seed, next, count,
                  matcher_count == 0 ? "none" : matcher_format(&matchers[0], arena));
        next++;
    }
    CHECK_MSG(next == count, "seed %llu: %zu too many", (unsigned long long)w->random.seed,
              count - next);
    for (size_t i = 0; i < matcher_count; i++)
        twin_matcher_done(&twins[i]);
}

static void check_selects(struct world *w, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct arena arena;

        arena_init(&arena, NULL);
        check_select(w, &arena, test_random_below(&w->random, TWIN_MATCHERS_MAX + 1));
        arena_done(&arena);
    }
}

static void selection_equals_the_twin(void **state)
{
    static const struct {
        size_t count, spread;
        uint32_t gap;
        int rounds;
    } sizes[] = {{0, 1, 1, 20},     {1, 4, 1, 100},        {40, 4, 3, 1500},
                 {700, 30, 2, 800}, {6000, 2000, 40, 250}, {20000, 10, 1, 100}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct world w;

        world_init(&w, 100 + i, sizes[i].count, sizes[i].spread, sizes[i].gap);
        add_all(&w);
        check_selects(&w, sizes[i].rounds);
        world_done(&w);
    }
}

static void label_sets_come_back(void **state)
{
    struct world w;
    struct arena arena;
    struct errinfo ei = {0};
    struct labels *got;
    uint32_t *slots;

    (void)state;
    world_init(&w, 3, 3000, 500, 3);
    add_all(&w);
    arena_init(&arena, NULL);
    slots = ARENA_ARRAY(&arena, w.count + 1, uint32_t);
    got = ARENA_ARRAY(&arena, w.count + 1, struct labels);
    for (size_t i = 0; i < w.count; i++)
        slots[i] = w.series[i].slot;
    slots[w.count] = UINT32_MAX; /* not there */
    CHECK_OK(index_labels(w.index, slots, w.count + 1, &arena, got, &ei), &ei);
    for (size_t i = 0; i < w.count; i++) {
        CHECK(labels_equal(&got[i], &w.series[i].labels));
        CHECK(index_labels_equal(w.index, slots[i], &got[i]));
        CHECK(!index_labels_equal(w.index, slots[i], &w.series[(i + 1) % w.count].labels) ||
              labels_equal(&got[i], &w.series[(i + 1) % w.count].labels));
    }
    CHECK(got[w.count].count == 0);
    CHECK(!index_labels_equal(w.index, UINT32_MAX, &got[0]));
    arena_done(&arena);
    world_done(&w);
}

static void columns_come_back(void **state)
{
    const struct str names[] = {STR_LITERAL("instance"), STR_LITERAL("unknown"),
                                STR_LITERAL("DCGM"), STR_LITERAL("\xc3\xa9"),
                                STR_LITERAL("__name__")};
    enum { COLUMNS = sizeof names / sizeof names[0] };
    struct world w;
    struct arena arena;
    struct str *got, *rows_got;
    uint32_t *slots;
    size_t *rows;

    (void)state;
    world_init(&w, 4, 3000, 500, 3);
    add_all(&w);
    arena_init(&arena, NULL);
    slots = ARENA_ARRAY(&arena, w.count, uint32_t);
    rows = ARENA_ARRAY(&arena, w.count, size_t);
    got = ARENA_ARRAY(&arena, w.count * COLUMNS, struct str);
    rows_got = ARENA_ARRAY(&arena, w.count * COLUMNS, struct str);
    for (size_t i = 0; i < w.count; i++) {
        slots[i] = w.series[i].slot;
        rows[i] = w.count - 1 - i;
    }
    index_values_of(w.index, slots, w.count, names, COLUMNS, got);
    index_values_of_rows(w.index, slots, rows, w.count, names, COLUMNS, rows_got);
    for (size_t i = 0; i < w.count; i++) {
        for (size_t k = 0; k < COLUMNS; k++) {
            struct str want = labels_get(&w.series[i].labels, names[k]);

            CHECK(str_equal(got[i * COLUMNS + k], want));
            CHECK(str_equal(rows_got[rows[i] * COLUMNS + k], want));
        }
    }
    arena_done(&arena);
    world_done(&w);
}

static bool list_holds(const struct str *list, size_t count, struct str text)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += str_equal(list[i], text);
    CHECK(found <= 1);
    return found == 1;
}

/* A filter that keeps slots with a given remainder. */
static void keep_remainder(void *ctx, const uint32_t *slots, size_t count, bool *keep)
{
    for (size_t i = 0; i < count; i++)
        keep[i] = slots[i] % 64 == *(const uint32_t *)ctx;
}

static void check_names_and_values(struct world *w, const struct slot_filter *filter)
{
    struct arena arena;
    struct errinfo ei = {0};
    struct str *names;
    size_t name_count;
    size_t wanted_names = 0;
    bool keep = true;

    arena_init(&arena, NULL);
    CHECK_OK(index_names_live(w->index, filter, &arena, &names, &name_count, &ei), &ei);
    for (size_t i = 0; i < w->count; i++) {
        if (filter != NULL)
            filter->keep(filter->ctx, &w->series[i].slot, 1, &keep);
        for (size_t k = 0; keep && k < w->series[i].labels.count; k++) {
            struct label item = w->series[i].items[k];
            struct str *values;
            size_t value_count;

            CHECK(list_holds(names, name_count, item.name));
            wanted_names++;
            if (test_random_below(&w->random, 50) != 0)
                continue;
            CHECK_OK(index_values_live(w->index, item.name, filter, NULL, &arena, &values,
                                       &value_count, &ei),
                     &ei);
            CHECK(list_holds(values, value_count, item.value));
        }
    }
    CHECK(wanted_names == 0 ? name_count == 0 : name_count <= TWIN_LABELS_MAX);
    /* Nothing in excess: every value listed belongs to a series that passes. */
    for (size_t n = 0; n < name_count; n++) {
        struct str *values;
        size_t value_count;

        CHECK_OK(
            index_values_live(w->index, names[n], filter, NULL, &arena, &values, &value_count, &ei),
            &ei);
        CHECK(value_count > 0);
        for (size_t v = 0; v < value_count; v++) {
            bool found = false;

            for (size_t i = 0; i < w->count && !found; i++) {
                if (filter != NULL)
                    filter->keep(filter->ctx, &w->series[i].slot, 1, &keep);
                found = keep && str_equal(labels_get(&w->series[i].labels, names[n]), values[v]);
            }
            CHECK(found);
        }
    }
    arena_done(&arena);
}

static void names_and_values_in_use(void **state)
{
    uint32_t remainder = 5;
    struct slot_filter filter = {keep_remainder, &remainder};
    struct world w;

    (void)state;
    world_init(&w, 5, 1500, 300, 3);
    check_names_and_values(&(struct world){.index = w.index}, NULL);
    add_all(&w);
    check_names_and_values(&w, NULL);
    check_names_and_values(&w, &filter);
    remainder = 64; /* nothing passes */
    check_names_and_values(&w, &filter);
    world_done(&w);
}

static void many_schemas_and_wide_sets(void **state)
{
    enum { WIDE = 300, ROUNDS = 200 };
    static struct label items[WIDE];
    struct budget memory;
    struct index *ix;
    struct arena arena;
    struct errinfo ei = {0};
    struct labels got;

    (void)state;
    budget_init(&memory, "test", UINT64_MAX, NULL);
    arena_init(&arena, NULL);
    CHECK_OK(index_new(&memory, &ix, &ei), &ei);
    for (uint32_t i = 0; i < WIDE; i++) {
        items[i].name = str_from(arena_printf(&arena, "n%04u", i));
        items[i].value = str_from(arena_printf(&arena, "v%u", i));
    }
    for (uint32_t i = 0; i < ROUNDS; i++)
        CHECK_OK(index_add(ix, i, &(struct labels){i % WIDE, items + i / 2}, &ei), &ei);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct labels want = {i % WIDE, items + i / 2};

        CHECK_OK(index_labels(ix, &i, 1, &arena, &got, &ei), &ei);
        CHECK(labels_equal(&got, &want));
    }
    CHECK(index_add(ix, ROUNDS, &(struct labels){INDEX_LABEL_COUNT_MAX + 1, items}, &ei) ==
          ERR_LIMIT);
    index_free(ix);
    CHECK(budget_used(&memory) == 0);
    arena_done(&arena);
}

static void a_spent_budget_refuses_and_changes_nothing(void **state)
{
    struct world w;
    struct index_stats stats;
    size_t refused = 0;
    size_t kept = 0;

    (void)state;
    world_init(&w, 6, 4000, 4000, 1);
    for (size_t i = 0; i < w.count; i++) {
        struct errinfo ei = {0};
        enum err e;

        /* The limit is mostly close, so that any allocation may be the one that fails. */
        w.memory.limit_bytes = UINT64_MAX;
        if (test_random_below(&w.random, 4) != 0)
            w.memory.limit_bytes = budget_used(&w.memory) + test_random_below(&w.random, 3000);
        e = index_add(w.index, w.series[i].slot, &w.series[i].labels, &ei);
        CHECK(e == ERR_OK || e == ERR_LIMIT);
        if (e != ERR_OK) {
            refused++;
            continue;
        }
        w.series[kept] = w.series[i];
        w.series[kept].labels.items = w.series[kept].items;
        kept++;
    }
    CHECK(refused > 20 && kept > 1000);
    w.memory.limit_bytes = UINT64_MAX;
    w.count = kept;
    index_stats_get(w.index, &stats);
    CHECK(stats.slot_count == kept);
    check_selects(&w, 300);
    check_names_and_values(&w, NULL);
    world_done(&w);
}

/* ---- images ---- */

static uint32_t *slots_of(const struct world *w, struct arena *arena)
{
    uint32_t *slots = ARENA_ARRAY(arena, w->count, uint32_t);

    for (size_t i = 0; i < w->count; i++)
        slots[i] = w->series[i].slot;
    return slots;
}

/* What a series file may hold and index_image() does not: gaps between the ids of values, and
 * values that no series has. */
static void spread_ids(struct test_random *r, struct series_image *image)
{
    for (uint32_t n = 0; n < image->name_count; n++) {
        struct series_image_name *name = &image->names[n];
        uint32_t id = 0, unused = (uint32_t)test_random_below(r, 3), kept = name->value_count;
        struct series_image_value *values =
            ARENA_ARRAY(&image->arena, kept + unused, struct series_image_value);

        memcpy(values, name->values, kept * sizeof *values);
        for (uint32_t v = 0; v < unused; v++)
            values[kept + v].text =
                str_from(arena_printf(&image->arena, "nobody has this value %u", v));
        name->values = values;
        name->value_count += unused;
        for (uint32_t v = 0; v < name->value_count; v++) {
            id += (uint32_t)test_random_below(r, 3);
            values[v].id = id++;
        }
    }
}

/* One group cut in two, as by two batches: columns of `count` series from `first` on. */
static struct series_image_group group_cut(struct series_image *image,
                                           const struct series_image_group *g, uint32_t first,
                                           uint32_t count)
{
    uint32_t columns = image->schemas[g->schema].name_count;
    struct series_image_group out = {.schema = g->schema, .count = count};

    out.slots = ARENA_ARRAY(&image->arena, count, uint32_t);
    out.values = ARENA_ARRAY(&image->arena, (size_t)count * columns, uint32_t);
    memcpy(out.slots, g->slots + first, count * sizeof *out.slots);
    for (uint32_t k = 0; k < columns; k++)
        memcpy(out.values + (size_t)k * count, g->values + (size_t)k * g->count + first,
               count * sizeof *out.values);
    return out;
}

/* Groups in pieces, and in an order in which slots do not ascend. */
static void cut_groups(struct test_random *r, struct series_image *image)
{
    size_t count = 0;
    struct series_image_group *groups =
        ARENA_ARRAY(&image->arena, 3 * image->group_count, struct series_image_group);

    for (size_t i = image->group_count; i-- > 0;) {
        const struct series_image_group *g = &image->groups[i];
        uint32_t a = (uint32_t)test_random_below(r, g->count + 1);
        uint32_t b = a + (uint32_t)test_random_below(r, g->count + 1 - a);

        groups[count++] = group_cut(image, g, a, b - a);
        groups[count++] = group_cut(image, g, 0, a);
        groups[count++] = group_cut(image, g, b, g->count - b);
    }
    image->groups = groups;
    image->group_count = count;
}

/* Replaces the index by one that is loaded from an image of it. */
static void reload(struct world *w, bool change)
{
    struct series_image image;
    struct index *loaded;
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK_OK(index_image(w->index, slots_of(w, &arena), w->count, &image, &ei), &ei);
    CHECK(image.series_count == w->count && image.group_count == image.schema_count);
    if (change) {
        spread_ids(&w->random, &image);
        cut_groups(&w->random, &image);
    }
    CHECK_OK(index_new(&w->memory, &loaded, &ei), &ei);
    CHECK_OK(index_load_image(loaded, &image, &ei), &ei);
    for (uint32_t n = 0; n < image.name_count; n++) { /* the ids are the image's */
        const struct series_image_name *name = &image.names[n];
        struct str text;

        CHECK(str_equal(index_name_text(loaded, n), name->text));
        for (uint32_t v = 0; v < name->value_count; v++) {
            index_value_texts(loaded, n, name->values[v].id, 1, &text);
            CHECK(str_equal(text, name->values[v].text));
        }
    }
    series_image_done(&image);
    index_free(w->index);
    w->index = loaded;
    arena_done(&arena);
}

static void check_everything(struct world *w, int rounds)
{
    struct index_stats stats;

    index_stats_get(w->index, &stats);
    CHECK(stats.slot_count == w->count);
    CHECK(stats.memory_bytes >= budget_used(&w->memory));
    check_selects(w, rounds);
    if (w->count <= 3000)
        check_names_and_values(w, NULL);
    for (size_t i = 0; i < w->count; i++)
        CHECK(index_labels_equal(w->index, w->series[i].slot, &w->series[i].labels));
}

/* An index from an image answers as one that was filled series by series, and so does it once it
 * has grown, and one of a part of its series. */
static void images_equal_the_twin(void **state)
{
    static const struct {
        size_t count, spread;
        uint32_t gap;
        int rounds;
    } sizes[] = {{0, 1, 1, 5},      {1, 4, 1, 20},         {40, 4, 3, 300},
                 {700, 30, 2, 200}, {3000, 2000, 40, 100}, {70000, 10, 2, 20}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = i / 2, whole = sizes[size].count, kept = 0;
        struct world w;

        world_init(&w, 200 + i, whole, sizes[size].spread, sizes[size].gap);
        w.count = whole - whole / 5; /* the others come later */
        add_all(&w);
        reload(&w, i % 2 == 1);
        check_everything(&w, sizes[size].rounds);
        for (w.count = whole - whole / 5; w.count < whole; w.count++)
            add_series(&w, w.count);
        check_everything(&w, sizes[size].rounds);
        for (size_t k = 0; k < whole; k++) { /* most series end */
            if (test_random_below(&w.random, 3) != 0 || k % 100 > 60)
                continue;
            w.series[kept] = w.series[k];
            w.series[kept].labels.items = w.series[kept].items;
            kept++;
        }
        w.count = kept;
        reload(&w, i % 2 == 1);
        check_everything(&w, sizes[size].rounds);
        world_done(&w);
    }
}

static void bad_images_are_refused(void **state)
{
    for (int damage = 0; damage < 4; damage++) {
        struct series_image image;
        struct index *loaded;
        struct errinfo ei = {0};
        struct arena arena;
        struct world w;

        (void)state;
        world_init(&w, 300, 500, 30, 2);
        add_all(&w);
        arena_init(&arena, NULL);
        CHECK_OK(index_image(w.index, slots_of(&w, &arena), w.count, &image, &ei), &ei);
        CHECK(image.schema_count > 1 && image.names[0].value_count > 1);
        if (damage == 0)
            image.names[1].text = image.names[0].text;
        else if (damage == 1)
            image.names[0].values[1].text = image.names[0].values[0].text;
        else if (damage == 2)
            image.names[0].values[image.names[0].value_count - 1].id = UINT32_MAX - 1;
        else
            image.schemas[1] = image.schemas[0];
        CHECK_OK(index_new(&w.memory, &loaded, &ei), &ei);
        CHECK(index_load_image(loaded, &image, &ei) == ERR_CORRUPT);
        index_free(loaded);
        series_image_done(&image);
        arena_done(&arena);
        world_done(&w);
    }
}

static void images_under_a_spent_budget(void **state)
{
    size_t refused = 0, done = 0;
    struct world w;
    struct arena arena;
    uint32_t *slots;

    (void)state;
    world_init(&w, 301, 3000, 500, 2);
    add_all(&w);
    arena_init(&arena, NULL);
    slots = slots_of(&w, &arena);
    for (size_t room = 1000; done < 3; room += room / 4) {
        uint64_t used = budget_used(&w.memory);
        struct series_image image;
        struct index *loaded;
        struct errinfo ei = {0};

        CHECK_OK(index_new(&w.memory, &loaded, &ei), &ei);
        w.memory.limit_bytes = used + room;
        if (index_image(w.index, slots, w.count, &image, &ei) == ERR_OK) {
            enum err e = index_load_image(loaded, &image, &ei);

            CHECK(e == ERR_OK || e == ERR_LIMIT);
            done += e == ERR_OK;
            refused += e != ERR_OK;
            series_image_done(&image);
        }
        w.memory.limit_bytes = UINT64_MAX;
        index_free(loaded);
        CHECK(budget_used(&w.memory) == used);
    }
    CHECK(refused > 3);
    arena_done(&arena);
    world_done(&w);
}

/* ---- readers beside a writer ---- */

enum { CONCURRENT_SERIES = 20000, READERS = 3 };

struct race {
    struct world world;
    _Atomic size_t added;  /* release after index_add, acquire by readers: these must be found */
    _Atomic size_t rounds; /* relaxed: the writer goes on only while readers do */
    _Atomic bool stop;
};

static void *write_series(void *arg)
{
    struct race *race = arg;

    for (size_t i = 0; i < race->world.count; i++) {
        /* So that the two overlap on any machine: a round of reading for every 2,000 series. */
        while (atomic_load_explicit(&race->rounds, memory_order_relaxed) < i / 2000)
            sched_yield();
        add_series(&race->world, i);
        atomic_store_explicit(&race->added, i + 1, memory_order_release);
    }
    return NULL;
}

static void read_once(struct race *race, struct test_random *r)
{
    struct twin_matcher twins[3];
    struct matcher matchers[3];
    struct errinfo ei = {0};
    struct arena arena;
    size_t n = 1 + test_random_below(r, 3);
    size_t must = atomic_load_explicit(&race->added, memory_order_acquire);
    size_t next = 0;
    uint32_t *slots;
    struct labels *sets;
    size_t count;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < n; i++) {
        twin_matcher_random(r, &arena, race->world.spread, &twins[i]);
        matchers[i] = twins[i].matcher;
    }
    CHECK_OK(index_select(race->world.index, matchers, n, &race->stop, &arena, &slots, &count, &ei),
             &ei);
    sets = ARENA_ARRAY(&arena, count, struct labels);
    CHECK_OK(index_labels(race->world.index, slots, count, &arena, sets, &ei), &ei);
    for (size_t i = 0; i < count; i++)
        CHECK(twin_matches(twins, n, &sets[i])); /* never one that does not match */
    for (size_t i = 0; i < must; i++) {          /* and all that were there before */
        if (!twin_matches(twins, n, &race->world.series[i].labels))
            continue;
        while (next < count && slots[next] < race->world.series[i].slot)
            next++;
        CHECK(next < count && slots[next] == race->world.series[i].slot);
    }
    for (size_t i = 0; i < n; i++)
        twin_matcher_done(&twins[i]);
    arena_done(&arena);
}

static void read_values(struct race *race)
{
    struct errinfo ei = {0};
    struct arena arena;
    struct str *list;
    size_t count;

    arena_init(&arena, NULL);
    CHECK_OK(index_names(race->world.index, &arena, &list, &count, &ei), &ei);
    CHECK_OK(index_values(race->world.index, STR_LITERAL("instance"), &arena, &list, &count, &ei),
             &ei);
    arena_done(&arena);
}

static void *read_series(void *arg)
{
    struct race *race = arg;
    struct test_random r = test_random_init(77);

    do {
        read_once(race, &r);
        read_values(race);
        atomic_fetch_add_explicit(&race->rounds, 1, memory_order_relaxed);
    } while (atomic_load_explicit(&race->added, memory_order_acquire) < race->world.count);
    return NULL;
}

static void readers_run_beside_a_writer(void **state)
{
    struct race race = {0};
    struct thread writer = {0};
    struct thread readers[READERS] = {0};
    struct errinfo ei = {0};

    (void)state;
    world_init(&race.world, 8, CONCURRENT_SERIES, 2000, 2);
    CHECK_OK(thread_start(&writer, "writer", write_series, &race, &ei), &ei);
    for (int i = 0; i < READERS; i++)
        CHECK_OK(thread_start(&readers[i], "reader", read_series, &race, &ei), &ei);
    thread_join(&writer);
    for (int i = 0; i < READERS; i++)
        thread_join(&readers[i]);
    check_selects(&race.world, 20);
    world_done(&race.world);
}

static void a_stopped_selection_ends(void **state)
{
    _Atomic bool stop = true;
    struct world w;
    struct arena arena;
    struct matcher m;
    struct errinfo ei = {0};
    uint32_t *slots;
    size_t count;

    (void)state;
    world_init(&w, 9, 100, 10, 1);
    add_all(&w);
    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("a"), STR_LITERAL("x.*1"), &arena, &ei),
             &ei);
    CHECK(index_select(w.index, &m, 1, &stop, &arena, &slots, &count, &ei) == ERR_CANCELED);
    matcher_done(&m);
    arena_done(&arena);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_equals_the_twin),
        cmocka_unit_test(label_sets_come_back),
        cmocka_unit_test(columns_come_back),
        cmocka_unit_test(names_and_values_in_use),
        cmocka_unit_test(many_schemas_and_wide_sets),
        cmocka_unit_test(a_spent_budget_refuses_and_changes_nothing),
        cmocka_unit_test(images_equal_the_twin),
        cmocka_unit_test(bad_images_are_refused),
        cmocka_unit_test(images_under_a_spent_budget),
        cmocka_unit_test(readers_run_beside_a_writer),
        cmocka_unit_test(a_stopped_selection_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
