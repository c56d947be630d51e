//! Receiving UDP: what a program loses that stalls, what not losing it costs, and what a slow program reads.

mod ends;
mod plan;
mod rivals;

use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

use self::plan::{KERNEL_BUFFER, Method, Outcome, Plan, Rule, Traffic};
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
/// Payload in bytes: a packet of Ethernet.
const LEN: usize = 1400;
/// Methods on one processor with another program.
const SHARED: [Method; 4] = [Method::Recv, Method::RealTime, Method::PushThread, Method::PushUring];
const CPU: Goal = Goal::AtMost(1.0);
const CPU_PRELOADED: Goal = Goal::AtMost(1.1);
const TAKE: Goal = Goal::AtMost(0.2);

/// The parts of `receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A program that stalls now and then: losses and costs of each method.
    Stalls,
    /// A program that is too slow for good: how old what it reads is, with each rule.
    Overload,
    /// A receiver on one processor with another program: what each gets.
    Shared,
}

/// How `receive` measures.
#[derive(Args)]
pub(super) struct ReceiveArgs {
    /// Datagrams a second in `receive`.
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_values_t = [20_000, 100_000],
        value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    receive_rate: Vec<u64>,
    /// Payload of a datagram in `receive`, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = LEN as u32, value_parser = clap::value_parser!(u32).range(16..=8000))]
    receive_len: u32,
    /// Datagrams that the sender of `receive` hands over at once (`UDP_SEGMENT`): a path that coalesces.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    receive_segments: u32,
    /// How long each repetition of `receive` sends.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    receive_time: Duration,
    /// Ways to receive in `receive`; every one that the machine has if not given.
    #[arg(long, value_name = "METHOD", value_delimiter = ',', value_enum)]
    receive_method: Vec<Method>,
    /// Which part of `receive`; all if not given.
    #[arg(long, value_name = "PART", value_enum)]
    receive_part: Option<Part>,
    /// A process that the bench starts itself: an end of `receive`.
    #[arg(long, hide = true, value_name = "PLAN")]
    receive_worker: Option<String>,
}

impl ReceiveArgs {
    fn traffic(&self, rate: u64) -> Traffic {
        let count = (rate as f64 * self.receive_time.as_secs_f64()).max(1.0) as u64;
        let len = self.receive_len as usize;
        // One call sends at most 64 KiB.
        Traffic { rate, count, len, segments: (self.receive_segments as usize).min(65_000 / len) }
    }

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
            stalls(repeat, args.traffic(rate), &methods, report)?;
        }
    }
    if asked(Part::Shared) {
        let methods = available(&SHARED, report);
        shared(repeat, args.traffic(OVERLOAD), &methods, report)?;
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
        Method::Recv | Method::Recvmmsg | Method::Large | Method::Monitored | Method::PushThread => None,
        Method::RealTime => real_time_obstacle(),
        Method::PushUring => freshwire_push::probe_io_uring().err().map(|error| error.to_string()),
        Method::PacketRing => PacketRing::open(1, 9, 0).err().map(|error| error.to_string()),
        Method::Preloaded => crate::product::program().err().map(|error| format!("{error:#}")),
        Method::Module => {
            let opened = UdpSocket::bind("127.0.0.1:0").and_then(|socket| ModuleRing::open(socket, 0));
            opened.err().map(|error| error.to_string())
        }
    }
}

/// Tried in a thread that ends.
fn real_time_obstacle() -> Option<String> {
    let tried = std::thread::spawn(|| rivals::take_real_time().err().map(|error| error.to_string()));
    tried.join().ok().flatten()
}

/// The name of a part of the report. It lives as long as the report.
fn name(traffic: Traffic) -> &'static str {
    let Traffic { rate, len, segments, .. } = traffic;
    let len = if len == LEN { String::new() } else { format!(", {len} bytes") };
    let segments = if segments == 1 { String::new() } else { format!(", {segments} at once") };
    format!("receive, {rate}/s{len}{segments}").leak()
}

fn stalls(repeat: u32, traffic: Traffic, methods: &[Method], report: &mut Report) -> anyhow::Result<()> {
    let Traffic { rate, count, .. } = traffic;
    let bench = name(traffic);
    let mut places = vec![[0; 4]; methods.len()];
    for repetition in 1..=repeat {
        for (place, &method) in places.iter_mut().zip(methods) {
            say(&format!("{bench}, {}: repetition {repetition} of {repeat} ...", method.text()));
            let plan = Plan::Stall { method, traffic, seed: repetition.into() };
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

/// The receiver's losses and the other program's share, when both are on one processor.
fn shared(repeat: u32, traffic: Traffic, methods: &[Method], report: &mut Report) -> anyhow::Result<()> {
    const BENCH: &str = "receive, beside another program";
    const COLUMNS: [&str; 3] = ["lost", "processor of the other", "its longest wait"];
    let mut rows = Vec::new();
    for repetition in 1..=repeat {
        for &method in methods {
            say(&format!("{BENCH}, {}: repetition {repetition} of {repeat} ...", method.text()));
            let outcome = ends::run(&Plan::Shared { method, traffic, seed: repetition.into() })?;
            let lost = traffic.count - outcome.received.min(traffic.count);
            let values = [
                (Unit::Percent, lost as f64 * 100.0 / traffic.count as f64),
                (Unit::Percent, 100.0 * outcome.beside),
                (Unit::Nanoseconds, outcome.beside_waits_ns),
            ];
            let mut places = Vec::new();
            for (what, (unit, value)) in COLUMNS.into_iter().zip(values) {
                places.push(Some(report.add(BENCH, &format!("{}: {what}", method.text()), unit, value)));
            }
            if repetition == 1 {
                rows.push((method.text().to_owned(), places));
            }
        }
    }
    let columns = COLUMNS.map(str::to_owned).to_vec();
    let caption = format!("{} datagrams a second, both programs on one processor", traffic.rate);
    report.grids.push(Grid { bench: BENCH, caption, columns, rows });
    Ok(())
}

fn overload(repeat: u32, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    const BENCH: &str = "receive, overload";
    const RULES: [Rule; 4] = [Rule::Kernel, Rule::Newest, Rule::Deadline, Rule::LatestByKey];
    let count = (OVERLOAD as f64 * time.as_secs_f64()).max(1.0) as u64;
    let traffic = Traffic { rate: OVERLOAD, count, len: LEN, segments: 1 };
    let mut rows = Vec::new();
    for repetition in 1..=repeat {
        for rule in RULES {
            say(&format!("{BENCH}, {}: repetition {repetition} of {repeat} ...", rule.text()));
            let mut ages = ends::run(&Plan::Slow { rule, traffic })?.ages_ns;
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
