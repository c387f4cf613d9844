/*
 * UTF-8 and the few facts about characters that the product needs, as Go has them, since label
 * rewriting must agree with Prometheus on any text.
 */
#ifndef RIMSTONE_BASE_UNICODE_H
#define RIMSTONE_BASE_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

enum { UNICODE_REPLACEMENT = 0xFFFD };

/* Decodes the first character of a text that is not empty, and tells how many bytes it takes.
 * UNICODE_REPLACEMENT and width 1 for bytes that are no UTF-8. */
uint32_t utf8_decode(struct str text, unsigned *width);
/* Appends a code point. */
void utf8_write(struct byte_writer *w, uint32_t c);
/* Go's unicode.IsLetter() or unicode.IsDigit(). */
bool unicode_is_letter_or_digit(uint32_t c);
/* Go's unicode.ToLower() and unicode.ToUpper(): one character for one. */
uint32_t unicode_lower(uint32_t c);
uint32_t unicode_upper(uint32_t c);
/* Append the text as Go's strings.ToLower() and strings.ToUpper() make it; each byte that is no
 * UTF-8 becomes a UNICODE_REPLACEMENT. */
void unicode_lower_write(struct byte_writer *w, struct str text);
void unicode_upper_write(struct byte_writer *w, struct str text);

#endif
