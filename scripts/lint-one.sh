#!/usr/bin/env bash
# clang-tidy on one source of the dev build, skipped when nothing it reads has changed since it was
# last clean (see check-lint.sh): lint-one.sh SOURCE
set -euo pipefail
source=$1
cache=build/lint
mkdir -p "$cache"

std=gnu17
compiler=clang-14
case $source in *.cc) std=c++17 compiler=clang++-14 ;; esac
key=$({
    cat .clang-tidy
    # -C keeps comments: NOLINT is one. Line markers stay too; a moved finding is a new finding.
    "$compiler" -E -C -std=$std -D_GNU_SOURCE -I. -Ibuild/dev "$source" || echo "no key: $RANDOM"
} 2>/dev/null | sha256sum | cut -d' ' -f1)
stamp=$cache/$key
[ -e "$stamp" ] && exit 0
clang-tidy-14 --quiet -p build/dev "$source" 2>/dev/null && touch "$stamp"
