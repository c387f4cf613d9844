#!/usr/bin/env python3
"""What limits, previews and the explorer cost on the GPU-fleet stream, one figure a line.

Starts build/release/rimstone on a free port with data in a temporary folder and drives it with
`rimtool load`. Figures are CPU time of the server process.

  bench_knowing.py [--quick] [limits] [questions] [large]

limits: a sample of new series without and with limits, and one that a limit refuses.
questions: previews of rules, and the explorer, at 1 M series in memory.
large: the same and more at 10 M series, in memory and in the parts of a day; with what a question adds to
resident memory at its peak. Needs 6 GB of memory, 5 GB of disk and some minutes. Not among the default.
--quick makes everything ten times smaller, for a smoke test; its figures mean nothing.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from bench_ingest import BUILD, Server, cpu_seconds, free_port, load

SCRAPES = 4
SHARDS_LEAST = 16
LIMITS = """limits:
  active_series: {max: 100000000}
  series_per_metric: {max: 100000000}
  series_per_label_value: [{label: pod, max: 100000000}, {label: instance, max: 100000000}]
"""
PREVIEWS = {
    "preview_selector_cpu": {"name": "x", "drop": '{__name__=~"DCGM_.*"}'},
    "preview_relabel_cpu": {"name": "x", "source_labels": ["__name__", "mode"], "regex": "node_cpu.*;idle",
                            "action": "drop"},
}
LARGE = {
    "explore_all": "rimstone/cardinality",
    "explore_focus": "rimstone/cardinality?label=pod",
    "explore_equal": "rimstone/cardinality?" + urllib.parse.urlencode({"match[]": 'node_cpu_seconds_total{mode="idle"}'}),
    "explore_regex": "rimstone/cardinality?" + urllib.parse.urlencode({"match[]": '{instance=~".*7.*",gpu!~"[0-3]"}'}),
    "explore_nothing": "rimstone/cardinality?" + urllib.parse.urlencode({"match[]": '{instance="nobody"}'}),
    "explore_100000_rows": "rimstone/cardinality?limit=100000",
    "status_tsdb": "status/tsdb?limit=10",
    "status_tsdb_1000_rows": "status/tsdb?limit=1000",
    "usage": "rimstone/usage",
}
EXPLORER = {
    "explore_all_cpu": "",
    "explore_selector_cpu": "?" + urllib.parse.urlencode({"match[]": '{job="dcgm-exporter"}', "label": "pod"}),
}


def figure(name, value, unit, budget=None):
    print(f"{name} {value:.4g} {unit}" + ("" if budget is None else f"  budget {budget}"), flush=True)


def start(folder, config=None, *flags):
    port = free_port()
    command = [f"{BUILD}/rimstone", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
               *flags]
    if config is not None:
        with open(f"{folder}/rimstone.yml", "w", encoding="utf-8") as f:
            f.write(config)
        command.append(f"--config.file={folder}/rimstone.yml")
    return Server(command, port, "/-/ready")


def created_cost(folder, nodes, config):
    server = start(folder, config)
    cost = load(server, f"--nodes={nodes}", f"--scrapes={SCRAPES}")["server_cpu_us_per_sample"]
    server.stop()
    return cost


def refused_cost(folder, nodes):
    """All but a few series are refused: the first scrape finds out, the others meet their keys."""
    server = start(folder, "limits: {series_per_metric: {max: 1}}\n")
    url = f"--url=http://127.0.0.1:{server.port}/api/v1/write"
    text = subprocess.run(
        [f"{BUILD}/rimtool", "load", "--quiet", url, f"--pid={server.pid}", f"--nodes={nodes}",
         "--warmup-scrapes=1", "--scrapes=10"], check=False, stdout=subprocess.PIPE, text=True).stdout
    result = dict(line.split(" ", 1) for line in text.splitlines())
    server.stop()
    if float(result["samples_refused"]) < 0.9 * float(result["samples_sent"]):
        sys.exit(f"too few samples were refused:\n{text}")
    return float(result["server_cpu_us_per_sample"])


def limits(options):
    nodes = 50 if options.quick else 500
    costs = []
    for config in (None, LIMITS):
        folder = tempfile.mkdtemp(prefix="rimstone-bench-")
        costs.append(created_cost(folder, nodes, config))
        shutil.rmtree(folder, ignore_errors=True)
    figure("create_cpu_per_sample", costs[0], "us")
    figure("create_with_limits_cpu_per_sample", costs[1], "us")
    figure("create_with_limits_ratio", costs[1] / costs[0], "x")
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    figure("refused_cpu_per_sample", refused_cost(folder, nodes // 2), "us")
    shutil.rmtree(folder, ignore_errors=True)


def ask(server, path, body=None):
    """CPU seconds of one call."""
    before = cpu_seconds(server.pid)
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        answer.read()
    return cpu_seconds(server.pid) - before


def questions(options):
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    server = start(folder)
    load(server, f"--nodes={100 if options.quick else 1000}", "--scrapes=2")
    for name, rule in PREVIEWS.items():
        figure(name, ask(server, "/api/v1/rimstone/drop_rules/preview", json.dumps(rule).encode()), "s", 2)
    for name, parameters in EXPLORER.items():
        figure(name, ask(server, "/api/v1/rimstone/cardinality" + parameters), "s")
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


class Peak:
    """Resident memory at its highest since begin(), in MB above what it was then."""

    def __init__(self, pid):
        self.pid = pid

    def status(self, name):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(name + ":")) / 1024

    def begin(self):
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")  # the peak begins anew
        self.before = self.status("VmRSS")

    def get(self):
        return self.status("VmHWM") - self.before


def large_question(server, name, path, body=None):
    peak = Peak(server.pid)
    peak.begin()
    start = time.monotonic()
    cpu = ask(server, "/api/v1/" + path, body)
    seconds = time.monotonic() - start
    figure(f"{name}_cpu", cpu, "s")
    figure(f"{name}_latency", seconds, "s (latency)")
    figure(f"{name}_memory", peak.get(), "MB")


def large_suggest(server):
    before = cpu_seconds(server.pid)
    subprocess.run([f"{BUILD}/rimtool", "rules", "suggest", f"--url=http://127.0.0.1:{server.port}"], check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    figure("suggest_cpu", cpu_seconds(server.pid) - before, "s")


def large(options):
    """Two scrapes, the questions, then one behind the end of the window, so that all becomes parts."""
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    nodes = 1000 if options.quick else 10000
    server = start(folder, None, "--storage.clock=data", "--storage.memory-limit=6GiB")
    day_s = (int(time.time()) // 86400 - 2) * 86400
    try:
        load(server, f"--nodes={nodes}", "--scrapes=2", f"--start={day_s}", "--connections=4", "--lockstep=2")
        figure("large_resident", Peak(server.pid).status("VmRSS"), "MB")
        for name, path in LARGE.items():
            large_question(server, name, path)
        for name, rule in PREVIEWS.items():
            large_question(server, name.replace("_cpu", ""), "rimstone/drop_rules/preview", json.dumps(rule).encode())
        large_suggest(server)
        load(server, f"--nodes={nodes}", "--scrapes=1", f"--start={day_s + 7200 + 660}", "--connections=4")
        wait_parts(server)
        day = time.strftime("%Y-%m-%d", time.gmtime(day_s))
        for name, path in LARGE.items():
            if path.startswith("rimstone/cardinality"):
                large_question(server, "day_" + name, f"{path}{'&' if '?' in path else '?'}day={day}")
        for name, rule in PREVIEWS.items():
            large_question(server, "parts_" + name.replace("_cpu", ""), "rimstone/drop_rules/preview",
                           json.dumps(rule).encode())
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def wait_parts(server):
    """Until each of the shards has its part of the window that has ended."""
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            values = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
        if float(values["prometheus_tsdb_blocks_loaded"]) >= SHARDS_LEAST:
            return
        time.sleep(2)
    sys.exit("no parts were made")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten times smaller: a smoke test")
    parser.add_argument("parts", nargs="*", default=["limits", "questions"], help="limits, questions, large (default: the first two)")
    options = parser.parse_args()
    parts = {"limits": limits, "questions": questions, "large": large}
    for name in options.parts:
        if name not in parts:
            parser.error(f"no part {name}")
    for name in options.parts:
        parts[name](options)


if __name__ == "__main__":
    main()
