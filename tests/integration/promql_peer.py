#!/usr/bin/env python3
"""Random queries to Debian's Prometheus 2.42 and to Rimstone over the same samples.

promql_diff.py's grammar without what 2.42 has not, so that `make test` compares random queries on
any machine. Rimstone follows PromQL 3. Where 2.42 differs the questions step aside:

- ranges are closed on the left: milliseconds of samples end in 5, instants in 7, and offsets, ranges
  and steps are whole seconds, so that neither a sample nor a subquery's step is on a border;
- no UTF-8 names, no durations as numbers, no first_over_time, histogram_fraction or atan2 (which kept
  the name), and neither notes nor texts of errors are compared;
- the rest are the rules of OTHER.
"""

import os
import random
import re
import sys

import promql_diff
from harness import Server, TemporaryDirectory
from peers import Prometheus
from promql_generator import SPAN_S, Generator, make_data

# (pattern in "path query", pattern in the difference, reason), as in promql_diff.py
OTHER = (
    (r"histogram_quantile", r"'broken'|expected NaN", "how decreasing and NaN counts of buckets are repaired"),
    (r"stdvar|stddev|avg|sum", r"(NaN|Inf), expected|: -?0, expected|, expected -?0$",
     "sums: deviations of infinities, cancelled digits, the sign of 0"),
    (r"count_values.*(avg|sum|std)", r"missing|too much", "the last digit of a sum as a label"),
    (r"\b(rate|increase)\(", r"at [\d.]+: ", "extrapolation over counters that begin in the range"),
    (r"(top|bottom)k", r"missing|too much", "which of equal values are kept"),
    (r"absent", r"missing|too much", "matchers that absent() reads in another order"),
    (r"(predict_linear|quantile_over_time)\(.* @ ", r"too much$|missing|at [\d.]+: ",
     "a pinned range under an argument that varies: results at the first step only, or of the wrong time"),
    (r"", r"multiple matches for labels.*expected \(200", "comparisons that filter what matches twice"),
)


def draw_params(rng, base_ms):
    """As promql_diff's; all times end in .137."""

    def instant(low_s, high_s):
        return base_ms // 1000 + rng.randrange(low_s, high_s) + 0.137

    if rng.random() < 0.55:
        return "/api/v1/query", {"time": f"{instant(0, SPAN_S + 300):.3f}"}
    start = instant(0, SPAN_S)
    step = rng.choice((1, 5, 15, 30, 60, 300))
    end = start + step * rng.choice((1, 3, 10))
    return "/api/v1/query_range", {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": str(step)}


def known_reason(path, text, found):
    for pattern, found_pattern, reason in OTHER + promql_diff.KNOWN:
        if re.search(pattern, f"{path} {text}") and re.search(found_pattern, found):
            return reason
    return None


def main():
    seed = int(os.environ.get("TEST_SEED", "1"))
    count = int(os.environ.get("QUERIES", "600"))
    base_ms = promql_diff.BASE_MS
    print(f"seed {seed}", flush=True)
    with TemporaryDirectory("promql-peer") as scratch:
        with Prometheus(scratch, "global: {}\n", "--web.enable-remote-write-receiver") as prometheus:
            with Server(os.path.join(scratch, "data"), promql_diff.RETENTION) as server:
                server.wait_ready()
                clients = prometheus.client(), server.client()
                samples = make_data(random.Random(seed), base_ms + 5, utf8=False)
                promql_diff.write_everywhere(clients, samples)
                diff = promql_diff.Diff(*clients, known=known_reason, texts=False)
                for index in range(count):
                    rng = random.Random(f"{seed}/{index}")
                    node = Generator(rng, base_ms, peer=True).draw()
                    path, params = draw_params(rng, base_ms)
                    diff.check(index, path, node, params)
    diff.report(seed)
    assert diff.empty < diff.asked * 0.6, "most answers are empty, which proves little"
    return 1 if diff.failures else 0


if __name__ == "__main__":
    sys.exit(main())
