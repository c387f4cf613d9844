/*
 * The configuration file: Prometheus's YAML, of which two keys and the evaluation interval mean
 * something here. An existing prometheus.yml can be tried as it is.
 */
#ifndef RIMSTONE_API_CONFIG_H
#define RIMSTONE_API_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"

enum { CONFIG_BYTES_MAX = 4 << 20 };

struct config {
    struct arena arena;            /* owns what follows */
    struct labels external_labels; /* sorted */
    int64_t out_of_order_time_window_ms;
    int64_t evaluation_interval_ms; /* a subquery's default step */
    const char *text;               /* the file, for status/config; "" without one */
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
/* Reads the file at `path` and parses it. */
MUST_USE enum err config_load(struct config *c, const char *path, struct errinfo *ei);

#endif
