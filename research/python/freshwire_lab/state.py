"""Check a result file of `freshwire-lab state`: compute every number again from what was read, and compare."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEMA = 1
TOLERANCE = 1e-6
AFTER_RETURN_NS = 100_000_000

Value: TypeAlias = float | int | None


class StateError(Exception):
    """A line is no run, or one that contradicts itself."""


@dataclass
class Object:
    """What was read of one object, in order of time."""

    read_at: list[int] = field(default_factory=list[int])
    newer: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """When a newer value was read than any before, and when that was made."""

    def add(self, made: int, at: int) -> None:
        """Note a value."""
        self.read_at.append(at)
        if not self.newer or made > self.newer[-1][1]:
            self.newer.append((at, made))

    def stretches(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield from which age to which it rose, in each stretch between two newer values."""
        corners = [(0, 0), *self.newer, (sys.maxsize, 0)]
        for (since, made), (until, _) in pairwise(corners):
            first, last = max(since, begin), min(until, end)
            if first < last:
                yield max(first - made, 0), max(last - made, 0)

    def age_at(self, instant: int) -> int:
        """Give the age of the newest value then."""
        return instant - max((made for at, made in self.newer if at <= instant), default=0)

    def silence(self, begin: int, end: int) -> int:
        """Give the longest time without a value."""
        reads = [at for at in self.read_at if begin <= at < end]
        return max(after - before for before, after in pairwise([begin, *reads, end]))


def objects_of(data: dict[str, Any]) -> list[Object]:
    """Sort what was read by object."""
    plan, arrivals = data["plan"], data["arrivals"]
    objects = [Object() for _ in range(plan["objects"])]
    columns = [arrivals["keys"], arrivals["ticks"], accumulate(arrivals["gaps_us"])]
    if len(arrivals["keys"]) != len(arrivals["ticks"]) or len(arrivals["keys"]) != len(arrivals["gaps_us"]):
        message = "the columns of what was read differ in length"
        raise StateError(message)
    for key, tick, at_us in zip(*columns, strict=True):
        made = tick_ns(plan, tick)
        if key >= len(objects) or made > at_us * 1000 + 1000:
            message = f"object {key} was read at {at_us} us with the value of tick {tick}, which cannot be"
            raise StateError(message)
        objects[key].add(made, at_us * 1000)
    return objects


def tick_ns(plan: dict[str, Any], tick: int) -> int:
    """Say when a tick is, from the start."""
    return int(tick * 1e9 / plan["updates_per_s"])


def quantile(objects: list[Object], share: float, begin: int, end: int) -> float:
    """Give the age that all objects together stayed below for that share of the time."""
    corners: list[tuple[int, int]] = []
    for one in objects:
        for young, old in one.stretches(begin, end):
            corners += [(young, 1), (old, -1)]
    corners.sort()
    wanted = share * len(objects) * (end - begin)
    passed, active, last = 0.0, 0, 0
    for age, change in corners:
        step = active * (age - last)
        if active > 0 and passed + step >= wanted:
            return last + (wanted - passed) / active
        passed, active, last = passed + step, active + change, age
    return float(last)


def measure(data: dict[str, Any]) -> dict[str, Value]:
    """Compute every number of a run."""
    plan = data["plan"]
    begin, end = (round(plan[name] * 1e9) for name in ("warm_up_s", "duration_s"))
    objects = objects_of(data)
    span = end - begin
    counts = [sum(begin <= at < end for at in one.read_at) for one in objects]
    values = sum(counts)
    means = [
        sum((young + old) / 2 * (old - young) for young, old in one.stretches(begin, end)) / span for one in objects
    ]
    delays = sorted(
        max(at - made, 0)
        for at, made in (
            (at_us * 1000, tick_ns(plan, tick))
            for tick, at_us in zip(data["arrivals"]["ticks"], accumulate(data["arrivals"]["gaps_us"]), strict=True)
        )
        if begin <= at < end
    )
    reader = plan["reader"]
    back = None
    if reader["kind"] == "stalled":
        instant = round((reader["from_s"] + reader["for_s"]) * 1e9) + AFTER_RETURN_NS
        back = sum(one.age_at(instant) for one in objects) / len(objects)
    mean_count = values / len(objects)
    return {
        "values_per_s": values / (span / 1e9),
        "age_mean_ns": sum(means) / len(objects),
        "age_p95_ns": quantile(objects, 0.95, begin, end),
        "worst_key_age_ns": max(means),
        "least_share": min(counts) / mean_count if values else None,
        "most_share": max(counts) / mean_count if values else None,
        "worst_silence_ns": max(one.silence(begin, end) for one in objects),
        "fair_round_ns": span / mean_count if values else None,
        "delay_p50_ns": delays[(len(delays) - 1) // 2] if delays else None,
        "after_return_ns": back,
    }


def problems(data: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a run, one line each."""
    offered, read = data["sender"]["offered"], len(data["arrivals"]["keys"])
    if read > offered:
        yield f"{read} values were read of {offered} that were offered"
    for name, ours in measure(data).items():
        theirs = data["metrics"].get(name)
        if not _same(ours, theirs):
            yield f"{name}: the file says {theirs}, what was read says {ours}"


def check_file(path: Path) -> tuple[int, list[str]]:
    """Check every run of a file; return how many there were and what is wrong with them."""
    runs, found = 0, list[str]()
    for runs, line in enumerate(path.read_text().splitlines(), start=1):
        value = json.loads(line)
        if (value["type"], value["schema"]) != ("state", SCHEMA):
            message = f"{path}, line {runs}: not a run of `freshwire-lab state`, schema {SCHEMA}"
            raise StateError(message)
        data = value["data"]
        found.extend(f"run {runs} ({data['plan']['scheme']}): {problem}" for problem in problems(data))
    return runs, found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0 all agree, 1 something differs, 2 a file cannot be read."""
    parser = argparse.ArgumentParser(prog="freshwire-lab-state", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="state.jsonl of `freshwire-lab state`")
    options = parser.parse_args(arguments)
    differs = False
    files: list[Path] = options.files
    for path in files:
        try:
            runs, found = check_file(path)
        except (StateError, OSError, ValueError, KeyError) as error:
            print(f"freshwire-lab-state: {path}: {error!r}", file=sys.stderr)
            return 2
        for problem in found:
            print(f"{path}: {problem}", file=sys.stderr)
        differs |= bool(found)
        print(f"{path}: {runs} runs, {len(found)} differences")
    return int(differs)


def _same(ours: Value, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=1e-9)
    return ours == theirs


if __name__ == "__main__":
    sys.exit(main())
