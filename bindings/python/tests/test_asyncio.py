"""Waiting in asyncio."""

import asyncio
import gc
import os

import pytest
from conftest import TIMEOUT, make_pair, read_exactly

import freshwire
from freshwire import choice


def run(coroutine):
    async def limited():
        return await asyncio.wait_for(coroutine, TIMEOUT)

    return asyncio.run(limited())


def test_records_are_iterated(engine, pair):
    async def conversation():
        sink = freshwire.Sender(engine).add_sink(pair[0], choice.fifo(), framing="chunked")

        async def produce():
            for number in range(1000):
                await sink.writable(100)
                sink.push(str(number).encode())
                if number % 100 == 0:
                    await asyncio.sleep(0)
            return await asyncio.to_thread(sink.close) if hasattr(asyncio, "to_thread") else sink.close()

        producer = asyncio.ensure_future(produce())
        received = [int(record.payload) async for record in freshwire.Receiver(pair[1])]
        await producer
        return received

    assert run(conversation()) == list(range(1000))


def test_writable_waits_for_room_and_no_longer(engine):
    near, far = make_pair(SO_RCVBUF=4096)
    sender = freshwire.Sender(engine, freshwire.Ring(slots=4, block_bytes=65536, blocks=16))
    sink = sender.add_sink(near, choice.fifo(), max_unread=None)

    async def conversation():
        pushed = 0
        while sink.has_room(65536):
            sink.push(bytes(65536))
            pushed += 1
            await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(sink.writable(65536)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, read_exactly, far, pushed * 65536)
        await asyncio.gather(*waiting)
        assert sink.has_room(65536)

    run(conversation())


def test_writable_of_an_ended_sink_raises(engine, pair):
    sink = freshwire.Sender(engine).add_sink(pair[0], choice.fifo())
    sink.close()

    async def wait():
        await sink.writable()

    with pytest.raises(freshwire.Closed):
        run(wait())


def test_a_cancelled_wait_leaves_no_descriptor(pair):
    receiver = freshwire.Receiver(pair[1])

    async def cancel():
        for _ in range(50):
            task = asyncio.ensure_future(receiver.__anext__())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(cancel())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    run(cancel())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_stream_error_is_raised(pair):
    pair[0].sendall(b"no records, but text")

    async def read():
        async for _ in freshwire.Receiver(pair[1]):
            pass

    with pytest.raises(freshwire.InvalidStream):
        run(read())
