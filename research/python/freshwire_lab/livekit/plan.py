"""What is common to both ends of the link: addresses, renditions, and the files by which they talk."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from pathlib import Path

FAR = "10.77.0.2"
RTSP = 18554
HTTP = 18080
WEBRTC = 18189
LIVEKIT = 18880
LIVEKIT_TCP = 18881
LIVEKIT_UDP = 18882
FPS = 25
GROUP = 50
ROOM = "clock"
# LiveKit's key and secret of `--dev`.
KEY, SECRET = "devkey", "secret"


@dataclass(frozen=True)
class Rendition:
    """A size of the picture, and how it is published."""

    address: str
    width: int
    height: int
    kbit: int
    port: int


# The smallest first.
RENDITIONS = (
    Rendition("clock~small", 320, 180, 150, 18700),
    Rendition("clock~middle", 480, 270, 350, 18702),
    Rendition("clock", 640, 360, 800, 18704),
)


@dataclass(frozen=True)
class Tools:
    """The programs, and LiveKit's client for pages."""

    freshwire: Path
    server: Path
    publisher: Path
    client: Path

    def missing(self) -> list[Path]:
        """Return what is not there."""
        return [path for path in (self.freshwire, self.server, self.publisher, self.client) if not path.is_file()]


class Folder:
    """Files by which the ends and the program that started them talk."""

    def __init__(self, path: Path) -> None:
        """Use a folder."""
        self.path = path
        self.ready = path / "ready"
        self.failed = path / "failed"
        self.results = path / "results.json"

    def fail(self, message: str) -> None:
        """Say why it cannot go on. The first reason stays."""
        if not self.failed.exists():
            self.failed.write_text(message, encoding="utf-8")

    def check(self) -> None:
        """End with the reason if an end has failed."""
        if self.failed.exists():
            raise SystemExit(self.failed.read_text(encoding="utf-8"))


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def token(identity: str) -> str:
    """Return a token (JWT) with which somebody may join the room for an hour."""
    claims = {
        "iss": KEY,
        "sub": identity,
        "exp": int(time.time()) + 3600,
        "video": {"roomJoin": True, "room": ROOM, "canPublish": True, "canSubscribe": True},
    }
    head = {"alg": "HS256", "typ": "JWT"}
    text = ".".join(_part(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{_part(hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256))}"
