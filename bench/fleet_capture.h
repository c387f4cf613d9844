/*
 * The GPU-fleet stream as benchmarks take it: its generator for all nodes, its labels parsed, and
 * one shard's share of it captured in memory. A failure ends the program, as in bench_support.h.
 * One thread.
 */
#ifndef RIMSTONE_BENCH_FLEET_CAPTURE_H
#define RIMSTONE_BENCH_FLEET_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/fingerprint.h"
#include "engine/labels.h"
#include "tools/fleet_stream.h"

enum { FLEET_LABEL_MAX = 64 }; /* of a series; the stream has at most 14 */

/* All nodes of a cluster. */
struct fleet_source {
    struct fleet_template *template; /* owned */
    struct fleet_nodes *nodes;       /* owned */
    uint32_t node_count;
};
void fleet_source_init(struct fleet_source *s, const struct fleet_options *o);
void fleet_source_done(struct fleet_source *s);
/* BENCH_PROFILE=gpu, the default, or cadvisor. */
enum fleet_profile fleet_profile_from_env(void);

/* The labels of a fleet_sample, borrowed from `wire`; returns how many. */
size_t fleet_labels_parse(struct bytes wire, struct label out[FLEET_LABEL_MAX]);
/* The same as write_batch's labels_parse. Any thread. */
enum err fleet_labels_parse_write(const void *ctx, struct bytes wire, struct arena *arena,
                                  struct labels *out);
/* Hash of the values of all labels but the name: an entity's metrics share it, and so a shard. */
uint64_t fleet_labels_entity_hash(const struct hash_secret *secret, const struct label *items,
                                  size_t count);

/* A captured series. */
struct fleet_row {
    struct labels labels; /* borrowed from the capture's arena */
    struct hash128 fingerprint;
    size_t number; /* of its samples: they start at number * scrape_count */
};

/* The series whose entities fall on the first of `shard_count` shards. */
struct fleet_capture {
    struct fleet_source source;
    struct arena arena;
    struct hash_secret secret;
    uint32_t shard_count, scrape_count;
    size_t *number_of; /* owned: row number of each series of the fleet, or SIZE_MAX */
    size_t series_count;
    struct fleet_row *rows; /* owned; in the order of parts */
    size_t row_count, row_capacity;
    int64_t *t_ms; /* owned: [number][scrape] of the newest window */
    double *value; /* owned: the same */
};
/* Spends scrape 0 on choosing the series. No churn, so that every scrape has the same series. */
void fleet_capture_init(struct fleet_capture *c, const struct fleet_options *o,
                        uint32_t shard_count, uint32_t scrape_count);
/* Puts the next `scrape_count` scrapes in place of those captured before. */
void fleet_capture_window(struct fleet_capture *c);
void fleet_capture_done(struct fleet_capture *c);

#endif
