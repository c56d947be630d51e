"""AEGIS-128X2 (RFC 10032) without associated data and with a tag of 16 bytes, in plain Python.

All sixteen AES blocks of the state are one integer of 256 bytes, so that a step is some twenty operations on it and two
table look-ups for all bytes at once. Byte i of an AES block stands in plane 4 * (i % 4) + i // 4, that is row after
row; a plane has 16 bytes, of block j of lane l at 2 * j + l.
"""

from __future__ import annotations

import hmac

TAG = 16
RATE = 64
_LANES = 2
_C0 = bytes.fromhex("000101020305080d1522375990e97962")
_C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def _double(byte: int) -> int:
    return byte << 1 ^ (0x11B if byte & 0x80 else 0)


def _tables() -> tuple[bytes, bytes]:
    box = bytearray(256)
    p = q = 1
    while True:
        p ^= _double(p)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        q ^= 0x09 if q & 0x80 else 0
        turned = q
        for turn in range(1, 5):
            turned ^= (q << turn | q >> 8 - turn) & 0xFF
        box[p] = turned ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    return bytes(box), bytes(_double(value) for value in box)


_BOX, _BOX_TWICE = _tables()
_ALL = (1 << 2048) - 1
_PLANES = sum(1 << 128 * plane for plane in range(16))
_FIRST = 0xFFFF * _PLANES
"""Block 0 of each plane; the others are this, shifted."""
_NOT_FIRST = _ALL ^ _FIRST
_FIFTH = _FIRST << 64
_PLACES = [
    (16 * (4 * (i % 4) + i // 4) + 8 * half + lane, 32 * half + 16 * lane + i)
    for half in range(2)
    for lane in range(_LANES)
    for i in range(16)
]
"""Where each of 64 bytes of the message stands in the state: the first half is for block 0, the second for block 4."""


def _spread(block: bytes, at: int, *, lanes: tuple[int, ...] = (0, 1)) -> int:
    """Put an AES block into block `at` of the given lanes."""
    planes = bytearray(256)
    for lane in lanes:
        planes[2 * at + lane :: 16] = block[0::4] + block[1::4] + block[2::4] + block[3::4]
    return int.from_bytes(planes, "little")


def _gather(state: int, at: int, lane: int) -> int:
    """Take block `at` of a lane out of the state, as a number whose first byte is the highest."""
    rows = state.to_bytes(256, "little")[2 * at + lane :: 16]
    return int.from_bytes(bytes(rows[4 * (i % 4) + i // 4] for i in range(16)), "big")


def _update(state: int, message: int) -> int:
    """Do one step: each block becomes the AES round of the one before it, XORed with itself and its message."""
    planes = state.to_bytes(256, "little")
    once, twice = planes.translate(_BOX), planes.translate(_BOX_TWICE)
    a = int.from_bytes(_shift_rows(once), "little")
    b = int.from_bytes(_shift_rows(twice), "little")
    c = a ^ b
    mixed = b ^ (c >> 512 | c << 1536) ^ (a >> 1024 | a << 1024) ^ (a >> 1536 | a << 512)
    mixed &= _ALL
    return (mixed << 16 & _NOT_FIRST | mixed >> 112 & _FIRST) ^ state ^ message


def _shift_rows(s: bytes) -> bytes:
    return s[:64] + s[80:128] + s[64:80] + s[160:192] + s[128:160] + s[240:] + s[192:240]


_CONTEXT = sum(
    _spread(bytes([lane, _LANES - 1]) + bytes(14), at, lanes=(lane,)) for at in (3, 7) for lane in range(_LANES)
)


def _start(key: bytes, nonce: bytes) -> int:
    both = bytes(a ^ b for a, b in zip(key, nonce, strict=True))
    with_c0 = bytes(a ^ b for a, b in zip(key, _C0, strict=True))
    with_c1 = bytes(a ^ b for a, b in zip(key, _C1, strict=True))
    state = 0
    for at, block in enumerate((both, _C1, _C0, _C1, both, with_c0, with_c1, with_c0)):
        state |= _spread(block, at)
    message = _spread(nonce, 0) | _spread(key, 4)
    for _ in range(10):
        state = _update(state ^ _CONTEXT, message)
    return state


def _finish(state: int, size: int) -> bytes:
    lengths = _spread(bytes(8) + (8 * size).to_bytes(8, "little"), 0)
    folded = (state >> 32 & _FIRST) ^ lengths
    folded |= folded << 64
    for _ in range(7):
        state = _update(state, folded)
    tag = 0
    for at in range(7):
        for lane in range(_LANES):
            tag ^= _gather(state, at, lane)
    return tag.to_bytes(TAG, "big")


def _planes_of(data: bytes) -> list[int]:
    """Bring a message, padded with zeros, into the order of the state."""
    count = -(-len(data) // RATE)
    padded = data + bytes(count * RATE - len(data))
    planes = bytearray(256 * count)
    for place, source in _PLACES:
        planes[place::256] = padded[source::RATE]
    return [int.from_bytes(planes[at : at + 256], "little") for at in range(0, len(planes), 256)]


def _bytes_of(steps: list[int], size: int) -> bytes:
    planes = b"".join(step.to_bytes(256, "little") for step in steps)
    out = bytearray(RATE * len(steps))
    for place, target in _PLACES:
        out[target::RATE] = planes[place::256]
    return bytes(out[:size])


def _stream(state: int) -> int:
    """Give the key stream of a step: of the first half in block 0, of the second in block 4."""
    first = state >> 96 ^ state >> 16 ^ state >> 32 & state >> 48
    second = state << 32 ^ state >> 16 ^ state >> 32 & state >> 48
    return first & _FIRST | second & _FIFTH


def encrypt(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Encrypt; give the encrypted message and its tag behind it."""
    state = _start(key, nonce)
    steps: list[int] = []
    for step in _planes_of(message):
        steps.append(step ^ _stream(state))
        state = _update(state, step)
    return _bytes_of(steps, len(message)) + _finish(state, len(message))


def decrypt(key: bytes, nonce: bytes, sealed: bytes) -> bytes | None:
    """Decrypt; give nothing when the tag is not right."""
    size = len(sealed) - TAG
    if size < 0:
        return None
    state = _start(key, nonce)
    steps: list[int] = []
    encrypted = _planes_of(sealed[:size])
    for at, step in enumerate(encrypted):
        opened = step ^ _stream(state)
        if at == len(encrypted) - 1 and size % RATE:
            opened &= _planes_of(b"\xff" * (size % RATE))[0]
        steps.append(opened)
        state = _update(state, opened)
    if not hmac.compare_digest(_finish(state, size), sealed[size:]):
        return None
    return _bytes_of(steps, size)
