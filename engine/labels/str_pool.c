/*
 * Strings out of parts, each kept once: parts of many windows say the same again and again.
 */
#include <string.h>

#include "base/fingerprint.h"
#include "engine/read/querier_internal.h"

enum { PLACES_MIN = 64 };

void str_pool_init(struct str_pool *p, struct budget *budget, const struct hash_secret *secret)
{
    *p = (struct str_pool){.secret = secret};
    arena_init(&p->arena, budget);
}

void str_pool_done(struct str_pool *p)
{
    arena_done(&p->arena);
    str_pool_init(p, p->arena.budget, p->secret);
}

/* The place of a string, or the free one where it would go. */
static struct str *place_find(const struct str_pool *p, struct str *places, size_t place_count,
                              struct str text)
{
    uint64_t i = hash64_bytes(p->secret, text.data, text.size);

    for (;; i++) {
        struct str *at = &places[i & (place_count - 1)];

        if (at->size == 0 || str_equal(*at, text))
            return at;
    }
}

/* At most half of the places are in use. Older tables stay in the arena: as much again in all. */
static bool places_grow(struct str_pool *p)
{
    size_t count = p->place_count == 0 ? PLACES_MIN : 2 * p->place_count;
    struct str *places = arena_calloc(&p->arena, count, sizeof *places);

    if (places == NULL)
        return false;
    for (size_t i = 0; i < p->place_count; i++) {
        if (p->places[i].size > 0)
            *place_find(p, places, count, p->places[i]) = p->places[i];
    }
    p->places = places;
    p->place_count = count;
    return true;
}

bool str_pool_intern(struct str_pool *p, struct str *text, bool *is_new)
{
    struct str *at;
    char *copy;

    *is_new = false;
    if (text->size == 0)
        return true;
    if (2 * p->count >= p->place_count && !places_grow(p))
        return false;
    at = place_find(p, p->places, p->place_count, *text);
    if (at->size == 0) {
        copy = arena_memdup0(&p->arena, text->data, text->size);
        if (copy == NULL)
            return false;
        *at = (struct str){copy, text->size};
        p->count++;
        *is_new = true;
    }
    *text = *at;
    return true;
}
