//! State over plain TCP: fair by key, never refused, fresh at the program that reads, and with an account that is true.

mod until;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::choice::{self, Reason};
use freshwire::engine::EngineThread;
use freshwire::ring::{NO_INDEX, TooLate};
use freshwire::sender::ModifyError;
use freshwire::sink::{CloseMode, DEFAULT_MAX_UNREAD, StaleSink};
use freshwire::stats::UnreadBy;
use freshwire::websocket::{Event, MessageKind, Messages, Session, Violation};
use freshwire::{
    Ended, Engine, Framing, Meta, Outcome, PushError, RingConfig, Sender, SenderError, Sink, SinkConfig,
    SinkId, Timestamp, now,
};
use freshwire_netns::trust::{Trial, measure};

use until::until;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(16);

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((near, far))
}

struct Fixture {
    engine: EngineThread,
    sender: Sender,
    sink: Sink,
    far: TcpStream,
}

fn fixture(ring: &RingConfig, config: SinkConfig) -> Result<Fixture> {
    let engine = Engine::new()?.spawn()?;
    let (near, far) = pair()?;
    let mut sender = Sender::new(ring, &engine.handle())?;
    let sink = sender.add_sink(near, config)?;
    Ok(Fixture { engine, sender, sink, far })
}

/// One value: its key, its number and when it came into being, and then nothing of interest.
const VALUE_BYTES: usize = 200;

fn value(key: u64, number: u64, at: Timestamp) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    for (place, word) in bytes.chunks_mut(8).zip([key, number, at.as_nanos()]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// What a client has read.
#[derive(Debug)]
struct Reading {
    key: u64,
    number: u64,
    age: Duration,
    at: Timestamp,
}

/// Reads values until the end, with a pause after each.
fn read(mut far: TcpStream, pause: Duration, mut each: impl FnMut(u64)) -> std::io::Result<Vec<Reading>> {
    let mut readings = Vec::new();
    let mut bytes = [0; VALUE_BYTES];
    loop {
        match far.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(readings),
            Err(error) => return Err(error),
        }
        let at = now();
        let word =
            |place: usize| bytes[place * 8..][..8].iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let age = at.saturating_since(Timestamp::from_nanos(word(2)));
        readings.push(Reading { key: word(0), number: word(1), age, at });
        each(readings.len() as u64);
        if !pause.is_zero() {
            // Pause: a slow reader.
            std::thread::sleep(pause);
        }
    }
}

/// Pushes a new value of each key at each tick.
fn play(sender: &mut Sender, id: SinkId, keys: u64, ticks: u64) -> Result<()> {
    let begin = now();
    for tick in 0..ticks {
        for key in 1..=keys {
            let at = now();
            let meta = Meta { seq: tick * keys + key, generated: at, key, ..Meta::default() };
            sender.replace(id, &value(key, tick, at), &meta)?;
        }
        // Pause: the pace of the game.
        std::thread::sleep((begin + TICK * (tick as u32 + 1)).saturating_since(now()));
    }
    Ok(())
}

fn mean_and_95(mut ages: Vec<Duration>) -> (Duration, Duration) {
    ages.sort_unstable();
    let mean = ages.iter().sum::<Duration>() / ages.len().max(1) as u32;
    (mean, ages[ages.len() * 95 / 100])
}

/// Every key is sent as often as every other, and none is silent for more than two rounds. Nothing is
/// refused, and each client gets the last value of each key. A window of a few kilobytes and a reader that
/// takes a tenth make the path the bottleneck.
#[test]
fn fifty_keys_take_turns_on_a_slow_path() {
    measure("state: fifty keys take turns", TICK / 2, || turns().expect("a run"));
}

