/*
 * Series files against a plain twin: a shard's series that come, get samples, end, and leave their
 * slots and value ids to others. Damage, crashes with a second crash in the restart, golden file.
 *
 * test_engine_series_file --write FILE makes the golden file.
 */
#include "engine/sealed/series_file_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"

#define DIR "d"
#define PATH "d/s.series"

enum { NAMES = 9, VALUES = 40, SCHEMAS = 12, SLOTS = 300, TEXT = 40, BATCHES_MAX = 8 };

static const struct series_file_identity identity = {
    .shard = 3, .shard_count = 16, .number = 9, .secret_id = 0x55, .epoch = 0xfedcba9876543210};

struct twin_series {
    bool live;
    uint16_t generation;
    uint32_t schema;
    struct hash128 fingerprint;
    int64_t newest_ms;
    uint64_t newest_bits;
    uint32_t values[NAMES];
    uint32_t born; /* batch */
};

struct twin_schema {
    uint32_t names[NAMES], count;
};

/* What the shard holds; value ids are spread by id_stride to make them sparse. */
struct twin {
    struct test_random r;
    uint32_t name_count, schema_count, id_stride;
    uint64_t sequence;
    struct twin_schema schemas[SCHEMAS];
    uint32_t version[NAMES][VALUES]; /* of a value's text; 0: not defined */
    struct twin_series series[SLOTS];
    uint32_t batch;
};

/* ---- the twin ---- */

static void value_text(const struct twin *t, uint32_t name, uint32_t value, char out[TEXT])
{
    CHECK(snprintf(out, TEXT, "value %u of %u, version %u", value, name, t->version[name][value]) <
          TEXT);
}

static void name_text(uint32_t name, char out[TEXT])
{
    CHECK(snprintf(out, TEXT, "name_%02u", name) < TEXT);
}

static uint32_t value_id(const struct twin *t, uint32_t value)
{
    return value * t->id_stride + (t->id_stride > 1 ? 7 : 0);
}

static bool value_used(const struct twin *t, uint32_t name, uint32_t value)
{
    for (uint32_t s = 0; s < SLOTS; s++) {
        const struct twin_series *x = &t->series[s];

        for (uint32_t k = 0; x->live && k < t->schemas[x->schema].count; k++) {
            if (t->schemas[x->schema].names[k] == name && x->values[k] == value)
                return true;
        }
    }
    return false;
}

/* New names and schemas, and values defined for the first time or anew. */
static void twin_define(struct twin *t, struct series_file_writer *w)
{
    struct errinfo ei = {0};
    char text[TEXT];

    for (uint32_t i = 0; i < 1 + test_random_below(&t->r, 4) && t->name_count < NAMES; i++) {
        name_text(t->name_count, text);
        CHECK_OK(series_file_name(w, t->name_count, str_from(text), &ei), &ei);
        t->name_count++;
    }
    for (uint32_t i = 0; i < 1 + test_random_below(&t->r, 4) && t->schema_count < SCHEMAS; i++) {
        struct twin_schema *s = &t->schemas[t->schema_count];

        s->count = 0;
        for (uint32_t n = 0; n < t->name_count; n++) {
            if (test_random_below(&t->r, 2) == 0)
                s->names[s->count++] = n;
        }
        CHECK_OK(series_file_schema(w, t->schema_count, s->names, s->count, &ei), &ei);
        t->schema_count++;
    }
    for (uint32_t n = 0; n < t->name_count; n++) {
        for (uint32_t v = 0; v < VALUES; v++) {
            if (t->version[n][v] != 0 && (test_random_below(&t->r, 20) != 0 || value_used(t, n, v)))
                continue;
            t->version[n][v]++;
            value_text(t, n, v, text);
            CHECK_OK(series_file_value(w, n, value_id(t, v), str_from(text), &ei), &ei);
        }
    }
}

