#include "tools/rules_suggest_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "base/time_text.h"
#include "engine/labels.h"

/* "1.2 MB" and the like. */
static void bytes_text(double bytes, char out[32])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;

    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        bytes /= 1000;
    (void)snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
}

static void day_text(uint32_t seconds, char out[16])
{
    time_t at = (time_t)seconds;
    struct tm day;

    if (gmtime_r(&at, &day) == NULL || strftime(out, 16, "%Y-%m-%d", &day) == 0)
        out[0] = '\0';
}

/* A JSON string is one of YAML too, and says in ASCII what could break a line. */
static void string_print(struct str text)
{
    struct byte_writer w;

    writer_init(&w);
    json_write_string(&w, text);
    (void)fwrite(w.data, 1, w.size, stdout); /* looked at in the end */
    writer_done(&w);
}

/* What the rule drops: the name as a selector. */
static void selector_print(struct str name, struct arena *arena)
{
    const struct label item = {LABEL_METRIC_NAME, name};
    const struct labels labels = {1, &item};
    const char *text = labels_format_braces(&labels, arena);

    string_print(text == NULL ? name : str_from(text));
}

static void rule_print(const struct suggestions *s, const struct suggestion *at,
                       struct arena *arena)
{
    char bytes[32], day[16], comment[256];
    int size;

    bytes_text(at->bytes_per_day, bytes);
    size = snprintf(comment, sizeof comment, "%" PRIu64 " series, %.4g samples/s", at->series,
                    at->samples_per_second);
    if (at->bytes_per_day >= 0)
        size += snprintf(comment + size, sizeof comment - (size_t)size, ", %s a day", bytes);
    day_text(at->last_s != 0 ? at->last_s : s->since_s, day);
    (void)snprintf(comment + size, sizeof comment - (size_t)size,
                   at->last_s != 0 ? "; last queried %s" : "; not queried since %s", day);
    printf("  - name: ");
    struct byte_writer name;

    writer_init(&name);
    writer_printf(&name, "unused-%.*s", STR_ARGS(at->name));
    string_print((struct str){(const char *)name.data, name.size});
    writer_done(&name);
    printf("\n    comment: ");
    string_print(str_from(comment));
    printf("\n    drop: ");
    selector_print(at->name, arena);
    putchar('\n');
}

bool suggestions_print_rules(const struct suggestions *s, struct arena *arena)
{
    uint64_t series = 0;
    double rate = 0;

    for (size_t i = 0; i < s->count; i++) {
        series += s->items[i].series;
        rate += s->items[i].samples_per_second;
    }
    printf("# %zu of %zu metrics were not read for %s: %" PRIu64 " series, %.4g samples/s.\n",
           s->count, s->metric_count, s->unused_for, series, rate);
    if (s->is_short) {
        char day[16];

        day_text(s->since_s, day);
        printf("# Usage is known since %s only.\n", day);
    }
    puts(s->count == 0 ? "drop_rules: []" : "drop_rules:");
    for (size_t i = 0; i < s->count; i++)
        rule_print(s, &s->items[i], arena);
    return fflush(stdout) == 0 && ferror(stdout) == 0;
}

bool suggestions_print_json(const struct suggestions *s)
{
    printf("{\"metrics\":%zu,\"usageSince\":%" PRIu32 ",\"unused\":[", s->metric_count, s->since_s);
    for (size_t i = 0; i < s->count; i++) {
        const struct suggestion *at = &s->items[i];

        printf("%s\n{\"name\":", i == 0 ? "" : ",");
        string_print(at->name);
        printf(",\"series\":%" PRIu64 ",\"samplesPerSecond\":%.17g", at->series,
               at->samples_per_second);
        if (at->bytes_per_day >= 0)
            printf(",\"bytesPerDay\":%.0f", at->bytes_per_day);
        printf(",\"lastQueried\":%" PRIu32 "}", at->last_s);
    }
    puts("]}");
    return fflush(stdout) == 0 && ferror(stdout) == 0;
}
