#!/usr/bin/env bash
# Builds every libFuzzer target and runs each for a while: fuzz.sh SECONDS [TARGET...]
#
# A finding is kept as build/fuzz/findings/TARGET-*; add it to tests/fuzz/corpus/TARGET together with
# the fix, where it runs as a plain test ever after.
#
# FUZZ_SEED makes a run repeat itself: it begins at the corpus of the repository alone, with that
# seed. Without it every run is another, and begins with what earlier ones have found too.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
seed=${FUZZ_SEED:-0} # libFuzzer takes 0 as "any"
repeat=()
same_addresses=() # where the machine lets us: what libFuzzer does follows from addresses too
if [ "$seed" != 0 ]; then
    repeat=(-seed="$seed" -reload=0)
    ! setarch -R true 2>/dev/null || same_addresses=(setarch -R)
fi

scripts/build.sh fuzz fuzz-targets
mkdir -p build/fuzz/findings
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
shopt -s nullglob
targets=("${@/#/build/fuzz/fuzz/}")
[ ${#targets[@]} -gt 0 ] || targets=(build/fuzz/fuzz/fuzz_*)
[ ${#targets[@]} -gt 0 ] || { echo "no fuzz target is built yet"; exit 0; }
for target in "${targets[@]}"; do
    name=$(basename "$target")
    work=build/fuzz/inputs/$name # new inputs; the corpus in the repository stays as it is
    corpus=tests/fuzz/corpus/$name
    mkdir -p "$corpus"
    inputs=("$corpus")
    if [ "${#repeat[@]}" -gt 0 ]; then
        work=build/fuzz/inputs/seeded/$name
        rm -rf "$work"
        # In an order of our own: a folder's is the file system's.
        inputs=(-seed_inputs="$(find "$corpus" -type f | LC_ALL=C sort | paste -sd,)")
    fi
    mkdir -p "$work"
    echo "fuzz: $name, $seconds s"
    "${same_addresses[@]}" "build/fuzz/fuzz/$name" "${repeat[@]}" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/findings/$name-" \
        "$work" "${inputs[@]}" 2>&1 |
        sed '/^###### Recommended/,/^###### End/d; /^stat::peak/d; /^stat::slow/d; /^$/d' || {
        echo "fuzz: $name failed; see build/fuzz/findings" >&2
        exit 1
    }
done
