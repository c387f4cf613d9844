/*
 * Where arenas have their blocks from: malloc() behind a bounded store of blocks that were given
 * back. Any thread.
 */
#ifndef RIMSTONE_BASE_ARENA_BLOCKS_INTERNAL_H
#define RIMSTONE_BASE_ARENA_BLOCKS_INTERNAL_H

#include <stddef.h>

/* Built with AddressSanitizer: nothing is kept, so that it sees every use of freed memory. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISON 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISON 1
#endif

/* Uninitialised; NULL when malloc() refuses. */
void *arena_block_get(size_t size_bytes);
/* `size_bytes` as it was asked for. */
void arena_block_put(void *memory, size_t size_bytes);
/* What is kept. */
size_t arena_spare_bytes(void);

#endif
