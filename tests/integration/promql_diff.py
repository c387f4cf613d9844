#!/usr/bin/env python3
"""Random queries to Prometheus 3 and to Rimstone over the same samples: the answers are equal.

    make promql-diff PROMETHEUS=/path/to/prometheus-3.x
    PROMETHEUS=... RIMSTONE=... tests/integration/promql_diff.py [--seed N] [--queries N] [--only I] [--aged]

--aged: on their way the samples become parts and sealed and late files in Rimstone, with late samples,
kills, and windows whose border lies inside the data.

Not part of `make test`: Debian has no Prometheus 3 (promql_peer.py asks Debian's 2.42). The same
remote-write requests go to both; then both get the same requests, and status, error type and text,
result type, labels, timestamps, values (the same bits, or 1e-12 relative), warnings and infos are
compared, and order where it is defined. What differs is shrunk to the least query that still
differs. Differences that are known, with their reasons, are the rules of KNOWN, which counts them;
docs/promql-differences.md says the same for readers.
"""

import argparse
import json
import math
import os
import random
import re
import sys
import time

import promql_http
from aged_data import AGED_BASE_MS, AGED_CONFIG, AGED_FLAGS, write_aged
from harness import Server, TemporaryDirectory
from native_histograms import by_kind
from peers import Prometheus
from promql_generator import LEAVES, STALE, SPAN_S, Generator, Node, damage, make_data

BASE_MS = 1_700_000_400_000  # fixed, so that a seed means the same query tomorrow
TOLERANCE = 1e-12
RETENTION = "--storage.tsdb.retention.time=100y"  # the data is old
FEATURES = "promql-experimental-functions,promql-extended-range-selectors,promql-binop-fill-modifiers"


def write_everywhere(clients, series):
    """In order of time, ten minutes a request, as an agent that catches up would; a series' floats and histograms in
    requests of their own, since Prometheus takes a request's floats first.

    First a staleness marker for every series, long before the data: it creates all of them in the
    order of their labels. Prometheus resolves ties in the order of creation.
    """
    width_ms = 600_000
    early_ms = min(samples[0][0] for _, samples in series) - 7_000_000
    for client in clients:
        answer = client.write([(labels, [(early_ms, STALE)]) for labels, _ in series])
        assert answer.status in (200, 204), answer
    first = min(samples[0][0] for _, samples in series)
    last = max(samples[-1][0] for _, samples in series)
    for begin in range(first, last + 1, width_ms):
        batch = []
        for labels, samples in series:
            inside = [s for s in samples if begin <= s[0] < begin + width_ms]
            if inside:
                batch.append((labels, inside))
        for request in by_kind(batch):
            for client in clients:
                answer = client.write(request)
                assert answer.status in (200, 204), answer


# --- Comparing ---------------------------------------------------------------------------------


def same_histogram(a, b, tolerance):
    """As the API prints them: the same buckets, with values that agree."""
    x, y = a.get("buckets", []), b.get("buckets", [])
    return (
        same_value(a["count"], b["count"], tolerance)
        and same_value(a["sum"], b["sum"], tolerance)
        and [bucket[:3] for bucket in x] == [bucket[:3] for bucket in y]
        and all(same_value(p[3], q[3], tolerance) for p, q in zip(x, y))
    )


def same_value(a, b, tolerance=TOLERANCE):
    if a == b:
        return True
    if isinstance(a, dict) or isinstance(b, dict):
        return isinstance(a, dict) and isinstance(b, dict) and same_histogram(a, b, tolerance)
    x, y = float(a), float(b)
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or math.isinf(y):
        return math.isnan(x) and math.isnan(y)
    if x == y:
        return False  # 0 and -0: the texts are another value's
    return abs(x - y) <= tolerance * max(abs(x), abs(y))


def points_of(row):
    """[[t, value text or histogram]] by time."""
    if "value" in row or "histogram" in row:
        return [row["value"] if "value" in row else row["histogram"]]
    return sorted(row.get("values", []) + row.get("histograms", []), key=lambda point: point[0])


def series_of(data):
    """[(labels, [[t, value text or histogram]])] of any result type."""
    if data["resultType"] in ("scalar", "string"):
        return [((), [data["result"]])]
    return [(tuple(sorted(r["metric"].items())), points_of(r)) for r in data["result"]]


