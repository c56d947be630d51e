//! What the engine does when its policies, its peers and its owner do not behave.

mod until;

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshwire::choice::{self, Choice, Decision, Reason, Record};
use freshwire::engine::EngineThread;
use freshwire::framing::{Framer, Piece};
use freshwire::receive::{ChunkedReceiver, Message};
use freshwire::sink::{Carrier, CloseMode, Reserve, Seal, SinkError, StaleSink};
use freshwire::{
    Ended, Engine, EngineHandle, Framing, Meta, Outcome, PushError, RingConfig, Sender, SenderError, Sink,
    SinkConfig, now,
};
use freshwire_netns::trust::{Trial, measure};
use freshwire_record::Timestamp;
use until::{found, until};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(5);

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((near, far))
}

fn sender(engine: &EngineHandle) -> Result<Sender> {
    let ring = RingConfig { rings: 1, slots: 64, block_bytes: 4096, blocks: 64 };
    Ok(Sender::new(&ring, engine)?)
}

struct Fixture {
    engine: EngineThread,
    sender: Sender,
    sink: Sink,
    far: TcpStream,
}

fn fixture(config: SinkConfig) -> Result<Fixture> {
    let engine = Engine::new()?.spawn()?;
    let (near, far) = pair()?;
    let mut sender = sender(&engine.handle())?;
    let sink = sender.add_sink(near, config)?;
    Ok(Fixture { engine, sender, sink, far })
}

/// A sink with the application's own rule, whose sender the rule can reach.
fn shared_fixture<P: Choice + 'static>(
    engine: &EngineThread,
    policy: impl FnOnce(Arc<Mutex<Sender>>) -> P,
) -> Result<(Arc<Mutex<Sender>>, Sink, TcpStream)> {
    let (near, far) = pair()?;
    let sender = Arc::new(Mutex::new(sender(&engine.handle())?));
    let config = SinkConfig::new(policy(Arc::clone(&sender))).framing(Framing::Chunked);
    let sink = lock(&sender).add_sink(near, config)?;
    Ok((sender, sink, far))
}

fn lock(sender: &Mutex<Sender>) -> std::sync::MutexGuard<'_, Sender> {
    sender.lock().unwrap_or_else(PoisonError::into_inner)
}

fn meta(seq: u64) -> Meta {
    Meta { seq, generated: now(), ..Meta::default() }
}

/// Pushes until the peer's window is full and all that was pushed is in the kernel.
fn fill_window(sender: &mut Sender, sink: &Sink) -> Result<u64> {
    for seq in 0..10_000 {
        sender.push(sink.id(), &[0; 4096], &meta(seq))?;
        until("the record is written", || sink.stats().finished > seq);
        let deadline = now() + Duration::from_millis(150);
        while sink.stats().acked < sink.stats().bytes {
            if now() > deadline {
                return Ok((seq + 1) * 4096);
            }
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Err("the peer takes everything".into())
}

#[test]
fn a_policy_that_points_outside_the_queue_harms_nobody() -> Result<()> {
    for wrong in [Decision::Send(7), Decision::Drop(7, Reason::Expired)] {
        let policy = choice::from_fn(move |_, queue: &[Record], _: &_| match queue.len() {
            1 => wrong,
            _ => Decision::Send(0),
        });
        let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(SinkConfig::new(policy))?;
        sender.push(sink.id(), b"one", &meta(1))?;
        // Pause: the engine goes to sleep.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(sink.ended(), None);
        sender.push(sink.id(), b"two", &meta(2))?;
        let mut bytes = [0; 3];
        far.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"one");
    }
    Ok(())
}

#[test]
fn a_policy_that_never_stops_dropping_starves_no_other_sink() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let (endless, sink, _far) = shared_fixture(&engine, |sender| {
        choice::from_fn(move |_, _: &[Record], _: &_| {
            let _ = lock(&sender).producer().push(0, b"next", &meta(0));
            Decision::Drop(0, Reason::Expired)
        })
    })?;
    lock(&endless).push(sink.id(), b"first", &meta(0))?;
    let (near, mut far) = pair()?;
    let mut healthy = sender(&engine.handle())?;
    let healthy_sink = healthy.add_sink(near, SinkConfig::new(choice::fifo()))?;
    healthy.push(healthy_sink.id(), b"here", &meta(1))?;
    let mut bytes = [0; 4];
    let read = far.read_exact(&mut bytes);
    if read.is_err() {
        // The engine's thread would never be joined.
        std::mem::forget(engine);
    }
    read?;
    Ok(())
}

