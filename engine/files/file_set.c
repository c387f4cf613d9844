/*
 * Sources and sets: counting, and successors by copy. A seal publishes a set for every slice, so a
 * copy is two small arrays of pointers, whatever number of slices the files have.
 */
#include "engine/files/file_set_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

/* ---- counting ---- */

static void count_up(_Atomic uint32_t *refs)
{
    /* relaxed: whoever counts up holds a reference, or the lock under which one is held */
    uint32_t before = atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);

    ASSERT(before != 0 && before != UINT32_MAX);
}

/* True for the last one. */
static bool count_down(_Atomic uint32_t *refs)
{
    /* acq_rel: whoever frees comes after everything the others did with it */
    uint32_t before = atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel);

    ASSERT(before != 0);
    return before == 1;
}

/* ---- sealed and late files ---- */

/* An array of slices that was replaced by a larger one. */
struct sealed_outgrown {
    struct sealed_outgrown *older;
    struct sealed_slice **slices;
};

struct sealed_source *sealed_source_new(struct fs *fs, struct part_store *store,
                                        struct sealed_file *file, uint32_t window)
{
    const struct sealed_identity *identity = sealed_file_identity(file);
    struct sealed_source *s = calloc(1, sizeof *s);

    if (s == NULL)
        return NULL;
    atomic_init(&s->refs, 1);
    atomic_init(&s->is_removed, false);
    s->fs = fs;
    s->file = file;
    s->kind = identity->kind;
    s->shard = identity->shard;
    s->shard_count = identity->shard_count;
    s->number = identity->number;
    s->generation = generation_of_file(identity->number);
    s->window = window;
    s->min_time_ms = INT64_MAX;
    s->max_time_ms = INT64_MIN;
    if (store != NULL) {
        /* relaxed: only has to differ */
        uint64_t id =
            atomic_fetch_add_explicit(&store->next_file, SEALED_CACHE_IDS, memory_order_relaxed);

        sealed_file_use_cache(file, store->pages, id);
    }
    return s;
}

/* A failure leaves debris that the next start removes. */
static void unlink_removed(struct fs *fs, const char *path)
{
    enum err e = fs_unlink(fs, path, NULL);

    (void)e;
}

static void sealed_source_free(struct sealed_source *s)
{
    /* acquire by count_down(): the flag was set while a reference was held */
    if (atomic_load_explicit(&s->is_removed, memory_order_relaxed))
        unlink_removed(s->fs, sealed_file_path(s->file));
    sealed_file_close(s->file);
    for (size_t i = 0; i < s->slice_count; i++)
        free(s->slices[i]);
    free(s->slices);
    for (struct sealed_outgrown *o = s->outgrown; o != NULL;) {
        struct sealed_outgrown *older = o->older;

        free(o->slices);
        free(o);
        o = older;
    }
    free(s);
}

struct sealed_source *sealed_source_ref(struct sealed_source *s)
{
    count_up(&s->refs);
    return s;
}

void sealed_source_unref(struct sealed_source *s)
{
    if (s != NULL && count_down(&s->refs))
        sealed_source_free(s);
}

static bool slices_grow(struct sealed_source *s)
{
    size_t capacity = s->slice_capacity == 0 ? 8 : s->slice_capacity * 2;
    struct sealed_slice **grown = calloc(capacity, sizeof(struct sealed_slice *));
    struct sealed_outgrown *o = malloc(sizeof *o);

    if (grown == NULL || o == NULL) {
        free(grown);
        free(o);
        return false;
    }
    if (s->slice_count > 0)
        memcpy(grown, s->slices, s->slice_count * sizeof(struct sealed_slice *));
    *o = (struct sealed_outgrown){s->outgrown, s->slices};
    s->outgrown = o;
    s->slices = grown;
    s->slice_capacity = capacity;
    return true;
}

bool sealed_source_append(struct sealed_source *s, struct sealed_slice *slice)
{
    if (s->slice_count == s->slice_capacity && !slices_grow(s))
        return false;
    s->slices[s->slice_count++] = slice;
    if (slice->min_time_ms < s->min_time_ms)
        s->min_time_ms = slice->min_time_ms;
    if (slice->max_time_ms > s->max_time_ms)
        s->max_time_ms = slice->max_time_ms;
    return true;
}

/* ---- parts ---- */

struct part_source *part_source_new(struct fs *fs, struct part *part, bool is_foreign)
{
    struct part_source *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    atomic_init(&p->refs, 1);
    atomic_init(&p->is_removed, false);
    p->fs = fs;
    p->part = part;
    p->key = part_info(part)->key;
    p->is_foreign = is_foreign;
    return p;
}

struct part_source *part_source_ref(struct part_source *p)
{
    count_up(&p->refs);
    return p;
}

