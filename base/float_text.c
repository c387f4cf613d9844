/*
 * Go's notations around the shortest digits, which double-conversion finds (Steele and White's
 * problem; Loitsch's Grisu3, PLDI 2010). strconv prints digits in three shapes:
 *   'f'  all digits around a decimal point, no exponent
 *   'e'  one digit, the rest after the point, an exponent of at least two digits with sign
 *   'g'  'e' when the exponent is below -4 or, as strconv has it for the shortest digits, 6 or more
 *        (1e+06, but 100000); else 'f'
 */
#include "base/float_text.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/float_text_shim_internal.h"

/* The shortest digits of a finite double. value = 0.DIGITS * 10^point */
struct decimal {
    char digits[FLOAT_DIGITS_SIZE];
    int digit_count, point;
    bool negative;
};

/* Digits of an integer above 0, without the zeros at its end. */
static void decimal_of_integer(uint64_t v, int exponent, struct decimal *out)
{
    char reversed[FLOAT_DIGITS_SIZE];
    int count = 0, kept;

    for (; v % 10 == 0; v /= 10)
        exponent++;
    for (kept = 0; v > 0; v /= 10)
        reversed[kept++] = (char)('0' + v % 10);
    for (; count < kept; count++)
        out->digits[count] = reversed[kept - 1 - count];
    out->digit_count = kept;
    out->point = kept + exponent;
}

/*
 * Most values are integers or have a few decimals. Two decimals of at most 15 digits never stand
 * for the same double: so one that reads back as v, as the quotient of two exact numbers rounded
 * once does, is the shortest.
 */
static bool short_find(double v, uint64_t *out_whole, int *out_places)
{
    static const struct {
        double scale;
        int places;
    } tries[] = {{1, 0}, {1e3, 3}, {1e6, 6}};

    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        double scaled = v * tries[i].scale;

        if (!(scaled < 1e15))
            return false;
        uint64_t whole = (uint64_t)(scaled + 0.5);
        if (whole > 0 && whole < UINT64_C(1000000000000000) &&
            (double)whole / tries[i].scale == v) {
            *out_whole = whole;
            *out_places = tries[i].places;
            return true;
        }
    }
    return false;
}

static struct decimal decimal_of(double v)
{
    struct decimal d;
    uint64_t whole;
    int places;

    d.negative = signbit(v) != 0;
    if (short_find(fabs(v), &whole, &places)) {
        decimal_of_integer(whole, -places, &d);
        return d;
    }
    d.digit_count = (int)float_shim_shortest(v, d.digits, &d.point);
    return d;
}

static size_t put_text(char *out, const char *text)
{
    size_t n = strlen(text);

    memcpy(out, text, n + 1);
    return n;
}

/* NaN and infinities; 0 when v is finite. */
static size_t put_special(double v, char *out)
{
    if (isnan(v))
        return put_text(out, "NaN");
    if (isinf(v))
        return put_text(out, v > 0 ? "+Inf" : "-Inf");
    return 0;
}

static char *put_zeros(char *p, int count)
{
    for (; count > 0; count--)
        *p++ = '0';
    return p;
}

static char *put_digits(char *p, const char *digits, int count)
{
    if (count <= 0)
        return p;
    memcpy(p, digits, (size_t)count);
    return p + count;
}

static size_t put_f(const struct decimal *d, char *out)
{
    char *p = out;
    int whole = d->point < d->digit_count ? d->point : d->digit_count; /* digits before the point */

    if (d->negative)
        *p++ = '-';
    if (d->point <= 0)
        *p++ = '0';
    p = put_digits(p, d->digits, whole);
    p = put_zeros(p, d->point - d->digit_count);
    if (d->point < d->digit_count) {
        *p++ = '.';
        p = put_zeros(p, -d->point);
        whole = whole < 0 ? 0 : whole;
        p = put_digits(p, d->digits + whole, d->digit_count - whole);
    }
    *p = '\0';
    return (size_t)(p - out);
}

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849"
                                  "50515253545556575859606162636465666768697071727374"
                                  "75767778798081828384858687888990919293949596979899";

