/*
 * A sealed file of any bytes. The first byte chooses what is repaired before it is opened, so that
 * mutations get past the checksums: bit 0 the file's header, bit 1 slice headers, bit 2 group
 * tables, bit 3 directories, bit 4 pages and timestamp columns, bit 5 footer and trailer; bit 6:
 * all bytes count as durable. Whatever is found must be readable or refused, never crash; what is
 * accepted must be the same the second time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "engine/sealed/sealed_format_internal.h"
#include "tests/lib/test_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

#define PATH "f"

enum {
    REPAIR_HEADER = 1,
    REPAIR_SLICES = 2,
    REPAIR_TABLES = 4,
    REPAIR_DIRECTORIES = 8,
    REPAIR_DATA = 16,
    REPAIR_FOOTER = 32,
    ALL_DURABLE = 64,
    IMAGE_SIZE_MAX = 1 << 16,
};

static const struct sealed_identity identity = {.kind = SEALED_RECENT,
                                                .shard = 3,
                                                .shard_count = 16,
                                                .number = 77,
                                                .secret_id = 0x1122334455667788,
                                                .epoch = 0xabcdef0123456789};

static void put_crc(uint8_t *at, uint32_t crc)
{
    memcpy(at, &crc, sizeof crc);
}

static void seal(uint8_t *image, uint64_t offset, uint64_t size)
{
    put_crc(image + offset + size, sealed_crc(identity.epoch, offset, image + offset, size));
}

static void repair_group(uint8_t *image, const struct sealed_slice *s, const struct sealed_group *g,
                         unsigned repairs)
{
    struct sealed_directory *d = malloc(sizeof *d);
    uint64_t offset = s->offset + g->offset;
    uint32_t chunk = 0;

    ASSERT(d != NULL);
    if (repairs & REPAIR_DIRECTORIES)
        seal(image, offset, g->directory_size - SEALED_CRC_SIZE);
    if ((repairs & REPAIR_DATA) &&
        sealed_directory_decode(image + offset, g->directory_size - SEALED_CRC_SIZE, g, s->size,
                                d)) {
        for (uint32_t i = 0; i < d->times_count; i++)
            seal(image, s->offset + (uint64_t)d->times_offsets[i], (uint64_t)d->times_sizes[i]);
        offset += g->directory_size;
        for (uint32_t page = 0; page < d->page_count; page++) {
            uint64_t page_size = 0;

            for (int64_t k = 0; k < d->page_items[page]; k++)
                page_size += (uint64_t)d->sizes[chunk++];
            seal(image, offset, page_size);
            offset += page_size + SEALED_CRC_SIZE;
        }
    }
    free(d);
}

/* Repairs the slice at `offset`; returns its size, 0 if there is none. */
static size_t repair_slice(uint8_t *image, size_t size, size_t offset, unsigned repairs)
{
    uint8_t *at = image + offset;
    struct sealed_slice_header h;
    struct sealed_slice *s;
    size_t table;

    if (memcmp(at, sealed_slice_magic, SEALED_MAGIC_SIZE) != 0)
        return 0;
    if (repairs & REPAIR_SLICES)
        put_crc(at + SEALED_SLICE_HEADER_SIZE - 4, crc32c(at, SEALED_SLICE_HEADER_SIZE - 4));
    if (!sealed_slice_header_decode(at, &h) || h.size > size - offset)
        return 0;
    table = offset + h.size - h.table_size;
    if (repairs & REPAIR_TABLES)
        seal(image, table, h.table_size - SEALED_CRC_SIZE);
    if (sealed_table_decode(&h, offset, image + table, h.table_size - SEALED_CRC_SIZE, &s) ==
        ERR_OK) {
        for (uint32_t i = 0; i < s->group_count; i++)
            repair_group(image, s, &s->groups[i], repairs);
        free(s);
    }
    if (repairs & REPAIR_SLICES) {
        h.payload_crc = sealed_crc(identity.epoch, offset, at + SEALED_SLICE_HEADER_SIZE,
                                   h.size - SEALED_SLICE_HEADER_SIZE);
        sealed_slice_header_encode(&h, at);
    }
    return h.size;
}