#[test]
fn a_policy_that_names_the_same_time_again_is_asked_again() -> Result<()> {
    let (mut calls, mut until) = (0, None);
    let policy = choice::from_fn(move |now, _: &[Record], _: &_| {
        calls += 1;
        let until = *until.get_or_insert(now + Duration::from_millis(5));
        if calls > 3 { Decision::Send(0) } else { Decision::Wait(Some(until)) }
    });
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(SinkConfig::new(policy))?;
    sender.push(sink.id(), b"x", &meta(1))?;
    far.read_exact(&mut [0])?;
    Ok(())
}

#[test]
fn a_record_replaced_during_a_decision_has_its_new_number() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let (sender, sink, far) = shared_fixture(&engine, |sender| {
        choice::from_fn(move |_, queue: &[Record], _: &_| {
            if queue[0].seq == 1 {
                let newer = Meta { key: 7, ..meta(2) };
                assert!(lock(&sender).producer().replace(0, b"new", &newer).is_ok());
            }
            Decision::Send(0)
        })
    })?;
    lock(&sender).push(sink.id(), b"old", &Meta { key: 7, ..meta(1) })?;
    match ChunkedReceiver::new(far).next_message()?.ok_or("a record")? {
        Message::Record { id, payload, .. } => assert_eq!((id, payload.as_slice()), (2, &b"new"[..])),
        other => panic!("{other:?}"),
    }
    Ok(())
}

#[test]
fn a_peer_that_has_ended_its_direction_gets_everything() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).reserve(Reserve::Fixed(1 << 20)).queue_target(None);
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(config)?;
    far.shutdown(Shutdown::Write)?;
    let pushed = fill_window(&mut sender, &sink)?;
    let reader = std::thread::spawn(move || {
        // Pause: the reader comes late.
        std::thread::sleep(Duration::from_millis(200));
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).map(|_| bytes.len() as u64)
    });
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    assert_eq!(reader.join().map_err(|_| "the reader panicked")??, pushed);
    Ok(())
}

#[test]
fn without_ack_fates_a_record_is_over_when_it_is_sent() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).ack_fates(false);
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(config)?;
    sender.push(sink.id(), b"hello", &meta(1))?;
    far.read_exact(&mut [0; 5])?;
    let fate = found("a fate", || sender.poll_fate(sink.id()).expect("a sink of this sender"));
    assert_eq!((fate.seq, fate.outcome, fate.acked_at), (1, Outcome::Sent, None));
    // The sink knows of the acknowledgement all the same: its end is not an abort.
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    Ok(())
}

#[test]
fn a_half_closed_peer_that_resets_ends_the_sink() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).reserve(Reserve::Fixed(1 << 20)).queue_target(None);
    let Fixture { engine: _engine, mut sender, sink, far } = fixture(config)?;
    far.shutdown(Shutdown::Write)?;
    fill_window(&mut sender, &sink)?;
    let closer = std::thread::spawn(move || {
        // Pause: the peer leaves while the sink closes.
        std::thread::sleep(Duration::from_millis(200));
        // What it has not read makes this a reset.
        drop(far);
    });
    let began = now();
    let ended = sink.close(CloseMode::Drain, TIMEOUT);
    let is_reset = |error: &SinkError| match error {
        SinkError::Io { kind, .. } => matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        error => *error == SinkError::PeerClosed,
    };
    assert!(matches!(&ended, Ended::Broken(error) if is_reset(error)), "{ended:?}");
    assert!(now().saturating_since(began) < TIMEOUT, "the reset was not noticed");
    closer.join().map_err(|_| "the closer panicked")?;
    Ok(())
}

