/*
 * Parts of arbitrary bytes: | size of the index, le32 | index | chunks |. All checksums are mended
 * first, or nothing behind them would ever be reached. Whatever the bytes say, opening, selecting,
 * reading, walking and verifying end with an answer or an error.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"
#include "tests/lib/test_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static const struct part_key key = {.window_start_ms = 1700006400000,
                                    .window_size_ms = 7200000,
                                    .shard = 3,
                                    .shard_count = 16,
                                    .generation = 12};

struct image {
    uint8_t *index, *chunks;
    size_t index_size, chunks_size;
    uint64_t id;
};

static void put32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}
static uint64_t get(const uint8_t *at, size_t size)
{
    uint64_t v = 0;

    memcpy(&v, at, size);
    return v;
}

static void mend_header(uint8_t *data, size_t size)
{
    if (size >= PART_HEADER_SIZE)
        put32(data + PART_HEADER_SIZE - 4, crc32c(data, PART_HEADER_SIZE - 4));
}

static void mend_page(uint8_t *data, size_t size, uint64_t id, uint64_t offset, uint64_t page_size)
{
    if (offset > size || page_size > size - offset || page_size < PART_CRC_SIZE)
        return;
    put32(data + offset + page_size - PART_CRC_SIZE,
          part_page_crc(data + offset, page_size - PART_CRC_SIZE, id, offset));
}

static void mend_footer(struct image *m)
{
    size_t trailer = m->index_size - PART_TRAILER_SIZE, toc;

    if (m->index_size < PART_HEADER_SIZE + PART_TRAILER_SIZE)
        return;
    toc = (size_t)get(m->index + trailer, 4);
    if (toc <= trailer)
        put32(m->index + trailer + 8, crc32c(m->index + trailer - toc, toc + 8));
}

/* By what the footer says; if that cannot be read, nothing else is either. */
static void mend_index(struct image *m)
{
    struct part_footer f;
    uint32_t toc;
    const uint8_t *trailer;

    mend_header(m->index, m->index_size);
    mend_footer(m);
    if (m->index_size < PART_HEADER_SIZE + PART_TRAILER_SIZE)
        return;
    trailer = m->index + m->index_size - PART_TRAILER_SIZE;
    if (part_trailer_decode(trailer, m->index_size, "fuzz", &toc, NULL) != ERR_OK ||
        part_footer_decode(trailer - toc, toc, m->index_size, "fuzz", &f, NULL) != ERR_OK)
        return;
    m->id = f.info.id;
    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++) {
        size_t table = (size_t)f.tables[s].count * PART_TABLE_ENTRY_SIZE;

        for (size_t at = 0; at < table; at += PART_TABLE_ENTRY_SIZE)
            mend_page(m->index, m->index_size, m->id, get(m->index + f.tables[s].offset + at, 8),
                      get(m->index + f.tables[s].offset + at + 8, 4));
    }
    /* Last: a page may lie over a table. */
    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++)
        mend_page(m->index, m->index_size, m->id, f.tables[s].offset,
                  (uint64_t)f.tables[s].count * PART_TABLE_ENTRY_SIZE + PART_CRC_SIZE);
}

static void put_file(struct fs *fs, enum part_file file, uint8_t *data, size_t size)
{
    char name[PART_NAME_SIZE];

    part_name_format(&key, file, false, name);
    test_file_create(fs, name, data, size);
}

/* The chunk index says where data pages are. */
static void mend_chunks(struct fs *fs, struct part *p, struct image *m)
{
    struct arena arena;
    char name[PART_NAME_SIZE];

    arena_init(&arena, NULL);
    for (uint32_t i = 0; i < p->footer.tables[PART_SECTION_CHUNKS].count; i++) {
        struct part_chunk_page page;

        arena_reset(&arena);
        if (part_chunk_page_read(p, i, &arena, &page, NULL) != ERR_OK)
            continue;
        for (uint32_t k = 0; k < page.chunk_count; k++)
            mend_page(m->chunks, m->chunks_size, m->id, page.chunks[k].page_offset,
                      page.chunks[k].page_size);
    }
    arena_done(&arena);
    part_name_format(&key, PART_FILE_CHUNKS, false, name);
    ASSERT(fs_unlink(fs, name, NULL) == ERR_OK);
    put_file(fs, PART_FILE_CHUNKS, m->chunks, m->chunks_size);
}

