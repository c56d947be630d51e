//! The send path of a camera: the ways to hand one picture to many sockets. Counterparts of tables 4.1 to 4.3
//! of Marigi 2012.

use crate::sendpath::{Mechanism, Picture};
use anyhow::Context as _;
use clap::Args;
use freshwire_netns::testbed::{Receiver, Testbed};
use freshwire_record::parse_size;

use super::series::{Goal, Grid, Report, Unit};
use crate::output::say;

const BENCH: &str = "path";

/// Size of the picture: the capacity of a pipe, and the largest call of Marigi 2012.
const PICTURE_BYTES: usize = 64 << 10;

/// Bytes of a repetition over all connections, without a limit.
const BYTES: u64 = 200_000_000;

/// The link of Marigi 2012.
const RATE: u64 = 100_000_000;

/// Issue 43: full segments.
const FULL: Goal = Goal::AtLeast(98.0);

/// Table 4.3 of Marigi 2012, in MB/s at 100 Mbit/s: connections, write, sendfile. Tables 4.1 and 4.2 differ
/// from it by at most 6 %.
const PUBLISHED: [(usize, f64, f64); 4] =
    [(1, 11.79, 11.78), (4, 11.79, 11.79), (16, 11.79, 11.79), (32, 11.80, 11.80)];

/// The options of `path`.
#[derive(Args, Clone, Debug)]
pub(super) struct PathArgs {
    /// Connections of `path`.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', default_value = "1,4,16,32,1000")]
    path_connections: Vec<usize>,
    /// Mechanisms of `path` [default: all].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    path_mechanisms: Vec<Mechanism>,
    /// Bytes of a repetition of `path` at 100 Mbit/s, over all connections: a second of it. Many connections need more to fill the link.
    #[arg(long, value_name = "SIZE", default_value = "12MB", value_parser = parse_size)]
    path_bytes: u64,
}

/// One column of the grids.
#[derive(Clone, Copy)]
struct Cell {
    connections: usize,
    offload: bool,
    rate: Option<u64>,
}

impl Cell {
    fn name(self) -> String {
        let rate = if self.rate.is_some() { "100 Mbit/s" } else { "unlimited" };
        let offload = if self.offload { "offload" } else { "no offload" };
        format!("{} connections, {rate}, {offload}", self.connections)
    }
}

/// The places of a cell's series: throughput, processor time, payload of segments, system calls.
type Places = [usize; 4];

pub(super) fn measure(args: &PathArgs, repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    let most = args.path_connections.iter().max().copied().unwrap_or(0);
    // Two sockets and a pipe for each connection.
    super::machine::allow_files(4 * most as u64 + 100, "--path-connections")?;
    let testbed = Testbed::new("path", Receiver::Offload).context("cannot measure the send path")?;
    let bytes: Vec<u8> = (0..PICTURE_BYTES).map(|place| (place % 251) as u8).collect();
    let picture = Picture::new(&bytes)?;
    let all = Mechanism::ALL.to_vec();
    let mechanisms = if args.path_mechanisms.is_empty() { &all } else { &args.path_mechanisms };
    let mechanisms = &offered(mechanisms, &picture, report);
    for rate in [None, Some(RATE)] {
        testbed.set_rate(rate)?;
        for offload in [true, false] {
            testbed.set_offload(offload)?;
            let cells: Vec<Cell> = args
                .path_connections
                .iter()
                .map(|&connections| Cell { connections, offload, rate })
                .collect();
            let mut columns = Vec::new();
            for &cell in &cells {
                say(&format!("path: {} ...", cell.name()));
                columns.push(run(&testbed, &picture, cell, mechanisms, (repeat, args.path_bytes), report)?);
            }
            grids(mechanisms, &cells, &columns, report);
        }
    }
    notes(report);
    Ok(())
}

/// The mechanisms that this kernel has; a note names the obstacles of the others.
fn offered(mechanisms: &[Mechanism], picture: &Picture, report: &mut Report) -> Vec<Mechanism> {
    let mut offered = Vec::new();
    for &mechanism in mechanisms {
        // Nobody gets the picture; what the mechanism needs of the kernel is made.
        match mechanism.send(&[], picture, 1) {
            Ok(_) => offered.push(mechanism),
            Err(error) => report.notes.push(format!("path: {mechanism} skipped: {error}")),
        }
    }
    offered
}

