//! State in a ring: the newest value of each key, or every value with a deadline.

use std::time::Duration;

use freshwire::sink::CloseMode;
use freshwire::{Ended, Meta, Outcome, PushError, RingConfig, Sender, Sink, SinkId, choice};
use freshwire_record::Timestamp;

use super::schema::{Fates, Plan, SenderAccount};
use super::source::Ticks;
use super::{scheme, value};

/// How long the engine may take to end the sink.
const CLOSE: Duration = Duration::from_secs(2);

/// The longest that values with a deadline may pile up, whatever their lifetime.
const MOST_SLOTS: u32 = 1 << 15;

/// The policy of the plan's scheme.
pub(super) fn policy(plan: &Plan) -> Box<dyn choice::Choice> {
    if plan.scheme == scheme::DEADLINE {
        Box::new(choice::deadline(Duration::ZERO))
    } else {
        Box::new(choice::latest())
    }
}

/// Over A1 a value keeps its slot until it is acknowledged (see `RingConfig::for_clients`). These values are 15 kB, the default
/// queue of the link, with 40 bytes each.
const ON_THE_WAY: u32 = 384;

/// A region for the newest value of each key, or for each value that can be alive at once.
pub(super) fn region(plan: &Plan) -> RingConfig {
    if plan.scheme != scheme::DEADLINE {
        let keys = if plan.is_a1() { plan.objects + ON_THE_WAY } else { plan.objects };
        return RingConfig::for_clients(1, keys, plan.value_bytes);
    }
    let alive = f64::from(plan.objects) * (plan.updates_per_s * plan.lifetime_ms / 1e3 + 2.0);
    let slots = (alive.ceil() as u32).next_power_of_two().clamp(16, MOST_SLOTS);
    RingConfig { rings: 1, slots, block_bytes: plan.value_bytes.next_multiple_of(64), blocks: slots }
}

/// Feeds the sink from `start` for as long as the source makes values, and polls fates once a tick.
pub(super) fn feed(
    plan: &Plan,
    sender: &mut Sender,
    sink: Sink,
    start: Timestamp,
) -> anyhow::Result<SenderAccount> {
    let by_key = plan.scheme != scheme::DEADLINE;
    let lifetime = Duration::from_secs_f64(plan.lifetime_ms / 1e3);
    let id = sink.id();
    let mut ticks = Ticks::new(plan, start);
    let mut says =
        SenderAccount { application_bytes: sender.region().total_bytes(), ..SenderAccount::default() };
    let mut tally = Tally { plan, start, fates: Fates::default(), acked_after_us: Vec::new() };
    let mut bytes = Vec::new();
    while let Some(tick) = ticks.next() {
        let made = start + plan.tick_at(tick);
        for key in 0..plan.objects {
            bytes.clear();
            value::write(key, tick, plan.value_bytes, &mut bytes);
            let seq = u64::from(tick) * u64::from(plan.objects) + u64::from(key);
            let meta = Meta { seq, generated: made, key: u64::from(key) + 1, ..Meta::default() };
            let pushed = if by_key {
                sender.replace(id, &bytes, &meta).map(|_| ())
            } else {
                sender.push(id, &bytes, &Meta { deadline: made + lifetime, ..meta }).map(|_| ())
            };
            match pushed {
                Ok(()) => says.offered += 1,
                Err(PushError::Full | PushError::OutOfBlocks) => says.refused += 1,
                Err(error) => return Err(error.into()),
            }
        }
        tally.poll(sender, id);
    }
    let ended = sink.close(CloseMode::Abort, CLOSE);
    anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
    tally.poll(sender, id);
    says.skipped_ticks = ticks.skipped;
    says.lateness_us = ticks.lateness_us();
    says.fates = Some(tally.end(sender.fates_lost(id)?));
    Ok(says)
}

/// The fates, counted.
struct Tally<'a> {
    plan: &'a Plan,
    start: Timestamp,
    fates: Fates,
    acked_after_us: Vec<u64>,
}

impl Tally<'_> {
    fn poll(&mut self, sender: &mut Sender, id: SinkId) {
        while let Ok(Some(fate)) = sender.poll_fate(id) {
            match fate.outcome {
                Outcome::Acked => self.fates.acked += 1,
                Outcome::Dropped(_) => self.fates.dropped += 1,
                // Counted where they were pushed.
                Outcome::Refused => continue,
                _ => self.fates.sent += 1,
            }
            let tick = (fate.seq / u64::from(self.plan.objects)) as u32;
            if let (Outcome::Acked, Some(at)) = (fate.outcome, fate.acked_at) {
                let made = self.start + self.plan.tick_at(tick);
                self.acked_after_us.push(at.saturating_since(made).as_micros() as u64);
            }
        }
    }

    fn end(mut self, lost: u64) -> Fates {
        self.acked_after_us.sort_unstable();
        let median = self.acked_after_us.get(self.acked_after_us.len().saturating_sub(1) / 2);
        Fates { lost, acked_after_us: median.copied(), ..self.fates }
    }
}