#[test]
fn a_push_to_all_skips_a_stale_sink_and_wakes_the_others() -> Result<()> {
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(SinkConfig::new(choice::fifo()))?;
    // Pause: the engine goes to sleep.
    std::thread::sleep(Duration::from_millis(20));
    let elsewhere = fixture(SinkConfig::new(choice::fifo()))?;
    let foreign = elsewhere.sink.id();
    assert_eq!(sender.push_to_all([foreign, sink.id()], b"x", &meta(1)), Ok(1));
    assert_eq!(sender.missed(), [(foreign, PushError::StaleSink(StaleSink(foreign)))]);
    // Well below the engine's longest sleep, which would find the record too.
    far.set_read_timeout(Some(Duration::from_millis(400)))?;
    far.read_exact(&mut [0])?;
    Ok(())
}

#[test]
fn replace_to_all_counts_overwrites_and_names_missed_sinks() -> Result<()> {
    // No engine runs: everything stays in the rings.
    let engine = Engine::new()?;
    let mut sender = sender(&engine.handle())?;
    let ((near, _far), elsewhere) = (pair()?, fixture(SinkConfig::new(choice::latest()))?);
    let sink = sender.add_sink(near, SinkConfig::new(choice::latest()))?;
    let foreign = elsewhere.sink.id();
    for (at, len) in [10, 10, 5].into_iter().enumerate() {
        let meta = Meta { key: 1, seq: at as u64, ..Meta::default() };
        assert_eq!(sender.replace_to_all([foreign, sink.id()], &vec![0; len], &meta), Ok(1));
        assert_eq!(sender.missed(), [(foreign, PushError::StaleSink(StaleSink(foreign)))]);
        assert_eq!((sender.waiting(sink.id())?, sink.stats().overwritten), (1, at as u64));
    }
    let other = Meta { key: 2, ..Meta::default() };
    assert_eq!(sender.replace_to_all([sink.id()], b"x", &other), Ok(1));
    assert_eq!((sender.missed(), sender.waiting(sink.id())?), (&[][..], 2));
    let large = vec![0; 1 << 20];
    assert_eq!(sender.replace_to_all([sink.id()], &large, &other), Err(PushError::TooLarge));
    Ok(())
}

#[test]
fn the_end_of_a_sink_is_a_file_that_becomes_readable() -> Result<()> {
    let Fixture { engine, mut sender, sink, mut far } = fixture(SinkConfig::new(choice::fifo()))?;
    let is_readable = |event: &freshwire::watch::EndEvent, patience: Duration| {
        let mut files = [rustix::event::PollFd::new(event, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut files, Some(&patience.try_into()?))
            .map(|ready| ready > 0)
            .map_err(Box::<dyn std::error::Error>::from)
    };
    let event = sink.end_event()?;
    sender.push(sink.id(), b"x", &meta(1))?;
    far.read_exact(&mut [0])?;
    assert!(!is_readable(&event, Duration::ZERO)?, "records are not the end");
    drop(engine);
    assert!(is_readable(&event, TIMEOUT)?);
    assert!(is_readable(&sink.end_event()?, Duration::ZERO)?, "also for who asks later");
    Ok(())
}

#[test]
fn a_drain_that_ran_out_of_time_is_not_a_delivery() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).reserve(Reserve::Fixed(1 << 20)).queue_target(None);
    let Fixture { engine: _engine, mut sender, sink, far: _far } = fixture(config)?;
    fill_window(&mut sender, &sink)?;
    let ended = sink.close(CloseMode::Drain, Duration::from_millis(100));
    assert_eq!(ended, Ended::Broken(SinkError::OutOfTime));
    Ok(())
}

#[test]
fn a_sink_of_an_engine_that_is_gone_has_ended() -> Result<()> {
    let engine = Engine::new()?;
    let mut queued = sender(&engine.handle())?;
    let mut late = sender(&engine.handle())?;
    let first = queued.add_sink(pair()?.0, SinkConfig::new(choice::fifo()))?;
    drop(engine);
    let second = late.add_sink(pair()?.0, SinkConfig::new(choice::fifo()))?;
    for (sender, sink) in [(&mut queued, first), (&mut late, second)] {
        assert_eq!(sink.ended(), Some(Ended::Broken(SinkError::Stopped)));
        assert_eq!(sender.push(sink.id(), b"x", &meta(1)), Err(PushError::Closed));
    }
    Ok(())
}

