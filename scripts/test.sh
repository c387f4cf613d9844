#!/usr/bin/env bash
# Everything that must hold: checks, the release build, a short fuzz run, every test.
# FUZZ_SECONDS is spent on each fuzz target. ctest's summary is the last thing printed.
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
step "fuzz targets, ${FUZZ_SECONDS:-15} s each"
scripts/fuzz.sh "${FUZZ_SECONDS:-15}"
step "tests"
scripts/ctest.sh dev
