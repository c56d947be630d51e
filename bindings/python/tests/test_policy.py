"""Policies of the library and Python functions."""

import threading

import pytest
from conftest import TIMEOUT, fates_of, make_pair, read_exactly, read_to_end, until

import freshwire
from freshwire import Outcome, Reason, choice
from freshwire.choice import Decision, Order, Rule

READY_MADE = [
    choice.fifo(),
    choice.expiring(),
    choice.deadline(0.01),
    choice.latest(),
    choice.latest([1, 2]),
    choice.layered(),
    choice.frames(),
    choice.screen(),
    choice.live(),
    choice.thesis(1.0),
    choice.priority_progress(1.0),
    choice.policy([Rule.Expired(), Rule.PredictedLate(0.02), Rule.LayerLimit(3)], Order.ByLayer),
]


@pytest.mark.parametrize("policy", READY_MADE, ids=repr)
def test_every_policy_serves_two_sinks(engine, policy):
    sender = freshwire.Sender(engine, freshwire.Ring(rings=2))
    for _ in range(2):
        near, far = make_pair()
        sink = sender.add_sink(near, policy)
        sink.push(b"record", key=1, expires_in=1000.0)
        assert read_exactly(far, 6) == b"record"


def test_a_function_drops_and_sends(engine, pair):
    seen = []

    def odd(now, queue, link):
        seen.append((now, [record.seq for record in queue], link.loss))
        if queue and queue[0].seq % 2 == 0:
            return Decision.Drop(0, Reason.LayerShed)
        return Decision.Send(0) if queue else Decision.Wait()

    sink = freshwire.Sender(engine).add_sink(pair[0], choice.from_function(odd))
    for seq in range(1, 11):
        sink.push(str(seq % 10).encode(), seq=seq)
    sink.close()
    assert read_to_end(pair[1]) == b"13579"
    fates = fates_of(sink, 10)
    assert {seq for seq, fate in fates.items() if fate.reason == Reason.LayerShed} == {2, 4, 6, 8, 10}
    assert all(now <= freshwire.now() and loss == 0.0 for now, _, loss in seen)


def test_a_fate_has_the_reason_of_the_decision(engine, pair):
    reasons = [getattr(Reason, name) for name in dir(Reason) if name[0].isupper()]

    def drop(now, queue, link):
        return Decision.Drop(0, reasons[queue[0].seq]) if queue else Decision.Wait()

    sink = freshwire.Sender(engine).add_sink(pair[0], choice.from_function(drop))
    for seq in range(len(reasons)):
        sink.push(b"x", seq=seq)
    fates = fates_of(sink, len(reasons))
    assert [fates[seq].reason for seq in range(len(reasons))] == reasons
    assert {int(reason) for reason in reasons} == {*range(1, 14), 255}


def test_a_function_goes_before_another_policy(engine, pair):
    def shed(now, queue, link):
        for at, record in enumerate(queue):
            if record.layer > 3:
                return Decision.Drop(at)
        return Decision.Wait()

    sink = freshwire.Sender(engine).add_sink(pair[0], choice.from_function(shed, before=choice.fifo()))
    sink.push(b"low", layer=0)
    high = sink.push(b"high", layer=4)
    sink.push(b"end", layer=1)
    sink.close()
    assert read_to_end(pair[1]) == b"lowend"
    assert fates_of(sink, 3)[high].outcome == Outcome.Dropped


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda queue: 1 / 0, ZeroDivisionError),
        (lambda queue: "send", TypeError),
        (lambda queue: Decision.Send(7), ValueError),
    ],
)
def test_a_function_that_fails_is_told_by_the_sink(engine, pair, answer, cause):
    sink = freshwire.Sender(engine).add_sink(pair[0], choice.from_function(lambda now, queue, link: answer(queue)))
    sink.push(b"x")

    def fails():
        try:
            sink.has_room()
        except freshwire.PolicyError as error:
            return error
        return None

    error = until(fails, "the failure")
    assert isinstance(error.__cause__, cause)
    with pytest.raises(freshwire.PolicyError):
        sink.push(b"y")
    # The engine serves the others.
    near, far = make_pair()
    healthy = freshwire.Sender(engine).add_sink(near, choice.fifo())
    healthy.push(b"fine")
    assert read_exactly(far, 4) == b"fine"


def test_a_function_cannot_call_freshwire(engine, pair):
    errors = []

    def calls(now, queue, link):
        try:
            sink.push(b"more")
        except RuntimeError as error:
            errors.append(str(error))
        return Decision.Send(0)

    sink = freshwire.Sender(engine).add_sink(pair[0], choice.from_function(calls))
    sink.push(b"x")
    assert read_exactly(pair[1], 1) == b"x"
    assert "a policy cannot call Freshwire" in errors[0]


def test_pushes_into_a_full_ring_and_a_slow_function_do_not_block_each_other(engine):
    def slowly(now, queue, link):
        sum(range(2000))
        return Decision.Send(0) if queue else Decision.Wait()

    sender = freshwire.Sender(engine, freshwire.Ring(rings=2, slots=8, blocks=16))
    sinks, readers = [], []
    for _ in range(2):
        near, far = make_pair()
        sinks.append(sender.add_sink(near, choice.from_function(slowly, before=choice.expiring())))
        readers.append(threading.Thread(target=read_to_end, args=(far,)))
        readers[-1].start()

    def fill(sink):
        done = 0
        while done < 2000:
            try:
                sink.push(bytes(100))
                done += 1
            except freshwire.Full:
                pass

    threads = [threading.Thread(target=fill, args=(sink,), daemon=True) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * TIMEOUT)
        assert not thread.is_alive(), "a push waits for the engine, and the engine for the interpreter"
    for sink, reader in zip(sinks, readers):
        sink.close()
        reader.join(TIMEOUT)
        assert sink.stats().finished == 2000


