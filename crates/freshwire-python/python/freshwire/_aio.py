"""Waiting in asyncio, by file descriptors."""

import asyncio
import os

from ._native import Closed

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


async def next_message(connection):
    """Return the next message of an A1 connection."""
    loop = asyncio.get_running_loop()
    while True:
        message = await loop.run_in_executor(None, _next, connection)
        if message is _END:
            raise StopAsyncIteration
        if message is not None:
            return message


_END = object()


def _next(connection):
    return next(connection, _END)
