/*
 * Reading a batch of series from a set of files: what is where, then the bytes, then what was
 * deleted is cut out, then the columns of each series are made one.
 *
 * What was found is counted before anything is decoded: a source whose series are nowhere else is
 * decoded straight into the result, all others go to memory that is given back at the end. What
 * histograms are goes to the result at once: only pointers to them are put together.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/files/file_set_internal.h"
#include "engine/read/column_merge_internal.h"

enum { SEALED_READ_CHUNKS = 8192 }; /* of one file at once */

/* Keys of a search in sealed files, ascending by slot, and whose they are. */
struct key_list {
    size_t count;
    struct sealed_key *keys;
    uint32_t *items;
};

/* A file that overlaps the range. */
struct source {
    uint64_t generation;
    const struct sealed_view *view; /* or: */
    const struct part_source *part;
    bool is_concerned;               /* by a tombstone */
    struct sealed_chunk_list chunks; /* of a view; key_index is the item */
    uint32_t *items, *series;        /* of a part */
    size_t count;
};

struct found {
    uint32_t item, source;
    struct column_piece piece;
};

struct reading {
    const struct file_read *r;
    struct arena scratch;
    struct errinfo *ei;
    struct source *sources; /* ascending by generation */
    size_t source_count;
    struct key_list *passes; /* one, unless a slot is asked for several times */
    size_t pass_count;
    uint32_t *piece_counts; /* by item: in files; later where they begin in `found` */
    struct found *found;    /* in order of precedence; later by item */
    size_t found_count, found_capacity;
    const struct tombstone **tombstones; /* that concern a source */
    size_t tombstone_count;
    struct labels **labels; /* by item: NULL for those that no tombstone concerns */
    struct column_merger merger;
};

static enum err refused(const struct reading *g)
{
    enum err e = arena_error(&g->scratch, g->ei);

    ASSERT(e != ERR_OK);
    return e;
}

/* ---- which files ---- */

static bool overlaps(const struct file_read *r, int64_t min_time_ms, int64_t max_time_ms)
{
    return min_time_ms <= max_time_ms && min_time_ms <= r->max_time_ms &&
           max_time_ms >= r->min_time_ms;
}

bool file_set_overlaps(const struct file_set *set, int64_t min_time_ms, int64_t max_time_ms)
{
    const struct file_read range = {.min_time_ms = min_time_ms, .max_time_ms = max_time_ms};

    for (size_t i = 0; set != NULL && i < set->sealed_count; i++) {
        if (overlaps(&range, set->sealed[i].min_time_ms, set->sealed[i].max_time_ms))
            return true;
    }
    for (size_t i = 0; set != NULL && i < set->part_count; i++) {
        if (part_source_overlaps(set->parts[i], min_time_ms, max_time_ms))
            return true;
    }
    return false;
}

bool part_source_overlaps(const struct part_source *p, int64_t min_time_ms, int64_t max_time_ms)
{
    const struct part_info *info = part_info(p->part);

    return info->min_time_ms <= info->max_time_ms && info->min_time_ms <= max_time_ms &&
           info->max_time_ms >= min_time_ms;
}

static void source_add(struct reading *g, struct source s, int64_t min_time_ms, int64_t max_time_ms)
{
    const struct file_read *r = g->r;

    s.is_concerned =
        tombstone_list_concerns(r->set->tombstones, s.generation,
                                min_time_ms > r->min_time_ms ? min_time_ms : r->min_time_ms,
                                max_time_ms < r->max_time_ms ? max_time_ms : r->max_time_ms);
    g->sources[g->source_count++] = s;
}

static int compare_sources(const void *a, const void *b)
{
    const struct source *x = a, *y = b;

    return (x->generation > y->generation) - (x->generation < y->generation);
}

static enum err sources_list(struct reading *g)
{
    const struct file_read *r = g->r;
    const struct file_set *set = r->set;

    g->sources = ARENA_ARRAY(&g->scratch, set->sealed_count + set->part_count, struct source);
    if (g->sources == NULL)
        return refused(g);
    for (size_t i = 0; i < set->sealed_count; i++) {
        const struct sealed_view *v = &set->sealed[i];

        if (overlaps(r, v->min_time_ms, v->max_time_ms))
            source_add(g, (struct source){.generation = v->source->generation, .view = v},
                       v->min_time_ms, v->max_time_ms);
    }
    for (size_t i = 0; i < set->part_count; i++) {
        const struct part_info *info = part_info(set->parts[i]->part);

        if (part_source_overlaps(set->parts[i], r->min_time_ms, r->max_time_ms))
            source_add(g,
                       (struct source){.generation = info->key.generation, .part = set->parts[i]},
                       info->min_time_ms, info->max_time_ms);
    }
    if (g->source_count > 1)
        qsort(g->sources, g->source_count, sizeof *g->sources, compare_sources);
    return ERR_OK;
}

