/*
 * Names of the syntax tree's parts.
 */
#include "promql/ast.h"

#include "base/assert.h"

const char *value_type_name(enum value_type t)
{
    switch (t) {
    case VALUE_SCALAR:
        return "scalar";
    case VALUE_VECTOR:
        return "instant vector";
    case VALUE_MATRIX:
        return "range vector";
    case VALUE_STRING:
        return "string";
    }
    assert_failed(__FILE__, __LINE__, "value type");
}

const char *binary_op_name(enum binary_op op)
{
    static const char *const names[] = {
        [OP_ADD] = "+",         [OP_SUB] = "-",         [OP_MUL] = "*",   [OP_DIV] = "/",
        [OP_MOD] = "%",         [OP_POW] = "^",         [OP_EQ] = "==",   [OP_NE] = "!=",
        [OP_LT] = "<",          [OP_LE] = "<=",         [OP_GT] = ">",    [OP_GE] = ">=",
        [OP_OR] = "or",         [OP_ATAN2] = "atan2",   [OP_AND] = "and", [OP_UNLESS] = "unless",
        [OP_TRIM_UPPER] = "</", [OP_TRIM_LOWER] = ">/",
    };

    ASSERT((size_t)op < sizeof names / sizeof names[0]);
    return names[op];
}

const char *duration_op_name(enum duration_op op)
{
    static const char *const names[] = {
        [DURATION_STEP] = "step",     [DURATION_RANGE] = "range", [DURATION_MIN_OF] = "min_of",
        [DURATION_MAX_OF] = "max_of", [DURATION_ADD] = "+",       [DURATION_SUB] = "-",
        [DURATION_MUL] = "*",         [DURATION_DIV] = "/",       [DURATION_MOD] = "%",
        [DURATION_POW] = "^",
    };

    ASSERT((size_t)op < sizeof names / sizeof names[0] && names[op] != NULL);
    return names[op];
}

const char *aggregate_op_name(enum aggregate_op op)
{
    static const char *const names[] = {
        [AGG_SUM] = "sum",
        [AGG_AVG] = "avg",
        [AGG_COUNT] = "count",
        [AGG_MIN] = "min",
        [AGG_MAX] = "max",
        [AGG_GROUP] = "group",
        [AGG_STDDEV] = "stddev",
        [AGG_STDVAR] = "stdvar",
        [AGG_TOPK] = "topk",
        [AGG_BOTTOMK] = "bottomk",
        [AGG_COUNT_VALUES] = "count_values",
        [AGG_QUANTILE] = "quantile",
        [AGG_LIMITK] = "limitk",
        [AGG_LIMIT_RATIO] = "limit_ratio",
    };

    ASSERT((size_t)op < sizeof names / sizeof names[0]);
    return names[op];
}
