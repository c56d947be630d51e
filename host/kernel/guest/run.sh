#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# run.sh [OPTION...] SCRIPT [ARGUMENT...]: runs a shell script in a guest with one of Debian's stock kernels.
# README.md beside it says what the script finds there. Needs neither root nor a kernel that can load modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

usage() {
    cat <<'USAGE'
usage: run.sh [OPTION...] SCRIPT [ARGUMENT...]
  --kernel 6.1|6.12|7.2|7.3  the stock kernel (6.12)
  --add FILE          puts FILE into the guest's path, with the shared libraries it needs; any number
  --env NAME=VALUE    sets a variable for the script; any number
  --data FILE         puts FILE into /guest/data; any number
  --module NAME       a further module of the kernel's package; any number
  --no-modules        builds neither tcp_ldc nor pkt_push
  --cpus N            virtual CPUs (1)
  --memory MIB        memory (768)
  --cpu FLAGS         CPU model and flags of QEMU (max)
  --real-time         guest time follows the host's clock, as it always does with more than one CPU; without it,
                      guest time counts instructions
  --limit SECONDS     kills the guest after that much real time (300)
  --results FOLDER    receives what the script leaves in /results
  --console FILE      receives a copy of the console
  --check             only says whether everything is there that a guest takes
USAGE
}

kernel=6.12
cpus=1
memory=768
cpu_flags=max
limit=300
results=
console=
with_modules=true
# Two nanoseconds an instruction, and idle time is skipped: the guest's clock does not see how busy the host is.
timing=(-icount "shift=1,sleep=off")
# What the tests and experiments of this repository use.
modules=(sch_netem sch_tbf sch_fq veth dummy tcp_bbr tcp_diag inet_diag tls sctp)
programs=()
data=()
environment=()
check_only=false

while (($#)); do
    case $1 in
    --kernel) kernel=$2; shift 2 ;;
    --add) programs+=("$2"); shift 2 ;;
    --env) environment+=("$2"); shift 2 ;;
    --data) data+=("$2"); shift 2 ;;
    --module) modules+=("$2"); shift 2 ;;
    --no-modules) with_modules=false; shift ;;
    --cpus) cpus=$2; shift 2 ;;
    --memory) memory=$2; shift 2 ;;
    --cpu) cpu_flags=$2; shift 2 ;;
    --real-time) timing=(); shift ;;
    --limit) limit=$2; shift 2 ;;
    --results) results=$2; shift 2 ;;
    --console) console=$2; shift 2 ;;
    --check) check_only=true; shift ;;
    --help) usage; exit 0 ;;
    -*) usage >&2; die "no such option: $1" ;;
    *) break ;;
    esac
done

[ "$(uname -m)" = x86_64 ] || missing "an x86-64 machine: the stock kernels' headers bring programs for it"
require busybox busybox-static
require modprobe kmod
require depmod kmod
require cpio cpio
require dash dash
require tc iproute2
require xz xz-utils
require make make
require "${CC:-gcc}" gcc
ldd "$(command -v busybox)" >/dev/null 2>&1 && missing "a static busybox: apt-get install busybox-static"
qemu_words=$("$guest_dir/qemu.sh")
mapfile -t qemu <<<"$qemu_words"
if $check_only; then exit 0; fi

