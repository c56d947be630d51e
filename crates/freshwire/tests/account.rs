//! What fates say of acknowledgements, against what a reader at the other end of an emulated link notes itself: on a fast and on a slow
//! one. Also that on the slow one every key has its turn.
//!
//! It has no test harness: an unprivileged process must create its namespaces while it has a single thread.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use freshwire::sink::CloseMode;
use freshwire::{Engine, Fate, Meta, Outcome, Rate, RingConfig, Sender, SinkConfig, Timestamp, choice, now};
use freshwire_netns::trust::{Trial, measure};
use freshwire_netns::{Emulator, EmulatorOptions, LinkConfig, Namespaces};

const KEYS: u64 = 50;
const TICKS: u64 = 180;
const TICK: Duration = Duration::from_micros(16_667);
const VALUE_BYTES: usize = 100;

fn main() -> ExitCode {
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(error) if error.is_not_permitted() && std::env::var_os("CI").is_none() => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (name, rate, delay) in [("fast", 100_000_000, 2), ("slow", 200_000, 5)] {
        let link = LinkConfig::builder()
            .rate(Rate::from_bits_per_sec(rate))
            .delay(Duration::from_millis(delay))
            .build()
            .unwrap();
        let verdict = measure(&format!("account: {name}"), Duration::from_millis(1), || {
            let emulator =
                Emulator::start(&namespaces, link.clone(), link.clone(), EmulatorOptions::default()).unwrap();
            let run = run(&namespaces);
            let faults = emulator.stop().faults;
            run.check_turns(name);
            let off = run.account_error(name);
            Trial::new(off <= 1.0, || format!("the account is off by {off} times its bound"))
                .with_faults(faults)
        });
        println!("ok: {name}: {verdict:?}");
    }
    ExitCode::SUCCESS
}

/// What both sides know of each value.
struct Run {
    fates: BTreeMap<u64, Fate>,
    /// Number of the value and when it was read, in order.
    read: Vec<(u64, Timestamp)>,
    min_rtt: Duration,
}

fn run(namespaces: &Namespaces) -> Run {
    let listener = namespaces.in_far(|| TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let near = namespaces.in_near(|| TcpStream::connect(address)).unwrap().unwrap();
    let mut far = listener.accept().unwrap().0;
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut read, mut value) = (Vec::new(), [0; VALUE_BYTES]);
        while far.read_exact(&mut value).is_ok() {
            read.push((value[..8].iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), now()));
        }
        read
    });

    let engine = Engine::new().unwrap().spawn().unwrap();
    let ring = RingConfig::for_clients(1, KEYS as u32, VALUE_BYTES as u32);
    let mut sender = Sender::new(&ring, &engine.handle()).unwrap();
    let sink = sender.add_sink(near, SinkConfig::new(choice::latest()).keys(KEYS as u32)).unwrap();
    let (id, monitor) = (sink.id(), sink.monitor());
    let mut fates = BTreeMap::new();
    let begin = now();
    for tick in 0..TICKS {
        for key in 1..=KEYS {
            let seq = tick * KEYS + key - 1;
            let mut value = [0; VALUE_BYTES];
            value[..8].copy_from_slice(&seq.to_be_bytes());
            let meta = Meta { seq, generated: now(), key, ..Meta::default() };
            sender.replace(id, &value, &meta).unwrap();
        }
        // Pause: the pace of the source.
        std::thread::sleep((begin + TICK * (tick as u32 + 1)).saturating_since(now()));
        fates.extend(sender.fates(id).unwrap().map(|fate| (fate.seq, fate)));
    }
    sink.close(CloseMode::Drain, Duration::from_secs(20));
    fates.extend(sender.fates(id).unwrap().map(|fate| (fate.seq, fate)));
    assert_eq!(sender.fates_lost(id), Ok(0));
    Run { fates, read: reader.join().unwrap(), min_rtt: monitor.stats().min_rtt }
}

impl Run {
    /// Less half of the shortest round trip an acknowledgement's time is when the value was read: in the middle within a millisecond or
    /// a twentieth of the value's way. A busy machine delays reader and link now and then, which is not the account's error.
    fn account_error(&self, name: &str) -> f64 {
        assert!(
            self.fates.values().all(|fate| fate.outcome == Outcome::Acked),
            "{name}: a value was not acknowledged"
        );
        let mut excess = Vec::new();
        for (seq, read) in &self.read {
            let fate = self.fates.get(seq).unwrap_or_else(|| panic!("{name}: value {seq} has no fate"));
            let (committed, acked) = (fate.committed_at.unwrap(), fate.acked_at);
            let Some(acked) = acked else { continue };
            let reported = acked.saturating_since(committed).saturating_sub(self.min_rtt / 2);
            let actual = read.saturating_since(committed);
            let bound = (actual / 20).max(Duration::from_millis(1));
            excess.push(reported.abs_diff(actual).as_secs_f64() / bound.as_secs_f64());
        }
        assert!(
            excess.len() * 10 >= self.read.len() * 9,
            "{name}: {} times of {}",
            excess.len(),
            self.read.len()
        );
        excess.sort_by(f64::total_cmp);
        let (middle, most) = (excess[excess.len() / 2], excess[excess.len() * 9 / 10]);
        println!(
            "{name}: {} values; error in parts of its bound: {middle:.2} in the middle, {most:.2} of nine in ten",
            self.read.len()
        );
        middle
    }

    fn check_turns(&self, name: &str) {
        let mean = self.read.len() as f64 / KEYS as f64;
        for key in 0..KEYS {
            let places: Vec<usize> =
                (0..self.read.len()).filter(|&place| self.read[place].0 % KEYS == key).collect();
            let count = places.len() as f64;
            assert!(
                (count - mean).abs() <= mean / 4.0,
                "{name}, key {key}: {count} values, {mean} in the mean"
            );
            let silence = places.windows(2).map(|two| two[1] - two[0]).max();
            assert!(
                silence.is_some_and(|silence| silence <= 2 * KEYS as usize),
                "{name}, key {key}: {silence:?}"
            );
            let last = places.last().map(|&place| self.read[place].0 / KEYS);
            assert_eq!(last, Some(TICKS - 1), "{name}, key {key}: the last value");
        }
    }
}
