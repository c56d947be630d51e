#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# test.sh [--long | --loads | --experiment | --kernel KERNEL]: the tests of both modules in every stock kernel, two guests side by side. The long form
# repeats more. With --loads only one thing happens: pkt_push is loaded, attached to a socket that receives, and unloaded, 1,000
# times. With --experiment the layered-video experiment runs for a few seconds. With --kernel the tests run in that kernel only.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

loads=20
limit=120
guest_limit=400
export LDC_LONG=
only_loads=false
only_experiment=false
kernels=("${KERNELS[@]}")
case ${1:-} in
'') ;;
--long)
    loads=1000
    limit=3600
    guest_limit=7200
    LDC_LONG=1
    ;;
--loads)
    only_loads=true
    limit=3600
    guest_limit=3600
    ;;
--experiment)
    only_experiment=true
    ;;
--kernel)
    known_kernel "${2:-}"
    kernels=("$2")
    ;;
*)
    echo "usage: test.sh [--long | --loads | --experiment | --kernel KERNEL]" >&2
    exit 2
    ;;
esac

# In a guest that counts instructions, where waiting for RCU takes no time.
test_loads() {
    local kernel=$1
    "$guest_dir/run.sh" --kernel "$kernel" --limit "$guest_limit" --add "$programs/push_loads" --env LDC_LONG=1 \
        "$guest_dir/suite.sh" 20 "$limit" push_loads
}

# What has no programs of its own is not tested yet.
build_programs() {
    local folder
    for folder in host/kernel/tcp_ldc/tests host/kernel/libldc/tests host/kernel/pkt_push/tests; do
        [ -e "$repository/$folder/Makefile" ] || continue
        make --silent -C "$repository/$folder" O="$programs" all >&2
    done
    "$guest_dir/rust.sh" "$programs" >&2
}

# The library as a packager has it: built with every warning, installed, and linked by its installed name.
test_install() {
    local root=$cache/install
    rm -rf "$root"
    make --silent -C "$repository/host/kernel/libldc" O="$cache/libldc" DESTDIR="$root" install >&2
    "${CC:-gcc}" -std=gnu11 -o "$root/example" "$repository/host/kernel/libldc/example.c" \
        -I"$root/usr/local/include" -L"$root/usr/local/lib" -lldc
    readelf -d "$root/example" | grep -q 'NEEDED.*libldc\.so\.0'
    # shellcheck disable=SC2016  # pkg-config's variable
    grep -q '^Libs: -L${libdir} -lldc$' "$root/usr/local/lib/pkgconfig/ldc.pc"
    make --silent -C "$repository/host/kernel/libpush" O="$cache/libpush" DESTDIR="$root" install >&2
    "${CC:-gcc}" -std=gnu11 -o "$root/push" "$repository/host/kernel/libpush/example.c" \
        -I"$root/usr/local/include" -L"$root/usr/local/lib" -lpush
    readelf -d "$root/push" | grep -q 'NEEDED.*libpush\.so\.0'
    # shellcheck disable=SC2016  # pkg-config's variable
    grep -q '^Libs: -L${libdir} -lpush$' "$root/usr/local/lib/pkgconfig/push.pc"
    echo "test result: ok. 2 passed; 0 failed; 0 ignored (libldc and libpush install)"
}

# refusal HEADER MAJOR,MINOR: what a module says of a kernel, by the condition in its header alone.
refusal() {
    sed -n '/^#if LINUX_VERSION_CODE/,/^#endif/p' "$1" |
        { "${CC:-gcc}" -E -D'KERNEL_VERSION(a,b,c)=((a)*65536+(b)*256+(c))' \
            -DLINUX_VERSION_CODE="KERNEL_VERSION($2,0)" -o /dev/null - 2>&1 || true; } |
        sed -n 's/.*error: *#error //p'
}

