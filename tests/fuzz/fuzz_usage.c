/*
 * The file of usage: any bytes, and a body of any bytes behind a header that is right. What is
 * accepted must be read the same once it has been written again.
 */
#include <string.h>

#include "api/usage/usage_internal.h"
#include "base/assert.h"
#include "base/checksum.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static bool same_names(const struct usage_file *a, const struct usage_file *b)
{
    for (size_t i = 0; i < a->name_count; i++)
        for (int k = 0; k < USAGE_KIND_COUNT; k++)
            if (!str_equal(a->names[i].name, b->names[i].name) ||
                a->names[i].count[k] != b->names[i].count[k] ||
                (a->names[i].count[k] > 0 && a->names[i].last_s[k] != b->names[i].last_s[k]))
                return false;
    return true;
}

static void decode(const uint8_t *data, size_t size)
{
    struct usage_file f, again;
    struct byte_writer w;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL);
    e = usage_file_decode(data, size, &arena, &f, NULL);
    ASSERT(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED);
    if (e == ERR_OK) {
        writer_init(&w);
        ASSERT(usage_file_encode(&f, &w, NULL) == ERR_OK);
        ASSERT(usage_file_decode(w.data, w.size, &arena, &again, NULL) == ERR_OK);
        ASSERT(again.name_count == f.name_count && again.query_count == f.query_count);
        ASSERT(same_names(&f, &again));
        writer_done(&w);
    }
    arena_done(&arena);
}

/* docs/formats/usage.md */
static void with_header(const uint8_t *data, size_t size, struct byte_writer *w)
{
    writer_append(w, "RIMUSAGE", 8);
    writer_le32(w, 1);
    writer_le32(w, 0);
    writer_le32(w, 0);
    writer_le32(w, 1000);
    writer_le32(w, 2000);
    writer_le32(w, data[0]);
    writer_le32(w, data[1]);
    writer_le32(w, (uint32_t)(size - 2));
    writer_le32(w, crc32c(w->data, w->size));
    writer_append(w, data + 2, size - 2);
    writer_le32(w, crc32c(data + 2, size - 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct byte_writer w;

    decode(data, size);
    if (size < 2)
        return 0;
    writer_init(&w);
    with_header(data, size, &w);
    ASSERT(!w.failed);
    decode(w.data, w.size);
    writer_done(&w);
    return 0;
}
