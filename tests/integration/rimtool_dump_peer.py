#!/usr/bin/env python3
"""`rimtool dump` read back by Debian's promtool: the same series, samples and bits of values."""

import os
import re
import subprocess
import sys

import openmetrics_text
from harness import RIMTOOL, Server, TemporaryDirectory, now_ms
from peers import program
from rimtool_offline import SPECIAL

# Names as promtool 2.42 can read them: UTF-8 names came with Prometheus 3.
HARD = [
    {"__name__": "plain", "Upper": "sorts before the name"},
    {"__name__": "plain", "a": 'quote " backslash \\ newline \n end', "b": "{}=,"},
    {"__name__": "rule:with:colons", "a": "é ü 漢 \U0001f600"},
]
DUMP_LINE = re.compile(r"(\{.*\}) (\S+) (-?\d+)\Z")


def fill(server):
    start_ms = now_ms() - 3 * 3600_000
    series = [
        (labels, [(start_ms + 997 * k + i, v) for k, v in enumerate(SPECIAL)])
        for i, labels in enumerate(HARD)
    ]
    client = server.client()
    answer = client.write(series)
    client.close()
    assert answer.status in (200, 204), answer
    subprocess.run(
        [RIMTOOL, "load", f"--url=http://127.0.0.1:{server.port}/api/v1/write", "--nodes=2",
         "--scrapes=30", "--jitter=5", "--churn=20", "--quiet"],
        check=True, stdout=subprocess.DEVNULL,
    )


def promtool_labels(text):
    """{a="b", c="d"} as Go prints it; names are bare."""
    labels, at = [], 1
    while text[at] != "}":
        match = re.compile(r'(?:, )?([^=,{} ]+)=("(?:[^"\\]|\\.)*")').match(text, at)
        assert match, text[at:]
        # Go's quoting is Python's but for the names of some escapes, none of which occur.
        value = re.sub(r'\\(["\\n])', lambda m: "\n" if m[1] == "n" else m[1], match[2][1:-1])
        labels.append((match[1], value))
        at = match.end()
    return tuple(sorted(labels))


def promtool_read(promtool, dump_path, scratch):
    blocks = os.path.join(scratch, "blocks")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", dump_path, blocks], check=True,
        stdout=subprocess.DEVNULL,
    )
    os.makedirs(os.path.join(blocks, "wal"), exist_ok=True)  # promtool opens it as a database
    done = subprocess.run(
        [promtool, "tsdb", "dump", blocks], check=True, stdout=subprocess.PIPE, text=True
    )
    found = {}
    for line in done.stdout.splitlines():
        match = DUMP_LINE.match(line)
        assert match, line
        found.setdefault(promtool_labels(match[1]), []).append(
            (int(match[3]), openmetrics_text.bits(float(match[2])))
        )
    return found


def main():
    promtool = program("prometheus", "promtool")
    with TemporaryDirectory("dump") as scratch:
        data_dir, path = os.path.join(scratch, "data"), os.path.join(scratch, "dump.txt")
        with Server(data_dir) as server:
            server.wait_ready()
            fill(server)
            assert server.stop() == 0
        with open(path, "wb") as f:
            subprocess.run([RIMTOOL, "dump", data_dir], check=True, stdout=f)
        with open(path, encoding="utf-8") as f:
            ours = openmetrics_text.parse(f.read())
        theirs = promtool_read(promtool, path, scratch)
        assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
        for key, samples in ours.items():
            assert sorted(theirs[key]) == samples, (key, theirs[key][:3], samples[:3])
        print(f"{len(ours)} series and {sum(map(len, ours.values()))} samples read back")
        assert len(ours) > 1900 and sum(map(len, ours.values())) > 50_000


if __name__ == "__main__":
    sys.exit(main())
