"""An open connection, without a socket and without a clock: datagrams and times go in, datagrams come out."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from freshwire_lab.a1 import frames as f
from freshwire_lab.a1.acks import Acks
from freshwire_lab.a1.handshake import DATA, Agreed
from freshwire_lab.a1.incoming import Incoming
from freshwire_lab.a1.outgoing import Message, Outgoing
from freshwire_lab.a1.protection import MOST_PACKETS, Protection
from freshwire_lab.a1.quality import CHECKSUM, RETRANSMISSION, Quality
from freshwire_lab.a1.recovery import LEAST_DATAGRAM, Item, Recovery
from freshwire_lab.a1.wire import WireError

RETRANSMITTED, CONTROL, ACK_NOW = 2, 4, 8
_HEADER = 8
_SYNC_EACH = 500_000
_SAID_FREELY = 4800
_UPDATE_AFTER = 1 << 22
_CLOCK_KEPT = 30_000_000
_QUIET = (f.Ack, f.Nack, f.SyncEcho, f.Close)


@dataclass
class _Again:
    """Sets a flag of the connection when it is lost."""

    connection: Connection
    flag: str

    def acked(self) -> None:
        pass

    def lost(self) -> None:
        setattr(self.connection, self.flag, True)


@dataclass
class _Nothing:
    def acked(self) -> None:
        pass

    def lost(self) -> None:
        pass


@dataclass
class Ending:
    """How a connection has ended."""

    code: int | None
    text: str
    by_peer: bool


@dataclass
class _Clock:
    """The peer's clock minus the own one (A1-MSG-6)."""

    samples: deque[tuple[int, int, int]] = field(default_factory=deque[tuple[int, int, int]])
    """When it was taken, the round trip, the difference."""
    least: int | None = None

    def add(self, now: int, trip: int, difference: int) -> None:
        self.samples.append((now, trip, difference))
        while self.samples[0][0] < now - _CLOCK_KEPT:
            self.samples.popleft()

    def difference(self) -> int:
        best = min(self.samples, key=lambda sample: sample[1])[2] if self.samples else 0
        return best if self.least is None else max(best, self.least)


