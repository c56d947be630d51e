#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# rust.sh FOLDER: builds the Rust side's test of the kernel's ring into FOLDER. FRESHWIRE_KERNEL_RING_TEST names one that is there already:
# `cargo xtask test` has it, and cargo would wait for the lints beside.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

folder=${1:?usage: rust.sh FOLDER}
program=${FRESHWIRE_KERNEL_RING_TEST:-}
if [ -z "$program" ]; then
    cargo=${CARGO:-cargo}
    require "$cargo" cargo
    # As the workspace's other tests are built (FRESHWIRE_FEATURES is `cargo xtask test`'s), so that nothing is compiled twice.
    messages=$(cd "$repository" &&
        "$cargo" test --locked --quiet --workspace ${FRESHWIRE_WITHOUT:+--exclude "$FRESHWIRE_WITHOUT"} ${FRESHWIRE_FEATURES:+--features "$FRESHWIRE_FEATURES"} \
            --test kernel_ring --no-run --message-format json)
    program=$(grep -o '"executable":"[^"]*/kernel_ring-[^"]*"' <<<"$messages" | cut -d '"' -f 4)
fi
[ -x "$program" ] || die "no test program at ${program:-the place that cargo names}"
mkdir -p "$folder"
cp "$program" "$folder/freshwire_kernel_ring"
