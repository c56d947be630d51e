//! `freshwire-host ack-filter`: acknowledgements that a sending host need not see, dropped before its TCP stack.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_acks::{Advice, Config, Counters, Filter, Hook, HookChoice, Rule, Verdict, Watch, WatchConfig};
use freshwire_record::parse_duration;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::output::{self, Progress, json_line, percent, say};

/// Drop acknowledgements of bulk receivers before the TCP stack of this host sees them: for hosts that send to receivers that
/// acknowledge each packet. One passes for each segment, and each that says something unusual. Needs root and Linux 6.6.
///
/// The filter detaches itself while there is nothing to gain, and leaves with this process however that ends.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 ended in order, 2 usage or failure.")]
pub(crate) struct AckFilterArgs {
    /// The network interface, such as eth0.
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// Which acknowledgements are dropped.
    #[arg(long, value_enum, default_value_t = RuleArg::Safe)]
    rule: RuleArg,
    /// Where arriving packets are looked at.
    #[arg(long, value_enum, default_value_t = HookArg::Auto)]
    hook: HookArg,
    /// Stay attached where there is nothing to gain.
    #[arg(long)]
    always: bool,
    /// End after this time, such as 30s [default: with Ctrl-C].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Print the counters as a JSON line at the end.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RuleArg {
    /// One passes for each segment before offload, at least three for each window, and everything unusual.
    Safe,
    /// One passes each millisecond, and everything unusual but windows; what CAKE's ack-filter leaves of a queue that long.
    Cake,
    /// One passes for each window (Marigi and Irestål, 2012); halves the throughput of CUBIC on paths with delay.
    Checkpoint,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HookArg {
    /// XDP where the device's driver has it, else tc.
    Auto,
    /// In the device's driver.
    Xdp,
    /// At the ingress of traffic control.
    Tc,
}

/// How often the counters are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the process looks whether it should end.
const TURN: Duration = Duration::from_millis(50);

/// Runs `freshwire-host ack-filter`.
pub(crate) fn run(args: &AckFilterArgs) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::watch()?;
    let rule = match args.rule {
        RuleArg::Safe => Rule::Safe,
        RuleArg::Cake => Rule::Cake,
        RuleArg::Checkpoint => Rule::Checkpoint,
    };
    let choice = match args.hook {
        HookArg::Auto => HookChoice::Auto,
        HookArg::Xdp => HookChoice::Only(Hook::Xdp),
        HookArg::Tc => HookChoice::Only(Hook::Tc),
    };
    let mut filter = Filter::new(&args.interface, choice, &Config::new(rule))
        .with_context(|| format!("cannot filter acknowledgements at {}", args.interface))?;
    say(&format!("filtering at {} by {}", args.interface, place(&filter)));
    interrupt.arm();
    watch(args, &mut filter, &interrupt)?;
    let counters = filter.counters()?;
    output::print(&if args.json { json(&counters)? } else { table(&counters) })?;
    Ok(ExitCode::SUCCESS)
}

fn watch(args: &AckFilterArgs, filter: &mut Filter, interrupt: &Interrupt) -> anyhow::Result<()> {
    let begin = freshwire_io::now();
    let mut next = begin + LOOK_EVERY;
    let mut watch = Watch::new(WatchConfig::default());
    let mut progress = Progress::new(args.json);
    loop {
        let now = freshwire_io::now();
        if interrupt.arrived() || args.time.is_some_and(|time| now.saturating_since(begin) >= time) {
            progress.finish();
            return Ok(());
        }
        if now >= next {
            next = now + LOOK_EVERY;
            let counters = filter.counters()?;
            if !args.always {
                follow(watch.look(&counters), filter)?;
            }
            progress.tell(now, || line(&counters, filter));
        }
        std::thread::sleep(TURN);
    }
}

fn follow(advice: Advice, filter: &mut Filter) -> anyhow::Result<()> {
    match (advice, filter.hook()) {
        (Advice::StepAside, Some(_)) => filter.detach().context("cannot step aside"),
        (Advice::Filter, None) => filter.attach().map(drop).context("cannot attach again"),
        _ => Ok(()),
    }
}

fn line(counters: &Counters, filter: &Filter) -> String {
    format!(
        "dropped {} of {} acknowledgements ({}); {}",
        counters.dropped(),
        counters.acks(),
        percent(counters.share()),
        place(filter)
    )
}

fn place(filter: &Filter) -> &'static str {
    match filter.hook() {
        Some(Hook::Xdp) => "XDP",
        Some(Hook::Tc) => "tc",
        None => "stepped aside: nothing to gain",
    }
}

fn table(counters: &Counters) -> String {
    let explain = |verdict| match verdict {
        Verdict::Drop => "not given to TCP",
        Verdict::Other => "not TCP, or with IP options, extensions, marks",
        Verdict::Unknown => "of connections without data from here",
        Verdict::Data => "with data",
        Verdict::Flags => "SYN, FIN, RST, ECE, CWR or other flags",
        Verdict::Options => "SACK or other options",
        Verdict::Outside => "older than another, or beyond what was sent",
        Verdict::Duplicate => "says the same again",
        Verdict::Window => "another window",
        Verdict::Recovery => "during a repair",
        Verdict::Last => "at most one packet left",
        Verdict::Spacing => "one for a segment",
        Verdict::Time => "the first for a while",
    };
    let line = |name: &str, explained: &str, count: &str| format!("{name:<10} {explained:<48} {count:>10}\n");
    let rows = Verdict::ALL.into_iter().filter(|verdict| counters.of(*verdict) > 0);
    let rows = rows.map(|verdict| line(verdict.name(), explain(verdict), &counters.of(verdict).to_string()));
    format!(
        "{} of {} acknowledgements dropped; {} segments of {:.1} packets sent\n{}{}",
        percent(counters.share()),
        counters.acks(),
        counters.segments,
        counters.packets as f64 / counters.segments.max(1) as f64,
        line("arrivals", "what they were", "packets"),
        rows.collect::<String>()
    )
}

fn json(counters: &Counters) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Line {
        acks: u64,
        dropped: u64,
        share: f64,
        segments: u64,
        packets: u64,
        arrivals: std::collections::BTreeMap<&'static str, u64>,
    }
    let line = Line {
        acks: counters.acks(),
        dropped: counters.dropped(),
        share: counters.share(),
        segments: counters.segments,
        packets: counters.packets,
        arrivals: Verdict::ALL.iter().map(|verdict| (verdict.name(), counters.of(*verdict))).collect(),
    };
    json_line("ack_filter", &line)
}
