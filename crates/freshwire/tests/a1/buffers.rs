//! Buffers that stay where they are until they are sealed, and go back to their owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use freshwire::Fate;
use freshwire::a1::reproduction::{Socket, WhenFull};
use freshwire::a1::{
    BufferError, BufferLimits, BufferSink, GroupConfig, GroupTransportConfig, JoinConfig, Rate,
};

use super::groups::{address, has_multicast};
use super::*;

/// An owner's buffers, of which it counts those that are out.
#[derive(Clone, Default)]
struct Owner(Arc<AtomicUsize>);

struct Lent {
    bytes: Vec<u8>,
    owner: Owner,
}

impl Owner {
    fn lend(&self, bytes: impl Into<Vec<u8>>) -> Bytes {
        self.0.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Lent { bytes: bytes.into(), owner: self.clone() })
    }

    fn out(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until no more than these are out.
    fn await_out(&self, most: usize) {
        until("buffers come back", || self.out() <= most);
        assert_eq!(self.out(), most);
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.owner.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn feed(connection: &Connection, limits: BufferLimits) -> BufferSink {
    connection.add_buffer_sink(SinkConfig::new(choice::fifo()), limits).unwrap()
}

/// A sender whose window is full, and the number that comes next.
fn full(pair: &Pair, owner: &Owner, limits: BufferLimits) -> (BufferSink, u64) {
    let mut sender = feed(&pair.sending, limits);
    let window = u64::from(NARROW.outstanding);
    for seq in 0..window {
        sender.push_owned(owner.lend(seq.to_be_bytes()), &meta(seq)).unwrap();
    }
    owner.await_out(0);
    assert_eq!(sender.waiting(), 0);
    (sender, window)
}

fn fates(sender: &mut BufferSink) -> Vec<Fate> {
    std::iter::from_fn(|| sender.poll_fate()).collect()
}

#[test]
fn buffers_arrive_whole_and_go_back_to_their_owner() {
    let (pair, owner) = (pair(), Owner::default());
    let mut sender = feed(&pair.sending, BufferLimits::default());
    let payload = |seq: u64| (0..seq * 3000).map(|at| (at ^ seq) as u8).collect::<Vec<_>>();
    for seq in 0..50 {
        let meta = Meta { layer: 3, group: 7, key: 9, ..meta(seq) };
        assert_eq!(sender.push_owned(owner.lend(payload(seq)), &meta), Ok(seq));
    }
    let mut arrived: Vec<_> = (0..50).map(|_| message(&pair.receiving)).collect();
    arrived.sort_by_key(|message| message.seq);
    for (message, seq) in arrived.iter().zip(0..) {
        assert_eq!((message.seq, message.layer, message.group, message.key), (seq, 3, 7, 9));
        assert_eq!(message.data, payload(seq));
    }
    owner.await_out(0);
    for fate in fates(&mut sender) {
        assert_eq!(fate.outcome, Outcome::Acked);
        assert!(fate.committed_at.is_some() && fate.committed_at <= fate.acked_at);
    }
    let monitor = sender.monitor();
    assert_eq!(sender.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    let stats = monitor.stats();
    assert_eq!((stats.carrier, stats.committed, stats.finished), (CarrierInUse::A1, 50, 50));
    assert!(matches!(pair.receiving.recv(PATIENCE), Err(Closed::Peer { code: 0, .. })));
}

#[test]
fn a_dropped_or_replaced_record_returns_its_buffer_at_once() {
    let (pair, owner) = (narrow_pair(), Owner::default());
    let (mut sender, first) = full(&pair, &owner, BufferLimits::default());
    for (seq, text) in (first..).zip(["dropped", "old", "stays"]) {
        sender.push_owned(owner.lend(text), &Meta { key: seq, ..meta(seq) }).unwrap();
    }
    assert_eq!(owner.out(), 3);
    assert_eq!((sender.drop_seq(first), owner.out(), sender.waiting()), (1, 2, 2));
    let newer = Meta { key: first + 1, ..meta(first + 9) };
    assert_eq!(sender.replace(owner.lend("a new one"), &newer), Ok(true));
    assert_eq!(owner.out(), 2);
    let other = Meta { key: 77, ..meta(first + 10) };
    assert_eq!(sender.replace(owner.lend("the first of its key"), &other), Ok(false));
    assert_eq!(sender.drop_seq(0), 0, "it is too late");
    let arrived: Vec<_> = (0..first + 3).map(|_| message(&pair.receiving)).collect();
    let rest: Vec<_> = arrived[first as usize..].iter().map(|it| (it.seq, &it.data[..])).collect();
    let expected: [(u64, &[u8]); 3] =
        [(first + 9, b"a new one"), (first + 2, b"stays"), (first + 10, b"the first of its key")];
    assert_eq!(rest, expected);
    owner.await_out(0);
    let is_dropped = |fate: &Fate| matches!(fate.outcome, Outcome::Dropped(_));
    let dropped: Vec<_> = fates(&mut sender).into_iter().filter(is_dropped).map(|it| it.seq).collect();
    assert_eq!(dropped, [first]);
    assert_eq!(sender.monitor().stats().drops, [(Reason::Application, 1)]);
}

#[test]
fn an_expired_record_returns_its_buffer_unsent() {
    let (pair, owner) = (narrow_pair(), Owner::default());
    let policy = SinkConfig::new(choice::deadline(Duration::ZERO));
    let mut sender = pair.sending.add_buffer_sink(policy, BufferLimits::default()).unwrap();
    let deadline = now() + Duration::from_millis(30);
    let stale = u64::from(NARROW.outstanding)..u64::from(NARROW.outstanding) + 3;
    for seq in 0..stale.start {
        sender.push_owned(owner.lend("taken"), &meta(seq)).unwrap();
    }
    owner.await_out(0);
    for seq in stale.clone() {
        sender.push_owned(owner.lend("stale"), &Meta { deadline, ..meta(seq) }).unwrap();
    }
    // Pause: the deadlines pass.
    std::thread::sleep(Duration::from_millis(60));
    sender.push_owned(owner.lend("fresh"), &meta(99)).unwrap();
    let arrived: Vec<_> = (0..=stale.start).map(|_| message(&pair.receiving).seq).collect();
    assert_eq!(arrived.last(), Some(&99), "{arrived:?}");
    owner.await_out(0);
    assert_eq!(sender.monitor().stats().drops, [(Reason::Expired, 3)]);
}

#[test]
fn limits_hold_until_something_is_at_its_end() {
    let (pair, owner) = (narrow_pair(), Owner::default());
    let (mut sender, first) = full(&pair, &owner, BufferLimits { records: 4, bytes: 10_000 });
    sender.push_owned(owner.lend([1; 4000]), &meta(first)).unwrap();
    sender.push_owned(owner.lend([2; 4000]), &meta(first + 1)).unwrap();
    assert_eq!(sender.push_owned(owner.lend([3; 4000]), &meta(first + 2)), Err(BufferError::Full));
    assert_eq!(owner.out(), 2, "what is not taken goes back at once");
    sender.push_owned(owner.lend([4; 1000]), &Meta { key: 5, ..meta(first + 3) }).unwrap();
    assert_eq!(
        sender.replace(owner.lend([4; 3000]), &Meta { key: 5, ..meta(first + 4) }),
        Err(BufferError::Full)
    );
    sender.push_owned(Bytes::new(), &meta(first + 5)).unwrap();
    assert_eq!(
        sender.push_owned(Bytes::new(), &meta(first + 6)),
        Err(BufferError::Full),
        "four records wait"
    );
    assert_eq!(sender.wait_room(0, Duration::ZERO), Ok(false));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.wait_room(4000, PATIENCE));
        for _ in 0..first + 4 {
            message(&pair.receiving);
        }
        assert_eq!(waiting.join().unwrap(), Ok(true));
    });
    assert_eq!(fates(&mut sender).len(), 4, "of fates that nobody asked for the newest are kept");
}