def compare_data(theirs, ours, ordered):
    """None, or what differs first. ordered: as is_ordered()."""
    if theirs["resultType"] != ours["resultType"]:
        return f"type {ours['resultType']}, expected {theirs['resultType']}"
    a, b = series_of(theirs), series_of(ours)
    if ordered == "labels" and [k for k, _ in a] != [k for k, _ in b] and dict(a).keys() == dict(b).keys():
        return f"order {[dict(k) for k, _ in b][:6]}, expected {[dict(k) for k, _ in a][:6]}"
    if ordered == "values" and len(a) == len(b):
        x, y = ([v[0][1] if v[0][1] != "-0" else "0" for _, v in rows] for rows in (a, b))
        if not all(map(same_value, x, y)):
            return f"order {y}, expected {x}"
    if len(dict(a)) != len(a) or len(dict(b)) != len(b):
        return None if len(a) == len(b) else f"{len(b)} rows, expected {len(a)}"
    a, b = dict(a), dict(b)
    for key in sorted(a.keys() - b.keys()):
        return f"{dict(key)} is missing: {a[key][:3]}"
    for key in sorted(b.keys() - a.keys()):
        return f"{dict(key)} is too much: {b[key][:3]}"
    for key in sorted(a):
        if [t for t, _ in a[key]] != [t for t, _ in b[key]]:
            missing = [s for s in a[key] if s[0] not in {t for t, _ in b[key]}]
            extra = [s for s in b[key] if s[0] not in {t for t, _ in a[key]}]
            return f"{dict(key)}: {missing[:3]} missing, {extra[:3]} too much"
        if theirs["resultType"] == "string":
            if a[key] != b[key]:
                return f"{b[key]}, expected {a[key]}"
            continue
        for (t, x), (_, y) in zip(a[key], b[key]):
            if not same_value(x, y):
                return f"{dict(key)} at {t}: {y}, expected {x}"
    return None


def plain_notes(body, field):
    """Warnings or infos without what docs/promql-differences.md says about their texts."""
    notes = []
    for note in body.get(field, []):
        note = re.sub(r"over -?\d+ samples", "over N samples", note)  # Prometheus's count doubles with every step
        notes.append(note)
    return sorted(notes)


def strip_positions(notes):
    return sorted(re.sub(r" \(\d+:\d+\)$", "", note) for note in notes)


def plain_error(body):
    """An error text; the two series of a duplicate in order of labels."""
    text = body.get("error")
    match = re.search(r"operation: \[(\{.*\}), (\{.*\})\];many-to-many", text or "")
    if not match:
        return text
    return text[: match.start()] + str(sorted(match.groups())) + text[match.end() :]


def compare(theirs, ours, ordered=None, texts=True):
    """None, or a text that says how two HTTP answers to a query differ.

    texts: notes and texts of errors too, not only results and statuses.
    """
    try:
        a, b = theirs.json, ours.json
    except json.JSONDecodeError as e:
        return f"no JSON ({e}): {ours}, expected {theirs}"
    if (theirs.status, ours.status) == (200, 200):
        found = compare_data(a["data"], b["data"], ordered)
        if found or not texts:
            return found
        for field in ("warnings", "infos"):
            x, y = plain_notes(a, field), plain_notes(b, field)
            if x != y and strip_positions(x) == strip_positions(y):
                return f"{field} POSITION {y}, expected {x}"
            if x != y and not (len(x) == len(y) >= 10):  # which ten of more is chance
                return f"{field} {y}, expected {x}"
        return None
    if not texts and theirs.status == ours.status:
        return None
    x = (theirs.status, a.get("errorType"), plain_error(a))
    y = (ours.status, b.get("errorType"), plain_error(b))
    return None if x == y else f"{y}, expected {x}"


def is_ordered(node, path):
    """What the order of an instant vector goes by: "values", "labels", or nothing (None)."""
    if path != "/api/v1/query" or not isinstance(node, Node):
        return None
    if str(node).startswith(("sort(", "sort_desc(")):
        return "values"
    return "labels" if str(node).startswith("sort_by_label") else None


# --- Known differences -------------------------------------------------------------------------

