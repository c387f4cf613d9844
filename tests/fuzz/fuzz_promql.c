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

/* The printed text in `arena`, NULL when the query is refused or too large for the budget. *pretty
 * is its form of several lines, empty when that is too large. */
static char *print(struct str text, struct arena *arena, struct str *pretty)
{
    static const struct promql_parse_options options = {true, true, true};
    struct promql_expr *expr = NULL;
    char *out;

    *pretty = (struct str){NULL, 0};
    if (promql_parse(text, &options, arena, &expr, NULL) != ERR_OK)
        return NULL;
    out = promql_node_format(expr->root, arena);
    if (promql_expr_pretty(expr, arena, pretty, NULL) != ERR_OK)
        *pretty = (struct str){NULL, 0};
    promql_expr_done(expr);
    return out;
}

/* Ranges below a millisecond print as 0s, which is refused, and so is the nothing that an empty
 * selector of info() prints as. */
static bool prints_refused_text(const char *text)
{
    return strstr(text, "[0s") != NULL || strstr(text, ", )") != NULL;
}

/* `offset ++5 + 3` prints without its first sign, as in Prometheus, and is read again as an offset
 * of 5 with 3 added to the samples: another query, or one that is refused. Whether some offset of
 * `text` begins with a number that an operator follows. */
static bool prints_offset_that_ends_early(const char *text)
{
    static const char word[] = " offset ";

    while ((text = strstr(text, word)) != NULL) {
        text += sizeof word - 1;
        text += strspn(text, "-");
        text += strspn(text, "0123456789.abcdefghijklmnopqrstuvwxyzINF");
        if (text[0] == ' ' && text[1] != '\0' && strchr("+-*/%^", text[1]) != NULL)
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct budget budget;
    struct arena arena;
    struct str pretty, again;
    char *once, *twice;

    budget_init(&budget, "query memory", 64U << 20, NULL);
    arena_init(&arena, &budget);
    once = print((struct str){(const char *)data, size}, &arena, &pretty);
    if (once != NULL) {
        bool may_differ = prints_offset_that_ends_early(once);

        twice = print(str_from(once), &arena, &again);
        /* The second round may run out of what the first has left of the budget. */
        if (!may_differ &&
            (twice != NULL ? strcmp(once, twice) != 0
                           : !prints_refused_text(once) && budget_used(&budget) < 32U << 20))
            abort();
        twice = pretty.size > 0 && pretty.size < 1U << 20 ? print(pretty, &arena, &again) : NULL;
        if (!may_differ && twice != NULL && strcmp(once, twice) != 0)
            abort();
    }
    arena_done(&arena);
    return 0;
}
