#!/usr/bin/env bash
# Builds the packages that need no compiler, and checks what is in them; checks what each step asks for and says in advance, that systemd
# takes the service and its drop-in, and that the test of the Dockerfile knows each of its steps.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "packages: $*" >&2; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
O=$out packaging/build.sh dkms wireshark >/dev/null

# Package, and files that it has to contain.
contains() {
    local package=$1 deb listed path
    shift
    deb=$(echo "$out/${package}"_*.deb)
    [ "$(dpkg-deb --field "$deb" Version)" = "$version-1" ] || fail "$package has not the version of Cargo.toml"
    listed=$(dpkg-deb --fsys-tarfile "$deb" | tar -t)
    for path in "usr/share/doc/$package/copyright" "usr/share/doc/$package/changelog.Debian.gz" "$@"; do
        grep -qx "./$path" <<<"$listed" || fail "$package lacks $path"
    done
    dpkg-deb --fsys-tarfile "$deb" | tar -tv | grep -v ' root/root ' && fail "$package has files that are not root's"
    echo "ok $package"
}

multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
for module in tcp_ldc pkt_push; do
    source=usr/src/$module-$version
    contains "${module//_/-}-dkms" "$source/Kbuild" "$source/Makefile" "$source/main.c" "$source/dkms.conf" "$source/include/uapi/linux/$module.h"
    dpkg-deb --fsys-tarfile "$out/${module//_/-}"-dkms_*.deb | tar -xO "./$source/dkms.conf" | grep -qx "PACKAGE_VERSION=\"$version\"" ||
        fail "dkms.conf of $module has another version"
    for script in postinst prerm; do
        dpkg-deb --ctrl-tarfile "$out/${module//_/-}"-dkms_*.deb | tar -xO "./$script" | sh -n
        dpkg-deb --ctrl-tarfile "$out/${module//_/-}"-dkms_*.deb | tar -xO "./$script" | grep -q '@[A-Z]*@' && fail "$script of $module has an open place"
    done
done
plugins=usr/lib/$multiarch/wireshark/plugins
contains freshwire-wireshark "$plugins/a1.lua" "$plugins/a1_crypto.lua" "$plugins/a1_streams.lua"

# The same commit gives the same bytes.
O=$out/again packaging/build.sh dkms >/dev/null
for deb in "$out"/again/*.deb; do
    cmp "$deb" "$out/$(basename "$deb")" || fail "a second build differs"
done
echo "ok a second build is the same"

# Each step asks for its own requirements, none for those of the test.
asks() { # name job [step...]
    local name=$1 listed
    shift
    listed=$(xtask/install.sh ask "$@") || true
    grep -q "^[a-zA-Z]*  *[a-z-]* $name\( \|$\)" <<<"$listed"
}
bare=$out/bare
mkdir "$bare"
for name in bash cut dirname nproc env; do ln -s "$(command -v $name)" "$bare/"; done
while read -r step; do
    for name in debootstrap lintian ip tc unshare; do
        if asks "$name" packages "$step"; then fail "the step $step asks for $name, which only the test needs"; fi
    done
    for name in 'gstreamer-1.0>=1.22' pkg-config; do
        if [ "$step" != gstreamer ] && asks "$name" packages "$step"; then fail "the step $step asks for $name"; fi
    done
    asks strip packages "$step" || fail "the step $step does not ask for strip"
    # Before anything is installed: without dpkg-dev and git.
    plan=$(PATH=$bare packaging/build.sh --plan "$step")
    grep -Eq 'about (a|[0-9]+) minutes? on [0-9]+ idle processors' <<<"$plan" || fail "the step $step does not say how long it takes: $plan"
    [ "$(grep -o 'profile [a-z]*' <<<"$plan" | wc -l)" = 1 ] || fail "the step $step does not name its profile once: $plan"
done < <(packaging/build.sh --steps)
for name in debootstrap lintian ip; do asks "$name" packages-test || fail "the test of the packages does not ask for $name"; done
for name in 'gstreamer-1.0>=1.22' cc make git; do asks "$name" packages || fail "make packages does not ask for $name"; done
if packaging/build.sh --plan no-such-step 2>/dev/null; then fail "an unknown step is planned"; fi
said=$(O=$out/again make --silent --no-print-directory packages STEPS=wireshark)
[ "$(grep -o 'profile [a-z]*' <<<"$said" | wc -l)" = 1 ] || fail "make packages does not name its profile once: $said"
grep -q '^\[1/1\] wireshark: [0-9]* s$' <<<"$said" || fail "a step does not say when it ends, and after which time"
echo "ok each step asks for its own requirements, and says how long it takes"

# The service alone, and with its drop-in for hardware encoders. The command is not installed here.
units=$out/units
mkdir -p "$units/freshwire.service.d"
verifies() { # what
    local said
    said=$(cd "$units" && systemd-analyze verify --man=no ./freshwire.service 2>&1) || fail "systemd refuses $1: $said"
    [ -z "$said" ] || fail "systemd complains about $1: $said"
}
if command -v systemd-analyze >/dev/null; then
    sed 's|^ExecStart=.*|ExecStart=/bin/true|' packaging/freshwire.service >"$units/freshwire.service"
    verifies freshwire.service
    cp packaging/hardware-encoders.conf "$units/freshwire.service.d/"
    verifies "freshwire.service with hardware-encoders.conf"
    allowed=$(cd "$units" && systemd-analyze security --offline=true --no-pager ./freshwire.service)
    while read -r device access; do
        grep -q "DeviceAllow=.* $device:$access" <<<"$allowed" || fail "hardware-encoders.conf does not allow $device"
    done < <(sed -n 's/^DeviceAllow=//p' packaging/hardware-encoders.conf)
    # A mistake would be found.
    echo 'PrivateDevice=no' >>"$units/freshwire.service.d/hardware-encoders.conf"
    if (verifies "a mistake") 2>/dev/null; then fail "systemd-analyze overlooks a mistake in a drop-in"; fi
    echo "ok the service, and its drop-in for hardware encoders"
elif [ "${CI:-}" = true ]; then
    fail "systemd-analyze is missing: apt-get install systemd (CI=true: nothing may be skipped)"
else
    echo "skipped: freshwire.service is not verified without systemd-analyze"
fi

python3 packaging/docker/test.py --steps
for script in packaging/build.sh packaging/test.sh; do bash -n "$script"; done
