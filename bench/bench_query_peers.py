#!/usr/bin/env python3
"""What queries cost beside VictoriaMetrics and Prometheus on the same data in the same run.

Every server gets the same remote write and then the same queries over HTTP, one at a time. A figure
is CPU time of the server's threads for one query, the median of several, so that a busy machine
does not decide it; the ratio to each peer follows, and how far the query raised the server's
resident memory at its peak.

  bench_query_peers.py [--quick] [--victoria PATH] [--prometheus PATH] [short] [month] [clients]

  short    100,000 series, two hours at 15 s: the queries of dashboards and worse, against samples
           in memory, in sealed files and in parts
  month    3,000 series, thirty days at 5 minutes: one query over many parts
  clients  100 clients run dashboards while the stream comes in: errors, p99, and what a sample
           costs the threads that take it, with and without them

Without a path a peer is left out. --quick makes everything ten times smaller, for a smoke test; its
figures mean nothing.
"""

import argparse
import atexit
import http.client
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse

from bench_ingest import BUILD, ROOT, Server, figure, free_port, load

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from harness import snappy_literals, write_request  # noqa: E402
from lifecycle import manifest_parts, metric_sum, parse_metrics, resident_bytes  # noqa: E402

INTERVAL_S = 15
SCRAPES = 480
MINUTE_S = 60
HOUR_S = 3600
DAY_S = 24 * HOUR_S

# name -> (query, step in seconds or None for an instant query, is heavy)
QUERIES = {
    "single": ('DCGM_FI_DEV_GPU_UTIL{Hostname="gpu-node-00007",gpu="3"}', 15, False),
    "latest": ('DCGM_FI_DEV_GPU_TEMP{Hostname="gpu-node-00007"}', None, False),
    "avg_by_host": ("avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)", 15, True),
    "rate_by_instance":
        ('sum by (instance) (rate(node_cpu_seconds_total{mode!="idle"}[5m]))', 60, True),
    "quantile": (
        "histogram_quantile(0.99, sum by (le) (rate(kubelet_http_requests_duration_seconds_bucket[5m])))",
        60, True),
    "topk_max": ("topk(10, max_over_time(DCGM_FI_DEV_GPU_TEMP[1h]))", 60, True),
    "count_all": ('count({__name__=~".+"})', None, True),
    "regex_hosts": ('avg(DCGM_FI_DEV_GPU_UTIL{Hostname=~"gpu-node-000[1-4][05]"})', 15, False),
    "join_info": (
        "sum by (team) (DCGM_FI_DEV_POWER_USAGE * on (UUID) group_left (team) gpu_owner_info)", 60, True),
}
MONTH_QUERY = ("avg by (job) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[1h]))", HOUR_S)
TEAMS = 12
DASHBOARDS = [
    ('DCGM_FI_DEV_GPU_UTIL{Hostname="gpu-node-%05d"}', 15),
    ('avg(DCGM_FI_DEV_POWER_USAGE{Hostname="gpu-node-%05d"})', 15),
    ('sum by (mode) (rate(node_cpu_seconds_total{instance="gpu-node-%05d:9100"}[5m]))', 30),
    ('topk(3, rate(node_network_receive_bytes_total{instance="gpu-node-%05d:9100"}[5m]))', 30),
    ("histogram_quantile(0.99, sum by (le) (rate(kubelet_http_requests_duration_seconds_bucket"
     '{instance="gpu-node-%05d:10250"}[5m])))', 60),
]