fn turns() -> Result<Trial> {
    const KEYS: u64 = 50;
    let ring = RingConfig::for_clients(1, KEYS as u32, VALUE_BYTES as u32);
    let config = SinkConfig::new(choice::latest()).keys(KEYS as u32);
    let Fixture { engine: _engine, mut sender, sink, far } = fixture(&ring, config)?;
    let reader = std::thread::spawn(move || read(far, Duration::from_millis(3), |_| ()));
    play(&mut sender, sink.id(), KEYS, 300)?;
    let refused = sender.fates(sink.id())?.filter(|fate| fate.outcome == Outcome::Refused).count();
    assert_eq!(refused, 0);
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let readings = reader.join().map_err(|_| "the reader panicked")??;

    let mut of_key: BTreeMap<u64, Vec<&Reading>> = BTreeMap::new();
    readings.iter().for_each(|reading| of_key.entry(reading.key).or_default().push(reading));
    assert_eq!(of_key.len() as u64, KEYS);
    let mean = readings.len() as f64 / KEYS as f64;
    if mean <= 10.0 {
        return Ok(Trial::new(false, || format!("too little was read to say anything: {mean} of each key")));
    }
    for (key, of) in &of_key {
        let count = of.len() as f64;
        assert!((count - mean).abs() <= 0.25 * mean, "key {key}: {count} times, {mean} in the mean");
        assert_eq!(of.last().map(|last| last.number), Some(299), "key {key}: the last value");
        // In values read rather than in time: other programs may have the machine.
        let places =
            readings.iter().enumerate().filter(|(_, reading)| reading.key == *key).map(|(place, _)| place);
        let places: Vec<usize> = places.collect();
        let silence = places.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
        assert!(silence <= 2 * KEYS as usize, "key {key}: silent for {silence} values");
    }
    Ok(Trial::new(true, String::new))
}

/// A reader of a tenth of the values is behind by what it has in front of it, and no more: with the default settings, and with a gate.
#[test]
fn a_slow_reader_is_fresh() {
    for with_gate in [false, true] {
        let bound = Duration::from_millis(if with_gate { 150 } else { 700 });
        let name = format!("state: a slow reader is fresh, gate: {with_gate}");
        measure(&name, bound / 10, || slow_reader(with_gate, bound).expect("a run"));
    }
}

fn slow_reader(with_gate: bool, bound: Duration) -> Result<Trial> {
    const KEYS: u64 = 50;
    let ring = RingConfig::for_clients(1, KEYS as u32, VALUE_BYTES as u32);
    let (config, gate) = if with_gate {
        let (policy, gate) = choice::gate(choice::latest(), 16);
        (SinkConfig::new(policy), Some(gate))
    } else {
        (SinkConfig::new(choice::latest()), None)
    };
    let Fixture { engine: _engine, mut sender, sink, far } = fixture(&ring, config)?;
    let acknowledged = gate.clone();
    let reader = std::thread::spawn(move || {
        read(far, Duration::from_millis(3), |total| {
            if let Some(gate) = &acknowledged {
                gate.acknowledge(total);
            }
        })
    });
    let id = sink.id();
    play(&mut sender, id, KEYS, 250)?;
    let stats = sink.stats();
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let readings = reader.join().map_err(|_| "the reader panicked")??;
    // What a value was worth at the program: its age beyond the round that it waited for its turn.
    let newest: Vec<Duration> = readings.iter().skip(200).map(|reading| reading.age).collect();
    let (mean, late) = mean_and_95(newest);
    println!("gate: {with_gate}; {} values, age {mean:?} (p95 {late:?}); {stats:?}", readings.len());
    let trial = Trial::new(mean <= bound, || format!("age {mean:?}"));
    if with_gate {
        return Ok(trial);
    }
    assert!(stats.held_unread > Duration::ZERO && stats.unread.is_some(), "{stats:?}");
    assert!(stats.unread_by == Some(UnreadBy::Queue) && stats.times_held_unread > 0, "{stats:?}");
    let reported = sender.fates(id)?.filter(|fate| fate.unread.is_some()).count();
    assert!(reported > 100, "fates report unread bytes: {reported}");
    Ok(trial)
}

