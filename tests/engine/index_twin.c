/*
 * Random label sets and matchers, and matching in the most obvious way.
 */
#include "tests/engine/index_twin.h"

#include <string.h>

#include "base/regex.h"

/* In byte order, with names on both sides of __name__. */
static const char *const NAMES[] = {"DCGM", "UUID",     "__name__", "a",
                                    "b.c",  "instance", "le",       "\xc3\xa9"};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0] };

static struct str random_value(struct test_random *r, struct arena *arena, size_t spread)
{
    static const char *const SHARED[] = {"x", "x1", "x2", "y", "xy", "\xc3\xa9", "x.1", "1"};
    char *text;

    if (test_random_below(r, 3) != 0)
        return str_from(SHARED[test_random_below(r, sizeof SHARED / sizeof SHARED[0])]);
    text = arena_printf(arena, "x%llu", (unsigned long long)test_random_below(r, spread));
    CHECK(text != NULL);
    return str_from(text);
}

void twin_series_random(struct test_random *r, struct arena *arena, size_t spread, bool complete,
                        uint32_t number, struct twin_series *out)
{
    size_t n = 0;

    for (size_t i = 0; i < NAME_COUNT; i++) {
        struct str value;

        /* The metric name is mostly there, other labels half of the time. */
        if (test_random_below(r, i == 2 ? 10 : 2) == 0 && !(complete && i == 2))
            continue;
        value = random_value(r, arena, spread);
        out->items[n++] = (struct label){str_from(NAMES[i]), value};
    }
    if (complete) {
        char *text = arena_printf(arena, "n%u", number);

        CHECK(text != NULL);
        if (n == 0 || !str_equal(out->items[n - 1].name, str_from(NAMES[NAME_COUNT - 1])))
            n++;
        out->items[n - 1] = (struct label){str_from(NAMES[NAME_COUNT - 1]), str_from(text)};
    }
    out->labels = (struct labels){n, out->items};
}

void twin_matcher_random(struct test_random *r, struct arena *arena, size_t spread,
                         struct twin_matcher *out)
{
    static const char *const PATTERNS[] = {
        "",        ".*",     ".+",    "x.*",        "x1|x2", "x1|",  "x(1|2)", "|x", ".*1",
        ".+1",     "x.+",    "x?y?",  "[xy][0-9]*", "x\\d",  "none", "none|",  ".",  "..",
        ".*\\..*", "x1.*|y", "(?i)X", "x.",         "()|y",  "n.*",  "n[0-4]+"};
    enum matcher_kind kind = (enum matcher_kind)test_random_below(r, 4);
    struct str name = test_random_below(r, 20) == 0
                          ? STR_LITERAL("unknown")
                          : str_from(NAMES[test_random_below(r, NAME_COUNT)]);
    struct str value =
        test_random_below(r, 6) == 0 ? STR_LITERAL("") : random_value(r, arena, spread);
    struct errinfo ei = {0};

    out->regex = NULL;
    if (kind == MATCHER_REGEX || kind == MATCHER_NOT_REGEX) {
        value = str_from(PATTERNS[test_random_below(r, sizeof PATTERNS / sizeof PATTERNS[0])]);
        CHECK_OK(regex_compile(value, &out->regex, &ei), &ei);
    }
    CHECK_OK(matcher_init(&out->matcher, kind, name, value, arena, &ei), &ei);
}

void twin_matcher_done(struct twin_matcher *m)
{
    regex_free(m->regex);
    matcher_done(&m->matcher);
}

static struct str value_of(const struct labels *labels, struct str name)
{
    for (size_t i = 0; i < labels->count; i++) {
        if (str_equal(labels->items[i].name, name))
            return labels->items[i].value;
    }
    return (struct str){"", 0};
}

bool twin_matches(const struct twin_matcher *matchers, size_t count, const struct labels *labels)
{
    for (size_t i = 0; i < count; i++) {
        const struct matcher *m = &matchers[i].matcher;
        struct str value = value_of(labels, m->name);
        bool equal = matchers[i].regex != NULL ? regex_match(matchers[i].regex, value)
                                               : str_equal(value, m->value);

        if (equal != (m->kind == MATCHER_EQUAL || m->kind == MATCHER_REGEX))
            return false;
    }
    return true;
}
