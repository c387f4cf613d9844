/*
 * The table of limit_counts_internal.h. Places are freed by shifting back what was pushed past
 * them, so that no table fills up with the values of pods long gone.
 */
#include "engine/limits/limit_counts_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { STRIPE_CAPACITY_FIRST = 16 };

void limit_counts_init(struct limit_counts *c, struct budget *memory)
{
    memset(c, 0, sizeof *c);
    c->memory = memory;
    for (size_t i = 0; i < LIMIT_STRIPE_COUNT; i++)
        mutex_init(&c->stripes[i].lock);
}

static void places_free(struct limit_counts *c, struct limit_count *places, uint32_t capacity)
{
    if (c->memory != NULL && capacity > 0)
        budget_release(c->memory, capacity * sizeof *places);
    free(places);
}

void limit_counts_done(struct limit_counts *c)
{
    for (size_t i = 0; i < LIMIT_STRIPE_COUNT; i++) {
        places_free(c, c->stripes[i].places, c->stripes[i].capacity);
        mutex_done(&c->stripes[i].lock);
    }
}

/* The stripe of a key, locked; the key becomes one that marks no empty place. The top bits choose
 * the stripe, the low ones the place. */
static struct limit_stripe *stripe_lock(struct limit_counts *c, uint64_t *key)
{
    struct limit_stripe *s = &c->stripes[*key >> 58];

    *key += *key == 0;
    mutex_lock(&s->lock);
    return s;
}

/* The place of a key, or the empty one where it would stand. */
static uint32_t place_of(const struct limit_stripe *s, uint64_t key)
{
    uint32_t i = (uint32_t)key & (s->capacity - 1);

    while (s->places[i].key != 0 && s->places[i].key != key)
        i = (i + 1) & (s->capacity - 1);
    return i;
}

static bool stripe_resize(struct limit_counts *c, struct limit_stripe *s, uint32_t capacity)
{
    struct limit_count *old = s->places, *places;
    uint32_t old_capacity = s->capacity;

    if (c->memory != NULL && budget_charge(c->memory, capacity * sizeof *places, NULL) != ERR_OK)
        return false;
    places = calloc(capacity, sizeof *places);
    if (places == NULL) {
        if (c->memory != NULL)
            budget_release(c->memory, capacity * sizeof *places);
        return false;
    }
    s->places = places;
    s->capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (old[i].key != 0)
            places[place_of(s, old[i].key)] = old[i];
    }
    places_free(c, old, old_capacity);
    return true;
}

/* The count of a key, made if it is not there; NULL when memory is refused. Lock held. */
static struct limit_count *count_ensure(struct limit_counts *c, struct limit_stripe *s,
                                        uint64_t key)
{
    struct limit_count *at;

    if (s->used >= s->capacity / 4 * 3) {
        uint32_t capacity = s->capacity == 0 ? STRIPE_CAPACITY_FIRST : 2 * s->capacity;

        if (!stripe_resize(c, s, capacity))
            return NULL;
    }
    at = &s->places[place_of(s, key)];
    if (at->key == 0) {
        *at = (struct limit_count){.key = key};
        s->used++;
    }
    return at;
}

static struct limit_count *count_find(struct limit_stripe *s, uint64_t key)
{
    struct limit_count *at = s->capacity == 0 ? NULL : &s->places[place_of(s, key)];

    return at == NULL || at->key == 0 ? NULL : at;
}

/* Empties a place and moves back what stands behind it, up to the next empty one. */
static void place_clear(struct limit_stripe *s, uint32_t hole)
{
    uint32_t mask = s->capacity - 1;

    for (uint32_t i = (hole + 1) & mask; s->places[i].key != 0; i = (i + 1) & mask) {
        uint32_t home = (uint32_t)s->places[i].key & mask;

        /* It may move unless its home lies behind the hole. */
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        s->places[hole] = s->places[i];
        hole = i;
    }
    s->places[hole] = (struct limit_count){0};
    s->used--;
}

static uint64_t active_of(const struct limit_count *at)
{
    return at->series - at->ended;
}

enum err limit_counts_take(struct limit_counts *c, uint64_t key, uint64_t max, uint64_t *active)
{
    struct limit_stripe *s = stripe_lock(c, &key);
    struct limit_count *at = count_find(s, key);
    enum err e = ERR_OK;

    if (at != NULL && max > 0 && active_of(at) >= max) {
        *active = active_of(at);
        e = ERR_LIMIT;
    } else {
        at = count_ensure(c, s, key);
        if (at == NULL) {
            e = ERR_NOMEM;
        } else {
            at->series++;
            *active = active_of(at);
        }
    }
    mutex_unlock(&s->lock);
    return e;
}

enum err limit_counts_add(struct limit_counts *c, uint64_t key, uint32_t series)
{
    struct limit_stripe *s = stripe_lock(c, &key);
    struct limit_count *at = count_ensure(c, s, key);

    if (at != NULL)
        at->series += series;
    mutex_unlock(&s->lock);
    return at == NULL ? ERR_NOMEM : ERR_OK;
}

void limit_counts_drop(struct limit_counts *c, uint64_t key)
{
    struct limit_stripe *s = stripe_lock(c, &key);
    struct limit_count *at = count_find(s, key);

    if (at != NULL) {
        at->series--;
        /* Who dies has ended; whether the last look knew it does not matter much. */
        if (at->ended > 0)
            at->ended--;
        if (at->series == 0)
            place_clear(s, (uint32_t)(at - s->places));
        /* Small enough to be moved: what a rollout needed is given back. Where memory is short the
         * table stays as it is. */
        if (s->capacity > STRIPE_CAPACITY_FIRST && s->used < s->capacity / 8)
            (void)stripe_resize(c, s, s->capacity / 2);
    }
    mutex_unlock(&s->lock);
}

void limit_counts_set_ended(struct limit_counts *c, uint64_t key, uint64_t ended)
{
    struct limit_stripe *s = stripe_lock(c, &key);
    struct limit_count *at = count_find(s, key);

    if (at != NULL)
        at->ended = ended < at->series ? (uint32_t)ended : at->series;
    mutex_unlock(&s->lock);
}

uint64_t limit_counts_active(struct limit_counts *c, uint64_t key)
{
    struct limit_stripe *s = stripe_lock(c, &key);
    const struct limit_count *at = count_find(s, key);
    uint64_t active;

    active = at == NULL ? 0 : active_of(at);
    mutex_unlock(&s->lock);
    return active;
}
