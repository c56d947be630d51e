//! Sinks over datagrams, on a path that the test opens and closes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire::choice::{self, LinkView, Record};
use freshwire::datagram::{DatagramPath, Flushed, KnownPath};
use freshwire::sink::{CarrierInUse, CloseMode, SinkError};
use freshwire::{
    Ended, Engine, Framing, Meta, Outcome, RingConfig, Sender, Sink, SinkConfig, Timestamp, now,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Default)]
struct State {
    is_open: bool,
    /// Pieces that may leave while it is open.
    credit: usize,
    gathered: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    error: Option<io::ErrorKind>,
}

#[derive(Clone, Default)]
struct Path(Arc<Mutex<State>>);

impl Path {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, credit: usize) {
        let mut state = self.lock();
        (state.is_open, state.credit) = (true, credit);
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        self.lock().sent.clone()
    }
}

impl DatagramPath for Path {
    fn view(&self, _now: Timestamp, committed: u64) -> LinkView {
        LinkView { unsent: committed, ..LinkView::default() }
    }

    fn ready_at(&self, now: Timestamp, bytes: u64) -> Timestamp {
        let state = self.lock();
        let is_ready = state.is_open && state.credit > 0 && bytes <= 100;
        if is_ready { now } else { now + Duration::from_millis(1) }
    }

    fn send(&mut self, _now: Timestamp, _record: Option<&Record>, packets: &[u8]) {
        let mut state = self.lock();
        state.credit = state.credit.saturating_sub(1);
        state.gathered.push(packets.to_vec());
    }

    fn flush(&mut self, _now: Timestamp) -> io::Result<Flushed> {
        let mut state = self.lock();
        if let Some(kind) = state.error {
            return Err(kind.into());
        }
        let gathered = std::mem::take(&mut state.gathered);
        let bytes = gathered.iter().map(|piece| piece.len() as u64).sum();
        let calls = u64::from(!gathered.is_empty());
        state.sent.extend(gathered);
        Ok(Flushed { bytes, calls })
    }

    fn known(&self) -> KnownPath {
        KnownPath { acked: 7, ..KnownPath::default() }
    }
}

/// An engine that the test drives, with one sink.
struct Fixture {
    engine: Engine,
    sender: Sender,
    sink: Sink,
    path: Path,
}

impl Fixture {
    fn new() -> Result<Self> {
        let engine = Engine::new()?;
        let ring = RingConfig { rings: 1, slots: 8, block_bytes: 4096, blocks: 8 };
        let mut sender = Sender::new(&ring, &engine.handle())?;
        let path = Path::default();
        let config = SinkConfig::new(choice::deadline(Duration::ZERO)).framing(Framing::Raw);
        let sink = sender.add_datagram_sink(Box::new(path.clone()), config)?;
        Ok(Self { engine, sender, sink, path })
    }

    fn push(&mut self, seq: u64, payload: &[u8]) -> Result<()> {
        let meta = Meta { seq, generated: now(), deadline: Timestamp::MAX, ..Meta::default() };
        self.sender.push(self.sink.id(), payload, &meta)?;
        Ok(())
    }

    /// Turns until the condition is met.
    fn until(&mut self, is_met: impl Fn(&Self) -> bool) -> Result<()> {
        let end = now() + Duration::from_secs(10);
        while !is_met(self) {
            assert!(now() < end, "not within ten seconds");
            self.engine.run_once(Some(Duration::from_millis(5)))?;
        }
        Ok(())
    }
}

#[test]
fn a_record_can_be_dropped_until_the_path_takes_it() -> Result<()> {
    let mut fixture = Fixture::new()?;
    for seq in 0..3 {
        fixture.push(seq, &[b'a' + seq as u8; 10])?;
    }
    for _ in 0..5 {
        fixture.engine.run_once(Some(Duration::from_millis(2)))?;
    }
    assert!(fixture.path.sent().is_empty());
    assert_eq!(fixture.sink.stats().committed, 0, "nothing is committed to a path that takes nothing");
    let id = fixture.sink.id();
    assert!(fixture.sender.drop_seq(id, 0)?);
    fixture.path.open(1);
    fixture.until(|it| it.path.sent().len() == 1)?;
    assert_eq!(fixture.path.sent(), [b"bbbbbbbbbb".to_vec()]);
    assert!(fixture.sender.drop_seq(id, 2)?, "the path has room for one only");
    fixture.path.open(5);
    fixture.push(3, b"last")?;
    fixture.until(|it| it.path.sent().len() == 2)?;
    assert_eq!(fixture.path.sent()[1], b"last");
    let stats = fixture.sink.stats();
    assert_eq!((stats.carrier, stats.finished, stats.bytes), (CarrierInUse::Datagrams, 2, 14));
    let fates: Vec<_> = fixture.sender.fates(id)?.map(|fate| (fate.seq, fate.outcome)).collect();
    assert!(fates.contains(&(1, Outcome::Sent)), "{fates:?}");
    Ok(())
}

#[test]
fn a_sink_whose_path_fails_ends_with_the_error() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.path.open(9);
    fixture.push(0, b"x")?;
    fixture.until(|it| it.path.sent().len() == 1)?;
    fixture.path.lock().error = Some(io::ErrorKind::NetworkUnreachable);
    fixture.push(1, b"y")?;
    fixture.until(|it| it.sink.ended().is_some())?;
    let ended = fixture.sink.ended();
    assert!(
        matches!(&ended, Some(Ended::Broken(SinkError::Io { kind: io::ErrorKind::NetworkUnreachable, .. }))),
        "{ended:?}"
    );
    Ok(())
}

#[test]
fn a_sink_that_is_closed_sends_what_is_queued() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.push(0, b"queued")?;
    fixture.path.open(9);
    let Fixture { mut engine, sink, path, sender: _sender } = fixture;
    let closing = std::thread::spawn(move || sink.close(CloseMode::Drain, Duration::from_secs(10)));
    while !closing.is_finished() {
        engine.run_once(Some(Duration::from_millis(5)))?;
    }
    assert_eq!(closing.join().map_err(|_| "the thread panicked")?, Ended::Closed);
    assert_eq!(path.sent(), [b"queued".to_vec()]);
    Ok(())
}

#[test]
fn nothing_goes_between_datagrams() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.sink.interject(b"RTSP/1.0 200 OK".to_vec());
    fixture.until(|it| it.sink.ended().is_some())?;
    assert_eq!(fixture.sink.ended(), Some(Ended::Broken(SinkError::CannotInterject)));
    Ok(())
}
