"""A connection on a UDP socket, with packets that are lost, doubled and overtaken on purpose."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from freshwire_lab.a1.connection import Connection
from freshwire_lab.a1.handshake import DATA, INITIATION, RESET, RESET_SIZE, Address, Agreed, Answerer, Caller, Identity

_ECT0 = 2
_CE = 3
_MOST_RESETS = 10


def clock() -> int:
    """Give the time in microseconds."""
    return time.monotonic_ns() // 1000


@dataclass
class Weather:
    """What becomes of packets, by a generator with a seed."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    seed: int = 1
    lost: int = 0
    held: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])

    def __post_init__(self) -> None:
        """Seed the generator."""
        self.random = random.Random(self.seed)

    def through(self, datagram: bytes, now: int) -> list[bytes]:
        """Give what comes of a datagram now."""
        if self.random.random() < self.loss:
            self.lost += 1
            return []
        if self.random.random() < self.reorder:
            self.held.append((now + self.random.randrange(500, 5000), datagram))
            return []
        return [datagram, datagram] if self.random.random() < self.duplicate else [datagram]

    def late(self, now: int) -> list[bytes]:
        """Give what was held back until now."""
        due = [datagram for when, datagram in self.held if when <= now]
        self.held = [each for each in self.held if each[0] > now]
        return due


class Link:
    """A UDP socket, and the weather on both ways of it."""

    def __init__(self, family: int, out: Weather, into: Weather) -> None:
        """Open a socket."""
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _ECT0)
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.out, self.into = out, into
        self.peer: Address | None = None

    def send(self, datagram: bytes, to: Address) -> None:
        """Send, or not."""
        for each in self.out.through(datagram, clock()):
            self._send(each, to)

    def _send(self, datagram: bytes, to: Address) -> None:
        try:
            self.socket.sendto(datagram, to)
        except OSError:
            return

    def receive(self, until: int) -> list[tuple[bytes, Address, bool]]:
        """Wait for datagrams up to a time; say of each where it is from and whether it has a congestion mark."""
        came: list[tuple[bytes, Address, bool]] = []
        late = [when for when, _ in self.out.held + self.into.held]
        timeout = max(0, min([until, *late]) - clock()) / 1e6
        self.socket.settimeout(timeout + 1e-4)
        while len(came) < 64:
            try:
                datagram, ancillary, _, address = self.socket.recvmsg(65536, 64)
            except (TimeoutError, BlockingIOError):
                break
            except OSError:
                continue
            self.socket.settimeout(0)
            marked = any(kind == socket.IP_TOS and data and data[0] & 3 == _CE for _, kind, data in ancillary)
            source = (str(address[0]), int(address[1]))
            came += [(each, source, marked) for each in self.into.through(datagram, clock())]
        if self.peer is not None:
            for each in self.out.late(clock()):
                self._send(each, self.peer)
            came += [(each, self.peer, False) for each in self.into.late(clock())]
        return came


class NoConnectionError(Exception):
    """No connection came about."""


def call(link: Link, caller: Caller, to: Address) -> Agreed:
    """Do the handshake as the initiator."""
    link.peer = to
    while True:
        datagram = caller.poll(clock())
        if datagram is not None:
            link.send(datagram, to)
        for came, source, _ in link.receive(caller.due):
            agreed = caller.receive(came, clock()) if source == to else None
            if agreed is not None:
                return agreed


def answer(link: Link, answerer: Answerer, patience: int) -> tuple[Agreed, Address]:
    """Do the handshake as the responder, with the first that completes it."""
    until = clock() + patience
    while clock() < until:
        for came, source, _ in link.receive(until):
            if came[:1] and came[0] >> 4 == INITIATION:
                reply, agreed = answerer.receive(came, source, clock())
                if reply is not None:
                    link.send(reply, source)
                if agreed is not None:
                    link.peer = source
                    return agreed, source
    message = "nobody has called"
    raise NoConnectionError(message)


@dataclass
class Driver:
    """Runs an open connection."""

    link: Link
    peer: Address
    connection: Connection
    identity: Identity
    answerer: Answerer | None = None
    resets: int = 0

    def run(self, each: Callable[[int], int | None]) -> None:
        """Run until it is over; `each` is called in each turn and says when it wants to be called again."""
        while not self.connection.over(clock()):
            wanted = each(clock())
            if self.connection.ending is not None:
                # A lost CLOSE is heard of by silence alone, once its sender has left.
                self.link.out.loss = 0.0
            for datagram in self.connection.poll(clock()):
                self.link.send(datagram, self.peer)
            until = self.connection.next_time(clock())
            for datagram, source, marked in self.link.receive(until if wanted is None else min(until, wanted)):
                self._take(datagram, source, marked=marked)
        each(clock())

    def _take(self, datagram: bytes, source: Address, *, marked: bool) -> None:
        kind = datagram[0] >> 4 if datagram else 0
        if kind == DATA and len(datagram) >= 8:
            if int.from_bytes(datagram[1:5], "big") == self.connection.agreed.own_id:
                if source == self.peer:
                    self.connection.receive(datagram, clock(), marked=marked)
            else:
                self._reset(datagram, source)
        elif kind == INITIATION and self.answerer is not None:
            reply, _ = self.answerer.receive(datagram, source, clock())
            if reply is not None:
                self.link.send(reply, source)
        elif kind == RESET and len(datagram) == RESET_SIZE:
            self._take_reset(datagram, source)

    def _reset(self, datagram: bytes, source: Address) -> None:
        """Answer a packet of a connection that this end does not know (A1-RST-1)."""
        if len(datagram) > RESET_SIZE and self.resets < _MOST_RESETS:
            self.resets += 1
            unknown = datagram[1:5]
            token = self.identity.token(int.from_bytes(unknown, "big"), source[0])
            self.link.send(bytes([RESET << 4]) + unknown + token, source)

    def _take_reset(self, datagram: bytes, source: Address) -> None:
        agreed = self.connection.agreed
        same = int.from_bytes(datagram[1:5], "big") == agreed.peer_id and source == self.peer
        if same and agreed.peer.token and datagram[5:] == agreed.peer.token:
            self.connection.reset()
