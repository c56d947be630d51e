# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the scripts of this folder share. Sourced, never run.

guest_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$guest_dir/../.." && pwd)
# Everything that is fetched or built; deleting it is always safe.
cache=${FRESHWIRE_KERNEL_CACHE:-$repository/target/kernel}

# Something is missing on this machine, as opposed to broken: exit code 77, as Automake's tests have it.
readonly EXIT_MISSING=77

# The kernels that are tested, oldest first.
readonly KERNELS=(6.1 6.12)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
    say "$*"
    exit 2
}

missing() {
    say "missing: $*"
    exit "$EXIT_MISSING"
}

# require PROGRAM PACKAGE...: each program, or the packages that bring it.
require() {
    command -v "$1" >/dev/null 2>&1 || missing "$1: apt-get install ${*:2}"
}

# What debug-kernel.sh builds; run.sh takes these names as well.
readonly DEBUG_KERNELS=(debug-kasan debug-kcsan)

known_kernel() {
    local kernel
    for kernel in "${KERNELS[@]}" "${DEBUG_KERNELS[@]}"; do
        if [ "$kernel" = "$1" ]; then return 0; fi
    done
    die "no such kernel: $1; there are: ${KERNELS[*]}"
}

# The suites that have a kernel, in the order in which they are tried. Backports come first: what is built for the older
# release runs on the newer one too, not the other way round.
suites_of() {
    case $1 in
    6.1) echo bookworm ;;
    6.12) echo bookworm-backports trixie ;;
    esac
}

# Between these two nobody else fetches or builds the same kernel.
lock() {
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    flock 9
}

unlock() { exec 9>&-; }
