"""The Rust tests `loopback`, `engine` and `state` through Python: what a user of the library relies on over loopback."""

import gc
import socket
import threading
import time
from pathlib import Path

import pytest
from conftest import TIMEOUT, fates_of, make_pair, read_exactly, read_to_end, until

import freshwire
from freshwire import Cause, Close, Ended, Outcome, Reason, choice
from freshwire.choice import Order, Rule

SIZE = 4096
RING = freshwire.Ring(slots=64, block_bytes=SIZE, blocks=64)


def fill(sink):
    """Push until nothing moves any more: the reader's window is full, and the rest is in the ring. Return how many."""
    pushed = 0
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            sink.push(bytes(SIZE), seq=pushed)
            pushed += 1
        except freshwire.Full:
            committed = sink.stats().committed
            # Time for the engine to write on.
            time.sleep(0.05)
            if sink.stats().committed == committed:
                return pushed
        assert time.monotonic() < deadline, "the kernel's buffers take everything"


def read_on_a_thread(far):
    """Read to the end on a thread; return a function that waits for the bytes."""
    parts = []
    reader = threading.Thread(target=lambda: parts.append(read_to_end(far)))
    reader.start()

    def wait():
        reader.join(2 * TIMEOUT)
        return parts[0]

    return wait


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_records_arrive_in_order_over_both_families(engine, family):
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        near = socket.create_connection(server.getsockname()[:2])
        far = server.accept()[0]
    far.settimeout(TIMEOUT)
    with near, far:
        sink = freshwire.Sender(engine, RING).add_sink(near, choice.fifo())
        for seq in range(50):
            sink.push(seq.to_bytes(8, "big"), seq=seq)
        assert sink.close(timeout=TIMEOUT) == Ended.Closed()
        near.close()
        assert read_to_end(far) == b"".join(seq.to_bytes(8, "big") for seq in range(50))
        for seq, fate in enumerate(sink.fates()):
            assert (fate.seq, fate.outcome) == (seq, Outcome.Acked)
            assert fate.committed_at <= fate.finished_at <= fate.acked_at


def test_a_sender_and_a_sink_keep_their_engine(pair):
    near, far = pair
    sink = freshwire.Sender(freshwire.Engine()).add_sink(near, choice.fifo())
    gc.collect()
    sink.push(b"a value")
    assert read_exactly(far, 7) == b"a value"
    assert sink.close(timeout=TIMEOUT) == Ended.Closed()


def test_a_stalled_receiver_leaves_the_choice_to_the_application(engine):
    near, far = make_pair()
    sink = freshwire.Sender(engine, RING).add_sink(near, choice.fifo(), reserve=1)
    near.close()
    newest = fill(sink) - 1
    dropped = sum(sink.drop(seq) for seq in range(newest))
    assert dropped > 30
    sink.modify(newest, b"changed")
    wait = read_on_a_thread(far)
    assert sink.close(timeout=TIMEOUT) == Ended.Closed()
    data = wait()
    assert len(data) == (newest + 1 - dropped) * SIZE
    assert data[-SIZE:][:8] == b"changed\0"


def test_the_horizon_stays_within_its_bound(engine, pair):
    sink = freshwire.Sender(engine, RING).add_sink(pair[0], choice.fifo(), reserve=1)
    fill(sink)
    stats = sink.stats()
    # Loopback's segment is 64 kB; nothing reads, so all that is unsent is one segment at most.
    assert stats.horizon_max <= 65_535 and stats.reserve == 1
    sink.close(Close.Abort)


def test_closing_finishes_the_record_in_progress_or_nothing(engine):
    near, far = make_pair()
    sink = freshwire.Sender(engine, RING).add_sink(near, choice.fifo())
    near.close()
    fill(sink)
    wait = read_on_a_thread(far)
    assert sink.close(Close.FinishRecord, timeout=TIMEOUT) == Ended.Closed()
    assert len(wait()) % SIZE == 0, "a torn record"


