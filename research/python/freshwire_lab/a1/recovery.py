"""What was sent and is not acknowledged yet: round trips, losses, probes and NewReno (A1-LOSS, A1-RTT, A1-CC)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from freshwire_lab.a1.frames import Ack
from freshwire_lab.a1.wire import Span, WireError

LEAST_DATAGRAM = 1200
_MOST_TIMEOUT = 500_000
_REMEMBERED = 3_000_000
_TAIL_SYNCS = 8


class Item(Protocol):
    """Something in a packet that wants to know what became of it."""

    def acked(self) -> None:
        """Take note that it has come."""

    def lost(self) -> None:
        """Take note that it has not."""


@dataclass
class Sent:
    """A packet that was sent."""

    time: int
    size: int
    items: list[Item]
    ack_now: bool
    counted: bool = True
    """Whether it is in flight."""
    lost: bool = False


class Rtt:
    """The round trip (A1-RTT-2), in microseconds."""

    def __init__(self) -> None:
        """Begin with the values before any measurement."""
        self.smoothed, self.variation = 100_000, 50_000
        self.latest = 0
        self.measured = False

    def add(self, whole: int, held: int) -> None:
        """Take a sample."""
        sample = whole - held if whole > held else whole
        self.latest = sample
        if self.measured:
            self.variation += (abs(self.smoothed - sample) - self.variation) // 4
            self.smoothed += (sample - self.smoothed) // 8
        else:
            self.smoothed, self.variation, self.measured = sample, sample // 2, True

    @property
    def loss_delay(self) -> int:
        """How long after it was sent a packet counts as lost, if a later one came."""
        return max(self.smoothed, self.latest, 1000) * 9 // 8

    def timeout(self, delay: int) -> int:
        """Give a probe timeout."""
        return self.smoothed + max(4 * self.variation, 1000) + delay


class NewReno:
    """RFC 9002, section 7, with bytes."""

    def __init__(self) -> None:
        """Begin with the initial window."""
        self.window = 10 * LEAST_DATAGRAM
        self.threshold = 1 << 62
        self.recovery_since = -1

    def acked(self, sent: Sent) -> None:
        """Grow."""
        if sent.time <= self.recovery_since:
            return
        if self.window < self.threshold:
            self.window += sent.size
        else:
            self.window += LEAST_DATAGRAM * sent.size // self.window

    def congested(self, sent_time: int, now: int) -> None:
        """Halve, once in a round trip."""
        if sent_time > self.recovery_since:
            self.recovery_since = now
            self.threshold = self.window = max(self.window // 2, 2 * LEAST_DATAGRAM)

    def collapsed(self) -> None:
        """Begin again, since nothing comes any more."""
        self.window = 2 * LEAST_DATAGRAM


@dataclass
class Recovery:
    """All that was sent."""

    peer_delay: int
    next_number: int = 0
    skipped: set[int] = field(default_factory=set[int])
    sent: dict[int, Sent] = field(default_factory=dict[int, Sent])
    rtt: Rtt = field(default_factory=Rtt)
    control: NewReno = field(default_factory=NewReno)
    in_flight: int = 0
    highest_acked: int = -1
    marks: int = 0
    last_sent: int = 0
    last_acked: int = 0
    last_ack_now: bool = False
    timeouts: int = 0
    tail: int = 0
    losses: int = 0
    spurious: int = 0

    def add(self, now: int, size: int, items: list[Item], *, ack_now: bool, data: bool) -> None:
        """Take the packet with the next number, which is acknowledged."""
        if not self.in_flight:
            self.last_acked = now
        self.sent[self.next_number] = Sent(now, size, items, ack_now)
        self.in_flight += size
        self.last_sent, self.last_ack_now = now, ack_now
        if data:
            self.tail = 0

    def skip(self) -> None:
        """Pass over a number (A1-ACK-4)."""
        self.skipped.add(self.next_number)
        self.next_number += 1

    def on_ack(self, ack: Ack, now: int) -> None:
        """Take an ACK; raise where it names what was never sent."""
        self._check(ack.ranges)
        largest = ack.ranges[0][1]
        newly = [number for number in self.sent if any(low <= number <= high for low, high in ack.ranges)]
        if largest in self.sent and not self.sent[largest].lost:
            self.rtt.add(now - self.sent[largest].time, min(ack.held, self.peer_delay))
        for number in newly:
            self._acked(self.sent.pop(number))
        if newly:
            self.last_acked, self.timeouts = now, 0
        self.highest_acked = max(self.highest_acked, largest)
        if ack.marked > self.marks:
            self.marks = ack.marked
            self.control.congested(now - self.rtt.smoothed, now)
        self.find_lost(now)

    def _check(self, ranges: list[Span]) -> None:
        if ranges[0][1] >= self.next_number:
            message = f"A1-ACK-4: packet {ranges[0][1]} is acknowledged and was never sent"
            raise WireError(message)
        for number in self.skipped:
            if any(low <= number <= high for low, high in ranges):
                message = f"A1-ACK-4: packet {number} is acknowledged and was passed over"
                raise WireError(message)

    def _acked(self, sent: Sent) -> None:
        self._out_of_flight(sent)
        self.spurious += sent.lost
        if not sent.lost:
            self.control.acked(sent)
        for item in sent.items:
            item.acked()

    def on_nack(self, ranges: list[Span], now: int) -> None:
        """Take a NACK: what it names is lost."""
        for number, sent in self.sent.items():
            if any(low <= number <= high for low, high in ranges):
                self._lost(sent, now)

    def find_lost(self, now: int) -> None:
        """Take for lost what is old and was overtaken (A1-LOSS-1), and forget what was lost long ago."""
        before = now - self.rtt.loss_delay
        old = [number for number, sent in self.sent.items() if sent.lost and sent.time < now - _REMEMBERED]
        for number in old:
            del self.sent[number]
        for number, sent in self.sent.items():
            if number > self.highest_acked or sent.time > before:
                break
            self._lost(sent, now)

    def _lost(self, sent: Sent, now: int) -> None:
        if sent.lost:
            return
        sent.lost = True
        self.losses += 1
        self._out_of_flight(sent)
        self.control.congested(sent.time, now)
        for item in sent.items:
            item.lost()

    def _out_of_flight(self, sent: Sent) -> None:
        if sent.counted:
            self.in_flight -= sent.size
            sent.counted = False

    def timeout(self) -> int:
        """Give the present probe timeout."""
        one = self.rtt.timeout(0 if self.last_ack_now else self.peer_delay)
        return max(one, min(one << self.timeouts, _MOST_TIMEOUT))

    def next_sync(self) -> int | None:
        """Give when the next SYNC behind the last data is due (A1-LOSS-2, A1-LOSS-3)."""
        if not self.in_flight and all(sent.lost for sent in self.sent.values()):
            return None
        probe = max(self.last_sent, self.last_acked) + self.timeout()
        if self.tail < _TAIL_SYNCS:
            pause = max(min((self.rtt.smoothed // 8) << self.tail, self.rtt.smoothed // 2), 1000)
            return min(probe, self.last_sent + pause)
        return probe

    def probe(self, now: int) -> bool:
        """Take note that a SYNC leaves; say whether it is one of a probe timeout."""
        if now < max(self.last_sent, self.last_acked) + self.timeout():
            self.tail += 1
            return False
        before = now - self.timeout()
        self.timeouts += 1
        if self.timeouts >= 2:
            for sent in self.sent.values():
                if sent.time <= before:
                    self._lost(sent, now)
            self.control.collapsed()
        return True

    def next_loss(self) -> int | None:
        """Give when the oldest packet that was overtaken counts as lost."""
        for number, sent in self.sent.items():
            if number > self.highest_acked:
                return None
            if not sent.lost:
                return sent.time + self.rtt.loss_delay
        return None