#[test]
fn an_empty_queue_accepts_a_record_larger_than_its_limit() {
    let pair = pair();
    let mut sender = feed(&pair.sending, BufferLimits { records: 4, bytes: 100 });
    sender.push_owned(vec![7; 5000], &meta(0)).unwrap();
    assert_eq!(message(&pair.receiving).data, vec![7; 5000]);
    let large = Bytes::from(vec![0; Qos::MAX_MESSAGE as usize + 1]);
    let refused = sender.push_owned(large, &meta(1)).unwrap_err().to_string();
    assert_eq!(refused, "a message of 67108865 bytes is larger than the 67108864 that one can have");
}

#[test]
fn every_end_of_a_connection_returns_all_buffers() {
    for mode in [CloseMode::FinishRecord, CloseMode::Abort] {
        let (pair, owner) = (narrow_pair(), Owner::default());
        let (mut sender, first) = full(&pair, &owner, BufferLimits::default());
        sender.push_owned(owner.lend("uncommitted"), &meta(first)).unwrap();
        assert_eq!(sender.close(mode, PATIENCE), Ended::Closed);
        assert_eq!(owner.out(), 0, "{mode:?}");
    }
    let (pair, owner) = (narrow_pair(), Owner::default());
    let (mut sender, first) = full(&pair, &owner, BufferLimits { records: 6, bytes: 100 });
    sender.push_owned(owner.lend([0; 100]), &meta(first)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.wait_room(1, PATIENCE));
        pair.receiving.close(300, "seen enough");
        assert_eq!(waiting.join().unwrap(), Err(BufferError::Closed));
    });
    owner.await_out(0);
    assert_eq!(sender.push_owned(owner.lend("x"), &meta(99)), Err(BufferError::Closed));
    let lost = Outcome::Dropped(Reason::ConnectionLost);
    assert_eq!(fates(&mut sender).last().map(|fate| fate.outcome), Some(lost));
    let closed = Closed::Peer { code: 300, reason: "seen enough".to_owned() };
    assert_eq!(sender.monitor().ended(), Some(Ended::Broken(SinkError::A1(closed))));
}

