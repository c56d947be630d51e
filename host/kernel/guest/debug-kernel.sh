#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# debug-kernel.sh kasan|kcsan: builds Debian's Linux 6.12 with lockdep and one of the two checkers of memory, small, into
# the cache; run.sh then knows it as the kernel "debug-kasan" or "debug-kcsan". Takes 20 minutes or more, once.
#
#   kasan   KASAN, kmemleak, UBSAN: use after free, out of bounds, leaks
#   kcsan   KCSAN, kmemleak: data races, leaks
#
# FRESHWIRE_JOBS says how many compilers run side by side; as many as there are processors by default.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

checker=${1:?usage: debug-kernel.sh kasan|kcsan}
case $checker in
kasan | kcsan) ;;
*) die "no such checker: $checker" ;;
esac
place=$cache/debug-$checker
source_tree=$cache/debug-source

# The source package of the stock kernel, from the first of its suites that has it.
fetch_source() {
    local folder=$cache/debug-download archive=tree/usr/src/linux-source-6.12.tar.xz suite
    if [ -e "$source_tree/Makefile" ]; then return; fi
    rm -rf "$source_tree" "$folder"
    for suite in $(suites_of 6.12); do
        if apt_with_suites "$folder" "$suite" && (unpack_packages "$folder" linux-source-6.12); then break; fi
    done
    [ -e "$folder/$archive" ] || missing "linux-source-6.12"
    mkdir -p "$source_tree"
    tar -xJ -C "$source_tree" --strip-components=1 -f "$folder/$archive"
    rm -rf "$folder"
}

checker_options() {
    case $checker in
    kasan)
        printf '%s\n' CONFIG_KASAN=y CONFIG_KASAN_GENERIC=y CONFIG_KASAN_OUTLINE=y CONFIG_KASAN_VMALLOC=y \
            CONFIG_VMAP_STACK=y CONFIG_DEBUG_KMEMLEAK=y CONFIG_UBSAN=y CONFIG_UBSAN_BOUNDS=y CONFIG_UBSAN_SHIFT=y
        ;;
    kcsan)
        # The default interval; reports of values that happened to stay the same are of interest as well.
        # kmemleak scans only when it is told to, without a module: its scan races with everything.
        printf '%s\n' CONFIG_KCSAN=y CONFIG_KCSAN_REPORT_VALUE_CHANGE_ONLY=n CONFIG_KCSAN_REPORT_ONCE_IN_MS=1000 \
            CONFIG_KCSAN_INTERRUPT_WATCHER=y CONFIG_KCSAN_VERBOSE=n CONFIG_DEBUG_KMEMLEAK=y CONFIG_DEBUG_KMEMLEAK_AUTO_SCAN=n
        ;;
    esac
}

# What is there of an earlier, interrupted build of the same configuration is used.
configure() {
    { cat "$guest_dir/debug.config" && checker_options; } >"$place/fragment.new"
    if cmp -s "$place/fragment.new" "$place/fragment" && [ -e "$place/build/.config" ]; then return; fi
    rm -rf "$place/build"
    mkdir -p "$place/build"
    mv "$place/fragment.new" "$place/fragment"
    make -C "$source_tree" O="$place/build" KCONFIG_ALLCONFIG="$place/fragment" allnoconfig >"$place/log" 2>&1
    local option
    # What the configuration cannot have would otherwise go missing silently.
    while read -r option; do
        case $option in
        CONFIG_*=[ym]) grep -qx "${option%=*}=[ym]" "$place/build/.config" || say "not set: $option" ;;
        esac
    done <"$place/fragment"
}

build() {
    if [ -e "$place/release" ]; then return; fi
    mkdir -p "$place/tree/boot" "$place/tree/usr/src"
    configure
    local release
    nice -n 19 make -C "$source_tree" O="$place/build" -j"${FRESHWIRE_JOBS:-$(nproc)}" bzImage modules >>"$place/log" 2>&1 ||
        die "the kernel does not build, see $place/log"
    release=$(make -s -C "$source_tree" O="$place/build" kernelrelease)
    make -C "$source_tree" O="$place/build" INSTALL_MOD_PATH="$place/tree" modules_install >>"$place/log" 2>&1
    cp "$place/build/arch/x86/boot/bzImage" "$place/tree/boot/vmlinuz-$release"
    ln -sfn "$place/build" "$place/tree/usr/src/linux-headers-$release"
    # Written last: what is there is whole.
    echo "$release" >"$place/release"
}

require flex flex
require bison bison
require bc bc
require make make
require apt-get apt
[ -e /usr/include/libelf.h ] || missing "libelf.h: apt-get install libelf-dev"
lock debug-source
fetch_source
unlock
lock "debug-$checker"
build
unlock
echo "$place"
