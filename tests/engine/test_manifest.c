/*
 * The manifest: both versions, changes in memory against a plain list, damage, crashes while it is
 * replaced, names of files, debris.
 *
 * test_engine_manifest --write DIR makes the golden files.
 */
#include "engine/files/manifest_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"

static struct manifest_file random_file(struct test_random *r, uint64_t number)
{
    uint32_t shard_count = 1U << test_random_below(r, 13);
    struct manifest_file f = {.shard_count = shard_count, .number = number};

    f.kind = (enum manifest_kind)(MANIFEST_SEALED + test_random_below(r, 3));
    f.shard = (uint32_t)test_random_below(r, shard_count);
    f.durable_size = test_random_u64(r);
    return f;
}

static struct manifest_part random_part(struct test_random *r, uint64_t generation)
{
    uint32_t shard_count = 1U << test_random_below(r, 13);
    struct manifest_part p = {.key = {.generation = generation, .shard_count = shard_count}};

    p.key.window_start_ms = (int64_t)test_random_u64(r);
    p.key.window_size_ms = 1 + test_random_below(r, 1 << 30);
    p.key.resolution_ms = test_random_below(r, 2) * 60000;
    p.key.shard = (uint32_t)test_random_below(r, shard_count);
    p.key.retention_class = (uint32_t)test_random_u64(r);
    p.min_time_ms = (int64_t)test_random_u64(r);
    p.max_time_ms = (int64_t)test_random_u64(r);
    p.sample_count = test_random_u64(r);
    p.index_size = test_random_u64(r);
    p.chunks_size = test_random_u64(r);
    p.purged_generation = test_random_u64(r);
    return p;
}

static struct manifest random_manifest(struct test_random *r, size_t count_max)
{
    uint32_t shard_count = 1U << test_random_below(r, 6);
    struct manifest m = {.shard_count = shard_count,
                         .next_file_number = 1 + test_random_below(r, 3)};
    struct errinfo ei = {0};
    uint64_t files = test_random_below(r, count_max + 1),
             parts = test_random_below(r, count_max + 1);

    hash_secret_init(&m.secret, 1 + test_random_below(r, 1000));
    for (uint64_t i = 0, number = 0; i < files; i++) {
        struct manifest_file f;

        number += 1 + test_random_below(r, 10);
        f = random_file(r, number);
        CHECK_OK(manifest_file_add(&m, &f, &ei), &ei);
        CHECK(manifest_file_add(&m, &f, NULL) == ERR_EXISTS);
    }
    for (uint64_t i = 0; i < parts; i++) {
        struct manifest_part p = random_part(r, i);

        CHECK_OK(manifest_part_add(&m, &p, &ei), &ei);
        CHECK(manifest_part_add(&m, &p, NULL) == ERR_EXISTS);
    }
    if (test_random_below(r, 3) > 0)
        CHECK_OK(manifest_sequences_reserve(&m, &ei), &ei);
    for (uint32_t i = 0; m.covered_sequences != NULL && i < m.shard_count; i++)
        m.covered_sequences[i] = test_random_u64(r);
    return m;
}

static void add_tombstones(struct manifest *m, uint64_t count)
{
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    for (uint64_t i = 0; i < count; i++) {
        struct tombstone_list *more = NULL;
        struct matcher matchers[2];

        CHECK_OK(matcher_init(&matchers[0], MATCHER_EQUAL, STR_LITERAL("__name__"),
                              STR_LITERAL("m"), &arena, &ei),
                 &ei);
        CHECK_OK(matcher_init(&matchers[1], MATCHER_REGEX, STR_LITERAL("job"), STR_LITERAL("a.*|b"),
                              &arena, &ei),
                 &ei);
        CHECK_OK(tombstone_list_add(m->tombstones, matchers, 1 + i % 2, -(int64_t)i, 1000, 5 + i,
                                    &more, &ei),
                 &ei);
        tombstone_list_unref(m->tombstones);
        m->tombstones = more;
        matcher_done(&matchers[0]);
        matcher_done(&matchers[1]);
    }
    arena_done(&arena);
}

