#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# debug-test.sh [kasan] [kcsan]: the kernel's tests in debug kernels, which are built first (debug-kernel.sh). Without
# arguments both. One complaint of a checker fails the run.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

checkers=("$@")
if (($# == 0)); then checkers=(kasan kcsan); fi
programs=$cache/debug-tests

"$guest_dir/run.sh" --check
rm -rf "$programs"
mkdir -p "$programs"
for folder in host/kernel/tcp_ldc/tests host/kernel/libldc/tests host/kernel/pkt_push/tests; do
    make --silent -C "$repository/$folder" O="$programs" all >&2
done
add=()
names=()
for program in "$programs"/*; do
    if ! [ -f "$program" ] || ! [ -x "$program" ]; then continue; fi
    add+=(--add "$program")
    names+=("$(basename "$program")")
done
for checker in "${checkers[@]}"; do
    "$guest_dir/debug-kernel.sh" "$checker" >&2
    "$guest_dir/run.sh" --kernel "debug-$checker" --cpus 2 --memory 2048 --limit 7200 --env FRESHWIRE_PATIENCE=10 "${add[@]}" \
        "$guest_dir/suite.sh" 20 3600 "${names[@]}"
done
