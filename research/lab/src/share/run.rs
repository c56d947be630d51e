//! One run: the flows, the probes and a look at what was received in each second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_record::Rate;

use super::flow::Flow;
use super::probe::Probe;
use super::schema::{Plan, Run};
use crate::scenario::{TestLink, wait_until};
use crate::schema::{Environment, Trust};

/// From one flow's begin to the next.
const STAGGER: Duration = Duration::from_millis(500);

/// From the last connection to the first flow's begin.
const LEAD: Duration = Duration::from_millis(200);

/// Makes a run. Call while the process has one thread.
pub(crate) fn measure(plan: Plan, environment: Environment) -> anyhow::Result<Run> {
    let link = TestLink::open(&plan.link)?;
    let rate = Rate::from_bits_per_sec(plan.link.rate_bps.context("a shared link has a rate")?);
    let open = |name: &String| Flow::open(&link, name, rate);
    let flows = plan.flows.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    let probe = Probe::open(&link)?;
    let begin = link.start_after(LEAD)?;
    let end = begin + Duration::from_secs(plan.duration_s.into());
    let counters: Vec<AtomicU64> = plan.flows.iter().map(|_| AtomicU64::new(0)).collect();
    let delay = Duration::from_nanos(plan.link.delay_ns());
    let (bytes, lost, waits) = std::thread::scope(|scope| {
        let running: Vec<_> = (plan.link.seed..)
            .zip(flows.into_iter().zip(&counters))
            .map(|(turn, (flow, counter))| {
                let place = (turn % plan.flows.len() as u64) as u32;
                scope.spawn(move || flow.run(begin + STAGGER * place, end, counter))
            })
            .collect();
        let probing = scope.spawn(move || probe.run(begin, end, delay));
        let bytes = by_second(&counters, &plan, |second| wait_until(begin + Duration::from_secs(second)));
        let mut lost = Vec::new();
        for (flow, name) in running.into_iter().zip(&plan.flows) {
            let ended = flow.join().map_err(|_| anyhow::anyhow!("the flow {name} panicked"))?;
            lost.push(ended.map_err(|error| error.context(format!("the flow {name}")))?);
        }
        let waits = probing.join().map_err(|_| anyhow::anyhow!("the probes panicked"))??;
        anyhow::Ok((bytes, lost, waits))
    })?;
    let faults = link.close().faults;
    let trust = Trust::of(&faults);
    Ok(Run { plan, environment, trust, bytes, lost, waits, metrics: None })
}

/// Growth of each counter in each second.
fn by_second(counters: &[AtomicU64], plan: &Plan, wait_for: impl Fn(u64)) -> Vec<Vec<u64>> {
    let mut bytes = vec![Vec::new(); counters.len()];
    let mut before = vec![0; counters.len()];
    for second in 1..=u64::from(plan.duration_s) {
        wait_for(second);
        for ((counter, before), bytes) in counters.iter().zip(&mut before).zip(&mut bytes) {
            let count = counter.load(Ordering::Relaxed);
            bytes.push(count - std::mem::replace(before, count));
        }
    }
    bytes
}
