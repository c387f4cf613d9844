#!/usr/bin/env python3
"""Days of data through a real server in minutes, and nothing leaks, grows or gets lost.

`rimtool load` streams the GPU fleet with churn and late samples as fast as it can; the server takes
the newest sample for the time (--storage.clock=data), so windows close, are flushed, merged and
dropped all the while. Beside that, queries: each window is counted when it has closed and again later;
series of a machine that never went away have no holes and no resets. At the end every sample that was
answered with 2xx is there once: after the load, after a restart, after a kill.

SOAK_SECONDS sets how long (75), SOAK_NODES how many nodes of 1,000 series (4), SOAK_RETENTION the
retention (3d).
"""

import os
import random
import statistics
import subprocess
import sys
import threading
import time

from harness import RIMTOOL, Server, TemporaryDirectory, wait_until
from lifecycle import (
    HOUR_MS,
    WINDOW_MS,
    descriptor_count,
    folder_bytes,
    metric_sum,
    metrics,
    removed_files_open,
    resident_bytes,
    unnamed_files,
    verify_directory,
)

SECONDS = float(os.environ.get("SOAK_SECONDS", "75"))
NODES = int(os.environ.get("SOAK_NODES", "4"))
RETENTION = os.environ.get("SOAK_RETENTION", "3d")
RETENTION_MS = 24 * HOUR_MS * int(RETENTION.rstrip("d"))
INTERVAL_S = 15
SCRAPES_A_WINDOW = WINDOW_MS // 1000 // INTERVAL_S
STOP_S = 300  # hours of a soak are for when others use the machine too
MEMORY_SLACK = 32 << 20
DESCRIPTORS_MAX = 1000  # the cache of descriptors is bounded
CLOSED_AFTER_MS = 10 * 60 * 1000  # what is late comes within this
STEADY = "node_cpu_seconds_total"
STEADY_SERIES = 512 * NODES
# name -> least count for each 8 hours of data
WORK = {
    "rimstone_seals_total": 4,
    "rimstone_flushes_total": 3,
    "prometheus_tsdb_compactions_total": 1,
}
# What there must be of it once three hours have passed: a window has been flushed in every shard.
EARLY_WORK = {"rimstone_seals_total": 1, "rimstone_flushes_total": 1}
FLAGS = [
    "--storage.clock=data",
    f"--storage.tsdb.retention.time={RETENTION}",
]


def instant(client, expression, at_ms):
    data = client.query(expression, at_ms / 1000)
    assert data["resultType"] == "vector", data["resultType"]
    return [float(sample["value"][1]) for sample in data["result"]]


def one(client, expression, at_ms):
    values = instant(client, expression, at_ms)
    assert len(values) <= 1, (expression, values)
    return values[0] if values else 0.0


def window_count(client, end_ms):
    """Samples in (end - 2 h, end], staleness markers left out."""
    answer = client.get("/api/v1/label/__name__/values")
    assert answer.status == 200, answer
    # One metric at a time: without their names, series of two could be the same.
    return sum(
        int(one(client, f"sum(count_over_time({name}[2h]))", end_ms))
        for name in answer.json["data"]
    )


