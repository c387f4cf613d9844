/*
 * What the verbs share that look at a data directory: opening it, and the words they print.
 */
#ifndef RIMSTONE_TOOLS_DATA_DIR_INTERNAL_H
#define RIMSTONE_TOOLS_DATA_DIR_INTERNAL_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"

/* Opens an existing directory; nothing is created. ERR_NOT_FOUND. */
MUST_USE enum err data_dir_open(const char *dir, struct fs **out, struct errinfo *ei);
/* Why `rimtool VERB` could not read its directory, and what helps against a lock. */
void data_dir_failure_print(const char *verb, const struct errinfo *ei);
/* Writes everything to standard output; false, and a message, when that fails. */
bool tool_output(const char *verb, const struct byte_writer *w);

/* `,"name":123`, without the comma behind an opening bracket. */
void json_field_u64(struct byte_writer *w, const char *name, uint64_t v);
void json_field_number(struct byte_writer *w, const char *name, double v);
void json_field_text(struct byte_writer *w, const char *name, const char *text);
/* `,"name":` */
void json_field(struct byte_writer *w, const char *name);

#endif