def test_a_broken_peer_ends_its_sink_and_no_other(engine, pair):
    sender = freshwire.Sender(engine, freshwire.Ring(rings=2, slots=64, block_bytes=SIZE, blocks=128))
    near, broken = make_pair()
    first, second = sender.add_sink(near, choice.fifo()), sender.add_sink(pair[0], choice.fifo())
    near.close()
    broken.close()

    def has_ended():
        try:
            first.push(b"y")
        except freshwire.Closed:
            pass
        return first.ended

    assert isinstance(until(has_ended, "the sink notices"), Ended.Broken)
    number, missed = sender.push_to_all([first, second], b"still here")
    assert [sink for sink, _ in missed] == [first] and number > 0
    assert read_exactly(pair[1], 10) == b"still here"


def test_what_depends_on_a_dropped_record_is_not_sent(engine):
    near, far = make_pair()
    policy = choice.policy([Rule.DependencyClosure()], Order.Newest)
    sender = freshwire.Sender(engine, freshwire.Ring(slots=64, block_bytes=1 << 16, blocks=64))
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sink = sender.add_sink(near, policy, max_unread=None)
    near.close()
    # While this record is on its way, the others are queued.
    sink.push(bytes(3 << 20), seq=1)
    until(lambda: sink.stats().committed == 1, "the first is on its way")
    for seq, payload, refs in ((2, b"reference", 0), (3, b"depends", 1), (4, b"alone", 0)):
        sink.push(payload, seq=seq, refs=(refs, 0))
    assert sink.drop(2)
    wait = read_on_a_thread(far)
    assert sink.close(timeout=TIMEOUT) == Ended.Closed()
    assert wait()[3 << 20 :] == b"alone"
    fates = fates_of(sink, 4)
    assert (fates[2].reason, fates[3].reason) == (Reason.Application, Reason.ReferenceLost)


def test_a_dropped_sink_whose_peer_never_reads_is_given_up(engine, pair):
    sender = freshwire.Sender(engine, RING)
    near, far = make_pair()
    sink = sender.add_sink(near, choice.fifo(), linger=0.1)
    near.close()
    fill(sink)
    del sink

    def has_a_ring():
        try:
            return sender.add_sink(pair[0], choice.fifo())
        except freshwire.NoFreeRing:
            return None

    # There is one ring, which the engine gives back.
    following = until(has_a_ring, "the engine gives the ring back")
    following.push(b"next")
    assert read_exactly(pair[1], 4) == b"next"
    far.close()


def test_a_peer_that_takes_nothing_is_given_up_after_the_stall_timeout(engine, pair):
    sink = freshwire.Sender(engine, RING).add_sink(pair[0], choice.fifo(), stall_timeout=0.3)
    begin = time.monotonic()

    def has_ended():
        try:
            sink.push(bytes(SIZE))
        except freshwire.FreshwireError:
            pass
        return sink.ended

    ended = until(has_ended, "the stall is noticed")
    assert ended.cause == Cause.Stalled and time.monotonic() - begin >= 0.3


def test_an_idle_peer_is_not_stalled(engine, pair):
    sink = freshwire.Sender(engine, RING).add_sink(pair[0], choice.fifo(), stall_timeout=0.05)
    for _ in range(3):
        sink.push(b"x")
        assert read_exactly(pair[1], 1) == b"x"
        time.sleep(0.2)
    assert sink.ended is None


def test_without_the_module_auto_is_plain_tcp(engine):
    if Path("/sys/module/tcp_ldc").exists():
        pytest.skip("the module tcp_ldc is loaded")
    sender = freshwire.Sender(engine, freshwire.Ring(rings=2))
    near, far = make_pair()
    sink = sender.add_sink(near, choice.fifo(), carrier="auto")
    assert sink.stats().carrier == "tcp"
    sink.push(b"late data")
    assert read_exactly(far, 9) == b"late data"
    with pytest.raises(freshwire.CarrierError, match="tcp_ldc"):
        sender.add_sink(make_pair()[0], choice.fifo(), carrier="kernel")


