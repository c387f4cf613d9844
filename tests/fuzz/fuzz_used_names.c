/*
 * What `rimtool rules suggest` reads: any text as an expression with variables, as a dashboard and
 * as a rule file. The first byte says which. Selectors it gives must be PromQL.
 */
#include "base/assert.h"
#include "promql/ast.h"
#include "tools/used_names_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static void selectors_check(const struct used_names *u)
{
    for (size_t i = 0; i < u->selectors.count; i++) {
        struct matcher *matchers = NULL;
        struct arena arena;
        size_t count = 0;
        enum err e;

        arena_init(&arena, NULL);
        e = promql_parse_selector(u->selectors.items[i], &arena, &matchers, &count, NULL);
        /* A regular expression with a variable in it may be none without. */
        ASSERT(e == ERR_OK || e == ERR_INVALID || e == ERR_LIMIT);
        for (size_t k = 0; k < count; k++)
            matcher_done(&matchers[k]);
        arena_done(&arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct used_names u;
    struct str text;
    enum err e = ERR_OK;

    if (size == 0 || size > 1 << 14)
        return 0;
    text = (struct str){(const char *)data + 1, size - 1};
    used_names_init(&u);
    if (data[0] % 4 == 0)
        e = used_names_dashboard_text(&u, text, NULL);
    else if (data[0] % 4 == 1)
        e = used_names_rule_text(&u, text, NULL);
    else
        e = used_names_expression(&u, text, data[0] % 4 == 2, NULL);
    ASSERT(e == ERR_OK || e == ERR_INVALID);
    selectors_check(&u);
    used_names_done(&u);
    return 0;
}