static void twin_series_add(struct twin *t, struct series_file_writer *w, uint32_t slot)
{
    struct twin_series *x = &t->series[slot];
    uint32_t ids[NAMES];
    struct series_file_entry entry;
    struct errinfo ei = {0};

    x->live = true;
    x->generation = (uint16_t)(x->generation + 1 + test_random_below(&t->r, 3));
    x->schema = (uint32_t)test_random_below(&t->r, t->schema_count);
    /* One number a statement: compilers choose the order within one, and the golden file has one.
     */
    x->fingerprint.low = test_random_u64(&t->r);
    x->fingerprint.high = test_random_u64(&t->r);
    x->newest_ms =
        test_random_below(&t->r, 5) == 0 ? INT64_MIN : (int64_t)test_random_below(&t->r, 1 << 30);
    x->newest_bits = test_random_u64(&t->r);
    x->newest_bits >>= test_random_below(&t->r, 64);
    x->born = t->batch;
    for (uint32_t k = 0; k < t->schemas[x->schema].count; k++) {
        x->values[k] = (uint32_t)test_random_below(&t->r, VALUES);
        ids[k] = value_id(t, x->values[k]);
    }
    entry = (struct series_file_entry){.slot = slot,
                                       .schema_id = x->schema,
                                       .value_ids = ids,
                                       .fingerprint = x->fingerprint,
                                       .newest_ms = x->newest_ms,
                                       .newest_bits = x->newest_bits,
                                       .generation = x->generation};
    CHECK_OK(series_file_add(w, &entry, &ei), &ei);
}

/* One batch of changes; returns what writing it gave. */
static enum err twin_batch(struct twin *t, struct series_file_writer *w)
{
    struct errinfo ei = {0};
    bool ended[SLOTS] = {false};

    t->batch++;
    for (uint32_t s = 0; s < SLOTS; s++) {
        struct twin_series *x = &t->series[s];

        if (!x->live)
            continue;
        if (test_random_below(&t->r, 2) == 0) {
            x->newest_ms = (int64_t)test_random_below(&t->r, 1 << 30);
            x->newest_bits = test_random_u64(&t->r);
            CHECK_OK(series_file_newest(w, x->schema, s, x->generation, x->newest_ms,
                                        x->newest_bits, &ei),
                     &ei);
        }
        if (test_random_below(&t->r, 6) == 0) {
            CHECK_OK(series_file_ended(w, x->schema, s, x->generation, &ei), &ei);
            x->live = false;
            ended[s] = true;
        }
    }
    twin_define(t, w);
    for (uint32_t s = 0; s < SLOTS; s++) {
        if (!t->series[s].live && test_random_below(&t->r, ended[s] ? 2 : 4) == 0)
            twin_series_add(t, w, s);
    }
    t->sequence += 1 + test_random_below(&t->r, 1000);
    return series_file_batch(w, t->sequence, NULL);
}

/* Everything in the image is the twin's, and the other way round. */
static void twin_compare(const struct twin *t, const struct series_image *image)
{
    uint64_t count = 0;
    char text[TEXT];

    CHECK(image->name_count == t->name_count && image->schema_count == t->schema_count);
    CHECK(image->sequence == t->sequence && image->batch_count == t->batch);
    for (size_t i = 0; i < image->group_count; i++) {
        const struct series_image_group *g = &image->groups[i];
        const struct twin_schema *schema = &t->schemas[g->schema];

        CHECK(image->schemas[g->schema].name_count == schema->count);
        for (uint32_t k = 0; k < g->count; k++) {
            const struct twin_series *x = &t->series[g->slots[k]];

            CHECK(g->slots[k] < SLOTS && (k == 0 || g->slots[k] > g->slots[k - 1]));
            CHECK(x->live && x->schema == g->schema && x->generation == g->generations[k]);
            CHECK(hash128_equal(x->fingerprint, g->fingerprints[k]));
            CHECK(x->newest_ms == g->newest_ms[k] && x->newest_bits == g->newest_bits[k]);
            for (uint32_t n = 0; n < schema->count; n++) {
                const struct series_image_name *name =
                    &image->names[image->schemas[g->schema].names[n]];
                const struct series_image_value *v = &name->values[g->values[n * g->count + k]];

                name_text(schema->names[n], text);
                CHECK(str_equal(name->text, str_from(text)));
                value_text(t, schema->names[n], x->values[n], text);
                CHECK(str_equal(v->text, str_from(text)) && v->id == value_id(t, x->values[n]));
            }
            count++;
        }
    }
    for (uint32_t s = 0; s < SLOTS; s++)
        count -= t->series[s].live;
    CHECK(count == 0);
}

