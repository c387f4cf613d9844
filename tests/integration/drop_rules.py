#!/usr/bin/env python3
"""Drop rules of a server from end to end: the configuration, reloads, the API, restarts, rimtool."""

import json
import os
import signal
import subprocess
import unittest

from harness import RIMTOOL, Server, TemporaryDirectory, now_ms, wait_until

DROP_RULES = "/api/v1/rimstone/drop_rules"
FLAGS = ("--web.enable-admin-api", "--web.enable-lifecycle")


class DropRulesCase(unittest.TestCase):
    def setUp(self):
        self.directory = TemporaryDirectory("drop-rules")
        self.scratch = self.directory.__enter__()
        self.addCleanup(self.directory.__exit__, None, None, None)
        self.config_path = os.path.join(self.scratch, "rimstone.yml")
        self.t_ms = now_ms() - 120_000
        self.server = None
        self.configure("")

    def tearDown(self):
        if self.server is not None:
            self.server.stop()

    def configure(self, text):
        with open(self.config_path, "w", encoding="utf-8") as f:
            f.write(text)

    def start(self, *flags):
        self.server = Server(os.path.join(self.scratch, "data"),
                             f"--config.file={self.config_path}", *(flags or FLAGS))
        self.server.wait_ready()
        self.client = self.server.client()

    def restart(self, kill=False):
        if kill:
            self.server.kill()
        else:
            self.server.stop()
        self.start()

    def put(self, *series):
        """One sample for each; status of the answer."""
        self.t_ms += 1000
        return self.client.write([(labels, [(self.t_ms, 1.0)]) for labels in series]).status

    def stored(self, selector='{__name__=~".+"}'):
        """Label sets that the newest put() has reached."""
        data = self.client.query(f"{selector}[500ms]", self.t_ms / 1000)
        return sorted(json.dumps(r["metric"], sort_keys=True) for r in data["result"])

    def assert_stored(self, *series):
        self.assertEqual(self.stored(), sorted(json.dumps(s, sort_keys=True) for s in series))

    def rules(self):
        return self.client.get(DROP_RULES).json["data"]

    def post(self, rules):
        return self.client.request("POST", DROP_RULES, json.dumps(rules).encode(),
                                   {"Content-Type": "application/json"})

    def reload(self):
        return self.client.request("POST", "/-/reload")


UP, NOISE, OTHER = {"__name__": "up", "job": "a"}, {"__name__": "noise", "job": "a"}, {
    "__name__": "other", "job": "b"}


class Configuration(DropRulesCase):
    def test_rules_of_the_file(self):
        self.configure("drop_rules:\n  - name: n\n    comment: too much\n    drop: 'noise{job=\"a\"}'\n"
                       "  - {name: env, target_label: env, replacement: prod}\n")
        self.start()
        for _ in range(2):
            self.assertIn(self.put(UP, NOISE, OTHER), (200, 204))
        self.assert_stored({**UP, "env": "prod"}, {**OTHER, "env": "prod"})
        rules = self.rules()
        self.assertEqual(rules, [
            {"name": "n", "comment": "too much", "source": "file", "rule": {"drop": 'noise{job="a"}'},
             "series_dropped": 1, "samples_dropped": 2, "purge": False},
            {"name": "env", "comment": "", "source": "file", "purge": False,
             "rule": {"action": "replace", "target_label": "env", "replacement": "prod"},
             "series_dropped": 0, "samples_dropped": 0},
        ])
        metrics = self.client.get("/metrics").text
        self.assertIn('rimstone_drop_rule_samples_dropped_total{rule="n",source="file"} 2\n', metrics)
        self.assertIn("rimstone_samples_dropped_total 2\n", metrics)

    def test_reload_takes_effect_and_back(self):
        self.start()
        self.put(UP, NOISE)
        self.assert_stored(UP, NOISE)
        self.configure("drop_rules: [{name: n, drop: noise}]\n")
        self.assertEqual(self.reload().status, 200)
        self.assertEqual(len(self.client.query("noise", self.t_ms / 1000)["result"]), 1)
        self.put(UP, NOISE)
        self.assert_stored(UP)
        # A query does not show the last sample for another five minutes.
        self.assertEqual(self.client.query("noise", self.t_ms / 1000)["result"], [])
        self.assertEqual(len(self.client.query("noise", self.t_ms / 1000 - 1)["result"]), 1)
        self.assertIn("rimstone_dropped_series_ended_total 1\n", self.client.get("/metrics").text)
        self.assertIn("drop_rules", self.client.get("/api/v1/status/config").json["data"]["yaml"])
        self.configure("")
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.rules() == [], "the rule is gone", 5)
        self.put(UP, NOISE)
        self.assert_stored(UP, NOISE)

    def test_what_only_a_start_takes_up_is_said(self):
        self.start()
        said = 0
        for text, is_said in (("drop_rules: [{name: n, drop: noise}]\n", False),
                              ("storage: {tsdb: {retention: {time: 1d}}}\n", True),
                              ("storage: {tsdb: {retention: {size: 1GB}}}\n", True),
                              ("global: {evaluation_interval: 7m}\n", True),
                              ("", False)):
            self.configure(text)
            self.assertEqual(self.reload().status, 200)
            said += is_said
            self.assertEqual(self.server.log().count("take effect at the next start"), said, text)

    def test_bad_file_changes_nothing(self):
        self.configure("drop_rules: [{name: n, drop: noise}]\n")
        self.start()
        bad = {
            "drop_rules:\n  - name: x\n    drop: 'up{'\n": "rimstone.yml:3:11: drop: ",
            "drop_rules:\n  - name: x\n    drop: '{}'\n": ":3:11: drop: the selector must contain",
            "drop_rules:\n  - name: x\n    action: hashmod\n    target_label: a\n":
                ':2:5: rule "x": relabel configuration for hashmod requires non-zero modulus',
            "drop_rules:\n  - name: x\n    regex: 'a('\n": ":3:12: invalid regular expression: ",
            "drop_rules:\n  - name: x\n    action: no\n": ':3:13: unknown relabel action "no"',
            "drop_rules:\n  - drop: up\n": ":2:5: a drop rule needs a name",
            "drop_rules:\n  - {name: x, drop: up, regex: a}\n": '"drop" stands alone',
            "drop_rules: [{name: x, drop: up}, {name: x, drop: up}]\n": 'rule "x" stands twice',
            "drop_rules: [{name: x, nope: 1}]\n": ':1:24: unknown key "nope" in a drop rule',
            "drop_rules: {name: x}\n": ":1:13: drop_rules must be a list",
        }
        for text, want in bad.items():
            self.configure(text)
            answer = self.reload()
            self.assertEqual(answer.status, 500)
            self.assertIn("failed to reload config: ", answer.text)
            self.assertIn(want, answer.text)
        self.assertEqual([r["name"] for r in self.rules()], ["n"])
        self.assertFalse(self.client.get("/api/v1/status/runtimeinfo").json["data"]["reloadConfigSuccess"])
        self.assertIn("prometheus_config_last_reload_successful 0\n", self.client.get("/metrics").text)
        self.put(UP, NOISE)
        self.assert_stored(UP)

    def test_lifecycle_is_off_by_default(self):
        self.start("--web.enable-admin-api")
        self.assertEqual(self.reload().status, 403)
        self.assertEqual(self.client.request("POST", "/-/quit").status, 403)

    def test_quit(self):
        self.start()
        self.assertEqual(self.client.request("POST", "/-/quit").status, 200)
        self.assertEqual(self.server.process.wait(30), 0)
        self.server = None


