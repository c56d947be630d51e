"""The conversations of the Rust tests, through Python."""

import selectors
import socket
import threading

import pytest
from conftest import TIMEOUT, fates_of, make_pair, read_exactly, read_to_end, until

import freshwire
from freshwire import Close, Ended, Outcome, Reason, choice


def stuck(engine, policy, ring=None, **options):
    """Make a sink whose peer reads nothing, and fill what lies between them; return the sender, the sink and the peer."""
    near, far = make_pair(SO_RCVBUF=4096)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sender = freshwire.Sender(engine, ring or freshwire.Ring(slots=64, block_bytes=65536, blocks=64))
    sink = sender.add_sink(near, policy, max_unread=None, **options)
    near.close()
    filler = sink.push(bytes(1 << 18))
    until(lambda: sink.stats().committed == 1, "the filler is on its way")
    return sender, sink, far, filler


def test_records_arrive_and_are_acknowledged(engine, pair):
    sink = freshwire.Sender(engine).add_sink(pair[0], choice.fifo(), framing="chunked")
    numbers = [sink.push(f"record {number}".encode()) for number in range(100)]
    receiver = freshwire.Receiver(pair[1])
    for number, seq in enumerate(numbers):
        record = receiver.recv(TIMEOUT)
        assert (record.id, record.payload) == (seq, f"record {number}".encode())
        assert record.arrived <= freshwire.now()
    assert sink.close() == Ended.Closed()
    assert next(receiver, None) is None
    fates = fates_of(sink, 100)
    assert {fate.outcome for fate in fates.values()} == {Outcome.Acked}
    assert all(fate.committed_at <= fate.finished_at for fate in fates.values())
    assert list(sink.fates()) == []
    assert sink.stats().finished == 100
    assert sink.ended == Ended.Closed()


@pytest.mark.parametrize(
    "payload",
    [b"bytes", bytearray(b"bytes"), memoryview(b"-bytes")[1:], __import__("array").array("B", b"bytes")],
    ids=lambda payload: type(payload).__name__,
)
def test_payloads_have_the_buffer_protocol(engine, pair, payload):
    sink = freshwire.Sender(engine).add_sink(pair[0], choice.fifo())
    sink.push(payload)
    assert read_exactly(pair[1], 5) == b"bytes"


def test_an_empty_record_and_one_of_many_blocks_arrive(engine, pair):
    sink = freshwire.Sender(engine).add_sink(pair[0], choice.fifo(), framing="length-prefixed")
    big = bytes(range(256)) * 40
    sink.push(b"")
    sink.push(big)
    assert read_exactly(pair[1], 8) == bytes(4) + len(big).to_bytes(4, "big")
    assert read_exactly(pair[1], len(big)) == big


def test_a_queued_record_is_dropped_modified_and_replaced(engine):
    sender, sink, far, filler = stuck(engine, choice.fifo(), framing="chunked")
    dropped = sink.push(b"dropped")
    changed = sink.push(b"before", layer=3)
    sink.push(b"old", key=7)
    newest = sink.replace(b"new", key=7)
    assert sink.drop(dropped)
    assert not sink.drop(dropped), "it is gone"
    sink.modify(changed, b"after!", layer=1)
    with pytest.raises(freshwire.TooLate, match="too late"):
        sink.modify(filler, b"x")
    with pytest.raises(freshwire.NotChanged, match="does not fit"):
        sink.modify(changed, bytes(100_000))
    records = []
    reader = threading.Thread(target=lambda: records.extend(freshwire.Receiver(far)))
    reader.start()
    assert sink.close() == Ended.Closed()
    reader.join(TIMEOUT)
    assert [(record.id, record.payload) for record in records[1:]] == [(changed, b"after!"), (newest, b"new")]
    fates = fates_of(sink, 4)
    assert (fates[dropped].outcome, fates[dropped].reason) == (Outcome.Dropped, Reason.Application)
    assert "application" in str(fates[dropped])


def test_only_the_newest_value_of_a_key_is_sent(engine):
    sender, sink, far, _ = stuck(engine, choice.latest(), freshwire.Ring(slots=64, block_bytes=65536, blocks=64))
    for value in range(1000):
        for key in (1, 2):
            sink.replace(f"{key}:{value};".encode(), key=key)
    reader = threading.Thread(target=lambda: received.append(read_to_end(far)))
    received = []
    reader.start()
    assert sink.close() == Ended.Closed()
    reader.join(TIMEOUT)
    assert sorted(received[0][1 << 18 :].split(b";")) == [b"", b"1:999", b"2:999"]


def test_an_expired_record_is_never_sent(engine):
    sender, sink, far, _ = stuck(engine, choice.expiring())
    late = sink.push(b"late", expires_in=0.0)
    kept = sink.push(b"kept", expires_in=1000.0)
    received = []
    reader = threading.Thread(target=lambda: received.append(read_to_end(far)))
    reader.start()
    sink.close()
    reader.join(TIMEOUT)
    assert received[0][1 << 18 :] == b"kept"
    fates = fates_of(sink, 3)
    assert (fates[late].outcome, fates[late].reason) == (Outcome.Dropped, Reason.Expired)
    assert fates[kept].outcome == Outcome.Acked


