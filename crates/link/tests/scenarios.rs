//! The model pinned as a table that a person has reviewed: `scenarios.txt`. Run with `FRESHWIRE_BLESS=1` to write it
//! anew, and review the difference.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use freshwire_link::{Builder, Config, Direction, Link, Loss, Schedule};
use freshwire_record::Timestamp;

/// The offered load: `packets` packets of `bytes`, one each `gap`.
struct Offer {
    packets: u64,
    bytes: u64,
    gap: Duration,
}

#[test]
fn scenarios_are_as_reviewed() {
    let mut table = format!(
        "{:<28} {:>7} {:>9} {:>6} {:>6} {:>6} {:>12} {:>13} {:>10} {:>16}\n",
        "scenario",
        "offered",
        "delivered",
        "lost",
        "queue",
        "peak B",
        "wait max ms",
        "first at ms",
        "last at s",
        "digest"
    );
    for (name, builder, offer) in scenarios() {
        writeln!(table, "{name:<28} {}", row(builder.build().unwrap(), &offer)).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios.txt");
    if std::env::var_os("FRESHWIRE_BLESS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(table, std::fs::read_to_string(&path).unwrap());
}

fn scenarios() -> Vec<(&'static str, Builder, Offer)> {
    let ms = Duration::from_millis;
    let link = |rate: &str| Config::builder().rate(rate.parse().unwrap()).seed(7);
    let trace =
        |text: &str| Config::builder().schedule(Schedule::parse(text).unwrap()).queue_bytes(1_000_000);
    let offer = |packets, bytes, gap| Offer { packets, bytes, gap };
    vec![
        ("unlimited", Config::builder(), offer(1000, 1500, ms(1))),
        ("delay alone", Config::builder().delay(ms(50)), offer(1000, 1500, ms(1))),
        ("1 Mbit, exactly full", link("1Mbit"), offer(1000, 1500, ms(12))),
        ("1 Mbit, twice too much", link("1Mbit"), offer(1000, 1500, ms(6))),
        ("1 Mbit, a burst of 100", link("1Mbit"), offer(100, 1500, ms(0))),
        ("1 Mbit, no queue", link("1Mbit").queue_bytes(0), offer(1000, 1500, ms(6))),
        (
            "512 kbit, 5 %, 50 ms",
            link("512kbit").loss(Loss::Random { share: 0.05 }).delay(ms(50)),
            offer(2000, 1500, ms(30)),
        ),
        ("512 Kibit, small packets", link("512Kibit"), offer(2000, 52, ms(1))),
        (
            "loss without rate, 1 %",
            Config::builder().seed(7).loss(Loss::Random { share: 0.01 }),
            offer(10_000, 1500, ms(1)),
        ),
        (
            "bursts of 8, 5 %",
            Config::builder().seed(7).loss(Loss::Burst { share: 0.05, mean_packets: 8.0 }),
            offer(10_000, 1500, ms(1)),
        ),
        (
            "two states",
            Config::builder().seed(7).loss(Loss::GilbertElliott {
                to_bad: 0.01,
                to_good: 0.2,
                loss_good: 0.001,
                loss_bad: 0.5,
            }),
            offer(10_000, 1500, ms(1)),
        ),
        ("dip 6, 1, 6 Mbit", trace("0 6Mbit\n5 1Mbit\n10 6Mbit"), offer(5000, 1500, ms(3))),
        ("on and off each 100 ms", trace("0 10Mbit\n0.1 0\n0.2 repeat"), offer(2000, 1500, ms(3))),
        ("outage of 2 s", link("1Mbit").outage(ms(1000), ms(2000)), offer(500, 1500, ms(12))),
        ("small wire", Config::builder().delay(ms(100)).in_flight_bytes(15_000), offer(1000, 1500, ms(5))),
    ]
}

fn row(config: Config, offer: &Offer) -> String {
    let mut link = Link::new(config, Direction::Up, Timestamp::ZERO);
    let mut deliveries = Vec::new();
    let mut now = Timestamp::ZERO;
    for _ in 0..offer.packets {
        while let Some(delivery) = link.poll_transmit(now) {
            deliveries.push((delivery.number, delivery.at));
        }
        link.handle_packet(now, offer.bytes, ());
        now += offer.gap;
    }
    while let Some(at) = link.poll_timeout() {
        let delivery = link.poll_transmit(at).unwrap();
        deliveries.push((delivery.number, delivery.at));
    }
    let counters = link.counters();
    format!(
        "{:>7} {:>9} {:>6} {:>6} {:>6} {:>12.3} {:>13.3} {:>10.6} {:016x}",
        counters.offered_packets,
        counters.delivered_packets,
        counters.lost_packets,
        counters.queue_full_packets + counters.wire_full_packets,
        counters.queue_peak_bytes,
        counters.queue_delay_max.as_secs_f64() * 1e3,
        deliveries[0].1.as_secs_f64() * 1e3,
        deliveries.last().unwrap().1.as_secs_f64(),
        digest(&deliveries),
    )
}

/// FNV-1a over every number and time: same seed, same bytes.
fn digest(deliveries: &[(u64, Timestamp)]) -> u64 {
    let bytes =
        deliveries.iter().flat_map(|(number, at)| [*number, at.as_nanos()]).flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
