//! Figures 2 and 3 of the A1 document, measured again: throughput and half the round trip against the block's size, for
//! datagrams, TCP, QUIC and A1 in one run.

mod bulk;
pub(super) mod figures;
mod fresh;
mod place;
mod plain;
mod quic;

use std::time::Duration;

use freshwire::a1::Protection;
use rustix::time::ClockId;

use super::machine::processor_time;
use super::series::{Goal, Grid, Report, Spread, Unit};
use crate::output::say;
use bulk::Bulk;
use fresh::{A1, Variant};
use place::Place;

/// Bytes of a block, as far as the figures of Mapp 1997 go.
const SIZES: [usize; 9] = [64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10];

/// Round trips of one repetition.
const PINGS: u32 = 1000;

/// From this size on A1 is to carry this much of what TCP does.
const LARGE: (usize, f64) = (4 << 10, 0.8);

/// A subject of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Udp,
    Tcp,
    Quic,
    A1(Variant),
    A1Stream,
}

const SUBJECTS: [(Subject, &str); 9] = [
    (Subject::Udp, "UDP"),
    (Subject::Tcp, "TCP"),
    (Subject::Quic, "QUIC"),
    (Subject::A1(A1), "A1"),
    (Subject::A1Stream, A1_STREAM),
    (Subject::A1(Variant { retransmission: false, ..A1 }), "A1, no retransmission"),
    (Subject::A1(Variant { protection: Protection::DangerousPlain, ..A1 }), PLAIN_A1),
    (Subject::A1(Variant { ring: true, ..A1 }), "A1, from a ring"),
    (Subject::A1(Variant { small: true, ..A1 }), "A1, datagrams of 1472 B"),
];

const PLAIN_A1: &str = "A1, no encryption";

/// Bytes without messages, as TCP and QUIC carry them.
const A1_STREAM: &str = "A1, stream of bytes";

impl Subject {
    fn bulk(self, place: &Place, block: usize, time: Duration) -> anyhow::Result<Bulk> {
        match self {
            Self::Udp => plain::udp(place, block, time),
            Self::Tcp => plain::tcp(place, block, time),
            Self::Quic => quic::bulk(place, block, time),
            Self::A1(variant) => fresh::bulk(place, variant, block, time),
            Self::A1Stream => fresh::stream(place, block, time),
        }
    }

    fn pings(self, place: &Place, block: usize, count: u32) -> anyhow::Result<Vec<f64>> {
        match self {
            Self::Udp => plain::udp_pings(place, block, count),
            Self::Tcp => plain::tcp_pings(place, block, count),
            Self::Quic => quic::pings(place, block, count),
            Self::A1(variant) => fresh::pings(place, variant, block, count),
            Self::A1Stream => fresh::stream_pings(place, block, count),
        }
    }

    /// Whether it is something else than the others on a link with an Ethernet's packets.
    fn differs_on_a_link(self) -> bool {
        !matches!(self, Self::A1(variant) if variant.small)
    }

    /// Whether everything that was sent has to arrive.
    fn is_reliable(self) -> bool {
        match self {
            Self::Udp => false,
            Self::Tcp | Self::Quic | Self::A1Stream => true,
            Self::A1(variant) => variant.retransmission,
        }
    }
}

/// The figures of one place.
struct Figures {
    throughput: &'static str,
    cost: Option<&'static str>,
    latency: &'static str,
    is_link: bool,
    about: &'static str,
}

impl Figures {
    fn subjects(&self) -> impl Iterator<Item = (Subject, &'static str)> {
        SUBJECTS.into_iter().filter(|(subject, _)| !self.is_link || subject.differs_on_a_link())
    }
}

const LOOPBACK: Figures = Figures {
    throughput: "throughput, loopback",
    cost: Some("processor time of both ends, loopback"),
    latency: "half a round trip, loopback",
    is_link: false,
    about: "One machine, so that the work of both ends limits all; its datagrams may be large.",
};

