/*
 * Duration expressions: [step() * 2], offset -min_of(5m, range() / 3). Known once a query's step
 * and range are.
 */
#include <math.h>

#include "base/assert.h"
#include "promql/ast.h"
#include "promql/eval/eval_map_internal.h"

struct evaluation {
    const struct duration_bounds *bounds;
    struct errinfo *ei;
};

static enum err fail(const struct evaluation *v, const struct duration_expr *d, const char *what)
{
    return errinfo_set(v->ei, ERR_INVALID, 0, "%u:%u: %s", d->position.start, d->position.end,
                       what);
}

static enum err apply(const struct evaluation *v, const struct duration_expr *d, double lhs,
                      double rhs, double *out)
{
    switch (d->op) {
    case DURATION_NUMBER:
        *out = d->seconds;
        break;
    case DURATION_STEP:
        *out = v->bounds->step_s;
        break;
    case DURATION_RANGE:
        *out = v->bounds->range_s;
        break;
    case DURATION_MIN_OF:
        *out = go_min(lhs, rhs);
        break;
    case DURATION_MAX_OF:
        *out = go_max(lhs, rhs);
        break;
    case DURATION_ADD:
        *out = d->lhs == NULL ? rhs : lhs + rhs;
        break;
    case DURATION_SUB:
        *out = d->lhs == NULL ? -rhs : lhs - rhs;
        break;
    case DURATION_MUL:
        *out = lhs * rhs;
        break;
    case DURATION_DIV:
        *out = lhs / rhs;
        return rhs == 0 ? fail(v, d, "division by zero") : ERR_OK;
    case DURATION_MOD:
        *out = fmod(lhs, rhs);
        return rhs == 0 ? fail(v, d, "modulo by zero") : ERR_OK;
    case DURATION_POW:
        *out = go_pow(lhs, rhs);
        break;
    }
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the expression, PROMQL_DEPTH_MAX. */
static enum err evaluate(const struct evaluation *v, const struct duration_expr *d, double *out)
{
    double lhs = 0, rhs = 0;
    enum err e = ERR_OK;

    if (d->lhs != NULL)
        e = evaluate(v, d->lhs, &lhs);
    if (e == ERR_OK && d->rhs != NULL)
        e = evaluate(v, d->rhs, &rhs);
    return e == ERR_OK ? apply(v, d, lhs, rhs, out) : e;
}

enum err promql_duration_evaluate(const struct duration_expr *d,
                                  const struct duration_bounds *bounds, bool negative_allowed,
                                  int64_t *out_ms, struct errinfo *ei)
{
    struct evaluation v = {bounds, ei};
    double seconds = 0;
    enum err e = evaluate(&v, d, &seconds);

    if (e != ERR_OK)
        return e;
    if (!isfinite(seconds))
        return fail(&v, d, "duration is NaN or infinite");
    if (seconds <= 0 && !negative_allowed)
        return fail(&v, d, "duration must be greater than 0");
    if (seconds > 0x1p63 / 1e9 || seconds < -0x1p63 / 1e9) /* nanoseconds must fit an int64 */
        return fail(&v, d, "duration is out of range");
    *out_ms = (int64_t)(seconds * 1000); /* what is below a millisecond is dropped */
    return ERR_OK;
}
