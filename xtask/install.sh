#!/usr/bin/env bash
# Installs what `make demo` or `make test` needs and this machine lacks. As root it asks apt; otherwise it prints the
# one line that an administrator would type, goes on where the package is optional, and stops where it is not.
set -euo pipefail

cd "$(dirname "$0")/.."
job=${1:?usage: install.sh demo|test|packages}

needed=()   # packages without which the job cannot run
wanted=()   # packages without which a step of the job is skipped

lacks() { ! command -v "$1" >/dev/null 2>&1; }

# Without a libc header a C compiler that is there still cannot link.
if lacks cc; then needed+=(gcc libc6-dev); fi
case $job in
demo)
    if lacks ffmpeg || lacks ffprobe; then needed+=(ffmpeg); fi
    ;;
test)
    if lacks git; then needed+=(git); fi
    if lacks ffmpeg || lacks ffprobe; then wanted+=(ffmpeg); fi
    if lacks c++; then wanted+=(g++); fi
    if lacks nc; then wanted+=(netcat-openbsd); fi
    if ! /usr/bin/python3 -c 'import cryptography' >/dev/null 2>&1; then wanted+=(python3 python3-cryptography); fi
    if ! /usr/bin/python3 -c 'import simpy' >/dev/null 2>&1; then wanted+=(python3 python3-simpy3); fi
    # The Python package's tests make an environment of their own (xtask/python.sh).
    if ! xtask/python.sh --check 2>/dev/null; then wanted+=(python3 python3-venv); fi
    if lacks openssl; then wanted+=(openssl); fi
    # The C library: as a user links it, and under valgrind.
    if lacks pkg-config; then wanted+=(pkg-config); fi
    if lacks valgrind; then wanted+=(valgrind); fi
    if lacks dpkg-architecture; then wanted+=(dpkg-dev); fi
    if lacks tshark; then wanted+=(tshark); fi
    # UDP receivers of other people, for `freshwire push`.
    if lacks iperf; then wanted+=(iperf); fi
    if lacks dnsmasq; then wanted+=(dnsmasq-base); fi
    if lacks chromium; then wanted+=(chromium); fi
    if lacks firefox-esr; then wanted+=(firefox-esr); fi
    if lacks gst-inspect-1.0; then wanted+=(gstreamer1.0-tools); fi
    # Element by element: each is in a package of its own.
    while read -r element package; do
        if ! gst-inspect-1.0 "$element" >/dev/null 2>&1; then wanted+=("$package"); fi
    done <<'ELEMENTS'
videotestsrc gstreamer1.0-plugins-base
rtspsrc gstreamer1.0-plugins-good
udpsrc gstreamer1.0-plugins-good
h264parse gstreamer1.0-plugins-bad
x264enc gstreamer1.0-plugins-ugly
avdec_h264 gstreamer1.0-libav
rtspclientsink gstreamer1.0-rtsp
ELEMENTS
    # The elements are compiled against its headers.
    if ! pkg-config --exists gstreamer-1.0 gstreamer-base-1.0 2>/dev/null; then wanted+=(libgstreamer1.0-dev pkg-config); fi
    # Guests with stock kernels (kernel/guest).
    if lacks qemu-system-x86_64; then wanted+=(qemu-system-x86); fi
    if lacks busybox || ldd "$(command -v busybox)" >/dev/null 2>&1; then wanted+=(busybox-static); fi
    if lacks modprobe; then wanted+=(kmod); fi
    if lacks cpio; then wanted+=(cpio); fi
    if lacks xz; then wanted+=(xz-utils); fi
    if lacks make; then wanted+=(make); fi
    if lacks tc; then wanted+=(iproute2); fi
    # Real connections through the ACK filter.
    if lacks ethtool; then wanted+=(ethtool); fi
    # The kernel's own build tools are linked with it.
    if ! ldconfig -p | grep -q 'libelf\.so\.1'; then wanted+=(libelf1); fi
    # What the lab compares with (lab/peers).
    while read -r header package; do
        if ! cc -E -include "$header" -xc /dev/null >/dev/null 2>&1; then wanted+=("$package"); fi
    done <<'HEADERS'
srt/srt.h libsrt-openssl-dev
usrsctp.h libusrsctp-dev
HEADERS
    if ! /usr/bin/python3 -c 'import gi; gi.require_version("GstRtspServer", "1.0")' >/dev/null 2>&1; then
        wanted+=(python3-gi gir1.2-gst-rtsp-server-1.0)
    fi
    ;;
packages)
    if lacks c++; then needed+=(g++); fi
    if lacks git; then needed+=(git); fi
    if lacks make; then needed+=(make); fi
    if lacks dpkg-architecture; then needed+=(dpkg-dev); fi
    if ! python3 -c 'import ensurepip' 2>/dev/null; then needed+=(python3 python3-venv); fi
    if ! xtask/gstreamer.sh --check 2>/dev/null; then needed+=(libgstreamer1.0-dev pkg-config); fi
    # The test of the packages.
    if lacks debootstrap; then wanted+=(debootstrap); fi
    if lacks ip; then wanted+=(iproute2); fi
    if lacks lintian; then wanted+=(lintian); fi
    ;;
*)
    echo "install.sh: unknown job $job: use demo, test or packages" >&2
    exit 2
    ;;
esac

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
if [ "$job" = packages ] && lacks cargo-deb; then
    cargo install --quiet --locked cargo-deb@3.8.0
fi
