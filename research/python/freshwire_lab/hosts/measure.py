"""What follows from the times of two machines: their clocks' difference, ages, rates. Pure functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NS = 1_000_000_000
# How often an age is looked at.
STEP = NS // 100
# The first part of a run, in which connections start; it does not count.
WARM_UP = 0.2


class Offset(NamedTuple):
    """What the peer's clock shows more than ours, at one of our times, and the largest error that it can have."""

    at: int
    ns: int
    error_ns: int


class Ages(NamedTuple):
    """Ages of the newest value of each key in seconds; infinite where none has come."""

    median: float
    high: float
    worst: float


def offset(times: Iterable[Sequence[int]]) -> Offset:
    """Return the difference of two clocks from questions and answers, as NTP does (RFC 5905, section 8).

    The answer that came soonest counts. It was given between question and arrival, wherever the path is slower.
    """
    asked, answered, came = min(times, key=lambda time: time[2] - time[0])
    middle = (asked + came) // 2
    return Offset(middle, answered - middle, -(-(came - asked) // 2))


def between(before: Offset, after: Offset, at: int) -> int:
    """Return the difference at a time between two measurements: clocks drift apart steadily."""
    span = after.at - before.at
    return before.ns if span <= 0 else before.ns + (after.ns - before.ns) * (at - before.at) // span


def ages(arrivals: Iterable[Sequence[int]], keys: int, begin: int, end: int) -> Ages:
    """Return how old the newest value of each key was at the reader, looked at in equal steps from the warm-up on.

    An arrival is key, time made and time arrived, all of one clock.
    """
    newest: dict[int, int] = {}
    found: list[int] = []
    missing = 0
    coming = iter(sorted(arrivals, key=lambda one: one[2]))
    one = next(coming, None)
    for at in range(begin + int((end - begin) * WARM_UP), end, STEP):
        while one is not None and one[2] <= at:
            newest[one[0]] = max(newest.get(one[0], one[1]), one[1])
            one = next(coming, None)
        found.extend(at - made for made in newest.values())
        missing += keys - len(newest)
    found.sort()
    count = len(found) + missing

    def rank(share: float) -> float:
        place = max(math.ceil(share * count) - 1, 0)
        return found[place] / NS if place < len(found) else math.inf

    return Ages(rank(0.5), rank(0.95), rank(1.0))


def throughput(pieces: Sequence[Sequence[int]], begin: int, end: int) -> float:
    """Return bits a second that arrived after the warm-up. A piece is a time and the bytes up to then."""
    first = begin + int((end - begin) * WARM_UP)
    total = [0, 0]
    for at, count in pieces:
        for place, limit in enumerate((first, end)):
            if at <= limit:
                total[place] = max(total[place], count)
    return 8 * (total[1] - total[0]) / ((end - first) / NS)


class Source(NamedTuple):
    """Values in turns, one after each interval."""

    keys: int
    size: int
    interval_ns: int

    @property
    def rate_bps(self) -> float:
        """Return its rate in bits a second."""
        return 8 * self.size * NS / self.interval_ns


# Sizes of values: what fits a packet, and what leaves a source in Python time enough at high rates.
SMALL, LARGE = 1200, 16384
# Above this rate values are large.
LARGE_FROM = 20e6


def source(rate_bps: float) -> Source:
    """Return a source of about this rate, whose keys have ten values a second where that is possible."""
    size = LARGE if rate_bps > LARGE_FROM else SMALL
    hz = rate_bps / (8 * size)
    return Source(keys=max(1, min(50, int(hz / 10))), size=size, interval_ns=max(1, round(NS / hz)))