def test_a_full_ring_is_an_exception_with_the_same_words(engine):
    ring = freshwire.Ring(slots=4, block_bytes=65536, blocks=16)
    sender, sink, far, _ = stuck(engine, choice.fifo(), ring)
    with pytest.raises(freshwire.Full, match="wait, drop or replace a record"):
        for _ in range(5):
            sink.push(b"x")
    assert not sink.has_room()
    with pytest.raises(freshwire.TooLarge, match="larger than the ring can ever hold"):
        sink.push(bytes(65536 * 5))
    assert any(fate.outcome == Outcome.Refused for fate in sink.fates())


def test_one_payload_for_many_sinks(engine):
    sender = freshwire.Sender(engine, freshwire.Ring(rings=3))
    pairs = [make_pair() for _ in range(3)]
    sinks = [sender.add_sink(near, choice.fifo()) for near, _ in pairs]
    sinks[1].close(Close.Abort)
    seq, missed = sender.push_to_all(sinks, b"to all")
    assert [(sink, type(error)) for sink, error in missed] == [(sinks[1], freshwire.Closed)]
    for at in (0, 2):
        assert read_exactly(pairs[at][1], 6) == b"to all"
        assert fates_of(sinks[at], 1)[seq].outcome == Outcome.Acked
    with pytest.raises(ValueError, match="another sender"):
        freshwire.Sender(engine).push_to_all(sinks, b"x")


def test_a_stale_sink_never_reaches_the_next_one_on_its_ring(engine):
    sender = freshwire.Sender(engine)
    first, second = make_pair(), make_pair()
    old = sender.add_sink(first[0], choice.fifo())
    with pytest.raises(freshwire.NoFreeRing, match="all are in use"):
        sender.add_sink(second[0], choice.fifo())
    assert old.close(Close.Abort) == Ended.Closed()
    new = sender.add_sink(second[0], choice.fifo())
    for call in (lambda: old.push(b"wrong"), lambda: old.drop(1), lambda: old.modify(1, b"")):
        with pytest.raises(freshwire.Closed):
            call()
    new.push(b"right")
    assert read_exactly(second[1], 5) == b"right"


def test_a_peer_that_resets_ends_the_sink(engine):
    sender, sink, far, _ = stuck(engine, choice.fifo())
    # What it has not read makes this a reset.
    far.close()
    until(lambda: sink.ended, "the end of the sink")
    assert isinstance(sink.ended, Ended.Broken)
    assert sink.ended.reason
    with pytest.raises(freshwire.Closed, match="connection is over"):
        sink.push(b"x")


def test_a_drain_without_a_reader_ends_in_time(engine):
    sender, sink, far, _ = stuck(engine, choice.fifo())
    assert isinstance(sink.close(timeout=0.05), Ended.Broken)


def test_an_engine_that_was_stopped_says_so(pair):
    engine = freshwire.Engine()
    assert engine.is_running
    sender = freshwire.Sender(engine)
    sink = sender.add_sink(pair[0], choice.fifo())
    engine.close()
    engine.close()
    assert not engine.is_running
    with pytest.raises(freshwire.Closed, match="the engine has stopped"):
        freshwire.Sender(engine)
    assert isinstance(sink.ended, Ended.Broken)
    with pytest.raises(freshwire.Closed):
        sink.push(b"x")


def test_room_is_waited_for_with_a_selector(engine):
    sender, sink, far, _ = stuck(engine, choice.fifo(), freshwire.Ring(slots=4, block_bytes=65536, blocks=16))
    events = sink.events()
    with selectors.DefaultSelector() as selector:
        selector.register(events, selectors.EVENT_READ)
        with pytest.raises(freshwire.Full):
            for _ in range(100):
                sink.push(bytes(1 << 17))
        reader = threading.Thread(target=read_to_end, args=(far,))
        reader.start()
        pushed = waits = 0
        while pushed < 20:
            try:
                sink.push(bytes(1 << 17))
                pushed += 1
            except freshwire.Full:
                assert selector.select(TIMEOUT), "a change"
                events.clear()
                waits += 1
        assert waits > 0
        sink.close()
        # The end is a change as well.
        assert selector.select(TIMEOUT)
    reader.join()
    with pytest.raises(freshwire.Closed):
        sink.events()


def test_the_answer_to_a_request_goes_between_records(engine, pair):
    sink = freshwire.Sender(engine).add_sink(pair[0], choice.fifo())
    sink.interject(b"answer")
    assert read_exactly(pair[1], 6) == b"answer"
    sink.close()
    with pytest.raises(freshwire.Closed):
        sink.interject(b"more")


def test_a_torn_stream_is_an_error(pair):
    near, far = pair
    near.sendall(b"not a preamble of records")
    near.close()
    with pytest.raises(freshwire.InvalidStream):
        next(freshwire.Receiver(far))


def test_a_receiver_waits_no_longer_than_it_is_told(pair):
    assert freshwire.Receiver(pair[1]).recv(timeout=0.01) is None
