#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# costs-guest.sh SECONDS: runs in the guest. Calls and bulk over veth; each JSON object is a line of /results/costs.jsonl.
set -eu
seconds=$1
ip netns add near
ip netns add far
ip link add eth0 netns near type veth peer name eth0 netns far
ip -n near addr add 10.0.1.1/24 dev eth0
ip -n far addr add 10.0.1.2/24 dev eth0
ip -n near link set eth0 up
ip -n far link set eth0 up
modprobe tcp_ldc

ip netns exec far costs sink 5000 &
sleep 0.2
for run in 1 2 3; do
    echo "calls $run"
    ip netns exec near costs calls 10.0.1.2 5000 >>/results/costs.jsonl
done
for run in 1 2 3; do
    for scheme in send ring-filled ring-each ring-filled-zc ring-filled-h0; do
        for record in 1400 16384 65536; do
            echo "bulk $scheme $record $run"
            ip netns exec near costs bulk "$scheme" cubic 10.0.1.2 5000 "$seconds" "$record" >>/results/costs.jsonl
        done
    done
done