/* Postings by name against a look at every series. */
static void check_postings(const struct series_image *image)
{
    struct series_image_sorter sorter;
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK(series_image_sorter_init(&sorter, image, &arena, NULL) == ERR_OK);
    for (uint32_t name = 0; name < image->name_count; name++) {
        struct series_image_postings p;
        struct errinfo ei = {0};
        uint32_t total = 0;

        CHECK_OK(series_image_postings(&sorter, name, &arena, &p, &ei), &ei);
        for (size_t i = 0; i < image->group_count; i++) {
            const struct series_image_group *g = &image->groups[i];
            const struct series_image_schema *schema = &image->schemas[g->schema];

            for (uint32_t k = 0; k < schema->name_count; k++) {
                for (uint32_t s = 0; schema->names[k] == name && s < g->count; s++) {
                    uint32_t v = g->values[k * g->count + s], at = p.offsets[v];

                    while (at < p.offsets[v + 1] && p.slots[at] != g->slots[s])
                        at++;
                    CHECK(at < p.offsets[v + 1]);
                    total++;
                }
            }
        }
        CHECK(p.offsets[0] == 0 && p.offsets[image->names[name].value_count] == total);
        for (uint32_t v = 0; v < image->names[name].value_count; v++) {
            for (uint32_t at = p.offsets[v] + 1; at < p.offsets[v + 1]; at++)
                CHECK(p.slots[at] > p.slots[at - 1]);
        }
    }
    arena_done(&arena);
}

/* ---- files ---- */

static struct twin *twin_new(uint64_t seed, uint32_t id_stride)
{
    struct twin *t = calloc(1, sizeof *t);

    CHECK(t != NULL);
    t->r = test_random_init(seed);
    t->id_stride = id_stride;
    return t;
}

static void load_well(struct fs *fs, uint64_t durable, struct series_image *image)
{
    struct errinfo ei = {0};

    CHECK_OK(series_file_load(fs, PATH, &identity, durable, NULL, image, &ei), &ei);
}

/* Batches of a new file; states[i], if wanted, is the twin after i batches. */
static uint64_t write_batches(struct fs *fs, struct twin *t, uint32_t batches, struct twin *states)
{
    struct series_file_writer *w;
    struct errinfo ei = {0};
    uint64_t size;

    CHECK_OK(series_file_create(fs, PATH, &identity, &w, &ei), &ei);
    for (uint32_t i = 0; i < batches; i++) {
        if (states != NULL)
            states[i] = *t;
        CHECK(twin_batch(t, w) == ERR_OK);
    }
    if (states != NULL)
        states[batches] = *t;
    CHECK_OK(series_file_sync(w, &ei), &ei);
    size = series_file_durable_size(w);
    series_file_writer_free(w);
    return size;
}

static void test_round_trips(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct twin *t = twin_new(seed, seed % 3 == 0 ? 1000003 : (uint32_t)(1 + seed % 3));
        struct fs *fs = test_fs_new_with(1, DIR);
        struct series_image image;
        uint64_t size = write_batches(fs, t, (uint32_t)(seed % BATCHES_MAX), NULL);
        struct budget budget;

        load_well(fs, size, &image);
        CHECK(image.end == size && image.torn_bytes == 0);
        twin_compare(t, &image);
        check_postings(&image);
        series_image_done(&image);
        budget_init(&budget, "test", 1 << 30, NULL);
        CHECK(series_file_load(fs, PATH, &identity, size, &budget, &image, NULL) == ERR_OK);
        CHECK(budget_used(&budget) > size);
        series_image_done(&image);
        CHECK(budget_used(&budget) == 0);
        budget_init(&budget, "test", 100, NULL);
        if (size > 100)
            CHECK(series_file_load(fs, PATH, &identity, size, &budget, &image, NULL) == ERR_LIMIT);
        CHECK(budget_used(&budget) == 0);
        fs_free(fs);
        free(t);
    }
}

