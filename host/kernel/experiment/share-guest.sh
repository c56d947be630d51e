#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# share-guest.sh SECONDS RUNS CELLS SCENES: runs in the guest. Flows that always have data share a bottleneck. CELLS are words
# RATE/DELAY/QUEUE, the queue in packets; SCENES are words of flows, SCHEME:CONTROL joined by +. Each flow's JSON object is a line of
# /results/share.jsonl.
set -eu
# shellcheck source-path=SCRIPTDIR source=link.sh
. /guest/data/link.sh
seconds=$1
runs=$2
cells=$3
scenes=$4

make_link
modprobe tcp_ldc
modprobe tcp_bbr
port=5000
for cell in $cells; do
    IFS=/ read -r rate delay queue <<CELL
$cell
CELL
    shape "$rate" "$delay" 0 "$queue"
    run=0
    # All scenes of a run follow each other: a ratio compares neighbours.
    while [ "$run" -lt "$runs" ]; do
        run=$((run + 1))
        for scene in $scenes; do
            echo "$cell $scene $run"
            place=0
            flows=
            sinks=
            rest=$scene+
            while [ -n "$rest" ]; do
                flow=${rest%%+*}
                rest=${rest#*+}
                port=$((port + 1))
                ip netns exec far costs sink "$port" &
                sinks="$sinks $!"
                sleep 0.2
                {
                    printf '{"cell": "%s", "scene": "%s", "run": %s, "place": %s, "flow": "%s", "result": ' \
                        "$cell" "$scene" "$run" "$place" "$flow"
                    ip netns exec near costs bulk "${flow%:*}" "${flow#*:}" 10.0.2.1 "$port" "$seconds" 1400 | tr -d '\n'
                    echo '}'
                } >"/results/flow-$place" &
                flows="$flows $!"
                place=$((place + 1))
            done
            for flow in $flows; do
                wait "$flow" || echo "a flow of $scene failed"
            done
            for sink in $sinks; do
                kill "$sink"
            done
            cat /results/flow-* >>/results/share.jsonl
            rm /results/flow-*
            # What the link still holds.
            sleep 2
        done
    done
done
