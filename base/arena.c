/*
 * Bump allocation. Blocks double from 4 KiB to 1 MiB; a request larger than the next block gets a
 * block of exactly its size. The newest block is always the one with free room, which keeps marks
 * to one block pointer and one position.
 *
 * Under AddressSanitizer free room is poisoned, so that a read past the last allocation or after
 * arena_mark_return() is reported although the block itself is still mapped.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena_blocks_internal.h"
#include "base/assert.h"

#ifdef ARENA_POISON
#include <sanitizer/asan_interface.h>
#define POISON(address, size) __asan_poison_memory_region((address), (size))
#define UNPOISON(address, size) __asan_unpoison_memory_region((address), (size))
#else
#define POISON(address, size) ((void)(address), (void)(size))
#define UNPOISON(address, size) ((void)(address), (void)(size))
#endif

enum {
    ARENA_ALIGN = 16,
    ARENA_BLOCK_BYTES_MIN = 4 << 10,
    ARENA_BLOCK_BYTES_MAX = 1 << 20,
    HUGE_BLOCK_BYTES_MIN = 8 << 20, /* its last huge page may be mostly room that nobody uses */
    PAGE_BYTES = 4096,              /* what madvise() wants addresses to be multiples of */
};

struct arena_block {
    struct arena_block *older;
    size_t size_bytes; /* this header included */
};

_Static_assert(sizeof(struct arena_block) % ARENA_ALIGN == 0, "the payload must stay aligned");

static char *block_begin(struct arena_block *block)
{
    return (char *)(block + 1);
}

static char *block_end(struct arena_block *block)
{
    return (char *)block + block->size_bytes;
}

void arena_init(struct arena *a, struct budget *budget)
{
    *a = (struct arena){.budget = budget, .next_block_bytes = ARENA_BLOCK_BYTES_MIN};
}

static void block_free(struct arena *a, struct arena_block *block)
{
    size_t size_bytes = block->size_bytes;

    a->used_bytes -= size_bytes;
    UNPOISON(block, size_bytes);
    if (a->gives_back)
        free(block);
    else
        arena_block_put(block, size_bytes);
    if (a->budget != NULL)
        budget_release(a->budget, size_bytes);
}

/* Makes `block` the newest with `pos` as its first free byte; NULL: the arena is empty. */
static void arena_stand_at(struct arena *a, struct arena_block *block, char *pos)
{
    a->blocks = block;
    a->pos = pos;
    a->end = block != NULL ? block_end(block) : NULL;
    if (block != NULL)
        POISON(pos, (size_t)(a->end - pos));
}

void arena_done(struct arena *a)
{
    arena_mark_return(a, (struct arena_mark){NULL, NULL});
    a->next_block_bytes = ARENA_BLOCK_BYTES_MIN;
}

void arena_reset(struct arena *a)
{
    struct arena_block *kept = NULL;

    for (struct arena_block *block = a->blocks, *older; block != NULL; block = older) {
        older = block->older;
        /* The newest that fits is also the largest, since blocks double. */
        if (kept == NULL && block->size_bytes <= ARENA_BLOCK_BYTES_MAX)
            kept = block;
        else
            block_free(a, block);
    }
    if (kept != NULL)
        kept->older = NULL;
    arena_stand_at(a, kept, kept != NULL ? block_begin(kept) : NULL);
}

struct arena_mark arena_mark_get(const struct arena *a)
{
    return (struct arena_mark){a->blocks, a->pos};
}

void arena_mark_return(struct arena *a, struct arena_mark mark)
{
    while (a->blocks != mark.block) {
        struct arena_block *block = a->blocks;

        ASSERT(block != NULL); /* else the mark is of another arena, or was passed already */
        a->blocks = block->older;
        block_free(a, block);
    }
    arena_stand_at(a, mark.block, mark.pos);
}

/* Large blocks in huge pages: to give a gigabyte back page by page takes a tenth of a second, which
 * a stopped query's client would wait for, and to touch it first takes longer. */
static void block_advise(struct arena_block *block)
{
    uintptr_t begin = ((uintptr_t)block + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)block + block->size_bytes) & ~(uintptr_t)(PAGE_BYTES - 1);

    if (block->size_bytes >= HUGE_BLOCK_BYTES_MIN)
        (void)madvise((char *)block + (begin - (uintptr_t)block), end - begin,
                      MADV_HUGEPAGE); /* advice: a kernel without them may refuse */
}

