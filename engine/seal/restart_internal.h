/*
 * A start from what the manifest names: restart.c has the order, restart_series.c the series of a
 * shard, set_aside.c what happens to files that are damaged.
 */
#ifndef RIMSTONE_ENGINE_SEAL_RESTART_INTERNAL_H
#define RIMSTONE_ENGINE_SEAL_RESTART_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine_internal.h"

struct series_image;

/* ---- restart_series.c ---- */

/* Loads the series file into the shard's series table, fingerprint table and index; the bounds
 * are those of all samples in its files. A damaged one gives the series of its whole batches:
 * *is_damaged is set, and all is said in the log. */
MUST_USE enum err restart_series(struct engine *e, struct shard *s,
                                 const struct manifest_file *file,
                                 const struct shard_bounds *bounds, bool *is_damaged,
                                 struct errinfo *ei);

/* After the replay of a shard whose series file was damaged: its series may have samples in files
 * up to the bounds, and their newest ones are not known. */
MUST_USE enum err restart_series_raise(struct shard *s, struct errinfo *ei);

/* ---- set_aside.c ---- */

/* Moves a damaged file to "damaged-<name>" in its folder, so that nothing removes it, and says so.
 * A file that is missing is only reported. `story` is why. */
MUST_USE enum err set_aside(struct engine *e, const char *path, const struct errinfo *story,
                            struct errinfo *ei);
/* A second name of that kind for a file that stays in use. */
MUST_USE enum err set_aside_copy(struct engine *e, const char *path, struct errinfo *ei);
MUST_USE enum err set_aside_part(struct engine *e, const struct part_key *key,
                                 const struct errinfo *story, struct errinfo *ei);

#endif
