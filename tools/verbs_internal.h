/*
 * A program whose first argument is a verb: `rimtool`, `rimtool rules`.
 */
#ifndef RIMSTONE_TOOLS_VERBS_INTERNAL_H
#define RIMSTONE_TOOLS_VERBS_INTERNAL_H

#include <stddef.h>

struct verb {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* NULL: known, not built yet */
};

/* Runs the verb argv[1] on the arguments from there on, or prints the usage; the exit code. */
int verbs_run(const char *program, const struct verb *verbs, size_t count, int argc, char **argv);

#endif
