#!/usr/bin/env python3
"""How the server starts, refuses to start, and stops."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from harness import (
    PATIENCE_S,
    REPOSITORY,
    RIMSTONE,
    RIMTOOL,
    Server,
    TemporaryDirectory,
    free_port,
    now_ms,
    snappy_literals,
    wait_until,
    write_request,
)

START_MS = now_ms() - 3600_000
STOP_LIMIT_S = 10.0


def slow_query(steps):
    """Work that grows with `steps` and needs no stored data."""
    # Wide windows: much work over few points, so that a sanitizer build too looks up often.
    inner = "sum_over_time(vector(time())[20000s:1s])"
    return {"query": f"max_over_time({inner}[{steps}s:1s])", "time": "100000"}


class Stopping(unittest.TestCase):
    def setUp(self):
        self.scratch = TemporaryDirectory("shutdown")
        self.data_dir = os.path.join(self.scratch.__enter__(), "data")
        self.addCleanup(self.scratch.__exit__, None, None, None)
        self.server = self.start()

    def start(self, *flags):
        server = Server(self.data_dir, *flags)
        self.addCleanup(server.__exit__, None, None, None)
        return server.wait_ready()

    def write(self, server, count=1):
        client = server.client()
        samples = [(START_MS + i, float(i)) for i in range(count)]
        answer = client.write([({"__name__": "kept"}, samples)])
        client.close()
        self.assertIn(answer.status, (200, 204), answer)

    def test_what_was_written_is_there_after_a_restart(self):
        self.write(self.server, 100)
        self.assertEqual(self.server.stop(STOP_LIMIT_S), 0)
        server = self.start()
        data = server.client().query("count_over_time(kept[1h])", START_MS / 1000 + 60)
        self.assertEqual(data["result"][0]["value"][1], "100")

    def test_sigint_is_as_good(self):
        self.write(self.server)
        self.server.process.send_signal(signal.SIGINT)
        self.assertEqual(self.server.process.wait(STOP_LIMIT_S), 0)

    def test_idle_connections_do_not_hold_it_up(self):
        connections = [
            socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(20)
        ]
        connections[0].sendall(b"GET /api/v1/quer")
        self.assertEqual(self.server.stop(STOP_LIMIT_S), 0)
        for connection in connections:
            connection.close()

    def start_slow_query(self, steps):
        """Returns (thread, [answer or error]) of a query that is running."""
        outcome = []

        def run():
            client = self.server.client()
            try:
                outcome.append(client.post_form("/api/v1/query", slow_query(steps)))
            except OSError as e:
                outcome.append(e)
            except Exception as e:  # pylint: disable=broad-except
                outcome.append(e)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.wait_for_running_query(outcome)
        return thread, outcome

    def wait_for_running_query(self, outcome):
        client = self.server.client()

        def running():
            if outcome:
                return True
            for line in client.get("/metrics").text.splitlines():
                if line.startswith("prometheus_engine_queries "):
                    return float(line.split()[-1]) > 0
            return False

        wait_until(running, "a query is running", interval_s=0.002)
        client.close()

    def calibrated_steps(self, seconds):
        """Steps of a slow query that takes about `seconds` here."""
        client = self.server.client()
        steps = 10
        while True:
            started = time.monotonic()
            self.assertEqual(client.post_form("/api/v1/query", slow_query(steps)).status, 200)
            took = time.monotonic() - started
            if took > 0.1:
                client.close()
                return int(steps * seconds / took)
            steps *= 4

    def test_running_requests_are_finished(self):
        thread, outcome = self.start_slow_query(self.calibrated_steps(1.5))
        self.assertFalse(outcome, "the query was over before the signal")
        self.assertEqual(self.server.stop(STOP_LIMIT_S), 0)
        thread.join(PATIENCE_S)
        self.assertEqual(getattr(outcome[0], "status", None), 200, outcome)

    def test_a_write_under_way_is_finished(self):
        body = snappy_literals(write_request([({"__name__": "kept"}, [(START_MS, 1.0)])]))
        head = (
            "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\n"
            f"Content-Type: application/x-protobuf\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE_S) as s:
            s.sendall(head.encode() + body)  # complete, its answer still to come
            self.server.terminate()
            answer = s.recv(4096)
        self.assertEqual(self.server.process.wait(STOP_LIMIT_S), 0)
        if answer:  # nothing was promised to a request that came too late
            self.assertRegex(answer.split(b"\r\n")[0], rb"^HTTP/1\.1 (20[04]|503) ")
        if answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 204")):
            data = self.start().client().query("kept", START_MS / 1000)
            self.assertEqual(len(data["result"]), 1)

    def test_the_limit_holds_for_long_queries(self):
        thread, outcome = self.start_slow_query(self.calibrated_steps(100))
        self.assertFalse(outcome)
        self.assertEqual(self.server.stop(STOP_LIMIT_S), 0)
        thread.join(PATIENCE_S)
        if hasattr(outcome[0], "status"):
            self.assertNotEqual(outcome[0].status, 200)

    def test_a_second_signal_quits_at_once(self):
        _, outcome = self.start_slow_query(self.calibrated_steps(100))
        self.assertFalse(outcome)
        self.server.terminate()
        wait_until(lambda: not self.accepts(), "the server has seen the first signal", 5)
        started = time.monotonic()
        self.server.terminate()
        self.server.process.wait(STOP_LIMIT_S)
        self.assertLess(time.monotonic() - started, 2.0)

    def accepts(self):
        """Whether the server still takes new work (it stops when it sees the signal)."""
        if self.server.process.poll() is not None:
            return False
        try:
            client = self.server.client(2)
            return client.get("/-/ready").status == 200
        except Exception:  # pylint: disable=broad-except
            return False

    def test_a_client_that_leaves_stops_its_query(self):
        steps = self.calibrated_steps(100)
        body = f"query={slow_query(steps)['query'].replace('+', '%2B')}&time=100000".encode()
        head = (
            "POST /api/v1/query HTTP/1.1\r\nHost: x\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        s = socket.create_connection(("127.0.0.1", self.server.port), PATIENCE_S)
        s.sendall(head.encode() + body)
        self.wait_for_running_query([])
        s.close()
        client = self.server.client()

        def idle():
            text = client.get("/metrics").text
            return "\nprometheus_engine_queries 0" in text

        wait_until(idle, "the query has stopped", 5)

    def test_a_second_server_is_refused(self):
        self.write(self.server)
        second = Server(self.data_dir)
        self.assertNotEqual(second.process.wait(PATIENCE_S), 0)
        log = second.log().lower()
        self.assertIn("lock", log)
        self.assertIn(str(self.server.process.pid), log)
        # The first one goes on as if nothing had happened.
        self.write(self.server)
        self.assertEqual(self.server.stop(STOP_LIMIT_S), 0)

    def test_a_port_in_use_is_refused(self):
        other = os.path.join(os.path.dirname(self.data_dir), "other")
        second = Server(other, port=self.server.port)
        self.assertNotEqual(second.process.wait(PATIENCE_S), 0)
        self.assertIn(f"127.0.0.1:{self.server.port} (--web.listen-address names another address)", second.log())


class CommandLine(unittest.TestCase):
    def run_server(self, *flags):
        with TemporaryDirectory("flags") as scratch:
            command = [
                RIMSTONE,
                f"--storage.tsdb.path={os.path.join(scratch, 'data')}",
                f"--web.listen-address=127.0.0.1:{free_port()}",
                *flags,
            ]
            # What should be refused exits by itself; what starts all the same is stopped.
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, timeout=20, check=False,
                )
            except subprocess.TimeoutExpired as e:
                self.fail(f"{flags} did not stop the start: {e.output}")
            return done.returncode, done.stdout

    def test_flags_that_do_nothing_yet(self):
        for flag in ("--enable-feature=native-histograms",):
            code, output = self.run_server(flag)
            self.assertEqual(code, 2, f"{flag}: {output}")
            self.assertIn(flag.split("=")[0], output)

    def test_bad_flags(self):
        for flag in (
            "--no.such.flag=1", "--query.timeout=soon", "--web.listen-address=nowhere",
            "--storage.memory-limit=much", "--wal.sync=sometimes", "--wal.io=magic",
            "--storage.shards=3", "--log.level=loud", "--query.max-samples=-1", "stray",
        ):
            code, output = self.run_server(flag)
            self.assertEqual(code, 2, f"{flag}: {output}")
            self.assertIn(flag.split("=")[0], output)

    def test_help_and_version(self):
        for command in ([RIMSTONE, "--help"], [RIMSTONE, "--version"], [RIMTOOL, "--help"],
                        [RIMTOOL, "load", "--help"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
            self.assertNotEqual(done.stdout.strip(), "")

    def test_help_lists_what_the_readme_lists(self):
        with open(os.path.join(REPOSITORY, "README.md"), encoding="utf-8") as f:
            rows = [line for line in f if line.startswith("| `--")]
        help_text = subprocess.run(
            [RIMSTONE, "--help"], capture_output=True, text=True, check=True
        ).stdout
        listed = {word.split("=")[0] for word in help_text.split() if word.startswith("--")}
        described = {row.split("`")[1] for row in rows}
        self.assertEqual(described, {w.rstrip(",.") for w in listed} - {"--help", "--version"})

    def test_load_without_a_server_says_why(self):
        url = f"http://127.0.0.1:{free_port()}/api/v1/write"
        done = subprocess.run([RIMTOOL, "load", f"--url={url}", "--nodes=1", "--scrapes=1", "--retry-for=0.1"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"rimtool load: {url}: Couldn't connect to server; trying again for 0.1 s\n", done.stderr)
        self.assertIn(f"rimtool load: gave up after retries: {url}: Couldn't", done.stderr)

    def test_tool_verbs(self):
        verbs = {
            ("nosuchverb",): 'rimtool: unknown verb "nosuchverb"',
            (): "usage: rimtool VERB",
            ("dump",): "usage: rimtool dump",
            ("load", "--no-such-option"): "rimtool load: unrecognized option",
            ("rules", "list", "--no-such-option"): "rimtool rules list: unrecognized option",
            ("query",): "rimtool query: not built yet (query a server; meanwhile promtool",
            ("check",): "meanwhile rimtool rules check",
        }
        for arguments, want in verbs.items():
            done = subprocess.run([RIMTOOL, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertIn(want, done.stderr)


class Configuration(unittest.TestCase):
    def start(self, text, expect_start):
        scratch = TemporaryDirectory("config")
        path = scratch.__enter__()
        self.addCleanup(scratch.__exit__, None, None, None)
        config = os.path.join(path, "rimstone.yml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(text)
        server = Server(os.path.join(path, "data"), f"--config.file={config}")
        self.addCleanup(server.__exit__, None, None, None)
        if expect_start:
            server.wait_ready()
            self.assertEqual(server.stop(STOP_LIMIT_S), 0)
        else:
            self.assertNotEqual(server.process.wait(PATIENCE_S), 0)
        return server.log()

    def test_keys_with_a_meaning(self):
        self.start("global:\n  external_labels:\n    cluster: west\n", True)
        self.start("", True)

    def test_other_sections_of_prometheus_get_one_warning_each(self):
        log = self.start(
            "global: {scrape_interval: 15s}\n"
            "scrape_configs:\n  - job_name: x\n    static_configs: [{targets: ['a:1']}]\n"
            "rule_files: [a.yml]\n",
            True,
        )
        for section in ("scrape_configs", "rule_files"):
            warnings = [line for line in log.splitlines() if section in line and "warn" in line.lower()]
            self.assertEqual(len(warnings), 1, log)

    def test_unknown_keys_are_refused_with_their_place(self):
        log = self.start("global:\n  external_labels: {}\n  extrenal_labels: {}\n", False)
        self.assertIn("extrenal_labels", log)
        self.assertRegex(log, r"\b3\b.*\b3\b")
        log = self.start("globl: {}\n", False)
        self.assertIn("globl", log)

    def test_broken_yaml(self):
        log = self.start("global: [\n", False)
        self.assertRegex(log, r"line|:\d+:\d+")

    def test_missing_file(self):
        with TemporaryDirectory("config") as path:
            server = Server(os.path.join(path, "data"), "--config.file=/nonexistent/x.yml")
            self.assertNotEqual(server.process.wait(PATIENCE_S), 0)
            self.assertIn("/nonexistent/x.yml", server.log())


if __name__ == "__main__":
    sys.exit(unittest.main())
