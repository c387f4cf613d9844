/*
 * The slow, obvious twin of the remote-write walker: protobuf-c unpacks the same bytes, and both
 * must agree on whether they are a message and on everything in it.
 */
#ifndef RIMSTONE_TESTS_REMOTE_WRITE_TWIN_H
#define RIMSTONE_TESTS_REMOTE_WRITE_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fingerprint.h"
#include "engine/write.h"

/* Decodes `data` all ways, remote_write_guess_check() included, and aborts, naming the difference,
 * if they disagree. Returns whether the message was accepted. */
bool remote_write_twin_check(const uint8_t *data, size_t size);

/* remote_write_v1_guess() against remote_write_v1_decode(), with the keys of `known` (may be NULL)
 * known to the store: aborts when a guess that would be stored is not what the whole walk finds.
 * Returns whether it would be stored. */
bool remote_write_guess_check(const uint8_t *data, size_t size, const struct write_batch *known,
                              const struct hash_secret *secret);

#endif
