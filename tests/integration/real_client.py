#!/usr/bin/env python3
"""A real Prometheus as client and as judge.

Debian's Prometheus 2.42 scrapes itself and Rimstone every second and remote-writes to Rimstone.
Then it stops scraping, and once both stores hold the same samples, both are asked the same
questions: labels, timestamps and order are equal, values to 1e-12 relative.

Rimstone follows PromQL 3. Where 2.42 differs the questions step aside: its ranges are closed on the
left, so instants are chosen whose milliseconds no sample has (ranges, offsets and steps are whole
seconds), nor are they a multiple of a subquery's step; and its rate() extrapolates otherwise over
a counter that begins inside the range, so ranges lie inside the time all series have existed.
"""

import math
import os
import sys
import time

from harness import Server, TemporaryDirectory, wait_until
from peers import Prometheus, wait_for_same_samples

SCRAPED_S = float(os.environ.get("SCRAPED_S", "60"))  # how long samples are collected
RANGE_MAX_S = 30  # the longest range, offset and subquery of the questions together reach less far
TOLERANCE = 1e-12

REMOTE_WRITE = """
remote_write:
  - url: http://127.0.0.1:RIMSTONE/api/v1/write
    queue_config: {batch_send_deadline: 500ms}
"""
SCRAPE = """
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: prometheus
    static_configs:
      - {targets: ['127.0.0.1:PORT'], labels: {team: blue}}
  - job_name: rimstone
    static_configs:
      - {targets: ['127.0.0.1:RIMSTONE'], labels: {team: green}}
"""

# What dashboards and alerts ask, then one of each kind of operator and function.
QUESTIONS = """
up
up{job="prometheus"} == 1
{__name__=~"process_.+", job!="nothing"}
process_resident_memory_bytes{job=~"prom.*|rim.*"} / 1024 / 1024
rate(process_cpu_seconds_total[20s])
irate(process_cpu_seconds_total[20s])
increase(prometheus_http_requests_total{handler="/metrics"}[30s])
sum by (job) (rate(process_cpu_seconds_total[20s]))
sum without (instance, team) (process_open_fds)
sum(rate(prometheus_http_requests_total{handler="/metrics"}[20s])) by (job, code)
histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket{handler="/metrics"}[30s])))
histogram_quantile(0.5, prometheus_http_request_duration_seconds_bucket{handler="/metrics"})
sum(rate(prometheus_http_request_duration_seconds_sum{handler="/metrics"}[20s])) / sum(rate(prometheus_http_request_duration_seconds_count{handler="/metrics"}[20s]))
topk(2, process_resident_memory_bytes)
bottomk(1, process_resident_memory_bytes)
avg_over_time(process_resident_memory_bytes[30s])
max_over_time(go_goroutines[30s])
min_over_time(go_goroutines[30s])
sum_over_time(up[20s])
count_over_time(up[20s])
last_over_time(process_resident_memory_bytes[10s])
present_over_time(up[10s])
quantile_over_time(0.75, go_goroutines[30s])
stddev_over_time(go_goroutines[30s])
stdvar_over_time(go_goroutines[30s])
delta(go_memstats_heap_alloc_bytes[20s])
idelta(go_memstats_heap_alloc_bytes[20s])
deriv(go_memstats_alloc_bytes_total[20s])
predict_linear(go_memstats_alloc_bytes_total[20s], 600)
changes(go_memstats_heap_alloc_bytes[20s])
resets(go_memstats_heap_alloc_bytes[20s])
absent(up)
absent(nothing{job="x"})
absent_over_time(nothing[10s])
label_replace(up, "host", "$1", "instance", "(.*):.*")
label_join(up, "both", "-", "job", "team")
process_resident_memory_bytes offset 7s
rate(process_cpu_seconds_total[10s] offset 5s)
go_goroutines @ INSTANT
sum_over_time(go_goroutines[10s] @ INSTANT)
max_over_time(rate(process_cpu_seconds_total[10s])[15s:3s])
avg_over_time((sum by (job) (process_open_fds))[20s:1s])
min_over_time(go_goroutines[15s:4s] offset 2s)
count_values("value", up)
count_values without (instance) ("v", process_max_fds)
count(up)
count by (team) ({job!=""})
group(up) by (job)
min(process_resident_memory_bytes)
max by (team) (process_resident_memory_bytes)
avg(process_resident_memory_bytes)
quantile(0.3, go_memstats_mallocs_total or process_open_fds)
stddev(process_open_fds)
stdvar(process_open_fds)
process_resident_memory_bytes / on (instance) process_virtual_memory_bytes
process_open_fds / ignoring (team) process_max_fds * 100
process_open_fds * on (job) group_left (team) up
up * on (job) group_right (code) prometheus_http_requests_total{handler="/metrics"}
process_open_fds > bool 10
process_open_fds > 3
process_open_fds and on (job) up{job="prometheus"}
process_open_fds or up
up unless on (job) process_open_fds > 1e9
up + 2 * 3 ^ 2 % 4 - 1
-process_open_fds
process_open_fds ^ 0.5 atan2 up
time()
time() - process_start_time_seconds
timestamp(up)
vector(1)
scalar(sum(up))
clamp(process_open_fds, 5, 20)
clamp_min(process_open_fds, 12)
clamp_max(process_open_fds, 12)
round(process_cpu_seconds_total, 0.1)
ceil(process_cpu_seconds_total)
floor(process_cpu_seconds_total)
abs(-process_open_fds)
sgn(process_open_fds - 10)
sqrt(process_open_fds)
exp(up)
ln(process_resident_memory_bytes)
log2(process_resident_memory_bytes)
log10(process_resident_memory_bytes)
sin(process_open_fds) + cos(process_open_fds)
day_of_week()
day_of_month(process_start_time_seconds)
hour()
minute(process_start_time_seconds)
month()
year()
days_in_month()
day_of_year(process_start_time_seconds)
pi()
sort(process_resident_memory_bytes)
sort_desc(process_resident_memory_bytes)
{__name__="up", team="green"}
""".strip().splitlines()
EMPTY_ON_PURPOSE = {"absent(up)"}
ORDERED = ("topk", "bottomk", "sort")