/* A tombstone with a filter, and two source labels. */
static void add_filter(struct manifest *m, enum relabel_action action)
{
    static const struct str names[] = {{"job", 3}, {"instance", 8}};
    struct tombstone_list *more = NULL;
    struct relabel_config c;
    struct errinfo ei = {0};

    relabel_config_init(&c);
    c.action = action;
    c.source_labels = names;
    c.source_label_count = 2;
    if (action == RELABEL_DROP || action == RELABEL_KEEP)
        c.regex = STR_LITERAL("a;.*|b");
    else
        c.target_label = STR_LITERAL("both");
    CHECK_OK(tombstone_list_add_filter(m->tombstones, &c, -7, 1000, 9, &more, &ei), &ei);
    tombstone_list_unref(m->tombstones);
    m->tombstones = more;
}

static void add_purges(struct manifest *m, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct purge_item added = {5 + i, 2 * i, {"{job=\"a\"}\n" + i, 10 - i}};
        struct purge_list *more = NULL;
        struct errinfo ei = {0};

        CHECK_OK(purge_list_add(m->purges, &added, 1, &more, &ei), &ei);
        purge_list_unref(m->purges);
        m->purges = more;
    }
}

/* Compares two writers, and empties them. */
static bool bytes_equal(struct byte_writer *x, struct byte_writer *y)
{
    bool equal = x->size == y->size && memcmp(x->data, y->data, x->size) == 0;

    writer_done(x);
    writer_done(y);
    return equal;
}

static bool purges_equal(const struct purge_list *a, const struct purge_list *b)
{
    struct byte_writer x, y;
    struct errinfo ei = {0};

    writer_init(&x);
    writer_init(&y);
    CHECK_OK(purge_list_encode(a, &x, &ei), &ei);
    CHECK_OK(purge_list_encode(b, &y, &ei), &ei);
    return bytes_equal(&x, &y);
}

/* By their bytes, which test_tombstone.c compares with what they say. */
static bool tombstones_equal(const struct tombstone_list *a, const struct tombstone_list *b)
{
    struct byte_writer x, y;
    struct errinfo ei = {0};

    writer_init(&x);
    writer_init(&y);
    CHECK_OK(tombstone_list_encode(a, &x, &ei), &ei);
    CHECK_OK(tombstone_list_encode(b, &y, &ei), &ei);
    return bytes_equal(&x, &y);
}

static bool file_equal(const struct manifest_file *a, const struct manifest_file *b)
{
    return a->kind == b->kind && a->shard == b->shard && a->shard_count == b->shard_count &&
           a->number == b->number && a->durable_size == b->durable_size;
}

static bool part_equal(const struct manifest_part *a, const struct manifest_part *b)
{
    return part_key_equal(&a->key, &b->key) && a->min_time_ms == b->min_time_ms &&
           a->max_time_ms == b->max_time_ms && a->sample_count == b->sample_count &&
           a->index_size == b->index_size && a->chunks_size == b->chunks_size &&
           a->purged_generation == b->purged_generation;
}

/* The same files and parts, in any order. */
static bool manifest_equal(const struct manifest *a, const struct manifest *b)
{
    if (a->shard_count != b->shard_count || a->next_file_number != b->next_file_number ||
        a->file_count != b->file_count || a->part_count != b->part_count ||
        memcmp(&a->secret, &b->secret, sizeof a->secret) != 0 ||
        !tombstones_equal(a->tombstones, b->tombstones) || !purges_equal(a->purges, b->purges))
        return false;
    for (uint32_t i = 0; i < a->shard_count; i++) {
        uint64_t x = a->covered_sequences != NULL ? a->covered_sequences[i] : 0;

        if (x != (b->covered_sequences != NULL ? b->covered_sequences[i] : 0))
            return false;
    }
    for (size_t i = 0; i < a->file_count; i++) {
        const struct manifest_file *f = manifest_file_find(b, a->files[i].number);

        if (f == NULL || !file_equal(f, &a->files[i]))
            return false;
    }
    for (size_t i = 0; i < a->part_count; i++) {
        const struct manifest_part *p = manifest_part_find(b, &a->parts[i].key);

        if (p == NULL || !part_equal(p, &a->parts[i]))
            return false;
    }
    return true;
}

