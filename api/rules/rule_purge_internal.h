/*
 * What drop rules with `purge` do to what is stored: a purge of the engine for each selection
 * (rule_selector_internal.h), which goes with the last rule that has it. Its text is the purge's
 * key.
 */
#ifndef RIMSTONE_API_RULES_RULE_PURGE_INTERNAL_H
#define RIMSTONE_API_RULES_RULE_PURGE_INTERNAL_H

#include "api/rule_book.h"

/* ERR_INVALID when a rule of the set would have to be purged now and cannot be, since labels are
 * rewritten behind it that it reads. */
MUST_USE enum err rule_purges_check(struct engine *e, const struct rule_set *set,
                                    struct errinfo *ei);
/* Makes the purges that the set wants and that do not stand, withdraws those that it does not want,
 * and logs both. The set must be in effect, the store replayed. All is tried; the first failure is
 * returned, and a later call does the rest. A rule that cannot be purged is logged and passed over.
 */
MUST_USE enum err rule_purges_settle(struct engine *e, const struct rule_set *set,
                                     struct rule_purges *out, struct errinfo *ei);

#endif