def test_a_gate_opens_with_each_acknowledgement(engine, pair):
    policy, gate = choice.gate(choice.fifo(), 2)
    assert gate.outstanding == 0
    sink = freshwire.Sender(engine).add_sink(pair[0], policy)
    for record in (b"a", b"b", b"c", b"d"):
        sink.push(record)
    assert read_exactly(pair[1], 2) == b"ab"
    until(lambda: gate.outstanding == 2, "two are outstanding")
    assert sink.stats().committed == 2
    gate.acknowledge(1)
    assert read_exactly(pair[1], 1) == b"c"
    gate.acknowledge(1)
    assert sink.stats().committed == 3
    gate.acknowledge_more(1)
    assert read_exactly(pair[1], 1) == b"d"
    gate.acknowledge_more(100)
    assert gate.outstanding == 0
    for wrong, error in ((-1, OverflowError), ("2", TypeError)):
        with pytest.raises(error):
            gate.acknowledge(wrong)


def test_a_gated_policy_serves_one_sink(engine, pair):
    sender = freshwire.Sender(engine, freshwire.Ring(rings=2))
    policy, _ = choice.gate(choice.latest(), 1)
    sender.add_sink(pair[0], policy)
    with pytest.raises(ValueError, match="the policy of gate has a sink: make another one for this sink"):
        sender.add_sink(pair[1], policy)
    with pytest.raises(ValueError, match="a function cannot go before the policy of gate"):
        behind = choice.from_function(lambda now, queue, link: Decision.Wait(), before=choice.gate(choice.fifo(), 1)[0])
        sender.add_sink(pair[1], behind)


def test_a_sink_that_is_not_made_leaves_the_policy_for_another(engine, pair):
    policy, gate = choice.gate(choice.fifo(), 2)
    full = freshwire.Sender(engine)
    _serves = full.add_sink(pair[0], choice.fifo())
    near, far = make_pair()
    with pytest.raises(TypeError, match="has no argument frame"):
        full.add_sink(near, policy, frame="raw")
    with pytest.raises(freshwire.NoFreeRing):
        full.add_sink(near, policy)
    sender = freshwire.Sender(engine)
    sink = sender.add_sink(near, policy)
    sink.push(b"record")
    assert read_exactly(far, 6) == b"record"
    until(lambda: gate.outstanding == 1, "one is outstanding")
    with pytest.raises(ValueError, match="the policy of gate has a sink"):
        sender.add_sink(near, policy)


def test_a_gate_goes_before_a_function(engine, pair):
    def fail(now, queue, link):
        if queue and queue[0].seq == 2:
            raise KeyError("two")
        return Decision.Send(0) if queue else Decision.Wait()

    policy, gate = choice.gate(choice.from_function(fail), 1)
    sink = freshwire.Sender(engine).add_sink(pair[0], policy)
    sink.push(b"a", seq=1)
    assert read_exactly(pair[1], 1) == b"a"
    gate.acknowledge(1)

    def has_failed():
        try:
            sink.push(b"b", seq=2)
        except freshwire.PolicyError as error:
            return isinstance(error.__cause__, KeyError)
        except freshwire.Full:
            pass
        return False

    until(has_failed, "the failure is told")


def test_a_receiver_gets_the_rendition_that_is_selected(engine, pair):
    adaptive = choice.Adaptive()
    assert adaptive.selection.current is None and adaptive.selection.why == "start"
    assert adaptive.cost(0) is None
    second = 1_000_000_000
    for rendition, size in ((0, 10_000), (1, 1_000)):
        adaptive.set_present(rendition, True)
        for number in range(9):
            adaptive.observe(
                size,
                seq=(rendition << 48) + number,
                generated=second + number * second // 4,
                refs=(1 if number % 4 else 0, 0),
            )
    assert adaptive.cost(1) == adaptive.cost(1) != adaptive.cost(0)
    assert (adaptive.cost(1).bytes_per_sec, adaptive.cost(1).key_bytes, adaptive.cost(1).key_interval) == (4000, 1000, 1.0)
    viewer = adaptive.for_another(0b11)
    assert isinstance(viewer, choice.Policy) and viewer.selection.wanted == 1
    assert adaptive.for_another(0b01).selection.wanted == 0
    sender = freshwire.Sender(engine)
    sink = sender.add_sink(pair[0], viewer)
    sink.push(b"key", seq=(1 << 48) + 9)
    assert read_exactly(pair[1], 3) == b"key"
    until(lambda: viewer.selection.current == 1, "it has the rendition")
    assert viewer.selection.changes == 0
    with pytest.raises(ValueError, match="the policy of Adaptive has a sink"):
        sender.add_sink(pair[1], viewer)
    with pytest.raises(ValueError, match="rendition=8: a stream has at most 8, counted from 0"):
        adaptive.set_present(8, True)
    assert [choice.rendition_of(seq) for seq in (5, (7 << 48) + 1, 8 << 48)] == [0, 7, None]
