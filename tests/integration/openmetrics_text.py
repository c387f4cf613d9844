"""A reader of the OpenMetrics text that `rimtool dump` writes, strict about what it may hold."""

import re
import struct

QUOTED = r'"((?:[^"\\\n]|\\[\\"n])*)"'
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(rf"(?:([a-zA-Z_][a-zA-Z0-9_]*)|{QUOTED})=(?:{QUOTED})")
SAMPLE = re.compile(r" (\S+) (-?[0-9]+(?:\.[0-9]+)?)\Z")


def unescape(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), text)


def bits(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def series_parse(line):
    """({label: value}, what follows) of a sample line."""
    labels = {}
    bare = NAME.match(line)
    at = bare.end() if bare else 0
    if bare:
        labels["__name__"] = bare.group()
    if line[at] != "{":
        return labels, line[at:]
    at += 1
    if not bare:
        name = re.compile(QUOTED).match(line, at)
        labels["__name__"] = unescape(name.group(1))
        at = name.end()
    while line[at] != "}":
        if len(labels) > 1 or not bare:
            assert line[at] == ",", line
            at += 1
        label = LABEL.match(line, at)
        assert label, line
        name = label.group(1) or unescape(label.group(2))
        assert name not in labels, line
        labels[name] = unescape(label.group(3))
        at = label.end()
    return labels, line[at + 1 :]


def parse(text):
    """{labels as sorted pairs: [(t_ms, bits of the value)]}, in the order of the text."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-3:]
    found, families, last = {}, [], None
    for line in lines[:-2]:
        labels, rest = series_parse(line)
        sample = SAMPLE.match(rest)
        assert sample, line
        key = tuple(sorted(labels.items()))
        if key != last:
            assert key not in found, f"{line}: its series was left before"
            found[key] = []
            last = key
        if not families or families[-1] != labels["__name__"]:
            assert labels["__name__"] not in families, f"{line}: its family was left before"
            families.append(labels["__name__"])
        t_ms = round(float(sample.group(2)) * 1000)
        # What Prometheus's parser does.
        assert int(float(sample.group(2)) * 1000) == t_ms, line
        assert not found[key] or found[key][-1][0] < t_ms, line
        found[key].append((t_ms, bits(float(sample.group(1)))))
    return found
