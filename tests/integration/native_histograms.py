"""Native histograms for tests: as values of samples, on the remote-write wire, and drawn at random."""

import itertools
import math
import struct
from dataclasses import dataclass

from protobuf import field_bytes, field_double, field_varint, varint, zigzag

CUSTOM = -53  # the schema of custom buckets
UNKNOWN, RESET, NOT_RESET, GAUGE = range(4)
STALE = struct.pack("<Q", 0x7FF0000000000002)


@dataclass(frozen=True)
class Histogram:
    """One sample's value. Buckets are (index, count) with rising indexes; is_float says how it is sent."""

    schema: int = 0
    count: float = 0
    sum: object = 0.0  # a float, or the eight bytes of a staleness marker
    zero_threshold: float = 0.0
    zero_count: float = 0
    positive: tuple = ()
    negative: tuple = ()
    custom_values: tuple = ()
    hint: int = UNKNOWN
    is_float: bool = False

    def encode(self, t_ms):
        """Field 4 of a TimeSeries."""
        out = bytearray()
        if self.is_float:
            out += field_double(2, self.count)
        else:
            out += field_varint(1, varint(int(self.count)))
        out += field_double(3, self.sum)
        out += field_varint(4, zigzag(self.schema))
        out += field_double(5, self.zero_threshold)
        if self.schema != CUSTOM:
            if self.is_float:
                out += field_double(7, self.zero_count)
            else:
                out += field_varint(6, varint(int(self.zero_count)))
        out += self.encode_side(self.negative, 8)
        out += self.encode_side(self.positive, 11)
        out += field_varint(14, varint(self.hint))
        out += field_varint(15, varint(t_ms))
        if self.custom_values:
            out += field_bytes(16, struct.pack(f"<{len(self.custom_values)}d", *self.custom_values))
        return field_bytes(4, bytes(out))

    def encode_side(self, buckets, first_field):
        """Spans, then deltas of whole numbers or counts."""
        out = bytearray()
        for offset, length in spans_of([index for index, _ in buckets]):
            out += field_bytes(first_field, field_varint(1, zigzag(offset)) + field_varint(2, varint(length)))
        counts = [count for _, count in buckets]
        if self.is_float:
            out += field_bytes(first_field + 2, struct.pack(f"<{len(counts)}d", *counts))
        else:
            deltas = [int(b) - int(a) for a, b in zip([0] + counts, counts)]
            out += field_bytes(first_field + 1, b"".join(map(zigzag, deltas)))
        return bytes(out)


def spans_of(indexes):
    """[(offset, length)] of rising bucket indexes."""
    spans, following = [], None
    for index in indexes:
        if following == index:
            spans[-1][1] += 1
        else:
            spans.append([index - (following or 0), 1])
        following = index + 1
    return spans


class Source:
    """A histogram that observes: each call of observe() is a step, sample() its value then."""

    def __init__(self, rng, schema=0, signed=False, bounds=(), is_float=False, hint=UNKNOWN, keep_empty=False):
        self.rng = rng
        self.schema = CUSTOM if bounds else schema
        self.signed = signed
        self.bounds = bounds
        self.is_float = is_float
        self.hint = hint
        self.keep_empty = keep_empty
        self.zero_threshold = 0.0 if bounds else 2.0**-10
        self.reset()

    def reset(self):
        self.positive, self.negative = {}, {}
        self.zero = 0
        self.sum = 0.0

    def observe(self, times):
        for _ in range(times):
            weight = self.rng.random() * 3 if self.is_float else self.rng.randrange(1, 4)
            if self.bounds:
                index = self.rng.randrange(len(self.bounds) + 1)
                self.positive[index] = self.positive.get(index, 0) + weight
                self.sum += (self.bounds[index] if index < len(self.bounds) else 2 * self.bounds[-1]) * weight * 0.75
                continue
            if self.rng.random() < 0.1:
                self.zero += weight
                continue
            value = math.exp(self.rng.gauss(0, 1.5))
            index = math.ceil(math.log2(value) * 2.0**self.schema)
            side, sign = (self.negative, -1) if self.signed and self.rng.random() < 0.4 else (self.positive, 1)
            side[index] = side.get(index, 0) + weight
            self.sum += sign * value * weight

    def shrink(self):
        """What only a gauge does."""
        for side in (self.positive, self.negative):
            for index in side:
                side[index] = side[index] * self.rng.choice((0.5, 1)) if self.is_float else side[index] // self.rng.choice((1, 2))

    def sample(self, hint=None):
        positive, negative = (
            tuple((i, side[i]) for i in sorted(side) if side[i] or self.keep_empty) for side in (self.positive, self.negative)
        )
        count = self.zero + sum(c for _, c in positive) + sum(c for _, c in negative)
        return Histogram(
            self.schema, count, self.sum, self.zero_threshold, self.zero, positive, negative,
            tuple(self.bounds), self.hint if hint is None else hint, self.is_float,
        )


def stale(is_float=False):
    return Histogram(sum=STALE, is_float=is_float)


def by_kind(batch):
    """Requests in which no series has both floats and histograms; in order they hold what the batch does."""
    requests = []
    for labels, samples in batch:
        runs = itertools.groupby(samples, lambda sample: isinstance(sample[1], Histogram))
        for i, (_, run) in enumerate(runs):
            if i == len(requests):
                requests.append([])
            requests[i].append((labels, list(run)))
    return requests
