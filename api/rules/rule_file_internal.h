/*
 * Where rules of the API are kept: docs/formats/drop-rules.md.
 */
#ifndef RIMSTONE_API_RULES_RULE_FILE_INTERNAL_H
#define RIMSTONE_API_RULES_RULE_FILE_INTERNAL_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"

#define RULE_FILE_PATH "drop_rules"
enum { RULE_FILE_TEXT_MAX = 64 << 20 };

/* Replaces the file; durable on success. On failure the old or the new one is there. */
MUST_USE enum err rule_file_write(struct fs *fs, struct str text, struct errinfo *ei);
/* Appends the text to `out`; nothing without a file. ERR_CORRUPT with place and reason,
 * ERR_UNSUPPORTED of a newer version. */
MUST_USE enum err rule_file_read(struct fs *fs, struct byte_writer *out, struct errinfo *ei);
/* Keeps a damaged file under another name. */
MUST_USE enum err rule_file_set_aside(struct fs *fs, struct errinfo *ei);

#endif
