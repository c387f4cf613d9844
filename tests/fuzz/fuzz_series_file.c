/*
 * A series file of any bytes. The first byte chooses what is repaired before it is loaded, so that
 * mutations get past the checksums: bit 0 the file's header, bit 1 headers of batches, bit 2 their
 * payloads' checksums; bit 3: all bytes count as durable. What is accepted must be consistent in
 * itself.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "engine/sealed/series_file_format_internal.h"
#include "tests/lib/test_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

#define PATH "f"

enum {
    REPAIR_HEADER = 1,
    REPAIR_BATCHES = 2,
    REPAIR_PAYLOADS = 4,
    ALL_DURABLE = 8,
    IMAGE_SIZE_MAX = 1 << 16,
    MEMORY_BYTES = 64 << 20,
};

static const struct series_file_identity identity = {
    .shard = 3, .shard_count = 16, .number = 9, .secret_id = 0x55, .epoch = 0xfedcba9876543210};

static void put_crc(uint8_t *at, uint32_t crc)
{
    memcpy(at, &crc, sizeof crc);
}

static void repair(uint8_t *image, size_t size, unsigned repairs)
{
    size_t offset = SERIES_FILE_HEADER_SIZE;

    if ((repairs & REPAIR_HEADER) && size >= SERIES_FILE_HEADER_SIZE)
        put_crc(image + SERIES_FILE_HEADER_SIZE - 4, crc32c(image, SERIES_FILE_HEADER_SIZE - 4));
    while (offset + SERIES_FILE_BATCH_HEADER_SIZE <= size) {
        uint8_t *at = image + offset;
        struct series_batch_header h;

        if (repairs & REPAIR_BATCHES)
            put_crc(at + SERIES_FILE_BATCH_HEADER_SIZE - 4,
                    crc32c(at, SERIES_FILE_BATCH_HEADER_SIZE - 4));
        if (!series_batch_header_decode(at, size - offset, &h) || h.size > size - offset)
            return;
        if (repairs & REPAIR_PAYLOADS) {
            h.payload_crc = series_batch_crc(h.epoch, offset, at + SERIES_FILE_BATCH_HEADER_SIZE,
                                             h.size - SERIES_FILE_BATCH_HEADER_SIZE);
            series_batch_header_encode(&h, at);
        }
        offset += h.size;
    }
}

/* Every name's lists hold no more series than there are, and every schema's together hold all. */
static void check_postings(const struct series_image *image, uint64_t count, struct arena *arena)
{
    struct series_image_sorter sorter;
    struct series_image_postings p;

    ASSERT(series_image_sorter_init(&sorter, image, arena, NULL) == ERR_OK);
    for (uint32_t name = 0; name < image->name_count; name++) {
        ASSERT(series_image_postings(&sorter, name, arena, &p, NULL) == ERR_OK);
        ASSERT(p.offsets[image->names[name].value_count] <= count);
    }
    ASSERT(series_image_schema_postings(&sorter, arena, &p, NULL) == ERR_OK);
    ASSERT(p.offsets[image->schema_count] == count);
}

static void check_image(const struct series_image *image)
{
    struct arena arena;
    uint64_t count = 0;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < image->group_count; i++) {
        const struct series_image_group *g = &image->groups[i];
        const struct series_image_schema *schema = &image->schemas[g->schema];

        count += g->count;
        for (uint32_t k = 0; k < schema->name_count; k++) {
            for (uint32_t s = 0; s < g->count; s++)
                ASSERT(g->values[(size_t)k * g->count + s] <
                       image->names[schema->names[k]].value_count);
        }
        ASSERT(g->count == 0 || g->slots[g->count - 1] < image->slot_end);
    }
    ASSERT(count == image->series_count);
    if (image->slot_end < 1 << 20)
        check_postings(image, count, &arena);
    arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t durable = size > 0 && (data[0] & ALL_DURABLE) ? size - 1 : 0;
    struct series_image image;
    struct budget budget;
    uint8_t *bytes;
    struct fs *fs;
    enum err e;

    if (size < 2 || size > IMAGE_SIZE_MAX)
        return 0;
    bytes = malloc(size - 1);
    ASSERT(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    repair(bytes, size - 1, data[0]);
    fs = test_fs_new(1);
    test_file_create(fs, PATH, bytes, size - 1);
    free(bytes);
    budget_init(&budget, "fuzz", MEMORY_BYTES, NULL);
    e = series_file_load(fs, PATH, &identity, durable, &budget, &image, NULL);
    ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED || e == ERR_LIMIT);
    if (e == ERR_OK) {
        check_image(&image);
        series_image_done(&image);
    }
    ASSERT(budget_used(&budget) == 0);
    fs_free(fs);
    return 0;
}
