#!/usr/bin/env bash
# `make evidence-hosts` between two network namespaces with a slow link, and an SSH server in each. Each test is a function. It needs no
# root: the server, Dropbear, which no installation starts, runs as a user of a namespace of its own, with keys and a configuration in a temporary folder.
set -euo pipefail

cd "$(dirname "$0")/.."
. xtask/functions.sh
root=$PWD
if [ -z "${FRESHWIRE:-}" ]; then
    build_commands freshwire
    FRESHWIRE=${CARGO_TARGET_DIR:-target}/debug/freshwire
fi
freshwire=$(realpath "$FRESHWIRE")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$root/research/python PATH=$PATH:/usr/sbin
ssh=$(command -v ssh)
dropbear=$(command -v dropbear)

# What is copied to the machines. The real command has a hundred megabytes in a debug build.
small_command() {
    printf '#!/bin/sh\nexec %s "$@"\n' "$freshwire" >"$work/freshwire"
    chmod +x "$work/freshwire"
}

measure() {
    python3 -m freshwire_lab.hosts --command "$work/freshwire" --out "$work/out" --repeat 1 "$@"
}

# serve ADDRESS: a script that runs an SSH server there, as the only user that its namespace has.
serve() {
    local folder=$work/$1
    mkdir -p "$folder/.ssh"
    dropbearkey -t ed25519 -f "$folder/host" >/dev/null 2>&1
    cp "$work/client.pub" "$folder/.ssh/authorized_keys"
    echo "tester:x:1000:1000::$folder:/bin/sh" >"$folder/passwd"
    chmod -R go= "$folder"
    printf '%s\n' 'set -eu' "mount --bind $folder/passwd /etc/passwd" \
        "exec unshare --user --map-user=1000 --map-group=1000 $dropbear -F -E -s -m -p $1:2222 -r $folder/host 2>$folder/log" >"$folder/start"
    echo "unshare --user --map-root-user --mount sh $folder/start"
}

# Runs words behind a link between two machines that ssh reaches as tester@10.77.0.1 and tester@10.77.0.2.
between_machines() {
    local near far
    ssh-keygen -q -t ed25519 -N '' -f "$work/client"
    near=$(serve 10.77.0.1)
    far=$(serve 10.77.0.2)
    printf '%s\n' "IdentityFile $work/client" "IdentitiesOnly yes" "Port 2222" "BatchMode yes" "StrictHostKeyChecking no" \
        "UserKnownHostsFile /dev/null" "LogLevel ERROR" "ConnectionAttempts 20" >"$work/ssh"
    {
        echo "$near & near=\$!"
        echo "trap 'kill \$near' EXIT"
        printf '%q ' "$@"
    } >"$work/near"
    export SSH="$ssh -F $work/ssh"
    export -f measure
    export work
    timeout 600 "$freshwire" link --rate 4Mbit --delay 20ms --queue 60000 --account none --peer "$far" -- bash "$work/near"
}

# expect EXPRESSION: what holds of the results, with `runs(kind, scheme)` in both directions.
expect() {
    python3 - "$work/out/hosts.json" "$1" <<'PYTHON'
import json, sys
results = json.load(open(sys.argv[1]))
def runs(kind, scheme):
    found = [run for run in results["runs"] if (run["kind"], run["scheme"]) == (kind, scheme)]
    assert [run["direction"] for run in found] == ["A to B", "B to A"], found
    return found
schemes = ["plain TCP", "Freshwire on TCP", "Freshwire on A1"]
hosts = results["hosts"]
if not eval(sys.argv[2]):
    print(json.dumps(results, indent=1))
    sys.exit(f"not so: {sys.argv[2]}")
PYTHON
}

