/*
 * The query log, `global.query_log_file`: a line of JSON for each query that was evaluated, as
 * Prometheus writes it.
 */
#ifndef RIMSTONE_API_HTTP_QUERY_LOG_INTERNAL_H
#define RIMSTONE_API_HTTP_QUERY_LOG_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

struct query_log {
    const char *path; /* borrowed; NULL: no log */
    int fd;           /* owned; lines are appended whole, by one write() each */
    /* relaxed: a statistic. Lines that could not be written, or not whole. */
    _Atomic uint64_t failures;
};

/* Opens the file for appending, creates it where there is none. NULL path: nothing is logged. */
MUST_USE enum err query_log_open(struct query_log *l, const char *path, struct errinfo *ei);
void query_log_close(struct query_log *l);
/* Opens the file of that name anew, for whoever has moved the old one away. Lines go on to the old
 * one on failure. */
MUST_USE enum err query_log_reopen(struct query_log *l, struct errinfo *ei);
/* Writes a line and its end. Any thread. */
void query_log_write(struct query_log *l, struct byte_writer *line);
/* "2026-11-29T20:22:09.980Z" in quotes. */
void query_log_write_time(struct byte_writer *w, int64_t t_ms);

#endif
