#include "base/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

enum err errinfo_setv(struct errinfo *ei, enum err code, int sys_errno, const char *format,
                      va_list args)
{
    ASSERT(code != ERR_OK);
    if (ei == NULL || ei->code != ERR_OK)
        return code;
    ei->code = code;
    ei->sys_errno = sys_errno;
    /* NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm of clang-tidy 14 */
    int n = vsnprintf(ei->message, sizeof ei->message, format, args);
    if (n < 0)
        n = 0;
    if (sys_errno != 0 && (size_t)n < sizeof ei->message) {
        const char *text = strerrordesc_np(sys_errno); /* thread-safe, unlike strerror() */

        (void)snprintf(ei->message + n, sizeof ei->message - (size_t)n, ": %s",
                       text != NULL ? text : "unknown error"); /* a cut story is still a story */
    }
    return code;
}

enum err errinfo_set(struct errinfo *ei, enum err code, int sys_errno, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    enum err e = errinfo_setv(ei, code, sys_errno, format, args);
    va_end(args);
    return e;
}

enum err errinfo_set_at(struct errinfo *ei, enum err code, const char *path, uint64_t offset,
                        const char *format, ...)
{
    char story[ERRINFO_MESSAGE_SIZE];
    va_list args;

    if (ei == NULL || ei->code != ERR_OK)
        return code;
    va_start(args, format);
    /* Cut when too long. NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm, as above */
    (void)vsnprintf(story, sizeof story, format, args);
    va_end(args);
    ei->has_offset = true;
    ei->offset = offset;
    return errinfo_set(ei, code, 0, "%s: offset %" PRIu64 ": %s", path, offset, story);
}

/* As much of `text` as fits. */
static void append_text(char message[ERRINFO_MESSAGE_SIZE], const char *text)
{
    size_t at = strlen(message), size = strlen(text), room = ERRINFO_MESSAGE_SIZE - 1 - at;

    if (size > room)
        size = room;
    memcpy(message + at, text, size);
    message[at + size] = '\0';
}

void errinfo_prefix(struct errinfo *ei, const char *format, ...)
{
    char prefix[ERRINFO_MESSAGE_SIZE];
    char story[ERRINFO_MESSAGE_SIZE];
    va_list args;

    if (ei == NULL || ei->code == ERR_OK)
        return;
    va_start(args, format);
    /* Cut when too long. NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm, as above */
    (void)vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    memcpy(story, ei->message, sizeof story);
    ei->message[0] = '\0';
    append_text(ei->message, prefix);
    append_text(ei->message, ": ");
    append_text(ei->message, story);
}

void errinfo_clear(struct errinfo *ei)
{
    if (ei == NULL)
        return;
    ei->code = ERR_OK;
    ei->sys_errno = 0;
    ei->has_offset = false;
    ei->offset = 0;
    ei->message[0] = '\0';
}

enum err err_from_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case ENOMEM:
        return ERR_NOMEM;
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case EISDIR: /* in the place of a file: it is as good as damaged */
        return ERR_CORRUPT;
    default:
        return ERR_IO;
    }
}

const char *err_name(enum err code)
{
    switch (code) {
    case ERR_OK:
        return "ok";
    case ERR_INVALID:
        return "invalid";
    case ERR_CORRUPT:
        return "corrupt";
    case ERR_IO:
        return "io";
    case ERR_NO_SPACE:
        return "no_space";
    case ERR_NOMEM:
        return "nomem";
    case ERR_LIMIT:
        return "limit";
    case ERR_OUT_OF_ORDER:
        return "out_of_order";
    case ERR_DUPLICATE:
        return "duplicate";
    case ERR_NOT_FOUND:
        return "not_found";
    case ERR_EXISTS:
        return "exists";
    case ERR_LOCKED:
        return "locked";
    case ERR_UNAVAILABLE:
        return "unavailable";
    case ERR_CANCELED:
        return "canceled";
    case ERR_TIMEOUT:
        return "timeout";
    case ERR_UNSUPPORTED:
        return "unsupported";
    case ERR_EXECUTION:
        return "execution";
    case ERR_INTERNAL:
        return "internal";
    }
    return "unknown";
}