def cpu_ns(pid, is_counted=lambda name: True):
    """CPU time of the threads that live, in nanoseconds; servers keep their threads."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        folder = f"/proc/{pid}/task/{thread}"
        try:
            with open(f"{folder}/comm") as comm, open(f"{folder}/schedstat") as times:
                if is_counted(comm.read().strip()):
                    total += int(times.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended
    return total


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(l.split()[1]) * 1024 for l in status if l.startswith("VmHWM"))


def peak_reset(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")


class Store:
    """A server of one kind with its own folder."""

    def __init__(self, kind, program, folder, *flags):
        self.kind = kind
        self.folder = f"{folder}/{kind}"
        port = free_port()
        address = f"127.0.0.1:{port}"
        command, ready = {
            "rimstone": ([program, f"--storage.tsdb.path={self.folder}", f"--web.listen-address={address}",
                          "--storage.clock=data", "--storage.tsdb.retention.time=100d",
                          "--web.enable-admin-api"], "/-/ready"),
            "victoria": ([program, f"-storageDataPath={self.folder}", f"-httpListenAddr={address}",
                          "-retentionPeriod=100y", "-search.maxUniqueTimeseries=10000000",
                          "-search.disableCache"], "/health"),
            "prometheus": ([program, f"--config.file={folder}/prometheus.yml",
                            f"--storage.tsdb.path={self.folder}", f"--web.listen-address={address}",
                            "--storage.tsdb.retention.time=100d", "--web.enable-remote-write-receiver"],
                           "/-/ready"),
        }[kind]
        self.server = Server(command + list(flags), port, ready)
        self.pid = self.server.pid
        atexit.register(self.server.stop)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def get(self, path, **parameters):
        self.connection.request("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"{self.kind}: {path} {parameters}: {answer.status} {body[:500].decode()}")
        return body

    def post(self, path, body, headers):
        self.connection.request("POST", path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status // 100 != 2:
            sys.exit(f"{self.kind}: {path}: {answer.status} {text[:500].decode()}")

    def push(self, series):
        self.post("/api/v1/write", snappy_literals(write_request(series)),
                  {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
                   "X-Prometheus-Remote-Write-Version": "0.1.0"})

    def query(self, text, step_s, start_s, end_s):
        if step_s is None:
            return self.get("/api/v1/query", query=text, time=end_s)
        return self.get("/api/v1/query_range", query=text, start=start_s, end=end_s, step=step_s)

    def metric(self, name):
        return metric_sum(parse_metrics(self.get("/metrics").decode()), name)

    def stop(self):
        self.connection.close()
        self.server.stop()


def stores(options, folder):
    with open(f"{folder}/prometheus.yml", "w") as f:
        f.write("storage:\n  tsdb:\n    out_of_order_time_window: 4h\n")
    yield "rimstone", f"{BUILD}/rimstone"
    if options.victoria:
        yield "victoria", options.victoria
    if options.prometheus:
        yield "prometheus", options.prometheus


def push_owners(store, start_s):
    """An info series for every GPU, one sample a minute: which team it belongs to."""
    uuids = json.loads(store.get("/api/v1/label/UUID/values", start=start_s,
                                 end=start_s + SCRAPES * INTERVAL_S))["data"]
    times = [(start_s + s) * 1000 for s in range(0, SCRAPES * INTERVAL_S, MINUTE_S)]
    for first in range(0, len(uuids), 100):
        store.push([({"__name__": "gpu_owner_info", "UUID": uuid, "team": f"team-{i % TEAMS:02}"},
                     [(t, 1.0) for t in times])
                    for i, uuid in enumerate(uuids[first:first + 100], first)])
    return len(uuids)


def measure(store, query, step_s, start_s, end_s, runs):
    """(CPU seconds of one query, how far it raised resident memory, series in the answer)."""
    body = store.query(query, step_s, start_s, end_s)  # warms up
    result = json.loads(body)["data"]["result"]
    costs, peaks = [], []
    for _ in range(3):
        before = resident_bytes(store.pid)
        peak_reset(store.pid)
        cpu = cpu_ns(store.pid)
        for _ in range(runs):
            store.query(query, step_s, start_s, end_s)
        costs.append((cpu_ns(store.pid) - cpu) / runs / 1e9)
        peaks.append(max(0, peak_bytes(store.pid) - before))
        time.sleep(0.2)
    return statistics.median(costs), max(peaks), len(result)


def measure_all(store, where, start_s, end_s, queries, base):
    for name, (query, step_s, is_heavy) in queries.items():
        cost, peak, count = measure(store, query, step_s, start_s, end_s, 3 if is_heavy else 30)
        label = f"{name}_{store.kind}" + (f"_{where}" if where else "")
        figure(f"{label}_cpu", cost * 1000, "ms")
        figure(f"{label}_peak", peak / (1 << 20), "MiB")
        if store.kind == "rimstone":
            base.setdefault(name, {})[where] = (cost, count)
            continue
        for place, (own, own_count) in base[name].items():
            tail = "" if count == own_count else f" (series: {own_count} here, {count} there)"
            figure(f"{name}_{store.kind}_to_rimstone_{place}", cost / own, "x" + tail)


def settle(store, seconds=60):
    """Waits until a server's background work has ended."""
    quiet, deadline = 0, time.monotonic() + seconds
    while quiet < 3 and time.monotonic() < deadline:
        cpu = cpu_ns(store.pid)
        time.sleep(1)
        quiet = quiet + 1 if cpu_ns(store.pid) - cpu < 50e6 else 0


