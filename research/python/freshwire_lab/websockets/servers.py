"""The application on each of the servers, as their own manuals write it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
import time
from typing import Any

HZ = 50
PADDING = "x" * 60
BACKLOG = 1024


def value(number: int) -> str:
    """Return the value: when it was made, and something more."""
    return json.dumps({"t": time.monotonic_ns(), "n": number, "x": PADDING}, separators=(",", ":"))


async def changes():
    """Give a value 50 times a second, without drift."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    number = 0
    while True:
        number += 1
        yield value(number)
        await asyncio.sleep(max(0.0, begin + number / HZ - loop.time()))


async def serve_websockets(host: str, port: int) -> None:
    """Run the package `websockets`: its `broadcast`, as its manual recommends."""
    from websockets.asyncio.server import broadcast, serve  # noqa: PLC0415

    connections: set[Any] = set()

    async def handler(connection: Any) -> None:
        connections.add(connection)
        try:
            await connection.wait_closed()
        finally:
            connections.remove(connection)

    async with serve(handler, host, port, backlog=BACKLOG):
        async for message in changes():
            broadcast(connections, message)


def fastapi_application() -> Any:
    """Return FastAPI's own example: a manager of connections that sends to one after the other."""
    import fastapi  # noqa: PLC0415

    active: list[fastapi.WebSocket] = []

    async def broadcast() -> None:
        async for message in changes():
            for connection in list(active):
                # One that has left is no reason to leave the others without.
                with contextlib.suppress(RuntimeError, fastapi.WebSocketDisconnect):
                    await connection.send_text(message)

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI):
        task = asyncio.create_task(broadcast())
        yield
        task.cancel()

    application = fastapi.FastAPI(lifespan=lifespan)

    async def values(connection: fastapi.WebSocket) -> None:
        await connection.accept()
        active.append(connection)
        try:
            while True:
                await connection.receive_text()
        except fastapi.WebSocketDisconnect:
            active.remove(connection)

    # FastAPI looks the type up, and finds no names of a function.
    values.__annotations__["connection"] = fastapi.WebSocket
    application.websocket("/values")(values)
    return application


def serve_fastapi(host: str, port: int) -> None:
    """Run FastAPI under Uvicorn."""
    import uvicorn  # noqa: PLC0415

    uvicorn.run(fastapi_application(), host=host, port=port, log_level="warning", backlog=BACKLOG)


async def serve_handed_over(host: str, port: int) -> None:
    """Run an HTTP server of asyncio that hands its sockets to Freshwire."""
    import freshwire  # noqa: PLC0415
    from freshwire import choice  # noqa: PLC0415

    viewers: dict[freshwire.WebSocket, asyncio.Task[None]] = {}
    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=512, keys=1, bytes=256))

        async def listen(viewer: freshwire.WebSocket) -> None:
            async for _ in viewer:
                pass
            del viewers[viewer]

        class Http(asyncio.Protocol):
            transport: asyncio.Transport

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = transport  # type: ignore[assignment]

            def data_received(self, data: bytes) -> None:
                # The clients are the comparison's own: one request in one segment, with a key that is always the same.
                self.transport.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                )
                leftover = data.partition(b"\r\n\r\n")[2]
                viewer = freshwire.WebSocket(
                    sender, self.transport, choice.latest(), leftover=leftover, keys=1, ack_fates=False
                )
                viewers[viewer] = asyncio.ensure_future(listen(viewer))

        await asyncio.get_running_loop().create_server(Http, host, port, backlog=BACKLOG)
        async for message in changes():
            sender.push_to_all([viewer.sink for viewer in viewers], message.encode(), key=1)


def publish(host: str, port: int) -> None:
    """Publish to `freshwire serve` over WebSocket."""
    from .client import connect  # noqa: PLC0415

    connection = connect(host, port)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(
        f"GET /state/push HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    answer = connection.recv(4096)
    if not answer.startswith(b"HTTP/1.1 101"):
        raise ConnectionError(answer.decode("latin-1"))

    async def run() -> None:
        async for message in changes():
            payload = f'{{"key":"k","value":{message}}}'.encode()
            connection.sendall(b"\x81\xfe" + struct.pack("!H", len(payload)) + bytes(4) + payload)

    asyncio.run(run())


def main(arguments: list[str]) -> None:
    """Run from the command line: SERVER HOST PORT."""
    name, host, port = arguments[0], arguments[1], int(arguments[2])
    if name == "websockets":
        asyncio.run(serve_websockets(host, port))
    elif name == "fastapi":
        serve_fastapi(host, port)
    elif name == "handed-over":
        asyncio.run(serve_handed_over(host, port))
    elif name == "publisher":
        publish(host, port)
    else:
        raise SystemExit(f"{name} is no server: websockets, fastapi, handed-over or publisher is wanted")


if __name__ == "__main__":
    main(sys.argv[1:])
