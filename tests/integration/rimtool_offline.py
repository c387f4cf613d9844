#!/usr/bin/env python3
"""The verbs of rimtool that read a data directory without a server: verify, dump, analyze."""

import hashlib
import json
import os
import subprocess
import sys
import unittest

import openmetrics_text
from harness import RIMTOOL, Server, TemporaryDirectory, double_bits, now_ms

START_MS = now_ms() - 3600_000


def rimtool(*arguments):
    done = subprocess.run(
        [RIMTOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        check=False, timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def contents(directory):
    """{path: digest} of everything in a directory."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, directory)] = hashlib.sha256(f.read()).hexdigest()
    return found


def flip_bit(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1]))


class Offline(unittest.TestCase):
    def setUp(self):
        self.scratch = TemporaryDirectory("offline")
        self.data_dir = os.path.join(self.scratch.__enter__(), "data")
        self.addCleanup(self.scratch.__exit__, None, None, None)

    def start(self, *flags):
        server = Server(self.data_dir, *flags)
        self.addCleanup(server.__exit__, None, None, None)
        return server.wait_ready()

    def fill(self, server):
        client = server.client()
        for request in range(5):
            series = [
                (
                    {"__name__": "kept", "i": str(i)},
                    [(START_MS + request * 60_000 + k * 1000, k + i / 8) for k in range(50)],
                )
                for i in range(20)
            ]
            self.assertIn(client.write(series).status, (200, 204))
        client.close()


class Verify(Offline):
    def test_a_directory_in_use_is_refused(self):
        server = self.start()
        code, out, err = rimtool("verify", self.data_dir)
        self.assertEqual((code, out), (2, ""))
        self.assertIn(f"is locked by process {server.process.pid}; stop the server, or look at", err)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(rimtool("verify", self.data_dir)[0], 0)

    def test_nothing_changes(self):
        server = self.start()
        self.fill(server)
        server.kill()
        before = contents(self.data_dir)
        code, out, err = rimtool("verify", self.data_dir)
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn(" 0 damaged", out)
        self.assertEqual(contents(self.data_dir), before)

    def test_damage_is_named(self):
        server = self.start()
        self.fill(server)
        self.assertEqual(server.stop(), 0)
        flip_bit(os.path.join(self.data_dir, "manifest"), 60)
        code, out, _ = rimtool("verify", self.data_dir)
        self.assertEqual(code, 1)
        self.assertIn("damaged: manifest: offset 0: ", out)
        code, out, _ = rimtool("verify", "--json", self.data_dir)
        self.assertEqual(code, 1)
        report = json.loads(out)
        self.assertEqual(report["damagedFiles"], 1)
        self.assertEqual(report["damaged"][0]["path"], "manifest")
        self.assertEqual(report["damaged"][0]["offset"], 0)
        self.assertEqual(report["damaged"][0]["code"], "corrupt")

    def test_a_newer_format_is_no_damage(self):
        server = self.start()
        self.fill(server)
        self.assertEqual(server.stop(), 0)
        with open(os.path.join(self.data_dir, "manifest"), "r+b") as f:
            f.seek(8)
            f.write(b"\x63")
        code, out, _ = rimtool("verify", self.data_dir)
        self.assertEqual(code, 2)
        self.assertIn("not checked: manifest: offset 8: version 99, this program knows ", out)
        self.assertIn(" 0 damaged, 1 not checked, ", out)
        code, out, _ = rimtool("verify", "--json", self.data_dir)
        self.assertEqual((code, json.loads(out)["notCheckedFiles"]), (2, 1))

    def test_a_snapshot_needs_no_lock(self):
        server = self.start()
        self.fill(server)
        self.assertEqual(server.stop(), 0)
        os.unlink(os.path.join(self.data_dir, "lock"))
        code, out, _ = rimtool("verify", "--json", "--threads", "1", self.data_dir)
        self.assertEqual(code, 0)
        report = json.loads(out)
        self.assertEqual(report["damaged"], [])
        self.assertEqual(report["notes"], [])
        self.assertGreater(report["files"], 1)
        self.assertFalse(os.path.exists(os.path.join(self.data_dir, "lock")))

    def test_wrong_use(self):
        for arguments in ([], ["a", "b"], ["--threads", "0", "a"], ["--no-such-flag", "a"]):
            code, out, err = rimtool("verify", *arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertNotEqual(err, "")
        empty = os.path.join(os.path.dirname(self.data_dir), "empty")
        self.assertEqual(rimtool("verify", empty)[0], 2)
        self.assertFalse(os.path.exists(empty))
        os.mkdir(empty)
        code, _, err = rimtool("verify", empty)
        self.assertEqual(code, 2)
        self.assertIn("is no data directory", err)
        self.assertEqual(os.listdir(empty), [])
        self.assertEqual(rimtool("verify", "--help")[0], 0)


STALE_BITS = 0x7FF0000000000002
SPECIAL = [
    0.0, -0.0, 1.0, -1.5, 0.1, 1e-7, 5e-324, 1.7976931348623157e308, 123456789012345680000.0, 1e21,
    -1e22, float("inf"), float("-inf"), 2**53 + 1.0, 1 / 3,
]
HARD_LABELS = [
    {"__name__": "plain"},
    {"__name__": "plain", "Upper": "sorts before the name"},
    {"__name__": "plain", "a": 'quote " backslash \\ newline \n end', "b": "{}=,"},
    {"__name__": "rule:with:colons", "a": "é ü 漢 \U0001f600"},
    {"__name__": "dotted.name", "label.with.dots": "v", "plain": "w"},
    {"__name__": 'a "quoted" \\ name', "x": "y"},
    {"__name__": "1st", "0": "digits first"},
]


class Dump(Offline):
    def dump(self, *arguments):
        code, out, err = rimtool("dump", *arguments, self.data_dir)
        self.assertEqual((code, err), (0, ""))
        return openmetrics_text.parse(out)

    def write(self, server, series):
        client = server.client()
        answer = client.write(series)
        self.assertIn(answer.status, (200, 204), answer)
        client.close()

    def expected(self, series):
        return {
            tuple(sorted(labels.items())): [(t, double_bits(v)) for t, v in samples]
            for labels, samples in series
        }

    def written(self):
        return [
            (labels, [(START_MS + 7 * k + i, v) for k, v in enumerate(SPECIAL)])
            for i, labels in enumerate(HARD_LABELS)
        ]

    def test_every_sample_bit_for_bit(self):
        server = self.start()
        series = self.written()
        self.write(server, series)
        self.assertEqual(server.stop(), 0)
        before = contents(self.data_dir)
        found = self.dump()
        self.assertEqual(found, self.expected(series))
        names = [dict(key)["__name__"] for key in found]
        self.assertEqual(names, sorted(names))
        self.assertEqual(contents(self.data_dir), before)

    def test_after_a_kill_and_with_a_torn_tail(self):
        server = self.start()
        series = self.written()
        self.write(server, series)
        server.kill()
        segments = sorted(os.listdir(os.path.join(self.data_dir, "wal")))
        path = os.path.join(self.data_dir, "wal", segments[-1])
        with open(path, "ab") as f:
            f.write(b"torn " * 100)
        before = contents(self.data_dir)
        self.assertEqual(self.dump(), self.expected(series))
        self.assertEqual(contents(self.data_dir), before)
        code, out, _ = rimtool("verify", self.data_dir)
        self.assertEqual(code, 0)
        self.assertIn("torn tail", out)

    def test_nan_and_stale_markers(self):
        server = self.start()
        labels = {"__name__": "gaps"}
        nan_bits = 0x7FF8000000000001
        values = [nan_bits, double_bits(1.0), STALE_BITS, double_bits(2.0), STALE_BITS]
        samples = [(START_MS + i, v.to_bytes(8, "little")) for i, v in enumerate(values)]
        self.write(server, [(labels, samples)])
        self.assertEqual(server.stop(), 0)
        any_nan = double_bits(float("nan"))
        key = (("__name__", "gaps"),)
        kept = [any_nan, double_bits(1.0), None, double_bits(2.0)]
        self.assertEqual(
            self.dump()[key], [(START_MS + i, v) for i, v in enumerate(kept) if v is not None]
        )
        kept = [any_nan, double_bits(1.0), any_nan, double_bits(2.0), any_nan]
        self.assertEqual(
            self.dump("--stale")[key], [(START_MS + i, v) for i, v in enumerate(kept)]
        )

    def test_selection(self):
        server = self.start()
        self.fill(server)
        client = server.client()
        answer = client.query('kept{i=~"1."}[2h]', (START_MS + 3600_000) / 1000)
        client.close()
        wanted = {
            tuple(sorted(r["metric"].items())): [
                (round(t * 1000), double_bits(float(v))) for t, v in r["values"]
            ]
            for r in answer["result"]
        }
        self.assertEqual(len(wanted), 10)
        self.assertEqual(server.stop(), 0)
        both = ("--match", 'kept{i=~"1."}', "--match", '{i="11"}', "--match", "none")
        self.assertEqual(self.dump(*both), wanted)
        low, high = START_MS + 60_000, START_MS + 60_000 + 9_000
        found = self.dump(
            *both, "--min-time", f"{low / 1000:.3f}", "--max-time", f"{high / 1000:.3f}"
        )
        self.assertEqual(
            found,
            {k: [s for s in samples if low <= s[0] <= high] for k, samples in wanted.items()},
        )
        self.assertEqual(self.dump("--max-time", "2001-02-03T04:05:06Z"), {})
        self.assertEqual(self.dump("--match", "none"), {})

    def test_series_larger_than_the_memory_for_them(self):
        server = self.start()
        series = [
            ({"__name__": "long", "i": "0"}, [(START_MS + k, float(k)) for k in range(200_000)]),
            ({"__name__": "long", "i": "1"}, [(START_MS + 20 * k, 1.0) for k in range(9_000)]),
            ({"__name__": "long", "i": "2"}, [(START_MS + 20 * k, 2.0) for k in range(9_000)]),
        ] + [({"__name__": "short", "i": str(i)}, [(START_MS + i, 0.5)]) for i in range(3000)]
        for labels, samples in series[:3]:
            for at in range(0, len(samples), 50_000):  # a request may hold 100,000
                self.write(server, [(labels, samples[at : at + 50_000])])
        self.write(server, series[3:])
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.dump("--memory", "1"), self.expected(series))

    def test_refusals(self):
        server = self.start()
        code, out, err = rimtool("dump", self.data_dir)
        self.assertEqual((code, out), (2, ""))
        self.assertIn("is locked by process", err)
        self.assertEqual(server.stop(), 0)
        for arguments in (
            [], ["a", "b"], ["--match", "{", self.data_dir], ["--min-time", "x", self.data_dir],
            [self.data_dir + "-not"],
        ):
            code, out, err = rimtool("dump", *arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertNotEqual(err, "")
        self.assertFalse(os.path.exists(self.data_dir + "-not"))
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [RIMTOOL, "dump", self.data_dir], stdout=full, stderr=subprocess.PIPE, check=False
            )
        self.assertEqual(done.returncode, 1)

    def test_a_damaged_log_is_told(self):
        server = self.start()
        for request in range(3):
            self.write(server, [({"__name__": "kept", "i": str(request)}, [(START_MS, 1.0)])])
        server.kill()
        segments = sorted(os.listdir(os.path.join(self.data_dir, "wal")))
        path = os.path.join(self.data_dir, "wal", segments[0])
        flip_bit(path, 64 + 50)  # the first frame's payload
        code, out, err = rimtool("dump", self.data_dir)
        self.assertEqual(code, 1)
        self.assertIn("the directory is damaged", err)
        openmetrics_text.parse(out)
        code, out, _ = rimtool("verify", self.data_dir)
        self.assertEqual(code, 1)
        self.assertIn(f"damaged: wal/{segments[0]}: offset 64: ", out)


WINDOW_S = 7200


class Analyze(Offline):
    def analyze(self, *arguments):
        code, out, err = rimtool("analyze", "--json", *arguments, self.data_dir)
        self.assertEqual((code, err), (0, ""), out)
        return json.loads(out)

    def setUp(self):
        super().setUp()
        # 20 series all the time, and 10 that live one window each.
        first = START_MS - START_MS % (WINDOW_S * 1000) - 2 * WINDOW_S * 1000
        self.windows = [first + k * WINDOW_S * 1000 for k in range(3)]
        series = [
            ({"__name__": "steady", "host": f"h{i}"},
             [(w + 1000 * k, float(k)) for w in self.windows for k in range(100)])
            for i in range(20)
        ] + [
            ({"__name__": "brief", "host": f"h{i}", "pod": f"p{n}-{i}"},
             [(w + 1000 * k, 1.0) for k in range(50)])
            for n, w in enumerate(self.windows)
            for i in range(10)
        ]
        server = self.start()
        client = server.client()
        answer = client.write(series)
        client.close()
        self.assertIn(answer.status, (200, 204), answer)
        self.assertEqual(server.stop(), 0)

    def test_counts(self):
        before = contents(self.data_dir)
        found = self.analyze()
        self.assertEqual((found["series"], found["samples"]), (50, 20 * 300 + 30 * 50))
        self.assertEqual(found["damagedFiles"], 0)
        self.assertEqual(found["minTime"], self.windows[0] / 1000)
        self.assertEqual(found["maxTime"], self.windows[2] / 1000 + 99)
        metrics = {m["name"]: m for m in found["metrics"]}
        self.assertEqual(metrics["steady"]["series"], 20)
        self.assertEqual(metrics["steady"]["samples"], 6000)
        self.assertEqual(metrics["brief"]["series"], 30)
        pairs = {(p["name"], p["value"]): p for p in self.analyze("--limit", "100")["labelPairs"]}
        self.assertEqual(len(pairs), 20 + 30)
        self.assertEqual(pairs["host", "h3"]["series"], 1 + 3)
        self.assertEqual(pairs["host", "h3"]["samples"], 300 + 3 * 50)
        self.assertEqual(pairs["host", "h13"]["series"], 1)
        self.assertEqual([l["name"] for l in found["labels"]], ["pod", "host"])
        self.assertEqual([l["values"] for l in found["labels"]], [30, 20])
        sizes = {k["kind"]: k for k in found["files"]}
        self.assertEqual(sum(k["bytes"] for k in found["files"]), found["allBytes"])
        self.assertEqual(sum(k["samples"] for k in sizes.values()), found["samples"])
        self.assertEqual(contents(self.data_dir), before)

    def test_churn(self):
        self.assertEqual(
            self.analyze()["churn"],
            [
                {"start": self.windows[0] / 1000, "series": 30, "firstSeen": 30, "lastSeen": 10},
                {"start": self.windows[1] / 1000, "series": 30, "firstSeen": 10, "lastSeen": 10},
                {"start": self.windows[2] / 1000, "series": 30, "firstSeen": 10, "lastSeen": 30},
            ],
        )

    def test_selection(self):
        found = self.analyze("--label", "pod", "--limit", "5")
        self.assertEqual(found["labelPairCount"], 30)
        self.assertEqual(len(found["labelPairs"]), 5)
        self.assertEqual({p["name"] for p in found["labelPairs"]}, {"pod"})
        self.assertEqual(self.analyze("--to", "2001-02-03T04:05:06Z")["series"], 0)
        self.assertEqual(self.analyze("--from", f"{self.windows[0] / 1000}")["series"], 50)

    def test_text(self):
        code, out, err = rimtool("analyze", self.data_dir)
        self.assertEqual((code, err), (0, ""))
        for wanted in ("series   50\n", "samples  7500", "METRICS BY BYTES (2)", "CHURN", "steady"):
            self.assertIn(wanted, out)
        self.assertNotIn("CODECS", rimtool("analyze", "--no-codecs", self.data_dir)[1])

    def test_wrong_use(self):
        for arguments in ([], ["a", "b"], ["--limit", "x", "a"], ["--from", "", "a"], ["none"]):
            code, out, err = rimtool("analyze", *arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertNotEqual(err, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