/* ---- finding ---- */

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Takes the first of each slot out of order[], which is ascending by slot; returns what is left. */
static size_t pass_take(const struct file_read *r, uint64_t *order, size_t count,
                        struct key_list *pass)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t item = (uint32_t)order[i];
        const struct file_read_item *it = &r->items[item];

        if (pass->count > 0 && pass->keys[pass->count - 1].slot == it->slot) {
            order[left++] = order[i];
            continue;
        }
        pass->items[pass->count] = item;
        pass->keys[pass->count++] = (struct sealed_key){it->slot, it->generation};
    }
    return left;
}

static enum err passes_make(struct reading *g)
{
    const struct file_read *r = g->r;
    uint64_t *order = ARENA_ARRAY(&g->scratch, r->count, uint64_t);
    size_t count = 0;

    if (order == NULL)
        return refused(g);
    for (size_t i = 0; i < r->count; i++) {
        if (r->items[i].slot != UINT32_MAX)
            order[count++] = (uint64_t)r->items[i].slot << 32 | i;
    }
    if (count > 1)
        qsort(order, count, sizeof *order, compare_keys);
    while (count > 0) {
        struct key_list *pass;

        g->passes = arena_grow_array(&g->scratch, g->passes, g->pass_count, g->pass_count + 1,
                                     sizeof *g->passes);
        if (g->passes == NULL)
            return refused(g);
        pass = &g->passes[g->pass_count++];
        *pass = (struct key_list){0, ARENA_ARRAY(&g->scratch, count, struct sealed_key),
                                  ARENA_ARRAY(&g->scratch, count, uint32_t)};
        if (pass->keys == NULL || pass->items == NULL)
            return refused(g);
        count = pass_take(r, order, count, pass);
    }
    return ERR_OK;
}

static enum err view_find(struct reading *g, struct source *s)
{
    const struct file_read *r = g->r;
    enum err e = ERR_OK;

    for (size_t p = 0; p < g->pass_count; p++) {
        const struct key_list *pass = &g->passes[p];

        for (size_t i = 0; i < s->view->slice_count && e == ERR_OK; i++) {
            size_t at = s->chunks.count;

            e = sealed_find(s->view->source->file, s->view->slices[i], pass->keys, pass->count,
                            r->min_time_ms, r->max_time_ms, &g->scratch, &s->chunks, g->ei);
            for (; at < s->chunks.count; at++)
                s->chunks.items[at].key_index = pass->items[s->chunks.items[at].key_index];
        }
    }
    for (size_t i = 0; i < s->chunks.count; i++)
        g->piece_counts[s->chunks.items[i].key_index]++;
    return e;
}

static enum err part_search(struct reading *g, struct source *s, const struct hash128 *fingerprints)
{
    size_t count = g->r->count;
    enum err e;

    s->items = ARENA_ARRAY(&g->scratch, count, uint32_t);
    s->series = ARENA_ARRAY(&g->scratch, count, uint32_t);
    if (s->items == NULL || s->series == NULL)
        return refused(g);
    e = part_find(s->part->part, fingerprints, count, s->series, g->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        if (s->series[i] == PART_NO_SERIES)
            continue;
        s->items[s->count] = (uint32_t)i;
        s->series[s->count++] = s->series[i];
        g->piece_counts[i]++;
    }
    return e;
}

static enum err sources_search(struct reading *g)
{
    const struct file_read *r = g->r;
    struct hash128 *fingerprints = ARENA_ARRAY(&g->scratch, r->count, struct hash128);
    enum err e = passes_make(g);

    g->piece_counts = arena_calloc(&g->scratch, r->count + 1, sizeof *g->piece_counts);
    if (e == ERR_OK && (fingerprints == NULL || g->piece_counts == NULL))
        e = refused(g);
    for (size_t i = 0; i < r->count && e == ERR_OK; i++)
        fingerprints[i] = r->items[i].fingerprint;
    for (size_t i = 0; i < g->source_count && e == ERR_OK; i++) {
        struct source *s = &g->sources[i];

        e = s->view != NULL ? view_find(g, s) : part_search(g, s, fingerprints);
    }
    return e;
}