void part_source_unref(struct part_source *p)
{
    if (p == NULL || !count_down(&p->refs))
        return;
    /* relaxed: as in sealed_source_free() */
    if (atomic_load_explicit(&p->is_removed, memory_order_relaxed)) {
        for (size_t i = 0; i < sizeof p->part->paths / sizeof p->part->paths[0]; i++)
            unlink_removed(p->fs, p->part->paths[i]);
    }
    part_close(p->part);
    free(p);
}

/* ---- sets ---- */

static bool sealed_is_listed(struct sealed_source *const *list, size_t count,
                             const struct sealed_source *s)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == s)
            return true;
    }
    return false;
}

static bool part_is_listed(struct part_source *const *list, size_t count,
                           const struct part_source *p)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == p)
            return true;
    }
    return false;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_views(const void *a, const void *b)
{
    const struct sealed_source *x = ((const struct sealed_view *)a)->source;
    const struct sealed_source *y = ((const struct sealed_view *)b)->source;

    return compare_u64(x->generation, y->generation);
}

static int compare_parts(const void *a, const void *b)
{
    const struct part_key *x = &(*(struct part_source *const *)a)->key;
    const struct part_key *y = &(*(struct part_source *const *)b)->key;

    if (x->window_start_ms != y->window_start_ms)
        return x->window_start_ms < y->window_start_ms ? -1 : 1;
    return compare_u64(x->generation, y->generation);
}

static void view_add(struct file_set *set, struct sealed_source *s)
{
    set->sealed[set->sealed_count++] = (struct sealed_view){.source = sealed_source_ref(s),
                                                            .slices = s->slices,
                                                            .slice_count = s->slice_count,
                                                            .min_time_ms = s->min_time_ms,
                                                            .max_time_ms = s->max_time_ms};
}

static void sealed_fill(struct file_set *set, const struct file_set *base,
                        const struct file_set_change *c)
{
    for (size_t i = 0; base != NULL && i < base->sealed_count; i++) {
        if (!sealed_is_listed(c->sealed_remove, c->sealed_remove_count, base->sealed[i].source))
            view_add(set, base->sealed[i].source);
    }
    for (size_t i = 0; i < c->sealed_add_count; i++)
        view_add(set, c->sealed_add[i]);
    if (c->sealed_add_count > 0)
        qsort(set->sealed, set->sealed_count, sizeof *set->sealed, compare_views);
}

static void parts_fill(struct file_set *set, const struct file_set *base,
                       const struct file_set_change *c)
{
    for (size_t i = 0; base != NULL && i < base->part_count; i++) {
        if (!part_is_listed(c->part_remove, c->part_remove_count, base->parts[i]))
            set->parts[set->part_count++] = part_source_ref(base->parts[i]);
    }
    for (size_t i = 0; i < c->part_add_count; i++)
        set->parts[set->part_count++] = part_source_ref(c->part_add[i]);
    if (c->part_add_count > 0)
        qsort(set->parts, set->part_count, sizeof(struct part_source *), compare_parts);
}

enum err file_set_new(const struct file_set *base, const struct file_set_change *change,
                      struct file_set **out, struct errinfo *ei)
{
    static const struct file_set_change nothing = {0};
    const struct file_set_change *c = change != NULL ? change : &nothing;
    size_t sealed_max = c->sealed_add_count + (base == NULL ? 0 : base->sealed_count);
    size_t part_max = c->part_add_count + (base == NULL ? 0 : base->part_count);
    struct tombstone_list *tombstones = base == NULL ? NULL : base->tombstones;
    struct file_set *set = calloc(1, sizeof *set);

    if (set != NULL) {
        set->sealed = calloc(sealed_max + 1, sizeof *set->sealed);
        set->parts = calloc(part_max + 1, sizeof(struct part_source *));
    }
    if (set == NULL || set->sealed == NULL || set->parts == NULL) {
        if (set != NULL) {
            free(set->sealed);
            free(set->parts);
        }
        free(set);
        return errinfo_set(ei, ERR_NOMEM, 0, "a list of files");
    }
    atomic_init(&set->refs, 1);
    sealed_fill(set, base, c);
    parts_fill(set, base, c);
    set->tombstones = tombstone_list_ref(c->set_tombstones ? c->tombstones : tombstones);
    *out = set;
    return ERR_OK;
}

struct file_set *file_set_ref(struct file_set *set)
{
    if (set != NULL)
        count_up(&set->refs);
    return set;
}

void file_set_unref(struct file_set *set)
{
    if (set == NULL || !count_down(&set->refs))
        return;
    for (size_t i = 0; i < set->sealed_count; i++)
        sealed_source_unref(set->sealed[i].source);
    for (size_t i = 0; i < set->part_count; i++)
        part_source_unref(set->parts[i]);
    tombstone_list_unref(set->tombstones);
    free(set->sealed);
    free(set->parts);
    free(set);
}