/* Results do not matter here, only that there are some. */
static void walk_series(struct part *p)
{
    const struct part_series *s = NULL;
    struct part_iter *it;

    if (part_iter_new(p, &it, NULL) != ERR_OK)
        return;
    while (part_iter_next(it, &s, NULL) == ERR_OK && s != NULL) {
        uint32_t found = 0;
        enum err e = part_find(p, &s->fingerprint, 1, &found, NULL);

        ASSERT(e != ERR_OK || found == PART_NO_SERIES || found < part_info(p)->series_count);
    }
    part_iter_free(it);
}

static void walk_samples(struct part *p, struct arena *arena)
{
    uint32_t count = part_info(p)->series_count < 64 ? part_info(p)->series_count : 64, series[64];
    struct column columns[64];
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        series[i] = i;
    if (part_read(p, series, count, 1700006500000, INT64_MAX, arena, arena, columns, NULL) !=
        ERR_OK)
        return;
    for (uint32_t i = 0; i < count; i++) {
        for (size_t k = 0; k < columns[i].count; k++)
            sum += columns[i].value[k] + (double)columns[i].t_ms[k];
    }
    ASSERT(sum == sum || sum != sum);
}

static void walk_labels(struct part *p, struct arena *arena)
{
    struct str_list names = {0, NULL}, values;

    if (part_label_names(p, arena, &names, NULL) != ERR_OK)
        return;
    for (size_t i = 0; i < names.count && i < 8; i++)
        (void)(part_label_values(p, names.items[i], arena, &values, NULL) == ERR_OK);
}

static void walk_select(struct part *p, struct arena *arena)
{
    static const struct {
        enum matcher_kind kind;
        const char *name, *value;
    } asked[] = {{MATCHER_EQUAL, "instance", "host-03"},
                 {MATCHER_REGEX, "job", "j[0-1]"},
                 {MATCHER_NOT_EQUAL, "A", ""},
                 {MATCHER_NOT_REGEX, "__name__", "up|x.*"},
                 {MATCHER_REGEX, "instance", "host-0.+"}};

    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct matcher m;
        uint32_t *found;
        size_t count = 0;
        enum err e = matcher_init(&m, asked[i].kind, str_from(asked[i].name),
                                  str_from(asked[i].value), arena, NULL);

        if (e != ERR_OK)
            continue;
        e = part_select(p, &m, 1, NULL, arena, &found, &count, NULL);
        for (size_t k = 0; e == ERR_OK && k < count; k++)
            ASSERT(found[k] < part_info(p)->series_count);
        matcher_done(&m);
    }
}

static void walk(struct part *p, struct budget *memory)
{
    struct arena arena;

    arena_init(&arena, memory);
    walk_labels(p, &arena);
    walk_select(p, &arena);
    walk_samples(p, &arena);
    walk_series(p);
    arena_done(&arena);
}

static void run(struct fs *fs, struct image *m)
{
    struct budget memory;
    struct part_store_options o = {
        .fs = fs, .memory = &memory, .cache_bytes = 1 << 20, .descriptor_count = 2};
    struct part_store *s;
    struct part_info info;
    struct part *p;

    budget_init(&memory, "fuzz", 64 << 20, NULL);
    ASSERT(part_store_new(&o, &s, NULL) == ERR_OK);
    put_file(fs, PART_FILE_INDEX, m->index, m->index_size);
    put_file(fs, PART_FILE_CHUNKS, m->chunks, m->chunks_size);
    if (part_open(s, "", &key, &p, NULL) == ERR_OK) {
        mend_chunks(fs, p, m);
        part_close(p);
        if (part_open(s, "", &key, &p, NULL) == ERR_OK) {
            walk(p, &memory);
            part_close(p);
        }
        (void)(part_verify(s, "", &key, NULL, &info, NULL) == ERR_OK);
    }
    part_store_free(s);
    ASSERT(budget_used(&memory) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct image m = {0};
    struct fs *fs;
    uint64_t index_size;

    if (size < 4)
        return 0;
    index_size = get(data, 4);
    m.index_size = index_size < size - 4 ? (size_t)index_size : size - 4;
    m.chunks_size = size - 4 - m.index_size;
    m.index = malloc(m.index_size + 1);
    m.chunks = malloc(m.chunks_size + 1);
    ASSERT(m.index != NULL && m.chunks != NULL);
    memcpy(m.index, data + 4, m.index_size);
    memcpy(m.chunks, data + 4 + m.index_size, m.chunks_size);
    mend_index(&m);
    mend_header(m.chunks, m.chunks_size);
    fs = test_fs_new(1);
    run(fs, &m);
    fs_free(fs);
    free(m.index);
    free(m.chunks);
    return 0;
}
