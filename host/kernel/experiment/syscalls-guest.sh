#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# syscalls-guest.sh SECONDS: runs in the guest. The kernel itself counts the system calls of a sender of the layered stream, by
# thread, on a slow link and on one without a limit; /results/syscalls.txt. Thread 1 is the stream's, thread 2 only looks at the
# socket for the experiment.
set -eu
# shellcheck source-path=SCRIPTDIR source=link.sh
. /guest/data/link.sh
make_link
modprobe tcp_ldc
events=/sys/kernel/tracing/events/raw_syscalls/sys_enter
port=5000
for cell in "524288 0 5" "none 0 0"; do
    # shellcheck disable=SC2086  # three words
    shape $cell
    echo 'hist:keys=common_pid.execname,id.syscall' >"$events/trigger"
    ip netns exec far layers receive "$port" "$1" >/dev/null &
    sleep 0.1
    ip netns exec near layers send ring-deadline cubic 10.0.2.1 "$port" "$1" >/dev/null
    echo "rate, delay, loss: $cell"
    grep 'common_pid: layers' "$events/hist" | sort
    echo '!hist:keys=common_pid.execname,id.syscall' >"$events/trigger"
    port=$((port + 1))
done >/results/syscalls.txt
cat /results/syscalls.txt
