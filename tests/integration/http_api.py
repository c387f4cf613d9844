#!/usr/bin/env python3
"""The HTTP API as its clients see it: envelope, status codes, parameters, every endpoint, and what
bad input gets. One server per class of tests; each test writes series of its own.
"""

import dataclasses
import math
import os
import random
import socket
import struct
import sys
import time
import unittest

from harness import (
    Server,
    TemporaryDirectory,
    encode_label,
    encode_sample,
    encode_series,
    field_bytes,
    now_ms,
    snappy_literals,
    varint,
    wait_until,
    write_request,
    zstd_compress,
)
from native_histograms import Histogram

JSON = "application/json"
START_MS = now_ms() // 60000 * 60000 - 3600_000  # an hour ago, on a whole minute


class ServerCase(unittest.TestCase):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.scratch = TemporaryDirectory("http")
        path = cls.scratch.__enter__()
        cls.addClassCleanup(cls.scratch.__exit__, None, None, None)
        cls.server = Server(os.path.join(path, "data"), *cls.FLAGS)
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.server.wait_ready()
        cls.client = cls.server.client()
        cls.addClassCleanup(cls.client.close)
        cls.fill()

    @classmethod
    def fill(cls):
        """Writes what the class's tests read."""

    def assert_success(self, answer):
        self.assertEqual(answer.status, 200, answer)
        self.assertTrue(answer.headers["content-type"].startswith(JSON), answer.headers)
        self.assertEqual(answer.json["status"], "success")
        self.assertLessEqual(set(answer.json), {"status", "data", "warnings", "infos"})
        return answer.json["data"]

    def assert_error(self, answer, status, error_type, *pieces):
        self.assertEqual(answer.status, status, answer)
        self.assertTrue(answer.headers["content-type"].startswith(JSON), answer.headers)
        self.assertEqual(answer.json["status"], "error")
        self.assertEqual(answer.json["errorType"], error_type, answer)
        self.assertLessEqual(set(answer.json), {"status", "data", "errorType", "error"})
        for piece in pieces:
            self.assertIn(piece, answer.json["error"])

    def get_data(self, path, **params):
        return self.assert_success(self.client.get(path, params))

    def query(self, expression, **params):
        return self.get_data("/api/v1/query", query=expression, **params)

    def assert_written(self, answer):
        self.assertIn(answer.status, (200, 204), answer)
        self.assertEqual(answer.body, b"")