# (pattern in "path query", pattern in the difference, reason)
KNOWN = (
    (r"(predict_linear|quantile_over_time)\(.*\)\[[^]]*:[^]]*\].* @ ", r"is too much|too much$",
     "a pinned subquery under an argument that varies: Prometheus gives nothing"),
    (r"(log10|log2|ln\(|\^).*(odd|mixed|half|kind)|(odd|mixed|half|kind).*\^", r"at [\d.]+: ", "logarithms and powers of subnormal numbers: Go's are off"),
    (r"atan2", r"at [\d.]+: -?3.14159", "atan2 of a subnormal number: Go's has the wrong sign"),
    (r"(top|bottom)k.*(count|group)", r"is missing|too much",
     "ties among groups of count and group: by their labels, in Prometheus by their first series"),
    (r"(top|bottom)k.*wide", r"is missing|too much",
     "ties among groups of more than 1,024 series: by their labels, in Prometheus by their first series"),
    (r"\(\(.*\)\[.*:.*\]", r"^(infos|warnings) POSITION .*expected .*\(1:1\)",
     "the position of a subquery in a note: Prometheus says 1:1"),
    (r"changes\([^)]*native", r"at [\d.]+: \d+, expected \d+$",
     "changes() of histograms: empty buckets are compared too, and some of Prometheus's are those of other samples of "
     "their chunk"),
    (r"histogram_(quantiles?|fraction)\(", r"^infos POSITION .*NaN observations",
     "the position of an info about NaN observations: Prometheus 3.14.0 says that of the first argument"),
    (r"native", r"'buckets': .*'NaN'\]",
     "buckets times NaN: empty ones, which Prometheus's sample may have got from others of its chunk, become NaN too"),
    (r"histogram_quantiles?\(.*native", r"at [\d.]+: -?0(\.000\d+)?, expected|expected -?0(\.000\d+)?$",
     "quantiles in the zero bucket of a histogram with buckets on one side only: empty ones of the other side, which "
     "only other samples of Prometheus's chunk have, count there"),
    (r"histogram_quantiles?\(.*native", r"expected ([+-]Inf|NaN$)",
     "quantiles beside NaN observations: Prometheus interpolates in the last bucket, which may be an empty one that "
     "only other samples of the chunk have"),
    (r"", r"not supported yet", "not built"),
    (r"count_values\(.*histogram_quantiles?\(.*native", r"'\w+': '-?\d+\.\d{8,}'} is (missing|too much)",
     "quantiles of exponential buckets as labels: powers of 2 differ in the last bit"),
    (r"histogram_quantiles\(.*latency", r"^(?!.*'job': '(?!twice)).* at [\d.]+: ",
     "several quantiles of buckets that share a bound: Prometheus counts it twice from the second quantile on"),
    (r"sort_by_label.*(latency|odd|mixed|many|__name__|absent)", r"^order",
     "sort_by_label() of series of which some lack the label: no order in Prometheus, whose comparison contradicts itself"),
    (r"info\(", r"__name__.* is missing", "info() with delayed name removal: Prometheus 3.14.0 gives dropped names back"),
    (r"info\(.*( @ | offset )", r"", "info() of what is shifted: Prometheus 3.14.0 has today's labels, later ones those of then"),
    (r"", r"invalid regular expression.*expected.*error parsing regexp", "RE2's reasons in C++ and in Go"),
    (r"timestamp\([^)]*( offset .* @ | @ .* offset )", r"is too much|missing|at [\d.]+: ",
     "timestamp(x @ t offset d): Prometheus evaluates at t and reads what d leads to"),
    (r"\[[^]]*:[^]]*\].* offset -", r"is too much|missing|at [\d.]+: ",
     "what is pinned in a subquery with a negative offset: Prometheus reads up to a step away"),
    (r"cosh|sinh", r"expected [+-]Inf", "cosh and sinh near the largest number: Go's overflow earlier"),
    (r"\b(\w+)\(.*\b\1\(", r"^(warnings|infos) POSITION",
     "the position of a note that several places give: the last one evaluated"),
    (r"sort.*@", r"^warnings .*sort is ineffective", "sort() of what is pinned: whether its warning is given"),
    (r"", r"^\(422.*(same labelset.*expected.*duplicate series|duplicate series.*expected.*same labelset)",
     "which of two errors is met first: scalars are evaluated before vectors"),
    (r"query_range|\[[^]]*:", r"found duplicate series.*expected \(422.*found duplicate series",
     "which duplicates a matching error names, once a range's vectors came through a Go map"),
)


def known_reason(path, text, found):
    for pattern, found_pattern, reason in KNOWN:
        if re.search(pattern, f"{path} {text}") and re.search(found_pattern, found):
            return reason
    return None


# Of answers that are not compared: reasons of RE2's, NaN as an offset, what is not built.
KNOWN_TEXTS = (r"error parsing regexp", r"duration out of range", r"not supported yet")

# --- The run -----------------------------------------------------------------------------------