#[test]
fn the_thread_that_pushes_may_serve() -> Result<()> {
    let mut engine = Engine::new()?;
    let (near, mut far) = pair()?;
    let mut sender = sender(&engine.handle())?;
    let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()).framing(Framing::Raw))?;
    engine.run_once(Some(Duration::ZERO))?;
    for seq in 1..=3 {
        sender.push(sink.id(), b"served", &meta(seq))?;
        // Nobody drives the engine.
        sender.serve([sink.id()]);
        let mut bytes = [0; 6];
        far.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"served");
    }
    Ok(())
}

/// Holds each record back for a while.
#[derive(Default)]
struct Slow {
    asked: Option<(u64, Timestamp)>,
}

impl Slow {
    const PAUSE: Duration = Duration::from_millis(5);
}

impl Choice for Slow {
    fn pick(&mut self, now: Timestamp, queue: &[Record], _link: &choice::LinkView) -> Decision {
        let at = match self.asked {
            Some((seq, at)) if seq == queue[0].seq => at,
            _ => now + Self::PAUSE,
        };
        self.asked = Some((queue[0].seq, at));
        if now < at { Decision::Wait(Some(at)) } else { Decision::Send(0) }
    }
}

#[test]
fn a_record_held_back_in_another_threads_turn_is_not_forgotten() {
    measure("engine: what a policy holds back is not forgotten", Slow::PAUSE, || held_back().expect("a run"));
}

fn held_back() -> Result<Trial> {
    const RECORDS: u32 = 100;
    let config = SinkConfig::new(Slow::default()).framing(Framing::Raw);
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(config)?;
    let start = now();
    for seq in 1..=RECORDS {
        let _asleep = sender.producer().push(sink.id().ring(), b"x", &meta(seq.into()))?;
        sender.serve([sink.id()]);
        far.read_exact(&mut [0])?;
    }
    // Without a call the engine would look when it happens to wake up: 7 s in all.
    let took = now().saturating_since(start);
    assert!(took >= Slow::PAUSE * RECORDS, "{took:?}");
    Ok(Trial::new(took < Duration::from_secs(5), || format!("{took:?}")))
}

/// Does not survive its first record.
struct Broken;

impl Choice for Broken {
    fn pick(&mut self, _now: Timestamp, _queue: &[Record], _link: &choice::LinkView) -> Decision {
        panic!("a policy that panics, on purpose");
    }
}

#[test]
fn a_policy_that_panics_in_another_thread_ends_the_engine() -> Result<()> {
    let mut engine = Engine::new()?;
    let (near, _far) = pair()?;
    let mut sender = sender(&engine.handle())?;
    let sink = sender.add_sink(near, SinkConfig::new(Broken))?;
    engine.run_once(Some(Duration::ZERO))?;
    sender.push(sink.id(), b"x", &meta(1))?;
    let id = sink.id();
    assert!(std::thread::spawn(move || sender.serve([id])).join().is_err(), "the policy panics there");
    assert!(engine.run_once(Some(Duration::ZERO)).is_err());
    drop(engine);
    assert_eq!(sink.ended(), Some(Ended::Broken(SinkError::Stopped)));
    Ok(())
}

#[test]
fn records_of_more_blocks_than_one_write_takes_arrive_whole() -> Result<()> {
    for framing in [Framing::Raw, Framing::LengthPrefixed, Framing::Chunked] {
        let engine = Engine::new()?.spawn()?;
        let (near, mut far) = pair()?;
        let ring = RingConfig { rings: 1, slots: 4096, block_bytes: 64, blocks: 4096 };
        let mut sender = Sender::new(&ring, &engine.handle())?;
        let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()).framing(framing))?;
        // One without payload on each side of each.
        let records = [0, 100_000, 0, 64 * 64 + 1, 0].map(|len: u32| (0..len).map(|at| (at % 251) as u8));
        let records = records.map(Iterator::collect::<Vec<u8>>);
        for (seq, record) in (0..).zip(&records) {
            sender.push(sink.id(), record, &meta(seq))?;
        }
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).map(|_| bytes)
        });
        assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
        let bytes = reader.join().map_err(|_| "the reader panicked")??;
        match framing {
            Framing::Raw => assert!(bytes == records.concat()),
            Framing::Chunked => {
                let mut receiver = ChunkedReceiver::new(bytes.as_slice());
                for record in &records {
                    let message = receiver.next_message()?;
                    assert!(matches!(message, Some(Message::Record { payload, .. }) if payload == *record));
                }
            }
            _ => {
                let with_length =
                    |record: &Vec<u8>| [&(record.len() as u32).to_be_bytes(), &record[..]].concat();
                assert!(bytes == records.iter().map(with_length).collect::<Vec<_>>().concat());
            }
        }
    }
    Ok(())
}

