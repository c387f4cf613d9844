#include "tools/options_internal.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/time_text.h"

enum { OPTIONS_MAX = 40, HELP_ID = 1, FIRST_ID };

bool tool_number_parse(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    char *end = NULL;
    unsigned long long v;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || v < low || v > high)
        return false;
    *out = v;
    return true;
}

static bool take_number(const struct tool_option *o, const char *text)
{
    char *end = NULL;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !(v >= o->low && v <= o->high))
        return false;
    *o->number = v;
    return true;
}

static bool take_choice(const struct tool_option *o, const char *text)
{
    for (int i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(text, o->choices[i]) == 0) {
            *o->choice = i;
            return true;
        }
    }
    return false;
}

static bool take_one_more(struct tool_texts *texts, const char *text)
{
    if (texts->count == TOOL_TEXTS_MAX)
        return false;
    texts->items[texts->count++] = text;
    return true;
}

/* False when the value makes no sense. `text` is NULL for a flag. */
static bool take(const struct tool_option *o, const char *text)
{
    if (o->flag != NULL)
        *o->flag = true;
    if (text == NULL)
        return true;
    if (o->text != NULL)
        *o->text = text;
    if (o->texts != NULL)
        return take_one_more(o->texts, text);
    if (o->whole != NULL)
        return tool_number_parse(text, (uint64_t)o->low, (uint64_t)o->high, o->whole);
    if (o->number != NULL)
        return take_number(o, text);
    if (o->time_ms != NULL)
        return time_parse(str_from(text), o->time_ms, NULL) == ERR_OK;
    if (o->choice != NULL)
        return take_choice(o, text);
    return true;
}

static void table_build(const struct tool_command *c, struct option out[OPTIONS_MAX])
{
    ASSERT(c->option_count + 2 <= OPTIONS_MAX);
    for (size_t i = 0; i < c->option_count; i++)
        out[i] = (struct option){c->options[i].name,
                                 c->options[i].flag != NULL ? no_argument : required_argument, NULL,
                                 FIRST_ID + (int)i};
    out[c->option_count] = (struct option){"help", no_argument, NULL, HELP_ID};
    out[c->option_count + 1] = (struct option){NULL, 0, NULL, 0};
}

int tool_options_parse(const struct tool_command *c, int argc, char **argv, int *operands)
{
    struct option table[OPTIONS_MAX];
    int id;

    table_build(c, table);
    optind = 0; /* glibc: begin anew */
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads yet */
    while ((id = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        if (id == 'h' || id == HELP_ID) {
            fputs(c->usage, stdout);
            return 0;
        }
        if (id == '?')
            return 2; /* getopt has said why */
        if (!take(&c->options[id - FIRST_ID], optarg)) {
            fprintf(stderr, "%s: bad value \"%s\" for --%s\n", argv[0], optarg,
                    c->options[id - FIRST_ID].name);
            return 2;
        }
    }
    if (argc - optind < c->operand_min || argc - optind > c->operand_max) {
        fputs(c->usage, stderr);
        return 2;
    }
    *operands = optind;
    return -1;
}
