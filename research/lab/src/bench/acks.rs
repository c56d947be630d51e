//! The cost of acknowledgements for a sending host, with and without the filter.

mod grid;

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use freshwire_acks::{Config, Filter, Hook, HookChoice, Rule};
use freshwire_netns::testbed::{Receiver, Testbed, Transfer};
use freshwire_record::parse_duration;

use super::series::{Goal, Report, Unit};
use crate::output::say;

const BENCH: &str = "acks";

/// Bytes of a repetition, over all its connections.
const BYTES: u64 = 100_000_000;

const CONNECTIONS: [usize; 3] = [1, 4, 16];

/// Issue 43: a receiver that acknowledges each packet.
const FEWER: Goal = Goal::AtMost(0.15);
const CPU: Goal = Goal::AtMost(0.45);
const THROUGHPUT: Goal = Goal::AtLeast(0.97);
/// A receiver with offload: the filter may cost 2 %.
const OFFLOAD_CPU: Goal = Goal::AtMost(1.02);

/// The filter between the sender and its acknowledgements.
#[derive(Clone, Copy, PartialEq)]
struct Variant {
    name: &'static str,
    filter: Option<(Rule, Hook)>,
}

const PLAIN: Variant = Variant { name: "no filter", filter: None };
const VARIANTS: [Variant; 5] = [
    PLAIN,
    Variant { name: "safe, tc", filter: Some((Rule::Safe, Hook::Tc)) },
    Variant { name: "safe, XDP", filter: Some((Rule::Safe, Hook::Xdp)) },
    Variant { name: "cake, tc", filter: Some((Rule::Cake, Hook::Tc)) },
    Variant { name: "checkpoint, tc", filter: Some((Rule::Checkpoint, Hook::Tc)) },
];

/// The places of the three series of a variant.
#[derive(Clone, Copy)]
struct Places {
    cpu: usize,
    rate: usize,
    segments: usize,
}

/// The options of `acks`.
#[derive(Args, Clone, Debug)]
pub(super) struct AcksArgs {
    /// Have `acks` measure the grid instead: an emulated link with and without delay and loss, cubic and bbr. A quarter of an hour.
    #[arg(long)]
    grid: bool,
    /// How long each transfer of `--grid` lasts.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    grid_time: Duration,
}

pub(super) fn measure(args: &AcksArgs, repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    if args.grid {
        return grid::measure(repeat, args.grid_time, report);
    }
    let each = Testbed::new("each", Receiver::EachPacket).context("cannot measure acknowledgements")?;
    for congestion in ["cubic", "bbr"] {
        for connections in CONNECTIONS {
            let plan = plan(connections, congestion);
            let cell = format!("{congestion}, {connections} connections");
            say(&format!("acks: {cell} ..."));
            let places = run(&each, &plan, &cell, &VARIANTS, repeat, report)?;
            let plain = places[0];
            for (variant, place) in VARIANTS.iter().zip(&places).skip(1) {
                let has_goal = variant.filter == Some((Rule::Safe, Hook::Tc));
                let goal = |goal| has_goal.then_some(goal);
                let name = |what: &str| format!("{what}, {}: none; {cell}", variant.name);
                report.compare(&name("ACKs in the stack"), place.segments, plain.segments, goal(FEWER));
                report.compare(&name("CPU per GB"), place.cpu, plain.cpu, goal(CPU));
                report.compare(&name("throughput"), place.rate, plain.rate, goal(THROUGHPUT));
            }
        }
    }
    drop(each);
    let offload = Testbed::new("gro", Receiver::Offload)?;
    let cell = "a receiver with offload, 4 connections";
    say(&format!("acks: {cell} ..."));
    let places = run(&offload, &plan(4, "cubic"), cell, &VARIANTS[..2], repeat, report)?;
    report.compare("CPU per GB, safe, tc: none; offload", places[1].cpu, places[0].cpu, Some(OFFLOAD_CPU));
    report.notes.push(
        "acks: a veth has no interrupts and no hardware rings, and copies each packet for XDP; a card's driver does not.\n\
         Delay and loss are measured by `bench acks --grid`."
            .to_owned(),
    );
    Ok(())
}

fn plan(connections: usize, congestion: &str) -> Transfer {
    let bytes = BYTES / connections as u64;
    Transfer { connections, bytes, congestion: congestion.to_owned(), check: false }
}

/// Each variant in turn, as often as asked.
fn run(
    testbed: &Testbed,
    plan: &Transfer,
    cell: &str,
    variants: &[Variant],
    repeat: u32,
    report: &mut Report,
) -> anyhow::Result<Vec<Places>> {
    let mut places = Vec::new();
    for repetition in 0..repeat {
        for variant in variants {
            let filter = variant.filter.map(|(rule, hook)| {
                testbed
                    .in_near(|| Filter::new(testbed.interface(), HookChoice::Only(hook), &Config::new(rule)))
            });
            let filter = filter.transpose()?.transpose()?;
            let outcome = testbed.transfer(testbed.address(), plan)?;
            let gigabytes = outcome.bytes as f64 / 1e9;
            let mut add = |what: &str, unit, sample| {
                report.add(BENCH, &format!("{what}, {}; {cell}", variant.name), unit, sample)
            };
            let place = Places {
                cpu: add("CPU per GB", Unit::SecondsPerGigabyte, outcome.cpu_per_gb()),
                rate: add("throughput", Unit::BytesPerSecond, outcome.rate() / 8.0),
                segments: add(
                    "ACKs in the stack per GB",
                    Unit::Count,
                    outcome.tcp.segments_in as f64 / gigabytes,
                ),
            };
            drop(filter);
            if repetition == 0 {
                places.push(place);
            }
        }
    }
    Ok(places)
}