/// Readers that keep up get what a sink without a bound delivers beside them, whatever the number, rate and size of the values. All three are
/// sinks of one sender, so that a busy machine concerns each.
#[test]
fn a_fast_reader_is_not_taken_for_a_slow_one() -> Result<()> {
    const BOUNDS: [Option<u32>; 3] = [None, Some(DEFAULT_MAX_UNREAD), Some(2048)];
    let cells = [
        (1, 200, 16),
        (50, 20, 16),
        (50, 50, 100),
        (50, 30, 330),
        (100, 20, 500),
        (50, 20, 1000),
        (1, 100, 4000),
        (20, 20, 4000),
        (10, 20, 16_000),
        (2, 20, 64_000),
    ];
    for (keys, hz, bytes) in cells {
        let engine = Engine::new()?.spawn()?;
        let mut sender = Sender::new(&RingConfig::for_clients(3, keys, bytes), &engine.handle())?;
        let (mut sinks, mut readers) = (Vec::new(), Vec::new());
        for bound in BOUNDS {
            let (near, mut far) = pair()?;
            let config = SinkConfig::new(choice::latest()).keys(keys).max_unread(bound).ack_fates(false);
            sinks.push(sender.add_sink(near, config)?);
            readers.push(std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink())));
        }
        let value = vec![7; bytes as usize];
        let begin = now();
        for tick in 1..=hz {
            for key in 1..=u64::from(keys) {
                let meta = Meta { generated: now(), key, ..Meta::default() };
                for sink in &sinks {
                    sender.replace(sink.id(), &value, &meta)?;
                }
            }
            // Pause: the pace of the publisher.
            std::thread::sleep((begin + Duration::from_secs(1) / hz * tick).saturating_since(now()));
        }
        let mut sent = Vec::new();
        for sink in sinks {
            let stats = sink.stats();
            assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
            sent.push((stats.finished, stats.times_held_unread, stats.held_unread));
        }
        for reader in readers {
            reader.join().map_err(|_| "the reader panicked")??;
        }
        println!("{keys} keys of {bytes} bytes, {hz} a second: {sent:?} of {}", keys * hz);
        let least = sent[0].0 * 9 / 10;
        assert!(
            sent.iter().all(|one| one.0 >= least),
            "{keys} keys of {bytes} bytes, {hz} a second: {sent:?}"
        );
    }
    Ok(())
}

/// A client that reads nothing for two seconds gets little that is stale when it reads again.
#[test]
fn a_stalled_reader_that_returns_is_fresh() {
    measure("state: a stalled reader is fresh again", Duration::from_millis(10), || {
        stalled().expect("a run")
    });
}

fn stalled() -> Result<Trial> {
    const KEYS: u64 = 50;
    let ring = RingConfig::for_clients(1, KEYS as u32, VALUE_BYTES as u32);
    let Fixture { engine: _engine, mut sender, sink, far } =
        fixture(&ring, SinkConfig::new(choice::latest()))?;
    let reader = std::thread::spawn(move || {
        // Pause: the reader stalls.
        std::thread::sleep(Duration::from_secs(2));
        read(far, Duration::ZERO, |_| ())
    });
    play(&mut sender, sink.id(), KEYS, 200)?;
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let readings = reader.join().map_err(|_| "the reader panicked")??;
    let first = readings.first().ok_or("nothing was read")?.at;
    let stale = readings.iter().filter(|reading| reading.age > Duration::from_millis(200)).count();
    println!("{stale} stale values of {}", readings.len());
    let late = readings.iter().filter(|reading| reading.at > first + Duration::from_millis(400));
    let (mean, _) = mean_and_95(late.map(|reading| reading.age).collect());
    let holds = stale * VALUE_BYTES <= 60_000 && mean < Duration::from_millis(100);
    Ok(Trial::new(holds, || format!("{stale} stale values lay in front of the program, then {mean:?}")))
}

