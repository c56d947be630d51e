//! Records that go past the rings: the stream is the one that the rings would make.

#[path = "at_once/batch.rs"]
mod batch;
#[path = "at_once/group.rs"]
mod group;
mod until;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshwire::choice::{self, Choice, Decision, LinkView, Outcome, Reason, Record};
use freshwire::engine::EngineThread;
use freshwire::fanout::{MAX_AT_ONCE, RingPushError, Stored, Target};
use freshwire::{Engine, Framing, Meta, RingConfig, Sender, Sink, SinkConfig, SinkId, now};
use freshwire_record::Timestamp;
use until::until;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Read and write buffers of the peers' sockets that soon take nothing more.
const SMALL: usize = 16 << 10;

struct Fixture {
    engine: EngineThread,
    sender: Sender,
    sinks: Vec<Sink>,
    far: Vec<TcpStream>,
}

fn fixture(sinks: usize, config: impl Fn() -> SinkConfig) -> Result<Fixture> {
    let engine = Engine::new()?.spawn()?;
    let ring = RingConfig { rings: sinks as u32, slots: 64, block_bytes: 4096, blocks: 4096 };
    let mut fixture =
        Fixture { sender: Sender::new(&ring, &engine.handle())?, engine, sinks: Vec::new(), far: Vec::new() };
    for _ in 0..sinks {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let far = listener.accept()?.0;
        far.set_read_timeout(Some(TIMEOUT))?;
        rustix::net::sockopt::set_socket_send_buffer_size(&near, SMALL)?;
        fixture.sinks.push(fixture.sender.add_sink(near, config())?);
        fixture.far.push(far);
    }
    Ok(fixture)
}

fn plain() -> SinkConfig {
    SinkConfig::new(choice::fifo()).framing(Framing::LengthPrefixed).ack_fates(false)
}

fn meta(seq: u64) -> Meta {
    Meta { seq, generated: now(), ..Meta::default() }
}

/// The bytes of a record, by its number.
fn payload(seq: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![(seq % 251) as u8; len];
    bytes[..8].copy_from_slice(&seq.to_be_bytes());
    bytes
}

fn read_record(far: &mut TcpStream) -> Result<Vec<u8>> {
    let mut len = [0; 4];
    far.read_exact(&mut len)?;
    let mut bytes = vec![0; u32::from_be_bytes(len) as usize];
    far.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Puts a record on its ring and serves the sink on this thread if it sleeps.
fn queue(sender: &mut Sender, target: &Target, stored: &Stored) -> std::result::Result<(), RingPushError> {
    if sender.producer().push_stored(target.sink.ring(), stored, &target.meta)?.notify {
        sender.serve([target.sink]);
    }
    Ok(())
}

/// Sends records of this length at once where that goes and over the ring elsewhere, until one has gone at once; returns its number.
fn send_until_at_once(fixture: &mut Fixture, id: SinkId, from: u64, len: usize) -> Result<u64> {
    for seq in from..from + 1000 {
        let mut targets = [Target::new(id, meta(seq))];
        let stored = fixture.sender.producer().store(&payload(seq, len))?;
        fixture.sender.send_at_once(&stored, &mut targets)?;
        if targets[0].is_sent() {
            return Ok(seq);
        }
        queue(&mut fixture.sender, &targets[0], &stored)?;
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(2));
    }
    Err("nothing was sent at once".into())
}

#[test]
fn a_record_that_goes_at_once_takes_no_place_in_its_ring() -> Result<()> {
    let mut fixture = fixture(1, plain)?;
    let id = fixture.sinks[0].id();
    let first = send_until_at_once(&mut fixture, id, 0, 100)?;
    for seq in 0..=first {
        assert_eq!(read_record(&mut fixture.far[0])?, payload(seq, 100));
    }
    // Its number is in no fate, and it counts like the others.
    let fates = fixture.sender.fates(id).unwrap();
    assert_eq!(fates.map(|fate| fate.seq).collect::<Vec<_>>(), (0..first).collect::<Vec<_>>());
    let stats = fixture.sinks[0].stats();
    assert_eq!([stats.committed, stats.finished, stats.committed_by_layer[0]], [first + 1; 3]);
    assert_eq!(stats.bytes, (first + 1) * 104);
    Ok(())
}