def ask(client, path, params):
    answer = client.post_form(path, params)
    if answer.status != 200:
        raise AssertionError(f"{path} {params}: {answer}")
    return answer.json["data"]


def same_value(a, b):
    if a == b:
        return True
    x, y = float(a), float(b)
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return abs(x - y) <= TOLERANCE * max(abs(x), abs(y))


def rows(data):
    """[(labels, [[t, value text], ...])] of any result type."""
    if data["resultType"] in ("scalar", "string"):
        return [((), [data["result"]])]
    return [
        (tuple(sorted(r["metric"].items())), r["values"] if "values" in r else [r["value"]])
        for r in data["result"]
    ]


def differences(theirs, ours, ordered):
    """Texts, one for each difference between two answers."""
    found = []
    if theirs["resultType"] != ours["resultType"]:
        return [f"type {ours['resultType']}, expected {theirs['resultType']}"]
    a, b = rows(theirs), rows(ours)
    if ordered and [key for key, _ in a] != [key for key, _ in b]:
        found.append(f"order {[dict(k) for k, _ in b]}, expected {[dict(k) for k, _ in a]}")
    a, b = dict(a), dict(b)
    for key in sorted(a.keys() - b.keys()):
        found.append(f"{dict(key)} is missing")
    for key in sorted(b.keys() - a.keys()):
        found.append(f"{dict(key)} is too much")
    for key in sorted(a.keys() & b.keys()):
        if [t for t, _ in a[key]] != [t for t, _ in b[key]]:
            found.append(f"{dict(key)}: times {b[key][:5]}, expected {a[key][:5]}")
            continue
        for (t, x), (_, y) in zip(a[key], b[key]):
            if not same_value(x, y):
                found.append(f"{dict(key)} at {t}: {y}, expected {x}")
    return found


