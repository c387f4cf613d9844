/*
 * Whether a tombstone hits a series, for tests.
 */
#ifndef RIMSTONE_TESTS_TOMBSTONE_KIT_H
#define RIMSTONE_TESTS_TOMBSTONE_KIT_H

#include "engine/delete/tombstone_internal.h"
#include "tests/lib/test_support.h"

static inline bool tombstone_kit_hits(const struct tombstone *t, const struct labels *labels)
{
    struct arena arena;
    bool is_hit = false;

    arena_init(&arena, NULL);
    CHECK(tombstone_matches(t, labels, &arena, &is_hit));
    arena_done(&arena);
    return is_hit;
}

#endif