class Connection:
    """One end of a connection that is open. Times are microseconds of one clock."""

    def __init__(self, agreed: Agreed, now: int, seed: int = 0, *, runs: bool = False) -> None:
        """Begin with what the handshake has led to."""
        self.agreed, self.began = agreed, agreed.began
        quality = _quality(agreed)
        self.quality = quality
        self.protection = Protection(
            agreed.protection, agreed.sending, agreed.receiving, checksum=bool(quality.flags & CHECKSUM)
        )
        self.acks = Acks(agreed.own.ack_delay)
        self.recovery = Recovery(agreed.peer.ack_delay)
        self.incoming = Incoming(quality, agreed.own.maximum)
        self.outgoing = Outgoing(
            *quality.turned().first_credit(),
            quality.largest_out,
            bool(quality.flags & RETRANSMISSION),
            runs,
        )
        self.random = random.Random(seed)
        self.clock = _Clock()
        self.idle = min(agreed.own.idle_ms, agreed.peer.idle_ms) * 1000
        self.last_heard = now
        self.last_sync = now
        self.sync_now = agreed.initiator
        self.credit_again = False
        self.ping_now = False
        self.echoes: deque[tuple[f.Sync, int]] = deque()
        self.forged: deque[bytes] = deque()
        """Frames for tests of what the peer does when a rule is broken."""
        self.answers: deque[bytes] = deque()
        self.qos_serial = -1
        self.next_skip = self.random.randrange(8, 64)
        self.ending: Ending | None = None
        self.closing_until: int | None = None
        self.close_packet = False
        self.update_after = _UPDATE_AFTER
        self.heard: Callable[[f.Frame], object] = lambda _: None
        """Is called with each frame that comes."""
        self.strange: Counter[str] = Counter()
        """What the peer SHOULD do otherwise."""
        self.came = self.opened = self.made = self.unopened = self.probes = 0

    def time(self, now: int) -> int:
        """Give the connection's time."""
        return now - self.began

    def send(self, message: Message) -> None:
        """Queue a message."""
        self.outgoing.queue.append(message)

    def close(self, code: int, text: str, now: int) -> None:
        """End it."""
        if self.ending is None:
            self.ending = Ending(code, text, by_peer=False)
            self.closing_until = now + 3 * self.recovery.timeout()
            self.close_packet = True

    def reset(self) -> None:
        """Take a Reset with the right token (A1-RST-3)."""
        if self.ending is None or not self.ending.by_peer:
            self.ending = Ending(None, "the peer has restarted", by_peer=True)
            self.closing_until = None

    def over(self, now: int) -> bool:
        """Say whether nothing is sent any more."""
        return self.ending is not None and (self.closing_until is None or now >= self.closing_until)

    # Receiving ------------------------------------------------------------------------------------------------------

    def receive(self, datagram: bytes, now: int, *, marked: bool = False) -> None:
        """Take a data packet for this connection."""
        self.came += 1
        if len(datagram) < _HEADER:
            return
        if len(datagram) > self.agreed.own.largest_datagram:
            self.strange["a datagram larger than this end takes"] += 1
        number = self.acks.number(int.from_bytes(datagram[5:8], "big"))
        if not self.acks.is_new(number):
            return
        content = self.protection.open(number, datagram[0] & 1, datagram[_HEADER:], now)
        if content is None:
            self.unopened += 1
            return
        self.opened += 1
        if self.ending is not None:
            self.close_packet = self.closing_until is not None
            return
        if self.protection.followed:
            self._follow_update(now)
        self.last_heard = now
        self.acks.add(number, now)
        self.acks.marked += marked
        self._take(content, datagram[0] & 0xF, now, marked=marked)

    def _follow_update(self, now: int) -> None:
        self.protection.followed = False
        pause = 3 * self.recovery.timeout() if self.recovery.highest_acked >= 0 else 1_000_000
        self.protection.keep_previous(now + pause)
        if self.protection.sending.updates < self.protection.receiving.updates:
            self.protection.update(self.recovery.next_number)

    def _take(self, content: bytes, bits: int, now: int, *, marked: bool) -> None:
        kinds = set[type]()
        try:
            for frame in f.parse(content):
                kinds.add(type(frame))
                self.heard(frame)
                self._frame(frame, now)
                if self.ending is not None:
                    return
        except WireError as error:
            self.close(1, str(error), now)
            return
        self._check_bits(kinds, bits)
        if kinds - set(_QUIET):
            self.acks.wants_answer(now, at_once=bool(bits & ACK_NOW) or marked)

    def _check_bits(self, kinds: set[type], bits: int) -> None:
        data = bool(kinds & {f.Block, f.Run, f.Sync})
        if kinds == {f.Ping} and not bits & CONTROL:
            self.probes += 1
        elif data == bool(bits & CONTROL):
            self.strange[f"the control bit is {bits & CONTROL:#x} of a packet with {_names(kinds)}"] += 1
        if bits & RETRANSMITTED and f.Run in kinds:
            self.strange["A1-FRM-5: a RUN in a packet that was retransmitted"] += 1

    def _frame(self, frame: f.Frame, now: int) -> None:  # noqa: PLR0912 - one arm for each frame
        peer_time = self.time(now) + self.clock.difference()
        match frame:
            case f.Block():
                self.incoming.block(frame, peer_time)
            case f.Run():
                self.incoming.run(frame, peer_time)
            case f.Ack():
                self.recovery.on_ack(frame, now)
            case f.Nack():
                self.recovery.on_nack(frame.ranges, now)
            case f.Sync():
                self.echoes.append((frame, now))
                self.clock.least = max(frame.time - self.time(now), self.clock.least or -(1 << 62))
            case f.SyncEcho():
                self._echo(frame, now)
            case f.Gone():
                self.incoming.gone(frame)
            case f.Dropped():
                self.incoming.dropped(frame)
            case f.Credit():
                out = self.outgoing
                out.credit_messages = max(out.credit_messages, frame.messages)
                out.credit_bytes = max(out.credit_bytes, frame.size)
            case f.Qos():
                self._qos(frame)
            case f.Close():
                self.ending = Ending(frame.code, frame.text, by_peer=True)
            case f.Path():
                if not frame.response:
                    self.answers.append(f.Path(frame.data, response=True).encode())
            case f.Whole():
                self.outgoing.whole(frame.message)
            case _:
                pass

    def _echo(self, frame: f.SyncEcho, now: int) -> None:
        trip = self.time(now) - frame.time - frame.held
        if trip <= 0:
            self.strange["a SYNC_ECHO of a time that is not over"] += 1
            return
        self.recovery.rtt.add(trip, 0)
        self.clock.add(now, trip, frame.arrived - frame.time - trip // 2)

    def _qos(self, frame: f.Qos) -> None:
        if frame.answer:
            self.strange["a QOS_ACK without a QOS"] += 1
            return
        if frame.serial < self.qos_serial:
            return
        if frame.serial > self.qos_serial:
            self.qos_serial = frame.serial
            self._agree_on(frame)
        # As the end sees it that has asked (A1-QOS-3).
        self.answers.append(f.Qos(frame.serial, self.quality.turned(), answer=True).encode())

    def _agree_on(self, frame: f.Qos) -> None:
        self.quality = frame.quality.within(self.agreed.own.maximum).turned()
        self.incoming.agreed = self.quality
        self.outgoing.largest = self.quality.largest_out
        self.outgoing.retransmission = bool(self.quality.flags & RETRANSMISSION)

    # Sending --------------------------------------------------------------------------------------------------------

    def poll(self, now: int) -> list[bytes]:
        """Give the datagrams that are due."""
        if self.ending is not None:
            return self._close_again(now)
        if now - self.last_heard >= self.idle:
            self.ending = Ending(None, "silence", by_peer=False)
            return []
        self.recovery.find_lost(now)
        out: list[bytes] = []
        while len(out) < 64 and (packet := self._packet(now)) is not None:
            out.append(packet)
        return out

    def _close_again(self, now: int) -> list[bytes]:
        if not self.close_packet or self.closing_until is None or self.ending is None or self.ending.code is None:
            return []
        self.close_packet = False
        frame = f.Close(self.ending.code, self.ending.text).encode()
        return [self._seal(self.acks.frames(now, self.time(now)) + frame, CONTROL)]

    def _packet(self, now: int) -> bytes | None:
        self._skip_and_update()
        room = LEAST_DATAGRAM - _HEADER - self.protection.cost
        ack_due = self.acks.next_time()
        sync_due = self._sync_due(now)
        data = self.recovery.in_flight < self.recovery.control.window and self.outgoing.has_blocks(self.time(now))
        said, items = self._announcements(room // 2)
        if not (said or sync_due or data or self.echoes or (ack_due is not None and ack_due <= now)):
            return None
        out = self.acks.frames(now, self.time(now)) if self.acks.waiting or ack_due is not None else b""
        while self.echoes:
            sync, came = self.echoes.popleft()
            out += f.SyncEcho(sync.time, self.time(came), now - came).encode()
        out += said
        bits = 0
        eliciting = bool(said)
        if sync_due:
            bits |= self._sync(now)
            out += f.Sync(self.time(now)).encode()
            eliciting = True
        blocks = b""
        if data:
            blocks, block_items, again = self.outgoing.blocks(room - len(out), self.time(now))
            out, items, eliciting = out + blocks, items + block_items, eliciting or bool(blocks)
            bits |= RETRANSMITTED if again else 0
        if not blocks and not sync_due:
            bits |= CONTROL
        if not out:
            return None
        if eliciting:
            size = len(out) + _HEADER + self.protection.cost
            self.recovery.add(now, size, items, ack_now=bool(bits & ACK_NOW), data=bool(blocks or said))
        return self._seal(out, bits)

    def _skip_and_update(self) -> None:
        if self.recovery.next_number >= self.next_skip:
            self.recovery.skip()
            self.next_skip = self.recovery.next_number + self.random.randrange(500, 2000)
        sealed = self.protection.sending.packets
        if sealed >= self.update_after and self.protection.may_update(self.recovery.highest_acked):
            self.protection.update(self.recovery.next_number)
        if sealed >= MOST_PACKETS:
            self.ending = Ending(None, "no key left", by_peer=False)

    def _announcements(self, room: int) -> tuple[bytes, list[Item]]:
        """Give what is neither a block nor an answer about packets."""
        if self.recovery.in_flight >= self.recovery.control.window + _SAID_FREELY:
            return b"", []
        out, items = self.outgoing.announcements(room)
        if self.incoming.credit_due() or self.credit_again:
            self.credit_again = False
            self.incoming.said = self.incoming.credit
            out += self.incoming.credit.encode()
            items.append(_Again(self, "credit_again"))
        for waiting in (self.answers, self.forged):
            while waiting and len(out) + len(waiting[0]) < room:
                out += waiting.popleft()
                items.append(_Nothing())
        if self.ping_now:
            self.ping_now = False
            out += b"\x01"
        return out, items

    def _sync_due(self, now: int) -> bool:
        busy = bool(self.recovery.in_flight) or not self.outgoing.idle
        due = self.recovery.next_sync()
        if busy and now - self.last_sync >= _SYNC_EACH:
            return True
        return self.sync_now or (due is not None and due <= now)

    def _sync(self, now: int) -> int:
        due = self.recovery.next_sync()
        behind = due is not None and due <= now
        asks = self.recovery.probe(now) if behind else False
        self.sync_now = False
        self.last_sync = now
        return ACK_NOW if asks or behind else 0

    def _seal(self, content: bytes, bits: int) -> bytes:
        number = self.recovery.next_number
        self.recovery.next_number += 1
        self.made += 1
        phase, sealed = self.protection.seal(number, content)
        head = bytes([DATA << 4 | bits | phase]) + self.agreed.peer_id.to_bytes(4, "big")
        return head + (number & 0xFFFFFF).to_bytes(3, "big") + sealed

    def next_time(self, now: int) -> int:
        """Give when to poll again."""
        if self.ending is not None:
            return self.closing_until or now
        times = [self.last_heard + self.idle, self.acks.next_time(), self.recovery.next_sync()]
        times.append(self.recovery.next_loss())
        if self.recovery.in_flight or not self.outgoing.idle:
            times.append(self.last_sync + _SYNC_EACH)
        return min(each for each in times if each is not None)


def _quality(agreed: Agreed) -> Quality:
    """Give the quality that holds, as this end sees it: what the responder has answered (A1-QOS-1)."""
    if agreed.initiator:
        return agreed.own.wanted.within(agreed.peer.wanted)
    return agreed.own.wanted


def _names(kinds: set[type]) -> str:
    return ", ".join(sorted(kind.__name__ for kind in kinds)) or "nothing"
