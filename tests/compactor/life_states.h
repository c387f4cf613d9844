/*
 * States of a store that a test has met: what lies on its simulated disk, as calls see it, and what
 * the model expects of it. A start from a state that was checked before finds the same again.
 */
#ifndef RIMSTONE_TESTS_LIFE_STATES_H
#define RIMSTONE_TESTS_LIFE_STATES_H

#include "base/fingerprint.h"
#include "tests/compactor/life_kit.h"

struct life_states {
    struct hash128 *slots; /* owned; open addressing, all zero is empty */
    size_t count, slot_count;
    struct hash_secret secret;
};

void life_states_init(struct life_states *s);
void life_states_done(struct life_states *s);
/* False: it is known. What is not durable yet counts like what is, so of a state that may lose more
 * this says nothing but what a start finds now. The store must be closed. */
bool life_states_add(struct life_states *s, const struct life *l);

#endif
