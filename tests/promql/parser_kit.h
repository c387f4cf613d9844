/* The parser under test, and tables of what it accepts and refuses. */
#ifndef RIMSTONE_TESTS_PROMQL_PARSER_KIT_H
#define RIMSTONE_TESTS_PROMQL_PARSER_KIT_H

#include <stddef.h>

#include "base/arena.h"
#include "promql/ast.h"

extern const struct promql_parse_options parse_stable, parse_experimental;

struct parsed {
    struct arena arena;
    struct promql_expr *expr;
    struct errinfo ei;
    enum err e;
};

void parse(struct parsed *out, struct str text, const struct promql_parse_options *options);
void parsed_done(struct parsed *p);

/* A text and how it prints. */
struct good_case {
    const char *text, *printed; /* NULL: as written */
};

/* A text and all of the message that refuses it. */
struct bad_case {
    const char *text, *message;
};

void check_good(const struct good_case *cases, size_t count,
                const struct promql_parse_options *options);
void check_bad(const struct bad_case *cases, size_t count, enum err want,
               const struct promql_parse_options *options);

#define CHECK_GOOD(cases, options) check_good(cases, sizeof(cases) / sizeof((cases)[0]), options)
#define CHECK_BAD(cases, code, options)                                                            \
    check_bad(cases, sizeof(cases) / sizeof((cases)[0]), code, options)

#endif
