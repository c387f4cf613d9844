/*
 * Remote-write bodies after decompression: the walker against protobuf-c.
 */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/remote_write_twin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) /* NOLINT: libFuzzer's name */
{
    (void)remote_write_twin_check(data, size);
    return 0;
}
