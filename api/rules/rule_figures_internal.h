/*
 * What a request's rules with `purge` are about to delete, by the preview.
 */
#ifndef RIMSTONE_API_RULES_RULE_FIGURES_INTERNAL_H
#define RIMSTONE_API_RULES_RULE_FIGURES_INTERNAL_H

#include "api/config.h"
#include "api/http/http_internal.h"
#include "engine/preview.h"

struct rule_figures {
    size_t rule_count;             /* with `purge` */
    struct preview_result preview; /* of these; without its lists */
};

/* Before the rules are in effect. A text that is no rules gives none. Errors of querier_preview().
 */
MUST_USE enum err rule_figures_get(struct http_request *r, struct str text,
                                   struct rule_figures *out, struct errinfo *ei);
/* `,"purge":{...}`. */
void rule_figures_write(const struct rule_figures *f, struct byte_writer *w);
void rule_figures_log(const struct rule_figures *f);

#endif
