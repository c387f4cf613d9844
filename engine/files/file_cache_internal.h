/*
 * A bounded set of open descriptors for files that are only read. A file is opened when it is first
 * needed and closed when others need the room; one in use stays open, so the bound may be passed by
 * as many files as are in use at once.
 */
#ifndef RIMSTONE_ENGINE_FILES_FILE_CACHE_INTERNAL_H
#define RIMSTONE_ENGINE_FILES_FILE_CACHE_INTERNAL_H

#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

struct file_cache;

/* One file, owned by whoever reads it; zero except for path. */
struct cached_file {
    const char *path;                  /* borrowed, constant */
    struct file *file;                 /* the cache's lock; NULL: closed */
    struct cached_file *newer, *older; /* the cache's lock; in the list while open */
    uint32_t users;                    /* the cache's lock */
};

MUST_USE enum err file_cache_new(struct fs *fs, uint32_t limit, struct file_cache **out,
                                 struct errinfo *ei);
void file_cache_free(struct file_cache *c); /* all files dropped; accepts NULL */
/* Opens the file if need be and keeps it open until file_cache_release(). */
MUST_USE enum err file_cache_acquire(struct file_cache *c, struct cached_file *f, struct file **out,
                                     struct errinfo *ei);
void file_cache_release(struct file_cache *c, struct cached_file *f);
/* Closes the file for good; nobody uses it. */
void file_cache_drop(struct file_cache *c, struct cached_file *f);
uint32_t file_cache_open_count(struct file_cache *c);

#endif
