"""What protects packets: secrets, their updates, and the plain protection (spec/a1.md, Protection)."""

from __future__ import annotations

import zlib

from freshwire_lab.a1 import aegis

AEAD = 0
PLAIN = 1
MOST_PACKETS = 1 << 23
_REKEY = (1 << 64) - 1


def nonce_of(secret: bytes, number: int) -> bytes:
    """Give the nonce of a packet (A1-SEC-2)."""
    return secret[16:24] + (int.from_bytes(secret[24:], "big") ^ number).to_bytes(8, "big")


def next_secret(secret: bytes) -> bytes:
    """Give the secret after an update (A1-SEC-3)."""
    return aegis.encrypt(secret[:16], nonce_of(secret, _REKEY), bytes(32))[:32]


class Direction:
    """The secrets of one direction: the present one and how many updates led to it."""

    def __init__(self, secret: bytes) -> None:
        """Begin with the secret that the handshake gave."""
        self.secret = secret
        self.updates = 0
        self.packets = 0
        """How many the present key has sealed."""

    @property
    def phase(self) -> int:
        """The phase bit of the present key."""
        return self.updates & 1

    def update(self) -> None:
        """Go on to the next secret."""
        self.secret = next_secret(self.secret)
        self.updates += 1
        self.packets = 0


class Protection:
    """Seals and opens the packets of a connection."""

    def __init__(self, kind: int, sending: bytes, receiving: bytes, *, checksum: bool) -> None:
        """Begin with the secrets of the handshake."""
        self.kind = kind
        self.checksum = checksum
        self.sending = Direction(sending)
        self.receiving = Direction(receiving)
        self.first_number = 0
        """The first packet under the present sending key."""
        self.previous: bytes | None = None
        self.previous_until = 0
        self.followed = False

    @property
    def cost(self) -> int:
        """How many bytes it adds to a packet."""
        if self.kind == AEAD:
            return aegis.TAG
        return 4 if self.checksum else 0

    def seal(self, number: int, frames: bytes) -> tuple[int, bytes]:
        """Give the phase bit and the protected frames."""
        if self.kind == AEAD:
            self.sending.packets += 1
            sealed = aegis.encrypt(self.sending.secret[:16], nonce_of(self.sending.secret, number), frames)
            return self.sending.phase, sealed
        return (1, frames + _checksum(number, frames)) if self.checksum else (0, frames)

    def open(self, number: int, phase: int, sealed: bytes, now: int) -> bytes | None:
        """Give the frames of a packet, or nothing when it does not open."""
        if self.kind == PLAIN:
            return _open_plain(number, phase, sealed)
        if phase == self.receiving.phase:
            return _open(self.receiving.secret, number, sealed)
        if self.previous is not None and now < self.previous_until:
            frames = _open(self.previous, number, sealed)
            if frames is not None:
                return frames
        following = next_secret(self.receiving.secret)
        frames = _open(following, number, sealed)
        if frames is not None:
            self._follow()
        return frames

    def keep_previous(self, until: int) -> None:
        """Say how long the receiving key before the last update stays good."""
        self.previous_until = until

    def update(self, next_number: int) -> None:
        """Begin an update of the keys."""
        self.sending.update()
        self.first_number = next_number

    def may_update(self, highest_acknowledged: int) -> bool:
        """Say whether an update may begin (A1-SEC-3)."""
        same = self.sending.updates == self.receiving.updates
        return self.kind == AEAD and same and highest_acknowledged >= self.first_number

    def _follow(self) -> None:
        self.previous = self.receiving.secret
        self.receiving.update()
        self.followed = True


def _checksum(number: int, frames: bytes) -> bytes:
    return zlib.crc32(number.to_bytes(8, "big") + frames).to_bytes(4, "big")


def _open_plain(number: int, phase: int, sealed: bytes) -> bytes | None:
    if not phase:
        return sealed
    frames = sealed[:-4]
    return frames if len(sealed) >= 4 and _checksum(number, frames) == sealed[-4:] else None


def _open(secret: bytes, number: int, sealed: bytes) -> bytes | None:
    return aegis.decrypt(secret[:16], nonce_of(secret, number), sealed)
