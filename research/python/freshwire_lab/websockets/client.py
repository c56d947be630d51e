"""The clients: plain sockets and epoll, so that their cost is small and the same for each server."""

from __future__ import annotations

import concurrent.futures
import json
import select
import socket
import struct
import sys
import time

MASK = b"\x00\x00\x00\x00"
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
STAMP = b'"t":'
PATIENCE_S = 30
READ_BYTES = 1 << 16
CONNECT_LOOK_S = 0.002


class Client:
    """One WebSocket client, which reads as fast as values come."""

    def __init__(self, host: str, port: int, path: str) -> None:
        """Connect, and shake hands."""
        self.ages: list[tuple[int, int]] = []
        self.acknowledges = "window=" in path
        self.received = b""
        self.socket = connect(host, port)
        self.socket.sendall(HANDSHAKE.format(path=path, host=host, port=port).encode())
        while b"\r\n\r\n" not in self.received:
            data = self.socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the server closed during the handshake")
            self.received += data
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(head.decode("latin-1"))
        self.socket.setblocking(False)

    def read(self, now: int) -> bool:
        """Take in what has come; false at the end."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        buffer = self.received + data if self.received else data
        at = 0
        while (frame := next_frame(buffer, at)) is not None:
            opcode, start, at = frame
            if opcode == 1:
                place = buffer.find(STAMP, start, at)
                if place >= 0:
                    made = buffer[place + len(STAMP) : buffer.index(b",", place)]
                    self.ages.append((now, now - int(made)))
                    if self.acknowledges:
                        ack = f'{{"type":"ack","received":{len(self.ages)}}}'.encode()
                        self.socket.send(bytes([0x81, 0x80 | len(ack)]) + MASK + ack)
            elif opcode == 9:
                payload = buffer[start:at]
                self.socket.send(bytes([0x8A, 0x80 | len(payload)]) + MASK + payload)
            elif opcode == 8:
                return False
        self.received = buffer[at:]
        return True


def connect(host: str, port: int) -> socket.socket:
    """Connect, once the server listens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, port), PATIENCE_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def next_frame(buffer: bytes, at: int) -> tuple[int, int, int] | None:
    """Opcode, begin and end of the payload of the frame that begins at `at`, if it is whole."""
    if len(buffer) < at + 2:
        return None
    size, start = buffer[at + 1], at + 2
    if size == 126:
        if len(buffer) < at + 4:
            return None
        size, start = struct.unpack_from("!H", buffer, at + 2)[0], at + 4
    elif size == 127:
        if len(buffer) < at + 10:
            return None
        size, start = struct.unpack_from("!Q", buffer, at + 2)[0], at + 10
    end = start + size
    return None if len(buffer) < end else (buffer[at] & 15, start, end)


def run(host: str, port: int, path: str, count: int, seconds: float) -> dict[str, object]:
    """Run `count` clients, and return the ages of what they received in the last `seconds`, in nanoseconds."""
    clients: dict[int, Client] = {}
    poll = select.epoll()
    lost = 0

    def read(wait_s: float) -> None:
        nonlocal lost
        for descriptor, _ in poll.poll(wait_s):
            if not clients[descriptor].read(time.monotonic_ns()):
                lost += 1
                poll.unregister(descriptor)

    # A handshake takes some round trips: those that are connected read meanwhile, or old values would wait in their buffers.
    with concurrent.futures.ThreadPoolExecutor(1) as connecting:
        for _ in range(count):
            made = connecting.submit(Client, host, port, path)
            while not made.done():
                read(CONNECT_LOOK_S)
            client = made.result()
            clients[client.socket.fileno()] = client
            poll.register(client.socket, select.EPOLLIN)
    begin = time.monotonic_ns()
    end = begin + round(seconds * 1e9)
    while (now := time.monotonic_ns()) < end:
        read((end - now) / 1e9)
    # What was on the way while the others connected belongs to nobody.
    ages = [[(at, age) for at, age in client.ages if at >= begin] for client in clients.values()]
    return {"clients": count, "lost": lost, "begin": begin, "end": end, "ages": ages}


def main(arguments: list[str]) -> None:
    """Run from the command line: HOST PORT PATH COUNT SECONDS OUTPUT."""
    host, port, path, count, seconds, output = arguments
    result = run(host, int(port), path, int(count), float(seconds))
    with open(output, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1:])
