"""The measures of timeliness, computed from the records alone.

The definitions are those of the lab's `README.md`; the code is written from them and not from the program that it
checks. Pure functions: a run in, numbers out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .schema import Frames, Layers, Link, Record, Run

Value: TypeAlias = "float | int | list[int] | str | None"

NS = 1_000_000_000
MS = 1_000_000


def measure_layers(run: Run, source: Layers) -> dict[str, Value]:
    """Measure a layered run; keys are paths into the file's metrics."""
    deadline = round(run.deadline_ms * MS)
    window_ns = source.window_ms * MS
    windows: defaultdict[int, list[Record]] = defaultdict(list)
    for record in run.records:
        windows[record.group].append(record)

    on_time: list[Record] = []
    on_age: list[Record] = []
    base_windows = 0
    for window, records in windows.items():
        start = window * window_ns
        base = [record for record in records if record.layer == 0]
        base_windows += bool(base) and all(_by(record, start + deadline) for record in base)
        for record in records:
            needed = [record, *(other for other in records if other.layer < record.layer)]
            if all(_by(other, start + deadline) for other in needed):
                on_time.append(record)
            if all(_by(other, record.generated_ns + deadline) for other in needed):
                on_age.append(record)

    ideal = _ideal(run, source, windows)
    on_time_bytes = sum(record.size for record in on_time)
    layer_bytes = [0] * source.layers
    for record in run.records:
        if _by(record, round(run.duration_s * NS)):
            layer_bytes[record.layer] += record.size
    in_time_bytes = [0] * source.layers
    for record in run.records:
        if _by(record, min(record.group * window_ns + deadline, round(run.duration_s * NS))):
            in_time_bytes[record.layer] += record.size
    arrived = sum(record.arrived_ns is not None for record in run.records)
    return {
        "offered_records": len(run.records),
        "offered_bytes": sum(record.size for record in run.records),
        "ideal_bytes": ideal,
        "on_time_records": len(on_time),
        "on_time_bytes": on_time_bytes,
        "on_age_bytes": sum(record.size for record in on_age),
        "share_of_ideal": on_time_bytes / ideal if ideal else None,
        "windows": len(windows),
        "base_windows": base_windows,
        "received_layer_bytes": layer_bytes,
        "in_time_layer_bytes": in_time_bytes,
        **_start_up(run, window_ns),
        **_transit(run),
        "late_records": arrived - len(on_time),
        **_common(run, on_time_bytes),
    }


def measure_frames(run: Run, source: Frames, oracle: int) -> dict[str, Value]:
    """Measure a run of frames against what `frames_of_oracle` found; keys are paths into the file's metrics."""
    deadline = round(run.deadline_ms * MS)
    decodable = _decodable(run.records)
    on_time = [
        record
        for record, at in zip(run.records, decodable, strict=True)
        if at is not None and at <= record.generated_ns + deadline
    ]
    end = round(run.duration_s * NS)
    stretches = _shown(run.records, decodable, end)
    mean, peak, above = _age(stretches, deadline, end)
    interval = NS / source.fps
    gaps = [to - since for since, to, _ in stretches if to - since > max(3 * interval, interval + 150 * MS)]
    on_time_bytes = sum(record.size for record in on_time)
    arrived = sum(record.arrived_ns is not None for record in run.records)
    return {
        "offered_frames": len(run.records),
        "decodable_frames": sum(at is not None for at in decodable),
        "on_time_frames": len(on_time),
        "on_time_bytes": on_time_bytes,
        "oracle_frames": oracle,
        "share_of_oracle": len(on_time) / oracle if oracle else None,
        "late_frames": arrived - len(on_time),
        "age.mean_ns": mean,
        "age.peak_ns": peak,
        "age.share_above_deadline": above,
        "freezes.count": len(gaps),
        "freezes.total_ns": sum(gaps),
        "freezes.longest_ns": max(gaps, default=0),
        **_recovery(run, stretches, deadline, end),
        **_common(run, on_time_bytes),
    }


