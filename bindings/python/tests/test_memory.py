"""References and memory over a million records; `make memory` runs it over a hundred million."""

import gc
import os
import sys
import threading

from conftest import TIMEOUT, make_pair

import freshwire
from freshwire import choice

RECORDS = int(os.environ.get("FRESHWIRE_MEMORY_RECORDS", 1_000_000))
ROOM = 6 << 20
"""Bytes that the allocator may take meanwhile. One leaked reference to an object for each record takes more."""


def resident():
    """Return the bytes of memory in use."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def drain(far):
    """Read what comes until the end, into one buffer."""
    buffer = bytearray(1 << 18)
    while far.recv_into(buffer):
        pass


def push_all(sink, payload, count):
    """Push and read fates, as a program does that runs for long."""
    fates = 0
    for number in range(count):
        while True:
            try:
                sink.push(payload, key=number % 50, expires_in=100.0)
                break
            except freshwire.Full:
                fates += sum(1 for _ in sink.fates())
        if number % 256 == 0:
            fates += sum(1 for _ in sink.fates())
    return fates


def test_memory_and_references_are_flat_over_a_million_records(engine):
    near, far = make_pair()
    sender = freshwire.Sender(engine, freshwire.Ring(slots=4096, block_bytes=64, blocks=8192))
    sink = sender.add_sink(near, choice.fifo(), ack_fates=False)
    reader = threading.Thread(target=drain, args=(far,))
    reader.start()
    payload = bytearray(b"x" * 48)
    push_all(sink, payload, RECORDS // 10)
    gc.collect()
    references, objects, memory = sys.getrefcount(payload), len(gc.get_objects()), resident()
    assert push_all(sink, payload, RECORDS) > 0
    gc.collect()
    assert sys.getrefcount(payload) == references
    assert abs(len(gc.get_objects()) - objects) < 1000
    assert resident() - memory < ROOM
    # No view of it is left.
    payload.append(0)
    sink.close()
    reader.join(TIMEOUT)


def test_received_records_leave_nothing_behind(engine):
    near, far = make_pair()
    sender = freshwire.Sender(engine, freshwire.Ring(slots=4096, block_bytes=64, blocks=8192))
    sink = sender.add_sink(near, choice.fifo(), framing="chunked", ack_fates=False)
    done = threading.Event()

    def produce():
        push_all(sink, b"x" * 48, 200_000)
        sink.close()
        done.set()

    threading.Thread(target=produce).start()
    receiver = freshwire.Receiver(far)
    for _ in range(20_000):
        next(receiver)
    gc.collect()
    memory = resident()
    assert sum(1 for _ in receiver) == 180_000
    gc.collect()
    assert resident() - memory < ROOM
    assert done.wait(TIMEOUT)


def test_objects_go_when_nobody_has_them():
    def make():
        engine = freshwire.Engine()
        near, far = make_pair()
        sink = freshwire.Sender(engine).add_sink(near, choice.from_function(lambda now, queue, link: choice.Decision.Wait()))
        sink.push(b"x")
        near.close()
        far.close()

    for _ in range(10):
        make()
    gc.collect()
    threads = len(os.listdir("/proc/self/task"))
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        make()
    gc.collect()
    assert len(os.listdir("/proc/self/task")) <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors
