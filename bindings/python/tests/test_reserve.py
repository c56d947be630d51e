"""Records that Python code reads, receives or encodes into the arena."""

import gc
import os
import re
import socket
import time
from pathlib import Path

import pytest
from conftest import TIMEOUT, make_pair, read_exactly, read_to_end

import freshwire
from freshwire import choice

MANUAL = Path(__file__).parents[3] / "docs/python.md"
BLOCK, BLOCKS = 4096, 16
MOST = BLOCK * BLOCKS
SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, MOST]


def payload(size):
    """Make bytes that differ from their neighbours."""
    return bytes(at % 251 for at in range(size))


@pytest.fixture
def served():
    """Serve two sinks over one arena; yields the sender, the sinks and their readers."""
    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine, freshwire.Ring(rings=2, slots=BLOCKS, block_bytes=BLOCK, blocks=BLOCKS))
        sinks, readers = [], []
        for _ in range(2):
            near, far = make_pair()
            with near:
                sinks.append(sender.add_sink(near, choice.fifo()))
            readers.append(far)
        yield sender, sinks, readers
        for sink in sinks:
            sink.close(freshwire.Close.Abort)
        for far in readers:
            far.close()


def when_free(reserve):
    """Reserve once the memory of what was sent before is free, which an acknowledgement makes it."""
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            return reserve()
        except freshwire.Full:
            assert time.monotonic() < until, "the memory was not freed"
            # Pause: the kernel's acknowledgement.
            time.sleep(0.01)


def nothing_is_left_behind(sink):
    """Reserve all that the arena has."""
    when_free(lambda: sink.reserve(MOST)).release()


def fill(reservation, data):
    """Write bytes into the buffers."""
    at = 0
    for buffer in reservation.buffers:
        part = data[at : at + len(buffer)]
        buffer[: len(part)] = part
        at += len(part)


def test_a_file_is_read_into_the_arena(served, tmp_path):
    _, (sink, _), (far, _) = served
    for size in SIZES:
        (tmp_path / "source").write_bytes(payload(size))
        with when_free(lambda: sink.reserve(MOST)) as reservation, open(tmp_path / "source", "rb", buffering=0) as file:
            assert reservation.size == MOST and sum(map(len, reservation.buffers)) == MOST
            filled = os.readv(file.fileno(), reservation.buffers)
            sink.commit(reservation, filled)
        assert read_exactly(far, size) == payload(size)
    nothing_is_left_behind(sink)


def test_a_block_is_one_buffer_for_readinto_and_recv_into(served, tmp_path):
    _, (sink, _), (far, _) = served
    (tmp_path / "source").write_bytes(payload(BLOCK))
    with sink.reserve(BLOCK) as reservation, open(tmp_path / "source", "rb") as file:
        (buffer,) = reservation.buffers
        sink.commit(reservation, file.readinto(buffer))
    assert read_exactly(far, BLOCK) == payload(BLOCK)
    near, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, end, sink.reserve(BLOCK) as reservation:
        near.send(b"a datagram")
        number = sink.commit(reservation, end.recv_into(reservation.buffers[0]), seq=77)
    assert number == 77 and read_exactly(far, 10) == b"a datagram"


def test_buffers_end_with_the_commit(served):
    _, (sink, _), (far, _) = served
    reservation = sink.reserve(BLOCK)
    (buffer,) = reservation.buffers
    exporter = buffer.obj
    buffer[:3] = b"abc"
    sink.commit(reservation, 3)
    assert read_exactly(far, 3) == b"abc"
    with pytest.raises(ValueError, match="released"):
        buffer[0] = 0
    with pytest.raises(ValueError, match="released"):
        reservation.buffers[0].tobytes()
    with pytest.raises(BufferError):
        memoryview(exporter)
    with pytest.raises(ValueError, match="committed"):
        sink.commit(reservation, 3)
    with pytest.raises(BufferError):
        memoryview(type(exporter)())
    reservation.release()


