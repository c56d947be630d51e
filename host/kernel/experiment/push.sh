#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# push.sh [--out FOLDER] [--kernel 6.1|6.12|7.2|7.3] [--count N] [--long N]: packet push beside recv(), the document's table 3 and its
# figures 14 to 16. Time is counted in instructions, two nanoseconds each, the whole guest's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../../.." && pwd)

out=$repository/results/kernel-push
kernel=6.12
count=100000
long=1000000
while (($#)); do
    case $1 in
    --out) out=$2 ;;
    --kernel) kernel=$2 ;;
    --count) count=$2 ;;
    --long) long=$2 ;;
    *)
        echo "usage: push.sh [--out FOLDER] [--kernel 6.1|6.12|7.2|7.3] [--count N] [--long N]" >&2
        exit 2
        ;;
    esac
    shift 2
done

programs=${FRESHWIRE_KERNEL_CACHE:-$repository/target/kernel}/experiment
make --silent -C "$here" O="$programs" "$programs/push"
mkdir -p "$out"
# Without fast string moves: QEMU counts each of their bytes as an instruction, and the kernel copies with them.
"$repository/host/kernel/guest/run.sh" --kernel "$kernel" --cpu "max,-erms,-fsrm" --add "$programs/push" --limit 3600 \
    --results "$out" "$here/push-guest.sh" "$count" "$long"
python3 "$here/push_table.py" "$out/push.jsonl" | tee "$out/table.md"
