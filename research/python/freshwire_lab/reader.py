"""A plain TCP reader of the layered stream that checks every header and every byte.

It prints what it counted as one JSON object, and leaves with 0 when the stream was whole, 1 when a byte was wrong or a
record was torn, 2 when there was no stream to read.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAGIC = b"FWLR"
VERSION = 1
HEADER = struct.Struct(">4sBBHIIQQ")
MOST_RECORD_BYTES = 1 << 24
"""A record that says it is larger is a torn stream and not a large record."""


class StreamError(Exception):
    """The stream is not a whole number of correct records."""


@dataclass(frozen=True)
class Header:
    """The header of one record."""

    layer: int
    window: int
    record_bytes: int
    seq: int
    submitted_ns: int

    @classmethod
    def parse(cls, data: bytes, place: int) -> Header:
        """Read a header that stands at byte `place` of the stream."""
        magic, version, layer, header_bytes, window, record_bytes, seq, submitted_ns = HEADER.unpack(data)
        for name, found, expected in (
            ("magic", magic, MAGIC),
            ("version", version, VERSION),
            ("header size", header_bytes, HEADER.size),
        ):
            if found != expected:
                message = f"byte {place}: {name} is {found!r} and not {expected!r}; the stream is torn or another"
                raise StreamError(message)
        if not HEADER.size <= record_bytes <= MOST_RECORD_BYTES:
            message = f"byte {place}: a record of {record_bytes} bytes cannot be"
            raise StreamError(message)
        return cls(layer, window, record_bytes, seq, submitted_ns)


@dataclass
class Account:
    """What was read of a stream."""

    records: int = 0
    stream_bytes: int = 0
    windows: set[int] = field(default_factory=set[int])
    layer_records: Counter[int] = field(default_factory=Counter[int])
    layer_bytes: Counter[int] = field(default_factory=Counter[int])
    skipped: int = 0
    """Sequence numbers that never came: records that the sender dropped."""
    next_seq: int = 0

    def add(self, header: Header) -> None:
        """Count a whole record; raise where the sequence does not rise."""
        if header.seq < self.next_seq:
            message = f"record {header.seq} comes after record {self.next_seq - 1}"
            raise StreamError(message)
        self.skipped += header.seq - self.next_seq
        self.next_seq = header.seq + 1
        self.records += 1
        self.stream_bytes += header.record_bytes
        self.windows.add(header.window)
        self.layer_records[header.layer] += 1
        self.layer_bytes[header.layer] += header.record_bytes

    def as_json(self) -> dict[str, object]:
        """Give the account as a JSON object."""
        layers = range(max(self.layer_records, default=-1) + 1)
        return {
            "records": self.records,
            "bytes": self.stream_bytes,
            "windows": len(self.windows),
            "skipped": self.skipped,
            "layer_records": [self.layer_records[layer] for layer in layers],
            "layer_bytes": [self.layer_bytes[layer] for layer in layers],
        }


def payload(seq: int, size: int) -> bytes:
    """Give the payload of record `seq`: SplitMix64's mix of its number and each word's place (`spec/framing.md`)."""
    words = bytearray()
    for place in range((size + 7) // 8):
        word = (seq * 0xA0761D6478BD642F + place) * 0x9E3779B97F4A7C15 & _U64
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _U64
        word = (word ^ word >> 27) * 0x94D049BB133111EB & _U64
        words += (word ^ word >> 31).to_bytes(8, "big")
    return bytes(words[:size])


def read_stream(read: Callable[[int], bytes], account: Account) -> None:
    """Read a stream to its end into `account`; raise `StreamError` at the first byte that is wrong.

    `read` gives as many bytes as asked for, or what is left before the end.
    """
    while data := read(HEADER.size):
        place = account.stream_bytes
        if len(data) < HEADER.size:
            message = f"byte {place}: the stream ends inside a header"
            raise StreamError(message)
        header = Header.parse(data, place)
        size = header.record_bytes - HEADER.size
        found = read(size)
        if len(found) < size:
            message = f"record {header.seq} is torn: {len(found)} of {size} bytes of payload"
            raise StreamError(message)
        expected = payload(header.seq, size)
        if found != expected:
            wrong = next(at for at in range(size) if found[at] != expected[at])
            message = f"record {header.seq}: byte {wrong} of the payload is {found[wrong]} and not {expected[wrong]}"
            raise StreamError(message)
        account.add(header)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="freshwire-lab-reader", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--listen", type=int, metavar="PORT", help="wait for one sender on this port; 0 takes a free one"
    )
    where.add_argument("--connect", type=_address, metavar="HOST:PORT", help="connect to a sender")
    parser.add_argument("--host", default="", help="address to listen on (default: all)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds without a byte before giving up")
    options = parser.parse_args(arguments)
    try:
        connection = (
            _accept(options.host, options.listen, options.timeout)
            if options.connect is None
            else socket.create_connection(options.connect, timeout=options.timeout)
        )
    except OSError as error:
        print(f"freshwire-lab-reader: {error}", file=sys.stderr)
        return 2
    account = Account()
    problem: str | None = None
    with connection, connection.makefile("rb") as stream:
        try:
            read_stream(stream.read, account)
        except (StreamError, OSError) as error:
            problem = str(error)
    print(json.dumps({**account.as_json(), "problem": problem}))
    if problem is not None:
        print(f"freshwire-lab-reader: {problem}", file=sys.stderr)
    return int(problem is not None)


def _accept(host: str, port: int, timeout: float) -> socket.socket:
    with socket.create_server((host, port)) as server:
        server.settimeout(timeout)
        print(f"listening on port {server.getsockname()[1]}", file=sys.stderr, flush=True)
        connection, _ = server.accept()
    connection.settimeout(timeout)
    return connection


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        message = f"{text!r} is not HOST:PORT"
        raise argparse.ArgumentTypeError(message)
    return host.strip("[]"), int(port)


_U64 = (1 << 64) - 1

if __name__ == "__main__":
    sys.exit(main())
