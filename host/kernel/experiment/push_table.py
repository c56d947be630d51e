# SPDX-License-Identifier: MIT OR Apache-2.0
"""push_table.py FILE: the tables of push.sh's results, as Markdown."""

import json
import statistics
import sys


def median(rows, name):
    return statistics.median(row[name] for row in rows)


def calls(rows):
    print("| datagram | `recv()` | attached | `push_recv()` | share | without a copy | push, for each | `recv()` of what was pushed | `send()` | attached |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for size in sorted({row["size"] for row in rows}):
        same = [row for row in rows if row["size"] == size]
        plain, pushed = median(same, "recv_ns"), median(same, "push_recv_ns")
        print(
            f"| {size} B | {plain:.0f} ns | {median(same, 'recv_attached_ns'):.0f} ns | {pushed:.0f} ns "
            f"| {pushed / plain:.0%} | {median(same, 'push_look_ns'):.0f} ns | {median(same, 'push_ns'):.0f} ns | {median(same, 'recv_from_ring_ns'):.0f} ns "
            f"| {median(same, 'send_ns'):.0f} ns | {median(same, 'send_attached_ns'):.0f} ns |"
        )
    print()


def stalls(rows):
    print("| a second | scheme | sent | taken | lost | CPU for each taken | pushes | a push | most queued |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        lost = 1 - row["taken"] / row["sent"]
        assert row["taken"] + row["dropped"] == row["sent"], row
        print(
            f"| {row['rate']:.0f} | {row['scheme']} | {row['sent']} | {row['taken']} | {lost:.2%} | {row['cpu_ns'] / 1000:.2f} µs "
            f"| {row['pushes']} | {row['push_ns'] / 1000:.0f} µs | {row['queued_max'] // 1024} KiB |"
        )
    print()


def saw(rows):
    print("| scheme | sent | taken | dropped | queued: mean | most | times it fell by half |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        queued = row["queued"]
        falls = sum(1 for old, new in zip(queued, queued[1:]) if new < old / 2)
        print(
            f"| {row['scheme']} | {row['sent']} | {row['taken']} | {row['dropped']} "
            f"| {statistics.mean(queued) / 1024:.0f} KiB | {max(queued) // 1024} KiB | {falls} |"
        )
    print()
    for row in rows:
        print(f"{row['scheme']}, KiB every 5 ms: " + " ".join(str(bytes // 1024) for bytes in row["queued"]))
    print()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for what, show in (("calls", calls), ("saw", saw), ("stalls", stalls)):
        show([row for row in rows if row["what"] == what])


main()
