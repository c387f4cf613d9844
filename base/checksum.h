/*
 * CRC-32C (Castagnoli, reflected, initial and final inversion: RFC 3720 appendix B.4), hardware
 * where the CPU has it. crc32c("123456789") = 0xe3069283.
 */
#ifndef RIMSTONE_BASE_CHECKSUM_H
#define RIMSTONE_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *data, size_t size);
/* Continues a checksum: crc32c_extend(crc32c(a), b) == crc32c(a then b). */
uint32_t crc32c_extend(uint32_t crc, const void *data, size_t size);

#endif
