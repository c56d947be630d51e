#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# costs.sh [--out FOLDER] [--kernel 6.1|6.12]: what the ring costs beside send(), and what a horizon of one segment or none
# gets through links with loss and delay. Time is counted in instructions, two nanoseconds each, the whole guest's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../../.." && pwd)

out=$repository/results/kernel-costs
kernel=6.12
cells="1048576/50/0 1048576/50/5 10000000/20/0 10000000/20/1 50000000/10/0"
while (($#)); do
    case $1 in
    --out) out=$2 ;;
    --kernel) kernel=$2 ;;
    *)
        echo "usage: costs.sh [--out FOLDER] [--kernel 6.1|6.12]" >&2
        exit 2
        ;;
    esac
    shift 2
done

programs=${FRESHWIRE_KERNEL_CACHE:-$repository/target/kernel}/experiment
make --silent -C "$here" O="$programs" all
mkdir -p "$out"
"$repository/host/kernel/guest/run.sh" --kernel "$kernel" --add "$programs/layers" --data "$here/link.sh" --results "$out" \
    "$here/syscalls-guest.sh" 60
# Without fast string moves: QEMU counts each of their bytes as an instruction, and the kernel copies with them.
guest=("$repository/host/kernel/guest/run.sh" --kernel "$kernel" --cpu "max,-erms,-fsrm" --add "$programs/costs" --limit 3600
    --results "$out")
"${guest[@]}" "$here/costs-guest.sh" 1
"${guest[@]}" --data "$here/link.sh" "$here/horizon-guest.sh" 10 2 "$cells" "cubic bbr reno"
python3 "$here/costs_table.py" "$out" | tee "$out/table.md"