static void test_refused_input(void **state)
{
    const uint32_t names[2] = {0, 5}, ids[1] = {0};
    struct series_file_entry entry = {.slot = 5, .value_ids = ids};
    struct series_file_writer *w;
    struct errinfo ei = {0};
    struct series_image image;
    struct fs *fs = test_fs_new_with(1, DIR);

    (void)state;
    CHECK_OK(series_file_create(fs, PATH, &identity, &w, &ei), &ei);
    CHECK(series_file_name(w, 1, STR_LITERAL("a"), NULL) == ERR_INVALID);
    CHECK(series_file_name(w, 0, STR_LITERAL(""), NULL) == ERR_INVALID);
    CHECK_OK(series_file_name(w, 0, STR_LITERAL("a"), &ei), &ei);
    CHECK(series_file_value(w, 1, 0, STR_LITERAL("x"), NULL) == ERR_INVALID);
    CHECK(series_file_value(w, 0, 0, STR_LITERAL(""), NULL) == ERR_INVALID);
    CHECK(series_file_schema(w, 0, names, 2, NULL) == ERR_INVALID);
    CHECK(series_file_schema(w, 1, names, 1, NULL) == ERR_INVALID);
    CHECK_OK(series_file_schema(w, 0, names, 1, &ei), &ei);
    CHECK_OK(series_file_add(w, &entry, &ei), &ei);
    CHECK(series_file_add(w, &entry, NULL) == ERR_INVALID);
    entry.slot = SERIES_FILE_SLOT_MAX;
    CHECK(series_file_add(w, &entry, NULL) == ERR_INVALID);
    entry = (struct series_file_entry){.slot = 6, .schema_id = 1, .value_ids = ids};
    CHECK(series_file_add(w, &entry, NULL) == ERR_INVALID);
    CHECK_OK(series_file_batch(w, 1, &ei), &ei);
    series_file_writer_free(w);
    /* The value was never defined. */
    CHECK(series_file_load(fs, PATH, &identity, 0, NULL, &image, &ei) == ERR_CORRUPT);
    CHECK(strstr(ei.message, PATH) != NULL && strstr(ei.message, "not defined") != NULL);
    fs_free(fs);
}

/* ---- damage ---- */

static uint8_t *file_bytes(struct fs *fs, size_t size)
{
    size_t got;
    uint8_t *data = test_file_read(fs, PATH, &got);

    CHECK(got == size);
    return data;
}

static struct fs *fs_with(const uint8_t *data, size_t size)
{
    struct fs *fs = test_fs_new_with(1, DIR);

    test_file_create(fs, PATH, data, size);
    return fs;
}

/* Cut at every byte: the batches that are whole, or an error where more was durable. */
static void test_truncation_at_every_byte(void **state)
{
    enum { BATCHES = 2 };
    struct twin *t = twin_new(5, 1), *states = calloc(BATCHES + 1, sizeof *states);
    struct fs *fs = test_fs_new_with(1, DIR);
    size_t size = write_batches(fs, t, BATCHES, states);
    uint8_t *data = file_bytes(fs, size);

    (void)state;
    CHECK(states != NULL);
    for (size_t cut = 0; cut < size; cut += 1 + cut / 500) {
        struct fs *short_fs = fs_with(data, cut);
        struct series_image image;
        struct errinfo ei = {0};

        CHECK(series_file_load(short_fs, PATH, &identity, size, NULL, &image, &ei) == ERR_CORRUPT);
        CHECK(strstr(ei.message, PATH) != NULL && strstr(ei.message, "offset") != NULL);
        if (cut >= SERIES_FILE_HEADER_SIZE) {
            load_well(short_fs, SERIES_FILE_HEADER_SIZE, &image);
            CHECK(image.batch_count < BATCHES && image.end + image.torn_bytes == cut);
            twin_compare(&states[image.batch_count], &image);
            series_image_done(&image);
        }
        fs_free(short_fs);
    }
    free(data);
    free(states);
    free(t);
    fs_free(fs);
}

