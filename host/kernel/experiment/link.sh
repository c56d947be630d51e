# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=dash
# Sourced in the guest: the experiment's three machines as network namespaces.
#
#   near 10.0.1.1 ──── 10.0.1.2 middle 10.0.2.2 ──── 10.0.2.1 far
#                          netem each way
#
# In the middle and not on the sender's own device: TCP counts what waits in its own device as its own.

# One segment a packet: netem delays and drops what it is given as a whole, and it is the wire's packets that are meant.
pair() {
    ip link add "$1" netns "$2" type veth peer name "$3" netns "$4"
    for end in "$2 $1" "$4 $3"; do
        # shellcheck disable=SC2086  # two words
        set -- $end
        ip -n "$1" link set "$2" up gso_max_segs 1
    done
}

make_link() {
    for name in near middle far; do
        ip netns add "$name"
        ip -n "$name" link set lo up
    done
    pair eth0 near to-near middle
    pair eth0 far to-far middle
    ip -n near addr add 10.0.1.1/24 dev eth0
    ip -n middle addr add 10.0.1.2/24 dev to-near
    ip -n middle addr add 10.0.2.2/24 dev to-far
    ip -n far addr add 10.0.2.1/24 dev eth0
    ip -n near route add default via 10.0.1.2
    ip -n far route add default via 10.0.2.2
    ip netns exec middle sysctl -q -w net.ipv4.ip_forward=1
}

# shape RATE DELAY LOSS [QUEUE]: bits a second or none, milliseconds each way, percent each way. The bottleneck holds QUEUE packets,
# ten by default, beside those that are on their way.
shape() {
    limit=1000
    rated=
    if [ "$1" != none ]; then
        limit=$((${4:-10} + $1 * $2 / 12000000 + 1))
        rated="rate ${1}bit"
    fi
    for device in to-near to-far; do
        # shellcheck disable=SC2086  # words
        tc -n middle qdisc replace dev "$device" root netem limit "$limit" delay "${2}ms" loss "${3}%" $rated
    done
}
