"""Waiting in asyncio, by file descriptors."""

import asyncio
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


async def writable(sink, size):
    """Wait until a push of `size` bytes finds room."""
    while not sink.has_room(size):
        fd = sink._room_fd()
        if sink.has_room(size):
            return
        await _readable(fd, _LOOK)


async def next_record(receiver):
    """Return the next record of a receiver."""
    while True:
        done, message = receiver._look()
        if message is not None:
            return message
        if done:
            raise StopAsyncIteration
        await _readable(receiver.fileno())


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


async def received(connection):
    """Return the next message of an A1 connection."""
    return await _taken(connection.events, lambda: connection.recv(0))


async def next_message(connection):
    """Return the next message of an A1 connection, in an iteration."""

    def look():
        done, message = connection._look()
        return _END if done else message

    message = await _taken(connection.events, look)
    if message is _END:
        raise StopAsyncIteration
    return message


_END = object()


async def accepted(node):
    """Return the next incoming connection of a node."""
    return await _taken(node.events, lambda: node.accept(0))


async def next_connection(node):
    """Return the next incoming connection of a node, in an iteration."""
    try:
        return await accepted(node)
    except Closed:
        raise StopAsyncIteration from None


async def incoming(node):
    """Return the next connection attempt of a node that asks."""
    return await _taken(node.events, lambda: node.incoming(0))


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


async def connected(node, host, port, key, timeout, qos):
    """Return a connection to a node. The addresses of a name are tried one after the other."""
    try:
        addresses = await _addresses(host, port)
    except OSError as error:
        raise ConnectError(f"cannot look up the address: {error}") from error
    give_up = time.monotonic() + timeout
    for left, address in zip(range(len(addresses), 0, -1), addresses):
        share = max(give_up - time.monotonic(), 0.0) / left
        try:
            connecting = node.begin_connect(address, key, share, qos=qos)
            return await _taken(connecting.events, connecting.poll_open)
        except ConnectError:
            if left == 1:
                raise
    raise ConnectError("cannot look up the address: it has none")


async def read(stream, size):
    """Return the next bytes of a stream; none at its end."""
    return await _taken(stream.read_events, lambda: stream.read(size, 0))


async def next_bytes(stream):
    """Return the next bytes of a stream, in an iteration."""
    found = await read(stream, _STEP)
    if not found:
        raise StopAsyncIteration
    return found


async def write(stream, data):
    """Write all bytes to a stream."""
    view = memoryview(data).cast("B")
    at = 0

    def look():
        nonlocal at
        while at < len(view):
            part = view[at : at + _STEP]
            taken = stream.write(part, 0)
            at += taken
            if taken < len(part):
                return None
        return True

    await _taken(stream.write_events, look)


async def finish(stream):
    """End what a stream sends, and wait for the acknowledgement of all bytes."""
    await _taken(stream.write_events, lambda: stream._try_finish() or None)


# Bytes that are read or written at most in a step.
_STEP = 1 << 16