/// A bulk stream is not held back by what its reader has not read.
#[test]
fn bulk_has_no_bound() -> Result<()> {
    let ring = RingConfig { slots: 64, ..RingConfig::default() };
    let Fixture { engine: _engine, mut sender, sink, far: _far } =
        fixture(&ring, SinkConfig::new(choice::fifo()))?;
    for seq in 0..60 {
        sender.push(sink.id(), &[7; 1000], &Meta { seq, ..Meta::default() })?;
    }
    until("all is written", || sink.stats().finished == 60);
    assert_eq!(sink.stats().unread, None);
    Ok(())
}

/// Acknowledgement times are the kernel's, not those at which somebody looked, and no fate is lost at sixty polls a second.
#[test]
fn the_account_is_that_of_the_reader() {
    measure("state: the account is that of the reader", Duration::from_millis(1), || {
        reader_account().expect("a run")
    });
}

fn reader_account() -> Result<Trial> {
    const KEYS: u64 = 50;
    const TICKS: u64 = 360;
    let ring = RingConfig { slots: 64, block_bytes: 256, blocks: 64, rings: 1 };
    let config = SinkConfig::new(choice::latest()).keys(KEYS as u32).max_unread(None);
    let Fixture { engine: _engine, mut sender, sink, far } = fixture(&ring, config)?;
    let reader = std::thread::spawn(move || read(far, Duration::ZERO, |_| ()));
    let mut fates = BTreeMap::new();
    let begin = now();
    for tick in 0..TICKS {
        for key in 1..=KEYS {
            let at = now();
            let meta = Meta { seq: tick * KEYS + key, generated: at, key, ..Meta::default() };
            sender.replace(sink.id(), &value(key, tick, at), &meta)?;
        }
        // Pause: the pace of the game.
        std::thread::sleep((begin + TICK * (tick as u32 + 1)).saturating_since(now()));
        fates.extend(sender.fates(sink.id())?.map(|fate| (fate.seq, fate)));
    }
    let id = sink.id();
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    fates.extend(sender.fates(id)?.map(|fate| (fate.seq, fate)));
    let readings = reader.join().map_err(|_| "the reader panicked")??;
    assert_eq!(sender.fates_lost(id), Ok(0));
    let mut errors = Vec::new();
    for reading in &readings {
        let seq = reading.number * KEYS + reading.key;
        let fate = fates.get(&seq).ok_or("a value that was read has no fate")?;
        assert_eq!(fate.outcome, Outcome::Acked, "{fate}");
        if let Some(acked) = fate.acked_at {
            errors.push(acked.saturating_since(reading.at).max(reading.at.saturating_since(acked)));
        }
    }
    // Replaced in place, a value has no fate of its own: its place has that of the newer one.
    assert!(fates.len() >= readings.len() && readings.len() as u64 >= KEYS * TICKS / 2);
    assert!(
        errors.len() * 10 >= readings.len() * 9,
        "{} of {} times are known",
        errors.len(),
        readings.len()
    );
    errors.sort_unstable();
    let median = errors[errors.len() / 2];
    println!("{} read, {} times, median error {median:?}", readings.len(), errors.len());
    Ok(Trial::new(median < Duration::from_millis(1), || format!("off by {median:?}")))
}