/* ---- decoding ---- */

enum { MEMORY_SOURCES = 3 };

/* What was read from memory of an item, in order of precedence. */
static struct column memory_column(const struct file_read *r, size_t source, size_t item)
{
    const struct column *const columns[MEMORY_SOURCES] = {r->in_order, r->late_frozen, r->late};

    return columns[source] == NULL ? (struct column){0} : columns[source][item];
}

static size_t memory_piece_count(const struct file_read *r, size_t item)
{
    size_t count = 0;

    for (size_t i = 0; i < MEMORY_SOURCES; i++)
        count += memory_column(r, i, item).count > 0;
    return count;
}

static bool is_elsewhere(const struct reading *g, uint32_t item)
{
    return g->piece_counts[item] > 1 || memory_piece_count(g->r, item) > 0;
}

/* The result's arena if nothing of the source has to be put together with anything. */
static struct arena *arena_for(struct reading *g, const struct source *s)
{
    for (size_t i = 0; i < s->chunks.count; i++) {
        if (is_elsewhere(g, s->chunks.items[i].key_index))
            return &g->scratch;
    }
    for (size_t i = 0; i < s->count; i++) {
        if (is_elsewhere(g, s->items[i]))
            return &g->scratch;
    }
    return g->r->arena;
}

static void found_add(struct reading *g, uint32_t item, const struct source *s, struct column c,
                      const struct arena *arena)
{
    column_trim(&c, g->r->min_time_ms, g->r->max_time_ms);
    if (c.count == 0)
        return;
    ASSERT(g->found_count < g->found_capacity);
    g->found[g->found_count++] =
        (struct found){item, (uint32_t)(s - g->sources), {c, arena == &g->scratch}};
}

static enum err view_read(struct reading *g, const struct source *s)
{
    struct arena *arena = arena_for(g, s);
    size_t room = s->chunks.count < SEALED_READ_CHUNKS ? s->chunks.count : SEALED_READ_CHUNKS;
    struct column *columns = ARENA_ARRAY(&g->scratch, room, struct column);

    if (columns == NULL)
        return refused(g);
    for (size_t i = 0; i < s->chunks.count; i += SEALED_READ_CHUNKS) {
        size_t n = s->chunks.count - i < room ? s->chunks.count - i : room;
        enum err e = sealed_read_kept(s->view->source->file, s->chunks.items + i, n, arena,
                                      g->r->arena, columns, g->ei);

        if (e != ERR_OK)
            return e;
        for (size_t k = 0; k < n; k++)
            found_add(g, s->chunks.items[i + k].key_index, s, columns[k], arena);
    }
    return ERR_OK;
}

static enum err series_read(struct reading *g, const struct source *s)
{
    const struct file_read *r = g->r;
    struct arena *arena = arena_for(g, s);
    struct column *columns = ARENA_ARRAY(&g->scratch, s->count, struct column);
    enum err e;

    if (columns == NULL)
        return refused(g);
    e = part_read(s->part->part, s->series, s->count, r->min_time_ms, r->max_time_ms, arena,
                  r->arena, columns, g->ei);
    for (size_t i = 0; i < s->count && e == ERR_OK; i++)
        found_add(g, s->items[i], s, columns[i], arena);
    return e;
}

/* Brings what was found into the order of the items; within one that of the sources stays. */
static enum err found_group(struct reading *g)
{
    struct found *grouped = ARENA_ARRAY(&g->scratch, g->found_count, struct found);
    uint32_t first = 0;

    if (grouped == NULL)
        return refused(g);
    memset(g->piece_counts, 0, g->r->count * sizeof *g->piece_counts);
    for (size_t i = 0; i < g->found_count; i++)
        g->piece_counts[g->found[i].item]++;
    for (size_t i = 0; i <= g->r->count; i++) {
        uint32_t n = i < g->r->count ? g->piece_counts[i] : 0;

        g->piece_counts[i] = first;
        first += n;
    }
    for (size_t i = 0; i < g->found_count; i++)
        grouped[g->piece_counts[g->found[i].item]++] = g->found[i];
    /* Each now stands where the next one begins. */
    memmove(g->piece_counts + 1, g->piece_counts, g->r->count * sizeof *g->piece_counts);
    g->piece_counts[0] = 0;
    g->found = grouped;
    return ERR_OK;
}

