"""Initiation, Retry, Response, Version and Reset, and the states before a connection is open."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from freshwire_lab.a1 import noise
from freshwire_lab.a1.frames import Close, parse
from freshwire_lab.a1.quality import Parameters
from freshwire_lab.a1.wire import Reader, WireError

INITIATION, RETRY, RESPONSE, DATA, VERSION, GROUP, RESET = range(1, 8)
SPOKEN = 1
LEAST_INITIATION = 1200
RESET_SIZE = 21
_LIMIT = 10_000_000
_KEPT = 10_000_000
_EPOCH = 10_000_000
_MOST_COOKIE = 64

Address = tuple[str, int]


@dataclass(frozen=True)
class Identity:
    """What an end keeps: its static key and the pre-shared one."""

    static: X25519PrivateKey
    psk: bytes = bytes(32)

    @property
    def public(self) -> bytes:
        """The key that others know it by."""
        return noise.public_bytes(self.static)

    def token(self, own_id: int, peer: str) -> bytes:
        """Give the token of a Reset (A1-RST-2)."""
        address = ipaddress.ip_address(peer)
        packed = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
        key = hmac.digest(noise.private_bytes(self.static), b"freshwire a1 reset", "sha256")
        return hmac.digest(key, own_id.to_bytes(4, "big") + packed, "sha256")[:16]


@dataclass(frozen=True)
class Agreed:
    """What a handshake has led to."""

    initiator: bool
    own_id: int
    peer_id: int
    sending: bytes
    receiving: bytes
    own: Parameters
    peer: Parameters
    protection: int
    began: int
    """The own clock when the connection's time was 0 (A1-HS-9)."""


class RefusedError(Exception):
    """The peer does not want the connection, or what it says has no sense."""

    def __init__(self, code: int, text: str) -> None:
        """Say why."""
        super().__init__(f"refused with code {code}: {text}")
        self.code = code


def prologue(own_id: int, cookie: bytes) -> bytes:
    """Give the prologue of a message 1 (A1-HS-1)."""
    return b"freshwire a1" + SPOKEN.to_bytes(4, "big") + own_id.to_bytes(4, "big") + cookie


def initiation(own_id: int, cookie: bytes, message: bytes) -> bytes:
    """Make an Initiation."""
    head = bytes([INITIATION << 4]) + SPOKEN.to_bytes(4, "big") + own_id.to_bytes(4, "big")
    data = head + bytes([len(cookie)]) + cookie + len(message).to_bytes(2, "big") + message
    return data.ljust(LEAST_INITIATION, b"\0")


class Caller:
    """The initiator until it is open: CALLING and GREETING."""

    def __init__(self, identity: Identity, peer_key: bytes, parameters: Parameters, host: str, now: int) -> None:
        """Begin to call."""
        self.identity, self.peer_key = identity, peer_key
        self.own_id = secrets.randbits(32)
        self.parameters = parameters
        if not parameters.token:
            token = identity.token(self.own_id, host)
            self.parameters = replace(parameters, token=token)
        self.datagram = initiation(self.own_id, b"", b"")
        self.attempts: list[tuple[noise.Initiator, int]] = []
        self.last_cookie: bytes | None = None
        self.cookies = self.repeats = 0
        self.due = now
        self.until = now + _LIMIT

    def poll(self, now: int) -> bytes | None:
        """Give the datagram that is due."""
        if now >= self.until:
            raise RefusedError(0, "nobody answers")
        if now < self.due:
            return None
        self.repeats += 1
        self.due = now + (250_000 if self.repeats <= 7 else min(250_000 << self.repeats - 7, 1_000_000))
        return self.datagram

    def receive(self, datagram: bytes, now: int) -> Agreed | None:
        """Take a datagram from the address that was called."""
        reader = Reader(datagram)
        try:
            kind, own = reader.number(1) >> 4, reader.number(4)
            if own != self.own_id:
                return None
            if kind == RETRY:
                self._retry(reader.take(reader.number(1)), now)
            elif kind == VERSION and reader.number(4) != SPOKEN:
                self.until = min(self.until, now + 1_000_000)
            elif kind == RESPONSE:
                reader.take(4)
                return self._response(reader.take(reader.number(2)))
        except WireError:
            pass
        return None

    def _retry(self, cookie: bytes, now: int) -> None:
        if len(cookie) > _MOST_COOKIE or cookie == self.last_cookie or (self.cookies >= 4 and now < self.due):
            return
        self.cookies += 1
        self.last_cookie = cookie
        attempt = noise.Initiator(self.identity.static, self.peer_key, self.identity.psk, prologue(self.own_id, cookie))
        self.datagram = initiation(self.own_id, cookie, attempt.write(self.parameters.encode()))
        self.attempts.append((attempt, now))
        self.due, self.repeats = now, 0

    def _response(self, message: bytes) -> Agreed | None:
        for attempt, began in reversed(self.attempts):
            before = dict(vars(attempt.state))
            try:
                payload = attempt.read(message)
            except noise.NoiseError:
                vars(attempt.state).update(before)
                continue
            return self._accepted(attempt, began, payload)
        return None

    def _accepted(self, attempt: noise.Initiator, began: int, payload: bytes) -> Agreed:
        reader = Reader(payload)
        try:
            if reader.number(1) != 0:
                refusal = next(parse(payload))
                if isinstance(refusal, Close):
                    raise RefusedError(refusal.code, refusal.text)
                raise RefusedError(1, "a response without sense")
            peer_id, peer = reader.number(4), Parameters.read(reader)
        except WireError as error:
            raise RefusedError(1, f"a response without sense: {error}") from error
        if peer.protection > self.parameters.protection:
            raise RefusedError(1, "A1-HS-4: weaker protection than was asked for")
        sending, receiving = attempt.split()
        return Agreed(True, self.own_id, peer_id, sending, receiving, self.parameters, peer, peer.protection, began)


