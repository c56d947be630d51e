#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gathers the runs that `guest.sh` left behind into one file, and prints tables from that file alone.

    table.py gather FOLDER KEY=VALUE... >> results.jsonl
    table.py show results.jsonl
    table.py check results.jsonl    ends with 1 unless the ring kept what Birkedal 2006 promises
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

LAYERS = 8
LAYER_BYTES = 16384
SECOND = 1_000_000_000
WINDOW_DEADLINE = SECOND
SEGMENT, PACKET = 1448, 1500
ORDER = ["tcp", "ring", "user", "sctp"]

Json = dict[str, Any]


def due(seq: int) -> int:
    """Give the instant at which a record is offered, in nanoseconds from the start."""
    return seq // LAYERS * SECOND + seq % LAYERS * SECOND // LAYERS


def gather(folder: Path, environment: Json) -> None:
    """Print one JSON line for each run of the folder."""
    for received in sorted(folder.glob("*.receive.json")):
        name = received.name.removesuffix(".receive.json")
        rate, delay, loss, scheme, congestion, number = name.split(",")
        sent_file = folder / f"{name}.send.json"
        try:
            sent = json.loads(sent_file.read_text())
            data = json.loads(received.read_text())
        except json.JSONDecodeError as error:
            print(f"{name} is set aside: {error}", file=sys.stderr)
            continue
        run: Json = {
            "rate_bps": None if rate == "none" else int(rate),
            "delay_ms": float(delay),
            "loss": float(loss) / 100,
            "scheme": scheme,
            "congestion": "" if scheme.startswith("sctp") else congestion,
            "number": int(number),
            "environment": environment,
            "receive": data,
            # The user-space carrier prints its own account in an envelope.
            "send": sent.get("data", sent),
        }
        print(json.dumps({"type": "kernel-experiment", "schema": 1, "data": run}))


def ideal_bytes(run: Json, windows: int) -> float:
    """Give what an oracle that knows the link delivers on time: layers in order, each not before it is offered."""
    if run["rate_bps"] is None:
        return float(windows * LAYERS * LAYER_BYTES)
    capacity = run["rate_bps"] / 8 * (1 - run["loss"]) * SEGMENT / PACKET
    total = 0
    free = 0.0
    for seq in range(windows * LAYERS):
        begin = max(free, due(seq) / SECOND)
        end = begin + LAYER_BYTES / capacity
        if end + run["delay_ms"] / 1000 <= seq // LAYERS + WINDOW_DEADLINE / SECOND:
            total += LAYER_BYTES
            free = end
    return total


def percentile(values: list[float], share: float) -> float:
    """Give the value below which the share lies; the list is not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(run: Json, windows: int) -> Json:
    """Give everything that the tables show of one run."""
    arrived = {int(seq): at for seq, at in run["receive"]["arrived"].items()}
    delay = {seq: (at - due(seq)) / 1e6 for seq, at in arrived.items()}
    on_time = 0
    for window in range(windows):
        for layer in range(LAYERS):
            at = arrived.get(window * LAYERS + layer)
            if at is None or at > window * SECOND + WINDOW_DEADLINE:
                break
            on_time += LAYER_BYTES
    base = [delay.get(window * LAYERS, float("inf")) for window in range(windows)]
    within = [at for seq, at in arrived.items() if seq % LAYERS == 0 and at <= windows * SECOND]
    unsent = run["send"].get("unsent", {})
    # The user-space carrier counts for itself: what is unsent after each write, and its writes.
    own_count = run["send"]
    return {
        "kibit": run["receive"]["received_bytes"] * 8 / 1024 / windows,
        "base_within": len(within),
        # The last window has as long as the others before it is given up.
        "base_complete": sum(seq % LAYERS == 0 for seq in arrived),
        "base_on_time": sum(at <= window * SECOND + WINDOW_DEADLINE for window in range(windows)
                            if (at := arrived.get(window * LAYERS)) is not None),
        "share_of_ideal": on_time / ideal_bytes(run, windows),
        "layers": [sum(seq % LAYERS == layer for seq, at in arrived.items() if at <= windows * SECOND)
                   * LAYER_BYTES / 1024 for layer in range(LAYERS)],
        "base_delay": [percentile(base, share) for share in (0.5, 0.95, 0.99)] + [max(base)],
        "delay": [percentile(list(delay.values()), share) for share in (0.5, 0.95, 0.99)] + [max(delay.values())]
        if delay else None,
        "unsent_max": unsent.get("max", own_count.get("horizon_max_bytes")),
        "over": unsent.get("over_a_segment"),
        "samples": unsent.get("samples"),
        "syscalls": own_count.get("syscalls", own_count.get("writes")),
        "right": run["receive"]["right"],
    }


def spread(values: list[float | None], form: str = "{:.0f}") -> str:
    """Give the median with the extremes behind it where they differ."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle, low, high = (form.format(value) for value in (statistics.median(known), min(known), max(known)))
    return middle if low == high else f"{middle} ({low}-{high})"


