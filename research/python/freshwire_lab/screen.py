"""What was on the screen, from the pictures of a run of `freshwire-lab screen`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .measure import capacity_bps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .measure import Value
    from .schema import ScreenRun

FREEZE_S = 0.5
FREEZE_WEIGHT = 1.0
MOTION_WEIGHT = 4.0
LEAST_OF_ORACLE = 0.9
"""The link's queue and bursts give a sender a little that the oracle does not count with."""
NS = 1e9


def contradictions(run: ScreenRun) -> Iterator[str]:
    """Yield what cannot be true whatever was measured."""
    for place, picture in enumerate(run.pictures):
        if any(reference is not None and reference >= place for reference in picture.refs):
            yield f"picture {place} refers to one that is not before it"
        if picture.captured_ns > picture.offered_ns:
            yield f"picture {place} was offered before it was captured"
        if picture.arrived_ns is not None and picture.arrived_ns < picture.offered_ns:
            yield f"picture {place} arrived before it was offered"
    cost, oracle = run.metrics.get("screen", {}).get("cost"), run.metrics.get("oracle", {}).get("cost")
    if isinstance(cost, float) and isinstance(oracle, float) and cost < LEAST_OF_ORACLE * oracle:
        yield f"screen.cost: {cost} is less than the oracle's {oracle}"
    arrived = sum(
        p.size
        for p in run.pictures
        if p.arrived_ns is not None and run.from_ns <= p.offered_ns and p.arrived_ns <= run.until_ns
    )
    if run.received_bytes < arrived:
        yield f"received_bytes: {run.received_bytes}, but its pictures have {arrived}"


def measure_screen(run: ScreenRun) -> dict[str, Value]:
    """Compute every number of the viewer's screen, by its path in the metrics."""
    seconds = (run.until_ns - run.from_ns) / NS
    shown = _shown(run)
    newest, since = max(capture for arrival, capture in shown if arrival <= run.from_ns), run.from_ns
    captured = [newest]
    # Each stretch without another picture: how old the screen is at its begin, and how long it is.
    stretches: list[tuple[float, float]] = []
    for arrival, capture in [s for s in shown if run.from_ns < s[0] <= run.until_ns]:
        stretches.append(((since - newest) / NS, (arrival - since) / NS))
        newest, since = max(newest, capture), arrival
        captured.append(capture)
    counted = len(stretches)
    stretches.append(((since - newest) / NS, (run.until_ns - since) / NS))
    gaps = [length for _, length in stretches]
    age = sum((begin + length / 2) * length for begin, length in stretches) / seconds
    frozen = sum(max(0.0, gap - FREEZE_S) for gap in gaps)
    motion = _motion(run, captured) / seconds
    return {
        "screen.age_mean_s": age,
        "screen.age_p95_s": _quantile(stretches, 0.95 * seconds),
        "screen.pictures_per_s": counted / seconds,
        "screen.frozen_s": frozen,
        "screen.freezes": sum(gap > FREEZE_S for gap in gaps),
        "screen.longest_gap_s": max(gaps),
        "screen.motion_s": motion,
        "screen.cost": age + FREEZE_WEIGHT * frozen / seconds + MOTION_WEIGHT * motion,
        "link_used": run.received_bytes * 8 / seconds / capacity_bps(run.link.rate_bps, run.link.loss),
    }


def _shown(run: ScreenRun) -> list[tuple[int, int]]:
    """List when each picture could be decoded, and its capture; the empty screen is the first."""
    decodable: list[int | None] = []
    shown = [(run.begin_ns, run.begin_ns)]
    for picture in run.pictures:
        times = [picture.arrived_ns, *(None if ref is None else decodable[ref] for ref in picture.refs)]
        there = [time for time in times if time is not None]
        complete = max(there) if len(there) == len(times) else None
        decodable.append(complete)
        if complete is not None:
            shown.append((complete, picture.captured_ns))
    return sorted(shown)


def _motion(run: ScreenRun, captured: list[int]) -> float:
    """Integrate the distance back to the last picture shown, of which half a second counts at most.

    It begins with what is on the screen at the begin of the time that counts.
    """
    total, times = 0.0, [*sorted(captured), run.until_ns]
    for before, after in zip(times, times[1:], strict=False):
        gap = (after - before) / NS
        moving = min(max(gap, 0.0), FREEZE_S)
        total += moving * moving / 2 + max(0.0, gap - moving) * FREEZE_S
    return total


def _quantile(stretches: list[tuple[float, float]], time: float) -> float:
    """Find the age that the screen does not exceed for a time; it grows by a second a second in each stretch."""
    corners = sorted({corner for begin, length in stretches for corner in (begin, begin + length)})

    def below(age: float) -> float:
        return sum(min(max(age - begin, 0.0), length) for begin, length in stretches)

    low = corners[0]
    for high in corners[1:]:
        if (there := below(high)) >= time:
            before = below(low)
            return high if there == before else low + (high - low) * (time - before) / (there - before)
        low = high
    return low
