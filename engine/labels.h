/*
 * Label sets and matchers as every layer above the store sees them.
 */
#ifndef RIMSTONE_ENGINE_LABELS_H
#define RIMSTONE_ENGINE_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/regex.h"

struct label {
    struct str name, value;
};

/* Sorted by name in byte order, names unique, values non-empty. Items are borrowed from wherever
 * the set was made (an arena, as a rule). */
struct labels {
    size_t count;
    const struct label *items;
};

#define LABEL_METRIC_NAME STR_LITERAL("__name__")

/* Whether a set from elsewhere is as said above. */
bool labels_are_canonical(const struct labels *l);
/* The value of `name`, or the empty string. */
struct str labels_get(const struct labels *l, struct str name);
/* Prometheus's order: pair by pair, name then value, a shorter prefix first. */
int labels_compare(const struct labels *a, const struct labels *b);
bool labels_equal(const struct labels *a, const struct labels *b);
/* A hash for tables in memory only (not the fingerprint, not stable across processes). */
uint64_t labels_hash(const struct labels *l);
/* `name{a="b", c="d"}` as Prometheus prints a metric (names quoted where they are not legacy
 * identifiers, values escaped as Go's %q). NULL when the arena refuses. */
char *labels_format(const struct labels *l, struct arena *arena);
/* `{__name__="x", a="b"}`: the form of Prometheus's error texts and of labels.Labels.String(). */
char *labels_format_braces(const struct labels *l, struct arena *arena);

enum matcher_kind { MATCHER_EQUAL, MATCHER_NOT_EQUAL, MATCHER_REGEX, MATCHER_NOT_REGEX };

/* How the value is compared. Regular expressions that are simple never reach RE2. */
enum matcher_form {
    MATCHER_FORM_LITERAL, /* the two equality kinds */
    MATCHER_FORM_SET,     /* an alternation of literals: "a|b(c|d)" */
    MATCHER_FORM_WILD,    /* a literal, maybe empty, with .* or .+ before or after it */
    MATCHER_FORM_REGEX,   /* anything else */
};
enum matcher_wild { MATCHER_WILD_NONE, MATCHER_WILD_ANY /* .* */, MATCHER_WILD_SOME /* .+ */ };

struct matcher {
    enum matcher_kind kind;
    enum matcher_form form;
    struct str name, value; /* borrowed */
    struct regex *regex;    /* owned; form REGEX only, else NULL */
    struct budget *budget;  /* borrowed from the arena: regex_bytes are charged here */
    size_t regex_bytes;
    /* Form SET: sorted, distinct; may hold the empty string. NULL otherwise. */
    const struct str *set;
    size_t set_count;
    struct str prefix; /* literal prefix every match has; may be empty. Forms WILD and REGEX */
    /* Form WILD; `before` and `after` are never both set around an empty literal. */
    struct str literal;
    enum matcher_wild before, after;
};

/* Fills *out; regular expressions are compiled. name and value are copied into `arena`; a compiled
 * regex is owned by *out, charged to the arena's budget, and freed by matcher_done(), which comes
 * before the budget's end. ERR_INVALID with RE2's reason, ERR_LIMIT when the budget is spent. */
MUST_USE enum err matcher_init(struct matcher *out, enum matcher_kind kind, struct str name,
                               struct str value, struct arena *arena, struct errinfo *ei);
void matcher_done(struct matcher *m);
bool matcher_matches(const struct matcher *m, struct str value);
/* True if the matcher accepts a missing label. */
static inline bool matcher_matches_empty(const struct matcher *m)
{
    return matcher_matches(m, (struct str){NULL, 0});
}
/* `name="value"`, `name=~"..."` as Prometheus prints it. */
char *matcher_format(const struct matcher *m, struct arena *arena);
bool label_name_is_legacy(struct str name); /* [a-zA-Z_][a-zA-Z0-9_]* */
/* Well-formed UTF-8 as RFC 3629 and Go's unicode/utf8 define it. */
bool utf8_is_valid(struct str text);
/* Appends text quoted as Go's strconv.Quote does (fmt's %q), Unicode 15's notion of printable. */
void str_quote(struct byte_writer *w, struct str text);

#endif
