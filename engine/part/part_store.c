/*
 * What all parts share, and reading verified pages through it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

enum {
    /* One submission reads at most this much, so that a large query neither pins the whole cache
     * nor floods the disk's queue. */
    BATCH_READS_MAX = 128,
};

enum err part_store_new(const struct part_store_options *o, struct part_store **out,
                        struct errinfo *ei)
{
    struct part_store *s = calloc(1, sizeof *s);
    enum err e;

    if (s == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "part store");
    s->fs = o->fs;
    s->memory = o->memory;
    atomic_init(&s->next_file, 1);
    atomic_init(&s->read_bytes, 0);
    e = page_cache_new(o->memory, o->cache_bytes, &s->pages, ei);
    if (e == ERR_OK)
        e = file_cache_new(o->fs, o->descriptor_count, &s->files, ei);
    if (e == ERR_OK)
        *out = TAKE(s);
    part_store_free(s);
    return e;
}

void part_store_free(struct part_store *s)
{
    if (s == NULL)
        return;
    page_cache_free(s->pages);
    file_cache_free(s->files);
    free(s);
}

void part_store_stats_get(struct part_store *s, struct part_store_stats *out)
{
    struct page_cache_stats pages;

    page_cache_stats_get(s->pages, &pages);
    *out = (struct part_store_stats){
        .page_hits = pages.hits,
        .page_misses = pages.misses,
        .page_evictions = pages.evictions,
        .cached_bytes = pages.cached_bytes,
        /* relaxed: a statistic */
        .read_bytes = atomic_load_explicit(&s->read_bytes, memory_order_relaxed),
        .open_descriptors = file_cache_open_count(s->files),
    };
}

char *part_path_new(const char *dir, const struct part_key *key, enum part_file file,
                    bool temporary)
{
    bool root = dir[0] == '\0' || strcmp(dir, ".") == 0;
    char name[PART_NAME_SIZE];
    size_t size = strlen(dir) + 1 + PART_NAME_SIZE;
    char *path = malloc(size);

    part_name_format(key, file, temporary, name);
    if (path != NULL)
        (void)snprintf(path, size, "%s%s%s", root ? "" : dir, root ? "" : "/", name);
    return path;
}

/* ---- errors ---- */

enum err part_corrupt(const struct part *p, enum part_file file, uint64_t offset, const char *what,
                      struct errinfo *ei)
{
    return errinfo_set_at(ei, ERR_CORRUPT, p->paths[file], offset, "%s", what);
}

enum err part_page_corrupt(const struct part *p, enum part_section section, uint32_t index,
                           struct errinfo *ei)
{
    return errinfo_set_at(ei, ERR_CORRUPT, p->paths[PART_FILE_INDEX],
                          p->footer.tables[section].pages[index].offset, "contents of a page of %s",
                          part_section_name(section));
}

/* ---- pages ---- */

void part_pages_release(struct part_page_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        page_release(requests[i].page);
        requests[i].page = NULL;
    }
}

/* The misses of one batch. */
struct page_batch {
    struct part_page_request *requests[BATCH_READS_MAX];
    struct page *pages[BATCH_READS_MAX];
    struct file_read_op ops[BATCH_READS_MAX];
    size_t count;
    struct file *files[2]; /* acquired; NULL: not needed */
};

static enum err batch_add(struct part *p, struct page_batch *b, struct part_page_request *r,
                          struct errinfo *ei)
{
    struct part_store *s = p->store;
    struct page *page = NULL;
    enum err e = ERR_OK;

    if (b->files[r->file] == NULL)
        e = file_cache_acquire(s->files, &p->files[r->file], &b->files[r->file], ei);
    if (e == ERR_OK)
        e = page_new(s->pages, p->cache_ids[r->file], r->offset, r->size, &page, ei);
    if (e != ERR_OK)
        return e;
    b->ops[b->count] = (struct file_read_op){
        .file = b->files[r->file], .buffer = page->data, .size = r->size, .offset = r->offset};
    b->pages[b->count] = page;
    b->requests[b->count++] = r;
    return ERR_OK;
}

