//! Outcomes of scenarios as JSON lines. Times are in milliseconds.

use std::time::Duration;

use freshwire_sim::FlowOutcome;
use serde::Serialize;

use super::played::PlayedScenario;
use crate::output::json_line;

#[derive(Serialize)]
struct Run<'a> {
    scenario: &'a str,
    seed: u64,
    flows: Vec<Flow<'a>>,
    misses: &'a [String],
    datagrams: u64,
    fingerprint: String,
}

#[derive(Serialize)]
struct Flow<'a> {
    name: &'a str,
    records: usize,
    on_time: f64,
    base: f64,
    late: usize,
    dropped: usize,
    given_up: usize,
    goodput_bps: u64,
    delays_ms: Delays,
    base_delays_ms: Delays,
    recovery_ms: Option<f64>,
    held_peak_bytes: u64,
    connections: usize,
}

#[derive(Serialize)]
struct Delays {
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

/// A line for each scenario.
pub(super) fn lines(played: &[PlayedScenario], seed: u64) -> anyhow::Result<String> {
    let line = |played: &PlayedScenario| {
        let PlayedScenario { name, outcome, .. } = played;
        let run = Run {
            scenario: name,
            seed,
            flows: outcome.flows.iter().map(flow).collect(),
            misses: &outcome.misses,
            datagrams: outcome.datagrams,
            fingerprint: format!("{:016x}", outcome.fingerprint),
        };
        json_line("sim", &run)
    };
    Ok(played.iter().map(line).collect::<anyhow::Result<Vec<_>>>()?.join("\n"))
}

fn flow(flow: &FlowOutcome) -> Flow<'_> {
    Flow {
        name: &flow.name,
        records: flow.offered,
        on_time: flow.on_time,
        base: flow.base,
        late: flow.late,
        dropped: flow.dropped,
        given_up: flow.abandoned,
        goodput_bps: flow.goodput.bits_per_sec(),
        delays_ms: delays(flow.delays),
        base_delays_ms: delays(flow.base_delays),
        recovery_ms: flow.recovery.map(ms),
        held_peak_bytes: flow.held_peak,
        connections: flow.connections,
    }
}

fn delays(delays: [Duration; 4]) -> Delays {
    let [p50, p95, p99, max] = delays.map(ms);
    Delays { p50, p95, p99, max }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
