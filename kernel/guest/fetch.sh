#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# fetch.sh KERNEL: gets one of Debian's stock kernels with its headers into the cache and prints its folder.
#
# Nothing is installed and no root is needed: apt runs with a configuration of its own, made from the machine's own
# Debian source with the suite changed, and the packages are only unpacked.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

kernel=${1:?usage: fetch.sh KERNEL}
known_kernel "$kernel"
place=$cache/$kernel

private_apt() {
    local tool=$1
    shift
    "$tool" -q \
        -o Dir::Etc::SourceList="$place/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$place/apt/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$place/apt/cache" -o APT::Sandbox::User="$(id -un)" -o APT::Architecture=amd64 \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::Retries=3 "$@"
}

# The address of the Debian archive that this machine uses.
archive() {
    # shellcheck disable=SC2016  # apt's own placeholders
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
        awk -F '|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# choose SUITE: asks one suite; prints the release of its cloud kernel if it is of the wanted series.
choose() {
    local suite=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg uri package
    uri=$(archive)
    [ -n "$uri" ] || missing "a Debian archive among apt's sources (after apt-get update)"
    [ -r "$keyring" ] || missing "$keyring: apt-get install debian-archive-keyring"
    rm -rf "$place/apt"
    mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial"
    echo "deb [arch=amd64 signed-by=$keyring] $uri $suite main" >"$place/apt/sources.list"
    if ! private_apt apt-get update >"$place/apt/log" 2>&1; then
        say "$suite cannot be read, see $place/apt/log"
        return 1
    fi
    package=$(private_apt apt-cache depends --important linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/^ *Depends: linux-image-//p' | head -n 1)
    case $package in
    "$kernel".*) echo "$package" ;;
    *)
        say "$suite has the kernel ${package:-none}"
        return 1
        ;;
    esac
}

# The packages that building a module for a release takes, one a line.
packages_of() {
    local release=$1
    echo "linux-image-$release"
    echo "linux-headers-$release"
    private_apt apt-cache depends --important "linux-headers-$release" |
        sed -nE 's/^ *Depends: (linux-(headers|kbuild)-.*)$/\1/p'
}

unpack() {
    local release=$1 tree=$place/tree deb packages
    rm -rf "$tree" "$place/debs"
    mkdir -p "$tree" "$place/debs"
    mapfile -t packages < <(packages_of "$release")
    (cd "$place/debs" && private_apt apt-get download "${packages[@]}") >>"$place/apt/log" 2>&1 ||
        die "cannot download ${packages[*]}, see $place/apt/log"
    for deb in "$place"/debs/*.deb; do
        dpkg-deb -x "$deb" "$tree"
    done
    # The headers name their common half by the path where they would be installed.
    sed -i "s|^include /usr/src/|include $tree/usr/src/|" "$tree/usr/src/linux-headers-$release/Makefile"
    rm -rf "$place/debs" "$place/apt/lists" "$place/apt/cache"
}

fetch() {
    if [ -e "$place/release" ]; then return; fi
    local suite release
    mkdir -p "$place"
    for suite in $(suites_of "$kernel"); do
        if release=$(choose "$suite"); then
            unpack "$release"
            # Written last: what is there is whole.
            echo "$release" >"$place/release"
            return
        fi
    done
    missing "a suite with Linux $kernel for the cloud"
}

require apt-get apt
require dpkg-deb dpkg
lock "$kernel"
fetch
unlock
echo "$place"