/// The agreed rate forbids sending for long, and the node looks for no record meanwhile. Fates are reported
/// all the same.
#[test]
fn fates_do_not_wait_for_what_the_agreed_rate_holds_back() {
    let slow = Qos { send_average: Some(Rate::from_bits_per_sec(1000)), send_burst: 1500, ..Qos::default() };
    let (near, far) = (bind(limited(slow)), node());
    let (sending, _receiving) = connect(&near, &far);
    let mut sender = feed(&sending, BufferLimits::default());
    for seq in 0..4 {
        sender.push_owned(vec![0; 1000], &meta(seq)).unwrap();
    }
    found("a fate", || sender.poll_fate());
    assert!(sender.waiting() > 0, "they have waited until the rest was sent");
}

#[test]
fn one_buffer_goes_to_many_and_back_when_all_are_done_with_it() {
    let near = node();
    let narrow = || bind(limited(NARROW));
    let (fast, slow) = (narrow(), narrow());
    let (to_fast, at_fast) = connect(&near, &fast);
    let (to_slow, at_slow) = connect(&near, &slow);
    let owner = Owner::default();
    let mut senders = [&to_fast, &to_slow].map(|to| feed(to, BufferLimits::default()));
    let count = NARROW.outstanding as usize + 2;
    for seq in 0..count {
        let buffer = owner.lend([seq as u8; 500]);
        for sender in &mut senders {
            sender.push_owned(buffer.clone(), &meta(seq as u64)).unwrap();
        }
        drop(buffer);
        assert_eq!(message(&at_fast).data, [seq as u8; 500][..]);
    }
    owner.await_out(2);
    for seq in 0..count {
        assert_eq!(message(&at_slow).data, [seq as u8; 500][..]);
    }
    owner.await_out(0);
}

#[test]
fn a_connection_has_one_feeder() {
    let pair = pair();
    let first = feed(&pair.sending, BufferLimits::default());
    let config = SinkConfig::new(choice::fifo());
    let second = pair.sending.add_buffer_sink(config, BufferLimits::default());
    assert!(matches!(second.err(), Some(SenderError::HasSink)));
    let ring = sender(1).add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo()));
    assert!(matches!(ring.err(), Some(SenderError::HasSink)));
    drop(first);
}

#[test]
fn a_group_is_fed_from_buffers_too() {
    if !has_multicast() {
        return;
    }
    let near = node();
    let config = GroupTransportConfig::new(address(), Rate::from_bits_per_sec(1_000_000_000));
    let config = GroupConfig::from(config.repair_for(Duration::from_millis(50)));
    let group = near.group(&config).unwrap();
    let owner = Owner::default();
    let config = SinkConfig::new(choice::expiring());
    let mut sender = group.add_buffer_sink(config, BufferLimits::default()).unwrap();
    let far = bind(NodeConfig::new().unwrap().join(JoinConfig::default()));
    let (to, at) = connect(&near, &far);
    group.invite(&to).unwrap();
    until("the invitation comes", || !at.memberships().is_empty());
    for seq in 0..20 {
        sender.push_owned(owner.lend([seq; 3000]), &meta(u64::from(seq))).unwrap();
    }
    let mut arrived: Vec<_> = (0..20).map(|_| message(&at)).collect();
    arrived.sort_by_key(|message| message.seq);
    for (seq, message) in (0..20u8).zip(arrived) {
        assert_eq!((message.seq, message.data), (u64::from(seq), Bytes::from(vec![seq; 3000])));
    }
    assert_eq!(sender.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    assert_eq!(owner.out(), 0);
}

#[test]
fn a_socket_sends_buffers_to_all_its_sinks() {
    let socket = || {
        let config = NodeConfig::new().unwrap();
        Socket::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
    };
    let (mut near, mut far) = (socket(), [socket(), socket()]);
    for far in &far {
        near.add_sink(far.local_addr().unwrap(), &far.public_key(), None).unwrap();
    }
    let owner = Owner::default();
    let sent = near.send_buffer(owner.lend("to all"), WhenFull::Block).unwrap();
    assert_eq!(sent.sinks, 2);
    for far in &mut far {
        let mut buffer = [0; 64];
        let received = far.recv(&mut buffer, PATIENCE).unwrap();
        assert_eq!(&buffer[..received.len], b"to all");
    }
    owner.await_out(0);
}
