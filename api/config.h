/*
 * The configuration file: Prometheus's YAML, of which few keys mean something here: see
 * struct config. An existing prometheus.yml can be tried as it is.
 */
#ifndef RIMSTONE_API_CONFIG_H
#define RIMSTONE_API_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/drop_rules.h"
#include "engine/labels.h"
#include "engine/limits.h"

enum { CONFIG_BYTES_MAX = 4 << 20 };

struct config {
    struct arena arena;            /* owns what follows */
    struct labels external_labels; /* sorted */
    int64_t out_of_order_time_window_ms;
    int64_t evaluation_interval_ms; /* a subquery's default step */
    /* The file's word on retention, which replaces both flags; what it does not name is 0: none. */
    struct config_retention {
        bool is_given;
        int64_t time_ms;
        uint64_t size_bytes;
        const char *time, *size; /* as text; "0" where nothing is said */
    } retention;
    struct limits limits;         /* the defaults where nothing is said */
    struct drop_rule *drop_rules; /* in order; matchers owned */
    size_t drop_rule_count, drop_rule_capacity;
    const char *query_log_file; /* relative to the file's directory; NULL: none */
    const char *text;           /* the file, for status/config; "" without one */
    /* One for each thing of Prometheus's that has no effect here. */
    const char **warnings;
    size_t warning_count;
};

/* The defaults; nothing in the arena yet. */
void config_init(struct config *c);
void config_done(struct config *c);
/*
 * Reads `text` into *c, which is initialised. ERR_INVALID: `name:line:column: what is wrong`, for
 * broken YAML, unknown keys, wrong types and values, repeated keys and aliases.
 */
MUST_USE enum err config_parse(struct config *c, const char *name, struct str text,
                               struct errinfo *ei);
/* Reads one drop rule or a list of them, in JSON or YAML, into c->drop_rules. ERR_INVALID as above.
 */
MUST_USE enum err config_rules_parse(struct config *c, const char *name, struct str text,
                                     enum drop_rule_origin origin, struct errinfo *ei);
/* What a request or a file brings as rules of the API: the above, or the section drop_rules of a
 * whole configuration, of which the rest means nothing then. */
MUST_USE enum err config_rules_read(struct config *c, const char *name, struct str text,
                                    struct errinfo *ei);
/* Reads the file at `path` and parses it. */
MUST_USE enum err config_load(struct config *c, const char *path, struct errinfo *ei);

#endif
