//! Sender, engine and a plain TCP reader on loopback.

mod until;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::choice::{self, Reason};
use freshwire::engine::EngineThread;
use freshwire::receive::ChunkedReceiver;
use freshwire::sink::{Carrier, CarrierError, CarrierInUse, CloseMode, Reserve};
use freshwire::{
    Ended, Engine, Framing, Meta, Outcome, RingConfig, Sender, SenderError, Sink, SinkConfig, now,
};

use until::until;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(10);

fn pair(address: &str) -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(address)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((near, far))
}

struct Fixture {
    _engine: EngineThread,
    sender: Sender,
    sink: Sink,
    far: TcpStream,
}

fn fixture(address: &str, config: SinkConfig) -> Result<Fixture> {
    let engine = Engine::new()?.spawn()?;
    let (near, far) = pair(address)?;
    let ring = RingConfig { rings: 1, slots: 64, block_bytes: 4096, blocks: 64 };
    let mut sender = Sender::new(&ring, &engine.handle())?;
    let sink = sender.add_sink(near, config)?;
    Ok(Fixture { _engine: engine, sender, sink, far })
}

fn meta(seq: u64) -> Meta {
    Meta { seq, generated: now(), ..Meta::default() }
}

/// A reader that never reads fills its window; what is pushed after that stays in the ring.
fn fill(sender: &mut Sender, sink: &Sink) -> Result<u64> {
    let deadline = now() + TIMEOUT;
    let mut seq = 0;
    loop {
        match sender.push(sink.id(), &[0; 4096], &meta(seq)) {
            Ok(_) => seq += 1,
            Err(_) => {
                let committed = sink.stats().committed;
                // Pause: time for the engine to write on.
                std::thread::sleep(Duration::from_millis(50));
                if sink.stats().committed == committed {
                    return Ok(seq);
                }
            }
        }
        assert!(now() < deadline, "the kernel's buffers take everything");
    }
}

#[test]
fn records_arrive_in_order_over_both_families() -> Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Fixture { mut sender, sink, mut far, _engine } =
            fixture(address, SinkConfig::new(choice::fifo()))?;
        let id = sink.id();
        for seq in 0..50u64 {
            sender.push(id, &seq.to_be_bytes(), &meta(seq))?;
        }
        assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes)?;
        let expected: Vec<u8> = (0..50u64).flat_map(u64::to_be_bytes).collect();
        assert_eq!(bytes, expected);
        let fates: Vec<_> = sender.fates(id).unwrap().collect();
        assert_eq!(fates.len(), 50);
        for (seq, fate) in (0..).zip(fates) {
            assert_eq!((fate.seq, fate.outcome), (seq, Outcome::Acked));
            assert!(fate.committed_at <= fate.finished_at && fate.finished_at <= fate.acked_at);
        }
    }
    Ok(())
}

#[test]
fn a_stalled_receiver_leaves_the_choice_to_the_application() -> Result<()> {
    // Fixed, because what a host with BBR reserves, four segments of loopback, is most of this ring.
    let config = SinkConfig::new(choice::fifo()).reserve(Reserve::Fixed(1));
    let Fixture { mut sender, sink, mut far, _engine } = fixture("127.0.0.1:0", config)?;
    let id = sink.id();
    let pushed = fill(&mut sender, &sink)?;
    // The ring is full of uncommitted records: drop all but the newest, which is changed in place.
    let newest = pushed - 1;
    let dropped = (0..newest).filter(|&seq| sender.drop_seq(id, seq) == Ok(true)).count();
    assert!(dropped > 30, "{dropped} of {pushed}");
    sender.modify(id, newest, |edit| edit.write(0, b"changed"))?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).map(|_| bytes)
    });
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let bytes = reader.join().map_err(|_| "the reader panicked")??;
    assert_eq!(bytes.len() as u64, (pushed - dropped as u64) * 4096);
    assert_eq!(&bytes[bytes.len() - 4096..][..8], b"changed\0");
    Ok(())
}

#[test]
fn no_expired_record_is_committed() -> Result<()> {
    let config = SinkConfig::new(choice::deadline(Duration::ZERO));
    let Fixture { mut sender, sink, mut far, _engine } = fixture("127.0.0.1:0", config)?;
    let id = sink.id();
    let late = Meta { deadline: now(), ..meta(1) };
    // Pause: the deadline passes.
    std::thread::sleep(Duration::from_millis(1));
    sender.push(id, b"late", &late)?;
    sender.push(id, b"fresh", &Meta { deadline: now() + TIMEOUT, ..meta(2) })?;
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let mut text = String::new();
    far.read_to_string(&mut text)?;
    assert_eq!(text, "fresh");
    let fate = sender.poll_fate(id)?.ok_or("a fate")?;
    assert_eq!(fate.outcome, Outcome::Dropped(Reason::Expired));
    Ok(())
}

#[test]
fn the_horizon_stays_within_its_bound() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).reserve(Reserve::Fixed(1));
    let Fixture { mut sender, sink, far: _far, _engine } = fixture("127.0.0.1:0", config)?;
    fill(&mut sender, &sink)?;
    let stats = sink.stats();
    // Loopback's segment is 64 kB; nothing reads, so all that is unsent is one segment at most.
    assert!(stats.horizon_max <= 65_535, "{stats:?}");
    assert_eq!(stats.reserve, 1);
    Ok(())
}