# Kernels that nobody has tested are refused in words that name the others and the remedy, and by DKMS; the tested ones are not.
test_refusal() {
    local module header pattern version series said
    for module in tcp_ldc pkt_push; do
        header=$repository/host/kernel/$module/$module.h
        pattern=$(sed -n 's/^BUILD_EXCLUSIVE_KERNEL="\(.*\)"$/\1/p' "$repository/host/kernel/$module/dkms.conf")
        for version in "${KERNELS[@]}" 6.2 6.11; do
            said=$(refusal "$header" "${version/./,}")
            [ -z "$said" ] || die "$header refuses Linux $version: $said"
            for series in "$version.0-50-amd64" "$version.9+deb13-amd64"; do
                [[ $series =~ $pattern ]] || die "DKMS does not build $module for Linux $series"
            done
        done
        for version in 5.10 6.0 6.13 6.18 7.0 7.1 7.4 7.20 7.30 8.0; do
            said=$(refusal "$header" "${version/./,}")
            [[ $said == *"6.1 to 6.12 and 7.2 to 7.3"*"boot one of them"* ]] ||
                die "$header does not refuse Linux $version in words: $said"
            if [[ $version.9+deb13-amd64 =~ $pattern ]]; then die "DKMS builds $module for Linux $version"; fi
        done
    done
    echo "test result: ok. 1 passed; 0 failed; 0 ignored (other kernels are refused)"
}

# What a kernel says at the level of WARN() and of lockdep must not be overlooked.
test_complaint() {
    local code=0
    echo 'echo "<4>WARNING: this one is meant" >/dev/kmsg' >"$cache/complain.sh"
    "$guest_dir/run.sh" --no-modules "$cache/complain.sh" >"$cache/complain.log" 2>&1 || code=$?
    if [ "$code" != 125 ]; then
        cat "$cache/complain.log" >&2
        die "a warning of the guest's kernel made run.sh end with $code, not with 125"
    fi
    echo "test result: ok. 1 passed; 0 failed; 0 ignored (what a kernel complains of is seen)"
}

# A few seconds of the layered-video experiment: its numbers in short form. Guest time counts instructions, so that it does not
# matter what else this machine does.
test_experiment() {
    local out=$cache/experiment-test
    rm -rf "$out"
    "$repository/host/kernel/experiment/run.sh" --out "$out" --seconds 8 --runs 1 --cells 524288/0/5 \
        --schemes "tcp ring-thesis" --limit 1500
    python3 "$repository/host/kernel/experiment/table.py" check "$out/results.jsonl"
    echo "test result: ok. 1 passed; 0 failed; 0 ignored (the layered-video experiment)"
}

test_kernel() {
    local kernel=$1 program add=() names=()
    for program in "$programs"/*; do
        if ! [ -f "$program" ] || ! [ -x "$program" ]; then continue; fi
        add+=(--add "$program")
        names+=("$(basename "$program")")
    done
    "$guest_dir/run.sh" --kernel "$kernel" --cpus 2 --limit "$guest_limit" "${add[@]}" --env "LDC_LONG=$LDC_LONG" \
        --env FRESHWIRE_KERNEL_RING=1 \
        "$guest_dir/suite.sh" "$loads" "$limit" "${names[@]}"
}

"$guest_dir/run.sh" --check
# The archive is asked while programs are built; what goes wrong here goes wrong again, and is told, where a guest is started.
(for kernel in "${kernels[@]}"; do "$guest_dir/fetch.sh" "$kernel" || true; done) >/dev/null 2>&1 &
if $only_experiment; then
    status=0
    "$guest_dir/fetch.sh" 6.12 >/dev/null || status=$?
    if [ "$status" = 0 ]; then test_experiment; fi
    end "$status"
fi
programs=$cache/tests
rm -rf "$programs"
mkdir -p "$programs"
test_guest=test_kernel
if $only_loads; then
    test_guest=test_loads
    make --silent -C "$repository/host/kernel/pkt_push/tests" O="$programs" "$programs/push_loads" >&2
else
    build_programs
    test_install
    test_refusal
    test_complaint
fi

# One kernel's end, which is that of its process.
finish() {
    local kernel=$1 code=0
    wait "${running[$kernel]}" || code=$?
    if [ "$code" = "$EXIT_GONE" ]; then
        # Not this repository's fault, and nothing here can bring it back: time to name the next one.
        echo "test result: ok. 0 passed; 0 failed; 1 ignored (the archive has no Linux $kernel any more)"
    elif [ "$code" != 0 ]; then
        say "Linux $kernel: ended with $code"
        status=$code
    fi
}

# Two guests of two processors at a time: more take turns on a small machine, and their clocks with them.
declare -A running
status=0
started=()
for kernel in "${kernels[@]}"; do
    if [ "${#started[@]}" -ge 2 ]; then
        finish "${started[0]}"
        started=("${started[@]:1}")
    fi
    ("$test_guest" "$kernel" 2>&1 | sed -u "s/^/$kernel  /") &
    running[$kernel]=$!
    started+=("$kernel")
done
for kernel in "${started[@]}"; do finish "$kernel"; done
end "$status"
