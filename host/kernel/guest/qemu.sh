#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# qemu.sh: prints the command that begins QEMU, one word a line.
#
# Before 8.1 QEMU now and then executes code that the guest's kernel has patched away meanwhile, when the guest's processors run
# side by side ("accel/tcg: Always lock pages before translation" is its mending): the kernel then stops at a breakpoint or stands
# still. A machine with an older one gets Debian's backport, which is unpacked into the cache and not installed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

readonly OLDEST=8.1
place=$cache/qemu

is_new_enough() { dpkg --compare-versions "$1" ge "$OLDEST"; }

fetch() {
    if [ -e "$place/version" ]; then return; fi
    local codename version packages
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    apt_with_suites "$place" "$codename" "$codename-backports" ||
        missing "QEMU $OLDEST or newer: apt-get install qemu-system-x86"
    version=$(private_apt "$place" apt-cache show "qemu-system-x86/$codename-backports" 2>/dev/null |
        sed -n 's/^Version: \(.*:\)\?//p' | head -n 1)
    is_new_enough "${version:-0}" || missing "QEMU $OLDEST or newer; $codename-backports has ${version:-none}"
    # With what it depends on, as far as this machine has not got it.
    mapfile -t packages < <(private_apt "$place" apt-get --simulate --no-install-recommends \
        -t "$codename-backports" install qemu-system-x86 | sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1=\2/p')
    unpack_packages "$place" "${packages[@]}"
    # Written last: what is there is whole.
    echo "$version" >"$place/version"
}

require dpkg dpkg
own=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/^QEMU emulator version \([^ ]*\).*/\1/p')
if is_new_enough "${own:-0}"; then
    echo qemu-system-x86_64
    exit 0
fi
require apt-get apt
require dpkg-deb dpkg
lock qemu
fetch
unlock
share=$place/tree/usr/share
printf '%s\n' env "LD_LIBRARY_PATH=$place/tree/usr/lib/x86_64-linux-gnu:$place/tree/lib/x86_64-linux-gnu" \
    "$place/tree/usr/bin/qemu-system-x86_64" -L "$share/qemu" -L "$share/seabios"
