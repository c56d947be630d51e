//! Records that are read into the arena and committed, over loopback.
#![allow(clippy::unwrap_used, reason = "a test")]

mod until;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::a1::{ConnectConfig, Node, NodeConfig};
use freshwire::choice::{self, Choice};
use freshwire::ring::Reservation;
use freshwire::sink::CloseMode;
use freshwire::{
    Ended, Engine, Meta, Outcome, PushError, RingConfig, Sender, Sink, SinkConfig, Timestamp, now,
};

use until::until;

const TIMEOUT: Duration = Duration::from_secs(20);
const BLOCK: usize = 4096;
const SLOTS: usize = 8;

fn config(rings: u32) -> RingConfig {
    RingConfig { rings, slots: SLOTS as u32, block_bytes: BLOCK as u32, blocks: SLOTS as u32 }
}

fn add(sender: &mut Sender, policy: impl Choice + 'static) -> (Sink, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    far.set_read_timeout(Some(TIMEOUT)).unwrap();
    (sender.add_sink(near, SinkConfig::new(policy)).unwrap(), far)
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn file(content: &[u8]) -> File {
    let fd = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    file
}

fn read(space: &mut Reservation, file: &File) {
    while space.read_from(file).unwrap() > 0 {}
}

fn meta() -> Meta {
    Meta { generated: now(), ..Meta::default() }
}

#[test]
fn a_file_goes_through_the_arena_and_has_fates() {
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, SLOTS * BLOCK] {
        let engine = Engine::new().unwrap().spawn().unwrap();
        let mut sender = Sender::new(&config(1), &engine.handle()).unwrap();
        let (sink, mut far) = add(&mut sender, choice::fifo());
        let (id, source) = (sink.id(), file(&payload(size)));
        let mut space = sender.reserve(id, SLOTS * BLOCK, &meta()).unwrap();
        read(&mut space, &source);
        let number = sender.commit(id, &mut space, &meta()).unwrap();
        assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, payload(size));
        let fates: Vec<_> = sender.fates(id).unwrap().map(|fate| (fate.seq, fate.outcome)).collect();
        assert_eq!(fates, [(number, Outcome::Acked)]);
        // The rest of the space came back, and so has the record's.
        assert!(sender.producer().reserve(SLOTS * BLOCK).is_ok());
    }
}

#[test]
fn a_reservation_has_the_policy_drop_stale_records_first() {
    let mut engine = Engine::new().unwrap();
    let mut sender = Sender::new(&config(1), &engine.handle()).unwrap();
    let (sink, _far) = add(&mut sender, choice::expiring());
    // One turn to know the sink. It has no other: nothing leaves the ring.
    engine.run_once(Some(Duration::ZERO)).unwrap();
    let (id, stale) = (sink.id(), Meta { deadline: Timestamp::from_nanos(1), ..Meta::default() });
    for _ in 0..SLOTS {
        sender.push(id, b"stale", &stale).unwrap();
    }
    let mut space = sender.reserve(id, 2 * BLOCK, &meta()).unwrap();
    space.write_all(b"fresh").unwrap();
    sender.commit(id, &mut space, &meta()).unwrap();
    assert!(sender.waiting(id).unwrap() < SLOTS);
    // Slots may be full again by the time of the commit.
    let mut space = sender.reserve(id, 1, &meta()).unwrap();
    for _ in 0..SLOTS {
        sender.push(id, b"stale", &stale).unwrap();
    }
    let committed = sender.commit(id, &mut space, &meta());
    assert!(committed.is_ok(), "{committed:?}");
}

#[test]
fn a_full_ring_refuses_and_leaves_the_reservation() {
    let engine = Engine::new().unwrap();
    let mut sender = Sender::new(&config(2), &engine.handle()).unwrap();
    let (sink, _far) = add(&mut sender, choice::fifo());
    let id = sink.id();
    let mut space = sender.reserve(id, BLOCK, &meta()).unwrap();
    space.write_all(b"kept").unwrap();
    let mut pushed = Vec::new();
    while let Ok(number) = sender.push(id, b"x", &meta()) {
        pushed.push(number);
    }
    assert_eq!(pushed.len(), SLOTS - 1, "the reservation has a block, and no slot");
    assert_eq!(sender.reserve(id, 1, &meta()).unwrap_err(), PushError::OutOfBlocks);
    let last = sender.commit(id, &mut space, &meta()).unwrap();
    assert_eq!(sender.commit(id, &mut space, &meta()), Err(PushError::ForeignReservation));
    assert_eq!(sender.reserve(id, 1, &meta()).unwrap_err(), PushError::Full);
    assert!(sender.drop_seq(id, last).unwrap(), "a committed record is one like any other");
}

