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

# The same with compiler, make, shell and C library of the kernel's own release: a root that one can change into.
unpack_with_root() {
    local release=$1 suite=$2
    # Backports stand on their release; what is newer stands alone.
    # shellcheck disable=SC2046  # no word where there is no release
    apt_with_suites "$place" "$suite" $([ "${suite%-backports}" = "$suite" ] || echo "${suite%-backports}") ||
        missing "the packages of $suite"
    # Newer releases have image and modules in packages of their own.
    mapfile -t beside < <(private_apt "$place" apt-cache depends --important "linux-image-$release" |
        sed -nE 's/^ *Depends: (linux-(binary|modules)-.*)$/\1/p')
    beside+=("linux-image-$release")
    unpack_root "$place" "linux-headers-$release"
    if [ -e "$place/tree/lib/modules/$release/vmlinuz" ]; then
        ln -sf "../lib/modules/$release/vmlinuz" "$place/tree/boot/vmlinuz-$release"
    fi
}

unpack() {
    local release=$1 suite=$2 packages
    if needs_root "$kernel"; then
        unpack_with_root "$release" "$suite"
        return
    fi
    mapfile -t packages < <(packages_of "$release")
    unpack_packages "$place" "${packages[@]}"
    # The headers name their common half by the path where they would be installed.
    sed -i "s|^include /usr/src/|include $place/tree/usr/src/|" \
        "$place/tree/usr/src/linux-headers-$release/Makefile"
}

fetch() {
    if [ -e "$place/release" ]; then return; fi
    local suite release read=false
    mkdir -p "$place"
    for suite in $(suites_of "$kernel"); do
        if release=$(choose "$suite"); then
            unpack "$release" "$suite"
            # Written last: what is there is whole.
            echo "$release" >"$place/release"
            return
        fi
        if [ -s "$place/apt/sources.list" ] && ! grep -q '^[EW]: ' "$place/apt/log"; then read=true; fi
    done
    if $read; then
        say "the archive has no Linux $kernel for the cloud any more, in $(suites_of "$kernel")"
        exit "$EXIT_GONE"
    fi
    missing "a suite with Linux $kernel for the cloud"
}

require apt-get apt
require dpkg-deb dpkg
lock "$kernel"
fetch
unlock
echo "$place"
