#!/usr/bin/env bash
# Compiles the GStreamer elements and runs their tests. `gstreamer.sh --check` says whether that is possible.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! pkg-config --atleast-version=1.22 gstreamer-1.0 gstreamer-base-1.0 2>/dev/null; then
    echo "no headers of GStreamer 1.22 or newer: apt-get install libgstreamer1.0-dev pkg-config" >&2
    exit 1
fi
if [ "${1:-}" = --check ]; then exit 0; fi

# With the whole workspace, because its crates are compiled already with the features that they have together.
all=(--workspace --features freshwire-gst/plugin)
cargo clippy "${all[@]}" --test elements -- -D warnings
cargo test "${all[@]}" --test elements
# The plugin's only unit test, by its name: those of the other crates have run.
unit=endpoint::tests::locations
cargo test "${all[@]}" --lib -- --exact $unit | grep -x "test $unit \.\.\. ok"
