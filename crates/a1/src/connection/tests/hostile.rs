//! A peer that has the keys and says whatever it likes.

mod groups;
mod optimistic;
mod path;
mod window;
mod work;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bolero::{TypeGenerator, check, produce};
use freshwire_choice::Reason;

use super::super::{Closed, Event};
use super::lossy;
use super::pair::{End, Pair, id, payload, record, secret};
use crate::config::ConnectionConfig;
use groups::GroupLie;

use crate::crypto::{Keys, Protection, Secrets};
use crate::ranges::RangeSet;
use crate::wire::{
    Ack, Block, BlockHead, DATA_HEADER, DataHeader, Echo, Frame, Frames, Message, Packet, Parity, Qos,
    Ranges, Run,
};

struct Liar {
    pair: Pair,
    keys: Keys,
    next: u64,
    /// Whether the victim's application takes messages.
    is_heard: bool,
    /// Bytes that came to the victim from each address, and that went there.
    traffic: BTreeMap<SocketAddr, [usize; 2]>,
    /// Numbers of the victim's packets.
    heard: RangeSet,
    /// Frames are collected here instead of being sent.
    packed: Option<Vec<u8>>,
}

impl Liar {
    /// The peer of the first end of a pair; the second one is not there.
    fn new() -> Self {
        Self::with(Qos { outstanding: 4, max_receive_message: 10_000, ..Qos::default() })
    }

    fn with(qos: Qos) -> Self {
        let config = ConnectionConfig { groups: 12, ..ConnectionConfig::default() };
        let configs = [config, ConnectionConfig::default()];
        let mut pair = Pair::with(lossy(10_000, 5, 0.0, 1), configs, qos);
        pair.ends[0].connection.set_policy(Box::new(freshwire_choice::expiring()));
        let secrets = Secrets { send: secret(1).into(), receive: secret(0).into() };
        Self {
            pair,
            keys: Keys::new(Protection::Aead, &secrets),
            next: 0,
            is_heard: true,
            traffic: BTreeMap::new(),
            heard: RangeSet::default(),
            packed: None,
        }
    }

    fn victim(&mut self) -> &mut End {
        &mut self.pair.ends[0]
    }

    /// Sends a packet with these frames.
    fn say(&mut self, frames: &[u8]) {
        if let Some(packed) = &mut self.packed {
            return packed.extend(frames);
        }
        let from = self.victim().connection.remote().address;
        self.next += 1;
        self.say_from(from, self.next - 1, frames);
    }

    /// Sends a packet of this number from another address.
    fn say_from(&mut self, from: SocketAddr, number: u64, frames: &[u8]) {
        let mut sealed = frames.to_vec();
        let phase = self.keys.seal(number, &mut sealed, 0).expect("keys for millions of packets");
        let header = DataHeader {
            to: id(0),
            number: number as u32,
            phase,
            retransmitted: false,
            control: false,
            ack_now: number.is_multiple_of(2),
        };
        let now = self.pair.now;
        self.traffic.entry(from).or_default()[0] += DATA_HEADER + sealed.len();
        self.victim().connection.handle_packet(now, from.into(), false, header, &mut sealed);
    }

    fn tell(&mut self, frame: &Frame<'_>) {
        let mut frames = Vec::new();
        frame.put(&mut frames);
        self.say(&frames);
    }

    /// Lets the victim do what it wants to for a while; the plain text of what it sends.
    fn listen(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let end = self.pair.now + time;
        let mut heard = Vec::new();
        for _ in 0..RESTLESS {
            let now = self.pair.now;
            let victim = &mut self.pair.ends[0];
            let mut out = Vec::new();
            while let Some(transmit) = victim.connection.poll_transmit(now, &mut victim.queue, &mut out) {
                self.traffic.entry(transmit.to.address).or_default()[1] += out.len();
                for datagram in out.chunks(transmit.segment) {
                    let Ok(Packet::Data(header, sealed)) = Packet::parse(datagram) else {
                        panic!("not data")
                    };
                    let number = u64::from(header.number);
                    if let Ok(plain) = self.keys.open(now, number, header.phase, &mut sealed.to_vec()) {
                        self.heard.insert(number..number + 1);
                        heard.push(plain.to_vec());
                    }
                }
                out.clear();
            }
            while self.is_heard && victim.connection.recv(now).is_some() {}
            let Some(next) = victim.connection.poll_timeout().filter(|&at| at <= end) else {
                self.pair.now = end;
                return heard;
            };
            self.pair.now = now.max(next);
            self.pair.ends[0].connection.handle_timeout(self.pair.now);
        }
        panic!("the victim does not come to rest");
    }

