"""Protobuf by hand: the pieces of a message."""

import struct


def varint(n, size=0):
    """Protobuf's varint; `size` pads it to that many bytes (over-long, yet valid)."""
    out = bytearray()
    n &= (1 << 64) - 1
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    while len(out) < size:
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def field_bytes(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def zigzag(n):
    return varint(n << 1 ^ n >> 63)


def field_varint(number, payload):
    return varint(number << 3) + payload


def field_double(number, value):
    """value: a float, or its eight bytes."""
    return varint(number << 3 | 1) + (value if isinstance(value, bytes) else struct.pack("<d", value))
