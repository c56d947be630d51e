#!/usr/bin/env bash
# The command against the second implementation of A1 (research/python/freshwire_lab/a1), over loopback, both ways. Each test is a
# function; it fails with any of its commands. It needs python3 with `cryptography`. FRESHWIRE names a binary that is
# there already, PYTHON another interpreter.
set -euo pipefail

cd "$(dirname "$0")/.."
. xtask/functions.sh
root=$PWD
if [ -z "${FRESHWIRE:-}" ]; then
    build_commands freshwire
    FRESHWIRE=${CARGO_TARGET_DIR:-target}/debug/freshwire
fi
freshwire=$(realpath "$FRESHWIRE")
# Debian's own, which has Debian's packages.
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import cryptography' || {
    echo "python3-cryptography is not there"
    exit 1
}
work=$(mktemp -d)
background=()
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$root/research/python

peer() { timeout 25 "$python" -m freshwire_lab.a1 "$@"; }
command_() { timeout 25 "$freshwire" "$@"; }

# Waits until a log tells the key, and sets `port` and `key`.
listens() {
    local try
    for try in $(seq 200); do
        key=$(sed -n 's/.*--peer-key \([0-9a-f]*\).*/\1/p' "$1")
        port=$(sed -n 's/^listening on .*[: ]\([0-9]*\)\( .*\)\?$/\1/p' "$1" | head -n 1)
        [ -z "$key" ] || [ -z "$port" ] || return 0
        sleep 0.05
    done
    cat "$1"
    return 1
}

# Records of random bytes, each with its length before it: count, smallest, largest.
records() {
    "$python" - "$@" <<'PYTHON' >"$work/records"
import random, struct, sys
count, low, high = map(int, sys.argv[1:])
source = random.Random(7)
for _ in range(count):
    size = int(low * (high / low) ** source.random())
    sys.stdout.buffer.write(struct.pack(">I", size) + source.randbytes(size))
PYTHON
}

# What the peer got against the records: each is right, or gone, or dropped. Arguments: expression over the counts.
compare() {
    "$python" - "$work" "$1" <<'PYTHON'
import hashlib, json, struct, sys
work, condition = sys.argv[1:]
data, hashes, at = open(f"{work}/records", "rb").read(), [], 0
while at < len(data):
    (size,) = struct.unpack_from(">I", data, at)
    hashes.append(hashlib.sha256(data[at + 4 : at + 4 + size]).hexdigest())
    at += 4 + size
lines = [json.loads(line) for line in open(f"{work}/peer")]
got = {line["application"]: line["sha256"] for line in lines if "sha256" in line}
assert len(got) == sum("sha256" in line for line in lines), "a message came twice"
wrong = [number for number, value in got.items() if hashes[number] != value]
assert not wrong, f"wrong bytes: {wrong}"
begun = {line["message"] if "sha256" in line else line["gone"] for line in lines if "sha256" in line or "gone" in line}
holes = sorted(set(range(max(begun) + 1)) - begun)
assert not holes, f"A1-MSG-3: begun, and neither delivered nor said to be gone: {holes}"
offered, delivered = len(hashes), len(got)
gone = sum("gone" in line for line in lines)
dropped = sum(line["count"] for line in lines if "dropped" in line)
account = lines[-1]
packets, strange = account["packets"], account["strange"]
print(f"{delivered} of {offered} records, {gone} gone, {dropped} dropped, packets {packets}, strange {strange}")
assert not strange, strange
ending = account["ending"]
# Where packets are lost on purpose, each CLOSE may have been among them.
assert ending["code"] == 0 or ending["text"] == "silence" and sum(account["lost_on_purpose"]), ending
assert eval(condition), condition
PYTHON
}

# The command listens and sends: options of the peer, of the command.
command_sends() {
    : >"$work/log"
    command_ send --carrier a1 --listen 127.0.0.1:0 --quiet --json $2 records <"$work/records" >"$work/account" 2>"$work/log" &
    local job=$!
    background+=("$job")
    listens "$work/log"
    peer recv --to "127.0.0.1:$port" --peer-key "$key" $1 >"$work/peer" || { cat "$work/log"; tail -n 1 "$work/peer"; return 1; }
    wait "$job"
}

# The peer listens, the command calls and sends.
command_calls_and_sends() {
    : >"$work/log"
    peer recv --listen 0 $1 >"$work/peer" 2>"$work/log" &
    local job=$!
    background+=("$job")
    listens "$work/log"
    command_ send --carrier a1 --to "127.0.0.1:$port" --peer-key "$key" --quiet --json $2 records <"$work/records" >"$work/account"
    wait "$job"
}

# The command listens and receives.
command_receives() {
    : >"$work/log"
    command_ recv --carrier a1 --listen 127.0.0.1:0 --quiet --json --out "$work/came" $2 >"$work/account" 2>"$work/log" &
    local job=$!
    background+=("$job")
    listens "$work/log"
    peer send --to "127.0.0.1:$port" --peer-key "$key" --out "$work/offered" $1 >"$work/peer"
    wait "$job"
    tail -n 1 "$work/peer"
    cmp "$work/offered" "$work/came"
}

