#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The experiment of Birkedal 2006, chapter 5, with real netem and a stock kernel, in a guest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../../.." && pwd)

usage() {
    cat <<'USAGE'
usage: run.sh [OPTION...]
  --out FOLDER         results.jsonl and table.md (results/kernel-experiment)
  --kernel 6.1|6.12    (6.12)
  --seconds N          length of a run (60)
  --runs N             runs of each (3)
  --cells "R/D/L ..."  bits a second or none, ms each way, percent lost each way (the four published, and with 50 ms)
  --schemes "..."      tcp ring-thesis ring-deadline ring-deadline-h0 ring-deadline-zc ring-base sctp-ttl sctp-prio
                       user-thesis user-layered; the last two are the command `freshwire send layers --policy`
  --congestion "..."   (cubic); any of the kernel's, as bbr reno vegas westwood
  --limit SECONDS      kills a guest after that much real time (3600)
USAGE
}

out=$repository/results/kernel-experiment
kernel=6.12
seconds=60
runs=3
cells="none/0/0 1048576/0/5 524288/0/5 262144/0/5 none/50/0 1048576/50/5 524288/50/5 262144/50/5"
schemes="tcp ring-thesis ring-deadline ring-base user-thesis user-layered sctp-ttl sctp-prio"
congestion=cubic
limit=3600
while (($#)); do
    case $1 in
    --out) out=$2 ;;
    --kernel) kernel=$2 ;;
    --seconds) seconds=$2 ;;
    --runs) runs=$2 ;;
    --cells) cells=$2 ;;
    --schemes) schemes=$2 ;;
    --congestion) congestion=$2 ;;
    --limit) limit=$2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift 2
done

programs=${FRESHWIRE_KERNEL_CACHE:-$repository/target/kernel}/experiment
make --silent -C "$here" O="$programs" all
add=(--add "$programs/layers")
for name in $congestion; do
    [[ $name == cubic || $name == reno ]] || add+=(--module "tcp_$name")
done
case $schemes in
*user-*)
    freshwire=${FRESHWIRE:-$repository/target/release/freshwire}
    if ! [ -x "$freshwire" ]; then
        echo "run.sh: $freshwire is missing: make build" >&2
        exit 2
    fi
    add+=(--add "$freshwire")
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
# A guest for each path: an interrupted experiment keeps what it has.
for cell in $cells; do
    rm -rf "$work/results"
    "$repository/host/kernel/guest/run.sh" --kernel "$kernel" "${add[@]}" --data "$here/link.sh" --limit "$limit" \
        --results "$work/results" "$here/guest.sh" "$seconds" "$runs" "$cell" "$schemes" "$congestion"
    python3 "$here/table.py" gather "$work/results" "kernel=$kernel" "seconds=$seconds" \
        "commit=$(git -C "$repository" rev-parse --short HEAD)" >>"$out/results.jsonl"
    python3 "$here/table.py" show "$out/results.jsonl" >"$out/table.md"
done
cat "$out/table.md"
