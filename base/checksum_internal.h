/*
 * For the tests of base: the code that CPUs without SSE4.2 run.
 */
#ifndef RIMSTONE_BASE_CHECKSUM_INTERNAL_H
#define RIMSTONE_BASE_CHECKSUM_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c_extend_software(uint32_t crc, const void *data, size_t size);

#endif