static enum err sources_read(struct reading *g)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < g->r->count; i++)
        g->found_capacity += g->piece_counts[i];
    g->found = ARENA_ARRAY(&g->scratch, g->found_capacity, struct found);
    if (g->found == NULL)
        return refused(g);
    for (size_t i = 0; i < g->source_count && e == ERR_OK; i++) {
        const struct source *s = &g->sources[i];

        if (s->chunks.count > 0)
            e = view_read(g, s);
        else if (s->count > 0)
            e = series_read(g, s);
    }
    return e == ERR_OK ? found_group(g) : e;
}

/* ---- what was deleted ---- */

static bool tombstone_counts(const struct reading *g, const struct tombstone *t)
{
    if (!overlaps(g->r, t->min_time_ms, t->max_time_ms))
        return false;
    for (size_t i = 0; i < g->source_count; i++) {
        if (g->sources[i].is_concerned && g->sources[i].generation < t->generation)
            return true;
    }
    return false;
}

static enum err tombstones_list(struct reading *g)
{
    const struct tombstone_list *list = g->r->set->tombstones;

    if (list == NULL)
        return ERR_OK;
    g->tombstones = arena_alloc_array(&g->scratch, list->count, sizeof(struct tombstone *));
    if (g->tombstones == NULL)
        return refused(g);
    for (size_t i = 0; i < list->count; i++) {
        if (tombstone_counts(g, &list->items[i]))
            g->tombstones[g->tombstone_count++] = &list->items[i];
    }
    return ERR_OK;
}

static bool item_is_concerned(const struct reading *g, size_t item)
{
    for (uint32_t i = g->piece_counts[item]; i < g->piece_counts[item + 1]; i++) {
        if (g->sources[g->found[i].source].is_concerned)
            return true;
    }
    return false;
}

static enum err labels_get_all(struct reading *g)
{
    const struct file_read *r = g->r;
    size_t *items = ARENA_ARRAY(&g->scratch, r->count, size_t);
    struct labels *sets;
    size_t count = 0;
    enum err e;

    g->labels = arena_calloc(&g->scratch, r->count, sizeof(struct labels *));
    if (g->labels == NULL || items == NULL)
        return refused(g);
    for (size_t i = 0; i < r->count; i++) {
        if (item_is_concerned(g, i))
            items[count++] = i;
    }
    sets = ARENA_ARRAY(&g->scratch, count, struct labels);
    if (sets == NULL)
        return refused(g);
    e = count == 0 ? ERR_OK : r->labels_of(r->ctx, items, count, &g->scratch, sets, g->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        g->labels[items[i]] = &sets[i];
    return e;
}

/* Pieces of one series. */
struct piece_list {
    struct column_piece *items;
    size_t count, capacity;
};

static bool piece_add(struct reading *g, struct piece_list *list, struct column_piece piece)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity * 2 + 2;

        list->items =
            arena_grow_array(&g->scratch, list->items, list->count, capacity, sizeof *list->items);
        if (list->items == NULL)
            return false;
        list->capacity = capacity;
    }
    list->items[list->count++] = piece;
    return true;
}

/* Cuts [min_time_ms, max_time_ms] out of the pieces from `first` on. What is behind the cut becomes
 * a piece at the end: pieces of one source do not overlap, so their order does not matter. */
static bool pieces_cut(struct reading *g, struct piece_list *list, size_t first,
                       int64_t min_time_ms, int64_t max_time_ms)
{
    size_t end = list->count;

    for (size_t i = first; i < end; i++) {
        struct column *c = &list->items[i].column;
        struct column_piece behind = list->items[i];
        size_t head = column_lower_bound(c, min_time_ms);
        size_t tail = max_time_ms == INT64_MAX ? c->count : column_lower_bound(c, max_time_ms + 1);

        behind.column = column_slice(c, tail, c->count - tail);
        if (head == 0) {
            *c = behind.column; /* may be empty now */
            continue;
        }
        c->count = head;
        if (behind.column.count > 0 && !piece_add(g, list, behind))
            return false;
    }
    return true;
}

