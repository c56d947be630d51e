"""Messages that come: put together, checked against the rules, handed out, and the credit for more."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from freshwire_lab.a1.acks import full_number
from freshwire_lab.a1.frames import Block, Credit, Dropped, Gone, Run
from freshwire_lab.a1.head import Head
from freshwire_lab.a1.quality import Quality
from freshwire_lab.a1.wire import Ranges, WireError

_REMEMBERED = 256
_EARLY = 4_000_000
_PIECES = 64


@dataclass(frozen=True)
class Delivered:
    """A message that is whole."""

    message: int
    application: int
    head: Head
    data: bytes
    age: int | None


@dataclass(frozen=True)
class WentAway:
    """A message that will not come."""

    message: int
    reason: int


@dataclass(frozen=True)
class WereDropped:
    """Application numbers that were never begun."""

    first: int
    count: int
    reason: int


Event = Delivered | WentAway | WereDropped


@dataclass
class _Partial:
    data: bytearray = field(default_factory=bytearray)
    came: Ranges = field(default_factory=Ranges)
    length: int | None = None
    head: Head | None = None
    counted: int = 0
    """How many of its bytes are counted against the credit."""


class Incoming:
    """The messages of one direction."""

    def __init__(self, agreed: Quality, maximum: Quality) -> None:
        """Begin with the credit of A1-FLOW-1."""
        self.agreed, self.most = agreed, maximum.largest_in
        self.partial: dict[int, _Partial] = {}
        self.settled = Ranges()
        self.recent: dict[int, bytes] = {}
        self.highest = -1
        self.begun_bytes = 0
        self.consumed_messages = self.consumed_bytes = 0
        self.credit = Credit(*agreed.first_credit())
        self.said = self.credit
        self.events: deque[Event] = deque()
        self.told_dropped = Ranges()
        self.kinds = {"blocks": 0, "runs": 0, "again": 0, "gone": 0, "dropped": 0}

    def block(self, frame: Block, time: int, *, of_run: bool = False) -> None:
        """Take a block; `time` is the sender's time now, as estimated."""
        self.kinds["blocks"] += not of_run
        number, end = frame.message, frame.offset + len(frame.data)
        self._check_number(number)
        self.highest = max(self.highest, number)
        if number in self.settled:
            self.kinds["again"] += 1
            known = self.recent.get(number)
            if known is not None and known[frame.offset : end] != frame.data:
                raise WireError(f"A1-FRM-3: message {number} comes again with other bytes at {frame.offset}")
            return
        partial = self.partial.setdefault(number, _Partial())
        if frame.head is not None:
            self._take_head(number, partial, frame.head)
        if frame.last:
            self._take_length(number, partial, end)
        self._count(number, partial, end)
        self._store(number, partial, frame)
        if partial.head is not None and partial.came.covers(0, partial.head.length):
            self._hand_out(number, partial, partial.head, time)

    def _check_number(self, number: int) -> None:
        if number >= self.credit.messages:
            raise WireError(f"A1-FLOW-3: message {number} is beyond the credit of {self.credit.messages}")

    def _take_head(self, number: int, partial: _Partial, head: Head) -> None:
        self._take_length(number, partial, head.length)
        if (
            partial.head is not None
            and partial.head.time is not None
            and replace(partial.head, time=0) != replace(head, time=0)
        ):
            raise WireError(f"message {number} has another head than before: {head} and not {partial.head}")
        if partial.head is None or partial.head.time is None:
            partial.head = head

    def _take_length(self, number: int, partial: _Partial, length: int) -> None:
        if partial.length is not None and partial.length != length:
            raise WireError(f"A1-FRM-2: message {number} has {length} bytes and not {partial.length}")
        partial.length = length

    def _count(self, number: int, partial: _Partial, end: int) -> None:
        length = max(end, len(partial.data)) if partial.length is None else partial.length
        if end > length or len(partial.data) > length:
            raise WireError(f"A1-FRM-2: a block to byte {end} of message {number}, which has {length}")
        if length > self.most:
            raise WireError(f"A1-FLOW-3: message {number} of {length} bytes is larger than {self.most}")
        self.begun_bytes += length - partial.counted
        partial.counted = length
        if self.begun_bytes > self.credit.size:
            raise WireError(f"A1-FLOW-3: message {number} is beyond the credit of {self.credit.size} bytes")

    def _store(self, number: int, partial: _Partial, frame: Block) -> None:
        low, end = frame.offset, frame.offset + len(frame.data)
        if len(partial.data) < end:
            partial.data += bytes(end - len(partial.data))
        for first, behind in partial.came.spans:
            a, b = max(first, low), min(behind, end)
            if a < b:
                self.kinds["again"] += 1
                if bytes(partial.data[a:b]) != frame.data[a - low : b - low]:
                    raise WireError(f"A1-FRM-3: message {number} comes again with other bytes at {a}")
        partial.data[low:end] = frame.data
        partial.came.add(low, end)
        if len(partial.came.spans) > _PIECES + len(partial.data) // _PIECES:
            raise WireError(f"A1-FRM-6: message {number} comes in {len(partial.came.spans)} pieces")

    def _hand_out(self, number: int, partial: _Partial, head: Head, time: int) -> None:
        data = bytes(partial.data)
        age = None if head.time is None else time - head.time
        self._settle(number)
        self.recent[number] = data
        if len(self.recent) > _REMEMBERED:
            del self.recent[next(iter(self.recent))]
        self.events.append(Delivered(number, head.application(number), head, data, age))

    def _settle(self, number: int) -> None:
        self.partial.pop(number, None)
        self.settled.add(number, number + 1)

    def run(self, frame: Run, time: int) -> None:
        """Take a RUN apart (A1-FRM-5)."""
        self.kinds["runs"] += 1
        number = full_number(frame.low_message, self.highest + 1, 24)
        made = full_number(frame.low_time, max(time, 0), 24)
        if abs(made - time) > _EARLY:
            made = time + (frame.low_time - time + (1 << 23)) % (1 << 24) - (1 << 23)
        offset, at, length = frame.offset, 0, frame.head.length
        while at < len(frame.data):
            data = frame.data[at : at + length - offset]
            last = offset + len(data) == length
            head = replace(frame.head, time=made) if offset == 0 else None
            if head is None:
                self._take_tail(number, frame.head, offset, data, time)
            else:
                self.block(Block(number, head, 0, last, data), time, of_run=True)
            number, at, offset = number + 1, at + len(data), 0

    def _take_tail(self, number: int, head: Head, offset: int, data: bytes, time: int) -> None:
        """Take the end of a message whose beginning is elsewhere: its head is known, its time is not."""
        self._check_number(number)
        if number not in self.settled:
            partial = self.partial.setdefault(number, _Partial())
            self._take_length(number, partial, head.length)
        self.block(Block(number, None, offset, offset + len(data) == head.length, data), time, of_run=True)

    def gone(self, frame: Gone) -> None:
        """Take a GONE: the message counts as begun and as consumed."""
        self.kinds["gone"] += 1
        self._check_number(frame.message)
        if frame.message in self.settled:
            return
        partial = self.partial.setdefault(frame.message, _Partial())
        self._take_length(frame.message, partial, frame.length)
        self._count(frame.message, partial, 0)
        self._settle(frame.message)
        self._consume(frame.length)
        self.events.append(WentAway(frame.message, frame.reason))

    def dropped(self, frame: Dropped) -> None:
        """Take a DROPPED; the application is told once (A1-MSG-4)."""
        self.kinds["dropped"] += 1
        for low, end in self.told_dropped.missing(frame.first, frame.first + frame.count):
            self.events.append(WereDropped(low, end - low, frame.reason))
        self.told_dropped.add(frame.first, frame.first + frame.count)
        self.told_dropped.spans = self.told_dropped.spans[-1024:]

    def consume(self, message: Delivered) -> None:
        """Take note that the application is done with a message."""
        self._consume(len(message.data))

    def _consume(self, size: int) -> None:
        # The pace of A1-FLOW-5 is left out: the application here takes everything at once.
        self.consumed_messages += 1
        self.consumed_bytes += size
        self.credit = Credit(
            max(self.credit.messages, self.consumed_messages + self.agreed.outstanding),
            max(self.credit.size, self.consumed_bytes + self.agreed.window()),
        )

    def credit_due(self) -> bool:
        """Say whether enough has been granted to say it (A1-FLOW-4)."""
        messages = self.credit.messages - self.said.messages
        size = self.credit.size - self.said.size
        return 8 * messages >= max(self.agreed.outstanding, 8) or 8 * size >= self.agreed.window()
