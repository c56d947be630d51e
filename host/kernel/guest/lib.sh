# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the scripts of this folder share. Sourced, never run.

guest_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$guest_dir/../../.." && pwd)
# Everything that is fetched or built; deleting it is always safe.
cache=${FRESHWIRE_KERNEL_CACHE:-$repository/target/kernel}

# Something is missing on this machine, as opposed to broken: exit code 77, as Automake's tests have it.
readonly EXIT_MISSING=77
# The archive can be read and has no such kernel any more: backports and sid move on.
readonly EXIT_GONE=78

# The kernels that are tested, oldest first.
readonly KERNELS=(6.1 6.12 7.2 7.3)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
    say "$*"
    exit 2
}

missing() {
    say "missing: $*"
    exit "$EXIT_MISSING"
}

# end STATUS: ends with it, or with 0 where what is missing may be missing.
end() {
    if [ "$1" = "$EXIT_MISSING" ] && [ "${CI:-}" != true ]; then
        say "skipped"
        exit 0
    fi
    exit "$1"
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
    7.2) echo forky sid ;;
    7.3) echo trixie-backports forky sid ;;
    esac
}

# Whether a kernel's build tools may need a newer C library than this machine's, and its options a newer compiler. build.sh then
# builds in an unpacked root of the kernel's release.
needs_root() {
    case $1 in
    7.*) true ;;
    *) false ;;
    esac
}

# in_root FOLDER WORD...: runs a command in the root that lies in FOLDER/tree. In it the paths below that begin at /.
in_root() {
    local root=$1/tree
    shift
    # A user namespace, so that no root is needed; the compiler wants /dev/null and a folder for what it forgets, objtool /proc.
    unshare --user --map-root-user --mount -- sh -euc '
        root=$1
        shift
        mkdir -p "$root/dev" "$root/tmp" "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --rbind /proc "$root/proc"
        exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/tmp LC_ALL=C "$@"
    ' sh "$root" "$@"
}

require_root() {
    require unshare util-linux
    unshare --user --map-root-user --mount true 2>/dev/null ||
        missing "user namespaces, to build for $1: sysctl kernel.unprivileged_userns_clone=1"
}

# Between these two nobody else fetches or builds the same kernel.
lock() {
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    flock 9
}

unlock() { exec 9>&-; }

# apt_with_suites FOLDER SUITE...: makes an apt configuration in FOLDER/apt that knows these suites of the machine's own Debian
# archive and nothing else, for private_apt. Nothing is installed with it and no root is needed.
apt_with_suites() {
    local folder=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg uri suite
    shift
    # shellcheck disable=SC2016  # apt's own placeholders
    uri=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
        awk -F '|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
    [ -n "$uri" ] || missing "a Debian archive among apt's sources (after apt-get update)"
    [ -r "$keyring" ] || missing "$keyring: apt-get install debian-archive-keyring"
    rm -rf "$folder/apt"
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    for suite in "$@"; do
        echo "deb [arch=amd64 signed-by=$keyring] $uri $suite main"
    done >"$folder/apt/sources.list"
    if ! private_apt "$folder" apt-get update >"$folder/apt/log" 2>&1; then
        say "$* cannot be read, see $folder/apt/log"
        return 1
    fi
}

# Further options of private_apt.
apt_options=()

# private_apt FOLDER PROGRAM ARGUMENT...: runs apt's program with the configuration in FOLDER/apt.
private_apt() {
    local folder=$1 program=$2
    shift 2
    "$program" -q \
        -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" \
        -o APT::Sandbox::User="$(id -un)" -o APT::Architecture=amd64 "${apt_options[@]}" \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::Retries=3 "$@"
}

# unpack_packages FOLDER PACKAGE...: downloads packages and unpacks them into FOLDER/tree.
unpack_packages() {
    local folder=$1 deb
    shift
    rm -rf "$folder/tree" "$folder/debs"
    mkdir -p "$folder/tree" "$folder/debs"
    (cd "$folder/debs" && private_apt "$folder" apt-get download "$@") >>"$folder/apt/log" 2>&1 ||
        die "cannot download $*, see $folder/apt/log"
    for deb in "$folder"/debs/*.deb; do
        dpkg-deb -x "$deb" "$folder/tree"
    done
    rm -rf "$folder/debs" "$folder/apt/lists" "$folder/apt/cache"
}

# Packages that go into a root without what they depend on.
beside=()

# unpack_root FOLDER PACKAGE...: the same with all that the packages and a build need, as a root for in_root.
unpack_root() {
    local folder=$1 packages
    shift
    # As if nothing were installed.
    : >"$folder/apt/no-packages"
    apt_options=(-o Dir::State::status="$folder/apt/no-packages")
    mapfile -t packages < <(private_apt "$folder" apt-get --simulate --no-install-recommends install "$@" \
        make binutils dash bash coreutils sed grep mawk findutils perl |
        sed -nE 's/^Inst ([^ ]*) .*\(([^ ]*) .*/\1=\2/p')
    apt_options=()
    unpack_packages "$folder" "${packages[@]}" "${beside[@]}"
    # What the packages' own scripts would make.
    ln -sf mawk "$folder/tree/usr/bin/awk"
}

# copy_sources FROM TO: a module's sources. Kbuild writes beside them, so each kernel has a copy. An unchanged file keeps its time and its object.
copy_sources() {
    local source_dir=$1 work=$2 file list
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
