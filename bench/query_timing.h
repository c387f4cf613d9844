/* What a query costs inside of this process. */
#ifndef RIMSTONE_BENCH_QUERY_TIMING_H
#define RIMSTONE_BENCH_QUERY_TIMING_H

#include <stdint.h>

#include "promql/promql.h"

struct query_timing {
    double cpu_s; /* of this thread, the least of all runs */
    size_t series_count;
    uint64_t samples_read, peak_bytes; /* of the last run */
};

/* Runs the query `runs` times; its memory is filled in. A failure ends the program. */
struct query_timing query_time(struct promql_query query, uint32_t runs);

#endif
