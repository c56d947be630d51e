#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# suite.sh LOADS LIMIT PROGRAM...: runs in the guest. Each program is a test of kselftest's kind: 0 is a pass, 4 a skip;
# its lines "ok ..." and "not ok ..." count, or else the program as a whole. Then the modules are loaded and unloaded LOADS times.
set -u
loads=$1
limit=$2
shift 2
passed=0
failed=0
ignored=0

run_program() {
    code=0
    timeout "$limit" "$1" >/tmp/output 2>&1 || code=$?
    cat /tmp/output
    # A skipped case says so behind its number; "# SKIP" is KTAP's word.
    skips=$(grep -c '^ok .*# SKIP' /tmp/output)
    oks=$(($(grep -c '^ok ' /tmp/output) - skips))
    not_oks=$(grep -c '^not ok ' /tmp/output)
    case $code in
    0) [ $((oks + not_oks + skips)) -gt 0 ] || oks=1 ;;
    4) [ $((oks + not_oks + skips)) -gt 0 ] || skips=1 ;;
    *)
        echo "not ok $1 ended with $code"
        [ "$not_oks" -gt 0 ] || not_oks=1
        ;;
    esac
    passed=$((passed + oks))
    failed=$((failed + not_oks))
    ignored=$((ignored + skips))
}

# Loading by hand and by name, unloading, and that nothing stays: the slab of each load has to go.
load_and_unload() {
    turn=0
    while [ "$turn" -lt "$loads" ]; do
        turn=$((turn + 1))
        for module in tcp_ldc pkt_push; do
            if ! modprobe $module || ! grep -q "^$module " /proc/modules || ! rmmod $module; then
                echo "not ok load and unload $module, turn $turn"
                return 1
            fi
        done
    done
    echo "ok load and unload $loads times"
}

# A debug kernel says what nobody refers to any more; what it prints fails the run. An object is told at its second scan.
leaks() {
    [ -e /sys/kernel/debug/kmemleak ] || return 0
    for turn in 1 2; do
        # It turns itself off when it runs out of memory, and refuses then.
        if ! echo scan >/sys/kernel/debug/kmemleak; then
            echo "not ok kmemleak scans"
            failed=$((failed + 1))
            return
        fi
        sleep 6
    done
    echo "ok kmemleak scans"
    passed=$((passed + 1))
    cat /sys/kernel/debug/kmemleak
}

# KCSAN waits to be turned on, and is silent if it is not.
readonly kcsan=/sys/kernel/debug/kcsan
begin_races() {
    [ ! -e $kcsan ] || echo on >$kcsan
}

races() {
    [ -e $kcsan ] || return 0
    watched=$(awk '$1 == "setup_watchpoints:" { print $2 }' $kcsan)
    echo "# $(tr '\n' ' ' <$kcsan)"
    if grep -q '^enabled: 1' $kcsan && [ "${watched:-0}" -gt 1000 ]; then
        echo "ok data races are watched for"
        passed=$((passed + 1))
    else
        echo "not ok data races are watched for"
        failed=$((failed + 1))
    fi
}

begin_races
for program in "$@"; do
    echo "--- $program"
    # A device does not load its module by itself.
    modprobe pkt_push
    run_program "$program"
done
rmmod tcp_ldc 2>/dev/null
rmmod pkt_push
if load_and_unload; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
races
leaks

verdict=ok
[ "$failed" -eq 0 ] || verdict=FAILED
echo "test result: $verdict. $passed passed; $failed failed; $ignored ignored"
[ "$failed" -eq 0 ]