/* Writes the digits of v so that they end at `end`; where they begin. */
static char *put_digits_before(char *end, uint64_t v)
{
    for (; v >= 100; v /= 100)
        memcpy(end -= 2, digit_pairs + v % 100 * 2, 2);
    if (v >= 10)
        memcpy(end -= 2, digit_pairs + v * 2, 2);
    else
        *--end = (char)('0' + v);
    return end;
}

size_t uint_format(uint64_t v, char out[UINT_TEXT_SIZE])
{
    char text[UINT_TEXT_SIZE], *end = text + sizeof text, *first = put_digits_before(end, v);

    memcpy(out, first, (size_t)(end - first));
    return (size_t)(end - first);
}

/* The text that put_f() gives, straight from the integer; 0 for other numbers than zero and those
 * of short_find(). */
static size_t put_short(double v, char *out)
{
    char *p = out;
    uint64_t whole = 0;
    int places = 0;

    if (v != 0 && !short_find(fabs(v), &whole, &places))
        return 0;
    if (signbit(v))
        *p++ = '-';
    if (places == 0) {
        p += uint_format(whole, p);
    } else {
        uint64_t scale = places == 3 ? 1000 : 1000000;
        char digits[UINT_TEXT_SIZE];

        p += uint_format(whole / scale, p);
        (void)uint_format(scale + whole % scale, digits); /* a one in front keeps the zeros */
        *p++ = '.';
        memcpy(p, digits + 1, (size_t)places);
        p += places;
        while (p[-1] == '0')
            p--; /* ends at a digit: a whole number has no places */
    }
    *p = '\0';
    return (size_t)(p - out);
}

static size_t put_e(const struct decimal *d, char *out)
{
    char *p = out;
    int exponent = d->point - 1; /* 0 for zero: its point is 1 */

    if (d->negative)
        *p++ = '-';
    *p++ = d->digits[0];
    if (d->digit_count > 1) {
        *p++ = '.';
        p = put_digits(p, d->digits + 1, d->digit_count - 1);
    }
    *p++ = 'e';
    *p++ = exponent < 0 ? '-' : '+';
    exponent = exponent < 0 ? -exponent : exponent;
    if (exponent >= 100)
        *p++ = (char)('0' + exponent / 100);
    *p++ = (char)('0' + exponent / 10 % 10);
    *p++ = (char)('0' + exponent % 10);
    *p = '\0';
    return (size_t)(p - out);
}

size_t float_format_f(double v, char *out)
{
    size_t n = put_short(v, out);

    if (n == 0)
        n = put_special(v, out);
    if (n > 0)
        return n;
    struct decimal d = decimal_of(v);
    return put_f(&d, out);
}

size_t float_format_e(double v, char *out)
{
    size_t n = put_special(v, out);

    if (n > 0)
        return n;
    struct decimal d = decimal_of(v);
    return put_e(&d, out);
}

size_t float_format_g(double v, char *out)
{
    size_t n = put_special(v, out);

    if (n > 0)
        return n;
    struct decimal d = decimal_of(v);
    int exponent = d.point - 1;
    return exponent < -4 || exponent >= 6 ? put_e(&d, out) : put_f(&d, out);
}

size_t float_format_json(double v, char *out)
{
    double size = fabs(v);

    return size != 0 && (size < 1e-6 || size >= 1e21) ? float_format_e(v, out)
                                                      : float_format_f(v, out);
}

/* Parsing. A cursor over the text; the sign has been taken off. */
struct float_text {
    const char *pos, *end;
};

static char lower(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c + ('a' - 'A'));
    return c;
}

