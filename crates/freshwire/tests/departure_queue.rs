//! Departures behind a queueing discipline with a rate: what the queue explains lies between a record's entry and its departure.
//!
//! It has no test harness: an unprivileged process must create its namespaces while it has a single thread.
#![allow(clippy::unwrap_used, reason = "a test")]

mod departing;

use std::process::{Command, ExitCode};
use std::time::Duration;

use departing::{DATAGRAM, SLACK, notes_datagrams, over_a1, over_datagrams, over_tcp};
use freshwire::a1::NodeConfig;
use freshwire::sink::Reserve;
use freshwire::{Fate, Rate, SinkConfig, Timestamp, choice};
use freshwire_netns::testing::namespaces;

/// Bytes that the queueing discipline lets pass at once.
const BURST: usize = 4096;

/// Rates in bits per second, of which the records are half a second's worth.
const RATES: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

/// Sizes of records.
const SIZES: [usize; 4] = [100, 1_200, 10_000, 65_000];

/// A packet's bytes beside its payload at most, as the queueing discipline counts them.
const HEADERS: usize = 120;

/// Records whose notes of three stages surely find room in a socket's error queue: it has room for some 170 notes (measured).
const SURELY_NOTED: usize = 40;

fn main() -> ExitCode {
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(status) => return status,
    };
    namespaces.in_near(with_each_rate).unwrap();
    ExitCode::SUCCESS
}

fn with_each_rate() {
    run("ip", "link set lo mtu 1500");
    for rate in RATES {
        let shape = format!("qdisc replace dev lo root tbf rate {rate}bit burst {BURST} limit 16mb");
        if !run("tc", &shape) {
            assert!(std::env::var_os("CI").is_none(), "the kernel has no tbf");
            println!("skipped: the kernel has no tbf");
            return;
        }
        for size in SIZES {
            let count = (rate as usize / 16 / size).clamp(3, 500);
            let sizes = vec![size; count];
            let name = |carrier: &str| format!("{carrier}, {rate} bit/s, {count} of {size} bytes");
            // More than the rate carries waits in front of the device, and not in this process.
            let config = SinkConfig::new(choice::fifo()).reserve(Reserve::Fixed(1 << 22)).queue_target(None);
            look(&name("TCP"), rate, size, &over_tcp(config.departures(true), &sizes, "127.0.0.1:0"));
            if notes_datagrams() {
                look_at_queue(&name("datagrams"), rate, size, &over_datagrams(&sizes, "127.0.0.1:0"));
                let config = NodeConfig::new().unwrap();
                look(&name("A1"), rate, size, &over_a1(config, &sizes, "127.0.0.1:0"));
            }
        }
    }
}

fn run(program: &str, arguments: &str) -> bool {
    // Programs: ip, tc
    Command::new(program).args(arguments.split(' ')).status().unwrap().success()
}

/// The time that the rate takes for this number of bytes behind a burst.
fn time_for(bytes: usize, rate: u64) -> Duration {
    Rate::from_bits_per_sec(rate).time_for(bytes.saturating_sub(BURST) as u64)
}

/// The times of the records of which the kernel has noted both, in the order of departure. It has no room for some notes where this
/// process does not run for long.
fn noted(name: &str, fates: &[Fate]) -> Vec<(Timestamp, Timestamp)> {
    let mut times: Vec<_> = fates.iter().filter_map(|fate| fate.departed_at.zip(fate.scheduled_at)).collect();
    let least = fates.len().min(SURELY_NOTED);
    assert!(times.len() >= least, "{name}: {} of {} have both times", times.len(), fates.len());
    times.sort();
    times
}

/// No record departs before all bytes up to its last have passed the rate, nor before it entered the queue.
fn look(name: &str, rate: u64, size: usize, fates: &[Fate]) {
    let first = fates.iter().filter_map(|fate| fate.committed_at).min().expect(name);
    for (before, (departed, scheduled)) in noted(name, fates).into_iter().enumerate() {
        assert!(scheduled <= departed + SLACK, "{name}: {scheduled:?}, {departed:?}");
        let waited = departed.saturating_since(first);
        let least = time_for((before + 1) * size, rate);
        assert!(waited + SLACK >= least, "{name}: record {before} departed after {waited:?}, not {least:?}");
    }
}

/// All records entered at once: the last waits for what entered before it, and not much longer.
fn look_at_queue(name: &str, rate: u64, size: usize, fates: &[Fate]) {
    look(name, rate, size, fates);
    let times = noted(name, fates);
    let (departed, scheduled) = *times.last().expect(name);
    let first = times.iter().map(|&(_, scheduled)| scheduled).min().expect(name);
    let (waited, entered) = (departed.saturating_since(scheduled), scheduled.saturating_since(first));
    let least = time_for(times.len() * size, rate).saturating_sub(entered + SLACK);
    let most = time_for(fates.len() * (size + size.div_ceil(DATAGRAM) * HEADERS) + BURST, rate);
    println!("{name}: the last waited {waited:?}; the queue explains {least:?} to {most:?}");
    assert!(waited >= least, "{name}: {waited:?}, not {least:?}");
    // Twice and a second: the timer of a loaded machine is late.
    assert!(waited <= most * 2 + Duration::from_secs(1), "{name}: {waited:?}, not {most:?}");
}
