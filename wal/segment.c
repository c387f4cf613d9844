/*
 * Segment files. A number is used once in the life of a log, even when creating its file fails, so
 * that no two files can ever hold frames that claim the same place.
 */
#include "wal/segment_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void wal_segment_path(uint32_t number, char out[WAL_PATH_SIZE])
{
    int n = snprintf(out, WAL_PATH_SIZE, WAL_DIR "/%08" PRIu32 ".wal", number);

    ASSERT(n > 0 && n < WAL_PATH_SIZE);
}

bool wal_segment_name_parse(const char *name, uint32_t *number)
{
    char expected[WAL_PATH_SIZE];
    uint64_t v = 0;
    size_t digits = 0;

    while (digits < 11 && name[digits] >= '0' && name[digits] <= '9')
        v = v * 10 + (uint64_t)(name[digits++] - '0');
    if (digits == 0 || v == 0 || v > UINT32_MAX)
        return false;
    /* Only the canonical spelling: "1.wal" beside "00000001.wal" would be one segment twice. */
    wal_segment_path((uint32_t)v, expected);
    if (strcmp(expected + sizeof WAL_DIR, name) != 0)
        return false;
    *number = (uint32_t)v;
    return true;
}

static enum err list_visit(void *ctx, const char *name, struct errinfo *ei)
{
    struct segment_list *list = ctx;
    uint32_t number;

    if (!wal_segment_name_parse(name, &number))
        return ERR_OK;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        uint32_t *numbers = reallocarray(list->numbers, capacity, sizeof *numbers);

        if (numbers == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "list of %zu segments", capacity);
        list->numbers = numbers;
        list->capacity = capacity;
    }
    list->numbers[list->count++] = number;
    return ERR_OK;
}

static int number_compare(const void *a, const void *b)
{
    uint32_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

enum err segment_list_read(struct fs *fs, struct segment_list *out, struct errinfo *ei)
{
    struct segment_list list = {0};
    enum err e = fs_list(fs, WAL_DIR, list_visit, &list, ei);

    if (e != ERR_OK) {
        segment_list_done(&list);
        return e;
    }
    /* Byte order of the names is not the order of the numbers once there are nine digits. */
    if (list.count > 0)
        qsort(list.numbers, list.count, sizeof *list.numbers, number_compare);
    *out = list;
    return ERR_OK;
}

void segment_list_done(struct segment_list *list)
{
    free(list->numbers);
    *list = (struct segment_list){0};
}

static enum err write_header(struct file *file, const struct segment_header *header,
                             struct errinfo *ei)
{
    uint8_t bytes[SEGMENT_HEADER_SIZE];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};

    segment_header_encode(header, bytes);
    return file_write(file, &iov, 1, 0, ei);
}

enum err segment_create(struct fs *fs, const struct segment_header *header, struct segment **out,
                        struct errinfo *ei)
{
    char path[WAL_PATH_SIZE];
    struct segment *seg = calloc(1, sizeof *seg);
    enum err e;

    if (seg == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "segment %" PRIu32, header->segment_number);
    wal_segment_path(header->segment_number, path);
    seg->number = header->segment_number;
    seg->highest = calloc(header->shard_count, sizeof *seg->highest);
    if (seg->highest == NULL) {
        e = errinfo_set(ei, ERR_NOMEM, 0, "segment %" PRIu32, header->segment_number);
        goto out;
    }
    e = file_open(fs, path, FILE_CREATE, &seg->file, ei);
    if (e != ERR_OK)
        goto out;
    e = write_header(seg->file, header, ei);
    /* Before the first frame counts as durable its file must be findable. */
    if (e == ERR_OK)
        e = fs_sync_dir(fs, WAL_DIR, ei);
    if (e == ERR_OK) {
        seg->size = SEGMENT_HEADER_SIZE;
        *out = TAKE(seg);
    }
out:
    if (seg != NULL && seg->file != NULL)
        (void)segment_give_up(fs, TAKE(seg), 0, false); /* e tells the story */
    segment_close(seg);
    return e;
}

bool segment_give_up(struct fs *fs, struct segment *segment, uint64_t keep_size, bool is_only)
{
    bool keep = keep_size > SEGMENT_HEADER_SIZE || is_only;
    char path[WAL_PATH_SIZE];
    enum err ignored = ERR_OK; /* what led here is the error to tell */

    /* Frames behind keep_size live on in memory and are written again elsewhere. After a failed
     * sync the page cache may show them although the disk does not have them: a restart that read
     * them there would take them for stored. Failure to cut is harmless by itself: the next
     * segment's header tells readers where to stop. */
    if (keep)
        ignored = file_truncate(segment->file, keep_size, NULL);
    wal_segment_path(segment->number, path);
    segment_close(segment);
    if (!keep)
        ignored = fs_unlink(fs, path, NULL);
    (void)ignored;
    return keep;
}

void segment_close(struct segment *segment)
{
    if (segment == NULL)
        return;
    file_close(segment->file);
    free(segment->highest);
    free(segment);
}

enum err wal_erase(struct fs *fs, struct errinfo *ei)
{
    struct segment_list list = {0};
    bool exists = false;
    enum err e = fs_exists(fs, WAL_DIR, &exists, ei);

    if (e != ERR_OK || !exists)
        return e;
    e = segment_list_read(fs, &list, ei);
    for (size_t i = 0; i < list.count && e == ERR_OK; i++) {
        char path[WAL_PATH_SIZE];

        wal_segment_path(list.numbers[i], path);
        e = fs_unlink(fs, path, ei);
    }
    segment_list_done(&list);
    return e == ERR_OK ? fs_sync_dir(fs, WAL_DIR, ei) : e;
}