if (($# == 0)); then
    usage >&2
    exit 2
fi
script=$1
shift
# Two CPUs that count instructions take turns in QEMU; 6.1 does not get through its boot like that.
if [ "$cpus" -gt 1 ]; then timing=(); fi
known_kernel "$kernel"
[ -r "$script" ] || die "cannot read $script"

place=$("$guest_dir/fetch.sh" "$kernel")
release=$(cat "$place/release")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Copies a program and the shared libraries it is linked with.
add_program() {
    local program=$1 library
    cp "$program" "$work/files/guest/bin/"
    # A static one has none, and ldd says so with an error.
    { ldd "$program" 2>/dev/null | grep -oE '/[^ ]+' || true; } | while read -r library; do
        mkdir -p "$work/files$(dirname "$library")"
        cp -L "$library" "$work/files$library"
    done
}

# Copies a module of the kernel's package and what it depends on, uncompressed: busybox reads no xz.
add_module() {
    local line path target
    while read -r line; do
        case $line in
        builtin*) continue ;;
        esac
        path=${line#insmod }
        path=${path%% *}
        target=$work/files/lib/modules/${path#*/lib/modules/}
        mkdir -p "$(dirname "$target")"
        case $path in
        *.xz) xz -dc "$path" >"${target%.xz}" ;;
        *) cp "$path" "$target" ;;
        esac
    done < <(modprobe --dirname "$place/tree" --set-version "$release" --show-depends "$1" ||
        die "$release has no module $1")
}

# What stays the same between runs of one kernel is built once.
make_base() {
    local base=$place/base.cpio name key
    key="$release ${modules[*]} $(md5sum "$guest_dir/run.sh" "$guest_dir/init" "$(command -v busybox)" "$(command -v tc)")"
    if [ "$key" = "$(cat "$place/base.key" 2>/dev/null)" ]; then return; fi
    mkdir -p "$work/files/bin" "$work/files/guest/bin" "$work/files/guest/data" "$work/files/lib/modules/$release"
    cp "$(command -v busybox)" "$work/files/bin/busybox"
    cp "$guest_dir/init" "$work/files/init"
    add_program "$(command -v dash)"
    add_program "$(command -v ip)"
    add_program "$(command -v tc)"
    [ -e "$place/tree/lib/modules/$release/modules.dep" ] || depmod -b "$place/tree" "$release"
    cp "$place/tree/lib/modules/$release"/modules.{builtin,builtin.modinfo,order} "$work/files/lib/modules/$release/"
    for name in "${modules[@]}"; do add_module "$name"; done
    (cd "$work/files" && find . | cpio --quiet -o -H newc) >"$base"
    echo "$key" >"$place/base.key"
    rm -rf "$work/files"
}

# The kernel unpacks one archive after the other, so the base and what this run adds are simply joined.
make_initramfs() {
    local file
    mkdir -p "$work/files/guest/bin" "$work/files/guest/data" "$work/files/lib/modules/$release/updates"
    for file in "${programs[@]}"; do add_program "$file"; done
    for file in "${data[@]}"; do cp "$file" "$work/files/guest/data/"; done
    if $with_modules; then
        for file in tcp_ldc pkt_push; do
            "$guest_dir/build.sh" "$kernel" "$file" "$work/files/lib/modules/$release/updates/$file.ko"
        done
    fi
    cp "$script" "$work/files/guest/script"
    {
        echo 'depmod -a'
        for file in "${environment[@]}"; do printf 'export %q\n' "$file"; done
        printf 'exec /bin/sh /guest/script'
    } >"$work/files/guest/command"
    printf ' %q' "$@" >>"$work/files/guest/command"
    (cd "$work/files" && find . | cpio --quiet -o -H newc) | cat "$place/base.cpio" - >"$work/initramfs"
}

# What a healthy kernel never prints.
readonly COMPLAINTS='BUG:|WARNING:|Oops|general protection fault|Kernel panic|INFO: task|KASAN|KCSAN|possible recursive locking|circular locking|suspicious RCU|unreferenced object|stack-protector|refcount_t:'

# KCSAN tells of the kernel's own races too, and Linux has some that it can live with. A report is ours if the access, or who calls
# the function that makes it, is in a module of ours; the others are counted. What is no report passes.
readonly OURS='\\[(tcp_ldc|pkt_push)\\]'
only_our_races() {
    awk -v "ours=$OURS" '
        function end_report() {
            if (is_ours) printf "%s", report; else others++
            report = ""
        }
        /BUG: KCSAN:/ { if (report != "") end_report(); report = $0 "\n"; is_ours = 0; depth = 9; next }
        report == "" { print; next }
        { report = report $0 "\n"; depth++ }
        / by (task|interrupt) .*:$/ { depth = 0 }
        depth <= 2 && depth > 0 && $0 ~ ours { is_ours = 1 }
        /====================$/ { end_report() }
        END {
            if (report != "") end_report()
            if (others) print "reports of KCSAN that touch no module of ours: " others > "/dev/stderr"
        }'
}

boot() {
    local code=0
    # In the foreground: in this script's process group, so that whatever ends the group ends the guest.
    nice -n 10 timeout --foreground "$limit" "${qemu[@]}" -accel tcg -cpu "$cpu_flags" "${timing[@]}" \
        -smp "$cpus" -m "$memory" -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$place/tree/boot/vmlinuz-$release" -initrd "$work/initramfs" \
        -append "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic tsc=reliable no_timer_check random.trust_cpu=on" \
        -serial stdio -serial "file:$work/results.tar" </dev/null 2>"$work/qemu.log" |
        sed -u 's/\r$//' | tee "$work/console" || code=$?
    if [ -n "$console" ]; then cp "$work/console" "$console"; fi
    # With skipped idle time QEMU finds it remarkable that a guest may wait for nothing.
    grep -v 'no active timers' "$work/qemu.log" >&2 || true
    if [ "$code" = 124 ]; then
        say "the guest was killed after $limit s"
        return 124
    fi
    if [ "$kernel" = debug-kcsan ]; then
        only_our_races <"$work/console" >"$work/judged"
    else
        cp "$work/console" "$work/judged"
    fi
    if grep -E "$COMPLAINTS" "$work/judged" >&2; then
        say "the guest's kernel complained"
        return 125
    fi
    if [ "$code" != 0 ] || ! tar -x -C "$work/results" -f "$work/results.tar" 2>/dev/null; then
        say "the guest ended without a result (qemu: $code)"
        return 125
    fi
    return "$(cat "$work/results/exit-code")"
}

mkdir -p "$work/results"
lock "$kernel"
make_base
unlock
make_initramfs "$@"
code=0
boot || code=$?
if [ -n "$results" ]; then
    mkdir -p "$results"
    cp -r "$work/results/." "$results/"
    rm -f "$results/exit-code"
fi
exit "$code"