/* A new block with room for `size` (a multiple of ARENA_ALIGN) bytes. */
static bool arena_add_block(struct arena *a, size_t size)
{
    size_t block_bytes = a->next_block_bytes;

    if (size > PTRDIFF_MAX - sizeof(struct arena_block)) { /* no object can be larger */
        a->refused_bytes = SIZE_MAX;
        return false;
    }
    if (size + sizeof(struct arena_block) > block_bytes)
        block_bytes = size + sizeof(struct arena_block);
    if (a->budget != NULL && budget_charge(a->budget, block_bytes, NULL) != ERR_OK) {
        a->refused_bytes = block_bytes;
        return false;
    }
    struct arena_block *block = arena_block_get(block_bytes);
    if (block == NULL) {
        a->refused_bytes = 0;
        if (a->budget != NULL)
            budget_release(a->budget, block_bytes);
        return false;
    }
    block->older = a->blocks;
    block->size_bytes = block_bytes;
    block_advise(block);
    a->used_bytes += block_bytes;
    arena_stand_at(a, block, block_begin(block));
    if (a->next_block_bytes < ARENA_BLOCK_BYTES_MAX)
        a->next_block_bytes *= 2;
    return true;
}

/* Rounds up to the alignment, at least one unit; 0 on overflow. */
static size_t round_size(size_t size)
{
    if (size == 0)
        return ARENA_ALIGN;
    return (size + (ARENA_ALIGN - 1)) & ~(size_t)(ARENA_ALIGN - 1);
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t rounded = round_size(size);

    if (UNLIKELY(rounded == 0)) {
        a->refused_bytes = SIZE_MAX;
        return NULL;
    }
    if (UNLIKELY(rounded > (size_t)(a->end - a->pos)) && !arena_add_block(a, rounded))
        return NULL;
    char *p = a->pos;
    a->pos += rounded;
    UNPOISON(p, size);
    return p;
}

void *arena_alloc_array(struct arena *a, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        a->refused_bytes = SIZE_MAX;
        return NULL;
    }
    return arena_alloc(a, bytes);
}

void *arena_calloc(struct arena *a, size_t count, size_t size)
{
    void *p = arena_alloc_array(a, count, size);

    if (p != NULL)
        memset(p, 0, count * size); /* cannot overflow: the allocation succeeded */
    return p;
}

char *arena_memdup0(struct arena *a, const void *data, size_t size)
{
    if (size == SIZE_MAX) {
        a->refused_bytes = SIZE_MAX;
        return NULL;
    }
    char *p = arena_alloc(a, size + 1);

    if (p == NULL)
        return NULL;
    if (size > 0)
        memcpy(p, data, size);
    p[size] = '\0';
    return p;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ASSERT(n >= 0); /* our formats contain nothing that can fail to convert */
    char *p = arena_alloc(a, (size_t)n + 1);
    if (p == NULL)
        return NULL;
    va_start(args, format);
    /* Same arguments, same length.
     * NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm of clang-tidy 14 */
    (void)vsnprintf(p, (size_t)n + 1, format, args);
    va_end(args);
    return p;
}

void *arena_grow_array(struct arena *a, void *array, size_t old_count, size_t new_count,
                       size_t size)
{
    size_t new_bytes;

    ASSERT(new_count >= old_count);
    if (array == NULL || old_count == 0)
        return arena_alloc_array(a, new_count, size);
    if (__builtin_mul_overflow(new_count, size, &new_bytes)) {
        a->refused_bytes = SIZE_MAX;
        return NULL;
    }
    size_t old_bytes = old_count * size; /* fits: it was allocated once */
    size_t old_rounded = round_size(old_bytes), new_rounded = round_size(new_bytes);
    bool newest = (char *)array + old_rounded == a->pos;
    if (newest && new_rounded != 0 && new_rounded - old_rounded <= (size_t)(a->end - a->pos)) {
        a->pos += new_rounded - old_rounded;
        UNPOISON(array, new_bytes);
        return array;
    }
    void *p = arena_alloc(a, new_bytes);
    if (p != NULL)
        memcpy(p, array, old_bytes);
    return p;
}

enum err arena_error(const struct arena *a, struct errinfo *ei)
{
    if (a->refused_bytes == 0)
        return errinfo_set(ei, ERR_NOMEM, 0, "out of memory");
    if (a->budget == NULL)
        return errinfo_set(ei, ERR_LIMIT, 0, "an allocation's size overflows");
    /* Ask again for the story: it names the budget of the chain that is spent. */
    enum err e = budget_charge(a->budget, a->refused_bytes, ei);
    if (e != ERR_OK)
        return e;
    budget_release(a->budget, a->refused_bytes);
    return errinfo_set(ei, ERR_LIMIT, 0, "%s: the limit was reached", a->budget->name);
}
