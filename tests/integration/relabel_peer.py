#!/usr/bin/env python3
"""Relabelling against Prometheus itself.

A Prometheus scrapes random label sets of this test once a second and remote-writes them many times
over, each time through another random list of write_relabel_configs, to an endpoint of the test that
records what comes out. `rimtool rules check --series` does the same lists offline: the same sets stay,
with the same labels. And one list is used by a Rimstone that the same Prometheus writes to.

PROMETHEUS=path uses another one than Debian's 2.42 (whose label names are ASCII); LISTS, RULES_SEED.
"""

import http.server
import json
import os
import random
import subprocess
import sys
import threading
import time

from harness import RIMTOOL, Server, TemporaryDirectory, free_port, wait_until
from peers import Prometheus

LISTS = int(os.environ.get("LISTS", "120"))
SEED = int(os.environ.get("RULES_SEED", str(random.randrange(1 << 32))))
SERIES = 60
NAMES = ["job", "pod", "zone", "tmp", "Node", "a_b", "instance"]
VALUES = ["a", "ab", "abc", "b", "ba", "node-1", "node-22", "Zürich", "x;y", "A-B-C", "ΑΒΓ", "$1", "ß", "10.0.0.1:9100",
          "kube_system", "İ"]
PATTERNS = ["a", "a|b", "a.*", "ab.+", ".*", "(.*)", "(.+)-(.+)", "node-([0-9]+)", ".*b", "b?a", "(a)?(.*)", "(?i)NODE.*",
            "a;b", "(.*);(.*)", "[^;]+;.*", "(?P<first>[a-z]+)-(?P<second>.+)", "", ".+", "x;.*|.*;a", "(a|ab)(c|bcd)?",
            "\\w+", "[[:alpha:]]+", "Z.*", "(.*):([0-9]+)"]
NAME_PATTERNS = ["tmp", "t.*", "zone|pod", "p(.*)", "(.).*", "(job|a_b)", ".*", "[a-z]+", "__name__|job|pod|id", "x_.*"]
REPLACEMENTS = ["$1", "${1}", "$2-$1", "x", "", "$$", "${first}_$second", "$1x", "${1}x", "pre_${2}", "$", "a$b", "$0"]
TARGETS = NAMES + ["new", "x_new", "__tmp"]
MAP_PATTERNS, MAP_REPLACEMENTS = NAME_PATTERNS, ["$1", "x_$1", "zone", "m_${1}", "new"]
if "PROMETHEUS" in os.environ:
    TARGETS += ["x_$1", "l_${1}", "${1}"]  # give names that 2.42 does not take
else:
    # Of labels that are mapped to one name 2.42 keeps another one than 3: none may be.
    MAP_PATTERNS, MAP_REPLACEMENTS = ["(p.*)", "(job|a_b)", "(.*)", "([a-z]+)", "x_(.*)"], ["mapped_$1", "m_${1}"]
SEPARATORS = [";", ";", ";", "", "-", ";;", "a"]
ACTIONS = ["replace"] * 6 + ["keep", "drop", "drop", "keep", "keepequal", "dropequal", "hashmod", "labelmap", "labeldrop",
                             "labelkeep", "lowercase", "uppercase"]


# ---- rules ----

def random_rule(rng):
    action = rng.choice(ACTIONS)
    rule = {"action": action if rng.random() < 0.9 else action.upper()}
    if action in ("labeldrop", "labelkeep"):
        rule["regex"] = rng.choice(NAME_PATTERNS)
        if action == "labelkeep":
            rule["regex"] += "|__name__|id"
        return rule
    sources = rng.sample(NAMES + ["__name__", "missing"], rng.choice([0, 1, 1, 1, 2, 2, 3]))
    if sources:
        rule["source_labels"] = sources
    if action in ("keepequal", "dropequal"):
        rule["target_label"] = rng.choice(NAMES)
        return rule
    if action == "labelmap":
        rule.pop("source_labels", None)
        rule["regex"] = rng.choice(MAP_PATTERNS)
        if rng.random() < 0.8:
            rule["replacement"] = rng.choice(MAP_REPLACEMENTS)
        return rule
    if rng.random() < 0.4:
        rule["separator"] = rng.choice(SEPARATORS)
    if rng.random() < 0.8:
        rule["regex"] = rng.choice(PATTERNS)
    if action == "replace":
        rule["target_label"] = rng.choice(TARGETS)
        if rng.random() < 0.7:
            rule["replacement"] = rng.choice(REPLACEMENTS)
    if action in ("hashmod", "lowercase", "uppercase"):
        rule["target_label"] = rng.choice(NAMES)
    if action == "hashmod":
        rule["modulus"] = rng.choice([1, 2, 7, 1000, 2**40])
    return rule


