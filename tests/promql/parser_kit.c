#include "tests/promql/parser_kit.h"

#include <string.h>

#include "tests/lib/test_support.h"

const struct promql_parse_options parse_stable = {.experimental_functions = false};
const struct promql_parse_options parse_experimental = {.experimental_functions = true};

void parse(struct parsed *out, struct str text, const struct promql_parse_options *options)
{
    *out = (struct parsed){0};
    arena_init(&out->arena, NULL);
    out->e = promql_parse(text, options, &out->arena, &out->expr, &out->ei);
}

void parsed_done(struct parsed *p)
{
    promql_expr_done(p->expr);
    arena_done(&p->arena);
}

void check_good(const struct good_case *cases, size_t count,
                const struct promql_parse_options *options)
{
    for (size_t i = 0; i < count; i++) {
        const char *want = cases[i].printed != NULL ? cases[i].printed : cases[i].text;
        struct parsed p;
        char *got;

        parse(&p, str_from(cases[i].text), options);
        CHECK_MSG(p.e == ERR_OK, "%s: %s", cases[i].text, p.ei.message);
        got = promql_node_format(p.expr->root, &p.arena);
        CHECK_MSG(got != NULL && strcmp(got, want) == 0, "%s: printed as %s, want %s",
                  cases[i].text, got, want);
        parsed_done(&p);
    }
}

void check_bad(const struct bad_case *cases, size_t count, enum err want,
               const struct promql_parse_options *options)
{
    for (size_t i = 0; i < count; i++) {
        struct parsed p;

        parse(&p, str_from(cases[i].text), options);
        CHECK_MSG(p.e == want, "%s: %s, %s", cases[i].text, err_name(p.e), p.ei.message);
        CHECK_MSG(strcmp(p.ei.message, cases[i].message) == 0, "%s: got  %s\nwant %s",
                  cases[i].text, p.ei.message, cases[i].message);
        parsed_done(&p);
    }
}
