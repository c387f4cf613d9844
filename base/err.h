/*
 * Errors: one code that tells callers how to act, and a story for whoever reports it.
 *
 * A function that can fail returns `enum err` and takes a `struct errinfo *` last. The first
 * failure wins: errinfo_set() on an errinfo that already holds an error keeps the older story.
 * Every caller of a failing function passes its own errinfo down; NULL is allowed and drops the
 * story.
 */
#ifndef RIMSTONE_BASE_ERR_H
#define RIMSTONE_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))
/* Moves a pointer out of a variable that a cleanup path frees. */
#define TAKE(pointer)                                                                              \
    __extension__({                                                                                \
        __typeof__(pointer) taken_ = (pointer);                                                    \
        (pointer) = NULL;                                                                          \
        taken_;                                                                                    \
    })

enum err {
    ERR_OK = 0,
    ERR_INVALID,      /* the caller's input is wrong: HTTP 400 */
    ERR_CORRUPT,      /* bytes fail a check: checksum, magic, structure */
    ERR_IO,           /* the kernel refused a file or socket call */
    ERR_NO_SPACE,     /* ENOSPC or EDQUOT: goes away by itself */
    ERR_NOMEM,        /* an allocation failed */
    ERR_LIMIT,        /* a configured limit (memory, samples, depth, size) was reached */
    ERR_OUT_OF_ORDER, /* a sample older than its series' newest */
    ERR_DUPLICATE,    /* same timestamp, another value; or a repeated label */
    ERR_NOT_FOUND,
    ERR_EXISTS,
    ERR_LOCKED,      /* another process holds the directory */
    ERR_UNAVAILABLE, /* try again later: HTTP 503 */
    ERR_CANCELED,    /* the client left or the server stops */
    ERR_TIMEOUT,
    ERR_UNSUPPORTED, /* known, but not built yet; or a newer format */
    ERR_EXECUTION,   /* a query that is well-formed but cannot be answered: HTTP 422 */
    ERR_INTERNAL,    /* our bug, found before it did harm */
};

enum { ERRINFO_MESSAGE_SIZE = 1024 };

struct errinfo {
    enum err code;
    int sys_errno; /* 0 if no system call was involved */
    bool has_offset;
    uint64_t offset; /* of the first bad byte in the file that the message names */
    char message[ERRINFO_MESSAGE_SIZE];
};

/*
 * Records `code` with a printf-style story and returns `code`. `sys_errno` 0 means none; otherwise
 * its text is appended. `ei` may be NULL. Keeps an older error if `ei` already holds one.
 */
enum err errinfo_set(struct errinfo *ei, enum err code, int sys_errno, const char *format, ...)
    PRINTF_LIKE(4, 5);
enum err errinfo_setv(struct errinfo *ei, enum err code, int sys_errno, const char *format,
                      va_list args) PRINTF_LIKE(4, 0);
/* The same about a place of a file, without an errno: "path: offset N: story". Whatever is wrong
 * with bytes on disk is told in this form. */
enum err errinfo_set_at(struct errinfo *ei, enum err code, const char *path, uint64_t offset,
                        const char *format, ...) PRINTF_LIKE(5, 6);
/* Puts "text: " in front of the story, for a caller that knows the wider context. */
void errinfo_prefix(struct errinfo *ei, const char *format, ...) PRINTF_LIKE(2, 3);
void errinfo_clear(struct errinfo *ei);
/* Maps an errno of a failed file call to ERR_NO_SPACE, ERR_NOMEM, ERR_NOT_FOUND, ERR_EXISTS or
 * ERR_IO. */
enum err err_from_errno(int sys_errno);
/* A short constant name such as "corrupt", for logs and tests. */
const char *err_name(enum err code);

#endif