/// A session that is easy to check: each byte is inverted, and the end has a word of its own.
struct Inverse;

impl Seal for Inverse {
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        out.extend(plain.iter().map(|byte| !byte));
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        out.extend_from_slice(b"bye");
        Ok(())
    }
}

#[test]
fn a_sealed_stream_is_sealed_from_its_preface_to_its_last_word() -> Result<()> {
    let config = SinkConfig::new(choice::fifo())
        .framing(Framing::LengthPrefixed)
        .seal(Some(Box::new(Inverse)))
        .preface(b"hello".to_vec());
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(config)?;
    let mut expected = b"hello".to_vec();
    for seq in 0..40 {
        let record = vec![seq as u8; 3000];
        expected.extend_from_slice(&3000u32.to_be_bytes());
        expected.extend_from_slice(&record);
        sender.push(sink.id(), &record, &meta(seq))?;
    }
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).map(|_| bytes)
    });
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let mut wire = reader.join().map_err(|_| "the reader panicked")??;
    assert_eq!(wire.split_off(wire.len() - 3), b"bye");
    wire.iter_mut().for_each(|byte| *byte = !*byte);
    assert!(wire == expected);
    Ok(())
}

#[test]
fn a_peer_that_takes_nothing_ends_after_the_stall_timeout() -> Result<()> {
    let timeout = Duration::from_millis(300);
    let config = SinkConfig::new(choice::fifo()).stall_timeout(Some(timeout));
    let Fixture { engine: _engine, mut sender, sink, far: _far } = fixture(config)?;
    let began = now();
    let mut seq = 0;
    let ended = found("the stall is noticed", || {
        // Full: what the peer does not take stays.
        let _ = sender.push(sink.id(), &[0; 4096], &meta(seq));
        seq += 1;
        sink.ended()
    });
    assert_eq!(ended, Ended::Broken(SinkError::Stalled));
    assert!(now().saturating_since(began) >= timeout);
    Ok(())
}

#[test]
fn an_idle_peer_is_not_stalled() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).stall_timeout(Some(Duration::from_millis(50)));
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(config)?;
    for seq in 0..3 {
        sender.push(sink.id(), b"x", &meta(seq))?;
        far.read_exact(&mut [0])?;
        // Pause: longer than half of the stall timeout.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(sink.ended(), None);
    Ok(())
}

#[test]
fn bytes_between_records_never_stand_within_one() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).framing(Framing::LengthPrefixed);
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(config)?;
    let word = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    for seq in 0..20 {
        sender.push(sink.id(), &[7; 9000], &meta(seq))?;
        sink.interject(word(b"between"));
    }
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).map(|_| bytes)
    });
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let bytes = reader.join().map_err(|_| "the reader panicked")??;
    let (mut records, mut words, mut rest) = (0, 0, &bytes[..]);
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (body, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        match body {
            b"between" => words += 1,
            body => {
                assert!(body == [7; 9000]);
                records += 1;
            }
        }
        rest = after;
    }
    assert_eq!((records, words), (20, 20));
    Ok(())
}

#[test]
fn a_ring_is_used_again_when_its_sink_has_left() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let mut sender = sender(&engine.handle())?;
    for round in 0..5 {
        let (near, mut far) = pair()?;
        // The engine needs a moment to let go of the ring.
        let sink = found("the ring is free again", || {
            let near = near.try_clone().expect("a descriptor");
            sender.add_sink(near, SinkConfig::new(choice::fifo())).ok()
        });
        drop(near);
        let id = sink.id();
        sender.push(id, &[round], &meta(u64::from(round)))?;
        let mut byte = [0];
        far.read_exact(&mut byte)?;
        assert_eq!((id.ring(), byte), (0, [round]));
        drop(sink);
        sender.reuse(id);
    }
    Ok(())
}