def random_list(rng):
    return [random_rule(rng) for _ in range(rng.choice([1, 1, 2, 3, 4, 6]))]


def random_series(rng):
    """Label sets, each with an `id` of its own that no rule names, so that they can be told apart."""
    series = []
    for i in range(SERIES):
        labels = {name: rng.choice(VALUES) for name in rng.sample(NAMES[:-1], rng.randrange(len(NAMES)))}
        series.append({"__name__": rng.choice(["up_x", "a", "node_cpu", "requests_total"]), "id": f"series-{i}", **labels})
    return series


def quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def exposition(series):
    lines = []
    for labels in series:
        pairs = ",".join(f"{k}={quote(v)}" for k, v in labels.items() if k != "__name__")
        lines.append(f"{labels['__name__']}{{{pairs}}} 1\n")
    return "".join(sorted(lines))


# ---- what Prometheus makes of it ----

def snappy_decompress(data):
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at
    size, at = varint(0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at : at + extra], "little")
                at += extra
            out += data[at : at + length + 1]
            at += length + 1
            continue
        if tag & 3 == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at]
            at += 1
        else:
            extra = 2 if tag & 3 == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + extra], "little")
            at += extra
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)


def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 1:
            yield tag >> 3, data[at : at + 8]
            at += 8
        else:
            assert tag & 7 == 2
            size = varint()
            yield tag >> 3, data[at : at + size]
            at += size


def label_sets(body):
    """Label sets of a remote-write 1.0 request that have samples."""
    for number, series in fields(snappy_decompress(body)):
        if number != 1:
            continue
        labels, has_samples = {}, False
        for field, value in fields(series):
            if field == 1:
                name, text = "", ""
                for part, content in fields(value):
                    if part == 1:
                        name = content.decode()
                    else:
                        text = content.decode()
                assert name not in labels
                labels[name] = text
            has_samples |= field == 2
        if has_samples:
            yield labels


class Recorder:
    """Serves the label sets for scrapes, and takes what is written to /list/N."""

    def __init__(self, text, count):
        self.text = text
        self.lock = threading.Lock()
        self.sets = [set() for _ in range(count)]
        self.scrapes = 0
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                with recorder.lock:
                    recorder.scrapes += 1
                self.answer(200, recorder.text.encode())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                number = int(self.path.rsplit("/", 1)[1])
                found = {json.dumps(labels, sort_keys=True) for labels in label_sets(body)}
                with recorder.lock:
                    recorder.sets[number] |= found
                self.answer(204)

        class QuietServer(http.server.ThreadingHTTPServer):
            request_queue_size = 2 * LISTS  # all senders connect at once

            def handle_error(self, *_):
                pass  # a Prometheus that has ended

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def prometheus_config(recorder, lists, rimstone_port):
    writes = [{"url": f"http://127.0.0.1:{recorder.port}/list/{i}", "send_exemplars": False,
               "write_relabel_configs": rules,
               "queue_config": {"batch_send_deadline": "200ms", "max_shards": 1, "capacity": 200,
                                "max_samples_per_send": 100},
               "metadata_config": {"send": False}} for i, rules in enumerate(lists)]
    writes.append({"url": f"http://127.0.0.1:{rimstone_port}/api/v1/write",
                   "queue_config": {"batch_send_deadline": "200ms"}})
    return json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "test", "honor_labels": True,
                            "static_configs": [{"targets": [f"127.0.0.1:{recorder.port}"],
                                                "labels": {"instance": "host:1"}}]}],
        "remote_write": writes,
    })


