/*
 * Native histograms as text: as Prometheus prints them in errors and by tools, as its API does, and
 * as its test language writes them.
 */
#ifndef RIMSTONE_PROMQL_HISTOGRAM_TEXT_H
#define RIMSTONE_PROMQL_HISTOGRAM_TEXT_H

#include "base/bytes.h"
#include "engine/histogram.h"

/* {count:3, sum:4.5, [-0.5,-0.25):1, [-0.001,0.001]:1, (1,2]:1}: populated buckets, lowest first.
 */
void histogram_write_text(struct byte_writer *w, const struct histogram *h);
/* {"count":"3","sum":"4.5","buckets":[[3,"-0.001","0.001","1"],[0,"1","2","2"]]}; no "buckets" if
 * all are empty. The first number of a bucket: 0 (lo,hi], 1 [lo,hi), 2 (lo,hi), 3 [lo,hi]. */
void histogram_write_json(struct byte_writer *w, const struct histogram *h);
/* {{schema:1 count:3 sum:4.5 buckets:[1 2]}}: what differs from an empty histogram. */
void histogram_write_script(struct byte_writer *w, const struct histogram *h);

#endif
