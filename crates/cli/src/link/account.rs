use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use freshwire_link::{Config, Direction};
use freshwire_netns::{Account, DirectionAccount};
use serde_json::{Value, json};

use super::args::LinkArgs;

/// Version of the JSON form.
const SCHEMA_VERSION: u32 = 1;

/// A table for a person.
pub(super) fn text(account: &Account, elapsed: Duration) -> String {
    let mut text = format!(
        "link  {:>9} {:>9} {:>8} {:>8} {:>12} {:>11} {:>9} {:>10}\n",
        "offered", "delivered", "lost", "dropped", "bytes", "kbit/s", "queue B", "wait ms"
    );
    for (name, direction) in [("up", &account.up), ("down", &account.down)] {
        let link = direction.link;
        let kbits = link.delivered_bytes as f64 * 8e-3 / elapsed.as_secs_f64().max(1e-9);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:<5} {:>9} {:>9} {:>8} {:>8} {:>12} {:>11.1} {:>9} {:>10.1}",
            link.offered_packets,
            link.delivered_packets,
            link.lost_packets,
            link.queue_full_packets + link.wire_full_packets,
            link.delivered_bytes,
            kbits,
            link.queue_peak_bytes,
            link.queue_delay_max.as_secs_f64() * 1e3,
        );
    }
    let late = account.lateness;
    let _ = writeln!(text, "late  p50 {:.1?}, p99 {:.1?}, max {:.1?}", late.p50, late.p99, late.max);
    text + &faults(account)
}

/// Why the run cannot be trusted, a line for each reason; empty if it can.
pub(super) fn faults(account: &Account) -> String {
    account.faults.iter().map(|fault| format!("freshwire: not what the link should be: {fault}\n")).collect()
}

/// One line of JSON with everything that is needed to repeat the run.
pub(super) fn json(
    args: &LinkArgs,
    account: &Account,
    elapsed: Duration,
    code: u8,
) -> anyhow::Result<String> {
    let command: Vec<_> = args.command.iter().map(|argument| argument.to_string_lossy()).collect();
    let line = json!({
        "type": "link",
        "version": SCHEMA_VERSION,
        "data": {
            "freshwire": env!("CARGO_PKG_VERSION"),
            "kernel": rustix::system::uname().release().to_string_lossy(),
            "command": command,
            "peer": args.peer,
            "exit_code": code,
            "elapsed_s": elapsed.as_secs_f64(),
            "seed": args.seed,
            "up": direction(&args.config(Direction::Up)?, &account.up),
            "down": direction(&args.config(Direction::Down)?, &account.down),
            "lateness_ns": {
                "p50": nanos(account.lateness.p50),
                "p99": nanos(account.lateness.p99),
                "max": nanos(account.lateness.max),
            },
            "ignored_frames": account.ignored_frames,
            "real_time": account.real_time,
            "trustworthy": account.is_trustworthy(),
            "faults": account.faults,
        },
    });
    Ok(serde_json::to_string(&line).context("cannot write the account as JSON")? + "\n")
}

fn direction(config: &Config, account: &DirectionAccount) -> Value {
    let link = account.link;
    let steps: Vec<_> = config
        .schedule()
        .steps()
        .iter()
        .map(|step| json!({ "at_s": step.at.as_secs_f64(), "bit_per_s": step.rate.map(|rate| rate.bits_per_sec()) }))
        .collect();
    json!({
        "config": {
            "rate": steps,
            "repeat_after_s": config.schedule().repeat_after().map(|period| period.as_secs_f64()),
            "delay_ns": nanos(config.delay()),
            "queue_bytes": config.queue_bytes(),
            "loss": format!("{:?}", config.loss()),
            "average_loss": config.loss().average(),
        },
        "offered_packets": link.offered_packets,
        "offered_bytes": link.offered_bytes,
        "delivered_packets": link.delivered_packets,
        "delivered_bytes": link.delivered_bytes,
        "lost_packets": link.lost_packets,
        "lost_bytes": link.lost_bytes,
        "queue_full_packets": link.queue_full_packets,
        "queue_full_bytes": link.queue_full_bytes,
        "wire_full_packets": link.wire_full_packets,
        "queue_peak_bytes": link.queue_peak_bytes,
        "queue_delay_max_ns": nanos(link.queue_delay_max),
        "missed_frames": account.missed_frames,
        "oversized_frames": account.oversized_frames,
        "send_errors": account.send_errors,
        "kernel_drops": account.kernel_drops,
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
