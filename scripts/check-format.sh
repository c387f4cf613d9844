#!/usr/bin/env bash
# Fails when clang-format would change a file: check-format.sh [ROOT]
# To mend: clang-format-14 -i FILE
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

find . \( -path ./build -o -path ./.git -o -path ./data \) -prune -o -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print0 |
    xargs -0 -r -n 16 -P "${JOBS:-$(nproc)}" clang-format-14 --dry-run -Werror --style=file