both_directions_of_a_slow_path_are_measured() {
    small_command
    between_machines measure --seconds 4 tester@10.77.0.1 tester@10.77.0.2
    cat "$work"/10.77.0.*/log
    # The clock is the same, so the difference that is found is an error, and it has to be within its bound.
    expect "all(abs(one) <= results['clock']['error_s'] for one in results['clock']['offset_s'])"
    expect "0.02 <= results['clock']['error_s'] < 2"
    expect "all(0.5e6 < run['throughput_bps'] < 4.2e6 for scheme in schemes for run in runs('bulk', scheme))"
    expect "all(run['sender_cpu_s'] > 0 and run['receiver_cpu_s'] > 0 for run in results['runs'])"
    # Each value is 20 ms old at least. Plain TCP's wait in the kernel's buffer, the others do not.
    expect "all(run['age_median_s'] > 0.015 for scheme in schemes for run in runs('values', scheme))"
    expect "all(ours['age_median_s'] < plain['age_median_s'] for scheme in schemes[1:]
        for ours, plain in zip(runs('values', scheme), runs('values', schemes[0])))"
    expect "[host['address'] for host in hosts] == ['10.77.0.1', '10.77.0.2']"
    expect "all(host['interface']['driver'] == 'veth' and host['interface']['offloads']['tso'] is not None for host in hosts)"
    expect "all(host['kernel'] == '$(uname -r)' and len(host['load']) == 3 for host in hosts)"
    expect "results['commit'].startswith('$(git rev-parse --short=12 HEAD)')"
    grep -q '^| A to B | Freshwire on A1 | ' "$work/out/report.md"
    [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'freshwire-hosts-*' -newer "$work/ssh")" ]
}

# The same in a network of its own, where no port is taken.
measure_alone() {
    export work
    export -f measure
    unshare --user --map-root-user --net bash -euc 'ip link set lo up; measure "$@"' measure "$@"
}

# A program that runs the command on this machine, in place of ssh.
stand_in() {
    # shellcheck disable=SC2016  # the script's own variables
    printf '%s\n' '#!/bin/sh' '[ "$1" != nowhere ] || { echo "no such machine: nowhere" >&2; exit 255; }' 'exec sh -c "$2"' >"$work/here"
    chmod +x "$work/here"
    export SSH=$work/here
}

another_program_than_ssh_can_be_named() {
    small_command
    stand_in
    measure_alone --seconds 1 --offered 2e6 --port 0 --address-a 127.0.0.1 a b 2>"$work/said" && return 1
    grep -q 'the address of b is not known: give --address-b' "$work/said"
    measure_alone --seconds 1 --offered 2e6 --address-a 127.0.0.1 --address-b 127.0.0.1 a b
    expect "all(run['throughput_bps'] > 1e6 for scheme in schemes for run in runs('bulk', scheme))"
    grep -q 'the path carries more than was offered' "$work/out/report.md"
}

schemes_that_fail_leave_the_others() {
    stand_in
    printf '%s\n' '#!/bin/sh' 'case "$*" in' '*"--carrier a1"*) echo "UDP does not pass" >&2; exit 2 ;;' 'esac' \
        "exec $freshwire \"\$@\"" >"$work/freshwire"
    chmod +x "$work/freshwire"
    measure_alone --seconds 1 --offered 2e6 --address-a 127.0.0.1 --address-b 127.0.0.1 a b
    expect "all('UDP does not pass' in run['failure'] for kind in ('bulk', 'values') for run in runs(kind, 'Freshwire on A1'))"
    expect "all('failure' not in run for kind in ('bulk', 'values') for scheme in schemes[:2] for run in runs(kind, scheme))"
    grep -q '^- Failed: A to B, bulk, Freshwire on A1: .*UDP does not pass' "$work/out/report.md"
}

a_machine_that_cannot_be_reached_is_named() {
    small_command
    stand_in
    local code=0
    measure a nowhere 2>"$work/said" || code=$?
    [ "$code" = 2 ]
    grep -q 'nowhere cannot be reached' "$work/said"
}

run_tests 'small_command|measure_alone|between_machines|stand_in' "$@"