class ReadApi(ServerCase):
    @classmethod
    def fill(cls):
        series = []
        for job, instance in (("api", "a"), ("api", "b"), ("db", "c")):
            labels = {"__name__": "http_requests_total", "job": job, "instance": instance}
            samples = [(START_MS + i * 15000, float(i * 15)) for i in range(121)]
            series.append((labels, samples))
        for value in (math.nan, math.inf, -math.inf, 1e-7, 1e21, 0.1, -0.0, 5e-324):
            labels = {"__name__": "special", "value": repr(value)}
            series.append((labels, [(START_MS, value)]))
        series.append(({"__name__": "level"}, [(START_MS + i * 1000, float(i)) for i in range(60)]))
        series.append(({"__name__": "dotted.name", "a-b": 'qu"ote\\and\nnewline ü'}, [(START_MS, 1.0)]))
        answer = cls.client.write(series)
        assert answer.status in (200, 204), answer

    def at(self, offset_s=0):
        return START_MS / 1000 + offset_s

    # --- query

    def test_query_scalar(self):
        data = self.query("1+1", time="4")
        self.assertEqual(data, {"resultType": "scalar", "result": [4, "2"]})

    def test_query_string(self):
        data = self.query('"text"', time="4")
        self.assertEqual(data, {"resultType": "string", "result": [4, "text"]})

    def test_query_vector(self):
        data = self.query('http_requests_total{job="db"}', time=self.at(60))
        self.assertEqual(data["resultType"], "vector")
        metric = {"__name__": "http_requests_total", "job": "db", "instance": "c"}
        self.assertEqual(data["result"], [{"metric": metric, "value": [self.at(60), "60"]}])

    def test_query_matrix(self):
        data = self.query('http_requests_total{job="db"}[30s]', time=self.at(60))
        self.assertEqual(data["resultType"], "matrix")
        # Prometheus 3: the range is open on the left.
        values = [[self.at(45), "45"], [self.at(60), "60"]]
        self.assertEqual(data["result"][0]["values"], values)

    def test_query_empty_result_is_a_list(self):
        answer = self.client.get("/api/v1/query", {"query": "nothing_of_this_name"})
        self.assertEqual(self.assert_success(answer)["result"], [])

    def test_query_post_form(self):
        answer = self.client.post_form("/api/v1/query", {"query": "time()", "time": "12.5"})
        self.assertEqual(self.assert_success(answer)["result"], [12.5, "12.5"])

    def test_query_post_takes_parameters_from_url_and_body(self):
        answer = self.client.post_form("/api/v1/query?time=7", {"query": "time()"})
        self.assertEqual(self.assert_success(answer)["result"], [7, "7"])

    def test_query_time_rfc3339(self):
        for text, expected in (
            ("2015-07-01T20:10:51.781Z", 1435781451.781),
            ("2015-07-01T22:10:51.781+02:00", 1435781451.781),
            ("2015-07-01T20:10:51Z", 1435781451),
        ):
            self.assertEqual(self.query("time()", time=text)["result"][0], expected)

    def test_query_time_defaults_to_now(self):
        t = self.query("time()")["result"][0]
        self.assertLess(abs(t - time.time()), 60)

    def test_query_timestamps_have_no_needless_decimals(self):
        for text, expected in (("4", b"[4,"), ("4.5", b"[4.5,"), ("4.0625", b"[4.063,"),
                               ("1435781451.781", b"[1435781451.781,")):
            answer = self.client.get("/api/v1/query", {"query": "time()", "time": text})
            self.assertIn(expected, answer.body.replace(b" ", b""))

    def test_query_value_text(self):
        data = self.query("special", time=self.at())
        texts = {r["metric"]["value"]: r["value"][1] for r in data["result"]}
        self.assertEqual(
            texts,
            {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf", "1e-07": "1e-07", "1e+21": "1e+21",
             "0.1": "0.1", "-0.0": "-0", "5e-324": "5e-324"},
        )

    def test_query_utf8_names_and_escapes(self):
        data = self.query('{"dotted.name"}', time=self.at())
        metric = {"__name__": "dotted.name", "a-b": 'qu"ote\\and\nnewline ü'}
        self.assertEqual(data["result"][0]["metric"], metric)

    def test_query_limit(self):
        answer = self.client.get(
            "/api/v1/query", {"query": "http_requests_total", "time": self.at(60), "limit": "2"}
        )
        self.assertEqual(len(self.assert_success(answer)["result"]), 2)
        self.assertIn("results truncated due to limit", answer.json["warnings"])

    def test_query_lookback_delta(self):
        long_after = self.at(1800 + 240)
        self.assertEqual(len(self.query("http_requests_total", time=long_after)["result"]), 3)
        data = self.query("http_requests_total", time=long_after, lookback_delta="1m")
        self.assertEqual(data["result"], [])

    def test_query_annotations(self):
        answer = self.client.get(
            "/api/v1/query", {"query": "rate(level[5m])", "time": self.at(60)}
        )
        self.assert_success(answer)
        infos = answer.json["infos"]
        self.assertTrue(any("level" in text and "(1:6)" in text for text in infos), infos)

    def test_query_errors(self):
        for params, pieces in (
            ({}, ()),
            ({"query": ""}, ()),
            ({"query": "sum("}, ("1:",)),
            ({"query": "rate(x)"}, ("1:6",)),
            ({"query": "nosuchfunction(x)"}, ("nosuchfunction",)),
            ({"query": "x", "time": "tomorrow"}, ('invalid parameter "time"',)),
            ({"query": "x", "timeout": "soon"}, ('invalid parameter "timeout"',)),
            ({"query": "x", "limit": "-1"}, ('invalid parameter "limit"',)),
            ({"query": "x", "lookback_delta": "-1m"}, ("error parsing lookback delta duration",)),
        ):
            answer = self.client.get("/api/v1/query", params)
            self.assert_error(answer, 400, "bad_data", *pieces)

    def test_query_execution_error(self):
        expression = "http_requests_total * on(job) http_requests_total"
        answer = self.client.get("/api/v1/query", {"query": expression, "time": self.at(60)})
        self.assert_error(answer, 422, "execution", "many-to-many")

    def test_query_what_is_not_built_is_refused_by_name(self):
        # info() and the like come later; refused with their position, never answered wrong.
        for expression, name in (("info(x)", "info"), ("limitk(1, x)", "limitk")):
            answer = self.client.get("/api/v1/query", {"query": expression})
            self.assertIn(answer.status, (400, 422), answer)
            self.assertEqual(answer.json["status"], "error")
            self.assertIn(name, answer.json["error"])

    def test_query_too_long(self):
        answer = self.client.post_form("/api/v1/query", {"query": "1" + "+1" * (512 * 1024)})
        self.assertIn(answer.status, (400, 413, 422), answer)

    def test_query_too_deep(self):
        for expression in ("(" * 600 + "1" + ")" * 600, "-" * 600 + "x", "abs(" * 600 + "x" + ")" * 600):
            answer = self.client.post_form("/api/v1/query", {"query": expression})
            self.assertIn(answer.status, (400, 422), answer)
            self.assertRegex(answer.json["error"], r"\b1:\d+")

    def test_query_long_chain_is_no_depth(self):
        data = self.assert_success(
            self.client.post_form("/api/v1/query", {"query": "1" + "+1" * 5000})
        )
        self.assertEqual(data["result"][1], "5001")

    # --- query_range

    def range_query(self, **overrides):
        params = {"query": "http_requests_total", "start": self.at(), "end": self.at(60), "step": "15"}
        params.update(overrides)
        return self.client.get("/api/v1/query_range", params)

    def test_query_range(self):
        data = self.assert_success(self.range_query())
        self.assertEqual(data["resultType"], "matrix")
        self.assertEqual([r["metric"]["instance"] for r in data["result"]], ["a", "b", "c"])
        values = [[self.at(s), str(s)] for s in (0, 15, 30, 45, 60)]
        for series in data["result"]:
            self.assertEqual(series["values"], values)

    def test_query_range_of_a_scalar_is_a_matrix(self):
        data = self.assert_success(self.range_query(query="1"))
        self.assertEqual(data["result"][0]["metric"], {})
        self.assertEqual(len(data["result"][0]["values"]), 5)

    def test_query_range_post(self):
        params = {"query": "vector(1)", "start": "0", "end": "10", "step": "5s"}
        data = self.assert_success(self.client.post_form("/api/v1/query_range", params))
        self.assertEqual(data["result"], [{"metric": {}, "values": [[0, "1"], [5, "1"], [10, "1"]]}])

    def test_query_range_errors(self):
        for overrides in (
            {"start": "x"}, {"end": "x"}, {"step": "x"}, {"step": "0"}, {"step": "-5"},
            {"end": self.at(-1)}, {"query": "sum("}, {"query": "http_requests_total[1m]"},
        ):
            self.assert_error(self.range_query(**overrides), 400, "bad_data")

    def test_numbers_of_parameters(self):
        # Too large for a double is no number; the largest limit is one; a lookback below 0 is the default.
        self.assert_error(self.range_query(end="1e400"), 400, "bad_data", 'cannot parse "1e400"')
        self.assert_success(self.range_query(limit="9223372036854775807"))
        self.assert_error(self.range_query(limit="9223372036854775808"), 400, "bad_data", "out of range")
        self.assert_success(self.range_query(lookback_delta="-1"))
        answer = self.range_query(lookback_delta="x")
        self.assert_error(answer, 400, "bad_data")
        self.assertTrue(answer.json["error"].startswith("error parsing lookback delta duration: "), answer)

    def test_query_range_points(self):
        self.assert_success(self.range_query(query="1", start="0", end="11000", step="1"))
        answer = self.range_query(query="1", start="0", end="11001", step="1")
        self.assert_error(answer, 400, "bad_data", "11,000")

    # --- metadata endpoints

    def test_series(self):
        expected = [
            {"__name__": "http_requests_total", "job": "api", "instance": i} for i in ("a", "b")
        ]
        params = {"match[]": 'http_requests_total{job="api"}', "start": self.at(), "end": self.at(60)}
        for answer in (
            self.client.get("/api/v1/series", params),
            self.client.post_form("/api/v1/series", params),
        ):
            found = sorted(self.assert_success(answer), key=lambda labels: labels["instance"])
            self.assertEqual(found, expected)

    def test_series_union_of_selectors(self):
        data = self.get_data("/api/v1/series", **{"match[]": ['{job="db"}', '{instance=~"b|c"}']})
        self.assertEqual(sorted(labels["instance"] for labels in data), ["b", "c"])

    def test_series_limit(self):
        answer = self.client.get("/api/v1/series", {"match[]": "http_requests_total", "limit": "1"})
        self.assertEqual(len(self.assert_success(answer)), 1)
        self.assertIn("results truncated due to limit", answer.json["warnings"])

    def test_series_errors(self):
        for params in (
            {}, {"match[]": ""}, {"match[]": "sum("}, {"match[]": '{job=""}'},
            {"match[]": '{job=~".*"}'}, {"match[]": "x", "start": "x"},
            {"match[]": "x", "limit": "x"},
        ):
            self.assert_error(self.client.get("/api/v1/series", params), 400, "bad_data")

    def test_labels(self):
        names = ["__name__", "a-b", "instance", "job", "value"]
        self.assertEqual(self.get_data("/api/v1/labels"), names)
        self.assertEqual(self.assert_success(self.client.post_form("/api/v1/labels", {})), names)
        data = self.get_data("/api/v1/labels", **{"match[]": "special"})
        self.assertEqual(data, ["__name__", "value"])

    def test_labels_limit(self):
        answer = self.client.get("/api/v1/labels", {"limit": "2"})
        self.assertEqual(self.assert_success(answer), ["__name__", "a-b"])
        self.assertIn("results truncated due to limit", answer.json["warnings"])

    def test_labels_errors(self):
        for params in ({"match[]": "{"}, {"start": "x"}, {"limit": "-2"}):
            self.assert_error(self.client.get("/api/v1/labels", params), 400, "bad_data")

    def test_label_values(self):
        self.assertEqual(self.get_data("/api/v1/label/instance/values"), ["a", "b", "c"])
        self.assertEqual(self.get_data("/api/v1/label/nothing/values"), [])
        names = ["dotted.name", "http_requests_total", "level", "special"]
        self.assertEqual(self.get_data("/api/v1/label/__name__/values"), names)
        data = self.get_data("/api/v1/label/instance/values", **{"match[]": '{job="api"}'})
        self.assertEqual(data, ["a", "b"])
        data = self.get_data("/api/v1/label/instance/values", limit="1")
        self.assertEqual(data, ["a"])

    def test_label_values_of_a_utf8_name(self):
        expected = ['qu"ote\\and\nnewline ü']
        self.assertEqual(self.get_data("/api/v1/label/a-b/values"), expected)
        self.assertEqual(self.get_data("/api/v1/label/U__a_2d_b/values"), expected)

    def test_label_values_outside_the_data(self):
        data = self.get_data("/api/v1/label/job/values", start="10", end="20")
        self.assertEqual(data, [])

    def test_a_wrong_selector_is_named_for_series_only(self):
        for path, prefix in (("series", 'invalid parameter "match[]": '), ("labels", ""), ("label/job/values", "")):
            for selector, cause in (("x{", "1:3: parse error"), ("{}", "match[] must contain")):
                answer = self.client.get(f"/api/v1/{path}", {"match[]": selector})
                self.assert_error(answer, 400, "bad_data")
                self.assertTrue(answer.json["error"].startswith(prefix + cause), answer)

    def test_metadata_limits(self):
        self.assert_error(self.client.get("/api/v1/metadata", {"limit": "x"}), 400, "bad_data", "limit must be a number")
        self.assert_success(self.client.get("/api/v1/metadata", {"limit": "-1", "limit_per_metric": "2"}))

    def test_format_query(self):
        self.assertEqual(self.get_data("/api/v1/format_query", query="sum(a)by(b)/c"), "sum by (b) (a) / c")
        self.assert_error(self.client.get("/api/v1/format_query", {"query": "sum("}), 400, "bad_data",
                          'invalid parameter "query": 1:5: parse error: unclosed left parenthesis')

    def test_parse_query(self):
        tree = self.get_data("/api/v1/parse_query", query="-a")
        self.assertEqual((tree["type"], tree["op"], tree["expr"]["name"]), ("unaryExpr", "-", "a"))
        self.assert_error(self.client.post_form("/api/v1/parse_query", {}), 400, "bad_data", "no expression found")

    def test_exemplars_are_none(self):
        self.assertEqual(self.get_data("/api/v1/query_exemplars", query="a", start="1", end="2"), [])
        self.assertEqual(self.client.get("/api/v1/query_exemplars", {"query": "1"}).status, 204)
        self.assert_error(self.client.get("/api/v1/query_exemplars", {"query": "a", "start": "2", "end": "1"}), 400,
                          "bad_data", "end timestamp must not be before start timestamp")
        self.assert_error(self.client.get("/api/v1/query_exemplars", {"query": "a{"}), 400, "bad_data", "1:3: parse error")

    def test_metadata_is_an_empty_object(self):
        self.assertEqual(self.get_data("/api/v1/metadata"), {})
        self.assertEqual(self.get_data("/api/v1/metadata", limit="10", metric="x"), {})

    # --- status

    def test_buildinfo(self):
        data = self.get_data("/api/v1/status/buildinfo")
        for key in ("version", "revision", "branch", "buildUser", "buildDate", "goVersion"):
            self.assertIsInstance(data[key], str)
        self.assertNotIn("features", data)  # Grafana would take us for Mimir

    def test_tsdb(self):
        data = self.get_data("/api/v1/status/tsdb", limit="2")
        head = data["headStats"]
        self.assertGreaterEqual(head["numSeries"], 13)
        self.assertGreaterEqual(head["chunkCount"], head["numSeries"])
        self.assertLess(head["minTime"], head["maxTime"])
        for key in ("MetricName", "LabelValuePair"):
            rows = data[f"seriesCountBy{key}"]
            self.assertEqual(len(rows), 2)
            self.assertGreaterEqual(rows[0]["value"], rows[1]["value"])
        self.assertEqual(data["seriesCountByMetricName"][0], {"name": "special", "value": 8})
        self.assertEqual(data["seriesCountByLabelValuePair"][0], {"name": "__name__=special", "value": 8})
        everything = self.get_data("/api/v1/status/tsdb", limit="10000")
        values = {row["name"]: row["value"] for row in everything["labelValueCountByLabelName"]}
        sizes = {row["name"]: row["value"] for row in everything["memoryInBytesByLabelName"]}
        self.assertEqual((values["job"], sizes["job"]), (2, len("api" * 2 + "db")))
        self.assertEqual(head["numLabelPairs"], sum(values.values()))
        for limit, cause in (("0", "positive"), ("-1", "positive"), ("x", "positive"), ("10001", "exceed 10000")):
            self.assert_error(self.client.get("/api/v1/status/tsdb", {"limit": limit}), 400, "bad_data", cause)

    def test_walreplay(self):
        data = self.get_data("/api/v1/status/walreplay")
        for key in ("min", "max", "current"):
            self.assertIsInstance(data[key], int)

    def test_healthy_and_ready(self):
        for path in ("/-/healthy", "/-/ready"):
            answer = self.client.get(path)
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.headers["content-type"].startswith("text/plain"))
            self.assertEqual(self.client.request("HEAD", path).status, 200)

    def test_metrics(self):
        answer = self.client.get("/metrics")
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.headers["content-type"].startswith("text/plain"))
        names = {line.split("{")[0].split(" ")[0] for line in answer.text.splitlines() if line[:1] != "#"}
        for name in ("prometheus_build_info", "prometheus_tsdb_head_series", "process_cpu_seconds_total",
                     "process_resident_memory_bytes", "process_start_time_seconds"):
            self.assertIn(name, names)
        for line in answer.text.splitlines():
            if line.startswith("# TYPE"):
                self.assertRegex(line, r"^# TYPE \S+ (counter|gauge|histogram|summary|untyped)$")
            elif line and not line.startswith("#"):
                self.assertRegex(line, r'^[a-zA-Z_:][\w:]*(\{.*\})? (NaN|[+-]Inf|[-+\d.eE]+)$')

    # --- HTTP itself

    def test_unknown_paths(self):
        for path in ("/api/v1/nothing", "/api/v2/query", "/nothing", "/api/v1/label/x"):
            self.assertEqual(self.client.get(path).status, 404, path)

    def test_methods(self):
        for method, path in (("PUT", "/api/v1/query"), ("DELETE", "/api/v1/query"),
                             ("GET", "/api/v1/write"), ("POST", "/api/v1/label/x/values")):
            self.assertEqual(self.client.request(method, path).status, 405, (method, path))

    def test_what_grafana_asks_first(self):
        self.query("1+1", time="4")
        self.get_data("/api/v1/status/buildinfo")
        minute = START_MS // 60000 * 60
        self.get_data("/api/v1/labels", limit="40000", start=minute, end=minute + 3600)
        self.get_data("/api/v1/label/__name__/values", limit="40000", start=minute, end=minute + 3600)
        self.get_data("/api/v1/metadata", limit="40000")

    def test_malformed_http(self):
        for text in (b"nonsense\r\n\r\n", b"GET /api/v1/query?query=%zz HTTP/1.1\r\nHost: x\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
                s.sendall(text)
                s.shutdown(socket.SHUT_WR)
                s.recv(4096)
        self.query("1")  # the server is still there


class LongLabels(ServerCase):
    """Labels so long that pieces of a streamed answer end between a row's labels and its values."""

    def test_query_range_that_begins_without_values(self):
        series = [({"__name__": "late", "pad": "x" * 4000, "i": str(i)}, [(START_MS + 60_000, float(i))])
                  for i in range(200)]
        self.assert_written(self.client.write(series))
        begin = START_MS / 1000
        params = {"query": "late", "start": begin, "end": begin + 75, "step": "15"}
        data = self.assert_success(self.client.get("/api/v1/query_range", params))
        self.assertEqual(len(data["result"]), 200)
        for row in data["result"]:
            self.assertEqual(row["values"], [[begin + s, row["metric"]["i"]] for s in (60, 75)])


class WriteApi(ServerCase):
    def name(self):
        return "t_" + self.id().rsplit(".", 1)[-1]

    def labels(self, **more):
        return {"__name__": self.name(), **more}

    def stored(self, selector=None):
        """{(sorted label pairs): [(t_ms, value text)]}"""
        data = self.query(f"{selector or self.name()}[2h]", time=START_MS / 1000 + 3600)
        return {
            tuple(sorted(r["metric"].items())): [(round(t * 1000), v) for t, v in r["values"]]
            for r in data["result"]
        }

    def stored_one(self):
        stored = self.stored()
        self.assertEqual(len(stored), 1, stored)
        return next(iter(stored.values()))

    def refused_counter(self, reason):
        for line in self.client.get("/metrics").text.splitlines():
            if line.startswith(f'rimstone_samples_refused_total{{reason="{reason}"}}'):
                return float(line.split()[-1])
        return 0.0

    def assert_refused(self, series, reason, count=1, of=None):
        """One reason: the first line, a line for each sample, and the counter."""
        before = self.refused_counter(reason)
        body = series if isinstance(series, bytes) else write_request(series)
        answer = self.client.write_body(snappy_literals(body))
        self.assertEqual(answer.status, 400, answer)
        self.assertTrue(answer.headers["content-type"].startswith("text/plain"), answer.headers)
        lines = answer.text.splitlines()
        total = of if of is not None else count
        self.assertEqual(lines[0], f"{count} of {total} samples refused ({reason}={count})")
        self.assertEqual(len(lines) - 1, min(count, 10), answer.text)
        for line in lines[1:]:
            self.assertRegex(line, rf"^{reason}: \{{.*\}} -?\d+$")
        self.assertEqual(self.refused_counter(reason), before + count)
        return lines

    # --- what is accepted

    def test_plain(self):
        self.assert_written(self.client.write([(self.labels(), [(START_MS, 1.5), (START_MS + 1, 2.0)])]))
        self.assertEqual(self.stored_one(), [(START_MS, "1.5"), (START_MS + 1, "2")])

    def test_empty_request(self):
        self.assert_written(self.client.write([]))

    def test_no_headers_mean_snappy_and_version_one(self):
        body = snappy_literals(write_request([(self.labels(), [(START_MS, 1.0)])]))
        self.assert_written(self.client.write_body(body, {}))
        self.assertEqual(self.stored_one(), [(START_MS, "1")])

    def test_zstd(self):
        body = zstd_compress(write_request([(self.labels(), [(START_MS, 1.0)])]))
        headers = {"Content-Encoding": "zstd", "Content-Type": "application/x-protobuf",
                   "X-VictoriaMetrics-Remote-Write-Version": "1"}
        self.assert_written(self.client.write_body(body, headers))
        self.assertEqual(self.stored_one(), [(START_MS, "1")])

    def test_content_type_naming_version_one(self):
        body = snappy_literals(write_request([(self.labels(), [(START_MS, 1.0)])]))
        headers = {"Content-Encoding": "snappy",
                   "Content-Type": "application/x-protobuf;proto=prometheus.WriteRequest"}
        self.assert_written(self.client.write_body(body, headers))

    def test_chunked_upload(self):
        body = snappy_literals(write_request([(self.labels(), [(START_MS, 1.0)])]))
        self.client.close()
        pieces = iter([body[:10], body[10:]])
        answer = self.client.request("POST", "/api/v1/write", pieces)  # chunked
        self.assert_written(answer)

    def test_unsorted_labels_are_sorted(self):
        backwards = [("z", "1"), ("a", "2"), ("__name__", self.name())]
        self.assert_written(self.client.write([(backwards, [(START_MS, 1.0)])]))
        self.assert_written(self.client.write([(self.labels(z="1", a="2"), [(START_MS + 1, 2.0)])]))
        self.assertEqual(len(self.stored_one()), 2)

    def test_label_with_an_empty_value_is_left_out(self):
        self.assert_written(self.client.write([(self.labels(a="", b="1"), [(START_MS, 1.0)])]))
        self.assert_written(self.client.write([(self.labels(b="1"), [(START_MS + 1, 2.0)])]))
        self.assertEqual(len(self.stored_one()), 2)

    def test_odd_but_valid_protobuf(self):
        name = encode_label("__name__", self.name())
        a, b = encode_label("a", "1"), encode_label("b", "2")
        one, two = encode_sample(START_MS, 1.0), encode_sample(START_MS + 1, 2.0)
        value_first = field_bytes(1, field_bytes(2, b"1") + field_bytes(1, b"a"))
        long_tag = varint(1 << 3 | 2, size=5)
        long_label = long_tag + varint(len(a) - 2, size=6) + a[2:]
        unknown = field_bytes(15, b"later") + varint(14 << 3) + varint(7) + b"\x6d1234" + b"\x6112345678"
        long_time = field_bytes(2, b"\x09" + struct.pack("<d", 3.0) + b"\x10" + varint(START_MS + 2, size=10))
        bodies = [
            name + a + b + one,
            name + one + a + two + b,  # labels split around samples
            name + value_first + b + one + two,
            name + long_label + b + two,
            unknown + name + a + unknown + b + unknown + two + unknown,
            name + a + b + long_time,
        ]
        for body in bodies:
            request = unknown + field_bytes(1, body) + unknown
            self.assert_written(self.client.write_body(snappy_literals(request)))
        self.assertEqual(self.stored_one(), [(START_MS, "1"), (START_MS + 1, "2"), (START_MS + 2, "3")])

    def test_special_values_and_staleness(self):
        stale = struct.pack("<Q", 0x7FF0000000000002)
        nan = struct.pack("<Q", 0x7FF8000000000001)
        self.assert_written(self.client.write([(self.labels(), [
            (START_MS, math.inf), (START_MS + 1, -math.inf), (START_MS + 2, nan), (START_MS + 3, stale)])]))
        # A range selector leaves staleness markers out; an instant one ends the series there.
        self.assertEqual([v for _, v in self.stored_one()], ["+Inf", "-Inf", "NaN"])
        data = self.query(self.name(), time=START_MS / 1000 + 1)
        self.assertEqual(data["result"], [])

    def test_exemplars_and_metadata_are_skipped(self):
        exemplar = field_bytes(3, encode_label("trace_id", "x") + b"\x11" + struct.pack("<d", 1.0)
                               + b"\x18" + varint(START_MS))
        metadata = field_bytes(3, b"\x08\x01" + field_bytes(2, b"family") + field_bytes(4, b"help"))
        labels = b"".join(encode_label(n, v) for n, v in sorted(self.labels().items()))
        request = field_bytes(1, labels + encode_sample(START_MS, 1.0) + exemplar) + metadata
        self.assert_written(self.client.write_body(snappy_literals(request)))
        self.assertEqual(self.stored_one(), [(START_MS, "1")])

    def test_histograms(self):
        whole = Histogram(schema=0, count=6, sum=12.5, zero_threshold=0.5, zero_count=1, positive=((1, 2), (3, 3)))
        rate = dataclasses.replace(whole, count=6.5, zero_count=1.5, is_float=True)
        self.assert_written(self.client.write([(self.labels(), [(START_MS, whole), (START_MS + 1, rate)])]))
        self.assert_written(self.client.write([(self.labels(), [(START_MS, whole)])]))  # a repeat
        data = self.query(f"{self.name()}[2h]", time=START_MS / 1000 + 3600)
        (row,) = data["result"]
        self.assertEqual([(round(t * 1000), h["count"], h["sum"]) for t, h in row["histograms"]],
                         [(START_MS, "6", "12.5"), (START_MS + 1, "6.5", "12.5")])
        self.assertEqual(row["histograms"][0][1]["buckets"],
                         [[3, "-0.5", "0.5", "1"], [0, "1", "2", "2"], [0, "4", "8", "3"]])
        self.assert_refused([(self.labels(), [(START_MS, dataclasses.replace(whole, sum=1.0))])], "duplicate_timestamp")
        self.assert_refused([(self.labels(), [(START_MS, 12.5)])], "duplicate_timestamp")

    def test_invalid_histogram(self):
        """It is refused alone, and the text says why."""
        good = Histogram(schema=0, count=1, sum=1.0, positive=((1, 1),))
        before = self.refused_counter("invalid_histogram")
        answer = self.client.write([(self.labels(), [(START_MS, good)]),
                                    (self.labels(i="1"), [(START_MS, dataclasses.replace(good, count=2))])])
        self.assertEqual(answer.status, 400, answer)
        lines = answer.text.splitlines()
        self.assertEqual(lines[0], "1 of 2 samples refused (invalid_histogram=1)")
        self.assertRegex(lines[1], rf"^invalid_histogram: \{{.*\}} {START_MS}: 1 observations found in buckets, but ")
        self.assertEqual(self.refused_counter("invalid_histogram"), before + 1)
        data = self.query(f"{self.name()}[2h]", time=START_MS / 1000 + 3600)
        self.assertEqual(len(data["result"]), 1)

    def test_whole_request_again(self):
        series = [(self.labels(i=str(i)), [(START_MS + s, float(s)) for s in range(300)]) for i in range(20)]
        self.assert_written(self.client.write(series))
        before = self.stored()
        self.assert_written(self.client.write(series))
        self.assertEqual(self.stored(), before)

    # --- what is refused

    def test_older_than_the_newest(self):
        self.assert_written(self.client.write([(self.labels(), [(START_MS, 1.0), (START_MS + 10, 2.0)])]))
        self.assert_written(self.client.write([(self.labels(), [(START_MS + 5, 1.5)])]))
        stored = [(START_MS, "1"), (START_MS + 5, "1.5"), (START_MS + 10, "2")]
        self.assertEqual(self.stored_one(), stored)
        self.assert_written(self.client.write([(self.labels(), [(START_MS + 5, 1.5)])]))
        self.assert_refused([(self.labels(), [(START_MS + 5, 7.0)])], "duplicate_timestamp")
        self.assertEqual(self.stored_one(), stored)

    def test_another_value_for_a_timestamp(self):
        self.assert_written(self.client.write([(self.labels(), [(START_MS, 1.0)])]))
        self.assert_refused([(self.labels(), [(START_MS, 2.0)])], "duplicate_timestamp")
        self.assertEqual(self.stored_one(), [(START_MS, "1")])

    def test_minus_zero_is_another_value(self):
        self.assert_written(self.client.write([(self.labels(), [(START_MS, 0.0)])]))
        self.assert_refused([(self.labels(), [(START_MS, -0.0)])], "duplicate_timestamp")

    def test_no_metric_name(self):
        self.assert_refused([({"a": "1"}, [(START_MS, 1.0)])], "invalid_labels")
        self.assert_refused([({"__name__": "", "a": "1"}, [(START_MS, 1.0)])], "invalid_labels")
        self.assert_refused([({}, [(START_MS, 1.0)])], "invalid_labels")

    def test_empty_label_name(self):
        self.assert_refused([(self.labels() | {"": "x"}, [(START_MS, 1.0)])], "invalid_labels")

    def test_duplicate_label(self):
        twice = [("__name__", self.name()), ("a", "1"), ("a", "1")]
        self.assert_refused([(twice, [(START_MS, 1.0)])], "duplicate_label")
        apart = [("a", "1"), ("__name__", self.name()), ("a", "2")]
        self.assert_refused([(apart, [(START_MS, 1.0)])], "duplicate_label")

    def test_invalid_utf8(self):
        for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\xc3"):
            self.assert_refused([([("__name__", self.name()), ("a", bad)], [(START_MS, 1.0)])], "invalid_utf8")
            self.assert_refused([([("__name__", self.name()), (bad, "a")], [(START_MS, 1.0)])], "invalid_utf8")
        self.assertEqual(self.stored(), {})

    def test_too_far_in_the_future(self):
        self.assert_refused([(self.labels(), [(now_ms() + 11 * 60_000, 1.0)])], "too_far_in_future")
        self.assert_written(self.client.write([(self.labels(), [(now_ms() + 8 * 60_000, 1.0)])]))

    def test_the_rest_is_stored(self):
        lines = self.assert_refused(
            [
                (self.labels(i="1"), [(START_MS, 1.0), (START_MS + 1, 2.0)]),
                ([("__name__", self.name()), ("a", "1"), ("a", "1")], [(START_MS, 1.0), (START_MS + 1, 1.0)]),
                (self.labels(i="2"), [(START_MS, 3.0)]),
            ],
            "duplicate_label", count=2, of=5,
        )
        self.assertIn(str(START_MS), lines[1])
        self.assertEqual(sum(map(len, self.stored().values())), 3)

    def test_several_reasons(self):
        answer = self.client.write([
            (self.labels(), [(START_MS, 1.0)]),
            ({"a": "1"}, [(START_MS, 1.0)]),
            (self.labels(i="1"), [(now_ms() + 3600_000, 1.0)]),
            ({"b": "1"}, [(START_MS, 1.0)]),
        ])
        self.assertEqual(answer.status, 400)
        first = answer.text.splitlines()[0]
        self.assertTrue(first.startswith("3 of 4 samples refused ("), first)
        inside = set(first[first.index("(") + 1 : -1].split(", "))
        self.assertEqual(inside, {"invalid_labels=2", "too_far_in_future=1"})

    def test_at_most_ten_lines(self):
        self.assert_written(self.client.write([(self.labels(), [(START_MS + i, 1.0) for i in range(50)])]))
        self.assert_refused([(self.labels(), [(START_MS + i, 2.0) for i in range(50)])], "duplicate_timestamp", count=50)

    # --- bodies that are not a request

    def refused_body(self, body, headers=None, status=400):
        answer = self.client.write_body(body, headers)
        self.assertEqual(answer.status, status, answer)
        self.assertTrue(answer.headers["content-type"].startswith("text/plain"), answer.headers)
        self.assertNotEqual(answer.text.strip(), "")
        return answer

    def test_bad_content_types(self):
        body = snappy_literals(write_request([(self.labels(), [(START_MS, 1.0)])]))
        for kind in ("application/json", "image/png", "text/plain",
                     "application/x-protobuf;proto=io.prometheus.write.v2.Request",
                     "application/x-protobuf;proto=something.Else"):
            answer = self.refused_body(body, {"Content-Encoding": "snappy", "Content-Type": kind}, 415)
            self.assertIn("Prometheus: protobuf_message: prometheus.WriteRequest", answer.text)
        self.assertEqual(self.stored(), {})

    def test_bad_content_encodings(self):
        body = snappy_literals(write_request([(self.labels(), [(START_MS, 1.0)])]))
        for encoding in ("gzip", "deflate", "br", "lz4"):
            self.refused_body(body, {"Content-Encoding": encoding, "Content-Type": "application/x-protobuf"}, 415)
        self.assertEqual(self.stored(), {})

    def test_corrupt_snappy(self):
        good = snappy_literals(write_request([(self.labels(), [(START_MS, 1.0)])]))
        self.refused_body(b"")
        self.refused_body(good[:-1])
        self.refused_body(good + b"x")
        self.refused_body(b"\xff" * 20)
        # A copy from before the start of the output.
        self.refused_body(varint(8) + b"\x01\x01")
        self.assertEqual(self.stored(), {})

    def test_lying_length(self):
        body = write_request([(self.labels(), [(START_MS, 1.0)])])
        piece = snappy_literals(body)[len(varint(len(body))) :]
        for claim in (len(body) + 1, len(body) - 1, 30 * 1024 * 1024):
            self.refused_body(varint(claim) + piece)
        for claim in (33 * 1024 * 1024, 1 << 31, (1 << 32) - 1):
            self.refused_body(varint(claim) + piece, status=413)
        self.assertEqual(self.stored(), {})

    def test_corrupt_zstd(self):
        headers = {"Content-Encoding": "zstd", "Content-Type": "application/x-protobuf"}
        good = zstd_compress(write_request([(self.labels(), [(START_MS, 1.0)])]))
        for body in (b"", good[:-1], good[4:], b"\x28\xb5\x2f\xfd" + b"\xff" * 30):
            self.refused_body(body, headers)
        self.assertEqual(self.stored(), {})

    def test_zstd_bomb(self):
        headers = {"Content-Encoding": "zstd", "Content-Type": "application/x-protobuf"}
        self.refused_body(zstd_compress(bytes(64 * 1024 * 1024)), headers, 413)

    def test_corrupt_protobuf(self):
        good = write_request([(self.labels(), [(START_MS, 1.0)])])
        for body in (
            good[:-1],  # truncated in a sample
            good[:5],
            b"\x0a\xff\xff\xff\xff\x0f",  # a series of 4 GiB
            b"\x0a\x05\x0a\x7f",  # a label longer than its series
            b"\x0b" + good,  # a group
            b"\xff" * 11,  # a varint without an end
            b"\x00\x01",  # field number 0
            field_bytes(1, b"\x12\x02\x09\x00"),  # a value of one byte
        ):
            self.refused_body(snappy_literals(body))
        self.assertEqual(self.stored(), {})

    def test_a_bad_series_late_in_a_request_stores_nothing(self):
        good = write_request([(self.labels(i=str(i)), [(START_MS, 1.0)]) for i in range(100)])
        self.refused_body(snappy_literals(good + b"\x0a\xff\x01\x0a"))
        self.assertEqual(self.stored(), {})

    def test_random_damage_never_hurts(self):
        rng = random.Random(7)
        good = write_request([(self.labels(i=str(i)), [(START_MS, float(i))]) for i in range(5)])
        for _ in range(300):
            damaged = bytearray(snappy_literals(good))
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            answer = self.client.write_body(bytes(damaged))
            self.assertIn(answer.status, (200, 204, 400, 413), answer)
        self.query("1")


class SmallLimits(ServerCase):
    FLAGS = ("--web.max-request-size=1MiB", "--query.max-samples=1000", "--query.timeout=1s")

    def test_oversized_body(self):
        padding = field_bytes(15, bytes(1024 * 1024))
        answer = self.client.write_body(snappy_literals(padding))
        self.assertEqual(answer.status, 413, answer)
        self.assert_written(self.client.write_body(snappy_literals(padding[: 0])))

    def test_oversized_upload_is_not_read_to_its_end(self):
        # 64 MiB announced; the answer comes, or the connection closes, before it has been sent.
        with socket.create_connection(("127.0.0.1", self.server.port), 30) as s:
            s.sendall(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n")
            sent = 0
            try:
                while sent < 64 * 1024 * 1024:
                    s.sendall(bytes(65536))
                    sent += 65536
                answer = s.recv(4096)
                self.assertIn(b" 413 ", answer.split(b"\r\n")[0])
            except (BrokenPipeError, ConnectionResetError):
                self.assertLess(sent, 64 * 1024 * 1024)

    def test_samples_of_a_query(self):
        samples = [(START_MS + i, float(i)) for i in range(2000)]
        self.assert_written(self.client.write([({"__name__": "many"}, samples)]))
        # What counts is held at once: a result, or what a sort or a join waits for.
        at = START_MS / 1000 + 60
        answer = self.client.get("/api/v1/query", {"query": "many[1h]", "time": at})
        self.assert_error(answer, 422, "execution", "too many samples")
        params = {"query": "many", "start": at, "end": at + 250, "step": "0.2"}
        answer = self.client.get("/api/v1/query_range", params)
        self.assert_error(answer, 422, "execution", "too many samples")
        self.query("many[500ms]", time=at)

    def test_timeout_of_a_query(self):
        # Ten thousand steps of a subquery of thousands each: far beyond a second of work.
        params = {"query": "sum(sum_over_time(vector(time())[10000s:1s]))", "start": "0", "end": "10000",
                  "step": "1", "timeout": "50ms"}
        answer = self.client.get("/api/v1/query_range", params)
        self.assertIn((answer.status, answer.json["errorType"]), ((503, "timeout"), (422, "execution")))


class LittleMemory(ServerCase):
    """Past 90 % of the memory limit writes get 503 with Retry-After, and queries go on."""

    FLAGS = ("--storage.memory-limit=64MiB",)

    def test_refuses_writes_and_answers_queries(self):
        # Of this moment: series that have been silent for ten minutes leave memory.
        refused, now_ms = None, int(time.time() * 1000)
        for batch in range(2000):
            series = [
                ({"__name__": "filler", "i": str(batch * 500 + i), "pad": "x" * 100}, [(now_ms, 1.0)])
                for i in range(500)
            ]
            answer = self.client.write(series)
            if answer.status == 503:
                refused = answer
                break
            self.assert_written(answer)
        self.assertIsNotNone(refused, "a million series fitted into 64 MiB")
        self.assertGreater(int(refused.headers["retry-after"]), 0)
        # Also while a seal that memory has called for is at work: the query then waits for room.
        for _ in range(20):
            answer = self.client.get("/api/v1/query", {"query": 'filler{i="0"}', "time": now_ms / 1000})
            self.assertEqual(len(self.assert_success(answer)["result"]), 1)
        self.assertEqual(self.client.get("/-/healthy").status, 200)


if __name__ == "__main__":
    sys.exit(unittest.main())
