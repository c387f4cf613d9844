#include "base/time_text.h"

#include <math.h>
#include <string.h>

#include "base/float_text.h"

/* Rounds to the nearest millisecond and clamps to the range of "no bound". */
static int64_t seconds_to_ms(double seconds)
{
    double ms = round(seconds * 1000);

    if (ms <= (double)TIME_MIN_MS)
        return TIME_MIN_MS;
    if (ms >= (double)TIME_MAX_MS)
        return TIME_MAX_MS;
    return (int64_t)ms;
}

/* Reads exactly `digits` decimal digits at *pos. */
static bool digits_read(struct str text, size_t *pos, size_t digits, int64_t *out)
{
    int64_t v = 0;

    if (text.size - *pos < digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        char c = text.data[*pos + i];

        if (c < '0' || c > '9')
            return false;
        v = v * 10 + (c - '0');
    }
    *pos += digits;
    *out = v;
    return true;
}

static bool char_read(struct str text, size_t *pos, const char *any_of)
{
    if (*pos >= text.size || text.data[*pos] == '\0' || strchr(any_of, text.data[*pos]) == NULL)
        return false;
    (*pos)++;
    return true;
}

/* Days from 1970-01-01 in the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level
 * date algorithms"). */
static int64_t days_from_civil(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

    return era * 146097 + day_of_era - 719468;
}

static int64_t days_in_month(int64_t year, int64_t month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && leap);
}

/* 2006-01-02T15:04:05.999999999Z07:00 as Go's time.Parse(RFC3339Nano) takes it. */
static bool rfc3339_parse(struct str text, int64_t *out_ms)
{
    int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, ms = 0;
    int64_t zone_hour = 0, zone_minute = 0, zone_s = 0;
    size_t pos = 0;

    if (!digits_read(text, &pos, 4, &year) || !char_read(text, &pos, "-") ||
        !digits_read(text, &pos, 2, &month) || !char_read(text, &pos, "-") ||
        !digits_read(text, &pos, 2, &day) || !char_read(text, &pos, "T") ||
        !digits_read(text, &pos, 2, &hour) || !char_read(text, &pos, ":") ||
        !digits_read(text, &pos, 2, &minute) || !char_read(text, &pos, ":") ||
        !digits_read(text, &pos, 2, &second))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) || hour > 23 ||
        minute > 59 || second > 59)
        return false;
    if (char_read(text, &pos, ".,")) {
        int64_t scale = 100, digit = 0;
        size_t first = pos;

        while (digits_read(text, &pos, 1, &digit)) {
            ms += digit * scale;
            scale /= 10;
        }
        if (pos == first)
            return false;
    }
    if (!char_read(text, &pos, "Z")) {
        bool west = pos < text.size && text.data[pos] == '-';

        if (!char_read(text, &pos, "+-") || !digits_read(text, &pos, 2, &zone_hour) ||
            !char_read(text, &pos, ":") || !digits_read(text, &pos, 2, &zone_minute) ||
            zone_hour > 24 || zone_minute > 60)
            return false;
        zone_s = (zone_hour * 60 + zone_minute) * 60;
        zone_s = west ? -zone_s : zone_s;
    }
    if (pos != text.size)
        return false;
    *out_ms = ((days_from_civil(year, month, day) * 24 + hour) * 60 + minute) * 60000 +
              (second - zone_s) * 1000 + ms;
    return true;
}

bool seconds_parse(struct str text, double *out)
{
    return float_parse(text, out) && !isnan(*out) &&
           !(isinf(*out) && memchr(text.data, 'n', text.size) == NULL &&
             memchr(text.data, 'N', text.size) == NULL);
}

enum err time_parse(struct str text, int64_t *out_ms, struct errinfo *ei)
{
    /* What Go clients print for their smallest and largest time. */
    static const struct str min_text = STR_LITERAL("-292273086-05-16T16:47:06Z");
    static const struct str max_text = STR_LITERAL("292277025-08-18T07:12:54.999999999Z");
    double seconds = 0;

    if (seconds_parse(text, &seconds)) {
        *out_ms = seconds_to_ms(seconds);
        return ERR_OK;
    }
    if (rfc3339_parse(text, out_ms))
        return ERR_OK;
    if (str_equal(text, min_text)) {
        *out_ms = TIME_MIN_MS;
        return ERR_OK;
    }
    if (str_equal(text, max_text)) {
        *out_ms = TIME_MAX_MS;
        return ERR_OK;
    }
    return errinfo_set(ei, ERR_INVALID, 0, "cannot parse \"%.*s\" to a valid timestamp",
                       STR_ARGS(text));
}
