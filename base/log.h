/*
 * The process's log: one line an event, logfmt or JSON, on standard error. Only whoever handles an
 * error logs it; library code returns errors instead.
 *
 *   LOG_INFO("wal replay finished", LOG_U64("samples", n), LOG_STR("dir", dir));
 *
 * Level and format are set once before threads start.
 */
#ifndef RIMSTONE_BASE_LOG_H
#define RIMSTONE_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

struct log_field {
    const char *key;
    enum { LOG_FIELD_STR, LOG_FIELD_I64, LOG_FIELD_U64, LOG_FIELD_F64, LOG_FIELD_BOOL } kind;
    union {
        const char *str;
        int64_t i64;
        uint64_t u64;
        double f64;
        bool boolean;
    } value;
};

#define LOG_STR(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_STR, .value.str = (v)})
#define LOG_I64(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_I64, .value.i64 = (v)})
#define LOG_U64(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_U64, .value.u64 = (v)})
#define LOG_F64(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_F64, .value.f64 = (v)})
#define LOG_BOOL(k, v)                                                                             \
    ((struct log_field){.key = (k), .kind = LOG_FIELD_BOOL, .value.boolean = (v)})

void log_configure(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
void log_event(enum log_level level, const char *message, const struct log_field *fields,
               size_t field_count);

#define LOG_AT(level, message, ...)                                                                \
    do {                                                                                           \
        if (log_enabled(level)) {                                                                  \
            const struct log_field fields_[] = {__VA_ARGS__};                                      \
            log_event(level, message, fields_, sizeof fields_ / sizeof fields_[0]);                \
        }                                                                                          \
    } while (0)
#define LOG_DEBUG(message, ...) LOG_AT(LOG_LEVEL_DEBUG, message, __VA_ARGS__)
#define LOG_INFO(message, ...) LOG_AT(LOG_LEVEL_INFO, message, __VA_ARGS__)
#define LOG_WARN(message, ...) LOG_AT(LOG_LEVEL_WARN, message, __VA_ARGS__)
#define LOG_ERROR(message, ...) LOG_AT(LOG_LEVEL_ERROR, message, __VA_ARGS__)

#endif