static void pieces_drop_empty(struct piece_list *list, size_t first)
{
    size_t kept = first;

    for (size_t i = first; i < list->count; i++) {
        if (list->items[i].column.count > 0)
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

/* One piece of a file, less what was deleted of it. `matches` by tombstone, where one concerns the
 * file. */
static bool piece_filter(struct reading *g, const struct found *f, const bool *matches,
                         struct piece_list *list)
{
    const struct source *s = &g->sources[f->source];
    size_t first = list->count, tombstone_count = s->is_concerned ? g->tombstone_count : 0;

    ASSERT(tombstone_count == 0 || matches != NULL);
    if (!piece_add(g, list, f->piece))
        return false;
    for (size_t i = 0; i < tombstone_count; i++) {
        const struct tombstone *t = g->tombstones[i];

        if (t->generation > s->generation && matches[i] &&
            !pieces_cut(g, list, first, t->min_time_ms, t->max_time_ms))
            return false;
    }
    pieces_drop_empty(list, first);
    return true;
}

/* ---- one series ---- */

static enum err matches_get(struct reading *g, size_t item, bool **out)
{
    bool *matches = ARENA_ARRAY(&g->scratch, g->tombstone_count, bool);

    if (matches == NULL)
        return refused(g);
    for (size_t i = 0; i < g->tombstone_count; i++) {
        if (!tombstone_matches(g->tombstones[i], g->labels[item], &g->scratch, &matches[i]))
            return refused(g);
    }
    *out = matches;
    return ERR_OK;
}

static bool memory_add(struct reading *g, size_t item, struct piece_list *list)
{
    for (size_t i = 0; i < MEMORY_SOURCES; i++) {
        struct column c = memory_column(g->r, i, item);

        if (c.count > 0 && !piece_add(g, list, (struct column_piece){c, false}))
            return false;
    }
    return true;
}

static enum err item_merge(struct reading *g, size_t item, struct column *out)
{
    uint32_t first = g->piece_counts[item], end = g->piece_counts[item + 1];
    struct piece_list list = {.capacity = end - first + MEMORY_SOURCES};
    bool *matches = NULL;

    list.items = ARENA_ARRAY(&g->scratch, list.capacity, struct column_piece);
    if (list.items == NULL)
        return refused(g);
    if (g->tombstone_count > 0 && g->labels[item] != NULL) {
        enum err e = matches_get(g, item, &matches);

        if (e != ERR_OK)
            return e;
    }
    for (uint32_t i = first; i < end; i++) {
        if (!piece_filter(g, &g->found[i], matches, &list))
            return refused(g);
    }
    if (!memory_add(g, item, &list))
        return refused(g);
    return column_merge(&g->merger, list.items, list.count, out, g->ei);
}

static enum err files_read(struct reading *g)
{
    enum err e = sources_search(g);

    if (e == ERR_OK)
        e = sources_read(g);
    if (e == ERR_OK)
        e = tombstones_list(g);
    if (e == ERR_OK && g->tombstone_count > 0)
        e = labels_get_all(g);
    return e;
}

static bool has_late(const struct file_read *r)
{
    for (size_t i = 0; i < r->count; i++) {
        if (memory_piece_count(r, i) > (r->in_order != NULL && r->in_order[i].count > 0))
            return true;
    }
    return false;
}

static void copy_in_order(const struct file_read *r, struct column *out)
{
    if (r->count == 0)
        return;
    if (r->in_order != NULL)
        memcpy(out, r->in_order, r->count * sizeof *out);
    else
        memset(out, 0, r->count * sizeof *out);
}

enum err file_set_read(const struct file_read *r, struct column *out, struct errinfo *ei)
{
    struct reading g = {.r = r, .ei = ei};
    bool has_files = file_set_overlaps(r->set, r->min_time_ms, r->max_time_ms);
    enum err e = ERR_OK;

    ASSERT(r->count <= QUERIER_READ_BATCH_MAX);
    if (!has_files && ((r->late == NULL && r->late_frozen == NULL) || !has_late(r))) {
        copy_in_order(r, out);
        return ERR_OK;
    }
    arena_init(&g.scratch, r->arena->budget);
    g.merger.arena = r->arena;
    g.merger.scratch = &g.scratch;
    if (has_files)
        e = sources_list(&g);
    if (e == ERR_OK && has_files)
        e = files_read(&g);
    if (e == ERR_OK && !has_files) {
        g.piece_counts = arena_calloc(&g.scratch, r->count + 1, sizeof *g.piece_counts);
        e = g.piece_counts == NULL ? refused(&g) : ERR_OK;
    }
    for (size_t i = 0; i < r->count && e == ERR_OK; i++)
        e = item_merge(&g, i, &out[i]);
    arena_done(&g.scratch);
    return e;
}
