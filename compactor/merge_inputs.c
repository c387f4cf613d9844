/*
 * Which parts may be merged: see merge_inputs_valid() in merge.h.
 *
 * Readers give a repeated sample the value of the lowest generation. The result has one generation
 * for all that went in, the highest, so a part that stays must not find itself on the other side of
 * the samples it shares timestamps with. Parts share timestamps only where their windows overlap,
 * and where their shards do: those of an earlier number of shards share them with several.
 */
#include <inttypes.h>

#include "compactor/merge_internal.h"

bool merge_window(const struct part_key *key, int64_t *first_ms, int64_t *last_ms)
{
    uint64_t room = (uint64_t)INT64_MAX - (uint64_t)key->window_start_ms;

    if (key->window_size_ms == 0 || key->window_size_ms - 1 > room)
        return false;
    *first_ms = key->window_start_ms;
    *last_ms = (int64_t)((uint64_t)key->window_start_ms + (key->window_size_ms - 1));
    return true;
}

bool merge_same_family(const struct part_key *a, const struct part_key *b)
{
    return a->shard == b->shard && a->shard_count == b->shard_count &&
           a->resolution_ms == b->resolution_ms && a->retention_class == b->retention_class;
}

static enum err refuse(const struct part_key *a, const struct part_key *b, const char *why,
                       struct errinfo *ei)
{
    char a_name[PART_NAME_SIZE], b_name[PART_NAME_SIZE];

    part_name_format(a, PART_FILE_INDEX, false, a_name);
    part_name_format(b, PART_FILE_INDEX, false, b_name);
    return errinfo_set(ei, ERR_INVALID, 0, "merge: %s and %s: %s", a_name, b_name, why);
}

static enum err hull(const struct part_key *keys, const bool *chosen, size_t count,
                     struct part_key *out, struct errinfo *ei)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    const struct part_key *one = NULL;
    size_t inputs = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t key_first, key_last;

        if (!merge_window(&keys[i], &key_first, &key_last))
            return refuse(&keys[i], &keys[i], "the window is none", ei);
        if (!chosen[i])
            continue;
        if (one != NULL && !merge_same_family(one, &keys[i]))
            return refuse(one, &keys[i], "they do not belong together", ei);
        if (one == NULL || keys[i].generation > one->generation)
            one = &keys[i];
        first = key_first < first ? key_first : first;
        last = key_last > last ? key_last : last;
        inputs++;
    }
    if (one == NULL || inputs > MERGE_INPUTS_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "merge: %zu inputs", inputs);
    if (first == INT64_MIN && last == INT64_MAX)
        return refuse(one, one, "the window is too large", ei);
    *out = *one;
    out->window_start_ms = first;
    out->window_size_ms = (uint64_t)last - (uint64_t)first + 1;
    return ERR_OK;
}

/* The next generation whose name is free. */
static enum err name_choose(const struct part_key *keys, size_t count, struct part_key *out,
                            struct errinfo *ei)
{
    for (size_t i = 0; i < count; i++) {
        if (!part_key_equal(&keys[i], out))
            continue;
        if (out->generation == UINT64_MAX)
            return refuse(out, out, "no generation is left", ei);
        out->generation++;
        i = SIZE_MAX; /* from the beginning: ++ makes it 0 */
    }
    return ERR_OK;
}

static enum err pair_check(const struct part_key *input, const struct part_key *other, bool stays,
                           const struct part_key *out, struct errinfo *ei)
{
    if (!part_key_meets(input, other))
        return ERR_OK;
    if (input->generation == other->generation)
        return refuse(input, other, "they overlap and have the same generation", ei);
    if (stays && input->generation < other->generation && other->generation <= out->generation)
        return refuse(input, other, "the second stays and would change sides", ei);
    return ERR_OK;
}

enum err merge_inputs_valid(const struct part_key *keys, const bool *chosen, size_t count,
                            struct part_key *out, struct errinfo *ei)
{
    struct part_key key = {0};
    enum err e = hull(keys, chosen, count, &key, ei);

    if (e == ERR_OK)
        e = name_choose(keys, count, &key, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        /* hull() has checked all windows. It may lie between the inputs and share nothing with
         * them, but the next merge could no longer tell. */
        if (!chosen[i] && keys[i].generation == key.generation && part_key_meets(&keys[i], &key))
            e = refuse(&keys[i], &key, "the result would have the generation of the first", ei);
        for (size_t k = 0; chosen[i] && k < count && e == ERR_OK; k++) {
            if (k != i)
                e = pair_check(&keys[i], &keys[k], !chosen[k], &key, ei);
        }
    }
    if (e == ERR_OK)
        *out = key;
    return e;
}
