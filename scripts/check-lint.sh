#!/usr/bin/env bash
# Runs clang-tidy over every source of the dev build: check-lint.sh [SOURCE...]
#
# A source that was clean is skipped until it, a header it includes, its command or .clang-tidy
# changes: the key is the hash of the preprocessed text, so the first run takes minutes and the next
# one seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -f build/dev/build.ninja ] || cmake --preset dev --log-level=WARNING
# Generated headers must exist before a source that includes them can be parsed.
cmake --build --preset dev -j "${JOBS:-$(nproc)}" >build/dev/lint-build.log 2>&1 || {
    cat build/dev/lint-build.log
    exit 1
}
python3 - "$@" <<'PYTHON' |
import json, os, sys
root = os.getcwd() + os.sep
wanted = set(sys.argv[1:])
for unit in json.load(open("build/dev/compile_commands.json")):
    path = unit["file"].removeprefix(root)
    if not path.startswith("build") and (not wanted or path in wanted):
        print(path)
PYTHON
    sort -u | tr '\n' '\0' | xargs -0 -r -n 1 -P "${JOBS:-$(nproc)}" scripts/lint-one.sh