def over_a_segment(runs: list[Json]) -> str:
    """Give in how many of all looks more than a segment was unsent; nothing where nobody looked."""
    looked = [run for run in runs if run["samples"]]
    return f"{sum(run['over'] for run in looked)}/{sum(run['samples'] for run in looked)}" if looked else ""


def cell_name(key: tuple[Any, ...]) -> str:
    """Give the heading of a path."""
    rate, delay, loss, kernel = key
    limit = "no limit" if rate is None else f"{rate // 1024} Kibit/s"
    return f"{limit}, {loss:.0%} loss, {delay:.0f} ms, Linux {kernel}"


def show(path: Path) -> None:
    """Print a table for each path."""
    cells: dict[tuple[Any, ...], dict[tuple[str, str], list[Json]]] = {}
    for line in path.read_text().splitlines():
        run = json.loads(line)["data"]
        key = (run["rate_bps"], run["delay_ms"], run["loss"], run["environment"]["kernel"])
        windows = int(run["environment"]["seconds"])
        scheme = (run["scheme"], run["congestion"])
        cells.setdefault(key, {}).setdefault(scheme, []).append(measure(run, windows))
    for key, unordered in sorted(cells.items(), key=lambda cell: (cell[0][1], -(cell[0][0] or 1 << 40))):
        schemes = dict(sorted(unordered.items(), key=lambda item: ORDER.index(item[0][0].split("-")[0])))
        print(f"\n**{cell_name(key)}**\n")
        print("| scheme | runs | Kibit/s | to plain TCP | base layers complete | of these within the time | on time "
              "| share of the ideal | base delay p50 / p95 / p99 / max, ms | unsent bytes, max "
              "| samples over a segment | calls for data |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|")
        for (scheme, congestion), runs in schemes.items():
            plain = [run["kibit"] for run in schemes.get(("tcp", congestion), [])]
            rate = statistics.median(run["kibit"] for run in runs)
            against = f"{(rate / statistics.median(plain) - 1):+.1%}" if plain and scheme != "tcp" else ""
            delays = " / ".join(
                f"{statistics.median(run['base_delay'][place] for run in runs):.0f}" for place in range(4))
            print(f"| {scheme} {congestion} | {len(runs)} | {spread([run['kibit'] for run in runs])} | {against} "
                  f"| {spread([run['base_complete'] for run in runs])} "
                  f"| {spread([run['base_within'] for run in runs])} "
                  f"| {spread([run['base_on_time'] for run in runs])} "
                  f"| {spread([run['share_of_ideal'] * 100 for run in runs])} % | {delays} "
                  f"| {spread([run['unsent_max'] for run in runs])} | {over_a_segment(runs)} "
                  f"| {spread([run['syscalls'] for run in runs])} |")
        print("\nKiB by layer, base first, mean of the runs:\n")
        for (scheme, congestion), runs in schemes.items():
            layers = [statistics.mean(run["layers"][layer] for run in runs) for layer in range(LAYERS)]
            print(f"- {scheme} {congestion}: " + " ".join(f"{kib:.0f}" for kib in layers))
        if not all(run["right"] for runs in schemes.values() for run in runs):
            print("\nA receiver found wrong bytes or a broken stream.")


def check(path: Path) -> list[str]:
    """Give what the runs of the ring broke: bytes, base layers, the horizon, the number of system calls."""
    broken = []
    rings = 0
    for line in path.read_text().splitlines():
        run = json.loads(line)["data"]
        if not run["scheme"].startswith("ring"):
            continue
        rings += 1
        windows = int(run["environment"]["seconds"])
        seen = measure(run, windows)
        name = f"{run['scheme']} {run['number']}"
        if not seen["right"]:
            broken.append(f"{name}: wrong bytes")
        # The last window's may still be on its way when the time is over.
        if seen["base_within"] < windows - 1:
            broken.append(f"{name}: {seen['base_within']} of {windows} base layers")
        if seen["unsent_max"] > run["send"]["unsent"]["segment"]:
            broken.append(f"{name}: {seen['unsent_max']} unsent bytes")
        if seen["syscalls"] > 9:
            broken.append(f"{name}: {seen['syscalls']} system calls")
    return broken if rings else ["no run of the ring"]


def main() -> int:
    """Run the command line."""
    match sys.argv[1:]:
        case ["gather", folder, *pairs]:
            gather(Path(folder), dict(pair.split("=", 1) for pair in pairs))
        case ["show", path]:
            show(Path(path))
        case ["check", path]:
            broken = check(Path(path))
            print("\n".join(broken) or "the ring kept its promises")
            return 1 if broken else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
