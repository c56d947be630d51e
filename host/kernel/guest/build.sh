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

build() {
    local make=(make -C "$place/tree/usr/src/linux-headers-$release" M="$work" CC="${CC:-gcc}")
    # In a root it is the compiler that the headers name; elsewhere any gcc that the kernel accepts will do.
    if needs_root "$kernel"; then
        make=(in_root "$place" make -C "/usr/src/linux-headers-$release" M="${work#"$place/tree"}")
    fi
    mkdir -p "$work"
    copy_sources "$source_dir" "$work"
    # BTF would need pahole and the kernel's own image with symbols.
    if ! "${make[@]}" W=1 CONFIG_DEBUG_INFO_BTF_MODULES= modules \
        >"$work/build.log" 2>&1 ||
        grep -E 'warning:|WARNING:' "$work/build.log" | grep -v 'compiler differs'; then
        cat "$work/build.log" >&2
        die "$module does not build for $kernel"
    fi
    [ -e "$work/$module.ko" ] || die "the build made no $module.ko"
}

if needs_root "$kernel"; then require_root "Linux $kernel"; fi
[ -e "$source_dir/Kbuild" ] || missing "$source_dir/Kbuild"
require make make
require "${CC:-gcc}" gcc
place=$("$guest_dir/fetch.sh" "$kernel")
release=$(cat "$place/release")
work=$place/$module
if needs_root "$kernel"; then work=$place/tree/build/$module; fi
lock "$kernel"
build
# Before somebody else builds from other sources.
cp "$work/$module.ko" "$file"
unlock
