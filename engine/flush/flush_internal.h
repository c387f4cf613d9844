/*
 * From sealed and late files to parts: what the flush of a window, the split of late files and the
 * leaving of ended series share. LIFECYCLE.md.
 */
#ifndef RIMSTONE_ENGINE_FLUSH_FLUSH_INTERNAL_H
#define RIMSTONE_ENGINE_FLUSH_FLUSH_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "engine/engine_internal.h"
#include "engine/files/file_set_internal.h"
#include "engine/files/maintain_tick_internal.h"
#include "engine/index/index_internal.h"
#include "engine/maintain.h"
#include "engine/part.h"

/* ERR_INVALID in a store that is open for reading only. */
MUST_USE enum err flush_admit(const struct engine *e, struct errinfo *ei);

/* ---- order (flush_order.c) ---- */

/*
 * Sorts distinct slots of one index in the storage order of parts, without building their label
 * sets. Charges 4 bytes a value of the dictionaries they use and some 40 bytes a slot to `memory`
 * (may be NULL) while it runs. Slots must stay in the index meanwhile. ERR_LIMIT, ERR_NOMEM: the
 * order of slots[] is undefined.
 */
MUST_USE enum err flush_order_slots(struct index *ix, uint32_t *slots, size_t count,
                                    struct budget *memory, const struct maintain_control *control,
                                    struct errinfo *ei);

/* ---- one part out of sealed views (flush_window.c) ---- */

/* What a flush asks of the series whose chunks it meets. */
struct flush_series {
    struct hash128 fingerprint;
    uint16_t generation;
    bool is_wanted; /* false, or a chunk of another generation: the chunk is passed over */
};
/* For slots in any order; the same slot gets the same answer for the length of the flush. */
typedef void flush_lookup(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out);

struct flush_window {
    const struct sealed_view *views; /* ascending by generation: of a repeated sample the first */
    size_t view_count;
    struct part_key key; /* its window takes the samples that lie in it */
    struct index *index; /* has the labels of all wanted slots */
    flush_lookup *lookup;
    void *ctx;
    const struct tombstone_list *tombstones; /* NULL: none */
    struct part_store *store;
    const char *dir;       /* of the part */
    struct budget *memory; /* charged, may be NULL */
    uint64_t name_step;    /* flush_part_add(): between generations; 0: 1 */
    size_t pass_bytes;     /* what is held of the files' chunks at a time; 0: 48 MiB */
    const struct maintain_control *control; /* may be NULL */
};

struct flush_window_result {
    bool is_written; /* false: no sample was left, and there is no part */
    struct part_info info;
};
/*
 * Writes one part with the samples of the key's window out of the views, durable when it returns.
 * Series come in label order, chunks are cut as merges cut them. Nothing but files' directories is
 * read more than once unless the chunks exceed pass_bytes: then series go in several passes of the
 * files, each in their order on disk.
 *
 * After a failure nothing of the part is left (debris where the disk refuses that).
 * ERR_EXISTS: files of that key are there.
 */
MUST_USE enum err flush_window_write(const struct flush_window *f, struct flush_window_result *out,
                                     struct errinfo *ei);

/* ---- parts that no manifest names yet (flush_parts.c) ---- */

/* Parts of one shard, written and open. Zero-initialise. */
struct flush_parts {
    struct part_source **sources; /* owned array; each counted */
    struct manifest_part *named;  /* owned: how the manifest names them */
    size_t count, capacity;
};
/* A key whose name is free: `key`, or with the next generation that is, `step` by step. */
MUST_USE enum err flush_part_name(struct engine *e, struct part_key *key, uint64_t step,
                                  struct errinfo *ei);
/* Opens what was written. `purged_generation`: as in struct manifest_part. On failure the files are
 * removed. */
MUST_USE enum err flush_parts_add(struct engine *e, struct flush_parts *p,
                                  const struct part_info *info, uint64_t purged_generation,
                                  struct errinfo *ei);
