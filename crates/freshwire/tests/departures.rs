//! When the last byte of a record entered the queueing discipline, left for the device and was acknowledged.
#![allow(clippy::unwrap_used, reason = "a test")]

mod until;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::sink::Reserve;
use freshwire::{
    Engine, Fate, Framing, Meta, Outcome, RingConfig, Sender, SenderError, SinkConfig, choice, now,
};
use until::until;

/// Sizes of records, in bytes.
const SIZES: [usize; 9] = [1, 2, 10, 100, 1_448, 10_000, 65_536, 300_000, 1_000_000];

/// The clocks of a kernel's note and of a commit are read at different moments, between which the processor may be taken away.
const SLACK: Duration = Duration::from_millis(20);

/// The fates of `count` records whose sizes repeat [`SIZES`], sent as `config` says.
fn fates(config: SinkConfig, count: u64, address: &str) -> Vec<Fate> {
    let listener = TcpListener::bind(address).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut peer.by_ref(), &mut std::io::sink()));
    let engine = Engine::new().unwrap().spawn().unwrap();
    let ring = RingConfig { rings: 1, slots: 256, block_bytes: 64 << 10, blocks: 1024 };
    let mut sender = Sender::new(&ring, &engine.handle()).unwrap();
    let sink = sender.add_sink(stream, config).unwrap();
    let (mut all, mut next) = (BTreeMap::new(), 0);
    let large = vec![7; 1_000_000];
    until("every record has its fate", || {
        while next < count {
            let size = SIZES[next as usize % SIZES.len()];
            let meta = Meta { seq: next, generated: now(), ..Meta::default() };
            if sender.push(sink.id(), &large[..size], &meta).is_err() {
                break;
            }
            next += 1;
        }
        all.extend(sender.fates(sink.id()).unwrap().map(|fate| (fate.seq, fate)));
        all.len() as u64 == count
    });
    drop(sink);
    drop(sender);
    reading.join().unwrap().unwrap();
    all.into_values().collect()
}

#[test]
fn times_follow_each_other_for_every_size() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for framing in [Framing::Raw, Framing::LengthPrefixed, Framing::Chunked] {
            for reserve in [Reserve::Auto, Reserve::Fixed(1 << 20)] {
                let config =
                    SinkConfig::new(choice::fifo()).framing(framing).reserve(reserve).departures(true);
                let mut last = None;
                for fate in fates(config, 45, address) {
                    let named = format!("{address} {framing:?} {reserve:?} {fate:?}");
                    assert_eq!(fate.outcome, Outcome::Acked, "{named}");
                    let times = [fate.committed_at, fate.scheduled_at, fate.departed_at, fate.acked_at];
                    let [committed, scheduled, departed, acked] = times.map(|time| time.expect(&named));
                    assert!(committed <= scheduled + SLACK, "{named}");
                    assert!(scheduled <= departed + SLACK && departed <= acked + SLACK, "{named}");
                    assert!(last <= Some(scheduled + SLACK), "in the order of the stream: {named}");
                    last = Some(scheduled);
                }
            }
        }
    }
}

#[test]
fn a_sink_that_does_not_ask_gets_none() {
    for fate in fates(SinkConfig::new(choice::fifo()), 20, "127.0.0.1:0") {
        assert_eq!((fate.scheduled_at, fate.departed_at), (None, None));
    }
}

#[test]
fn departures_without_acknowledgements_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let engine = Engine::new().unwrap().spawn().unwrap();
    let mut sender = Sender::new(&RingConfig::default(), &engine.handle()).unwrap();
    let config = SinkConfig::new(choice::fifo()).departures(true).ack_fates(false);
    let refused = sender.add_sink(stream, config).err().unwrap();
    assert!(
        matches!(&refused, SenderError::Stream(error) if error.to_string().contains("ack_fates")),
        "{refused}"
    );
}
