#!/usr/bin/env bash
# Runs every benchmark of bench/ from the release build, one figure a line: bench.sh [NAME...]
#
# A name that is no benchmark is refused before any of the others runs.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

declare -A program_of=()
for program in bench/bench_*.py build/release/bench/bench_*; do
    program_of[$(basename "$program" .py)]=$program
done
mapfile -t known < <(printf '%s\n' "${!program_of[@]}" | sort)

case ${1:-} in
-h | --help)
    printf 'usage: bench.sh [NAME...]\nbenchmarks: %s\n' "${known[*]}"
    exit 0
    ;;
esac
if [ ${#program_of[@]} -eq 0 ]; then
    echo "bench.sh: no benchmark is built yet: run make bench" >&2
    exit 1
fi
[ $# -gt 0 ] || set -- "${known[@]}"
for name in "$@"; do
    if [ -z "$name" ] || [ -z "${program_of[$name]:-}" ]; then
        echo "bench.sh: no such benchmark: '$name'; there are: ${known[*]}" >&2
        exit 2
    fi
done
for name in "$@"; do
    "${program_of[$name]}"
done