/* The whole rest is `word`, in any case. */
static bool rest_is(const struct float_text *t, const char *word)
{
    const char *p = t->pos;

    for (; *word != '\0'; word++, p++)
        if (p == t->end || lower(*p) != *word)
            return false;
    return p == t->end;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(struct float_text *t)
{
    const char *start = t->pos;

    while (t->pos < t->end && is_digit(*t->pos))
        t->pos++;
    return (size_t)(t->pos - start);
}

/* Sign and at least one digit, to the end of the text. The value stops growing where every double
 * has long become 0 or infinity. */
static bool parse_exponent(struct float_text *t, int64_t *out)
{
    const int64_t exponent_max = INT64_C(1) << 40;
    bool negative = false;
    int64_t v = 0;

    if (t->pos < t->end && (*t->pos == '+' || *t->pos == '-'))
        negative = *t->pos++ == '-';
    const char *start = t->pos;
    for (; t->pos < t->end && is_digit(*t->pos); t->pos++)
        if (v < exponent_max)
            v = 10 * v + (int64_t)(*t->pos - '0');
    *out = negative ? -v : v;
    return t->pos > start && t->pos == t->end;
}

static bool parse_decimal(struct float_text t, double *out)
{
    struct float_text all = t;
    size_t digits = skip_digits(&t);
    int64_t exponent;

    if (t.pos < t.end && *t.pos == '.') {
        t.pos++;
        digits += skip_digits(&t);
    }
    if (digits == 0 || (size_t)(all.end - all.pos) > INT_MAX)
        return false;
    if (t.pos < t.end) {
        if (lower(*t.pos++) != 'e' || !parse_exponent(&t, &exponent))
            return false;
    }
    *out = float_shim_parse(all.pos, (size_t)(all.end - all.pos));
    return true;
}

/* mantissa * 2^exponent, rounded to nearest even once. `sticky`: bits below the mantissa were not
 * all zero. */
static double binary_to_double(uint64_t mantissa, int64_t exponent, bool sticky)
{
    if (mantissa == 0)
        return 0;
    int shift = __builtin_clzll(mantissa);
    mantissa <<= shift;
    exponent -= shift;
    /* The value is in [2^(exponent + 63), 2^(exponent + 64)). Keep 53 bits, fewer below 2^-1022. */
    if (exponent + 63 > 1023)
        return INFINITY;
    if (exponent + 64 < -1074)
        return 0;
    int64_t drop = exponent + 63 < -1022 ? -1074 - exponent : 11;
    uint64_t kept = drop < 64 ? mantissa >> drop : 0;
    uint64_t half = UINT64_C(1) << (drop - 1);
    uint64_t rest = drop < 64 ? mantissa & ((half << 1) - 1) : mantissa;
    if (rest > half || (rest == half && (sticky || (kept & 1) != 0)))
        kept++;
    return ldexp((double)kept, (int)(exponent + drop)); /* exact: kept has at most 54 bits */
}

/* Behind "0x": hex digits with an optional point, then a mandatory binary exponent. */
static bool parse_hex(struct float_text t, double *out)
{
    uint64_t mantissa = 0;
    int64_t scale = 0, exponent;
    bool any = false, point = false, sticky = false;

    for (; t.pos < t.end; t.pos++) {
        int digit = hex_digit_value(*t.pos);

        if (*t.pos == '.' && !point) {
            point = true;
            continue;
        }
        if (digit < 0)
            break;
        any = true;
        if (mantissa >> 60 == 0) {
            mantissa = mantissa << 4 | (uint64_t)digit;
            scale -= point ? 4 : 0;
        } else {
            sticky = sticky || digit != 0;
            scale += point ? 0 : 4;
        }
    }
    if (!any || t.pos == t.end || lower(*t.pos++) != 'p' || !parse_exponent(&t, &exponent))
        return false;
    *out = binary_to_double(mantissa, scale + exponent, sticky);
    return true;
}

bool float_parse(struct str text, double *out)
{
    struct float_text t = {text.data, text.size == 0 ? text.data : text.data + text.size};
    bool negative = false;
    double v;

    if (text.size == 0)
        return false;
    if (rest_is(&t, "nan")) {                                  /* Go takes no sign here */
        *out = double_from_bits(UINT64_C(0x7ff8000000000001)); /* Go's math.NaN(), bit for bit */
        return true;
    }
    if (*t.pos == '+' || *t.pos == '-')
        negative = *t.pos++ == '-';
    if (rest_is(&t, "inf") || rest_is(&t, "infinity")) {
        v = INFINITY;
    } else if (t.end - t.pos >= 2 && t.pos[0] == '0' && lower(t.pos[1]) == 'x') {
        t.pos += 2;
        if (!parse_hex(t, &v))
            return false;
    } else if (!parse_decimal(t, &v)) {
        return false;
    }
    *out = negative ? -v : v;
    return true;
}
