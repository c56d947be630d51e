//! A1 over links that carry no UDP, from the start or from some time on: when the first record arrives, and that each record
//! arrives once. It prints a table: `cargo test -p freshwire-cli --test fallback_link -- --nocapture`.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use freshwire::a1::{ConnectConfig, Connection, Node, NodeConfig, SinkConfig};
use freshwire::{Meta, RingConfig, Sender, choice, now};
use freshwire_link::Config;
use freshwire_netns::testing::namespaces;
use freshwire_netns::trust::{Trial, measure};
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};

const PATIENCE: Duration = Duration::from_secs(60);

/// One-way delays. The bar of 300 ms can hold up to a round trip of 57 ms: 100 ms and 3.5 round trips.
const DELAYS: [u64; 5] = [0, 10, 25, 50, 100];

/// What a busy machine may add to each time. Chosen, not measured.
const SLACK: Duration = Duration::from_millis(40);

fn main() -> ExitCode {
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(code) => return code,
    };
    println!(
        "| round trip | first record over UDP, without and with the fall-back | over TCP, UDP dropped | longest gap, UDP dropped later |"
    );
    for delay in DELAYS.map(Duration::from_millis) {
        measure("the first record", Duration::from_millis(20), || first_record(&namespaces, delay));
    }
    for (delay, len, count) in
        [(0, 1, 400), (10, 100, 400), (25, 10_000, 200), (100, 1000, 200), (10, 1 << 20, 6)]
    {
        each_arrives_once(&namespaces, Duration::from_millis(delay), len, count);
    }
    ExitCode::SUCCESS
}

/// Both ends, and the link between them.
struct Path {
    near: Node,
    far: Node,
    _link: Emulator,
}

impl Path {
    fn new(namespaces: &Namespaces, delay: Duration, fallback: bool, no_udp_from: Option<Duration>) -> Self {
        let config = Config::builder().delay(delay).build().unwrap();
        let bind = |address: String| {
            Node::bind(address.parse().unwrap(), NodeConfig::new().unwrap().tcp_fallback(fallback)).unwrap()
        };
        let near = namespaces.in_near(|| bind(format!("{}:0", Namespaces::NEAR_V4))).unwrap();
        let far = namespaces.in_far(|| bind(format!("{}:0", Namespaces::FAR_V4))).unwrap();
        let options = EmulatorOptions { no_udp_from, ..EmulatorOptions::default() };
        let link = Emulator::start(namespaces, config.clone(), config, options).unwrap();
        Self { near, far, _link: link }
    }

    fn connect(&self) -> Connection {
        let config = ConnectConfig::default().timeout(PATIENCE);
        self.near.connect(self.far.local_addr().unwrap(), &self.far.public_key(), &config).unwrap()
    }
}

fn sender() -> Sender {
    Sender::without_engine(&RingConfig { rings: 1, slots: 1024, block_bytes: 4096, blocks: 4096 }).unwrap()
}

/// The time from the start until the first record has come, and whether it came over TCP.
fn first_time(namespaces: &Namespaces, delay: Duration, fallback: bool, drops: bool) -> (Duration, bool) {
    let path = Path::new(namespaces, delay, fallback, drops.then_some(Duration::ZERO));
    let receive = || {
        let far = path.far.accept(PATIENCE).unwrap().unwrap();
        assert_eq!(far.recv(PATIENCE).unwrap().unwrap().data[..], *b"first");
        (now(), far)
    };
    let send = || {
        let began = now();
        let near = path.connect();
        let mut sender = sender();
        let sink = sender.add_a1_sink(&near, SinkConfig::new(choice::fifo())).unwrap();
        sender.push(sink.id(), b"first", &Meta::default()).unwrap();
        (began, near, sender, sink)
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| namespaces.in_far(receive).unwrap());
        // The socket for TCP is made by whichever thread does what is due.
        let (began, near, _sender, _sink) = namespaces.in_near(send).unwrap();
        let (came, _far) = receiver.join().unwrap();
        (came.saturating_since(began), near.is_over_tcp())
    })
}

fn first_record(namespaces: &Namespaces, delay: Duration) -> Trial {
    let round_trip = 2 * delay;
    let (plain, _) = first_time(namespaces, delay, false, false);
    let (passes, is_tcp) = first_time(namespaces, delay, true, false);
    assert!(!is_tcp, "UDP passes");
    let (dropped, is_tcp) = first_time(namespaces, delay, true, true);
    assert!(is_tcp, "UDP does not pass");
    println!("| {round_trip:?} | {plain:.1?}, {passes:.1?} | {dropped:.1?} |");
    let limit = Duration::from_millis(100) + round_trip * 7 / 2;
    // At most 300 ms where the round trips leave room for a busy machine, and nothing more where UDP passes.
    let holds = dropped <= limit + SLACK && passes <= plain + SLACK;
    let is_in_bar = round_trip > Duration::from_millis(20) || dropped <= Duration::from_millis(300);
    Trial::new(holds && is_in_bar, || format!("{plain:?}, {passes:?}, {dropped:?} at {round_trip:?}"))
}

/// UDP passes for half a second of a stream that lasts longer.
fn each_arrives_once(namespaces: &Namespaces, delay: Duration, len: usize, count: u64) {
    let path = Path::new(namespaces, delay, true, Some(Duration::from_millis(500) + 6 * delay));
    let receive = || {
        let far = path.far.accept(PATIENCE).unwrap().unwrap();
        let (mut came, mut last, mut gap) = (BTreeSet::new(), now(), Duration::ZERO);
        while came.len() as u64 != count {
            let message = far.recv(PATIENCE).unwrap().unwrap();
            assert!(came.insert(message.seq), "record {} came twice", message.seq);
            assert!(message.data.len() == len && message.data.iter().all(|byte| *byte == message.seq as u8));
            gap = gap.max(now().saturating_since(last));
            last = now();
        }
        assert!(far.is_over_tcp());
        gap
    };
    let send = || {
        let near = path.connect();
        assert!(!near.is_over_tcp());
        let mut sender = sender();
        let sink = sender.add_a1_sink(&near, SinkConfig::new(choice::fifo())).unwrap();
        for seq in 0..count {
            let meta = Meta { seq, ..Meta::default() };
            while !sender.has_room(sink.id(), len, &meta).unwrap() {
                // Pause: until the next look.
                std::thread::sleep(Duration::from_millis(1));
            }
            sender.push(sink.id(), &vec![seq as u8; len], &meta).unwrap();
            // Pause: a source at its pace, so that the stream lasts for two seconds.
            std::thread::sleep(Duration::from_secs(2) / count as u32);
        }
        (near, sender, sink)
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| namespaces.in_far(receive).unwrap());
        let _held = namespaces.in_near(send).unwrap();
        let gap = receiver.join().unwrap();
        println!("| {:?}, {count} records of {len} bytes | each once | | {gap:.0?} |", 2 * delay);
    });
}