class Answerer:
    """The responder: cookies, and what was answered."""

    def __init__(self, identity: Identity, parameters: Parameters, allowed: frozenset[bytes] | None = None) -> None:
        """Wait for initiators; `allowed` are the keys that may connect."""
        self.identity, self.parameters, self.allowed = identity, parameters, allowed
        self.secret = secrets.token_bytes(32)
        self.answers: dict[tuple[Address, int], tuple[bytes, bytes, int]] = {}
        """The initiation that was answered, the answer, and when it is forgotten."""

    def cookie(self, address: Address, peer_id: int, epoch: int) -> bytes:
        """Give the cookie of an epoch of 10 s: it and the one before are good (A1-HS-2)."""
        text = f"{epoch} {peer_id} {address[0]} {address[1]}".encode()
        return hmac.digest(self.secret, text, "sha256")[:16]

    def receive(self, datagram: bytes, address: Address, now: int) -> tuple[bytes | None, Agreed | None]:
        """Take an Initiation; give the answer, and what was agreed on if it is a new connection."""
        reader = Reader(datagram)
        try:
            reader.take(1)
            version, peer_id = reader.number(4), reader.number(4)
            if len(datagram) < LEAST_INITIATION:
                return None, None
            if version != SPOKEN:
                version_known = bytes([VERSION << 4]) + peer_id.to_bytes(4, "big") + SPOKEN.to_bytes(4, "big")
                return version_known, None
            cookie = reader.take(reader.number(1))
            message = reader.take(reader.number(2))
        except WireError:
            return None, None
        if len(cookie) > _MOST_COOKIE:
            return None, None
        epoch = now // _EPOCH
        good = [self.cookie(address, peer_id, at) for at in (epoch, epoch - 1)]
        if not any(hmac.compare_digest(cookie, each) for each in good):
            return bytes([RETRY << 4]) + peer_id.to_bytes(4, "big") + bytes([len(good[0])]) + good[0], None
        return self._greeted(cookie, message, (address, peer_id), now)

    def _greeted(
        self, cookie: bytes, message: bytes, caller: tuple[Address, int], now: int
    ) -> tuple[bytes | None, Agreed | None]:
        address, peer_id = caller
        what = cookie + message
        self.answers = {key: answer for key, answer in self.answers.items() if answer[2] > now}
        known = self.answers.get((address, peer_id))
        if known is not None and known[0] == what:
            return known[1], None
        state = noise.Responder(self.identity.static, self.identity.psk, prologue(peer_id, cookie))
        try:
            peer = Parameters.read(Reader(state.read(message)))
        except (noise.NoiseError, WireError):
            return None, None
        own_id = secrets.randbits(32)
        agreed: Agreed | None = None
        if self.allowed is not None and state.peer not in self.allowed:
            payload = Close(1, "the key is not on the list").encode()
            sealed, own_id = state.write(payload), 0
        else:
            own = self._answer_to(peer, own_id, address[0])
            sealed = state.write(b"\0" + own_id.to_bytes(4, "big") + own.encode())
            sending, receiving = state.split()
            agreed = Agreed(False, own_id, peer_id, sending, receiving, own, peer, own.protection, now)
        ids = peer_id.to_bytes(4, "big") + own_id.to_bytes(4, "big")
        answer = bytes([RESPONSE << 4]) + ids + len(sealed).to_bytes(2, "big") + sealed
        self.answers[address, peer_id] = (what, answer, now + _KEPT)
        return answer, agreed

    def _answer_to(self, peer: Parameters, own_id: int, host: str) -> Parameters:
        return replace(
            self.parameters,
            protection=min(self.parameters.protection, peer.protection),
            wanted=peer.wanted.within(self.parameters.maximum).turned(),
            token=self.identity.token(own_id, host),
        )
