#!/usr/bin/env python3
"""Drop rules that also delete what is stored: a fleet's samples go and their space comes back, and a
rule that is taken back in time gives them back.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import unittest

from harness import RIMTOOL, Server, TemporaryDirectory, now_ms, wait_until
from lifecycle import folder_bytes
from maintenance import ADMIN, QUICK, metric, wait_flushed

DROP_RULES = "/api/v1/rimstone/drop_rules"
JSON = {"Content-Type": "application/json"}
SCRAPES, INTERVAL_S = 300, 60  # five hours: windows of two hours become parts
INTO_NEWEST_S = 20 * 60  # the newest window stays open, so little is in it
GPUS = '{__name__=~"DCGM_.*"}'
OTHERS = '{__name__!~"DCGM_.*", job!=""}'


def drops(rule, labels):
    """What Prometheus's relabelling says of a rule that filters."""
    value = rule.get("separator", ";").join(labels.get(name, "") for name in rule["source_labels"])
    if rule["action"] in ("drop", "keep"):
        return (re.fullmatch(rule["regex"], value, re.DOTALL) is not None) == (rule["action"] == "drop")
    return (labels.get(rule["target_label"], "") == value) == (rule["action"] == "dropequal")


class Case(unittest.TestCase):
    def setUp(self):
        scratch = TemporaryDirectory("purge")
        self.path = scratch.__enter__()
        self.addCleanup(scratch.__exit__, None, None, None)
        self.data = os.path.join(self.path, "data")
        self.config = os.path.join(self.path, "rimstone.yml")
        self.configure("")
        self.end_s = now_ms() // 1000 // 7200 * 7200 - 7200 + INTO_NEWEST_S
        self.server = None
        self.start()

    def configure(self, text):
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(text)

    def start(self):
        if self.server is not None:
            self.server.kill()
        self.server = Server(self.data, f"--config.file={self.config}", "--web.enable-admin-api",
                             "--web.enable-lifecycle", *QUICK)
        self.addCleanup(self.server.__exit__, None, None, None)
        self.server.wait_ready()
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def load(self, start_s=None, scrapes=SCRAPES, interval_s=INTERVAL_S):
        start_s = self.end_s - SCRAPES * INTERVAL_S if start_s is None else start_s
        subprocess.run(
            [RIMTOOL, "load", f"--url=http://127.0.0.1:{self.server.port}/api/v1/write", "--nodes=1",
             f"--scrapes={scrapes}", f"--interval={interval_s}", f"--start={start_s}", "--lockstep=2", "--quiet"],
            check=True, capture_output=True)

    def load_parts(self, every=1):
        """Five hours of the fleet, `every` so many minutes a scrape."""
        self.load(scrapes=SCRAPES // every, interval_s=INTERVAL_S * every)
        wait_flushed(self.client, self.end_s * 1000)

    def digest(self, selector):
        """Series, samples, and what they are."""
        rows = self.client.query(f"{selector}[7h]", self.end_s + 60)["result"]
        lines = sorted(json.dumps([row["metric"], row["values"]], sort_keys=True) for row in rows)
        return [len(rows), sum(len(row["values"]) for row in rows),
                hashlib.sha256("".join(lines).encode()).hexdigest() if rows else 0]

    def value(self, query):
        rows = self.client.query(query, self.end_s + 60)["result"]
        return float(rows[0]["value"][1]) if rows else 0.0

    def post(self, rules, path=DROP_RULES):
        return self.client.request("POST", path, json.dumps(rules).encode(), JSON)

    def change(self, rules):
        answer = self.post(rules)
        self.assertEqual(answer.status, 200, answer)
        return answer.json["data"]

    def remove(self, name):
        answer = self.client.request("DELETE", f"{DROP_RULES}?name={name}")
        self.assertEqual(answer.status, 200, answer)
        return answer.json["data"]

    def clean(self):
        answer = self.client.post_form(ADMIN + "/clean_tombstones", {})
        self.assertIn(answer.status, (200, 204), answer)


class Purge(Case):
    def test_space_comes_back(self):
        self.load_parts()
        gpus, others = self.digest(GPUS), self.digest(OTHERS)
        self.assertGreater(gpus[1], 100 * SCRAPES)
        self.assertGreater(others[1], 100 * SCRAPES)
        parts = os.path.join(self.data, "parts")
        before = folder_bytes(parts)
        rule = {"name": "gpus", "drop": GPUS, "purge": True}
        preview = self.post(rule, DROP_RULES + "/preview").json["data"]
        figures = self.change(rule)["purge"]
        self.assertEqual(figures["rules"], 1)
        for name in ("series", "samples_per_second", "disk_is_whole"):
            self.assertEqual(figures[name], preview[name])
        self.assertAlmostEqual(figures["disk_bytes"], preview["disk_bytes"], delta=preview["disk_bytes"] / 100)
        self.assertEqual(figures["series"], gpus[0])
        wait_until(lambda: "drop rules purge what is stored" in self.server.log(), "the figures are logged")
        self.assertEqual(self.digest(GPUS), [0, 0, 0])
        self.assertEqual(self.digest(OTHERS), others)
        names = self.client.get("/api/v1/rimstone/drop_rules").json["data"]
        self.assertEqual([r["purge"] for r in names], [True])
        self.start()
        self.assertEqual(self.digest(GPUS), [0, 0, 0])
        self.clean()
        # Replaced parts go one by one, when nobody reads them any more, and merges at the start may have
        # replaced some. What few series of one node share (labels, timestamp columns) goes with them, and is
        # not in the figure; the newest window, in sealed files yet, is.
        freed = lambda: before - folder_bytes(parts)
        wait_until(lambda: freed() > figures["disk_bytes"] * 0.8, "replaced parts go")
        self.assertLess(freed(), figures["disk_bytes"] * 1.5)
        self.assertEqual(self.digest(GPUS), [0, 0, 0])
        self.assertEqual(self.digest(OTHERS), others)
        # Too late to take it back for what parts held; the series is let in again.
        restored = self.remove("gpus")["restored"]
        self.assertEqual(restored["purges"], 1)
        self.assertLess(restored["files_left"], restored["files"])
        left = self.digest(GPUS)
        self.assertLess(left[1], gpus[1])
        self.assertEqual(self.digest(OTHERS), others)
        wait_until(lambda: "written anew since is gone" in self.server.log(), "the log says so")
        self.load(self.end_s, 1)
        self.assertEqual(self.digest(GPUS)[1], left[1] + gpus[0])

    def test_taken_back_in_time(self):
        self.load_parts()
        gpus, others = self.digest(GPUS), self.digest(OTHERS)
        for takes_back in ("removed", "replaced", "restarted", "by the tool"):
            with self.subTest(takes_back):
                data = self.change({"name": "gpus", "drop": GPUS, "purge": True})
                self.assertNotIn("restored", data)
                self.assertEqual(self.digest(GPUS), [0, 0, 0])
                again = self.change({"name": "gpus", "drop": GPUS, "purge": True, "comment": "the same"})
                self.assertNotIn("restored", again)
                if takes_back == "restarted":
                    self.start()
                    self.assertEqual(self.digest(GPUS), [0, 0, 0])
                if takes_back == "by the tool":
                    done = subprocess.run([RIMTOOL, "rules", "remove", f"--url=http://127.0.0.1:{self.server.port}",
                                           "gpus"], capture_output=True, text=True, check=True)
                    self.assertIn("\nrestored: all that was deleted", done.stdout)
                elif takes_back == "replaced":
                    restored = self.change({"name": "gpus", "drop": GPUS})["restored"]
                    self.assertEqual(restored["files"], restored["files_left"])
                    self.assertEqual(self.digest(GPUS), gpus)  # shown, though nothing new comes in
                    self.remove("gpus")
                else:
                    restored = self.remove("gpus")["restored"]
                    self.assertGreater(restored["files"], 0)
                    self.assertEqual(restored["files"], restored["files_left"])
                self.assertEqual(self.digest(GPUS), gpus)
                self.assertEqual(self.digest(OTHERS), others)
        self.clean()
        self.start()
        self.assertEqual(self.digest(GPUS), gpus)
        self.assertEqual(self.digest(OTHERS), others)

    def test_rules_of_the_file(self):
        """The file says what is purged: at a reload, and at a start after it was changed."""
        self.load_parts()
        gpus = self.digest(GPUS)
        rule = f"drop_rules:\n  - {{name: g, purge: true, drop: '{GPUS}'}}\n"
        reload = lambda: self.client.request("POST", "/-/reload")
        for restarts in (False, True):
            self.configure(rule)
            self.start() if restarts else self.assertEqual(reload().status, 200)
            self.assertEqual(self.digest(GPUS), [0, 0, 0])
            self.configure("")
            self.start() if restarts else self.assertEqual(reload().status, 200)
            self.assertEqual(self.digest(GPUS), gpus)

    def test_relabelling_rules(self):
        """Of one source label they purge as selectors do, several in one request at once."""
        self.load_parts()
        gpus, others = self.digest(GPUS), self.digest(OTHERS)
        drop = {"name": "d", "source_labels": ["__name__"], "regex": "DCGM_.*", "action": "drop", "purge": True}
        keep = {"name": "k", "source_labels": ["job"], "regex": "dcgm-exporter", "action": "keep", "purge": True}
        figures = self.change(drop)["purge"]
        self.assertEqual((figures["series"], figures["disk_is_whole"]), (gpus[0], True))
        self.assertEqual(self.digest(GPUS), [0, 0, 0])
        self.assertEqual(self.digest(OTHERS), others)
        self.assertEqual(self.remove("d")["restored"]["purges"], 1)
        self.assertEqual(self.digest(GPUS), gpus)
        self.change(keep)
        self.assertEqual(self.digest(OTHERS), [0, 0, 0])
        self.assertEqual(self.digest(GPUS), gpus)
        self.remove("k")
        self.change([drop, keep] + [{"name": f"r{i}", "drop": f"nobody_{i}", "purge": True} for i in range(20)])
        self.assertEqual((self.digest(GPUS), self.digest(OTHERS)), ([0, 0, 0], [0, 0, 0]))
        for rule in self.client.get(DROP_RULES).json["data"]:
            self.remove(rule["name"])
        self.assertEqual((self.digest(GPUS), self.digest(OTHERS)), (gpus, others))

    def rows(self):
        """Everything that is stored: label pairs and samples."""
        rows = self.client.query('{__name__=~".+"}[7h]', self.end_s + 60)["result"]
        return {tuple(sorted(row["metric"].items())): row["values"] for row in rows}

    def check_rows(self, wanted):
        """Without printing all of it."""
        got = self.rows()
        wrong = [labels for labels in {**got, **wanted} if got.get(labels) != wanted.get(labels)]
        details = [(labels, len(got.get(labels, [])), len(wanted.get(labels, []))) for labels in wrong[:3]]
        self.assertEqual((len(wrong), details), (0, []))

    def test_rules_of_several_labels(self):
        """They delete what Prometheus's relabelling would drop, no more and no less; in time all of it
        comes back, over a restart and a reload too; in the end the space does.
        """
        self.load_parts(every=10)
        pairs = [("x", "x"), ("x", "y"), ("", "y"), ("y", "")]
        times = [(self.end_s - s) * 1000 for s in (65, 5)]  # older ones would have files written anew
        for a, b in pairs:
            labels = {"__name__": "pair", "a": a, "b": b, "which": a + "-" + b}
            answer = self.client.write([({k: v for k, v in labels.items() if v}, [(t, 1.0) for t in times])])
            self.assertIn(answer.status, (200, 204))
        before = self.rows()
        self.assertGreater(len(before), 1000)
        gpus = {"source_labels": ["job", "__name__"], "regex": "dcgm-exporter;DCGM_.*", "action": "drop"}
        rules = [
            gpus,
            {"source_labels": ["job", "gpu", "device"], "separator": "/", "action": "drop",
             "regex": "dcgm-exporter/[0-3]/.*|node/.*|(.*)//"},
            {"source_labels": ["__name__", "mode", "none"], "regex": ".*_total;(idle|user|);", "action": "keep"},
            {"source_labels": ["a"], "target_label": "b", "action": "dropequal"},
            {"source_labels": ["gpu"], "target_label": "device", "action": "keepequal"},
            {"source_labels": [], "target_label": "gpu", "action": "keepequal"},
        ]
        for i, rule in enumerate(rules):
            with self.subTest(rule):
                left = {labels: values for labels, values in before.items() if not drops(rule, dict(labels))}
                self.assertLess(len(left), len(before))
                self.assertGreater(len(left), 0)
                named = dict(rule, name="r", purge=True)
                if i == 1:
                    self.configure("drop_rules: " + json.dumps([named]))
                    self.assertEqual(self.client.request("POST", "/-/reload").status, 200)
                else:
                    figures = self.change(named)["purge"]
                    self.assertEqual((figures["rules"], figures["disk_is_whole"]), (1, False))
                    self.assertEqual(figures["series"] > 0, len(left) < len(before))
                self.check_rows(left)
                if i % 3 != 2:
                    self.start()
                    self.check_rows(left)
                if i == 1:
                    self.configure("")
                    self.start()
                else:
                    restored = self.remove("r")["restored"]
                    self.assertGreater(restored["files"], 0)
                    self.assertEqual(restored["files"], restored["files_left"])
                self.check_rows(before)
        left = {labels: values for labels, values in before.items() if not drops(gpus, dict(labels))}
        parts = os.path.join(self.data, "parts")
        size = folder_bytes(parts)
        self.change(dict(gpus, name="gpus", purge=True))
        self.start()
        self.clean()
        # A fifth is deleted, a little more or less by the time of day; until they go, all parts stand there twice.
        wait_until(lambda: folder_bytes(parts) < size * 0.9, "replaced parts go")
        self.check_rows(left)
        restored = self.remove("gpus")["restored"]
        self.assertLess(restored["files_left"], restored["files"])
        after = self.rows()
        self.assertEqual({labels: after[labels] for labels in left}, left)
        self.assertLess(sum(map(len, after.values())), sum(map(len, before.values())))

    def test_what_cannot_be_purged(self):
        up = {"__name__": "up", "job": "a"}
        self.assertIn(self.client.write([(up, [(self.end_s * 1000, 1.0)])]).status, (200, 204))
        two = {"name": "x", "source_labels": ["job", "b"], "regex": ".*;.*", "action": "drop", "purge": True}
        answer = self.post(two)
        self.assertEqual(answer.status, 400)
        self.assertIn('rule "x": "purge" would delete everything', answer.json["error"])
        answer = self.post({"name": "x", "source_labels": ["job"], "action": "drop", "purge": True})
        self.assertEqual(answer.status, 400)
        self.assertIn("would delete everything", answer.json["error"])
        self.configure("drop_rules:\n  - {name: x, regex: a, action: labeldrop, purge: true}\n")
        self.assertIn('yml:2:5: rule "x": "purge" needs a rule that drops', self.client.request("POST", "/-/reload").text)
        # Labels that are written behind the rule would be taken for those that it sees.
        self.configure("drop_rules:\n  - {name: team, target_label: team, replacement: x}\n")
        self.assertEqual(self.client.request("POST", "/-/reload").status, 200)
        answer = self.post({"name": "t", "drop": '{team="x"}', "purge": True})
        self.assertEqual(answer.status, 400)
        self.assertIn('rule "team" behind it may rewrite the label "team"', answer.json["error"])
        self.assertEqual([r["name"] for r in self.client.get(DROP_RULES).json["data"]], ["team"])
        self.assertEqual(self.value("count(up)"), 1)
        self.change({"name": "u", "drop": "up", "purge": True})
        self.assertEqual(self.value("count(up)"), 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
