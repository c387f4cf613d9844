/*
 * Blocks that arenas gave back, kept for the next arena. A block of 1 MiB out of the kernel costs
 * 256 page faults to fill and as much to give back: more than what is decoded into it. Stacks by
 * size, since arenas ask for powers of two; the one given back last is warmest.
 */
#include "base/arena_blocks_internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/thread.h"

enum {
    CLASS_BITS_MIN = 15, /* below 32 KiB malloc() is as good */
    CLASS_BITS_MAX = 20,
    CLASS_COUNT = CLASS_BITS_MAX - CLASS_BITS_MIN + 1,
#ifdef ARENA_POISON
    KEPT_BYTES_MAX = 0,
#else
    KEPT_BYTES_MAX = 32 << 20,
#endif
};

struct free_block {
    struct free_block *older;
};

static struct {
    struct mutex lock; /* a leaf */
    struct free_block *newest[CLASS_COUNT];
    size_t counts[CLASS_COUNT];
    size_t unused[CLASS_COUNT]; /* least count since the last release */
    size_t kept_bytes;
} kept = {.lock = {PTHREAD_MUTEX_INITIALIZER}};

/* Which stack; false: none. */
static bool class_of(size_t size_bytes, unsigned *out)
{
    unsigned bits = (unsigned)__builtin_ctzll((unsigned long long)size_bytes | 1ULL << 63);

    *out = bits - CLASS_BITS_MIN;
    return size_bytes == (size_t)1 << bits && bits >= CLASS_BITS_MIN && bits <= CLASS_BITS_MAX;
}

void *arena_block_get(size_t size_bytes)
{
    struct free_block *block = NULL;
    unsigned class;

    if (!class_of(size_bytes, &class))
        return malloc(size_bytes);
    mutex_lock(&kept.lock);
    block = kept.newest[class];
    if (block != NULL) {
        kept.newest[class] = block->older;
        kept.kept_bytes -= size_bytes;
        if (--kept.counts[class] < kept.unused[class])
            kept.unused[class] = kept.counts[class];
    }
    mutex_unlock(&kept.lock);
    return block != NULL ? block : malloc(size_bytes);
}

void arena_block_put(void *memory, size_t size_bytes)
{
    struct free_block *block = memory;
    bool is_kept = false;
    unsigned class;

    if (class_of(size_bytes, &class)) {
        mutex_lock(&kept.lock);
        is_kept = kept.kept_bytes + size_bytes <= KEPT_BYTES_MAX;
        if (is_kept) {
            block->older = kept.newest[class];
            kept.newest[class] = block;
            kept.counts[class]++;
            kept.kept_bytes += size_bytes;
        }
        mutex_unlock(&kept.lock);
    }
    if (!is_kept)
        free(memory);
}

size_t arena_spare_bytes(void)
{
    size_t bytes;

    mutex_lock(&kept.lock);
    bytes = kept.kept_bytes;
    mutex_unlock(&kept.lock);
    return bytes;
}

void arena_spare_release(void)
{
    struct free_block *released = NULL;

    mutex_lock(&kept.lock);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        for (; kept.unused[class] > 0; kept.unused[class]--) {
            struct free_block *block = kept.newest[class];

            kept.newest[class] = block->older;
            kept.counts[class]--;
            kept.kept_bytes -= (size_t)1 << (class + CLASS_BITS_MIN);
            block->older = released;
            released = block;
        }
        kept.unused[class] = kept.counts[class];
    }
    mutex_unlock(&kept.lock);
    while (released != NULL) {
        struct free_block *block = released;

        released = block->older;
        free(block);
    }
}
