/*
 * MD5, which Prometheus's hashmod is defined by. Not for anything that must withstand an attacker.
 */
#ifndef RIMSTONE_BASE_MD5_H
#define RIMSTONE_BASE_MD5_H

#include <stddef.h>
#include <stdint.h>

enum { MD5_BYTES = 16 };

void md5_bytes(const void *data, size_t size, uint8_t out[MD5_BYTES]);

#endif
