#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints tables from the files that `costs-guest.sh`, `horizon-guest.sh` and `share-guest.sh` left in a folder: costs_table.py FOLDER."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def lines(path: Path) -> list[Json]:
    """Read a file of JSON lines; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def calls(runs: list[Json]) -> None:
    """Print what a call takes."""
    runs = [run for run in runs if "send_ns" in run]
    if not runs:
        return
    print("\n| call with 1400 bytes | ns, median of the runs | against the whole send() | against the queueing send() |\n|---|---|---|---|")
    median = {name: statistics.median(run[name] for run in runs)
              for name in ("send_ns", "send_queued_ns", "ldc_send_ns", "ldc_send_notify_ns")}
    names = {
        "send_ns": "send(), the whole path to the receiver's queue",
        "send_queued_ns": "send() that only queues (window closed)",
        "ldc_send_ns": "ldc_send() into the ring",
        "ldc_send_notify_ns": "ldc_send() that wakes the kernel's sender, the whole path",
    }
    for key, name in names.items():
        print(f"| {name} | {median[key]:.0f} | {median[key] / median['send_ns']:.3f} "
              f"| {median[key] / median['send_queued_ns']:.3f} |")


def bulk(runs: list[Json]) -> None:
    """Print throughput and processor time of a sender that never waits."""
    cells: dict[tuple[int, str], list[Json]] = {}
    for run in runs:
        if "scheme" in run:
            cells.setdefault((run["record"], run["scheme"]), []).append(run)
    if not cells:
        return
    print("\n| record | scheme | Mbit/s | to send() | processor s/GB, whole guest | to send() | system calls a record |")
    print("|---|---|---|---|---|---|---|")
    for (record, scheme), same in sorted(cells.items(), key=lambda cell: cell[0][0]):
        plain = cells[(record, "send")]
        rate, plain_rate = (statistics.median(run["mbit"] for run in some) for some in (same, plain))
        cost, plain_cost = (statistics.median(run["busy_s_per_gb"] for run in some) for some in (same, plain))
        per_record = statistics.median(run["calls"] * record / run["bytes"] for run in same)
        print(f"| {record} | {scheme} | {rate:.0f} | {rate / plain_rate:.2f} | {cost:.2f} | {cost / plain_cost:.2f} "
              f"| {per_record:.4f} |")


def horizon(runs: list[Json]) -> None:
    """Print what gets through a link, as a share of what send() gets through."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in runs:
        run = line["run"]
        cells.setdefault((line["cell"], run["congestion"]), {}).setdefault(run["scheme"], []).append(run["mbit"])
    if not cells:
        return
    print("\n| link: bit/s, ms, % lost | congestion control | send(), Mbit/s | ring, one segment | ring, none |\n|---|---|---|---|---|")
    for (cell, congestion), schemes in cells.items():
        rate, delay, loss = cell.split("/")
        plain = statistics.mean(schemes["send"])
        shares = [f"{statistics.mean(schemes[name]) / plain:.2f}" if name in schemes else ""
                  for name in ("ring-filled", "ring-filled-h0")]
        print(f"| {int(rate):,}, {delay}, {loss} | {congestion} | {plain:.2f} | {shares[0]} | {shares[1]} |")


def share(flows: list[Json]) -> None:
    """Print what flows of the ring have, over what plain TCP has in their place in the same run."""
    scenes: dict[tuple[str, int, str], list[Json]] = {}
    for flow in flows:
        scenes.setdefault((flow["cell"], flow["run"], flow["scene"]), []).append(flow)
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (cell, run, scene), of_scene in scenes.items():
        plain = {flow["place"]: flow["result"]["mbit"] for flow in scenes.get((cell, run, scene.replace("ring-filled", "send")), [])}
        ours = [flow for flow in of_scene if flow["flow"].startswith("ring")]
        others = [flow for flow in of_scene if flow not in ours]
        if ours and len(plain) == len(of_scene):
            there = [sum(flow["result"]["mbit"] for flow in some) / sum(plain[flow["place"]] for flow in some)
                     for some in (ours, others)]
            ratios.setdefault((cell, scene), []).append((there[0], there[1]))
    if not ratios:
        return
    print("\n| link: bit/s, ms, packets of queue | flows | runs | ring : plain TCP in its place | the others |\n|---|---|---|---|---|")
    for (cell, scene), found in ratios.items():
        texts = [f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})" for values in zip(*found)]
        count, control = scene.count("ring"), scene.rsplit(":", 1)[1]
        print(f"| {cell.replace('/', ', ')} | {count} ring beside 1 send(), {control} | {len(found)} | {texts[0]} | {texts[1]} |")


def main() -> int:
    """Run the command line."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    costs = lines(folder / "costs.jsonl")
    calls(costs)
    bulk(costs)
    horizon(lines(folder / "horizon.jsonl"))
    share(lines(folder / "share.jsonl"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