# The peer listens and sends, the command calls.
command_calls_and_receives() {
    : >"$work/log"
    peer send --listen 0 --out "$work/offered" $1 >"$work/peer" 2>"$work/log" &
    local job=$!
    background+=("$job")
    listens "$work/log"
    command_ recv --carrier a1 --from "127.0.0.1:$port" --peer-key "$key" --quiet --json --out "$work/came" $2 >"$work/account"
    wait "$job"
    tail -n 1 "$work/peer"
    cmp "$work/offered" "$work/came"
}

weather="--idle 3000 --loss 0.1 --duplicate 0.05 --reorder 0.05"

every_record_comes_from_the_command() {
    records 200 1 100000
    command_sends "" ""
    compare "delivered == offered"
    command_sends "$weather --seed 3" ""
    compare "delivered == offered"
}

every_record_comes_from_a_command_that_calls() {
    records 200 1 100000
    command_calls_and_sends "" ""
    compare "delivered == offered"
    command_calls_and_sends "$weather --seed 4" "--congestion newreno"
    compare "delivered == offered"
}

small_records_come_as_runs() {
    records 3000 20 60
    command_sends "--idle 3000 --loss 0.05 --seed 5" ""
    compare "delivered == offered and account['received']['runs'] > 0"
}

every_record_comes_to_the_command() {
    command_receives "--count 150" ""
    command_receives "--count 150 $weather --seed 6" ""
    command_receives "--count 3000 --size 20-60 --loss 0.05" ""
    command_receives "--count 3000 --size 40 --runs --loss 0.05" ""
}

every_record_comes_to_a_command_that_calls() {
    command_calls_and_receives "--count 150" ""
    # With a key update after every hundred packets, which the command follows.
    command_calls_and_receives "--count 150 $weather --seed 8 --update-after 100" ""
    "$python" -c 'import json, sys; updates = json.loads(sys.stdin.readlines()[-1])["updates"]; assert min(updates) > 3, updates' <"$work/peer"
}

thousands_of_packets_come() {
    records 300 20000 60000
    command_sends "--idle 3000 --loss 0.02 --seed 9" ""
    compare "delivered == offered and packets['came'] > 5000"
}

a_shared_secret_is_used() {
    "$python" -c 'print("ab" * 32)' >"$work/psk"
    "$python" -c 'print("ac" * 32)' >"$work/other"
    records 20 1 1000
    command_calls_and_sends "--psk $work/psk" "--psk $work/psk"
    compare "delivered == offered"
    command_receives "--count 20 --psk $work/psk" "--psk $work/psk"
}

# A slow receiver and a path that loses a quarter: what is late is dropped, or given up half-way.
what_is_stale_is_told() {
    records 400 2000 60000
    local seed
    for seed in 11 12 13 14 15 16; do
        command_sends "--idle 3000 --loss 0.25 --seed $seed --rate 4000000 --outstanding 16" \
            "--deadline 250ms --policy expiring"
        compare "0 < delivered < offered and delivered + gone + dropped <= offered"
        # The last that is said may be lost with the end of the connection, and now and then that is all.
        if compare "gone > 0 and dropped > 0" 2>/dev/null; then return 0; fi
    done
    return 1
}

a_wrong_key_does_not_connect() {
    : >"$work/log"
    peer recv --listen 0 --patience 3 --allow-key "$("$python" -c 'print("11" * 32)')" >"$work/peer" 2>"$work/log" &
    background+=("$!")
    listens "$work/log"
    local code=0
    command_ send --carrier a1 --to "127.0.0.1:$port" --peer-key "$key" --quiet records </dev/null 2>"$work/err" || code=$?
    cat "$work/err"
    [ "$code" = 2 ]
    wait "${background[-1]}" && return 1
    : >"$work/log"
    command_ recv --carrier a1 --listen 127.0.0.1:0 --quiet --allow-key "$key" --out "$work/came" 2>"$work/log" &
    background+=("$!")
    listens "$work/log"
    code=0
    peer send --to "127.0.0.1:$port" --peer-key "$key" 2>"$work/err" || code=$?
    cat "$work/err"
    grep -q 'refused with code 1' "$work/err"
    [ "$code" = 2 ]
    kill "${background[-1]}"
}

# The command has to end the connection with code 1.
who_breaks_a_rule_is_closed() {
    local rule
    for rule in ack block credit type whole; do
        : >"$work/log"
        command_ recv --carrier a1 --listen 127.0.0.1:0 --quiet --out "$work/came" >"$work/account" 2>"$work/log" &
        local job=$!
        background+=("$job")
        listens "$work/log"
        peer send --to "127.0.0.1:$port" --peer-key "$key" --count 40 --break-rule "$rule" --idle 4000 >"$work/peer" && return 1
        wait "$job" && return 1
        closed "$rule"
    done
    records 100 1 10000
    for rule in ack whole; do
        command_sends "--break-rule $rule --idle 4000" "" >/dev/null && return 1
        closed "$rule"
    done
}

closed() {
    "$python" - "$work/peer" "$1" <<'PYTHON'
import json, sys
ending = json.loads(open(sys.argv[1]).readlines()[-1])["ending"]
print(sys.argv[2], ending)
assert ending["by_peer"] and ending["code"] == 1, ending
PYTHON
}

after_test() {
    local job
    for job in "${background[@]}"; do kill "$job" 2>/dev/null || true; done
}

run_tests 'peer|command_|command_sends|command_calls_and_sends|command_receives|command_calls_and_receives' "$@"