static void test_round_trips(void **state)
{
    struct test_random r = test_random_init(1);
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    for (int i = 0; i < 200; i++) {
        struct manifest m = random_manifest(&r, i % 10 == 0 ? 300 : 8), got = {0}, copy = {0};
        struct errinfo ei = {0};

        add_tombstones(&m, (uint64_t)i % 4);
        add_purges(&m, (uint64_t)i / 4 % 3);
        if (i % 8 == 7)
            add_filter(&m, i % 16 == 7 ? RELABEL_DROP : RELABEL_KEEPEQUAL);
        CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
        CHECK_OK(manifest_decode(w.data, w.size, &got, &ei), &ei);
        CHECK((got.tombstones != NULL) == (i % 4 > 0));
        CHECK((got.purges != NULL) == (i / 4 % 3 > 0));
        CHECK_OK(manifest_copy(&got, &copy, &ei), &ei);
        CHECK(manifest_equal(&m, &got) && manifest_equal(&m, &copy));
        manifest_done(&m);
        manifest_done(&got);
        manifest_done(&copy);
    }
    writer_done(&w);
}

/* Additions and removals against a flag per number. */
static void test_changes(void **state)
{
    enum { NUMBERS = 40 };
    struct test_random r = test_random_init(2);
    struct manifest m = {.shard_count = 1, .next_file_number = 1};
    bool there[NUMBERS + 1] = {false};
    struct errinfo ei = {0};
    uint64_t highest = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        uint64_t n = 1 + test_random_below(&r, NUMBERS);

        if (test_random_below(&r, 2) == 0) {
            struct manifest_file f = random_file(&r, n);

            CHECK(manifest_file_add(&m, &f, NULL) == (there[n] ? ERR_EXISTS : ERR_OK));
            there[n] = true;
            highest = n > highest ? n : highest;
        } else {
            CHECK(manifest_file_remove(&m, n) == there[n]);
            there[n] = false;
        }
        CHECK(m.next_file_number == highest + 1 || (highest == 0 && m.next_file_number == 1));
        for (uint64_t k = 1; k <= NUMBERS; k++)
            CHECK((manifest_file_find(&m, k) != NULL) == there[k]);
    }
    struct manifest_part p = random_part(&r, 1), q = p;
    q.key.retention_class++;
    CHECK_OK(manifest_part_add(&m, &p, &ei), &ei);
    CHECK_OK(manifest_part_add(&m, &q, &ei), &ei);
    CHECK(manifest_part_remove(&m, &p.key) && !manifest_part_remove(&m, &p.key));
    CHECK(m.part_count == 1 && manifest_part_find(&m, &q.key) != NULL);
    manifest_done(&m);
}

static void test_damage(void **state)
{
    struct test_random r = test_random_init(3);
    struct manifest m = random_manifest(&r, 6), got = {0};
    struct errinfo ei = {0};
    struct byte_writer w;

    (void)state;
    add_tombstones(&m, 3);
    add_filter(&m, RELABEL_KEEP);
    writer_init(&w);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    for (size_t cut = 0; cut < w.size; cut++) {
        errinfo_clear(&ei);
        CHECK(manifest_decode(w.data, cut, &got, &ei) == ERR_CORRUPT);
        CHECK(strstr(ei.message, MANIFEST_PATH) != NULL);
    }
    for (size_t bit = 0; bit < w.size * 8; bit++) {
        enum err e;

        w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        e = manifest_decode(w.data, w.size, &got, NULL);
        /* A flipped version number reads as a newer one. */
        CHECK(e == ERR_CORRUPT || (e == ERR_UNSUPPORTED && bit / 8 >= 8 && bit / 8 < 12));
        w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    writer_u8(&w, 0);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    writer_done(&w);
    manifest_done(&m);
}

static void put_le32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}