def test_too_few_slots_for_the_keys_are_named_at_the_start(engine, pair):
    sender = freshwire.Sender(engine, freshwire.Ring(slots=32))
    with pytest.raises(ValueError, match="50 keys"):
        sender.add_sink(pair[0], choice.latest(), keys=50)


def test_a_sink_that_is_refused_costs_no_ring(engine, pair):
    sender = freshwire.Sender(engine, freshwire.Ring(rings=1))
    listening = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    attempts = [
        (listening, OSError, {}),
        (udp, OSError, {}),
        (pair[0], OSError, {"congestion": "no such thing"}),
        (pair[0], freshwire.CarrierError, {"carrier": "kernel", "framing": "chunked"}),
        (pair[0], ValueError, {"keys": 1_000_000}),
    ]
    for time in range(10_000):
        near, error, options = attempts[time % len(attempts)]
        with pytest.raises(error):
            sender.add_sink(near, choice.fifo(), **options)
    listening.close()
    udp.close()
    # Without a name the sink would end before its record is sent.
    sink = sender.add_sink(pair[0], choice.fifo())
    sink.push(b"after")
    assert read_exactly(pair[1], 5) == b"after"


def test_rings_of_ended_sinks_are_used_again(engine):
    sender = freshwire.Sender(engine, freshwire.Ring(rings=1))
    for number in range(3):
        near, far = make_pair()
        sink = sender.add_sink(near, choice.fifo())
        near.close()
        with pytest.raises(freshwire.NoFreeRing, match=r"raise Ring\(rings=\.\.\.\)"):
            sender.add_sink(far, choice.fifo())
        sink.push(bytes([number]))
        assert sink.close(timeout=TIMEOUT) == Ended.Closed()
        assert read_to_end(far) == bytes([number])


def test_an_abort_resets_although_the_socket_is_open(engine, pair):
    near, far = pair
    sink = freshwire.Sender(engine).add_sink(near, choice.fifo())
    far.sendall(b"hello")
    near.settimeout(TIMEOUT)
    assert read_exactly(near, 5) == b"hello"
    assert sink.close(Close.Abort) == Ended.Closed()
    with pytest.raises(ConnectionResetError):
        far.recv(1)


def test_a_value_for_many_sinks_and_what_became_of_each(engine):
    """Each value is sent, overwritten or dropped: the counters add up, and a sink that has left is named."""
    sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=2, keys=3, bytes=2000))
    pairs = [make_pair(SO_RCVBUF=4096) for _ in range(2)]
    sinks = [sender.add_sink(near, choice.latest(), keys=3) for near, _ in pairs]
    numbers = [sender.replace_to_all(sinks, b"%4d" % tick + bytes(1500), key=1 + tick % 3) for tick in range(3000)]
    assert numbers == [(tick, []) for tick in range(3000)]
    for (_, far), sink in zip(pairs, sinks):
        newest = {1: None, 2: None, 3: None}
        while None in newest.values():
            tick = int(read_exactly(far, 1504)[:4])
            if tick >= 2997:
                newest[1 + tick % 3] = tick
        until(lambda sink=sink: accounted(sink.stats()) == 3000, "an account of all")
        stats = sink.stats()
        assert stats.overwritten > 1000 and stats.finished < 2000, stats
        assert len(list(sink.fates())) + sink.fates_lost <= 3000 - stats.overwritten
    pairs[0][1].close()
    until(lambda: sender.replace_to_all(sinks, b"x" * 1000, key=1)[1], "a sink that has left")
    _, missed = sender.replace_to_all(sinks, b"y", key=1)
    assert [(sink, type(error)) for sink, error in missed] == [(sinks[0], freshwire.Closed)]
    with pytest.raises(TypeError, match="key"):
        sender.replace_to_all(sinks, b"y")
    with pytest.raises(freshwire.TooLarge):
        sender.replace_to_all(sinks, bytes(1 << 20), key=1)
    for near, far in pairs:
        near.close()
        far.close()


def accounted(stats):
    """Count the values whose end is known."""
    return stats.finished + stats.overwritten + sum(stats.drops.values())