# ---- what Rimstone makes of it ----

def config_of(rules):
    return json.dumps({"drop_rules": [{"name": f"r{i}", **rule} for i, rule in enumerate(rules)]})


def offline(scratch, rules, series):
    config, lines = os.path.join(scratch, "rules.yml"), os.path.join(scratch, "series")
    with open(config, "w", encoding="utf-8") as f:
        f.write(config_of(rules))
    with open(lines, "w", encoding="utf-8") as f:
        for labels in series:
            pairs = ",".join(f"{k}={quote(v)}" for k, v in labels.items() if k != "__name__")
            f.write(f"{labels['__name__']}{{{pairs}}}\n")
    done = subprocess.run([RIMTOOL, "rules", "check", "--series", lines, config], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, (rules, done.stdout)
    fates = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(fates) == len(series)
    # Prometheus sends no set without labels.
    return {json.dumps(f["labels"], sort_keys=True) for f in fates if f.get("labels")}


def of_the_test(sets):
    """Without what Prometheus adds of its own, up and so on, which have no id; rules may have
    renamed them, or dropped the id, so the values tell."""
    return {s for s in sets if '"series-' in s}


def compare(lists, series, recorder, scratch):
    differences = 0
    # As the scrape has made them.
    scraped = [{"job": "test", "instance": "host:1", **labels} for labels in series]
    for i, rules in enumerate(lists):
        ours = offline(scratch, rules, scraped)
        with recorder.lock:
            theirs = set(recorder.sets[i])
        if of_the_test(ours) != of_the_test(theirs):
            differences += 1
            print(f"list {i} {json.dumps(rules)}:\n  Prometheus alone {sorted(of_the_test(theirs) - ours)[:3]}\n"
                  f"  Rimstone alone {sorted(of_the_test(ours) - theirs)[:3]}", flush=True)
    return differences


def all_arrived(lists, series, recorder, scratch):
    scraped = [{"job": "test", "instance": "host:1", **labels} for labels in series]
    wanted = [len(of_the_test(offline(scratch, rules, scraped))) for rules in lists]

    def arrived():
        with recorder.lock:
            return all(len(of_the_test(s)) >= n for s, n in zip(recorder.sets, wanted))
    return arrived


def main():
    print(f"seed {SEED}, {LISTS} lists", flush=True)
    rng = random.Random(SEED)
    series = random_series(rng)
    lists = [random_list(rng) for _ in range(LISTS)]
    recorder = Recorder(exposition(series), LISTS)
    with TemporaryDirectory("relabel-peer") as scratch:
        config = os.path.join(scratch, "rimstone.yml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(config_of(lists[0]))
        with Server(os.path.join(scratch, "data"), f"--config.file={config}") as server:
            server.wait_ready()
            text = prometheus_config(recorder, lists, server.port)
            with Prometheus(scratch, text, binary=os.environ.get("PROMETHEUS")):
                wait_until(lambda: recorder.scrapes >= 3, "scrapes", 60, 0.2)
                try:
                    wait_until(all_arrived(lists, series, recorder, scratch), "all that is expected came", 60, 0.5)
                except TimeoutError:
                    print("not all that Rimstone expects came from Prometheus")
                time.sleep(2)  # for what Rimstone does not expect
                differences = compare(lists, series, recorder, scratch)
                stored = server.client().query('{__name__=~".+"}')["result"]
        ours = of_the_test({json.dumps(r["metric"], sort_keys=True) for r in stored})
        # What a rule has left without a name is refused.
        theirs = of_the_test({s for s in recorder.sets[0] if "__name__" in json.loads(s)})
        if ours != theirs:
            differences += 1
            print(f"the server and list 0 {lists[0]}: {sorted(theirs - ours)[:3]}, {sorted(ours - theirs)[:3]}")
    total = sum(len(of_the_test(s)) for s in recorder.sets)
    print(f"{LISTS} lists, {total} label sets came through, {differences} lists differ")
    assert total > 0
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