/// Room is made by what the policy calls expired or superseded, and only what it still wants is a refusal, which is the record's fate.
#[test]
fn room_is_made_by_the_policy() -> Result<()> {
    let ring = RingConfig { slots: 8, blocks: 32, block_bytes: 64 << 10, rings: 1 };
    // A record larger than the socket's buffers blocks the sink.
    let large = vec![0; 64 << 10];
    let config = || SinkConfig::new(choice::deadline(Duration::ZERO)).queue_target(None);
    let Fixture { engine: _engine, mut sender, sink, far: _far } = fixture(&ring, config())?;
    let never = |seq| Meta { seq, ..Meta::default() };
    let mut seq = 0;
    let deadline = now() + TIMEOUT;
    // Until the path takes nothing more.
    loop {
        assert!(now() < deadline, "the kernel's buffers take everything");
        seq += 1;
        if sender.push(sink.id(), &large, &never(seq)).is_ok() {
            continue;
        }
        let committed = sink.stats().committed;
        // Pause: time for the engine to write on, also on a busy machine.
        std::thread::sleep(Duration::from_millis(300));
        if committed > 0 && sink.stats().committed == committed {
            break;
        }
    }
    let id = sink.id();
    let waiting = sender.producer().pending(id.ring());
    assert!(waiting >= 2, "{waiting} records wait");
    let refused = sender.fates(id)?.filter(|fate| fate.outcome == Outcome::Refused).count();
    assert!(refused > 0, "what was refused has a fate");
    // One of those that wait expires.
    let first = {
        let mut queue = Vec::new();
        sender.producer().queue(id.ring(), 8, &mut queue);
        queue[1].seq
    };
    sender.modify(id, first, |edit| {
        edit.set_deadline(now());
        Ok(())
    })?;
    // Pause: the deadline passes.
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(sender.push_to_all([id], b"fits", &never(90_001))?, 1);
    assert_eq!(sender.missed(), []);
    assert_eq!(sender.push_to_all([id], b"does not", &never(90_002))?, 0);
    assert_eq!(sender.missed(), [(id, PushError::Full)]);
    let refused: Vec<_> = sender.fates(id)?.filter(|fate| fate.outcome == Outcome::Refused).collect();
    assert_eq!(refused.iter().map(|fate| (fate.seq, fate.index)).collect::<Vec<_>>(), [(90_002, NO_INDEX)]);
    assert_eq!(refused[0].to_string(), "record 90002: refused: the ring had no room or was closed");
    assert_eq!(sink.stats().drops, [(Reason::Expired, 1)]);
    Ok(())
}

#[test]
fn too_few_slots_for_the_keys_are_named_at_the_start() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let config = RingConfig { slots: 32, ..RingConfig::default() };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let Err(error) = sender.add_sink(pair()?.0, SinkConfig::new(choice::latest()).keys(50)) else {
        return Err("32 slots were enough for 50 keys".into());
    };
    assert!(matches!(error, SenderError::TooFewSlots { keys: 50, slots: 32, needed: 64 }), "{error}");
    assert_eq!(
        RingConfig::for_clients(3, 50, 200),
        RingConfig { rings: 3, slots: 64, block_bytes: 200, blocks: 192 }
    );
    Ok(())
}

/// A client gets the ring of one that has left. One client too many gets an error with the remedy.
#[test]
fn rings_of_ended_sinks_are_used_again() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&RingConfig { rings: 1, ..RingConfig::default() }, &engine.handle())?;
    let mut ids = Vec::new();
    for round in 0..3_u8 {
        let (near, mut far) = pair()?;
        let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
        let Err(error) = sender.add_sink(pair()?.0, SinkConfig::new(choice::fifo())) else {
            return Err("there was a second ring".into());
        };
        assert!(error.to_string().contains("raise RingConfig::rings"), "{error}");
        let id = sink.id();
        ids.push(id);
        sender.push(id, &[round], &Meta { seq: u64::from(round), ..Meta::default() })?;
        assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes)?;
        assert_eq!(bytes, [round]);
        if round == 1 {
            let fate = sender.fates(id)?.next().ok_or("a fate")?;
            assert_eq!((fate.seq, fate.outcome), (1, Outcome::Acked));
        }
    }
    assert_eq!(sender.fates_lost(ids[2]), Ok(1), "those of the first client, that nobody polled");
    Ok(())
}

