#!/usr/bin/env bash
# The short form of the evidence, measured anew: each row that is expected is met, and each claim holds.
set -euo pipefail

cd "$(dirname "$0")/.."
. xtask/functions.sh
build_commands freshwire freshwire-lab
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${CARGO_TARGET_DIR:-target}/debug/freshwire-lab" evidence --short --out "$out"
