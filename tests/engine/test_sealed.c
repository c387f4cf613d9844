/* Sealed and late files: round trips against a plain twin, damage, truncation, limits. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/thread.h"
#include "engine/sealed/sealed_format_internal.h"
#include "tests/engine/sealed_twin.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define PATH "s.sealed"

static void open_well(struct fs *fs, uint64_t durable, struct sealed_opened *o)
{
    struct errinfo ei = {0};

    CHECK_OK(sealed_open(fs, PATH, &twin_identity, durable, o, &ei), &ei);
}

static uint64_t size_of(struct fs *fs)
{
    struct errinfo ei = {0};
    struct file *f;
    uint64_t size;

    CHECK_OK(file_open(fs, PATH, FILE_READ, &f, &ei), &ei);
    CHECK_OK(file_size(f, &size, &ei), &ei);
    file_close(f);
    return size;
}

static void test_round_trips(void **state)
{
    struct test_random r = test_random_init(1);

    (void)state;
    for (int round = 0; round < 40; round++) {
        struct fs *fs = test_fs_new(1);
        struct twin_file twin = {0};
        struct sealed_opened o;
        bool finish = round % 2 == 0;
        size_t bad;

        twin.has_histograms = round % 3 == 1;
        twin_file_fill(&r, &twin, 1 + test_random_below(&r, 5), round % 4 == 0 ? 1500 : 40,
                       twin.has_histograms ? 20
                       : round % 4 == 0    ? 60
                                           : 300);
        twin_file_write(fs, PATH, &twin, finish);
        /* By the footer, by walking what is durable, and by verifying every byte. */
        for (int how = 0; how < 2; how++) {
            open_well(fs, how == 0 ? size_of(fs) : 0, &o);
            CHECK(o.is_finished == finish && o.torn_bytes == 0 && o.damaged_count == 0);
            CHECK(o.slice_count == twin.slice_count);
            twin_file_compare(&o, &twin, &bad);
            CHECK(bad == 0);
            for (size_t i = 0; i < o.slice_count; i++) {
                struct errinfo ei = {0};

                CHECK_OK(sealed_slice_verify(o.file, o.slices[i], &ei), &ei);
            }
            sealed_opened_done(&o);
        }
        twin_file_free(&twin);
        fs_free(fs);
    }
}

/* Chunks of random keys in a random time range, against a search by hand. */
static void check_search(struct test_random *r, const struct sealed_opened *o,
                         const struct twin_slice *twin, const struct sealed_slice *slice)
{
    struct sealed_key keys[40];
    size_t key_count = 0, found = 0;
    int64_t from = 1767225600000 + (int64_t)test_random_below(r, 2000000);
    int64_t to = from + (int64_t)test_random_below(r, 1000000);
    struct sealed_chunk_list list = {0};
    struct errinfo ei = {0};
    struct arena arena;
    uint32_t slot = 0;

    while (key_count < 40) {
        slot += 1 + (uint32_t)test_random_below(r, 12);
        keys[key_count++] = (struct sealed_key){slot, 1};
    }
    arena_init(&arena, NULL);
    CHECK_OK(sealed_find(o->file, slice, keys, key_count, from, to, &arena, &list, &ei), &ei);
    for (size_t i = 0; i < twin->chunk_count; i++) {
        const struct twin_chunk *c = &twin->chunks[i];
        bool wanted = c->t_ms[0] <= to && c->t_ms[c->count - 1] >= from;
        size_t k = 0;

        while (k < key_count && (keys[k].slot != c->slot || keys[k].generation != c->generation))
            k++;
        if (!wanted || k == key_count)
            continue;
        CHECK(found < list.count && list.items[found].slot == c->slot);
        CHECK(list.items[found].key_index == k && list.items[found].sample_count == c->count);
        CHECK(list.items[found].min_time_ms == c->t_ms[0]);
        found++;
    }
    CHECK(found == list.count);
    arena_done(&arena);
}

static void test_search(void **state)
{
    struct test_random r = test_random_init(2);
    struct fs *fs = test_fs_new(1);
    struct twin_file twin = {0};
    struct sealed_opened o;

    (void)state;
    twin_file_fill(&r, &twin, 3, 900, 30);
    twin_file_write(fs, PATH, &twin, true);
    open_well(fs, 0, &o);
    for (int i = 0; i < 600; i++)
        check_search(&r, &o, &twin.slices[i % 3], o.slices[i % 3]);
    sealed_opened_done(&o);
    twin_file_free(&twin);
    fs_free(fs);
}

