/*
 * Remote write 1.0 bodies, decoded: a walk over the protobuf that builds no objects and fills a
 * write_batch whose strings point into the body. Format: prometheus.WriteRequest
 * (docs of Prometheus, "Remote-Write 1.0"); only what the store takes is looked into.
 */
#ifndef RIMSTONE_API_REMOTE_WRITE_REMOTE_WRITE_INTERNAL_H
#define RIMSTONE_API_REMOTE_WRITE_REMOTE_WRITE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/write.h"

/* What a message holds besides float samples. */
struct remote_write_counts {
    uint64_t series_count;                   /* those without samples too */
    uint64_t histogram_count;                /* those that are invalid too */
    uint64_t exemplar_count, metadata_count; /* skipped */
};

/* One decoder per thread at a time, reused from body to body. */
struct remote_write_decoder {
    const struct hash_secret *secret; /* borrowed */
    struct budget *budget;            /* borrowed, may be NULL: the batch's growth is charged */
    struct write_batch *batch;        /* owned */
    struct arena scratch;             /* labels that stood apart, joined */
    size_t charged_bytes;
    struct remote_write_counts counts; /* of the newest body */
};

/* secret and budget must outlive the decoder. */
MUST_USE enum err remote_write_decoder_init(struct remote_write_decoder *d,
                                            const struct hash_secret *secret, struct budget *budget,
                                            struct errinfo *ei);
void remote_write_decoder_done(struct remote_write_decoder *d);

/*
 * Fills d->batch from all of `body`, which must stay until the batch has been stored. ERR_INVALID
 * with the byte offset when it is no WriteRequest; ERR_UNAVAILABLE when the budget is spent,
 * ERR_NOMEM. After an error the batch is empty.
 *
 * Accepted: fields in any order, unknown fields, varints padded up to ten bytes, labels split
 * around samples, a repeated name, value or timestamp (the last one counts, as in protobuf).
 * Refused: groups, field number 0, a known field with another wire type, anything cut short.
 */
MUST_USE enum err remote_write_v1_decode(struct remote_write_decoder *d, struct bytes body,
                                         struct errinfo *ei);
/*
 * The same for less, when the store knows most series: where a series ends with samples, all before
 * them is taken for its labels, and not looked at. That is so when the labels' key is known to the
 * store, or when the batch's labels_check (set by this) says so; when all series of the batch pass,
 * it is what remote_write_v1_decode() makes of the body. Else that is to be called.
 */
MUST_USE enum err remote_write_v1_guess(struct remote_write_decoder *d, struct bytes body,
                                        struct errinfo *ei);
/*
 * Reads a Histogram message of remote write 1.0 and checks it as Prometheus does; arrays go to
 * `arena`, and take no more than some 16 times the message's bytes. ERR_INVALID: `why` has
 * Prometheus's text, and out->t_ms is set; or *is_message is false and it is no such message.
 * ERR_LIMIT or ERR_NOMEM from the arena.
 */
MUST_USE enum err remote_write_v1_histogram(struct bytes message, struct arena *arena,
                                            struct write_histogram *out, bool *is_message,
                                            struct errinfo *why);
/* Empties the batch and gives large memory back. */
void remote_write_decoder_reset(struct remote_write_decoder *d);

/* The batch's labels_parse: `wire` is a run of label fields as remote_write_v1_decode() left it. */
enum err remote_write_v1_labels(const void *ctx, struct bytes wire, struct arena *arena,
                                struct labels *out);

#endif
