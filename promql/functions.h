/*
 * The table of PromQL's functions: signatures for the parser, implementations for the evaluator.
 * Every function of Prometheus 3 is listed, so that what is not built is refused by name.
 */
#ifndef RIMSTONE_PROMQL_FUNCTIONS_H
#define RIMSTONE_PROMQL_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "promql/ast.h"

/* FUNCTION_ABS, FUNCTION_ABSENT, ...: one per row of the list, by the function's upper-case name.
 */
enum function_id {
#define FUNCTION(id, name, ...) FUNCTION_##id,
#include "promql/eval/function_list_internal.h"
#undef FUNCTION
    FUNCTION_COUNT,
};

enum { FUNCTION_ARG_MAX = 5 };

struct promql_function {
    const char *name;
    enum function_id id;
    enum value_type result;
    enum value_type args[FUNCTION_ARG_MAX];
    unsigned arg_count; /* declared argument types */
    /* As in Prometheus. 0: exactly arg_count arguments. n > 0: the last declared one may be left
     * out or given up to n times. -1: it may be left out or given any number of times. */
    int variadic;
    bool experimental; /* needs promql-experimental-functions */
    bool built;        /* false: refused with ERR_UNSUPPORTED */
};

/* True for day, hour, month and the like: without an argument they read the evaluation time. */
static inline bool function_is_date(enum function_id id)
{
    switch (id) {
    case FUNCTION_DAYS_IN_MONTH:
    case FUNCTION_DAY_OF_MONTH:
    case FUNCTION_DAY_OF_WEEK:
    case FUNCTION_DAY_OF_YEAR:
    case FUNCTION_HOUR:
    case FUNCTION_MINUTE:
    case FUNCTION_MONTH:
    case FUNCTION_YEAR:
        return true;
    default:
        return false;
    }
}

/* True for the functions that look whether their argument is a counter by name or type. */
static inline bool function_wants_counter(enum function_id id)
{
    return id == FUNCTION_RATE || id == FUNCTION_INCREASE;
}

/* True for the range functions that interpolate at the borders of an extended range. */
static inline bool function_interpolates(enum function_id id)
{
    return id == FUNCTION_RATE || id == FUNCTION_INCREASE || id == FUNCTION_DELTA;
}

/* True for the range functions that give a sample as it is, with its series' name. */
static inline bool function_keeps_name(enum function_id id)
{
    return id == FUNCTION_LAST_OVER_TIME || id == FUNCTION_FIRST_OVER_TIME ||
           id == FUNCTION_DEFAULT_ROLLUP;
}

/* True for the functions that make a float of each native histogram and drop floats. */
static inline bool function_reads_histogram(enum function_id id)
{
    return id == FUNCTION_HISTOGRAM_COUNT || id == FUNCTION_HISTOGRAM_SUM ||
           id == FUNCTION_HISTOGRAM_AVG || id == FUNCTION_HISTOGRAM_STDDEV ||
           id == FUNCTION_HISTOGRAM_STDVAR;
}

/* The row of `id`, by which the table is ordered; a constant for the life of the process. */
const struct promql_function *promql_function_get(enum function_id id);
/* NULL if there is no such function. */
const struct promql_function *promql_function_find(struct str name);

#endif
