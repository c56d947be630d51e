"""Wrong types, wrong values and dead handles give clear errors."""

import pytest
from conftest import make_pair

import freshwire
from freshwire import choice


@pytest.fixture
def sink(engine, pair):
    return freshwire.Sender(engine).add_sink(pair[0], choice.fifo())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda sink: sink.push("text"), TypeError, "bytes-like"),
        (lambda sink: sink.push(None), TypeError, "bytes-like"),
        (lambda sink: sink.push(memoryview(b"abcd")[::2]), BufferError, "contiguous"),
        (lambda sink: sink.push(b"x", key=-1), OverflowError, "negative"),
        (lambda sink: sink.push(b"x", key="a"), TypeError, "integer"),
        (lambda sink: sink.push(b"x", layer=256), OverflowError, "out of range"),
        (lambda sink: sink.push(b"x", refs=(1,)), ValueError, "length 2"),
        (lambda sink: sink.push(b"x", colour=1), TypeError, "colour"),
        (lambda sink: sink.push(b"x", deadline=1, expires_in=1.0), ValueError, "exclude each other"),
        (lambda sink: sink.push(b"x", expires_in=-1.0), ValueError, "expires_in=-1"),
        (lambda sink: sink.push(b"x", expires_in=float("nan")), ValueError, "expires_in"),
        (lambda sink: sink.push(b"x", seq=2**64 - 1), OverflowError, "seq"),
        (lambda sink: sink.replace(b"x"), TypeError, "key"),
        (lambda sink: sink.close("drain"), TypeError, "Close"),
        (lambda sink: sink.close(timeout=-1), ValueError, "timeout"),
        (lambda sink: sink.has_room(-1), OverflowError, "negative"),
        (lambda sink: sink.drop("1"), TypeError, "integer"),
        (lambda sink: freshwire.Sender(sink), TypeError, "Engine"),
        (lambda sink: freshwire.Sender(None, freshwire.Ring(slots=3)), ValueError, "power of two"),
        (lambda sink: freshwire.Receiver(object()), AttributeError, "fileno"),
        (lambda sink: freshwire.Sink(), TypeError, "cannot create"),
        (lambda sink: choice.deadline(margin=-1.0), ValueError, "margin=-1"),
        (lambda sink: choice.policy([1]), TypeError, "Rule"),
        (lambda sink: choice.from_function(7), TypeError, "callable"),
        (lambda sink: freshwire.a1.Node("nowhere"), ValueError, "address"),
        (lambda sink: freshwire.a1.Node(key="12"), ValueError, "64 hexadecimal digits"),
    ],
)
def test_a_wrong_argument_is_named(sink, call, error, words):
    with pytest.raises(error) as caught:
        call(sink)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"framing": "json"}, ValueError, "websocket-binary or event-stream"),
        ({"carrier": "pigeon"}, ValueError, "tcp, auto or kernel"),
        ({"colour": 1}, TypeError, "no argument colour"),
        ({"keys": 10_000}, ValueError, "slots are too few for 10000 keys"),
        ({"congestion": "none-such"}, OSError, "setting"),
        ({"linger": "long"}, TypeError, "real number"),
    ],
)
def test_a_wrong_setting_is_named(engine, pair, options, error, words):
    with pytest.raises(error, match=words):
        freshwire.Sender(engine).add_sink(pair[0], choice.latest(), **options)


def test_a_closed_socket_is_named(engine):
    near, far = make_pair()
    near.close()
    far.close()
    with pytest.raises(ValueError, match="the socket is closed"):
        freshwire.Sender(engine).add_sink(near, choice.fifo())


def test_a_sender_without_an_engine_has_no_tcp_sinks(pair):
    with pytest.raises(freshwire.FreshwireError, match="need an engine"):
        freshwire.Sender().add_sink(pair[0], choice.fifo())


def test_every_exception_is_a_freshwire_error():
    names = ["Full", "TooLarge", "Closed", "TooLate", "NotChanged", "NoFreeRing", "CarrierError", "InvalidStream"]
    names += ["ConnectError", "PolicyError"]
    for name in names:
        assert issubclass(getattr(freshwire, name), freshwire.FreshwireError)
    assert set(names) < set(freshwire.__all__)
