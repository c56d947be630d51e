#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# horizon-guest.sh SECONDS RUNS CELLS CONGESTIONS: runs in the guest. What a greedy sender gets through each link with send() and
# with the ring, one segment in reserve or none; each JSON object is a line of /results/horizon.jsonl.
set -eu
# shellcheck source-path=SCRIPTDIR source=link.sh
. /guest/data/link.sh
seconds=$1
runs=$2
cells=$3
congestions=$4

make_link
modprobe tcp_ldc
modprobe tcp_bbr
ip netns exec far costs sink 5000 &
sleep 0.2
for cell in $cells; do
    IFS=/ read -r rate delay loss <<CELL
$cell
CELL
    shape "$rate" "$delay" "$loss"
    for congestion in $congestions; do
        for scheme in send ring-filled ring-filled-h0; do
            run=0
            while [ "$run" -lt "$runs" ]; do
                run=$((run + 1))
                echo "$cell $congestion $scheme $run"
                {
                    printf '{"cell": "%s", "run": ' "$cell"
                    ip netns exec near costs bulk "$scheme" "$congestion" 10.0.2.1 5000 "$seconds" 16384 | tr -d '\n'
                    echo '}'
                } >>/results/horizon.jsonl
                # What the link still holds of the last run.
                sleep 2
            done
        done
    done
done
