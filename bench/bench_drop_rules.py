#!/usr/bin/env python3
"""Drop rules: CPU a stored and a dropped sample with few and many rules, and what a change of rules costs.

Drives build/release/rimstone with `rimtool load`. The rules are as many selectors on metric names that
nobody sends, and, where samples are to be dropped, one behind all of them that drops everything.

  bench_drop_rules.py [--quick] [samples] [reload] [restart]

A line: name, value, unit, budget. Figures are CPU time of the server process but where a latency is
meant. --quick makes everything ten times smaller.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request

from bench_ingest import BUILD, Server, cpu_seconds, free_port, load

RULE_COUNTS = (0, 1, 100, 10000)


def figure(name, value, unit, budget=None):
    tail = "" if budget is None else f"  budget {budget}"
    print(f"{name} {value:.4g} {unit}{tail}", flush=True)


def rules(count, last=None):
    """`count` rules that meet nothing but, if given, the last one."""
    items = [{"name": f"r{i}", "drop": f"nobody_sends_{i}"} for i in range(count - (last is not None))]
    if last is not None:
        items.append({"name": "last", "drop": last})
    return json.dumps({"drop_rules": items})


def rimstone(folder, text):
    port = free_port()
    config = os.path.join(folder, "rimstone.yml")
    with open(config, "w") as f:
        f.write(text)
    return Server(
        [f"{BUILD}/rimstone", f"--storage.tsdb.path={folder}/data", f"--config.file={config}",
         "--web.enable-lifecycle", "--web.enable-admin-api", f"--web.listen-address=127.0.0.1:{port}"],
        port, "/-/ready")


def metric(server, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
    sys.exit(f"no metric {name}")


def steady_cost(options, text):
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    server = rimstone(folder, text)
    try:
        nodes = "10" if options.quick else "100"
        result = load(server, f"--nodes={nodes}", "--warmup-scrapes=5", "--scrapes=60", "--connections=16")
        return result["server_cpu_us_per_sample"]
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def samples(options):
    dropped = {}
    for count in RULE_COUNTS:
        stored = steady_cost(options, rules(count))
        figure(f"stored_cpu_per_sample_{count}_rules", stored, "us")
        if count > 0:
            dropped[count] = steady_cost(options, rules(count, '{__name__=~".+"}'))
            figure(f"dropped_cpu_per_sample_{count}_rules", dropped[count], "us", 0.12)
            figure(f"dropped_to_stored_{count}_rules", dropped[count] / stored, "x", 0.667)
    figure("dropped_10000_to_1_rules", dropped[10000] / dropped[1], "x", 1.05)


def reload(server, folder, text, name):
    with open(os.path.join(folder, "rimstone.yml"), "w") as f:
        f.write(text)
    cpu, start = cpu_seconds(server.pid), time.monotonic()
    urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{server.port}/-/reload", method="POST")).read()
    figure(f"reload_latency_{name}", time.monotonic() - start, "s", 1)
    figure(f"reload_cpu_{name}", cpu_seconds(server.pid) - cpu, "s")


def reloads(options):
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    server = rimstone(folder, "")
    try:
        nodes = "100" if options.quick else "1000"
        load(server, f"--nodes={nodes}", "--scrapes=2", "--connections=16")
        series = metric(server, "prometheus_tsdb_head_series")
        figure("reload_active_series", series, "series")
        reload(server, folder, rules(1, "node_cpu_seconds_total"), "one_selector")
        reload(server, folder, rules(100, "node_cpu_seconds_total"), "100_selectors")
        reload(server, folder, rules(10000, 'DCGM_FI_DEV_GPU_UTIL{gpu="3"}'), "10000_selectors")
        joined = [{"name": "j", "source_labels": ["__name__", "instance"], "action": "drop",
                   "regex": "node_disk_.*;.*7.*"}]
        reload(server, folder, json.dumps({"drop_rules": joined}), "two_source_labels")
        rewrite = [{"name": "w", "source_labels": ["gpu"], "regex": "7", "target_label": "last", "replacement": "yes"}]
        reload(server, folder, json.dumps({"drop_rules": rewrite}), "one_rewriting")
        reload(server, folder, "", "none")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def restart(options):
    """A million dropped series over a clean stop and over a kill that follows a save."""
    folder = tempfile.mkdtemp(prefix="rimstone-bench-")
    text = rules(1, '{__name__=~".+"}')
    arguments = [f"--nodes={100 if options.quick else 1000}", "--scrapes=2", "--connections=16"]
    server = rimstone(folder, text)
    try:
        load(server, *arguments)
        keys = metric(server, "rimstone_dropped_keys")
        figure("dropped_keys", keys, "keys")
        cpu = cpu_seconds(server.pid)
        server.stop(signal.SIGTERM)
        figure("dropped_keys_file_bytes_per_key", os.path.getsize(f"{folder}/data/dropped_keys") / keys, "bytes")
        server = rimstone(folder, text)
        figure("ready_cpu_with_dropped_keys", server.ready_cpu, "s")
        slow, cpu = metric(server, "rimstone_slow_path_series_total"), cpu_seconds(server.pid)
        result = load(server, *arguments)
        figure("slow_paths_after_restart", metric(server, "rimstone_slow_path_series_total") - slow, "series", 0)
        figure("dropped_cpu_per_sample_after_restart", (cpu_seconds(server.pid) - cpu) / result["samples_sent"] * 1e6, "us")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten times smaller: a smoke test")
    parts = {"samples": samples, "reload": reloads, "restart": restart}
    parser.add_argument("parts", nargs="*", default=list(parts), help="samples, reload, restart (default: all)")
    options = parser.parse_args()
    for name in options.parts:
        if name not in parts:
            parser.error(f"no part {name}")
        parts[name](options)


if __name__ == "__main__":
    main()
