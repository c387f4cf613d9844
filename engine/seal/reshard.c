/*
 * Another number of shards: once, before the store is opened. The store is opened under its old
 * count and everything goes into parts, which any count can read. Then the log is removed and one
 * manifest names the new count, the parts, and nothing else.
 *
 * A crash anywhere leaves a directory of one count or the other: until that manifest is written the
 * old count holds, and whatever the log has lost by then is covered by files.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine/maintain.h"

/* All samples of all shards into parts. */
static enum err flush_all(struct engine *e, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++) {
        struct flush_result flushed;

        err = engine_flush(e, i, INT64_MAX, NULL, &flushed, ei);
        if (err == ERR_OK)
            err = engine_split_late(e, i, NULL, &flushed, ei);
    }
    return err;
}

/* The log goes next: what is not in parts by now would be lost. */
static enum err all_flushed(struct engine *e, struct errinfo *ei)
{
    for (uint32_t i = 0; i < e->shard_count; i++) {
        struct seal_state state;

        engine_seal_state(e, i, &state);
        if (state.sample_count + state.late_sample_count + state.late_file_bytes > 0 ||
            state.oldest_sealed_window_end_ms != INT64_MAX)
            return errinfo_set(ei, ERR_INTERNAL, 0,
                               "shard %" PRIu32 " has samples that are in no part", i);
    }
    return ERR_OK;
}

static enum err count_change(void *ctx, struct manifest *m, struct errinfo *ei)
{
    m->shard_count = *(const uint32_t *)ctx;
    m->file_count = 0;
    free(m->covered_sequences);
    m->covered_sequences = NULL; /* all 0: the new log begins with 1 */
    return manifest_sequences_reserve(m, ei);
}

/* From an open store to a directory of the new count; the store's log is closed. */
static enum err count_replace(struct engine *e, uint32_t shard_count, struct errinfo *ei)
{
    enum err err = flush_all(e, ei);

    if (err == ERR_OK)
        err = all_flushed(e, ei);
    engine_log_abandon(e); /* nothing is queued: nobody has written */
    if (err == ERR_OK)
        err = wal_erase(e->fs, ei);
    return err == ERR_OK ? engine_manifest_update(e, count_change, &shard_count, ei) : err;
}

enum err engine_reshard(const struct engine_options *options, struct errinfo *ei)
{
    struct engine_options old = *options;
    struct engine_replay_result replayed;
    struct engine *e = NULL;
    enum err err;

    old.shard_count = 0;
    old.metrics = NULL; /* of an engine that does not stay */
    err = engine_open(&old, &e, ei);
    if (err != ERR_OK)
        return err;
    LOG_INFO("the number of shards changes: all samples are put into parts first",
             LOG_U64("from", e->shard_count), LOG_U64("to", options->shard_count));
    err = engine_replay(e, 0, &replayed, ei);
    if (err == ERR_OK)
        err = count_replace(e, options->shard_count, ei);
    else
        engine_log_abandon(e);
    engine_free(e); /* debris of the old count goes with the next start */
    return err;
}
