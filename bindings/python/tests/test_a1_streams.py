"""A1: a stream of bytes on top of messages."""

import asyncio
import random
import threading

import pytest
from conftest import TIMEOUT

import freshwire
from freshwire import a1, choice


def make_nodes(**options):
    """Make two nodes whose connections carry streams."""
    return [a1.Node("127.0.0.1:0", in_order=True, **options) for _ in range(2)]


@pytest.fixture
def streams():
    near, far = make_nodes()
    with near, far:
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        yield a1.ByteStream(connection), a1.ByteStream(far.accept(TIMEOUT))


@pytest.fixture
def narrow_streams():
    few = a1.Qos(outstanding=2, max_send_message=4096, max_receive_message=4096)
    near, far = make_nodes(maximum=few)
    with near, far:
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        yield a1.ByteStream(connection), a1.ByteStream(far.accept(TIMEOUT))


def write_parts(stream, data):
    """Write in parts of many sizes, and end."""
    at, sizes = 0, [1, 7, 64, 1000, 1473, 20_000, 3, 65_537]
    while at < len(data):
        part = data[at : at + sizes[at % len(sizes)]]
        assert stream.write(part) == len(part)
        at += len(part)
    stream.finish(TIMEOUT)


def test_all_bytes_arrive_in_order_both_ways_at_once(streams):
    near, far = streams
    there, back = random.Random(1).randbytes(2 << 20), random.Random(2).randbytes(1 << 20)
    came = {}
    threads = [
        threading.Thread(target=write_parts, args=(near, there)),
        threading.Thread(target=write_parts, args=(far, back)),
        threading.Thread(target=lambda: came.update(back=b"".join(near))),
    ]
    for thread in threads:
        thread.start()
    assert b"".join(far) == there
    for thread in threads:
        thread.join(TIMEOUT)
    assert came["back"] == back
    assert far.read() == b""


def test_a_question_is_answered_after_its_end(streams):
    near, far = streams
    near.write(bytearray(b"question"))
    near.finish(TIMEOUT)
    with pytest.raises(freshwire.Closed, match="finished"):
        near.write(b"more")
    assert b"".join(far) == b"question"
    far.write(b"answer")
    with far:
        pass
    assert b"".join(near) == b"answer"


def test_what_was_not_finished_was_cut_off(streams):
    near, far = streams
    near.write(b"start")
    assert far.read(5) == b"start"
    near.close()
    with pytest.raises(freshwire.Closed):
        far.read()
    with pytest.raises(freshwire.Closed, match="the stream was closed"):
        near.read()
    with pytest.raises(freshwire.Closed):
        for _ in range(1000):
            far.write(bytes(4096))


def test_a_reader_that_does_not_read_holds_the_writer(narrow_streams):
    near, far = narrow_streams
    assert far.read(timeout=0.02) is None
    data = random.Random(3).randbytes(1 << 20)
    written = near.write(data, timeout=0.05)
    assert 0 < written <= 10 * 4096
    with pytest.raises(TimeoutError):
        near.finish(0.02)


def test_closing_a_stream_ends_the_calls_of_other_threads(narrow_streams):
    near, _ = narrow_streams
    assert near.write(bytes(1 << 20), timeout=0) < 1 << 20
    calls = [near.read, lambda: near.write(bytes(1 << 20)), lambda: near.finish(3600.0)]
    started, outcomes = threading.Barrier(len(calls) + 1), []

    def wait(call):
        started.wait(TIMEOUT)
        try:
            outcomes.append(call())
        except freshwire.Closed:
            outcomes.append("closed")

    waiting = [threading.Thread(target=wait, args=(call,), daemon=True) for call in calls]
    for thread in waiting:
        thread.start()
    started.wait(TIMEOUT)
    # They are had between the slices of the others' waits.
    steps = threading.Thread(target=lambda: (near.read_events(), near.write_events(), near.close()), daemon=True)
    steps.start()
    for thread in [steps, *waiting]:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert outcomes == ["closed"] * len(calls)


def test_a_connection_without_order_or_repair_is_refused():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0", in_order=True) as far:
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        with pytest.raises(ValueError, match="in_order"):
            a1.ByteStream(connection)
        accepted = far.accept(TIMEOUT)
        first = a1.ByteStream(accepted)
        with pytest.raises(freshwire.FreshwireError, match="sink"):
            a1.ByteStream(accepted)
        del first
    unreliable = a1.Qos(retransmission=False)
    with a1.Node("127.0.0.1:0", in_order=True, maximum=unreliable) as near, a1.Node("127.0.0.1:0") as far:
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        with pytest.raises(ValueError, match="retransmission"):
            a1.ByteStream(connection)


def test_bytes_behind_a_missing_message_are_not_handed_out():
    near, far = make_nodes()
    with near, far:
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
        for _ in range(2):
            sink.push(b"bytes")
        accepted = far.accept(TIMEOUT)
        accepted.recv(TIMEOUT)
        stream = a1.ByteStream(accepted)
        with pytest.raises(freshwire.InvalidStream):
            stream.read(timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda stream: stream.write("text"), TypeError, "bytes-like"),
        (lambda stream: stream.read(0), ValueError, "at least one byte"),
        (lambda stream: stream.read(-1), OverflowError, "negative"),
        (lambda stream: stream.read(timeout=-1), ValueError, "timeout=-1"),
        (lambda stream: stream.finish(None), TypeError, "real number"),
    ],
)
def test_a_wrong_argument_is_named(streams, call, error, words):
    with pytest.raises(error) as caught:
        call(streams[0])
    assert words in str(caught.value)


def test_a_stream_flows_both_ways_in_asyncio(narrow_streams):
    near, far = narrow_streams
    there, back = random.Random(4).randbytes(1 << 19), random.Random(5).randbytes(1 << 18)

    async def send(stream, data):
        await stream.write_async(memoryview(data))
        await stream.finish_async()

    async def receive(stream):
        return b"".join([part async for part in stream])

    async def conversation():
        tasks = [send(near, there), receive(near), send(far, back), receive(far)]
        return await asyncio.wait_for(asyncio.gather(*tasks), 3 * TIMEOUT)

    _, came_back, _, came = asyncio.run(conversation())
    assert came == there
    assert came_back == back
