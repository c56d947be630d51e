"""The handshake `Noise_IKpsk2_25519_AESGCM_SHA256` (Noise revision 34), both sides."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

KEY = 32
_NAME = b"Noise_IKpsk2_25519_AESGCM_SHA256"
_TAG = 16


class NoiseError(Exception):
    """A handshake message that does not open."""


def public_bytes(key: X25519PrivateKey) -> bytes:
    """Give the public half of a key."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def private_bytes(key: X25519PrivateKey) -> bytes:
    """Give the private half of a key."""
    return key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())


def _hkdf(chaining: bytes, material: bytes, count: int) -> list[bytes]:
    secret = hmac.digest(chaining, material, "sha256")
    outputs = [b""]
    for index in range(count):
        outputs.append(hmac.digest(secret, outputs[-1] + bytes([index + 1]), "sha256"))
    return outputs[1:]


class _Symmetric:
    """Noise's symmetric state; a pre-shared key is in use, so each `e` is mixed into the key as well."""

    def __init__(self, prologue: bytes) -> None:
        self.hash = self.chaining = _NAME
        self.key = bytes(KEY)
        self.nonce = 0
        self.mix_hash(prologue)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        self.chaining, self.key = _hkdf(self.chaining, material, 2)
        self.nonce = 0

    def mix_key_and_hash(self, material: bytes) -> None:
        self.chaining, mixed, self.key = _hkdf(self.chaining, material, 3)
        self.mix_hash(mixed)
        self.nonce = 0

    def ephemeral(self, public: bytes) -> None:
        self.mix_hash(public)
        self.mix_key(public)

    def agree(self, private: X25519PrivateKey, public: bytes) -> None:
        try:
            self.mix_key(private.exchange(X25519PublicKey.from_public_bytes(public)))
        except ValueError as error:
            raise NoiseError(str(error)) from error

    def encrypt(self, data: bytes) -> bytes:
        sealed = AESGCM(self.key).encrypt(self._next_nonce(), data, self.hash)
        self.mix_hash(sealed)
        return sealed

    def decrypt(self, sealed: bytes) -> bytes:
        try:
            data = AESGCM(self.key).decrypt(self._next_nonce(), sealed, self.hash)
        except InvalidTag as error:
            message = "the tag of a handshake message is wrong"
            raise NoiseError(message) from error
        self.mix_hash(sealed)
        return data

    def split(self) -> tuple[bytes, bytes]:
        first, second = _hkdf(self.chaining, b"", 2)
        return first, second

    def _next_nonce(self) -> bytes:
        self.nonce += 1
        return bytes(4) + (self.nonce - 1).to_bytes(8, "big")


class Initiator:
    """The side that knows the other's static key."""

    def __init__(self, static: X25519PrivateKey, peer: bytes, psk: bytes, prologue: bytes) -> None:
        """Begin a handshake with the owner of `peer`."""
        self.state = _Symmetric(prologue)
        self.state.mix_hash(peer)
        self.static, self.peer, self.psk = static, peer, psk
        self.own = X25519PrivateKey.generate()

    def write(self, payload: bytes) -> bytes:
        """Make message 1: e, es, s, ss."""
        public = public_bytes(self.own)
        self.state.ephemeral(public)
        self.state.agree(self.own, self.peer)
        sealed = self.state.encrypt(public_bytes(self.static))
        self.state.agree(self.static, self.peer)
        return public + sealed + self.state.encrypt(payload)

    def read(self, message: bytes) -> bytes:
        """Read message 2: e, ee, se, psk."""
        public = message[:KEY]
        self.state.ephemeral(public)
        self.state.agree(self.own, public)
        self.state.agree(self.static, public)
        self.state.mix_key_and_hash(self.psk)
        return self.state.decrypt(message[KEY:])

    def split(self) -> tuple[bytes, bytes]:
        """Give the secrets for sending and for receiving."""
        return self.state.split()


class Responder:
    """The side that is called."""

    def __init__(self, static: X25519PrivateKey, psk: bytes, prologue: bytes) -> None:
        """Wait for message 1."""
        self.state = _Symmetric(prologue)
        self.state.mix_hash(public_bytes(static))
        self.static, self.psk = static, psk
        self.peer = b""
        self.peer_ephemeral = b""

    def read(self, message: bytes) -> bytes:
        """Read message 1; `peer` is the initiator's static key then."""
        self.peer_ephemeral = message[:KEY]
        self.state.ephemeral(self.peer_ephemeral)
        self.state.agree(self.static, self.peer_ephemeral)
        self.peer = self.state.decrypt(message[KEY : 2 * KEY + _TAG])
        self.state.agree(self.static, self.peer)
        return self.state.decrypt(message[2 * KEY + _TAG :])

    def write(self, payload: bytes) -> bytes:
        """Make message 2."""
        own = X25519PrivateKey.generate()
        public = public_bytes(own)
        self.state.ephemeral(public)
        self.state.agree(own, self.peer_ephemeral)
        self.state.agree(own, self.peer)
        self.state.mix_key_and_hash(self.psk)
        return public + self.state.encrypt(payload)

    def split(self) -> tuple[bytes, bytes]:
        """Give the secrets for sending and for receiving."""
        receiving, sending = self.state.split()
        return sending, receiving
