/*
 * Limits of the machine and of this process.
 */
#ifndef RIMSTONE_API_CONFIG_MACHINE_INTERNAL_H
#define RIMSTONE_API_CONFIG_MACHINE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

/* The memory this process may use: the smallest limit of its control groups, or the machine's. */
uint64_t machine_memory_bytes(void);
/* Descriptors this process may open. */
uint64_t machine_fd_limit(void);
/* Raises the soft limit on descriptors to the hard one. */
void machine_raise_fd_limit(void);
/* Reads a whole file that is no part of the store, such as the configuration. */
MUST_USE enum err machine_file_read(const char *path, size_t limit_bytes, struct byte_writer *out,
                                    struct errinfo *ei);

#endif
