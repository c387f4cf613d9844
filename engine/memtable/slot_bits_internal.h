/*
 * A bit for each slot of a shard, in memory only once some slot has it.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_SLOT_BITS_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_SLOT_BITS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct slot_bits {
    uint64_t *words; /* owned; NULL: no slot */
    size_t word_count;
    bool unknown; /* memory was refused: any slot may have it */
};

static inline void slot_bits_set(struct slot_bits *b, uint32_t slot)
{
    size_t word = slot / 64;

    if (word >= b->word_count) {
        size_t count = word + word / 4 + 16;
        uint64_t *grown = realloc(b->words, count * sizeof *grown);

        if (grown == NULL) {
            b->unknown = true;
            return;
        }
        memset(grown + b->word_count, 0, (count - b->word_count) * sizeof *grown);
        b->words = grown;
        b->word_count = count;
    }
    b->words[word] |= (uint64_t)1 << slot % 64;
}

static inline void slot_bits_clear(struct slot_bits *b)
{
    free(b->words);
    *b = (struct slot_bits){0};
}

#endif
