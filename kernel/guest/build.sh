#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# build.sh KERNEL FILE: builds kernel/tcp_ldc against one of the stock kernels and copies the module to FILE. A warning, W=1
# included, is an error.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

usage="usage: build.sh KERNEL FILE"
kernel=${1:?$usage}
file=${2:?$usage}
source_dir=${FRESHWIRE_MODULE_SOURCE:-$repository/kernel/tcp_ldc}

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

build() {
    local place=$1 headers work
    headers=$place/tree/usr/src/linux-headers-$(cat "$place/release")
    work=$place/tcp_ldc
    mkdir -p "$work"
    copy_sources "$work"
    # The compiler of the packages is not asked for: any gcc that the kernel accepts will do. BTF would need pahole.
    if ! make -C "$headers" M="$work" W=1 CC="${CC:-gcc}" CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$work/build.log" 2>&1 ||
        grep -E 'warning:|WARNING:' "$work/build.log" | grep -v 'compiler differs'; then
        cat "$work/build.log" >&2
        die "tcp_ldc does not build for $kernel"
    fi
    [ -e "$work/tcp_ldc.ko" ] || die "the build made no tcp_ldc.ko"
}

[ -e "$source_dir/Kbuild" ] || missing "$source_dir/Kbuild"
require make make
require "${CC:-gcc}" gcc
place=$("$guest_dir/fetch.sh" "$kernel")
lock "$kernel"
build "$place"
# Before somebody else builds from other sources.
cp "$place/tcp_ldc/tcp_ldc.ko" "$file"
unlock