/* A file and a cache of pages for it. */
struct cached_file {
    struct sealed_opened o;
    struct page_cache *cache;
    struct budget memory; /* the cache's */
};

static void cached_open(struct fs *fs, uint64_t limit_bytes, uint64_t memory_bytes,
                        struct cached_file *c)
{
    struct errinfo ei = {0};

    budget_init(&c->memory, "test", memory_bytes, NULL);
    CHECK_OK(page_cache_new(&c->memory, limit_bytes, &c->cache, &ei), &ei);
    open_well(fs, 0, &c->o);
}

/* Nothing is charged but what the cache holds, and that goes with the file. */
static void cached_close(struct cached_file *c, const struct page_cache_stats *stats)
{
    CHECK(budget_used(&c->memory) == stats->cached_bytes);
    sealed_opened_done(&c->o);
    CHECK(budget_used(&c->memory) == 0);
    page_cache_free(c->cache);
}

/* Directories that are kept decoded, in a cache that holds all of them, some, or none, give what
 * the file gives. */
static void test_search_through_a_cache(void **state)
{
    static const uint64_t limits[] = {16 << 20, 600 << 10, 1};
    struct test_random r = test_random_init(3);
    struct fs *fs = test_fs_new(1);
    struct twin_file twin = {0};

    (void)state;
    twin_file_fill(&r, &twin, 20, 900, 10);
    twin_file_write(fs, PATH, &twin, true);
    for (size_t how = 0; how < sizeof limits / sizeof limits[0]; how++) {
        struct page_cache_stats stats;
        struct cached_file c;

        cached_open(fs, limits[how], UINT64_MAX, &c);
        sealed_file_use_cache(c.o.file, c.cache, 5);
        for (size_t i = 0; i < 400; i++)
            check_search(&r, &c.o, &twin.slices[i % 20], c.o.slices[i % 20]);
        page_cache_stats_get(c.cache, &stats);
        CHECK((stats.hits > 0) == (how < 2) && stats.misses > 0);
        CHECK((stats.evictions > 0) == (how == 1));
        cached_close(&c, &stats);
    }
    twin_file_free(&twin);
    fs_free(fs);
}

static void check_same(const struct column *a, const struct column *b)
{
    CHECK(a->count == b->count);
    CHECK(memcmp(a->t_ms, b->t_ms, a->count * sizeof *a->t_ms) == 0);
    CHECK(memcmp(a->value, b->value, a->count * sizeof *a->value) == 0);
}

/* Some chunks of a slice, kept and not: the same. */
static void check_kept(struct test_random *r, const struct sealed_opened *o,
                       const struct sealed_slice *slice, struct page_cache *cache)
{
    struct sealed_key keys[40];
    struct column plain[400], kept[400];
    struct sealed_chunk_list list = {0};
    struct errinfo ei = {0};
    struct arena arena;
    uint32_t slot = 0, distance = 1 + (uint32_t)test_random_below(r, 40);

    for (size_t i = 0; i < 40; i++)
        keys[i] = (struct sealed_key){slot += 1 + (uint32_t)test_random_below(r, distance), 1};
    arena_init(&arena, NULL);
    CHECK_OK(sealed_find(o->file, slice, keys, 40, INT64_MIN, INT64_MAX, &arena, &list, &ei), &ei);
    CHECK(list.count <= 400);
    CHECK_OK(sealed_read(o->file, list.items, list.count, &arena, &arena, plain, &ei), &ei);
    sealed_file_use_cache(o->file, cache, 5);
    CHECK_OK(sealed_read_kept(o->file, list.items, list.count, &arena, &arena, kept, &ei), &ei);
    for (size_t i = 0; i < list.count; i++)
        check_same(&plain[i], &kept[i]);
    sealed_file_use_cache(o->file, NULL, 0); /* directories shall not fill it */
    arena_done(&arena);
}

/* Pages come from a cache that holds all of them, some, or none, and from one that has no memory.
 */