static void repair_footer(uint8_t *image, size_t size)
{
    uint8_t *at;
    uint64_t footer_size;

    if (size < SEALED_HEADER_SIZE + SEALED_TRAILER_SIZE)
        return;
    at = image + size - SEALED_TRAILER_SIZE;
    memcpy(&footer_size, at, sizeof footer_size);
    if (footer_size <= size - SEALED_HEADER_SIZE - SEALED_TRAILER_SIZE) {
        uint64_t offset = size - SEALED_TRAILER_SIZE - footer_size;

        put_crc(at + 16, sealed_crc(identity.epoch, offset, image + offset, footer_size));
    }
    put_crc(at + SEALED_TRAILER_SIZE - 4, crc32c(at, SEALED_TRAILER_SIZE - 4));
}

static void repair(uint8_t *image, size_t size, unsigned repairs)
{
    size_t offset = SEALED_HEADER_SIZE, step = 1;

    if ((repairs & REPAIR_HEADER) && size >= SEALED_HEADER_SIZE)
        put_crc(image + SEALED_HEADER_SIZE - 4, crc32c(image, SEALED_HEADER_SIZE - 4));
    while (step > 0 && offset + SEALED_SLICE_HEADER_SIZE <= size) {
        step = repair_slice(image, size, offset, repairs);
        offset += step;
    }
    if (repairs & REPAIR_FOOTER)
        repair_footer(image, size);
}

/* Everything that can be read of the file, folded; UINT64_MAX if it cannot be opened. */
static uint64_t read_all(struct fs *fs, uint64_t durable_size)
{
    struct budget memory; /* a few bytes can stand for any number of buckets */
    struct sealed_opened o;
    uint64_t sum = 0;
    enum err e = sealed_open(fs, PATH, &identity, durable_size, &o, NULL);

    ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED);
    if (e != ERR_OK)
        return UINT64_MAX;
    budget_init(&memory, "fuzz", 64 << 20, NULL);
    for (size_t i = 0; i < o.slice_count; i++) {
        const struct sealed_slice *s = o.slices[i];
        struct sealed_chunk_list list = {0};
        const struct sealed_key key = {s->group_count > 0 ? s->groups[0].first_slot : 0, 1};
        struct arena arena;

        arena_init(&arena, &memory);
        e = sealed_find(o.file, s, &key, 1, INT64_MIN, INT64_MAX, &arena, &list, NULL);
        ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_LIMIT);
        if (e == ERR_OK && list.count > 0) {
            struct column *columns = ARENA_ARRAY(&arena, list.count, struct column);

            ASSERT(columns != NULL);
            e = sealed_read(o.file, list.items, list.count, &arena, &arena, columns, NULL);
            ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED || e == ERR_LIMIT);
            for (size_t k = 0; e == ERR_OK && k < list.count; k++)
                sum = sum * 31 + columns[k].count + (uint64_t)columns[k].t_ms[0];
        }
        arena_done(&arena);
        e = sealed_slice_verify(o.file, s, NULL);
        ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED || e == ERR_LIMIT);
        sum = sum * 31 + s->sample_count + (e == ERR_OK);
    }
    sealed_opened_done(&o);
    return sum >> 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t durable = size > 0 && (data[0] & ALL_DURABLE) ? size - 1 : 0;
    uint8_t *image;
    struct fs *fs;

    if (size < 2 || size > IMAGE_SIZE_MAX)
        return 0;
    image = malloc(size - 1);
    ASSERT(image != NULL);
    memcpy(image, data + 1, size - 1);
    repair(image, size - 1, data[0]);
    fs = test_fs_new(1);
    test_file_create(fs, PATH, image, size - 1);
    free(image);
    ASSERT(read_all(fs, durable) == read_all(fs, durable));
    fs_free(fs);
    return 0;
}
