"""Tests of the second implementation of A1: its parts, and two of its ends against each other in virtual time."""

from __future__ import annotations

import os
import random
import unittest
from importlib.util import find_spec
from typing import TYPE_CHECKING

if find_spec("cryptography") is None and os.environ.get("CI") != "true":
    message = "the package cryptography (python3-cryptography) is not there"
    raise unittest.SkipTest(message)


from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from freshwire_lab.a1 import aegis, noise
from freshwire_lab.a1 import frames as f
from freshwire_lab.a1.acks import Acks, full_number
from freshwire_lab.a1.connection import Connection
from freshwire_lab.a1.handshake import Agreed, Answerer, Caller, Identity, RefusedError
from freshwire_lab.a1.head import Head
from freshwire_lab.a1.incoming import Delivered, Event, WentAway, WereDropped
from freshwire_lab.a1.outgoing import Message, Outgoing
from freshwire_lab.a1.protection import next_secret, nonce_of
from freshwire_lab.a1.quality import Parameters, Quality
from freshwire_lab.a1.wire import Ranges, Reader, WireError, encode_ranges, read_ranges, signed, varint

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = ("192.0.2.1", 5000)


class WireTest(unittest.TestCase):
    """Numbers and ranges."""

    def test_varints_are_those_of_rfc_9000(self) -> None:
        """The examples of its appendix A.1, the last in two bytes where one is enough."""
        for data, value in (
            ("c2197c5eff14e88c", 151288809941952652),
            ("9d7f3e7d", 494878333),
            ("7bbd", 15293),
            ("25", 37),
        ):
            self.assertEqual(varint(value).hex(), data)
            self.assertEqual(Reader(bytes.fromhex(data)).varint(), value)
        self.assertEqual(Reader(b"\x40\x25").varint(), 37)
        self.assertRaises(ValueError, varint, 1 << 62)
        self.assertRaises(WireError, Reader(b"\xc0").varint)

    def test_signed_varints_have_the_sign_in_the_lowest_bit(self) -> None:
        """As spec/a1.md says: 0, -1, 1, -2 are 0, 1, 2, 3."""
        for value in (0, -1, 1, -2, 1 << 40, -(1 << 40)):
            self.assertEqual(Reader(signed(value)).signed(), value)
        self.assertEqual([signed(value)[0] for value in (0, -1, 1, -2)], [0, 1, 2, 3])

    def test_ranges_come_back(self) -> None:
        """The first is the highest, and what is between counts less one."""
        spans = [(90, 100), (80, 88), (3, 3)]
        self.assertEqual(encode_ranges(spans).hex(), "4064020a0008404b00")
        self.assertEqual(read_ranges(Reader(encode_ranges(spans))), spans)
        self.assertRaises(WireError, read_ranges, Reader(bytes.fromhex("050006")))
        self.assertRaises(WireError, read_ranges, Reader(bytes.fromhex("052000")))

    def test_a_set_of_ranges_is_a_set(self) -> None:
        """Whatever is added and removed."""
        source, ranges, model = random.Random(1), Ranges(), set[int]()
        for _ in range(2000):
            low = source.randrange(100)
            end = low + source.randrange(10)
            if source.random() < 0.6:
                ranges.add(low, end)
                model |= set(range(low, end))
            else:
                ranges.remove(low, end)
                model -= set(range(low, end))
            self.assertEqual([n for low, end in ranges.spans for n in range(low, end)], sorted(model))
            self.assertEqual(ranges.covers(low, end), set(range(low, end)) <= model)
            missing = [n for first, behind in ranges.missing(low, end) for n in range(first, behind)]
            self.assertEqual(missing, [n for n in range(low, end) if n not in model])

    def test_a_number_is_the_one_nearest_to_the_expected(self) -> None:
        """A1-PKT-2."""
        for expected in (0, 5, 0xFFFFFF, 0x1000000, 0x1800001, 1 << 40):
            for number in (expected, expected + 1000, max(expected - 1000, 0)):
                self.assertEqual(full_number(number & 0xFFFFFF, expected, 24), number)