static void test_kept_reads(void **state)
{
    static const struct {
        uint64_t limit, memory;
    } cases[] = {{16 << 20, UINT64_MAX}, {40 << 10, UINT64_MAX}, {1, UINT64_MAX}, {16 << 20, 3000}};
    struct test_random r = test_random_init(4);
    struct fs *fs = test_fs_new(1);
    struct twin_file twin = {0};

    (void)state;
    twin_file_fill(&r, &twin, 4, 900, 60);
    twin_file_write(fs, PATH, &twin, true);
    for (size_t how = 0; how < sizeof cases / sizeof cases[0]; how++) {
        struct page_cache_stats stats;
        struct cached_file c;

        cached_open(fs, cases[how].limit, cases[how].memory, &c);
        for (size_t i = 0; i < 200; i++)
            check_kept(&r, &c.o, c.o.slices[i % 4], c.cache);
        sealed_file_use_cache(c.o.file, c.cache, 5);
        page_cache_stats_get(c.cache, &stats);
        CHECK_MSG((stats.hits > 0) == (how < 2) && stats.misses > 0,
                  "case %zu: %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " evictions", how,
                  stats.hits, stats.misses, stats.evictions);
        CHECK((stats.evictions > 0) == (how == 1));
        cached_close(&c, &stats);
    }
    twin_file_free(&twin);
    fs_free(fs);
}

static void test_timestamps_are_stored_once(void **state)
{
    enum { SERIES = 1000, SAMPLES = 100 };
    struct fs *fs = test_fs_new(1);
    struct sealed_file *f;
    struct sealed_writer *w;
    struct sealed_slice *slice;
    struct errinfo ei = {0};
    struct test_random r = test_random_init(3);
    int64_t t[SAMPLES];
    double v[SAMPLES] = {0};

    (void)state;
    CHECK_OK(sealed_writer_create(fs, PATH, &twin_identity, &f, &w, &ei), &ei);
    for (int i = 0; i < SAMPLES; i++) /* jitter: a column of its own would take some 150 bytes */
        t[i] = INT64_C(15000) * i + (int64_t)test_random_below(&r, 1000);
    for (uint32_t i = 0; i < SERIES; i++)
        CHECK_OK(sealed_writer_chunk(w, i, 1, t, v, SAMPLES, &ei), &ei);
    CHECK_OK(sealed_writer_slice(w, 1, &slice, &ei), &ei);
    /* A constant takes two bytes; what is left is the directory, about two bytes a chunk. */
    CHECK_MSG(slice->size < UINT64_C(8) * SERIES, "%lu bytes", (unsigned long)slice->size);
    CHECK(slice->group_count == 2);
    free(slice);
    sealed_writer_free(w);
    sealed_file_close(f);
    fs_free(fs);
}

static void test_refused_chunks(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct sealed_file *f;
    struct sealed_writer *w;
    struct sealed_slice *slice;
    struct errinfo ei = {0};
    const int64_t t[3] = {10, 20, 30}, equal[3] = {10, 20, 20}, later[1] = {31};
    const double v[3] = {1, 2, 3};

    (void)state;
    CHECK_OK(sealed_writer_create(fs, PATH, &twin_identity, &f, &w, &ei), &ei);
    CHECK_OK(sealed_writer_slice(w, 1, &slice, &ei), &ei);
    CHECK(slice == NULL);
    CHECK_OK(sealed_writer_chunk(w, 5, 7, t, v, 3, &ei), &ei);
    CHECK(sealed_writer_chunk(w, 6, 7, t, v, 0, NULL) == ERR_INVALID);
    CHECK(sealed_writer_chunk(w, 6, 7, equal, v, 3, NULL) == ERR_INVALID);
    CHECK(sealed_writer_chunk(w, 4, 7, t, v, 3, NULL) == ERR_INVALID);
    CHECK(sealed_writer_chunk(w, 5, 8, later, v, 1, NULL) == ERR_INVALID);
    CHECK(sealed_writer_chunk(w, 5, 7, t + 2, v, 1, NULL) == ERR_INVALID);
    CHECK_OK(sealed_writer_chunk(w, 5, 7, later, v, 1, &ei), &ei);
    CHECK(sealed_writer_chunk_count(w) == 2);
    sealed_writer_discard(w);
    CHECK_OK(sealed_writer_chunk(w, 0, 0, t, v, 3, &ei), &ei);
    CHECK_OK(sealed_writer_slice(w, 9, &slice, &ei), &ei);
    CHECK(slice->chunk_count == 1 && slice->sample_count == 3 && slice->sequence == 9);
    CHECK(slice->min_time_ms == 10 && slice->max_time_ms == 30);
    free(slice);
    sealed_writer_free(w);
    sealed_file_close(f);
    fs_free(fs);
}

