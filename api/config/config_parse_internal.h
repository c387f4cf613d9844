/*
 * The configuration's parser as its sections see it: the current event, and what may be done with
 * it. A section's function is called with its value's first event and leaves its last one.
 */
#ifndef RIMSTONE_API_CONFIG_CONFIG_PARSE_INTERNAL_H
#define RIMSTONE_API_CONFIG_CONFIG_PARSE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yaml.h>

#include "api/config.h"
#include "base/bytes.h"
#include "base/err.h"

struct config_parser {
    yaml_parser_t yaml;
    yaml_event_t event; /* the current one */
    bool has_event;
    const char *name; /* of the file, for errors */
    struct config *config;
    struct errinfo *ei;
    /* Of the limit that is being read. */
    struct limit *limit;
    struct str limit_label;
    struct config_rule *rule; /* that is being read */
    enum drop_rule_origin rule_origin;
};

/* What may stand under a key. */
struct config_key {
    const char *name;
    enum err (*parse)(struct config_parser *p, const struct config_key *key);
};

/* ERR_INVALID: `name:line:column: what is wrong`. */
enum err config_wrong_at(struct config_parser *p, const yaml_mark_t *at, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* Steps to the next event. */
MUST_USE enum err config_next(struct config_parser *p);
/* Text of the current event, a scalar, until the next step. */
struct str config_scalar_text(const struct config_parser *p);
/* A key without a value ("global:") is a plain empty scalar. */
bool config_is_null(const struct config_parser *p);
MUST_USE enum err config_warning_add(struct config_parser *p, const struct config_key *key,
                                     const char *why);
/* Steps over the node of the current event. */
MUST_USE enum err config_skip_node(struct config_parser *p);
/* For sections of Prometheus's that do nothing here: a warning, and the node is stepped over. */
MUST_USE enum err config_key_ignored(struct config_parser *p, const struct config_key *key);
/* A mapping whose keys are all in `keys`, at most 64 of them, the last with a NULL name. */
MUST_USE enum err config_mapping_parse(struct config_parser *p, const char *what,
                                       const struct config_key *keys);
/* A duration of 0 or more, in milliseconds. */
MUST_USE enum err config_duration_parse(struct config_parser *p, const struct config_key *key,
                                        int64_t *out);
/* The current scalar, which must be UTF-8, copied into the configuration's arena. `what` names it
 * in errors. */
MUST_USE enum err config_scalar_copy(struct config_parser *p, const char *what, struct str *out);

/* ---- sections ---- */

/* `drop_rules` (config_drop_rules.c), and a request's rule or list of rules. */
MUST_USE enum err config_drop_rules_parse(struct config_parser *p, const struct config_key *key);
MUST_USE enum err config_rule_list_parse(struct config_parser *p);
/* JSON text as YAML: what YAML's escapes cannot say, two halves of a UTF-16 pair, becomes the
 * character. Nothing else changes, so that positions in errors are right, but behind such a pair on
 * its line. */
void config_json_plain(struct str text, struct byte_writer *out);
/* Frees the matchers of a rule. */
void config_rule_done(struct drop_rule *r);
/* `limits` (config_limits.c). */
MUST_USE enum err config_limits_parse(struct config_parser *p, const struct config_key *key);

#endif
