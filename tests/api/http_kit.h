/* Requests to a test server, and checks of its answers. Every function aborts on failure. */
#ifndef RIMSTONE_TESTS_HTTP_KIT_H
#define RIMSTONE_TESTS_HTTP_KIT_H

#include "base/bytes.h"
#include "tests/api/test_server.h"

#define WRITE_PATH "/api/v1/write"

/* A compressed request of `count` series `name{i="..."}` from i = first on, one sample each. */
void request_make(struct byte_writer *out, const char *name, size_t first, size_t count,
                  int64_t t_ms, double value);
/* Sends such a request, which must be stored. */
void write_series(const struct test_server *s, const char *name, size_t first, size_t count,
                  int64_t t_ms, double value);
void check_status(const struct test_server *s, const char *method, const char *path,
                  const char *headers, const char *body, int status);
/* The answer to a GET holds this text. */
void check_body(const struct test_server *s, const char *path, const char *text);

#endif
