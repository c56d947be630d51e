#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# push-guest.sh COUNT LONG: runs in the guest. Calls, the buffer's length, and a receiver that stalls, of COUNT datagrams, with push of
# LONG ones as well; each JSON object is a line of /results/push.jsonl.
set -eu
count=$1
long=$2
modprobe pkt_push

for run in 1 2 3; do
    for size in 64 1400 8192; do
        echo "calls $size $run"
        push calls "$size" >>/results/push.jsonl
    done
done
for scheme in recv push; do
    echo "saw $scheme"
    push saw "$scheme" 20000 0.25 >>/results/push.jsonl
done
for rate in 20000 30000; do
    for scheme in recv recvmmsg recv-large push-recv push push-at-once; do
        echo "stalls $scheme $rate"
        push stalls "$scheme" "$rate" "$count" >>/results/push.jsonl
    done
done
if [ "$long" -gt 0 ]; then
    echo "stalls push 20000, $long datagrams"
    push stalls push 20000 "$long" >>/results/push.jsonl
fi
