/*
 * The two ways of sorting series by their labels.
 */
#ifndef RIMSTONE_ENGINE_READ_QUERIER_SORT_INTERNAL_H
#define RIMSTONE_ENGINE_READ_QUERIER_SORT_INTERNAL_H

#include "engine/read/querier_internal.h"

/* Series with slots only, without building their label sets unless they are few. */
MUST_USE enum err querier_sort_live(struct querier *q, struct series_list *list,
                                    struct errinfo *ei);
/* Any series, by their label sets, which are all in memory meanwhile. */
MUST_USE enum err querier_sort_by_sets(struct querier *q, struct series_handle *items, size_t count,
                                       struct errinfo *ei);

#endif
