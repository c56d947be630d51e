#!/usr/bin/env bash
# The slow suites in short form, with the command as a person has it, and programs that share no code with it as judges.
# Each test is a function; it fails with any of its commands.
set -euo pipefail

cd "$(dirname "$0")/.."
. xtask/functions.sh
build_commands freshwire freshwire-lab
freshwire=$(realpath "${CARGO_TARGET_DIR:-target}/debug/freshwire")
lab=$(realpath "${CARGO_TARGET_DIR:-target}/debug/freshwire-lab")
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Every number of a result file, computed again from the fates of its records.
check_again() { (cd "$root/research/python" && python3 -m freshwire_lab.check "$1"); }

# The mean of a metric over the runs of a scheme.
metric() {
    python3 - "$@" <<'PYTHON'
import json, sys
path, scheme, *keys = sys.argv[1:]
values = []
for line in open(path):
    run = json.loads(line)
    if run["type"] == "run" and run["data"]["plan"]["scheme"] == scheme:
        value = run["data"]["metrics"]
        for key in keys:
            value = value[key]
        values.append(value)
print(sum(values) / len(values))
PYTHON
}

at_least() { python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(not a >= b)' "$1" "$2"; }

# Runs a command that has to end with the given code.
ends_with() {
    local expected=$1 code=0
    shift
    "$@" >"$work/out" 2>"$work/err" || code=$?
    if [ "$code" != "$expected" ]; then
        echo "ended with $code instead of $expected: $*"
        cat "$work/out" "$work/err"
        return 1
    fi
}

the_doctor_finds_what_the_others_need() {
    "$freshwire" doctor
    "$freshwire" doctor --json | python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]'
    NO_COLOR=1 "$freshwire" doctor | head -n 1 >/dev/null
}

layers_stay_on_time_and_the_numbers_hold() {
    local out=$work/layers
    "$lab" layers --duration 6s --loss 5% --scheme tcp,freshwire --out "$out"
    check_again "$out/results.jsonl"
    grep -q '<svg' "$out/report.html"
    local ours plain
    ours=$(metric "$out/results.jsonl" freshwire share_of_ideal)
    plain=$(metric "$out/results.jsonl" tcp share_of_ideal)
    echo "share of the ideal: Freshwire $ours, plain TCP $plain"
    at_least "$ours" 0.7
    at_least "$ours" "$plain"
}

frames_are_never_worse_than_plain_tcp_and_the_numbers_hold() {
    local out=$work/frames
    "$lab" frames --duration 6s --rate 2Mbit --scheme tcp,freshwire --out "$out"
    check_again "$out/results.jsonl"
    local ours plain
    ours=$(metric "$out/results.jsonl" freshwire on_time_frames)
    plain=$(metric "$out/results.jsonl" tcp on_time_frames)
    echo "frames on time: Freshwire $ours, plain TCP $plain"
    at_least "$ours" "$plain"
}

the_screen_is_fresher_than_by_plain_tcp_and_the_numbers_hold() {
    local out=$work/screen
    "$lab" screen --stream camera --link 50% --duration 10s --scheme freshwire,tcp --out "$out"
    check_again "$out/screen.jsonl"
    grep -q 'data:image/jpeg' "$out/screen.html"
    python3 - "$out/screen.jsonl" <<'PYTHON'
import json, sys
runs = [json.loads(line)["data"] for line in open(sys.argv[1])]
age = {run["plan"]["scheme"]: run["metrics"]["screen"]["age_mean_s"] for run in runs}
print("mean age of the screen, s:", age)
assert age["freshwire"] < age["tcp"], age
for run in runs:
    decoded = run["decoded"]
    assert decoded["torn"] == decoded["differing"] == decoded["complaints"] == 0 < decoded["pictures"], decoded
PYTHON
    ends_with 2 "$lab" screen --stream no-such-stream --out "$out"
    ends_with 2 "$lab" screen --scheme udp --out "$out"
}

state_is_fresh_for_every_key_and_the_numbers_hold() {
    local out=$work/state
    "$lab" state --rate 200kbit --reader fast --scheme tcp,freshwire --duration 6s --warm-up 2s --out "$out"
    (cd "$root/research/python" && python3 -m freshwire_lab.state "$out/state.jsonl")
    grep -q '<svg' "$out/report.html"
    python3 - "$out/state.jsonl" <<'PYTHON'
import json, sys
runs = [json.loads(line)["data"] for line in open(sys.argv[1])]
plain, ours = [next(r for r in runs if r["plan"]["scheme"] == name)["metrics"] for name in ("tcp", "freshwire")]
print(f"age: Freshwire {ours['age_mean_ns'] / 1e9:.2f} s, plain TCP {plain['age_mean_ns'] / 1e9:.2f} s;",
      f"silence {ours['worst_silence_ns'] / ours['fair_round_ns']:.1f} rounds, least {ours['least_share']:.2f} of the mean")
assert ours["age_mean_ns"] < 0.5 * plain["age_mean_ns"]
assert ours["least_share"] > 0.5 and ours["worst_silence_ns"] < 4 * ours["fair_round_ns"]
PYTHON
}

