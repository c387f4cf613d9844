"""Random data and random PromQL: what promql_diff.py and promql_peer.py ask two servers about.

Both come from a seeded generator, so that a seed and an index name a query. Queries are trees of
Node, which is what lets promql_diff.py shrink one that fails.

What is drawn is the language that Rimstone has built. Two things are held back because they would
only repeat what docs/promql-differences.md says: functions of the C library whose last bit differs
from Go's (exp, sin, ^ ...) stand where nothing can blow that bit up, and what is refused by name is
not drawn.
"""

import math
import struct

from native_histograms import CUSTOM, GAUGE, NOT_RESET, RESET, Histogram, Source, stale

SPAN_S = 3600  # the data's length
STALE = struct.pack("<Q", 0x7FF0000000000002)

JOBS = ("api", "db", "web")
INSTANCES = ("a:1", "b:2", "c:3")
ODD_VALUES = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308,
    -1.7976931348623157e308, 1e-300, 1e300, 1e17, -1e17, 1.0, 0.1, 123456789.125, 2.0**53, 1e-9,
)


# --- Data --------------------------------------------------------------------------------------


def make_data(rng, base_ms, utf8=True, native=False):
    """[(labels, [(t_ms, value)])]: `value` a float, the eight bytes of a staleness marker, or a Histogram."""
    # In order of labels: Prometheus resolves ties in the order in which series were created.
    return sorted(Data(rng, base_ms).make(utf8, native), key=lambda series: sorted(series[0].items()))


