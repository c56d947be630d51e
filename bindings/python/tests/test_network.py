"""Service asked of the network, and when records left for the device."""

import os
import re
import socket
from pathlib import Path

import pytest
from conftest import TIMEOUT, fates_of, make_pair

import freshwire
from freshwire import NetworkQos, a1, choice

MAX_PACING_RATE = 47
"""`SO_MAX_PACING_RATE`, which the module socket does not name."""


def connect(near, far):
    """Connect two nodes: the near end and the far end."""
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
    accepted = far.accept(TIMEOUT)
    assert accepted is not None
    return connection, accepted


def test_a_network_qos_has_the_fields_of_rust():
    nothing = NetworkQos()
    assert (nothing.dscp, nothing.priority, nothing.max_rate, nothing.departure_times) == (None, None, None, False)
    for text, number in (("EF", 46), ("ef", 46), (46, 46), ("46", 46), ("AF41", 34), (0, 0), (63, 63)):
        assert NetworkQos(dscp=text).dscp == number
    for qos in (nothing, NetworkQos(dscp="AF41", priority=5, max_rate=1_000_000, departure_times=True), NetworkQos(dscp=63)):
        assert eval(repr(qos)) == qos
    assert NetworkQos(priority=1) != nothing


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"dscp": "AF44"}, ValueError, "AF11 to AF43"),
        ({"dscp": 64}, ValueError, "0 to 63"),
        ({"dscp": -1}, TypeError, "dscp"),
        ({"max_rate": 0}, ValueError, "None for no limit"),
        ({"priority": -1}, OverflowError, ""),
        ({"colour": 1}, TypeError, "colour"),
    ],
)
def test_a_wrong_field_is_named(fields, error, words):
    with pytest.raises(error, match=words):
        NetworkQos(**fields)


@pytest.mark.parametrize(("dscp", "value"), [("CS1", 8), ("AF41", 34), (46, 46), (63, 63)])
def test_a_sinks_socket_has_it(engine, pair, dscp, value):
    near, far = pair
    network = NetworkQos(dscp=dscp, priority=5, max_rate=8_000_000)
    with freshwire.Sender(engine).add_sink(near, choice.fifo(), network=network) as sink:
        sink.push(b"marked")
        assert near.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2 == value
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 5
        assert near.getsockopt(socket.SOL_SOCKET, MAX_PACING_RATE) == 1_000_000
        assert far.recv(6) == b"marked"


def test_what_does_not_suit_a_sink_is_refused(engine, pair):
    sender = freshwire.Sender(engine)
    with pytest.raises(ValueError, match="departure times are for datagrams"):
        sender.add_sink(pair[0], choice.fifo(), network=NetworkQos(departure_times=True))
    with pytest.raises(ValueError, match="ack_fates"):
        sender.add_sink(pair[0], choice.fifo(), departures=True, ack_fates=False)
    with pytest.raises(TypeError, match="NetworkQos"):
        sender.add_sink(pair[0], choice.fifo(), network="AF41")


def may_have_any_priority():
    """Whether this process has CAP_NET_ADMIN."""
    status = Path("/proc/self/status").read_text()
    return bool(int(re.search(r"CapEff:\s*(\w+)", status)[1], 16) >> 12 & 1)


@pytest.mark.skipif(may_have_any_priority(), reason="CAP_NET_ADMIN permits every priority")
def test_a_priority_needs_a_capability(engine, pair):
    with pytest.raises(OSError, match="CAP_NET_ADMIN"):
        freshwire.Sender(engine).add_sink(pair[0], choice.fifo(), network=NetworkQos(priority=7))
    with pytest.raises(OSError, match="CAP_NET_ADMIN"):
        a1.Node("127.0.0.1:0", network=NetworkQos(priority=7))


def test_a_node_without_fq_refuses_a_pacing_rate():
    with a1.Node("127.0.0.1:0", network=NetworkQos(max_rate=1_000_000)) as near, a1.Node("127.0.0.1:0") as far:
        with pytest.raises(freshwire.ConnectError, match="not fq"):
            near.connect(*far.address, far.public_key, timeout=TIMEOUT)