class Diff:
    def __init__(self, prometheus, rimstone, known=known_reason, texts=True):
        self.prometheus = prometheus
        self.rimstone = rimstone
        self.known = known
        self.texts = texts
        self.asked = 0
        self.empty = 0
        self.errors = 0
        self.explained = {}
        self.failures = []

    def difference(self, path, params, ordered=None):
        theirs = self.prometheus.post_form(path, params)
        ours = self.rimstone.post_form(path, params)
        self.last = (theirs, ours)
        return compare(theirs, ours, ordered, self.texts)

    def varies(self, path, params, ordered):
        """Whether Prometheus answers the same request in more than one way.

        A range query hands series from operator to operator in the order of a Go map.
        """
        first = self.prometheus.post_form(path, params)
        return any(
            compare(self.prometheus.post_form(path, params), first, ordered, self.texts) is not None
            for _ in range(60)
        )

    def reason(self, path, node, params, found):
        reason = self.known(path, str(node), found)
        if reason is None and self.varies(path, params, is_ordered(node, path)):
            reason = "Prometheus's own answers vary"
        return reason

    def check(self, index, path, node, params):
        """node: a Node, or a text that is not shrunk."""
        self.asked += 1
        params = params | {"query": str(node)}
        found = self.difference(path, params, is_ordered(node, path))
        theirs = self.last[0]
        if theirs.status != 200:
            self.errors += 1
        elif not theirs.json["data"]["result"]:
            self.empty += 1
        if found is None:
            return
        reason = self.reason(path, node, params, found)
        if reason is None:
            path, node, params, found = self.shrink(path, node, params, found)
            reason = self.reason(path, node, params, found)
        if reason is not None:
            self.explained[reason] = self.explained.get(reason, 0) + 1
            return
        self.failures.append(str(node))
        print(f"DIFFERS #{index} {path} {({k: v for k, v in params.items() if k != 'query'})}")
        print(f"    {node}\n    {found[:700]}", flush=True)

    def report(self, seed):
        for reason, number in sorted(self.explained.items()):
            print(f"known, {number} times: {reason}")
        print(f"seed {seed}: {self.asked} queries ({self.errors} errors, {self.empty} empty), "
              f"{len(self.failures)} differ")

    def shrink(self, path, node, params, found):
        """Repeatedly the first smaller query that still differs."""
        if not isinstance(node, Node):
            return path, node, params, found
        if path == "/api/v1/query_range":
            path, params, found = self.shrink_range(path, node, params, found)
        for _ in range(200):
            for smaller in smaller_trees(node):
                trial = params | {"query": str(smaller)}
                other = self.difference(path, trial, is_ordered(smaller, path))
                if other is not None:
                    node, params, found = smaller, trial, other
                    break
            else:
                break
        return path, node, params, found

    def shrink_range(self, path, node, params, found):
        """One step of a range instead of all, or an instant query."""
        start, end, step = (float(params[k]) for k in ("start", "end", "step"))
        instants = [start + i * step for i in range(int((end - start) / step) + 1)][:40]
        for t in instants:
            trial = {"query": params["query"], "time": f"{t:.3f}"}
            other = self.difference("/api/v1/query", trial)
            if other is not None:
                return "/api/v1/query", trial, other
        for t in instants[1:]:
            trial = params | {"end": f"{t:.3f}"}
            other = self.difference(path, trial)
            if other is not None:
                return path, trial, other
        return path, params, found


def smaller_trees(node):
    """Copies of a tree with one node replaced by something shorter of its kind."""
    size = len(str(node))
    replacements = []

    def visit(current, rebuild):
        for below in current.nodes():
            if below is not current and below.kind == current.kind:
                replacements.append((len(str(below)), rebuild(below)))
        leaf = LEAVES.get(current.kind)
        if leaf is not None and len(leaf) < len(str(current)):
            replacements.append((len(leaf), rebuild(Node(current.kind, leaf))))
        for i, part in enumerate(current.parts):
            if isinstance(part, Node):
                visit(part, lambda new, i=i: rebuild(
                    Node(current.kind, *current.parts[:i], new, *current.parts[i + 1 :])))

    visit(node, lambda new: new)
    trees = [tree for _, tree in replacements if len(str(tree)) < size]
    trees.sort(key=lambda tree: len(str(tree)))
    return trees


