//! Receiving UDP: what a program loses that stalls, what not losing it costs, and what a slow program reads.

mod ends;
mod plan;

use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

use self::ends::Outcome;
use self::plan::{KERNEL_BUFFER, Method, Plan, Rule};
use super::series::{Goal, Grid, Report, Unit};
use crate::output::say;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use freshwire_push::module_ring::ModuleRing;
use freshwire_push::packet_ring::PacketRing;
use freshwire_record::parse_duration;

/// Rates, in datagrams a second, that have a goal: the loss in per cent that push may have.
const GOALS: [(u64, f64); 2] = [(20_000, 0.0), (100_000, 0.1)];
/// Datagrams a second of the overload, ten times as many as are read.
const OVERLOAD: u64 = 20_000;
const CPU: Goal = Goal::AtMost(1.0);
const CPU_PRELOADED: Goal = Goal::AtMost(1.1);
const TAKE: Goal = Goal::AtMost(0.2);

/// The halves of `receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A program that stalls now and then: losses and costs of each method.
    Stalls,
    /// A program that is too slow for good: how old what it reads is, with each rule.
    Overload,
}

/// How `receive` measures.
#[derive(Args)]
pub(super) struct ReceiveArgs {
    /// Datagrams of 1400 bytes a second in `receive`.
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_values_t = [20_000, 100_000],
        value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    receive_rate: Vec<u64>,
    /// How long each repetition of `receive` sends.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    receive_time: Duration,
    /// Ways to receive in `receive`; every one that the machine has if not given.
    #[arg(long, value_name = "METHOD", value_delimiter = ',', value_enum)]
    receive_method: Vec<Method>,
    /// Which half of `receive`; both if not given.
    #[arg(long, value_name = "PART", value_enum)]
    receive_part: Option<Part>,
    /// A process that the bench starts itself: an end of `receive`.
    #[arg(long, hide = true, value_name = "PLAN")]
    receive_worker: Option<String>,
}

impl ReceiveArgs {
    /// Runs an end, if this process is one.
    pub(super) fn work(&self) -> Option<anyhow::Result<ExitCode>> {
        let plan = self.receive_worker.as_ref()?;
        let plan = serde_json::from_str(plan).context("this is no plan");
        Some(plan.and_then(|plan| ends::work(&plan)).map(|()| ExitCode::SUCCESS))
    }
}

/// Each method at each rate, then the overload. Repetitions take turns.
pub(super) fn measure(repeat: u32, args: &ReceiveArgs, report: &mut Report) -> anyhow::Result<()> {
    let asked = |part| args.receive_part.is_none_or(|only| only == part);
    if asked(Part::Stalls) {
        let methods = available(&args.receive_method, report);
        anyhow::ensure!(
            !methods.is_empty(),
            "this machine has none of these methods: {}",
            report.notes.join("; ")
        );
        for &rate in &args.receive_rate {
            stalls(repeat, rate, args.receive_time, &methods, report)?;
        }
    }
    if asked(Part::Overload) {
        overload(repeat, args.receive_time, report)?;
    }
    Ok(())
}

/// The wanted methods that this machine has; all of them without a wish. A note names the obstacles of the others.
fn available(wanted: &[Method], report: &mut Report) -> Vec<Method> {
    let mut methods = Vec::from(Method::value_variants());
    methods.retain(|method| {
        if !wanted.is_empty() && !wanted.contains(method) {
            return false;
        }
        let obstacle = obstacle(*method);
        if let Some(why) = &obstacle {
            report.notes.push(format!("receive: {} was not measured: {why}", method.text()));
        }
        obstacle.is_none()
    });
    methods
}

/// Why this machine does not have a method.
fn obstacle(method: Method) -> Option<String> {
    match method {
        Method::Recv | Method::Recvmmsg | Method::Large | Method::PushThread => None,
        Method::PushUring => freshwire_push::probe_io_uring().err().map(|error| error.to_string()),
        Method::PacketRing => PacketRing::open(1, 9, 0).err().map(|error| error.to_string()),
        Method::Preloaded => crate::product::program().err().map(|error| format!("{error:#}")),
        Method::Module => {
            let opened = UdpSocket::bind("127.0.0.1:0").and_then(|socket| ModuleRing::open(socket, 0));
            opened.err().map(|error| error.to_string())
        }
    }
}

