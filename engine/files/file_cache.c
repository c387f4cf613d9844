/*
 * See file_cache_internal.h. Files are opened and closed outside of the lock: a slow disk must not
 * hold up those who read files that are open.
 */
#include "engine/files/file_cache_internal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"

struct file_cache {
    struct fs *fs;
    struct mutex lock; /* guards all below and the links of the files */
    struct cached_file *newest, *oldest;
    uint32_t count, limit;
};

enum err file_cache_new(struct fs *fs, uint32_t limit, struct file_cache **out, struct errinfo *ei)
{
    struct file_cache *c = calloc(1, sizeof *c);

    if (c == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "descriptor cache");
    c->fs = fs;
    c->limit = limit < 2 ? 2 : limit;
    mutex_init(&c->lock);
    *out = c;
    return ERR_OK;
}

void file_cache_free(struct file_cache *c)
{
    if (c == NULL)
        return;
    ASSERT(c->count == 0);
    mutex_done(&c->lock);
    free(c);
}

static void list_remove(struct file_cache *c, struct cached_file *f)
{
    *(f->newer != NULL ? &f->newer->older : &c->newest) = f->older;
    *(f->older != NULL ? &f->older->newer : &c->oldest) = f->newer;
    f->newer = f->older = NULL;
    c->count--;
}

static void list_push(struct file_cache *c, struct cached_file *f)
{
    f->older = c->newest;
    *(f->older != NULL ? &f->older->newer : &c->oldest) = f;
    c->newest = f;
    c->count++;
}

/* Takes out the longest unused file, for the caller to close; NULL if there is room. */
static struct file *take_surplus(struct file_cache *c)
{
    struct cached_file *f = c->oldest;
    struct file *file;

    if (c->count <= c->limit)
        return NULL;
    while (f != NULL && f->users > 0)
        f = f->newer;
    if (f == NULL)
        return NULL;
    list_remove(c, f);
    file = f->file;
    f->file = NULL;
    return file;
}

/* True if the file is open; it is in use from then on. */
static bool acquire_open(struct file_cache *c, struct cached_file *f, struct file **out)
{
    if (f->file == NULL)
        return false;
    f->users++;
    list_remove(c, f);
    list_push(c, f);
    *out = f->file;
    return true;
}

enum err file_cache_acquire(struct file_cache *c, struct cached_file *f, struct file **out,
                            struct errinfo *ei)
{
    struct file *opened = NULL, *surplus = NULL;
    bool open;
    enum err e;

    mutex_lock(&c->lock);
    open = acquire_open(c, f, out);
    mutex_unlock(&c->lock);
    if (open)
        return ERR_OK;
    e = file_open(c->fs, f->path, FILE_READ, &opened, ei);
    if (e != ERR_OK)
        return e;
    mutex_lock(&c->lock);
    if (!acquire_open(c, f, out)) { /* nobody was faster */
        f->file = TAKE(opened);
        f->users++;
        list_push(c, f);
        *out = f->file;
        surplus = take_surplus(c);
    }
    mutex_unlock(&c->lock);
    file_close(opened);
    file_close(surplus);
    return ERR_OK;
}

void file_cache_release(struct file_cache *c, struct cached_file *f)
{
    struct file *surplus;

    mutex_lock(&c->lock);
    ASSERT(f->users > 0);
    f->users--;
    surplus = take_surplus(c);
    mutex_unlock(&c->lock);
    file_close(surplus);
}

void file_cache_drop(struct file_cache *c, struct cached_file *f)
{
    struct file *file;

    mutex_lock(&c->lock);
    ASSERT(f->users == 0);
    file = f->file;
    if (file != NULL)
        list_remove(c, f);
    f->file = NULL;
    mutex_unlock(&c->lock);
    file_close(file);
}

uint32_t file_cache_open_count(struct file_cache *c)
{
    uint32_t n;

    mutex_lock(&c->lock);
    n = c->count;
    mutex_unlock(&c->lock);
    return n;
}