/// The kernel does a part of the ends' work in the emulator's time, so that theirs would say little.
const LINK: Figures = Figures {
    throughput: "throughput, 100Mbit link",
    cost: None,
    latency: "half a round trip, 100Mbit link",
    is_link: true,
    about: "Full packets are those of an Ethernet, and the link limits what goes over it.",
};

/// Measures on loopback and, where that is permitted, across an emulated link. Call while the process has one thread.
pub(super) fn measure(repeat: u32, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    match Place::link() {
        Ok(link) => figures(&link, &LINK, repeat, time, report)?,
        Err(error) => report.notes.push(format!("Nothing was measured across a link: {error:#}")),
    }
    figures(&Place::Loopback, &LOOPBACK, repeat, time, report)
}

fn figures(
    place: &Place,
    figures: &Figures,
    repeat: u32,
    time: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    for repetition in 1..=repeat {
        say(&format!("{}: repetition {repetition} of {repeat} ...", figures.throughput));
        let subjects: Vec<_> = figures.subjects().collect();
        for block in SIZES {
            for (subject, label) in order(subjects.len(), repetition).map(|at| subjects[at]) {
                let name = name(label, block);
                bulk(place, figures, subject, &name, (block, time), report)?;
                let halves = subject.pings(place, block, PINGS)?;
                let median = Spread::of(&halves).median;
                report.add(figures.latency, &name, Unit::Nanoseconds, median);
            }
        }
    }
    for (bench, caption) in [
        (Some(figures.throughput), "bytes that arrived"),
        (figures.cost, "for what arrived"),
        (Some(figures.latency), "median of 1,000 pings"),
    ] {
        report.grids.extend(bench.map(|bench| grid(figures, report, bench, caption)));
    }
    compare(figures, report);
    Ok(())
}

/// Each of `count` places once, in an order that changes from one repetition to the next. In a fixed order,
/// each place would always follow the same one, and each run leaves the machine in a state of its own.
fn order(count: usize, repetition: u32) -> impl Iterator<Item = usize> {
    let is_coprime =
        |step: &usize| (2..=*step).all(|part| !step.is_multiple_of(part) || !count.is_multiple_of(part));
    let steps: Vec<usize> = (1..count).filter(is_coprime).collect();
    let step = steps[repetition as usize % steps.len()];
    (0..count).map(move |place| (place * step + repetition as usize) % count)
}

/// One repetition of a subject's throughput, and what it cost.
fn bulk(
    place: &Place,
    figures: &Figures,
    subject: Subject,
    name: &str,
    (block, time): (usize, Duration),
    report: &mut Report,
) -> anyhow::Result<()> {
    let before = processor_time(ClockId::ProcessCPUTime);
    let bulk = subject.bulk(place, block, time)?;
    let used = processor_time(ClockId::ProcessCPUTime).saturating_sub(before);
    anyhow::ensure!(
        !subject.is_reliable() || bulk.bytes == bulk.sent,
        "{name}: {} of {} bytes arrived",
        bulk.bytes,
        bulk.sent
    );
    let seconds = bulk.end.saturating_since(bulk.begin).as_secs_f64();
    report.add(figures.throughput, name, Unit::BytesPerSecond, bulk.bytes as f64 / seconds);
    if let Some(cost) = figures.cost {
        let gigabytes = bulk.bytes as f64 / 1e9;
        report.add(cost, name, Unit::SecondsPerGigabyte, used.as_secs_f64() / gigabytes);
    }
    Ok(())
}

/// A row for each size, a column for each subject.
fn grid(figures: &Figures, report: &Report, bench: &'static str, what: &str) -> Grid {
    let row = |block: usize| {
        let place = |(_, label)| report.place(bench, &name(label, block));
        (format!("{block} B"), figures.subjects().map(place).collect())
    };
    Grid {
        bench,
        caption: format!("{bench}: {what}"),
        columns: figures.subjects().map(|(_, label)| label.to_owned()).collect(),
        rows: SIZES.into_iter().map(row).collect(),
    }
}

