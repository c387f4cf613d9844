/*
 * The table of functions, made from function_list_internal.h. It is sorted by name, so that a name
 * is found by halving.
 */
#include "promql/functions.h"

#include "base/assert.h"

static const struct promql_function functions[FUNCTION_COUNT] = {
#define FUNCTION(id_, name_, result_, arg_count_, variadic_, experimental_, built_, ...)           \
    [FUNCTION_##id_] = {                                                                           \
        .name = (name_),                                                                           \
        .id = FUNCTION_##id_,                                                                      \
        .result = (result_),                                                                       \
        .args = {__VA_ARGS__},                                                                     \
        .arg_count = (arg_count_),                                                                 \
        .variadic = (variadic_),                                                                   \
        .experimental = (experimental_),                                                           \
        .built = (built_),                                                                         \
    },
#include "promql/eval/function_list_internal.h"
#undef FUNCTION
};

const struct promql_function *promql_function_get(enum function_id id)
{
    ASSERT(id < FUNCTION_COUNT);
    return &functions[id];
}

const struct promql_function *promql_function_find(struct str name)
{
    size_t low = 0, high = FUNCTION_COUNT;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int c = str_compare(name, str_from(functions[middle].name));

        if (c == 0)
            return &functions[middle];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
