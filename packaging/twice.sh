#!/usr/bin/env bash
# Builds the packages of this commit twice and compares the bytes: from two clones, in folders of different names, with other names of
# Cargo's folder. `twice.sh [STEP...]` takes the steps of build.sh, by default all but the crates. PROFILE as there; FIRST is a folder
# with packages that were built before from the same commit, in place of the first build.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
unset CARGO_TARGET_DIR RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
steps=("$@")
if ((${#steps[@]} == 0)); then steps=(binaries wheel command library gstreamer python dkms wireshark); fi
work=$target/packages-twice
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
if [ -n "$(git status --porcelain)" ]; then echo "twice.sh: changes that are not committed are not built" >&2; fi
cargo_home=${CARGO_HOME:-$HOME/.cargo}

# From a clone, and with a Cargo folder that has the same crates under another name.
build() { # name
    local clone=$work/$1/freshwire home=$work/$1/cargo
    mkdir -p "$work/$1" "$home"
    git clone --quiet --shared "$PWD" "$clone"
    ln -s "$cargo_home/registry" "$home/registry"
    if [ -d "$cargo_home/git" ]; then ln -s "$cargo_home/git" "$home/git"; fi
    (cd "$clone" && CARGO_HOME=$home O=$work/$1/packages packaging/build.sh "${steps[@]}")
    # Room for the other one.
    rm -rf "$clone"
}

first=${FIRST:-}
if [ -z "$first" ]; then
    build one
    first=$work/one/packages
fi
build the-other
compared=0
for package in "$work"/the-other/packages/*.{deb,whl}; do
    if [ ! -e "$package" ]; then continue; fi
    cmp "$package" "$first/$(basename "$package")"
    echo "ok $(basename "$package")"
    compared=$((compared + 1))
done
if ((compared == 0)); then
    echo "twice.sh: the steps ${steps[*]} make no package" >&2
    exit 1
fi
echo "$compared packages are the same"