/// The name of a series.
fn name(label: &str, block: usize) -> String {
    format!("{label}, {block} B")
}

/// The goals of A1.
fn compare(figures: &Figures, report: &mut Report) {
    let mut ratio = |bench: &str, block: usize, (a1, other): (&str, &str), goal: Goal| {
        let places = report.place(bench, &name(a1, block)).zip(report.place(bench, &name(other, block)));
        if let Some((over, under)) = places {
            report.compare(&format!("{a1} : {other}, {block} B"), over, under, Some(goal));
        }
    };
    let large = || SIZES.into_iter().filter(|block| *block >= LARGE.0);
    for a1 in ["A1", A1_STREAM] {
        for block in SIZES {
            ratio(figures.throughput, block, (a1, "QUIC"), Goal::AtLeast(1.0));
        }
    }
    for a1 in ["A1", A1_STREAM, PLAIN_A1] {
        for block in large() {
            ratio(figures.throughput, block, (a1, "TCP"), Goal::AtLeast(LARGE.1));
        }
    }
    for a1 in ["A1", A1_STREAM, PLAIN_A1] {
        for block in SIZES {
            ratio(figures.latency, block, (a1, "TCP"), Goal::AtMost(1.2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_carries_blocks_and_answers_pings() {
        for (subject, label) in SUBJECTS {
            for block in [SIZES[0], SIZES[8]] {
                let time = Duration::from_millis(30);
                let bulk = subject.bulk(&Place::Loopback, block, time).unwrap();
                assert!(
                    bulk.bytes > 0 && bulk.bytes <= bulk.sent,
                    "{label}: {} of {}",
                    bulk.bytes,
                    bulk.sent
                );
                assert!(bulk.bytes == bulk.sent || !subject.is_reliable(), "{label}");
                let halves = subject.pings(&Place::Loopback, block, 10).unwrap();
                assert_eq!(halves.len(), 10, "{label}");
                assert!(halves.iter().all(|half| *half > 0.0), "{label}: {halves:?}");
            }
        }
    }

    #[test]
    fn everybody_has_a_turn_and_others_before_it() {
        for count in [LINK.subjects().count(), LOOPBACK.subjects().count()] {
            let orders: Vec<Vec<usize>> =
                (1..=4).map(|repetition| order(count, repetition).collect()).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            }
            let before = |order: &Vec<usize>| {
                let place = order.iter().position(|at| *at == 3).unwrap();
                order[(place + count - 1) % count]
            };
            let before: std::collections::BTreeSet<usize> = orders.iter().map(before).collect();
            assert_eq!(before.len(), 4, "{orders:?}");
        }
    }

    /// A report in which each number is the block's size.
    pub(super) fn report_of(figures: &Figures) -> Report {
        let mut report = Report::default();
        for (_, label) in figures.subjects() {
            for block in SIZES {
                let mut add = |bench, unit| report.add(bench, &name(label, block), unit, block as f64);
                add(figures.throughput, Unit::BytesPerSecond);
                add(figures.latency, Unit::Nanoseconds);
                figures.cost.map(|cost| add(cost, Unit::SecondsPerGigabyte));
            }
        }
        report
    }

    #[test]
    fn goals_are_set_for_what_was_measured() {
        let mut report = report_of(&LINK);
        compare(&LINK, &mut report);
        assert_eq!(report.ratios.len(), 2 * 9 + 3 * 3 + 3 * 9);
        assert!(report.all_met());
        let grid = grid(&LINK, &report, LINK.throughput, "");
        assert_eq!((grid.rows.len(), grid.columns.len()), (9, 8));
        assert!(grid.rows.iter().all(|(_, places)| places.iter().all(Option::is_some)));
    }
}
