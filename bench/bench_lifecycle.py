#!/usr/bin/env python3
"""The whole life cycle of samples in the real server, one figure a line.

Drives build/release/rimstone with `rimtool load` and --storage.clock=data, so that hours of data pass
in minutes: windows close, are flushed and merged while the stream goes on.

  life     100 k series, 6 h of stream: CPU a sample with all work done, bytes a sample on disk
  day      20 k series, a day with 5 ms of jitter: bytes a sample once it is one part a shard
  memory   resident bytes a series after 3 h, between 100 k and 200 k series; an idle server
  restart  1 M series with 3 h of data, killed: CPU until ready
  latency  writes and queries while the compactor rewrites everything again and again, against an idle
           one, in turns

  bench_lifecycle.py [--quick] [life] [day] [memory] [restart] [latency]

--quick makes everything ten times smaller, for a smoke test; its figures mean nothing."""

import argparse
import http.client
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import bench_ingest
from bench_ingest import BUILD, ROOT, Server, cpu_seconds, figure, free_port, load, run_parts

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from harness import snappy_literals, write_request  # noqa: E402
from lifecycle import HOUR_MS, manifest_parts, metric_sum, parse_metrics, resident_bytes  # noqa: E402

DAY_MS = 24 * HOUR_MS
SCRAPES_AN_HOUR = 240
LATENCY_ROUNDS = 1000  # writes of each kind, and half as many queries
LATENCY_TURNS = 5  # idle and at work, so that a busy machine slows both
# The stream begins at a border of every window, long enough ago.
START_MS = (int(time.time() * 1000) - 10 * DAY_MS) // DAY_MS * DAY_MS

bench_ingest.BUDGETS.update({
    "life_cpu_per_sample": ("us", 0.25, 0.25),
    "flushed_bytes_per_sample": ("bytes", 1.15, 1.15),
    "day_bytes_per_sample": ("bytes", 1.20, 1.20),
    "resident_per_series_after_3h": ("bytes", 300, 300),
    "resident_idle": ("MiB", 32, 32),
    "ready_cpu_after_3h": ("s", 3, 3),
    "write_p99_ratio": ("x", 2, 2),
    "query_p99_ratio": ("x", 2, 2),
})


def rimstone(folder, options, *flags):
    port = free_port()
    return Server(
        [f"{BUILD}/rimstone", f"--storage.tsdb.path={folder}/data", "--storage.clock=data",
         "--web.enable-admin-api",
         f"--web.listen-address=127.0.0.1:{port}", *flags], port, "/-/ready")


def stream(server, nodes, hours, *arguments):
    """`hours` of data and a quarter more, so that the last of their windows closes."""
    return load(server, f"--nodes={nodes}", f"--start={START_MS // 1000}",
                f"--scrapes={int((hours + 0.25) * SCRAPES_AN_HOUR)}", "--connections=16",
                "--lockstep=4", *arguments)


