/*
 * The fleet stream into an engine: prebuilt requests, one thread. What engine-level benchmarks
 * share. A failure ends the program, as in bench_support.h.
 */
#ifndef RIMSTONE_BENCH_FLEET_FEED_H
#define RIMSTONE_BENCH_FLEET_FEED_H

#include <stddef.h>
#include <stdint.h>

#include "bench/fleet_capture.h"
#include "engine/engine.h"
#include "engine/write.h"

enum { FLEET_REQUEST_SAMPLES = 2000 };

struct fleet_feed {
    struct engine *engine; /* borrowed; may be another after it was opened again */
    struct fleet_source fleet;
    struct write_batch *batch;
    struct write_result result;
    uint64_t *sequences;
    uint8_t *wire; /* label bytes of the request at hand */
    size_t wire_size, wire_capacity;
    uint64_t samples, engine_ns; /* thread time in engine_write() */
    uint64_t request_best_ns;    /* cheapest full request since it was last set to UINT64_MAX */
};

void fleet_feed_init(struct fleet_feed *f, struct engine *engine, const struct fleet_options *o);
void fleet_feed_done(struct fleet_feed *f);
/* One scrape of every node. */
void fleet_feed_scrape(struct fleet_feed *f);
/* A sample of another source, put into the request at hand; sends that when it is full. */
void fleet_feed_sample(struct fleet_feed *f, const struct fleet_sample *sample);
/* Sends the request at hand. */
void fleet_feed_send(struct fleet_feed *f);
/* Waits until the log has written all that was sent. */
void fleet_feed_wait(struct fleet_feed *f);

/* Bytes of the process that are in memory. */
uint64_t fleet_resident_bytes(void);

#endif