#[test]
fn chunked_records_arrive_whole() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).framing(Framing::Chunked);
    let Fixture { mut sender, sink, far, _engine } = fixture("127.0.0.1:0", config)?;
    for seq in 0..20u64 {
        sender.push(sink.id(), &vec![seq as u8; 1 + seq as usize * 700], &meta(seq))?;
    }
    let mut receiver = ChunkedReceiver::new(far);
    for seq in 0..20u64 {
        match receiver.next_message()?.ok_or("a record")? {
            freshwire::receive::Message::Record { id, payload, .. } => {
                assert_eq!(u64::from(id), seq);
                assert_eq!(payload, vec![seq as u8; 1 + seq as usize * 700]);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    assert!(receiver.next_message()?.is_none());
    Ok(())
}

#[test]
fn closing_finishes_the_record_in_progress_or_none() -> Result<()> {
    let Fixture { mut sender, sink, mut far, _engine } =
        fixture("127.0.0.1:0", SinkConfig::new(choice::fifo()))?;
    fill(&mut sender, &sink)?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).map(|_| bytes.len())
    });
    assert_eq!(sink.close(CloseMode::FinishRecord, TIMEOUT), Ended::Closed);
    let len = reader.join().map_err(|_| "the reader panicked")??;
    assert_eq!(len % 4096, 0, "a torn record");
    Ok(())
}

#[test]
fn a_broken_peer_ends_its_sink_and_no_other() -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let ring = RingConfig { rings: 2, slots: 64, block_bytes: 4096, blocks: 128 };
    let mut sender = Sender::new(&ring, &engine.handle())?;
    let (near, broken) = pair("127.0.0.1:0")?;
    let first = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    let (near, mut healthy) = pair("127.0.0.1:0")?;
    let second = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    sender.push(first.id(), b"x", &meta(0))?;
    drop(broken);
    until("the sink notices", || {
        let _ = sender.push(first.id(), b"y", &meta(1));
        first.ended().is_some()
    });
    assert!(matches!(first.ended(), Some(Ended::Broken(_))));
    assert_eq!(sender.push_to_all([first.id(), second.id()], b"still here", &meta(2))?, 1);
    let mut bytes = [0; 10];
    healthy.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"still here");
    Ok(())
}

#[test]
fn a_record_that_depends_on_a_dropped_one_is_not_sent() -> Result<()> {
    // `Newest` makes the policy look at the whole queue.
    let policy =
        choice::Policy::builder().rule(choice::Rule::DependencyClosure).order(choice::Order::Newest).build();
    let Fixture { mut sender, sink, mut far, _engine } = fixture("127.0.0.1:0", SinkConfig::new(policy))?;
    let id = sink.id();
    assert_eq!(sender.push(id, b"base", &meta(1))?, 1);
    let held = sender.producer().hold_from(id.ring(), 1).ok_or("a hold")?;
    sender.push(id, b"reference", &meta(2))?;
    sender.push(id, b"depends", &Meta { refs: [1, 0], ..meta(3) })?;
    sender.push(id, b"alone", &meta(4))?;
    assert_eq!((held, sender.drop_seq(id, 2)?), (1, true));
    if sender.producer().release_hold(id.ring()) {
        sender.notify();
    }
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    let mut text = String::new();
    far.read_to_string(&mut text)?;
    assert!(["basealone", "alonebase"].contains(&text.as_str()), "{text}");
    Ok(())
}

#[test]
fn a_push_whose_notification_was_lost_is_sent_all_the_same() -> Result<()> {
    let Fixture { mut sender, sink, mut far, _engine } =
        fixture("127.0.0.1:0", SinkConfig::new(choice::fifo()))?;
    // Pause: the engine goes to sleep.
    std::thread::sleep(Duration::from_millis(20));
    // As a producer leaves it that is killed just before it would notify.
    sender.producer().push_quiet(sink.id().ring(), b"orphan", &meta(1))?;
    let mut bytes = [0; 6];
    far.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"orphan");
    Ok(())
}

#[test]
fn a_dropped_sink_whose_peer_never_reads_is_given_up() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).linger(Duration::from_millis(100));
    let Fixture { mut sender, sink, far, _engine } = fixture("127.0.0.1:0", config)?;
    fill(&mut sender, &sink)?;
    drop(sink);
    // Its role is free again only when the engine has let go of the ring.
    until("the engine gives the ring back", || sender.region().consumer(0).is_ok());
    drop(far);
    Ok(())
}

/// With the module `tests/kernel_ring` is the test; it runs in a guest.
#[test]
fn without_the_module_auto_is_plain_tcp_and_says_why() -> Result<()> {
    if freshwire_io::kernel_ring::is_loaded() {
        println!("skipped: the module tcp_ldc is loaded");
        return Ok(());
    }
    let auto = || SinkConfig::new(choice::fifo()).carrier(Carrier::Auto);
    let Fixture { _engine, mut sender, sink, mut far } = fixture("127.0.0.1:0", auto())?;
    assert_eq!(sink.stats().carrier, CarrierInUse::Tcp);
    assert!(sink.fallback().is_some_and(|why| why.contains("modprobe tcp_ldc")), "{:?}", sink.fallback());
    sender.push(sink.id(), b"late data", &meta(1))?;
    let mut bytes = [0; 9];
    far.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"late data");
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);

    let Fixture { sink, .. } = fixture("127.0.0.1:0", SinkConfig::new(choice::fifo()))?;
    assert_eq!(sink.fallback(), None, "plain TCP is what was asked for");
    let wanted = fixture("127.0.0.1:0", auto().carrier(Carrier::Kernel)).map(|fixture| fixture.sink.stats());
    let error = wanted.expect_err("there is no module");
    let carrier = error.downcast::<SenderError>()?;
    assert!(matches!(*carrier, SenderError::Carrier(CarrierError::Kernel(_))), "{carrier:?}");
    Ok(())
}
