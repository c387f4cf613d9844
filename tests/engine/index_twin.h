/*
 * The slow twin of the index: a list of label sets, matched one by one. Shared by the tests of the
 * index and of the querier.
 */
#ifndef RIMSTONE_TESTS_ENGINE_INDEX_TWIN_H
#define RIMSTONE_TESTS_ENGINE_INDEX_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "engine/labels.h"
#include "tests/lib/test_support.h"

enum { TWIN_LABELS_MAX = 8, TWIN_MATCHERS_MAX = 4 };

struct twin_series {
    uint32_t slot;
    struct labels labels;
    struct label items[TWIN_LABELS_MAX];
};

/* A random label set; strings are literals or in the arena. `spread`: how many different values
 * some labels have. With `complete` there is a metric name, and a last label that makes sets
 * differ: "n" and the number. */
void twin_series_random(struct test_random *r, struct arena *arena, size_t spread, bool complete,
                        uint32_t number, struct twin_series *out);

/* A matcher and, for regular expressions, the compiled pattern that the twin asks. */
struct twin_matcher {
    struct matcher matcher;
    struct regex *regex;
};
void twin_matcher_random(struct test_random *r, struct arena *arena, size_t spread,
                         struct twin_matcher *out);
void twin_matcher_done(struct twin_matcher *m);
bool twin_matches(const struct twin_matcher *matchers, size_t count, const struct labels *labels);

#endif
