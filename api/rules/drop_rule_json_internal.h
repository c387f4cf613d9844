/*
 * Drop rules as JSON, in the form that the configuration has them in.
 */
#ifndef RIMSTONE_API_RULES_DROP_RULE_JSON_INTERNAL_H
#define RIMSTONE_API_RULES_DROP_RULE_JSON_INTERNAL_H

#include "base/bytes.h"
#include "engine/drop_rules.h"

/* {"name":...,"comment":...,"purge":true,<what it does>}: what config_rules_parse() reads back. */
void drop_rule_write(struct byte_writer *w, const struct drop_rule *r);
/* What it does alone: {"drop":"..."} or the fields of a relabel_config that are not the default. */
void drop_rule_write_what(struct byte_writer *w, const struct drop_rule *r);

#endif
