"""Sockets of browsers, handed over by an HTTP server at the upgrade."""

import asyncio
import base64
import binascii
import collections
import hashlib
import os
import select
import socket as _socket

from . import _native

_READ = 1 << 14

# Messages that wait to be iterated before reading pauses.
_MOST_WAITING = 64

# Reads of what is left at the sink's end: four times the kernel's default receive buffer.
_READS_AT_END = 32

# What a key is hashed with (RFC 6455, section 1.3), and the version that a request names.
_KEY_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION = "13"


def _check_family(socket):
    """Refuse what is no TCP connection: the kernel's settings for a sink are those of TCP."""
    family = getattr(socket, "family", None)
    if family is not None and family not in (_socket.AF_INET, _socket.AF_INET6):
        name = getattr(family, "name", family)
        raise ValueError(
            f"only a TCP connection can be handed over, and this one is {name}: let the server listen on a TCP port, "
            "such as uvicorn --port in place of --uds"
        )


def _plain_socket(transport):
    """Return the socket of an event loop's transport: asyncio's, or what uvloop gives in its place."""
    if transport.get_extra_info("sslcontext") is not None:
        raise ValueError("a TLS connection cannot be handed over: end TLS in a proxy before this server")
    socket = transport.get_extra_info("socket")
    if socket is None:
        raise ValueError("the transport has no socket: pass that of a TCP connection")
    if transport.is_closing() or socket.fileno() < 0:
        raise ValueError("the connection is closed already")
    if transport.get_write_buffer_size() > 0:
        raise ValueError(
            "the transport has not sent the answer to the upgrade yet: wait until its buffer is empty, "
            "or let WebSocket.accept answer"
        )
    return socket


def _fields(headers):
    """Return the fields of a request by their names in lower case; repeated ones are joined."""
    fields = {}
    for name, value in headers.items() if hasattr(headers, "items") else headers:
        if isinstance(name, bytes):
            name, value = name.decode("latin-1"), value.decode("latin-1")
        name, value = name.lower(), value.strip()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def _tokens(value):
    return [token.strip() for token in value.split(",") if token.strip()]