/* ---- damage ---- */

static struct fs *fs_with(const uint8_t *data, size_t size)
{
    struct fs *fs = test_fs_new(1);

    test_file_create(fs, PATH, data, size);
    return fs;
}

static size_t slices_within(const uint8_t *data, size_t size, const struct twin_file *twin)
{
    struct fs *fs = fs_with(data, size);
    struct sealed_opened o;
    size_t n = 0, bad;

    open_well(fs, 0, &o);
    CHECK(!o.is_finished && o.damaged_count == 0);
    CHECK(o.end + o.torn_bytes == size);
    n = o.slice_count;
    for (size_t i = 0; i < n; i++)
        CHECK(o.slices[i]->index == i);
    twin_file_compare(&o, twin, &bad);
    CHECK(bad == 0);
    sealed_opened_done(&o);
    fs_free(fs);
    return n;
}

/* Cut at every byte: without a promise the slices that are whole are there, no other; with it, what
 * is missing is told. */
static void test_truncation_at_every_byte(void **state)
{
    struct test_random r = test_random_init(4);
    struct fs *fs = test_fs_new(1);
    struct twin_file twin = {0};
    size_t size, ends[4], bad, expected;
    struct sealed_opened o;
    uint8_t *data;

    (void)state;
    twin.has_histograms = true;
    twin_file_fill(&r, &twin, 3, 4, 6);
    twin_file_write(fs, PATH, &twin, true);
    open_well(fs, 0, &o);
    for (size_t i = 0; i < 3; i++)
        ends[i] = o.slices[i]->offset + o.slices[i]->size;
    ends[3] = SIZE_MAX;
    sealed_opened_done(&o);
    data = test_file_read(fs, PATH, &size);
    for (size_t cut = 0; cut < size; cut++) {
        struct fs *short_fs = fs_with(data, cut);
        struct errinfo ei = {0};

        if (cut < SEALED_HEADER_SIZE) {
            CHECK(sealed_open(short_fs, PATH, &twin_identity, size, &o, &ei) == ERR_CORRUPT);
            CHECK(strstr(ei.message, PATH) != NULL);
            fs_free(short_fs);
            continue;
        }
        for (expected = 0; ends[expected] <= cut;)
            expected++;
        CHECK(slices_within(data, cut, &twin) == expected);
        open_well(short_fs, ends[2], &o);
        twin_file_compare(&o, &twin, &bad);
        CHECK(bad == (expected < 3) && o.slice_count == expected + bad);
        sealed_opened_done(&o);
        fs_free(short_fs);
    }
    free(data);
    twin_file_free(&twin);
    fs_free(fs);
}

/* One bit of a durable file flips: every slice is the same or an error that names file and offset,
 * and no more than one of them is lost. */
static void check_flip(const uint8_t *data, size_t size, const struct twin_file *twin,
                       const struct sealed_opened *before, size_t bit)
{
    struct fs *fs;
    struct errinfo ei = {0};
    struct sealed_opened o;
    uint8_t *copy = malloc(size);
    size_t bad;
    enum err e;

    CHECK(copy != NULL);
    memcpy(copy, data, size);
    copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
    fs = fs_with(copy, size);
    e = sealed_open(fs, PATH, &twin_identity, size, &o, &ei);
    if (bit / 8 < SEALED_HEADER_SIZE) {
        CHECK(e == ERR_CORRUPT && strstr(ei.message, PATH) != NULL);
    } else {
        CHECK_OK(e, &ei);
        twin_file_compare(&o, twin, &bad);
        CHECK(bad <= 1);
        CHECK(o.slice_count >= before->slice_count);
        sealed_opened_done(&o);
        /* What is not known to be durable: whole slices in front of the damage. */
        errinfo_clear(&ei);
        CHECK_OK(sealed_open(fs, PATH, &twin_identity, 0, &o, &ei), &ei);
        twin_file_compare(&o, twin, &bad);
        CHECK(bad == 0 || o.is_finished);
        sealed_opened_done(&o);
    }
    fs_free(fs);
    free(copy);
}