static void reseal(struct byte_writer *w)
{
    put_le32(w->data + 252, crc32c(w->data, 252));
    put_le32(w->data + w->size - 4, crc32c(w->data + 256, w->size - 4 - 256));
}

/* Tombstones stand in one of two sections, by whether any has a filter; never in both. */
static void test_sections_of_tombstones(void **state)
{
    struct test_random r = test_random_init(9);
    struct manifest m = random_manifest(&r, 0), got = {0};
    struct byte_writer w, plain;
    struct errinfo ei = {0};
    size_t at;

    (void)state;
    writer_init(&w);
    writer_init(&plain);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    at = w.size - 4;
    add_tombstones(&m, 1);
    CHECK_OK(manifest_encode(&m, &plain, &ei), &ei);
    CHECK(plain.data[at] == 4);
    add_filter(&m, RELABEL_DROP);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    /* A program that knows no filters refuses the directory, as one of a newer version. */
    CHECK(w.data[at] == 6 && w.data[at + 4] == 1);
    CHECK_OK(manifest_decode(w.data, w.size, &got, &ei), &ei);
    CHECK(got.tombstones->count == 2 && tombstone_list_has_filters(got.tombstones));
    manifest_done(&got);
    /* One kind in the place of the other, and both. */
    w.data[at] = 4;
    plain.data[at] = 6;
    reseal(&w);
    reseal(&plain);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    CHECK(manifest_decode(plain.data, plain.size, &got, NULL) == ERR_CORRUPT);
    w.data[at] = 6;
    plain.data[at] = 4;
    w.size -= 4;
    writer_append(&w, plain.data + at, plain.size - 4 - at);
    writer_le32(&w, 0);
    put_le32(w.data + 248, 5);
    reseal(&w);
    errinfo_clear(&ei);
    CHECK(manifest_decode(w.data, w.size, &got, &ei) == ERR_CORRUPT);
    CHECK(strstr(ei.message, "two sections of tombstones") != NULL);
    writer_done(&w);
    writer_done(&plain);
    manifest_done(&m);
}

/* A section of a later version: skipped or refused, as it says itself. */
static void test_unknown_sections(void **state)
{
    struct test_random r = test_random_init(4);
    struct manifest m = random_manifest(&r, 3), got = {0};
    struct errinfo ei = {0};
    struct byte_writer w;
    size_t at;

    (void)state;
    writer_init(&w);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    at = w.size -= 4;
    writer_le32(&w, 99);
    writer_le32(&w, 0);
    writer_le64(&w, 5);
    writer_append(&w, "hello", 5);
    writer_le32(&w, 0);
    put_le32(w.data + 248, 4);
    reseal(&w);
    CHECK_OK(manifest_decode(w.data, w.size, &got, &ei), &ei);
    CHECK(manifest_equal(&m, &got));
    manifest_done(&got);
    w.data[at + 4] = 1;
    reseal(&w);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_UNSUPPORTED);
    put_le32(w.data + at, 2); /* files twice */
    reseal(&w);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    put_le32(w.data + 248, 2);
    reseal(&w);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    writer_done(&w);
    manifest_done(&m);
}

