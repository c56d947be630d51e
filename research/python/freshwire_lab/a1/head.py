"""What a message is like: its head (spec/a1.md, Frames)."""

from __future__ import annotations

from dataclasses import dataclass

from freshwire_lab.a1.wire import Reader, signed, varint

_MODULO = 1 << 62


@dataclass(frozen=True)
class Head:
    """A message head. `time` is None where nothing says when the content came into being."""

    length: int
    layer: int = 0
    larger: int = 0
    group: int = 0
    key: int = 0
    back: tuple[int, int] = (0, 0)
    time: int | None = 0
    keeps: int | None = None

    def application(self, message: int) -> int:
        """Give the application's number of a message with this head."""
        return (message + self.larger) % _MODULO

    def encode(self) -> bytes:
        """Give its bytes; a field with its default is left out."""
        fields = (
            (0x02, self.layer != 0, bytes([self.layer])),
            (0x01, self.larger != 0, signed(self.larger)),
            (0x04, self.group != 0, varint(self.group)),
            (0x08, self.key != 0, varint(self.key)),
            (0x10, self.back[0] != 0, varint(self.back[0])),
            (0x20, self.back[1] != 0, varint(self.back[1])),
            (0x40, bool(self.time), signed(self.time or 0)),
            (0x80, self.keeps is not None, varint(self.keeps or 0)),
        )
        flags = sum(flag for flag, there, _ in fields if there)
        return bytes([flags]) + varint(self.length) + b"".join(data for _, there, data in fields if there)

    @classmethod
    def read(cls, reader: Reader) -> Head:
        """Read one."""
        flags, length = reader.number(1), reader.varint()
        layer = reader.number(1) if flags & 0x02 else 0
        larger = reader.signed() if flags & 0x01 else 0
        group, key, one, two = (reader.varint() if flags & flag else 0 for flag in (0x04, 0x08, 0x10, 0x20))
        time = reader.signed() if flags & 0x40 else 0
        return cls(length, layer, larger, group, key, (one, two), time, reader.varint() if flags & 0x80 else None)
