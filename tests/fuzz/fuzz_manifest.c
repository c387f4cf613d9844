/*
 * A manifest of any bytes. Bit 0 of the first byte repairs the head's checksum, bit 1 that of the
 * sections, so that mutations get past them. What is accepted must be the same after it has been
 * written and read once more.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "engine/files/manifest_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static void put_crc(uint8_t *at, uint32_t crc)
{
    memcpy(at, &crc, sizeof crc);
}

static void repair(uint8_t *image, size_t size, unsigned repairs)
{
    if ((repairs & 1) && size >= MANIFEST_HEAD_SIZE)
        put_crc(image + MANIFEST_HEAD_SIZE - 4, crc32c(image, MANIFEST_HEAD_SIZE - 4));
    if ((repairs & 2) && size >= MANIFEST_HEAD_SIZE + 4)
        put_crc(image + size - 4,
                crc32c(image + MANIFEST_HEAD_SIZE, size - MANIFEST_HEAD_SIZE - 4));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m, again;
    struct byte_writer w, twice;
    uint8_t *image;
    enum err e;

    if (size < 2)
        return 0;
    image = malloc(size - 1);
    ASSERT(image != NULL);
    memcpy(image, data + 1, size - 1);
    repair(image, size - 1, data[0]);
    e = manifest_decode(image, size - 1, &m, NULL);
    free(image);
    ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED);
    if (e != ERR_OK)
        return 0;
    writer_init(&w);
    writer_init(&twice);
    ASSERT(manifest_encode(&m, &w, NULL) == ERR_OK);
    ASSERT(manifest_decode(w.data, w.size, &again, NULL) == ERR_OK);
    ASSERT(manifest_encode(&again, &twice, NULL) == ERR_OK);
    ASSERT(w.size == twice.size && memcmp(w.data, twice.data, w.size) == 0);
    writer_done(&w);
    writer_done(&twice);
    manifest_done(&m);
    manifest_done(&again);
    return 0;
}
