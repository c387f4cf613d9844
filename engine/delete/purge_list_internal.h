/*
 * Which deletions can be withdrawn: keys, each with the generation of its tombstone. A list is
 * immutable and counted; a change makes a new one. A key stays when its tombstone has been
 * forgotten, until it is withdrawn.
 */
#ifndef RIMSTONE_ENGINE_DELETE_PURGE_LIST_INTERNAL_H
#define RIMSTONE_ENGINE_DELETE_PURGE_LIST_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

struct purge_item {
    uint64_t generation; /* of the tombstone; 0: there was nothing to delete */
    uint64_t file_count; /* sealed files, late files and parts it could hit when it was made */
    struct str key;      /* not empty; of the list */
};

struct purge_list {
    _Atomic uint32_t refs;
    size_t count;
    struct purge_item *items; /* in the arena; ascending by key */
    struct arena arena;
};

struct purge_list *purge_list_ref(struct purge_list *list); /* NULL gives NULL */
void purge_list_unref(struct purge_list *list);             /* accepts NULL */
/* NULL if there is none. */
const struct purge_item *purge_list_find(const struct purge_list *list, struct str key);
/* A copy of `base` (NULL: empty) with some more, at least one, ascending by key. ERR_EXISTS also
 * for a key that stands twice among them; ERR_INVALID for one that is empty or of more than 1 MiB.
 */
MUST_USE enum err purge_list_add(const struct purge_list *base, const struct purge_item *added,
                                 size_t added_count, struct purge_list **out, struct errinfo *ei);
/* A copy without these keys, which ascend. *out is NULL when none is left. */
MUST_USE enum err purge_list_remove(const struct purge_list *base, const struct str *keys,
                                    size_t key_count, struct purge_list **out, struct errinfo *ei);

/* As the content of the manifest's section 5 (docs/formats/manifest.md), appended to `w`. `list`
 * may be NULL, and an empty list is decoded to NULL. ERR_CORRUPT for anything that encode would not
 * have written. */
MUST_USE enum err purge_list_encode(const struct purge_list *list, struct byte_writer *w,
                                    struct errinfo *ei);
MUST_USE enum err purge_list_decode(const uint8_t *data, size_t size, struct purge_list **out,
                                    struct errinfo *ei);

#endif
