/*
 * Remote-write requests as a sender makes them: samples in, a compressed body out.
 * Protocol 1.0 copies the encoded labels; 2.0 interns their strings in the request's symbol table.
 */
#ifndef RIMSTONE_TOOLS_LOAD_REQUEST_H
#define RIMSTONE_TOOLS_LOAD_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "tools/fleet_stream.h"

enum load_protocol { LOAD_PROTOCOL_1, LOAD_PROTOCOL_2 };
enum load_compression { LOAD_SNAPPY, LOAD_ZSTD };

struct load_request;

MUST_USE enum err load_request_new(enum load_protocol protocol, enum load_compression compression,
                                   struct load_request **out, struct errinfo *ei);
void load_request_free(struct load_request *r);
void load_request_reset(struct load_request *r);
/* Adds a series with one sample. */
MUST_USE enum err load_request_add(struct load_request *r, const struct fleet_sample *sample,
                                   struct errinfo *ei);
size_t load_request_sample_count(const struct load_request *r);
/* Compresses what was added; *body is borrowed until the next call on r. */
MUST_USE enum err load_request_finish(struct load_request *r, struct bytes *body,
                                      size_t *plain_size, struct errinfo *ei);

#endif