/* Gives up the references. Unless they were `published` the files are removed; where the manifest
 * is in doubt they stay, and are debris or not at the next start. */
void flush_parts_done(struct engine *e, struct flush_parts *p, bool published);

/*
 * Exchanges files of a shard: in the manifest, then in what readers see; then the files of what was
 * removed are unlinked with their last reader. Caller holds the shard's maintain_lock, and ends the
 * writers of sealed files that were removed (sealer_end_window()).
 */
struct flush_exchange {
    const struct flush_parts *parts_added; /* NULL: none */
    struct sealed_source *const *sealed_removed;
    size_t sealed_removed_count;
    struct part_source *const *parts_removed;
    size_t parts_removed_count;
    /* Further changes, or NULL: to the manifest; and in the critical section of shard.lock in which
     * the new set is published. */
    manifest_change *change;
    void (*locked)(void *ctx, struct shard *s);
    void *ctx;
};
/* After a failure nothing has changed. */
MUST_USE enum err flush_exchange_run(struct engine *e, struct shard *s,
                                     const struct flush_exchange *x, struct errinfo *ei);

/* The newest tombstone's generation, 0 without any. */
uint64_t flush_purged_generation(const struct tombstone_list *list);

/* ---- what a shard gives to flush_window_write() (flush.c) ---- */

/* A flush_lookup, ctx the shard: live series are wanted. */
void flush_look_up_live(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out);
/* The oldest window not before `from` that ends by `until_ms` and has a sealed file. */
bool flush_next_window(const struct shard *s, uint32_t from, int64_t until_ms, uint32_t *out);
/* Everything but views and key. `lookup` says that live series are wanted. Caller holds
 * maintain_lock. */
struct flush_window flush_window_of(struct engine *e, struct shard *s,
                                    const struct maintain_control *control);
/* Copies the sealed views of a window and their sources, ascending by generation; both have room
 * for set->sealed_count. Nothing is counted. */
size_t flush_window_views(const struct file_set *set, uint32_t window, struct sealed_view *views,
                          struct sealed_source **sources);
/*
 * How far, from views[first] on, a window's files may go into one part: up to one above which a
 * late file or a part stands that has samples of the window, and would find itself on the other
 * side of what it shares timestamps with. `by_tombstones`: also up to a tombstone, for a part that
 * gets the lowest generation.
 */
size_t flush_group_end(const struct file_set *set, const struct sealed_view *views, size_t count,
                       size_t first, bool by_tombstones);
/* Key of a part of the shard in a window of chunk_window(). */
struct part_key flush_part_key(const struct engine *e, const struct shard *s, uint32_t window,
                               uint64_t generation);
/* Writes a part and adds it, if it has samples; adds to *result as well. */
MUST_USE enum err flush_part_add(struct engine *e, struct flush_window *f,
                                 struct flush_parts *parts, struct flush_result *result,
                                 struct errinfo *ei);

/* ---- split_late.c ---- */

/* engine_split_late(); the caller holds maintain_lock. */
MUST_USE enum err flush_split_late(struct engine *e, struct shard *s,
                                   const struct maintain_control *control, struct flush_result *out,
                                   struct errinfo *ei);

/* ---- flush_ended.c ---- */

/*
 * Ended series leave: splits the shard's late files, then writes all samples that its sealed files
 * have of `count` slots (ascending, of their present generations) into a part a window. The parts
 * are open and not yet named: the caller has flush_exchange_run() do that, marks the slots dead in
 * its critical section, and calls flush_parts_done(). Caller holds maintain_lock; nothing of the
 * slots is in memory.
 */
MUST_USE enum err flush_ended(struct engine *e, struct shard *s, const uint32_t *slots,
                              size_t count, const struct maintain_control *control,
                              struct flush_parts *out, struct flush_result *result,
                              struct errinfo *ei);

#endif
