"""The HTTP layer of promql_diff.py: parameters, formats and metadata, asked of both servers.

Bodies are compared as JSON, texts of errors included. What differs on purpose is a rule of KNOWN.
"""

import json
import re

BAD = ("x", "", "-1", "0", "1e400", "NaN", "Inf", "5m", "1.5", "99999999999999999999", " 1", "1 ", "0x10",
       "2023-11-14T22:20:00Z", "2023-11-14T22:20:00.123456789+02:00", "2023-11-14", "1d2h", "-5s",
       "9223372036854775807", "1_000", "+5")
SELECTORS = (
    "flag", '{job="api"}', '{__name__=~"temp.*"}', "{}", '{job=""}', '{job=~".*"}', "flag[5m]", "flag offset 5m",
    "1", "sum(flag)", "flag{", "", '{"dotted.name"}', '{"größe"="1"}', '{__name__="flag",__name__="x"}',
    '{job!="api"}', '{n=~"1."}', "nothing", 'flag{job="api"} @ 5', "(flag)",
)
# (pattern in the request, pattern in the two answers, reason)
KNOWN = (
    (r"'(start|end|time|step|timeout|lookback_delta)': '(NaN|Inf|9999.*|9223.*)'", r"",
     "times that fit no int64: Go's conversion wraps them, here NaN is refused and the rest is clamped"),
    (r"'timeout': '(-1|0|-5s)'", r"timeout|deadline", "a time-out that has passed: Prometheus has several texts for it"),
    (r"1_000", r"", "underscores in numbers of parameters are refused"),
    (r"'step': 0.0004", r"divide by zero", "a step below a millisecond is one; Prometheus divides by zero"),
    (r"%FF", r"invalid label name", "how a name that is no UTF-8 is quoted"),
    (r"/(series|labels|values) .*(\+02:00|'start': 1700002200.0, 'end': 1700000400.0|'start': 1700006400.0, 'end': 1700004600.0)", r"200.*200",
     "times of metadata requests are matched to windows and chunks, whose borders differ"),
    (r"/nothing", r"404", "an unknown path is answered in JSON"),
    (r"", r"invalid regular expression.*error parsing regexp", "RE2's reasons in C++ and in Go"),
)


def requests(base_ms):
    """(method, path, parameters)."""
    start, end = base_ms / 1000, base_ms / 1000 + 3600
    inside = base_ms / 1000 + 1800
    query = {"query": "flag", "time": inside}
    ranged = {"query": "flag", "start": start, "end": start + 60, "step": 30}
    for value in BAD:
        for name in ("time", "timeout", "limit", "lookback_delta"):
            yield "POST", "/api/v1/query", query | {name: value}
        for name in ("start", "end", "step", "timeout", "limit", "lookback_delta"):
            yield "POST", "/api/v1/query_range", ranged | {name: value}
        for path in ("/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values"):
            for name in ("start", "end", "limit"):
                yield "GET", path, {"match[]": "flag", name: value}
        yield "GET", f"/api/v1/label/{value.replace(' ', '%20') or '%20'}/values", {}
        yield "GET", "/api/v1/metadata", {"limit": value}
    for selector in SELECTORS:
        for path in ("/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values", "/api/v1/label/__name__/values"):
            yield "GET", path, {"match[]": selector}
            yield "GET", path, {"match[]": [selector, 'life{kind="once"}'], "limit": 2}
            yield "GET", path, {"match[]": selector, "start": inside, "end": inside + 300}
            yield "GET", path, {"match[]": selector, "start": end + 9000, "end": end + 9999}
            yield "GET", path, {"match[]": selector, "start": inside, "end": start}
        yield "POST", "/api/v1/query", {"query": selector, "time": inside}
    yield from odds(inside, ranged)