/* A section makes no sense, though its checksum holds: its count differs from what there is. */
static void check_bad_count(uint64_t seed, uint8_t kind,
                            void (*add)(struct manifest *m, uint64_t count), int change,
                            const char *story)
{
    struct test_random r = test_random_init(seed);
    struct manifest m = random_manifest(&r, 3), got = {0};
    struct errinfo ei = {0};
    struct byte_writer w;
    size_t at;

    writer_init(&w);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    at = w.size - 4; /* where the section begins, in front of the checksum */
    add(&m, 2);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(w.data[at] == kind && w.data[at + 4] == 1); /* must be understood */
    w.data[at + 16] = (uint8_t)(w.data[at + 16] + change);
    reseal(&w);
    CHECK(manifest_decode(w.data, w.size, &got, &ei) == ERR_CORRUPT);
    CHECK_MSG(strstr(ei.message, MANIFEST_PATH) != NULL && strstr(ei.message, story) != NULL, "%s",
              ei.message);
    writer_done(&w);
    manifest_done(&m);
}

static void test_bad_counts(void **state)
{
    (void)state;
    check_bad_count(6, 4, add_tombstones, 1, "tombstones: ");
    check_bad_count(6, 4, add_tombstones, -1, "tombstones: ");
    check_bad_count(7, 5, add_purges, 1, "purges: ");
    check_bad_count(7, 5, add_purges, -1, "purges: bytes behind the last");
}

static void test_repeats_are_refused(void **state)
{
    struct test_random r = test_random_init(5);
    struct manifest m = {.shard_count = 2, .next_file_number = 50}, got = {0};
    struct errinfo ei = {0};
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    for (uint64_t i = 1; i <= 3; i++) {
        struct manifest_file f = random_file(&r, i);
        struct manifest_part p = random_part(&r, i);

        CHECK_OK(manifest_file_add(&m, &f, &ei), &ei);
        CHECK_OK(manifest_part_add(&m, &p, &ei), &ei);
    }
    hash_secret_init(&m.secret, 1);
    m.files[2].number = 1;
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    m.files[2].number = 50; /* not below the next one */
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    m.files[2].number = 3;
    m.parts[2].key = m.parts[0].key;
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(manifest_decode(w.data, w.size, &got, NULL) == ERR_CORRUPT);
    writer_done(&w);
    manifest_done(&m);
}

/* ---- disk ---- */

static struct fs *after_crash(struct fs *fs, size_t mode, uint64_t seed)
{
    return test_fs_after(fs, test_crash_modes[mode].loss, 10 * seed + mode);
}

/* Which of the manifests is there; no other may be. */
static size_t manifest_found(struct fs *fs, const struct manifest *list, size_t count)
{
    struct manifest got = {0};
    struct errinfo ei = {0};
    size_t found = count;

    CHECK_OK(manifest_read(fs, &got, &ei), &ei);
    for (size_t i = 0; i < count; i++) {
        if (manifest_equal(&got, &list[i]))
            found = i;
    }
    CHECK(found < count);
    manifest_done(&got);
    return found;
}

/* Crash or error at every operation of a replacement, then a second crash in the next one: an older
 * or the newest manifest is there whole; the newest, once a write has succeeded. */
static void replace_with_faults(enum fs_sim_fault fault)
{
    struct test_random r = test_random_init(6);
    struct manifest list[3];
    bool hit = true;

    for (size_t i = 0; i < 3; i++)
        list[i] = random_manifest(&r, 40);
    for (uint64_t op = 0; hit; op++) {
        struct fs *fs = test_fs_new(op + 1);
        enum err first, e;

        CHECK(manifest_write(fs, &list[0], NULL) == ERR_OK);
        fs_sim_set_fault(fs, fault, fs_sim_op_count(fs) + op);
        first = manifest_write(fs, &list[1], NULL);
        hit = fs_sim_fault_hit(fs);
        for (uint64_t again = 0; again < 40; again++) {
            size_t loss = again % TEST_CRASH_MODE_COUNT;
            struct fs *second = after_crash(fs, loss, op), *third;
            size_t found = manifest_found(second, list, 2);

            CHECK(found == 1 || first != ERR_OK);
            fs_sim_set_fault(second, FS_SIM_FAULT_CRASH,
                             fs_sim_op_count(second) + again / TEST_CRASH_MODE_COUNT);
            e = manifest_write(second, &list[2], NULL);
            third = after_crash(second, (loss + op) % TEST_CRASH_MODE_COUNT, again);
            found = manifest_found(third, list, 3);
            CHECK(found == 2 || e != ERR_OK);
            CHECK(manifest_write(third, &list[2], NULL) == ERR_OK);
            CHECK(manifest_found(third, list, 3) == 2);
            fs_free(third);
            fs_free(second);
        }
        fs_free(fs);
    }
    for (size_t i = 0; i < 3; i++)
        manifest_done(&list[i]);
}

