#!/usr/bin/env bash
# Runs every check of the source tree: check.sh [--fast | --all]
#
# --fast leaves out clang-tidy, which needs a configured build and takes minutes.
# Every check runs, so that one visit shows all findings; the exit code is 1 if any failed.
set -euo pipefail
cd "$(dirname "$0")/.."

checks=(scripts/check-format.sh scripts/check-layering.py scripts/check-functions.py
    scripts/check-tree.py)
case ${1:---all} in
--fast) ;;
--all) checks+=(scripts/check-lint.sh) ;;
*)
    echo "usage: check.sh [--fast | --all]" >&2
    exit 2
    ;;
esac

failed=()
for check in "${checks[@]}"; do
    "$check" || failed+=("$check")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
echo "${#checks[@]} checks passed"
