/*
 * Which metrics dashboards and rule files read. PromQL is taken out of Grafana's JSON and of rule
 * YAML and parsed; variables of dashboards ($x, ${x}, ${x:regex}, [[x]]) stand for anything.
 *
 * A selector with a name counts for that name. What other selectors mean only a store can tell:
 * they are collected.
 */
#ifndef RIMSTONE_TOOLS_USED_NAMES_INTERNAL_H
#define RIMSTONE_TOOLS_USED_NAMES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

/* Distinct texts, in the arena. */
struct text_set {
    struct str *items;
    size_t count, capacity;
    uint32_t *places; /* number + 1 by hash, 0: free; twice the capacity */
};

struct used_names {
    struct arena arena;
    struct text_set names;
    struct text_set selectors; /* without one name, as PromQL: `{__name__=~"x.*"}` */
    size_t file_count, expression_count;
    size_t unparsed_count; /* expressions that could not be parsed: their words count as names */
    size_t unknown_count;  /* selectors of whose name nothing is known: a variable alone */
    /* Called for what deserves a look; may be NULL. */
    void (*warn)(void *ctx, const char *file, struct str expression, const char *what);
    void *warn_ctx;
    const char *file; /* at hand */
};

void used_names_init(struct used_names *u);
void used_names_done(struct used_names *u);
/* Adds what all *.json files (or *.yml and *.yaml) below `dir` read; a file that cannot be read or
 * parsed is an error. */
MUST_USE enum err used_names_dashboards(struct used_names *u, const char *dir, struct errinfo *ei);
MUST_USE enum err used_names_rules(struct used_names *u, const char *dir, struct errinfo *ei);
/* The same of one text. */
MUST_USE enum err used_names_dashboard_text(struct used_names *u, struct str json,
                                            struct errinfo *ei);
MUST_USE enum err used_names_rule_text(struct used_names *u, struct str yaml, struct errinfo *ei);
/* One expression, of a dashboard (with variables) or a rule. */
MUST_USE enum err used_names_expression(struct used_names *u, struct str text, bool has_variables,
                                        struct errinfo *ei);

/* False when memory is short. */
MUST_USE bool text_set_add(struct text_set *s, struct arena *arena, struct str text);
bool text_set_has(const struct text_set *s, struct str text);

#endif
