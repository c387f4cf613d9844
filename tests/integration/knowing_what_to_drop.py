#!/usr/bin/env python3
"""From too many series to a list of what nobody reads: limits, usage and suggestions, over the whole
server.
"""

import json
import os
import signal
import subprocess
import sys
import unittest
import urllib.parse

from harness import RIMTOOL, Server, TemporaryDirectory, now_ms, wait_until

CONFIG = """limits:
  series_per_metric: {max: 100, warn: 50}
  series_per_label_value:
    - {label: tenant, max: 30}
"""


def series(name, count, **labels):
    return [({"__name__": name, "i": f"{i:04}", **labels}, [(now_ms(), 1.0)]) for i in range(count)]


def metrics(client):
    """Samples of /metrics by name with labels."""
    lines = [l for l in client.get("/metrics").text.splitlines() if l and not l.startswith("#")]
    return {l.rsplit(" ", 1)[0]: float(l.rsplit(" ", 1)[1]) for l in lines}


class Case(unittest.TestCase):
    def setUp(self):
        scratch = TemporaryDirectory("drop")
        self.path = scratch.__enter__()
        self.addCleanup(scratch.__exit__, None, None, None)
        self.data = os.path.join(self.path, "data")

    def start(self, *flags):
        server = Server(self.data, *flags)
        self.addCleanup(server.__exit__, None, None, None)
        server.wait_ready()
        client = server.client()
        self.addCleanup(client.close)
        return server, client

    def file(self, name, text):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path