static void test_crash_at_every_operation(void **state)
{
    (void)state;
    replace_with_faults(FS_SIM_FAULT_CRASH);
    replace_with_faults(FS_SIM_FAULT_EIO);
}

/* ---- names and debris ---- */

static void test_names(void **state)
{
    static const char *const others[] = {
        "",
        "0003-0000000042",
        "0003-0000000042.sealed2",
        "0003-0000000042.sealed.tmp",
        "3-0000000042.sealed",
        "0003-42.sealed",
        "0003-0000000000.sealed",
        "4096-0000000001.sealed",
        "0003-18446744073709551616.late",
        "0003-00000000042.late",
        "+003-0000000042.late",
        "0003_0000000042.late",
        "manifest",
    };
    struct test_random r = test_random_init(7);
    char path[MANIFEST_PATH_SIZE];
    enum manifest_kind kind;
    uint32_t shard;
    uint64_t number;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct manifest_file f = random_file(&r, 1 + (test_random_wide(&r, 63) >> 1));

        manifest_file_path(&f, path);
        CHECK(strncmp(path, "shards/", 7) == 0);
        CHECK(manifest_file_name_parse(path + 7, &kind, &shard, &number));
        CHECK(kind == f.kind && shard == f.shard && number == f.number);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_MSG(!manifest_file_name_parse(others[i], &kind, &shard, &number), "%s", others[i]);
}

static void touch(struct fs *fs, const char *path)
{
    struct errinfo ei = {0};
    struct file *f;

    CHECK_OK(file_open(fs, path, FILE_CREATE, &f, &ei), &ei);
    file_close(f);
}

static void touch_part(struct fs *fs, const struct part_key *key, enum part_file file,
                       bool temporary)
{
    char name[PART_NAME_SIZE], path[MANIFEST_PATH_SIZE];

    part_name_format(key, file, temporary, name);
    CHECK(snprintf(path, sizeof path, "%s/%s", MANIFEST_PARTS_DIR, name) < (int)sizeof path);
    touch(fs, path);
}

static void test_debris(void **state)
{
    struct test_random r = test_random_init(8);
    struct manifest m = {.shard_count = 4, .next_file_number = 1};
    struct manifest_file f = random_file(&r, 5);
    struct manifest_part p = random_part(&r, 1), other = random_part(&r, 2);
    struct manifest_paths paths;
    char path[MANIFEST_PATH_SIZE];
    struct errinfo ei = {0};
    struct fs *fs = test_fs_new(1);

    (void)state;
    hash_secret_init(&m.secret, 1);
    CHECK_OK(manifest_debris(fs, &m, &paths, &ei), &ei);
    CHECK(paths.count == 0);
    manifest_paths_done(&paths);
    CHECK_OK(fs_mkdir(fs, MANIFEST_SHARDS_DIR, &ei), &ei);
    CHECK_OK(fs_mkdir(fs, MANIFEST_PARTS_DIR, &ei), &ei);
    f.kind = MANIFEST_LATE;
    CHECK_OK(manifest_file_add(&m, &f, &ei), &ei);
    CHECK_OK(manifest_part_add(&m, &p, &ei), &ei);
    manifest_file_path(&f, path);
    touch(fs, path);
    touch_part(fs, &p.key, PART_FILE_INDEX, false);
    touch_part(fs, &p.key, PART_FILE_CHUNKS, false);
    touch(fs, "shards/notes.txt");
    touch(fs, "parts/README");
    CHECK_OK(manifest_debris(fs, &m, &paths, &ei), &ei);
    CHECK(paths.count == 0);
    manifest_paths_done(&paths);
    touch(fs, MANIFEST_TEMP_PATH);
    f.kind = MANIFEST_SERIES; /* the number of a listed file, another kind */
    manifest_file_path(&f, path);
    touch(fs, path);
    touch_part(fs, &p.key, PART_FILE_INDEX, true);
    touch_part(fs, &other.key, PART_FILE_CHUNKS, false);
    CHECK_OK(manifest_debris(fs, &m, &paths, &ei), &ei);
    CHECK(paths.count == 4);
    for (size_t i = 0; i < paths.count; i++)
        CHECK_OK(fs_unlink(fs, paths.items[i], &ei), &ei);
    manifest_paths_done(&paths);
    CHECK_OK(manifest_debris(fs, &m, &paths, &ei), &ei);
    CHECK(paths.count == 0);
    manifest_paths_done(&paths);
    manifest_done(&m);
    fs_free(fs);
}

