#!/usr/bin/env bash
# Unpacks the Debian packages that tests and benchmarks compare with into build/peers, and prints
# that folder: peers.sh [PACKAGE...] (default: prometheus victoria-metrics)
#
# They are never installed: the packages start services, and the tests want programs only. What is
# there already is kept, so only the first call needs the network.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(prometheus victoria-metrics)
peers=$PWD/build/peers
mkdir -p "$peers"

# Tests run at the same time; one of them unpacks.
exec 9>"$peers/lock"
flock 9

download() # package
{
    local scratch
    scratch=$(mktemp -d "$peers/download-XXXXXX")
    (
        cd "$scratch"
        # An old package list names files that the archive no longer has: refresh it once.
        apt-get -q -o Acquire::Retries=3 download "$1" ||
            { refresh_lists && apt-get -q -o Acquire::Retries=3 download "$1"; }
    ) >"$peers/$1.log" 2>&1 || {
        cat "$peers/$1.log" >&2
        echo "peers.sh: cannot download the Debian package '$1'" >&2
        rm -rf "$scratch"
        return 1
    }
    dpkg-deb -x "$scratch"/*.deb "$scratch/unpacked"
    rm -rf "${peers:?}/$1"
    mv "$scratch/unpacked" "$peers/$1"
    rm -rf "$scratch"
}

refresh_lists()
{
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" apt-get -q -o Acquire::Retries=3 update
}

for package in "${packages[@]}"; do
    [ -d "$peers/$package" ] || download "$package"
done
echo "$peers"