/// Each mechanism in turn, as often as asked.
fn run(
    testbed: &Testbed,
    picture: &Picture,
    cell: Cell,
    mechanisms: &[Mechanism],
    (repeat, bytes_at_rate): (u32, u64),
    report: &mut Report,
) -> anyhow::Result<Vec<Places>> {
    let total = if cell.rate.is_some() { bytes_at_rate } else { BYTES };
    let times = (total / (picture.len() * cell.connections) as u64).max(1);
    let bytes_each = times * picture.len() as u64;
    let mut places = Vec::new();
    for repetition in 0..repeat {
        for &mechanism in mechanisms {
            let (account, outcome) = testbed
                .fan_out(cell.connections, bytes_each, |sockets| {
                    mechanism.send(sockets, picture, times as u32)
                })
                .with_context(|| format!("{mechanism}, {}", cell.name()))?;
            let gigabytes = outcome.bytes as f64 / 1e9;
            let mut add = |what: &str, unit, sample| {
                report.add(BENCH, &format!("{what}, {mechanism}; {}", cell.name()), unit, sample)
            };
            let place = [
                add("throughput", Unit::BytesPerSecond, outcome.rate() / 8.0),
                add("CPU per GB", Unit::SecondsPerGigabyte, outcome.cpu_per_gb()),
                add("payload of a segment, of a full one", Unit::Percent, 100.0 * outcome.fullness()),
                add("system calls per GB", Unit::Count, account.system_calls as f64 / gigabytes),
            ];
            if repetition == 0 {
                places.push(place);
            }
        }
    }
    let plain = mechanisms.iter().position(|&mechanism| mechanism == Mechanism::Write);
    for (&mechanism, &[_, cpu, full, _]) in mechanisms.iter().zip(&places) {
        if let Some(plain) = plain
            && mechanism != Mechanism::Write
        {
            let name = format!("CPU per GB, {mechanism}: write; {}", cell.name());
            report.compare(&name, cpu, places[plain][1], None);
        }
        if cell.offload {
            report.demand(full, FULL);
        }
    }
    Ok(places)
}

fn grids(mechanisms: &[Mechanism], cells: &[Cell], columns: &[Vec<Places>], report: &mut Report) {
    let Some(first) = cells.first() else { return };
    let setting = first.name();
    let setting = setting.split_once(", ").map_or("", |(_, rest)| rest);
    let quantities =
        ["throughput", "sender's CPU per GB", "payload of a segment, of a full one", "system calls per GB"];
    for (quantity, what) in quantities.into_iter().enumerate() {
        let rows = mechanisms.iter().enumerate().map(|(row, mechanism)| {
            let places = columns.iter().map(|column| column.get(row).map(|places| places[quantity]));
            (mechanism.to_string(), places.collect())
        });
        report.grids.push(Grid {
            bench: BENCH,
            caption: format!("{what}; {setting}; by connections"),
            columns: cells.iter().map(|cell| cell.connections.to_string()).collect(),
            rows: rows.collect(),
        });
    }
}

fn notes(report: &mut Report) {
    let published: Vec<String> = PUBLISHED
        .iter()
        .map(|(connections, write, sendfile)| format!("{connections}: {write} and {sendfile}"))
        .collect();
    report.notes.push(format!(
        "path: published for 100 Mbit/s (table 4.3), write and sendfile in MB/s by connections: {}.\n\
         The camera filled its link with each mechanism. A repetition here takes a second unless --path-bytes asks for more, and slow start\n\
         is a part of it: many connections do not fill the link. The camera's tables with a network processor show less for\n\
         sendfile because its kernel sent page by page, so that short segments stood between full ones. Kernels since Linux 6.5\n\
         hand all pages over at once (MSG_SPLICE_PAGES).\n\
         On a veth a zero-copy send is copied when it enters the other host; a card would read the pages instead.\n\
         The kernel ring's zero copy is not among the mechanisms: its module runs in a guest (make kernel-costs).",
        published.join("; ")
    ));
}

#[cfg(test)]
mod tests {
    use freshwire_netns::testbed::TestbedError;

    use super::*;

    #[test]
    fn a_mechanism_is_measured_in_every_cell() {
        let args = PathArgs {
            path_connections: vec![3],
            path_mechanisms: vec![Mechanism::Sendfile],
            path_bytes: 12_000_000,
        };
        let mut report = Report::default();
        if let Err(error) = measure(&args, 1, &mut report) {
            let is_missing = error.downcast_ref().is_some_and(TestbedError::is_missing);
            assert!(is_missing && std::env::var_os("CI").is_none(), "{error:#}");
            println!("skipped: {error:#}");
            return;
        }
        assert_eq!(report.grids.len(), 4 * 4, "four tables for each rate and offload");
        assert_eq!(report.series.len(), 4 * 4);
        for series in &report.series {
            let sample = series.samples[0];
            assert!(sample > 0.0, "{}", series.name);
            assert!(series.unit != Unit::Percent || sample < 101.0, "{}: {sample}", series.name);
            let is_limited = series.unit == Unit::BytesPerSecond && series.name.contains("100 Mbit/s");
            assert!(!is_limited || sample < RATE as f64 / 8.0, "{}: {sample}", series.name);
        }
    }
}
