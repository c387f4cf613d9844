#!/usr/bin/env bash
# Runs the tests of one built preset: ctest.sh PRESET [ctest options]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# Sanitizers: the first finding fails the test. (abort_on_error=0 keeps core dumps away.)
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:abort_on_error=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
exec ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    -j "${JOBS:-$(nproc)}" "$@"
