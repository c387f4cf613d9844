/*
 * A file's content exchanged as a whole: under another name, durable there, then renamed. A crash
 * leaves the old content or the new one.
 */
#include "base/file.h"

enum err fs_create_anew(struct fs *fs, const char *path, struct file **out, struct errinfo *ei)
{
    bool exists = false;
    enum err e = fs_exists(fs, path, &exists, ei);

    if (e == ERR_OK && exists)
        e = fs_unlink(fs, path, ei);
    return e == ERR_OK ? file_open(fs, path, FILE_CREATE, out, ei) : e;
}

enum err fs_put_in_place(struct fs *fs, const char *temp_path, const char *path, struct errinfo *ei)
{
    enum err e = fs_rename(fs, temp_path, path, ei);

    return e == ERR_OK ? fs_sync_dir(fs, ".", ei) : e;
}

enum err fs_replace(struct fs *fs, const char *temp_path, const char *path, const void *data,
                    size_t size, struct errinfo *ei)
{
    const struct iovec iov = {(void *)(uintptr_t)data, size}; /* only read */
    struct file *file = NULL;
    enum err e = fs_create_anew(fs, temp_path, &file, ei);

    if (e == ERR_OK)
        e = file_write_sync(file, &iov, 1, 0, ei);
    file_close(file);
    return e == ERR_OK ? fs_put_in_place(fs, temp_path, path, ei) : e;
}
