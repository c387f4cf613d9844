#!/usr/bin/env bash
# Configures and builds one preset: build.sh PRESET [TARGET...]
# RIMSTONE_TESTS=ON: a release with its tests too.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

options=()
# A release for users holds the two binaries and the benchmarks: no cmocka needed.
[ "$preset" != release ] || options+=(-DRIMSTONE_TESTS="${RIMSTONE_TESTS:-OFF}")
if command -v ccache >/dev/null; then
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset "$preset" "${options[@]}" --log-level=WARNING >/dev/null # errors: stderr
cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" ${1:+--target "$@"}
