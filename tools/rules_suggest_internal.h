/*
 * `rimtool rules suggest`: what its files share.
 */
#ifndef RIMSTONE_TOOLS_RULES_SUGGEST_INTERNAL_H
#define RIMSTONE_TOOLS_RULES_SUGGEST_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"

/* A metric that nobody reads. */
struct suggestion {
    struct str name;
    uint64_t series;
    double samples_per_second;
    double bytes_per_day; /* on disk; negative: not known */
    uint32_t last_s;      /* last query, in Unix seconds; 0: none since usage is known */
};

struct suggestions {
    struct suggestion *items; /* most expensive first */
    size_t count;
    size_t metric_count;    /* of the store */
    const char *unused_for; /* as it was given */
    uint32_t now_s, since_s;
    bool is_short; /* usage is not known for so long */
};

/* As rules of the configuration; as JSON. False when standard output fails. */
bool suggestions_print_rules(const struct suggestions *s, struct arena *arena);
bool suggestions_print_json(const struct suggestions *s);

#endif
