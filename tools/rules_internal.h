/* The verbs of `rimtool rules`; each takes the arguments behind its name and returns the exit code:
 * 0 done, 1 failed, 2 wrong use. */
#ifndef RIMSTONE_TOOLS_RULES_INTERNAL_H
#define RIMSTONE_TOOLS_RULES_INTERNAL_H

#include <stdbool.h>

#include "base/bytes.h"

int rules_add(int argc, char **argv);
int rules_check(int argc, char **argv);
int rules_list(int argc, char **argv);
int rules_preview(int argc, char **argv);
int rules_remove(int argc, char **argv);
int rules_suggest(int argc, char **argv);

/* A whole file, or standard input for "-", in `out`. False when it cannot be read: why is printed.
 */
bool rules_file_read(const char *path, struct byte_writer *out);

#endif
