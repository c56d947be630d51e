"""Messages that are sent: begun, cut into blocks, sent again, given up (spec/a1.md, Messages)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from freshwire_lab.a1.frames import Block, Dropped, Gone, Run, encode_next
from freshwire_lab.a1.head import Head
from freshwire_lab.a1.recovery import Item
from freshwire_lab.a1.wire import Ranges, WireError

EXPIRED = 1
_BLOCK_COST = 24
_LEAST_PIECE = 64


@dataclass
class Message:
    """A message of the application."""

    application: int
    data: bytes
    made: int
    """When its content came into being, by the connection's time."""
    layer: int = 0
    keeps: int | None = None
    number: int = -1
    acked: Ranges = field(default_factory=Ranges)
    to_send: Ranges = field(default_factory=Ranges)
    again: bool = False
    sent_to: int = 0
    settled: bool = False
    gone: bool = False

    @property
    def head(self) -> Head:
        """Its head."""
        larger = self.application - self.number
        return Head(len(self.data), self.layer, larger, time=self.made, keeps=self.keeps)

    def expired(self, time: int) -> bool:
        """Say whether it has lost its value."""
        return self.keeps is not None and time > self.made + self.keeps


@dataclass
class _BlockItem:
    outgoing: Outgoing
    message: Message
    low: int
    end: int

    def acked(self) -> None:
        self.outgoing.block_acked(self.message, self.low, self.end)

    def lost(self) -> None:
        self.outgoing.block_lost(self.message, self.low, self.end)


@dataclass
class _GoneItem:
    outgoing: Outgoing
    message: Message

    def acked(self) -> None:
        self.outgoing.settle(self.message)

    def lost(self) -> None:
        if not self.message.settled:
            self.outgoing.gone.append(self.message)


@dataclass
class _DroppedItem:
    outgoing: Outgoing
    frame: Dropped

    def acked(self) -> None:
        pass

    def lost(self) -> None:
        self.outgoing.dropped.append(self.frame)


