#!/usr/bin/env bash
# Installs what `make demo`, `make test` or `make packages` needs and this machine lacks, by xtask/requirements.txt. As root it asks
# apt; otherwise it prints the one line that an administrator would type, goes on where a package is optional, and stops where it is not.
# `install.sh packages STEP...` installs for some steps of packaging/build.sh, without a step for all of them.
# `install.sh ask JOB [STEP...]` only says of each requirement whether it is there; `install.sh has KIND NAME` asks for one.
set -euo pipefail

cd "$(dirname "$0")/.."

lacks() { ! command -v "$1" >/dev/null 2>&1; }

# All elements with their plugins, in one call.
elements=
has_element() {
    if [ -z "$elements" ]; then elements=$(gst-inspect-1.0 2>/dev/null | sed -n 's/^[^:]*: *\([^: ]*\): .*/ \1 /p') || true; fi
    grep -qF " $1 " <<<"$elements"
}

# Whether a requirement is there: kind and name of the table.
has() {
    case $1 in
    program) ! lacks "$2" ;;
    element) has_element "$2" ;;
    python) /usr/bin/python3 -c "import $2" ;;
    typelib) /usr/bin/python3 -c "import gi; gi.require_version('$2', '1.0'); from gi.repository import $2" ;;
    header) cc -E -include "$2" -xc /dev/null ;;
    # `grep -q` would end before its input does, and the pipe with an error.
    library) ldconfig -p | grep -F "$2" ;;
    pkg-config) pkg-config "--atleast-version=${2#*>=}" "${2%>=*}" ;;
    static) ! lacks "$2" && ! ldd "$(command -v "$2")" ;;
    script) "./$2" --check ;;
    *)
        echo "install.sh: unknown kind $1" >&2
        exit 2
        ;;
    esac >/dev/null 2>&1
}

# The rows of some jobs, one name a line: kind, name, packages, and `!` where nothing runs without it.
rows() {
    sed -e 's/#.*//' xtask/requirements.txt | while read -r kind names packages jobs; do
        mark=
        for one in "$@"; do
            case " $jobs " in
            *" $one! "*) mark='!' ;;
            *" $one "*) mark=${mark:-?} ;;
            esac
        done
        if [ -z "$mark" ]; then continue; fi
        for name in ${names//,/ }; do echo "$kind $name $packages $mark"; done
    done
}

# A job with its steps.
jobs_of() {
    echo "$@"
    if [ "$*" = packages ]; then packaging/build.sh --steps; fi
}

case ${1:-} in
has)
    has "$2" "$3"
    exit
    ;;
ask)
    : "${2:?usage: install.sh ask JOB [STEP...]}"
    missing=0
    while read -r kind name packages _; do
        if has "$kind" "$name"; then echo "ok       $kind $name"; else
            echo "MISSING  $kind $name (${packages//,/ })"
            missing=$((missing + 1))
        fi
    # shellcheck disable=SC2046
    done < <(rows $(jobs_of "${@:2}"))
    echo "$missing missing"
    [ "$missing" = 0 ]
    exit
    ;;
demo | test | packages | packages-test | bench) job=$1 ;;
*)
    echo "usage: install.sh demo|test|packages [STEP...]|packages-test|bench" >&2
    exit 2
    ;;
esac

needed=()   # packages without which the job cannot run
wanted=()   # packages without which a step of the job is skipped
while read -r kind name packages mark; do
    if has "$kind" "$name"; then continue; fi
    for package in ${packages//,/ }; do
        case " ${needed[*]} ${wanted[*]} " in
        *" $package "*) ;;
        *) if [ "$mark" = '!' ]; then needed+=("$package"); else wanted+=("$package"); fi ;;
        esac
    done
# shellcheck disable=SC2046
done < <(rows $(jobs_of "$@"))

missing=("${needed[@]}" "${wanted[@]}")
if ((${#missing[@]})); then
    if [ "$(id -u)" = 0 ] && ! lacks apt-get; then
        echo "installing: ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "missing on this machine; on Debian or Ubuntu: sudo apt-get install ${missing[*]}" >&2
        if ((${#needed[@]})); then
            echo "make $job needs: ${needed[*]}" >&2
            exit 1
        fi
        echo "going on without: ${wanted[*]}" >&2
    fi
fi

rust_version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if lacks cargo; then
    echo "Rust is missing: install $rust_version or newer as https://rustup.rs says" >&2
    exit 1
fi
installed=$(cargo --version | cut -d ' ' -f 2)
if [ "$(printf '%s\n' "$rust_version" "$installed" | sort -V | head -n 1)" != "$rust_version" ]; then
    echo "Rust $installed is too old, $rust_version or newer is needed: rustup update stable" >&2
    exit 1
fi
if [ "$job" = test ] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
    if lacks rustup || ! rustup component add rustfmt clippy; then
        echo "rustfmt and clippy are missing: rustup component add rustfmt clippy" >&2
        exit 1
    fi
fi
if [ "$job" = packages ] && lacks cargo-deb && jobs_of "$@" | grep -w command >/dev/null; then
    echo "installing cargo-deb, for the package of the command: it is compiled first, which takes some minutes"
    cargo install --locked cargo-deb@3.8.0
fi