/// A policy that panics when the sink receives it, as an application's own may.
struct Unattachable;

impl Choice for Unattachable {
    fn pick(&mut self, _: Timestamp, _: &[Record], _: &choice::LinkView) -> Decision {
        Decision::Wait(None)
    }

    fn attach(&mut self, _: choice::AskAgain) {
        panic!("not this one");
    }
}

#[test]
fn a_sink_that_is_refused_costs_no_ring() -> Result<()> {
    const TIMES: usize = 10_000;
    let engine = Engine::new()?.spawn()?;
    let mut sender = sender(&engine.handle())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (near, mut far) = pair()?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let (unix, _peer) = UnixStream::pair()?;
    let socket = |of: &dyn AsFd| of.as_fd().try_clone_to_owned().map(TcpStream::from);
    let fifo = || SinkConfig::new(choice::fifo());
    for time in 0..TIMES {
        let (socket, config) = match time % 6 {
            0 => (socket(&listener)?, fifo()),
            1 => (socket(&udp)?, fifo()),
            2 => (socket(&unix)?, fifo()),
            3 => (socket(&near)?, fifo().congestion("no such thing")),
            4 => (socket(&near)?, fifo().carrier(Carrier::Kernel).framing(Framing::Chunked)),
            _ => (socket(&near)?, fifo().keys(1_000_000)),
        };
        let refused = sender.add_sink(socket, config).map(|sink| sink.id());
        assert!(!matches!(refused, Ok(_) | Err(SenderError::Claim(_))), "{time}: {refused:?}");
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sender.add_sink(near.try_clone()?, SinkConfig::new(Unattachable)).map(|sink| sink.id())
    }));
    assert!(panicked.is_err());
    let sink = sender.add_sink(near, fifo())?;
    sender.push(sink.id(), &[7], &meta(0))?;
    let mut byte = [0];
    far.read_exact(&mut byte)?;
    assert_eq!((sink.id().ring(), byte), (0, [7]));
    Ok(())
}

/// In order, but small records before the rest of large ones.
struct SmallFirst;

impl Choice for SmallFirst {
    fn pick(&mut self, _: Timestamp, queue: &[Record], _: &choice::LinkView) -> Decision {
        if queue.is_empty() { Decision::Wait(None) } else { Decision::Send(0) }
    }

    fn overtakes(&self, _: Timestamp, record: &Record, in_progress: &Record) -> bool {
        record.len < 100 && in_progress.len > 100
    }
}

/// Cuts records into pieces of a thousand bytes, each after its record's number and its length. Odd records overtake even ones.
#[derive(Default)]
struct Cut {
    /// Number, how far it is, and length; the last one is open.
    open: Vec<(u64, u32, u32)>,
}

impl Framer for Cut {
    fn begin(&mut self, seq: u64, len: u32) {
        self.open.push((seq, 0, len));
    }

    fn next(&mut self, _: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let (seq, begin, len) = self.open.last_mut()?;
        let payload = *begin..(*begin + 1000).min(*len);
        *begin = payload.end;
        prefix.push(*seq as u8);
        prefix.extend((payload.len() as u16).to_be_bytes());
        let last = payload.end == *len;
        if last {
            self.open.pop();
        }
        Some(Piece { payload, last, boundary: true })
    }

    fn can_be_overtaken(&self) -> bool {
        matches!(self.open[..], [(seq, ..)] if seq % 2 == 0)
    }

    fn can_overtake(&self, seq: u64) -> bool {
        self.can_be_overtaken() && seq % 2 == 1
    }
}

/// What a reader of [`Cut`] finds: numbers in the order in which records end, and whether each is whole.
fn read_cut(mut bytes: &[u8], records: &[Vec<u8>]) -> Vec<usize> {
    let mut found = vec![Vec::new(); records.len()];
    let mut order = Vec::new();
    while let [seq, high, low, rest @ ..] = bytes {
        let (piece, rest) = rest.split_at(u16::from_be_bytes([*high, *low]).into());
        let seq = usize::from(*seq);
        found[seq].extend_from_slice(piece);
        if found[seq].len() == records[seq].len() {
            assert!(found[seq] == records[seq], "record {seq}");
            order.push(seq);
        }
        bytes = rest;
    }
    order
}

