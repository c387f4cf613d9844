#!/usr/bin/env bash
# Installs the Debian packages that are missing, by name: install-deps.sh [build] [test] [check]
#
# With everything in place it changes nothing and needs no network. Each library's reason stands
# in docs/dependencies.md. Nothing here starts a service: the peers that tests and benchmarks
# compare with are unpacked by tests/integration/peers.sh, never installed.
set -euo pipefail

# What `make build` and `make run` need on a machine with only git and make.
build_packages=(
    gcc g++ libc6-dev cmake ninja-build pkg-config
    libzstd-dev liburing-dev libprotobuf-c-dev protobuf-c-compiler libsnappy-dev
    libmicrohttpd-dev libxxhash-dev libroaring-dev libre2-dev libdouble-conversion-dev
    libyaml-dev libjansson-dev zlib1g-dev libcrypt-dev nettle-dev libcurl4-openssl-dev
)
# Tests: cmocka for unit tests, clang with its run-time library for fuzzing and MSan, Python's
# standard library for the integration tests.
test_packages=(libcmocka-dev clang-14 libclang-rt-14-dev llvm-14 python3)
# Format and lint.
check_packages=(clang-format-14 clang-tidy-14 python3)

fail()
{
    echo "install-deps.sh: $*" >&2
    exit 1
}

wanted=()
for list in "$@"; do
    case $list in
    build) wanted+=("${build_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    check) wanted+=("${check_packages[@]}") ;;
    *) fail "unknown list '$list' (known: build, test, check)" ;;
    esac
done
[ ${#wanted[@]} -gt 0 ] || fail "say which lists to install: build, test, check"

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail "this machine has no dpkg and apt-get. Rimstone is built and tested on Debian 12;" \
        "elsewhere install the equivalents of: ${wanted[*]}"
fi

installed() # is the package, or one that provides it, unpacked and configured?
{
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
        fail "not root and no sudo here; as root run: apt-get install ${missing[*]}"
    as_root=(sudo)
fi
echo "installing: ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
