/*
 * The GPU-fleet stream: the samples of a cluster's nodes, scrape by scrape, deterministic from a
 * seed and independent of how nodes are spread over connections.
 *
 * A node is a block of series with the same shape on every node, so the stream keeps one encoded
 * block as a template and patches node number, UUIDs and pod names into a copy: memory is 8 bytes a
 * series.
 *
 * Profile "gpu", 1,000 series a node:
 *
 *   - 8 GPUs x 30 dcgm-exporter metrics (14 labels),
 *   - 64 CPUs x 8 modes of node_cpu_seconds_total (7 labels),
 *   - 16 devices x 8 node_network_ and node_disk_ counters (6 labels),
 *   - 10 verbs x 12 buckets of a kubelet histogram (7 labels).
 *
 * Profile "cadvisor", 960 series a node:
 *
 *   - 16 containers x 60 metrics; id, name, pod and pod_uid are the container's own.
 */
#ifndef RIMSTONE_TOOLS_FLEET_STREAM_H
#define RIMSTONE_TOOLS_FLEET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

enum fleet_profile { FLEET_GPU, FLEET_CADVISOR };

struct fleet_options {
    enum fleet_profile profile;
    uint64_t seed;
    uint32_t node_count;
    int64_t start_ms;        /* time of scrape 0, before the target's own offset */
    int64_t interval_ms;     /* between scrapes */
    uint32_t jitter_ms;      /* each target's scrape moves by up to this, either way */
    bool target_offsets;     /* spread targets over the interval; false: all scrape at once */
    double churn_per_minute; /* pods (GPUs or containers) relabelled a minute, over all nodes */
    /* Rollouts: pods are relabelled at the end of each period only, for so long. 0: always. */
    int64_t churn_period_ms, churn_length_ms;
};

struct fleet_template; /* shared by all nodes, immutable */
MUST_USE enum err fleet_template_new(enum fleet_profile profile, struct fleet_template **out,
                                     struct errinfo *ei);
void fleet_template_free(struct fleet_template *t);
uint32_t fleet_series_per_node(const struct fleet_template *t);

/* The nodes [first, first + count) as one thread advances them. */
struct fleet_nodes;
MUST_USE enum err fleet_nodes_new(const struct fleet_template *t, const struct fleet_options *o,
                                  uint32_t first_node, uint32_t count, struct fleet_nodes **out,
                                  struct errinfo *ei);
void fleet_nodes_free(struct fleet_nodes *n);

/* Sets churn_per_minute from the next scrape on. */
void fleet_nodes_churn(struct fleet_nodes *n, double churn_per_minute);

struct fleet_sample {
    struct bytes labels; /* remote write 1.0: the label fields of a TimeSeries message, tags
                          * included, sorted by name; borrowed until the next fleet_node_scrape() */
    int64_t t_ms;
    double value;
};
/*
 * Makes the next scrape of node `index` (0-based within these nodes): first the staleness markers
 * of pods that just ended, under their old labels, then one sample per series. *out is borrowed
 * until the next call; returns how many.
 */
size_t fleet_node_scrape(struct fleet_nodes *n, uint32_t index, const struct fleet_sample **out);

#endif