fn stalls(
    repeat: u32,
    rate: u64,
    time: Duration,
    methods: &[Method],
    report: &mut Report,
) -> anyhow::Result<()> {
    // Lives as long as the report.
    let bench: &'static str = format!("receive, {rate}/s").leak();
    let count = (rate as f64 * time.as_secs_f64()).max(1.0) as u64;
    let mut places = vec![[0; 4]; methods.len()];
    for repetition in 1..=repeat {
        for (place, &method) in places.iter_mut().zip(methods) {
            say(&format!("{bench}, {}: repetition {repetition} of {repeat} ...", method.text()));
            let plan = Plan::Stall { method, rate, count, seed: repetition.into() };
            let Outcome { received, cpu_ns, take_ns, .. } = ends::run(&plan)?;
            let lost = count - received.min(count);
            let mut add = |what: &str, unit, value| {
                report.add(bench, &format!("{}: {what}", method.text()), unit, value)
            };
            *place = [
                add("lost", Unit::Percent, lost as f64 * 100.0 / count as f64),
                // One of a million is no per cent that anybody would see.
                add("datagrams lost", Unit::Count, lost as f64),
                add("CPU of a datagram", Unit::Nanoseconds, cpu_ns / received.max(1) as f64),
                add("taking one", Unit::Nanoseconds, take_ns),
            ];
        }
    }
    let place = |wanted: Method| methods.iter().position(|method| *method == wanted).map(|at| places[at]);
    let allowed = GOALS.iter().find(|(with_goal, _)| *with_goal == rate).map(|(_, lost)| *lost);
    let Some([_, _, recv_cpu, recv_take]) = place(Method::Recv) else { return Ok(()) };
    for method in [Method::PushThread, Method::PushUring, Method::Module, Method::Preloaded] {
        let Some([lost, _, cpu, take]) = place(method) else { continue };
        let (name, is_library) = (method.text(), method != Method::Preloaded);
        if let Some(allowed) = allowed {
            report.demand(lost, Goal::AtMost(allowed));
        }
        let goal = allowed.map(|_| if is_library { CPU } else { CPU_PRELOADED });
        report.compare(&format!("CPU, {name} : recv"), cpu, recv_cpu, goal);
        report.compare(&format!("taking, {name} : recv"), take, recv_take, allowed.map(|_| TAKE));
    }
    report.grids.push(Grid {
        bench,
        caption: format!("a program that stalls 5 to 200 ms, kernel buffer of {} KiB", KERNEL_BUFFER >> 10),
        columns: ["lost", "datagrams lost", "CPU of a datagram", "taking one"].map(str::to_owned).to_vec(),
        rows: methods
            .iter()
            .zip(&places)
            .map(|(method, places)| (method.text().to_owned(), places.map(Some).to_vec()))
            .collect(),
    });
    Ok(())
}

fn overload(repeat: u32, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    const BENCH: &str = "receive, overload";
    const RULES: [Rule; 4] = [Rule::Kernel, Rule::Newest, Rule::Deadline, Rule::LatestByKey];
    let count = (OVERLOAD as f64 * time.as_secs_f64()).max(1.0) as u64;
    let mut rows = Vec::new();
    for repetition in 1..=repeat {
        for rule in RULES {
            say(&format!("{BENCH}, {}: repetition {repetition} of {repeat} ...", rule.text()));
            let mut ages = ends::run(&Plan::Slow { rule, rate: OVERLOAD, count })?.ages_ns;
            // The second half: the queue has its length by then.
            ages.drain(..ages.len() / 2);
            ages.sort_unstable();
            let at = |share: f64| {
                ages.get((share * ages.len().saturating_sub(1) as f64) as usize)
                    .map_or(f64::NAN, |age| *age as f64)
            };
            let name = rule.text();
            let mut add =
                |what: &str, unit, value| report.add(BENCH, &format!("{name}: {what}"), unit, value);
            let places = [
                add("age, median", Unit::Nanoseconds, at(0.5)),
                add("age, 95th percentile", Unit::Nanoseconds, at(0.95)),
                add("age, most", Unit::Nanoseconds, at(1.0)),
                add("read", Unit::Count, ages.len() as f64),
            ];
            if repetition == 1 {
                rows.push((name, places.map(Some).to_vec()));
            }
        }
    }
    let columns = ["age, median", "95th percentile", "most", "read"].map(str::to_owned).to_vec();
    let caption = format!("{OVERLOAD} datagrams a second, a tenth of which is read");
    report.grids.push(Grid { bench: BENCH, caption, columns, rows });
    Ok(())
}
