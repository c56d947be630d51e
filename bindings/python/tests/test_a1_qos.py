"""A1: quality of service, keys, counters and decisions about connections."""

import pytest
from conftest import TIMEOUT, fates_of, until

import freshwire
from freshwire import a1, choice

NARROW = a1.Qos(outstanding=4, max_send_message=4096, max_receive_message=4096)


def connect(near, far, **options):
    """Connect two nodes: the near end and the far end."""
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT, **options)
    accepted = far.accept(TIMEOUT)
    assert accepted is not None
    return connection, accepted


@pytest.fixture
def narrow():
    with a1.Node("127.0.0.1:0", maximum=NARROW) as near, a1.Node("127.0.0.1:0", maximum=NARROW) as far:
        yield connect(near, far)


def fill(sink):
    """Fill the window of a receiver that takes nothing."""
    for number in range(NARROW.outstanding):
        sink.push(str(number).encode())
    until(lambda: sink.stats().finished == NARROW.outstanding, "the window is full")


def test_a_quality_of_service_has_the_fields_of_rust():
    qos = a1.Qos()
    assert (qos.send_average, qos.send_burst, qos.priority) == (None, 65536, 0)
    assert (qos.checksum, qos.retransmission, qos.outstanding) == (True, True, 1024)
    assert qos.receive_window == a1.Qos.MAX_WINDOW
    changed = qos.replace(send_average=1_000_000, priority=3, retransmission=False)
    assert (changed.send_average, changed.priority, changed.retransmission) == (1_000_000, 3, False)
    assert changed != qos
    assert changed.mirrored().receive_average == 1_000_000
    assert changed.mirrored().mirrored() == changed
    assert changed.within(qos).priority == 0
    assert repr(changed).startswith("Qos(send_average=1000000, send_burst=65536,")
    assert eval(repr(changed), {"Qos": a1.Qos}) == changed


def test_the_peer_narrows_what_is_asked_for():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0", maximum=NARROW) as far:
        asked = a1.Qos(priority=0, outstanding=100, max_send_message=1000)
        connection, accepted = connect(near, far, qos=asked)
        assert connection.qos == asked.replace(outstanding=4, max_receive_message=4096)
        assert accepted.qos == connection.qos.mirrored()
        assert connection.maximum.outstanding == 4
        assert connection.protection == "aead"
        with pytest.raises(freshwire.ConnectError, match="beyond the maximum"):
            near.connect(*far.address, far.public_key, qos=a1.Qos(priority=1))


def test_the_quality_of_service_is_changed_and_both_ends_are_told(narrow):
    near, far = narrow
    assert not near.status().qos_changed
    lower = NARROW.replace(outstanding=2, max_send_message=100)
    near.set_qos(lower)
    until(lambda: near.status().qos_changed, "the change is in force here")
    assert near.qos == lower
    until(lambda: far.status().qos_changed, "the change is in force there")
    assert far.qos == lower.mirrored()
    with pytest.raises(ValueError, match="beyond the maximum"):
        near.set_qos(NARROW.replace(outstanding=5))
    sink = freshwire.Sender().add_a1_sink(near, choice.fifo())
    sink.push(bytes(101))
    fate = until(lambda: next(iter(sink.fates()), None), "a fate")
    assert (fate.outcome, fate.reason) == (freshwire.Outcome.Dropped, freshwire.Reason.Invalid)
    near.close()
    until(lambda: far.closed, "the end")
    for end in narrow:
        with pytest.raises(freshwire.Closed):
            end.set_qos(lower)


def test_a_full_window_is_a_status_and_dropped_records_are_reported(narrow):
    near, far = narrow
    sink = freshwire.Sender().add_a1_sink(near, choice.deadline())
    fill(sink)
    sink.push(b"it waits")
    until(lambda: near.status().window_exceeded, "the window is exceeded")
    stale = [sink.push(b"stale", deadline=freshwire.now()) for _ in range(3)]
    fresh = sink.push(b"fresh")
    received = [far.recv(TIMEOUT).seq for _ in range(NARROW.outstanding + 2)]
    assert received == [0, 1, 2, 3, 4, fresh]
    for seq, fate in fates_of(sink, len(received) + len(stale)).items():
        assert fate.reason == (freshwire.Reason.Expired if seq in stale else None)
    told = []
    while len(told) < 3:
        missing = until(far.poll_missing, "a report")
        assert isinstance(missing, a1.Missing.NeverCommitted)
        assert missing.reason == freshwire.Reason.Expired
        told.extend(range(missing.first, missing.first + missing.count))
    assert told == stale
    assert far.poll_missing() is None


def test_lost_messages_stay_lost_without_retransmission():
    unreliable = a1.Qos(retransmission=False)
    with a1.Node("127.0.0.1:0", maximum=unreliable) as near, a1.Node("127.0.0.1:0") as far:
        connection, accepted = connect(near, far)
        assert not connection.qos.retransmission
        assert not accepted.qos.retransmission
        sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
        sink.push(b"once")
        assert accepted.recv(TIMEOUT).payload == b"once"
        assert connection.stats().payload_resent == 0


def test_messages_come_in_order_where_that_is_wanted():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0", in_order=True) as far:
        connection, accepted = connect(near, far)
        sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
        sent = [sink.push(bytes(size)) for size in (5000, 1, 3000, 1)]
        assert [accepted.recv(TIMEOUT).seq for _ in sent] == sent