def frames_of_oracle(run: Run) -> int:
    """Count the frames that a sender which knows the link and the frames to come could deliver on time.

    Frames go one after the other in decode order. For each set of frames that later ones still refer to, and each
    count of frames on time, only the earliest end of the last transfer matters.
    """
    last_use = {record.seq: record.seq for record in run.records}
    for record in run.records:
        for reference in record.refs:
            last_use[reference] = record.seq
    latest = round(run.deadline_ms * MS) - round(run.link.delay_ms * MS)
    states: dict[tuple[frozenset[int], int], float] = {(frozenset(), 0): 0.0}
    for record in run.records:
        after: dict[tuple[frozenset[int], int], float] = {}
        needed = frozenset(record.refs)
        for (sent, count), free in states.items():
            kept = frozenset(seq for seq in sent if last_use[seq] > record.seq)
            _keep(after, (kept, count), free)
            if needed <= sent:
                end = transfer_end(run.link, max(free, record.generated_ns), record.size)
                if math.isfinite(end):
                    with_it = kept | {record.seq} if last_use[record.seq] > record.seq else kept
                    _keep(after, (with_it, count + (end <= record.generated_ns + latest)), end)
        states = after
    return max(count for _, count in states)


def transfer_end(link: Link, start_ns: float, size: int) -> float:
    """When `size` bytes end on the link, in nanoseconds; infinite where the link stops for good."""
    changes = [(0, link.rate_bps), *link.steps]
    bits = size * 8.0
    now = start_ns
    for place, (_, rate) in enumerate(changes):
        until = changes[place + 1][0] if place + 1 < len(changes) else math.inf
        if until <= now:
            continue
        capacity = capacity_bps(rate, link.loss)
        if math.isinf(capacity):
            return now
        carried = capacity * (until - now) / NS
        if bits <= carried:
            return now + bits / capacity * NS
        bits -= carried
        now = until
    return math.inf


def capacity_bps(rate_bps: int | None, loss: float) -> float:
    return math.inf if rate_bps is None else rate_bps * (1 - loss) * 1448 / 1500


def _ideal(run: Run, source: Layers, windows: Mapping[int, Iterable[Record]]) -> int:
    capacity = capacity_bps(run.link.rate_bps, run.link.loss)
    spacing_ms = source.window_ms / source.layers
    free_at_ms, total = 0.0, 0
    for window, records in sorted(windows.items()):
        start_ms = window * source.window_ms
        end_ms = max(free_at_ms - start_ms, 0.0)
        for record in sorted(records, key=lambda record: record.layer):
            sent_ms = max(end_ms, record.layer * spacing_ms) + record.size * 8 / capacity * 1000
            if sent_ms + run.link.delay_ms > run.deadline_ms:
                break
            end_ms = sent_ms
            total += record.size
        free_at_ms = start_ms + end_ms
    return total


def _start_up(run: Run, window_ns: int) -> dict[str, Value]:
    """Share of the offered bytes that a player can use which starts that much after the end of the first window."""
    offered = sum(record.size for record in run.records)
    shares: dict[str, Value] = {}
    for name, seconds in (("none", 0), ("ten_s", 10), ("twenty_s", 20)):
        used = sum(r.size for r in run.records if _by(r, (r.group + 1) * window_ns + seconds * NS))
        shares[f"start_up.{name}"] = used / offered if offered else 0.0
    return shares


def _transit(run: Run) -> dict[str, Value]:
    """From the sender's socket to the receiver's, of what was handed over."""
    times = [
        None if record.arrived_ns is None else max(0, record.arrived_ns - record.committed_ns)
        for record in run.records
        if record.committed_ns is not None
    ]
    within = {
        f"transit.within_{limit}_ms": sum(time is not None and time <= limit * MS for time in times) / max(1, len(times))
        for limit in (200, 500)
    }
    percentiles = {f"transit.{name}_ns": _percentile(times, share) for name, share in _PERCENTILES.items()}
    return {**within, **percentiles}


