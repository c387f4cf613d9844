#include "tools/data_dir_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/json.h"

enum err data_dir_open(const char *dir, struct fs **out, struct errinfo *ei)
{
    struct stat st;

    /* fs_open() would create it. */
    if (stat(dir, &st) != 0)
        return errinfo_set(ei, err_from_errno(errno), errno, "%s", dir);
    if (!S_ISDIR(st.st_mode))
        return errinfo_set(ei, ERR_INVALID, 0, "%s is no directory", dir);
    return fs_open(dir, FS_IO_AUTO, out, ei);
}

void data_dir_failure_print(const char *verb, const struct errinfo *ei)
{
    fprintf(stderr, "rimtool %s: %s%s\n", verb, ei->message,
            ei->code == ERR_LOCKED ? "; stop the server, or look at a snapshot or a copy" : "");
}

bool tool_output(const char *verb, const struct byte_writer *w)
{
    if (w->failed) {
        fprintf(stderr, "rimtool %s: out of memory\n", verb);
        return false;
    }
    if (fwrite(w->data, 1, w->size, stdout) == w->size && fflush(stdout) == 0)
        return true;
    fprintf(stderr, "rimtool %s: cannot write to standard output\n", verb);
    return false;
}

void json_field(struct byte_writer *w, const char *name)
{
    if (w->size > 0 && w->data[w->size - 1] != '{')
        writer_u8(w, ',');
    json_write_string(w, str_from(name));
    writer_u8(w, ':');
}

void json_field_u64(struct byte_writer *w, const char *name, uint64_t v)
{
    char text[24];

    json_field(w, name);
    (void)snprintf(text, sizeof text, "%" PRIu64, v); /* it fits */
    json_write_raw(w, text);
}

void json_field_number(struct byte_writer *w, const char *name, double v)
{
    json_field(w, name);
    json_write_number(w, v);
}

void json_field_text(struct byte_writer *w, const char *name, const char *text)
{
    json_field(w, name);
    json_write_string(w, str_from(text));
}
