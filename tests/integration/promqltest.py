#!/usr/bin/env python3
"""Runs scripts in Prometheus's test language through `rimtool promqltest --experimental`.

Every query is also asked of a store whose samples were sealed, flushed and merged (--aged), by eight
threads: the same answers to the last bit.

tests/promql always; Prometheus's own scripts where they are at hand (a folder `shared/promqltest`
beside the repository, or PROMQLTEST_DIR), which must pass in a fixed number of evals.
"""

import glob
import os
import re
import subprocess
import sys

from harness import REPOSITORY, RIMTOOL

OTHERS = os.environ.get(
    "PROMQLTEST_DIR", os.path.join(REPOSITORY, "..", "shared", "promqltest")
)
# Evals in Prometheus's scripts, all of which pass.
REQUIRED = {
    "aggregators": 160,
    "at_modifier": 78,
    "collision": 2,
    "duration_expression": 59,
    "extended_vectors": 169,
    "fill-modifier": 46,
    "functions": 431,
    "histograms": 185,
    "info": 53,
    "limit": 37,
    "literals": 25,
    "name_label_dropping": 30,
    "native_histograms": 522,
    "operators": 214,
    "range_queries": 18,
    "selectors": 31,
    "staleness": 17,
    "start_timestamps": 26,
    "subquery": 34,
    "trig_functions": 19,
    "type_and_unit": 58,
}
LAST_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


def run(path):
    """(passed, failed, skipped, output) of one script."""
    done = subprocess.run(
        [RIMTOOL, "promqltest", "--experimental", "--aged", "--threads", "8", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=300, check=False,
    )
    lines = done.stdout.splitlines()
    match = LAST_LINE.match(lines[-1]) if lines else None
    if match is None:
        return 0, 1, 0, f"exit code {done.returncode}, no closing line\n{done.stdout}"
    passed, failed, skipped = map(int, match.groups())
    if (failed == 0) != (done.returncode == 0):
        return passed, failed + 1, skipped, f"{done.stdout}\nexit code {done.returncode}"
    return passed, failed, skipped, done.stdout


def main():
    own = sorted(glob.glob(os.path.join(REPOSITORY, "tests", "promql", "*.test")))
    others = [
        os.path.join(OTHERS, name + ".test")
        for name in REQUIRED
        if os.path.isdir(OTHERS)
    ]
    total = [0, 0, 0]
    for path in own + others:
        passed, failed, skipped, output = run(path)
        name = os.path.splitext(os.path.basename(path))[0]
        if path in others and passed != REQUIRED[name]:
            output += f"\nrequired: {REQUIRED[name]} passed"
            failed += 1
        print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
        if failed:
            print(output)
        total = [a + b for a, b in zip(total, (passed, failed, skipped))]
    if not others:
        print("Prometheus's own scripts are not at hand: only tests/promql was run")
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
