#!/usr/bin/env python3
"""What the compactor and the admin API do to a real server's data: windows become parts, parts are
merged and dropped, series are deleted and written again, snapshots are served by a second server.

--storage.clock=data makes days pass as fast as samples come.
"""

import os
import re
import subprocess
import sys
import time
import unittest

import peers
from harness import RIMSTONE, RIMTOOL, Server, TemporaryDirectory, now_ms, wait_until
from lifecycle import folder_bytes, resident_bytes

ADMIN = "/api/v1/admin/tsdb"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
STEP_MS = 60_000
FIGURES_S = 6  # figures of files are at most five seconds old
QUICK = ("--storage.clock=data", "--storage.seal-interval=1s")


def metric(client, name, labels=""):
    """The value of one time series of /metrics; 0 when it is not there."""
    pattern = rf"^{re.escape(name + labels)} (\S+)$"
    found = re.search(pattern, client.get("/metrics").text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def parts_of(client):
    return metric(client, "prometheus_tsdb_blocks_loaded")


def part_windows(data_dir):
    """Starts of the windows that have a part on disk."""
    names = os.listdir(os.path.join(data_dir, "parts"))
    return {int(m.group(1)) for m in map(re.compile(r"part-(-?\d+)-.*\.index$").match, names) if m}


def series_samples(first_ms, last_ms, job, factor=1.0):
    """A counter's samples every minute, a function of time, so that any part of it can be checked."""
    times = range(first_ms, last_ms, STEP_MS)
    return ({"__name__": "m", "job": job}, [(t, t / STEP_MS % 100000 * factor) for t in times])


def write(client, series):
    answer = client.write(series)
    assert answer.status in (200, 204), answer


def write_days(client, first_ms, last_ms, jobs=("a", "b", "c", "d")):
    for start in range(first_ms, last_ms, 12 * HOUR_MS):
        end = min(start + 12 * HOUR_MS, last_ms)
        write(client, [series_samples(start, end, job) for job in jobs])


def stored(client, first_ms, last_ms, selector="m"):
    """{job: [(t_ms, value)]} of [first, last), in pieces that stay small."""
    out = {}
    for start in range(first_ms, last_ms, 6 * HOUR_MS):
        end = min(start + 6 * HOUR_MS, last_ms)
        # A range is open on the left.
        data = client.query(f"{selector}[{(end - start) // 1000}s]", (end - 1) / 1000)
        for row in data["result"]:
            samples = [(round(t * 1000), float(v)) for t, v in row["values"]]
            out.setdefault(row["metric"]["job"], []).extend(samples)
    return out


def expected(first_ms, last_ms, jobs=("a", "b", "c", "d")):
    return {job: series_samples(first_ms, last_ms, job)[1] for job in jobs}


def wait_flushed(client, end_ms):
    """Until every window that ended ten minutes before end_ms is a part, and nothing is merged any more."""
    border_s = (end_ms - 10 * MINUTE_MS) // (2 * HOUR_MS) * 7200

    def settled():
        late = metric(client, "rimstone_sealed_files", '{kind="late"}')
        return parts_of(client) > 0 and metric(client, "rimstone_flushed_timestamp_seconds") >= border_s and late == 0

    wait_until(settled, f"windows before {end_ms} are parts", 90)
    time.sleep(FIGURES_S)  # the number of late files may be of before the flush
    wait_until(settled, f"late samples before {end_ms} are in parts", 90)
    previous = -1.0
    while metric(client, "prometheus_tsdb_compactions_total") != previous:
        previous = metric(client, "prometheus_tsdb_compactions_total")
        wait_until(lambda: metric(client, "rimstone_merges_running") == 0, "merges end")


class Case(unittest.TestCase):
    def scratch(self):
        directory = TemporaryDirectory("maintenance")
        path = directory.__enter__()
        self.addCleanup(directory.__exit__, None, None, None)
        return path

    def serve(self, path, *flags):
        server = Server(path, *flags)
        self.addCleanup(server.__exit__, None, None, None)
        return server.wait_ready()


class AdminAnswers(Case):
    """Status and body are Prometheus's, whatever is asked; names of snapshots differ."""

    REQUESTS = (
        ("POST", "/delete_series", "match[]=up"),
        ("PUT", "/delete_series", "match[]=up&match[]=down"),
        ("GET", "/delete_series", "match[]=up"),
        ("HEAD", "/delete_series", ""),
        ("POST", "/delete_series", ""),
        ("POST", "/delete_series", "match[]=x%7B"),
        ("POST", "/delete_series", "match[]=up&start=x"),
        ("POST", "/delete_series", "match[]=up&end=x"),
        ("POST", "/delete_series", "match[]=up&start=5&end=2"),
        ("POST", "/delete_series", "match[]=up&start=5&end=1970-01-01T00:00:09Z"),
        ("POST", "/delete_series", "match[]=%7Ba%3D~%22.%2A%22%7D"),
        ("POST", "/delete_series", "match[]=%7B%7D"),
        ("POST", "/delete_series", "match[]=%7B%7D&match[]=up&start=1&end=2"),
        ("POST", "/clean_tombstones", ""),
        ("PUT", "/clean_tombstones", ""),
        ("GET", "/clean_tombstones", ""),
        ("POST", "/snapshot", ""),
        ("PUT", "/snapshot", "skip_head=true"),
        ("PUT", "/snapshot", "skip_head=maybe"),
        ("GET", "/snapshot", ""),
    )
    FORM = {"Content-Type": "application/x-www-form-urlencoded"}

    def normal(self, answer):
        text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{16}", "<name>", answer.text.strip())
        # Prometheus 2.42 begins that text with a capital, 3 does not.
        return answer.status, text.replace("Invalid time value", "invalid time value"), answer.headers.get("allow")

    def compare(self, *flags):
        path = self.scratch()
        ours = self.serve(os.path.join(path, "data"), *flags).client()
        config = "global: {scrape_interval: 1h}\n"
        with peers.Prometheus(path, config, *flags) as prometheus:
            theirs = prometheus.client()
            for method, endpoint, query in self.REQUESTS:
                ways = [(ADMIN + endpoint + "?" + query, None, None)]
                if method in ("POST", "PUT"):
                    ways.append((ADMIN + endpoint, query.encode(), self.FORM))
                for url, body, headers in ways:
                    with self.subTest(method=method, url=url, body=body):
                        a = theirs.request(method, url, body, headers)
                        b = ours.request(method, url, body, headers)
                        self.assertEqual(self.normal(b), self.normal(a))

    def test_off(self):
        self.compare()

    def test_on(self):
        self.compare("--web.enable-admin-api")


class Life(Case):
    def test_windows_become_parts_and_survive(self):
        path = os.path.join(self.scratch(), "data")
        server = self.serve(path, *QUICK)
        client = server.client()
        end = now_ms() // DAY_MS * DAY_MS
        start = end - 3 * DAY_MS
        write_days(client, start, end)
        wait_flushed(client, end - 2 * HOUR_MS)
        self.assertEqual(stored(client, start, end), expected(start, end))
        # Late data over what has become parts, and samples that repeat.
        late = [series_samples(start + DAY_MS, start + DAY_MS + 3 * HOUR_MS, "late")]
        write(client, late)
        write(client, [series_samples(end - 5 * HOUR_MS, end, "a")])
        wait_until(lambda: metric(client, "rimstone_seal_samples_total", '{kind="in_order"}') > 0, "a seal")
        answers = expected(start, end)
        answers["late"] = late[0][1]
        self.assertEqual(stored(client, start, end), answers)
        server.kill()
        client = self.serve(path, *QUICK).client()
        self.assertEqual(stored(client, start, end), answers)
        self.assertEqual(metric(client, "prometheus_tsdb_compactions_failed_total"), 0)
        self.assertGreater(parts_of(client), 0)

    def test_log_and_memory_stay_small(self):
        """Samples of many days leave memory and log behind when their windows are over."""
        path = os.path.join(self.scratch(), "data")
        client = self.serve(path, *QUICK).client()
        end = now_ms() // DAY_MS * DAY_MS
        write_days(client, end - 5 * DAY_MS, end, [f"j{i}" for i in range(20)])
        wait_flushed(client, end - 2 * HOUR_MS)
        # A minute's samples of 20 series: what memory holds does not grow with the days.
        wait_until(lambda: metric(client, "prometheus_tsdb_head_chunks") < 100, "memory is sealed", 30)
        self.assertLess(metric(client, "prometheus_tsdb_wal_storage_size_bytes"), 1 << 20)


class Memory(Case):
    def test_shards_are_sealed_before_writes_stop(self):
        """More samples than fit below 90 % of the limit, none refused."""
        path = os.path.join(self.scratch(), "data")
        server = self.serve(path, "--storage.memory-limit=16MiB")
        done = subprocess.run(
            [RIMTOOL, "load", f"--url=http://127.0.0.1:{server.port}/api/v1/write", "--nodes=10",
             "--scrapes=400", "--quiet"],
            stdout=subprocess.PIPE, text=True, check=True,
        )
        figures = dict(line.split() for line in done.stdout.splitlines())
        self.assertEqual((figures["samples_sent"], figures["samples_refused"]), ("4000000", "0"))
        client = server.client()
        self.assertGreater(metric(client, "rimstone_seals_total", '{reason="memory"}'), 0)
        limit = metric(client, "rimstone_memory_bytes", '{kind="limit"}')
        self.assertLess(metric(client, "rimstone_memory_bytes", '{kind="peak"}'), limit)
        self.assertEqual(metric(client, "prometheus_tsdb_head_series"), 10000)

    NODES, SCRAPE_S = 40, 60
    # 6 to 12 MB; 22 and more, and growing, where each thread has a heap of its own.
    UNCHARGED_BYTES_MAX = 16_000_000

    def test_what_is_resident_is_charged(self):
        """Rollouts replace pods again and again; holes between what lives long would be charged to nobody."""
        with open(RIMSTONE, "rb") as f:
            if re.search(rb"__[amt]san_init", f.read()):
                self.skipTest("a sanitizer has an allocator of its own")
        flags = ("--storage.clock=data", "--wal.sync=never", "--compactor.threads=1")
        server = self.serve(os.path.join(self.scratch(), "data"), *flags)
        client = server.client()
        at_s = now_ms() // 1000 - 24 * 3600
        uncharged = []
        for minutes, pods_a_minute in [(10, 0)] + 4 * [(15, 8 * self.NODES / 10), (15, 0)]:
            subprocess.run(
                [RIMTOOL, "load", "--quiet", f"--url=http://127.0.0.1:{server.port}/api/v1/write",
                 f"--nodes={self.NODES}", f"--start={at_s}", f"--interval={self.SCRAPE_S}",
                 f"--scrapes={minutes * 60 // self.SCRAPE_S}", f"--churn={pods_a_minute}",
                 "--connections=4", "--lockstep=2"],
                stdout=subprocess.DEVNULL, check=True,
            )
            at_s += minutes * 60
            used = metric(client, "rimstone_memory_bytes", '{kind="used"}')
            uncharged.append(resident_bytes(server.process.pid, "RssAnon") - used)
        # The least, since some are of a moment that holds a seal's buffers.
        self.assertLess(min(uncharged[-3:]), self.UNCHARGED_BYTES_MAX, uncharged)


class Retention(Case):
    def test_by_time(self):
        path = os.path.join(self.scratch(), "data")
        server = self.serve(path, *QUICK, "--storage.tsdb.retention.time=2d")
        client = server.client()
        self.assertEqual(client.get("/api/v1/status/runtimeinfo").json["data"]["storageRetention"], "2d")
        end = now_ms() // DAY_MS * DAY_MS
        start = end - 5 * DAY_MS
        write_days(client, start, end)
        wait_flushed(client, end - 2 * HOUR_MS)
        # A part goes when all of it is old.
        kept = lambda: end - 2 * DAY_MS - 8 * HOUR_MS <= min(part_windows(path)) <= end - 2 * DAY_MS
        wait_until(kept, "old parts go, and only those", 60)
        keeps_from = min(part_windows(path))
        self.assertEqual(stored(client, start, keeps_from), {})
        self.assertEqual(stored(client, keeps_from, end), expected(keeps_from, end))
        self.assertGreater(metric(client, "rimstone_retention_removed_parts_total", '{reason="time"}'), 0)
        self.assertIn("retention removes a part", server.log())
        # What is older than the retention is refused from the start.
        answer = client.write([series_samples(start, start + HOUR_MS, "old")])
        self.assertEqual(answer.status, 400)

    def test_by_size(self):
        path = os.path.join(self.scratch(), "data")
        flags = ("--storage.tsdb.retention.size=2MB", "--storage.shards=1")
        client = self.serve(path, *QUICK, *flags).client()
        self.assertEqual(client.get("/api/v1/status/runtimeinfo").json["data"]["storageRetention"], "2MB")
        end = now_ms() // DAY_MS * DAY_MS
        start = end - 8 * DAY_MS
        # Noise, so that it takes room.
        for day in range(start, end, DAY_MS):
            for half in (day, day + 12 * HOUR_MS):
                times = range(half, half + 12 * HOUR_MS, STEP_MS)
                write(client, [({"__name__": "noise", "job": f"j{i}"},
                                [(t, (t * (i + 3) * 2654435761 % 1000003) / 999.7) for t in times]) for i in range(20)])
        removed = lambda: metric(client, "rimstone_retention_removed_parts_total", '{reason="size"}')
        wait_until(lambda: removed() > 0, "parts go by size", 90)
        wait_flushed(client, end - 2 * HOUR_MS)

        wait_until(lambda: folder_bytes(path) < 2.5 * (1 << 20), "the directory keeps its size", 60)
        self.assertGreater(min(part_windows(path)), start)


class Deletion(Case):
    def setUp(self):
        self.path = os.path.join(self.scratch(), "data")
        self.flags = (*QUICK, "--web.enable-admin-api")
        self.server = self.serve(self.path, *self.flags)
        self.client = self.server.client()
        self.end = now_ms() // DAY_MS * DAY_MS
        self.start = self.end - 2 * DAY_MS
        write_days(self.client, self.start, self.end)
        wait_flushed(self.client, self.end - 2 * HOUR_MS)

    def restart(self):
        self.server.kill()
        self.server = self.serve(self.path, *self.flags)
        self.client = self.server.client()

    def admin(self, endpoint, **params):
        answer = self.client.post_form(ADMIN + endpoint, params)
        self.assertIn(answer.status, (200, 204), answer)
        return answer

    def delete(self, selector, first_ms, last_ms):
        """Deletes [first, last)."""
        self.admin("/delete_series", **{"match[]": selector, "start": first_ms / 1000, "end": (last_ms - 1) / 1000})

    def check(self, answers):
        self.assertEqual(stored(self.client, self.start, self.end), answers)

    def test_delete_refill_clean_snapshot(self):
        answers = expected(self.start, self.end)
        hole = (self.start + 5 * HOUR_MS, self.start + 31 * HOUR_MS)  # ends in no window's border
        self.delete('m{job="a"}', *hole)
        self.delete('m{job="b"}', self.end - 3 * HOUR_MS, self.end)  # memory and sealed files
        answers["a"] = [s for s in answers["a"] if not hole[0] <= s[0] < hole[1]]
        answers["b"] = [s for s in answers["b"] if s[0] < self.end - 3 * HOUR_MS]
        self.check(answers)
        self.restart()
        self.check(answers)
        # A part of the hole is filled again, with other values.
        refill = series_samples(hole[0] + HOUR_MS, hole[0] + 3 * HOUR_MS, "a", 2.0)
        write(self.client, [refill])
        answers["a"] = sorted(answers["a"] + refill[1])
        self.check(answers)
        self.restart()
        self.check(answers)
        self.admin("/clean_tombstones")
        self.check(answers)
        self.assertGreater(metric(self.client, "rimstone_merge_samples_total", '{kind="purged"}'), 0)
        self.restart()
        self.check(answers)
        self.serve_snapshot(answers)

    def serve_snapshot(self, answers):
        name = self.admin("/snapshot").json["data"]["name"]
        self.assertRegex(name, r"^\d{8}T\d{6}Z-[0-9a-f]{16}$")
        # What comes later is not in it.
        write(self.client, [series_samples(self.end, self.end + HOUR_MS, "later")])
        self.delete("m", self.start, self.end)
        snapshot = os.path.join(self.path, "snapshots", name)
        other = self.serve(snapshot, *QUICK).client()
        self.assertEqual(stored(other, self.start, self.end), answers)
        write(other, [series_samples(self.end, self.end + HOUR_MS, "mine")])
        self.assertEqual(set(stored(other, self.end, self.end + HOUR_MS)), {"mine"})
        self.assertEqual(set(stored(self.client, self.end, self.end + HOUR_MS)), {"later"})
        self.check({})

    def test_delete_everything_and_clean(self):
        self.delete('{__name__=~".+"}', self.start - DAY_MS, self.end + DAY_MS)
        self.check({})
        self.admin("/clean_tombstones")
        self.check({})
        wait_until(lambda: not part_windows(self.path), "no part is left", 30)
        write_days(self.client, self.start, self.end)
        self.check(expected(self.start, self.end))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
