#!/usr/bin/env python3
"""What a query gets that wants too much: memory, samples, points, time. Texts and codes are those of
Prometheus 3.14 where it has the case.
"""

import json
import os
import signal
import sys
import threading
import time
import unittest

from harness import Server, TemporaryDirectory, now_ms, wait_until
from http_api import ServerCase

START_MS = now_ms() // 60000 * 60000 - 3600_000
SERIES = 400
# Far more work than any timeout here allows, within the default limits of samples and memory.
LONG = "max_over_time(sum_over_time(vector(time())[1000s:1s])[9000000s:1s])"


def fill(client):
    """`wide`: series of an hour; `narrow`: one of them."""
    samples = [(START_MS + i * 15000, float(i)) for i in range(240)]
    series = [({"__name__": "wide", "i": f"{i:04}"}, samples) for i in range(SERIES)]
    series.append(({"__name__": "narrow"}, samples))
    answer = client.write(series)
    assert answer.status in (200, 204), answer


def metric(client, name):
    """A sample of /metrics; name with its labels."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.split()[-1])
    raise AssertionError(f"no {name}")


class LimitCase(ServerCase):
    @classmethod
    def fill(cls):
        fill(cls.client)

    def range(self, query, step="1", **params):
        params.update(query=query, start=START_MS / 1000, end=START_MS / 1000 + 3600, step=step)
        return self.client.get("/api/v1/query_range", params)


class Memory(LimitCase):
    FLAGS = ("--query.max-memory=4MiB", "--query.max-total-memory=64MiB")

    def test_names_flag_limit_and_selector(self):
        answer = self.range('wide{i=~"0.*"} + on () group_left () narrow')
        self.assert_error(answer, 422, "execution",
                          "query needs too much memory: query memory (--query.max-memory): ",
                          "would pass the limit of 4194304 bytes",
                          '; the selector wide{i=~"0.*"} took most, ')

    def test_long_selectors_are_cut(self):
        answer = self.range('wide{i=~"0.*' + "|1" * 400 + '"}')
        self.assert_error(answer, 422, "execution", '; the selector wide{i=~"0.*|1', '|1... took most, ')

    def test_the_rest_goes_on(self):
        self.assertEqual(self.range("wide * 2").status, 422)
        self.assertEqual(len(self.assert_success(self.range("narrow"))["result"]), 1)


class TotalMemory(LimitCase):
    FLAGS = ("--query.max-memory=64MiB", "--query.max-total-memory=4MiB")

    def test_names_flag(self):
        self.assert_error(self.range("wide * 2"), 422, "execution",
                          "memory of all queries (--query.max-total-memory): ",
                          "would pass the limit of 4194304 bytes", "the selector wide took most, ")

    def test_endpoints_of_labels(self):
        # Its parameters alone need more than there is.
        answer = self.client.post_form("/api/v1/series", [("match[]", 'wide{i="%01000d"}' % i) for i in range(5000)])
        self.assert_error(answer, 422, "execution", "--query.max-total-memory")


class Samples(LimitCase):
    FLAGS = ("--query.max-samples=1000",)

    def test_as_prometheus(self):
        for query in ("wide", "sum_over_time(vector(time())[1000000s:1s])", "narrow[1h] offset -1h"):
            with self.subTest(query=query):
                answer = self.range(query) if "[1h]" not in query else self.client.get(
                    "/api/v1/query", {"query": "wide[1h]", "time": START_MS / 1000 + 3600})
                self.assert_error(answer, 422, "execution")
                self.assertEqual(answer.json["error"], "query processing would load too many samples"
                                 " into memory in query execution")


class TimeAndPoints(LimitCase):
    FLAGS = ("--query.timeout=400ms",)

    def test_points(self):
        for step, ok in (("0.328", True), ("0.327", False)):  # 10,975 and 11,009 steps
            answer = self.range("narrow > 1e9", step)
            if ok:
                self.assert_success(answer)
                continue
            self.assert_error(answer, 400, "bad_data")
            self.assertEqual(answer.json["error"], "exceeded maximum resolution of 11,000 points per"
                             " timeseries. Try decreasing the query resolution (?step=XX)")

    def test_of_the_server_and_of_the_request(self):
        for params in ({}, {"timeout": "100ms"}, {"timeout": "1h"}):
            with self.subTest(params=params):
                answer = self.client.get("/api/v1/query", dict(params, query=LONG))
                self.assert_error(answer, 503, "timeout")
                self.assertEqual(answer.json["error"], "query timed out in expression evaluation")


class RunningQueries(LimitCase):
    FLAGS = ("--web.enable-admin-api", "--query.max-concurrency=2")
    PATH = "/api/v1/rimstone/queries"

    def listed(self, state):
        return [q for q in self.get_data(self.PATH)["queries"] if q["state"] == state]

    def test_list_and_kill(self):
        answers = [None] * 3

        def ask(i):
            client = self.server.client()
            answers[i] = client.get("/api/v1/query", {"query": f"{LONG} + narrow * {i}"})
            client.close()

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(self.listed("running")) == 2 and self.listed("waiting"), "queries run")
        queries = self.listed("running") + self.listed("waiting")
        self.assertEqual([q["path"] for q in queries], ["/api/v1/query"] * 3)
        self.assertEqual({q["client"] for q in queries}, {"127.0.0.1"})
        self.assertEqual({q["query"] for q in queries}, {f"{LONG} + narrow * {i}" for i in range(3)})
        wait_until(lambda: all(q["memoryBytes"] > 1e6 and q["peakMemoryBytes"] >= q["memoryBytes"]
                               and q["ageSeconds"] > 0.1 for q in self.listed("running")), "memory is shown")
        self.assertEqual(metric(self.client, "prometheus_engine_queries"), 3)
        for q in reversed(queries):  # the one that waits first
            answer = self.client.request("DELETE", f"{self.PATH}?id={q['id']}")
            self.assertEqual((answer.status, answer.body), (204, b""))
        begin = time.monotonic()
        for thread in threads:
            thread.join()
        self.assertLess(time.monotonic() - begin, 10)
        for answer in answers:
            self.assert_error(answer, 499, "canceled")
            self.assertEqual(answer.json["error"], "query was killed through /api/v1/rimstone/queries")
        self.assertEqual(self.get_data(self.PATH), {"queries": []})
        self.assert_error(self.client.request("DELETE", f"{self.PATH}?id={queries[0]['id']}"), 404, "not_found")

    def test_bad_requests(self):
        for text in ("", "-1", "x", "1x", "9" * 30):
            self.assert_error(self.client.request("DELETE", f"{self.PATH}?id={text}"), 400, "bad_data",
                              'invalid parameter "id"')
        answer = self.client.post_form(self.PATH, {})
        self.assertEqual((answer.status, answer.headers["allow"]), (405, "GET, HEAD, DELETE, OPTIONS"))


class NoAdmin(LimitCase):
    def test_kill_is_off_and_the_list_on(self):
        self.assert_error(self.client.request("DELETE", "/api/v1/rimstone/queries?id=1"), 500, "unavailable",
                          "admin APIs disabled; --web.enable-admin-api enables them")
        self.assertEqual(self.get_data("/api/v1/rimstone/queries"), {"queries": []})


class Statistics(LimitCase):
    """Numbers as Prometheus 3.14 gives them for the same samples."""

    FLAGS = ("--enable-feature=promql-per-step-stats",)
    TIMINGS = ["evalTotalTime", "resultSortTime", "queryPreparationTime", "innerEvalTime", "execQueueTime",
               "execTotalTime"]

    def stats(self, query, stats="true", **params):
        start = START_MS / 1000
        params = params or {"start": start + 60, "end": start + 90, "step": "15"}
        path = "/api/v1/query" + ("" if "time" in params else "_range")
        data = self.get_data(path, query=query, stats=stats, **params)["stats"]
        self.assertEqual(list(data), ["timings", "samples"])
        self.assertEqual(list(data["timings"]), self.TIMINGS)
        self.assertTrue(all(v >= 0 for v in data["timings"].values()), data)
        return data["samples"]

    def test_samples(self):
        for query, total in (
            ("narrow", 3), ("wide", 3 * SERIES), ("sum(wide)", 3 * SERIES),
            ("sum_over_time(narrow[30s])", 6), ("sum_over_time(narrow[30s]) + narrow", 9),
            ("max_over_time(sum_over_time(narrow[30s])[60s:15s])", 12), ("narrow @ 0", 0), ("1", 0),
            (f"narrow @ {START_MS / 1000 + 15}", 3), ("max_over_time(sum(wide)[60s:15s])", 12),
        ):
            with self.subTest(query=query):
                samples = self.stats(query)
                self.assertEqual(samples["totalQueryableSamples"], total)
                self.assertEqual(list(samples), ["totalQueryableSamples", "samplesRead", "peakSamples"])
                by_step = self.stats(query, "all")
                self.assertEqual(by_step.pop("totalQueryableSamplesPerStep"),
                                 [[START_MS // 1000 + t, total // 3] for t in (60, 75, 90)])
                self.assertEqual(by_step["totalQueryableSamples"], total)

    def test_instant_queries(self):
        at = START_MS / 1000 + 60
        for query, total in (("wide", SERIES), ("narrow[60s]", 4), ("narrow[60s:15s]", 4)):
            samples = self.stats(query, "all", time=at)
            self.assertEqual(samples["totalQueryableSamples"], total, query)
            self.assertEqual(samples["totalQueryableSamplesPerStep"], [[START_MS // 1000 + 60, total]])

    def test_deprecated_values(self):
        for text, warned in (("true", False), ("all", False), ("1", True)):
            answer = self.client.get("/api/v1/query", {"query": "1", "stats": text})
            self.assertIn("stats", self.assert_success(answer))
            self.assertEqual(answer.json.get("warnings"), [
                'value "1" for parameter "stats" is deprecated and will be rejected in the next major'
                ' release, use "true" or "all"'] if warned else None)
        self.assertNotIn("stats", self.query("1", stats=""))

    def test_metrics(self):
        total, read = (f"prometheus_engine_query_samples{x}_total" for x in ("", "_read"))
        before = metric(self.client, total), metric(self.client, read)
        self.stats("sum_over_time(narrow[30s])")
        self.assertEqual(metric(self.client, total) - before[0], 6)
        self.assertGreater(metric(self.client, read), before[1])
        for piece in ("queue_time", "prepare_time", "inner_eval", "result_sort"):
            self.assertGreater(metric(
                self.client, 'prometheus_engine_query_duration_seconds_count{slice="%s"}' % piece), 0)


class QueryLog(unittest.TestCase):
    """Lines as Prometheus 3.14 writes them."""

    def serve(self, path, text):
        with open(os.path.join(path, "prometheus.yml"), "w", encoding="utf-8") as f:
            f.write(text)
        return Server(os.path.join(path, "data"), f"--config.file={path}/prometheus.yml", "--query.max-samples=10")

    def test_lines(self):
        with TemporaryDirectory("querylog") as path, \
                self.serve(path, "global:\n  query_log_file: log.json\n") as server:
            log_path = os.path.join(path, "log.json")

            def lines():
                with open(log_path, encoding="utf-8") as f:
                    return [json.loads(line) for line in f]

            server.wait_ready()
            client = server.client()
            client.get("/api/v1/query", {"query": "1 +"})  # not parsed, not logged
            client.get("/api/v1/query", {"query": "vector(1) # ü\n\\", "time": "-0.001"})
            client.get("/api/v1/query", {"query": '"a\\n\tü"', "time": "-0.001"})
            client.post_form("/api/v1/query_range", {
                "query": "vector(time())", "start": 1795983848.976, "end": 1795983868.9, "step": "1500ms"})
            self.assertEqual(len(lines()), 2)
            first, second = lines()
            self.assertEqual(list(first), ["time", "level", "source", "msg", "params", "stats", "spanID", "traceID",
                                           "httpRequest"])
            self.assertEqual((first["level"], first["msg"]), ("INFO", "promql query logged"))
            self.assertRegex(first["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(first["params"], {
                "end": "1969-12-31T23:59:59.999Z", "query": '"a\\n\tü"', "start": "1969-12-31T23:59:59.999Z",
                "step": 0})
            self.assertEqual(first["httpRequest"],
                             {"clientIP": "127.0.0.1", "method": "GET", "path": "/api/v1/query"})
            self.assertEqual(list(first["stats"]["timings"]), Statistics.TIMINGS)
            self.assertIn("totalQueryableSamples", first["stats"]["samples"])
            self.assertEqual(list(second)[5], "error")
            self.assertIn("too many samples", second["error"])
            self.assertEqual(second["params"], {
                "end": "2026-11-29T20:24:28.900Z", "query": "vector(time())", "start": "2026-11-29T20:24:08.976Z",
                "step": 1})
            self.assertEqual(second["httpRequest"]["method"], "POST")
            self.assertEqual(metric(client, "prometheus_engine_query_log_enabled"), 1)
            self.assertEqual(metric(client, "prometheus_engine_query_log_failures_total"), 0)
            # SIGHUP goes on in a new file, once the old one is moved away.
            os.rename(log_path, log_path + ".1")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: os.path.exists(log_path) and "opened anew" in server.log(), "the new file")

            def is_logged():
                client.get("/api/v1/query", {"query": "2"})
                return lines()

            self.assertEqual(wait_until(is_logged, "a line in the new file")[0]["params"]["query"], "2")
            client.close()

    def test_full_disk_and_failures_of_the_start(self):
        with TemporaryDirectory("querylog") as path, \
                self.serve(path, "global:\n  query_log_file: /dev/full\n") as server:
            server.wait_ready()
            client = server.client()
            self.assertEqual(client.get("/api/v1/query", {"query": "1"}).status, 200)
            self.assertEqual(metric(client, "prometheus_engine_query_log_failures_total"), 1)
            client.close()
        with TemporaryDirectory("querylog") as path, \
                self.serve(path, "global:\n  query_log_file: none/log.json\n") as server:
            self.assertNotEqual(server.process.wait(30), 0)
            self.assertIn(f"query log file {path}/none/log.json: No such file or directory", server.log())


if __name__ == "__main__":
    sys.exit(unittest.main())
