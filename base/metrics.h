/*
 * The metrics registry behind /metrics: counters, gauges and histograms, all lock-free to update.
 * Names and labels are literals or owned by the registry; families are registered before threads
 * start and live until the registry is freed. No global registry: a handle is passed in.
 */
#ifndef RIMSTONE_BASE_METRICS_H
#define RIMSTONE_BASE_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

struct metrics_registry;
/* Spread over cache lines by CPU, so that hot counters do not bounce. */
struct metric_counter;
struct metric_gauge;
struct metric_histogram;

MUST_USE enum err metrics_registry_new(struct metrics_registry **out, struct errinfo *ei);
void metrics_registry_free(struct metrics_registry *r);

/*
 * Registers one time series of a family. `labels` is exposition text without braces, such as
 * "reason=\"too_old\"", or "" for none; the same family may be registered again with other labels
 * (help and type must agree). Never returns NULL: memory failure at start-up aborts.
 */
struct metric_counter *metrics_counter(struct metrics_registry *r, const char *name,
                                       const char *labels, const char *help);
struct metric_gauge *metrics_gauge(struct metrics_registry *r, const char *name, const char *labels,
                                   const char *help);
/* `bounds` ascending, without +Inf; seconds for durations. */
struct metric_histogram *metrics_histogram(struct metrics_registry *r, const char *name,
                                           const char *labels, const char *help,
                                           const double *bounds, size_t bound_count);
/* A value that is computed when /metrics is read. kind: "counter" or "gauge". */
void metrics_callback(struct metrics_registry *r, const char *kind, const char *name,
                      const char *labels, const char *help, double (*read)(void *ctx), void *ctx);

void metric_counter_add(struct metric_counter *c, uint64_t n);
uint64_t metric_counter_read(const struct metric_counter *c);
void metric_gauge_set(struct metric_gauge *g, double v);
void metric_gauge_add(struct metric_gauge *g, double v);
double metric_gauge_read(const struct metric_gauge *g);
void metric_histogram_observe(struct metric_histogram *h, double v);

/* Prometheus text exposition format 0.0.4, families sorted by name. */
MUST_USE enum err metrics_write_text(struct metrics_registry *r, struct byte_writer *out,
                                     struct errinfo *ei);

#endif
