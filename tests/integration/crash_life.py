#!/usr/bin/env python3
"""kill -9 at any moment of the life cycle: seals, flushes, merges, deletions, snapshots.

As crash_kill.py, but time runs by the data (--storage.clock=data) at hours a second, with late
samples, so that windows close, are flushed and merged while the server is killed; between the
cycles ranges are deleted, and the server is killed while it does that too. Whatever was acknowledged
is there, what was deleted is not, no file lies about, and every byte verifies.

CRASH_SEED replays a run's choices, CRASH_CYCLES sets how often (100 for a long run).
"""

import os
import random
import sys
import threading
import time

from crash_kill import BATCH_SAMPLES, SENDERS, SERIES_PER_SENDER, Books, check, random_value, run_cycle
from harness import Server, TemporaryDirectory, now_ms, wait_until
from lifecycle import HOUR_MS, metric_sum, metrics, unnamed_files, verify_directory

CYCLES = int(os.environ.get("CRASH_CYCLES", "14"))
LONGEST_CYCLE_S = 1.5
HISTORY_MS = 100 * 24 * HOUR_MS
QUERY_RANGE = "100d"
STEP_MS = 30000  # at most, between two samples of a series
FLAGS = ["--storage.clock=data", "--storage.seal-interval=1s", "--web.enable-admin-api"]
WORK = ("rimstone_seals_total", "rimstone_flushes_total", "prometheus_tsdb_compactions_total")


class Clock:
    """How far any sender is: they stay together, as the server's clock is the newest sample."""

    def __init__(self, start_ms):
        self.newest_ms = start_ms
        self.lock = threading.Lock()

    def reach(self, t_ms):
        with self.lock:
            self.newest_ms = max(self.newest_ms, t_ms)
            return self.newest_ms


class LifeBooks(Books):
    def __init__(self, index, clock):
        super().__init__(index, clock.newest_ms)
        self.clock = clock

    def is_used(self, key, t_ms):
        return t_ms in self.acknowledged.get(key, {}) or t_ms in self.perhaps.get(key, {})

    def next_request(self, rng):
        if rng.random() < 0.2:
            return self.late_request(rng)
        self.newest_ms = max(self.newest_ms, self.clock.newest_ms - 5 * STEP_MS)
        times = []
        for _ in range(BATCH_SAMPLES):
            self.newest_ms += rng.randrange(1, STEP_MS)
            times.append(self.newest_ms)
        self.clock.reach(self.newest_ms)
        return {
            self.key_of(n): [(t, random_value(rng)) for t in times]
            for n in range(SERIES_PER_SENDER)
        }

    def late_request(self, rng):
        """Samples hours old, at times that the series does not have."""
        request = {}
        for n in rng.sample(range(SERIES_PER_SENDER), 4):
            key = self.key_of(n)
            t_ms = self.newest_ms - rng.randrange(6 * HOUR_MS)
            times = [t_ms + 777 * i for i in range(rng.randrange(1, 12))]
            samples = [(t, random_value(rng)) for t in times if not self.is_used(key, t)]
            if samples:
                request[key] = samples
        return request or self.next_request(rng)

    def delete(self, key, min_ms, max_ms, answered):
        """What was acknowledged there is gone, or may be."""
        known = self.acknowledged.get(key, {})
        maybe = self.perhaps.setdefault(key, {})
        for t in [t for t in known if min_ms <= t <= max_ms]:
            maybe[t] = known.pop(t)
        if answered:
            for t in [t for t in maybe if min_ms <= t <= max_ms]:
                del maybe[t]


class Admin(threading.Thread):
    """One request that the server may not live to answer."""

    def __init__(self, server, path, params):
        super().__init__(daemon=True)
        self.client = server.client()
        self.path = path
        self.params = params
        self.answer = None

    def run(self):
        try:
            self.answer = self.client.post_form(self.path, self.params)
        except Exception:  # pylint: disable=broad-except
            pass  # killed
        finally:
            self.client.close()

    def was_answered(self):
        if self.answer is None:
            return False
        assert self.answer.status in (200, 204, 503), self.answer
        return self.answer.status != 503


def selector(key):
    return "{" + ",".join(f'{name}="{value}"' for name, value in key) + "}"


def delete_and_kill(server, books, rng):
    """Deletes a range of some series, cleans or takes a snapshot, and is killed somewhere therein."""
    book = rng.choice(books)
    key = rng.choice(sorted(book.acknowledged))
    min_ms = book.newest_ms - rng.randrange(12 * HOUR_MS)
    max_ms = min_ms + rng.randrange(6 * HOUR_MS)
    request = Admin(server, "/api/v1/admin/tsdb/delete_series", {
        "match[]": selector(key), "start": min_ms / 1000, "end": max_ms / 1000,
    })
    request.start()
    if rng.random() < 0.5:
        request.join()  # answered: it must be durable
        follow = rng.choice(["clean_tombstones", "snapshot"])
        Admin(server, f"/api/v1/admin/tsdb/{follow}", {}).start()
    time.sleep(rng.random() * 0.1)  # a random moment is the point of this sleep
    server.kill()
    request.join(60)
    book.delete(key, min_ms, max_ms, request.was_answered())


def check_files(data_dir):
    wait_until(
        lambda: unnamed_files(data_dir) == (set(), set()), "no file but those the manifest names"
    )


def start(data_dir, rng):
    if rng.random() < 0.25:
        server = Server(data_dir, *FLAGS)
        time.sleep(rng.random() * 0.1)  # a random moment is the point of this sleep
        server.kill()
    return Server(data_dir, *FLAGS).wait_ready()


def note_work(server, work):
    """Counters begin anew with each process: what was done is summed up before each kill."""
    client = server.client()
    values = metrics(client)
    client.close()
    for name in WORK:
        work[name] += metric_sum(values, name) or 0


def run(data_dir, rng):
    clock = Clock(now_ms() - HISTORY_MS)
    books = [LifeBooks(i, clock) for i in range(SENDERS)]
    work = dict.fromkeys(WORK, 0)
    server = start(data_dir, rng)
    try:
        for cycle in range(CYCLES):
            run_cycle(
                server, books, rng, cycle, LONGEST_CYCLE_S, lambda s=server: note_work(s, work)
            )
            server = start(data_dir, rng)
            found, unanswered = check(server, books, clock.newest_ms, QUERY_RANGE)
            if cycle % 2:
                delete_and_kill(server, books, rng)
                server = start(data_dir, rng)
                found, unanswered = check(server, books, clock.newest_ms, QUERY_RANGE)
            print(
                f"cycle {cycle + 1}: {found} acknowledged samples are there, "
                f"{unanswered} unanswered ones too",
                flush=True,
            )
        check_files(data_dir)
        assert server.stop() == 0
        verify_directory(data_dir)
    except BaseException:
        print(f"--- end of the server's log\n{server.log()[-4000:]}")
        raise
    finally:
        if server.process.poll() is None:
            server.kill()
    print(work, flush=True)


def main():
    seed = int(os.environ.get("CRASH_SEED", str(random.SystemRandom().getrandbits(32))))
    print(f"CRASH_SEED={seed}, {CYCLES} cycles", flush=True)
    with TemporaryDirectory("crash-life") as scratch:
        run(os.path.join(scratch, "data"), random.Random(seed))
    print(f"{CYCLES} kills and more, nothing lost, nothing invented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