/* Reads and checks what has been gathered; good pages go to their requests. */
static enum err batch_read(struct part *p, struct page_batch *b, struct errinfo *ei)
{
    uint64_t bytes = 0;
    enum err e = b->count == 0 ? ERR_OK : fs_read_batch(p->store->fs, b->ops, b->count, ei);

    for (size_t i = 0; i < b->count && e == ERR_OK; i++) {
        struct page *page = b->pages[i];

        bytes += page->size;
        if (!part_page_is_intact(page->data, page->size, p->footer.info.id, page->offset)) {
            e = part_corrupt(p, b->requests[i]->file, page->offset, "checksum of a page is wrong",
                             ei);
            break;
        }
        b->requests[i]->page = page_cache_enter(p->store->pages, page);
        b->pages[i] = NULL;
    }
    /* relaxed: a statistic */
    atomic_fetch_add_explicit(&p->store->read_bytes, bytes, memory_order_relaxed);
    return e;
}

static void batch_done(struct part *p, struct page_batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        page_release(b->pages[i]);
    for (size_t file = 0; file < 2; file++) {
        if (b->files[file] != NULL)
            file_cache_release(p->store->files, &p->files[file]);
    }
    b->count = 0;
    b->files[0] = b->files[1] = NULL;
}

enum err part_pages_get(struct part *p, struct part_page_request *requests, size_t count,
                        struct errinfo *ei)
{
    struct page_batch b;
    enum err e = ERR_OK;

    b.count = 0;
    b.files[0] = b.files[1] = NULL;
    for (size_t i = 0; i < count; i++)
        requests[i].page = NULL;
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        struct part_page_request *r = &requests[i];

        r->page = page_cache_find(p->store->pages, p->cache_ids[r->file], r->offset);
        /* Pages of one offset and different sizes can only come from a lying index. */
        if (r->page != NULL && r->page->size != r->size)
            e = part_corrupt(p, r->file, r->offset, "pages overlap", ei);
        else if (r->page == NULL)
            e = batch_add(p, &b, r, ei);
        if (e == ERR_OK && b.count == BATCH_READS_MAX) {
            e = batch_read(p, &b, ei);
            batch_done(p, &b);
        }
    }
    if (e == ERR_OK)
        e = batch_read(p, &b, ei);
    batch_done(p, &b);
    if (e != ERR_OK)
        part_pages_release(requests, count);
    return e;
}

enum err part_page_get(struct part *p, enum part_section section, uint32_t index, struct page **out,
                       struct errinfo *ei)
{
    const struct part_page_entry *entry = &p->footer.tables[section].pages[index];
    struct part_page_request r = {PART_FILE_INDEX, entry->offset, entry->size, NULL};
    enum err e;

    ASSERT(index < p->footer.tables[section].count);
    e = part_pages_get(p, &r, 1, ei);
    *out = r.page;
    return e;
}

/* ---- decoded pages ---- */

static uint64_t page_place(const struct part *p, enum part_section section, uint32_t index)
{
    ASSERT(index < p->footer.tables[section].count);
    return p->footer.tables[section].pages[index].offset;
}

struct page *part_decoded_find(struct part *p, enum part_section section, uint32_t index)
{
    return page_cache_find(p->store->pages, p->decoded_id, page_place(p, section, index));
}

enum err part_decoded_new(struct part *p, enum part_section section, uint32_t index, size_t size,
                          struct page **out, struct errinfo *ei)
{
    return page_new(p->store->pages, p->decoded_id, page_place(p, section, index), size, out, ei);
}

struct page *part_decoded_keep(struct part *p, struct page *page)
{
    return page_cache_enter(p->store->pages, page);
}

uint32_t part_page_find(const struct part *p, enum part_section section, uint32_t first,
                        uint32_t count, uint32_t key)
{
    const struct part_page_entry *pages = p->footer.tables[section].pages + first;
    uint32_t low = 0, high = count; /* the answer is the last one at or before key */

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (pages[mid].key <= key)
            low = mid + 1;
        else
            high = mid;
    }
    return first + (low == 0 ? 0 : low - 1);
}