def odds(inside, ranged):
    for path in ("/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values"):
        yield "GET", path, {}
        yield "GET", path, {"limit": 3}
        yield "POST", path, {"match[]": "flag"}
    for name in ("job", "a-b", "U__a_2d_b", "U__gr_f6__df_e", "gr%C3%B6%C3%9Fe", "U__", "U__x_", "U__x_zz_", "U___5f__5f_name_5f__5f_",
                 "absent", "%FF", "le", "kind", "__name__", "dotted.name", "U____name____", "1a"):
        yield "GET", f"/api/v1/label/{name}/values", {}
        yield "GET", f"/api/v1/label/{name}/values", {"limit": 1}
    for query in ("1", '"text"', "vector(1)", "flag[1m]", "odd", "mixed[2m]", "many", "sum(many)", "", " ", "#", "flag #x",
                  "1e-7", "1e21", "123456789012345678", "-0", "0.1", "-1e-7", "vector(1e21)", "vector(-0)", "vector(1e-7)",
                  '"\\xff"', "'é\\n\"'", 'label_replace(vector(1),"é","\\"$1","x","")', "flag\n+", "a b", "sum(", "rate(flag)",
                  "flag[5m", "foo(1)", "flag offset", "1+", "sum by (x", '{a="b"', "{a=~\"*\"}", "flag @ x", "1 == 1"):
        for limit in (None, 1, 5):
            more = {} if limit is None else {"limit": limit}
            yield "POST", "/api/v1/query", {"query": query, "time": inside} | more
            yield "POST", "/api/v1/query_range", ranged | {"query": query} | more
        for path in ("/api/v1/format_query", "/api/v1/parse_query", "/api/v1/query_exemplars"):
            yield "POST", path, {"query": query}
    for step, span in ((1, 11000), (1, 11001), (0.001, 1), (0.0004, 1), (0.5, 5500.5), (1e9, 1), (1e300, 1)):
        yield "POST", "/api/v1/query_range", ranged | {"query": "1", "end": ranged["start"] + span, "step": step}
    for path in ("/api/v1/query", "/api/v1/query_range"):
        yield "GET", path, {}
        yield "POST", path, {}
        for missing in ("start", "end", "step"):
            yield "GET", path, {k: v for k, v in ranged.items() if k != missing}
        yield "GET", path, ranged | {"time": inside, "stats": "all"}
        yield "DELETE", path, {}
    for path in ("/api/v1/metadata", "/api/v1/nothing", "/-/healthy", "/-/ready", "/api/v1/status/walreplay"):
        yield "GET", path, {}
    yield "GET", "/api/v1/metadata", {"metric": "flag"}


def normal(path, answer):
    """What is compared of an answer."""
    kind = answer.headers.get("content-type", "").split(";")[0]
    if path.startswith("/-/") or path.endswith("walreplay"):
        return (answer.status, kind)
    try:
        body = json.loads(answer.body)
    except ValueError:
        return (answer.status, kind)
    if isinstance(body, dict):
        data = body.get("data")
        if path.endswith("/series") and isinstance(data, list) and not body.get("warnings"):
            body["data"] = sorted(sorted(labels.items()) for labels in data)
        elif path.endswith("/series") and isinstance(data, list):
            body["data"] = len(data)  # which series a limit keeps is open
        elif isinstance(data, list) and body.get("warnings"):
            body["data"] = len(data)  # nor which labels and values
        if isinstance(data, dict):
            data.pop("stats", None)
    return (answer.status, kind, json.dumps(body, sort_keys=True, ensure_ascii=False))


def run(prometheus, rimstone, base_ms):
    """Returns the number of requests whose answers differ; prints each."""
    failed, known, total = 0, {}, 0
    for method, path, params in requests(base_ms):
        total += 1
        answers = []
        for client in (prometheus, rimstone):
            if method == "GET":
                answer = client.get(path, params)
            elif method == "POST":
                answer = client.post_form(path, params)
            else:
                answer = client.request(method, path)
            answers.append(normal(path, answer))
        if answers[0] == answers[1]:
            continue
        request = f"{method} {path} {params}"
        both = f"{answers[1]}, expected {answers[0]}"
        reason = next((r for p, q, r in KNOWN if re.search(p, request) and re.search(q, both)), None)
        if reason is not None:
            known[reason] = known.get(reason, 0) + 1
            continue
        failed += 1
        print(f"DIFFERS {request}\n    ours   {str(answers[1])[:400]}\n    theirs {str(answers[0])[:400]}")
    for reason, number in sorted(known.items()):
        print(f"known, {number} times: {reason}")
    print(f"{total} requests of the HTTP layer compared")
    return failed