def draw_params(rng, base_ms):
    """(path, parameters) of an instant or a range query; times on and off the data's grid."""

    def instant(low_s, high_s):
        t = rng.uniform(low_s, high_s)
        if rng.random() < 0.5:
            t = t // 15 * 15
        return base_ms / 1000 + round(t, 3)

    if rng.random() < 0.55:
        return "/api/v1/query", {"time": f"{instant(-200, SPAN_S + 700):.3f}"}
    start = instant(-300, SPAN_S)
    step = rng.choice((1, 5, 15, 15, 30, 60, 60, 300, 7.5, 0.25, 13.337, 1000))
    end = start + step * rng.choice((0, 1, 3, 10, 30, 30, 65, 200)) + rng.choice((0, 0, step / 2))
    return "/api/v1/query_range", {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": str(step)}


def run_queries(diff, seed, count, base_ms, only=None, native=0.0):
    for index in range(count):
        rng = random.Random(f"{seed}/{index}")
        node = Generator(rng, base_ms, native=native).draw()
        path, params = draw_params(rng, base_ms)
        if rng.random() < 0.05:
            node = damage(rng, str(node))
        if rng.random() < 0.03:
            params["lookback_delta"] = rng.choice(("30s", "1m", "1h", "1", "20"))
        if only is None or index == only:
            diff.check(index, path, node, params)


def run_texts(clients, seed, count, base_ms):
    """Damaged queries to the endpoints that only parse: trees, printed forms and errors are the same.

    Returns how many differ.
    """
    differ = 0
    for index in range(count):
        rng = random.Random(f"{seed}/text/{index}")
        text = str(Generator(rng, base_ms).draw(rng.randrange(4)))
        for _ in range(rng.randrange(3)):
            text = damage(rng, text)
        path = rng.choice(("/api/v1/format_query", "/api/v1/parse_query"))
        theirs, ours = (client.post_form(path, {"query": text}) for client in clients)
        if theirs.status == 500 or any(re.search(known, f"{theirs} {ours}") for known in KNOWN_TEXTS):
            continue
        if (theirs.status, theirs.json) != (ours.status, ours.json):
            differ += 1
            print(f"DIFFERS text #{index} {path}\n    {text}\n    {str(ours)[:300]}\n    expected {str(theirs)[:300]}")
    print(f"{count} texts parsed, {differ} differ")
    return differ


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TEST_SEED", time.time_ns() % 1_000_000)))
    parser.add_argument("--queries", type=int, default=int(os.environ.get("QUERIES", "6000")))
    parser.add_argument("--only", type=int, help="the query of this index alone")
    parser.add_argument("--feature", default=FEATURES, help="--enable-feature of both")
    parser.add_argument("--aged", action="store_true", help="samples late, in parts and in files of all kinds")
    parser.add_argument("--native", type=float, default=0.35, help="share of selectors of native histograms; 0: none are sent")
    parser.add_argument("--keep", action="store_true", help="print the ports and wait at the end")
    arguments = parser.parse_args()
    binary = os.environ.get("PROMETHEUS")
    if not binary:
        sys.exit("PROMETHEUS must name a Prometheus 3 program")
    print(f"seed {arguments.seed}", flush=True)
    with TemporaryDirectory("promql-diff") as scratch:
        feature = f"--enable-feature={arguments.feature}"
        data = os.path.join(scratch, "data")
        receiver = "--web.enable-remote-write-receiver"
        base_ms = AGED_BASE_MS if arguments.aged else BASE_MS
        config, flags = (AGED_CONFIG, AGED_FLAGS) if arguments.aged else ("global: {}\n", ())
        with Prometheus(
            scratch, config, receiver, feature, binary=binary
        ) as prometheus, Server(data, feature, RETENTION, *flags) as server:
            server.wait_ready()
            rng = random.Random(arguments.seed)
            series = make_data(rng, base_ms, native=arguments.native > 0)
            if arguments.aged:
                server = write_aged(rng, prometheus.client(), server, series)
            else:
                write_everywhere((prometheus.client(), server.client()), series)
            print(f"{len(series)} series, {sum(len(s) for _, s in series)} samples", flush=True)
            clients = prometheus.client(), server.client()
            diff = Diff(*clients)
            run_queries(diff, arguments.seed, arguments.queries, base_ms, arguments.only, arguments.native)
            failed_texts = run_texts(clients, arguments.seed, arguments.queries, base_ms) if arguments.only is None else 0
            failed_http = promql_http.run(*clients, base_ms) if arguments.only is None else 0
            if arguments.keep:
                input(f"Prometheus {prometheus.port}, Rimstone {server.port}; Enter ends")
            if arguments.aged:
                server.kill()  # not the one that was entered
    diff.report(arguments.seed)
    print(f"{failed_http} requests of the HTTP layer differ")
    return 1 if diff.failures or failed_texts or failed_http else 0


if __name__ == "__main__":
    sys.exit(main())
