/*
 * A list of tombstones of any bytes, without filters and with them. What is accepted must be the
 * same bytes when it is written.
 */
#include <string.h>

#include "base/assert.h"
#include "engine/delete/tombstone_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static void try_as(const uint8_t *data, size_t size, bool has_filters)
{
    struct tombstone_list *list = NULL;
    struct byte_writer w;
    enum err e = tombstone_list_decode(data, size, has_filters, &list, NULL);

    ASSERT(e == ERR_OK || e == ERR_CORRUPT);
    if (e != ERR_OK)
        return;
    ASSERT(tombstone_list_has_filters(list) == has_filters);
    writer_init(&w);
    ASSERT(tombstone_list_encode(list, &w, NULL) == ERR_OK);
    ASSERT(w.size == size && memcmp(w.data, data, size) == 0);
    writer_done(&w);
    tombstone_list_unref(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 16) /* many large regular expressions only take long */
        return 0;
    try_as(data, size, false);
    try_as(data, size, true);
    return 0;
}
