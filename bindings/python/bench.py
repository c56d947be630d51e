"""Cost of a push from Python, with a plain `socket.send` beside it.

    python bench.py [--bytes 1400] [--rounds 21]

Each round measures, one after the other: a burst of pushes into a ring with room (fifo), the same bytes with `socket.send` into
an empty socket buffer, the same bytes appended to a bounded `collections.deque`, and pushes for a while at full speed with a
reader, where a full ring costs what it costs. Medians over the rounds. Needs the release wheel.
"""

import argparse
import collections
import contextlib
import json
import socket
import statistics
import threading
import time

import freshwire
from freshwire import choice

BURST = 1000
SUSTAINED = 0.5
"""Seconds of each sustained measurement."""


def connection():
    """Make a connection whose far end is drained without the interpreter's lock."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]

    def drain():
        buffer = bytearray(1 << 20)
        with contextlib.suppress(ConnectionResetError):
            while far.recv_into(buffer):
                pass

    threading.Thread(target=drain, daemon=True).start()
    return near


def burst_of_pushes(sink, payload, wait):
    """Time pushes that find room, in microseconds each."""
    push = sink.push
    start = time.perf_counter_ns()
    for _ in range(BURST):
        push(payload)
    took = time.perf_counter_ns() - start
    wait()
    return took / BURST / 1000


def burst_of_sends(near, payload):
    """Time writes to the socket, in microseconds each."""
    send = near.send
    took = 0
    for _ in range(BURST // 20):
        start = time.perf_counter_ns()
        for _ in range(20):
            send(payload)
        took += time.perf_counter_ns() - start
        time.sleep(0.0005)
    return took / BURST / 1000


def burst_of_appends(payload):
    """Time appends of a copy to a mailbox, in microseconds each."""
    mailbox = collections.deque(maxlen=BURST)
    start = time.perf_counter_ns()
    for _ in range(BURST):
        mailbox.append(bytearray(payload))
    return (time.perf_counter_ns() - start) / BURST / 1000


def sustained(sink, payload):
    """Count accepted pushes a second, with a reader, at full speed."""
    push, accepted, refused = sink.push, 0, 0
    start = time.perf_counter()
    while time.perf_counter() - start < SUSTAINED:
        for _ in range(100):
            try:
                push(payload)
                accepted += 1
            except freshwire.Full:
                refused += 1
                time.sleep(0.0001)
    return accepted / (time.perf_counter() - start), refused


def main():
    """Measure, and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1400)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    payload = bytes(options.bytes)
    found = collections.defaultdict(list)
    with freshwire.Engine() as engine:
        ring = freshwire.Ring(slots=4096, block_bytes=max(options.bytes, 16), blocks=8192)
        sink = freshwire.Sender(engine, ring).add_sink(connection(), choice.fifo(), ack_fates=False)
        plain = connection()

        def wait():
            while sink.stats().finished < wait.pushed:
                time.sleep(0.001)

        wait.pushed = 0
        for _ in range(options.rounds):
            wait.pushed += BURST
            found["push_us"].append(burst_of_pushes(sink, payload, wait))
            found["send_us"].append(burst_of_sends(plain, payload))
            found["append_us"].append(burst_of_appends(payload))
        for _ in range(5):
            rate, refused = sustained(sink, payload)
            found["pushes_per_s"].append(rate)
            found["refused"].append(refused)
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    print(json.dumps({"bytes": options.bytes, "rounds": options.rounds, **medians}))


if __name__ == "__main__":
    main()
