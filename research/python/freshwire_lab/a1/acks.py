"""What came and is acknowledged: full packet numbers, ACK and NACK (spec/a1.md, Packets and Acknowledging)."""

from __future__ import annotations

from dataclasses import dataclass

from freshwire_lab.a1.frames import Ack, Nack
from freshwire_lab.a1.wire import MOST_RANGES, Ranges, Span

WINDOW = 2047
_EACH = 16
_REORDERING = 10_000_000
_MOST_PATIENCE = 200_000


def full_number(low: int, expected: int, bits: int) -> int:
    """Give the number with these low bits that is nearest to the expected one."""
    size = 1 << bits
    number = expected - expected % size + low
    if number > expected + size // 2:
        number -= size
    elif number < expected - size // 2:
        number += size
    return number if number >= 0 else number + size


@dataclass
class _Gap:
    noticed: int
    due: int
    reports: int = 2


class Acks:
    """Keeps what came on the packets of one connection."""

    def __init__(self, delay: int) -> None:
        """Begin with nothing; `delay` is the own delay of acknowledgements."""
        self.delay = delay
        self.highest = -1
        self.highest_time = 0
        self.came = Ranges()
        self.seen: set[int] = set()
        self.marked = 0
        self.waiting = 0
        self.due: int | None = None
        self.gaps: dict[int, _Gap] = {}
        self.overtaken_until = 0
        self.patience = 0
        self.overtaken = 0

    def number(self, low: int) -> int:
        """Give the full number of a packet (A1-PKT-2)."""
        return full_number(low, self.highest + 1, 24)

    def is_new(self, number: int) -> bool:
        """Say whether a packet is to be processed (A1-PKT-3)."""
        return number > self.highest or (number >= self.highest - WINDOW and number not in self.seen)

    def add(self, number: int, now: int) -> None:
        """Take a packet that has opened, and notice gaps."""
        if number > self.highest:
            patience = self.patience if now < self.overtaken_until else 0
            for missing in range(max(self.highest + 1, number - WINDOW), number):
                self.gaps[missing] = _Gap(now, now + patience)
            self.highest, self.highest_time = number, now
            if len(self.seen) > 4 * WINDOW:
                self.seen = {each for each in self.seen if each >= number - WINDOW}
        elif (gap := self.gaps.pop(number, None)) is not None:
            self.overtaken += 1
            took = min((now - gap.noticed) * 5 // 4, _MOST_PATIENCE)
            self.patience = max(took, self.patience if now < self.overtaken_until else 0)
            self.overtaken_until = now + _REORDERING
        self.seen.add(number)
        self.came.add(number, number + 1)
        self.came.spans = self.came.spans[-MOST_RANGES:]

    def wants_answer(self, now: int, *, at_once: bool) -> None:
        """Take note that a packet is acknowledged (A1-ACK-1)."""
        self.waiting += 1
        if at_once or self.waiting >= _EACH or self._due_gaps(now):
            self.due = now
        elif self.due is None:
            self.due = now + self.delay

    def _due_gaps(self, now: int) -> list[int]:
        old = [number for number in self.gaps if number < self.highest - WINDOW]
        for number in old:
            del self.gaps[number]
        return [number for number, gap in self.gaps.items() if gap.reports and gap.due <= now]

    def next_time(self) -> int | None:
        """Give when the next ACK is due."""
        times = [gap.due for gap in self.gaps.values() if gap.reports == 2]
        return min([*times, self.due] if self.due is not None else times, default=None)

    def frames(self, now: int, time: int) -> bytes:
        """Give an ACK, and a NACK behind it if something is missing; `time` is the connection's time now."""
        if self.highest < 0:
            return b""
        self.waiting, self.due = 0, None
        held = now - self.highest_time
        ranges = [(low, end - 1) for low, end in reversed(self.came.spans)]
        out = Ack(held, time - held, self.marked, ranges).encode()
        missing = self._due_gaps(now)
        for number in missing:
            self.gaps[number].reports -= 1
        return out + Nack(_spans(missing)).encode() if missing else out


def _spans(numbers: list[int]) -> list[Span]:
    found = Ranges()
    for number in sorted(numbers):
        found.add(number, number + 1)
    return [(low, end - 1) for low, end in reversed(found.spans)][:MOST_RANGES]
