"""What the ends tell each other in the handshake: parameters and the quality of service."""

from __future__ import annotations

from dataclasses import dataclass, replace

from freshwire_lab.a1.wire import Reader, WireError, varint

CHECKSUM = 1
RETRANSMISSION = 2
LEAST_DATAGRAM = 1200
_MOST_MESSAGE = 64 << 20
_MOST_OUTSTANDING = 65_536
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Quality:
    """A quality of service as the end sees it that sends it; a rate of 0 is none."""

    priority: int = 255
    flags: int = CHECKSUM | RETRANSMISSION
    rate_out: int = 0
    rate_in: int = 0
    burst_out: int = 1 << 30
    burst_in: int = 1 << 30
    largest_out: int = 16 << 20
    largest_in: int = 16 << 20
    outstanding: int = 1024

    def encode(self) -> bytes:
        """Give its bytes."""
        numbers = (self.rate_out, self.rate_in, self.burst_out, self.burst_in, self.largest_out, self.largest_in)
        return bytes([self.priority, self.flags]) + b"".join(map(varint, (*numbers, self.outstanding)))

    @classmethod
    def read(cls, reader: Reader) -> Quality:
        """Read one, and check its bounds."""
        quality = cls(reader.number(1), reader.number(1), *(reader.varint() for _ in range(7)))
        is_message = max(quality.largest_out, quality.largest_in) <= _MOST_MESSAGE
        if not (is_message and 1 <= quality.outstanding <= _MOST_OUTSTANDING):
            message = f"a quality of service is out of bounds: {quality}"
            raise WireError(message)
        return quality

    def first_credit(self) -> tuple[int, int]:
        """Say how many messages, and bytes of them, may be begun towards this end at first (A1-FLOW-1)."""
        return min(self.outstanding, 64), self.window()

    def window(self) -> int:
        """Say how many bytes may be outstanding towards this end (A1-FLOW-1)."""
        return min(self.outstanding * self.largest_in, max(64 << 20, 2 * self.largest_in))

    def turned(self) -> Quality:
        """Give the same as the other end sees it."""
        return replace(
            self,
            rate_out=self.rate_in,
            rate_in=self.rate_out,
            burst_out=self.burst_in,
            burst_in=self.burst_out,
            largest_out=self.largest_in,
            largest_in=self.largest_out,
        )

    def within(self, maximum: Quality) -> Quality:
        """Give what holds when an end asks for this and `maximum` is the other's, as the other sees it (A1-QOS-1)."""
        most = maximum.turned()
        flags = self.flags & most.flags & RETRANSMISSION | (self.flags | most.flags) & CHECKSUM
        return Quality(
            min(self.priority, most.priority),
            flags,
            _smaller_rate(self.rate_out, most.rate_out),
            _smaller_rate(self.rate_in, most.rate_in),
            min(self.burst_out, most.burst_out),
            min(self.burst_in, most.burst_in),
            min(self.largest_out, most.largest_out),
            min(self.largest_in, most.largest_in),
            min(self.outstanding, most.outstanding),
        )


def _smaller_rate(one: int, other: int) -> int:
    return min(one or other, other or one)


@dataclass(frozen=True)
class Parameters:
    """The parameters of an end."""

    idle_ms: int = 10_000
    ack_delay: int = 25_000
    largest_datagram: int = 1500
    protection: int = 0
    maximum: Quality = Quality()
    wanted: Quality = Quality()
    token: bytes = b""

    def encode(self) -> bytes:
        """Give their bytes."""
        head = varint(self.idle_ms) + varint(self.ack_delay) + varint(self.largest_datagram)
        return head + bytes([self.protection]) + self.maximum.encode() + self.wanted.encode() + self.token

    @classmethod
    def read(cls, reader: Reader) -> Parameters:
        """Read them, and check their bounds (A1-HS-10)."""
        idle, delay, datagram, protection = reader.varint(), reader.varint(), reader.varint(), reader.number(1)
        maximum, wanted = Quality.read(reader), Quality.read(reader)
        token = reader.take(16) if reader.left else b""
        if delay > 1_000_000 or not LEAST_DATAGRAM <= datagram <= 65_535 or protection > 1:
            message = f"parameters out of bounds: delay {delay}, datagram {datagram}, protection {protection}"
            raise WireError(message)
        return cls(min(idle, _DAY_MS), delay, datagram, protection, maximum, wanted, token)
