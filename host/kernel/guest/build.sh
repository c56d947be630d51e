#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# build.sh KERNEL MODULE FILE: builds host/kernel/MODULE (tcp_ldc, pkt_push) against one of the stock kernels and copies the module to
# FILE. A warning, W=1 included, is an error.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

usage="usage: build.sh KERNEL MODULE FILE"
kernel=${1:?$usage}
module=${2:?$usage}
file=${3:?$usage}
source_dir=${FRESHWIRE_MODULE_SOURCE:-$repository/host/kernel}/$module

# Kbuild writes beside the sources, so each kernel has a copy of them. An unchanged file keeps its time and its object.
copy_sources() {
    local work=$1 file list
    list=$(cd "$source_dir" && find . -type f -not -path './tests/*' | sort)
    if [ "$list" != "$(cat "$work/.sources" 2>/dev/null)" ]; then
        rm -rf "$work"
        mkdir -p "$work"
        echo "$list" >"$work/.sources"
    fi
    while read -r file; do
        mkdir -p "$(dirname "$work/$file")"
        cmp -s "$source_dir/$file" "$work/$file" || cp "$source_dir/$file" "$work/$file"
    done <<<"$list"
}

# Runs the rest of the words where the kernel's tools run: in the root that fetch.sh unpacked with it, or right here. In the root
# the paths below it begin at /.
in_root() {
    if [ -z "$(root_of "$kernel")" ]; then
        "$@"
        return
    fi
    # A user namespace, so that no root is needed; the compiler wants /dev/null and a folder for what it forgets, objtool /proc.
    unshare --user --map-root-user --mount -- sh -euc '
        root=$1
        shift
        mkdir -p "$root/dev" "$root/tmp" "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --rbind /proc "$root/proc"
        exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/usr/sbin HOME=/tmp LC_ALL=C "$@"
    ' sh "$place/tree" "$@"
}

build() {
    local headers options=() prefix=
    if [ -n "$(root_of "$kernel")" ]; then
        # The compiler of that release, as the headers name it.
        headers=/usr/src/linux-headers-$release
        prefix=$place/tree
    else
        # The compiler of the packages is not asked for: any gcc that the kernel accepts will do.
        headers=$place/tree/usr/src/linux-headers-$release
        options=(CC="${CC:-gcc}")
    fi
    mkdir -p "$work"
    copy_sources "$work"
    # BTF would need pahole and the kernel's own image with symbols.
    if ! in_root make -C "$headers" M="${work#"$prefix"}" W=1 "${options[@]}" CONFIG_DEBUG_INFO_BTF_MODULES= modules \
        >"$work/build.log" 2>&1 ||
        grep -E 'warning:|WARNING:' "$work/build.log" | grep -v 'compiler differs'; then
        cat "$work/build.log" >&2
        die "$module does not build for $kernel"
    fi
    [ -e "$work/$module.ko" ] || die "the build made no $module.ko"
}

if [ -n "$(root_of "$kernel")" ]; then
    require unshare util-linux
    unshare --user --map-root-user --mount true 2>/dev/null ||
        missing "user namespaces, to build for Linux $kernel: sysctl kernel.unprivileged_userns_clone=1"
fi
[ -e "$source_dir/Kbuild" ] || missing "$source_dir/Kbuild"
require make make
require "${CC:-gcc}" gcc
place=$("$guest_dir/fetch.sh" "$kernel")
release=$(cat "$place/release")
work=$place/$module
if [ -n "$(root_of "$kernel")" ]; then work=$place/tree/build/$module; fi
lock "$kernel"
build
# Before somebody else builds from other sources.
cp "$work/$module.ko" "$file"
unlock
