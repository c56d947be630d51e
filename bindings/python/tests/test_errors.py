"""Wrong types, wrong values and dead handles give clear errors."""

import re
from pathlib import Path

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
        ({"keys": 10_000}, ValueError, r"slots are too few for 10000 keys: raise Ring\(slots=\.\.\.\) to \d+, or use Ring.for_clients"),
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


ROOT = Path(__file__).parents[3]
# Crates whose errors reach Python.
BELOW = [f"crates/{name}" for name in ["freshwire", "a1", "choice", "io", "link", "media", "netns", "record", "ring"]]
BELOW += ["bindings/python"]
RUST = re.compile(r"\b[A-Z]\w*(?:::\w+)+|\b[a-z]\w*::\w+|`[a-z]+_[a-z_]+`")


def texts_of_errors(source):
    """Find the texts in the attributes of errors, and those of exceptions made by hand."""
    for made in re.finditer(r'(?:#\[error\(|new_err\(\s*(?:format!\()?)\s*"((?:[^"\\]|\\.)*)"', source, re.DOTALL):
        # Inline arguments are code.
        yield re.sub(r"\{[^{}]*\}", "", made[1])


def test_messages_have_names_of_python():
    """Each name of Rust in an error of a crate below has one of Python, put in where exceptions are made."""
    table = (ROOT / "bindings/c/src/common/names.rs").read_text().partition("const NAMES")[2].partition("];")[0]
    named = set(re.findall(r'\("([\w:]+)"', table))
    found = set()
    for crate in BELOW:
        for file in (ROOT / crate / "src").rglob("*.rs"):
            for text in texts_of_errors(file.read_text()):
                found.update(RUST.findall(text))
    # What a user types in a shell, or reads in the kernel's documents.
    found -= {"`tcp_ldc`"}
    assert len(named) >= 7 and found == named


def test_messages_at_run_time_have_no_names_of_rust(engine, pair, sink):
    """Those of the table, as far as they can be had without a kernel module."""
    a1 = freshwire.a1
    with a1.Node("127.0.0.1:0") as server, a1.Node("127.0.0.1:0") as client:
        connection = client.connect(*server.address, server.public_key)
        attempts = {
            "Ring(slots=...)": lambda: freshwire.Sender(engine).add_sink(pair[0], choice.latest(), keys=10_000),
            "Ring(rings=...)": lambda: fill(freshwire.Sender(engine), pair[0]),
            "Node(in_order=True)": lambda: a1.ByteStream(connection),
            "no ring": lambda: freshwire.Sender(engine).add_sink(pair[0], choice.latest(), carrier="kernel", framing="chunked"),
        }
        for name, attempt in attempts.items():
            with pytest.raises(Exception) as caught:
                attempt()
            words = str(caught.value)
            assert not RUST.search(words), words
            assert name in words or name == "no ring", words


def fill(sender, socket):
    """Take more rings than there are."""
    return [sender.add_sink(socket, choice.latest()) for _ in range(2)]
