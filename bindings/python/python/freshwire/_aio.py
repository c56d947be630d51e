"""Waiting in asyncio, by file descriptors."""

import asyncio
import inspect
import ipaddress
import os
import socket
import time

from ._native import Closed, ConnectError

# The descriptor tells of every decision of the policy. A record that is still being written frees its slots a little later,
# and a kernel ring asks no policy: a look at this interval, in seconds, finds those.
_LOOK = 0.05


async def _readable(fd, timeout=None):
    """Wait until a descriptor is readable; False after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    # Of its own, so that several tasks and loops can wait for the same one.
    watched = os.dup(fd)

    def notice():
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(watched, notice)
        try:
            await asyncio.wait_for(ready, timeout)
        except asyncio.TimeoutError:
            return False
        finally:
            loop.remove_reader(watched)
    finally:
        os.close(watched)
    return True


class _Sink:
    """What sinks have in asyncio."""

    async def writable(self, size=1):
        """Wait, in asyncio, until a push of `size` bytes finds room: `await sink.writable()`."""
        while not self.has_room(size):
            fd = self._room_fd()
            if self.has_room(size):
                return
            await _readable(fd, _LOOK)


class _Receiver:
    """What receivers have in asyncio."""

    async def __anext__(self):
        """Wait for the next record; ends with the stream."""
        while True:
            done, message = self._look()
            if message is not None:
                return message
            if done:
                raise StopAsyncIteration
            await _readable(self.fileno())


async def _taken(open_events, look):
    """Return the first result of `look` that is not None, looking after each change.

    What is there keeps the descriptor readable, for other tasks, threads and loops that wait for it too.
    """
    found = look()
    if found is not None:
        return found
    events = open_events()
    while True:
        events.clear()
        try:
            found = look()
        except BaseException:
            events.set()
            raise
        if found is not None:
            events.set()
            return found
        await _readable(events.fileno())


async def _addresses(host, port):
    """Look up a name; an address is its own. Returned as the native library parses them."""
    loop = asyncio.get_running_loop()
    try:
        ipaddress.ip_address(host.partition("%")[0])
        flags = socket.AI_NUMERICHOST
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)
    except ValueError:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    addresses = []
    for family, *_, address in found:
        if family == socket.AF_INET6:
            scope = f"%{address[3]}" if address[3] else ""
            addresses.append(f"[{address[0].partition('%')[0]}{scope}]:{address[1]}")
        else:
            addresses.append(f"{address[0]}:{address[1]}")
    return addresses


class _Node:
    """What nodes have in asyncio."""

    async def connect_async(self, host, port, key, timeout=10.0, *, qos=None):
        """As `connect`, in asyncio: `await node.connect_async(...)`.

        A name is looked up as asyncio does it, on a thread of the loop's executor; an address is not. The addresses of a name
        are tried one after the other.
        """
        try:
            addresses = await _addresses(host, port)
        except OSError as error:
            raise ConnectError(f"cannot look up the address: {error}") from error
        give_up = time.monotonic() + timeout
        for left, address in zip(range(len(addresses), 0, -1), addresses):
            share = max(give_up - time.monotonic(), 0.0) / left
            try:
                connecting = self.begin_connect(address, key, share, qos=qos)
                return await _taken(connecting.events, connecting.poll_open)
            except ConnectError:
                if left == 1:
                    raise
        raise ConnectError("cannot look up the address: it has none")

    async def accept_async(self):
        """As `accept`, in asyncio and without a time limit: `await node.accept_async()`."""
        return await _taken(self.events, lambda: self.accept(0))

    async def incoming_async(self):
        """As `incoming`, in asyncio and without a time limit: `await node.incoming_async()`."""
        return await _taken(self.events, lambda: self.incoming(0))

    async def __anext__(self):
        """Wait for the next incoming connection; ends when the node is stopped."""
        try:
            return await self.accept_async()
        except Closed:
            raise StopAsyncIteration from None


class _Connection:
    """What connections have in asyncio."""

    async def recv_async(self):
        """As `recv`, in asyncio and without a time limit: `await connection.recv_async()`."""
        return await _taken(self.events, lambda: self.recv(0))

    async def __anext__(self):
        """Wait for the next message; ends where the peer has closed the connection in good order."""

        def look():
            done, message = self._look()
            return _END if done else message

        message = await _taken(self.events, look)
        if message is _END:
            raise StopAsyncIteration
        return message


class _ByteStream:
    """What byte streams have in asyncio."""

    async def read_async(self, size=65536):
        """As `read`, in asyncio and without a time limit: `await stream.read_async()`."""
        return await _taken(self.read_events, lambda: self.read(size, 0))

    async def write_async(self, data):
        """Write all bytes, in asyncio and without a time limit: `await stream.write_async(data)`."""
        view = memoryview(data).cast("B")
        at = 0

        def look():
            nonlocal at
            while at < len(view):
                part = view[at : at + _STEP]
                taken = self.write(part, 0)
                at += taken
                if taken < len(part):
                    return None
            return True

        await _taken(self.write_events, look)

    async def finish_async(self):
        """As `finish`, in asyncio and without a time limit: `await stream.finish_async()`."""
        await _taken(self.write_events, lambda: self._try_finish() or None)

    async def __anext__(self):
        """Wait for bytes; ends with the stream."""
        found = await self.read_async(_STEP)
        if not found:
            raise StopAsyncIteration
        return found


_END = object()

# Bytes that are read or written at most in a step.
_STEP = 1 << 16


def install(native):
    """Give the native classes their coroutines.

    A native method that calls Python would be in the way of a thread that the interpreter unwinds at its end: the process aborts.
    """
    a1 = native.a1
    classes = {
        native.Sink: _Sink,
        native.Receiver: _Receiver,
        a1.Node: _Node,
        a1.Connection: _Connection,
        a1.ByteStream: _ByteStream,
    }
    for kind, methods in classes.items():
        for name, method in vars(methods).items():
            if inspect.iscoroutinefunction(method):
                method.__qualname__ = f"{kind.__name__}.{name}"
                setattr(kind, name, method)
