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

# choose SUITE: asks one suite; prints the release of its cloud kernel if it is of the wanted series.
choose() {
    local suite=$1 package
    apt_with_suites "$place" "$suite" || return 1
    package=$(private_apt "$place" apt-cache depends --important linux-image-cloud-amd64 2>/dev/null |
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
    private_apt "$place" apt-cache depends --important "linux-headers-$release" |
        sed -nE 's/^ *Depends: (linux-(headers|kbuild)-.*)$/\1/p'
}

unpack() {
    local release=$1 packages
    mapfile -t packages < <(packages_of "$release")
    unpack_packages "$place" "${packages[@]}"
    # The headers name their common half by the path where they would be installed.
    sed -i "s|^include /usr/src/|include $place/tree/usr/src/|" \
        "$place/tree/usr/src/linux-headers-$release/Makefile"
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
