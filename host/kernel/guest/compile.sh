#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# compile.sh: builds both modules for the newest kernel of each series that Debian's releases and their backports have, plain and
# real-time, with the compiler of the release. Nothing is booted. A series that the modules do not know has to be refused in words.
# `compile.sh --short` leaves out real-time kernels and the releases to come.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

# Each line has a root. The suites of one go together.
releases=("bookworm bookworm-backports" "trixie trixie-backports" forky sid)
flavours=(amd64 rt-amd64)
# The short form has roots of its own, which lack the other headers.
roots=headers
if [ "${1:-}" = --short ]; then
    releases=("${releases[@]:0:2}")
    flavours=(amd64)
    roots=headers-short
fi
readonly releases flavours roots
# For how many minutes the archive's answer holds.
readonly FRESH=1440

# The newest kernel of each series, such as 6.12.107+deb13.
newest() {
    private_apt "$place" apt-cache pkgnames linux-headers- |
        sed -nE 's/^linux-headers-([0-9]+\.[0-9]+.*)-rt-amd64$/\1/p' | sort -V |
        awk -F '[.+-]' '{ newest[$1 "." $2] = $0 } END { for (series in newest) print newest[series] }' | sort -V
}

# Unpacks the headers of a release into a root, if they are not there. What is there is used where the archive cannot be asked.
prepare() {
    local suites found release flavour packages=()
    read -ra suites <<<"$1"
    if [ -n "$(find "$place/kernels" -mmin "-$FRESH" 2>/dev/null)" ]; then return; fi
    mkdir -p "$place"
    if ! apt_with_suites "$place" "${suites[@]}"; then
        [ -e "$place/kernels" ]
        return
    fi
    : >"$place/apt/no-packages"
    apt_options=(-o Dir::State::status="$place/apt/no-packages")
    found=$(newest)
    apt_options=()
    [ -n "$found" ] || die "$1 has no headers of kernels"
    if [ "$found" = "$(cat "$place/kernels" 2>/dev/null)" ]; then
        touch "$place/kernels"
        return
    fi
    for release in $found; do
        for flavour in "${flavours[@]}"; do packages+=("linux-headers-$release-$flavour"); done
    done
    rm -f "$place/kernels"
    unpack_root "$place" "${packages[@]}"
    # Written last: what is there is whole.
    echo "$found" >"$place/kernels"
}

is_tested() {
    case " ${KERNELS[*]} " in
    *" $1 "*) true ;;
    *) false ;;
    esac
}

# Builds one module for one kernel, and counts.
compile() {
    local kernel=$1 module=$2 work sum said series
    work=$place/tree/build/$kernel/$module
    series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$kernel")
    mkdir -p "$work"
    copy_sources "$repository/host/kernel/$module" "$work"
    sum=$(cd "$work" && xargs md5sum <.sources | md5sum)
    if [ "$sum" = "$(cat "$work/.built" 2>/dev/null)" ]; then
        built "$module, $kernel"
        return
    fi
    rm -f "$work/.built"
    if in_root "$place" make -j "$(nproc)" -C "/usr/src/linux-headers-$kernel" M="${work#"$place/tree"}" W=1 \
        CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$work/build.log" 2>&1 && ! grep -E 'warning:|WARNING:' "$work/build.log"; then
        echo "$sum" >"$work/.built"
        built "$module, $kernel"
        return
    fi
    said=$(sed -n "s/.*#error \"\($module builds for Linux .*\)\"/\1/p" "$work/build.log" | head -n 1)
    if [ -n "$said" ] && ! is_tested "$series"; then
        echo "ok $module, $kernel # SKIP refused: $said"
        refused=$((refused + 1))
        return
    fi
    tail -n 40 "$work/build.log"
    echo "not ok $module, $kernel"
    failed=$((failed + 1))
}

built() {
    echo "ok $1"
    passed=$((passed + 1))
}

[ "$(uname -m)" = x86_64 ] || missing "an x86-64 machine: the headers bring programs for it"
require apt-get apt
require dpkg-deb dpkg
require_root "other releases"
passed=0
failed=0
refused=0
unread=0
lock headers
for suites in "${releases[@]}"; do
    place=$cache/$roots/${suites%% *}
    if ! prepare "$suites"; then
        unread=$((unread + 1))
        continue
    fi
    while read -r release; do
        for flavour in "${flavours[@]}"; do
            for module in tcp_ldc pkt_push; do compile "$release-$flavour" "$module"; done
        done
    done <"$place/kernels"
done
unlock
if [ "$failed" != 0 ]; then
    echo "test result: FAILED. $passed passed; $failed failed; $((refused + unread)) ignored"
    exit 1
fi
echo "test result: ok. $passed passed; 0 failed; $((refused + unread)) ignored ($refused refused, $unread releases unread)"
if [ "$unread" != 0 ]; then end "$EXIT_MISSING"; fi
