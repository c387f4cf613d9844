/*
 * Ended series leave the sealed files: a part a window with their samples, so that their slots need
 * not wait for the flush of the window.
 *
 * Such a part comes before the files it is made of, by generation: a series of the same labels that
 * begins anew is younger.
 */
#include <stdlib.h>

#include "engine/flush/flush_internal.h"

enum { ENDED_STEP = 64 }; /* room for the names of merges between two parts */

struct ended {
    struct engine *engine;
    struct shard *shard;
    const uint32_t *slots; /* ascending */
    size_t count;
    const struct maintain_control *control;
    bool
        keeps_deleted; /* purges may be taken back: what tombstones hit goes along, and is hidden */
    struct flush_parts parts;
    struct flush_result result;
};

static int compare_slots(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void look_up_ended(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out)
{
    const struct ended *x = ctx;

    flush_look_up_live(x->shard, slots, count, out);
    for (size_t i = 0; i < count; i++)
        out[i].is_wanted &=
            bsearch(&slots[i], x->slots, x->count, sizeof slots[i], compare_slots) != NULL;
}

/* Behind all parts of ended series that the window has of the same file: a series may have ended
 * twice. */
static enum err generation_choose(const struct ended *x, uint32_t window, uint64_t number,
                                  uint64_t *out, struct errinfo *ei)
{
    const struct part_key key = flush_part_key(x->engine, x->shard, window, 0);
    const struct file_set *set = x->shard->files;
    uint64_t highest = number << GENERATION_SHIFT, limit = generation_of_file(number);

    for (size_t i = 0; i < set->part_count; i++) {
        const struct part_key *k = &set->parts[i]->key;

        if (k->window_start_ms == key.window_start_ms && k->generation > highest &&
            k->generation < limit)
            highest = k->generation;
    }
    *out = (highest / ENDED_STEP + 1) * ENDED_STEP;
    return *out < limit ? ERR_OK
                        : errinfo_set(ei, ERR_LIMIT, 0,
                                      "shard %u: too many parts of ended series in one window",
                                      x->shard->number);
}

static enum err window_write(struct ended *x, uint32_t window, const struct sealed_view *views,
                             size_t count, struct errinfo *ei)
{
    struct flush_window f = flush_window_of(x->engine, x->shard, x->control);
    enum err err = ERR_OK;

    if (x->keeps_deleted)
        f.tombstones = NULL; /* the part is on the same side of each as its files */
    f.lookup = look_up_ended;
    f.ctx = x;
    for (size_t first = 0, end; first < count && err == ERR_OK; first = end) {
        uint64_t generation = 0;

        end = flush_group_end(x->shard->files, views, count, first, true);
        err = generation_choose(x, window, views[first].source->number, &generation, ei);
        if (err != ERR_OK)
            return err;
        f.views = views + first;
        f.view_count = end - first;
        f.key = flush_part_key(x->engine, x->shard, window, generation);
        f.name_step = ENDED_STEP;
        err = flush_part_add(x->engine, &f, &x->parts, &x->result, ei);
    }
    return err;
}

static enum err windows_write(struct ended *x, struct errinfo *ei)
{
    const struct file_set *set = x->shard->files;
    size_t room = set == NULL ? 0 : set->sealed_count;
    struct sealed_view *views = calloc(room + 1, sizeof *views);
    struct sealed_source **sources = calloc(room + 1, sizeof(struct sealed_source *));
    uint32_t window = 0;
    enum err err = ERR_OK;

    if (views == NULL || sources == NULL) {
        err = errinfo_set(ei, ERR_NOMEM, 0, "ended series of shard %u", x->shard->number);
        goto out;
    }
    for (; err == ERR_OK && flush_next_window(x->shard, window, INT64_MAX, &window); window++)
        err = window_write(x, window, views, flush_window_views(set, window, views, sources), ei);
out:
    free(views);
    free(sources);
    return err;
}

enum err flush_ended(struct engine *e, struct shard *s, const uint32_t *slots, size_t count,
                     const struct maintain_control *control, struct flush_parts *out,
                     struct flush_result *result, struct errinfo *ei)
{
    struct ended x = {.engine = e,
                      .shard = s,
                      .slots = slots,
                      .count = count,
                      .control = control,
                      .keeps_deleted = engine_purges_stand(e)};
    enum err err = flush_split_late(e, s, control, &x.result, ei);

    if (err == ERR_OK)
        err = windows_write(&x, ei);
    if (err != ERR_OK) {
        flush_parts_done(e, &x.parts, false);
        return err;
    }
    *out = x.parts;
    *result = x.result;
    return ERR_OK;
}
