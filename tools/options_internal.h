/*
 * The options of a verb as a table: each row says what an option takes and where that goes.
 */
#ifndef RIMSTONE_TOOLS_OPTIONS_INTERNAL_H
#define RIMSTONE_TOOLS_OPTIONS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOOL_TEXTS_MAX = 64 };

/* The values of an option that may be repeated. Borrowed from argv. */
struct tool_texts {
    const char *items[TOOL_TEXTS_MAX];
    size_t count;
};

/* Exactly one of the pointers is set. What the option does not name keeps its value. */
struct tool_option {
    const char *name; /* without the dashes */
    bool *flag;       /* takes no value: becomes true */
    const char **text;
    struct tool_texts *texts;
    uint64_t *whole;  /* within [low, high] */
    double *number;   /* within [low, high] */
    int64_t *time_ms; /* Unix seconds or RFC 3339, read as milliseconds */
    int *choice;      /* the place of the value in `choices` */
    double low, high;
    const char *choices[3]; /* NULL behind the last */
};

struct tool_command {
    const char *usage; /* all of --help */
    const struct tool_option *options;
    size_t option_count;
    int operand_min, operand_max; /* arguments behind the options */
};

#define TOOL_OPERANDS_ANY 1000000 /* for operand_max */

/* A whole number within [low, high]; false for anything else. */
bool tool_number_parse(const char *text, uint64_t low, uint64_t high, uint64_t *out);
/* Reads the arguments; argv[0] is the verb as complaints begin with it ("rimtool verify").
 * *operands then is the first argument that is no option (argv is put in that order). Returns -1 to
 * go on, otherwise the exit code: 0 after --help, 2 after wrong use, whose reason has been printed.
 */
int tool_options_parse(const struct tool_command *c, int argc, char **argv, int *operands);

#endif
