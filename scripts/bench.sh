#!/usr/bin/env bash
# Runs every benchmark of bench/ from the release build, one figure a line: bench.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
programs=()
if [ $# -gt 0 ]; then
    programs=("${@/#/build/release/bench/}")
else
    programs=(build/release/bench/bench_*)
fi
[ ${#programs[@]} -gt 0 ] || {
    echo "bench.sh: no benchmark is built yet" >&2
    exit 1
}
for program in "${programs[@]}"; do
    "$program"
done
# Figures of the whole server, beside Debian's victoria-metrics in the same run.
if [ $# -eq 0 ] && [ -x build/release/rimstone ]; then
    tests/integration/peers.sh
    bench/bench_ingest.py --peer build/peers/usr/bin/victoria-metrics
fi
