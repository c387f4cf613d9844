/*
 * Who owns the manifest: one at a time changes a copy, writes it, and makes it the current one.
 */
#include <string.h>

#include "engine/engine_internal.h"

/* Writes the old manifest once more after a failure, since the disk may hold the new one. Whoever
 * failed undoes what it did, and a start must not see files named that are gone by then. */
static void settle(struct engine *e)
{
    struct errinfo ignored = {0};

    e->manifest_is_unsettled = manifest_write(e->fs, &e->manifest, &ignored) != ERR_OK;
}

static enum err update_locked(struct engine *e, manifest_change *change, void *ctx,
                              struct errinfo *ei)
{
    struct manifest copy = {0};
    enum err err = manifest_copy(&e->manifest, &copy, ei);

    if (err != ERR_OK)
        return err;
    err = change(ctx, &copy, ei);
    if (err == ERR_OK) {
        err = manifest_write(e->fs, &copy, ei);
        if (err != ERR_OK)
            settle(e);
    }
    if (err != ERR_OK) {
        manifest_done(&copy);
        return err;
    }
    e->manifest_is_unsettled = false;
    manifest_done(&e->manifest);
    e->manifest = copy;
    return ERR_OK;
}

enum err engine_manifest_update(struct engine *e, manifest_change *change, void *ctx,
                                struct errinfo *ei)
{
    enum err err;

    mutex_lock(&e->manifest_lock);
    err = update_locked(e, change, ctx, ei);
    mutex_unlock(&e->manifest_lock);
    return err;
}

bool engine_manifest_is_settled(struct engine *e)
{
    bool settled;

    mutex_lock(&e->manifest_lock);
    if (e->manifest_is_unsettled)
        settle(e);
    settled = !e->manifest_is_unsettled;
    mutex_unlock(&e->manifest_lock);
    return settled;
}

uint64_t engine_file_number(struct engine *e)
{
    uint64_t number;

    mutex_lock(&e->manifest_lock);
    /* Durable with the manifest that names the file; before that the file is debris, and a start
     * removes it before it gives out its number again. */
    number = e->manifest.next_file_number++;
    mutex_unlock(&e->manifest_lock);
    return number;
}

void engine_covered_sequences(struct engine *e, uint64_t *out)
{
    mutex_lock(&e->manifest_lock);
    if (e->manifest.covered_sequences != NULL)
        memcpy(out, e->manifest.covered_sequences, e->shard_count * sizeof *out);
    else
        memset(out, 0, e->shard_count * sizeof *out);
    mutex_unlock(&e->manifest_lock);
}
