"""Frames: reading all of them, and writing those that this peer sends (spec/a1.md, Frames)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from freshwire_lab.a1.head import Head
from freshwire_lab.a1.quality import Quality
from freshwire_lab.a1.wire import Reader, Span, WireError, encode_ranges, read_ranges, signed, varint

FIRST, LAST, SIZED = 1, 2, 4
APPLICATION = 7
"""The reason that stands for those that are not known."""
_LEAST_IN_RUN = 16


@dataclass(frozen=True)
class Ping:
    """0x01."""


@dataclass(frozen=True)
class Ack:
    """0x02."""

    held: int
    time: int
    marked: int
    ranges: list[Span]

    def encode(self) -> bytes:
        """Give its bytes."""
        time = (self.time & 0xFFFFFFFF).to_bytes(4, "big")
        return b"\x02" + varint(self.held) + time + varint(self.marked) + encode_ranges(self.ranges)


@dataclass(frozen=True)
class Nack:
    """0x03."""

    ranges: list[Span]

    def encode(self) -> bytes:
        """Give its bytes."""
        return b"\x03" + encode_ranges(self.ranges)


@dataclass(frozen=True)
class Sync:
    """0x04."""

    time: int

    def encode(self) -> bytes:
        """Give its bytes."""
        return b"\x04" + varint(self.time)


@dataclass(frozen=True)
class SyncEcho:
    """0x05."""

    time: int
    arrived: int
    held: int

    def encode(self) -> bytes:
        """Give its bytes."""
        return b"\x05" + varint(self.time) + varint(self.arrived) + varint(self.held)


@dataclass(frozen=True)
class Block:
    """0x08 to 0x0e; a NEXT is read as the block that it stands for."""

    message: int
    head: Head | None
    offset: int
    last: bool
    data: bytes

    def encode(self, *, sized: bool) -> bytes:
        """Give its bytes, with a length if something may follow it."""
        whole = self.head is not None and self.last
        kind = 0x08 | FIRST * (self.head is not None) | LAST * self.last | SIZED * (sized and not whole)
        place = varint(self.offset) if self.head is None else self.head.encode()
        size = varint(len(self.data)) if kind & SIZED else b""
        return bytes([kind]) + varint(self.message) + place + size + self.data


def encode_next(head: Head, previous: Head, data: bytes) -> bytes | None:
    """Give a NEXT for the message behind the one with the head `previous`, or nothing where it cannot say all."""
    if replace(head, length=0, time=0, key=0) != replace(previous, length=0, time=0, key=0):
        return None
    fields = (
        (1, head.length != previous.length, varint(head.length)),
        (2, head.time != previous.time, signed((head.time or 0) - (previous.time or 0))),
        (4, head.key != previous.key, varint(head.key)),
    )
    kind = 0x20 | sum(flag for flag, there, _ in fields if there)
    return bytes([kind]) + b"".join(field for _, there, field in fields if there) + data


@dataclass(frozen=True)
class Run:
    """0x28 to 0x2b."""

    low_message: int
    head: Head
    offset: int
    low_time: int
    data: bytes

    def encode(self) -> bytes:
        """Give its bytes, with a length and without a head."""
        offset = self.offset.to_bytes(_offset_size(self.head.length), "big")
        number, time = self.low_message.to_bytes(3, "big"), self.low_time.to_bytes(3, "big")
        return b"\x29" + number + varint(self.head.length) + offset + time + varint(len(self.data)) + self.data


def _offset_size(length: int) -> int:
    return 1 if length <= 0x100 else 2 if length <= 0x10000 else 4


@dataclass(frozen=True)
class Gone:
    """0x10."""

    message: int
    length: int
    reason: int

    def encode(self) -> bytes:
        """Give its bytes."""
        return b"\x10" + varint(self.message) + varint(self.length) + bytes([self.reason])


@dataclass(frozen=True)
class Dropped:
    """0x11."""

    first: int
    count: int
    reason: int

    def encode(self) -> bytes:
        """Give its bytes."""
        return b"\x11" + varint(self.first) + varint(self.count) + bytes([self.reason])


@dataclass(frozen=True)
class Credit:
    """0x12."""

    messages: int
    size: int

    def encode(self) -> bytes:
        """Give its bytes."""
        return b"\x12" + varint(self.messages) + varint(self.size)


@dataclass(frozen=True)
class Qos:
    """0x13, and 0x14 if it is an answer."""

    serial: int
    quality: Quality
    answer: bool

    def encode(self) -> bytes:
        """Give its bytes."""
        return bytes([0x14 if self.answer else 0x13]) + varint(self.serial) + self.quality.encode()


@dataclass(frozen=True)
class Close:
    """0x15."""

    code: int
    text: str

    def encode(self) -> bytes:
        """Give its bytes."""
        text = self.text.encode()[:256].decode(errors="ignore").encode()
        return b"\x15" + varint(self.code) + varint(len(text)) + text


@dataclass(frozen=True)
class Path:
    """0x16, and 0x17 if it is a response."""

    data: bytes
    response: bool

    def encode(self) -> bytes:
        """Give its bytes."""
        return bytes([0x17 if self.response else 0x16]) + self.data


@dataclass(frozen=True)
class Repair:
    """0x18: parity, which this peer does without."""

    message: int
    head: Head


@dataclass(frozen=True)
class Whole:
    """0x1d."""

    message: int


@dataclass(frozen=True)
class GroupFrame:
    """0x19, 0x1a, 0x1b, 0x1c and 0x1e: read and not followed."""

    kind: int
    group: int


Frame = (
    Ping | Ack | Nack | Sync | SyncEcho | Block | Run | Gone | Dropped | Credit | Qos | Close | Path | Repair
    | Whole | GroupFrame
)  # fmt: skip


def parse(data: bytes) -> Iterator[Frame]:
    """Give a packet's frames but PADDING one after the other; raise `WireError` at the first that cannot be read."""
    reader = Reader(data)
    before: Block | None = None
    while reader.left:
        kind = reader.number(1)
        if kind == 0:
            before = None
            reader.at = len(data) - len(data[reader.at :].lstrip(b"\0"))
            continue
        frame = _read_next(reader, kind, before) if 0x20 <= kind <= 0x27 else _read(reader, kind)
        before = frame if isinstance(frame, Block) and frame.head is not None else None
        yield frame


