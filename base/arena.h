/*
 * Arenas: bump allocation by lifetime, dropped whole. Every arena charges its blocks to a budget
 * (NULL: none) and refuses with ERR_LIMIT when the budget is spent. Not thread-safe.
 */
#ifndef RIMSTONE_BASE_ARENA_H
#define RIMSTONE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first; owned */
    char *pos, *end;            /* free room of the newest block */
    struct budget *budget;      /* borrowed; NULL: unlimited */
    size_t next_block_bytes;
    size_t used_bytes;    /* sum of block sizes, what is charged */
    size_t refused_bytes; /* the charge the budget refused last; 0: malloc() failed */
    /* Set it behind arena_init() for what is large and rare: its blocks go back to the machine at
     * once instead of being kept for the next arena. */
    bool gives_back;
};

/* A position to return to: frees everything that was allocated after it. */
struct arena_mark {
    struct arena_block *block;
    char *pos;
};

/* Gives back spare blocks, up to 32 MiB of the whole process and charged to nobody, that no arena
 * needed since the last call. Any thread, every minute or so. */
void arena_spare_release(void);

void arena_init(struct arena *a, struct budget *budget);
/* Frees all blocks and releases their charge. The arena may be used again. */
void arena_done(struct arena *a);
/* Like arena_done() but keeps one block of up to 1 MiB for reuse. */
void arena_reset(struct arena *a);
struct arena_mark arena_mark_get(const struct arena *a);
void arena_mark_return(struct arena *a, struct arena_mark mark);

/* Uninitialised memory, 16-byte aligned; NULL when the budget or the machine refuses. The caller
 * turns NULL into ERR_LIMIT with arena_error(). size 0 gives a unique pointer. */
void *arena_alloc(struct arena *a, size_t size);
/* count * size bytes with an overflow check. */
void *arena_alloc_array(struct arena *a, size_t count, size_t size);
void *arena_calloc(struct arena *a, size_t count, size_t size);
/* A NUL-terminated copy of `size` bytes. */
char *arena_memdup0(struct arena *a, const void *data, size_t size);
char *arena_printf(struct arena *a, const char *format, ...) PRINTF_LIKE(2, 3);
/* Grows an array in place where it is the newest allocation, else copies. old_count may be 0. */
void *arena_grow_array(struct arena *a, void *array, size_t old_count, size_t new_count,
                       size_t size);
/* The error for the last refused allocation, whatever was granted since: ERR_LIMIT naming the
 * budget, or ERR_NOMEM. So several allocations may be checked at once. */
enum err arena_error(const struct arena *a, struct errinfo *ei);

#define ARENA_NEW(arena, type) ((type *)arena_calloc((arena), 1, sizeof(type)))
#define ARENA_ARRAY(arena, count, type) ((type *)arena_alloc_array((arena), (count), sizeof(type)))

#endif
