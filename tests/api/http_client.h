/*
 * A small HTTP/1.1 client for tests: raw sockets, so that it can also misbehave.
 */
#ifndef RIMSTONE_TESTS_HTTP_CLIENT_H
#define RIMSTONE_TESTS_HTTP_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

struct http_answer {
    int status;         /* 0: no answer came */
    char headers[4096]; /* as they came, NUL-terminated */
    struct byte_writer body;
    bool complete; /* the body ended as its headers say */
};

/* Connected to 127.0.0.1:port; aborts on failure. Reads give up after 30 s. */
int http_connect(uint16_t port);
void http_send(int fd, const void *data, size_t size);
void http_send_text(int fd, const char *text);
/* Reads one answer (call http_answer_done() afterwards); bytes behind it stay in the socket. */
void http_read(int fd, struct http_answer *out);
void http_answer_done(struct http_answer *a);
/* The value of a header, in `out` of 256 bytes; false when it is absent. */
bool http_header(const struct http_answer *a, const char *name, char out[256]);
bool http_body_contains(const struct http_answer *a, const char *text);

/* One request on a connection of its own. `headers` are lines ending in \r\n, or "". */
void http_call(uint16_t port, const char *method, const char *path, const char *headers,
               const void *body, size_t body_size, struct http_answer *out);
/* http_call() for a GET. */
void http_get(uint16_t port, const char *path, struct http_answer *out);

#endif
