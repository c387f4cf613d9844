#!/usr/bin/env bash
# Runs every benchmark of bench/ from the release build, one figure a line: bench.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
programs=()
for program in bench/bench_*.py build/release/bench/bench_*; do
    name=$(basename "$program" .py)
    if [ $# -eq 0 ] || [[ " $* " == *" $name "* ]]; then
        programs+=("$program")
    fi
done
[ ${#programs[@]} -gt 0 ] || {
    echo "bench.sh: no such benchmark: ${*:-none is built yet}" >&2
    exit 1
}
for program in "${programs[@]}"; do
    "$program"
done