class Runtime(DropRulesCase):
    def test_add_replace_remove(self):
        self.configure("drop_rules: [{name: f, drop: other}]\n")
        self.start()
        self.assertEqual(self.post([{"name": "a", "drop": "noise"},
                                    {"name": "b", "action": "drop", "source_labels": ["job"],
                                     "regex": "z"}]).status, 200)
        self.assertEqual([(r["name"], r["source"]) for r in self.rules()],
                         [("a", "api"), ("b", "api"), ("f", "file")])
        self.put(UP, NOISE, OTHER)
        self.assert_stored(UP)
        self.assertEqual(self.post({"name": "a", "drop": "up", "comment": "caf\u00e9 \U0001f600 \\ \""}).status, 200)
        self.assertEqual(self.rules()[0]["comment"], "caf\u00e9 \U0001f600 \\ \"")
        self.assertEqual([r["name"] for r in self.rules()], ["a", "b", "f"])
        self.put(UP, NOISE, OTHER)
        self.assert_stored(NOISE)
        self.assertEqual(self.client.request("DELETE", DROP_RULES + "?name=a").status, 200)
        self.put(UP, NOISE, OTHER)
        self.assert_stored(UP, NOISE)

    def test_refusals(self):
        self.configure("drop_rules: [{name: f, drop: other}]\n")
        self.start()
        for body, want in ((b"", "no rule in the request"), (b"[]", "no rule in the request"),
                           (b'{"name": "x"}', 'rule \\"x\\" needs'), (b"{", "rules:2:1: "),
                           (b'{"name": "x", "drop": "up{"}', "rules:1:23: drop: "), (b"7", "a rule or a list")):
            answer = self.client.request("POST", DROP_RULES, body, {"Content-Type": "application/json"})
            self.assertEqual(answer.status, 400, answer)
            self.assertIn(want, answer.text)
        self.assertEqual(self.client.request("DELETE", DROP_RULES + "?name=nope").status, 404)
        self.assertEqual(self.client.request("DELETE", DROP_RULES).status, 400)
        answer = self.client.request("DELETE", DROP_RULES + "?name=f")
        self.assertEqual(answer.status, 400)
        self.assertIn("stands in the configuration file", answer.text)
        self.assertEqual([r["name"] for r in self.rules()], ["f"])

    def test_off_without_the_flag(self):
        self.start("--web.enable-lifecycle")
        for method in ("GET", "POST", "DELETE"):
            self.assertEqual(self.client.request(method, DROP_RULES).json["error"],
                             "admin APIs disabled; --web.enable-admin-api enables them")

    def test_kept_over_restarts(self):
        self.start()
        self.post([{"name": "a", "drop": "noise"}, {"name": "b", "drop": "b"}])
        self.restart(kill=True)
        self.assertEqual([r["name"] for r in self.rules()], ["a", "b"])
        self.put(UP, NOISE)
        self.assert_stored(UP)
        self.client.request("DELETE", DROP_RULES + "?name=b")
        self.restart()
        self.assertEqual([r["name"] for r in self.rules()], ["a"])

    def test_damaged_file_is_set_aside(self):
        self.start()
        self.post({"name": "a", "drop": "noise"})
        self.server.stop()
        path = os.path.join(self.scratch, "data", "drop_rules")
        with open(path, "r+b") as f:
            f.seek(40)
            f.write(b"X")
        self.start()
        self.assertEqual(self.rules(), [])
        self.assertIn("the file of drop rules is damaged", self.server.log())
        self.assertTrue(os.path.exists(os.path.join(self.scratch, "data", "damaged-drop_rules")))

    def test_reload_storm(self):
        self.start()
        for i in range(60):
            self.configure("drop_rules: [{name: n, drop: noise}]\n" if i % 2 == 0 else "")
            self.server.process.send_signal(signal.SIGHUP)
            self.assertEqual(self.reload().status, 200)
            self.assertEqual(self.post({"name": f"r{i % 5}", "drop": f"m{i}"}).status, 200)
            self.put(UP, NOISE)
            self.assert_stored(*([UP] if i % 2 == 0 else [UP, NOISE]))


