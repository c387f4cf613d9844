/*
 * Ended series leave memory. LIFECYCLE.md, "Ended series, slots, the index".
 *
 * A series has ended when its newest sample is a staleness marker, or when it had none for ten
 * minutes. After a seal, when enough have ended, they leave in steps, all by whoever holds the
 * shard's maintain_lock:
 *   1. Their samples are in sealed files; they are written into ended parts, which the manifest
 *      names and readers see.
 *   2. They are marked as leaving, each only if nothing came for it meanwhile. From now on a write
 *      for its labels takes the slow path, which brings it back in its slot and has its definition
 *      logged again.
 *   3. A checkpoint of the series file says that they are gone, durably. Up to here a crash finds
 *      them in the series file; afterwards a definition in the log, if they came back.
 *   4. They are dead: their fingerprints go, and their slots join the pool.
 * A query looks at memory first and takes the files afterwards, so it finds a series in one of
 * both. Only a series whose definition was logged twice before the seal may leave, so that a replay
 * never meets a definition of a dead series behind the covered sequence: it is marked settled at
 * the end of one seal and leaves after a later one, when all definitions of that time have been
 * repeated.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_ENDED_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_ENDED_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine_internal.h"
#include "engine/maintain.h"

enum {
    ENDED_SILENT_MS = 10 * 60 * 1000, /* without a sample for so long a series has ended */
    ENDED_LEAVE_PERCENT = 5,          /* of the series: from here they leave */
};

/* Whether it has had no sample for long, or a staleness marker as the newest. Caller holds
 * shard.lock. */
bool series_has_ended(const struct series *series, int64_t now_ms);

/* Before a seal: how far definitions were repeated; for ended_leave(). */
uint64_t ended_repeated(struct shard *s);
/* After a seal that has succeeded: looks at every series, and has those that ended leave if they
 * are many, or `force`. Adds to *out_count. */
MUST_USE enum err ended_leave(struct engine *e, struct shard *s, uint64_t repeated, bool force,
                              const struct maintain_control *control, uint64_t *out_count,
                              struct errinfo *ei);
/* A checkpoint of the whole shard is durable: it does not have the series that are leaving. */
void ended_sealed(struct shard *s);
/* Step 4, if its time has come. */
void ended_finish(struct engine *e, struct shard *s);
/* At a start, before anybody else: counts the series whose newest sample is a marker. */
void ended_recount(struct shard *s);

#endif