def wait(condition, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {seconds} s in vain: {what}")
        time.sleep(0.2)


def flush_all(store, end_s, sample_count):
    """Data of far later closes all windows: they are flushed."""
    later = (end_s + 4 * HOUR_S) * 1000
    store.push([({"__name__": "later"}, [(later, 1.0)])])
    wait(lambda: sum(p["sample_count"] for p in manifest_parts(store.folder)) >= sample_count,
         "windows are flushed")
    settle(store)


def short(options, folder):
    nodes = 10 if options.quick else options.nodes
    # Mostly one window of two hours, and old enough for samples that come long after.
    end_s = (int(time.time()) - 8 * HOUR_S) // (2 * HOUR_S) * (2 * HOUR_S) - MINUTE_S
    start_s = end_s - SCRAPES * INTERVAL_S
    base = {}
    for kind, program in stores(options, folder):
        flags = ["--storage.seal-interval=24h"] if kind == "rimstone" else []
        store = Store(kind, program, folder, *flags)
        loaded = load(store.server, f"--nodes={nodes}", f"--scrapes={SCRAPES}", f"--start={start_s}",
                      f"--interval={INTERVAL_S}", "--connections=4", "--lockstep=4")
        gpus = push_owners(store, start_s)
        settle(store)
        last_s = end_s - INTERVAL_S
        if kind != "rimstone":
            measure_all(store, "", start_s, last_s, QUERIES, base)
        else:
            figure("gpus", gpus)
            figure("seals_before_memory", store.metric("rimstone_seals_total"))
            measure_all(store, "memory", start_s, last_s, QUERIES, base)
            store.post("/api/v1/admin/tsdb/snapshot", b"", {})
            measure_all(store, "sealed", start_s, last_s, QUERIES, base)
            flush_all(store, end_s, loaded["samples_sent"])
            measure_all(store, "parts", start_s, last_s, QUERIES, base)
        store.stop()
        shutil.rmtree(store.folder)


def month(options, folder):
    days = 3 if options.quick else 30
    interval_s = 300
    end_s = int(time.time()) // DAY_S * DAY_S
    start_s = end_s - days * DAY_S
    base = {}
    for kind, program in stores(options, folder):
        store = Store(kind, program, folder)
        load(store.server, "--nodes=3", f"--scrapes={days * DAY_S // interval_s}", f"--start={start_s}",
             f"--interval={interval_s}", "--connections=2", "--lockstep=4")
        settle(store, 180)
        if kind == "rimstone":
            figure("month_parts", len(manifest_parts(store.folder)))
        measure_all(store, "parts" if kind == "rimstone" else "", start_s, end_s - interval_s,
                    {"month": (*MONTH_QUERY, True)}, base)
        store.stop()
        shutil.rmtree(store.folder)


class Dashboards:
    """Clients that run dashboards, each a query, then a pause."""

    def __init__(self, port, count, nodes, start_s, pause_s):
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.times, self.errors = [], []
        self.threads = [threading.Thread(target=self.run, args=(port, i, nodes, start_s, pause_s))
                        for i in range(count)]
        for t in self.threads:
            t.start()

    def run(self, port, number, nodes, start_s, pause_s):
        rng = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while not self.stopped.wait(rng.uniform(0, 2 * pause_s)):
            text, step_s = rng.choice(DASHBOARDS)
            parameters = urllib.parse.urlencode({
                "query": text % rng.randrange(nodes), "start": start_s, "end": start_s + HOUR_S, "step": step_s})
            begin = time.monotonic()
            try:
                connection.request("GET", f"/api/v1/query_range?{parameters}")
                answer = connection.getresponse()
                body = answer.read()
                error = None if answer.status == 200 else f"{answer.status} {body[:200]}"
            except OSError as e:
                error = repr(e)
                connection.close()
            with self.lock:
                self.times.append(time.monotonic() - begin)
                if error:
                    self.errors.append(error)

    def stop(self):
        self.stopped.set()
        for t in self.threads:
            t.join()


def clients(options, folder):
    nodes = 10 if options.quick else options.nodes
    count = 10 if options.quick else 100
    start_s = int(time.time()) - 3 * HOUR_S
    is_ingest = lambda name: not name.startswith("query")
    costs = {}
    for state in ("alone", "with_clients"):
        store = Store("rimstone", f"{BUILD}/rimstone", f"{folder}/{state}")
        arguments = [f"--nodes={nodes}", f"--interval={INTERVAL_S}", "--connections=4"]
        load(store.server, *arguments, "--scrapes=240", f"--start={start_s}")
        dashboards = None
        if state == "with_clients":
            dashboards = Dashboards(store.server.port, count, nodes, start_s, options.pause)
        cpu = cpu_ns(store.pid, is_ingest)
        result = load(store.server, *arguments, "--scrapes=200",
                      f"--start={start_s + 240 * INTERVAL_S}")
        costs[state] = (cpu_ns(store.pid, is_ingest) - cpu) / 1000 / result["samples_sent"]
        figure(f"clients_ingest_cpu_per_sample_{state}", costs[state], "us")
        if dashboards:
            dashboards.stop()
            if dashboards.errors:
                sys.exit(f"{len(dashboards.errors)} errors, the first: {dashboards.errors[0]}")
            times = sorted(dashboards.times)
            figure("clients_queries", len(times))
            figure("clients_p50", times[len(times) // 2] * 1000, "ms")
            figure("clients_p99", times[len(times) * 99 // 100] * 1000, "ms")
        store.stop()
    figure("clients_ingest_cpu_ratio", costs["with_clients"] / costs["alone"], "x  budget 1.1")


def main():
    parts = {"short": short, "month": month, "clients": clients}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", choices=[[], *parts])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--victoria", help="victoria-metrics to compare with, a path")
    parser.add_argument("--prometheus", help="prometheus to compare with, a path")
    parser.add_argument("--nodes", type=int, default=100, help="of 1,000 series")
    parser.add_argument("--pause", type=float, default=2.0, help="mean pause of a client, seconds")
    options = parser.parse_args()
    for name in options.parts or parts:
        folder = tempfile.mkdtemp(prefix="rimstone-bench-")
        try:
            parts[name](options, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
