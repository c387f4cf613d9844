/*
 * The C interface of the C++ shim over double-conversion. Plain types only, since C++ cannot read
 * our other headers.
 */
#ifndef RIMSTONE_BASE_FLOAT_TEXT_SHIM_INTERNAL_H
#define RIMSTONE_BASE_FLOAT_TEXT_SHIM_INTERNAL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FLOAT_DIGITS_SIZE = 18 }; /* 17 digits and a NUL */

/* The shortest decimal digits that read back as the finite |v|: digits[0..returned) stand for
 * 0.DIGITS * 10^*out_point. Zero is "0" with point 1. */
size_t float_shim_shortest(double v, char digits[FLOAT_DIGITS_SIZE], int *out_point);

/* The double nearest to a decimal number "digits[.digits][e[sign]digits]" without a sign; the
 * caller has checked the syntax. Overflow gives infinity. */
double float_shim_parse(const char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
