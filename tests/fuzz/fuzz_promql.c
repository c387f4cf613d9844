/*
 * Any text as a query: the parser must answer, and what it accepts must print to a text that it
 * accepts again and prints the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/budget.h"
#include "promql/ast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

/* The printed text in `arena`, NULL when the query is refused or too large for the budget. */
static char *print(struct str text, struct arena *arena)
{
    static const struct promql_parse_options options = {.experimental_functions = true};
    struct promql_expr *expr = NULL;
    char *out;

    if (promql_parse(text, &options, arena, &expr, NULL) != ERR_OK)
        return NULL;
    out = promql_node_format(expr->root, arena);
    promql_expr_done(expr);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct budget budget;
    struct arena arena;
    char *once, *twice;

    budget_init(&budget, "query memory", 64U << 20, NULL);
    arena_init(&arena, &budget);
    once = print((struct str){(const char *)data, size}, &arena);
    if (once != NULL) {
        twice = print(str_from(once), &arena);
        /* The second round may run out of what the first has left of the budget, and ranges below
         * a millisecond print as 0s, which is refused. */
        if (twice != NULL ? strcmp(once, twice) != 0
                          : strstr(once, "[0s") == NULL && budget_used(&budget) < 32U << 20)
            abort();
    }
    arena_done(&arena);
    return 0;
}