#[test]
fn a_small_record_overtakes_the_rest_of_a_large_one() -> Result<()> {
    for sealed in [false, true] {
        let config = SinkConfig::new(SmallFirst).framing(Box::new(Cut::default()) as Box<dyn Framer>);
        let config = if sealed { config.seal(Some(Box::new(Inverse))) } else { config };
        let engine = Engine::new()?.spawn()?;
        let (near, mut far) = pair()?;
        let ring = RingConfig { rings: 1, slots: 16, block_bytes: 8 << 20, blocks: 16 };
        let mut sender = Sender::new(&ring, &engine.handle())?;
        let sink = sender.add_sink(near, config)?;
        // The first one is more than both ends of the connection hold, and the peer does not read yet.
        let sizes = [8 << 20, 10, 20_000, 20, 200, 30];
        let records = sizes.map(|len: u32| (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        sender.push(sink.id(), &records[0], &meta(0))?;
        until("something is written", || sink.stats().bytes > 0);
        for (seq, record) in (1..).zip(&records[1..]) {
            sender.push(sink.id(), record, &meta(seq))?;
        }
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).map(|_| bytes)
        });
        let id = sink.id();
        assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
        let mut bytes = reader.join().map_err(|_| "the reader panicked")??;
        if sealed {
            bytes.truncate(bytes.len() - b"bye".len());
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        // Numbers 1, 3 and 5 are small; 4 is even and goes in its turn, and so does what is small when nothing waits for it.
        assert_eq!(read_cut(&bytes, &records), [1, 3, 5, 0, 2, 4], "sealed: {sealed}");
        let mut fates = Vec::new();
        while let Some(fate) = sender.poll_fate(id)? {
            assert_eq!(fate.outcome, Outcome::Acked, "{fate:?}");
            fates.push(fate.seq);
        }
        fates.sort_unstable();
        assert_eq!(fates, [0, 1, 2, 3, 4, 5]);
    }
    Ok(())
}

/// Writes records of three bytes as they are, and the numbers of missed ones in their place.
#[derive(Default)]
struct Replacing {
    is_open: bool,
    missed: Vec<u64>,
}

impl Framer for Replacing {
    fn begin(&mut self, _seq: u64, _len: u32) {
        self.is_open = true;
    }

    fn next(&mut self, _max: usize, _prefix: &mut Vec<u8>) -> Option<Piece> {
        std::mem::take(&mut self.is_open).then_some(Piece { payload: 0..3, last: true, boundary: true })
    }

    fn missed(&mut self, seq: u64) {
        self.missed.push(seq);
    }

    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        out.extend(self.missed.iter().flat_map(|seq| format!("<{seq}>").into_bytes()));
        std::mem::take(&mut self.missed).len()
    }
}

#[test]
fn a_framing_replaces_what_was_dropped_in_its_order() -> Result<()> {
    // The policy drops record 3 first, while 1 and 2 are before it, and then these two. Record 4 waits for 5.
    // The engine may look between two pushes.
    let policy = choice::from_fn(move |_, queue: &[Record], _: &_| {
        match queue.iter().map(|record| record.seq).collect::<Vec<_>>()[..] {
            [1, 2, 3, 4] => Decision::Drop(2, Reason::Expired),
            [1, 2, 4] | [2, 4] => Decision::Drop(0, Reason::Expired),
            [4, 5] => Decision::Send(0),
            _ => Decision::Wait(None),
        }
    });
    let Fixture { engine: _engine, mut sender, sink, mut far } =
        fixture(SinkConfig::new(policy).framing(Box::new(Replacing::default()) as Box<dyn Framer>))?;
    for seq in 1..=4 {
        sender.push(sink.id(), b"rec", &meta(seq))?;
    }
    let mut bytes = [0; 6];
    far.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"<1><2>");
    assert_eq!(sink.stats().replaced, 2);
    sender.push(sink.id(), b"rec", &meta(5))?;
    far.read_exact(&mut bytes[..3])?;
    assert_eq!(&bytes[..3], b"rec");
    Ok(())
}
