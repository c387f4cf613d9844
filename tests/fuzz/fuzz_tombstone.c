/*
 * A list of tombstones of any bytes. What is accepted must be the same bytes when it is written.
 */
#include <string.h>

#include "base/assert.h"
#include "engine/tombstone_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tombstone_list *list = NULL;
    struct byte_writer w;
    enum err e;

    if (size > 1 << 16) /* many large regular expressions only take long */
        return 0;
    e = tombstone_list_decode(data, size, &list, NULL);
    ASSERT(e == ERR_OK || e == ERR_CORRUPT);
    if (e != ERR_OK)
        return 0;
    writer_init(&w);
    ASSERT(tombstone_list_encode(list, &w, NULL) == ERR_OK);
    ASSERT(w.size == size && memcmp(w.data, data, size) == 0);
    writer_done(&w);
    tombstone_list_unref(list);
    return 0;
}
