#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Flows of the kernel ring beside plain TCP across one bottleneck, in a guest: what a flow gets beside plain TCP in its place.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../../.." && pwd)

usage() {
    cat <<'USAGE'
usage: share.sh [OPTION...]
  --out FOLDER         share.jsonl and table.md (results/kernel-share)
  --kernel 6.1|6.12    (6.12)
  --seconds N          length of a run (40)
  --runs N             runs of each (3)
  --cells "R/D/Q ..."  bits a second, ms each way, packets of the queue (1, 10 and 50 Mbit/s with 20 ms)
  --control CONTROL    of the flows in question and of the others (cubic)
  --limit SECONDS      kills the guest after that much real time (3600)
USAGE
}

out=$repository/results/kernel-share
kernel=6.12
seconds=40
runs=3
cells="1000000/20/10 10000000/20/34 10000000/20/134 50000000/20/167"
control=cubic
limit=3600
while (($#)); do
    case $1 in
    --out) out=$2 ;;
    --kernel) kernel=$2 ;;
    --seconds) seconds=$2 ;;
    --runs) runs=$2 ;;
    --cells) cells=$2 ;;
    --control) control=$2 ;;
    --limit) limit=$2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift 2
done

# One, two and four flows beside one of plain TCP, each followed by plain TCP in their place.
scenes=
for count in 1 2 4; do
    for scheme in ring-filled send; do
        scene=
        for ((flow = 0; flow < count; flow++)); do scene+="$scheme:$control+"; done
        scenes+=" ${scene}send:$control"
    done
done

programs=${FRESHWIRE_KERNEL_CACHE:-$repository/target/kernel}/experiment
make --silent -C "$here" O="$programs" all
mkdir -p "$out"
modules=()
[[ $control == cubic || $control == reno ]] || modules=(--module "tcp_$control")
"$repository/host/kernel/guest/run.sh" --kernel "$kernel" "${modules[@]}" --add "$programs/costs" --data "$here/link.sh" --limit "$limit" \
    --results "$out" "$here/share-guest.sh" "$seconds" "$runs" "$cells" "$scenes"
python3 "$here/costs_table.py" "$out" | tee "$out/table.md"
