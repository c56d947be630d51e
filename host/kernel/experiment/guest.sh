#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# guest.sh SECONDS RUNS CELLS SCHEMES CONGESTIONS: runs in the guest. CELLS are words RATE/DELAY/LOSS, the others words as well. Each
# run leaves two files in /results: NAME.receive.json and NAME.send.json.
set -eu
# shellcheck source-path=SCRIPTDIR source=link.sh
. /guest/data/link.sh
seconds=$1
runs=$2
cells=$3
schemes=$4
congestions=$5
address=10.0.2.1

make_link
modprobe tcp_ldc
for congestion in bbr $congestions; do
    case $congestion in cubic | reno) ;; *) modprobe "tcp_$congestion" ;; esac
done
modprobe sctp
# As quick as TCP to repeat: the default of one second is from RFC 4960.
ip netns exec near sysctl -q -w net.sctp.rto_min=200 net.sctp.rto_initial=1000

# one NAME SCHEME CONGESTION PORT
one() {
    sctp=
    case $2 in sctp-*) sctp=--sctp ;; esac
    # shellcheck disable=SC2086  # one word or none
    ip netns exec far layers receive $sctp "$4" "$seconds" >"/results/$1.receive.json" &
    sleep 0.1
    case $2 in
    user-*)
        ip netns exec near freshwire send layers --to "$address:$4" --policy "${2#user-}" --congestion "$3" \
            --duration "${seconds}s" --drain 1s --json --quiet >"/results/$1.send.json" ||
            echo "the sender of $1 failed"
        ;;
    *)
        ip netns exec near layers send "$2" "$3" "$address" "$4" "$seconds" >"/results/$1.send.json" ||
            echo "the sender of $1 failed"
        ;;
    esac
    wait $! || echo "the receiver of $1 failed"
}

port=5000
for cell in $cells; do
    IFS=/ read -r rate delay loss <<CELL
$cell
CELL
    shape "$rate" "$delay" "$loss"
    for congestion in $congestions; do
        for scheme in $schemes; do
            # SCTP has its own.
            case $scheme in sctp-*) [ "$congestion" = "${congestions%% *}" ] || continue ;; esac
            run=0
            while [ "$run" -lt "$runs" ]; do
                run=$((run + 1))
                port=$((port + 1))
                name="$rate,$delay,$loss,$scheme,$congestion,$run"
                echo "$name"
                one "$name" "$scheme" "$congestion" "$port"
            done
        done
    done
done