/* ---- golden files ---- */

/* Version 1, as its last program wrote it. */
static void v1_encode(const struct hash_secret *secret, uint8_t out[MANIFEST_V1_SIZE])
{
    static const uint8_t magic[8] = {'R', 'I', 'M', 'M', 'A', 'N', 'I', 'F'};

    memset(out, 0, MANIFEST_V1_SIZE);
    memcpy(out, magic, sizeof magic);
    put_le32(out + 8, 1);
    put_le32(out + 32, 64);
    put_le32(out + 36, HASH_SECRET_SIZE);
    memcpy(out + 40, &secret->id, 8);
    memcpy(out + 48, secret->bytes, HASH_SECRET_SIZE);
    put_le32(out + 252, crc32c(out, 252));
}

static void golden_manifest(struct manifest *m)
{
    struct errinfo ei = {0};
    uint8_t secret[HASH_SECRET_SIZE];

    *m = (struct manifest){.shard_count = 4, .next_file_number = 9};
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)(i * 7);
    hash_secret_from_bytes(&m->secret, secret);
    CHECK_OK(manifest_sequences_reserve(m, &ei), &ei);
    for (uint32_t i = 0; i < 4; i++)
        m->covered_sequences[i] = 1000 + i;
    for (uint64_t i = 1; i <= 3; i++) {
        struct manifest_file f = {(enum manifest_kind)i, (uint32_t)i, 4, i * 2, i << 33};
        struct manifest_part p = {.key = {.window_start_ms = 1767225600000 - (int64_t)i * 7200000,
                                          .window_size_ms = 7200000,
                                          .resolution_ms = i == 2 ? 60000 : 0,
                                          .generation = 10 + i,
                                          .shard = (uint32_t)i,
                                          .shard_count = 4,
                                          .retention_class = i == 3},
                                  .min_time_ms = -(int64_t)i,
                                  .max_time_ms = 5,
                                  .sample_count = 77,
                                  .index_size = 4096,
                                  .chunks_size = UINT64_C(1) << 40,
                                  .purged_generation = i << 16};

        CHECK_OK(manifest_file_add(m, &f, &ei), &ei);
        CHECK_OK(manifest_part_add(m, &p, &ei), &ei);
    }
}

static size_t golden_read(const char *name, uint8_t *out, size_t capacity)
{
    char path[4096];
    FILE *f;
    size_t size;

    CHECK(snprintf(path, sizeof path, "%s/%s", MANIFEST_GOLDEN_DIR, name) < (int)sizeof path);
    f = fopen(path, "rb");
    CHECK(f != NULL);
    size = fread(out, 1, capacity, f);
    (void)fclose(f); /* read only: nothing to lose */
    return size;
}

