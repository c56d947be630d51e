"""The command: a sender and a receiver of messages over A1, each as initiator or as responder."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import socket
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from freshwire_lab.a1 import frames as f
from freshwire_lab.a1.connection import Connection
from freshwire_lab.a1.endpoint import Driver, Link, NoConnectionError, Weather, answer, call, clock
from freshwire_lab.a1.handshake import Address, Answerer, Caller, Identity, RefusedError
from freshwire_lab.a1.head import Head
from freshwire_lab.a1.incoming import Delivered, WentAway, WereDropped
from freshwire_lab.a1.outgoing import Message
from freshwire_lab.a1.quality import Parameters, Quality

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_QUEUED = 256
"""How many generated messages wait at a time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0 is a connection that has ended well, 1 another end, 2 none.

    A silence is a good end where packets are lost on purpose: the CLOSE may have been among them (A1-END-1).
    """
    options = _parser().parse_args(arguments)
    try:
        driver = _connect(options)
    except (RefusedError, NoConnectionError, OSError) as error:
        print(f"freshwire-lab-a1: {error}", file=sys.stderr)
        return 2
    connection = driver.connection
    connection.update_after = options.update_after
    with _output(options.out) as out:
        turn = _sender(options, connection, out) if options.role == "send" else _receiver(options, connection, out)
        driver.run(turn)
    print(json.dumps(_account(driver)))
    ending = connection.ending
    silent = bool(options.loss) and ending is not None and ending.code is None and ending.text == "silence"
    return 0 if silent or (ending is not None and ending.code == 0) else 1


def _connect(options: argparse.Namespace) -> Driver:
    identity = Identity(_key(options.key), bytes.fromhex(options.psk.read_text()) if options.psk else bytes(32))
    maximum = Quality(outstanding=options.outstanding, largest_in=options.largest, largest_out=options.largest)
    maximum = replace(maximum, rate_in=options.rate_in, flags=options.flags)
    parameters = Parameters(
        idle_ms=options.idle, largest_datagram=options.datagram, protection=int(options.plain), maximum=maximum,
        wanted=maximum,
    )  # fmt: skip
    weather = [Weather(options.loss, options.duplicate, options.reorder, 2 * options.seed + way) for way in range(2)]
    if options.to is not None:
        to = (socket.gethostbyname(options.to[0]), options.to[1])
        link = Link(socket.AF_INET, *weather)
        agreed = call(link, Caller(identity, options.peer_key, parameters, to[0], clock()), to)
        answerer = None
    else:
        link = Link(socket.AF_INET, *weather)
        link.socket.bind((options.host, options.listen))
        port = link.socket.getsockname()[1]
        print(f"listening on port {port} --peer-key {identity.public.hex()}", file=sys.stderr, flush=True)
        answerer = Answerer(identity, parameters, frozenset(options.allow_key) or None)
        agreed, to = answer(link, answerer, options.patience * 1_000_000)
    connection = Connection(agreed, clock(), options.seed, runs=options.runs)
    print(json.dumps({"quality": vars(connection.quality), "protection": agreed.protection}), flush=True)
    return Driver(link, to, connection, identity, answerer)


def _key(path: Path | None) -> X25519PrivateKey:
    if path is None:
        return X25519PrivateKey.generate()
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text()))


def _output(path: Path | None) -> IO[bytes]:
    return (path or Path("/dev/null")).open("wb")


def _sender(options: argparse.Namespace, connection: Connection, out: IO[bytes]) -> Callable[[int], int | None]:
    """Make what offers messages, and closes when all are settled."""
    sizes = random.Random(options.seed)
    offered = 0
    bad = _forgery(options.break_rule)

    def turn(now: int) -> int | None:
        nonlocal offered
        _take_events(connection, None)
        while offered < options.count and len(connection.outgoing.queue) < _QUEUED:
            low, high = options.size
            size = int(low * (high / max(low, 1)) ** sizes.random()) if low != high else low
            data = sizes.randbytes(size)
            out.write(struct.pack(">I", size) + data if options.framed else data)
            keeps = options.deadline * 1000 if options.deadline else None
            connection.send(Message(offered, data, connection.time(now), keeps=keeps))
            offered += 1
        if bad and connection.outgoing.delivered:
            connection.forged.append(bytes(bad))
            bad.clear()
        if offered == options.count and connection.outgoing.idle and not options.break_rule:
            connection.close(0, "", now)
        return None

    return turn


def _forgery(rule: str | None) -> bytearray:
    """Give a frame that breaks a rule."""
    return bytearray(
        {
            None: b"",
            "ack": f.Ack(0, 0, 0, [(5000, 5000)]).encode(),
            "block": f.Block(50, Head(100), 0, last=False, data=bytes(200)).encode(sized=True),
            "credit": f.Block(1 << 20, Head(1), 0, last=True, data=b"x").encode(sized=True),
            "type": b"\x3f",
            "whole": b"\x1d" + bytes([0x7F, 0xFF]),
        }[rule]
    )


def _receiver(options: argparse.Namespace, connection: Connection, out: IO[bytes]) -> Callable[[int], int | None]:
    """Make what takes messages, at most `rate` bytes a second of them."""
    waiting: list[Delivered] = []
    free_at = 0
    forged = _forgery(options.break_rule)

    def turn(now: int) -> int | None:
        nonlocal free_at
        waiting.extend(_take_events(connection, out))
        if forged and connection.incoming.highest >= 3:
            connection.forged.append(bytes(forged))
            forged.clear()
        while waiting and now >= free_at:
            message = waiting.pop(0)
            pause = len(message.data) * 1_000_000 // options.rate if options.rate else 0
            free_at = max(free_at, now - 10_000) + pause
            connection.incoming.consume(message)
        return free_at if waiting else None

    return turn


def _take_events(connection: Connection, out: IO[bytes] | None) -> list[Delivered]:
    whole: list[Delivered] = []
    while connection.incoming.events:
        event = connection.incoming.events.popleft()
        match event:
            case Delivered():
                whole.append(event)
                if out is not None:
                    out.write(event.data)
                print(json.dumps(_line(event)))
            case WentAway():
                print(json.dumps({"gone": event.message, "reason": event.reason}))
            case WereDropped():
                print(json.dumps({"dropped": event.first, "count": event.count, "reason": event.reason}))
    return whole


def _line(event: Delivered) -> dict[str, object]:
    return {
        "message": event.message,
        "application": event.application,
        "layer": event.head.layer,
        "length": len(event.data),
        "sha256": hashlib.sha256(event.data).hexdigest(),
        "age_us": event.age,
        "keeps_us": event.head.keeps,
    }


def _account(driver: Driver) -> dict[str, object]:
    connection = driver.connection
    recovery, outgoing = connection.recovery, connection.outgoing
    return {
        "ending": vars(connection.ending) if connection.ending else None,
        "packets": {"sent": connection.made, "came": connection.came, "opened": connection.opened},
        "lost_on_purpose": [driver.link.out.lost, driver.link.into.lost],
        "delivered": outgoing.delivered,
        "given_up": outgoing.given_up,
        "never_begun": outgoing.never_begun,
        "taken_for_lost": recovery.losses,
        "wrongly": recovery.spurious,
        "blocks_again": outgoing.blocks_again,
        "received": connection.incoming.kinds,
        "rtt_us": recovery.rtt.smoothed,
        "overtaken": connection.acks.overtaken,
        "updates": [connection.protection.sending.updates, connection.protection.receiving.updates],
        "strange": connection.strange,
        "unopened": connection.unopened,
        "probes_without_control_bit": connection.probes,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="freshwire-lab-a1", description=__doc__)
    parser.add_argument("role", choices=("send", "recv"))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", type=_address, metavar="HOST:PORT", help="call a peer")
    where.add_argument("--listen", type=int, metavar="PORT", help="wait for one; 0 takes a free port")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--peer-key", type=bytes.fromhex, help="with --to: the peer's key in hexadecimal")
    parser.add_argument("--allow-key", type=bytes.fromhex, action="append", default=[], help="who may connect")
    parser.add_argument("--key", type=Path, help="file with the own private key, 64 hexadecimal digits")
    parser.add_argument("--psk", type=Path, help="file with the pre-shared key, 64 hexadecimal digits")
    parser.add_argument("--plain", action="store_true", help="ask for no encryption")
    for name in ("loss", "duplicate", "reorder"):
        parser.add_argument(f"--{name}", type=float, default=0.0, help="share of the packets, both ways")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle", type=int, default=10_000, help="idle timeout in ms")
    parser.add_argument("--patience", type=int, default=20, help="with --listen: seconds to wait for a call")
    parser.add_argument("--datagram", type=int, default=1500, help="largest datagram that this end takes")
    parser.add_argument("--outstanding", type=int, default=1024, help="messages that may be outstanding")
    parser.add_argument("--largest", type=int, default=1 << 20, help="largest message")
    parser.add_argument("--flags", type=int, default=3, help="of the quality: 1 checksum, 2 retransmission")
    parser.add_argument("--rate-in", type=int, default=0, help="rate asked of the peer, in bit/s")
    parser.add_argument("--update-after", type=int, default=1 << 22, help="packets until the keys are updated")
    parser.add_argument("--out", type=Path, help="file for the payload: what came, or what was offered")
    parser.add_argument("--framed", action="store_true", help="with send: a length before each message in the file")
    parser.add_argument("--count", type=int, default=100, help="messages to send")
    parser.add_argument("--size", type=_sizes, default=(1, 100_000), metavar="LOW-HIGH", help="of messages")
    parser.add_argument("--deadline", type=int, default=0, help="for how many ms a message keeps its value")
    parser.add_argument("--runs", action="store_true", help="send messages that are alike as RUN")
    parser.add_argument("--rate", type=int, default=0, help="with recv: bytes that are consumed in a second")
    parser.add_argument("--break-rule", choices=("ack", "block", "credit", "type", "whole"), help="break it once")
    return parser


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        message = f"{text!r} is not HOST:PORT"
        raise argparse.ArgumentTypeError(message)
    return host, int(port)


def _sizes(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


if __name__ == "__main__":
    sys.exit(main())
