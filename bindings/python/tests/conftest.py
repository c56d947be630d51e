"""Fixtures: an engine, and connections over loopback."""

import os
import socket
import time

import pytest

import freshwire

TIMEOUT = 20.0
"""Seconds after which a condition counts as failed, on a loaded machine."""


def needs(module):
    """Skip without an optional package; with CI=true it must be there."""
    if os.environ.get("CI") == "true":
        return __import__(module)
    return pytest.importorskip(module)


def until(condition, what):
    """Wait for a condition; fail after `TIMEOUT`."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} within {TIMEOUT} s"
        time.sleep(0.002)


def make_pair(**options):
    """Make a connection: the sending end and the receiving end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name, value in options.items():
            server.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
    far.settimeout(TIMEOUT)
    return near, far


def read_exactly(far, count):
    """Read so many bytes."""
    parts = []
    while count:
        part = far.recv(count)
        assert part, f"the stream ended {count} bytes early"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_to_end(far):
    """Read what comes until the end."""
    parts = []
    while part := far.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def fates_of(sink, count):
    """Collect so many fates, by number."""
    found = {}

    def look():
        found.update((fate.seq, fate) for fate in sink.fates())
        return len(found) >= count

    until(look, f"{count} fates")
    return found


@pytest.fixture
def pair():
    near, far = make_pair()
    with near, far:
        yield near, far


@pytest.fixture
def engine():
    with freshwire.Engine() as engine:
        yield engine