def _by(record: Record, at_ns: int) -> bool:
    return record.arrived_ns is not None and record.arrived_ns <= at_ns


def _keep(states: dict[tuple[frozenset[int], int], float], key: tuple[frozenset[int], int], free: float) -> None:
    if free < states.get(key, math.inf):
        states[key] = free


def _decodable(records: Sequence[Record]) -> list[int | None]:
    known: dict[int, int | None] = {}
    for record in records:
        needed = [record.arrived_ns, *(known.get(reference) for reference in record.refs)]
        times = [at for at in needed if at is not None]
        known[record.seq] = max(times) if len(times) == len(needed) else None
    return [known[record.seq] for record in records]


def _shown(records: Sequence[Record], decodable: Sequence[int | None], end: int) -> list[tuple[int, int, int]]:
    """Stretches between updates of the screen: since, to, and when what is on screen was generated."""
    updates = sorted(
        (at, record.generated_ns) for record, at in zip(records, decodable, strict=True) if at is not None and at <= end
    )
    stretches: list[tuple[int, int, int]] = []
    since, newest = 0, -1
    for at, generated in updates:
        if generated > newest:
            stretches.append((since, at, max(newest, 0)))
            since, newest = at, generated
    stretches.append((since, end, max(newest, 0)))
    return [stretch for stretch in stretches if stretch[1] > stretch[0]]


def _age(stretches: Iterable[tuple[int, int, int]], deadline: int, end: int) -> tuple[float, int, float]:
    area, peak, above = 0, 0, 0
    for since, to, generated in stretches:
        area += (to - generated) ** 2 - (since - generated) ** 2
        peak = max(peak, to - generated)
        above += max(0, to - max(since, generated + deadline))
    return area / 2 / end, peak, above / end


def _recovery(run: Run, stretches: Iterable[tuple[int, int, int]], deadline: int, end: int) -> dict[str, Value]:
    """How long after the link's last rise the age was at most the deadline for a second, or to the end."""
    rates = [math.inf if rate is None else rate for rate in (run.link.rate_bps, *(rate for _, rate in run.link.steps))]
    rises = [at for place, (at, _) in enumerate(run.link.steps) if rates[place + 1] > rates[place]]
    if not rises:
        return {"recovery.state": "no_dip"}
    stale = [(max(since, generated + deadline), to) for since, to, generated in stretches]
    stale = [(since, to) for since, to in stale if since < to and to > rises[-1]]
    candidates = [rises[-1], *(to for _, to in stale)]
    for candidate in candidates:
        if candidate < end and not any(to > candidate and since < candidate + NS for since, to in stale):
            return {"recovery.state": "after", "recovery.after_ns": candidate - rises[-1]}
    return {"recovery.state": "never"}


def _common(run: Run, on_time_bytes: int) -> dict[str, Value]:
    delays = [None if r.arrived_ns is None else max(0, r.arrived_ns - r.generated_ns) for r in run.records]
    ages = [max(0, r.committed_ns - r.generated_ns) for r in run.records if r.committed_ns is not None]
    useless = max(0, run.received_all_bytes - on_time_bytes)
    return {
        "receive_rate_kibit": run.received_bytes * 8 / 1024 / run.duration_s,
        "wasted_share": useless / run.sent_bytes if run.sent_bytes else 0.0,
        **{f"delay.{name}_ns": _percentile(delays, share) for name, share in _PERCENTILES.items()},
        **{f"commit_age.{name}_ns": _percentile(ages, share) for name, share in _PERCENTILES.items()},
    }


def _percentile(values: Sequence[int | None], hundredths: int) -> int | None:
    ordered = sorted(values, key=lambda value: math.inf if value is None else value)
    rank = -(-len(ordered) * hundredths // 100)
    return ordered[rank - 1] if ordered else None


_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