class Comparison:
    def __init__(self, prometheus, rimstone):
        self.prometheus = prometheus
        self.rimstone = rimstone
        self.compared = 0
        self.failed = 0

    def compare(self, path, params, ordered=False, may_be_empty=False):
        theirs = ask(self.prometheus, path, params)
        self.compared += 1
        try:
            ours = ask(self.rimstone, path, params)
        except AssertionError as e:
            found = [str(e)]
        else:
            found = differences(theirs, ours, ordered)
        if not found and not may_be_empty and not theirs["result"]:
            found = ["an empty answer proves nothing"]
        if found:
            self.failed += 1
            print(f"DIFFERS {path} {params}")
            for text in found[:5]:
                print(f"    {text}")
            if len(found) > 5:
                print(f"    and {len(found) - 5} more")

    def compare_lists(self, path, params):
        """Metadata endpoints. Label names and values are sorted; series have no order of their own."""

        def get(client):
            answer = client.get(path, params)
            assert answer.status == 200, answer
            data = answer.json["data"]
            if path.endswith("/series"):
                return sorted(sorted(labels.items()) for labels in data)
            return data

        self.compared += 1
        theirs, ours = get(self.prometheus), get(self.rimstone)
        if theirs != ours or not theirs:
            self.failed += 1
            print(f"DIFFERS {path} {params}: {len(ours)} entries, expected {len(theirs)}")
            print(f"    {[x for x in ours if x not in theirs][:3]} too much")
            print(f"    {[x for x in theirs if x not in ours][:3]} missing")


def choose_instants(samples):
    """(begin, end, instants) in seconds: no sample shares the instants' milliseconds."""
    used = {round(t * 1000) % 1000 for values in samples.values() for t, _ in values}
    if 0 in used:
        print("note: samples fall on whole seconds; subqueries may differ at a range's left edge")
    fraction = next(ms for ms in range(137, 1137) if ms % 1000 and ms % 1000 not in used) % 1000
    ups = [v for key, v in samples.items() if ("__name__", "up") in key]
    begin = max(values[0][0] for values in ups)  # both targets have been scraped
    end = min(values[-1][0] for values in ups)
    first = int(begin) + RANGE_MAX_S + 6
    last = int(end) - 2
    assert last - first >= 10, f"too short: scraped from {begin} to {end}"
    return [s + fraction / 1000 for s in (first, (first + last) // 2, last)]


def collect(server, prometheus, configs):
    """Scrapes for a while, stops, and waits until both stores hold the same samples."""
    theirs, ours = prometheus.client(), server.client()

    def scraped_s():
        data = ask(theirs, "/api/v1/query", {"query": "up[10m]"})
        if len(data["result"]) < 2:
            return 0
        return min(r["values"][-1][0] - r["values"][0][0] for r in data["result"])

    wait_until(lambda: scraped_s() >= SCRAPED_S, "samples to compare", SCRAPED_S * 2 + 60, 0.5)
    prometheus.reload(configs["silent"])
    return wait_for_same_samples(theirs, ours, round(time.time() + 60, 3))


def main():
    with TemporaryDirectory("real-client") as scratch:
        with Server(os.path.join(scratch, "data")) as server:
            server.wait_ready()
            remote_write = REMOTE_WRITE.replace("RIMSTONE", str(server.port))
            configs = {
                "scrape": SCRAPE.replace("RIMSTONE", str(server.port)) + remote_write,
                "silent": remote_write,
            }
            with Prometheus(scratch, configs["scrape"]) as prometheus:
                samples = collect(server, prometheus, configs)
                comparison = Comparison(prometheus.client(), server.client())
                run_questions(comparison, choose_instants(samples))
            assert server.stop() == 0
        assert comparison.failed == 0, f"{comparison.failed} answers differ"
    return 0


def run_questions(comparison, instants):
    for question in QUESTIONS:
        ordered = question.startswith(ORDERED)
        may_be_empty = question in EMPTY_ON_PURPOSE
        expression = question.replace("INSTANT", str(instants[1]))
        for instant in instants:
            params = {"query": expression, "time": instant}
            comparison.compare("/api/v1/query", params, ordered, may_be_empty)
        for step in (1, 4):
            params = {"query": expression, "start": instants[0], "end": instants[2], "step": step}
            comparison.compare("/api/v1/query_range", params, False, may_be_empty)
    selector = {"match[]": '{__name__=~"process_.+"}'}
    comparison.compare_lists("/api/v1/series", selector)
    comparison.compare_lists("/api/v1/labels", {})
    comparison.compare_lists("/api/v1/labels", selector)
    comparison.compare_lists("/api/v1/label/__name__/values", {})
    comparison.compare_lists("/api/v1/label/handler/values", {"match[]": "prometheus_http_requests_total"})
    print(
        f"{len(QUESTIONS)} questions, {comparison.compared} answers compared, "
        f"{comparison.failed} differ"
    )


if __name__ == "__main__":
    sys.exit(main())