    fn closed(&mut self) -> Option<Closed> {
        let mut closed = None;
        while let Some(event) = self.victim().connection.poll_event() {
            if let Event::Closed(how) = event {
                assert!(closed.replace(how).is_none(), "a connection ends once");
            }
        }
        closed
    }
}

fn message(len: u32) -> Message {
    Message {
        len,
        seq: 7,
        layer: 1,
        group: 0,
        key: 0,
        refs: [0; 2],
        generated_us: 5,
        lifetime_us: Some(1000),
    }
}

fn block(id: u64, offset: u32, start: Option<u32>, end: bool, bytes: &[u8]) -> Frame<'_> {
    let head = BlockHead { id, offset, start: start.map(message), end };
    Frame::Block(Block { head, bytes })
}

fn run(id: u32, offset: u32, len: u32, bytes: &[u8]) -> Frame<'_> {
    let alike = Message { generated_us: 0, ..message(len) };
    Frame::Run(Run { id, offset, generated: 0, alike, bytes })
}

fn ack(largest: u64, length: u64) -> Frame<'static> {
    let ranges = Ranges(vec![largest - length..=largest]);
    Frame::Ack(Ack { ranges, delay_us: 0, at_us: 0, ce: 0 })
}

//= spec/a1.md A1-FRM-1, A1-FRM-2, A1-ACK-4, A1-FLOW-3
#[test]
fn a_broken_rule_ends_the_connection_with_a_reason() {
    let large = [0; 10_001];
    let shards =
        |len, bytes| Frame::Repair(Parity { id: 0, message: message(len), index: 0, count: 1, bytes });
    let cases: [(&[Frame<'_>], &str); 17] = [
        (&[ack(1_000_000, 0)], "is acknowledged and was never sent"),
        (&[ack(100, 100)], "is acknowledged and was never sent"),
        (&[block(4, 0, Some(1), true, b"a")], "beyond the window"),
        (&[block(0, 0, Some(10_001), false, b"a")], "larger than agreed"),
        (&[block(0, 0, None, false, &large)], "larger than agreed"),
        (&[block(0, 9_999, None, false, b"ab")], "larger than agreed"),
        (&[block(0, 0, Some(9), false, b"a"), block(0, 5, None, true, b"a")], "contradict"),
        (&[block(0, 5, None, true, b"a"), block(0, 7, None, false, b"a")], "contradict"),
        (&[block(0, 5, None, false, b"a"), block(0, 0, Some(5), false, b"a")], "contradict"),
        (&[Frame::Gone { id: 4, len: 1, reason: Reason::Expired }], "beyond the window"),
        (&[Frame::Gone { id: 0, len: 40_001, reason: Reason::Expired }], "beyond the window"),
        (&[shards(20_000, b"ab")], "larger than agreed"),
        (&[run(4, 0, 20, b"a")], "beyond the window"),
        (&[run(3, 19, 20, b"ab")], "beyond the window"),
        (&[run(0, 0, 10_001, b"a")], "larger than agreed"),
        (&[block(0, 0, Some(30), false, b"a"), run(0, 19, 20, b"a")], "contradict"),
        // Each would cost a look at thousands of shards.
        (&[shards(10_000, b"ab")], "contradict"),
    ];
    for (place, (frames, why)) in cases.into_iter().enumerate() {
        let mut liar = Liar::new();
        liar.listen(Duration::from_millis(10));
        frames.iter().for_each(|frame| liar.tell(frame));
        match liar.closed() {
            Some(Closed::Violation(what)) => assert!(what.to_string().contains(why), "{place}: {what}"),
            other => panic!("{place}: {other:?}"),
        }
        let last = liar.listen(Duration::from_secs(3)).pop().unwrap();
        let said = Frames::new(&last).last().unwrap().unwrap();
        assert!(
            matches!(said, Frame::Close { code: 1, reason } if reason.contains(why)),
            "{place}: {said:?}"
        );
        assert!(liar.victim().connection.is_ended(), "{place}");
    }
}

/// The bytes of a message whose length is not said would be kept beyond the window.
//= spec/a1.md A1-FLOW-1, A1-FLOW-3
#[test]
fn messages_without_length_stay_within_the_window() {
    let mut liar = Liar::with(Qos { max_receive_message: 20 << 20, ..Qos::default() });
    for id in 0..4 {
        assert_eq!(liar.closed(), None, "64 MiB are for three of 20");
        liar.tell(&block(id, (20 << 20) - 2, None, false, b"a"));
    }
    assert!(
        matches!(liar.closed(), Some(Closed::Violation(what)) if what.to_string().contains("beyond the window"))
    );
}

/// They cost more than their bytes, and no sender that means it makes them.
//= spec/a1.md A1-FRM-6
#[test]
fn a_message_in_too_many_pieces_ends_the_connection() {
    let mut liar = Liar::new();
    liar.is_heard = false;
    let most = 64 + 10_000 / 64;
    for piece in 1..=most {
        liar.tell(&block(0, 10_000 - 2 * piece, None, false, b"a"));
    }
    assert_eq!(liar.closed(), None, "as many as that may be");
    liar.tell(&block(0, 0, None, false, b"a"));
    assert!(
        matches!(liar.closed(), Some(Closed::Violation(what)) if what.to_string().contains("too many pieces"))
    );
}

/// No parity of it was sent, and what is behind it would wait for ever.
//= spec/a1.md A1-FEC-3
#[test]
fn a_message_of_which_not_all_was_sent_cannot_be_whole() {
    let mut liar = Liar::new();
    liar.listen(Duration::from_millis(10));
    liar.tell(&Frame::Credit { messages: 1 << 40, bytes: 1 << 40 });
    let record = record(0, liar.pair.now, None);
    liar.pair.push(0, record, payload(0, 500_000));
    liar.listen(Duration::from_millis(10));
    assert_eq!(liar.closed(), None);
    liar.tell(&Frame::Whole { id: 0 });
    assert!(
        matches!(liar.closed(), Some(Closed::Violation(what)) if what.to_string().contains("not been fully sent"))
    );
}

#[test]
fn a_window_that_shrinks_and_grows_is_no_larger_than_before() {
    let mut liar = Liar::new();
    for serial in 1..=100 {
        let narrow = serial % 2 == 1;
        let (outstanding, max_send_message) = if narrow { (1, 100) } else { (4, 10_000) };
        let qos = Qos { outstanding, max_send_message, ..Qos::default() };
        liar.tell(&Frame::Qos { serial, qos });
        liar.listen(Duration::from_millis(10));
    }
    assert_eq!(liar.victim().connection.qos().outstanding, 4);
    liar.tell(&block(4, 0, Some(1), true, b"a"));
    assert!(
        matches!(liar.closed(), Some(Closed::Violation(what)) if what.to_string().contains("beyond the window"))
    );
}

/// A number that a peer may say: small ones meet what is there.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Number {
    Small(u8),
    Middle(u16),
    Any(u64),
}

impl Number {
    /// Within what a varint holds.
    fn get(self) -> u64 {
        match self {
            Self::Small(number) => u64::from(number % 8),
            Self::Middle(number) => u64::from(number),
            Self::Any(number) => number >> 2,
        }
    }
}

#[derive(Clone, Debug, TypeGenerator)]
enum Lie {
    Ack {
        largest: Number,
        length: u8,
        delay: Number,
        at: u32,
        ce: Number,
    },
    Nack {
        largest: Number,
        length: u8,
    },
    Sync(Number),
    Echo {
        sent: Number,
        arrived: Number,
        held: Number,
    },
    Block {
        id: Number,
        offset: Number,
        start: Option<u16>,
        end: bool,
        len: u8,
    },
    Parity {
        id: Number,
        len: u16,
        index: u8,
        count: u8,
        shard: u8,
    },
    Run {
        id: Number,
        offset: u8,
        len: u8,
        bytes: u8,
    },
    Gone {
        id: Number,
        len: Number,
    },
    Dropped {
        first: Number,
        count: Number,
    },
    Credit {
        messages: Number,
        bytes: Number,
    },
    Whole(Number),
    Group(GroupLie),
    /// The victim's application is busy with something else, or takes what comes.
    Consume(bool),
    Qos {
        serial: Number,
        outstanding: u8,
        message: u16,
        answer: bool,
    },
    Path {
        token: [u8; 8],
        response: bool,
    },
    Bytes(Vec<u8>),
    /// The victim's application sends something meanwhile.
    Push {
        hundreds: u8,
        lifetime: u8,
    },
    Wait {
        ms: u8,
    },
    UpdateKeys,
}

fn tell(liar: &mut Liar, lie: &Lie) {
    let range = |largest: Number, length: u8| {
        let largest = largest.get();
        Ranges(vec![largest.saturating_sub(u64::from(length))..=largest])
    };
    let reason = Reason::Expired;
    match lie {
        Lie::Ack { largest, length, delay, at, ce } => {
            let ranges = range(*largest, *length);
            liar.tell(&Frame::Ack(Ack { ranges, delay_us: delay.get(), at_us: *at, ce: ce.get() }));
        }
        Lie::Nack { largest, length } => liar.tell(&Frame::Nack(range(*largest, *length))),
        Lie::Sync(at) => liar.tell(&Frame::Sync { sent_us: at.get() }),
        Lie::Echo { sent, arrived, held } => {
            let (sent_us, arrived_us, held_us) = (sent.get(), arrived.get(), held.get());
            liar.tell(&Frame::SyncEcho(Echo { sent_us, arrived_us, held_us }));
        }
        Lie::Block { id, offset, start, end, len } => {
            let bytes = vec![1; usize::from(*len)];
            let offset = u32::try_from(offset.get()).unwrap_or(u32::MAX) >> 6;
            let offset = if start.is_some() { 0 } else { offset };
            liar.tell(&block(id.get(), offset, start.map(u32::from), *end, &bytes));
        }
        Lie::Parity { id, len, index, count, shard } => {
            let bytes = vec![1; usize::from(*shard)];
            let message = message(u32::from(*len));
            let (index, count) = (u16::from(*index), u16::from(*count));
            liar.tell(&Frame::Repair(Parity { id: id.get(), message, index, count, bytes: &bytes }));
        }
        Lie::Run { id, offset, len, bytes } => {
            let bytes = vec![1; usize::from(*bytes)];
            liar.tell(&run(id.get() as u32, u32::from(*offset), u32::from(*len), &bytes));
        }
        Lie::Gone { id, len } => {
            let len = u32::try_from(len.get()).unwrap_or(u32::MAX) >> 6;
            liar.tell(&Frame::Gone { id: id.get(), len, reason });
        }
        Lie::Dropped { first, count } => {
            liar.tell(&Frame::Dropped { first: first.get(), count: count.get(), reason });
        }
        Lie::Credit { messages, bytes } => {
            liar.tell(&Frame::Credit { messages: messages.get(), bytes: bytes.get() });
        }
        Lie::Whole(id) => liar.tell(&Frame::Whole { id: id.get() }),
        Lie::Qos { serial, outstanding, message, answer } => {
            let (outstanding, max_send_message) = (u32::from(*outstanding % 8), u32::from(*message));
            let qos = Qos { outstanding, max_send_message, ..Qos::default() };
            let serial = serial.get();
            liar.tell(&if *answer { Frame::QosAck { serial, qos } } else { Frame::Qos { serial, qos } });
        }
        Lie::Path { token, response } => liar.tell(&match response {
            true => Frame::PathResponse(*token),
            false => Frame::PathChallenge(*token),
        }),
        Lie::Bytes(bytes) => liar.say(bytes),
        Lie::Push { hundreds, lifetime } => {
            let lifetime = (*lifetime > 0).then(|| Duration::from_millis(u64::from(*lifetime)));
            let record = record(0, liar.pair.now, lifetime);
            liar.pair.push(0, record, payload(0, usize::from(*hundreds) * 100));
        }
        Lie::Wait { ms } => {
            liar.listen(Duration::from_millis(u64::from(*ms)));
        }
        Lie::Group(lie) => groups::tell(liar, lie),
        Lie::Consume(is_heard) => liar.is_heard = *is_heard,
        Lie::UpdateKeys => {
            let _ = liar.keys.update();
        }
    }
}

#[test]
fn a_report_that_comes_twice_is_delivered_once() {
    let mut liar = Liar::new();
    for first in [5, 5, 7, 5, 20] {
        liar.tell(&Frame::Dropped { first, count: 2, reason: Reason::Expired });
    }
    for first in 0..1000 {
        liar.tell(&Frame::Dropped { first: 100 + 2 * first, count: 1, reason: Reason::Expired });
    }
    let connection = &mut liar.victim().connection;
    assert_eq!(std::iter::from_fn(|| connection.poll_missing()).count(), 1003);
    assert!(connection.inbox.remembered() <= 257);
}

#[test]
fn the_victim_survives_any_frames_of_a_peer_with_keys() {
    let lies = produce::<Vec<Lie>>().with().len(0..=40usize);
    check!().with_generator(lies).with_iterations(2000).with_max_len(1 << 13).for_each(|lies| {
        let mut liar = Liar::new();
        liar.listen(Duration::from_millis(10));
        for lie in lies {
            tell(&mut liar, lie);
            let held = liar.victim().connection.inbox.held_bytes();
            // Parity of a message that is not whole is shorter than it.
            assert!(held <= 2 * 4 * 10_000, "{held} bytes are held for the peer");
            groups::check_bounds(&mut liar);
        }
        liar.listen(Duration::from_secs(2));
        if let Some(closed) = liar.closed() {
            assert!(matches!(closed, Closed::Violation(_) | Closed::Peer { .. }), "{closed}");
        }
        liar.listen(Duration::from_secs(60));
        assert!(liar.victim().connection.is_ended(), "a peer that says no more is left");
    });
}

/// Timers of a victim that are no work but a loop.
const RESTLESS: usize = 20_000;