#[test]
fn a_refused_commit_has_a_fate_and_can_be_repeated() {
    let engine = Engine::new().unwrap();
    let roomy = RingConfig { blocks: 2 * SLOTS as u32, ..config(1) };
    let mut sender = Sender::new(&roomy, &engine.handle()).unwrap();
    let (sink, _far) = add(&mut sender, choice::fifo());
    let id = sink.id();
    let mut space = sender.reserve(id, BLOCK, &meta()).unwrap();
    let mut last = 0;
    while let Ok(number) = sender.push(id, b"x", &meta()) {
        last = number;
    }
    let refused = Meta { seq: 1000, ..meta() };
    assert_eq!(sender.commit(id, &mut space, &refused), Err(PushError::Full));
    assert_eq!(sender.reserve(id, 1, &meta()).unwrap_err(), PushError::Full);
    assert!(sender.drop_seq(id, last).unwrap());
    assert_eq!(sender.commit(id, &mut space, &Meta { seq: 1001, ..meta() }), Ok(1001));
    let fates: Vec<_> = sender.fates(id).unwrap().map(|fate| (fate.seq, fate.outcome)).collect();
    assert!(fates.contains(&(1000, Outcome::Refused)), "{fates:?}");
}

#[test]
fn one_reservation_goes_to_many_and_is_stored_once() {
    let engine = Engine::new().unwrap().spawn().unwrap();
    let mut sender = Sender::new(&config(3), &engine.handle()).unwrap();
    let (mut sinks, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (sink, far) = add(&mut sender, choice::fifo());
        sinks.push(sink);
        readers.push(far);
    }
    let ids: Vec<_> = sinks.iter().map(Sink::id).collect();
    let source = file(&payload(2 * BLOCK + 1));
    let mut space = sender.reserve_for_all(ids.iter().copied(), SLOTS * BLOCK, &meta()).unwrap();
    read(&mut space, &source);
    // Its own three blocks are all that it has from now on.
    assert_eq!(sender.commit_to_all(ids.iter().copied(), space, &meta()), Ok(2));
    assert!(sender.missed().is_empty());
    for sink in sinks {
        assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    }
    for mut reader in readers {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, payload(2 * BLOCK + 1));
    }
    let stale = ids[0];
    let space = sender.reserve_for_all([], BLOCK, &meta()).unwrap();
    assert_eq!(sender.commit_to_all([stale], space, &meta()), Ok(0));
    assert_eq!(sender.missed(), [(stale, PushError::Closed)]);
    assert!(sender.producer().reserve(SLOTS * BLOCK).is_ok(), "nothing is left behind");
}

#[test]
fn many_make_room_by_the_policy_of_each() {
    let mut engine = Engine::new().unwrap();
    let mut sender = Sender::new(&config(2), &engine.handle()).unwrap();
    let (keeps, _far) = add(&mut sender, choice::fifo());
    let (drops, _other) = add(&mut sender, choice::expiring());
    engine.run_once(Some(Duration::ZERO)).unwrap();
    let ids = [keeps.id(), drops.id()];
    let stale = Meta { deadline: Timestamp::from_nanos(1), ..Meta::default() };
    for _ in 0..SLOTS {
        sender.push(ids[1], b"stale", &stale).unwrap();
    }
    let refused = sender.reserve_for_all([ids[0]], 1, &meta()).unwrap_err();
    assert_eq!(refused, PushError::OutOfBlocks);
    let space = sender.reserve_for_all(ids, 1, &meta()).unwrap();
    assert_eq!(sender.commit_to_all(ids, space, &meta()), Ok(2));
    let too_large = sender.reserve_for_all(ids, SLOTS * BLOCK + 1, &meta()).unwrap_err();
    assert_eq!(too_large, PushError::TooLarge);
}

#[test]
fn a_message_over_a1_is_read_into_the_arena() {
    let node = || Node::bind("127.0.0.1:0".parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
    let (near, far) = (node(), node());
    let address = far.local_addr().unwrap();
    let connection = near.connect(address, &far.public_key(), &ConnectConfig::default()).unwrap();
    let receiving = far.accept(TIMEOUT).unwrap().expect("a connection");
    let mut sender = Sender::without_engine(&config(1)).unwrap();
    let sink = sender.add_a1_sink(&connection, freshwire::a1::SinkConfig::new(choice::fifo())).unwrap();
    let source = file(&payload(BLOCK + 1));
    let mut space = sender.reserve(sink.id(), 2 * BLOCK, &meta()).unwrap();
    read(&mut space, &source);
    let number = sender.commit(sink.id(), &mut space, &meta()).unwrap();
    let message = receiving.recv(TIMEOUT).unwrap().expect("a message");
    assert_eq!(message.data[..], payload(BLOCK + 1));
    let mut fate = None;
    until("a fate", || {
        fate = sender.poll_fate(sink.id()).unwrap();
        fate.is_some()
    });
    assert_eq!(fate.map(|fate| (fate.seq, fate.outcome)), Some((number, Outcome::Acked)));
}