static void test_bit_flips(void **state)
{
    enum { BATCHES = 3 };
    struct twin *t = twin_new(6, 2), *states = calloc(BATCHES + 1, sizeof *states);
    struct fs *fs = test_fs_new_with(1, DIR);
    size_t size = write_batches(fs, t, BATCHES, states);
    uint8_t *data = file_bytes(fs, size);
    struct test_random r = test_random_init(7);

    (void)state;
    CHECK(states != NULL);
    for (int i = 0; i < 3000; i++) {
        size_t bit = i < 1500 ? (size_t)i : test_random_below(&r, size * 8);
        struct series_image image;
        struct errinfo ei = {0};
        struct fs *bad;

        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bad = fs_with(data, size);
        CHECK(series_file_load(bad, PATH, &identity, size, NULL, &image, &ei) == ERR_CORRUPT);
        CHECK(strstr(ei.message, PATH) != NULL);
        if (bit / 8 >= SERIES_FILE_HEADER_SIZE) { /* not durable: what stands before the damage */
            load_well(bad, 0, &image);
            CHECK(image.batch_count < BATCHES);
            twin_compare(&states[image.batch_count], &image);
            series_image_done(&image);
        }
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        fs_free(bad);
    }
    free(data);
    free(states);
    free(t);
    fs_free(fs);
}

/* ---- crashes ---- */

enum { LIFE_BATCHES = 4 };

/* states[i] is the twin after i batches: every life writes the same ones. */
struct life {
    struct twin states[LIFE_BATCHES + 1];
    bool named; /* the manifest names the file */
    uint64_t durable_size;
    uint32_t durable_batches;
};

static struct fs *after_crash(struct fs *fs, size_t mode, uint64_t seed)
{
    return test_fs_after(fs, test_crash_modes[mode].loss, 10 * seed + mode);
}

/* Writes what is left of the batches, syncs after each. */
static bool life_append(struct life *life, struct series_file_writer *w, uint32_t from)
{
    for (uint32_t i = from; i < LIFE_BATCHES; i++) {
        struct twin t = life->states[i];

        if (twin_batch(&t, w) != ERR_OK &&
            series_file_batch(w, t.sequence, NULL) != ERR_OK) /* once more */
            return false;
        if (series_file_sync(w, NULL) != ERR_OK) {
            CHECK(series_file_sync(w, NULL) == ERR_IO);
            return false;
        }
        life->named = true;
        life->durable_size = series_file_durable_size(w);
        life->durable_batches = i + 1;
    }
    return true;
}

static bool life_first(struct life *life, struct fs *fs)
{
    struct series_file_writer *w;
    bool well;

    if (series_file_create(fs, PATH, &identity, &w, NULL) != ERR_OK)
        return false;
    well = life_append(life, w, 0);
    series_file_writer_free(w);
    return well;
}

static bool life_restart(struct life *life, struct fs *fs, bool grow)
{
    struct series_file_writer *w;
    struct series_image image;
    struct errinfo ei = {0};
    bool well = true;
    enum err e;

    if (!life->named)
        return true; /* debris, if it is there */
    e = series_file_load(fs, PATH, &identity, life->durable_size, NULL, &image, &ei);
    if (e == ERR_IO)
        return false;
    CHECK_OK(e, &ei);
    CHECK(image.batch_count >= life->durable_batches);
    twin_compare(&life->states[image.batch_count], &image);
    if (grow) {
        e = series_file_resume(fs, PATH, &image, life->durable_size, &w, &ei);
        CHECK(e == ERR_OK || e == ERR_IO);
        well = e == ERR_OK;
        if (well) {
            life->durable_size = image.end;
            life->durable_batches = image.batch_count;
            well = life_append(life, w, image.batch_count);
            series_file_writer_free(w);
        }
    }
    series_image_done(&image);
    return well;
}