class Load:
    """rimtool load in the background."""

    def __init__(self, server, start_ms, seconds):
        self.process = subprocess.Popen(
            [
                RIMTOOL, "load", "--quiet",
                f"--url=http://127.0.0.1:{server.port}/api/v1/write",
                f"--nodes={NODES}", f"--interval={INTERVAL_S}", f"--start={start_ms // 1000}",
                "--scrapes=100000000", f"--for={seconds}", "--lockstep=4", "--connections=2",
                f"--churn={2 * NODES}", "--late=0.002", "--jitter=5", "--batch=2000",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def is_running(self):
        return self.process.poll() is None

    def result(self):
        text, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, text
        return {k: float(v) for k, v in (line.split(" ", 1) for line in text.splitlines())}

    def end(self):
        if self.is_running():
            self.process.kill()
            self.process.wait()


class Watcher(threading.Thread):
    """Looks at memory and descriptors of the server all the while."""

    def __init__(self, pid, data_dir):
        super().__init__(daemon=True)
        self.pid = pid
        self.data_dir = data_dir
        self.stopped = threading.Event()
        self.rows = []  # (seconds, resident bytes, descriptors, bytes on disk)
        self.start_s = time.monotonic()

    def run(self):
        while not self.stopped.wait(1.0):
            try:
                self.rows.append((
                    time.monotonic() - self.start_s,
                    resident_bytes(self.pid),
                    descriptor_count(self.pid),
                    folder_bytes(self.data_dir),
                ))
            except FileNotFoundError:
                pass  # a file was removed between listing and asking

    def stop(self):
        self.stopped.set()
        self.join()

    def check_flat(self):
        """After a third of the time as warm-up nothing grows any more."""
        third = len(self.rows) // 3
        if third < 5:
            return
        middle = statistics.median(r[1] for r in self.rows[third : 2 * third])
        last = statistics.median(r[1] for r in self.rows[2 * third :])
        print(f"resident memory: {middle:.0f} in the middle, {last:.0f} at the end", flush=True)
        assert last <= middle * 1.15 + MEMORY_SLACK, "memory grows"
        most = max(r[2] for r in self.rows)
        print(f"descriptors: {most} at most", flush=True)
        assert most <= DESCRIPTORS_MAX


class Queries:
    """What a user asks, with answers that are known."""

    def __init__(self, client, start_ms, rng):
        self.client = client
        self.start_ms = start_ms
        self.rng = rng
        self.newest_ms = start_ms
        self.counted = {}  # window end -> samples, as of when it had closed
        self.next_end_ms = start_ms + WINDOW_MS
        self.checks = 0

    def look(self):
        values = metrics(self.client)
        newest = metric_sum(values, "prometheus_tsdb_head_max_time")
        if newest is not None:
            self.newest_ms = max(self.newest_ms, int(newest))
        return values

    def oldest_kept_ms(self):
        return max(self.start_ms, self.newest_ms - RETENTION_MS + 2 * WINDOW_MS)

    def count_closed_windows(self):
        while self.next_end_ms + CLOSED_AFTER_MS < self.newest_ms:
            count = window_count(self.client, self.next_end_ms)
            assert count > 0, f"the window that ends at {self.next_end_ms} is empty"
            self.counted[self.next_end_ms] = count
            self.next_end_ms += WINDOW_MS

    def count_again(self):
        kept = [e for e in self.counted if e - WINDOW_MS > self.oldest_kept_ms()]
        if kept:
            end = self.rng.choice(kept)
            count = window_count(self.client, end)
            assert count == self.counted[end], (
                f"the window that ends at {end} had {self.counted[end]} samples, now {count}"
            )
            self.checks += 1

    def check_no_holes(self):
        """Any hour of the past: each series has each scrape, none goes backwards."""
        last = self.newest_ms - CLOSED_AFTER_MS
        first = max(self.oldest_kept_ms(), last - 12 * HOUR_MS) + HOUR_MS
        if first >= last:
            return
        at = self.rng.randrange(first, last)
        counts = instant(self.client, f"count_over_time({STEADY}[1h])", at)
        scrapes = HOUR_MS // 1000 // INTERVAL_S
        assert len(counts) == STEADY_SERIES, f"{len(counts)} series, not {STEADY_SERIES}"
        # An offset and the jitter move a scrape over a border.
        assert scrapes - 1 <= min(counts) and max(counts) <= scrapes + 1, (min(counts), max(counts))
        resets = one(self.client, f"sum(resets({STEADY}[1h]))", at)
        assert resets == 0, f"{resets} resets at {at}"
        self.checks += 1

    def check_range(self):
        """A graph over the last hours has all its points."""
        end = (self.newest_ms - CLOSED_AFTER_MS) // 60000 * 60000
        start = max(self.oldest_kept_ms() + 10 * 60000, end - 6 * HOUR_MS) // 60000 * 60000
        if start >= end:
            return
        answer = self.client.get("/api/v1/query_range", {
            "query": "sum(rate(node_network_receive_bytes_total[5m]))",
            "start": start / 1000, "end": end / 1000, "step": 60,
        })
        assert answer.status == 200, answer
        result = answer.json["data"]["result"]
        assert len(result) == 1, result
        points = result[0]["values"]
        assert len(points) == (end - start) // 60000 + 1, f"{len(points)} points"
        assert all(float(v) > 0 for _, v in points)
        self.checks += 1

    def run_once(self):
        values = self.look()
        self.count_closed_windows()
        self.rng.choice([self.count_again, self.check_no_holes, self.check_range])()
        return values

    def total(self, until_ms):
        """All that was ever counted, the open windows included."""
        while self.next_end_ms - WINDOW_MS <= until_ms:
            self.counted[self.next_end_ms] = window_count(self.client, self.next_end_ms)
            self.next_end_ms += WINDOW_MS
        return sum(self.counted.values())

    def check_all_again(self):
        for end in [e for e in self.counted if e - WINDOW_MS > self.oldest_kept_ms()]:
            count = window_count(self.client, end)
            assert count == self.counted[end], (
                f"the window that ends at {end} had {self.counted[end]} samples, now {count}"
            )


def check_at_rest(server, data_dir):
    """Work goes on for a while after the load; then nothing is left over."""

    def at_rest():
        try:
            return unnamed_files(data_dir) == (set(), set()) and not removed_files_open(pid)
        except FileNotFoundError:
            return False  # something was replaced meanwhile

    pid = server.process.pid
    try:
        wait_until(at_rest, "no file but those the manifest names", deadline_s=120)
    except TimeoutError:
        raise AssertionError(
            f"unnamed and missing files: {unnamed_files(data_dir)}, removed ones that are open: "
            f"{removed_files_open(pid)}"
        ) from None


def check_work(values, hours):
    for name, least in WORK.items():
        count = metric_sum(values, name)
        print(f"{name} {count}", flush=True)
        assert count is not None, f"no metric {name}"
        # The last window is under way, and the one before it closes ten minutes after its end.
        eighths = max(0, int((hours - 3) / 8))
        if eighths == 0 and hours >= 3:
            least, eighths = min(least, EARLY_WORK.get(name, 0)), 1
        assert count >= least * eighths, f"{name} {count} in {hours:.0f} hours of data"


def run(data_dir, rng):
    day_ms = 24 * HOUR_MS
    start_ms = (int(time.time() * 1000) - 200 * day_ms) // day_ms * day_ms
    server = Server(data_dir, *FLAGS).wait_ready()
    watcher = Watcher(server.process.pid, data_dir)
    load = Load(server, start_ms, SECONDS)
    try:
        watcher.start()
        queries = Queries(server.client(), start_ms, rng)
        while load.is_running():
            queries.run_once()
            time.sleep(0.1)  # the load is what should keep the server busy
        sent = load.result()
        watcher.stop()
        values = queries.look()
        hours = (queries.newest_ms - start_ms) / HOUR_MS
        print(f"{hours:.1f} hours of data, {sent['samples_sent']:.0f} samples, "
              f"{queries.checks} queries", flush=True)
        assert sent["samples_refused"] == 0 and sent["samples_failed"] == 0, sent
        expected = int(sent["samples_sent"] - sent["samples_stale"])
        found = queries.total(queries.newest_ms)
        assert found == expected, f"{found} samples are there, {expected} were acknowledged"
        watcher.check_flat()
        check_work(values, hours)
        check_at_rest(server, data_dir)
        for is_clean in (True, False):
            if is_clean:
                assert server.stop(STOP_S) == 0
            else:
                server.kill()
            verify_directory(data_dir)
            server = Server(data_dir, *FLAGS).wait_ready()
            queries.client = server.client()
            queries.check_all_again()
            check_at_rest(server, data_dir)
        assert server.stop(STOP_S) == 0
    except BaseException:
        print(f"--- end of the server's log\n{server.log()[-4000:]}")
        raise
    finally:
        load.end()
        if server.process.poll() is None:
            server.kill()


def main():
    seed = int(os.environ.get("RIMSTONE_SEED", str(random.SystemRandom().getrandbits(32))))
    print(f"RIMSTONE_SEED={seed}, {SECONDS:.0f} s, {NODES} nodes", flush=True)
    with TemporaryDirectory("soak") as scratch:
        run(os.path.join(scratch, "data"), random.Random(seed))
    print("nothing lost, nothing left over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
