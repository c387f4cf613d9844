/*
 * Functions of one value, and the places where Go's math differs from C's.
 */
#ifndef RIMSTONE_PROMQL_EVAL_MAP_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_MAP_INTERNAL_H

#include "promql/eval_internal.h"
#include "promql/functions.h"

/* `argument` is the function's scalar where it has one (round), else 1. */
typedef double map_function(double value, double argument);
/* NULL when the function is not one of a single value. */
map_function *map_function_find(enum function_id id);

/* Go's math.Max and math.Min: NaN wins unless the other is the infinity that decides, -0 < +0. */
double go_max(double a, double b);
double go_min(double a, double b);
/* Go's math.Pow: C's pow() has the same special cases; test_eval_functions.c lists them. */
double go_pow(double x, double y);

#endif