def test_a_slice_that_is_in_use_keeps_the_reservation(served):
    _, (sink, _), (far, _) = served
    reservation = sink.reserve(BLOCK)
    part = reservation.buffers[0][1:2]
    part[0] = 7
    for end in (lambda: sink.commit(reservation, 2), reservation.release):
        with pytest.raises(BufferError):
            end()
    part.release()
    sink.commit(reservation, 2)
    assert read_exactly(far, 2)[1] == 7


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("end", ["release", "with", "forget", "keep a buffer"])
def test_what_is_given_up_leaks_nothing(served, size, end):
    sender, sinks, _ = served
    for _ in range(3 * BLOCKS):
        reservation = sinks[0].reserve(size)
        buffers = reservation.buffers
        fill(reservation, payload(size // 2))
        if end == "release":
            reservation.release()
            reservation.release()
        elif end == "with":
            with reservation:
                pass
        elif end == "keep a buffer":
            del reservation
            gc.collect()
            # Its memory is still that of no other.
            fresh = sinks[0].reserve(0) if size < MOST else None
            for buffer in buffers:
                buffer[:1] = b"x"
            del fresh
        buffers = buffer = reservation = None
    nothing_is_left_behind(sinks[0])
    assert sinks[0].stats().committed == 0


def test_one_reservation_for_many(served):
    sender, sinks, readers = served
    for size in SIZES:
        reservation = when_free(lambda size=size: sender.reserve(sinks, size))
        fill(reservation, payload(size))
        number, missed = sender.commit_to_all(sinks, reservation, seq=5)
        assert (number, missed) == (5, [])
        for far in readers:
            assert read_exactly(far, size) == payload(size)
        with pytest.raises(ValueError, match="committed"):
            sender.commit_to_all(sinks, reservation)
    sinks[0].close()
    number, missed = sender.commit_to_all(sinks, sender.reserve(sinks, 3), 0)
    assert [(sink, type(error)) for sink, error in missed] == [(sinks[0], freshwire.Closed)]


def test_wrong_arguments_are_refused(served):
    sender, sinks, _ = served
    with pytest.raises(freshwire.TooLarge):
        sinks[0].reserve(MOST + 1)
    with pytest.raises(OverflowError):
        sinks[0].reserve(-1)
    reservation = sinks[0].reserve(10)
    with pytest.raises(ValueError, match="11 bytes in a reservation of 10"):
        sinks[0].commit(reservation, 11)
    with freshwire.Engine() as engine:
        other = freshwire.Sender(engine)
        near, far = make_pair()
        with near, far, other.add_sink(near, choice.fifo()) as stranger:
            with pytest.raises(ValueError, match="made elsewhere"):
                stranger.commit(reservation, 0)
    sinks[0].commit(reservation, 0)
    assert repr(reservation) == "<freshwire.Reservation of 10 bytes>"


def test_a_full_ring_leaves_the_reservation():
    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine, freshwire.Ring(rings=1, slots=8, block_bytes=16, blocks=64))
        sink = sender.add_sink(make_pair_kept(), freshwire.choice.from_function(wait, before=choice.fifo()))
        reservation = sink.reserve(4)
        fill(reservation, b"kept")
        numbers = [sink.push(b"x") for _ in range(8)]
        with pytest.raises(freshwire.Full):
            sink.commit(reservation)
        with pytest.raises(freshwire.Full):
            sink.reserve(1)
        assert sink.drop(numbers[-1])
        sink.commit(reservation)
        sink.close(freshwire.Close.Abort)


KEPT = []


def make_pair_kept():
    """Make a connection that stays open."""
    near, far = make_pair()
    KEPT.extend([near, far])
    return near


def wait(now, queue, link):
    """Send nothing."""
    return choice.Decision.Wait(now + 10**12)


def test_the_manuals_reservation(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    (program,) = [block for block in blocks if block.startswith("def send_file(")]
    (tmp_path / "source").write_bytes(payload(100_000))
    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine, freshwire.Ring(rings=1, slots=64, block_bytes=8192, blocks=64))
        near, far = make_pair()
        namespace = {"os": os}
        exec(program, namespace)
        with near, far:
            with sender.add_sink(near, choice.fifo()) as sink, open(tmp_path / "source", "rb") as file:
                namespace["send_file"](sink, file)
                far.settimeout(TIMEOUT)
                assert read_exactly(far, 100_000) == payload(100_000)
            near.close()
            assert read_to_end(far) == b""