/// No call with the handle of a sink that has left reaches the one that has its ring now.
#[test]
fn a_stale_handle_is_an_error_that_names_it() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&RingConfig { rings: 1, ..RingConfig::default() }, &engine.handle())?;
    let waits = || choice::from_fn(|_, _: &[_], _: &_| choice::Decision::Wait(None));
    let (near, _left) = pair()?;
    let sink = sender.add_sink(near, SinkConfig::new(waits()))?;
    let old = sink.id();
    sink.close(CloseMode::Abort, TIMEOUT);
    assert_eq!(
        sender.push(old, b"x", &Meta::default()),
        Err(PushError::Closed),
        "it has ended, and keeps its ring"
    );
    let (near, _far) = pair()?;
    let sink = sender.add_sink(near, SinkConfig::new(waits()))?;
    let new = sink.id();
    assert_eq!((old.ring(), old == new), (new.ring(), false));
    let number = sender.push(new, b"theirs", &Meta { key: 1, ..Meta::default() })?;

    let stale = StaleSink(old);
    assert_eq!(sender.push(old, b"x", &Meta::default()), Err(stale.into()));
    assert_eq!(sender.replace(old, b"x", &Meta { key: 1, ..Meta::default() }), Err(stale.into()));
    assert_eq!(sender.push_to_all([old], b"x", &Meta::default()), Ok(0));
    assert_eq!(sender.missed(), [(old, PushError::StaleSink(stale))]);
    assert_eq!(sender.drop_seq(old, number), Err(stale));
    assert_eq!(sender.modify(old, number, |edit| edit.write(0, b"ours")), Err(ModifyError::StaleSink(stale)));
    assert_eq!(sender.poll_fate(old), Err(stale));
    assert!(sender.fates(old).is_err());
    assert_eq!((sender.fates_lost(old), sender.waiting(old)), (Err(stale), Err(stale)));
    assert!(stale.to_string().starts_with(&old.to_string()), "{stale}");

    assert_eq!(sender.waiting(new), Ok(1), "the other sink's record is as it was");
    sender.modify(new, number, |edit| {
        let mut bytes = [0; 6];
        assert_eq!((edit.read(0, &mut bytes), &bytes), (6, b"theirs"));
        Ok(())
    })?;
    assert_eq!(sender.drop_seq(new, number), Ok(true));
    assert_eq!(sender.drop_seq(new, number), Ok(false));
    assert_eq!(sender.modify(new, number, |_| Ok(())), Err(ModifyError::TooLate(TooLate)));
    let numbers = [sender.push(new, b"a", &Meta::default())?, sender.push(new, b"b", &Meta::default())?];
    assert_eq!(numbers[1], numbers[0] + 1);
    Ok(())
}

#[test]
fn an_abort_resets_despite_open_clones_which_stay_blocking() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let (near, mut far) = pair()?;
    let mut clone = near.try_clone()?;
    clone.set_read_timeout(Some(TIMEOUT))?;
    let mut sender = Sender::new(&RingConfig::default(), &engine.handle())?;
    let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    let writer = std::thread::spawn(move || {
        // Pause: the peer answers late.
        std::thread::sleep(Duration::from_millis(50));
        std::io::Write::write_all(&mut far, b"hello").map(|()| far)
    });
    clone.read_exact(&mut [0; 5])?;
    let mut far = writer.join().map_err(|_| "the writer panicked")??;
    assert_eq!(sink.close(CloseMode::Abort, TIMEOUT), Ended::Closed);
    let error = far.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(error, Err(ErrorKind::ConnectionReset));
    Ok(())
}

/// A frame of a client: this first byte, and a payload of less than 126 bytes.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 6];
    let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [first, 0x80 | payload.len() as u8].into_iter().chain(mask).chain(masked).collect()
}

#[test]
fn a_session_answers_between_whole_messages() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).framing(Messages::text());
    let Fixture { engine, mut sender, sink, mut far } = fixture(&RingConfig::default(), config)?;
    let mut session = Session::new(sink, 1000);
    let mut bytes = [0; 7];
    sender.push(session.id(), b"first", &Meta::default())?;
    far.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"\x81\x05first");
    let events = session.received(&[frame(0x89, b"there"), frame(0x81, b"me")[..4].to_vec()].concat());
    assert_eq!(events, [Event::Ping(b"there".to_vec())]);
    assert_eq!(session.received(&frame(0x81, b"me")[4..]), [Event::Text("me".to_owned())]);
    far.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"\x8a\x05there");
    session.say(MessageKind::Binary, b"aside");
    session.ping(b"");
    far.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"\x82\x05aside");
    sender.push(session.id(), &[b'x'; 200], &Meta::default())?;
    session.received(&frame(0x88, &1001_u16.to_be_bytes()));
    assert!(session.is_closed());
    let mut rest = Vec::new();
    far.read_to_end(&mut rest)?;
    assert!(rest.starts_with(b"\x89\x00") && rest.ends_with(b"\x88\x02\x03\xe9"), "{rest:x?}");
    assert_eq!(session.violation(), None);
    drop(engine);
    Ok(())
}

