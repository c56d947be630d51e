#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# receive-guest.sh ARGUMENT...: runs in the guest: `freshwire-lab bench receive` with the module, which only works there.
#
#   cargo build --release -p freshwire-lab
#   host/kernel/guest/run.sh --cpu max,-erms,-fsrm --add target/release/freshwire-lab --limit 3600 host/kernel/experiment/receive-guest.sh \
#       --repeat 3 --receive-rate 20000 --receive-time 1s --receive-part stalls --receive-method recv,recvmmsg,push-thread,module
set -eu
modprobe pkt_push
# The bench ends with 1 where a goal is missed, which is a result and no failure.
code=0
freshwire-lab bench receive "$@" || code=$?
[ "$code" -le 1 ]