@pytest.mark.parametrize("priority", [0, 1, 5, 6, 255])
def test_a_connections_priority_selects_the_class(priority):
    most = a1.Qos(priority=priority)
    with a1.Node("127.0.0.1:0", maximum=most, translate=True) as near, a1.Node("127.0.0.1:0", maximum=most) as far:
        sending, receiving = connect(near, far)
        sink = freshwire.Sender().add_a1_sink(sending, choice.fifo())
        sink.push(b"translated")
        assert receiving.recv(TIMEOUT).payload == b"translated"
        assert near.network_qos == NetworkQos(dscp=min(priority, 5) << 3, priority=min(priority, 6))


def of_messages(size):
    """Return a quality of service with messages of this size."""
    return a1.Qos(max_send_message=size, max_receive_message=size)


@pytest.mark.parametrize("size", [1001, 100_000, 1 << 20])
def test_beyond_the_maximum_a_connection_is_reopened(size):
    with a1.Node("127.0.0.1:0", maximum=of_messages(1000)) as near, a1.Node("127.0.0.1:0", maximum=of_messages(1 << 20)) as far:
        old, _receiving = connect(near, far)
        with pytest.raises(ValueError, match="reopen"):
            old.set_qos(of_messages(size))
        new = near.reopen(old, of_messages(size), TIMEOUT)
        assert (new.qos, new.maximum, new.peer_key) == (of_messages(size), of_messages(size), old.peer_key)
        assert old.closed is None
        receiving = far.accept(TIMEOUT)
        sink = freshwire.Sender(ring=freshwire.Ring(block_bytes=1 << 16, blocks=64)).add_a1_sink(new, choice.fifo())
        sink.push(bytes(size))
        assert len(receiving.recv(TIMEOUT).payload) == size
        with pytest.raises(freshwire.ConnectError, match="beyond the maximum"):
            near.reopen(old, of_messages((1 << 20) + 1), TIMEOUT)
        assert old.maximum == of_messages(1000)


@pytest.mark.parametrize("size", [1, 100, 1448, 65536])
def test_fates_say_when_records_left(engine, size):
    near, far = make_pair()
    with near, far:
        sender = freshwire.Sender(engine, freshwire.Ring(slots=16, block_bytes=65536, blocks=16))
        with sender.add_sink(near, choice.fifo(), departures=True) as sink:
            for _ in range(10):
                sink.push(os.urandom(size))
            left = 10 * size
            while left:
                left -= len(far.recv(65536))
            for fate in fates_of(sink, 10).values():
                assert fate.outcome == freshwire.Outcome.Acked
                times = [fate.committed_at, fate.scheduled_at, fate.departed_at, fate.acked_at]
                # The clocks of a commit and of the kernel's notes are read at different moments.
                assert all(earlier <= later + 20_000_000 for earlier, later in zip(times, times[1:])), times


def test_fates_say_nothing_of_it_by_default(engine, pair):
    with freshwire.Sender(engine).add_sink(pair[0], choice.fifo()) as sink:
        sink.push(b"x")
        fate = fates_of(sink, 1)[0]
        assert (fate.scheduled_at, fate.departed_at) == (None, None)


@pytest.mark.parametrize("size", [1, 100, 1448, 65536])
def test_fates_over_a1_say_when_records_left(size):
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0") as far:
        sending, receiving = connect(near, far)
        sender = freshwire.Sender(ring=freshwire.Ring(slots=16, block_bytes=65536, blocks=16))
        try:
            sink = sender.add_a1_sink(sending, choice.fifo(), departures=True)
        except OSError as error:
            assert "6.13" in str(error)
            pytest.skip(str(error))
        for _ in range(10):
            sink.push(os.urandom(size))
        for _ in range(10):
            assert len(receiving.recv(TIMEOUT).payload) == size
        for fate in fates_of(sink, 10).values():
            assert fate.outcome == freshwire.Outcome.Acked
            times = [fate.committed_at, fate.scheduled_at, fate.departed_at, fate.acked_at]
            assert all(earlier <= later + 20_000_000 for earlier, later in zip(times, times[1:])), times