@dataclass
class Outgoing:
    """The messages of one direction."""

    credit_messages: int
    credit_bytes: int
    largest: int
    retransmission: bool
    runs: bool = False
    queue: deque[Message] = field(default_factory=deque[Message])
    begun: dict[int, Message] = field(default_factory=dict[int, Message])
    """What is begun and not settled."""
    again: deque[Message] = field(default_factory=deque[Message])
    current: Message | None = None
    gone: deque[Message] = field(default_factory=deque[Message])
    dropped: deque[Dropped] = field(default_factory=deque[Dropped])
    next_number: int = 0
    begun_bytes: int = 0
    delivered: int = 0
    given_up: int = 0
    never_begun: int = 0
    blocks_again: int = 0

    @property
    def idle(self) -> bool:
        """Say whether all is settled."""
        return not (self.queue or self.begun)

    def block_acked(self, message: Message, low: int, end: int) -> None:
        """Take note that a block has come."""
        message.acked.add(low, end)
        message.to_send.remove(low, end)
        if message.acked.covers(0, len(message.data)) and not message.settled and message.sent_to >= len(message.data):
            self.settle(message)

    def block_lost(self, message: Message, low: int, end: int) -> None:
        """Take note that a block has to be sent again."""
        if message.settled or message.gone:
            return
        if not self.retransmission:
            self.give_up(message)
            return
        missing = message.acked.missing(low, end) if end > low else [(low, end)]
        for part in missing:
            message.to_send.add(*part)
        if missing and message not in self.again:
            message.again = True
            self.again.append(message)

    def settle(self, message: Message) -> None:
        """Take note that nothing of a message is owed any more."""
        if not message.settled:
            message.settled = True
            self.delivered += not message.gone
            self.begun.pop(message.number, None)

    def give_up(self, message: Message) -> None:
        """Give a begun message up (A1-MSG-3)."""
        if not message.gone and not message.settled:
            message.gone = True
            self.given_up += 1
            self.gone.append(message)
            if self.current is message:
                self.current = None

    def whole(self, number: int) -> None:
        """Take a WHOLE (A1-FEC-3)."""
        if number >= self.next_number:
            text = f"A1-FEC-3: WHOLE of message {number}, which was never begun"
            raise WireError(text)
        if self.current is not None and number == self.current.number:
            text = f"A1-FEC-3: WHOLE of message {number}, of which not all was sent"
            raise WireError(text)
        if number in self.begun:
            self.settle(self.begun[number])

    def announcements(self, room: int) -> tuple[bytes, list[Item]]:
        """Give GONE and DROPPED frames."""
        out, items = b"", list[Item]()
        while self.gone and len(out) < room - 20:
            message = self.gone.popleft()
            out += Gone(message.number, len(message.data), EXPIRED).encode()
            items.append(_GoneItem(self, message))
        while self.dropped and len(out) < room - 20:
            frame = self.dropped.popleft()
            out += frame.encode()
            items.append(_DroppedItem(self, frame))
        return out, items

    def has_blocks(self, time: int) -> bool:
        """Drop what has expired; say whether a block could be sent."""
        while self.queue and self.queue[0].expired(time):
            message = self.queue.popleft()
            self.never_begun += 1
            self.dropped.append(Dropped(message.application, 1, EXPIRED))
        for message in [each for each in self.begun.values() if each.expired(time)]:
            self.give_up(message)
        while self.again and (self.again[0].settled or self.again[0].gone):
            self.again.popleft()
        return bool(self.again or self.current or self._may_begin())

    def _may_begin(self) -> bool:
        if not self.queue or self.next_number >= self.credit_messages:
            return False
        return self.begun_bytes + len(self.queue[0].data) <= self.credit_bytes

    def _begin(self) -> Message:
        message = self.queue.popleft()
        if len(message.data) > self.largest:
            text = f"a message of {len(message.data)} bytes is larger than the {self.largest} agreed on"
            raise ValueError(text)
        message.number = self.next_number
        self.next_number += 1
        self.begun_bytes += len(message.data)
        self.begun[message.number] = message
        self.current = message
        return message

    def blocks(self, room: int, time: int) -> tuple[bytes, list[Item], bool]:
        """Fill `room` bytes with blocks; say whether all of them were sent before."""
        out, items, again = b"", list[Item](), True
        before: Message | None = None
        """The message whose first block is the frame before, so that a NEXT may follow."""
        while room - len(out) >= _BLOCK_COST + _LEAST_PIECE and self.has_blocks(time):
            left = room - len(out)
            if self.again:
                data, item = self._block_again(left)
                before = None
            elif self.current is None and self.runs and (run := self._run(left)):
                data, run_items = run
                out, items, again, before = out + data, items + run_items, False, None
                continue
            else:
                data, item = self._block_first(left, before)
                before = item.message if item.low == 0 else None
                again = False
            out += data
            items.append(item)
        return out, items, again and bool(items)

    def _block_again(self, room: int) -> tuple[bytes, _BlockItem]:
        message = self.again[0]
        self.blocks_again += 1
        low, end = message.to_send.spans[0] if message.to_send else (0, 0)
        if low < message.sent_to or end == 0:
            end = min(end, low + room - _BLOCK_COST - 16)
        message.to_send.remove(low, end)
        if not message.to_send:
            self.again.popleft()
        return self._encode(message, low, end), _BlockItem(self, message, low, end)

    def _block_first(self, room: int, before: Message | None) -> tuple[bytes, _BlockItem]:
        message = self.current or self._begin()
        size = len(message.data)
        if before is not None and message.sent_to == 0 and message.application == before.application + 1:
            following = encode_next(message.head, before.head, message.data)
            if following is not None and len(following) <= room:
                message.sent_to, self.current = size, None
                return following, _BlockItem(self, message, 0, size)
        low = message.sent_to
        end = min(size, low + room - _BLOCK_COST - (16 if low == 0 else 0))
        message.sent_to = end
        if end == size:
            self.current = None
        return self._encode(message, low, end), _BlockItem(self, message, low, end)

    def _run(self, room: int) -> tuple[bytes, list[Item]] | None:
        """Make a RUN of whole messages that are alike, if there are any (A1-FRM-5)."""
        size = len(self.queue[0].data) if self.queue else 0
        plain = self.queue and self._may_begin() and self.queue[0].application == self.next_number
        if size < 16 or not plain or 2 * size > room - _BLOCK_COST:
            return None
        first = self.queue[0]
        data, items = b"", list[Item]()
        while self._may_begin() and len(data) + size <= room - _BLOCK_COST:
            message = self.queue[0]
            alike = len(message.data) == size and message.application == self.next_number
            if not alike or message.layer or message.keeps is not None or not 0 <= message.made - first.made <= 100:
                break
            self._begin()
            self.current, message.sent_to = None, size
            data += message.data
            items.append(_BlockItem(self, message, 0, size))
        if not data:
            return None
        run = Run(first.number & 0xFFFFFF, Head(size), 0, first.made & 0xFFFFFF, data)
        return run.encode(), items

    def _encode(self, message: Message, low: int, end: int) -> bytes:
        head = message.head if low == 0 else None
        last = end == len(message.data)
        return Block(message.number, head, low, last, message.data[low:end]).encode(sized=True)
