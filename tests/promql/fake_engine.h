/*
 * A store in memory behind the querier's interface, for tests of the evaluator: it defines the
 * querier_*() functions itself, so the program must not link the real ones. It can give series in
 * any order and stop a query in the middle.
 */
#ifndef RIMSTONE_TESTS_PROMQL_FAKE_ENGINE_H
#define RIMSTONE_TESTS_PROMQL_FAKE_ENGINE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "engine/histogram.h"
#include "engine/labels.h"
#include "engine/querier.h"

enum { FAKE_LABELS_MAX = 16 };

struct fake_series {
    struct label items[FAKE_LABELS_MAX];
    size_t label_count;
    int64_t *t_ms;
    double *value;
    const struct histogram **histogram; /* NULL: no sample is one */
    size_t sample_count, sample_capacity;
};

struct engine {
    struct arena arena; /* histograms */
    struct fake_series *series;
    size_t series_count, series_capacity;
    uint64_t order_seed;       /* 0: as added; else querier_select() gives a permutation */
    _Atomic bool *set_on_read; /* becomes true at the first querier_read() */
    _Atomic size_t open_queriers;
    _Atomic size_t helped_reads; /* by another thread than the one that opened the querier */
};

struct engine *fake_engine_new(void);
void fake_engine_free(struct engine *e);
/* `text` is name=value pairs, comma-separated: "__name__=a,x=1". Gives the series' index. */
size_t fake_engine_add(struct engine *e, const char *text);
void fake_engine_sample(struct engine *e, size_t series, int64_t t_ms, double value);
/* Keeps a copy. A staleness marker is a histogram whose sum says so. */
void fake_engine_histogram(struct engine *e, size_t series, int64_t t_ms,
                           const struct histogram *h);

#endif