def test_a_shared_secret_is_needed():
    secret = "5a" * 32
    with a1.Node("127.0.0.1:0", psk=secret) as far:
        with a1.Node("127.0.0.1:0", psk=secret) as near:
            connection, _ = connect(near, far)
            assert connection.closed is None
        with a1.Node("127.0.0.1:0", psk="5b" * 32) as near, pytest.raises(freshwire.ConnectError):
            near.connect(*far.address, far.public_key, timeout=0.5)


def test_an_allowed_key_connects_and_another_is_refused():
    private, public = a1.generate_key()
    with a1.Node("127.0.0.1:0", allowed=[public]) as far:
        with a1.Node("127.0.0.1:0", key=private) as near:
            _, accepted = connect(near, far)
            assert accepted.peer_key == public
        with a1.Node("127.0.0.1:0") as near, pytest.raises(freshwire.ConnectError, match="code 1"):
            near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        assert far.stats().refused >= 1


def test_the_application_decides_about_connections():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0", ask=True) as far:
        going = near.begin_connect("{}:{}".format(*far.address), far.public_key, TIMEOUT)
        incoming = far.incoming(TIMEOUT)
        assert (incoming.peer_key, incoming.protection) == (near.public_key, "aead")
        assert incoming.peer_address == near.address
        assert incoming.qos.outstanding == incoming.maximum.outstanding == 1024
        accepted = incoming.accept(a1.Qos(outstanding=7))
        assert accepted.qos.outstanding == 7
        with pytest.raises(freshwire.Closed, match="accepted or refused before"):
            incoming.refuse()
        opened = until(going.poll_open, "the connection")
        assert opened.qos.outstanding == 7

        going = near.begin_connect("{}:{}".format(*far.address), far.public_key, TIMEOUT)
        far.incoming(TIMEOUT).refuse(300, "not today")
        with pytest.raises(freshwire.ConnectError, match="not today"):
            until(going.poll_open, "the refusal")


def test_a_dropped_attempt_is_refused():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0", ask=True) as far:
        going = near.begin_connect("{}:{}".format(*far.address), far.public_key, TIMEOUT)
        incoming = far.incoming(TIMEOUT)
        assert incoming is not None
        del incoming
        with pytest.raises(freshwire.ConnectError, match="code 256"):
            until(going.poll_open, "the refusal")


def test_counters_and_ends_of_connections(narrow):
    near, far = narrow
    sink = freshwire.Sender().add_a1_sink(near, choice.fifo())
    sink.push(b"x" * 3000)
    assert far.recv(TIMEOUT).payload == b"x" * 3000
    stats = near.stats()
    assert stats.payload_sent == 3000
    assert stats.packets_sent > 2
    assert far.stats().messages_received == 1
    near.close(300, "enough")
    assert near.closed == a1.Closed.Local()
    until(lambda: far.closed, "the end")
    assert far.closed == a1.Closed.Peer(300, "enough")
    assert far.status().closed == far.closed
    assert repr(far.closed) == 'Closed.Peer(300, "enough")'
    assert far.memberships() == []


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: a1.Qos(outstanding=0), ValueError, "outstanding"),
        (lambda: a1.Qos(send_average=0), ValueError, "None for no limit"),
        (lambda: a1.Qos(priority=256), OverflowError, "out of range"),
        (lambda: a1.Qos(checksum=1), TypeError, "bool"),
        (lambda: a1.Qos(colour=1), TypeError, "no field colour"),
        (lambda: a1.Node("127.0.0.1:0", colour=1), TypeError, "no argument colour"),
        (lambda: a1.Node("127.0.0.1:0", maximum=3), TypeError, "Qos"),
        (lambda: a1.Node("127.0.0.1:0", protection="rot13"), ValueError, "aead or dangerous-plain"),
        (lambda: a1.Node("127.0.0.1:0", congestion="none"), ValueError, "copa, cubic and newreno"),
        (lambda: a1.Node("127.0.0.1:0", idle_timeout=None), TypeError, "real number"),
        (lambda: a1.Node("127.0.0.1:0", keep_alive=-1), ValueError, "keep_alive=-1"),
        (lambda: a1.Node("127.0.0.1:0", psk="secret"), ValueError, "psk"),
        (lambda: a1.Node("127.0.0.1:0", allowed=["me"]), ValueError, "allowed"),
        (lambda: a1.Node("127.0.0.1:0", join=16), TypeError, "Join"),
        (lambda: a1.Join(interface="eth0"), ValueError, "interface"),
        (lambda: a1.Node("127.0.0.1:0").group("127.0.0.1:5000", 1000), ValueError, "not a multicast address"),
        (lambda: a1.Node("127.0.0.1:0").group("239.255.78.1:5004", 0), ValueError, "rate"),
        (lambda: a1.Node("127.0.0.1:0").group("239.255.78.1:5004", 1, datagram=100), ValueError, "too small"),
        (lambda: a1.Node("127.0.0.1:0").begin_connect("localhost:1", "00" * 32), ValueError, "address"),
        (lambda: a1.ByteStream(None), TypeError, "Connection"),
        (lambda: a1.Connection(), TypeError, "cannot create"),
        (lambda: a1.Group(), TypeError, "cannot create"),
        (lambda: a1.Incoming(), TypeError, "cannot create"),
    ],
)
def test_a_wrong_argument_is_named(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
