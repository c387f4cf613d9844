/*
 * What runs or waits on query threads: a list that /api/v1/rimstone/queries shows and from which a
 * query can be killed.
 */
#ifndef RIMSTONE_API_HTTP_QUERY_LIST_INTERNAL_H
#define RIMSTONE_API_HTTP_QUERY_LIST_INTERNAL_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/thread.h"
#include "promql/promql.h"

/* Part of a request. All but what is constant while it is listed is guarded by the list's lock. */
struct query_entry {
    struct query_entry *previous, *next;
    uint64_t id;                            /* constant; never used twice */
    const char *path;                       /* constant; a literal */
    struct str text;                        /* constant; borrowed: the query, or a first match[] */
    char client[INET6_ADDRSTRLEN];          /* constant; "" when it is not known */
    uint64_t start_mono_ns;                 /* constant */
    _Atomic bool *stop;                     /* borrowed; the request's */
    const struct budget *memory;            /* borrowed; NULL: no cost to show */
    const struct promql_progress *progress; /* the same */
    bool is_listed, is_running, is_killed;
};

struct query_list {
    struct mutex lock;                /* guards what follows and the entries; a leaf */
    struct query_entry *first, *last; /* the oldest first */
    uint64_t next_id;
};

void query_list_init(struct query_list *l);
void query_list_done(struct query_list *l); /* nothing may be listed any more */
/* Lists an entry whose path, text, client, start and stop flag are filled in. */
void query_list_add(struct query_list *l, struct query_entry *q);
/* Nobody touches the entry after this. */
void query_list_remove(struct query_list *l, struct query_entry *q);
void query_list_run(struct query_list *l, struct query_entry *q); /* it waits no longer */
/* Shows the cost of the entry until it is called with NULLs, before what is shown goes. */
void query_list_show(struct query_list *l, struct query_entry *q, const struct budget *memory,
                     const struct promql_progress *progress);
/* Stops a query; false when there is none of this id. */
bool query_list_kill(struct query_list *l, uint64_t id);
bool query_list_was_killed(struct query_list *l, const struct query_entry *q);
/* Appends a JSON array of all, the oldest first. */
void query_list_write(struct query_list *l, struct byte_writer *w);

#endif
