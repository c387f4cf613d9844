/*
 * The drop rules of a server: those that came through the API, kept beside the data, and behind
 * them those of the configuration file. Every change makes the whole list anew and puts it into
 * effect.
 */
#ifndef RIMSTONE_API_RULE_BOOK_H
#define RIMSTONE_API_RULE_BOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "api/config.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"
#include "engine/drop_rules.h"

struct engine;
struct rule_book;

/* What rules with `purge` have come to; zero while the store is not settled. */
struct rule_purges {
    uint64_t made;                  /* selectors whose stored series were deleted */
    uint64_t withdrawn;             /* purges taken back */
    uint64_t file_count, file_left; /* of those, as in struct purge_withdrawn, added up */
};
struct rule_change {
    struct rules_applied applied;
    struct rule_purges purges;
};

/* Reads what is kept and puts it into effect together with the file's rules, which are copied. A
 * damaged file of rules is set aside, named in the log, and costs its rules. `fs` and `engine` are
 * borrowed. */
MUST_USE enum err rule_book_new(struct fs *fs, struct engine *engine, const struct config *config,
                                struct rule_book **out, struct errinfo *ei);
/* Accepts NULL. */
void rule_book_free(struct rule_book *b);

/* Brings what is stored in line with the rules' `purge`, after engine_replay() and before merges;
 * from then on each change does that too. Rules whose purge was cut off or has failed are made
 * good.
 */
MUST_USE enum err rule_book_settle(struct rule_book *b, struct rule_purges *out,
                                   struct errinfo *ei);

/* All below: any thread; changes wait for each other. On failure nothing has changed, except that
 * the rules are in effect when only what they do to what is stored has failed, which the message
 * says; the next change tries that again. */

/* Other rules of the file. A purge that fails is only logged. */
MUST_USE enum err rule_book_set_file(struct rule_book *b, const struct config *config,
                                     struct rule_change *out, struct errinfo *ei);
/* Adds rules, as config_rules_read() takes them, each in the place of one of its name or behind the
 * API's others. Durable on success. ERR_INVALID with position and reason. */
MUST_USE enum err rule_book_add(struct rule_book *b, struct str text, struct rule_change *out,
                                struct errinfo *ei);
/* Removes a rule of the API. ERR_NOT_FOUND; ERR_INVALID of the file's. Durable on success. */
MUST_USE enum err rule_book_remove(struct rule_book *b, struct str name, struct rule_change *out,
                                   struct errinfo *ei);

/* Whether what a list's rules with `purge` delete can be told, as for a store in which none of it
 * is done yet; offline. ERR_INVALID naming the rule. */
MUST_USE enum err rule_list_check_purges(const struct rule_set *set, struct errinfo *ei);

#endif
