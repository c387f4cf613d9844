#!/usr/bin/env python3
"""Writes the seed inputs of fuzz_log_records: make_log_records_corpus.py FOLDER

Payloads as docs/formats/log-records.md describes them, each frame behind its 16-bit length.
"""

import os
import struct
import sys


def varint(v):
    out = bytearray()
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def zigzag(v):
    return varint(((v << 1) ^ (v >> 63)) & (1 << 64) - 1)


def record(kind, body):
    return struct.pack("<II", kind, len(body)) + body


def definitions(*series):
    body = struct.pack("<I", len(series))
    before, slot_before = b"", 0
    for slot, generation, labels in series:
        fields = b"".join(varint(len(t)) + t for pair in sorted(labels.items()) for t in pair)
        prefix = len(os.path.commonprefix([fields, before]))
        rest = fields[prefix:][::-1], before[prefix:][::-1]
        suffix = len(os.path.commonprefix(rest))
        middle = fields[prefix : len(fields) - suffix]
        body += zigzag(slot - slot_before)
        body += b"".join(varint(n) for n in (generation, prefix, suffix, len(middle))) + middle
        before, slot_before = fields, slot
    return record(1, body)


def samples(count, refs, times, tags, values=b"", kind=2):
    head = struct.pack("<III", count, len(refs), len(times))
    return record(kind, head + refs + times + bytes(tags) + values)


def histogram(spans, counts, total, flags=1, schema=3, tail=b""):
    """As it stands among the values: its size, and the form of whole numbers."""
    out = bytes([0, flags, schema & 0xFF])
    if not flags & 16:
        out += struct.pack("<d", 1.5)
    out += varint(total) + varint(0) + varint(len(spans))
    out += b"".join(zigzag(offset) + varint(length) for offset, length in spans)
    out += b"".join(zigzag(b - a) for a, b in zip([0] + counts, counts)) + tail
    return varint(len(out)) + out


def frames(*payloads):
    return b"".join(struct.pack("<H", len(p)) + p for p in payloads)


A = (0, 0, {b"__name__": b"up", b"job": b"a"})
B = (1, 0, {b"__name__": b"up", b"job": b"b"})
T = 1767225600000
TWO_SLOTS = varint(1 << 2 | 2) + zigzag(0)
SEEDS = {
    "definitions": frames(definitions(A, B)),
    "samples": frames(
        definitions(A, B) + samples(2, TWO_SLOTS, varint(1) + zigzag(T), [1, 0x49], b"\x10\x27"),
        samples(2, TWO_SLOTS, varint(1) + zigzag(T + 15000), [0, 0x60], b"\x02" + bytes(6) + b"\x7f"),
    ),
    "late": frames(
        definitions(A, B) + samples(2, TWO_SLOTS, varint(1) + zigzag(T), [1, 2]),
        samples(2, TWO_SLOTS, varint(1) + zigzag(T - 15000), [3, 4], kind=3)
        + samples(2, TWO_SLOTS, varint(1) + zigzag(T), [5, 6], kind=3),
        samples(2, TWO_SLOTS, varint(1) + zigzag(T - 15000), [3, 5], kind=3),
    ),
    "held-late": frames(
        samples(2, TWO_SLOTS, varint(1) + zigzag(T - 1), [5, 6], kind=3)
        + samples(2, TWO_SLOTS, varint(1) + zigzag(T), [5, 6]),
        definitions(A, B),
    ),
    "held": frames(samples(2, TWO_SLOTS, varint(1) + zigzag(T), [5, 6]), definitions(A, B)),
    "repeated-slot": frames(
        definitions(A)
        + samples(3, varint(2 << 2) + zigzag(0),
                  b"".join(varint(0) + zigzag(t) for t in (T, 15000, 15000)), [1, 1, 2])
    ),
    "generation": frames(
        definitions((0, 3, A[2])),
        samples(1, varint(3) + varint(3) + zigzag(0), varint(0) + zigzag(T), [7]),
    ),
    "conflict": frames(definitions(A), definitions((0, 0, B[2]), (5, 0, A[2]))),
    "mixed": frames(
        definitions(A, B)
        + samples(3, varint(2 << 2) + zigzag(0), b"".join(varint(0) + zigzag(t) for t in (T, 15000, 15000)),
                  [1, 0x61, 2], histogram([(1, 2)], [3, 4], 7), kind=4),
        samples(2, TWO_SLOTS, varint(1) + zigzag(T + 45000), [0x61, 0x61],
                histogram([(-2, 1), (3, 1)], [9, 1], 10, flags=1 | 16) + histogram([], [], 0), kind=4),
    ),
    "late-mixed": frames(
        definitions(A, B) + samples(2, TWO_SLOTS, varint(1) + zigzag(T), [0x61, 1], histogram([(0, 1)], [1], 1), kind=4),
        samples(2, TWO_SLOTS, varint(1) + zigzag(T - 15000), [0x61, 0x61],
                histogram([(0, 1)], [1], 1) + histogram([(0, 1)], [2], 2), kind=5),
        samples(2, TWO_SLOTS, varint(1) + zigzag(T - 15000), [0x61, 3], histogram([(0, 1)], [1], 1), kind=5),
    ),
    "held-mixed": frames(
        samples(2, TWO_SLOTS, varint(1) + zigzag(T), [0x61, 0x61],
                histogram([(0, 1)], [1], 1) + histogram([(0, 1)], [2], 2), kind=4)
        + samples(2, TWO_SLOTS, varint(1) + zigzag(T + 1), [5, 6]),
        definitions(A),
    ),
    "custom": frames(
        definitions(A)
        + samples(1, varint(0) + zigzag(0), varint(0) + zigzag(T), [0x61],
                  histogram([(0, 2)], [3, 4], 7, 1 | 32, -53, varint(2) + struct.pack("<dd", 1, 2)), kind=4),
    ),
    "histogram-too-many-buckets": frames(
        definitions(A)
        + samples(1, varint(0) + zigzag(0), varint(0) + zigzag(T), [0x61], histogram([(0, 1 << 31)], [3], 3), kind=4),
    ),
    "histogram-among-floats": frames(
        definitions(A)
        + samples(1, varint(0) + zigzag(0), varint(0) + zigzag(T), [0x61], histogram([(0, 1)], [3], 3)),
    ),
    "unknown-type": frames(record(77, b"what comes later") + definitions(A)),
    "not-canonical": frames(definitions((0, 0, {b"job": b"", b"x": b"y"}))),
}


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, data in SEEDS.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
