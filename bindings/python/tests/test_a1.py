"""A1: nodes and connections."""

import asyncio
import contextlib
import socket
import threading

import pytest
from conftest import TIMEOUT, fates_of

import freshwire
from freshwire import Outcome, a1, choice


@pytest.fixture
def ends():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0") as far:
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        accepted = far.accept(TIMEOUT)
        assert accepted is not None
        yield connection, accepted


def test_messages_arrive_with_what_describes_them(ends):
    near, far = ends
    sink = freshwire.Sender().add_a1_sink(near, choice.fifo())
    seq = sink.push(b"position", key=7, layer=2, group=3, refs=(1, 0))
    message = far.recv(TIMEOUT)
    assert (message.seq, message.payload, message.key) == (seq, b"position", 7)
    assert (message.layer, message.group, message.refs, message.late) == (2, 3, (1, 0), False)
    assert 0 <= message.age < TIMEOUT
    assert fates_of(sink, 1)[seq].outcome == Outcome.Acked
    assert sink.stats().carrier == "a1"


def test_both_ends_know_each_other(ends):
    near, far = ends
    assert far.peer_key is not None
    assert near.peer_key != far.peer_key
    assert near.peer_address[0] == "127.0.0.1"


def test_iteration_ends_with_the_connection(ends):
    near, far = ends
    sink = freshwire.Sender().add_a1_sink(near, choice.fifo())
    received = []
    reader = threading.Thread(target=lambda: received.extend(message.payload for message in far))
    reader.start()
    for number in range(100):
        sink.push(str(number).encode())
    assert sink.close() == freshwire.Ended.Closed()
    reader.join(TIMEOUT)
    assert received == [str(number).encode() for number in range(100)]
    with pytest.raises(freshwire.Closed, match="closed by the peer"):
        far.recv(0)


def test_messages_are_iterated_in_asyncio(ends):
    near, far = ends
    sink = freshwire.Sender().add_a1_sink(near, choice.fifo())

    async def conversation():
        loop = asyncio.get_running_loop()
        for number in range(20):
            sink.push(str(number).encode())
        closing = loop.run_in_executor(None, sink.close)
        received = [int(message.payload) async for message in far]
        await closing
        return received

    assert asyncio.run(asyncio.wait_for(conversation(), TIMEOUT)) == list(range(20))


def test_a_function_decides_over_a1(ends):
    near, far = ends

    def odd(now, queue, link):
        for at, record in enumerate(queue):
            if record.seq % 2 == 0:
                return choice.Decision.Drop(at)
        return choice.Decision.Wait()

    sink = freshwire.Sender().add_a1_sink(near, choice.from_function(odd, before=choice.fifo()))
    for seq in range(1, 101):
        sink.push(str(seq).encode(), seq=seq)
    for seq in range(1, 101, 2):
        assert far.recv(TIMEOUT).seq == seq


def test_who_is_not_allowed_is_refused():
    _, other = a1.generate_key()
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0", allowed=[other]) as far:
        with pytest.raises(freshwire.ConnectError):
            near.connect(*far.address, far.public_key, timeout=1.0)


def test_a_key_gives_the_same_identity_again():
    private, public = a1.generate_key()
    with a1.Node("127.0.0.1:0", key=private) as node:
        assert node.public_key == public
    with pytest.raises(freshwire.Closed, match="stopped"):
        node.accept(0)


@pytest.mark.parametrize("call", ["accept", "incoming", "next", "iterate", "connect"])
def test_closing_a_node_ends_the_calls_of_other_threads(call):
    node = a1.Node("127.0.0.1:0", ask=call == "incoming")
    calls = {
        "accept": node.accept,
        "incoming": node.incoming,
        "next": lambda: next(node, "the end"),
        "iterate": lambda: list(node),
        "connect": lambda: node.connect("127.0.0.1", 9, a1.generate_key()[1], 3600.0),
    }
    started, outcome = threading.Event(), []

    def wait():
        started.set()
        try:
            outcome.append(calls[call]())
        except freshwire.Closed as error:
            outcome.append(str(error))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert started.wait(TIMEOUT)
    node.close()
    waiting.join(TIMEOUT)
    ends = {"next": "the end", "iterate": []}
    assert outcome == [ends.get(call, "the A1 node has stopped")]


def test_a_closed_node_has_no_more_connections():
    node = a1.Node("127.0.0.1:0")
    for _ in range(2):
        node.close()
        assert list(node) == []
        for use in (node.accept, node.stats, lambda: node.address, lambda: node.connect("127.0.0.1", 9, "0" * 64)):
            with pytest.raises(freshwire.Closed, match="stopped"):
                use()


def test_a_sink_that_is_not_made_leaves_the_policy_for_another(ends):
    near, far = ends
    policy, gate = choice.gate(choice.fifo(), 2)
    first = freshwire.Sender().add_a1_sink(near, choice.fifo())
    for wrong, linger in ((freshwire.FreshwireError, 1.0), (ValueError, -1.0)):
        with pytest.raises(wrong):
            freshwire.Sender().add_a1_sink(near, policy, linger=linger)
    sink = freshwire.Sender().add_a1_sink(far, policy)
    sink.push(b"x")
    assert near.recv(TIMEOUT).payload == b"x"
    assert gate.outstanding == 1 and first.ended is None


class Firewall:
    """A host on the way: TCP goes on to the node, and nobody reads what comes to its UDP port."""

    def __init__(self, to):
        self.to = to
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.address = self.tcp.getsockname()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(self.address)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        near, _ = self.tcp.accept()
        far = socket.create_connection(self.to)
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self.forward, args=ends, daemon=True).start()

    @staticmethod
    def forward(source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


def test_records_go_over_tcp_where_udp_does_not_pass():
    with pytest.raises(ValueError, match=r"Node\(attempt_delay=...\)"):
        a1.Node("127.0.0.1:0", attempt_delay=5.0)
    with a1.Node("127.0.0.1:0", tcp_fallback=True) as near, a1.Node("127.0.0.1:0", tcp_fallback=True) as far:
        wall = Firewall(far.address)
        connection = near.connect(*wall.address, far.public_key, timeout=TIMEOUT)
        accepted = far.accept(TIMEOUT)
        assert connection.status().over_tcp and accepted.status().over_tcp
        sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
        numbers = [sink.push(str(number).encode()) for number in range(100)]
        payloads = sorted(int(accepted.recv(TIMEOUT).payload) for _ in numbers)
        assert payloads == list(range(100))
        assert {fate.outcome for fate in fates_of(sink, 100).values()} == {Outcome.Acked}
        assert sink.stats().carrier == "a1-over-tcp"
        wall.udp.close()
