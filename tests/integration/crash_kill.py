#!/usr/bin/env python3
"""kill -9 under load, again and again: what was acknowledged is there, and nothing is invented.

Several senders write batches, each series in time order, some series new in every cycle. At a random
moment the server is killed. After the restart every sample that a 2xx answer covered must be
there with the same bits; a sample whose request got no answer may be there or not; anything else
must not. Senders then retry half of the requests that got no answer, as real ones do, which must
succeed. Now and then the server is killed once more while it starts.

CRASH_SEED replays a run's choices (not the kernel's timing), CRASH_CYCLES sets how often.
"""

import http.client
import math
import os
import random
import struct
import sys
import threading
import time

from harness import Client, Server, TemporaryDirectory, double_bits, now_ms, wait_until

CYCLES = int(os.environ.get("CRASH_CYCLES", "28"))
SENDERS = 4
SERIES_PER_SENDER = 10
BATCH_SAMPLES = 5  # of each series in one request
HISTORY_MS = 40 * 60 * 1000  # timestamps start that far back
QUERY_RANGE = "1h"


def random_value(rng):
    """Any double but NaN, whose payload JSON cannot show."""
    pick = rng.random()
    if pick < 0.3:
        return float(rng.randrange(1000))
    if pick < 0.35:
        return rng.choice([0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
    while True:
        value = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0]
        if not math.isnan(value):
            return value


class Sender(threading.Thread):
    """Writes until the connection breaks. Its books survive it; see Books."""

    def __init__(self, books, port, rng):
        super().__init__(daemon=True)
        self.books = books
        self.rng = rng
        self.client = books.client_of(port)
        self.error = None

    def run(self):
        try:
            if self.books.unanswered is not None and self.rng.random() < 0.5:
                self.send(self.books.unanswered)
            self.books.forget_unanswered()
            while True:
                self.send(self.books.next_request(self.rng))
        except (OSError, http.client.HTTPException):
            pass  # the server was killed: the request in flight stays unanswered
        except Exception as e:  # pylint: disable=broad-except
            self.error = e
        finally:
            self.client.close()

    def send(self, request):
        self.books.unanswered = request
        answer = self.client.write(
            [(dict(key), samples) for key, samples in request.items()]
        )
        if answer.status == 503:
            return  # not durable in time: may be there or not, like no answer
        if answer.status // 100 != 2:
            raise AssertionError(f"a write was refused: {answer}")
        self.books.acknowledge(request)


class Books:
    """What one sender has sent: per series its samples, acknowledged or perhaps stored."""

    def __init__(self, index, start_ms):
        self.index = index
        self.newest_ms = start_ms
        self.acknowledged = {}  # series key -> {t_ms: bits}
        self.perhaps = {}  # the same: sent, and never answered
        self.unanswered = None  # the request in flight, {key: [(t_ms, value)]}
        self.generation = 0  # part of the series' names: a restart brings new series

    def client_of(self, port):
        return Client(port, timeout_s=30)

    def key_of(self, n):
        """Labels of the sender's n-th series: half of them are new in every cycle."""
        return (
            ("__name__", "crash"),
            ("generation", str(self.generation if n % 2 else 0)),
            ("n", str(n)),
            ("sender", str(self.index)),
        )

    def next_request(self, rng):
        # Steps are 1 to 8 ms, so that a run stays well inside HISTORY_MS and the query's range.
        times = []
        for _ in range(BATCH_SAMPLES):
            self.newest_ms += rng.randrange(1, 9)
            times.append(self.newest_ms)
        return {
            self.key_of(n): [(t, random_value(rng)) for t in times]
            for n in range(SERIES_PER_SENDER)
        }

    def acknowledge(self, request):
        self.unanswered = None
        for key, samples in request.items():
            known = self.acknowledged.setdefault(key, {})
            maybe = self.perhaps.get(key, {})
            for t, value in samples:
                known[t] = double_bits(value)
                maybe.pop(t, None)

    def forget_unanswered(self):
        """The request in flight will not be sent again."""
        self.note_perhaps()
        self.unanswered = None

    def note_perhaps(self):
        for key, samples in (self.unanswered or {}).items():
            known = self.acknowledged.get(key, {})
            maybe = self.perhaps.setdefault(key, {})
            for t, value in samples:
                if t not in known:
                    maybe[t] = double_bits(value)


def stored_samples(server, sender_index, at_ms, query_range):
    """{series key: {t_ms: bits}} as the server tells it."""
    client = server.client()
    data = client.query(f'crash{{sender="{sender_index}"}}[{query_range}]', at_ms / 1000)
    client.close()
    assert data["resultType"] == "matrix", data["resultType"]
    stored = {}
    for series in data["result"]:
        key = tuple(sorted(series["metric"].items()))
        samples = {}
        for t, text in series["values"]:
            t_ms = round(t * 1000)
            assert t_ms not in samples, f"{key} has {t_ms} twice"
            samples[t_ms] = double_bits(float(text))
        assert key not in stored, f"{key} is there twice"
        stored[key] = samples
    return stored


def check(server, books, at_ms, query_range=QUERY_RANGE):
    """Returns (acknowledged samples found, unanswered samples found)."""
    counts = [0, 0]
    for book in books:
        book.note_perhaps()
        stored = stored_samples(server, book.index, at_ms, query_range)
        for key, samples in book.acknowledged.items():
            have = stored.get(key, {})
            for t, bits in samples.items():
                if have.get(t) != bits:
                    raise AssertionError(
                        f"LOST: {dict(key)} at {t}: acknowledged {bits:#x}, "
                        f"stored {have.get(t) if t not in have else hex(have[t])}"
                    )
            counts[0] += len(samples)
        for key, samples in stored.items():
            known = book.acknowledged.get(key, {})
            maybe = book.perhaps.get(key, {})
            for t, bits in samples.items():
                if t not in known:
                    if maybe.get(t) != bits:
                        raise AssertionError(f"INVENTED: {dict(key)} at {t}: {bits:#x}")
                    counts[1] += 1
    return counts


def start(data_dir, rng, cycle):
    """Starts the server, sometimes killing it once more while it replays."""
    # The log's back ends take turns, so that one reads what the other wrote.
    flags = [f"--wal.io={['auto', 'posix'][cycle % 2]}"]
    if rng.random() < 0.25:
        server = Server(data_dir, *flags)
        time.sleep(rng.random() * 0.05)  # a random moment is the point of this sleep
        server.kill()
    return Server(data_dir, *flags).wait_ready()


def run_cycle(server, books, rng, cycle, longest_s=0.25, before_kill=None):
    before = [len(b.acknowledged) and sum(map(len, b.acknowledged.values())) for b in books]
    for book in books:
        book.generation = cycle
    senders = [Sender(b, server.port, random.Random(rng.getrandbits(64))) for b in books]
    for sender in senders:
        sender.start()

    def acknowledged_something():
        after = [sum(map(len, b.acknowledged.values())) for b in books]
        return all(x > y for x, y in zip(after, before)) or any(not s.is_alive() for s in senders)

    wait_until(acknowledged_something, "each sender got an answer", interval_s=0.005)
    time.sleep(rng.random() * longest_s)  # a random moment is the point of this sleep
    if before_kill is not None:
        before_kill()
    server.kill()
    for sender in senders:
        sender.join(60)
        if sender.error is not None:
            raise sender.error
        assert not sender.is_alive()


def run(data_dir, rng):
    start_ms = now_ms() - HISTORY_MS
    books = [Books(i, start_ms) for i in range(SENDERS)]
    server = start(data_dir, rng, 0)
    try:
        for cycle in range(CYCLES):
            run_cycle(server, books, rng, cycle)
            server = start(data_dir, rng, cycle + 1)
            found, unanswered = check(server, books, max(b.newest_ms for b in books))
            print(
                f"cycle {cycle + 1}: {found} acknowledged samples are there, "
                f"{unanswered} unanswered ones too",
                flush=True,
            )
        assert server.stop() == 0
    except BaseException:
        print(f"--- end of the server's log\n{server.log()[-4000:]}")
        raise
    finally:
        if server.process.poll() is None:
            server.kill()


def main():
    seed = int(os.environ.get("CRASH_SEED", str(random.SystemRandom().getrandbits(32))))
    print(f"CRASH_SEED={seed}, {CYCLES} cycles", flush=True)
    with TemporaryDirectory("crash") as scratch:
        run(os.path.join(scratch, "data"), random.Random(seed))
    print(f"{CYCLES} kills, nothing lost, nothing invented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
