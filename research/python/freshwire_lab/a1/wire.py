"""Numbers as they stand on the wire: fixed sizes, the varint of RFC 9000, the signed varint and ranges."""

from __future__ import annotations

MOST_VARINT = (1 << 62) - 1
MOST_RANGES = 32


class WireError(Exception):
    """Bytes that cannot be read, or that break a rule: what A1-FRM-1 closes the connection for."""


def varint(value: int) -> bytes:
    """Encode a variable-length integer in its shortest form (RFC 9000, section 16)."""
    for length, bits in ((1, 6), (2, 14), (4, 30), (8, 62)):
        if value < 1 << bits:
            return (value | (length.bit_length() - 1) << (8 * length - 2)).to_bytes(length, "big")
    message = f"{value} does not fit a varint"
    raise ValueError(message)


def signed(value: int) -> bytes:
    """Encode a varint with its sign in the lowest bit: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return varint(2 * value if value >= 0 else -2 * value - 1)


class Reader:
    """Reads fields one after the other; raises `WireError` where the bytes end too soon."""

    def __init__(self, data: bytes) -> None:
        """Begin in front of `data`."""
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        if count > self.left:
            message = f"{count} bytes wanted, {self.left} there"
            raise WireError(message)
        self.at += count
        return self.data[self.at - count : self.at]

    def rest(self) -> bytes:
        """Read what is left."""
        return self.take(self.left)

    def number(self, size: int) -> int:
        """Read an unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        """Read a varint; its length need not be the shortest."""
        first = self.number(1)
        size = 1 << (first >> 6)
        return (first & 0x3F) << 8 * (size - 1) | self.number(size - 1)

    def signed(self) -> int:
        """Read a signed varint."""
        value = self.varint()
        return -(value >> 1) - 1 if value & 1 else value >> 1


Span = tuple[int, int]
"""The first and the last number of a range."""


def encode_ranges(spans: list[Span]) -> bytes:
    """Encode ranges, which come in descending order and do not touch."""
    low, high = spans[0]
    out = varint(high) + bytes([len(spans) - 1]) + varint(high - low)
    for next_low, next_high in spans[1:]:
        out += varint(low - next_high - 2) + varint(next_high - next_low)
        low = next_low
    return out


def read_ranges(reader: Reader) -> list[Span]:
    """Read ranges, in descending order."""
    high = reader.varint()
    further = reader.number(1)
    if further >= MOST_RANGES:
        message = f"{further} further ranges are more than 31"
        raise WireError(message)
    spans = [(high - reader.varint(), high)]
    for _ in range(further):
        high = spans[-1][0] - reader.varint() - 2
        spans.append((high - reader.varint(), high))
    if spans[-1][0] < 0:
        message = "ranges reach below 0"
        raise WireError(message)
    return spans


class Ranges:
    """A set of numbers as ranges in ascending order, each with its first number and the one behind its last."""

    def __init__(self) -> None:
        """Begin empty."""
        self.spans: list[list[int]] = []

    def __bool__(self) -> bool:
        """Say whether there is any number."""
        return bool(self.spans)

    def __contains__(self, number: int) -> bool:
        """Say whether the number is there."""
        return any(low <= number < end for low, end in reversed(self.spans))

    def add(self, low: int, end: int) -> None:
        """Add the numbers from `low` to before `end`."""
        if low >= end:
            return
        spans = self.spans
        if spans and spans[-1][0] <= low:
            if low > spans[-1][1]:
                spans.append([low, end])
            else:
                spans[-1][1] = max(spans[-1][1], end)
            return
        before = [span for span in spans if span[1] < low]
        behind = [span for span in spans if span[0] > end]
        touched = spans[len(before) : len(spans) - len(behind)]
        if touched:
            low, end = min(low, touched[0][0]), max(end, touched[-1][1])
        self.spans = [*before, [low, end], *behind]

    def remove(self, low: int, end: int) -> None:
        """Remove the numbers from `low` to before `end`."""
        kept: list[list[int]] = []
        for span in self.spans:
            kept += [part for part in ([span[0], min(span[1], low)], [max(span[0], end), span[1]]) if part[0] < part[1]]
        self.spans = kept

    def covers(self, low: int, end: int) -> bool:
        """Say whether all numbers from `low` to before `end` are there."""
        return low >= end or any(span[0] <= low and end <= span[1] for span in self.spans)

    def missing(self, low: int, end: int) -> list[Span]:
        """Give the parts of `low` to before `end` that are not there."""
        holes: list[Span] = []
        for first, behind in self.spans:
            if first > low:
                holes.append((low, min(first, end)))
            low = max(low, behind)
            if low >= end:
                return [hole for hole in holes if hole[0] < hole[1]]
        holes.append((low, end))
        return [hole for hole in holes if hole[0] < hole[1]]
