#!/usr/bin/env bash
# Everything that must hold: checks, the release build, a short fuzz run, every test.
# FUZZ_SECONDS is spent on each fuzz target, always from the same seed: a change must not fail for an
# input that chance found in other code. `make fuzz` looks for new ones. ctest's summary is the last
# thing printed.
set -euo pipefail
cd "$(dirname "$0")/.."

step()
{
    printf '\n== %s (%ss since the start)\n' "$*" "$SECONDS"
}

step "checks"
scripts/check.sh --fast
step "release build"
scripts/build.sh release
step "development build, warnings are errors"
scripts/build.sh dev
step "fuzz targets, ${FUZZ_SECONDS:-8} s each"
FUZZ_SEED=${FUZZ_SEED:-1} scripts/fuzz.sh "${FUZZ_SECONDS:-8}"
step "tests"
scripts/ctest.sh dev