static void test_bit_flips(void **state)
{
    struct test_random r = test_random_init(5);

    (void)state;
    for (int finish = 0; finish < 2; finish++) {
        struct fs *fs = test_fs_new(1);
        struct twin_file twin = {0};
        struct sealed_opened o;
        size_t size;
        uint8_t *data;

        twin.has_histograms = finish == 1;
        twin_file_fill(&r, &twin, 3, 6, 8);
        twin_file_write(fs, PATH, &twin, finish == 1);
        open_well(fs, 0, &o);
        data = test_file_read(fs, PATH, &size);
        for (size_t bit = 0; bit < size * 8; bit++)
            check_flip(data, size, &twin, &o, bit);
        sealed_opened_done(&o);
        free(data);
        twin_file_free(&twin);
        fs_free(fs);
    }
}

static void test_other_files_are_refused(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct twin_file twin = {0};
    struct sealed_identity other[5];
    struct sealed_opened o;
    uint8_t header[SEALED_HEADER_SIZE];
    struct errinfo ei = {0};
    size_t size;
    uint8_t *data;

    (void)state;
    twin_file_write(fs, PATH, &twin, false);
    open_well(fs, 0, &o);
    CHECK(o.slice_count == 0 && o.torn_bytes == 0);
    sealed_opened_done(&o);
    for (int i = 0; i < 5; i++)
        other[i] = twin_identity;
    other[0].kind = SEALED_LATE;
    other[1].shard = 4;
    other[2].shard_count = 32;
    other[3].number++;
    other[4].secret_id++;
    for (int i = 0; i < 5; i++) {
        errinfo_clear(&ei);
        CHECK(sealed_open(fs, PATH, &other[i], 0, &o, &ei) == ERR_CORRUPT);
    }
    data = test_file_read(fs, PATH, &size);
    fs_free(fs);
    memcpy(header, data, sizeof header);
    header[8] = 2; /* a newer version, its checksum right */
    uint32_t crc = crc32c(header, 60);
    memcpy(header + 60, &crc, 4);
    fs = fs_with(header, sizeof header);
    errinfo_clear(&ei);
    CHECK(sealed_open(fs, PATH, &twin_identity, 0, &o, &ei) == ERR_UNSUPPORTED);
    fs_free(fs);
    free(data);
}

/* ---- readers beside a writer ---- */

enum { SHARED_SLICES = 20 };

struct shared {
    const struct twin_file *twin;
    struct sealed_file *file;
    /* Release when a slice is there, acquire by whoever reads it. */
    _Atomic(struct sealed_slice *) slices[SHARED_SLICES];
};

static void *reader_thread(void *arg)
{
    struct shared *s = arg;
    struct errinfo ei = {0};

    for (size_t i = 0; i < SHARED_SLICES; i++) {
        struct sealed_slice *slice;

        do
            slice = atomic_load_explicit(&s->slices[i], memory_order_acquire);
        while (slice == NULL);
        CHECK_OK(twin_slice_compare(s->file, slice, &s->twin->slices[i], &ei), &ei);
        CHECK_OK(sealed_slice_verify(s->file, slice, &ei), &ei);
    }
    return NULL;
}

static void test_readers_beside_a_writer(void **state)
{
    struct test_random r = test_random_init(11);
    struct fs *fs = test_fs_new(1);
    struct thread readers[2] = {0};
    struct twin_file twin = {0};
    struct shared s = {.twin = &twin};
    struct sealed_writer *w;
    struct errinfo ei = {0};

    (void)state;
    twin_file_fill(&r, &twin, SHARED_SLICES, 30, 50);
    CHECK_OK(sealed_writer_create(fs, PATH, &twin_identity, &s.file, &w, &ei), &ei);
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(thread_start(&readers[i], "reader", reader_thread, &s, &ei), &ei);
    for (size_t i = 0; i < SHARED_SLICES; i++) {
        struct sealed_slice *slice;

        CHECK_OK(twin_slice_write(w, &twin.slices[i], &slice, &ei), &ei);
        atomic_store_explicit(&s.slices[i], slice, memory_order_release);
        CHECK_OK(sealed_writer_sync(w, &ei), &ei);
    }
    for (size_t i = 0; i < 2; i++)
        thread_join(&readers[i]);
    for (size_t i = 0; i < SHARED_SLICES; i++)
        free(s.slices[i]);
    sealed_writer_free(w);
    sealed_file_close(s.file);
    twin_file_free(&twin);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_search_through_a_cache),
        cmocka_unit_test(test_kept_reads),
        cmocka_unit_test(test_timestamps_are_stored_once),
        cmocka_unit_test(test_refused_chunks),
        cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test(test_readers_beside_a_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
