/*
 * Functions of one value: arithmetic, trigonometry, dates.
 */
#include "promql/eval/eval_map_internal.h"

#include <math.h>

double go_max(double a, double b)
{
    if (isinf(a) && a > 0)
        return a;
    if (isinf(b) && b > 0)
        return b;
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == 0 && a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

double go_min(double a, double b)
{
    if (isinf(a) && a < 0)
        return a;
    if (isinf(b) && b < 0)
        return b;
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == 0 && a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

double go_pow(double x, double y)
{
    return pow(x, y);
}

#define UNARY(name, expression)                                                                    \
    static double name(double v, double argument)                                                  \
    {                                                                                              \
        (void)argument; /* only round() has one */                                                 \
        return expression;                                                                         \
    }
UNARY(map_abs, fabs(v))
UNARY(map_ceil, ceil(v))
UNARY(map_floor, floor(v))
UNARY(map_exp, exp(v))
UNARY(map_sqrt, sqrt(v))
UNARY(map_ln, log(v))
UNARY(map_log2, log2(v))
UNARY(map_log10, log10(v))
UNARY(map_sin, sin(v))
UNARY(map_cos, cos(v))
UNARY(map_tan, tan(v))
UNARY(map_asin, asin(v))
UNARY(map_acos, acos(v))
UNARY(map_atan, atan(v))
UNARY(map_sinh, sinh(v))
UNARY(map_cosh, cosh(v))
UNARY(map_tanh, tanh(v))
UNARY(map_asinh, asinh(v))
UNARY(map_acosh, acosh(v))
UNARY(map_atanh, atanh(v))
UNARY(map_rad, v *M_PI / 180)
UNARY(map_deg, v * 180 / M_PI)
UNARY(map_sgn, v<0 ? -1 : v> 0 ? 1 : v)
#undef UNARY

/* Rounds half up to a multiple of `nearest`. */
static double map_round(double v, double nearest)
{
    double inverse = 1.0 / nearest;

    return floor(v * inverse + 0.5) / inverse;
}

/* Broken-down UTC of a Unix time in seconds; proleptic Gregorian, any year an int64 can hold. */
struct date {
    int64_t year;
    int month, day, hour, minute, weekday, year_day;
};

static bool year_is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int month_days(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month - 1] + (month == 2 && year_is_leap(year));
}

/* Go converts a float to int64 by truncation; out of range it gives the smallest int64 on amd64. */
static int64_t seconds_from_double(double v)
{
    if (!(v >= -9223372036854775808.0 && v < 9223372036854775808.0))
        return INT64_MIN;
    return (int64_t)v;
}

/* Go counts seconds from a year far in the past in 64 bits without a sign, and what lies before it
 * wraps around. Only times that are no dates (NaN, infinities) get there, but hour(Inf) shows it.
 * The distance is a whole number of days. */
#define GO_EPOCH_SECONDS UINT64_C(9223372028715321600)

/* Days since the epoch to a civil date, counting years from March (Hinnant, "chrono-compatible
 * low-level date algorithms"). */
static struct date date_from_seconds(double v)
{
    uint64_t absolute = (uint64_t)seconds_from_double(v) + GO_EPOCH_SECONDS;
    int64_t days = (int64_t)(absolute / 86400) - (int64_t)(GO_EPOCH_SECONDS / 86400);
    int64_t rest = (int64_t)(absolute % 86400);
    int64_t shifted = days + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153;
    struct date d = {
        .day = (int)(day_of_year - (153 * shifted_month + 2) / 5 + 1),
        .month = (int)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9),
        .hour = (int)(rest / 3600),
        .minute = (int)(rest / 60 % 60),
        .weekday = (int)((days % 7 + 11) % 7), /* 1970-01-01 was a Thursday */
    };

    d.year = year_of_era + era * 400 + (d.month <= 2);
    for (int m = 1; m < d.month; m++)
        d.year_day += month_days(d.year, m);
    d.year_day += d.day;
    return d;
}

#define DATE(name, expression)                                                                     \
    static double name(double v, double argument)                                                  \
    {                                                                                              \
        struct date d = date_from_seconds(v);                                                      \
        (void)argument; /* only round() has one */                                                 \
        return (double)(expression);                                                               \
    }
DATE(map_year, d.year)
DATE(map_month, d.month)
DATE(map_day_of_month, d.day)
DATE(map_day_of_week, d.weekday)
DATE(map_day_of_year, d.year_day)
DATE(map_days_in_month, month_days(d.year, d.month))
DATE(map_hour, d.hour)
DATE(map_minute, d.minute)
#undef DATE

/* By function_id; NULL for functions of another shape. */
static map_function *const map_functions[FUNCTION_COUNT] = {
    [FUNCTION_ABS] = map_abs,
    [FUNCTION_ACOS] = map_acos,
    [FUNCTION_ACOSH] = map_acosh,
    [FUNCTION_ASIN] = map_asin,
    [FUNCTION_ASINH] = map_asinh,
    [FUNCTION_ATAN] = map_atan,
    [FUNCTION_ATANH] = map_atanh,
    [FUNCTION_CEIL] = map_ceil,
    [FUNCTION_COS] = map_cos,
    [FUNCTION_COSH] = map_cosh,
    [FUNCTION_DAY_OF_MONTH] = map_day_of_month,
    [FUNCTION_DAY_OF_WEEK] = map_day_of_week,
    [FUNCTION_DAY_OF_YEAR] = map_day_of_year,
    [FUNCTION_DAYS_IN_MONTH] = map_days_in_month,
    [FUNCTION_DEG] = map_deg,
    [FUNCTION_EXP] = map_exp,
    [FUNCTION_FLOOR] = map_floor,
    [FUNCTION_HOUR] = map_hour,
    [FUNCTION_LN] = map_ln,
    [FUNCTION_LOG10] = map_log10,
    [FUNCTION_LOG2] = map_log2,
    [FUNCTION_MINUTE] = map_minute,
    [FUNCTION_MONTH] = map_month,
    [FUNCTION_RAD] = map_rad,
    [FUNCTION_ROUND] = map_round,
    [FUNCTION_SGN] = map_sgn,
    [FUNCTION_SIN] = map_sin,
    [FUNCTION_SINH] = map_sinh,
    [FUNCTION_SQRT] = map_sqrt,
    [FUNCTION_TAN] = map_tan,
    [FUNCTION_TANH] = map_tanh,
    [FUNCTION_YEAR] = map_year,
};

map_function *map_function_find(enum function_id id)
{
    return map_functions[id];
}
