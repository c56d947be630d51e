#!/usr/bin/env bash
# Compiles ack_filter.c to the object that the crate carries, and notes what it was made of. Needs clang (apt-get install clang).
# A host compiler cannot make eBPF, and neither can a stable Rust; so the object is kept, and the tests compare it with its source.
set -euo pipefail
cd "$(dirname "$0")"
object=${1:-ack_filter.o}
clang -target bpf -mcpu=v2 -O2 -g0 -Wall -Wextra -Werror -Wno-unused-parameter \
    -I"/usr/include/$(uname -m)-linux-gnu" -c ack_filter.c -o "$object"
if [ "$object" = ack_filter.o ]; then
    clang --version | head -n 1 >made_with.txt
    sha256sum ack_filter.c ack_filter.o >>made_with.txt
fi