/// A proxy ends a connection on which nothing happens, and a client may have vanished.
#[test]
fn a_silent_session_is_pinged_and_ends_without_an_answer() -> Result<()> {
    let config = SinkConfig::new(choice::latest()).framing(Messages::text());
    let Fixture { engine, sender, sink, mut far } = fixture(&RingConfig::default(), config)?;
    let (every, timeout) = (Duration::from_millis(20), Duration::from_millis(200));
    let mut session = Session::new(sink, 1000).keepalive(every, timeout);
    let mut ping = [0; 2];
    for _ in 0..3 {
        let start = now();
        until("a ping is due", || session.keep_alive().is_some_and(|next| next >= start + timeout));
        far.read_exact(&mut ping)?;
        assert_eq!(&ping, b"\x89\x00");
        assert_eq!(session.received(&frame(0x8a, b"")), [Event::Pong(Vec::new())]);
        assert!(!session.is_closed());
    }
    until("the session ends", || session.keep_alive().is_none());
    assert!(session.is_closed());
    let mut rest = Vec::new();
    far.read_to_end(&mut rest)?;
    assert!(rest.starts_with(b"\x89\x00\x88\x15\x03\xf3no answer to a ping"), "{rest:x?}");
    drop((engine, sender));
    Ok(())
}

#[test]
fn a_session_that_breaks_the_protocol_ends_with_the_reason() -> Result<()> {
    let config = SinkConfig::new(choice::latest()).framing(Messages::text());
    let Fixture { engine, mut sender, sink, mut far } = fixture(&RingConfig::default(), config)?;
    let mut session = Session::new(sink, 1000);
    assert_eq!(session.received(&frame(0x83, b"")), []);
    assert_eq!(session.violation(), Some(Violation::Opcode(3)));
    let mut last = Vec::new();
    far.read_to_end(&mut last)?;
    assert_eq!(last[..4], [0x88, last.len() as u8 - 2, 0x03, 0xea]);
    drop(far);
    until("the sink ends", || session.ended().is_some());
    assert_eq!(sender.push(session.id(), b"late", &Meta::default()), Err(PushError::Closed));
    drop(engine);
    Ok(())
}

/// A record may start where its segment has less room than the length prefix takes.
#[test]
fn no_length_prefixed_record_is_lost_at_the_end_of_a_segment() -> Result<()> {
    const RECORDS: u32 = 100_000;
    let ring = RingConfig { rings: 1, slots: 4096, block_bytes: 128, blocks: 4096 };
    let config = SinkConfig::new(choice::fifo()).framing(Framing::LengthPrefixed).ack_fates(false);
    let Fixture { engine, mut sender, sink, mut far } = fixture(&ring, config)?;
    let reader = std::thread::spawn(move || {
        let mut reader = std::io::BufReader::new(&mut far);
        for expected in 0..RECORDS {
            let mut record = [0; 4 + 96];
            reader.read_exact(&mut record).expect("a whole record");
            let number = [record[4], record[5], record[6], record[7]].map(u32::from);
            let number = number.into_iter().fold(0, |number, byte| number << 8 | byte);
            assert_eq!(number, expected, "none is missing");
        }
    });
    let mut record = [0; 96];
    for number in 0..RECORDS {
        record[..4].copy_from_slice(&number.to_be_bytes());
        let until = now() + TIMEOUT;
        while sender.push(sink.id(), &record, &Meta::default()) == Err(PushError::Full) {
            assert!(now() < until && !reader.is_finished(), "room in time");
            std::thread::yield_now();
        }
    }
    reader.join().expect("every record in order");
    drop(engine);
    Ok(())
}
