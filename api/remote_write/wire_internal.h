/*
 * Protobuf on the wire: tags and fields, bounds-checked.
 */
#ifndef RIMSTONE_API_REMOTE_WRITE_WIRE_INTERNAL_H
#define RIMSTONE_API_REMOTE_WRITE_WIRE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define WIRE_TAG(field, wire) ((uint8_t)((field) << 3 | (wire)))

/* Field number 0 stands for a tag that is none: cut short, over-long, or out of range. */
struct wire_field {
    uint32_t number;
    unsigned wire;
};

static inline struct wire_field wire_field_read(struct byte_reader *r)
{
    uint64_t tag = reader_varint(r);

    if (r->failed || tag > UINT32_MAX)
        return (struct wire_field){0, 0};
    return (struct wire_field){(uint32_t)tag >> 3, (unsigned)tag & 7};
}

static inline struct bytes wire_bytes_read(struct byte_reader *r)
{
    uint64_t size = reader_varint(r);
    const uint8_t *data = NULL;

    if (size > reader_left(r))
        r->failed = true;
    data = reader_take(r, r->failed ? 0 : (size_t)size);
    return (struct bytes){data, r->failed ? 0 : (size_t)size};
}

/* Steps over the content of a field whatever it is; false for groups and unknown wire types. */
static inline bool wire_field_skip(struct byte_reader *r, unsigned wire)
{
    switch (wire) {
    case WIRE_VARINT:
        (void)reader_varint(r);
        break;
    case WIRE_FIXED64:
        (void)reader_take(r, 8);
        break;
    case WIRE_BYTES:
        (void)wire_bytes_read(r);
        break;
    case WIRE_FIXED32:
        (void)reader_take(r, 4);
        break;
    default:
        return false;
    }
    return !r->failed;
}

#endif