/// Peers that read at different paces, and send buffers that hold less than a record: what does not fit is held, and all of it arrives
/// in order.
#[test]
fn streams_are_whole_whichever_way_their_records_went() -> Result<()> {
    const RECORDS: u64 = 600;
    let len = |seq: u64| 8 + (seq * 7919 % 30_000) as usize;
    let mut fixture = fixture(3, plain)?;
    let readers: Vec<_> = std::mem::take(&mut fixture.far)
        .into_iter()
        .enumerate()
        .map(|(place, mut far)| {
            std::thread::spawn(move || {
                for seq in 0..RECORDS {
                    let record = read_record(&mut far).expect("a whole record");
                    assert!(
                        record == payload(seq, len(seq)),
                        "record {seq} of peer {place} has {} bytes",
                        record.len()
                    );
                    if seq % 50 == 0 {
                        // Pause: a reader stalls, each for another time.
                        std::thread::sleep(Duration::from_millis(20 * place as u64));
                    }
                }
            })
        })
        .collect();
    let (mut at_once, mut targets) = ([0; 3], Vec::new());
    for seq in 0..RECORDS {
        let stored = fixture.sender.producer().store(&payload(seq, len(seq)))?;
        targets.clear();
        targets.extend(fixture.sinks.iter().map(|sink| Target::new(sink.id(), meta(seq))));
        fixture.sender.send_at_once(&stored, &mut targets)?;
        for (target, at_once) in targets.iter().zip(&mut at_once) {
            *at_once += u64::from(target.is_sent());
            if target.is_sent() {
                continue;
            }
            while let Err(full) = queue(&mut fixture.sender, target, &stored) {
                assert_eq!(full, RingPushError::Full);
                // Pause: the ring is full.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if seq % 3 == 0 {
            // Pause: the pace of the source.
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    for reader in readers {
        assert!(reader.join().is_ok(), "{at_once:?} of {RECORDS} went at once");
    }
    assert!(at_once.iter().all(|&sent| sent > 0 && sent < RECORDS), "both ways were taken: {at_once:?}");
    Ok(())
}

#[test]
fn bytes_that_the_socket_does_not_take_are_held_and_follow() -> Result<()> {
    let mut fixture = fixture(1, plain)?;
    let id = fixture.sinks[0].id();
    let small = send_until_at_once(&mut fixture, id, 0, 100)?;
    // The peer does not read them.
    let mut large = small;
    while fixture.sinks[0].stats().committed == fixture.sinks[0].stats().finished {
        large += 1;
        let at_once = send_until_at_once(&mut fixture, id, large, MAX_AT_ONCE as usize)?;
        assert_eq!(at_once, large, "nothing is before it, and the path is known to be free");
    }
    let mut targets = [Target::new(id, meta(large + 1))];
    let stored = fixture.sender.producer().store(&payload(large + 1, 100))?;
    fixture.sender.send_at_once(&stored, &mut targets)?;
    assert!(!targets[0].is_sent(), "something is before it");
    queue(&mut fixture.sender, &targets[0], &stored)?;
    for seq in 0..=large + 1 {
        let len = if seq > small && seq <= large { MAX_AT_ONCE as usize } else { 100 };
        assert!(read_record(&mut fixture.far[0])? == payload(seq, len), "record {seq}");
    }
    // It has become a record of the ring like others. Its bytes may be here before the engine has written down its end.
    let (mut fates, give_up) = (Vec::new(), now() + TIMEOUT);
    while fates.last() != Some(&(large + 1)) && now() < give_up {
        fates.extend(fixture.sender.fates(id).unwrap().map(|fate| fate.seq));
    }
    assert!(fates.ends_with(&[large, large + 1]), "{fates:?}");
    Ok(())
}

#[test]
fn nothing_goes_past_a_ring_that_has_to_tell_of_it() -> Result<()> {
    let kinds: [fn() -> SinkConfig; 2] = [|| plain().ack_fates(true), || plain().framing(Framing::Chunked)];
    for config in kinds {
        let mut fixture = fixture(1, config)?;
        let id = fixture.sinks[0].id();
        for seq in 0..50 {
            let mut targets = [Target::new(id, meta(seq))];
            let stored = fixture.sender.producer().store(b"record")?;
            fixture.sender.send_at_once(&stored, &mut targets)?;
            assert!(!targets[0].is_sent());
            queue(&mut fixture.sender, &targets[0], &stored)?;
            // Pause: the engine's turn comes between two records.
            std::thread::sleep(Duration::from_millis(1));
        }
        until("all are sent", || fixture.sinks[0].stats().committed == 50);
    }
    let elsewhere = fixture(1, plain)?;
    let foreign = &elsewhere.sinks[0];
    let mut fixture = fixture(1, plain)?;
    let id = fixture.sinks[0].id();
    send_until_at_once(&mut fixture, id, 0, 100)?;
    let stored = fixture.sender.producer().store(&vec![0; MAX_AT_ONCE as usize + 1])?;
    let mut targets = [Target::new(id, meta(1)), Target::new(foreign.id(), meta(1))];
    fixture.sender.send_at_once(&stored, &mut targets)?;
    assert!(targets.iter().all(|target| !target.is_sent()), "too large, and another sender's sink");
    Ok(())
}

/// Logs the outcomes, drops expired records, and sends the others.
#[derive(Clone, Default)]
struct OutcomeLog(Arc<Mutex<Vec<(u64, bool)>>>);

impl Choice for OutcomeLog {
    fn pick(&mut self, now: Timestamp, queue: &[Record], _link: &LinkView) -> Decision {
        match queue.iter().position(|record| record.deadline < now) {
            Some(place) => Decision::Drop(place, Reason::Expired),
            None if queue.is_empty() => Decision::Wait(None),
            None => Decision::Send(0),
        }
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((record.seq, outcome == Outcome::Sent));
    }
}

#[test]
fn the_policy_gets_each_outcome_once_and_in_order() -> Result<()> {
    let log = OutcomeLog::default();
    let mut fixture =
        fixture(1, || SinkConfig::new(log.clone()).framing(Framing::LengthPrefixed).ack_fates(false))?;
    let id = fixture.sinks[0].id();
    let first = send_until_at_once(&mut fixture, id, 0, 100)?;
    // Stale: the policy does not send it, so it goes over the ring, where the policy drops it.
    let stale = Target::new(id, Meta { deadline: Timestamp::ZERO, ..meta(first + 1) });
    let stored = fixture.sender.producer().store(b"stale")?;
    let mut targets = [stale];
    fixture.sender.send_at_once(&stored, &mut targets)?;
    assert!(!targets[0].is_sent());
    queue(&mut fixture.sender, &stale, &stored)?;
    // Dropped by the application before the engine looks.
    let _index = fixture.sender.producer().push_stored_quiet(id.ring(), &stored, &meta(first + 2))?;
    assert_eq!(fixture.sender.drop_seq(id, first + 2), Ok(true));
    let last = send_until_at_once(&mut fixture, id, first + 3, 100)?;
    let sent = |seq| (seq, seq != first + 1 && seq != first + 2);
    let heard = log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(heard, (0..=last).map(sent).collect::<Vec<_>>());
    for seq in (0..=last).filter(|&seq| sent(seq).1) {
        assert_eq!(read_record(&mut fixture.far[0])?, payload(seq, 100));
    }
    Ok(())
}