class Data:
    def __init__(self, rng, base_ms):
        self.rng = rng
        self.base_ms = base_ms
        self.series = []

    def make(self, utf8, native):
        for job in JOBS:
            for instance in INSTANCES:
                self.target(job, instance)
        self.odd_values()
        self.lifetimes()
        self.histograms()
        for i in range(1100):  # more than are folded in the order of labels
            self.add("wide", self.gauge(0, 9, 600, whole=True), n=str(i), half=str(i % 2))
        for i in range(40):
            self.add("many", self.gauge(0, 7, whole=True), n=str(i), half=str(i % 2), job=JOBS[i % 3])
        if native:
            self.native_histograms()
        if utf8:
            dotted = {"__name__": "dotted.name", "a-b": "x", "job": "api"}
            self.series.append((dotted, self.counter(15)))
            self.series.append((dotted | {"a-b": "ü\n\"\\", "größe": "1"}, self.counter(15)))
        return self.series

    def add(self, name, samples, **labels):
        self.series.append(({"__name__": name} | labels, samples))

    def times(self, interval_s, start_s=0, end_s=SPAN_S, jitter_ms=0):
        count = int((end_s - start_s) / interval_s)
        for i in range(count):
            jitter = self.rng.randrange(0, jitter_ms, 10) if jitter_ms else 0
            yield self.base_ms + int((start_s + i * interval_s) * 1000) + jitter

    def counter(self, interval_s, resets=2, whole=True, **window):
        value, out = float(self.rng.randrange(1000)), []
        times = list(self.times(interval_s, **window))
        reset_at = {self.rng.randrange(len(times)) for _ in range(resets)}
        for i, t in enumerate(times):
            value += self.rng.randrange(5) if whole else self.rng.random() * 3
            if i in reset_at:
                value = float(self.rng.randrange(3))
            out.append((t, float(value)))
        return out

    def gauge(self, low, high, interval_s=15, whole=False, **window):
        def draw():
            return float(self.rng.randint(low, high)) if whole else self.rng.uniform(low, high)

        return [(t, draw()) for t in self.times(interval_s, **window)]

    def target(self, job, instance):
        rng = self.rng
        where = {"job": job, "instance": instance}
        for code in ("200", "404", "500"):
            if code != "500" or rng.random() < 0.5:
                self.add("requests_total", self.counter(15, jitter_ms=500), code=code, **where)
        self.add("cpu_seconds_total", self.counter(15, whole=False), **where)
        self.add("temperature", self.gauge(-20, 80, jitter_ms=900), **where)
        self.add("limit", [(t, 100.0) for t in self.times(30)], **where)
        self.add("flag", self.gauge(0, 1, whole=True), **where)
        self.add("build", [(t, 1.0) for t in self.times(60)], version=rng.choice("123"), **where)
        gappy = []
        for t, v in self.gauge(0, 9, 10, whole=True):
            if rng.random() < 0.7:
                gappy.append((t, STALE if rng.random() < 0.08 else v))
        self.add("gappy", gappy, **where)

    def odd_values(self):
        for i, value in enumerate(ODD_VALUES):
            self.add("odd", [(t, value) for t in self.times(30)], kind=str(i), half=str(i % 2))
        for i in range(4):
            mixed = [(t, self.rng.choice(ODD_VALUES)) for t in self.times(20)]
            self.add("mixed", mixed, kind=str(i), half=str(i % 2))

    def lifetimes(self):
        self.add("life", self.counter(15, start_s=1500), kind="begins")
        self.add("life", self.counter(15, end_s=1800), kind="ends")
        ended = self.counter(15, end_s=2000)
        self.add("life", ended + [(ended[-1][0] + 15000, STALE)], kind="stale")
        twice = self.counter(15, end_s=900) + [(self.base_ms + 900_000, STALE)]
        self.add("life", twice + self.counter(15, start_s=2400), kind="twice")
        self.add("life", [(self.base_ms + 1_234_567, 42.0)], kind="once")
        self.add("dense", self.gauge(-5, 5, 1, start_s=1200, end_s=2400), job="api")
        self.add("dense", self.counter(1, start_s=1200, end_s=2400), job="db")
        self.add("sparse", self.counter(240), job="api")
        self.add("sparse", self.counter(400, whole=False), job="db")

    def histogram(self, les, broken=False, name="latency_seconds_bucket", **labels):
        counts = [0.0] * len(les)
        columns = [[] for _ in les]
        for t in self.times(15):
            total = 0.0
            for i in range(len(les)):
                counts[i] += self.rng.randrange(4)
                total += counts[i]
                value = total
                if broken:
                    value = self.rng.choice((total, total - 2, total * (1 + 1e-13), math.nan))
                columns[i].append((t, value))
        for le, column in zip(les, columns):
            self.add(name, column, le=le, **labels)

    def histograms(self):
        usual = ("0.1", "0.5", "1", "2.5", "+Inf")
        for job in JOBS:
            self.histogram(usual, job=job, instance="a:1")
        self.histogram(("-5", "-1", "0", "1", "+Inf"), job="signed")
        self.histogram(("1", "2", "4"), job="no_top")
        self.histogram(("+Inf",), job="only_top")
        self.histogram(("1", "1.0", "2", "+Inf"), job="twice")
        self.histogram(("1", "high", "2", "+Inf"), job="no_number")
        self.histogram(("1e0", "1e1", "Inf"), job="spelled")
        self.histogram(("1", "2", "3", "+Inf"), broken=True, job="broken")
        self.histogram(("1", "2", "+Inf"), name="size_bucket", job="api")

    def native(self, source, interval_s=15, resets=2, events=(), **window):
        """Samples of a source that observes. events: {index of a sample: a call that changes the source}."""
        times, out = list(self.times(interval_s, **window)), []
        events = dict(events)
        for _ in range(resets):
            events[self.rng.randrange(len(times))] = source.reset
        for i, t in enumerate(times):
            hint = None
            if i in events:
                events[i]()
                if self.rng.random() < 0.2 and source.hint != GAUGE:
                    hint = RESET
            source.observe(self.rng.randrange(6))
            out.append((t, source.sample(hint)))
        return out

    def native_histograms(self):
        rng = self.rng
        for job in JOBS:
            for i, instance in enumerate(INSTANCES):
                where = {"job": job, "instance": instance}
                source = Source(rng, schema=rng.choice((0, 1, 3)), signed=job == "db", keep_empty=job == "web")
                self.add("native", self.native(source, jitter_ms=500 if i else 0), **where)
                source = Source(rng, schema=rng.choice((-1, 0, 2)), signed=i == 0, is_float=True)
                self.add("native_float", self.native(source), **where)
                bounds = ((0.5, 1.0, 2.5), (0.5, 1.0, 2.0, 5.0), (0.5, 1.0, 2.5))[i]
                self.add("native_custom", self.native(Source(rng, bounds=bounds, is_float=job == "api")), **where)
            gauge = Source(rng, schema=2, signed=True, hint=GAUGE, is_float=job == "db")
            self.add("native_gauge", self.native(gauge, resets=0, events={i: gauge.shrink for i in range(0, 200, 3)}), job=job)
        self.native_changes()
        self.native_lives()

    def native_changes(self):
        """Schema, zero bucket, bounds and kind of value that change, and odd values."""
        rng = self.rng

        def change(source, **values):
            def apply():
                source.reset()
                for name, value in values.items():
                    setattr(source, name, value)
            return apply

        finer = Source(rng, schema=0)
        self.add("native_changes", self.native(finer, events={80: change(finer, schema=2), 160: change(finer, schema=-1)}), kind="schema")
        wider = Source(rng, schema=1, signed=True)
        self.add("native_changes", self.native(wider, events={70: lambda: setattr(wider, "zero_threshold", 0.3),
                                                              150: change(wider, zero_threshold=0.01)}), kind="zero")
        bounds = Source(rng, bounds=(1.0, 2.0, 4.0))
        self.add("native_changes", self.native(bounds, events={60: change(bounds, bounds=(1.0, 4.0)),
                                                               120: change(bounds, bounds=(1.0, 3.0, 4.0))}), kind="bounds")
        both = Source(rng, schema=1)
        self.add("native_changes", self.native(both, events={100: change(both, bounds=(1.0, 2.0), schema=CUSTOM, zero_threshold=0.0)}), kind="both")
        self.add("native_changes", self.native(Source(rng, schema=1, hint=NOT_RESET), resets=1), kind="claims")
        mixed, floats = self.native(Source(rng, schema=1), 30), self.counter(30)
        self.add("native_mixed", [h if i // 17 % 2 else f for i, (h, f) in enumerate(zip(mixed, floats))], kind="runs")
        self.add("native_mixed", [h if i % 5 else f for i, (h, f) in enumerate(zip(mixed, floats))], kind="often")
        odd = []
        for t, h in self.native(Source(rng, schema=0, is_float=True), 30):
            pick = rng.randrange(8)
            values = dict(vars(h))
            if pick < 2:
                values["sum"] = rng.choice((math.nan, math.inf, -math.inf, 0.0, -0.0))
            if pick == 2:
                values["count"] += 2  # observations of NaN
                values["sum"] = math.nan
            odd.append((t, Histogram(**values)))
        self.add("native_odd", odd, kind="sums")
        self.add("native_odd", [(t, Histogram()) for t in self.times(60)], kind="empty")
        self.add("native_odd", [(t, Histogram(count=3, sum=1.0, zero_threshold=0.5, zero_count=3)) for t in self.times(60)], kind="zero")

    def native_lives(self):
        rng = self.rng
        self.add("native_life", self.native(Source(rng), start_s=1500), kind="begins")
        ended = self.native(Source(rng), end_s=2000)
        self.add("native_life", ended + [(ended[-1][0] + 15000, stale())], kind="stale")
        twice = self.native(Source(rng, bounds=(1.0, 2.0)), end_s=900) + [(self.base_ms + 900_000, STALE)]
        self.add("native_life", twice + self.native(Source(rng, bounds=(1.0, 2.0)), start_s=2400), kind="twice")
        once = Source(rng, schema=3)
        once.observe(20)
        self.add("native_life", [(self.base_ms + 1_234_567, once.sample())], kind="once")
        gappy = [s for s in self.native(Source(rng, is_float=True), 10) if rng.random() < 0.7]
        self.add("native_life", [(t, stale(True) if rng.random() < 0.06 else h) for t, h in gappy], kind="gappy")


# --- Queries -----------------------------------------------------------------------------------


class Node:
    """A piece of a query: its type, and texts and nodes in order."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind, *parts):
        self.kind = kind
        self.parts = list(parts)

    def __str__(self):
        return "".join(map(str, self.parts))

    def nodes(self):
        """This node and all below it."""
        yield self
        for part in self.parts:
            if isinstance(part, Node):
                yield from part.nodes()


LEAVES = {"vector": "flag", "scalar": "1", "matrix": "flag[1m]", "optional": ""}

MATH = ("abs", "ceil", "floor", "sgn", "sqrt", "deg", "rad", "round", "timestamp")
MATH_INEXACT = (
    "exp", "ln", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh",
)
DATES = ("day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year")
RANGE_EXPERIMENTAL = (
    "mad_over_time", "ts_of_first_over_time", "ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time",
)
EXTENDED = {"anchored": ("rate", "increase", "delta", "changes", "resets"), "smoothed": ("rate", "increase", "delta")}
RANGE = (
    "avg_over_time", "changes", "count_over_time", "delta", "deriv", "first_over_time", "idelta",
    "increase", "irate", "last_over_time", "max_over_time", "min_over_time", "present_over_time",
    "rate", "resets", "stddev_over_time", "stdvar_over_time", "sum_over_time",
)
AGGREGATIONS = ("sum", "avg", "count", "min", "max", "group", "stddev", "stdvar")
ARITHMETIC = ("+", "-", "*", "/", "%")
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
SETS = ("and", "or", "unless")
METRICS = {
    "requests_total": ("job", "instance", "code"),
    "cpu_seconds_total": ("job", "instance"),
    "temperature": ("job", "instance"),
    "limit": ("job", "instance"),
    "flag": ("job", "instance"),
    "build": ("job", "instance", "version"),
    "gappy": ("job", "instance"),
    "odd": ("kind", "half"),
    "mixed": ("kind", "half"),
    "life": ("kind",),
    "dense": ("job",),
    "sparse": ("job",),
    "many": ("n", "half", "job"),
    "wide": ("n", "half"),
    "latency_seconds_bucket": ("le", "job", "instance"),
    "size_bucket": ("le", "job"),
    "nothing": ("job",),
}
NATIVE_METRICS = {
    "native": ("job", "instance"),
    "native_float": ("job", "instance"),
    "native_custom": ("job", "instance"),
    "native_gauge": ("job",),
    "native_changes": ("kind",),
    "native_mixed": ("kind",),
    "native_odd": ("kind",),
    "native_life": ("kind",),
}
LABELS_OF = METRICS | NATIVE_METRICS
LABELS = ("job", "instance", "code", "kind", "half", "n", "le", "version", "absent")
VALUES = JOBS + INSTANCES + ("200", "404", "1", "2", "3", "begins", "once", "+Inf", "")
REGEXES = ("a.*", ".+", ".*", "api|db", "[12]", "(?i)API", "", "a:1|b:2", "b.|.*s", "^web$", "x*")
NUMBERS = (
    "0", "1", "2", "3", "10", "0.5", "1.5", "100", "1e3", "1e-3", "Inf", "NaN", "0x1F", "010", ".5",
    "5.", "1e100", "0.9", "0.99", "1000000", "2147483648", "1e17",
)
NUMBERS_3 = ("1_000", "5m", "1h30m", "100ms", "1d")
REPLACEMENTS = ("$1", "x-$1", "${1}y", "$0", "", "$2", "$name", "$$", "q")


class Generator:
    """Draws queries.

    peer: only what Prometheus 2.42 knows too and answers alike (promql_peer.py). Otherwise also what
    Prometheus 3 has behind the features that promql_diff.py turns on. native: the share of selectors of
    native histograms, 0 for none.
    """

    def __init__(self, rng, base_ms, peer=False, native=0.0):
        self.rng = rng
        self.native_share = native
        self.base_ms = base_ms
        self.peer = peer
        self.experimental = not peer

    def chance(self, p):
        return self.rng.random() < p

    def draw(self, depth=None):
        """A whole query."""
        depth = depth if depth is not None else self.rng.randrange(5)
        kind = self.rng.choices(("vector", "scalar", "matrix", "string"), (88, 6, 5, 1))[0]
        if kind == "string":
            return Node("string", '"a string"')
        if kind == "vector" and self.chance(0.15):
            return self.inexact(depth)
        return getattr(self, kind)(depth)

    # --- scalars

    def number(self):
        numbers = NUMBERS if self.peer else NUMBERS + NUMBERS_3
        text = self.rng.choice(numbers)
        return Node("scalar", "-" * self.chance(0.15) + text)

    def scalar(self, depth):
        if depth <= 0 or self.chance(0.4):
            names = ("time()", "pi()")
            if self.experimental:
                names += ("start()", "end()", "range()", "step()")
            return Node("scalar", self.rng.choice(names)) if self.chance(0.15) else self.number()
        if self.experimental and self.chance(0.08):
            head = self.rng.choice(("max_of(", "min_of("))
            return Node("scalar", head, self.scalar(depth - 1), ", ", self.scalar(depth - 1), ")")
        pick = self.rng.randrange(5)
        if pick == 0:
            return Node("scalar", "scalar(", self.vector(depth - 1), ")")
        if pick == 1:
            return Node("scalar", "(", self.scalar(depth - 1), ")")
        if pick == 2:
            return Node("scalar", self.rng.choice("+-"), self.scalar(depth - 1))
        if pick == 3:
            operator = f" {self.rng.choice(COMPARISONS)} bool "
        else:
            operator = f" {self.rng.choice(ARITHMETIC)} "
        return Node("scalar", self.scalar(depth - 1), operator, self.scalar(depth - 1))

    # --- selectors

    def duration(self, low_s=1, high_s=900):
        rng = self.rng
        seconds = int(math.exp(rng.uniform(math.log(low_s), math.log(high_s))))
        if self.peer:
            return f"{seconds}s"
        if self.chance(0.08):
            return self.duration_expression(seconds)
        pick = rng.randrange(8)
        if pick == 0 and seconds % 60 == 0 or seconds > 300 and pick < 3:
            return f"{max(1, seconds // 60)}m"
        if pick == 3:
            return str(seconds)
        if pick == 4:
            return f"{seconds}s{rng.randrange(1, 1000)}ms"
        if pick == 5:
            return f"{seconds}.{rng.randrange(10)}"
        return f"{seconds}s"

    def duration_expression(self, seconds):
        rng = self.rng
        part = rng.choice(("step()", "range()", "1m", str(rng.randrange(1, 9)), f"{seconds}s"))
        return rng.choice((
            f"({seconds} + {part})", f"max_of({part}, {seconds})", f"min_of({part}, {seconds})", f"({part} * 2)",
            f"({seconds} / {part})", f"({seconds}s % {part})", f"(-{part} + {seconds})", f"({part} ^ 1.5)",
        ))

    def modifiers(self, p=0.25):
        rng, pieces = self.rng, []
        if self.chance(p):
            sign = "-" * self.chance(0.25)
            pieces.append(f" offset {sign}{self.duration()}")
        if self.chance(p * 0.7):
            at = rng.choice(("start()", "end()", None, None))
            if at is None:
                at = f"{self.base_ms / 1000 + rng.uniform(-100, SPAN_S + 100):.3f}"
            pieces.append(f" @ {at}")
        rng.shuffle(pieces)
        return [Node("optional", piece) for piece in pieces]

    def matcher(self, name):
        rng = self.rng
        label = rng.choice(LABELS_OF[name] if self.chance(0.8) else LABELS)
        operator = rng.choice(("=", "!=", "=~", "!~"))
        value = rng.choice(REGEXES if "~" in operator else VALUES)
        return f'{label}{operator}"{value}"'

    def metric(self):
        native = self.native_share > 0 and self.chance(self.native_share)
        return self.rng.choice(tuple(NATIVE_METRICS if native else METRICS))

    def selector(self, name=None):
        rng = self.rng
        if name is None and not self.peer and self.chance(0.06):
            return Node("vector", rng.choice((
                '{"dotted.name"}', '{"dotted.name", "a-b"="x"}', '{__name__="dotted.name","größe"=~".+"}',
                '{"dotted.name",\'a-b\'!=`x`,}',
            )))
        if name is None and self.chance(0.06):
            return Node("vector", rng.choice((
                '{__name__=~"temp.*|limit"}', '{job="api",code=""}', '{__name__=~".*_total",job!="db"}',
                '{half="1"}', '{kind=~".+",half=""}',
            )))
        name = name or self.metric()
        parts = [name]
        if name == "wide" and self.chance(0.8):
            parts.append(self.rng.choice(('{n=~"1.?"}', '{n=~".?5",half="1"}', '{n="7"}')))
        elif self.chance(0.3):
            parts.append(Node("optional", "{" + ",".join(
                self.matcher(name) for _ in range(rng.choice((1, 1, 2)))) + "}"))
        return Node("vector", *parts)

    def instant(self, name=None):
        smoothed = (Node("optional", " smoothed"),) if self.experimental and self.chance(0.05) else ()
        return Node("vector", self.selector(name), *smoothed, *self.modifiers())

    def matrix(self, depth):
        if depth > 0 and self.chance(0.3):
            return self.subquery(depth)
        return Node("matrix", self.selector(), f"[{self.duration(5)}]", *self.modifiers())

    def subquery(self, depth):
        inner = self.vector(depth - 1) if self.chance(0.8) else self.scalar(depth - 1)
        step = self.duration(5, 120) if self.peer or self.chance(0.8) else ""
        # 2.42 goes wrong where a subquery's step is longer than its range.
        duration = self.duration(130 if self.peer else 10, 600)
        return Node("matrix", "(", inner, f")[{duration}:{step}]", *self.modifiers())

    # --- vectors

    def vector(self, depth):
        if depth <= 0 or self.chance(0.12):
            return self.instant()
        if self.native_share > 0 and self.chance(self.native_share / 2):
            return self.native(depth)
        draw = self.rng.choices(
            (self.range_function, self.aggregate, self.binary, self.math, self.label_function,
             self.parameterised, self.set_operator, self.sorted, self.wrapped, self.histogram, self.info),
            (26, 18, 20, 8, 6, 9, 6, 2, 6, 5, 0 if self.peer else 2),
        )[0]
        return draw(depth)

    def info(self, depth):
        selector = self.rng.choice(("", ', {__name__="build"}', ', {__name__="build",version=~".+"}',
                                    ', {__name__=~"build|flag",version=~".*"}', ', {__name__!="build"}'))
        return Node("vector", "info(", self.vector(depth - 1), Node("optional", selector), ")")

    def native_vector(self, depth):
        """Histograms, as a rule."""
        name = self.rng.choice(tuple(NATIVE_METRICS))
        if self.chance(0.3):
            return self.instant(name)
        if self.chance(0.5):
            function = self.rng.choice(("rate", "increase", "delta", "irate", "idelta", "sum_over_time", "avg_over_time",
                                        "last_over_time", "first_over_time"))
            node = Node("vector", function, "(", self.selector(name), f"[{self.duration(20)}]", *self.modifiers(), ")")
        else:
            node = self.instant(name)
        if depth > 0 and self.chance(0.4):
            return Node("vector", self.rng.choice(("sum", "avg")), self.grouping(), "(", node, ")")
        if depth > 0 and self.chance(0.2):
            return Node("vector", "(", node, self.rng.choice((" + ", " - ", " == ", " != ", " * ", " / ")),
                        Node("optional", self.matching()), self.native_vector(depth - 1), ")")
        return node

    def native(self, depth):
        """What looks into histograms."""
        rng, inner = self.rng, self.native_vector(depth - 1)
        pick = rng.randrange(10)
        if pick < 3:
            return Node("vector", "histogram_quantile(", self.quantile(depth), ", ", inner, ")")
        if pick == 3:
            return Node("vector", "histogram_fraction(", self.scalar(0), ", ", self.scalar(0), ", ", inner, ")")
        if pick == 4 and self.experimental:
            quantiles = Node("optional", ", 0.9"), ", ", self.quantile(depth)
            return Node("vector", "histogram_quantiles(", inner, ', "q"', *quantiles, ")")
        if pick == 5:
            return Node("vector", "(", inner, rng.choice((" </ ", " >/ ")), self.number(), ")")
        if pick == 6:
            operator = rng.choice((" * ", " / ", " + ", " - ", " > ", " == "))
            sides = [inner, self.scalar(0)]
            rng.shuffle(sides)
            return Node("vector", "(", sides[0], operator, sides[1], ")")
        functions = ("histogram_count", "histogram_sum", "histogram_avg", "histogram_stddev", "histogram_stdvar", "-")
        return Node("vector", rng.choice(functions), "(", inner, ")")

    def inexact(self, depth):
        """Functions whose last bit is the library's: only where it stays the last bit."""
        if self.chance(0.3):
            operator = " ^ " if self.peer else self.rng.choice((" ^ ", " atan2 "))
            node = Node("vector", "(", self.vector(depth - 1), f"){operator}", self.number())
        elif self.chance(0.2):
            node = Node("vector", "predict_linear(", self.matrix(depth - 1), f", {self.rng.choice((0, 60, -300))})")
        else:
            node = Node("vector", self.rng.choice(MATH_INEXACT), "(", self.vector(depth - 1), ")")
        if self.chance(0.3):
            node = Node("vector", self.rng.choice(("max", "min", "abs", "group")), "(", node, ")")
        return node

    def range_function(self, depth):
        rng = self.rng
        pick = rng.randrange(12)
        matrix = self.matrix(depth - 1)
        if pick == 0:
            return Node("vector", "quantile_over_time(", self.quantile(depth), ", ", matrix, ")")
        if pick == 1:
            return Node("vector", "absent_over_time(", matrix, ")")
        if pick == 2 and self.experimental:
            return Node("vector", rng.choice(RANGE_EXPERIMENTAL), "(", matrix, ")")
        if pick == 3 and self.experimental:
            modifier = rng.choice(("anchored", "smoothed"))
            function = rng.choice(EXTENDED[modifier]) if self.chance(0.95) else rng.choice(RANGE)
            extended = Node("matrix", self.selector(), f"[{self.duration(5)}] {modifier}", *self.modifiers())
            return Node("vector", function, "(", extended, ")")
        if pick == 4 and self.experimental and self.chance(0.5):
            factors = rng.choice(("0.5, 0.1", "0.1, 0.9", "0.99, 0.01")) if self.chance(0.9) else "1, 0.5"
            return Node("vector", "double_exponential_smoothing(", matrix, f", {factors})")
        function = rng.choice(RANGE)
        if self.peer and function == "first_over_time":
            function = "last_over_time"
        return Node("vector", function, "(", matrix, ")")

    def quantile(self, depth):
        if self.chance(0.7):
            return Node("scalar", self.rng.choice(("0", "0.1", "0.25", "0.5", "0.75", "0.9", "0.99", "1")))
        return self.scalar(depth - 1)

    def grouping(self):
        rng = self.rng
        if self.chance(0.35):
            return ""
        names = ", ".join(rng.sample(LABELS, rng.randrange(3)))
        return f" {rng.choice(('by', 'without'))} ({names}) "

    def aggregate(self, depth):
        rng, grouping = self.rng, self.grouping()
        pick = rng.randrange(12)
        if pick < 8:
            head, argument = rng.choice(AGGREGATIONS), ()
        elif pick == 8:
            head, argument = "quantile", (self.quantile(depth), ", ")
        elif pick == 9:
            head, argument = "count_values", (rng.choice(('"value", ', '"job", ')),)
        else:
            count = self.number() if self.chance(0.1) else rng.choice(("1", "2", "3", "5"))
            head = rng.choice(("topk", "bottomk"))
            if self.experimental and self.chance(0.4):
                head = rng.choice(("limitk", "limit_ratio"))
            if head == "limit_ratio" and self.chance(0.9):
                count = rng.choice(("0.5", "0.1", "-0.5", "-0.9", "1", "-1", "0.75"))
            argument = (count, ", ")
        body = ("(", *argument, self.vector(depth - 1), ")")
        if self.chance(0.5):
            return Node("vector", head, grouping, *body)
        return Node("vector", head, *body, grouping)

    def matching(self, many=True):
        rng = self.rng
        if self.chance(0.3):
            return ""
        text = rng.choice(("on(job, instance)", "on(job)", "on(instance, job)", "ignoring(code)", "on(kind)",
                           "ignoring(version)", "on()", "ignoring(le)", "on(half)", "ignoring(n, code)"))
        if many and self.chance(0.4):
            text += f" group_{rng.choice(('left', 'right'))}"
            text += rng.choice(("", "()", "(version)", "(code)", "(job)"))
        return text + " "

    def pair(self, depth):
        """Operands: often two selectors over the same labels, so that they match."""
        if self.chance(0.5):
            a, b = self.rng.choice((
                ("temperature", "limit"), ("requests_total", "build"), ("flag", "gappy"), ("odd", "mixed"),
                ("cpu_seconds_total", "build"), ("requests_total", "requests_total"), ("life", "life"),
                ("build", "requests_total"), ("dense", "sparse"), ("many", "many"), ("limit", "flag"),
            ))
            return self.instant(a), self.instant(b)
        return self.vector(depth - 1), self.vector(depth - 1)

    def binary(self, depth):
        rng = self.rng
        if self.chance(0.6):
            operator, modifier = rng.choice(ARITHMETIC), ""
        else:
            operator, modifier = rng.choice(COMPARISONS), "bool " * self.chance(0.4)
        pick = rng.randrange(4)
        if pick == 0:
            return Node("vector", "(", self.vector(depth - 1), f" {operator} {modifier}", self.scalar(depth - 1), ")")
        if pick == 1:
            return Node("vector", "(", self.scalar(depth - 1), f" {operator} {modifier}", self.vector(depth - 1), ")")
        a, b = self.pair(depth)
        matching = Node("optional", self.matching() + self.fill())
        return Node("vector", "(", a, f" {operator} {modifier}", matching, b, ")")

    def fill(self):
        if self.peer or self.chance(0.85):
            return ""
        value = self.rng.choice(("0", "1", "-1.5", "NaN", "Inf", "1e3"))
        other = self.rng.choice(("0", "2"))
        return self.rng.choice((f"fill({value}) ", f"fill_left({value}) ", f"fill_right({value}) ",
                                f"fill_right({value}) fill_left({other}) "))

    def set_operator(self, depth):
        a, b = self.pair(depth)
        matching = Node("optional", self.matching(many=False))
        return Node("vector", "(", a, f" {self.rng.choice(SETS)} ", matching, b, ")")

    def math(self, depth):
        rng = self.rng
        if self.chance(0.15):
            return Node("vector", rng.choice(DATES), "(", self.vector(0), ")")
        if self.chance(0.1):
            return Node("vector", "absent(", self.vector(depth - 1), ")")
        return Node("vector", rng.choice(MATH), "(", self.vector(depth - 1), ")")

    def parameterised(self, depth):
        rng = self.rng
        pick = rng.randrange(6)
        if pick == 0:
            return Node("vector", "vector(", self.scalar(depth - 1), ")")
        if pick == 1:
            return Node("vector", "round(", self.vector(depth - 1), ", ", self.scalar(depth - 1), ")")
        if pick == 2:
            low, high = self.scalar(depth - 1), self.scalar(depth - 1)
            return Node("vector", "clamp(", self.vector(depth - 1), ", ", low, ", ", high, ")")
        if pick == 3:
            head = rng.choice(("clamp_min(", "clamp_max("))
            return Node("vector", head, self.vector(depth - 1), ", ", self.scalar(depth - 1), ")")
        return Node("vector", rng.choice(DATES), "(", self.vector(depth - 1) if self.chance(0.3) else "", ")")

    def label_function(self, depth):
        rng = self.rng
        inner = self.vector(depth - 1)
        target = rng.choice(("new", "job", "instance", "le", "__name__"))
        if self.chance(0.6):
            regex = rng.choice(("(.*)", "(.*):.*", "a.*", "(.)(.?).*", "", "(?P<name>[a-z]+).*", "(x)?.*"))
            source = rng.choice(("job", "instance", "kind", "__name__", "absent"))
            tail = f', "{target}", "{rng.choice(REPLACEMENTS)}", "{source}", "{regex}")'
            return Node("vector", "label_replace(", inner, tail)
        sources = "".join(f', "{name}"' for name in rng.sample(LABELS, rng.randrange(3)))
        return Node("vector", "label_join(", inner, f', "{target}", "{rng.choice(("-", "", ", "))}"{sources})')

    def sorted(self, depth):
        if self.experimental and self.chance(0.5):
            names = "".join(f', "{name}"' for name in self.rng.sample(LABELS, self.rng.randrange(1, 3)))
            head = self.rng.choice(("sort_by_label(", "sort_by_label_desc("))
            return Node("vector", head, self.vector(depth - 1), names, ")")
        return Node("vector", self.rng.choice(("sort(", "sort_desc(")), self.vector(depth - 1), ")")

    def wrapped(self, depth):
        if self.chance(0.5):
            return Node("vector", "(", self.vector(depth - 1), ")")
        return Node("vector", self.rng.choice("-+"), self.vector(depth - 1))

    def histogram(self, depth):
        rng = self.rng
        name = rng.choice(("latency_seconds_bucket", "latency_seconds_bucket", "size_bucket"))
        inner = self.instant(name)
        if self.chance(0.5):
            inner = Node("vector", "rate(", self.selector(name), "[5m])")
            if self.chance(0.5):
                inner = Node("vector", "sum by (", rng.choice(("le", "le, job", "job")), ") (", inner, ")")
        if self.chance(0.2) and self.experimental:
            quantiles = Node("optional", ", 0.9"), ", ", self.quantile(depth)
            return Node("vector", "histogram_quantiles(", inner, ', "q"', *quantiles, ")")
        if self.chance(0.3) and not self.peer:
            low, high = self.scalar(0), self.scalar(0)
            return Node("vector", "histogram_fraction(", low, ", ", high, ", ", inner, ")")
        return Node("vector", "histogram_quantile(", self.quantile(depth), ", ", inner, ")")


def damage(rng, text):
    """A query that is probably wrong: one small edit of a right one."""
    pieces = ("(", ")", "[", "]", "{", "}", ",", '"', " by ", " offset ", " bool ", "@", ":", "1", "x",
              "5m", "=", "-", " on ", "group_left", "[5m]", " and ", "sum", "rate", "#", "\\", "é")
    i = rng.randrange(len(text) + 1)
    pick = rng.randrange(3)
    if pick == 0:
        return text[:i] + text[min(len(text), i + rng.randrange(1, 4)) :]
    if pick == 1:
        return text[:i] + rng.choice(pieces) + text[i:]
    return text[:i] + rng.choice(pieces) + text[i + 1 :]
