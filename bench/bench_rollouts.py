#!/usr/bin/env python3
"""Memory over two hours of rollouts at 1 M series with limits on, one figure a line.

Drives build/release/rimstone with `rimtool load` and --storage.clock=data, so that hours of data pass in
minutes. First a steady time, then two hours in which the pods are relabelled in ten minutes of every half hour:
the new series run into limits that hardly have room for more than the old ones, and are let in when these have
ended. Since time passes faster than it would, seals and merges have less of it. A window is flushed in the steady
time that counts, and another one in the rollouts.

  bench_rollouts.py [--quick] [gpu] [cadvisor]

gpu: a quarter of the series are of pods. cadvisor: all of them.
--quick makes everything ten times smaller, for a smoke test; its figures mean nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from bench_ingest import BUILD, ROOT, Server, free_port

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from lifecycle import metric_sum, parse_metrics, resident_bytes  # noqa: E402

SCRAPES_A_MINUTE = 4
# The first window ends after 90 minutes, and its parts are made 10 minutes later.
STEADY_MINUTES, STEADY_SEEN_MINUTES, ROLLOUT_MINUTES = 110, 45, 120
EVERY_MINUTES, FOR_MINUTES = 30, 10
WINDOW_S = 2 * 3600
START_S = (int(time.time()) - 24 * 3600) // WINDOW_S * WINDOW_S + 30 * 60
# Profile: series and pods of a node; how many nodes make a million series.
PROFILES = {"gpu": (1000, 8, 1000), "cadvisor": (960, 16, 1042)}
# Room for so many more than there are: what is refused in a rollout is what comes before the old ones end.
LIMIT_SHARE = 1.02


def figure(name, value, unit="", budget=None):
    print(f"{name} {value:.4g} {unit}" + ("" if budget is None else f"  budget {budget}"), flush=True)


class Watch(threading.Thread):
    """Peaks of memory, looked at ten times a second until it is stopped."""

    def __init__(self, server):
        super().__init__()
        self.server = server
        self.stopping = threading.Event()
        self.seen = []  # (seconds of data, charged, resident, series)

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/metrics", timeout=60) as f:
            return parse_metrics(f.read().decode())

    def run(self):
        while not self.stopping.wait(0.1):
            values = self.metrics()
            self.seen.append((values["prometheus_tsdb_head_max_time"] / 1000,
                              values['rimstone_memory_bytes{kind="used"}'], resident_bytes(self.server.pid),
                              values["prometheus_tsdb_head_series"]))

    def peak(self, what, first_s, end_s):
        """What it was, and after how many minutes."""
        row = max((row for row in self.seen if first_s <= row[0] < end_s), key=lambda row: row[what])
        return row[what], (row[0] - START_S) / 60


def start(folder, series, pods):
    config = f"""limits:
  active_series: {{max: {int(series * LIMIT_SHARE)}, warn: {int(series * 0.95)}}}
  series_per_metric: {{max: {int(series * 0.55)}}}
  series_per_label_value: [{{label: namespace, max: {series}}}, {{label: pod, max: {series // pods + 100}}}]
"""
    with open(f"{folder}/rimstone.yml", "w", encoding="utf-8") as f:
        f.write(config)
    port = free_port()
    return Server([f"{BUILD}/rimstone", f"--storage.tsdb.path={folder}/data", "--storage.clock=data",
                   "--storage.memory-limit=1GiB", "--wal.sync=interval", f"--config.file={folder}/rimstone.yml",
                   f"--web.listen-address=127.0.0.1:{port}"], port, "/-/ready")


def load(server, profile, nodes, start_s, minutes, *arguments):
    """The tool's figures. Refused samples are expected."""
    done = subprocess.run(
        [f"{BUILD}/rimtool", "load", "--quiet", f"--url=http://127.0.0.1:{server.port}/api/v1/write",
         f"--pid={server.pid}", f"--profile={profile}", f"--nodes={nodes}", f"--start={start_s}",
         f"--scrapes={minutes * SCRAPES_A_MINUTE}", "--connections=8", "--lockstep=2", *arguments],
        check=True, stdout=subprocess.PIPE, text=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def rollouts(options, profile):
    per_node, pods, nodes = PROFILES[profile]
    nodes = nodes // 10 if options.quick else nodes
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    server = start(folder, nodes * per_node, pods)
    watch = Watch(server)
    try:
        watch.start()
        steady_s = START_S + STEADY_MINUTES * 60
        load(server, profile, nodes, START_S, STEADY_MINUTES)
        result = load(server, profile, nodes, steady_s, ROLLOUT_MINUTES,
                      f"--churn={pods * nodes / FOR_MINUTES}", f"--churn-every={EVERY_MINUTES}",
                      f"--churn-for={FOR_MINUTES}")
        watch.stopping.set()
        watch.join()
        for what, name, unit in ((3, "series", "series"), (1, "charged", "MB"), (2, "resident", "MB")):
            scale = 1 if what == 3 else 1e6
            steady, steady_at = watch.peak(what, steady_s - STEADY_SEEN_MINUTES * 60, steady_s)
            peak, peak_at = watch.peak(what, steady_s, float("inf"))
            figure(f"{profile}_steady_{name}", steady / scale, f"{unit}, at minute {steady_at:.0f}")
            figure(f"{profile}_peak_{name}", peak / scale, f"{unit}, at minute {peak_at:.0f}")
            figure(f"{profile}_peak_to_steady_{name}", peak / steady, "x", None if what == 3 else 1.3)
        values = watch.metrics()
        figure(f"{profile}_series_ended", float(result["samples_stale"]), "series")
        figure(f"{profile}_limit_refusals", metric_sum(values, "rimstone_limit_refusals_total"), "series")
        figure(f"{profile}_refused_to_sent", float(result["samples_refused"]) / float(result["samples_sent"]), "x")
        figure(f"{profile}_cpu_per_sample", float(result["server_cpu_us_per_sample"]), "us")
    finally:
        watch.stopping.set()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten times smaller: a smoke test")
    parser.add_argument("profiles", nargs="*", default=list(PROFILES), help="gpu, cadvisor (default: both)")
    options = parser.parse_args()
    for profile in options.profiles:
        if profile not in PROFILES:
            parser.error(f"no profile {profile}")
    for profile in options.profiles:
        rollouts(options, profile)


if __name__ == "__main__":
    main()