class Tool(DropRulesCase):
    def run_tool(self, *arguments, stdin=None):
        done = subprocess.run([RIMTOOL, "rules", *arguments], input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def test_against_a_server(self):
        self.start()
        url = f"--url=http://127.0.0.1:{self.server.port}"
        self.assertEqual(self.run_tool("add", url, "-", stdin="- {name: a b, drop: noise}\n")[0], 0)
        code, text = self.run_tool("list", url)
        self.assertEqual(code, 0)
        self.assertRegex(text, r"(?m)^a b +api +0 +0 no +\{\"drop\":\"noise\"\}$")
        long = "half of the debug metrics, and some"  # longer than the column is without it
        self.assertEqual(self.run_tool("add", url, "-", stdin=f"- {{name: '{long}', drop: m}}\n")[0], 0)
        heading, first, second = self.run_tool("list", url)[1].splitlines()
        self.assertEqual((heading.index("SOURCE"), first.index("api")), (second.index("api"),) * 2)
        self.assertEqual(self.run_tool("remove", url, long)[0], 0)
        self.assertEqual(self.run_tool("remove", url, "a b")[0], 0)
        # The section of a configuration, as `suggest` prints it.
        section = "# unused\ndrop_rules:\n  - name: s\n    drop: noise\n"
        for verb in ("check", "preview", "add"):
            arguments = ["--list"] if verb == "check" else [url]
            code, text = self.run_tool(verb, *arguments, "-", stdin=section)
            self.assertEqual(code, 0, text)
        self.assertEqual([(r["name"], r["source"]) for r in self.rules()], [("s", "api")])
        code, text = self.run_tool("add", url, "-", stdin="drop_rules: [{name: s, drop: 'no{'}]")
        self.assertEqual(code, 1)
        self.assertIn("rules:1:30: drop: ", text)
        self.assertEqual(self.run_tool("remove", url, "s")[0], 0)
        code, text = self.run_tool("remove", url, "a b")
        self.assertEqual(code, 1)
        self.assertIn('no drop rule with the name "a b"', text)
        self.assertEqual(self.run_tool("list", "--url=http://127.0.0.1:1")[0], 2)

    def test_check(self):
        self.configure("drop_rules:\n- {name: a, drop: noise}\n- {name: l, action: labeldrop, regex: job}\n")
        self.assertEqual(self.run_tool("check", self.config_path),
                         (0, f"{self.config_path}: 2 drop rules, all good\n"))
        code, text = self.run_tool("check", "--series=/dev/stdin", self.config_path,
                                   stdin='noise{job="a"}\nup{job="a",x="y"}\n')
        self.assertEqual(code, 0)
        self.assertEqual([json.loads(line) for line in text.splitlines()],
                         [{"dropped_by": "a"}, {"labels": {"__name__": "up", "x": "y"}}])
        self.configure("drop_rules:\n- {name: a, drop: 'no{'}\n")
        code, text = self.run_tool("check", self.config_path)
        self.assertEqual(code, 1)
        self.assertIn(f"{self.config_path}:2:19: drop: ", text)
        # What a server would refuse to purge.
        self.configure("drop_rules:\n- {name: p, drop: '{job=\"a\"}', purge: true}\n"
                       "- {name: l, action: labeldrop, regex: job}\n")
        code, text = self.run_tool("check", self.config_path)
        self.assertEqual(code, 1)
        self.assertIn(f'{self.config_path}: rule "p" cannot purge: rule "l" behind it may rewrite', text)
        self.assertEqual(self.run_tool("check")[0], 2)
        self.assertEqual(self.run_tool("check", "/nonexistent")[0], 2)
        self.assertEqual(self.run_tool("check", "--list", "/nonexistent")[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