class AcksTest(unittest.TestCase):
    """What is acknowledged, and when."""

    def test_a_gap_is_reported_at_once_and_once_more(self) -> None:
        """A1-ACK-2; a number is processed once (A1-PKT-3)."""
        acks = Acks(25_000)
        for number in (0, 1, 4):
            self.assertTrue(acks.is_new(number))
            acks.add(number, 1000)
            acks.wants_answer(1000, at_once=False)
        self.assertFalse(acks.is_new(1))
        self.assertEqual(acks.next_time(), 1000)
        nacks = [acks.frames(1000, 1000)[-4:].hex() for _ in range(3)]
        self.assertEqual(nacks[:2], ["03030001", "03030001"])
        self.assertNotEqual(nacks[2], "03030001")

    def test_what_overtakes_earns_patience(self) -> None:
        """A1-ACK-2: as long as it took and a quarter more."""
        acks = Acks(25_000)
        for number, now in ((0, 0), (2, 1000), (1, 5000), (4, 6000)):
            acks.add(number, now)
        self.assertEqual(acks.next_time(), 6000 + 5000)


class AegisTest(unittest.TestCase):
    """The cipher of packets."""

    def test_the_vectors_of_rfc_10032_hold(self) -> None:
        """AEGIS-128X2 of nothing."""
        key, nonce = bytes(range(16)), bytes(range(16, 32))
        self.assertEqual(aegis.encrypt(key, nonce, b"").hex(), "63117dc57756e402819a82e13eca8379")

    def test_what_is_sealed_opens_and_nothing_else(self) -> None:
        """At all sizes around a step."""
        key, nonce = bytes(16), bytes(range(16))
        for size in (0, 1, 31, 32, 63, 64, 65, 128, 1000):
            message = random.Random(size).randbytes(size)
            sealed = aegis.encrypt(key, nonce, message)
            self.assertEqual(aegis.decrypt(key, nonce, sealed), message)
            broken = bytearray(sealed)
            broken[size // 2] ^= 1
            self.assertIsNone(aegis.decrypt(key, nonce, bytes(broken)))
        self.assertIsNone(aegis.decrypt(key, nonce, bytes(15)))

    def test_the_example_of_the_spec_holds(self) -> None:
        """A PING under a given secret, and the next secret."""
        secret = bytes(range(32))
        sealed = aegis.encrypt(secret[:16], nonce_of(secret, 0x0102030405060708), b"\x01")
        self.assertEqual(sealed.hex(), "9fe51858caf9cd227c5c5441a7badf16e7")
        self.assertEqual(next_secret(secret).hex(), "175be51cefc3b84970a27f0f2545e06ce08f385615d91430920829cc62992819")


class FramesTest(unittest.TestCase):
    """Frames come back as they were, and what cannot be is refused."""

    def test_frames_come_back(self) -> None:
        """All that this peer writes."""
        head = Head(5, 3, -7, time=-12, keeps=300)
        frames = [
            f.Ack(5, 77, 1, [(3, 9), (0, 1)]),
            f.Nack([(2, 2)]),
            f.Sync(99),
            f.SyncEcho(1, 2, 3),
            f.Gone(4, 1000, 1),
            f.Dropped(9, 3, 2),
            f.Credit(64, 1 << 26),
            f.Qos(3, Quality(), answer=True),
            f.Path(bytes(8), response=False),
            f.Close(256, "über"),
            f.Run(7, Head(16), 3, 500, bytes(29)),
        ]
        data = b"".join(frame.encode() for frame in frames)
        block = f.Block(6, head, 0, last=False, data=b"abc")
        self.assertEqual(list(f.parse(data + block.encode(sized=True) + bytes(9))), [*frames, block])

    def test_a_next_is_the_message_behind(self) -> None:
        """It has of the head before what it does not name (A1-FRM-4)."""
        first, second = Head(2, layer=4, time=10, keeps=9), Head(3, layer=4, time=8, keeps=9)
        following = f.encode_next(second, first, b"xyz")
        assert following is not None
        data = f.Block(6, first, 0, last=True, data=b"ab").encode(sized=False) + following
        self.assertEqual(list(f.parse(data))[1], f.Block(7, second, 0, last=True, data=b"xyz"))
        self.assertIsNone(f.encode_next(Head(3), first, b"xyz"))

    def test_what_cannot_be_is_refused(self) -> None:
        """A1-FRM-1 to A1-FRM-5."""
        runs = ("280000000f00000000", "2800000010100000ff")
        for data in ("0f", "06", "3f", "20", "0120", "1501ff", "150002c328", "10050500", *runs):
            with self.subTest(data), self.assertRaises(WireError):
                list(f.parse(bytes.fromhex(data)))


class NoiseTest(unittest.TestCase):
    """The handshake against itself."""

    def test_both_sides_get_the_same_secrets(self) -> None:
        """And the responder knows the initiator's key."""
        one, two = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        initiator = noise.Initiator(one, noise.public_bytes(two), bytes(32), b"prologue")
        responder = noise.Responder(two, bytes(32), b"prologue")
        self.assertEqual(responder.read(initiator.write(b"hello")), b"hello")
        self.assertEqual(initiator.read(responder.write(b"world")), b"world")
        self.assertEqual(responder.peer, noise.public_bytes(one))
        self.assertEqual(initiator.split(), responder.split()[::-1])

    def test_another_prologue_or_shared_key_does_not_open(self) -> None:
        """The prologue at once, the shared key in the answer."""
        one, two = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        message = noise.Initiator(one, noise.public_bytes(two), bytes(32), b"a").write(b"")
        self.assertRaises(noise.NoiseError, noise.Responder(two, bytes(32), b"b").read, message)
        initiator = noise.Initiator(one, noise.public_bytes(two), bytes(32), b"a")
        responder = noise.Responder(two, bytes(31) + b"1", b"a")
        responder.read(initiator.write(b""))
        self.assertRaises(noise.NoiseError, initiator.read, responder.write(b""))


class World:
    """Two ends, and a path of 10 ms each way that loses, doubles and reorders, in virtual time."""

    def __init__(self, loss: float = 0.0, parameters: Parameters | None = None) -> None:
        """Connect them."""
        self.random = random.Random(3)
        self.loss = loss
        self.now = 1_000_000
        self.flying: list[tuple[int, int, bytes]] = []
        self.consumed: tuple[list[Event], list[Event]] = ([], [])
        one, two = shake_hands(parameters or Parameters(), self.now)
        self.ends = (Connection(one, self.now, 1), Connection(two, self.now, 2))

    def run(self, until: Callable[[], bool], seconds: int = 120) -> None:
        """Go on until something is so."""
        end = self.now + seconds * 1_000_000
        while not until():
            assert self.now < end, "it takes too long"
            for index, connection in enumerate(self.ends):
                for datagram in connection.poll(self.now):
                    self._send(1 - index, datagram)
            times = [when for when, _, _ in self.flying] + [each.next_time(self.now) for each in self.ends]
            self.now = max(self.now + 1, min(times))
            due = sorted(each for each in self.flying if each[0] <= self.now)
            self.flying = [each for each in self.flying if each[0] > self.now]
            for _, to, datagram in due:
                self.ends[to].receive(datagram, self.now)
            for connection, seen in zip(self.ends, self.consumed, strict=True):
                for event in list(connection.incoming.events)[len(seen) :]:
                    seen.append(event)
                    if isinstance(event, Delivered):
                        connection.incoming.consume(event)

    def _send(self, to: int, datagram: bytes) -> None:
        for _ in range(2 if self.random.random() < self.loss / 2 else 1):
            if self.random.random() >= self.loss:
                late = 4_000 if self.random.random() < self.loss / 2 else 0
                self.flying.append((self.now + 10_000 + late, to, datagram))


def shake_hands(parameters: Parameters, now: int) -> tuple[Agreed, Agreed]:
    """Do a handshake in memory."""
    answerer = Answerer(Identity(X25519PrivateKey.generate()), parameters)
    caller = Caller(Identity(X25519PrivateKey.generate()), answerer.identity.public, parameters, ADDRESS[0], now)
    theirs: Agreed | None = None
    for _ in range(3):
        reply, agreed = answerer.receive(caller.poll(now) or b"", ADDRESS, now)
        theirs = agreed or theirs
        ours = caller.receive(reply or b"", now)
        if ours is not None and theirs is not None:
            return ours, theirs
    message = "no handshake"
    raise AssertionError(message)


class ConnectionTest(unittest.TestCase):
    """Two ends."""

    def test_the_handshake_agrees(self) -> None:
        """A Retry first, then the same ids, secrets and quality at both ends; a repeated Initiation has its answer."""
        one, two = shake_hands(Parameters(), 5)
        self.assertEqual((one.own_id, one.peer_id), (two.peer_id, two.own_id))
        self.assertEqual((one.sending, one.receiving), (two.receiving, two.sending))

    def test_who_may_not_connect_is_refused(self) -> None:
        """With code 1 (A1-HS-4)."""
        answerer = Answerer(Identity(X25519PrivateKey.generate()), Parameters(), frozenset([bytes(32)]))
        caller = Caller(Identity(X25519PrivateKey.generate()), answerer.identity.public, Parameters(), ADDRESS[0], 0)
        retry, _ = answerer.receive(caller.poll(0) or b"", ADDRESS, 0)
        caller.receive(retry or b"", 0)
        refusal, agreed = answerer.receive(caller.poll(0) or b"", ADDRESS, 0)
        self.assertIsNone(agreed)
        with self.assertRaisesRegex(RefusedError, "code 1"):
            caller.receive(refusal or b"", 0)

    def test_all_comes_whatever_is_lost(self) -> None:
        """Both ways, encrypted and plain, with key updates."""
        for loss, protection in ((0.0, 0), (0.15, 0), (0.3, 0), (0.15, 1)):
            with self.subTest(loss=loss, protection=protection):
                world = World(loss, Parameters(protection=protection))
                source = random.Random(5)
                sizes = (0, 1, 40, 40, 3000, 50_000)
                sent = [[source.randbytes(source.choice(sizes)) for _ in range(60)] for _ in range(2)]
                for connection, messages in zip(world.ends, sent, strict=True):
                    connection.update_after = 50
                    for number, data in enumerate(messages):
                        connection.send(Message(number, data, connection.time(world.now)))
                world.run(lambda world=world: all(end.outgoing.idle for end in world.ends))
                for connection, messages in zip(world.ends, sent[::-1], strict=True):
                    events = [event for event in connection.incoming.events if isinstance(event, Delivered)]
                    self.assertEqual({event.application: event.data for event in events}, dict(enumerate(messages)))
                    self.assertEqual(len(events), len(messages))
                    self.assertEqual(connection.strange, {})
                    self.assertEqual(connection.protection.sending.updates > 0, protection == 0)
                world.ends[0].close(0, "", world.now)
                world.run(lambda world=world: world.ends[0].over(world.now))

    def test_what_is_stale_is_given_up_and_told(self) -> None:
        """Each message is delivered, gone or dropped, and the peer hears of all (A1-MSG-3, A1-MSG-4)."""
        world = World(0.2)
        for number in range(200):
            world.ends[0].send(Message(number, bytes(20_000), world.ends[0].time(world.now), keeps=300_000))
        world.run(lambda: world.ends[0].outgoing.idle and not world.ends[0].recovery.in_flight)
        events = world.ends[1].incoming.events
        whole = sum(isinstance(event, Delivered) for event in events)
        gone = sum(isinstance(event, WentAway) for event in events)
        dropped = sum(event.count for event in events if isinstance(event, WereDropped))
        self.assertTrue(whole > 0 and gone > 0 and dropped > 0, (whole, gone, dropped))
        self.assertEqual(whole + gone + dropped, 200)

    def test_who_breaks_a_rule_is_closed_with_code_1(self) -> None:
        """Each with a text that says what."""
        big = f.Block(0, None, 1 << 20, last=False, data=b"x").encode(sized=True)
        pieces = b"".join(f.Block(0, None, 2 * n, last=False, data=b"x").encode(sized=True) for n in range(67))
        for frame, text in (
            (f.Ack(0, 0, 0, [(900, 900)]).encode(), "A1-ACK-4: packet 900"),
            (f.Block(0, Head(10), 0, last=False, data=bytes(20)).encode(sized=True), "A1-FRM-2"),
            (f.Block(64, Head(1), 0, last=True, data=b"x").encode(sized=True), "A1-FLOW-3: message 64 is beyond"),
            (big, "A1-FLOW-3: message 0 of 1048577 bytes"),
            (f.Gone(0, 5, 1).encode() + f.Gone(1100, 5, 1).encode(), "A1-FLOW-3"),
            (pieces, "A1-FRM-6: message 0 comes in 67 pieces"),
            (b"\x1d\x05", "A1-FEC-3"),
            (b"\x3f", "no frame of type 0x3f"),
            (b"\x01\x20", "A1-FRM-4"),
        ):
            with self.subTest(text):
                quality = Quality(largest_in=1 << 20, largest_out=1 << 20)
                world = World(0.0, Parameters(maximum=quality, wanted=quality))
                world.ends[0].forged.append(frame)
                world.run(lambda world=world: all(end.ending is not None for end in world.ends), 5)
                ours, theirs = world.ends[0].ending, world.ends[1].ending
                assert ours is not None
                assert theirs is not None
                self.assertTrue(ours.by_peer and not theirs.by_peer)
                self.assertEqual((ours.code, theirs.code), (1, 1))
                self.assertRegex(ours.text, text)

    def test_a_message_of_which_not_all_was_sent_cannot_be_whole(self) -> None:
        """A1-FEC-3."""
        outgoing = Outgoing(4, 1 << 20, 1 << 20, retransmission=True)
        outgoing.queue.append(Message(0, bytes(5000), 0))
        outgoing.blocks(1000, 0)
        self.assertRaisesRegex(WireError, "A1-FEC-3", outgoing.whole, 0)

    def test_a_change_of_quality_is_answered_as_the_asker_sees_it(self) -> None:
        """A1-QOS-3; what holds at the other end has sending and receiving turned."""
        world = World()
        asked = Quality(outstanding=5, largest_out=5000, largest_in=1000)
        world.ends[0].forged.append(f.Qos(1, asked, answer=False).encode())
        answers: list[f.Frame] = []
        world.ends[0].heard = answers.append
        world.run(lambda: any(isinstance(frame, f.Qos) for frame in answers), 5)
        self.assertIn(f.Qos(1, asked, answer=True), answers)
        self.assertEqual(world.ends[1].quality, asked.turned())

    def test_a_number_that_was_passed_over_must_not_be_acknowledged(self) -> None:
        """A1-ACK-4."""
        world = World()
        world.ends[0].recovery.next_number = 5
        world.ends[0].recovery.skip()
        with self.assertRaisesRegex(WireError, "passed over"):
            world.ends[0].recovery.on_ack(f.Ack(0, 0, 0, [(5, 5)]), world.now)


if __name__ == "__main__":
    unittest.main()
