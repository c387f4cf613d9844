/*
 * Label sets as codes packed into words, whose order is that of the sets: what the sorts of series
 * by label order share. Which code a label gets is the sort's matter.
 */
#ifndef RIMSTONE_ENGINE_LABELS_LABEL_KEY_INTERNAL_H
#define RIMSTONE_ENGINE_LABELS_LABEL_KEY_INTERNAL_H

#include <stdint.h>

enum { LABEL_KEY_WORDS_MAX = 4, LABEL_KEY_WORD_BITS = 64 };

struct label_key {
    uint64_t words[LABEL_KEY_WORDS_MAX]; /* the first is the most significant */
    uint32_t bit;                        /* written so far; what does not fit is dropped */
};

/* Bits for codes from 0 to `largest`. */
static inline uint32_t label_key_bits(uint64_t largest)
{
    return largest == 0 ? 0 : (uint32_t)LABEL_KEY_WORD_BITS - (uint32_t)__builtin_clzll(largest);
}

/* Appends a code that fits into `bits`. */
static inline void label_key_put(struct label_key *k, uint64_t code, uint32_t bits)
{
    uint32_t word = k->bit / LABEL_KEY_WORD_BITS;
    uint32_t room = LABEL_KEY_WORD_BITS - k->bit % LABEL_KEY_WORD_BITS;

    k->bit += bits;
    if (bits == 0 || word >= LABEL_KEY_WORDS_MAX)
        return;
    if (bits <= room) {
        k->words[word] |= code << (room - bits);
        return;
    }
    k->words[word] |= code >> (bits - room);
    if (word + 1 < LABEL_KEY_WORDS_MAX)
        k->words[word + 1] = code << (LABEL_KEY_WORD_BITS - (bits - room));
}

/* The words behind the first: <0, 0, >0. */
static inline int label_key_compare_rest(const uint64_t *a, const uint64_t *b, uint32_t word_count)
{
    for (uint32_t i = 0; i + 1 < word_count; i++) {
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

#endif
