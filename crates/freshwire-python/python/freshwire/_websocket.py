"""Sockets of browsers, handed over by an HTTP server after the upgrade."""

import asyncio
import collections
import socket as _socket

from . import _native

_READ = 1 << 14

# Messages that wait to be iterated before reading pauses.
_MOST_WAITING = 64


class WebSocket:
    """A client's WebSocket: records pushed into `sink` are messages, and `async for` gives the client's messages.

    `socket` is the connection after the answer to the upgrade: an asyncio transport, or a socket. `leftover` are the bytes that
    were read behind the request. Nothing else may read from or write to the connection then. Records are text, which has to be
    UTF-8, or with `binary=True` bytes. A client's message of more than `max_message` bytes ends the connection. Further
    keyword arguments are those of `Sender.add_sink`.

    A client that says nothing for `keepalive` seconds is pinged, so that proxies keep the connection, and one that does not answer within
    `keepalive_timeout` seconds is disconnected with code 1011. `keepalive=None` turns both off.

    Pings and the close are answered in the event loop in which it was made. The iteration ends when the client has closed, or
    broke the protocol, which `violation` says; `code` is that of the close frame. Iterate also where no message is expected: after
    64 that nobody has taken, nothing more is read, pings included.

        websocket = freshwire.WebSocket(sender, transport, choice.latest(), leftover=leftover)
        websocket.sink.replace(b'{"door": "open"}', key=1)
        async for message in websocket:
            ...
    """

    def __init__(self, sender, socket, policy, *, leftover=b"", binary=False, max_message=65536, keepalive=15.0,
                 keepalive_timeout=30.0, **options):
        self._transport = None
        if isinstance(socket, asyncio.BaseTransport):
            self._transport = socket
            socket = self._transport.get_extra_info("socket")
            if socket is None or self._transport.get_extra_info("sslcontext") is not None:
                raise ValueError("the transport has no plain socket: a TLS connection cannot be handed over")
            if self._transport.get_write_buffer_size() > 0:
                raise ValueError("the transport has not sent the answer to the upgrade yet: wait until its buffer is empty")
            self._transport.pause_reading()
        self._loop = asyncio.get_running_loop()
        self._frames = _native._Frames(max_message)
        self._messages = collections.deque()
        self._waiter = None
        self._ended = False
        self._paused = False
        framing = "websocket-binary" if binary else "websocket"
        self._sink = sender.add_sink(socket, policy, framing=framing, **options)
        # Of its own: the transport's descriptor is known to the event loop already.
        self._socket = _socket.socket(fileno=_socket.dup(socket.fileno()))
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)
        self._keepalive = keepalive, keepalive_timeout
        self._heard = self._loop.time()
        self._asked = self._timer = self._code = None
        self._acknowledged = 0, 0
        self._take(bytes(leftover))
        if keepalive is not None and not self._ended:
            self._timer = self._loop.call_later(keepalive, self._keep_alive)

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
        """End the connection: the message in progress, then the close frame. Returns at once."""
        self._sink._finish_with(_native._close_frame(code, reason))
        self._end()

    def __aiter__(self):
        return self

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
            self._loop.add_reader(self._socket, self._read)
        return message

    def _read(self):
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._heard, self._asked = self._loop.time(), None
            self._take(data)
        else:
            self._sink._finish_with(b"")
            self._end()

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
            self._loop.remove_reader(self._socket)
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
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._transport is not None:
            self._transport.close()
        self._wake()

    def _wake(self):
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
