"""Sockets of browsers, handed over after the upgrade."""

import asyncio
import contextlib
import os
import struct

import pytest
from conftest import TIMEOUT, make_pair, needs, read_exactly, until

import freshwire
from freshwire import choice

MASK = b"\x01\x02\x03\x04"


def frame(first, payload):
    """Make a client's frame with this first byte."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    return bytes([first]) + length + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))


def message(far):
    """Read a server's frame: its first byte and its payload."""
    first, size = read_exactly(far, 2)
    if size == 126:
        size = struct.unpack("!H", read_exactly(far, 2))[0]
    return first, read_exactly(far, size)


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def loop(request):
    """Run each test in both event loops: libuv watches sockets in its own way."""
    if request.param == "uvloop":
        LOOPS.append(needs("uvloop").new_event_loop)
    else:
        LOOPS.append(asyncio.new_event_loop)
    yield
    LOOPS.pop()


LOOPS = []


def run(coroutine):
    loop = LOOPS[-1]()
    try:
        return loop.run_until_complete(asyncio.wait_for(coroutine, TIMEOUT))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def apart(function, *arguments):
    """Call a function that blocks."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def test_records_are_messages_and_messages_are_iterated(engine, pair):
    near, far = pair

    async def conversation():
        first = frame(0x81, "grü".encode())
        websocket = freshwire.WebSocket(freshwire.Sender(engine), near, choice.fifo(), leftover=first[:5])
        near.close()
        far.sendall(first[5:] + frame(0x89, b"there?") + frame(0x02, b"a") + frame(0x80, b"b"))
        assert await websocket.__anext__() == "grü"
        assert await websocket.__anext__() == b"ab"
        websocket.sink.push(b"x" * 200)
        # Records and answers wait in queues of their own: their order is the engine's.
        received = [await apart(message, far), await apart(message, far)]
        assert sorted(received) == [(0x81, b"x" * 200), (0x8A, b"there?")]
        far.sendall(frame(0x88, b"\x03\xe9"))
        assert [rest async for rest in websocket] == []
        assert await apart(message, far) == (0x88, b"\x03\xe9")
        assert await apart(far.recv, 1) == b""
        return websocket

    websocket = run(conversation())
    assert (websocket.code, websocket.violation) == (1001, None)
    until(lambda: websocket.sink.ended, "the end")
    with pytest.raises(freshwire.Closed):
        websocket.sink.push(b"late")


def test_a_breach_of_the_protocol_ends_the_iteration(engine, pair):
    near, far = pair

    async def conversation():
        websocket = freshwire.WebSocket(freshwire.Sender(engine), near, choice.latest(), max_message=100, binary=True)
        near.close()
        far.sendall(frame(0x82, b"x" * 101))
        assert [rest async for rest in websocket] == []
        return websocket

    websocket = run(conversation())
    assert websocket.code == 1009 and "limit" in websocket.violation
    first, payload = message(far)
    assert (first, payload[:2]) == (0x88, b"\x03\xf1")


def test_a_close_and_a_client_that_vanishes(engine):
    async def conversation():
        sender = freshwire.Sender(engine, freshwire.Ring(rings=2))
        before = len(os.listdir("/proc/self/fd"))
        (near, far), (other, vanished) = make_pair(), make_pair()
        websockets = [freshwire.WebSocket(sender, socket, choice.fifo()) for socket in (near, other)]
        near.close()
        other.close()
        websockets[0].close(1001, "restart")
        vanished.close()
        for websocket in websockets:
            assert [rest async for rest in websocket] == []
        assert await apart(message, far) == (0x88, b"\x03\xe9restart")
        far.close()
        for websocket in websockets:
            await apart(until, lambda sink=websocket.sink: sink.ended, "the end")
        # Each sink has a file of its end.
        del websocket, websockets
        await apart(until, lambda: len(os.listdir("/proc/self/fd")) <= before + 1, "closed descriptors")

    run(conversation())


@pytest.mark.parametrize("end", ["engine", "stall", "close", "abort"])
def test_the_end_of_the_sink_ends_the_iteration(end):
    """For whatever reason it ends, with what the client had said before, and the client sees it."""
    near, far = make_pair(SO_RCVBUF=4096)
    far.sendall(frame(0x81, b"first"))

    async def conversation():
        engine = freshwire.Engine()
        sender = freshwire.Sender(engine, freshwire.Ring(slots=64, block_bytes=1 << 16, blocks=64))
        options = {"stall_timeout": 0.2} if end == "stall" else {}
        websocket = freshwire.WebSocket(sender, near, choice.fifo(), **options)
        near.close()
        assert await websocket.__anext__() == "first"
        waiting = asyncio.ensure_future(websocket.__anext__())
        await asyncio.sleep(0)
        if end == "engine":
            engine.close()
        elif end == "stall":
            # More than the kernels' buffers take.
            for _ in range(60):
                websocket.sink.push(bytes(60_000))
        else:
            mode = freshwire.Close.Drain if end == "close" else freshwire.Close.Abort
            await apart(websocket.sink.close, mode)
        with pytest.raises(StopAsyncIteration):
            await waiting
        # The connection is reset before the reason is known.
        until(lambda: websocket.sink.ended is not None, "the reason of the end")
        engine.close()
        return type(websocket.sink.ended).__name__, getattr(websocket.sink.ended, "cause", None)

    causes = {"engine": "Stopped", "stall": "Stalled"}
    name, cause = run(conversation())
    assert cause == (getattr(freshwire.Cause, causes[end]) if end in causes else cause)
    assert name.endswith("Broken" if end in causes else "Closed"), name
    with pytest.raises(ConnectionResetError) if end != "close" else contextlib.nullcontext():
        while far.recv(1 << 16):
            pass
    far.close()


def test_a_slow_client_gets_the_newest(engine):
    near, far = make_pair(SO_RCVBUF=4096)

    async def conversation():
        sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=1, keys=1, bytes=1024))
        websocket = freshwire.WebSocket(sender, near, choice.latest(), keys=1)
        for number in range(2000):
            websocket.sink.replace(b"%d " % number + b"x" * 1000, key=1)
        websocket.sink.push(b"last", key=1)
        received = 0
        while True:
            _, payload = await apart(message, far)
            received += 1
            if payload == b"last":
                return received

    with near, far:
        assert run(conversation()) < 1000


def test_a_transport_is_handed_over(engine):
    """What the event loop read before it was paused is the leftover; the rest is read from the descriptor."""

    async def conversation():
        sender = freshwire.Sender(engine)
        made = asyncio.get_running_loop().create_future()

        class Http(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport

            def data_received(self, data):
                self.transport.write(b"101")
                made.set_result(freshwire.WebSocket(sender, self.transport, choice.fifo(), leftover=data))

        server = await asyncio.get_running_loop().create_server(Http, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(frame(0x81, b"one"))
        websocket = await made
        assert await reader.readexactly(3) == b"101"
        writer.write(frame(0x81, b"two"))
        assert [await websocket.__anext__(), await websocket.__anext__()] == ["one", "two"]
        websocket.sink.push(b"state")
        assert await reader.readexactly(7) == b"\x81\x05state"
        websocket.close()
        assert await reader.read() == b"\x88\x02\x03\xe8"
        writer.close()
        server.close()

    run(conversation())


def test_messages_that_nobody_takes_are_not_read(engine, pair):
    near, far = pair
    far.setblocking(False)
    one = frame(0x82, bytes(16000))

    async def conversation():
        websocket = freshwire.WebSocket(freshwire.Sender(engine), near, choice.fifo())
        near.close()
        sent = 0
        stuck = 0
        # Until the buffers of both kernels are full, for a while.
        while stuck < 20:
            try:
                sent += far.send(one[sent % len(one) :])
                stuck = 0
            except BlockingIOError:
                stuck += 1
            await asyncio.sleep(0.01)
            assert len(websocket._messages) <= 66
        for _ in range(sent // len(one)):
            assert len(await websocket.__anext__()) == 16000
        websocket.close()

    run(conversation())


def test_a_silent_client_is_pinged_and_ends_without_an_answer(engine, pair):
    near, far = pair

    async def conversation():
        websocket = freshwire.WebSocket(
            freshwire.Sender(engine), near, choice.fifo(), keepalive=0.05, keepalive_timeout=1.0
        )
        near.close()
        for _ in range(3):
            assert await apart(message, far) == (0x89, b"")
            far.sendall(frame(0x8A, b""))
        assert await apart(message, far) == (0x89, b"")
        assert [rest async for rest in websocket] == []
        assert await apart(message, far) == (0x88, b"\x03\xf3no answer to a ping")
        assert websocket.code == 1011

    run(conversation())


def test_without_keepalive_nobody_is_pinged(engine, pair):
    near, far = pair

    async def conversation():
        silent = freshwire.WebSocket(freshwire.Sender(engine), near, choice.fifo(), keepalive=None)
        near.close()
        assert silent._timer is None
        silent.close()
        assert await apart(message, far) == (0x88, b"\x03\xe8")

    run(conversation())
