#!/usr/bin/env python3
"""Ingest, memory and restart of the real server on the GPU-fleet stream, one figure a line.

Starts build/release/rimstone on a free port with data in a temporary folder and drives it with
`rimtool load`. Figures are CPU time of the server process and bytes, so that a busy machine does
not decide them. With --peer, Debian's victoria-metrics (unpacked by tests/integration/peers.sh)
takes the same stream in the same run and the ratio is printed.

  bench_ingest.py [--quick] [--peer PATH_TO_VICTORIA_METRICS] [steady] [create] [cadvisor]

A line: name, value, unit, budget of the finished product, budget of the present landing.
--quick makes everything ten times smaller, for a smoke test; its figures mean nothing.
--check FACTOR exits 1 when a figure is worse than FACTOR times the present landing's budget.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("RIMSTONE_BUILD", os.path.join(ROOT, "build", "release"))

# name -> (unit, budget, budget at this landing); smaller is better
BUDGETS = {
    "steady_cpu_per_sample": ("us", 0.18, 0.25),
    "create_cpu_per_sample": ("us", 0.50, 0.80),
    "resident_per_series": ("bytes", 300, 450),
    "cadvisor_resident_per_series": ("bytes", 300, 450),
    "ready_cpu_after_kill": ("s", 2, 4),
    "log_per_sample": ("bytes", 3.5, 4),
}
worse = []


def figure(name, value, unit="", check=None):
    unit, goal, now = BUDGETS.get(name, (unit, None, None))
    tail = "" if goal is None else f"  budget {goal}, now {now}"
    print(f"{name} {value:.4g} {unit}{tail}", flush=True)
    if now is not None and check is not None and value > now * check:
        worse.append(name)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_seconds(pid):
    """User + system time of all threads, ended ones included."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def folder_bytes(path):
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
    )


class Server:
    def __init__(self, command, port, ready_path):
        self.port = port
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.pid = self.process.pid
        deadline = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{ready_path}", timeout=5).read()
                break
            except (OSError, urllib.error.HTTPError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.log.seek(0)
                    sys.exit(f"{command[0]} did not get ready:\n{self.log.read().decode()}")
                time.sleep(0.01)
        self.ready_cpu = cpu_seconds(self.pid)
        # Another program may have taken the port in between and answered in our place.
        time.sleep(0.2)  # a server that could not listen has ended by now
        if self.process.poll() is not None:
            self.log.seek(0)
            sys.exit(f"{command[0]} was not what answered:\n{self.log.read().decode()}")

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout=60)


def rimstone(data):
    port = free_port()
    return Server(
        [f"{BUILD}/rimstone", f"--storage.tsdb.path={data}",
         f"--web.listen-address=127.0.0.1:{port}"], port, "/-/ready")


def load(server, *arguments):
    text = subprocess.run(
        [f"{BUILD}/rimtool", "load", "--quiet", f"--url=http://127.0.0.1:{server.port}/api/v1/write",
         f"--pid={server.pid}", *arguments],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    result = dict(line.split(" ", 1) for line in text.splitlines())
    if result["samples_refused"] != "0" or result["samples_failed"] != "0":
        sys.exit(f"samples were refused or lost:\n{text}")
    return {k: float(v) for k, v in result.items()}


def steady(options, folder):
    nodes = "10" if options.quick else "100"
    arguments = [f"--nodes={nodes}", "--warmup-scrapes=5", "--scrapes=100", "--connections=16"]
    peer_cost = None
    if options.peer:
        port = free_port()
        server = Server(
            [options.peer, f"-storageDataPath={folder}/vm", f"-httpListenAddr=127.0.0.1:{port}",
             "-retentionPeriod=1y"], port, "/health")
        peer_cost = load(server, *arguments)["server_cpu_us_per_sample"]
        server.stop()
        figure("steady_cpu_per_sample_victoria_metrics", peer_cost, "us")
    server = rimstone(f"{folder}/data")
    result = load(server, *arguments)
    cost = result["server_cpu_us_per_sample"]
    figure("steady_cpu_per_sample", cost, check=options.check)
    if peer_cost is not None:
        figure("steady_cpu_ratio_victoria_metrics_to_rimstone", peer_cost / cost, "x")
    server.stop()
    figure("log_per_sample", folder_bytes(f"{folder}/data/wal") / result["samples_sent"],
           check=options.check)


def create(options, folder):
    nodes = "100" if options.quick else "1000"
    server = rimstone(f"{folder}/data")
    result = load(server, f"--nodes={nodes}", "--scrapes=20", "--settle=2",
                  "--connections=16")
    figure("create_cpu_per_sample", result["server_cpu_us_per_sample"], check=options.check)
    figure("resident_per_series", result["server_resident_bytes_per_series"],
           check=None if options.quick else options.check)
    server.stop(signal.SIGKILL)
    server = rimstone(f"{folder}/data")
    figure("ready_cpu_after_kill", server.ready_cpu, check=options.check)
    server.stop()


def cadvisor(options, folder):
    nodes = "104" if options.quick else "1042"
    server = rimstone(f"{folder}/data")
    result = load(server, "--profile=cadvisor", f"--nodes={nodes}", "--scrapes=20", "--settle=2",
                  "--connections=16")
    figure("cadvisor_create_cpu_per_sample", result["server_cpu_us_per_sample"], "us")
    figure("cadvisor_resident_per_series", result["server_resident_bytes_per_series"],
           check=None if options.quick else options.check)
    server.stop()


def run_parts(parser, parts):
    """Runs the parts that the arguments name, each in a folder of its own; exits when one is over its budget."""
    options = parser.parse_args()
    for name in options.parts:
        if name not in parts:
            parser.error(f"no part {name}")
    for name in options.parts:
        folder = tempfile.mkdtemp(prefix="rimstone-bench-")
        try:
            parts[name](options, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if worse:
        sys.exit("over budget: " + ", ".join(worse))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten times smaller: a smoke test")
    parser.add_argument("--peer", help="victoria-metrics to compare with, a path")
    parser.add_argument("--check", type=float, help="exit 1 beyond this factor of the budgets")
    parser.add_argument("parts", nargs="*", default=["steady", "create", "cadvisor"],
                        help="steady, create, cadvisor (default: all)")
    run_parts(parser, {"steady": steady, "create": create, "cadvisor": cadvisor})


if __name__ == "__main__":
    main()
