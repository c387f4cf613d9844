/*
 * The slow, obvious twin of the remote-write walker: protobuf-c unpacks the same bytes, and both
 * must agree on whether they are a message and on everything in it.
 */
#ifndef RIMSTONE_TESTS_REMOTE_WRITE_TWIN_H
#define RIMSTONE_TESTS_REMOTE_WRITE_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes `data` both ways and aborts, naming the difference, if they disagree. Returns whether the
 * message was accepted. */
bool remote_write_twin_check(const uint8_t *data, size_t size);

#endif
