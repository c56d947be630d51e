"""The publisher, the plain server and the readers of a run, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

# A reader ends when this long nothing came.
SILENCE_S = 1.5
PATIENCE_S = 20.0


async def opened(url: str) -> Any:
    """Connect, as soon as the server is up."""
    from websockets.asyncio.client import connect  # noqa: PLC0415

    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await connect(url, compression=None, max_size=None)
        except OSError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


async def publish(url: str, ready: Path, cell: tuple[int, float, int], seconds: float) -> None:
    """Publish a value of each key at each tick, once the reader is there: when it was made, and something more."""
    keys, hz, size = cell
    connection = await opened(url)
    while not ready.exists():
        await asyncio.sleep(0.05)
    begin = time.monotonic()
    for tick in range(int(seconds * hz)):
        for key in range(keys):
            value = {"t": time.monotonic_ns()}
            if size > len(str(value["t"])):
                value["x"] = "x" * size
            await connection.send(json.dumps({"key": f"k{key}", "value": value}))
        await asyncio.sleep(max(0.0, begin + (tick + 1) / hz - time.monotonic()))
    await connection.close()


async def plain(port: int) -> None:
    """Serve as the manual of `websockets` does: what a publisher says goes to all readers."""
    from websockets.asyncio.server import broadcast, serve  # noqa: PLC0415

    readers: set[Any] = set()

    async def handler(connection: Any) -> None:
        if connection.request.path.startswith("/state/push"):
            async for message in connection:
                broadcast(readers, message)
        else:
            readers.add(connection)
            await connection.wait_closed()
            readers.discard(connection)

    async with serve(handler, "0.0.0.0", port, compression=None, max_size=None):
        await asyncio.get_running_loop().create_future()


async def read(url: str, ready: Path) -> list[tuple[str, int]]:
    """Read as fast as it comes: key and age of each value."""
    from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

    connection = await opened(url)
    await connection.ping()
    ready.touch()
    ages = []
    try:
        while True:
            wait = PATIENCE_S if not ages else SILENCE_S
            message = json.loads(await asyncio.wait_for(connection.recv(), wait))
            if "value" in message:
                ages.append((message["key"], time.monotonic_ns() - message["value"]["t"]))
    except (TimeoutError, ConnectionClosed):
        return ages


def read_slowly(url: str, pace: float, burst_s: float, seconds: float) -> list[tuple[str, int]]:
    """Read `pace` bytes a second, or everything once in `burst_s`, from the socket itself: no library reads ahead."""
    place = urllib.parse.urlsplit(url)
    connection = socket.create_connection((place.hostname or "", place.port or 80), PATIENCE_S)
    request = f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    connection.sendall(
        (request + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode()
    )
    connection.settimeout(0)
    data, ages, begin, taken = b"", [], time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        room = 1 << 20 if burst_s else int((now - begin) * pace) - taken
        try:
            more = connection.recv(room) if room > 0 else b""
        except BlockingIOError:
            more = b""
            taken = int((now - begin) * pace)
        taken += len(more)
        data += more
        if b"\r\n\r\n" in data and data.startswith(b"HTTP"):
            data = data.partition(b"\r\n\r\n")[2]
        while not data.startswith(b"H") and len(data) >= 4:
            head, size = 2, data[1] & 127
            if size == 126:
                head, size = 4, int.from_bytes(data[2:4], "big")
            if len(data) < head + size:
                break
            text, data = data[head : head + size], data[head + size :]
            if text.startswith(b"{") and b'"value"' in text:
                message = json.loads(text)
                ages.append((message["key"], time.monotonic_ns() - message["value"]["t"]))
        time.sleep(burst_s or 0.005)
    return ages


def said_of_reader(port: int) -> dict[str, object]:
    """Ask the server what it says of its reader: how often it was held back, and why."""
    url = f"http://127.0.0.1:{port}/api/values"
    with contextlib.suppress(OSError, LookupError), urllib.request.urlopen(url, timeout=1) as answer:
        watcher = json.load(answer)[0]["watchers"][0]
        return {name: watcher[name] for name in ("held_by", "times_held_unread", "dropped")}
    return {}


def ask(port: int, output: Path) -> None:
    """Ask so again and again."""
    while True:
        said = said_of_reader(port)
        if said:
            output.write_text(json.dumps(said), encoding="utf-8")
        time.sleep(0.2)


def main(arguments: list[str]) -> None:
    """Run from the command line."""
    role, *rest = arguments
    if role == "publish":
        url, ready, keys, hz, size, seconds = rest
        asyncio.run(publish(url, Path(ready), (int(keys), float(hz), int(size)), float(seconds)))
    elif role == "plain":
        asyncio.run(plain(int(rest[0])))
    elif role == "read":
        url, output = rest
        Path(output).write_text(json.dumps(asyncio.run(read(url, Path(output + ".ready")))), encoding="utf-8")
    elif role == "slow":
        url, pace, burst_s, seconds, output = rest
        Path(output + ".ready").touch()
        ages = read_slowly(url, float(pace), float(burst_s), float(seconds))
        Path(output).write_text(json.dumps(ages), encoding="utf-8")
    elif role == "ask":
        ask(int(rest[0]), Path(rest[1]))
    elif role == "burn":
        while os.getppid() > 1:
            sum(range(10_000))
    else:
        raise SystemExit(f"{role} is no role: publish, plain, read, slow or burn is wanted")


if __name__ == "__main__":
    main(sys.argv[1:])