def _read(reader: Reader, kind: int) -> Frame:
    if 0x08 <= kind <= 0x0E:
        return _read_block(reader, kind)
    if 0x28 <= kind <= 0x2B:
        return _read_run(reader, kind)
    read = _READERS.get(kind)
    if read is None:
        message = f"there is no frame of type {kind:#04x}"
        raise WireError(message)
    return read(reader)


def _read_block(reader: Reader, kind: int) -> Block:
    message = reader.varint()
    head = Head.read(reader) if kind & FIRST else None
    offset = 0 if head else reader.varint()
    if head and kind & LAST:
        data = reader.take(head.length)
    else:
        data = reader.take(reader.varint()) if kind & SIZED else reader.rest()
    return Block(message, head, offset, bool(kind & LAST), data)


def _read_next(reader: Reader, kind: int, before: Block | None) -> Block:
    if before is None or before.head is None:
        message = "A1-FRM-4: a NEXT without the first block of a message before it"
        raise WireError(message)
    head = before.head
    length = reader.varint() if kind & 1 else head.length
    later = reader.signed() if kind & 2 else 0
    key = reader.varint() if kind & 4 else head.key
    head = replace(head, length=length, time=(head.time or 0) + later, key=key)
    return Block(before.message + 1, head, 0, last=True, data=reader.take(length))


def _read_run(reader: Reader, kind: int) -> Run:
    low = reader.number(3)
    head = Head.read(reader) if kind & 2 else Head(reader.varint())
    if head.time or head.length < _LEAST_IN_RUN:
        message = "A1-FRM-5: a RUN of messages shorter than 16 bytes, or with a time in its head"
        raise WireError(message)
    offset, time = reader.number(_offset_size(head.length)), reader.number(3)
    data = reader.take(reader.varint()) if kind & 1 else reader.rest()
    if offset >= head.length or not data:
        message = "A1-FRM-5: a RUN without bytes, or from behind its first message"
        raise WireError(message)
    return Run(low, head, offset, time, data)


def _reason(reader: Reader) -> int:
    reason = reader.number(1)
    if not reason:
        message = "there is no reason 0"
        raise WireError(message)
    return reason


def _read_close(reader: Reader) -> Close:
    code, size = reader.varint(), reader.varint()
    text = reader.take(size)
    if size > 256:
        message = "a text of CLOSE that is longer than 256 bytes"
        raise WireError(message)
    try:
        return Close(code, text.decode())
    except UnicodeDecodeError as error:
        message = "a text of CLOSE that is not UTF-8"
        raise WireError(message) from error


def _read_repair(reader: Reader) -> Repair:
    message, head = reader.varint(), Head.read(reader)
    reader.take(4)
    reader.rest()
    return Repair(message, head)


def _read_group(reader: Reader) -> GroupFrame:
    group, family = reader.number(4), reader.number(1)
    if family not in (4, 6):
        message = f"there is no address family {family}"
        raise WireError(message)
    reader.take((4 if family == 4 else 16) + 2 + 32)
    reader.varint()
    reader.take(8)
    return GroupFrame(0x19, group)


def _read_group_nack(reader: Reader) -> GroupFrame:
    group = reader.number(4)
    read_ranges(reader)
    return GroupFrame(0x1A, group)


def _read_group_block(reader: Reader) -> GroupFrame:
    group, kind = reader.number(4), reader.number(1)
    if not 0x08 <= kind <= 0x0B:
        message = f"a GROUP_BLOCK with {kind:#04x} in it"
        raise WireError(message)
    _read_block(reader, kind)
    return GroupFrame(0x1B, group)


def _read_group_gone(reader: Reader) -> GroupFrame:
    group = reader.number(4)
    reader.varint()
    reader.take(1)
    return GroupFrame(0x1C, group)


def _read_group_at(reader: Reader) -> GroupFrame:
    group = reader.number(4)
    reader.varint()
    return GroupFrame(0x1E, group)


_READERS: dict[int, Callable[[Reader], Frame]] = {
    0x01: lambda _: Ping(),
    0x02: lambda r: Ack(r.varint(), r.number(4), r.varint(), read_ranges(r)),
    0x03: lambda r: Nack(read_ranges(r)),
    0x04: lambda r: Sync(r.varint()),
    0x05: lambda r: SyncEcho(r.varint(), r.varint(), r.varint()),
    0x10: lambda r: Gone(r.varint(), r.varint(), _reason(r)),
    0x11: lambda r: Dropped(r.varint(), r.varint(), _reason(r)),
    0x12: lambda r: Credit(r.varint(), r.varint()),
    0x13: lambda r: Qos(r.varint(), Quality.read(r), answer=False),
    0x14: lambda r: Qos(r.varint(), Quality.read(r), answer=True),
    0x15: _read_close,
    0x16: lambda r: Path(r.take(8), response=False),
    0x17: lambda r: Path(r.take(8), response=True),
    0x18: _read_repair,
    0x19: _read_group,
    0x1A: _read_group_nack,
    0x1B: _read_group_block,
    0x1C: _read_group_gone,
    0x1D: lambda r: Whole(r.varint()),
    0x1E: _read_group_at,
}