class Limits(Case):
    def check_refusals(self, client):
        answer = client.write(series("wide", 120))
        self.assertEqual(answer.status, 400)
        self.assertIn("20 of 120 samples refused (limit=20)\n", answer.text)
        self.assertIn('limit (series_per_metric: max 100 of __name__="wide"): {', answer.text)
        self.assertEqual(client.query("count(wide)")["result"][0]["value"][1], "100")

    def test_they_hold_from_start_to_start(self):
        config = "--config.file=" + self.file("rimstone.yml", CONFIG)
        server, client = self.start(config)
        self.check_refusals(client)
        self.assertEqual(client.write(series("many", 31, tenant="a")).status, 400)
        self.assertEqual(client.write(series("many", 30, tenant="b")).status, 204)
        self.assertEqual(client.write(series("x" * 5000, 1)).status, 400)
        figures = metrics(client)
        self.assertEqual(figures['rimstone_limit_refusals_total{limit="series_per_metric"}'], 20)
        self.assertEqual(figures['rimstone_limit_samples_refused_total{limit="series_per_label_value"}'], 1)
        self.assertEqual(figures['rimstone_limit_refusals_total{limit="label_value_bytes"}'], 1)
        self.assertEqual(figures['rimstone_samples_refused_total{reason="limit"}'], 22)
        wait_until(lambda: "label=__name__ value=wide" in server.log(), "the log names the offender")
        self.assertIn("a limit is reached: new series are refused", server.log())
        report = client.get("/api/v1/rimstone/limits").json["data"]
        self.assertEqual(report["activeSeries"], 160)
        server.kill()
        server, client = self.start(config)
        self.check_refusals(client)
        self.assertEqual(server.stop(), 0)

    def test_a_reload_changes_them_at_once(self):
        path = self.file("rimstone.yml", CONFIG)
        server, client = self.start("--config.file=" + path)
        self.check_refusals(client)
        self.file("rimstone.yml", CONFIG.replace("max: 100", "max: 110"))
        server.process.send_signal(signal.SIGHUP)
        report = lambda: client.get("/api/v1/rimstone/limits").json["data"]["limits"]
        wait_until(lambda: any(limit["max"] == 110 for limit in report()), "the new limit")
        self.assertIn("10 of 120 samples refused (limit=10)\n", client.write(series("wide", 120)).text)
        self.file("rimstone.yml", "limits: {series_per_metric: {max: lots}}\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "rimstone.yml:1:35: " in server.log(), "the log says where it is wrong")
        self.assertTrue(any(limit["max"] == 110 for limit in report()))

    def test_a_wrong_file_says_where(self):
        config = self.file("wrong.yml", "limits:\n  active_series: {max: many}\n")
        server = Server(self.data, "--config.file=" + config)
        self.addCleanup(server.__exit__, None, None, None)
        self.assertNotEqual(server.process.wait(60), 0)
        self.assertIn("wrong.yml:2:24: ", server.log())


class Suggestions(Case):
    def suggest(self, server, *arguments):
        command = [RIMTOOL, "rules", "suggest", f"--url=http://127.0.0.1:{server.port}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def names(self, server, *arguments):
        rows = json.loads(self.suggest(server, "--json", *arguments))["unused"]
        return [row["name"] for row in rows]

    def test_exactly_what_nobody_reads(self):
        server, client = self.start()
        load = [RIMTOOL, "load", f"--url=http://127.0.0.1:{server.port}/api/v1/write", "--nodes=2", "--scrapes=3"]
        subprocess.run(load, check=True, capture_output=True)
        everything = set(client.get("/api/v1/label/__name__/values").json["data"])
        self.assertGreater(len(everything), 30)
        self.assertEqual(set(self.names(server)), everything)

        read = {"node_cpu_seconds_total"}
        client.query("sum(rate(node_cpu_seconds_total[5m]))")
        self.assertEqual(set(self.names(server)), everything - read)
        client.get("/api/v1/series", {"match[]": '{__name__=~"node_disk_.*"}'})
        read |= {n for n in everything if n.startswith("node_disk_")}
        self.assertGreater(len(read), 1)
        self.assertEqual(set(self.names(server)), everything - read)

        dashboard = {"panels": [{"targets": [
            {"expr": 'avg(DCGM_FI_DEV_GPU_TEMP{gpu=~"$gpu"})'},
            {"expr": 'rate({__name__=~"node_network_.*", instance="$i"}[$__rate_interval])'}]}]}
        self.file("dashboards/team/a.json", json.dumps(dashboard))
        self.file("rules/b.yaml", "groups: [{name: g, rules: [{alert: A, expr: 'DCGM_FI_DEV_POWER_USAGE > 5'}]}]")
        read |= {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"} & everything
        read |= {n for n in everything if n.startswith("node_network_")}
        files = (f"--dashboards={self.path}/dashboards", f"--rules={self.path}/rules")
        self.assertEqual(set(self.names(server, *files)), everything - read)

        # The same as rules, the most expensive first; asking has not counted as reading.
        text = self.suggest(server, *files)
        self.assertEqual(text.count("\n  - name: "), len(everything - read))
        self.assertIn('drop: "{__name__=\\"', text)
        rows = json.loads(self.suggest(server, "--json", *files))["unused"]
        costs = [(row["samplesPerSecond"], row["series"]) for row in rows]
        self.assertEqual(costs, sorted(costs, reverse=True))
        self.assertGreater(costs[0][0], 0)

        # All of it is known after a restart.
        self.assertEqual(server.stop(), 0)
        server, _ = self.start()
        self.assertEqual(set(self.names(server, *files)), everything - read)

    def test_errors(self):
        for arguments in (["--url=http://127.0.0.1:1"], ["--dashboards=/nonexistent"]):
            done = subprocess.run([RIMTOOL, "rules", "suggest", *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("rimtool rules suggest: ", done.stderr)
        for arguments, want in ((["x"], "usage: "), (["--unused-for=soon"], 'bad value "soon" for --unused-for')):
            done = subprocess.run([RIMTOOL, "rules", "suggest", *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(want, done.stderr)


class Preview(Case):
    """What a preview says is what then happens."""

    def load(self, server):
        load = [RIMTOOL, "load", f"--url=http://127.0.0.1:{server.port}/api/v1/write", "--nodes=3", "--scrapes=4"]
        subprocess.run(load, check=True, capture_output=True)

    def preview(self, client, rules, **params):
        path = "/api/v1/rimstone/drop_rules/preview" + ("?" + urllib.parse.urlencode(params) if params else "")
        body = rules if isinstance(rules, str) else json.dumps(rules)
        return client.request("POST", path, body.encode(), {"Content-Type": "application/json"})

    def drops(self, client):
        return sum(rule["series_dropped"] for rule in client.get("/api/v1/rimstone/drop_rules").json["data"])

    def test_figures(self):
        server, client = self.start("--web.enable-admin-api")
        self.load(server)
        client.query('sum(DCGM_FI_DEV_GPU_TEMP{gpu="1"})')
        client.query("count(node_cpu_seconds_total)")
        client.get("/api/v1/series", {"match[]": '{gpu="2"}'})
        client.get("/api/v1/series", {"match[]": '{mode="idle"}'})
        rules = [
            {"name": "gpus", "drop": '{__name__=~"DCGM_.*", gpu!="2"}'},
            {"name": "disks", "source_labels": ["__name__", "device"], "regex": "node_disk_.*;.*1", "action": "drop"},
        ]
        answer = self.preview(client, rules, limit=1000)
        self.assertEqual(answer.status, 200, answer)
        data = answer.json["data"]
        expected = client.query('count({__name__=~"DCGM_.*", gpu!="2"} or {__name__=~"node_disk_.*", device=~".*1"})')
        self.assertEqual(str(data["series"]), expected["result"][0]["value"][1])
        # Of scrapes that are 15 s apart on the average.
        self.assertAlmostEqual(data["samples_per_second"], data["series"] / 15, delta=data["series"] / 150)
        self.assertGreater(data["memory_bytes"], 50 * data["series"])
        self.assertEqual(sum(row["value"] for row in data["metrics"]), data["series"])
        self.assertEqual(len(data["metrics"]), data["metric_count"])
        self.assertTrue(all(row["name"].startswith(("DCGM_", "node_disk_")) for row in data["metrics"]))
        by_gpu = {row["name"]: row["value"] for row in data["label_values"]}
        self.assertEqual(by_gpu["gpu=1"], by_gpu["gpu=3"])
        self.assertNotIn("gpu=2", by_gpu)
        self.assertEqual([query["query"] for query in data["queries"]], ['sum(DCGM_FI_DEV_GPU_TEMP{gpu="1"})'])
        self.assertTrue(data["queries_are_complete"])
        self.assertEqual(len(data["examples"]), min(1000, data["series"]))

        # The same as a configuration, in YAML; the tool prints it.
        text = "drop_rules:\n" + "".join("  - " + json.dumps(rule) + "\n" for rule in rules)
        self.assertEqual(self.preview(client, text).json["data"]["series"], data["series"])
        done = subprocess.run(
            [RIMTOOL, "rules", "preview", f"--url=http://127.0.0.1:{server.port}", self.file("r.yml", text)],
            capture_output=True, text=True, check=True)
        self.assertIn(f"series              {data['series']}\n", done.stdout)
        self.assertIn('\n1            sum(DCGM_FI_DEV_GPU_TEMP{gpu="1"})\n', done.stdout)

        # Then it happens.
        self.assertEqual(client.request("POST", "/api/v1/rimstone/drop_rules", json.dumps(rules).encode(),
                                        {"Content-Type": "application/json"}).status, 200)
        self.load(server)
        self.assertAlmostEqual(self.drops(client), data["series"], delta=data["series"] / 100)

    def test_what_is_wrong(self):
        _, client = self.start()
        for body, cause in (("", "no rule"), ("[]", "no rule"), ('{"name": "x"}', ""), ("drop_rules: []", ""),
                            ('{"name": "x", "drop": "{"}', "rules:1:"), ("drop_rules:\n  - {nme: x}\n", ":2:")):
            answer = self.preview(client, body)
            self.assertEqual(answer.status, 400, (body, answer))
            self.assertIn(cause, answer.json["error"])
        self.assertEqual(self.preview(client, '{"name": "x", "drop": "up"}', limit=0).status, 400)
        data = self.preview(client, '{"name": "x", "drop": "up"}').json["data"]
        self.assertEqual((data["series"], data["metrics"], data["queries"]), (0, [], []))


if __name__ == "__main__":
    sys.exit(unittest.main())
