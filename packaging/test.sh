#!/usr/bin/env bash
# Installs the packages of `make packages` in a clean root file system without Rust, and uses what they install. As root, with
# debootstrap; the system comes from the mirror that this machine's apt uses. `test.sh --check` says whether that is possible.
# PACKAGES is the folder with the packages, by default target/packages. KERNEL_HEADERS=no leaves out the build of the modules,
# LINTIAN=no Debian's rules.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
packages=$(realpath -m "${PACKAGES:-$target/packages}")
base=$target/packages-base
root=$target/packages-root

# shellcheck disable=SC1091
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 2>/dev/null |
    awk -v release="$codename" '$2 == release && $3 == "main" { print $1; exit }') || true
missing=
if [ "$(id -u)" != 0 ]; then missing="root"; fi
if ! command -v debootstrap >/dev/null; then missing="debootstrap: apt-get install debootstrap"; fi
if [ -z "$mirror" ]; then missing="a Debian mirror in apt's sources"; fi
if [ -n "$missing" ]; then
    echo "a clean root file system needs $missing" >&2
    exit 1
fi
if [ "${1:-}" = --check ]; then exit 0; fi

make_base() {
    if [ -e "$base/etc/debian_version" ]; then return; fi
    rm -rf "$base" "$base.part"
    debootstrap --variant=minbase "$codename" "$base.part" "$mirror" >"$target/debootstrap.log" ||
        { tail -n 5 "$target/debootstrap.log" >&2; exit 1; }
    mv "$base.part" "$base"
}
# Only the clean root file system, for others.
if [ "${1:-}" = --base ]; then
    make_base
    exit 0
fi

if [ "${1:-}" != --inside ]; then
    # The mounts exist in the child's namespace alone, so that deleting the folder cannot reach what was mounted.
    rm -rf "$root"
    status=0
    unshare --mount --propagation private packaging/test.sh --inside || status=$?
    rm -rf "$root"
    exit "$status"
fi

make_base
cp -a "$base" "$root"
mount --bind /proc "$root/proc"
# Services are not started in it.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
# As this machine's apt reaches its mirrors.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp "$packages"/*.deb "$packages"/*.whl "$root/srv/"
cp bindings/c/examples/positions.c packaging/pictures.sh "$root/srv/"

passed=0
within=()
# A command in the root: prints it with its output, and ends the test if it fails.
try() {
    echo "+ $*"
    "${within[@]}" chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        /bin/sh -ec "cd /srv; $*" 2>&1 | sed 's/^/    /' || { echo "FAILED: $*"; exit 1; }
    passed=$((passed + 1))
}

# The same with a network of its own, where each port is free, and processes that end with it.
alone() {
    # shellcheck disable=SC2016
    within=(unshare --net --pid --fork sh -c 'ip link set lo up && "$@"' sh)
    try "$@"
    within=()
}

