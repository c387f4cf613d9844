/*
 * One call of a Rimstone server's API, for verbs of rimtool that talk to one.
 */
#ifndef RIMSTONE_TOOLS_SERVER_CLIENT_INTERNAL_H
#define RIMSTONE_TOOLS_SERVER_CLIENT_INTERNAL_H

#include <jansson.h>

#include "base/bytes.h"
#include "base/err.h"

/* Where verbs look for a server unless --url says otherwise; their usage texts name it too. */
#define SERVER_URL_DEFAULT "http://127.0.0.1:9440"

/* Text as it may stand in a URL's query, appended. */
void url_escape(struct byte_writer *w, struct str text);
/*
 * `method` ("GET", "POST", "DELETE") on `url` followed by `path`; `body` NULL: none, else sent as
 * `type`. *status: that of the answer, whose whole text is appended to `answer`. ERR_IO when there
 * was none, with the reason.
 */
MUST_USE enum err server_call(const char *method, const char *url, const char *path,
                              const struct byte_writer *body, const char *type, long *status,
                              struct byte_writer *answer, struct errinfo *ei);
/* `data` of the answer to a GET; the caller's (json_decref()). ERR_IO, ERR_INVALID with what the
 * server says. */
MUST_USE enum err server_get(const char *url, const char *path, json_t **out, struct errinfo *ei);
/* `data` of an answer, or the error that it tells. */
MUST_USE enum err server_answer(long status, const struct byte_writer *answer, json_t **out,
                                struct errinfo *ei);

#endif
