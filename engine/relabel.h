/*
 * Relabelling exactly as Prometheus 3 does it (model/relabel): rules that keep, drop or rewrite a
 * label set. A rule is described by struct relabel_config, checked and compiled once, and applied
 * by any number of threads.
 */
#ifndef RIMSTONE_ENGINE_RELABEL_H
#define RIMSTONE_ENGINE_RELABEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"

enum relabel_action {
    RELABEL_REPLACE,
    RELABEL_KEEP,
    RELABEL_DROP,
    RELABEL_KEEPEQUAL,
    RELABEL_DROPEQUAL,
    RELABEL_HASHMOD,
    RELABEL_LABELMAP,
    RELABEL_LABELDROP,
    RELABEL_LABELKEEP,
    RELABEL_LOWERCASE,
    RELABEL_UPPERCASE,
};

/* A rule as it is written. Texts are borrowed. */
struct relabel_config {
    enum relabel_action action;
    const struct str *source_labels;
    size_t source_label_count;
    /* Given at all, even as an empty list or as the default's text: some actions refuse it. */
    bool has_source_labels, has_regex;
    struct str separator, regex, target_label, replacement;
    uint64_t modulus;
};

/* The defaults: replace, ";", "(.*)", "$1". */
void relabel_config_init(struct relabel_config *c);
/* Reads an action's name in any case; false when there is none of that name. */
bool relabel_action_parse(struct str name, enum relabel_action *out);
const char *relabel_action_name(enum relabel_action action);
/* Whether the action leaves labels as they are: it only keeps or drops. */
bool relabel_action_filters(enum relabel_action action);
/* ERR_INVALID with Prometheus's reason; of regular expressions with RE2's (also ERR_LIMIT). */
MUST_USE enum err relabel_config_check(const struct relabel_config *c, struct errinfo *ei);

struct relabel;

/* Compiles a rule, which must pass relabel_config_check(). The rule and copies of all texts live in
 * `arena`; relabel_done() comes before its end. */
MUST_USE enum err relabel_compile(const struct relabel_config *c, struct arena *arena,
                                  struct relabel **out, struct errinfo *ei);
/* Accepts NULL. */
void relabel_done(struct relabel *r);
/* The rule as it was written; as long as the rule lives. */
const struct relabel_config *relabel_config_of(const struct relabel *r);
/* How the regular expression compares, for indexes of rules; as long as the rule lives. */
const struct matcher *relabel_matcher_of(const struct relabel *r);

/*
 * A label set that rules work on. One thread at a time.
 *
 * It keeps apart what it began with and what was set since, in that order, because the order in
 * which labelmap meets labels decides which of two equal names wins.
 */
struct relabel_set {
    struct arena *arena;      /* borrowed: texts that rules make, and the arrays */
    const struct label *base; /* borrowed, sorted */
    bool *hidden;             /* of base: set anew, or deleted, since */
    struct label *added;      /* no name twice, no value empty */
    size_t base_count, added_count, added_capacity;
    bool changed; /* something was set or deleted, maybe to what it was before */
    bool failed;  /* the arena has refused: the set is worthless */
};

/* `labels` are sorted and unique. False when the arena refuses. */
MUST_USE bool relabel_set_begin(struct relabel_set *s, const struct labels *labels,
                                struct arena *arena);
/* The value of a label, or the empty string. */
struct str relabel_set_get(const struct relabel_set *s, struct str name);
/* The set as it is now, sorted; array in the arena. False when the arena refuses. */
MUST_USE bool relabel_set_labels(struct relabel_set *s, struct labels *out);

/* Applies a rule. False: the rule drops the set. When the arena refuses, s->failed is set and the
 * answer means nothing. */
bool relabel_apply(const struct relabel *r, struct relabel_set *s);

/* Whether a rule that only keeps or drops (relabel_action_filters()) drops labels (sorted, unique):
 * relabel_apply() of them alone. False when `arena` refuses, which holds nothing of this
 * afterwards. Any number of threads, each with an arena. */
MUST_USE bool relabel_drops(const struct relabel *r, const struct labels *labels,
                            struct arena *arena, bool *out);

#endif