def _answer(headers, subprotocol):
    """Return the answer to a request that asks for a WebSocket."""
    fields = _fields(headers)
    if "websocket" not in _tokens(fields.get("upgrade", "").lower()):
        raise ValueError("the request does not ask for a WebSocket: it has no header Upgrade: websocket")
    if "upgrade" not in _tokens(fields.get("connection", "").lower()):
        raise ValueError("the request does not ask for a WebSocket: it has no header Connection: Upgrade")
    if fields.get("sec-websocket-version") != _VERSION:
        raise ValueError(f"Sec-WebSocket-Version: {fields.get('sec-websocket-version')} in the request: {_VERSION} is wanted")
    key = fields.get("sec-websocket-key", "")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        is_key = False
    if not is_key:
        raise ValueError("the request has no valid Sec-WebSocket-Key: 16 bytes in base64 are wanted")
    proof = base64.b64encode(hashlib.sha1(key.encode() + _KEY_SUFFIX).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {proof}"]
    if subprotocol is not None:
        offered = _tokens(fields.get("sec-websocket-protocol", ""))
        if subprotocol not in offered:
            raise ValueError(f"subprotocol={subprotocol!r}: the client offers {', '.join(offered) or 'none'}")
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class WebSocket:
    """A client's WebSocket: records pushed into `sink` are messages, and `async for` gives the client's messages.

    `socket` is the connection after the answer to the upgrade: a transport of asyncio or
    uvloop, a `StreamWriter`, or a socket. `accept` also answers.
    `leftover` are the bytes that were read behind the request. Records are text, which has to be UTF-8, or with `binary=True`
    bytes. A client's message of more than `max_message` bytes ends the connection. Further keyword arguments are those of
    `Sender.add_sink`, except for `framing`.

    The connection is duplicated. A transport is closed, so that its protocol sees `connection_lost` at once; the client notices
    nothing. A socket may be closed, and nothing else may read from or write to it then.

    A client that says nothing for `keepalive` seconds is pinged, so that proxies keep the connection, and one that does not answer within
    `keepalive_timeout` seconds is disconnected with code 1011. `keepalive=None` turns both off.

    Pings and the close are answered in the event loop in which it was made. The iteration ends when the client has closed, or
    broke the protocol, which `violation` says, or when the sink has ended, for which `sink.ended` has the reason; `code` is that
    of the close frame. Iterate also where no message is expected: after 64 that nobody has taken, nothing more is read, pings
    included. `async with` closes it at the end of the block, after an exception with the code 1011.

        async with freshwire.WebSocket.accept(sender, transport, headers, choice.latest(), keys=2) as websocket:
            websocket.sink.replace(b'{"door": "open"}', key=1)
            async for message in websocket:
                ...
    """

    def __init__(
        self,
        sender,
        socket,
        policy,
        *,
        leftover=b"",
        binary=False,
        max_message=65536,
        keepalive=15.0,
        keepalive_timeout=30.0,
        **options,
    ):
        transport = None
        if isinstance(socket, asyncio.StreamWriter):
            socket = socket.transport
        if hasattr(socket, "get_extra_info"):
            transport = socket
            socket = _plain_socket(transport)
        _check_family(socket)
        if "framing" in options:
            raise TypeError("WebSocket() has no argument framing: binary=True makes messages of bytes")
        self._loop = asyncio.get_running_loop()
        self._frames = _native._Frames(max_message)
        self._messages = collections.deque()
        self._waiter = None
        self._ended = False
        self._paused = False
        self._at_end = []
        framing = "websocket-binary" if binary else "websocket"
        self._sink = sender.add_sink(socket, policy, framing=framing, **options)
        # Of its own: the transport's descriptor is known to the event loop already.
        self._socket = _socket.socket(fileno=_socket.dup(socket.fileno()))
        self._socket.setblocking(False)
        if transport is not None:
            # Its protocol would send pings, or end what is idle.
            transport.abort()
        self._over = self._sink._end_fd()
        # One file for both. libuv, and so uvloop, stops watching a socket whose error queue has something, as the engine's has.
        self._changes = select.epoll()
        self._changes.register(self._over, select.EPOLLIN)
        self._changes.register(self._socket, select.EPOLLIN)
        self._loop.add_reader(self._changes.fileno(), self._look)
        self._keepalive = keepalive, keepalive_timeout
        self._heard = self._loop.time()
        self._asked = self._timer = self._code = None
        self._acknowledged = 0, 0
        self._take(bytes(leftover))
        if keepalive is not None and not self._ended:
            self._timer = self._loop.call_later(keepalive, self._keep_alive)

    @classmethod
    def accept(
        cls,
        sender,
        transport,
        headers,
        policy,
        *,
        subprotocol=None,
        leftover=b"",
        binary=False,
        max_message=65536,
        keepalive=15.0,
        keepalive_timeout=30.0,
        **options,
    ):
        """Answer a request's upgrade, and take its connection.

        `transport` is that of the request's connection, or its socket; `headers` is a mapping, or pairs of a name and a value.
        `subprotocol` has to be one of those that the client offers. Compression is declined. The other arguments are those of the
        constructor.

        Raises `ValueError` for a request that asks for no WebSocket, for TLS and for a Unix socket. Nothing was sent then, as after
        `NoFreeRing`, so that the server can answer in its own way.
        """
        if "preface" in options:
            raise TypeError("WebSocket.accept() has no argument preface: it is the answer to the upgrade")
        options.update(leftover=leftover, binary=binary, max_message=max_message, preface=_answer(headers, subprotocol))
        options.update(keepalive=keepalive, keepalive_timeout=keepalive_timeout)
        return cls(sender, transport, policy, **options)

    @property
    def sink(self):
        """The sink whose records are the messages to the client."""
        return self._sink

    @property
    def code(self):
        """The code of the client's close frame, or that of the answer to a violation or to its silence; `None` without one."""
        return self._code if self._code is not None else self._frames.code

    @property
    def violation(self):
        """What the client did that WebSocket does not permit, in words; `None` if nothing."""
        return self._frames.violation

    def close(self, code=1000, reason=""):
        """End the connection: the message in progress, then the close frame. Returns at once, and may be called again."""
        self._sink._finish_with(_native._close_frame(code, reason))
        self._end()

    def __aiter__(self):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        self.close(1000 if kind is None else 1011)

    async def __anext__(self):
        while not self._messages:
            if self._ended:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("another task waits for the next message")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        if self._paused and not self._messages:
            self._paused = False
            if not self._ended:
                self._changes.register(self._socket, select.EPOLLIN)
        return message

    def _look(self):
        if self._ended:
            return
        over = False
        for file, _ in self._changes.poll(0):
            if file == self._over:
                over = True
            else:
                self._read()
        if over:
            # What the client has said until then.
            for _ in range(_READS_AT_END):
                if self._ended or not self._read():
                    break
            self._end()

    def _read(self):
        """Read once; False if there is nothing."""
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._heard, self._asked = self._loop.time(), None
            self._take(data)
        else:
            self._sink._finish_with(b"")
            self._end()
        return True

    def _keep_alive(self):
        if self._ended:
            return
        now = self._loop.time()
        every, timeout = self._keepalive
        stats = self._sink.stats()
        records, acknowledged = self._acknowledged
        # Acknowledged records are an answer, too: a slow program reaches the ping behind them late. One that is not read is not heard.
        if self._paused or (stats.finished != records and stats.acked != acknowledged):
            self._acknowledged = stats.finished, stats.acked
            self._heard, self._asked = now, None
        if self._asked is not None and now >= self._asked + timeout:
            self._code = 1011
            self.close(self._code, "no answer to a ping")
            return
        if self._asked is None and now >= self._heard + every:
            self._asked = now
            try:
                self._sink.interject(_native._ping_frame())
            except _native.Closed:
                self._end()
                return
        due = self._heard + every if self._asked is None else self._asked + timeout
        # Acknowledgements do not wake this: looks in between find them.
        self._timer = self._loop.call_later(max(min(due - now, every, timeout), 0.01), self._keep_alive)

    def _take(self, data):
        messages, output, is_last = self._frames.received(data)
        self._messages.extend(messages)
        if len(self._messages) >= _MOST_WAITING and not self._paused:
            self._paused = True
            self._changes.unregister(self._socket)
        if is_last:
            self._sink._finish_with(output)
            self._end()
        elif output:
            try:
                self._sink.interject(output)
            except _native.Closed:
                self._end()
        self._wake()

    def _end(self):
        if self._ended:
            return
        self._ended = True
        self._paused = False
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._changes.fileno())
        self._changes.close()
        self._socket.close()
        os.close(self._over)
        for call in self._at_end:
            call()
        self._wake()

    def _wake(self):
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
