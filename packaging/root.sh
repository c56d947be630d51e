#!/usr/bin/env bash
# What `make test` needs, in a clean Debian: runs the installation there and asks for each requirement, then runs every block of the
# documents (the long form). The root file system is that of packaging/test.sh; Rust, at least 1.95, and the built commands are this machine's. As root.
# `root.sh --ask` leaves the documents out.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath "${CARGO_TARGET_DIR:-target}")
packaging/test.sh --base
if [ "${1:-}" != --inside ]; then
    if [ "${1:-}" != --ask ]; then
        features=freshwire-cli/moq$(xtask/install.sh has pkg-config 'gstreamer-1.0>=1.22' && echo ,freshwire-gst/plugin) || true
        cargo build --quiet --workspace --features "$features" --lib --bin=freshwire --bin=freshwire-host --bin=freshwire-lab
    fi
    rm -rf "$target/test-root"
    status=0
    # The mounts exist in the child's namespace alone, so that deleting the folder cannot reach what was mounted.
    unshare --mount --propagation private packaging/root.sh --inside "${1:-}" || status=$?
    rm -rf "$target/test-root"
    exit "$status"
fi

root=$target/test-root
cp -a "$target/packages-base" "$root"
place() {
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
}
mount --bind /proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind /sys "$root/sys"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
# The sources lie where they are here, so that the built commands find their files.
place "$PWD" "$PWD"
case $target in "$PWD"/*) ;; *) place "$target" "$target" ;; esac
place "$(rustc --print sysroot)" /usr/local/rust
cargo_home=${CARGO_HOME:-$HOME/.cargo}
place "$cargo_home/registry" "$cargo_home/registry"

within() {
    chroot "$root" /usr/bin/env -i PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 CI=true \
        DEBIAN_FRONTEND=noninteractive CARGO_HOME="$cargo_home" FRESHWIRE_TARGET="$target/debug" CARGO_TARGET_DIR="$target" \
        /bin/sh -ec "cd '$PWD'; $*"
}

within xtask/install.sh test
within xtask/install.sh ask test
if [ "${2:-}" != --ask ]; then within python3 xtask/documents.py --long; fi