def scaled(options, nodes):
    return max(1, nodes // 10) if options.quick else nodes


def wait_quiet(server, deadline_s=600):
    """Until nothing uses the processor any more: seals, flushes and merges are done."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        before = cpu_seconds(server.pid)
        time.sleep(2)
        if cpu_seconds(server.pid) - before < 0.1:
            return
    sys.exit("the server did not come to rest")


def metrics_of(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as f:
        return parse_metrics(f.read().decode())


def bytes_per_sample(folder, window_ms):
    """Over the parts of that window size."""
    parts = [p for p in manifest_parts(f"{folder}/data") if p["window_size_ms"] == window_ms]
    samples = sum(p["sample_count"] for p in parts)
    if samples == 0:
        sys.exit(f"there are no parts of {window_ms // HOUR_MS} h")
    return sum(p["bytes"] for p in parts) / samples, len(parts)


def life(options, folder):
    server = rimstone(folder, options)
    cpu = cpu_seconds(server.pid)
    result = stream(server, scaled(options, 100), 6)
    wait_quiet(server)
    figure("life_cpu_per_sample",
           (cpu_seconds(server.pid) - cpu) * 1e6 / result["samples_sent"], check=options.check)
    figure("life_load_cpu_per_sample", result["server_cpu_us_per_sample"], "us")
    size, parts = bytes_per_sample(folder, 2 * HOUR_MS)
    figure("flushed_bytes_per_sample", size, check=options.check)
    figure("flushed_parts", parts)
    values = metrics_of(server)
    for name in ("rimstone_seals_total", "rimstone_flushes_total"):
        figure(name, metric_sum(values, name) or 0)
    server.stop()


def day(options, folder):
    server = rimstone(folder, options)
    stream(server, scaled(options, 20), 24, "--jitter=5")
    wait_quiet(server)
    size, parts = bytes_per_sample(folder, DAY_MS)
    figure("day_bytes_per_sample", size, check=options.check)
    figure("day_parts", parts)
    server.stop()


def resident_after_3h(options, nodes):
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    try:
        server = rimstone(folder, options)
        stream(server, nodes, 3)
        wait_quiet(server)
        resident = resident_bytes(server.pid)
        server.stop()
        return resident
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def memory(options, folder):
    server = rimstone(folder, options)
    figure("resident_idle", resident_bytes(server.pid) / 2**20, check=options.check)
    server.stop()
    nodes = scaled(options, 100)
    small, large = resident_after_3h(options, nodes), resident_after_3h(options, 2 * nodes)
    figure("resident_100k_series", small / 2**20, "MiB")
    figure("resident_200k_series", large / 2**20, "MiB")
    figure("resident_per_series_after_3h", (large - small) / (nodes * 1000), check=options.check)


def restart(options, folder):
    server = rimstone(folder, options)
    stream(server, scaled(options, 1000), 2.75)
    server.stop(signal.SIGKILL)
    server = rimstone(folder, options)
    figure("ready_cpu_after_3h", server.ready_cpu, check=options.check)
    server.stop()


class Latency:
    """Requests one after another, and how long each took, in milliseconds."""

    def __init__(self, port, first_ms):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.t_ms = first_ms
        self.query_ms = first_ms
        self.writes = {False: [], True: []}  # by whether the compactor worked all the time
        self.queries = {False: [], True: []}

    def timed(self, into, is_working, method, path, body=None, headers=None):
        """Counts the request if nothing began or ended meanwhile."""
        before = is_working()
        start = time.monotonic()
        self.connection.request(method, path, body=body, headers=headers or {})
        answer = self.connection.getresponse()
        answer.read()
        took = (time.monotonic() - start) * 1000
        if answer.status // 100 != 2:
            sys.exit(f"{path}: {answer.status}")
        if is_working() == before:
            into[before].append(took)

    def write(self, is_working):
        """A scrape of 500 series."""
        self.t_ms += 1000
        series = [
            ({"__name__": "bench_latency", "instance": "a", "n": str(i)}, [(self.t_ms, float(i))])
            for i in range(500)
        ]
        body = snappy_literals(write_request(series))
        self.timed(self.writes, is_working, "POST", "/api/v1/write", body, {
            "Content-Encoding": "snappy", "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0"})

    def query(self, is_working):
        """A panel over the last hours of stream."""
        parameters = urllib.parse.urlencode({
            "query": 'sum by (mode) (rate(node_cpu_seconds_total{cpu="1"}[5m]))',
            "start": (self.query_ms - 6 * HOUR_MS) / 1000, "end": self.query_ms / 1000,
            "step": 60})
        self.timed(self.queries, is_working, "GET", f"/api/v1/query_range?{parameters}")

    def run(self, rounds, state, is_working):
        """Until so many more writes have been counted with the compactor in that state."""
        end = len(self.writes[state]) + rounds
        for n in range(50 * rounds):
            if len(self.writes[state]) >= end:
                return
            self.write(is_working)
            if n % 2 == 0:
                self.query(is_working)
        sys.exit("the compactor was hardly ever at work" if state else "it never rested")


def p99(values):
    return statistics.quantiles(values, n=100, method="inclusive")[98]


class Rewriter(threading.Thread):
    """Has all parts rewritten, again and again, until it is stopped: a tombstone over all of time
    touches every one, and cleaning then rewrites them all."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.working, self.stopping = threading.Event(), threading.Event()
        self.count = 0
        self.failure = None

    def post(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1200)
        connection.request("POST", f"/api/v1/admin/tsdb/{path}")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status // 100 != 2:
            self.failure = f"{path}: {answer.status}"
            self.stopping.set()

    def run(self):
        while not self.stopping.is_set():
            self.post(f"delete_series?match[]=bench_latency{{n=%22{self.count % 500}%22}}")
            self.working.set()
            self.post("clean_tombstones")
            self.working.clear()
            self.count += 1


def latency(options, folder):
    server = rimstone(folder, options, f"--compactor.threads={os.cpu_count()}")
    stream(server, scaled(options, 20), 12)
    wait_quiet(server)
    client = Latency(server.port, START_MS + int(12.25 * HOUR_MS))
    rewrites, rounds = 0, scaled(options, LATENCY_ROUNDS) // LATENCY_TURNS
    client.run(rounds, False, lambda: False)  # series are made, caches filled
    client.writes[False].clear()
    client.queries[False].clear()
    for _ in range(LATENCY_TURNS):
        client.run(rounds, False, lambda: False)
        rewriter = Rewriter(server.port)
        rewriter.start()
        client.run(rounds, True, rewriter.working.is_set)
        rewriter.stopping.set()
        rewriter.join()
        if rewriter.failure is not None:
            sys.exit(rewriter.failure)
        rewrites += rewriter.count
    figure("latency_rewrites", rewrites)
    figure("latency_rewritten", metric_sum(metrics_of(server), "rimstone_merge_output_bytes_total")
           / 2**20, "MiB")
    for name, times in (("write", client.writes), ("query", client.queries)):
        figure(f"{name}_latency_count", len(times[True]))
        for part, of in (("median", statistics.median), ("p99", p99)):
            figure(f"{name}_{part}_idle", of(times[False]), "ms (latency)")
            figure(f"{name}_{part}_compacting", of(times[True]), "ms (latency)")
        figure(f"{name}_p99_ratio", p99(times[True]) / p99(times[False]), check=options.check)
    server.stop()


def main():
    parts = {"life": life, "day": day, "memory": memory, "restart": restart, "latency": latency}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten times smaller: a smoke test")
    parser.add_argument("--check", type=float, help="exit 1 beyond this factor of the budgets")
    parser.add_argument("parts", nargs="*", default=list(parts),
                        help=", ".join(parts) + " (default: all)")
    run_parts(parser, parts)


if __name__ == "__main__":
    main()