static void test_golden(void **state)
{
    uint8_t data[4096];
    struct manifest m, got = {0};
    struct errinfo ei = {0};
    struct byte_writer w;
    size_t size = golden_read("manifest_v1.bin", data, sizeof data);

    (void)state;
    golden_manifest(&m);
    writer_init(&w);
    CHECK_OK(manifest_decode(data, size, &got, &ei), &ei);
    CHECK(got.shard_count == 64 && got.next_file_number == 1 && got.file_count == 0);
    CHECK(memcmp(&got.secret, &m.secret, sizeof got.secret) == 0);
    /* An old directory becomes one of this version with the first change. */
    CHECK_OK(manifest_encode(&got, &w, &ei), &ei);
    manifest_done(&got);
    CHECK_OK(manifest_decode(w.data, w.size, &got, &ei), &ei);
    CHECK(got.shard_count == 64 && got.part_count == 0);
    manifest_done(&got);
    for (size_t cut = 0; cut < size; cut++)
        CHECK(manifest_decode(data, cut, &got, NULL) == ERR_CORRUPT);
    for (size_t bit = 96; bit < size * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(manifest_decode(data, size, &got, NULL) == ERR_CORRUPT);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    size = golden_read("manifest_v2.bin", data, sizeof data);
    CHECK_OK(manifest_decode(data, size, &got, &ei), &ei);
    CHECK(manifest_equal(&m, &got));
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(w.size == size && memcmp(w.data, data, size) == 0);
    manifest_done(&got);
    add_tombstones(&m, 2);
    size = golden_read("manifest_v2_tombstones.bin", data, sizeof data);
    CHECK_OK(manifest_decode(data, size, &got, &ei), &ei);
    CHECK(manifest_equal(&m, &got));
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(w.size == size && memcmp(w.data, data, size) == 0);
    manifest_done(&got);
    add_purges(&m, 2);
    size = golden_read("manifest_v2_purges.bin", data, sizeof data);
    CHECK_OK(manifest_decode(data, size, &got, &ei), &ei);
    CHECK(manifest_equal(&m, &got));
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(w.size == size && memcmp(w.data, data, size) == 0);
    manifest_done(&got);
    add_filter(&m, RELABEL_DROP);
    add_filter(&m, RELABEL_DROPEQUAL);
    size = golden_read("manifest_v2_filters.bin", data, sizeof data);
    CHECK_OK(manifest_decode(data, size, &got, &ei), &ei);
    CHECK(manifest_equal(&m, &got));
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    CHECK(w.size == size && memcmp(w.data, data, size) == 0);
    manifest_done(&got);
    manifest_done(&m);
    writer_done(&w);
}

static void golden_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[4096];
    FILE *f;

    CHECK(snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path);
    f = fopen(path, "wb");
    CHECK(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static int write_golden(const char *dir)
{
    uint8_t v1[MANIFEST_V1_SIZE];
    struct manifest m;
    struct byte_writer w;
    struct errinfo ei = {0};

    golden_manifest(&m);
    v1_encode(&m.secret, v1);
    writer_init(&w);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    golden_file(dir, "manifest_v1.bin", v1, sizeof v1);
    golden_file(dir, "manifest_v2.bin", w.data, w.size);
    add_tombstones(&m, 2);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    golden_file(dir, "manifest_v2_tombstones.bin", w.data, w.size);
    add_purges(&m, 2);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    golden_file(dir, "manifest_v2_purges.bin", w.data, w.size);
    add_filter(&m, RELABEL_DROP);
    add_filter(&m, RELABEL_DROPEQUAL);
    CHECK_OK(manifest_encode(&m, &w, &ei), &ei);
    golden_file(dir, "manifest_v2_filters.bin", w.data, w.size);
    writer_done(&w);
    manifest_done(&m);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_sections_of_tombstones),
        cmocka_unit_test(test_unknown_sections),
        cmocka_unit_test(test_bad_counts),
        cmocka_unit_test(test_repeats_are_refused),
        cmocka_unit_test(test_crash_at_every_operation),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_debris),
        cmocka_unit_test(test_golden),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