try '! command -v cargo && ! command -v rustc && ! command -v gcc'
try 'apt-get -qq update'
try 'apt-get -qq install -y --no-install-recommends ./freshwire_*.deb ./libfreshwire1_*.deb ./python3-freshwire_*.deb >/dev/null; dpkg-query -W "*freshwire*"'
try 'freshwire --version'
# The exit code is 1 where something optional is missing, as in a root without ffmpeg.
try 'freshwire doctor || test $? -le 1'
try 'freshwire serve --config /etc/freshwire/freshwire.toml --check'
try 'test -s /usr/lib/systemd/system/freshwire.service || test -s /lib/systemd/system/freshwire.service; test -s /usr/share/bash-completion/completions/freshwire; zcat /usr/share/man/man1/freshwire-serve.1.gz | grep -c config; freshwire-host doctor'
try 'python3 -c "import freshwire; print(freshwire.__file__, freshwire.now() > 0)"'
try 'apt-get -qq purge -y python3-freshwire >/dev/null; ! python3 -c "import freshwire" 2>/dev/null'
# The wheel, as a user without packages would: in an environment, and from no registry.
try 'apt-get -qq install -y --no-install-recommends python3-venv >/dev/null; python3 -m venv venv; venv/bin/pip -q install --no-index ./freshwire-*.whl; venv/bin/python -c "import freshwire; print(freshwire.__file__)"'
try 'apt-get -qq install -y --no-install-recommends gcc libc6-dev pkg-config netcat-openbsd ./libfreshwire-dev_*.deb >/dev/null; cc -Wall -Werror positions.c -o positions $(pkg-config --cflags --libs freshwire)'
alone './positions 5000 20 > positions.log & pid=$!; timeout 30 sh -c "until grep -q listens positions.log; do sleep 0.1; done"; timeout 60 nc 127.0.0.1 5000 | grep -c "tick 19$" | tee last; test "$(cat last)" = 50; wait $pid; cat positions.log'
try 'ldd positions | grep libfreshwire.so.1'
# The manual's project, with both libraries.
try 'apt-get -qq install -y --no-install-recommends cmake make >/dev/null; mkdir cmake; cp positions.c cmake/position.c; sed -n "/^...cmake$/,/^...$/{//!p}" /usr/share/doc/libfreshwire-dev/manual.md >cmake/CMakeLists.txt; cmake -S cmake -B cmake/shared; cmake --build cmake/shared; ldd cmake/shared/position | grep libfreshwire.so.1; sed -i "s/Freshwire::freshwire)/Freshwire::freshwire-static)/" cmake/CMakeLists.txt; cmake -S cmake -B cmake/static; cmake --build cmake/static; ! ldd cmake/static/position | grep libfreshwire'
try 'apt-get -qq install -y --no-install-recommends tshark ./freshwire-wireshark_*.deb >/dev/null 2>&1; tshark -G protocols | grep -w a1'
try 'apt-get -qq install -y --no-install-recommends ./gstreamer1.0-freshwire_*.deb gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly gstreamer1.0-libav >/dev/null; dpkg-query -f "\${Depends}\n" -W gstreamer1.0-freshwire; gst-inspect-1.0 freshwiresink | grep stream-name; gst-inspect-1.0 freshwiresrc | grep codec'
alone 'sh -e pictures.sh'
if [ "${KERNEL_HEADERS:-}" != no ]; then
    try 'apt-get -qq install -y --no-install-recommends linux-headers-amd64 dkms ./tcp-ldc-dkms_*.deb ./pkt-push-dkms_*.deb >/dev/null 2>&1; for kernel in /lib/modules/*/build; do kernel=$(basename $(dirname $kernel)); dkms install -q tcp_ldc/$(dpkg-query -W -f "\${source:Upstream-Version}" tcp-ldc-dkms) -k $kernel; dkms install -q pkt_push/$(dpkg-query -W -f "\${source:Upstream-Version}" pkt-push-dkms) -k $kernel; done; dkms status; test $(dkms status | grep -c installed) -ge 2'
fi
try 'apt-get -qq purge -y freshwire libfreshwire1 libfreshwire-dev freshwire-wireshark gstreamer1.0-freshwire >/dev/null; ! test -e /usr/bin/freshwire && ! test -e /etc/freshwire && ! test -e /usr/lib/*/libfreshwire.so.1 && ! test -e /usr/lib/*/gstreamer-1.0/libgstfreshwire.so'
# Debian's rules; last, because it takes minutes over a static library.
if [ "${LINTIAN:-}" = no ] || ! command -v lintian >/dev/null; then
    echo "lintian is missing or switched off: the packages are not checked by it" >&2
else
    echo "+ lintian --fail-on error"
    lintian --fail-on error --tag-display-limit 0 "$packages"/*.deb 2>&1 | sed 's/^/    /'
    passed=$((passed + 1))
fi
echo "$passed passed"