an_interrupted_experiment_is_taken_up() {
    local out=$work/again
    "$lab" layers --duration 2s --scheme freshwire --out "$out"
    "$lab" layers --duration 2s --scheme freshwire --repeat 2 --out "$out"
    [ "$(wc -l <"$out/results.jsonl")" = 2 ]
    check_again "$out/results.jsonl"
}

a_plain_reader_gets_every_record_whole() {
    # The reader shares no code with the sender and checks every byte and that no record is torn.
    "$freshwire" link --rate 512Kibit --loss 5% --seed 7 --account none \
        --peer "cd '$root/research/python' && python3 -m freshwire_lab.reader --listen 5000 >'$work/reader.json'" -- \
        "$freshwire" send layers --to 10.77.0.2:5000 --wait 10s --duration 5s --quiet
    python3 - "$work/reader.json" <<'PYTHON'
import json, sys
seen = json.load(open(sys.argv[1]))
print(seen)
assert seen["problem"] is None and seen["windows"] >= 4, "the base layer of five windows, but for the last"
PYTHON
}

a_link_carries_any_program() {
    "$freshwire" link --delay 20ms --peer 'nc -l -p 5000 | md5sum' -- \
        sh -c 'seq 10000 | nc -q 1 10.77.0.2 5000' 2>"$work/link.txt"
    grep -q "$(seq 10000 | md5sum | cut -d ' ' -f 1)" "$work/link.txt"
    ends_with 7 "$freshwire" link --delay 1ms -- sh -c 'exit 7'
}

a_group_is_fed_across_a_lossy_link() {
    cat >"$work/members" <<SHELL
until key=\$(sed -n 's/.*--peer-key //p' '$work/group.txt') && [ "\$key" ]; do sleep 0.05; done
for member in 1 2; do
    '$freshwire' recv --carrier a1 --join --from 10.77.0.1:5000 --wait 5s --peer-key "\$key" \
        --deadline 1s --json >'$work'/member.\$member &
done
wait
SHELL
    "$freshwire" link --rate 20Mbit --loss 5% --delay 10ms --seed 3 --account none --peer "sh '$work/members'" -- \
        "$freshwire" send --carrier a1 --listen 10.77.0.1:5000 --group 239.255.7.7:5001 --rate 4Mbit/s --members 2 \
        layers --duration 4s --json 2>"$work/group.txt" >"$work/sent"
    check_group
}

# A veth pair: the loopback of many machines has no way to an IPv6 group.
a_group_is_fed_over_ipv6() {
    cat >"$work/group6" <<SHELL
set -e
ip link set lo up
ip link add near type veth peer name far
ip addr add fd77::1/64 dev near nodad
ip link set near up
ip link set far up
'$freshwire' send --carrier a1 --listen '[fd77::1]:5000' --group '[ff15::77]:5001' --rate 4Mbit/s --members 2 \
    layers --duration 4s --json 2>'$work/group.txt' >'$work/sent' &
until key=\$(sed -n 's/.*--peer-key //p' '$work/group.txt') && [ "\$key" ]; do sleep 0.05; done
for member in 1 2; do
    '$freshwire' recv --carrier a1 --join --from '[fd77::1]:5000' --same-host --wait 5s --peer-key "\$key" \
        --deadline 1s --json >'$work'/member.\$member &
done
wait
SHELL
    rm -f "$work/group.txt" "$work/sent" "$work"/member.*
    unshare --user --map-root-user --net timeout 30 sh "$work/group6"
    check_group
}

check_group() {
    python3 - "$work" <<'PYTHON'
import json, sys
sent, *members = [json.load(open(f"{sys.argv[1]}/{name}"))["data"] for name in ("sent", "member.1", "member.2")]
print(sent["stream_bytes"], [(m["records"], m["missing_records"]) for m in members])
assert all(m["records"] == 32 and m["missing_records"] == 0 for m in members), members
assert all(layer["on_time_records"] == 4 for m in members for layer in m["layers"]), members
assert sent["stream_bytes"] < 1.3 * 32 * 16384, "once for both"
PYTHON
}

a_wrong_command_line_ends_with_2() {
    ends_with 2 "$freshwire"
    ends_with 2 "$freshwire" no-such-command
    ends_with 2 "$lab" layers --loss 150%
    ends_with 2 "$lab" layers --rate fast
    ends_with 2 "$lab" report "$work/no-such-file"
    ends_with 2 "$lab" layers --duration 1s --scheme freshwire --out /proc/no-such-folder
}

run_tests 'check_again|check_group|at_least|ends_with' "$@"
