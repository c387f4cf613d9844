/*
 * Text of doubles exactly as Go's strconv prints and reads it, behind one C++ shim
 * (double-conversion) and independent of the locale.
 */
#ifndef RIMSTONE_BASE_FLOAT_TEXT_H
#define RIMSTONE_BASE_FLOAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum {
    FLOAT_TEXT_SIZE = 352, /* longest 'f' form of a double, with room for a NUL */
    UINT_TEXT_SIZE = 20,   /* of an integer, without one */
};

/* Decimal digits of v, no NUL; their number. */
size_t uint_format(uint64_t v, char out[UINT_TEXT_SIZE]);

/* All write at most FLOAT_TEXT_SIZE bytes with a final NUL and return the length.
 * NaN, +Inf and -Inf print as those words. */
/* strconv.FormatFloat(v, 'f', -1, 64): shortest digits, no exponent. */
size_t float_format_f(double v, char *out);
/* strconv.FormatFloat(v, 'e', -1, 64) */
size_t float_format_e(double v, char *out);
/* strconv.FormatFloat(v, 'g', -1, 64), which is fmt's %v: 'e' if exponent < -4 || exponent >= 6. */
size_t float_format_g(double v, char *out);
/* Sample values in Prometheus's JSON: 'f', or 'e' when |v| < 1e-6 or |v| >= 1e21. */
size_t float_format_json(double v, char *out);
/* Go's strconv.ParseFloat(text, 64): decimal and hexadecimal floats, "inf", "+Inf", "infinity" and
 * "nan" (Go's bits) in any case. No underscores. False when the text is not a number; overflow
 * gives +-Inf and true. */
bool float_parse(struct str text, double *out);
/* 0 to 15 for a hexadecimal digit of either case, -1 for any other character. */
static inline int hex_digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

#endif