static void crash_everywhere(enum fs_sim_fault fault)
{
    struct life *start = calloc(1, sizeof *start), *life = calloc(1, sizeof *life);
    struct twin *t = twin_new(11, 1);
    struct fs *fs = test_fs_new_with(1, DIR);
    bool hit = true;

    CHECK(start != NULL && life != NULL);
    write_batches(fs, t, LIFE_BATCHES, start->states);
    fs_free(fs);
    for (uint64_t op = 0; hit; op++) {
        struct life *first = calloc(1, sizeof *first);
        bool hit_again = true;

        CHECK(first != NULL);
        *first = *start;
        fs = test_fs_new_with(op + 1, DIR);
        fs_sim_set_fault(fs, fault, fs_sim_op_count(fs) + op);
        (void)life_first(first, fs);
        hit = fs_sim_fault_hit(fs);
        for (uint64_t again = 0; hit_again; again++) {
            struct fs *second = after_crash(fs, again % TEST_CRASH_MODE_COUNT, op), *third;

            *life = *first;
            fs_sim_set_fault(second, FS_SIM_FAULT_CRASH,
                             fs_sim_op_count(second) + again / TEST_CRASH_MODE_COUNT);
            (void)life_restart(life, second, true);
            hit_again = fs_sim_fault_hit(second) ||
                        again % TEST_CRASH_MODE_COUNT != TEST_CRASH_MODE_COUNT - 1;
            third = after_crash(second, (again + op) % TEST_CRASH_MODE_COUNT, again);
            CHECK(life_restart(life, third, true));
            CHECK(life_restart(life, third, false));
            fs_free(third);
            fs_free(second);
        }
        fs_free(fs);
        free(first);
    }
    free(start);
    free(life);
    free(t);
}

static void test_crash_at_every_operation(void **state)
{
    (void)state;
    crash_everywhere(FS_SIM_FAULT_CRASH);
    crash_everywhere(FS_SIM_FAULT_EIO);
}

/* ---- golden file ---- */

static const char *const golden_path = SERIES_GOLDEN_DIR "/series_v1.bin";

/* Not by TEST_SEED: the file is what it is. */
static struct twin *golden_twin(void)
{
    struct twin *t = twin_new(21, 3);

    t->r = (struct test_random){21, 21};
    return t;
}

static void test_golden(void **state)
{
    struct twin *t = golden_twin();
    struct fs *fs = test_fs_new_with(1, DIR), *golden_fs;
    size_t size = write_batches(fs, t, 3, NULL), golden_size;
    uint8_t *made = file_bytes(fs, size), *golden = malloc(size + 1);
    FILE *f = fopen(golden_path, "rb");
    struct series_image image;

    (void)state;
    CHECK(f != NULL && golden != NULL);
    golden_size = fread(golden, 1, size + 1, f);
    (void)fclose(f); /* read only: nothing to lose */
    golden_fs = fs_with(golden, golden_size);
    load_well(golden_fs, golden_size, &image);
    twin_compare(t, &image);
    series_image_done(&image);
    CHECK(golden_size == size && memcmp(golden, made, size) == 0);
    fs_free(golden_fs);
    fs_free(fs);
    free(golden);
    free(made);
    free(t);
}

static int write_golden(const char *path)
{
    struct twin *t = golden_twin();
    struct fs *fs = test_fs_new_with(1, DIR);
    size_t size = write_batches(fs, t, 3, NULL);
    uint8_t *data = file_bytes(fs, size);
    FILE *f = fopen(path, "wb");

    CHECK(f != NULL && fwrite(data, 1, size, f) == size);
    free(data);
    free(t);
    fs_free(fs);
    return fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_refused_input),
        cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_crash_at_every_operation),
        cmocka_unit_test(test_golden),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
